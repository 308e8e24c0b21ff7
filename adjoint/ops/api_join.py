"""Public functions that join, split and repeat."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.dtypes import promote_dtypes, scalar_type
from adjoint.base.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRange,
    ShapeError,
    instead_of,
)
from adjoint.core.tensor import Tensor
from adjoint.ops.api_common import (
    apart,
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
from adjoint.ops.public import planned, public, typed
from adjoint.ops.shape import (
    cat_op,
    narrow_op,
    normalize_dim,
    repeat_op,
    reshape,
    select_op,
    split_op,
    split_with_sizes_op,
    stack_op,
    unbind_op,
)


# ------------------------------------------------------------------ joining
def _listed(name: str, tensors: Any) -> list[Any]:
    """The tensors of a sequence; one tensor is none."""
    if isinstance(tensors, Tensor) and not tensors.level or not hasattr(tensors, "__iter__"):
        raise DTypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not "
                         f"{type(tensors).__name__}; put them into a list")
    return list(tensors)


def _several(name: str, tensors: Any) -> list[Any]:
    xs = _listed(name, tensors)
    if not xs:
        raise ArgumentError("torch.cat(): expected a non-empty list of Tensors" if name == "cat"
                            else f"{name} expects a non-empty TensorList")
    for i, x in enumerate(xs):
        if type(x) is not Tensor and not hasattr(x, "shape"):
            raise DTypeError(f"{name}(): expected Tensor as element {i} in argument 0, but got "
                             f"{type(x).__name__}; {instead_of(x)}")
    need(name, *xs, argument="tensors")
    dtypes = {x.array.dtype if type(x) is Tensor else dtype_of(x) for x in xs}
    if len(dtypes) > 1:
        dtype = promote_dtypes(*(dtype_of(x) for x in xs))
        xs = [cast_to(x, dtype) for x in xs]
    return xs


@public(method=False, aliases=("concat", "concatenate"))
@planned
def cat(tensors: Any, dim: int = 0, *, out: Any = None, axis: Any = None) -> Any:
    """Tensors one after another along an existing axis; dtypes are promoted.

    >>> import adjoint as ad
    >>> ad.cat([ad.zeros(2, 3), ad.ones(1, 3)]).shape
    adjoint.Size([3, 3])
    """
    xs = _several("cat", tensors)
    if out is not None:
        apart(out, *xs)
    full = [x for x in xs if (x.array if type(x) is Tensor else x).shape != (0,)]
    if full and len(full) < len(xs):                # an empty vector fits anywhere, as in PyTorch
        xs = _fitted(xs, full[0], dim if axis is None else axis)
    if not xs[0].shape:
        raise ShapeError("zero-dimensional tensor (at position 0) cannot be concatenated; use "
                         "stack")
    d = one_dim(xs[0], dim if axis is None else axis)
    return finish(out, cat_op(*xs, dim=d))


def _fitted(xs: list[Any], like: Any, dim: int) -> list[Any]:
    """Operands of `cat` without the empty vectors; those that require a gradient stay, as empty
    tensors that fit."""
    shape = list(like.shape)
    if shape:
        shape[one_dim(like, dim)] = 0
    return [x if tuple(x.shape) != (0,) else reshape(x, tuple(shape)) for x in xs
            if tuple(x.shape) != (0,) or shape and getattr(x, "requires_grad", False)]


@public(method=False)
@planned
def stack(tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
    """Tensors of one shape along a new axis.

    >>> import adjoint as ad
    >>> ad.stack([ad.zeros(3), ad.ones(3)]).shape
    adjoint.Size([2, 3])
    """
    xs = _several("stack", tensors)
    if out is not None:
        apart(out, *xs)
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
@typed
def atleast_1d(*tensors: Any) -> Any:
    """Every operand with at least one axis."""
    return _at_least_all(tensors, 1)


@public(method=False)
@typed
def atleast_2d(*tensors: Any) -> Any:
    """Every operand with at least two axes."""
    return _at_least_all(tensors, 2)


@public(method=False)
@typed
def atleast_3d(*tensors: Any) -> Any:
    """Every operand with at least three axes."""
    return _at_least_all(tensors, 3)


def _rows(name: str, tensors: Any, rank: int) -> list[Any]:
    """The tensors, each with at least `rank` axes."""
    xs = [_at_least(x, rank) for x in _listed(name, tensors)]
    if not xs:
        raise ArgumentError(f"{name} expects a non-empty TensorList")
    return xs


@public(method=False)
@planned
def hstack(tensors: Any, *, out: Any = None) -> Any:
    """Joined along axis 1 (axis 0 for vectors)."""
    xs = _rows("hstack", tensors, 1)
    return cat(xs, 0 if len(xs[0].shape) == 1 else 1, out=out)


@public(method=False, aliases=("row_stack",))
@planned
def vstack(tensors: Any, *, out: Any = None) -> Any:
    """Joined along axis 0, vectors as rows."""
    return cat(_rows("vstack", tensors, 2), 0, out=out)


@public(method=False)
@planned
def dstack(tensors: Any, *, out: Any = None) -> Any:
    """Joined along axis 2."""
    return cat(_rows("dstack", tensors, 3), 2, out=out)


@public(method=False)
@planned
def column_stack(tensors: Any, *, out: Any = None) -> Any:
    """Joined along axis 1, vectors as columns."""
    tensors = _several("column_stack", tensors)
    return cat([reshape(x, (numel(x), 1)) if len(x.shape) < 2 else x
                for x in tensors], 1, out=out)


# ------------------------------------------------------------------ splitting
@public()
@planned
def split(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
    """Views of pieces along an axis: of one size (the last may be smaller), or of given sizes.

    >>> import adjoint as ad
    >>> [p.shape for p in ad.split(ad.zeros(5), 2)]
    [adjoint.Size([2]), adjoint.Size([2]), adjoint.Size([1])]
    """
    need("split", tensor, argument="tensor")
    _some_axis("split expects", tensor)
    d = one_dim(tensor, dim)
    n = tensor.shape[d] if len(tensor.shape) else 0
    if hasattr(split_size_or_sections, "__index__") and not getattr(
            split_size_or_sections, "ndim", 0):                 # (a tensor without axes, too)
        step = split_size_or_sections.__index__()
        if step < 0:
            raise ArgumentError("split expects split_size be non-negative, but got split_size="
                                f"{step}")
        if step == 0 and n:
            raise ArgumentError("split_size can only be 0 if dimension size is 0, but got dimension"
                                f" size of {n}")
        parts = _pieces(n, step) if n else [0]
    else:
        if isinstance(split_size_or_sections, (float, complex, str)):
            raise DTypeError("split_with_sizes(): argument 'split_sizes' (position 2) must be tuple"
                             f" of ints, not {type(split_size_or_sections).__name__}")
        parts = [int(s) for s in split_size_or_sections]
        if min(parts, default=0) < 0:
            raise ArgumentError("split_with_sizes expects split_sizes have only non-negative "
                                f"entries, but got split_sizes={parts}")
        if sum(parts) != n:
            raise ShapeError(f"split_with_sizes expects split_sizes to sum exactly to {n} (input "
                             f"tensor's size at dimension {dim}), but got split_sizes={parts}")
        return split_with_sizes_op(tensor, sizes=tuple(parts), dim=d)
    return split_op(tensor, sizes=tuple(parts), dim=d)


@public("split_with_sizes")
def split_with_sizes(input: Any, split_sizes: Any, dim: int = 0) -> Any:
    """`split` with a list of sizes."""
    return split(input, list(split_sizes), dim)


@public()
@planned
def chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    """At most `chunks` pieces of equal size (the last may be smaller) along an axis.

    >>> import adjoint as ad
    >>> len(ad.chunk(ad.zeros(6), 3))
    3
    """
    need("chunk", input)
    _some_axis("chunk expects", input)
    if chunks < 1:
        raise ArgumentError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    d = one_dim(input, dim)
    n = input.shape[d]
    parts = _pieces(n, max(1, -(-n // chunks))) if n else [0] * chunks
    return split_op(input, sizes=tuple(parts), dim=d)


def _some_axis(what: str, x: Any) -> None:
    if not len(x.shape):
        raise ShapeError(f"{what} at least a 1-dimensional tensor, but got a tensor with 0 dims")


def _pieces(n: int, step: int) -> list[int]:
    """Sizes of the pieces of `n` elements, `step` each but the last."""
    return [min(step, n - i) for i in range(0, n, step)]


def _edges(given: Any) -> None:
    """Refuse a tensor that can say neither where to cut nor into how many."""
    what = "tensor_split expected tensor_indices_or_sections to"
    if len(given.shape) > 1:
        raise ShapeError(f"{what} be a zero-dimensional or one-dimensional tensor, but got a tensor"
                         f" with {len(given.shape)} dims")
    if dtype_of(given) != np.int64:
        raise ArgumentError(f"{what} have dtype of long, but got {scalar_type(dtype_of(given))}")


@public()
@planned
def tensor_split(input: Any, indices_or_sections: Any, dim: int = 0) -> Any:
    """Pieces between indices, or `sections` pieces whose sizes differ by at most one."""
    _some_axis("tensor_split expected", input)
    if isinstance(indices_or_sections, Tensor):
        _edges(indices_or_sections)
    d = one_dim(input, dim)
    n = input.shape[d]
    given = raw(indices_or_sections)
    given = given.tolist() if isinstance(given, (np.ndarray, np.generic)) else given
    if isinstance(given, int):
        if given < 1:
            raise ArgumentError(f"number of sections must be larger than 0, got {given}")
        small, more = divmod(n, given)
        parts = [small + 1] * more + [small] * (given - more)
        edges = [sum(parts[:i]) for i in range(given + 1)]
    else:
        edges = [0, *(min(max(c + n if c < 0 else c, 0), n) for c in given), n]
    return tuple(narrow_op(input, dim=d, start=a, length=max(b - a, 0))
                 for a, b in zip(edges[:-1], edges[1:], strict=True))


@public()
@planned
def unbind(input: Any, dim: int = 0) -> Any:
    """A tuple of the slices along an axis, without it.

    >>> import adjoint as ad
    >>> len(ad.unbind(ad.zeros(3, 2)))
    3
    """
    if not len(input.shape):
        raise IndexOutOfRange("Dimension specified as 0 but tensor has no dimensions")
    return unbind_op(input, dim=one_dim(input, dim))


@public()
@planned
def narrow(input: Any, dim: int, start: Any, length: int) -> Any:
    """A view of `length` elements along an axis from `start` on.

    >>> import adjoint as ad
    >>> ad.narrow(ad.arange(5), 0, 1, 2)
    tensor([1, 2])
    """
    if not len(input.shape):
        raise ShapeError("narrow() cannot be applied to a 0-dim tensor.")
    d = one_dim(input, dim)
    n = input.shape[d]
    if len(getattr(start, "shape", ())) or isinstance(
            start, float) or hasattr(start, "shape") and dtype_of(start).kind not in "iu":
        raise ArgumentError("narrow(): start must be an 0-dim integral Tensor. Or an int; got "
                            f"{list(getattr(start, 'shape', ()))}")
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
@planned
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
@planned
def repeat(input: Any, *args: Any, repeats: Any = None) -> Any:
    """The tensor several times along each axis (a copy); new axes go in front.

    >>> import adjoint as ad
    >>> ad.zeros(3).repeat(4, 2).shape
    adjoint.Size([4, 6])
    """
    reps = sizes(given(args, repeats), "repeat(): argument 'repeats'")
    if len(reps) < len(input.shape):
        raise ShapeError("Number of dimensions of repeat dims can not be smaller than number of "
                         f"dimensions of tensor ({len(reps)} < {len(input.shape)})")
    return repeat_op(input, reps=_not_negative(tuple(input.shape), reps))


@public()
@planned
@typed
def tile(input: Any, *args: Any, dims: Any = None) -> Any:
    """`repeat`, with missing leading repeats taken as 1.

    >>> import adjoint as ad
    >>> ad.tile(ad.zeros(2, 3), (2,)).shape
    adjoint.Size([2, 6])
    """
    reps = sizes(given(args, dims), "tile(): argument 'dims'")
    reps = (1,) * (len(input.shape) - len(reps)) + reps
    return repeat_op(input, reps=_not_negative(tuple(input.shape), reps))


def _not_negative(shape: tuple[int, ...], reps: tuple[int, ...]) -> tuple[int, ...]:
    if reps and min(reps) < 0:
        made = [n * r for n, r in zip((1,) * (len(reps) - len(shape)) + shape, reps, strict=True)]
        raise ShapeError("Trying to create tensor with negative dimension "
                         f"{next((n for n in made if n < 0), min(reps))}: {made}")
    return reps


def _splitter(name: str, least: int, axis: Callable[[int], int]) -> None:
    def f(input: Any, indices_or_sections: Any) -> Any:
        rank = len(input.shape)
        if rank < least:
            raise ShapeError(f"torch.{name} requires a tensor with at least {least} dimension, but "
                             f"got a tensor with {rank} dimensions!")
        d = axis(rank)
        if isinstance(indices_or_sections, str):
            raise DTypeError(f"{name}() received an invalid combination of arguments - got "
                             "(Tensor, str); sections are an int, or split points a tuple of ints")
        if isinstance(indices_or_sections, int) and indices_or_sections < 0:
            raise ArgumentError(f"torch.{name}: number of sections must be larger than 0, got "
                                f"{indices_or_sections}")
        if isinstance(indices_or_sections, int) and (
                not indices_or_sections or input.shape[d] % indices_or_sections):
            raise ArgumentError(f"torch.{name} attempted to split along dimension {d}, but the size"
                                f" of the dimension {input.shape[d]} is not divisible by the "
                                f"split_size {indices_or_sections}!")
        return tensor_split(input, indices_or_sections, d)
    f.__name__ = f.__qualname__ = name
    f.__doc__ = "`tensor_split` along an axis that the rank decides."
    public(name)(typed(f))


_splitter("hsplit", 1, lambda rank: 0 if rank == 1 else 1)
_splitter("vsplit", 2, lambda rank: 0)
_splitter("dsplit", 3, lambda rank: 2)
