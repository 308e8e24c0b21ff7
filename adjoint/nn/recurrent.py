"""Recurrent layers as functions: `adjoint.lstm`, `gru`, `rnn_tanh`, `rnn_relu` and their cells."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.nn.modules import rnn
from adjoint.nn.modules.module import Module
from adjoint.ops.public import typed

__all__ = ["gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu", "rnn_relu_cell", "rnn_tanh",
           "rnn_tanh_cell"]


class _Given(rnn.RNNBase):
    """A layer whose weights are arguments: what `RNNBase` computes, without parameters of its own.
    """

    def __init__(self, mode: str, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool,
                 num_layers: int, dropout: float, train: bool, bidirectional: bool,
                 batch_first: bool) -> None:
        Module.__init__(self)
        self.training, self.mode, self.bias = bool(train), mode, has_biases
        self.num_layers, self.dropout = num_layers, float(dropout)
        self.bidirectional, self.batch_first = bidirectional, batch_first
        self.hidden_size = hx[-1].shape[-1]
        state = hx[0].shape[-1]
        self.proj_size = state if state != self.hidden_size else 0
        kinds = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if has_biases else []),
                 *(["weight_hr"] if self.proj_size else [])]
        suffixes = ("", "_reverse")[:2 if bidirectional else 1]
        self._all_weights = [[f"{kind}_l{layer}{suffix}" for kind in kinds]
                             for layer in range(num_layers) for suffix in suffixes]
        names = [name for group in self._all_weights for name in group]
        if len(params) != len(names):
            raise ArgumentError(f"got an incorrect number of RNN parameters: {len(params)}, "
                                f"{num_layers} layers in {len(suffixes)} directions have "
                                f"{len(names)}: {', '.join(kinds)} of each")
        self.input_size = params[0].shape[-1]
        for name, value in zip(names, params, strict=True):
            self.__dict__[name] = value


def _layers(mode: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The two forms: (input, hx, params, ..., batch_first) and (data, batch_sizes, hx, params, ...)
    of sequences that are packed."""
    packed = "batch_sizes" in kwargs or (
        len(args) > 3 and isinstance(args[1], Tensor) and isinstance(args[3], (tuple, list)))
    return (_packed if packed else _padded)(mode, *args, **kwargs)


def _padded(mode: str, input: Any, hx: Any, params: Sequence[Any], has_biases: bool,
            num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool
            ) -> tuple[Any, ...]:
    states = tuple(hx) if mode == "LSTM" else (hx,)
    layer = _Given(mode, states, params, has_biases, num_layers, dropout, train, bidirectional,
                   batch_first)
    out, last = layer.forward(input, hx if mode != "LSTM" else states)
    return (out, *last) if mode == "LSTM" else (out, last)


def _packed(mode: str, data: Any, batch_sizes: Any, hx: Any, params: Sequence[Any],
            has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool
            ) -> tuple[Any, ...]:
    states = tuple(hx) if mode == "LSTM" else (hx,)
    layer = _Given(mode, states, params, has_biases, num_layers, dropout, train, bidirectional,
                   False)
    out, last = layer._layers(data, batch_sizes.tolist(), states)
    return out, *last


def lstm(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """`nn.LSTM` with its weights as arguments: (outputs, h_n, c_n).

    `lstm(input, (h_0, c_0), params, has_biases, num_layers, dropout, train, bidirectional,
    batch_first)`, or `lstm(data, batch_sizes, (h_0, c_0), params, has_biases, num_layers, dropout,
    train, bidirectional)` of the parts of a packed sequence. `params` as `nn.LSTM` lists them.

    >>> import adjoint as ad
    >>> layer, x, s = ad.nn.LSTM(3, 2), ad.ones(4, 1, 3), ad.zeros(1, 1, 2)
    >>> out, h, c = ad.lstm(x, (s, s), list(layer.parameters()), True, 1, 0.0, False, False, False)
    >>> bool((out == layer(x)[0]).all())
    True
    """
    return _layers("LSTM", args, kwargs)


def _named(name: str, mode: str, module: str) -> Callable[..., tuple[Any, ...]]:
    def run(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return _layers(mode, args, kwargs)
    run.__name__ = run.__qualname__ = name
    run.__doc__ = (f"`nn.{module}` with its weights as arguments: (outputs, h_n). As `lstm`, with "
                   "one state `h_0` in place of the pair.")
    return run


gru = _named("gru", "GRU", "GRU")
rnn_tanh = _named("rnn_tanh", "RNN_TANH", "RNN")
rnn_relu = _named("rnn_relu", "RNN_RELU", "RNN")


def _step(mode: str, input: Any, hx: tuple[Any, ...], w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any
          ) -> tuple[Any, ...]:
    if input.shape[-1] != w_ih.shape[-1]:
        raise ShapeError(f"input has inconsistent input_size: got {input.shape[-1]} expected "
                         f"{w_ih.shape[-1]}")
    if hx[0].shape[-1] != w_hh.shape[-1]:
        raise ShapeError(f"hidden has inconsistent hidden_size: got {hx[0].shape[-1]} expected "
                         f"{w_hh.shape[-1]}")
    step, _ = rnn._STEPS[mode]
    return step(F.linear(input, w_ih, b_ih), hx, rnn._Weights(w_hh, b_hh, None))


@typed
def lstm_cell(input: Any, hx: Sequence[Any], w_ih: Any, w_hh: Any, b_ih: Any = None,
              b_hh: Any = None) -> tuple[Any, Any]:
    """`nn.LSTMCell` with its weights as arguments: (h, c)."""
    if len(hx) != 2:
        raise ArgumentError(f"lstm_cell expects two hidden states, got {len(hx)}")
    h, c = _step("LSTM", input, tuple(hx), w_ih, w_hh, b_ih, b_hh)
    return h, c


def _cell(name: str, mode: str, module: str) -> Callable[..., Any]:
    def run(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        return _step(mode, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]
    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"`nn.{module}` with its weights as arguments."
    return typed(run)


gru_cell = _cell("gru_cell", "GRU", "GRUCell")
rnn_tanh_cell = _cell("rnn_tanh_cell", "RNN_TANH", "RNNCell")
rnn_relu_cell = _cell("rnn_relu_cell", "RNN_RELU", "RNNCell")
