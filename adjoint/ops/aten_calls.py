"""The arguments that handlers of `__torch_dispatch__` get: PyTorch's, in the order of its schemas.

    record and attributes ─> overload, operands and attributes by position, defaults left out
    `view(x, shape=(2, 8))`  ─> `aten.view.default(x, [2, 8])`

The overload can be called with them as they are (`aten.run`). Records that are not listed here, and
those with hidden results, are shown with their attributes by name.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adjoint.base.dtypes import of_numpy
from adjoint.core.dispatch import OVERLOAD_OF, SHOWN
from adjoint.core.op import OPS, Op
from adjoint.core.tensor import Tensor
from adjoint.ops.aten import COMPARED, OVERLOADS, packet

Shown = tuple[Any, Sequence[Any], Mapping[str, Any]]
# record -> its attributes in PyTorch's order, with the default where there is one
_ORDERED = {
    "view": "shape", "permute": "dims", "unsqueeze": "dim", "expand": "shape",
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


def _square(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    return OPS["pow"], [args[0], 2], attrs


def _clamp_min(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    return OPS["clamp"], [*args, attrs["low"]], {}


def _clamp_max(record: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Shown:
    return OPS["clamp"], [*args, None, attrs["high"]], {}


SHOWN.update({name: _ordered(words) for name, words in _ORDERED.items()})
SHOWN.update(dict.fromkeys(COMPARED, _compared))
SHOWN.update(dict.fromkeys(("sum_all", "mean_all", "max_all", "min_all", "prod", "any", "all",
                            "var", "std"), _if_whole))
SHOWN.update(dict.fromkeys(("add_scaled", "sub_scaled"), _scaled))
SHOWN.update(dict.fromkeys(("sort", "topk"), _ranked))
SHOWN.update({"sub": _sub, "gather": _between, "index_select": _between, "narrow": _narrow,
              "split": _split, "addmm": _addmm, "to_dtype": _to_copy, "square": _square,
              "clamp_min": _clamp_min, "clamp_max": _clamp_max})
OVERLOAD_OF.update({ours: theirs.partition(".")[2] for theirs, ours in OVERLOADS.items()
                    if theirs.endswith(".Tensor")})
