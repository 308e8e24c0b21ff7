"""Shapes, joins, parts, pads and diagonals of `jax.numpy`."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint import numpy as anp
from adjoint.core.tensor import wrap
from adjoint.jax._array import (
    Array,
    as_array,
    concrete,
    convert,
    is_hidden,
    joined,
    make,
)
from adjoint.jax._dtypes import as_dtype
from adjoint.jax._host import computed
from adjoint.jax._table import T, entering, is_weak
from adjoint.jax._util import canonicalize_axis
from adjoint.jax._words import placing, taking
from adjoint.jax.numpy._pads import pad_by, pad_odd, pad_with_numbers
from adjoint.jax.numpy._reduce import axes_of

NAMES: dict[str, Any] = {}
_enter = entering(NAMES)


def same(name: str, words: str) -> None:
    """A function of one array that NumPy's namespace over tensors has, dtype and weakness kept."""
    ours = anp.ours[name]

    def run(a: Any, *args: Any) -> Any:
        x = as_array(a, name)
        return make(ours(x.tensor, *args), x.weak_type)
    _enter(name)(taking(words, run))


same("swapaxes", "a, axis1, axis2")
same("fliplr", "m")
same("rot90", "m, k=1, axes=(0, 1)")
same("tile", "A, reps")


@_enter("ravel")
@placing("out_sharding")
def ravel(a: Any, order: str = "C") -> Any:
    if order == "K":
        raise NotImplementedError("Ravel not implemented for order='K'.")
    if order not in ("C", "F", "A"):
        raise ValueError(f"Unexpected value for 'order' argument: {order}.")
    x = as_array(a, "ravel")
    return make(anp.ours["ravel"](x.tensor, order), x.weak_type)


@_enter("flipud")
def flipud(m: Any) -> Any:
    return NAMES["flip"](m, 0)


@_enter("rollaxis")
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    x = as_array(a, "rollaxis")
    axis = canonicalize_axis(axis, x.ndim)
    if not -x.ndim <= start <= x.ndim:
        raise ValueError(f"start={start} must satisfy {-x.ndim}<=start<={x.ndim}")
    start += x.ndim if start < 0 else 0
    return NAMES["moveaxis"](x, axis, start - (start > axis))


@_enter("roll")
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    x = as_array(a, "roll")
    if axis is None:
        return roll(x.reshape(-1), shift, 0).reshape(x.shape)
    axes = tuple(canonicalize_axis(d, x.ndim) for d in (
        axis if isinstance(axis, (tuple, list)) else (axis,)))
    steps = np.broadcast_to(_steps(shift), np.broadcast_shapes(np.shape(_steps(shift)),
                                                              (len(axes),)))
    t = x.tensor
    for k, d in zip(steps.tolist(), np.broadcast_to(axes, steps.shape).tolist(), strict=True):
        n = t.shape[d]
        if isinstance(k, int):
            t = T["roll"](t, k, d) if n else t
        elif n:
            places = wrap(np.arange(n)) - k
            t = T["index_select"](t, d, places % n)
    return make(t, x.weak_type)


def _steps(shift: Any) -> Any:
    """How far to roll: numbers, or tensors of them where they are hidden."""
    if isinstance(shift, Array) and is_hidden(shift):
        t = shift.tensor.detach()
        found = np.empty(t.shape if t.ndim else (1,), object)
        for at in np.ndindex(*found.shape):
            found[at] = t[at] if t.ndim else t
        return found
    return np.atleast_1d(np.asarray(shift, int))


@_enter("resize")
def resize(a: Any, new_shape: Any) -> Any:
    x = as_array(a, "resize")
    to = _size(new_shape)
    if not x.size:
        return make(T["zeros_like"](x.tensor).new_zeros(to), x.weak_type)
    return make(anp.ours["resize"](x.tensor, to), x.weak_type)


def along(name: str, count: Any, words: str) -> None:
    """The same, of a function of axes: ValueError for one that is not there.

    count  the number of axes that they are counted in, of the array's and theirs
    """
    ours = anp.ours[name]

    def run(a: Any, *args: Any) -> Any:
        x = as_array(a, name)
        for given in args:
            axes = given if isinstance(given, (tuple, list)) else (given,)
            for d in (v for v in axes if v is not None):
                canonicalize_axis(d, count(x.ndim, len(axes)))
        return make(ours(x.tensor, *args), x.weak_type)
    _enter(name)(taking(words, run))


along("moveaxis", lambda n, k: n, "a, source, destination")
along("flip", lambda n, k: n, "m, axis=None")
along("expand_dims", lambda n, k: n + k, "a, axis")


@_enter("diagonal")
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    x = as_array(a, "diagonal")
    if x.ndim < 2:
        raise ValueError("diagonal requires an array of at least two dimensions.")
    axis1, axis2 = (canonicalize_axis(d, x.ndim) for d in (axis1, axis2))
    return make(anp.ours["diagonal"](x.tensor, int(offset), axis1, axis2), x.weak_type)


def _size(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, (tuple, list)) and not np.ndim(shape):
        shape = (shape,)
    if any(isinstance(n, Array) and is_hidden(n) for n in shape):
        raise TypeError("Shapes must be 1D sequences of concrete values of integer type, got "
                        f"{shape}.")
    return tuple(int(n) for n in shape)


@_enter("reshape")
@placing("out_sharding")
def reshape(a: Any, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    x = as_array(a, "reshape")
    to = _size(shape)
    if to.count(-1) > 1:
        raise TypeError("can only specify one unknown axis size with a `-1` value, got "
                        f"{to}")
    known = math.prod(n for n in to if n != -1)
    if -1 in to and (known == 0 or x.size % known):
        raise TypeError(f"cannot reshape array of shape {x.shape} (size {x.size}) into shape {to} "
                        "because the size is not a multiple of the known part")
    if -1 not in to and known != x.size:
        raise TypeError(f"cannot reshape array of shape {x.shape} (size {x.size}) into shape {to} "
                        f"(size {known})")
    if order not in ("C", "F", "A"):
        raise ValueError(f"Unexpected value for 'order' argument: {order}.")
    if order == "A":
        raise NotImplementedError("np.reshape order=A is not implemented.")
    return make(anp.ours["reshape"](x.tensor, to, order), x.weak_type)


@_enter("transpose")
def transpose(a: Any, axes: Any = None) -> Any:
    x = as_array(a, "transpose")
    if axes is None:
        return make(x.tensor.permute(*reversed(range(x.ndim))), x.weak_type)
    order = tuple(axes)
    for d in order:
        canonicalize_axis(d, x.ndim)
    if sorted(d % max(x.ndim, 1) for d in order) != list(range(x.ndim)):
        raise TypeError(f"transpose permutation isn't a permutation of operand dimensions, got "
                        f"permutation {order} for operand shape {x.shape}.")
    return make(x.tensor.permute(*order), x.weak_type)


@_enter("permute_dims")
def permute_dims(a: Any, /, axes: Any) -> Any:
    return transpose(a, axes)


def _spread(f: Any) -> Any:
    """The method of arrays whose sizes or axes may stand one by one."""
    def run(a: Any, *given: Any, **how: Any) -> Any:
        if len(given) > 1:
            return f(a, given, **how)
        return f(a, *[(g,) if isinstance(g, int) else g for g in given], **how)
    return run


# methods that are no functions, or take their arguments otherwise
METHODS: dict[str, Any] = {
    "reshape": _spread(reshape), "transpose": _spread(transpose),
    "flatten": lambda a, order="C", *, out_sharding=None: ravel(
        a, order, out_sharding=out_sharding)}


@_enter("matrix_transpose")
def matrix_transpose(x: Any, /) -> Any:
    a = as_array(x)
    if a.ndim < 2:
        raise ValueError("x must be at least two-dimensional for matrix_transpose; got ndim="
                         f"{a.ndim}")
    return make(a.tensor.transpose(-1, -2), a.weak_type)


@_enter("squeeze")
def squeeze(a: Any, axis: Any = None) -> Any:
    x = as_array(a, "squeeze")
    dims = [d for d, n in enumerate(x.shape) if n == 1] if axis is None else axes_of(x, axis)
    if any(x.shape[d] != 1 for d in dims):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one, "
                         f"got shape={x.shape} and dimensions={tuple(dims)}")
    return make(x.tensor.reshape(tuple(n for d, n in enumerate(x.shape) if d not in dims)),
                x.weak_type)


@_enter("broadcast_to")
@placing("out_sharding")
def broadcast_to(array: Any, shape: Any) -> Any:
    x, to = as_array(array, "broadcast_to"), _size(shape)
    try:
        fits = np.broadcast_shapes(x.shape, to) == to
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"Incompatible shapes for broadcasting: {x.shape} and requested shape "
                         f"{to}")
    return make(T["broadcast_to"](x.tensor, to), x.weak_type)


@_enter("broadcast_arrays")
def broadcast_arrays(*args: Any) -> Any:
    arrays = [as_array(a) for a in args]
    to = np.broadcast_shapes(*[a.shape for a in arrays])
    return [broadcast_to(a, to) for a in arrays]


@_enter("broadcast_shapes")
def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(*shapes))


def _at_least(n: int) -> None:
    def run(*arys: Any) -> Any:
        found = [make(T[f"atleast_{n}d"](as_array(a).tensor), is_weak(a)) for a in arys]
        return found[0] if len(found) == 1 else found
    _enter(f"atleast_{n}d")(run)


for _n in (1, 2, 3):
    _at_least(_n)


# ------------------------------------------------------------------ joins and parts
def _parts(name: str, arrays: Any, dtype: Any = None) -> tuple[list[Any], bool]:
    """The arrays of a list as tensors of their common dtype, and whether that is weak."""
    if isinstance(arrays, (Array, np.ndarray)):
        arrays = list(as_array(arrays))
    if not len(arrays):
        raise ValueError(f"Need at least one array to {name}.")
    parts, weak = joined(name, arrays)
    return parts, weak and dtype is None


@_enter("concatenate")
def concatenate(arrays: Any, axis: Any = 0, dtype: Any = None) -> Any:
    parts, weak = _parts("concatenate", arrays, dtype)
    if axis is None:
        parts, axis = [p.reshape(-1) for p in parts], 0
    if parts[0].ndim == 0:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    y = T["cat"](parts, _fitting(parts, axis))
    return make(y if dtype is None else convert(y, as_dtype(dtype)), weak)


@_enter("concat")
def concat(arrays: Any, /, *, axis: Any = 0) -> Any:
    return concatenate(arrays, axis)


def _fitting(parts: list[Any], axis: Any) -> int:
    """The axis that tensors are joined along; TypeError where their shapes do not fit."""
    if len({p.ndim for p in parts}) > 1:
        raise TypeError("Cannot concatenate arrays with different numbers of dimensions: got "
                        + ", ".join(str(tuple(p.shape)) for p in parts) + ".")
    axis, = axes_of(parts[0], axis)
    if len({tuple(n for d, n in enumerate(p.shape) if d != axis) for p in parts}) > 1:
        raise TypeError("Cannot concatenate arrays with shapes that differ in dimensions other "
                        f"than the one being concatenated: concatenating along dimension {axis} "
                        "for shapes " + ", ".join(str(tuple(p.shape)) for p in parts) + ".")
    return axis


@_enter("stack")
def stack(arrays: Any, axis: int = 0, out: Any = None, dtype: Any = None) -> Any:
    parts, weak = _parts("stack", arrays, dtype)
    if len({tuple(p.shape) for p in parts}) > 1:
        raise ValueError("All input arrays must have the same shape.")
    y = T["stack"](parts, axis)
    return make(y if dtype is None else convert(y, as_dtype(dtype)), weak)


def _joined(name: str) -> None:
    rank = {"vstack": 2, "hstack": 1, "dstack": 3}

    def run(tup: Any, dtype: Any) -> Any:
        parts, weak = _parts(name, tup, dtype)
        if name in rank:
            lifted = [T[f"atleast_{rank[name]}d"](p) for p in parts]
            _fitting(lifted, {"vstack": 0, "dstack": 2}.get(name, min(lifted[0].ndim - 1, 1)))
        y = T[name](parts)
        return make(y if dtype is None else convert(y, as_dtype(dtype)), weak)
    if name == "column_stack":
        _enter(name)(taking("tup", lambda tup: run(tup, None)))
    else:
        _enter(name)(taking("tup, dtype=None", run))


for _name in ("vstack", "hstack", "dstack", "column_stack"):
    _joined(_name)
NAMES["row_stack"] = NAMES["vstack"]


@_enter("append")
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    return concatenate([as_array(arr), as_array(values)], axis)


@_enter("block")
def block(arrays: Any) -> Any:
    leaves: list[Any] = []

    def gather(x: Any) -> Any:
        if isinstance(x, list):
            return [gather(v) for v in x]
        leaves.append(x)
        return len(leaves) - 1
    tree = gather(arrays)
    ts, weak = joined("block", leaves)

    def fill(x: Any) -> Any:
        return [fill(v) for v in x] if isinstance(x, list) else ts[x]
    return make(anp.ours["block"](fill(tree)), weak)


def _splitter(name: str, ours: str) -> None:
    def run(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
        x, at = as_array(ary, name), indices_or_sections
        if not isinstance(at, int):
            values = np.asarray([concrete(v, f"in jax.numpy.{name} argument 1") for v in at]
                                if isinstance(at, (list, tuple)) else
                                concrete(at, f"in jax.numpy.{name} argument 1"))
            at = int(values) if values.ndim == 0 else [int(v) for v in values]
            if isinstance(at, list):
                n = x.shape[canonicalize_axis(axis, x.ndim)]
                ends = [min(v + n if v < 0 else v, n) for v in at]
                sizes = np.diff([0, *ends, n])
                if (sizes < 0).any():
                    raise ValueError(f"Sizes passed to split must be nonnegative, got {[*sizes]}")
        if isinstance(at, int) and name != "array_split" and x.shape[axis] % at:
            raise ValueError("array split does not result in an equal division: rest is "
                             f"{x.shape[axis] % at}")
        return [make(p, x.weak_type) for p in anp.ours[ours](x.tensor, at, axis)]
    _enter(name)(run)


_splitter("split", "array_split")
_splitter("array_split", "array_split")
def _splits(name: str, axis: int) -> None:
    _enter(name)(lambda ary, indices_or_sections: NAMES["split"](
        ary, indices_or_sections, min(axis, as_array(ary).ndim - 1) if axis == 1 else axis))


for _name, _axis in (("vsplit", 0), ("hsplit", 1), ("dsplit", 2)):
    _splits(_name, _axis)


@_enter("unstack")
def unstack(x: Any, /, *, axis: int = 0) -> Any:
    a = as_array(x)
    return tuple(make(v, a.weak_type) for v in a.tensor.unbind(canonicalize_axis(axis, a.ndim)))


@_enter("repeat")
@placing("out_sharding")
def repeat(a: Any, repeats: Any, axis: Any = None, *, total_repeat_length: Any = None) -> Any:
    x = as_array(a, "repeat")
    t, axis = (x.tensor.reshape(-1), 0) if axis is None or not x.ndim else (
        x.tensor, canonicalize_axis(axis, x.ndim))
    given = as_array(repeats)
    n, total = t.shape[axis], total_repeat_length

    def places(counts: Any) -> Any:
        at = np.repeat(np.arange(n), np.broadcast_to(counts, (n,)))
        if total is None:
            return [at]
        last = at[-1] if at.size else 0
        return [np.pad(at, (0, max(total - at.size, 0)), constant_values=last)[:total]]
    if total is not None:
        at, = computed(places, given.tensor)
    else:
        at = wrap(*places(concrete(
            given, "When jit-compiling jnp.repeat, the total number of repeats must be static. To "
            "fix this, either specify a static value for `repeats`, or pass a static value to "
            "`total_repeat_length`.")))
    return make(T["index_select"](t, axis, at), x.weak_type)


@_enter("pad")
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """`jax.numpy.pad`: constant, edge, reflect, symmetric, wrap, the statistics, or a function of
    each padded vector, its widths, its axis and `kwargs`."""
    x = as_array(array, "pad")
    _check_pad(mode, pad_width, kwargs)
    constant_values, end_values = kwargs.get("constant_values", 0), kwargs.get("end_values", 0)
    stat_length, reflect_type = kwargs.get("stat_length"), kwargs.get("reflect_type", "even")
    width = np.asarray(_dict_widths(pad_width, x.ndim) if isinstance(
        pad_width, (tuple, list, dict)) else concrete(
            pad_width, "`pad_width` argument of jnp.pad"))
    if callable(mode):
        return pad_by(mode, pad(x, width), np.broadcast_to(width, (x.ndim, 2)), kwargs)
    if mode == "symmetric" and reflect_type == "odd":
        return pad_odd(x, np.broadcast_to(width, (x.ndim, 2)))
    if mode == "constant" and type(constant_values) is Array:
        value = constant_values.tensor.to(x.dtype)
        inside = anp.ours["pad"](T["ones_like"](x.tensor.detach()), width, "constant")
        return make(T["where"](inside != 0, anp.ours["pad"](x.tensor, width, "constant"), value))
    if mode in ("maximum", "minimum", "mean", "median", "linear_ramp", "empty"):
        return pad_with_numbers(x, width, mode, end_values, stat_length)
    extra = {"constant_values": constant_values} if mode == "constant" else {}
    return make(anp.ours["pad"](x.tensor, width, mode, reflect_type=reflect_type, **extra),
                x.weak_type)


_PADS = {mode: set(words.split()) for mode, words in (
    ("constant", "constant_values"), ("edge", ""), ("empty", ""), ("linear_ramp", "end_values"),
    ("maximum", "stat_length"), ("mean", "stat_length"), ("median", "stat_length"),
    ("minimum", "stat_length"), ("reflect", "reflect_type"), ("symmetric", "reflect_type"),
    ("wrap", ""))}


def _check_pad(mode: Any, width: Any, kwargs: dict[str, Any]) -> None:
    """What JAX's `pad` refuses of its arguments."""
    if not callable(mode) and mode not in _PADS:
        raise NotImplementedError(f"Unimplemented padding mode '{mode}' for np.pad.")
    if not callable(mode) and kwargs.keys() - _PADS[mode]:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': "
                         f"{kwargs.keys() - _PADS[mode]}")
    if isinstance(width, float):
        raise TypeError("`pad_width` must be of integral type.")
    if isinstance(width, int) and width < 0:
        raise ValueError("index can't contain negative values")


def _dict_widths(width: Any, n: int) -> Any:
    if isinstance(width, dict):
        return [width.get(d, width.get(d - n, (0, 0))) for d in range(n)]
    return width


# ------------------------------------------------------------------ diagonals and triangles
def _triangle(name: str) -> None:
    _enter(name)(lambda m, k=0: make(T[name](_square(m, name), int(k)), is_weak(m)))


for _name in ("tril", "triu"):
    _triangle(_name)


def _square(m: Any, name: str) -> Any:
    t = as_array(m, name).tensor
    if t.ndim < 2:
        raise ValueError(f"Argument to jax.numpy.{name} must be at least 2D")
    return t


_enter("diag")(lambda v, k=0: make(T["diag"](as_array(v, "diag").tensor, int(k)), is_weak(v)))
_enter("diagflat")(lambda v, k=0: make(T["diagflat"](as_array(v).tensor, int(k))))


@_enter("trace")
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None,
          out: Any = None) -> Any:
    from adjoint.jax.numpy._reduce import NAMES as reductions
    return reductions["sum"](NAMES["diagonal"](a, offset, axis1, axis2), -1, dtype)


@_enter("vander")
def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    a = as_array(x)
    if a.ndim != 1:
        raise ValueError("x must be a one-dimensional array")
    return make(T["vander"](a.tensor, a.shape[0] if N is None else N, increasing))


def _indices(name: str, words: str) -> None:
    theirs = getattr(np, name)

    def run(*args: Any) -> Any:
        if any(isinstance(a, float) for a in args):
            raise TypeError("'float' object cannot be interpreted as an integer")
        given = [np.broadcast_to(0, a.shape) if isinstance(a, Array) else a for a in args]
        return tuple(make(wrap(v)) for v in theirs(*given))
    _enter(name)(taking(words, run))


for _name in ("tril", "triu"):
    _indices(f"{_name}_indices", "n, k=0, m=None")
    _indices(f"{_name}_indices_from", "arr, k=0")
_indices("diag_indices", "n, ndim=2")
_indices("diag_indices_from", "arr")


def shape(a: Any) -> tuple[int, ...]:
    return tuple(np.shape(a))


def ndim(a: Any) -> int:
    return int(np.ndim(a))


def size(a: Any, axis: Any = None) -> int:
    x = a if hasattr(a, "shape") else np.asarray(a)
    return math.prod(x.shape[d] for d in axes_of(x, axis))


NAMES.update(shape=shape, ndim=ndim, size=size)
__all__ = ["METHODS", "NAMES"]
