"""Recurrent layers (RNN, LSTM, GRU) and their cells."""
from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError, ShapeError, StructureError
from adjoint.core import modes
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn import _core, init
from adjoint.nn.modules._check import empty_parameter, positive, tensor_input
from adjoint.nn.modules.module import Module
from adjoint.nn.utils.rnn import PackedSequence
from adjoint.ops.recurrent import gru_cell_op, lstm_cell_op, lstm_op

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

State = tuple[Tensor, ...]  # (h,) or (h, c)
Step = Callable[[Tensor, State, "_Weights"], State]


class _Weights:
    """Hidden-to-hidden parameters of one layer and direction."""

    def __init__(self, hh: Tensor, bias_hh: Tensor | None, hr: Tensor | None) -> None:
        self.hh, self.bias_hh, self.hr = hh, bias_hh, hr


def _tanh_step(gates: Tensor, state: State, w: _Weights) -> State:
    return (F.tanh(gates + F.linear(state[0], w.hh, w.bias_hh)),)


def _relu_step(gates: Tensor, state: State, w: _Weights) -> State:
    return (F.relu(gates + F.linear(state[0], w.hh, w.bias_hh)),)


def _lstm_step(gates: Tensor, state: State, w: _Weights) -> State:
    """i, f, g, o from the input's and the state's share; c' = f c + i g, h' = o tanh(c')."""
    h, c = lstm_cell_op(gates + F.linear(state[0], w.hh, w.bias_hh), state[1])
    return (h if w.hr is None else F.linear(h, w.hr)), c


def _gru_step(gates: Tensor, state: State, w: _Weights) -> State:
    """r, z, n; h' = n + z (h - n), where n = tanh(x_n + r h_n)."""
    return (gru_cell_op(gates, F.linear(state[0], w.hh, w.bias_hh), state[0]),)


_STEPS: dict[str, tuple[Step, int]] = {
    "RNN_TANH": (_tanh_step, 1), "RNN_RELU": (_relu_step, 1), "LSTM": (_lstm_step, 4),
    "GRU": (_gru_step, 3)}


class RNNBase(Module):
    """What RNN, LSTM and GRU share: parameters by layer and direction, and the loop over time.

    Parameters of layer k: ``weight_ih_lk`` (gates hidden_size, inputs), ``weight_hh_lk``,
    ``bias_ih_lk``, ``bias_hh_lk``, and ``weight_hr_lk`` with proj_size; the reverse direction
    adds ``_reverse``. All start uniform in +-1/sqrt(hidden_size).
    """

    def __init__(self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1,
                 bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
                 bidirectional: bool = False, proj_size: int = 0, device: Any = None,
                 dtype: Any = None) -> None:
        self._check_sizes(mode, input_size, hidden_size, num_layers, dropout, proj_size)
        for name, flag in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(flag).__name__}")
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        directions = 2 if bidirectional else 1
        gates = _STEPS[mode][1] * hidden_size
        state = proj_size or hidden_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else state * directions
            for suffix in ("", "_reverse")[:directions]:
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, inputs),
                                                      "weight_hh": (gates, state)}
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = []
                for kind, shape in shapes.items():
                    names.append(f"{kind}_l{layer}{suffix}")
                    setattr(self, names[-1], empty_parameter(shape, device, dtype))
                self._all_weights.append(names)
        self.reset_parameters()

    @staticmethod
    def _check_sizes(mode: str, input_size: int, hidden_size: int, num_layers: int, dropout: float,
                     proj_size: int) -> None:
        if mode not in _STEPS:
            raise ArgumentError(f"Unrecognized RNN mode: {mode}; known are {', '.join(_STEPS)}")
        if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not (
                0 <= dropout <= 1):
            raise ArgumentError("dropout should be a number in range [0, 1] representing the "
                                f"probability of an element being zeroed, got {dropout}")
        if dropout > 0 and num_layers == 1:
            warnings.warn("dropout option adds dropout after all but last recurrent layer, so "
                          f"non-zero dropout expects num_layers greater than 1, but got "
                          f"dropout={dropout} and num_layers={num_layers}", stacklevel=4)
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size),
                            ("num_layers", num_layers)):
            if not isinstance(value, int):
                raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
            if value <= 0:
                raise ArgumentError(f"{name} must be greater than zero, got {value}")
        if proj_size < 0:
            raise ArgumentError("proj_size should be a positive integer or zero to disable "
                                f"projections, got {proj_size}")
        if proj_size >= hidden_size:
            raise ArgumentError(f"proj_size has to be smaller than hidden_size: {proj_size} >= "
                                f"{hidden_size}")

    def reset_parameters(self) -> None:
        """Draw every parameter uniformly from +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Does nothing: there is no packed layout to keep."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    # -- checks -------------------------------------------------------------------------------
    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Parameter]:
        return [getattr(self, name) for name in self._flat_weights_names]

    def __getstate__(self) -> dict[str, Any]:
        """With the names and the list of weights that PyTorch's reader of whole modules wants."""
        names = self._flat_weights_names
        return self.__dict__ | {"_flat_weights_names": names,
                                "_flat_weights": [getattr(self, n, None) for n in names]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({k: v for k, v in state.items() if not k.startswith("_flat_weight")})

    def _expected_hidden(self, batch: int) -> list[tuple[str, tuple[int, int, int]]]:
        n = self.num_layers * (2 if self.bidirectional else 1)
        h = (n, batch, self.proj_size or self.hidden_size)
        if self.mode == "LSTM":
            return [("hidden[0]", h), ("hidden[1]", (n, batch, self.hidden_size))]
        return [("hidden", h)]

    def _check_hidden(self, hx: State, batch: int) -> None:
        for (name, shape), given in zip(self._expected_hidden(batch), hx, strict=True):
            if tuple(given.shape) != shape:
                raise ShapeError(f"Expected {name} size {shape}, got {list(given.shape)}")

    def _check_input(self, input: Tensor) -> None:
        if input.shape[-1] != self.input_size:
            raise ShapeError("input.size(-1) must be equal to input_size. Expected "
                             f"{self.input_size}, got {input.shape[-1]}: the input's shape is "
                             f"{tuple(input.shape)}")
        weight = self.weight_ih_l0
        if input.dtype != weight.dtype and not modes.state() & modes.AUTOCAST:
            raise StructureError(f"RNN input dtype ({input.dtype}) does not match weight dtype "
                                 f"({weight.dtype}). Convert input: input.to({weight.dtype}), or "
                                 f"convert model: model.to({input.dtype})")

    def _given(self, hx: Any) -> State | None:
        if hx is None:
            return None
        if self.mode == "LSTM":
            if not isinstance(hx, (tuple, list)) or len(hx) != 2:
                raise ArgumentError("LSTM: the state must be a pair of tensors (h_0, c_0), got "
                                    f"{type(hx).__name__}")
            return tuple(hx)
        tensor_input(self, hx, "hx")
        return (hx,)

    # What subclasses override and call, under PyTorch's names.
    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raise unless `input` fits the layer: (T, B, I), or packed (sum of lengths, I)."""
        rank = 2 if batch_sizes is not None else 3
        if input.dim() != rank:
            raise ShapeError(f"input must have {rank} dimensions, got {input.dim()}")
        self._check_input(input)

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None
                                 ) -> tuple[int, int, int]:
        """The shape of h_0 for this input."""
        batch = int(batch_sizes[0]) if batch_sizes is not None else input.size(
            0 if self.batch_first else 1)
        return self._expected_hidden(batch)[0][1]

    def check_hidden_size(self, hx: Tensor, expected_hidden_size: tuple[int, int, int],
                          msg: str = "Expected hidden size {}, got {}") -> None:
        """Raise, in the words of `msg`, unless `hx` has that shape."""
        if hx.size() != tuple(expected_hidden_size):
            raise ShapeError(msg.format(tuple(expected_hidden_size), list(hx.size())))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """`check_input`, and `check_hidden_size` of the state."""
        self.check_input(input, batch_sizes)
        batch = self.get_expected_hidden_size(input, batch_sizes)[1]
        self._check_hidden(hidden if self.mode == "LSTM" else (hidden,), batch)

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The state with its sequences in another order."""
        if permutation is None:
            return hx
        if isinstance(hx, tuple):
            return tuple(h.index_select(1, permutation) for h in hx)
        return hx.index_select(1, permutation)

    # -- computation --------------------------------------------------------------------------
    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        state = self._given(hx)
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, state)
        tensor_input(self, input)
        if input.ndim not in (2, 3):
            raise ShapeError(f"{self._get_name()}: Expected input to be 2D or 3D, got "
                             f"{input.ndim}D instead; the shape is {tuple(input.shape)}")
        self._check_input(input)
        batched = input.ndim == 3
        odd = next((s for s in state or () if s.ndim != input.ndim), None)
        if odd is not None:
            raise ShapeError(
                f"For {'batched' if batched else 'unbatched'} {input.ndim}-D input, hx should also "
                f"be {input.ndim}-D but got {odd.ndim}-D tensor")
        axis = 1 if not batched else 0 if self.batch_first else 1
        if not batched:
            input = input.unsqueeze(1)
            state = None if state is None else tuple(s.unsqueeze(1) for s in state)
        elif self.batch_first:
            input = input.transpose(0, 1)
        steps, batch = input.shape[0], input.shape[1]
        if steps == 0:
            raise ShapeError("Expected sequence length to be larger than 0 in RNN")
        state = self._start(state, batch, input)
        flat = input.reshape(steps * batch, input.shape[2])
        out, last = self._layers(flat, [batch] * steps, state)
        out = out.reshape(steps, batch, out.shape[1])
        if not batched:
            out, last = out.squeeze(1), tuple(s.squeeze(1) for s in last)
        elif axis == 0:
            out = out.transpose(0, 1)
        return out, (last if self.mode == "LSTM" else last[0])

    def _forward_packed(self, input: PackedSequence, state: State | None
                        ) -> tuple[PackedSequence, Any]:
        self._check_input(input.data)
        sizes = input.batch_sizes.array.tolist()
        if state is not None and input.sorted_indices is not None:
            self._check_hidden(state, sizes[0])
            state = tuple(s.index_select(1, input.sorted_indices) for s in state)
        out, last = self._layers(input.data, sizes, self._start(state, sizes[0], input.data))
        if input.unsorted_indices is not None:
            last = tuple(s.index_select(1, input.unsorted_indices) for s in last)
        return input._with(out), (last if self.mode == "LSTM" else last[0])

    def _start(self, state: State | None, batch: int, like: Tensor) -> State:
        if state is None:
            return tuple(_core.zeros(shape, dtype=like.dtype, device=like.device)
                         for _, shape in self._expected_hidden(batch))
        self._check_hidden(state, batch)
        return state

    def _layers(self, x: Tensor, sizes: list[int], state: State) -> tuple[Tensor, State]:
        """x (sum of sizes, features) through all layers; sizes[t] rows belong to step t."""
        directions = 2 if self.bidirectional else 1
        finals: list[State] = []
        for layer in range(self.num_layers):
            outs = []
            for reverse in range(directions):
                k = layer * directions + reverse
                out, final = self._direction(x, sizes, tuple(s[k] for s in state),
                                             self._all_weights[k], bool(reverse))
                outs.append(out)
                finals.append(final)
            x = outs[0] if directions == 1 else _core.cat(outs, dim=-1)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, tuple(_core.stack(list(parts)) for parts in zip(*finals, strict=True))

    def _direction(self, x: Tensor, sizes: list[int], state: State, names: list[str],
                   reverse: bool) -> tuple[Tensor, State]:
        """One layer in one direction; returns its outputs in order of time and its last state."""
        step, _ = _STEPS[self.mode]
        found = {n.partition("_l")[0]: getattr(self, n) for n in names}
        if self.mode == "LSTM" and not self.proj_size and min(sizes) == sizes[0]:
            return self._lstm(x, len(sizes), state, found, reverse)
        gates = F.linear(x, found["weight_ih"], found.get("bias_ih"))
        w = _Weights(found["weight_hh"], found.get("bias_hh"), found.get("weight_hr"))
        starts = [0]
        for n in sizes:
            starts.append(starts[-1] + n)
        rows: list[Any] = [None] * len(sizes)
        if reverse:  # sequences join from the longest to the shortest
            now = tuple(s[:sizes[-1]] for s in state)
            for t in reversed(range(len(sizes))):
                have = now[0].shape[0]
                if sizes[t] > have:
                    now = tuple(_core.cat([s, first[have:sizes[t]]])
                                for s, first in zip(now, state, strict=True))
                now = step(gates[starts[t]:starts[t + 1]], now, w)
                rows[t] = now[0]
            return _core.cat(rows), now
        done: list[State] = []  # last states of sequences that have ended, shortest first
        now = state
        for t, n in enumerate(sizes):
            if n < now[0].shape[0]:
                done.append(tuple(s[n:] for s in now))
                now = tuple(s[:n] for s in now)
            now = step(gates[starts[t]:starts[t + 1]], now, w)
            rows[t] = now[0]
        if done:
            now = tuple(_core.cat(list(parts))
                        for parts in zip(now, *reversed(done), strict=True))
        return _core.cat(rows), now

    def _lstm(self, x: Tensor, steps: int, state: State, found: dict[str, Tensor],
              reverse: bool) -> tuple[Tensor, State]:
        """`_direction` where all sequences are equally long: one op for all steps."""
        bias = found["bias_ih"] + found["bias_hh"] if self.bias else None
        gates = F.linear(x, found["weight_ih"], bias)
        out, cells, _ = lstm_op(gates.reshape(steps, -1, gates.shape[1]), *state,
                                found["weight_hh"], reverse=reverse)
        last = 0 if reverse else steps - 1
        return out.reshape(-1, self.hidden_size), (out[last], cells[last])

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.batch_first is not False:
            text += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            text += f", bidirectional={self.bidirectional}"
        return text


def _nonlinearity(name: str) -> str:
    if name not in ("tanh", "relu"):
        raise ArgumentError(f"Unknown nonlinearity '{name}'. Select from 'tanh' or 'relu'.")
    return name


def _no_projection(args: Sequence[Any], kwargs: dict[str, Any], at: int) -> None:
    if "proj_size" in kwargs or len(args) > at:
        raise ArgumentError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """Elman network: ``h' = tanh(W_ih x + b_ih + W_hh h + b_hh)``, or relu.

    ``RNN(input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True,
    batch_first=False, dropout=0.0, bidirectional=False)``. Input (T, N, input_size),
    (N, T, input_size) with batch_first, (T, input_size), or a PackedSequence; h_0 (layers
    directions, N, hidden_size) or None for zeros. Returns (outputs of the last layer, h_n).

    >>> import adjoint as ad
    >>> out, h = ad.nn.RNN(10, 20, 2)(ad.zeros(5, 3, 10))
    >>> tuple(out.shape), tuple(h.shape)
    ((5, 3, 20), (2, 3, 20))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _no_projection(args, kwargs, 8)
        if len(args) > 3:
            nonlinearity, args = args[3], (*args[:3], *args[4:])
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        mode = "RNN_" + _nonlinearity(nonlinearity).upper()
        super().__init__(mode, *args, **kwargs)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997, with forget gates).

    ``LSTM(input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
    bidirectional=False, proj_size=0)``. Shapes as in RNN; the state is a pair (h, c), and
    ``proj_size`` projects h to that size (Sak et al. 2014). Returns (outputs, (h_n, c_n)).

    >>> import adjoint as ad
    >>> out, (h, c) = ad.nn.LSTM(10, 20, bidirectional=True)(ad.zeros(5, 3, 10))
    >>> tuple(out.shape), tuple(c.shape)
    ((5, 3, 40), (2, 3, 20))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al. 2014), with the reset gate after the product with W_hn.

    ``GRU(input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
    bidirectional=False)``. Shapes as in RNN. Returns (outputs, h_n).

    >>> import adjoint as ad
    >>> out, h = ad.nn.GRU(10, 20, batch_first=True)(ad.zeros(3, 5, 10))
    >>> tuple(out.shape), tuple(h.shape)
    ((3, 5, 20), (1, 3, 20))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _no_projection(args, kwargs, 7)
        super().__init__("GRU", *args, **kwargs)


class RNNCellBase(Module):
    """Parameters and checks of the cells: weight_ih, weight_hh, bias_ih, bias_hh."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int,
                 device: Any = None, dtype: Any = None) -> None:
        positive(type(self).__name__, zero_ok=True, input_size=input_size)
        positive(type(self).__name__, hidden_size=hidden_size)
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        self.weight_ih = empty_parameter((gates, input_size), device, dtype)
        self.weight_hh = empty_parameter((gates, hidden_size), device, dtype)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name,
                                    empty_parameter((gates,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every parameter uniformly from +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _refuse_hidden(self, input: tuple[int, ...], hidden: tuple[int, ...], i: int,
                       parts: int) -> NoReturn:
        if len(hidden) not in (1, 2):
            name = f"hx[{i}]" if parts > 1 else "hidden"
            raise ShapeError(f"{self._get_name()}: Expected {name} to be 1D or 2D, got "
                             f"{len(hidden)}D instead")
        if hidden[-1] != self.hidden_size:
            raise ShapeError(f"{self._get_name()}: hidden{i} has inconsistent hidden_size: got "
                             f"{hidden[-1]}, expected {self.hidden_size}")
        raise ShapeError(f"{self._get_name()}: Input batch size {math.prod(input[:-1])} doesn't "
                         f"match hidden{i} batch size {math.prod(hidden[:-1])}: hidden{i} has "
                         f"shape {hidden}, the input {input}")

    def _run(self, step: Step, input: Tensor, hx: State | None, parts: int) -> State:
        tensor_input(self, input)
        if input.ndim not in (1, 2):
            raise ShapeError(f"{self._get_name()}: Expected input to be 1D or 2D, got "
                             f"{input.ndim}D instead")
        if input.shape[-1] != self.input_size:
            raise ShapeError(f"input has inconsistent input_size: got {input.shape[-1]} expected "
                             f"{self.input_size}")
        shape = (*input.shape[:-1], self.hidden_size)
        if hx is None:
            hx = (_core.zeros(shape, dtype=input.dtype, device=input.device),) * parts
        for i, h in enumerate(hx):
            if tuple(h.shape) != shape:
                self._refuse_hidden(tuple(input.shape), tuple(h.shape), i, parts)
        gates = F.linear(input, self.weight_ih, self.bias_ih)
        return step(gates, hx, _Weights(self.weight_hh, self.bias_hh, None))

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text


class RNNCell(RNNCellBase):
    """One step of RNN: input (N, input_size) or (input_size,), hx of hidden_size -> h'.

    >>> import adjoint as ad
    >>> tuple(ad.nn.RNNCell(10, 20)(ad.zeros(3, 10)).shape)
    (3, 20)
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True,
                 nonlinearity: str = "tanh", device: Any = None, dtype: Any = None) -> None:
        _nonlinearity(nonlinearity)
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        step = _STEPS["RNN_" + _nonlinearity(self.nonlinearity).upper()][0]
        return self._run(step, input, None if hx is None else (hx,), 1)[0]


class LSTMCell(RNNCellBase):
    """One step of LSTM: input, (h, c) -> (h', c').

    >>> import adjoint as ad
    >>> h, c = ad.nn.LSTMCell(10, 20)(ad.zeros(3, 10))
    >>> tuple(h.shape)
    (3, 20)
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
                ) -> tuple[Tensor, Tensor]:
        if isinstance(hx, Tensor):
            raise StructureError("lstm_cell(): argument 'hx' (position 2) must be tuple of "
                                 f"Tensors, not Tensor (shape {list(hx.shape)}): pass (h, c)")
        h, c = self._run(_lstm_step, input, hx, 2)
        return h, c


class GRUCell(RNNCellBase):
    """One step of GRU: input, h -> h'.

    >>> import adjoint as ad
    >>> tuple(ad.nn.GRUCell(10, 20)(ad.zeros(3, 10)).shape)
    (3, 20)
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._run(_gru_step, input, None if hx is None else (hx,), 1)[0]
