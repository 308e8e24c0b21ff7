"""Public functions: diagonals, windows, grids, and products over several axes."""
from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from adjoint.base.dtypes import I64, is_inexact, lacking, promote_dtypes, scalar_type, to_numpy
from adjoint.base.errors import ArgumentError, DTypeError, NoKernel, NotSupported, ShapeError
from adjoint.core.autocast import in_float32
from adjoint.core.modes import not_replayed, warn
from adjoint.core.tensor import Tensor, share_cell, wrap
from adjoint.ops.api_common import (
    cast_to,
    dtype_of,
    exactly,
    finish,
    finish_same,
    need,
    need_kernel,
    numel,
    one_dim,
    raw,
    same_dtype,
)
from adjoint.ops.arrange import as_strided_op, diagonal_op, undiagonal_op, windows_op
from adjoint.ops.index import index_op, index_select_op
from adjoint.ops.linalg import matmul_op
from adjoint.ops.moments import norm_op
from adjoint.ops.pointwise import add, clamp_min, mul, sqrt, sub
from adjoint.ops.public import FUNCTIONS, known_as, planned, public, typed
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import (
    cat_op,
    expand_op,
    mT,
    normalize_dim,
    permute_op,
    reshape,
    roll_op,
    stack_op,
    unsqueeze_op,
)


@public()
@planned
def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A view of the diagonals of two axes, as the last axis.

    >>> import adjoint as ad
    >>> ad.diagonal(ad.arange(4).reshape(2, 2))
    tensor([0, 3])
    """
    need("diagonal", input)
    a, b = one_dim(input, dim1), one_dim(input, dim2)
    if a == b:
        raise ArgumentError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return diagonal_op(input, offset=offset, dim1=a, dim2=b)


@public()
@planned
def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Matrices with the last axis of `input` on a diagonal, zeros elsewhere."""
    need("diag_embed", input)
    rank = len(input.shape) + 1
    a, b = normalize_dim(dim1, rank), normalize_dim(dim2, rank)
    if a == b:
        raise ArgumentError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    if a > b:
        a, b, offset = b, a, -offset
    n = input.shape[-1] + abs(offset)
    rest = list(input.shape[:-1])
    rest.insert(a, n)
    rest.insert(b, n)
    return undiagonal_op(input, shape=tuple(rest), offset=offset, dim1=a, dim2=b)


@public()
@planned
def diag(input: Any, diagonal: int = 0, *, out: Any = None) -> Any:
    """A matrix with a vector on its diagonal; or the diagonal of a matrix (a copy).

    >>> import adjoint as ad
    >>> ad.diag(ad.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    need("diag", input)
    if len(input.shape) == 1:
        return finish_same(out, diag_embed(input, diagonal))
    if len(input.shape) != 2:
        raise ShapeError(f"diag(): Supports 1D or 2D tensors. Got {len(input.shape)}D")
    from adjoint.ops.shape import clone_op
    return finish_same(out, clone_op(diagonal_op(input, offset=diagonal, dim1=0, dim2=1)))


@public()
@typed
def diagflat(input: Any, offset: int = 0) -> Any:
    """A matrix with all elements of `input` on a diagonal."""
    return diag_embed(reshape(input, (numel(input),)), offset)


@public()
@typed
def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A copy of `input` with `src` on the diagonals of two axes."""
    a, b = one_dim(input, dim1), one_dim(input, dim2)
    shape = tuple(input.shape)
    hole = undiagonal_op(np.ones(tuple(src.shape), dtype_of(input)), shape=shape, offset=offset,
                         dim1=a, dim2=b)
    kept = mul(input, (1 - np.asarray(hole)).astype(dtype_of(input)))
    return add(kept, undiagonal_op(src, shape=shape, offset=offset, dim1=a, dim2=b))


@public()
@known_as("TraceBackward0")
@in_float32
def trace(input: Any) -> Any:
    """The sum of the diagonal of a matrix."""
    need_kernel("trace", "b", input)
    if len(input.shape) != 2:
        raise ShapeError("trace: expected a matrix, but got tensor with dim "
                         f"{len(input.shape)}")
    return sum_op(diagonal_op(input, offset=0, dim1=0, dim2=1), dim=(0,), keepdim=False)


@public("unfold", function=False)
@planned
@typed
def unfold(input: Any, dimension: int, size: int, step: int) -> Any:
    """A view of windows of `size` elements every `step` along an axis, as a new last axis.

    >>> import adjoint as ad
    >>> ad.arange(4).unfold(0, 2, 1)
    tensor([[0, 1],
            [1, 2],
            [2, 3]])
    """
    d = one_dim(input, dimension)
    n = input.shape[d] if len(input.shape) else 1
    if step <= 0:
        raise ArgumentError(f"step is {step} but must be > 0")
    if size < 0:
        raise ArgumentError(f"size is {size} but must be >= 0")
    if size > n:
        raise ShapeError(f"maximum size for tensor at dimension {d} is {n} but size is {size}")
    if not len(input.shape):
        return FUNCTIONS["narrow"](reshape(input, (1,)), 0, 0, size)
    return windows_op(input, dim=d, size=int(size), step=int(step))


def in_memory_order(x: Any) -> tuple[Any, tuple[int, ...]]:
    """A tensor with its axes in the order of its memory, and that order."""
    array, order = raw(x), tuple(range(len(x.shape)))
    if type(array) is np.ndarray and not array.flags.c_contiguous:
        order = tuple(sorted(order, key=lambda d: -array.strides[d]))
        x = permute_op(x, dims=order)
    return x, order


def _memory(x: Any, start: Any, reach: int) -> tuple[Any, int]:
    """(a contiguous tensor that shows the memory of `x`, where in it offset `start` is): `x` itself
    where that has all elements up to `reach`, counted from its first."""
    array = raw(x)
    plain = type(array) is np.ndarray and isinstance(x, Tensor) and not x.level
    inside = plain and array.flags.c_contiguous and reach + int(start or 0) < array.size
    if not plain or inside and (start is None or not x.storage_offset()):
        return x, int(start or 0)
    root = x if x._base is None else x._base
    if x._rg and (not root._rg or x.is_leaf or x._retains or x._backward_hooks):
        root = x                        # its gradient does not go to its base, or not unseen
    whole, _ = in_memory_order(root)
    if not raw(whole).flags.c_contiguous:
        raise NotSupported("as_strided: only of contiguous tensors and of views of such; call "
                           ".contiguous() first")
    first = x.storage_offset() if start is None else int(start)
    if not x._rg and not 0 <= first - root.storage_offset() <= raw(whole).size - 1 - reach:
        octets = x.untyped_storage()._bytes()           # a storage that was resized has more
        held: Any = wrap(octets[:octets.size - octets.size % array.itemsize].view(array.dtype))
        held._cell = share_cell(x)
        return held, first
    return whole, first - root.storage_offset()


@public()
@typed
def as_strided(input: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    """A view with sizes and strides (in elements) of one's own, over the memory that `input` shows.

    storage_offset  the first element, counted from the beginning of that memory; None: where
                    `input` begins
    Of a view it is another view of what that shows, so that its gradient reaches every element
    shown, those outside of `input` too. NotSupported where the memory has gaps and the gradient
    does not reach all of it: `input` is no view, or what it shows does not require a gradient.

    >>> import adjoint as ad
    >>> ad.arange(6).reshape(2, 3).T.as_strided((2, 2), (1, 2))
    tensor([[0, 2],
            [1, 3]])
    """
    size, stride = tuple(int(s) for s in size), tuple(int(s) for s in stride)
    if len(size) != len(stride):
        raise ArgumentError("mismatch in length of strides and shape")
    if min(stride, default=0) < 0:
        raise ArgumentError("as_strided: Negative strides are not supported at the moment, got "
                            f"strides: {list(stride)}")
    if min(size, default=0) < 0:
        raise ArgumentError(f"Storage size calculation overflowed with sizes={list(size)} and "
                            f"strides={list(stride)}: no size may be negative")
    if storage_offset is not None and storage_offset < 0:
        raise ArgumentError(f"Tensor: invalid storage offset {storage_offset}")
    reach = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    input, offset = _memory(input, storage_offset, reach)
    last = offset + reach
    if 0 not in size and (offset < 0 or last >= numel(input)):
        width = dtype_of(input).itemsize
        raise ShapeError(f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset "
                         f"{offset}, and itemsize {width} requiring a storage size of "
                         f"{(last + 1) * width} are out of bounds for storage of size "
                         f"{numel(input) * width}")
    return as_strided_op(input, size=size, stride=stride, offset=offset)


# ------------------------------------------------------------------ repeats and grids
@public()
@typed
def repeat_interleave(input: Any, repeats: Any = None, dim: Any = None, *,
                      output_size: Any = None) -> Any:
    """Every element (or slice along dim) several times in a row.

    >>> import adjoint as ad
    >>> ad.repeat_interleave(ad.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    """
    if repeats is None:
        counts = np.asarray(raw(input))
        return wrap(np.repeat(np.arange(len(counts)), counts).astype(np.int64))
    counts = np.asarray(raw(repeats))
    if counts.dtype.kind not in "iu":
        raise NoKernel("\"repeat_interleave_cpu\" not implemented for "
                       f"'{scalar_type(counts.dtype)}'")
    if counts.ndim > 1:
        raise ShapeError(f"repeats must be 0-dim or 1-dim tensor, got {counts.ndim}-dim")
    if dim is None and counts.size == 1 and len(input.shape) > 1:
        made = repeat_interleave(input, repeats, -1)    # the same, by an index for one row
        return reshape(made, (numel(made),))
    x = reshape(input, (numel(input),)) if dim is None else input
    d = 0 if dim is None else one_dim(input, dim)
    n = x.shape[d]
    if counts.size not in (1, n):
        raise ShapeError(f"repeats must have the same size as input along dim, but got "
                         f"repeats.size(0) = {counts.size} and input.size({d}) = {n}")
    if counts.size and counts.min() < 0:
        raise ArgumentError("Repeats must be non-negative" if isinstance(repeats, int)
                            else "repeats can not be negative")
    total = int(counts.sum()) if counts.ndim and counts.size == n else int(counts.sum()) * n
    if output_size is not None and output_size != total:
        raise ArgumentError(f"repeat_interleave: Invalid output_size, expected {total} but got "
                            f"{output_size}")
    times: Any = int(counts.reshape(-1)[0]) if counts.size == 1 else counts.reshape(-1)
    at = np.repeat(np.arange(n), times)
    return index_select_op(x, at, dims=(d,))


@public(method=False)
@planned
@typed
def meshgrid(*tensors: Any, indexing: Any = None) -> Any:
    """Grids of coordinates from vectors; indexing "ij" (default) or "xy".

    >>> import adjoint as ad
    >>> [g.shape for g in ad.meshgrid(ad.arange(2), ad.arange(3), indexing="ij")]
    [adjoint.Size([2, 3]), adjoint.Size([2, 3])]
    """
    ts = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) \
        else list(tensors)
    if not ts:
        raise ArgumentError("meshgrid expects a non-empty TensorList")
    if len({dtype_of(t) for t in ts}) > 1:
        raise DTypeError("meshgrid expects all tensors to have the same dtype, got "
                         f"{[str(dtype_of(t)) for t in ts]}")
    swap = indexing == "xy" and len(ts) > 1
    if indexing not in (None, "ij", "xy"):
        raise ArgumentError(f"torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but "
                            f"received: {indexing}")
    for t in ts:
        if len(t.shape) > 1:
            raise ShapeError("torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got "
                             f"one of shape {list(t.shape)}")
    if indexing is None and len(ts) > 1:
        warn("torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
             "argument; indexing=\"ij\" is what is done without.")
    shape = tuple(numel(t) for t in ts)
    out = [expand_op(reshape(t, tuple(-1 if k == i else 1 for k in range(len(ts)))), shape=shape)
           for i, t in enumerate(ts)]
    if swap:
        order = (1, 0, *range(2, len(ts)))
        out = [permute_op(o, dims=order) for o in out]
    return tuple(out)


def _vectors(name: str, *tensors: Any) -> None:
    for t in tensors:
        if len(t.shape) != 1:
            raise ShapeError(f"Expect a 1D vector, but got shape {list(t.shape)}: {name}")


@public(method=False)
@typed
def cartesian_prod(*tensors: Any) -> Any:
    """All combinations of elements of vectors, one per row."""
    _vectors("cartesian_prod", *tensors)
    if len(tensors) == 1:
        return tensors[0]
    grids = meshgrid(*tensors, indexing="ij")
    return stack_op(*[reshape(g, (numel(g),)) for g in grids], dim=1)


@public(method=False)
@typed
def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Any:
    """All combinations of r elements of a vector, one per row."""
    _vectors("combinations", input)
    if r < 0:
        raise ArgumentError(f"Expect a non-negative number, but got {r}")
    pick = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    if not r:
        return index_op(input, np.zeros(0, np.int64), dims=(0,))
    at = np.array(list(pick(range(input.shape[0]), r)), np.int64).reshape(-1, r)
    return index_op(input, at, dims=(0,))


def _triangle(name: str, inside: Any, row: int, col: int, offset: int, dtype: Any) -> Any:
    kind = I64 if dtype is None else to_numpy(dtype)
    if kind.kind != "i" or kind.itemsize < 4:
        raise lacking(name, kind)
    for which, count in (("row", row), ("col", col)):
        if count < 0:
            raise ArgumentError(f"{which} must be non-negative, got{count}")
    found = inside.outer(np.arange(offset, row + offset), np.arange(col)).nonzero()
    return wrap(np.array(found, kind))


@public(method=False)
@typed
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None,
                 layout: Any = None) -> Any:
    """Row and column numbers of the lower triangle: (2, count)."""
    return _triangle("tril_indices", np.greater_equal, row, col, offset, dtype)


@public(method=False)
@typed
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None,
                 layout: Any = None) -> Any:
    """Row and column numbers of the upper triangle: (2, count)."""
    return _triangle("triu_indices", np.less_equal, row, col, offset, dtype)


@public(method=False)
@known_as("BlockDiagBackward0")
@typed
def block_diag(*tensors: Any) -> Any:
    """A matrix with the operands as blocks on its diagonal."""
    for k, t in enumerate(tensors):
        if len(t.shape) > 2:
            raise ShapeError("torch.block_diag: Input tensors must have 2 or fewer dimensions. "
                             f"Input {k} has {len(t.shape)} dimensions")
    if not tensors:
        return FUNCTIONS["empty"](1, 0)
    blocks = [reshape(t, (1, numel(t))) if len(t.shape) < 2 else t for t in tensors]
    width = sum(b.shape[1] for b in blocks)
    rows, start = [], 0
    dtype = promote_dtypes(*(dtype_of(b) for b in blocks))
    from adjoint.ops.shape import pad_zero_op
    for b in blocks:
        after = width - start - b.shape[1]
        rows.append(pad_zero_op(cast_to(b, dtype), pads=((0, 0), (start, after))))
        start += b.shape[1]
    return cat_op(*rows, dim=0)


@public(method=False)
@typed
def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    """Powers of a vector as columns."""
    if len(x.shape) != 1:
        raise ShapeError(f"x must be a one-dimensional tensor. Got {len(x.shape)}D.")
    from adjoint.ops.pointwise import cast, pow_op
    n = x.shape[0] if N is None else N
    if n < 0:
        raise ArgumentError(f"N must be non-negative, got {n}")
    powers = np.arange(n)[::1 if increasing else -1]
    x = unsqueeze_op(x if is_inexact(dtype_of(x)) else cast(x, dtype=I64), dim=1)
    return pow_op(x, powers.astype(dtype_of(x)))


# ------------------------------------------------------------------ products
@public()
@planned
@typed
def kron(input: Any, other: Any, *, out: Any = None) -> Any:
    """The Kronecker product."""
    rank = max(len(input.shape), len(other.shape))
    a, b = (reshape(t, (*(1,) * (rank - len(t.shape)), *t.shape)) for t in (input, other))
    left = reshape(a, tuple(v for n in a.shape for v in (n, 1)))
    right = reshape(b, tuple(v for n in b.shape for v in (1, n)))
    shape = tuple(n * m for n, m in zip(a.shape, b.shape, strict=True))
    return finish(out, reshape(mul(left, right), shape))


tensordot_out = exactly("tensordot: Expected the output tensor to have dtype {want}, but got an "
                         "output tensor with dtype {have}")


@public(method=False)
@typed
def tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    """Sums of products over the last `dims` axes of a and the first of b, or over listed axes.

    >>> import adjoint as ad
    >>> ad.tensordot(ad.ones(2, 3), ad.ones(3, 4), dims=1).shape
    adjoint.Size([2, 4])
    """
    same_dtype("tensordot", a, b)
    need_kernel("addmm_impl_cpu_", "b", a)
    given = raw(dims)
    given = given.tolist() if isinstance(given, np.ndarray) else given
    if isinstance(given, int):
        if given < 0:
            raise ArgumentError(f"tensordot expects dims >= 0, but got dims={given}")
        da = tuple(range(len(a.shape) - given, len(a.shape)))
        db = tuple(range(given))
    else:
        first, second = given
        first, second = ([first], [second]) if isinstance(first, int) else (first, second)
        da = tuple(one_dim(a, d) for d in first)
        db = tuple(one_dim(b, d) for d in second)
    for i, j in zip(da, db, strict=False):          # a contracted axis of size 1 broadcasts
        if a.shape[i] != b.shape[j]:
            kinds = dtype_of(a), dtype_of(b)
            if b.shape[j] == 1:
                a = cast_to(sum_op(a, dim=(i,), keepdim=True), kinds[0])
            elif a.shape[i] == 1:
                b = cast_to(sum_op(b, dim=(j,), keepdim=True), kinds[1])
    if len(da) != len(db):
        raise ShapeError(f"both dimension lists should have same length: got {da} and {db}")
    if any(a.shape[i] != b.shape[j] for i, j in zip(da, db, strict=True)):
        raise ShapeError(f"tensordot: contracted dimensions need to match, but first has size "
                         f"{[a.shape[i] for i in da]} in dims {list(da)} and second has size "
                         f"{[b.shape[j] for j in db]} in dims {list(db)}")
    ra = [d for d in range(len(a.shape)) if d not in da]
    rb = [d for d in range(len(b.shape)) if d not in db]
    inner = math.prod(a.shape[d] for d in da)
    left = reshape(permute_op(a, dims=(*ra, *da)), (math.prod(a.shape[d] for d in ra), inner))
    right = reshape(permute_op(b, dims=(*db, *rb)), (inner, math.prod(b.shape[d] for d in rb)))
    shape = (*(a.shape[d] for d in ra), *(b.shape[d] for d in rb))
    return tensordot_out(out, reshape(matmul_op(left, right), shape))


@public()
@known_as("LinalgCrossBackward0")
@planned
def cross(input: Any, other: Any, dim: Any = None, *, out: Any = None) -> Any:
    """The cross product along an axis of size 3 (the first of that size if dim is None)."""
    if dim is None:
        found = [i for i, n in enumerate(input.shape) if n == 3]
        if not found:
            raise ShapeError("no dimension of size 3 in input")
        d = found[0]
        not_replayed()
        warn("Using torch.cross without specifying the dim arg is deprecated; it was taken as "
             f"{d}, the first of size 3. linalg.cross takes the last axis.")
    else:
        d = one_dim(input, dim)
    if len(input.shape) != len(other.shape):
        raise ShapeError("linalg.cross: inputs must have the same number of dimensions, got "
                         f"{list(input.shape)} and {list(other.shape)}")
    if input.shape[d] != 3 or other.shape[d] != 3:
        raise ShapeError(f"linalg.cross: inputs dimension {d if dim is None else dim} must have "
                         f"length 3. Got {input.shape[d]} and {other.shape[d]}")

    need_kernel("cross", "b", input)
    same_dtype("linalg.cross", input, other)

    def turn(x: Any, by: int) -> Any:
        return roll_op(x, shifts=(by,), dims=(d,))
    return finish_same(out, sub(mul(turn(input, -1), turn(other, -2)),
                                mul(turn(input, -2), turn(other, -1))))


@public(method=False)
@known_as("CdistBackward0")
@in_float32
@typed
def cdist(x1: Any, x2: Any, p: float = 2.0,
          compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Any:
    """Distances of all pairs of rows: (..., n, d), (..., m, d) -> (..., n, m); gradient 0 at 0.

    Large Euclidean distances go through a matrix product, which never holds (n, m, d).
    """
    need("cdist", x1, x2)
    need_kernel("cdist only supports floating-point dtypes, X1 got: {}", "biuc", x1)
    same_dtype("cdist", x1, x2)
    if p < 0:
        raise ArgumentError(f"cdist only supports non-negative p values, got {p}")
    for word, x in (("X1", x1), ("X2", x2)):
        if len(x.shape) < 2:
            raise ShapeError(f"cdist only supports at least 2D tensors, {word} got: "
                             f"{len(x.shape)}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: "
                         f"{x2.shape[-1]}")
    n, m = x1.shape[-2], x2.shape[-2]
    product = p == 2 and (compute_mode == "use_mm_for_euclid_dist" or (
        compute_mode == "use_mm_for_euclid_dist_if_necessary" and (n > 25 or m > 25)))
    if product:
        last = len(x1.shape) - 1
        a = sum_op(mul(x1, x1), dim=(last,), keepdim=True)
        b = sum_op(mul(x2, x2), dim=(len(x2.shape) - 1,), keepdim=True)
        square = sub(add(a, mT(b)), mul(matmul_op(x1, mT(x2)), 2.0))
        from adjoint.ops.pointwise import le, where_op
        zero = le(square, 0.0)
        return where_op(zero, 0.0, sqrt(where_op(zero, 1.0, clamp_min(square, low=0.0))))
    need_kernel("cdist", "h", x1)
    gap = sub(unsqueeze_op(x1, dim=len(x1.shape) - 1), unsqueeze_op(x2, dim=len(x2.shape) - 2))
    return norm_op(gap, p=float(p), dim=(len(gap.shape) - 1,), keepdim=False)


@public()
@typed
def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """The covariance matrix of the rows (variables) over the columns (observations).

    fweights count how often a column was observed, aweights how much it matters.
    """
    need_kernel("cov(): bool dtype is not supported for input", "b", input)
    from adjoint.ops.pointwise import div
    if len(input.shape) > 2:
        raise ShapeError("cov(): expected input to have two or fewer dimensions but got an input "
                         f"with {len(input.shape)} dimensions")
    x = reshape(input, (1, numel(input))) if len(input.shape) < 2 else input
    for name, w in (("fweights", fweights), ("aweights", aweights)):
        kinds = "iu" if name == "fweights" else "f"
        if w is not None and len(w.shape) > 1:
            raise ShapeError(f"cov(): expected {name} to have one or fewer dimensions but got "
                             f"{name} with {len(w.shape)} dimensions: {list(w.shape)}")
        if w is not None and dtype_of(w).kind not in kinds:
            raise DTypeError(f"cov(): expected {name} to have "
                             f"{'integral' if kinds == 'iu' else 'floating point'} dtype but got "
                             f"{scalar_type(dtype_of(w))}")
        if w is not None and tuple(w.shape) != (x.shape[1],):
            raise ShapeError(f"cov(): expected {name} to have the same numel as there are "
                             f"observations in the input but got {list(w.shape)} for "
                             f"{x.shape[1]} observations")
        values = raw(w)
        if isinstance(values, np.ndarray) and values.size and values.min() < 0:
            raise ArgumentError(f"cov(): {name} cannot be negative, got {values.min()}")
    f = 1.0 if fweights is None else cast_to(fweights, dtype_of(x))
    a = 1.0 if aweights is None else aweights
    w = mul(mul(np.ones(x.shape[1], dtype_of(x)), f), a)
    total = sum_op(w, dim=(0,), keepdim=False)
    mean = div(sum_op(mul(x, w), dim=(1,), keepdim=True), total)
    if aweights is None:
        left: Any = sub(total, float(correction))
    else:
        both = sum_op(mul(w, a), dim=(0,), keepdim=False)
        left = sub(total, mul(div(both, total), float(correction)))
    if not getattr(left, "level", 0) and np.real(raw(left)) <= 0:
        warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number"
             f" of observations: {x.shape[1]} of them, correction {correction}.")
    centred = sub(x, mean)
    out = div(matmul_op(centred, mT(_conj(mul(centred, w)))), clamp_min(left, low=0.0)
              if dtype_of(left).kind != "c" else left)
    return reshape(out, ()) if tuple(out.shape) == (1, 1) else out


def _conj(x: Any) -> Any:
    from adjoint.ops.linalg import conj
    return conj(x)


@public()
@typed
def corrcoef(input: Any) -> Any:
    """The correlation matrix of the rows."""
    from adjoint.ops.pointwise import div
    c = cov(input)
    if not len(c.shape):
        return div(c, c)
    d = sqrt(diagonal_op(c, offset=0, dim1=0, dim2=1))
    return div(div(c, unsqueeze_op(d, dim=1)), d)


__all__ = ["diag", "diagonal", "meshgrid", "repeat_interleave"]
