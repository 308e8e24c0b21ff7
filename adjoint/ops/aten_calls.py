"""The arguments that handlers of `__torch_dispatch__` get: PyTorch's, in the order of its schemas.

    record and attributes ─> overload, operands and attributes by position, defaults left out
    `view(x, shape=(2, 8))`  ─> `aten.view.default(x, [2, 8])`

The overload can be called with them as they are (`aten.run`). Records that are not listed here, and
those with hidden results, are shown with their attributes by name.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.base.dtypes import of_numpy
from adjoint.base.errors import NotSupported
from adjoint.core.dispatch import OVERLOAD_OF, SHOWN, Named
from adjoint.core.op import OPS, Op
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.api_common import dtype_of
from adjoint.ops.api_shape import viewable
from adjoint.ops.aten import COMPARED, OPERATORS, OVERLOADS, READ, packet
from adjoint.ops.aten_backward import (
    REDUCTIONS,
    constant,
    counted,
    given,
    listed,
    output_padding,
    paired,
    shown,
)
from adjoint.ops.shape import reshape

Shown = tuple[Any, ...]        # (func, args, kwargs[, what makes the record's results of it])
# record -> its attributes in PyTorch's order, with the default where there is one
_ORDERED = {
    "permute": "dims", "unsqueeze": "dim", "expand": "shape",
    "select": "dim index", "transpose": "dim0 dim1", "diagonal": "offset=0 dim1=0 dim2=1",
    "unbind": "dim=0", "squeeze": "dims", "flip": "dims", "roll": "shifts dims",
    "tril": "diagonal=0", "triu": "diagonal=0", "repeat": "reps", "cat": "dim=0", "stack": "dim=0",
    "sum": "dim keepdim=False", "mean": "dim keepdim=False", "amax": "dim keepdim=False",
    "amin": "dim keepdim=False", "argmax": "dim=None keepdim=False",
    "argmin": "dim=None keepdim=False", "max_dim": "dim keepdim=False",
    "min_dim": "dim keepdim=False", "logsumexp": "dim keepdim=False", "cumsum": "dim",
    "clamp": "low high",
}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _ordered(words: str) -> Callable[..., Shown]:
    fields = [w.split("=") for w in words.split()]

    def show(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
        given = [_listed(attrs[name]) for name, *_ in fields]
        while given and fields[len(given) - 1][1:] == [str(given[-1])]:
            given.pop()
        return record, [*args, *given], {}
    return show


def _if_whole(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    """Without arguments where all axes are reduced."""
    whole = attrs["dim"] is None or len(attrs["dim"]) == args[0].ndim
    usual = not attrs["keepdim"] and attrs.get("correction", 1) == 1
    return record, args, {} if whole and usual else attrs


def _ranked(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    """`sort`, `topk`: along the last axis unless they say so."""
    first = [attrs["k"]] if "k" in attrs else []
    flag, usual = ("largest", True) if "k" in attrs else ("descending", False)
    if attrs["dim"] != args[0].ndim - 1 or attrs[flag] != usual:
        first += [attrs["dim"], *([] if attrs[flag] == usual else [attrs[flag]])]
    return record, [*args, *first], {}


def _compared(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    number = not isinstance(args[1], Tensor) and isinstance(args[0], Tensor)
    return packet(record.name).Scalar if number else record, args, attrs


def _sub(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    if isinstance(args[0], Tensor):
        return record, args, attrs
    return packet("rsub").Scalar, [args[1], args[0]], attrs


def _between(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    """A dimension before the index: `gather(x, dim, index)`."""
    dims = attrs.get("dims", (attrs.get("dim"),))
    if len(dims) != 1:
        return record, args, attrs
    return record, [args[0], dims[0], *args[1:]], {}


def _narrow(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    start = attrs["start"]
    return packet("slice").Tensor, [*args, attrs["dim"], start, start + attrs["length"]], {}


def _split(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    sizes, last = attrs["sizes"][:-1], attrs["sizes"][-1]
    if sizes and (len(set(sizes)) > 1 or last > sizes[0]):
        return record, args, attrs
    return record, [*args, sizes[0] if sizes else last, *([attrs["dim"]] if attrs["dim"] else [])
                    ], {}


def _addmm(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    return record, args, {k: v for k, v in attrs.items() if v != 1}


def _to_copy(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    return record, args, {"dtype": of_numpy(attrs["dtype"])}


def _scaled(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    return OPS[record.name.removesuffix("_scaled")], args, attrs


# record -> its arguments, as in `aten_backward.Row`; trailing defaults are left out
_FORWARD = {
    "softmax": "x dim !False", "log_softmax": "x dim !False",
    "elu": "x alpha=1.0 scale=1.0 input_scale=1.0", "leaky_relu": "x negative_slope=0.01",
    "hardtanh": "x low high", "softplus": "x beta=1.0 threshold=20.0",
    "mse_loss": "x y reduction=1", "smooth_l1_loss": "x y reduction=1 beta=1.0",
    "huber_loss": "x y reduction=1 delta=1.0", "embedding": "weight index padding_idx=-1",
    "binary_cross_entropy": "x y weight=None reduction=1",
    "binary_cross_entropy_with_logits": "x y weight=None pos_weight=None reduction=1",
}


def _positional(words: str) -> Callable[..., Shown]:
    fields = [w.partition("=")[::2] for w in words.split()]

    def show(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
        named = dict(zip(record.operands, args, strict=True))
        found = [word == "!True" if word[0] == "!" else named[word] if word in named
                 else shown(word, attrs[word]) if word in attrs else None for word, _ in fields]
        while fields[len(found) - 1][1] in (str(found[-1]), _as_number(found[-1])):
            found.pop()
        return record, found, {}
    return show


def _reading(name: str, words: str) -> Callable[..., Any]:
    """The opposite of `_positional`: runs the record."""
    fields = [w.partition("=")[::2] for w in words.split()]

    def read(*args: Any) -> Any:
        record, operands, attrs = OPS[name], {}, {}
        for i, (word, usual) in enumerate(fields):
            value = args[i] if i < len(args) else constant(usual)
            if word in record.operands:
                operands[word] = value
            elif word in record.attrs:
                attrs[word] = given(word, value)
            elif value is not None and value is not False:
                raise NotSupported(f"aten.{name}: {word}={value!r} is not of this record; call the "
                                   "function of that name")
        return record.exposed.call(*[operands[o] for o in record.operands], **attrs)
    return read


def _convolved(x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
               transposed: bool, output_padding: Any, groups: int) -> Any:
    from adjoint.ops.native import convolution
    return convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)


def _as_number(value: Any) -> str:
    return str(float(value)) if type(value) is int else "?"


def _convolution(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    padding = paired(attrs["padding"])
    if padding is None:
        return record, args, attrs
    return record, [*args, listed(attrs["stride"]), padding, listed(attrs["dilation"]), False,
                    [0] * len(padding), attrs["groups"]], {}


def _transposed(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    padding = paired(attrs["padding"])
    if padding is None:
        return record, args, attrs
    return OPS["convolution"], [
        *args, None, listed(attrs["stride"]), padding, listed(attrs["dilation"]), True,
        output_padding(attrs["x_shape"], args[0], args[1], attrs), attrs["groups"]], {}


def _layer_norm(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    x, weight, bias = args
    n = attrs["ndim"]
    rows = (*x.shape[:x.ndim - n], *(1,) * n)

    def run(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
        out, mean, rstd = OPS["layer_norm"].exposed.call(x, weight, bias, ndim=len(shape), eps=eps)
        return out, mean.reshape(rows), rstd.reshape(rows)
    return Named("native_layer_norm", run), [
        x, list(x.shape[x.ndim - n:]), weight, bias, attrs["eps"]], {}, lambda out, mean, rstd: (
        out, mean.reshape(-1), rstd.reshape(-1))


def _group_norm(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    x, weight, bias = args
    n, c = x.shape[:2]
    groups = attrs["groups"]

    def run(x: Any, weight: Any, bias: Any, n: int, c: int, hxw: int, groups: int, eps: float
            ) -> Any:
        out, mean, rstd = OPS["group_norm"].exposed.call(x, weight, bias, groups=groups, eps=eps)
        return out, mean.reshape((n, groups)), rstd.reshape((n, groups))
    return Named("native_group_norm", run), [
        x, weight, bias, n, c, math.prod(x.shape[2:]), groups, attrs["eps"]], {}, (
        lambda out, mean, rstd: (out, mean.reshape(-1), rstd.reshape(-1)))


def _batch_norm(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    """Means and variances come beside the result, where PyTorch gives 1/deviations."""
    def run(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
            eps: float) -> Any:
        if training:
            return OPS["batch_norm"].exposed.call(x, weight, bias, eps=eps)
        out = OPS["batch_norm_given"].call(x, weight, bias, mean, var, eps=eps)
        none = wrap(np.zeros(0, dtype_of(x)))
        return out, none, none
    given = record.name == "batch_norm_given"
    found: Shown = Named("native_batch_norm", run), [
        *args, *(() if given else (None, None)), not given, 0.1, attrs["eps"]], {}
    return (*found, lambda out, mean, rstd: out) if given else found


def _nll(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    def run(x: Any, target: Any, weight: Any, reduction: Any, ignore_index: int) -> Any:
        attrs = {"reduction": REDUCTIONS[reduction], "ignore_index": ignore_index}
        return OPS["nll_loss"].call(x, target, weight, **attrs), counted(x, target, weight, attrs)
    name = "nll_loss2d_forward" if args[0].ndim == 4 else "nll_loss_forward"
    return Named(name, run), [*args, shown("reduction", attrs["reduction"]),
                              attrs["ignore_index"]], {}, lambda out, total: out


def _view(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    """What the strides do not allow as a view is a copy, and `aten.view` would refuse it."""
    x, shape = args[0], list(attrs["shape"])
    copies = isinstance(x.array, np.ndarray) and not viewable(x.array, tuple(shape))
    return OPERATORS["_unsafe_view"] if copies else record, [x, shape], {}


def _square(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    return OPS["pow"], [args[0], 2], attrs


def _clamp_min(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    return OPS["clamp"], [*args, attrs["low"]], {}


def _clamp_max(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    return OPS["clamp"], [*args, None, attrs["high"]], {}


SHOWN.update({name: _ordered(words) for name, words in _ORDERED.items()})
SHOWN.update({name: _positional(words) for name, words in _FORWARD.items()})
READ.update({name: _reading(name, words) for name, words in _FORWARD.items()})
READ["convolution"] = _convolved
SHOWN.update({"convolution": _convolution, "convolution_input": _transposed,
              "layer_norm": _layer_norm, "group_norm": _group_norm, "batch_norm": _batch_norm,
              "batch_norm_given": _batch_norm, "nll_loss": _nll})
SHOWN.update(dict.fromkeys(COMPARED, _compared))
SHOWN.update(dict.fromkeys(("sum_all", "mean_all", "max_all", "min_all", "prod", "any", "all",
                            "var", "std"), _if_whole))
SHOWN.update(dict.fromkeys(("add_scaled", "sub_scaled"), _scaled))
SHOWN.update(dict.fromkeys(("sort", "topk"), _ranked))
SHOWN.update({"sub": _sub, "gather": _between, "index_select": _between, "narrow": _narrow,
              "split": _split, "addmm": _addmm, "to_dtype": _to_copy, "square": _square,
              "clamp_min": _clamp_min, "clamp_max": _clamp_max, "view": _view})
OPERATORS["_unsafe_view"] = Named("_unsafe_view", reshape)
OVERLOAD_OF.update({ours: theirs.partition(".")[2] for theirs, ours in OVERLOADS.items()
                    if theirs.endswith(".Tensor")})
