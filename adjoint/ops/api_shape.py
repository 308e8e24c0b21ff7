"""Public functions that rearrange: views first, joins and splits after them."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.base.dtypes import promote_dtypes
from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.ops.api_common import (
    cast_to,
    dtype_of,
    finish,
    given,
    need,
    numel,
    one_dim,
    raw,
    sizes,
)
from adjoint.ops.public import public
from adjoint.ops.shape import (
    cat_op,
    clone_op,
    expand_op,
    flip_op,
    identity_op,
    infer_size,
    narrow_op,
    normalize_dim,
    normalize_dims,
    permute_op,
    repeat_op,
    reshape,
    reshape_op,
    roll_op,
    select_op,
    split_op,
    squeeze_op,
    stack_op,
    t_op,
    transpose_op,
    unbind_op,
    unsqueeze_op,
)


# ------------------------------------------------------------------ shapes
@public("reshape")
def reshape_(input: Any, *args: Any, shape: Any = None) -> Any:
    """The same elements in another shape; one size may be -1. A view where strides allow it.

    >>> import adjoint as ad
    >>> ad.arange(6).reshape(2, -1).shape
    adjoint.Size([2, 3])
    """
    need("reshape", input)
    return reshape(input, sizes(given(args, shape)))


def _viewable(array: Any, shape: Sequence[int]) -> bool:
    if not isinstance(array, np.ndarray) or array.flags.c_contiguous:
        return True
    return bool(np.shares_memory(array, array.reshape(shape))) if array.size else True


@public("view", function=False)
def view(input: Any, *args: Any, shape: Any = None) -> Any:
    """The same memory in another shape, or its bytes as another dtype.

    Raises ShapeError where the strides do not allow a view; `reshape` copies there.

    >>> import adjoint as ad
    >>> ad.zeros(4, 2).view(8).shape
    adjoint.Size([8])
    """
    if len(args) == 1 and not isinstance(args[0], (int, tuple, list, np.integer)):
        return _view_dtype(input, args[0])
    new = infer_size(sizes(given(args, shape)), numel(input), tuple(input.shape))
    if type(input) is Tensor and not _viewable(input.array, new):
        raise ShapeError("view size is not compatible with input tensor's size and stride (at "
                         "least one dimension spans across two contiguous subspaces). Use "
                         f".reshape(...) instead. ({list(input.shape)} -> {list(new)})")
    return reshape_op(input, shape=new)


def _view_dtype(input: Any, dtype: Any) -> Any:
    from adjoint.base.dtypes import to_numpy
    from adjoint.core.tensor import alias
    wanted = to_numpy(dtype)
    array = raw(input)
    if wanted.itemsize == array.dtype.itemsize:
        shown = array.view(wanted)
    else:
        if not array.ndim or array.strides[-1] != array.itemsize:
            raise ShapeError("view(dtype): the last axis must be contiguous to be shown with "
                             f"elements of {wanted.itemsize} bytes, strides {array.strides}")
        shown = array.view(wanted)
    out = alias(input)
    out.array = shown
    return out


@public("view_as", function=False)
def view_as(input: Any, other: Any) -> Any:
    """`input.view(other.shape)`."""
    return view(input, tuple(other.shape))


@public("reshape_as", function=False)
def reshape_as(input: Any, other: Any) -> Any:
    """`input.reshape(other.shape)`."""
    return reshape(input, tuple(other.shape))


@public()
def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Axes start_dim..end_dim as one.

    >>> import adjoint as ad
    >>> ad.flatten(ad.zeros(2, 3, 4), 1).shape
    adjoint.Size([2, 12])
    """
    need("flatten", input)
    a, b = one_dim(input, start_dim), one_dim(input, end_dim)
    shape = tuple(input.shape)
    if not shape:
        return reshape(input, (1,))
    if a > b:
        raise ArgumentError("flatten() has invalid args: start_dim cannot come after end_dim "
                            f"({start_dim}, {end_dim})")
    if a == b:
        return input
    return reshape(input, (*shape[:a], math.prod(shape[a:b + 1]), *shape[b + 1:]))


@public("ravel")
def ravel(input: Any) -> Any:
    """All elements along one axis."""
    return reshape(input, (numel(input),))


@public()
def unflatten(input: Any, dim: int, sizes: Any) -> Any:
    """One axis as several (one may be -1).

    >>> import adjoint as ad
    >>> ad.zeros(3, 8).unflatten(1, (2, -1)).shape
    adjoint.Size([3, 2, 4])
    """
    d = one_dim(input, dim)
    shape = tuple(input.shape)
    try:
        new = infer_size(tuple(sizes), shape[d], shape[d:d + 1])
    except ShapeError:
        raise ShapeError(f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of"
                         f" dim {dim} ({shape[d]}) in the input tensor") from None
    return reshape(input, (*shape[:d], *new, *shape[d + 1:]))


@public()
def unsqueeze(input: Any, dim: int) -> Any:
    """A new axis of size 1 before axis `dim`.

    >>> import adjoint as ad
    >>> ad.unsqueeze(ad.zeros(4), -1).shape
    adjoint.Size([4, 1])
    """
    need("unsqueeze", input)
    return unsqueeze_op(input, dim=normalize_dim(dim, len(input.shape) + 1))


@public()
def squeeze(input: Any, dim: Any = None) -> Any:
    """Without the axes of size 1 (all, or those of `dim`).

    >>> import adjoint as ad
    >>> ad.squeeze(ad.zeros(2, 1, 2, 1)).shape
    adjoint.Size([2, 2])
    """
    need("squeeze", input)
    shape = tuple(input.shape)
    dims = normalize_dims(dim, len(shape))
    return squeeze_op(input, dims=tuple(d for d in dims if shape[d] == 1)) if shape else (
        identity_op(input))


@public()
def expand(input: Any, *args: Any, size: Any = None, implicit: bool = False) -> Any:
    """Axes of size 1 repeated without memory; -1 keeps a size, new axes go in front.

    >>> import adjoint as ad
    >>> ad.zeros(3, 1).expand(-1, 4).shape
    adjoint.Size([3, 4])
    """
    wanted, have = sizes(given(args, size)), tuple(input.shape)
    lead = len(wanted) - len(have)
    if lead < 0:
        raise ShapeError(f"expand(tensor{list(have)}, size={list(wanted)}): the number of sizes "
                         f"provided ({len(wanted)}) must be greater or equal to the number of "
                         f"dimensions in the tensor ({len(have)})")
    new = []
    for i, n in enumerate(wanted):
        old = have[i - lead] if i >= lead else None
        if n == -1 and old is None:
            raise ShapeError(f"The expanded size of the tensor (-1) isn't allowed in a leading, "
                             f"non-existing dimension {i}")
        n = old if n == -1 and old is not None else n
        if old is not None and old not in (1, n):
            raise ShapeError(f"The expanded size of the tensor ({n}) must match the existing size "
                             f"({old}) at non-singleton dimension {i}. Target sizes: "
                             f"{list(wanted)}. Tensor sizes: {list(have)}")
        new.append(n)
    return expand_op(input, shape=tuple(new))


@public("expand_as", function=False)
def expand_as(input: Any, other: Any) -> Any:
    """`input.expand(other.shape)`."""
    return expand(input, tuple(other.shape))


@public()
def broadcast_to(input: Any, size: Any) -> Any:
    """`input.expand(size)`."""
    return expand(input, tuple(size))


@public(method=False)
def broadcast_tensors(*tensors: Any) -> Any:
    """All operands expanded to their common shape.

    >>> import adjoint as ad
    >>> [t.shape for t in ad.broadcast_tensors(ad.zeros(2, 1), ad.zeros(3))]
    [adjoint.Size([2, 3]), adjoint.Size([2, 3])]
    """
    ts = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) \
        else list(tensors)
    shape = broadcast_shapes(*(tuple(t.shape) for t in ts))
    return tuple(expand(t, tuple(shape)) for t in ts)


@public(method=False)
def broadcast_shapes(*shapes: Any) -> Any:
    """The common shape of several shapes."""
    from adjoint.core.tensor import Size
    try:
        return Size(np.broadcast_shapes(*(s if isinstance(s, int) else tuple(s) for s in shapes)))
    except ValueError:
        raise ShapeError("Shape mismatch: objects cannot be broadcast to a single shape: "
                         f"{', '.join(str(list(s)) for s in shapes)}") from None


# ------------------------------------------------------------------ permutations
@public(aliases=("swapaxes", "swapdims"))
def transpose(input: Any, dim0: int, dim1: int) -> Any:
    """Two axes swapped.

    >>> import adjoint as ad
    >>> ad.transpose(ad.zeros(2, 3), 0, 1).shape
    adjoint.Size([3, 2])
    """
    need("transpose", input)
    a, b = one_dim(input, dim0), one_dim(input, dim1)
    return transpose_op(input, dim0=a, dim1=b) if len(input.shape) else identity_op(input)


@public("t")
def t(input: Any) -> Any:
    """The transpose of a matrix; vectors and numbers as they are.

    >>> import adjoint as ad
    >>> ad.zeros(2, 3).t().shape
    adjoint.Size([3, 2])
    """
    if len(input.shape) > 2:
        raise ShapeError(f"t() expects a tensor with <= 2 dimensions, but self is "
                         f"{len(input.shape)}D; use transpose or mT")
    return t_op(input) if len(input.shape) == 2 else identity_op(input)


@public()
def permute(input: Any, *args: Any, dims: Any = None) -> Any:
    """The axes in another order.

    >>> import adjoint as ad
    >>> ad.zeros(2, 3, 5).permute(2, 0, 1).shape
    adjoint.Size([5, 2, 3])
    """
    order = normalize_dims(sizes(given(args, dims)), len(input.shape))
    if len(order) != len(input.shape):
        raise ShapeError(f"permute(sparse_coo): number of dimensions in the tensor input does not "
                         f"match the length of the desired ordering of dimensions i.e. input.dim() "
                         f"= {len(input.shape)} is not equal to len(dims) = {len(order)}")
    return permute_op(input, dims=order)


@public(aliases=("moveaxis",))
def movedim(input: Any, source: Any, destination: Any) -> Any:
    """Axes `source` at the places `destination`, the others in their order.

    >>> import adjoint as ad
    >>> ad.movedim(ad.zeros(2, 3, 5), 0, -1).shape
    adjoint.Size([3, 5, 2])
    """
    n = len(input.shape)
    src, dst = normalize_dims(source, n), normalize_dims(destination, n)
    if len(src) != len(dst):
        raise ArgumentError(f"movedim: Invalid source or destination dims: source ({source}) should"
                            f" contain the same number of dims as destination ({destination})")
    rest = iter(d for d in range(n) if d not in src)
    order = [src[dst.index(i)] if i in dst else next(rest) for i in range(n)]
    return permute_op(input, dims=tuple(order))


@public()
def contiguous(input: Any, memory_format: Any = None) -> Any:
    """`input` itself if its elements lie in C order, else a copy that does."""
    array = raw(input)
    if not isinstance(array, np.ndarray) or array.flags.c_contiguous:
        return input
    return contiguous_copy(input)


def contiguous_copy(input: Any) -> Any:
    """A copy in C order."""
    return c_clone(input)


@public("adjoint")
def adjoint_of(input: Any) -> Any:
    """The conjugate transpose of the last two axes."""
    from adjoint.ops.linalg import mH
    return mH(input)


@public()
def flip(input: Any, *args: Any, dims: Any = None) -> Any:
    """Reversed along axes (a copy).

    >>> import adjoint as ad
    >>> ad.flip(ad.arange(3), 0)
    tensor([2, 1, 0])
    """
    return flip_op(input, dims=normalize_dims(sizes(given(args, dims)), len(input.shape)))


@public()
def fliplr(input: Any) -> Any:
    """Reversed along axis 1."""
    if len(input.shape) < 2:
        raise ShapeError("Input must be >= 2-d.")
    return flip_op(input, dims=(1,))


@public()
def flipud(input: Any) -> Any:
    """Reversed along axis 0."""
    if len(input.shape) < 1:
        raise ShapeError("Input must be >= 1-d.")
    return flip_op(input, dims=(0,))


@public()
def roll(input: Any, shifts: Any, dims: Any = None) -> Any:
    """Elements moved along axes, those that fall off come back at the start.

    >>> import adjoint as ad
    >>> ad.roll(ad.arange(4), 1)
    tensor([3, 0, 1, 2])
    """
    shift = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if dims is None or (isinstance(dims, (tuple, list)) and not dims):
        if len(shift) != 1:
            raise ArgumentError(f"shifts and dimensions must align. shifts: {len(shift)}, dims:0")
        flat = roll_op(reshape(input, (numel(input),)), shifts=shift, dims=(0,))
        return reshape(flat, tuple(input.shape))
    axes = (dims,) if isinstance(dims, int) else tuple(dims)
    if len(axes) != len(shift):
        raise ArgumentError(f"shifts and dimensions must align. shifts: {len(shift)}, dims:"
                            f"{len(axes)}")
    return roll_op(input, shifts=shift, dims=tuple(one_dim(input, d) for d in axes))


@public()
def rot90(input: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
    """Turned by k·90 degrees in the plane of two axes.

    >>> import adjoint as ad
    >>> ad.rot90(ad.tensor([[0, 1], [2, 3]]))
    tensor([[1, 3],
            [0, 2]])
    """
    if len(dims) != 2:
        raise ArgumentError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    a, b = normalize_dims(dims, len(input.shape))
    k %= 4
    if k == 0:
        return clone_op(input)
    if k == 2:
        return flip_op(input, dims=(a, b))
    if k == 1:
        return transpose_op(flip_op(input, dims=(b,)), dim0=a, dim1=b)
    return flip_op(transpose_op(input, dim0=a, dim1=b), dims=(b,))


# ------------------------------------------------------------------ joining
def _several(name: str, tensors: Any) -> list[Any]:
    if isinstance(tensors, Tensor):
        tensors = list(tensors)
    xs = list(tensors)
    if not xs:
        raise ArgumentError(f"{name}(): expected a non-empty list of Tensors")
    need(name, *xs, argument="tensors")
    dtypes = {dtype_of(x) for x in xs}
    if len(dtypes) > 1:
        dtype = promote_dtypes(*(dtype_of(x) for x in xs))
        xs = [cast_to(x, dtype) for x in xs]
    return xs


@public(method=False, aliases=("concat", "concatenate"))
def cat(tensors: Any, dim: int = 0, *, out: Any = None, axis: Any = None) -> Any:
    """Tensors one after another along an existing axis; dtypes are promoted.

    >>> import adjoint as ad
    >>> ad.cat([ad.zeros(2, 3), ad.ones(1, 3)]).shape
    adjoint.Size([3, 3])
    """
    xs = _several("cat", tensors)
    if any(tuple(x.shape) != (0,) for x in xs):      # an empty vector fits everywhere, as in PyTorch
        xs = [x for x in xs if tuple(x.shape) != (0,)]
    if not xs[0].shape:
        raise ShapeError("zero-dimensional tensor (at position 0) cannot be concatenated; use "
                         "stack")
    d = one_dim(xs[0], dim if axis is None else axis)
    return finish(out, cat_op(*xs, dim=d))


@public(method=False)
def stack(tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
    """Tensors of one shape along a new axis.

    >>> import adjoint as ad
    >>> ad.stack([ad.zeros(3), ad.ones(3)]).shape
    adjoint.Size([2, 3])
    """
    xs = _several("stack", tensors)
    return finish(out, stack_op(*xs, dim=normalize_dim(dim, len(xs[0].shape) + 1)))


def _at_least(x: Any, n: int) -> Any:
    shape = tuple(x.shape)
    while len(shape) < n:
        shape = (1, *shape) if len(shape) != 2 else (*shape, 1)
    if n == 3 and len(x.shape) == 1:
        shape = (1, x.shape[0], 1)
    return reshape(x, shape) if len(x.shape) < n else x


def _at_least_all(tensors: Any, n: int) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        return tuple(_at_least(x, n) for x in tensors[0])
    done = tuple(_at_least(x, n) for x in tensors)
    return done[0] if len(done) == 1 else done


@public(method=False)
def atleast_1d(*tensors: Any) -> Any:
    """Every operand with at least one axis."""
    return _at_least_all(tensors, 1)


@public(method=False)
def atleast_2d(*tensors: Any) -> Any:
    """Every operand with at least two axes."""
    return _at_least_all(tensors, 2)


@public(method=False)
def atleast_3d(*tensors: Any) -> Any:
    """Every operand with at least three axes."""
    return _at_least_all(tensors, 3)


@public(method=False)
def hstack(tensors: Any, *, out: Any = None) -> Any:
    """Joined along axis 1 (axis 0 for vectors)."""
    xs = [_at_least(x, 1) for x in tensors]
    return cat(xs, 0 if len(xs[0].shape) == 1 else 1, out=out)


@public(method=False, aliases=("row_stack",))
def vstack(tensors: Any, *, out: Any = None) -> Any:
    """Joined along axis 0, vectors as rows."""
    return cat([_at_least(x, 2) for x in tensors], 0, out=out)


@public(method=False)
def dstack(tensors: Any, *, out: Any = None) -> Any:
    """Joined along axis 2."""
    return cat([_at_least(x, 3) for x in tensors], 2, out=out)


@public(method=False)
def column_stack(tensors: Any, *, out: Any = None) -> Any:
    """Joined along axis 1, vectors as columns."""
    return cat([reshape(x, (numel(x), 1)) if len(x.shape) < 2 else x for x in tensors], 1, out=out)


# ------------------------------------------------------------------ splitting
@public()
def split(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
    """Views of pieces along an axis: of one size (the last may be smaller), or of given sizes.

    >>> import adjoint as ad
    >>> [p.shape for p in ad.split(ad.zeros(5), 2)]
    [adjoint.Size([2]), adjoint.Size([2]), adjoint.Size([1])]
    """
    need("split", tensor, argument="tensor")
    d = one_dim(tensor, dim)
    n = tensor.shape[d] if len(tensor.shape) else 0
    if isinstance(split_size_or_sections, (int, np.integer)):
        step = int(split_size_or_sections)
        if step < 0 or (step == 0 and n):
            raise ArgumentError(f"split expects split_size be positive, but got split_size={step}")
        parts = [min(step, n - i) for i in range(0, n, step)] if n else [0]
    else:
        parts = [int(s) for s in split_size_or_sections]
        if sum(parts) != n or any(p < 0 for p in parts):
            raise ShapeError(f"split_with_sizes expects split_sizes to sum exactly to {n} (input "
                             f"tensor's size at dimension {dim}), but got split_sizes={parts}")
    return split_op(tensor, sizes=tuple(parts), dim=d)


@public("split_with_sizes")
def split_with_sizes(input: Any, split_sizes: Any, dim: int = 0) -> Any:
    """`split` with a list of sizes."""
    return split(input, list(split_sizes), dim)


@public()
def chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    """At most `chunks` pieces of equal size (the last may be smaller) along an axis.

    >>> import adjoint as ad
    >>> len(ad.chunk(ad.zeros(6), 3))
    3
    """
    if chunks < 1:
        raise ArgumentError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = input.shape[one_dim(input, dim)]
    if n == 0:
        return split(input, [0] * chunks, dim)
    return split(input, max(1, -(-n // chunks)), dim)


@public()
def tensor_split(input: Any, indices_or_sections: Any, dim: int = 0) -> Any:
    """Pieces between indices, or `sections` pieces whose sizes differ by at most one."""
    d = one_dim(input, dim)
    n = input.shape[d]
    given = raw(indices_or_sections)
    given = given.tolist() if isinstance(given, np.ndarray) else given
    if isinstance(given, int):
        small, more = divmod(n, given)
        parts = [small + 1] * more + [small] * (given - more)
    else:
        cuts = [min(max(c + n if c < 0 else c, 0), n) for c in given]
        edges = [0, *cuts, n]
        return tuple(narrow_op(input, dim=d, start=a, length=max(b - a, 0))
                     for a, b in zip(edges[:-1], edges[1:], strict=True))
    return split_op(input, sizes=tuple(parts), dim=d)


@public()
def unbind(input: Any, dim: int = 0) -> Any:
    """A tuple of the slices along an axis, without it.

    >>> import adjoint as ad
    >>> len(ad.unbind(ad.zeros(3, 2)))
    3
    """
    if not len(input.shape):
        raise ShapeError("Dimension specified as 0 but tensor has no dimensions")
    return unbind_op(input, dim=one_dim(input, dim))


@public()
def narrow(input: Any, dim: int, start: Any, length: int) -> Any:
    """A view of `length` elements along an axis from `start` on.

    >>> import adjoint as ad
    >>> ad.narrow(ad.arange(5), 0, 1, 2)
    tensor([1, 2])
    """
    d = one_dim(input, dim)
    n = input.shape[d]
    start = int(raw(start))
    if length < 0:
        raise ArgumentError("narrow(): length must be non-negative.")
    if not -n <= start <= n:
        raise IndexOutOfRange(f"start out of range (expected to be in range of [{-n}, {n}], but got"
                              f" {start})")
    start += n if start < 0 else 0
    if start + length > n:
        raise ShapeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return narrow_op(input, dim=d, start=start, length=length)


@public()
def select(input: Any, dim: int, index: int) -> Any:
    """A view of one slice along an axis, without it."""
    if not len(input.shape):
        raise IndexOutOfRange("select() cannot be applied to a 0-dim tensor.")
    d = one_dim(input, dim)
    n = input.shape[d]
    index = int(raw(index))
    if not -n <= index < n:
        raise IndexOutOfRange(f"select(): index {index} out of range for tensor of size "
                              f"{list(input.shape)} at dimension {d}")
    return select_op(input, dim=d, index=index % n)


# ------------------------------------------------------------------ repeats
@public("repeat", function=False)
def repeat(input: Any, *args: Any, repeats: Any = None) -> Any:
    """The tensor several times along each axis (a copy); new axes go in front.

    >>> import adjoint as ad
    >>> ad.zeros(3).repeat(4, 2).shape
    adjoint.Size([4, 6])
    """
    reps = sizes(given(args, repeats))
    if len(reps) < len(input.shape):
        raise ShapeError("Number of dimensions of repeat dims can not be smaller than number of "
                         f"dimensions of tensor ({len(reps)} < {len(input.shape)})")
    if any(r < 0 for r in reps):
        raise ShapeError(f"Trying to create tensor with negative dimension: repeats {list(reps)}")
    return repeat_op(input, reps=reps)


@public()
def tile(input: Any, *args: Any, dims: Any = None) -> Any:
    """`repeat`, with missing leading repeats taken as 1.

    >>> import adjoint as ad
    >>> ad.tile(ad.zeros(2, 3), (2,)).shape
    adjoint.Size([2, 6])
    """
    reps = sizes(given(args, dims))
    return repeat_op(input, reps=(1,) * (len(input.shape) - len(reps)) + reps)


def _clone_rules() -> Any:
    from adjoint.core.op import op
    return op("contiguous", impl=lambda x, /: np.array(x, order="C"), infer=lambda x: x,
              vjp={"x": lambda ct: ct}, jvp={"x": None}, node="CloneBackward0",
              batch=lambda op_, args, b, attrs: op_.call(args[0]))


c_clone = _clone_rules()
__all__ = ["DTypeError", "c_clone", "cat", "contiguous_copy", "expand", "movedim", "permute",
           "reshape_", "split", "stack", "view"]
