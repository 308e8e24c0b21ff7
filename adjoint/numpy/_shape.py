"""Shapes, joins and pads with NumPy's arguments."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.numpy._table import F, as_tensor, axes_of, like


def _reversed(x: Any) -> Any:
    return x.permute(*reversed(range(x.ndim)))


def _by_columns(order: Any) -> bool:
    """Is the first axis the fastest? Arrays here lie by rows: None, "A" and "K" are "C"."""
    name = "C" if order is None else str(order).upper()
    if name not in ("C", "F", "A", "K"):
        raise ArgumentError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")
    return name == "F"


@like("reshape")
def reshape(a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None,
            copy: Any = None) -> Any:
    x, to = as_tensor(a), shape if shape is not None else newshape
    to = (to,) if isinstance(to, (int, np.integer)) else tuple(to)
    if not _by_columns(order):
        return x.reshape(to)
    return _reversed(_reversed(x).reshape(to[::-1]))


@like("ravel")
def ravel(a: Any, order: str = "C") -> Any:
    x = as_tensor(a)
    return (_reversed(x) if _by_columns(order) else x).reshape(-1)


@like("transpose", "permute_dims")
def transpose(a: Any, axes: Any = None) -> Any:
    x = as_tensor(a)
    return _reversed(x) if axes is None else x.permute(*axes)


@like("matrix_transpose", "linalg.matrix_transpose")
def matrix_transpose(x: Any, /) -> Any:
    return as_tensor(x).transpose(-1, -2)


like("swapaxes")(lambda a, axis1, axis2: as_tensor(a).transpose(axis1, axis2))
like("moveaxis")(lambda a, source, destination: F["movedim"](as_tensor(a), source, destination))


@like("rollaxis")
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    x = as_tensor(a)
    axis, start = axis % x.ndim, start + x.ndim if start < 0 else start
    return F["movedim"](x, axis, start - 1 if start > axis else start)


@like("expand_dims")
def expand_dims(a: Any, axis: Any) -> Any:
    x = as_tensor(a)
    many = axis if isinstance(axis, (tuple, list)) else (axis,)
    for d in sorted(int(v) % (x.ndim + len(many)) for v in many):
        x = x.unsqueeze(d)
    return x


@like("squeeze")
def squeeze(a: Any, axis: Any = None) -> Any:
    x = as_tensor(a)
    if axis is None:
        return x.squeeze()
    dims = axes_of(x, axis)
    if any(x.shape[d] != 1 for d in dims):
        raise ArgumentError("cannot select an axis to squeeze out which has size not equal to one: "
                            f"axis {axis} of shape {list(x.shape)}")
    return x.squeeze(dims)


like("broadcast_to")(lambda array, shape, subok=False: F["broadcast_to"](
    as_tensor(array), (shape,) if isinstance(shape, int) else tuple(shape)))
like("broadcast_arrays")(lambda *args, subok=False: tuple(
    F["broadcast_tensors"](*map(as_tensor, args))))


def _at_least(n: int) -> None:
    def run(*arys: Any) -> Any:
        found = [F[f"atleast_{n}d"](as_tensor(a)) for a in arys]
        return found[0] if len(found) == 1 else tuple(found)
    like(f"atleast_{n}d")(run)


for _n in (1, 2, 3):
    _at_least(_n)


# ------------------------------------------------------------------ joins and parts
@like("concatenate", "concat")
def concatenate(arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None,
                casting: str = "same_kind") -> Any:
    parts = [as_tensor(a) for a in arrays]
    y = F["cat"]([p.reshape(-1) for p in parts]) if axis is None else F["cat"](parts, axis)
    return y if dtype is None else y.to(np.dtype(dtype))


@like("stack")
def stack(arrays: Any, axis: int = 0, out: Any = None, **_: Any) -> Any:
    return F["stack"]([as_tensor(a) for a in arrays], axis)


def _joined(name: str) -> None:
    def run(tup: Any, **_: Any) -> Any:
        return F[name]([as_tensor(a) for a in tup])
    like(name)(run)


for _name in ("vstack", "hstack", "dstack", "column_stack"):
    _joined(_name)
like("row_stack")(lambda tup, **_: F["vstack"]([as_tensor(a) for a in tup]))
like("append")(lambda arr, values, axis=None: concatenate((arr, values), axis=axis))


@like("block")
def block(arrays: Any) -> Any:
    def depth(x: Any) -> int:
        return 1 + max(map(depth, x)) if isinstance(x, list) else 0

    def join(x: Any, axis: int) -> Any:
        return F["cat"]([join(v, axis + 1) for v in x], axis) if isinstance(x, list) else as_tensor(
            x)
    n = depth(arrays)
    return join(_wide(arrays, n), -n)


def _wide(x: Any, n: int) -> Any:
    """Every block with at least n axes."""
    if isinstance(x, list):
        return [_wide(v, n) for v in x]
    x = as_tensor(x)
    return x.reshape([1] * max(n - x.ndim, 0) + list(x.shape))


@like("split", "array_split")
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    at = indices_or_sections
    return list(F["tensor_split"](as_tensor(ary), at if isinstance(at, int) else tuple(
        int(i) for i in at), dim=axis))


@like("split")
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    n = as_tensor(ary).shape[axis]
    if isinstance(indices_or_sections, int) and n % indices_or_sections:
        raise ArgumentError(f"array split does not result in an equal division: {n} into "
                            f"{indices_or_sections}")
    return array_split(ary, indices_or_sections, axis)


like("hsplit")(lambda ary, at: split(ary, at, 0 if as_tensor(ary).ndim == 1 else 1))
like("vsplit")(lambda ary, at: split(ary, at, 0))
like("dsplit")(lambda ary, at: split(ary, at, 2))
like("unstack")(lambda x, /, *, axis=0: tuple(as_tensor(x).unbind(axis)))


@like("tile")
def tile(A: Any, reps: Any) -> Any:
    return F["tile"](as_tensor(A), (reps,) if isinstance(reps, int) else tuple(reps))


@like("repeat")
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    x = as_tensor(a)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    counts = np.broadcast_to(np.asarray(repeats), (x.shape[axis],))
    return F["index_select"](x, axis, as_tensor(np.repeat(np.arange(x.shape[axis]), counts)))


@like("flip")
def flip(m: Any, axis: Any = None) -> Any:
    x = as_tensor(m)
    return x.flip(axes_of(x, axis))


like("fliplr")(lambda m: flip(m, 1))
like("flipud")(lambda m: flip(m, 0))
like("rot90")(lambda m, k=1, axes=(0, 1): F["rot90"](as_tensor(m), k, tuple(axes)))


@like("roll")
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    x = as_tensor(a)
    if axis is None:
        return roll(x.reshape(-1), shift, 0).reshape(x.shape)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    steps, to = np.broadcast_arrays(np.asarray(shift), axes)
    return F["roll"](x, tuple(steps.ravel().tolist()), tuple(to.ravel().tolist()))


@like("resize")
def resize(a: Any, new_shape: Any) -> Any:
    x = as_tensor(a).reshape(-1)
    shape = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    at = np.arange(int(np.prod(shape))) % max(x.numel(), 1)
    return F["index_select"](x, 0, as_tensor(at)).reshape(shape)


def _widths(pad_width: Any, n: int) -> list[tuple[int, int]]:
    pairs = np.broadcast_to(np.asarray(pad_width), (n, 2))
    return [(int(a), int(b)) for a, b in pairs]


@like("pad")
def pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0,
        reflect_type: str = "even") -> Any:
    x = as_tensor(array)
    widths = _widths(pad_width, x.ndim)
    if mode == "constant":
        values = np.broadcast_to(np.asarray(constant_values), (x.ndim, 2))
        for d, (before, after) in enumerate(widths):
            ends = [x.new_full([n if k == d else m for k, m in enumerate(x.shape)], float(v))
                    for n, v in zip((before, after), values[d], strict=True)]
            x = F["cat"]([ends[0], x, ends[1]], d) if before or after else x
        return x
    if mode not in ("edge", "reflect", "symmetric", "wrap") or reflect_type != "even":
        raise NotSupported(f"np.pad(mode={mode!r}) of a tensor: constant, edge, reflect, symmetric "
                           "and wrap have derivatives here")
    for d, pair in enumerate(widths):
        at = np.pad(np.arange(x.shape[d]), pair, mode)     # type: ignore[call-overload]  # a name
        x = F["index_select"](x, d, as_tensor(at))
    return x


# ------------------------------------------------------------------ diagonals
def _rows(m: Any) -> Any:
    """A matrix; a vector is each of its own rows, as NumPy has it."""
    x = as_tensor(m)
    return x.expand(x.shape[0], x.shape[0]) if x.ndim == 1 else x


like("tril")(lambda m, k=0: F["tril"](_rows(m), k))
like("triu")(lambda m, k=0: F["triu"](_rows(m), k))
like("diag")(lambda v, k=0: F["diag"](as_tensor(v), k))
like("diagflat")(lambda v, k=0: F["diagflat"](as_tensor(v), k))
like("diagonal")(lambda a, offset=0, axis1=0, axis2=1: F["diagonal"](
    as_tensor(a), offset, axis1, axis2))
like("linalg.diagonal")(lambda x, /, *, offset=0: F["diagonal"](as_tensor(x), offset, -2, -1))
like("trace")(lambda a, offset=0, axis1=0, axis2=1, dtype=None, out=None: F["diagonal"](
    as_tensor(a), offset, axis1, axis2).sum(-1))
like("linalg.trace")(lambda x, /, *, offset=0, dtype=None: F["diagonal"](
    as_tensor(x), offset, -2, -1).sum(-1))
like("vander")(lambda x, N=None, increasing=False: F["vander"](as_tensor(x), N, increasing))


@like("meshgrid")
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    if sparse:
        raise NotSupported("np.meshgrid(sparse=True) of tensors: use expand_dims")
    return tuple(F["meshgrid"](*[as_tensor(x).reshape(-1) for x in xi], indexing=indexing))


def _same(a: Any, *_: Sequence[Any], **__: Any) -> Any:
    return as_tensor(a)


like("ascontiguousarray", "asanyarray", "asfortranarray", "require")(_same)
like("copy")(lambda a, order="K", subok=False: as_tensor(a).clone())
for _name in ("zeros_like", "ones_like", "empty_like"):
    like(_name)(lambda a, dtype=None, order="K", subok=True, shape=None, _n=_name: (
        F[_n](as_tensor(a), dtype=None if dtype is None else np.dtype(dtype)) if shape is None else
        as_tensor(getattr(np, _n[:-5])(shape, dtype or as_tensor(a).detach().numpy().dtype))))


@like("full_like")
def full_like(a: Any, fill_value: Any, dtype: Any = None, *_: Any, **__: Any) -> Any:
    x, value = as_tensor(a), as_tensor(fill_value)
    return F["broadcast_to"](value.to(x.dtype if dtype is None else np.dtype(dtype)),
                             x.shape).clone()


like("shape")(lambda a: tuple(a.shape))
like("ndim")(lambda a: a.ndim)
like("size")(lambda a, axis=None: a.numel() if axis is None else a.shape[axis])
