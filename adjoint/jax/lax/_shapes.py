"""Shapes, slices, reductions, sorting and products of `jax.lax`."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.core.tensor import wrap
from adjoint.jax._array import as_array, describe, is_traced, make, value_of
from adjoint.jax._dtypes import as_dtype
from adjoint.jax._table import T
from adjoint.jax._trace import RUN
from adjoint.jax._util import canonicalize_axis
from adjoint.jax._words import on_device, placed, placing
from adjoint.jax.lax._elementwise import strict
from adjoint.jax.numpy._create import NAMES as _C
from adjoint.jax.numpy._reduce import NAMES as _R
from adjoint.jax.numpy._select import NAMES as _S
from adjoint.jax.numpy._shape import NAMES as _H
from adjoint.ops.cumulative import cummax_op, cummin_op

I64 = np.dtype(np.int64)


# ------------------------------------------------------------------ shapes
@placing("out_sharding")
def reshape(operand: Any, new_sizes: Any, dimensions: Any = None) -> Any:
    """`jax.lax.reshape`."""
    x = as_array(operand)
    if any(n < 0 for n in new_sizes):
        raise TypeError(f"reshape new_sizes must all be positive, got {tuple(new_sizes)}.")
    return _H["reshape"](x if dimensions is None else _H["transpose"](x, dimensions),
                         tuple(new_sizes))


def transpose(operand: Any, permutation: Any) -> Any:
    """`jax.lax.transpose`."""
    return _H["transpose"](operand, tuple(permutation))


def rev(operand: Any, dimensions: Any) -> Any:
    """`jax.lax.rev`."""
    x, dims = as_array(operand), tuple(dimensions)
    if len(set(dims)) != len(dims):
        raise TypeError(f"rev dimensions must be unique, got {dims}.")
    if any(not 0 <= d < x.ndim for d in dims):
        raise TypeError("rev dimensions must all be less than operand ndim, got dimensions "
                        f"{dims} for operand ndim {x.ndim}.")
    return _H["flip"](x, dims)


def squeeze(array: Any, dimensions: Any) -> Any:
    """`jax.lax.squeeze`."""
    return _H["squeeze"](array, tuple(dimensions))


def expand_dims(array: Any, dimensions: Any) -> Any:
    """`jax.lax.expand_dims`."""
    x, dims = as_array(array), tuple(dimensions)
    for d in dims:
        canonicalize_axis(d, x.ndim + len(dims))
    if len({d % (x.ndim + len(dims)) for d in dims}) != len(dims):
        raise ValueError(f"repeated axis in lax.expand_dims: {dims}")
    return _H["expand_dims"](x, dims)


def collapse(operand: Any, start_dimension: int, stop_dimension: Any = None) -> Any:
    """Neighbouring axes as one."""
    x = as_array(operand)
    stop = x.ndim if stop_dimension is None else stop_dimension % x.ndim if (
        stop_dimension < 0) else stop_dimension
    return x.reshape((*x.shape[:start_dimension], math.prod(x.shape[start_dimension:stop]),
                      *x.shape[stop:]))


@placing("out_sharding")
def broadcast(operand: Any, sizes: Any) -> Any:
    """New axes of these sizes in front."""
    x = as_array(operand)
    return _H["broadcast_to"](x, (*sizes, *x.shape))


@placing("out_sharding")
def broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Any) -> Any:
    """An array of that shape, in which axis i of the operand is axis `broadcast_dimensions[i]`."""
    x = as_array(operand)
    if len(broadcast_dimensions) != x.ndim:
        raise TypeError("broadcast_in_dim broadcast_dimensions must have length equal to operand "
                        f"ndim; got broadcast_dimensions {tuple(broadcast_dimensions)} for operand "
                        f"ndim {x.ndim}.")
    middle = [1] * len(shape)
    order = sorted(range(x.ndim), key=lambda i: broadcast_dimensions[i])
    for i, d in enumerate(broadcast_dimensions):
        if x.shape[i] not in (1, shape[d]):
            raise TypeError("broadcast_in_dim operand dimension sizes must either be 1, or be "
                            "equal to their corresponding dimensions in the target broadcast "
                            f"shape; got operand of shape {x.shape}, target broadcast shape "
                            f"{tuple(shape)}, broadcast_dimensions {tuple(broadcast_dimensions)} ")
        middle[d] = x.shape[i]
    x = _H["transpose"](x, order) if order != list(range(x.ndim)) else x
    return _H["broadcast_to"](x.reshape(tuple(middle)), tuple(shape))


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """Axes of size one in front, up to a rank."""
    a = as_array(x)
    return a.reshape((*[1] * (rank - a.ndim), *a.shape))


def concatenate(operands: Any, dimension: int) -> Any:
    """`jax.lax.concatenate`."""
    if not len(operands):
        raise ValueError("concatenate requires a non-empty sequences of arrays")
    ts, _ = strict("concatenate", list(operands), False)
    ranks = {t.ndim for t in ts}
    if len(ranks) == 1 and not 0 <= dimension < max(ranks):
        raise TypeError(f"concatenate dimension out of bounds: dimension {dimension} for shapes "
                        f"{', '.join(str(tuple(t.shape)) for t in ts)}.")
    return _H["concatenate"](list(operands), dimension)


def pad(operand: Any, padding_value: Any, padding_config: Any) -> Any:
    """(before, after, between) entries of a value per axis; negative ones cut."""
    x, filler = as_array(operand), as_array(padding_value)
    t, value = x.tensor, filler.tensor
    if value.array.dtype != x.dtype:
        raise TypeError("pad operand and padding_value must be same dtype: got "
                        f"{x.dtype.name} and {value.array.dtype.name}.")
    if len(padding_config) != x.ndim:
        raise ValueError("length of padding_config must equal the number of axes of operand, got "
                         f"padding_config {padding_config} for operand shape {x.shape}")
    if any(inner < 0 for _, _, inner in padding_config):
        raise ValueError("interior padding in padding_config must be nonnegative, got "
                         f"padding_config {padding_config}")
    for d, (low, high, inner) in enumerate(padding_config):
        n = int(t.shape[d])
        if inner and n > 1:
            wide = T["stack"]([t, *[T["broadcast_to"](value, tuple(t.shape))] * inner], d + 1)
            shape = (*t.shape[:d], n * (inner + 1), *t.shape[d + 1:])
            t = T["narrow"](wide.reshape(shape), d, 0, n + (n - 1) * inner)

        def end(k: int, t: Any = t, d: int = d) -> Any:
            return T["broadcast_to"](value, (*t.shape[:d], k, *t.shape[d + 1:]))
        if low > 0 or high > 0:
            t = T["cat"]([end(max(low, 0)), t, end(max(high, 0))], d)
        cut = max(-low, 0), int(t.shape[d]) - max(-high, 0)
        if low < 0 or high < 0:
            t = T["narrow"](t, d, cut[0], max(cut[1] - cut[0], 0))
    return make(t, x.weak_type)


@placing("sharding")
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """`jax.lax.full`."""
    if np.shape(fill_value):
        raise TypeError("full must be called with scalar fill_value, got fill_value.shape "
                        f"{np.shape(fill_value)}.")
    return _C["full"](shape, fill_value, dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, sharding: Any = None
              ) -> Any:
    """`jax.lax.full_like`."""
    on_device("full_like", sharding)
    return _C["full_like"](x, fill_value, dtype, shape)


def iota(dtype: Any, size: int) -> Any:
    """0, 1, 2, ..."""
    if size < 0:
        raise TypeError(f"iota shape must have every element be nonnegative, got ({size},).")
    return make(wrap(np.arange(size).astype(as_dtype(dtype))))


@placing("out_sharding")
def broadcasted_iota(dtype: Any, shape: Any, dimension: int) -> Any:
    """Each element's index along an axis."""
    side = [-1 if d == dimension else 1 for d in range(len(shape))]
    return _H["broadcast_to"](iota(dtype, shape[dimension]).reshape(tuple(side)), tuple(shape))


@placing("out_sharding")
def empty(shape: Any, dtype: Any) -> Any:
    """`jax.lax.empty`."""
    return _C["zeros"](shape, dtype)


def stack(operands: Any, axis: int = 0) -> Any:
    """`jax.lax.stack`."""
    return _H["stack"](operands, axis)


def unstack(x: Any, axis: int = 0) -> Any:
    """`jax.lax.unstack`."""
    return _H["unstack"](x, axis=axis)


def tile(operand: Any, reps: Any) -> Any:
    """`jax.lax.tile`."""
    return _H["tile"](operand, tuple(reps))


def split(operand: Any, sizes: Any, axis: int = 0) -> Any:
    """`jax.lax.split`."""
    x = as_array(operand)
    if sum(sizes) != x.shape[axis]:
        raise ValueError(f"Sum of sizes {sum(sizes)} must be equal to dimension {axis} of the "
                         f"operand shape {list(x.shape)}")
    return [make(p, x.weak_type) for p in T["split"](x.tensor, list(sizes), axis)]


# ------------------------------------------------------------------ slices
def slice(operand: Any, start_indices: Any, limit_indices: Any, strides: Any = None) -> Any:
    """`jax.lax.slice`."""
    x = as_array(operand)                                            # (JAX's name)
    steps = strides or (1,) * x.ndim
    for n, low, high in zip(x.shape, start_indices, limit_indices, strict=True):
        if not 0 <= low <= high <= n:
            raise TypeError(f"slice start_indices and limit_indices must lie in the operand: got "
                            f"{tuple(start_indices)} and {tuple(limit_indices)} for shape "
                            f"{x.shape}.")
    at = tuple(_range(*v) for v in zip(start_indices, limit_indices, steps, strict=True))
    return x[at]



_range = __builtins__["slice"] if isinstance(__builtins__, dict) else __builtins__.slice


def slice_in_dim(operand: Any, start_index: Any, limit_index: Any, stride: int = 1, axis: int = 0
                 ) -> Any:
    """`jax.lax.slice_in_dim`."""
    x = as_array(operand)
    return x[(*[_range(None)] * (axis % x.ndim), _range(start_index, limit_index, stride))]


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """`jax.lax.index_in_dim`."""
    x = as_array(operand)
    n = x.shape[axis]
    if not -n <= index < n:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {n}")
    y = x[(*[_range(None)] * (axis % x.ndim), index)]
    return _H["expand_dims"](y, axis % x.ndim) if keepdims else y


def _starts(name: str, x: Any, starts: Any, sizes: Sequence[int], negative: Any) -> list[Any]:
    """Start indices from the front, moved so that the slice fits; `negative`: whether, in each
    axis, those below 0 count from the end."""
    if not isinstance(starts, (tuple, list)):
        starts = list(as_array(starts))
    kinds = [as_array(s).dtype for s in starts]
    if any(k.kind not in "iu" for k in kinds):
        raise TypeError(f"index arguments to {name} must be integers of the same type, got: "
                        f"{', '.join(k.name for k in kinds)}")
    if len(starts) != x.ndim:
        raise ValueError("Length of slice indices must match number of operand dimensions "
                         f"({len(starts)} vs {x.shape})")
    out: list[Any] = []
    wraps = [negative] * x.ndim if isinstance(negative, (bool, int)) else list(negative)
    for s, n, k, wrapped in zip(starts, x.shape, sizes, wraps, strict=True):
        if k > n:
            raise TypeError("slice slice_sizes must be less than or equal to operand shape, got "
                            f"slice_sizes {tuple(sizes)} for operand shape {x.shape}")
        if isinstance(s, int) and s < 0 and not wrapped:
            raise ValueError(f"Index {s} is out of bounds for dimension {n} if "
                             "allow_negative_indices=False")
        a = as_array(s)
        t = a.tensor.to(I64)
        t = T["where"](t < 0, t + n, t) if wrapped else t
        if RUN.indices is not None:
            RUN.indices(x.shape, len(out), t, n - k)
        out.append(T["clamp"](t, 0, n - k) if is_traced(a) else
                   min(max(int(value_of(make(t))), 0), n - k))
    return out


def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Any, *,
                  allow_negative_indices: Any = True) -> Any:
    """A slice of given sizes at computed starts, moved so that it fits."""
    x = as_array(operand)
    t = x.tensor
    starts = _starts("dynamic_slice", x, start_indices, slice_sizes, allow_negative_indices)
    for d, (s, k) in enumerate(zip(starts, slice_sizes, strict=True)):
        if isinstance(s, int):
            t = T["narrow"](t, d, s, k)
        else:
            t = T["index_select"](t, d, s + wrap(np.arange(k)))
    return make(t, x.weak_type)


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any, *,
                         allow_negative_indices: Any = True) -> Any:
    """A copy with `update` at computed starts, moved so that it fits."""
    x, v = as_array(operand), as_array(update)
    strict("dynamic_update_slice", (x, v), False)
    if v.ndim == x.ndim and any(k > n for k, n in zip(v.shape, x.shape, strict=True)):
        raise TypeError("dynamic_update_slice update shape must be smaller than operand shape, got "
                        f"update shape {v.shape} for operand shape {x.shape}.")
    starts = _starts("dynamic_update_slice", x, start_indices, v.shape, allow_negative_indices)
    index = []
    for d, (s, k) in enumerate(zip(starts, v.shape, strict=True)):
        side = [-1 if i == d else 1 for i in range(x.ndim)]
        at = wrap(np.arange(k).reshape(side))
        index.append(make(at + s))
    return x.at[tuple(index)].set(v)


def dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0, *,
                         allow_negative_indices: bool = True) -> Any:
    """`jax.lax.dynamic_slice_in_dim`."""
    x = as_array(operand)
    axis = axis % x.ndim
    return dynamic_slice(x, [start_index if d == axis else 0 for d in range(x.ndim)],
                         [slice_size if d == axis else n for d, n in enumerate(x.shape)],
                         allow_negative_indices=allow_negative_indices)


def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True, *,
                         allow_negative_indices: bool = True) -> Any:
    """`jax.lax.dynamic_index_in_dim`."""
    y = dynamic_slice_in_dim(operand, as_array(index), 1, axis,
                             allow_negative_indices=allow_negative_indices)
    return y if keepdims else _H["squeeze"](y, axis)


def dynamic_update_slice_in_dim(operand: Any, update: Any, start_index: Any, axis: int, *,
                                allow_negative_indices: bool = True) -> Any:
    """`jax.lax.dynamic_update_slice_in_dim`."""
    x = as_array(operand)
    axis = axis % x.ndim
    return dynamic_update_slice(x, update, [start_index if d == axis else 0 for d in range(
        x.ndim)], allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int, *,
                                allow_negative_indices: bool = True) -> Any:
    """`jax.lax.dynamic_update_index_in_dim`."""
    x, v = as_array(operand), as_array(update)
    if v.ndim != x.ndim:
        v = _H["expand_dims"](v, axis % x.ndim)
    return dynamic_update_slice_in_dim(x, v, index, axis,
                                       allow_negative_indices=allow_negative_indices)


def index_take(src: Any, idxs: Any, axes: Any) -> Any:
    """The slices at indices along several axes, the indices' axis in front."""
    x = as_array(src)
    order = [*axes, *[d for d in range(x.ndim) if d not in axes]]
    return _H["transpose"](x, order)[tuple(idxs)]


# ------------------------------------------------------------------ choice and order
def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """`jax.lax.select`."""
    (y, x), weak = strict("select", (on_false, on_true), False)
    c = as_array(pred)
    if c.dtype.kind != "b":
        raise TypeError(f"select `which` must be boolean or integer type, got {c.dtype.name}.")
    if c.shape not in ((), tuple(x.shape)):
        raise TypeError(f"select `which` must be scalar or have the same shape as cases, got "
                        f"`which` shape {c.shape} but case shape {tuple(x.shape)}.")
    if tuple(x.shape) != tuple(y.shape):
        raise TypeError(f"select cases must have the same shapes, got [{tuple(y.shape)}, "
                        f"{tuple(x.shape)}].")
    return make(T["where"](c.tensor, x, y), weak)


def select_n(which: Any, *cases: Any) -> Any:
    """cases[which], element by element."""
    w = as_array(which)
    if w.dtype.kind not in "biu":
        raise TypeError(f"select `which` must be boolean or integer type, got {w.dtype.name}.")
    if w.dtype.kind == "b" and len(cases) > 2:
        raise TypeError("select with boolean `which` cannot have > 2 cases.")
    ts, weak = strict("select_n", cases)
    if w.dtype.kind == "b":
        return make(T["where"](w.tensor, ts[1], ts[0]) if len(ts) == 2 else ts[0], weak)
    out = ts[0]
    for i, t in enumerate(ts[1:], 1):
        out = T["where"](w.tensor == i, t, out)
    return make(out, weak)


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Sorted; of several arrays, in the order of the first `num_keys`."""
    if not isinstance(operand, (tuple, list)):
        canonicalize_axis(dimension, as_array(operand).ndim)
        return _S["sort"](operand, dimension)
    arrays = [as_array(x) for x in operand]
    if not arrays:
        raise TypeError("Sort requires at least one operand")
    if not 1 <= num_keys <= len(arrays):
        raise ValueError(f"num_keys={num_keys} must be between 1 and len(operand)={len(arrays)}")
    if len({a.shape for a in arrays}) > 1:
        raise TypeError("Arguments to sort must have equal shapes, got: "
                        f"{' '.join(str(a.shape) for a in arrays)}")
    canonicalize_axis(dimension, arrays[0].ndim)
    order = None
    for key in reversed(arrays[:num_keys]):
        t = key.tensor if order is None else T["gather"](key.tensor, dimension, order)
        step = T["argsort"](t.detach(), dimension, stable=True)
        order = step if order is None else T["gather"](order, dimension, step)
    return tuple(make(T["gather"](a.tensor, dimension % a.ndim, order), a.weak_type)
                 for a in arrays)


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> Any:
    """`jax.lax.sort_key_val`."""
    return sort((keys, values), dimension)


def top_k(operand: Any, k: int, *, axis: int = -1) -> Any:
    """(the k largest, their indices) along an axis, the largest first."""
    x = as_array(operand)
    canonicalize_axis(axis, x.ndim)
    if x.dtype.kind == "c":
        raise ValueError("top_k is not compatible with complex inputs.")
    if k < 0:
        raise ValueError(f"k argument to top_k must be nonnegative, got {k}")
    if k > x.shape[axis]:
        raise ValueError("k argument to top_k must be no larger than size along axis; got k="
                         f"{k} with shape={list(x.shape)} and axis={axis % x.ndim}")
    order = T["argsort"](x.tensor.detach(), axis, True, stable=True)
    order = T["narrow"](order, axis % x.ndim, 0, k)
    return [make(T["gather"](x.tensor, axis % x.ndim, order), x.weak_type),
            make(order.to(np.dtype(np.int32)))]


def _approximate(name: str, sign: int) -> Any:
    def run(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
            reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> Any:
        x = as_array(operand)
        axis = canonicalize_axis(reduction_dimension, x.ndim)
        if x.dtype.kind in "biuc":
            raise ValueError("operand must be a floating type")
        if not 0 <= k <= x.shape[axis]:
            raise ValueError(f"k must be smaller than the size of reduction_dim {x.shape[axis]}, "
                             f"got {k}")
        if not 0 < recall_target <= 1:
            raise ValueError(f"{name}: recall_target must be in (0, 1], got {recall_target}")
        values, at = top_k(x * sign, k if aggregate_to_topk else x.shape[axis], axis=axis)
        return [values * sign, at]
    run.__name__ = name
    run.__doc__ = f"""`jax.lax.{name}`: exact here; without `aggregate_to_topk` all are given, in
    order."""
    return run


approx_max_k, approx_min_k = _approximate("approx_max_k", 1), _approximate("approx_min_k", -1)


def argmax(operand: Any, axis: int, index_dtype: Any) -> Any:
    """`jax.lax.argmax`."""
    return _arg("argmax", operand, axis, index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any) -> Any:
    """`jax.lax.argmin`."""
    return _arg("argmin", operand, axis, index_dtype)


def _arg(name: str, operand: Any, axis: int, index_dtype: Any) -> Any:
    x = as_array(operand)
    if not 0 <= axis < x.ndim:
        raise ValueError(f"Invalid axis {axis} for operand shape {x.shape}")
    if as_dtype(index_dtype).kind not in "iu":
        raise TypeError("index_dtype must be an integer type, but got "
                        f"{as_dtype(index_dtype).name}")
    return _R[name](x, axis).astype(index_dtype)


# ------------------------------------------------------------------ reductions and scans
def _reducer(name: str, jnp: str, exact: bool = False) -> Any:
    def run(operand: Any, axes: Any) -> Any:
        x = as_array(operand)
        _within(axes, x)
        if exact:
            return _R[jnp](x, tuple(axes), promote_integers=False)
        return _R[jnp](x, tuple(axes))
    run.__name__ = name
    run.__doc__ = f"`jax.lax.{name}`."
    return run


reduce_sum = placing("out_sharding")(_reducer("reduce_sum", "sum", True))
reduce_prod = _reducer("reduce_prod", "prod", True)
reduce_max, reduce_min = _reducer("reduce_max", "max"), _reducer("reduce_min", "min")


def _within(axes: Any, x: Any) -> None:
    if any(not 0 <= d < x.ndim for d in axes):
        raise ValueError(f"reduction axes {tuple(axes)} contains out-of-bounds indices for "
                         f"{describe(x)}.")


def _bitwise(name: str, of_truth: Any, ufunc: Any) -> Any:
    def run(operand: Any, axes: Any) -> Any:
        x = as_array(operand)
        _within(axes, x)
        if x.dtype.kind == "b":
            return of_truth(x, tuple(axes))
        if x.dtype.kind not in "iu":
            raise TypeError(f"{name} does not accept dtype {x.dtype.name}. Accepted dtypes are "
                            "subtypes of integer, bool.")
        start = as_array(np.array(ufunc.identity).astype(x.dtype))
        return reduce(x, start, lambda a, b: make(T[ufunc.__name__](a.tensor, b.tensor)), axes)
    run.__name__ = name
    run.__doc__ = f"`jax.lax.{name}`."
    return run


reduce_or = _bitwise("reduce_or", _R["any"], np.bitwise_or)
reduce_and = _bitwise("reduce_and", _R["all"], np.bitwise_and)
reduce_xor = _bitwise("reduce_xor", lambda x, axes: _R["sum"](x, axes) % 2 == 1, np.bitwise_xor)


def reduce(operands: Any, init_values: Any, computation: Any, dimensions: Any,
           out_sharding: Any = None) -> Any:
    """A fold by any function of two values, which has to be associative."""
    from adjoint.jax.tree_util import tree_flatten, tree_unflatten
    placed("reduce", out_sharding)
    flat, tree = tree_flatten(operands)
    arrays = [as_array(x) for x in flat]
    _within(dimensions, arrays[0])
    starts = [as_array(v) for v in tree_flatten(init_values)[0]]
    dims = sorted(dimensions)
    rest = [d for d in range(arrays[0].ndim) if d not in dims]
    rows = [x.tensor.permute(*dims, *rest).reshape((-1, *[x.shape[d] for d in rest]))
            for x in arrays]
    state = [_H["broadcast_to"](s.astype(x.dtype), tuple(r.shape[1:]))
             for s, x, r in zip(starts, arrays, rows, strict=True)]
    single = len(arrays) == 1
    for i in range(rows[0].shape[0]):
        xs = [make(r[i]) for r in rows]
        found = computation(state[0], xs[0]) if single else computation(
            tree_unflatten(tree, state), tree_unflatten(tree, xs))
        state = [found] if single else tree_flatten(found)[0]
    return tree_unflatten(tree, state)


def _scanner(name: str, run: Any) -> Any:
    def call(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
        x = as_array(operand)
        if x.dtype.kind == "b":
            raise TypeError(f"{name} does not accept dtype bool. Accepted dtypes are subtypes of "
                            "number.")
        if axis < 0:
            raise ValueError("XLA operations do not allow negative axes")
        if not axis < x.ndim:
            raise ValueError(f"axis {axis} is out of bounds for array of shape {x.shape}")
        t = x.tensor.flip(axis) if reverse else x.tensor
        y = run(t, axis)
        y = y if y.array.dtype == x.dtype else y.to(x.dtype)
        return make(y.flip(axis) if reverse else y, x.weak_type)
    call.__name__ = name
    call.__doc__ = f"`jax.lax.{name}`."
    return call


cumsum = _scanner("cumsum", lambda t, d: T["cumsum"](t, d))
cumprod = _scanner("cumprod", lambda t, d: T["cumprod"](t, d))
cummax = _scanner("cummax", lambda t, d: cummax_op(t, dim=d)[0])
cummin = _scanner("cummin", lambda t, d: cummin_op(t, dim=d)[0])
cumlogsumexp = _scanner("cumlogsumexp", lambda t, d: T["logcumsumexp"](t, d))


# ------------------------------------------------------------------ the rest
def fft(x: Any, fft_type: Any, fft_lengths: Any) -> Any:
    """`fft_type`: "FFT", "IFFT", "RFFT" or "IRFFT", over the last axes."""
    from adjoint.jax.numpy import fft as module
    name = str(getattr(fft_type, "name", fft_type)).lower()
    if name not in ("fft", "ifft", "rfft", "irfft"):
        raise ValueError(f"Unknown FFT type '{fft_type}'")
    axes = tuple(range(-len(fft_lengths), 0))
    return getattr(module, name + "n")(x, tuple(fft_lengths), axes)


def optimization_barrier(operand: Any, /) -> Any:
    """The operand as arrays: nothing is moved across lines here."""
    from adjoint.jax._flat import Leaves
    given = Leaves(operand, "Argument to optimization_barrier")
    return given.tree(given.tensors)


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """`jax.lax.broadcast_shapes`."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise ValueError("Incompatible shapes for broadcasting: shapes="
                         f"{[tuple(s) for s in shapes]}") from None


NAMES = {k: v for k, v in list(globals().items()) if callable(v) and getattr(
    v, "__module__", "") == __name__ and not k.startswith("_")}
NAMES["dtype"] = lambda x: as_array(x).dtype
__all__ = ["NAMES"]
