"""Convolutions, windows, gathers and scatters of `jax.lax`."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.base.tree import unflatten
from adjoint.core.tensor import wrap
from adjoint.jax._array import (
    ShapeDtypeStruct,
    as_array,
    convert,
    has_no_values,
    is_mapped,
    make,
    moves,
    value_of,
)
from adjoint.jax._dtypes import as_dtype
from adjoint.jax._table import (
    T,
    ordered,
)
from adjoint.jax._trace import RUN
from adjoint.jax.lax import _shapes
from adjoint.jax.lax._elementwise import NAMES as _E
from adjoint.jax.lax._elementwise import strict
from adjoint.jax.numpy._index import Update, mode_of
from adjoint.jax.tree_util import flat


class ConvDimensionNumbers(NamedTuple):
    """Axes of input, kernel and output in the order (batch, feature, space...)."""

    lhs_spec: Any
    rhs_spec: Any
    out_spec: Any


def conv_dimension_numbers(lhs_shape: Any, rhs_shape: Any, dimension_numbers: Any
                           ) -> ConvDimensionNumbers:
    """Layouts from strings, as ("NHWC", "HWIO", "NHWC"); None is ("NCHW", "OIHW", "NCHW")."""
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    n = len(lhs_shape)
    if dimension_numbers is None:
        return ConvDimensionNumbers(*[tuple(range(n))] * 3)
    if not isinstance(dimension_numbers, (list, tuple)) or len(dimension_numbers) != 3:
        raise ValueError("convolution dimension_numbers list must have length 3 (input, kernel, "
                         f"output), got {dimension_numbers}")
    lhs, rhs, out = dimension_numbers
    if not isinstance(lhs, str):
        return ConvDimensionNumbers(*map(tuple, dimension_numbers))
    for name, text, a, b in (("lhs", lhs, "N", "C"), ("rhs", rhs, "O", "I"),
                             ("output", out, "N", "C")):
        if len(text) != n:
            raise ValueError(f"convolution {name} spec {text!r} must name {n} axes, {a} and {b} "
                             "among them")
        if text.count(a) != 1 or text.count(b) != 1:
            at = ("lhs", "rhs", "output").index(name)
            raise TypeError(f"convolution dimension_numbers[{at}] must contain the characters "
                            f"'{a}' and '{b}' exactly once, got {text}.")
    space = [c for c in rhs if c not in "OI"]
    if any([{*text} - {*ends} != {*space} for text, ends in ((lhs, "NC"), (out, "NC"))]):
        raise TypeError("convolution dimension_numbers elements must each have the same set of "
                        f"spatial characters, got {tuple(dimension_numbers)}.")
    return ConvDimensionNumbers(
        (lhs.index("N"), lhs.index("C"), *[lhs.index(c) for c in space]),
        (rhs.index("O"), rhs.index("I"), *[rhs.index(c) for c in space]),
        (out.index("N"), out.index("C"), *[out.index(c) for c in space]))


def padtype_to_pads(in_shape: Any, window_shape: Any, window_strides: Any, padding: Any
                    ) -> list[tuple[int, int]]:
    """(before, after) per axis for "SAME", "SAME_LOWER" or "VALID"."""
    name = str(getattr(padding, "name", padding)).upper()
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if name not in ("SAME", "SAME_LOWER"):
        if not isinstance(padding, str):
            raise TypeError(f"Unknown padding type: {padding}.")
        raise RuntimeError("Unrecognized padding type: expected 'VALID', 'SAME', or 'SAME_LOWER', "
                           f"got {padding}.")
    out = []
    for n, k, s in zip(in_shape, window_shape, window_strides, strict=True):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        low = total // 2 if name == "SAME" else total - total // 2
        out.append((low, total - low))
    return out


def _spread(t: Any, factors: Sequence[int], pads: Sequence[Any], first: int) -> Any:
    """Zeros between and around entries of the axes from `first` on."""
    config = [(0, 0, 0)] * first + [(a, b, f - 1) for (a, b), f in zip(pads, factors, strict=True)]
    if all(c == (0, 0, 0) for c in config):
        return t
    return _shapes.pad(make(t), make(t.new_zeros(())), config).tensor


def _agree(x: Any, w: Any, strides: Any, groups: int, batches: int) -> None:
    """ValueError for operands in (batch, feature, space...) that do not fit."""
    own = "conv_general_dilated"
    if len(strides) != x.ndim - 2:
        raise ValueError(f"{own} window and window_strides must have the same number of "
                         f"dimensions, but got {x.ndim - 2} and {len(strides)}")
    if groups < 1 or x.shape[1] % groups:
        raise ValueError(f"{own} feature_group_count must divide lhs feature dimension size, but "
                         f"{groups} does not divide {x.shape[1]}.")
    if x.shape[1] // groups != w.shape[1]:
        raise ValueError(f"{own} lhs feature dimension size divided by feature_group_count must "
                         "equal the rhs input feature dimension size, but "
                         f"{x.shape[1]} // {groups} != {w.shape[1]}.")
    if groups > 1 and w.shape[0] % groups:
        raise ValueError(f"{own} rhs output feature dimension size must be a multiple of "
                         f"feature_group_count, but {w.shape[0]} is not a multiple of {groups}.")
    if batches < 1 or x.shape[0] % batches:
        raise ValueError(f"{own} batch_group_count must divide lhs batch dimension size, but "
                         f"{batches} does not divide {x.shape[0]}.")
    if w.shape[0] % batches:
        raise ValueError(f"{own} rhs output feature dimension size must be a multiple of "
                         f"batch_group_count, but {w.shape[0]} is not a multiple of {batches}.")


def conv_general_dilated(lhs: Any, rhs: Any, window_strides: Any, padding: Any,
                         lhs_dilation: Any = None, rhs_dilation: Any = None,
                         dimension_numbers: Any = None, feature_group_count: int = 1,
                         batch_group_count: int = 1, precision: Any = None,
                         preferred_element_type: Any = None, out_sharding: Any = None) -> Any:
    """A convolution (without a flip) over any number of axes, with strides, padding and dilation
    of both operands."""
    (x, w), weak = strict("conv_general_dilated", (lhs, rhs), False)
    if x.ndim != w.ndim:
        raise TypeError(f"convolution requires lhs and rhs ndim to be equal, got {x.ndim} and "
                        f"{w.ndim}.")
    d = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    x, w = x.permute(*d.lhs_spec), w.permute(*d.rhs_spec)
    n = x.ndim - 2
    ones = (1,) * n
    up, down = tuple(lhs_dilation or ones), tuple(rhs_dilation or ones)
    _agree(x, w, window_strides, feature_group_count, batch_group_count)
    if not isinstance(padding, (list, tuple)):
        if any(f != 1 for f in up):
            raise ValueError("String padding is not implemented for transposed convolution using "
                             "this op. Please either exactly specify the required padding or use "
                             "conv_transpose.")
        wide = [(k - 1) * r + 1 if k else 0 for k, r in zip(w.shape[2:], down, strict=True)]
        padding = padtype_to_pads(tuple(x.shape[2:]), wide, window_strides, padding)
    if preferred_element_type is not None and is_inexact(x.array.dtype):
        kind = as_dtype(preferred_element_type)         # before sums are rounded
        if kind.itemsize < x.array.dtype.itemsize:
            raise TypeError("`preferred_element_type` must not be narrower than the original type.")
        x, w = convert(x, kind), convert(w, kind)
    y = _convolved(x, w, tuple(window_strides), up, down, [tuple(p) for p in padding],
                   feature_group_count, batch_group_count)
    back = [0] * y.ndim
    for i, axis in enumerate(d.out_spec):
        back[axis] = i
    y = y.permute(*back)
    return make(y if preferred_element_type is None else convert(
        y, as_dtype(preferred_element_type)), weak)


def _convolved(x: Any, w: Any, strides: Any, up: Any, down: Any, pads: Any, groups: int,
               batches: int) -> Any:
    """Operands in (batch, feature, space...) and (out, in, space...)."""
    kind = x.array.dtype
    if kind.kind in "biu":                      # (a spread array narrows where 64 bits are off)
        wide, n = np.dtype(np.float64), x.ndim - 2
        x = _spread(x, up, pads, 2).to(wide)
        return _convolved(x, w.to(wide), strides, (1,) * n, down, [(0, 0)] * n, groups,
                          batches).to(kind)
    if batches > 1:
        parts = zip(T["chunk"](x, batches, 0), T["chunk"](w, batches, 0), strict=True)
        return T["cat"]([_convolved(a, b, strides, up, down, pads, groups, 1)
                         for a, b in parts], 1)
    n = x.ndim - 2
    x = _spread(x, up, pads, 2)
    extra = max(1 - n, 0)
    if extra:                                   # no axes of space: one of size 1
        x, w, strides, down = x.unsqueeze(-1), w.unsqueeze(-1), (1,), (1,)
    y = T[f"conv{n + extra}d"](x, w, None, strides, 0, down, groups)
    return y.squeeze(-1) if extra else y


def conv(lhs: Any, rhs: Any, window_strides: Any, padding: Any, precision: Any = None,
         preferred_element_type: Any = None) -> Any:
    """`jax.lax.conv`."""
    return conv_general_dilated(lhs, rhs, window_strides, padding,
                                preferred_element_type=preferred_element_type)


def conv_with_general_padding(lhs: Any, rhs: Any, window_strides: Any, padding: Any,
                              lhs_dilation: Any, rhs_dilation: Any, precision: Any = None,
                              preferred_element_type: Any = None) -> Any:
    """`jax.lax.conv_with_general_padding`."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation,
                                precision=precision, preferred_element_type=preferred_element_type)


def _transposed_pads(k: int, s: int, padding: str) -> tuple[int, int]:
    if padding == "SAME":
        total = k + s - 2
        low = k - 1 if s > k - 1 else -(-total // 2)
    else:
        total = k + s - 2 + max(k - s, 0)
        low = k - 1
    return low, total - low


def conv_transpose(lhs: Any, rhs: Any, strides: Any, padding: Any, rhs_dilation: Any = None,
                   dimension_numbers: Any = None, transpose_kernel: bool = False,
                   precision: Any = None, preferred_element_type: Any = None,
                   use_consistent_padding: bool = False) -> Any:
    """The convolution that has a strided one's shapes the other way round. Padding in numbers is
    that of the result's, or with `use_consistent_padding` that of the strided one."""
    x, w = as_array(lhs), as_array(rhs)
    n = x.ndim - 2
    if dimension_numbers is None:
        space = "DHW"[-n:] if n else ""
        dimension_numbers = (f"N{space}C", f"{space}IO", f"N{space}C")
    d = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    sizes = [w.shape[i] for i in d.rhs_spec[2:]]
    down = tuple(rhs_dilation or (1,) * n)
    wide = [(k - 1) * r + 1 for k, r in zip(sizes, down, strict=True)]
    pads = padding if not isinstance(padding, str) else [
        _transposed_pads(k, s, padding) for k, s in zip(wide, strides, strict=True)]
    if use_consistent_padding and not isinstance(padding, str):
        pads = [(k - 1 - a, k - 1 - b) for k, (a, b) in zip(wide, padding, strict=True)]
    if transpose_kernel:
        w = make(w.tensor.flip(tuple(d.rhs_spec[2:])).transpose(d.rhs_spec[0], d.rhs_spec[1]))
    return conv_general_dilated(x, w, (1,) * n, pads, strides, down, d,
                                preferred_element_type=preferred_element_type)


def conv_general_dilated_patches(lhs: Any, filter_shape: Any, window_strides: Any, padding: Any,
                                 lhs_dilation: Any = None, rhs_dilation: Any = None,
                                 dimension_numbers: Any = None, precision: Any = None,
                                 preferred_element_type: Any = None) -> Any:
    """The windows of an input, each flattened along the feature axis (channels first)."""
    x = as_array(lhs)
    d = conv_dimension_numbers(x.shape, (1,) * x.ndim, dimension_numbers)
    channels, size = x.shape[d.lhs_spec[1]], math.prod(filter_shape)
    eye = np.eye(size, dtype=x.dtype).reshape(size, 1, *filter_shape)
    kernel = wrap(np.tile(eye, (channels, *[1] * (len(filter_shape) + 1))))
    back = [0] * x.ndim
    for i, axis in enumerate(d.rhs_spec):
        back[axis] = i
    return conv_general_dilated(x, make(kernel.permute(*back)), window_strides, padding,
                                lhs_dilation, rhs_dilation, d, feature_group_count=channels,
                                preferred_element_type=preferred_element_type)


def _shape_of(f: Any, *shapes: Sequence[int]) -> tuple[int, ...]:
    from adjoint.jax._api import eval_shape
    given = [ShapeDtypeStruct(tuple(s), np.float32) for s in shapes]
    return tuple(eval_shape(f, *given).shape)


def conv_shape_tuple(lhs_shape: Any, rhs_shape: Any, strides: Any, pads: Any,
                     batch_group_count: int = 1) -> tuple[int, ...]:
    """The shape that `conv_general_dilated` gives, channels first.

    >>> conv_shape_tuple((1, 3, 5, 5), (4, 3, 2, 2), (1, 1), "VALID")
    (1, 4, 4, 4)
    """
    return _shape_of(lambda x, w: conv_general_dilated(
        x, w, strides, pads, batch_group_count=batch_group_count), lhs_shape, rhs_shape)


def conv_general_shape_tuple(lhs_shape: Any, rhs_shape: Any, window_strides: Any, padding: Any,
                             dimension_numbers: Any) -> tuple[int, ...]:
    """The shape that `conv_general_dilated` gives."""
    return _shape_of(lambda x, w: conv_general_dilated(
        x, w, window_strides, padding, dimension_numbers=dimension_numbers), lhs_shape, rhs_shape)


def conv_transpose_shape_tuple(lhs_shape: Any, rhs_shape: Any, window_strides: Any, padding: Any,
                               dimension_numbers: Any) -> tuple[int, ...]:
    """The shape that `conv_transpose` gives."""
    return _shape_of(lambda x, w: conv_transpose(
        x, w, window_strides, padding, dimension_numbers=dimension_numbers), lhs_shape, rhs_shape)


def conv_general_permutations(dimension_numbers: Any) -> tuple[tuple[int, ...], ...]:
    """The axes of both operands and of the result, in the order of their specification."""
    lhs, rhs, _ = dimension_numbers
    d = conv_dimension_numbers((1,) * len(lhs), (1,) * len(rhs), dimension_numbers)
    return tuple(d.lhs_spec), tuple(d.rhs_spec), tuple(d.out_spec)


# ------------------------------------------------------------------ windows
def _windows(t: Any, start: Any, window: Any, strides: Any, pads: Any, up: Any, down: Any) -> Any:
    """(..., windows..., elements of a window)."""
    config = [(a, b, f - 1) for (a, b), f in zip(pads, up, strict=True)]
    t = _shapes.pad(make(t), make(start), config).tensor
    n = t.ndim
    for d in range(n):
        span = (window[d] - 1) * down[d] + 1
        count = max((t.shape[d] - span) // strides[d] + 1, 0)
        at = (np.arange(count)[:, None] * strides[d] + np.arange(window[d]) * down[d])
        rows = T["index_select"](t, d, wrap(at.reshape(-1)))
        split = rows.reshape((*t.shape[:d], count, window[d], *t.shape[d + 1:]))
        t = T["movedim"](split, d + 1, -1)
    return t.reshape((*t.shape[:n], math.prod(window)))


def reduce_window(operand: Any, init_value: Any, computation: Any, window_dimensions: Any,
                  window_strides: Any = None, padding: Any = "VALID", base_dilation: Any = None,
                  window_dilation: Any = None) -> Any:
    """A fold over every window: `lax.add`, `lax.max`, `lax.min`, `lax.mul` or any other."""
    many, structure = flat(operand)
    x = as_array(many[0])
    window, n = tuple(window_dimensions), x.ndim
    window_strides = (1,) * n if window_strides is None else window_strides
    if len(window) != n:
        raise TypeError("reduce_window got the wrong number of window_dimensions for operand: got "
                        f"operand shape {x.shape} with window_dimensions {window}.")
    if any(k < 1 for k in window):
        raise TypeError("reduce_window window_dimensions must have every element be strictly "
                        f"positive, got {window}.")
    strides = tuple(window_strides or (1,) * n)
    up, down = tuple(base_dilation or (1,) * n), tuple(window_dilation or (1,) * n)
    if not isinstance(padding, (list, tuple)):
        wide = [(k - 1) * r + 1 for k, r in zip(window, down, strict=True)]
        tall = [(m - 1) * f + 1 if m else 0 for m, f in zip(x.shape, up, strict=True)]
        padding = padtype_to_pads(tall, wide, strides, padding)
    around = window, strides, [tuple(p) for p in padding], up, down
    if len(many) > 1:
        pairs = [(as_array(a), as_array(v)) for a, v in zip(many, flat(init_value)[0], strict=True)]
        each = [_windows(a.tensor, v.tensor.to(a.dtype), *around) for a, v in pairs]
        return _shapes.reduce(unflatten(list(map(make, each)), structure), init_value, computation,
                              (n,))
    start = as_array(init_value).tensor.to(x.dtype)
    rows = _windows(x.tensor, start, *around)
    known = {"add": lambda t: t.sum(-1).to(x.dtype) + start,
             "max": lambda t: ordered("maximum")(T["amax"](t, -1), start),
             "min": lambda t: ordered("minimum")(T["amin"](t, -1), start),
             "mul": lambda t: T["prod"](t, -1).to(x.dtype) * start}
    fold = known.get(next((k for k in known if computation is _E[k] or getattr(
        computation, "__name__", "") == {"add": "add", "max": "maximum", "min": "minimum",
                                         "mul": "multiply"}[k]), ""))
    if fold is not None and not (rows.is_complex() and rows.array.dtype.kind == "c" and fold in (
            known["max"], known["min"])):
        return make(fold(rows))
    return _shapes.reduce(make(rows), make(start), computation, (rows.ndim - 1,))


# ------------------------------------------------------------------ gather and scatter
class GatherDimensionNumbers(NamedTuple):
    """How `gather` reads its indices."""

    offset_dims: Any
    collapsed_slice_dims: Any
    start_index_map: Any
    operand_batching_dims: Any = ()
    start_indices_batching_dims: Any = ()


class ScatterDimensionNumbers(NamedTuple):
    """How `scatter` reads its indices."""

    update_window_dims: Any
    inserted_window_dims: Any
    scatter_dims_to_operand_dims: Any
    operand_batching_dims: Any = ()
    scatter_indices_batching_dims: Any = ()


def _element_index(starts: Any, sizes: Sequence[int], index_map: Any, dropped: Any,
                   offset_dims: Any, along: dict[int, int], shape: Sequence[int], clip: bool
                   ) -> tuple[Any, ...]:
    """Index arrays, one per axis of the operand, of the elements of all slices in the layout of
    the result: batch axes where `offset_dims` leaves them.

    along  the axis of the operand -> that of the indices that goes with it, of those in both
    """
    batch, rank = tuple(starts.shape[:-1]), len(shape)
    kept = [d for d in range(rank) if d not in dropped and d not in along]
    total = len(batch) + len(kept)
    batch_axes = [d for d in range(total) if d not in offset_dims]
    out = []
    for d in range(rank):
        side = [1] * total
        at: Any = wrap(np.zeros(side, np.int64))
        if d in index_map:
            s = starts[..., list(index_map).index(d)]
            last = shape[d] - sizes[d]
            if RUN.indices is not None:
                RUN.indices(tuple(shape), d, s, last)
            # (a slice that reaches out is outside as a whole)
            s = T["clamp"](s, 0, last) if clip else T["where"](
                (s < 0) | (s > last), wrap(np.asarray(shape[d])), s)
            for axis, n in zip(batch_axes, batch, strict=True):
                side[axis] = n
            at = s.reshape(tuple(side))
        if d in along:
            side[batch_axes[along[d]]] = shape[d]
            at = wrap(np.arange(shape[d]).reshape(side))
        if d in kept:
            offs = [1] * total
            offs[offset_dims[kept.index(d)]] = sizes[d]
            at = at + wrap(np.arange(sizes[d]).reshape(offs))
        out.append(make(at.to(np.dtype(np.int64))))
    return tuple(out)


def gather(operand: Any, start_indices: Any, dimension_numbers: Any, slice_sizes: Any, *,
           unique_indices: bool = False, indices_are_sorted: bool = False, mode: Any = None,
           fill_value: Any = None) -> Any:
    """Slices of given sizes at every start index (XLA's Gather)."""
    x, at = as_array(operand), _places(start_indices)
    d = dimension_numbers
    for i, s in enumerate(d.start_index_map):
        if not 0 <= s < x.ndim:
            raise TypeError(f"Invalid start_index_map; domain is [0, {x.ndim}), got: {i}->{s}.")
    for i, (k, n) in enumerate(zip(slice_sizes, x.shape, strict=True)):
        if not 0 <= k <= n:
            raise TypeError(f"Slice size at index {i} in gather op is out of range, must be within "
                            f"[0, {n} + 1), got {k}.")
    how = mode_of(mode)
    along = dict(zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True))
    index = _element_index(at, slice_sizes, d.start_index_map, d.collapsed_slice_dims,
                           d.offset_dims, along, x.shape, how not in ("fill", "drop"))
    return Update(x, index).get(mode=how or "clip", fill_value=fill_value)


def _places(indices: Any) -> Any:
    """Indices as a tensor. ValueError for what is no integer."""
    at = as_array(indices)
    if at.dtype.kind not in "iu":
        raise ValueError("indices must have an integer type")
    return at.tensor.to(np.dtype(np.int64))


def _bounds_agree(updates: Any, windows: Any, indices: Any) -> None:
    """TypeError where the places of updates are not those of the indices."""
    places = [n for d, n in enumerate(updates.shape) if d not in windows]
    for i, (n, k) in enumerate(zip(places, indices.shape, strict=False)):
        if n != k:
            raise TypeError("Bounds of the scatter dimensions of updates must be the same as the "
                            "bounds of the corresponding dimensions of scatter indices. For "
                            f"scatter dimension {i}, updates bound is {n}, indices bound is {k}.")


def _scatter(method: str) -> Any:
    def run(operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: Any, *,
            indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None
            ) -> Any:
        x, v, at, d = as_array(operand), as_array(updates), _places(
            scatter_indices), dimension_numbers
        strict("scatter", (x, v), False)
        along = dict(zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True))
        sizes, windows = [1] * x.ndim, list(d.update_window_dims)
        kept = [i for i in range(x.ndim) if i not in d.inserted_window_dims and i not in along]
        _bounds_agree(v, windows, at)
        for i, w in zip(kept, windows, strict=True):
            sizes[i] = v.shape[w]
        index = _element_index(at, sizes, d.scatter_dims_to_operand_dims, d.inserted_window_dims,
                               windows, along, x.shape, mode_of(mode) == "clip")
        return getattr(Update(x, index), method)(v)
    run.__name__ = "scatter" if method == "set" else f"scatter_{method}"
    run.__doc__ = f"`jax.lax.{run.__name__}` (XLA's Scatter)."
    return run


scatter, scatter_add, scatter_sub = _scatter("set"), _scatter("add"), _scatter("subtract")
scatter_mul, scatter_min, scatter_max = _scatter("multiply"), _scatter("min"), _scatter("max")


def scatter_apply(operand: Any, scatter_indices: Any, func: Callable[[Any], Any],
                  dimension_numbers: Any, *, update_shape: Any = (),
                  indices_are_sorted: bool = False, unique_indices: bool = False,
                  mode: Any = None) -> Any:
    """The operand with `func` of every element that the indices name, once for every time that
    they name it. `func` maps one number to one of the same dtype; there is no derivative.

    update_shape  the shape that the updates of `scatter` would have

    Raises NotImplementedError where a derivative is taken, ValueError where func gives no number
    or one of another dtype.

    >>> from adjoint.jax import lax, numpy as jnp
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_apply(jnp.arange(1.0, 4.0), jnp.array([[0], [2], [2]]), lambda v: 10 * v,
    ...                   numbers, update_shape=(3,))
    Array([ 10.,   2., 300.], dtype=float32)
    """
    from adjoint.jax._vmap import vmap
    x, at = as_array(operand), as_array(scatter_indices)
    if moves(x.tensor):
        raise NotImplementedError("scatter_apply JVP not implemented")
    none, ones = (make(wrap(np.full(s, v, np.int32))) for s, v in (
        (x.shape, 0), (update_shape, 1)))
    times = scatter_add(none, at, ones, dimension_numbers, mode=mode)
    most = 1 if unique_indices else math.prod(at.shape[:-1])
    if not (is_mapped(times) or has_no_values(times)):
        most = int(value_of(times).max(initial=0))
    flat, times = x.reshape(-1), times.reshape(-1)
    for k in range(most if x.size else 0):
        found = vmap(func)(flat)
        if found.shape != flat.shape or found.dtype != flat.dtype:
            raise ValueError(f"scatter_apply: func must give one {flat.dtype.name} for one, got "
                             f"{found.dtype.name}{list(found.shape[1:])}")
        flat = make(T["where"](times.tensor > k, found.tensor, flat.tensor), x.weak_type)
    return flat.reshape(x.shape)


NAMES: dict[str, Any] = {f.__name__: f for f in (
    conv_dimension_numbers, padtype_to_pads, conv_general_dilated, conv, conv_with_general_padding,
    conv_shape_tuple, conv_general_shape_tuple, conv_transpose_shape_tuple,
    conv_general_permutations, conv_transpose, conv_general_dilated_patches, reduce_window, gather,
    scatter_apply,
    ConvDimensionNumbers,
    GatherDimensionNumbers, ScatterDimensionNumbers)}
NAMES.update(scatter=scatter, scatter_add=scatter_add, scatter_sub=scatter_sub,
             scatter_mul=scatter_mul, scatter_min=scatter_min, scatter_max=scatter_max,
             ConvGeneralDilatedDimensionNumbers=ConvDimensionNumbers)
