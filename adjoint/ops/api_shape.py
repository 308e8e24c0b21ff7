"""Public functions that rearrange: views first, joins and splits after them."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import scalar_type, to_numpy
from adjoint.base.errors import (
    ArgumentError,
    AutogradError,
    DTypeError,
    IndexOutOfRange,
    ShapeError,
)
from adjoint.core.intercept import shown_as
from adjoint.core.tensor import Size, Tensor, alias
from adjoint.ops.api_common import (
    exactly,
    given,
    need,
    numel,
    one_dim,
    raw,
    sizes,
)
from adjoint.ops.device import channels_last_of, contiguous_format, in_order, preserve_format
from adjoint.ops.family import broadcast_shapes as operands_shape
from adjoint.ops.public import FUNCTIONS, SPARSE, known_as, planned, public, typed
from adjoint.ops.shape import (
    expand_op,
    flip_op,
    identity_op,
    infer_size,
    integers,
    normalize_dim,
    normalize_dims,
    permute_op,
    refuse_expansion,
    relaid_op,
    reshape,
    reshape_op,
    roll_op,
    squeeze_op,
    t_op,
    transpose_op,
    unsqueeze_op,
)


# ------------------------------------------------------------------ shapes
@public("reshape")
@planned
def reshape_(input: Any, *args: Any, shape: Any = None) -> Any:
    """The same elements in another shape; one size may be -1. A view where strides allow it.

    >>> import adjoint as ad
    >>> ad.arange(6).reshape(2, -1).shape
    adjoint.Size([2, 3])
    """
    need("reshape", input)
    return reshape(input, sizes(given(args, shape), "reshape(): argument 'shape'"))


def viewable(array: Any, shape: Sequence[int]) -> bool:
    if not isinstance(array, np.ndarray) or array.flags.c_contiguous:
        return True
    return bool(np.shares_memory(array, array.reshape(shape))) if array.size else True


@public("view", function=False)
@planned
def view(input: Any, *args: Any, shape: Any = None, size: Any = None, dtype: Any = None) -> Any:
    """The same memory in another shape, or its bytes as another dtype.

    Raises ShapeError where the strides do not allow a view; `reshape` copies there.

    >>> import adjoint as ad
    >>> ad.zeros(4, 2).view(8).shape
    adjoint.Size([8])
    """
    if len(args) == 1 and not isinstance(args[0], (int, tuple, list, np.integer)):
        return _view_dtype(input, args[0])
    if dtype is not None and not args:
        return _view_dtype(input, dtype)
    shape = shape if size is None else size
    new = infer_size(sizes(given(args, shape), "view(): argument 'size'"), numel(input),
                     tuple(input.shape))
    if type(input) is Tensor and not viewable(input.array, new):
        raise ShapeError("view size is not compatible with input tensor's size and stride (at "
                         "least one dimension spans across two contiguous subspaces). Use "
                         f".reshape(...) instead. ({list(input.shape)} -> {list(new)})")
    return reshape_op(input, shape=new)


def _reinterpreted(array: Any, wanted: np.dtype[Any]) -> Any:
    """The same bytes as another dtype; the last axis grows or shrinks with the element."""
    if wanted.itemsize == array.dtype.itemsize:
        return array.view(wanted)
    what = f"to view {scalar_type(array.dtype)} as {scalar_type(wanted)} (different element sizes)"
    if not array.ndim:
        raise ShapeError(f"self.dim() cannot be 0 {what}")
    ratio, rest = divmod(wanted.itemsize, array.itemsize)
    if ratio and (rest or array.shape[-1] % ratio):
        raise ShapeError(f"self.size(-1) must be divisible by {ratio} {what}, but got "
                         f"{array.shape[-1]}")
    if array.strides[-1] != array.itemsize and not array.flags.c_contiguous:
        raise ShapeError(f"self.stride(-1) must be 1 {what}, but got "
                         f"{array.strides[-1] // array.itemsize}")
    last = array.shape[-1] * array.itemsize // wanted.itemsize
    if not array.size:
        return np.empty((*array.shape[:-1], last), wanted)
    if array.strides[-1] != array.itemsize:  # one element on that axis, NumPy's stride says nothing
        array = np.lib.stride_tricks.as_strided(
            array, strides=(*array.strides[:-1], array.itemsize))
    return array.view(wanted)


def _view_dtype(input: Any, dtype: Any) -> Any:
    wanted = to_numpy(dtype)
    if getattr(input, "turn", ""):
        raise AutogradError("torch.Tensor.view is not supported for conjugate view tensors when "
                            "converting to a different dtype.")
    shown = _reinterpreted(raw(input), wanted)
    out = alias(input)
    out.array = shown
    return out


@public("view_as", function=False)
def view_as(input: Any, other: Any) -> Any:
    """`input.view(other.shape)`."""
    return view(input, tuple(other.shape))


@public("as_subclass", function=False)
def as_subclass(input: Any, cls: Any) -> Any:
    """The same memory and history as an object of a subclass of Tensor; its constructor is not
    called. Raises ArgumentError for another class.

    >>> import adjoint as ad
    >>> class Named(ad.Tensor): pass
    >>> type(ad.ones(2).as_subclass(Named) * 2).__name__
    'Named'
    """
    need("as_subclass", input)
    return shown_as(identity_op(input), cls)


@public("reshape_as", function=False)
def reshape_as(input: Any, other: Any) -> Any:
    """`input.reshape(other.shape)`."""
    return reshape(input, tuple(other.shape))


@public()
@planned
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
@planned
def ravel(input: Any) -> Any:
    """All elements along one axis."""
    return contiguous(reshape(input, (numel(input),)))


@public()
@planned
def unflatten(input: Any, dim: int, sizes: Any) -> Any:
    """One axis as several (one may be -1).

    >>> import adjoint as ad
    >>> ad.zeros(3, 8).unflatten(1, (2, -1)).shape
    adjoint.Size([3, 2, 4])
    """
    d, sizes = one_dim(input, dim), tuple(sizes)
    shape = tuple(input.shape)
    if not sizes:
        raise ShapeError("unflatten: sizes must be non-empty")
    if sizes.count(-1) > 1:
        raise ShapeError("unflatten got an unexpected error: only one dimension can be inferred, "
                         f"got sizes {list(sizes)}")
    try:
        new = infer_size(sizes, shape[d], shape[d:d + 1])
    except ShapeError:
        raise ShapeError(f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of"
                         f" dim {dim} ({shape[d]}) in the input tensor") from None
    return reshape(input, (*shape[:d], *new, *shape[d + 1:]))


@public()
@planned
def unsqueeze(input: Any, dim: int) -> Any:
    """A new axis of size 1 before axis `dim`.

    >>> import adjoint as ad
    >>> ad.unsqueeze(ad.zeros(4), -1).shape
    adjoint.Size([4, 1])
    """
    need("unsqueeze", input)
    return unsqueeze_op(input, dim=normalize_dim(dim, len(input.shape) + 1))


@public()
@planned
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
@planned
def expand(input: Any, *args: Any, size: Any = None, implicit: bool = False) -> Any:
    """Axes of size 1 repeated without memory; -1 keeps a size, new axes go in front.

    >>> import adjoint as ad
    >>> ad.zeros(3, 1).expand(-1, 4).shape
    adjoint.Size([3, 4])
    """
    wanted = sizes(given(args, size), "expand(): argument 'size'")
    have = tuple(input.shape)
    lead = len(wanted) - len(have)
    full = wanted
    if lead >= 0:
        full = tuple(have[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(wanted))
    refuse_expansion(have, full, input)
    new = []
    for i, n in enumerate(wanted):
        old = have[i - lead] if i >= lead else None
        if n == -1 and old is None:
            raise ShapeError(f"The expanded size of the tensor (-1) isn't allowed in a leading, "
                             f"non-existing dimension {i}")
        n = old if n == -1 and old is not None else n
        new.append(n)
    return expand_op(input, shape=tuple(new))


@public("expand_as", function=False)
def expand_as(input: Any, other: Any) -> Any:
    """`input.expand(other.shape)`."""
    return expand(input, tuple(other.shape))


@public()
@planned
def broadcast_to(input: Any, *args: Any, size: Any = None) -> Any:
    """`input.expand(size)`."""
    return expand(input, tuple(sizes(given(args, size), "broadcast_to(): argument 'size'")))


@public(method=False)
@planned
def broadcast_tensors(*tensors: Any) -> Any:
    """All operands expanded to their common shape.

    >>> import adjoint as ad
    >>> [t.shape for t in ad.broadcast_tensors(ad.zeros(2, 1), ad.zeros(3))]
    [adjoint.Size([2, 3]), adjoint.Size([2, 3])]
    """
    ts = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) \
        else list(tensors)
    shape = operands_shape("broadcast_tensors", *(Aval(tuple(t.shape), t.dtype) for t in ts))
    return tuple(t if tuple(t.shape) == tuple(shape) else expand(t, tuple(shape)) for t in ts)


@public(method=False)
def broadcast_shapes(*shapes: Any) -> Any:
    """The common shape of several shapes."""
    try:
        return Size(np.broadcast_shapes(*(s if isinstance(s, int) else tuple(s) for s in shapes)))
    except ValueError:
        raise _misfit([(s,) if isinstance(s, int) else tuple(s) for s in shapes]) from None


def _misfit(shapes: list[tuple[int, ...]]) -> ShapeError:
    """The first shape that does not fit those before it, and where; or one with a negative size."""
    found: tuple[int, ...] = ()
    for i, shape in enumerate(shapes):
        for axis in range(-1, -min(len(shape), len(found)) - 1, -1):
            if shape[axis] != found[axis] and 1 not in (shape[axis], found[axis]):
                return ShapeError(
                    f"Attempting to broadcast a dimension of length {shape[axis]} at {axis}! "
                    f"Mismatching argument at index {i} had {shape}; but expected shape should be "
                    f"broadcastable to {list(found)}")
        try:
            found = np.broadcast_shapes(found, shape)
        except ValueError:
            break
    return ShapeError(f"Attempting to broadcast a dimension with negative length! {shapes}")


# ------------------------------------------------------------------ permutations
@public(aliases=("swapaxes", "swapdims"))
@planned
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
@planned
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
@planned
def permute(input: Any, *args: Any, dims: Any = None) -> Any:
    """The axes in another order.

    >>> import adjoint as ad
    >>> ad.zeros(2, 3, 5).permute(2, 0, 1).shape
    adjoint.Size([5, 2, 3])
    """
    wanted, rank = sizes(given(args, dims), "permute(): argument 'dims'"), len(input.shape)
    if len(wanted) != rank:
        raise ShapeError(f"permute(sparse_coo): number of dimensions in the tensor input does not "
                         f"match the length of the desired ordering of dimensions i.e. input.dim() "
                         f"= {rank} is not equal to len(dims) = {len(wanted)}")
    order = tuple(normalize_dim(d, rank) for d in wanted)
    if len(set(order)) != len(order):
        raise ArgumentError(f"permute(): duplicate dims are not allowed. Got {tuple(wanted)} for "
                            f"{rank} dimensions")
    return permute_op(input, dims=order)


@public(aliases=("moveaxis",))
@planned
def movedim(input: Any, source: Any, destination: Any) -> Any:
    """Axes `source` at the places `destination`, the others in their order.

    >>> import adjoint as ad
    >>> ad.movedim(ad.zeros(2, 3, 5), 0, -1).shape
    adjoint.Size([3, 5, 2])
    """
    n = len(input.shape)
    given = [[x] if isinstance(x, int) else list(x) for x in (source, destination)]
    for what, dims in zip(("source", "destination"), given, strict=True):
        if len({d % n for d in dims if n and -n <= d < n}) < len(dims) == len(
                [d for d in dims if -n <= d < n]):
            raise ArgumentError(f"movedim: repeated dim in `{what}` ({dims})")
    src, dst = normalize_dims(source, n), normalize_dims(destination, n)
    if len(src) != len(dst):
        raise ArgumentError(f"movedim: Invalid source or destination dims: source ({given[0]} dims)"
                            f" should contain the same number of dims as destination ({given[1]} "
                            "dims)")
    rest = iter(d for d in range(n) if d not in src)
    order = [src[dst.index(i)] if i in dst else next(rest) for i in range(n)]
    return permute_op(input, dims=tuple(order))


@public()
@planned
def contiguous(input: Any, memory_format: Any = None) -> Any:
    """`input` itself if its elements lie in C order (or in that of `memory_format`), else a copy
    that does. Raises ShapeError where the format is one for another number of axes.

    >>> import adjoint as ad
    >>> x = ad.zeros(1, 3, 2, 2).contiguous(memory_format=ad.channels_last)
    >>> x.stride(), x.contiguous().stride()
    ((12, 1, 6, 3), (12, 4, 2, 1))
    """
    if memory_format is None or memory_format is contiguous_format:
        return input if in_order(raw(input)) else contiguous_copy(input)
    if memory_format is preserve_format and not in_order(raw(input)):
        raise ArgumentError("preserve memory format is unsupported by the contiguous operator")
    return in_format(input, memory_format)


def in_format(input: Any, form: Any, copy: bool = False) -> Any:
    """`input` itself where it lies in the format `form`, else (or to `copy`) a copy that does."""
    array = raw(input)
    if not hasattr(form, "fits"):
        raise DTypeError("argument 'memory_format' must be torch.memory_format, not "
                         f"{type(form).__name__}")
    form.fits(array)
    if not copy and form.holds(array):
        return input
    return contiguous_copy(input) if form.axes is None else relaid_op(input, axes=form.axes)


def in_format_of(out: Any, x: Any) -> Any:
    """`out` in the channels-last format of `x`, where `x` has one, and `out` as many axes."""
    array = raw(x)
    if in_order(array) or getattr(x, "level", False) or len(out.shape) != array.ndim:
        return out
    form = channels_last_of(array)
    return out if form is None else in_format(out, form)


@public("is_contiguous", function=False, quick=True)
def is_contiguous(self: Any, memory_format: Any = None) -> bool:
    """True if the elements lie in memory in C order, or as `memory_format` says."""
    if memory_format is None:
        return in_order(self.array)
    if not hasattr(memory_format, "holds"):
        raise DTypeError("is_contiguous(): argument 'memory_format' must be torch.memory_format, "
                         f"not {type(memory_format).__name__}")
    return bool(memory_format.holds(self.array))


def contiguous_copy(input: Any) -> Any:
    """A copy in C order."""
    return c_clone(input)


@public("adjoint")
def adjoint_of(input: Any) -> Any:
    """The conjugate transpose of the last two axes."""
    return FUNCTIONS["conj"](FUNCTIONS["transpose"](input, -2, -1))


@public()
@planned
def flip(input: Any, *args: Any, dims: Any = None) -> Any:
    """Reversed along axes (a copy).

    >>> import adjoint as ad
    >>> ad.flip(ad.arange(3), 0)
    tensor([2, 1, 0])
    """
    flipped = sizes(given(args, dims), "flip(): argument 'dims'")
    return flip_op(input, dims=normalize_dims(flipped, len(input.shape)))


@public()
@planned
@typed
def fliplr(input: Any) -> Any:
    """Reversed along axis 1."""
    if len(input.shape) < 2:
        raise ShapeError("Input must be >= 2-d.")
    return flip_op(input, dims=(1,))


@public()
@planned
@typed
def flipud(input: Any) -> Any:
    """Reversed along axis 0."""
    if len(input.shape) < 1:
        raise ShapeError("Input must be >= 1-d.")
    return flip_op(input, dims=(0,))


@public()
@known_as("RollBackward0")
@planned
def roll(input: Any, shifts: Any, dims: Any = None) -> Any:
    """Elements moved along axes, those that fall off come back at the start.

    >>> import adjoint as ad
    >>> ad.roll(ad.arange(4), 1)
    tensor([3, 0, 1, 2])
    """
    shift = integers(shifts)
    if not shift:
        raise ArgumentError("roll(): `shifts` required, got none")
    if dims is None or (isinstance(dims, (tuple, list)) and not dims):
        if len(shift) != 1:
            raise ArgumentError(f"shifts and dimensions must align. shifts: {len(shift)}, dims:0")
        flat = roll_op(reshape(input, (numel(input),)), shifts=shift, dims=(0,))
        return reshape(flat, tuple(input.shape))
    axes = integers(dims)
    if not len(input.shape):
        raise IndexOutOfRange(f"Dimension specified as {axes[0]} but tensor has no dimensions")
    if len(axes) != len(shift):
        raise ArgumentError(f"shifts and dimensions must align. shifts: {len(shift)}, dims:"
                            f"{len(axes)}")
    return roll_op(input, shifts=shift, dims=tuple(one_dim(input, d) for d in axes))


@public()
@known_as("Rot90Backward0")
@planned
@typed
def rot90(input: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
    """Turned by k·90 degrees in the plane of two axes.

    >>> import adjoint as ad
    >>> ad.rot90(ad.tensor([[0, 1], [2, 3]]))
    tensor([[1, 3],
            [0, 2]])
    """
    if len(dims) != 2:
        raise ArgumentError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if len(input.shape) < 2:
        raise ShapeError(f"expected total dims >= 2, but got total dims = {len(input.shape)}")
    a, b = (one_dim(input, d) for d in dims)
    if a == b:
        raise ArgumentError("expected rotation dims to be different, but got dim0 = "
                            f"{dims[0]} and dim1 = {dims[1]}")
    k %= 4
    if k == 0:
        return c_clone(input)
    if k == 2:
        return flip_op(input, dims=(a, b))
    if k == 1:
        return transpose_op(flip_op(input, dims=(b,)), dim0=a, dim1=b)
    return transpose_op(flip_op(input, dims=(a,)), dim0=a, dim1=b)


def _clone_rules() -> Any:
    from adjoint.core.op import op
    return op("contiguous", show="{x}", impl=lambda x, /: np.array(x, order="C"), infer=lambda x: x,
              vjp={"x": lambda ct: ct}, jvp={"x": None}, node="CloneBackward0",
              batch=lambda op_, args, b, attrs: op_.call(args[0]))


c_clone = _clone_rules()
_narrow_out = exactly("Expected self.dtype() == output.dtype() to be true, but got false: "
                      "{want} and {have}")


@public()
def narrow_copy(self: Any, dim: int, start: int, length: int, *, out: Any = None) -> Any:
    """`narrow`, copied."""
    if type(self) in SPARSE:
        return self.narrow(dim, start, length)
    return _narrow_out(out, c_clone(self.narrow(dim, start, length)))


__all__ = ["c_clone", "contiguous_copy", "expand", "movedim", "permute", "reshape_", "view"]
