"""Public functions that pick or place elements along an axis: gather, scatter, index_* and take."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import BOOL, I64, held, of_numpy, scalar_type
from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from adjoint.core import inplace as writes
from adjoint.core.autocast import promoted
from adjoint.core.inplace import inplace
from adjoint.core.modes import GRAD, state, warn_as_pytorch
from adjoint.core.tensor import OWN
from adjoint.ops.api_common import (
    apart,
    dtype_of,
    exactly,
    finish_same,
    need,
    need_kernel,
    numel,
    one_dim,
    raw,
    value,
)
from adjoint.ops.api_index import FULL, Parsed, filling, positions, setitem
from adjoint.ops.api_shape import contiguous
from adjoint.ops.family import broadcast_shapes
from adjoint.ops.gather import (
    check_bounds,
    fits,
    flat_places,
    gather_op,
    scatter_add_op,
    scatter_amax_op,
    scatter_amin_op,
    scatter_op,
)
from adjoint.ops.index import index_op, index_put_op, index_select_op, take_op
from adjoint.ops.index_checks import index_of, put_fits, source_fits, wrapped_index
from adjoint.ops.moments import prod_op
from adjoint.ops.pointwise import add, cast, div, lt, mul, where_op
from adjoint.ops.pointwise import eq as equal
from adjoint.ops.public import known_as, planned, public, typed
from adjoint.ops.shape import clone_op, expand_op, reshape


# ------------------------------------------------------------------ along one axis
@public()
@planned
def gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False, out: Any = None) -> Any:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on.

    >>> import adjoint as ad
    >>> ad.gather(ad.tensor([[1, 2], [3, 4]]), 1, ad.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """
    need("gather", input)
    if out is not None:
        apart(out, input, index)
    d = one_dim(input, dim)
    index = index_of("gather", index)
    if len(input.shape) == 1 and not len(index.shape):
        return finish_same(out, reshape(gather_op(input, reshape(index, (1,)), dim=0), ()))
    if len(input.shape) and numel(index):
        fits("gather", tuple(input.shape), tuple(index.shape), d)
    return finish_same(out, gather_op(input, index, dim=d))


@public()
@typed
def take_along_dim(input: Any, indices: Any, dim: Any = None, *, out: Any = None) -> Any:
    """`gather` whose operands broadcast off `dim`; without dim, of the flattened tensor."""
    index = index_of("take_along_dim", indices)
    if dim is None:
        x, index = reshape(input, (numel(input),)), reshape(index, (numel(index),))
        return finish_same(out, gather_op(x, index, dim=0))
    d = one_dim(input, dim)
    a, b = list(input.shape), list(index.shape)
    if len(a) != len(b):
        raise ShapeError("torch.take_along_dim(): input and indices should have the same number of "
                         f"dimensions, but got {len(a)} dimensions for input, and {len(b)}")
    common = list(broadcast_shapes("take_along_dim", *(Aval((*s[:d], 1, *s[d + 1:]), I64)
                                                       for s in (a, b))))
    xs, js = ((*common[:d], s[d], *common[d + 1:]) for s in (a, b))
    x = input if tuple(a) == xs else expand_op(input, shape=xs)
    index = where_op(lt(index, 0), add(index, a[d]), index)
    j = index if tuple(b) == js else expand_op(index, shape=js)
    return finish_same(out, gather_op(x, j, dim=d))


def _lines(x: Any, *operands: Any) -> Any:
    """The operands, those of one element that go with a vector as vectors of one."""
    return [reshape(a, (1,)) if hasattr(a, "shape") and len(x.shape) == 1 and not len(a.shape)
            else a for a in operands]


def _scatter(name: str, x: Any, dim: int, index: Any, src: Any, value: Any, reduce: Any = None,
             add_to: bool = False) -> Any:
    d = one_dim(x, dim)
    index, src = _lines(x, index_of(name, index), src)
    src = value if src is None else src
    src = src if hasattr(src, "shape") else held(src, dtype_of(x))
    if reduce is not None:
        if reduce not in ("add", "multiply"):
            raise ArgumentError(f"reduce argument must be either add or multiply. Got {reduce!r}")
        if reduce == "multiply":
            return _multiply, d, index, src
        add_to = True
    if hasattr(src, "shape") and dtype_of(src) != dtype_of(x):
        raise DTypeError(f"{name.rstrip('_')}(): Expected self.dtype to be equal to src.dtype, got "
                         f"{of_numpy(dtype_of(x)).name} and {of_numpy(dtype_of(src)).name}")
    return (scatter_add_op if add_to else scatter_op), d, index, src


def _told_of_reduce(src: Any, reduce: Any) -> None:
    if reduce is not None and hasattr(src, "shape"):
        warn_as_pytorch("The reduce argument of torch.scatter with Tensor src is deprecated and "
                        "will be removed in a future PyTorch release. Use torch.scatter_reduce "
                        "instead for more reduction options.")


def _scattered_as(x: Any, dim: int, index: Any, src: Any = None, **kwargs: Any) -> str:
    return f"ScatterBackward{int(not hasattr(src, 'shape'))}"      # (a number has its own)


@public()
@known_as(_scattered_as)
def scatter(input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None,
            reduce: Any = None, out: Any = None) -> Any:
    """A copy of `input` with src (or a number) written to the places `index` names along dim.

    >>> import adjoint as ad
    >>> ad.zeros(2, 3).scatter(1, ad.tensor([[1], [2]]), 5.0)
    tensor([[0., 5., 0.],
            [0., 0., 5.]])
    """
    _told_of_reduce(src, reduce)
    op_, d, index, src = _scatter("scatter", input, dim, index, src, value, reduce)
    return finish_same(out, op_(input, index, src, dim=d))


@public("scatter_", function=False)
@known_as(_scattered_as)
def scatter_(self: Any, dim: int, index: Any, src: Any = None, *, value: Any = None,
             reduce: Any = None) -> Any:
    """In-place `scatter`."""
    _told_of_reduce(src, reduce)
    op_, d, index, src = _scatter("scatter_", self, dim, index, src, value, reduce)
    if not hasattr(op_, "op"):
        return setitem(self, Ellipsis, op_(clone_op(self), index, src, dim=d)) or self
    return inplace(op_.op, self, (index, src), {"dim": d}, name="scatter_")


def _need_source(name: str, position: int, src: Any) -> None:
    if not hasattr(src, "shape"):
        raise DTypeError(f"{name}(): argument 'src' (position {position}) must be Tensor, not "
                         f"{type(src).__name__}")


@public()
def scatter_add(input: Any, dim: int, index: Any, src: Any, *, out: Any = None) -> Any:
    """A copy of `input` with src added to the places `index` names along dim."""
    _need_source("scatter_add", 3, src)
    op_, d, index, src = _scatter("scatter_add", input, dim, index, src, None, add_to=True)
    return finish_same(out, op_(input, index, src, dim=d))


@public("scatter_add_", function=False)
def scatter_add_(self: Any, dim: int, index: Any, src: Any) -> Any:
    """In-place `scatter_add`."""
    _need_source("scatter_add_", 2, src)
    op_, d, index, src = _scatter("scatter_add_", self, dim, index, src, None, add_to=True)
    return inplace(op_.op, self, (index, src), {"dim": d}, name="scatter_add_")


_select_out = exactly("index_select(): self and result must have the same scalar type")
_take_out = exactly("take(): self and out expected to have the same dtype, but got self.dtype = "
                    "{want} and out.dtype = {have}")


@public()
@planned
def index_select(input: Any, dim: int, index: Any, *, out: Any = None) -> Any:
    """The slices along `dim` that a vector of indices names.

    >>> import adjoint as ad
    >>> ad.index_select(ad.arange(6).reshape(2, 3), 1, ad.tensor([0, 2]))
    tensor([[0, 2],
            [3, 5]])
    """
    need("index_select", input)
    if out is not None:
        apart(out, input, index)
    if not len(input.shape):
        if numel(wrapped_index("index_select", index, 1)) != 1:
            raise ShapeError("index_select(): Index to scalar can have only 1 value, got "
                             f"{numel(index)} value(s)")
        return _select_out(out, clone_op(input))
    d = one_dim(input, dim)
    if not input.shape[d] and numel(index):
        raise IndexOutOfRange("index_select(): self indexing axis dim should be positive: "
                              f"dimension {d} has size 0")
    index = wrapped_index("index_select", index, input.shape[d])
    if not len(index.shape):
        index = reshape(index, (1,))
    return _select_out(out, index_select_op(input, index, dims=(d,)))


def _flat_positions(index: Any, n: int) -> Any:
    """Positions in a flattened tensor of n elements."""
    try:
        return positions((n,), Parsed((FULL,), (0,), [index]))
    except IndexOutOfRange:
        low, high = raw(index).min(), raw(index).max()
        raise IndexOutOfRange(f"out of range: tried to access index {high if high >= n else low} "
                              f"on a tensor of {n} elements.") from None


@public()
@typed
def take(input: Any, index: Any, *, out: Any = None) -> Any:
    """Elements of the flattened tensor, in the shape of `index`."""
    need("take", input)
    if out is not None:
        apart(out, input, index)
    index = index_of("take", index)
    if not numel(input) and numel(index):
        raise IndexOutOfRange("take(): tried to take from an empty tensor")
    flat = reshape(input, (numel(input),))
    lin = _flat_positions(index, numel(input))
    return _take_out(out, take_op(flat, lin, dims=(0,)))


@public("put_", function=False)
@typed
def put_(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """Write to positions of the flattened tensor, in place."""
    from adjoint.ops.api_shape import view
    index = index_of("put_", index)
    put_fits(self, source, index)
    lin = _flat_positions(index, numel(self))
    inplace(index_put_op.op, view(self, -1), (lin, reshape(source, tuple(lin.shape))),
            {"dims": (0,), "accumulate": accumulate}, name="put_")
    return self


@public()
@typed
def put(input: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """A copy with positions of the flattened tensor overwritten."""
    index = index_of("put", index)
    put_fits(input, source, index)
    lin = _flat_positions(index, numel(input))
    flat = index_put_op(reshape(input, (numel(input),)), lin, reshape(source, tuple(lin.shape)),
                        dims=(0,), accumulate=accumulate)
    return reshape(flat, tuple(input.shape))


def _as_vector(f: Any) -> Any:
    """A 0-d operand is treated as a vector of one element."""
    @functools.wraps(f)
    def run(input: Any, dim: int, index: Any, *args: Any, **kwargs: Any) -> Any:
        if len(input.shape):
            return f(input, dim, index, *args, **kwargs)
        one_dim(input, dim)
        fill = f.__name__.startswith("index_fill")
        args = tuple(reshape(a, (1,)) if hasattr(a, "shape") and not fill else a for a in args)
        if "source" in kwargs:
            kwargs["source"] = reshape(kwargs["source"], (1,))
        out = kwargs.pop("out", None)
        found = f(reshape(input, (1,)), 0, reshape(index, (-1,)), *args, **kwargs)
        return finish_same(out, reshape(found, ()))
    return typed(run)


def _as_vector_inplace(f: Any) -> Any:
    """The same for an in-place form: it writes through a view of one element."""
    vector = _as_vector(f)

    @functools.wraps(f)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(self.shape):
            return f(self, *args, **kwargs)
        vector(self, *args, **kwargs)
        return self
    return run


def _add_parts(name: str, x: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
    d, shape, index = one_dim(x, dim), x.shape, index_of(name, index)
    if len(index.shape) < 2 and dtype_of(source) == dtype_of(x):
        source_fits(name, shape, d, numel(index), source.shape)
    lin = wrapped_index(name, index, shape[d], d)
    if dtype_of(source) != dtype_of(x):
        own, given, name = scalar_type(dtype_of(x)), scalar_type(dtype_of(source)), name.rstrip("_")
        raise DTypeError(f"{name}_(): self ({own}) and source ({given}) must have the same scalar "
                         "type" if "add" in name else f"{name}_(): self and source expected to have"
                         f" the same dtype, but got (self) {own} and (source) {given}")
    return d, lin, source if alpha == 1 else mul(source, alpha)


@public()
@known_as("IndexAddBackward0")
@_as_vector
def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1,
              out: Any = None) -> Any:
    """A copy of `input` with alpha·source[i] added to slice index[i] along dim."""
    d, lin, src = _add_parts("index_add", input, dim, index, source, alpha)
    input = contiguous(input)
    return finish_same(out, index_put_op(input, lin, src, dims=(d,), accumulate=True))


@public("index_add_", function=False)
@known_as("IndexAddBackward0")
@_as_vector_inplace
def index_add_(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """In-place `index_add`."""
    d, lin, src = _add_parts("index_add_", self, dim, index, source, alpha)
    return inplace(index_put_op.op, self, (lin, src), {"dims": (d,), "accumulate": True},
                   name="index_add_")


@public()
@known_as("IndexCopyBackward0")
@_as_vector
def index_copy(input: Any, dim: int, index: Any, source: Any, *, out: Any = None) -> Any:
    """A copy of `input` whose slices index[i] along dim are source[i]."""
    input, source = promoted(input, source)
    d, lin, src = _add_parts("index_copy", input, dim, index, source, 1)
    input = contiguous(input)
    return finish_same(out, index_put_op(input, lin, src, dims=(d,), accumulate=False))


@public("index_copy_", function=False)
@known_as("IndexCopyBackward0")
@_as_vector_inplace
def index_copy_(self: Any, dim: int, index: Any, source: Any) -> Any:
    """In-place `index_copy`."""
    d, lin, src = _add_parts("index_copy_", self, dim, index, source, 1)
    return inplace(index_put_op.op, self, (lin, src), {"dims": (d,), "accumulate": False},
                   name="index_copy_")


def _distinct(index: Any, value: Any) -> Any:
    """Every position once, so that the value's gradient, where it may have one, counts it once."""
    if type(value) in (int, float):
        return index
    array = raw(index)
    return np.unique(array) if isinstance(array, np.ndarray) and not getattr(
        index, "level", 0) else index


@public()
@known_as("IndexFillBackward0")
@_as_vector
def index_fill(input: Any, dim: int, index: Any, value: Any) -> Any:
    """A copy of `input` whose slices index[i] along dim are full of one value."""
    d = one_dim(input, dim)
    value = filling(value, dtype_of(input), "index_fill_")
    lin = _distinct(wrapped_index("index_fill", index, input.shape[d], d, negative=True), value)
    return index_put_op(input, lin, value, dims=(d,), accumulate=False)


@public("index_fill_", function=False)
@known_as("IndexFillBackward0")
@_as_vector_inplace
def index_fill_(self: Any, dim: int, index: Any, value: Any) -> Any:
    """In-place `index_fill`."""
    d = one_dim(self, dim)
    value = filling(value, dtype_of(self), "index_fill_")
    lin = _distinct(wrapped_index("index_fill_", index, self.shape[d], d, negative=True), value)
    return inplace(index_put_op.op, self, (lin, value), {"dims": (d,), "accumulate": False},
                   name="index_fill_")


# ------------------------------------------------------------------ scatter with a reduction
def _multiply(x: Any, index: Any, src: Any, *, dim: int) -> Any:
    if not hasattr(src, "shape"):
        src = np.full(tuple(index.shape), src, dtype_of(x))
    return scatter_reduce(x, dim, index, src, "prod")


def _cut(src: Any, index: Any) -> Any:
    from adjoint.ops.index import slice_op
    if tuple(src.shape) == tuple(index.shape):
        return src
    return slice_op(src, index=tuple(slice(0, n) for n in index.shape))


def _touched(x: Any, index: Any, d: int) -> Any:
    """How many elements of src arrive at each place."""
    ones = np.ones(tuple(index.shape), dtype_of(x))
    return np.asarray(scatter_add_op(np.zeros(tuple(x.shape), dtype_of(x)), raw(index), ones,
                                     dim=d))


def _product(x: Any, index: Any, src: Any, d: int) -> Any:
    """Factors multiplied in round by round, each round with distinct places; where every example
    of a vmap has its own, each place takes a product over all factors."""
    if getattr(index, "level", 0):
        places = flat_places(index, d, tuple(x.shape)).reshape(1, -1)
        hit = equal(places, np.arange(numel(x))[:, None])
        one = np.ones((), dtype_of(x))
        each = where_op(hit, reshape(src, (1, numel(src))), one)
        factors = prod_op(each, dim=(1,), keepdim=False)
        return mul(x, reshape(factors, tuple(x.shape)))
    check_bounds("scatter", raw(index), x.shape[d], d)
    at = flat_places(raw(index), d, tuple(x.shape)).reshape(-1)
    order = np.argsort(at, kind="stable")
    found = at[order]
    starts = np.flatnonzero(np.concatenate(([True], found[1:] != found[:-1])))
    turn = np.empty(len(at), np.int64)
    turn[order] = np.arange(len(at)) - np.repeat(starts, np.diff(np.append(starts, len(at))))
    flat, factors = reshape(x, (numel(x),)), reshape(src, (numel(src),))
    for k in range(int(turn.max()) + 1 if len(turn) else 0):
        now = np.flatnonzero(turn == k)
        ones = np.ones(flat.shape, dtype_of(x))
        picked = index_op(factors, now, dims=(0,))
        flat = mul(flat, index_put_op(ones, at[now], picked, dims=(0,), accumulate=False))
    return reshape(flat, tuple(x.shape))


@public()
@known_as("ScatterReduceBackward0")
def scatter_reduce(input: Any, dim: int, index: Any, src: Any, reduce: str, *,
                   include_self: bool = True, out: Any = None) -> Any:
    """A copy of `input` with src reduced into the places `index` names along dim.

    reduce: "sum", "prod", "mean", "amax" or "amin"; without include_self the old values of places
    that are written to do not count. Ties of amax and amin share the gradient.

    >>> import adjoint as ad
    >>> ad.zeros(2).scatter_reduce(0, ad.tensor([0, 0]), ad.tensor([1.0, 2.0]), "amax")
    tensor([2., 0.])
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ArgumentError("reduce argument must be either sum, prod, mean, amax or amin, got "
                            f"{reduce}")
    if reduce != "sum" and reduce != "prod":
        need_kernel(f"scatter_gather_tensor_cpu_reduce_{reduce}", "b" if reduce == "mean" else "c",
                    input)
    op_, d, index, src = _scatter("scatter_reduce", input, dim, index, src, None, add_to=True)
    if not len(input.shape):
        one = scatter_reduce(reshape(input, (1,)), 0, reshape(index, (-1,)), reshape(src, (-1,)),
                             reduce, include_self=include_self)
        return finish_same(out, reshape(one, ()))
    if numel(index) or len(index.shape) == len(input.shape):
        fits("scatter", tuple(input.shape), tuple(index.shape), d)
    src = _cut(src, index)
    if dtype_of(input).kind == "b":
        whole = scatter_reduce(cast(input, dtype=I64), d, index, cast(src, dtype=I64), reduce,
                               include_self=include_self)
        return finish_same(out, cast(whole, dtype=dtype_of(input)))
    if reduce in ("amax", "amin"):
        f = scatter_amax_op if reduce == "amax" else scatter_amin_op
        return finish_same(out, f(input, index, src, dim=d, include=bool(include_self)))
    count: Any = None if include_self and reduce in ("sum", "prod") else _touched(input, index, d)
    x = input
    if not include_self:
        x = where_op(count > 0, 1 if reduce == "prod" else 0, x)
    if reduce == "prod":
        return finish_same(out, _product(x, index, src, d))
    total = op_(x, index, src, dim=d)
    if reduce == "mean":
        number = np.maximum(count + (1 if include_self else 0), 1)
        if dtype_of(x).kind in "iu":
            from adjoint.ops.pointwise import floor_divide_op
            total = floor_divide_op(total, number.astype(dtype_of(x)))
        else:
            total = div(total, number)
    return finish_same(out, total)


@public("scatter_reduce_", function=False)
@typed
def scatter_reduce_(self: Any, dim: int, index: Any, src: Any, reduce: str, *,
                    include_self: bool = True) -> Any:
    """In-place `scatter_reduce`."""
    setitem(self, Ellipsis, scatter_reduce(clone_op(self), dim, index, src, reduce,
                                           include_self=include_self))
    return self


@public()
@_as_vector
def index_reduce(input: Any, dim: int, index: Any, source: Any, reduce: str, *,
                 include_self: bool = True, out: Any = None) -> Any:
    """A copy of `input` with source[i] reduced into slice index[i] along dim."""
    need_kernel("index_func_", "bc", input)
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise ArgumentError("index_reduce(): Expected reduce to be one of prod, mean, amax or amin "
                            f"but got {reduce}.")
    warn_as_pytorch("index_reduce() is in beta and the API may change at any time.", once=True)
    d = one_dim(input, dim)
    shape = (*(1,) * d, -1, *(1,) * (len(input.shape) - d - 1))
    index = wrapped_index("index_reduce", index, input.shape[d] if input.shape else 1, d)
    source_fits("index_reduce", input.shape, d, numel(index), source.shape)
    wide = expand_op(reshape(index, shape), shape=tuple(source.shape))
    return finish_same(
        out, scatter_reduce(input, d, wide, source, reduce, include_self=include_self))


@public()
@known_as("MaskedScatterBackward0")
@typed
def masked_scatter(input: Any, mask: Any, source: Any) -> Any:
    """`input` with the elements of `source`, in order, where the mask is True."""
    if dtype_of(mask).kind != "b":
        raise DTypeError("masked_scatter_ only supports boolean masks, but got mask with dtype "
                         f"{scalar_type(dtype_of(mask))}")
    if dtype_of(source) != dtype_of(input):
        raise DTypeError("masked_scatter: expected self and source to have same dtypes but got"
                         f"{scalar_type(dtype_of(input))} and {scalar_type(dtype_of(source))}")
    shape = np.broadcast_shapes(tuple(input.shape), tuple(mask.shape))
    at = np.flatnonzero(np.broadcast_to(value(mask, "masked_scatter"), shape))
    if len(at) > numel(source):
        raise ShapeError("Number of elements of source < number of ones in mask: the mask has "
                         f"{len(at)} True values, source {numel(source)} elements")
    x = input if tuple(input.shape) == shape else expand_op(input, shape=shape)
    picked = index_op(reshape(source, (numel(source),)), np.arange(len(at)), dims=(0,))
    flat = index_put_op(reshape(x, (int(np.prod(shape)),)), at, picked, dims=(0,),
                        accumulate=False)
    return reshape(flat, shape)


@public("masked_scatter_", function=False)
def masked_scatter_(self: Any, mask: Any, source: Any) -> Any:
    """In-place `masked_scatter`."""
    mine, given = self.array, (mask, source)
    if all([type(t) in OWN and type(t.array) is np.ndarray for t in given]) and not (
            source._rg and state() & GRAD) and type(mine) is np.ndarray:
        at, its = mask.array, source.array
        if at.dtype is BOOL and at.shape == mine.shape and its.dtype is mine.dtype:
            n = int(np.count_nonzero(at))
            if n <= its.size and writes.touch(self, "masked_scatter_") is not None:
                mine[at] = its.reshape(-1)[:n].copy()   # it may lie in the memory of self
                return self
    setitem(self, Ellipsis, masked_scatter(clone_op(self), mask, source))
    return self


__all__ = ["gather", "index_select", "scatter", "scatter_reduce", "take"]
