"""The operators of PyTorch's backward, as handlers of `__torch_dispatch__` get them.

    a node that was made while a mode was open, or of a class that answers for ops
      ─> mode.__torch_dispatch__(aten.convolution_backward.default, types, (grad, input, ...))

A row says which operator the rules of a record are together, and in which order it takes the
cotangent (`ct`), operands, results and attributes; the same row reads the arguments when the
operator is called, and the record's own rules compute it. Records without a row are shown rule by
rule, and so is a backward that is itself recorded (`create_graph=True`).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.base.dtypes import of_numpy
from adjoint.core.dispatch import PULLED, Named, answer, quietly
from adjoint.core.modes import modes_open
from adjoint.core.op import OPS, aval_of_value
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.api_common import dtype_of
from adjoint.ops.aten import OPERATORS

Call = tuple[Any, Sequence[Any]]
REDUCTIONS = ("none", "mean", "sum")


def listed(value: Any) -> Any:
    """An attribute as schemas have it."""
    return list(value) if isinstance(value, tuple) else value


def given(name: str, value: Any) -> Any:
    """An attribute as records have it."""
    if name == "reduction":
        return REDUCTIONS[value] if isinstance(value, int) else value
    return tuple(value) if isinstance(value, list) else value


def shown(name: str, value: Any) -> Any:
    """The opposite of `given`."""
    return REDUCTIONS.index(value) if name == "reduction" else listed(value)


def _pull(record: Any, ct: Any, values: Mapping[str, Any], attrs: Mapping[str, Any],
          mask: Sequence[bool]) -> list[Any]:
    """The record's rules for the operands in `mask`, on arrays; residuals by name."""
    plan = record.plan(sum(1 << i for i, m in enumerate(mask) if m))
    have = {n: _array(v) for n, v in values.items()}
    have |= {f"{n}_aval": None if v is None else aval_of_value(v) for n, v in values.items()}
    cts = tuple(map(_array, ct)) if isinstance(ct, tuple) else _array(ct)
    found = plan.run(cts, [have[n] for n in plan.names], attrs, len(record.operands))
    return [f if f is None or isinstance(f, Tensor) else wrap(f) for f in found]


def _array(x: Any) -> Any:
    """The array of a plain tensor: the rules have kernels for those."""
    return x.array if isinstance(x, Tensor) and not x.level else x


def _operator(name: str, f: Callable[..., Any]) -> Named:
    """`f` under PyTorch's name; who is asked further out gets the same operator."""
    def run(*args: Any) -> Any:
        return answer(made, args, {}) if modes_open() else f(*args)
    made = Named(name, run)
    return made


class Row:
    """One operator: its name, and its arguments as words: `ct`, a name of the record, `!constant`.
    `of` is the operand whose cotangent it gives."""

    def __init__(self, record: str, of: str, words: str) -> None:
        name, *self.words = words.split()
        self.record, self.of, self.name = OPS[record], of, name
        self.func = _operator(name, self.call)

    def show(self, ct: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> list[Any]:
        """The arguments; defaults at the end are left out."""
        found: list[Any] = []
        for word in self.words:
            name = word.partition("=")[0]
            found.append(ct if word == "ct" else constant(word[1:]) if word[0] == "!"
                         else of_numpy(dtype_of(ct)) if word == "dtype"
                         else shown(name, attrs[name]) if name in attrs else values[name])
        while "=" in self.words[len(found) - 1] and str(found[-1]) == self.words[
                len(found) - 1].partition("=")[2]:
            found.pop()
        return found

    def call(self, *args: Any) -> Any:
        """What the operator gives, by the record's rule."""
        values, attrs, ct = {}, {}, args[0]
        for i, word in enumerate(self.words):
            name, _, usual = word.partition("=")
            if word[0] == "!" or word in ("ct", "dtype"):
                continue
            value = args[i] if i < len(args) else constant(usual)
            if name in self.record.attrs:
                attrs[name] = given(name, value)
            else:
                values[name] = value
        mask = [o == self.of for o in self.record.operands]
        return _pull(self.record, ct, values, attrs, mask)[mask.index(True)]


def constant(word: str) -> Any:
    if word in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[word]
    return float(word) if "." in word else int(word)


# record -> the operator for one operand each
_ROWS = {
    "relu": {"x": "threshold_backward ct out !0"}, "gelu": {"x": "gelu_backward ct x"},
    "silu": {"x": "silu_backward ct x"}, "sigmoid": {"x": "sigmoid_backward ct out"},
    "tanh": {"x": "tanh_backward ct out"}, "mish": {"x": "mish_backward ct x"},
    "hardswish": {"x": "hardswish_backward ct x"},
    "hardsigmoid": {"x": "hardsigmoid_backward ct x"},
    "elu": {"x": "elu_backward ct alpha scale input_scale !False x"},
    "leaky_relu": {"x": "leaky_relu_backward ct x negative_slope !False"},
    "hardtanh": {"x": "hardtanh_backward ct x low high"},
    "softplus": {"x": "softplus_backward ct x beta threshold"},
    "softmax": {"x": "_softmax_backward_data ct out dim dtype"},
    "log_softmax": {"x": "_log_softmax_backward_data ct out dim dtype"},
    "mse_loss": {"x": "mse_loss_backward ct x y reduction",
                 "y": "mse_loss_backward ct y x reduction"},
    "smooth_l1_loss": {"x": "smooth_l1_loss_backward ct x y reduction beta"},
    "huber_loss": {"x": "huber_loss_backward ct x y reduction delta"},
    "binary_cross_entropy": {"x": "binary_cross_entropy_backward ct x y !None reduction=1"},
}


def _by_rows(rows: Mapping[str, str], record: str) -> Callable[..., Any]:
    made = {of: Row(record, of, words) for of, words in rows.items()}

    def pulled(ct: Any, values: Mapping[str, Any], attrs: Mapping[str, Any],
               mask: Sequence[bool]) -> list[Call | None] | None:
        found: list[Call | None] = []
        for name, wanted in zip(OPS[record].operands, mask, strict=True):
            if wanted and name not in made:
                return None
            found.append((made[name].func, made[name].show(ct, values, attrs)) if wanted else None)
        return found
    return pulled


# ------------------------------------------------------------------ several cotangents at once
def paired(padding: Any) -> list[int] | None:
    """One number per axis where both ends are padded alike."""
    return [a for a, _ in padding] if all(a == b for a, b in padding) else None


def output_padding(x_shape: Sequence[int], ct: Any, w: Any, attrs: Mapping[str, Any]) -> list[int]:
    """How far a transposed convolution goes beyond what its operand alone says."""
    return [n - ((m - 1) * s - a - b + d * (k - 1) + 1) for n, m, k, s, (a, b), d in zip(
        x_shape[2:], ct.shape[2:], w.shape[2:], attrs["stride"], attrs["padding"],
        attrs["dilation"], strict=True)]


def _conv_shown(ct: Any, values: Mapping[str, Any], attrs: Mapping[str, Any],
                mask: Sequence[bool]) -> Call | None:
    bias, padding = values["bias"], paired(attrs["padding"])
    if padding is None:
        return None
    return _CONV, [ct, values["x"], values["w"], [0] if bias is None else list(bias.shape),
                   listed(attrs["stride"]), padding, listed(attrs["dilation"]), False,
                   [0] * len(padding), attrs["groups"], list(mask)]


def _turned_shown(g: Any, values: Mapping[str, Any], attrs: Mapping[str, Any],
                  mask: Sequence[bool]) -> Call | None:
    padding = paired(attrs["padding"])
    if padding is None:
        return None
    return _CONV, [g, values["ct"], values["w"], [0], listed(attrs["stride"]), padding,
                   listed(attrs["dilation"]), True,
                   output_padding(attrs["x_shape"], values["ct"], values["w"], attrs),
                   attrs["groups"], [*mask, False]]


def _conv_backward(ct: Any, x: Any, w: Any, bias_sizes: Any, stride: Any, padding: Any,
                   dilation: Any, transposed: bool, output_padding: Any, groups: int,
                   mask: Sequence[bool]) -> tuple[Any, ...]:
    """(cotangents of input, weight and bias); None where `mask` says so."""
    attrs: dict[str, Any] = dict(stride=tuple(stride), padding=tuple((p, p) for p in padding),
                                 dilation=tuple(dilation), groups=groups)
    if not transposed:
        return tuple(_pull(OPS["convolution"], ct, {"x": x, "w": w, "bias": None}, attrs, mask))
    attrs["x_shape"] = tuple(ct.shape)
    found = _pull(OPS["convolution_input"], ct, {"ct": x, "w": w}, attrs, mask[:2])
    axes = (0, *range(2, len(ct.shape)))
    return (*found, OPS["sum"].call(ct, dim=axes, keepdim=False) if mask[2] else None)


def _layer_shown(cts: Any, values: Mapping[str, Any], attrs: Mapping[str, Any],
                 mask: Sequence[bool]) -> Call:
    x, n = values["x"], attrs["ndim"]
    rows = (*x.shape[:x.ndim - n], *(1,) * n)
    mean, rstd = (quietly(values[k].reshape, rows) for k in ("mean", "rstd"))
    return _LAYER, [cts[0], x, list(x.shape[x.ndim - n:]), mean, rstd, values["weight"],
                    values["bias"], list(mask)]


def _layer_backward(ct: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any,
                    mask: Sequence[bool]) -> tuple[Any, ...]:
    values = {"x": x, "weight": weight, "bias": bias, "mean": mean.reshape(-1),
              "rstd": rstd.reshape(-1)}
    return tuple(_pull(OPS["layer_norm"], (ct,), values, {"ndim": len(shape), "eps": 1e-5}, mask))


def _group_shown(cts: Any, values: Mapping[str, Any], attrs: Mapping[str, Any],
                 mask: Sequence[bool]) -> Call:
    x, groups = values["x"], attrs["groups"]
    n, c = x.shape[:2]
    mean, rstd = (quietly(values[k].reshape, (n, groups)) for k in ("mean", "rstd"))
    return _GROUP, [cts[0], x, mean, rstd, values["weight"], n, c, math.prod(x.shape[2:]), groups,
                    list(mask)]


def _group_backward(ct: Any, x: Any, mean: Any, rstd: Any, weight: Any, n: int, c: int, hxw: int,
                    groups: int, mask: Sequence[bool]) -> tuple[Any, ...]:
    values = {"x": x, "weight": weight, "bias": weight, "mean": mean.reshape(-1),
              "rstd": rstd.reshape(-1)}
    return tuple(_pull(OPS["group_norm"], (ct,), values, {"groups": groups, "eps": 1e-5}, mask))


def _batch_shown(cts: Any, values: Mapping[str, Any], attrs: Mapping[str, Any],
                 mask: Sequence[bool]) -> Call:
    return _BATCH, [cts[0], values["x"], values["weight"], None, None, values["mean"],
                    values["var"], True, attrs["eps"], list(mask)]


def _given_shown(ct: Any, values: Mapping[str, Any], attrs: Mapping[str, Any],
                 mask: Sequence[bool]) -> Call | None:
    if any(mask[3:]):
        return None                             # (PyTorch's statistics are constants)
    return _BATCH, [ct, values["x"], values["weight"], values["mean"], values["var"], None, None,
                    False, attrs["eps"], list(mask[:3])]


def _batch_backward(ct: Any, x: Any, weight: Any, running_mean: Any, running_var: Any,
                    mean: Any, var: Any, train: bool, eps: float, mask: Sequence[bool]
                    ) -> tuple[Any, ...]:
    values = {"x": x, "weight": weight, "bias": weight}
    if train:
        return tuple(_pull(OPS["batch_norm"], (ct, None, None), {
            **values, "mean": mean, "var": var}, {"eps": eps}, mask))
    return tuple(_pull(OPS["batch_norm_given"], ct, {
        **values, "mean": running_mean, "var": running_var}, {"eps": eps},
        [*mask, False, False])[:3])


def _nll_shown(ct: Any, values: Mapping[str, Any], attrs: Mapping[str, Any],
               mask: Sequence[bool]) -> Call:
    x, target, weight = (values[k] for k in ("x", "target", "weight"))
    func = _NLL[x.ndim == 4]
    return func, [ct, x, target, weight, shown("reduction", attrs["reduction"]),
                  attrs["ignore_index"], counted(x, target, weight, attrs)]


def counted(x: Any, target: Any, weight: Any, attrs: Mapping[str, Any]) -> Any:
    """What a mean divides by: how many targets count, or their weights; 0 without a reduction."""
    at, kind = target.array, dtype_of(x)
    if attrs["reduction"] == "none" or not isinstance(at, np.ndarray):
        return wrap(np.zeros((), kind))
    used = at[at != attrs["ignore_index"]]
    each = len(used) if weight is None else weight.array[used].sum()
    return wrap(np.asarray(each, kind))


def _nll_backward(ct: Any, x: Any, target: Any, weight: Any, reduction: Any, ignore_index: int,
                  total_weight: Any) -> Any:
    return _pull(OPS["nll_loss"], ct, {"x": x, "target": target, "weight": weight}, {
        "reduction": given("reduction", reduction), "ignore_index": ignore_index},
        [True, False, False])[0]


_CONV = _operator("convolution_backward", _conv_backward)
_LAYER = _operator("native_layer_norm_backward", _layer_backward)
_GROUP = _operator("native_group_norm_backward", _group_backward)
_BATCH = _operator("native_batch_norm_backward", _batch_backward)
_NLL = [_operator(f"nll_loss{d}_backward", _nll_backward) for d in ("", "2d")]


def _embedding_shown(ct: Any, values: Mapping[str, Any], attrs: Mapping[str, Any],
                     mask: Sequence[bool]) -> Call:
    return _EMBEDDING, [ct, values["index"], values["weight"].shape[0], attrs["padding_idx"], False]


def _embedding_backward(ct: Any, index: Any, rows: int, padding_idx: int, by_count: bool) -> Any:
    return OPS["embedding_backward"].call(ct, index, rows=rows, padding_idx=padding_idx)


_EMBEDDING = _operator("embedding_dense_backward", _embedding_backward)


def _read(record: Any, rows: Mapping[str, str]) -> tuple[str, ...]:
    """The operands and results that rows name."""
    words = {w for row in rows.values() for w in row.split()[1:]}
    return tuple(n for n in (*record.operands, *record.outs) if n in words)


PULLED.update({name: (_read(OPS[name], rows), _by_rows(rows, name))
               for name, rows in _ROWS.items()})
PULLED.update({
    "convolution": (("x", "w", "bias"), _conv_shown),
    "convolution_input": (("ct", "w"), _turned_shown),
    "layer_norm": (("x", "weight", "bias", "mean", "rstd"), _layer_shown),
    "group_norm": (("x", "weight", "mean", "rstd"), _group_shown),
    "batch_norm": (("x", "weight", "mean", "var"), _batch_shown),
    "batch_norm_given": (("x", "weight", "mean", "var"), _given_shown),
    "nll_loss": (("x", "target", "weight"), _nll_shown),
    "embedding": (("weight", "index"), _embedding_shown)})
OPERATORS.update({f.packet: f for f in (_CONV, _LAYER, _GROUP, _BATCH, *_NLL, _EMBEDDING)})
OPERATORS.update({words.split()[0]: Row(name, of, words).func for name, rows in _ROWS.items()
                  for of, words in rows.items() if of == "x"})
