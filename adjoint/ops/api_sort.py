"""Public functions that order, search and count; and the cumulative ones."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import I64, is_inexact, lacking, scalar_type
from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from adjoint.core.inplace import inplace
from adjoint.core.modes import as_pytorch, warn_as_pytorch
from adjoint.core.op import op
from adjoint.core.tensor import Tensor
from adjoint.ops.api_common import (
    apart,
    box,
    cast_to,
    dtype_of,
    exactly,
    finish,
    finish_kind,
    finish_same,
    floating,
    need,
    need_kernel,
    numel,
    one_dim,
    raw,
    result,
    summed,
    undifferentiated,
    value,
)
from adjoint.ops.cumulative import cummax_op, cummin_op, cumprod_op, cumsum_op, logcumsumexp_op
from adjoint.ops.gather import gather_op
from adjoint.ops.pointwise import logical_xor, sub
from adjoint.ops.public import planned, public, typed
from adjoint.ops.shape import batch_loop, clone_op, narrow_op, reshape
from adjoint.ops.sort import (
    distinct,
    kthvalue_op,
    median_op,
    mode_op,
    nanmedian_op,
    ranked,
    sort_op,
    topk_op,
)

SortResult = result("sort", "values indices")
TopkResult = result("topk", "values indices")
KthResult = result("kthvalue", "values indices")
MedianResult = result("median", "values indices")
NanmedianResult = result("nanmedian", "values indices")
ModeResult = result("mode", "values indices")
CummaxResult = result("cummax", "values indices")
CumminResult = result("cummin", "values indices")


@public()
def sort(input: Any, dim: int = -1, descending: bool = False, *, stable: bool = False,
         out: Any = None) -> Any:
    """(values, indices) in order along an axis; always stable; nan counts as largest.

    >>> import adjoint as ad
    >>> ad.sort(ad.tensor([3.0, 1.0, 2.0])).values
    tensor([1., 2., 3.])
    """
    need("sort", input)
    need_kernel(" Sort does not support complex dtypes on CPU", "c", input)
    d = one_dim(input, dim)
    return finish_same(out, SortResult(*sort_op(input, dim=d, descending=bool(descending))))


@public()
def argsort(input: Any, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Any:
    """The indices of `sort`."""
    return sort(input, dim, descending)[1]


@public()
def msort(input: Any, *, out: Any = None) -> Any:
    """Sorted along the first axis."""
    return finish_same(out, sort(input, 0)[0])


@public()
@planned
def topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *,
         out: Any = None) -> Any:
    """(values, indices) of the k largest (or smallest) along an axis, in order.

    >>> import adjoint as ad
    >>> ad.topk(ad.tensor([1.0, 4.0, 3.0]), 2).indices
    tensor([1, 2])
    """
    need("topk", input)
    need_kernel(" topk does not support complex dtypes on CPU", "c", input)
    need_kernel("topk does not support bool dtypes on CPU", "b", input)
    d = one_dim(input, dim)
    n = input.shape[d] if len(input.shape) else 1
    if not 0 <= k <= n:
        raise ArgumentError(f"selected index k out of range: k = {k} for {n} elements along "
                            f"dimension {d}")
    return finish_same(out, TopkResult(*topk_op(input, k=int(k), dim=d, largest=bool(largest))))


def _one(kind: Any, op_: Any, input: Any, dim: int, keepdim: bool, out: Any, k: int = 1) -> Any:
    need(kind.__name__, input)
    d = one_dim(input, dim)
    if 0 in input.shape[d:d + 1]:
        raise IndexOutOfRange(f"{kind.__name__}(): Expected reduction dim {d} to have non-zero "
                              f"size. The operand has {list(input.shape)}")
    return finish_kind(out, kind(*op_(input, dim=d, keepdim=keepdim, k=k)))


@public()
@planned
@typed
def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False, *, out: Any = None) -> Any:
    """(value, index) of the k-th smallest element along an axis, k from 1.

    >>> import adjoint as ad
    >>> ad.kthvalue(ad.tensor([3.0, 1.0, 2.0]), 2).values
    tensor(2.)
    """
    if len(input.shape):
        need_kernel("kthvalue_cpu", "bc", input)
    if out is not None:
        apart(out, input)
    n = input.shape[one_dim(input, dim)] if len(input.shape) else 1
    if n and not 1 <= k <= n:
        raise ArgumentError(f"kthvalue(): selected number k out of range for dimension {dim}: k = "
                            f"{k}, size {n}")
    return _one(KthResult, kthvalue_op, input, dim, keepdim, out, k)


def _middle(kind: Any, op_: Any, input: Any, dim: Any, keepdim: bool, out: Any) -> Any:
    if dim is None:
        flat = reshape(input, (numel(input),))
        if not numel(input):               # what a median of nothing is: nan, or the least integer
            dtype = dtype_of(input)
            none = np.nan if is_inexact(dtype) else np.iinfo(dtype).min
            return finish(out, box(input, np.full((), none, dtype)))
        return finish(out, op_(flat, dim=0, keepdim=False, k=1)[0])
    return _one(kind, op_, input, dim, keepdim, out)


@public()
@planned
def median(input: Any, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The lower median: of all elements, or (values, indices) along an axis; nan if any is nan.

    >>> import adjoint as ad
    >>> ad.median(ad.tensor([3.0, 1.0, 2.0, 4.0]))
    tensor(2.)
    """
    need_kernel("median_cpu", "bc", input)
    return _middle(MedianResult, median_op, input, dim, keepdim, out)


@public()
@planned
def nanmedian(input: Any, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """`median` of what is not nan."""
    need_kernel("median_cpu", "bc", input)
    return _middle(NanmedianResult, nanmedian_op, input, dim, keepdim, out)


@public()
@planned
@typed
def mode(input: Any, dim: int = -1, keepdim: bool = False, *, out: Any = None) -> Any:
    """(value, index) of the most frequent element along an axis; the smallest of several."""
    need_kernel("mode_cpu", "c", input)
    return _one(ModeResult, mode_op, input, dim, keepdim, out)


# ------------------------------------------------------------------ distinct values
def _inverse_counts(found: Any, input: Any, inverse: bool, counts: bool, name: str) -> Any:
    values, back, many = found
    out = [undifferentiated(f"the derivative for '{name}' is not implemented.",
                            box(input, values), input)]
    if inverse:
        out.append(box(input, back.astype(np.int64, copy=False)))
    if counts:
        out.append(box(input, many.astype(np.int64, copy=False)))
    return out[0] if len(out) == 1 else tuple(out)


@public()
@typed
def unique(input: Any, sorted: bool = True, return_inverse: bool = False,
           return_counts: bool = False, dim: Any = None) -> Any:
    """The distinct elements (or slices along dim), with inverse indices and counts if asked.

    >>> import adjoint as ad
    >>> ad.unique(ad.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    need("unique", input)
    need_kernel("unique", "c", input)
    x = value(input, "unique")
    if dim is None:
        values, back, many = distinct(x, return_inverse, return_counts)
        back = None if back is None else back.reshape(x.shape)
    else:
        axis = one_dim(input, dim)
        if not x.size and x.ndim and x.shape[axis]:
            raise ShapeError("There are 0 sized dimensions, and they aren't selected, so unique "
                             f"cannot be applied: dim {axis} of {list(x.shape)}")
        values, back, many = np.unique(
            ranked(x), return_inverse=True, return_counts=True, axis=axis)
        values = values.astype(x.dtype)
        back = back.reshape(x.shape[axis])
    return _inverse_counts((values, back, many), input, return_inverse, return_counts,
                           "_unique2" if dim is None else "unique_dim")


@public()
@typed
def unique_consecutive(input: Any, return_inverse: bool = False, return_counts: bool = False,
                       dim: Any = None) -> Any:
    """The elements (or slices along dim) that differ from the one before."""
    need_kernel("unique", "c", input)
    x = value(input, "unique_consecutive")
    d = None if dim is None else one_dim(input, dim)
    rows = x.reshape(-1, 1) if d is None else np.moveaxis(x, d, 0).reshape(
        x.shape[d], x.size // max(x.shape[d], 1))
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]).any(1)
    starts = np.flatnonzero(new)
    back = np.cumsum(new) - 1
    many = np.diff(np.append(starts, len(rows)))
    values = x.reshape(-1)[starts]
    if d is not None:                       # (PyTorch's lie slice after slice)
        values = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, d, 0)[starts]), 0, d)
    back = back.reshape(x.shape) if d is None else back
    return _inverse_counts((values, back, many), input, return_inverse, return_counts,
                           "unique_consecutive")


# ------------------------------------------------------------------ search and count
def _told_of_copy(values: Any, boundaries: Any, sorter: Any = None) -> None:
    """PyTorch's warnings of operands that are copied, each kind once."""
    for what, t in (("input value", values), ("boundary", boundaries), ("sorter", sorter)):
        if hasattr(t, "is_contiguous") and not t.is_contiguous():
            warn_as_pytorch(f"torch.searchsorted(): {what} tensor is non-contiguous, this will "
                            "lower the performance due to extra data copy when converting "
                            f"non-contiguous tensor to contiguous, please use contiguous {what} "
                            "tensor if possible. This message will only appear once per program.",
                            once=True)


_places_out = exactly("torch.searchsorted(): output tensor's dtype is wrong, it can only be "
                      "Int(int32) or Long(int64) depending on whether out_int32 flag is True, but "
                      "we got output tensor's dtype {have} and want {want}")


def _check_sorter(seq: Any, sorter: Any) -> None:
    if tuple(seq.shape) != tuple(sorter.shape):
        raise ShapeError("torch.searchsorted(): boundary and sorter must have the same size, but "
                         f"got boundary tensor {list(seq.shape)}and got sorter tensor "
                         f"{list(sorter.shape)}")
    if dtype_of(sorter) != I64:
        raise DTypeError("torch.searchsorted(): sorter must be a tensor of long dtype but got dtype"
                         f" {scalar_type(dtype_of(sorter))}")
    at = raw(sorter)
    if isinstance(at, np.ndarray) and at.size and not 0 <= at.min() <= at.max() < at.shape[-1]:
        raise IndexOutOfRange("torch.searchsorted(): sorter index out of range: "
                              f"{at.min()}..{at.max()} for {at.shape[-1]}")


@public(method=False)
@typed
def searchsorted(sorted_sequence: Any, input: Any, *, out_int32: bool = False, right: bool = False,
                 side: Any = None, sorter: Any = None, out: Any = None) -> Any:
    """Where elements would be inserted to keep rows sorted.

    >>> import adjoint as ad
    >>> ad.searchsorted(ad.tensor([1, 3, 5]), ad.tensor([3, 4]))
    tensor([1, 2])
    """
    need_kernel("searchsorted_out_cpu", "bc",
                *(x for x in (sorted_sequence, input) if hasattr(x, "shape")))
    if as_pytorch[0]:
        _told_of_copy(input, sorted_sequence, sorter)
    seq = sorted_sequence
    if side not in (None, "left", "right"):
        raise ArgumentError("torch.searchsorted(): side can only be 'left' or 'right' but got "
                            f"{side}")
    if sorter is not None:
        _check_sorter(seq, sorter)
        seq = gather_op(seq, sorter, dim=len(seq.shape) - 1)
    if len(seq.shape) != 1 and tuple(seq.shape[:-1]) != tuple(np.shape(raw(input))[:-1]):
        raise ShapeError("torch.searchsorted(): boundaries tensor should be 1 dimension or the "
                         "first N-1 dimensions of boundaries tensor and input value tensor must "
                         f"match, got {list(seq.shape)} and {list(np.shape(raw(input)))}")
    if right and side == "left":
        raise ArgumentError("torch.searchsorted(): side and right can't be set to opposites, got "
                            "side of left while right was True")
    how = side or ("right" if right else "left")
    return _places_out(out, place_op(seq, input, side=how, int32=bool(out_int32)))


def _placed_by_halves(seq: Any, x: Any, side: str) -> Any:
    """Places by halves and comparisons, none of which a nan fulfils: as PyTorch, whose order of nan
    beside numbers is not that of sorted ones."""
    low, high = np.zeros(x.shape, np.int64), np.full(x.shape, seq.shape[-1])
    rows = np.broadcast_to(seq, (*x.shape[:-1], seq.shape[-1])) if x.ndim else seq
    while (low < high).any():
        middle = low + (high - low) // 2
        at = np.minimum(middle, seq.shape[-1] - 1)
        here = np.take_along_axis(rows, at, -1) if x.ndim else rows[at]
        left = (here >= x if side == "left" else here > x) | (low >= high)
        low, high = np.where(left, low, middle + 1), np.where(left & (low < high), middle, high)
    return low


def _place(seq: Any, x: Any, /, *, side: Any, int32: bool) -> Any:
    seq, x = ranked(seq), ranked(np.asarray(x))
    if seq.dtype.kind == "f" and np.isnan(seq[..., -1:]).any():     # (sorted ones end in nan)
        found = _placed_by_halves(seq, x, side)
    elif seq.ndim == 1:
        found = np.searchsorted(seq, x, side)
    else:
        rows = [np.searchsorted(a, b, side) for a, b in zip(
            seq.reshape(math.prod(seq.shape[:-1]), seq.shape[-1]),
            x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), strict=True)]
        found = np.reshape(rows, x.shape)
    return np.asarray(found, np.int32 if int32 else np.int64)


def _place_batch(op_: Any, args: Any, batched: Any, attrs: Any) -> Any:
    """With one sequence for all examples they are further elements to place."""
    if not batched[0] and len(args[0].shape) == 1:
        return op_.call(*args, **attrs)
    return batch_loop(op_, args, batched, attrs)


place_op: Any = op(
    "searchsorted", impl=_place, batch=_place_batch,
    infer=lambda seq, x, *, side, int32: Aval(x.shape, np.dtype(np.int32 if int32 else np.int64)),
    cost=lambda seq, x, **_: x.size, domain=lambda: [
        ((np.array([1.0, 3.0, 5.0]), np.array([[0.0, 3.0], [4.0, 9.0]])),
         {"side": "left", "int32": False}),
        ((np.array([[1.0, 3.0], [2.0, 5.0]]), np.array([[0.0, 3.0], [4.0, 9.0]])),
         {"side": "right", "int32": True})])


@public(method=False)
@typed
def bucketize(input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False,
              out: Any = None) -> Any:
    """Which bucket each element falls into."""
    need_kernel("searchsorted_out_cpu", "bc",
                *(x for x in (boundaries, input) if hasattr(x, "shape")))
    if as_pytorch[0]:
        _told_of_copy(input, boundaries)
    if len(boundaries.shape) != 1:
        raise ShapeError("boundaries tensor must be 1 dimension, but got "
                         f"dim({len(boundaries.shape)})")
    return _places_out(out, place_op(boundaries, input, side="right" if right else "left",
                                     int32=bool(out_int32)))


@public()
@typed
def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each non-negative integer occurs in a vector (or the sum of its weights).

    >>> import adjoint as ad
    >>> ad.bincount(ad.tensor([0, 2, 2]))
    tensor([1, 0, 2])
    """
    x = value(input, "bincount")
    if x.dtype.kind not in "iub":
        raise lacking("bincount_cpu", x.dtype)
    if minlength < 0:
        raise ArgumentError(f"minlength should be >= 0, got {minlength}")
    if weights is not None and tuple(weights.shape) != tuple(x.shape):
        raise ShapeError("weights should be 1-d and have the same length as input, got "
                         f"{list(weights.shape)} for {list(x.shape)}")
    if x.ndim != 1 or x.dtype.kind not in "iu" or (x.size and x.min() < 0):
        raise ArgumentError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        return box(input, np.bincount(x, minlength=minlength).astype(np.int64))
    w = np.asarray(raw(weights))
    kind = w.dtype if w.dtype == np.float32 else np.dtype(np.float64)
    return undifferentiated("bincount", box(input, np.bincount(x, w, minlength).astype(kind)),
                            weights)


@public(method=False)
@planned
@typed
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False,
         invert: bool = False, out: Any = None) -> Any:
    """True where an element is one of `test_elements`."""
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise DTypeError("isin() received an invalid combination of arguments: one of elements and "
                         "test_elements has to be a tensor")
    for x in (elements, test_elements):
        need_kernel("Unsupported input type encountered for isin(): {}", "bc", x)
    return finish_same(out, isin_op(elements, test_elements, invert=bool(invert)))


def _isin(a: Any, b: Any, /, *, invert: bool) -> Any:
    if type(b) is not np.ndarray or type(a) is not np.ndarray or a.size * b.size > FEW_PAIRS:
        return np.asarray(np.isin(a, b, invert=invert))
    found = (a[..., None] == b.reshape(-1)).any(-1)          # NumPy's prepares more than this costs
    return np.asarray(~found if invert else found)


FEW_PAIRS = 4096
isin_op: Any = op(
    "isin", impl=_isin,
    infer=lambda a, b, *, invert: Aval(a.shape, np.dtype(np.bool_)), batch=batch_loop,
    by_value=True, cost=lambda a, b, **_: a.size + b.size, domain=lambda: [
        ((np.array([[1, 2], [3, 4]]), np.array([2, 3])), {"invert": False})])


# ------------------------------------------------------------------ cumulative
_scalar_type_out = exactly("expected scalar_type {want} but found {have}")


def _cumulative(op_: Any, input: Any, dim: Any, dtype: Any, out: Any) -> Any:
    need(op_.__name__, input)
    dtype, into = summed(dtype, out)
    x = cast_to(input, dtype)
    if dtype is not None:
        need_kernel(f"{op_.__name__}_out_cpu", "b", x)
    made = op_(x, dim=one_dim(x, dim))
    return into(out, made if dtype is None else cast_to(made, dtype), input)


@public()
@planned
def cumsum(input: Any, dim: int, *, dtype: Any = None, out: Any = None) -> Any:
    """Running sums along an axis.

    >>> import adjoint as ad
    >>> ad.cumsum(ad.tensor([1.0, 2.0, 3.0]), 0)
    tensor([1., 3., 6.])
    """
    return _cumulative(cumsum_op, input, dim, dtype, out)


@public()
@planned
def cumprod(input: Any, dim: int, *, dtype: Any = None, out: Any = None) -> Any:
    """Running products along an axis; the gradient is right where elements are 0."""
    return _cumulative(cumprod_op, input, dim, dtype, out)


@public("cumsum_", function=False)
def cumsum_(self: Any, dim: int, *, dtype: Any = None) -> Any:
    """In-place `cumsum`."""
    return inplace(cumsum_op.op, self, (), {"dim": one_dim(self, dim)}, name="cumsum_")


@public("cumprod_", function=False)
def cumprod_(self: Any, dim: int, *, dtype: Any = None) -> Any:
    """In-place `cumprod`."""
    return inplace(cumprod_op.op, self, (), {"dim": one_dim(self, dim)}, name="cumprod_")


@public()
def logcumsumexp(input: Any, dim: int, *, out: Any = None) -> Any:
    """Running log Σ exp along an axis."""
    need_kernel("logcumsumexp_out_cpu", "biu", input)
    made = _cumulative(logcumsumexp_op, floating(input), dim, None, None)
    return _scalar_type_out(out, made)


@public()
@planned
def cummax(input: Any, dim: int, *, out: Any = None) -> Any:
    """(running maximum, its index) along an axis."""
    need_kernel("cummax_cpu", "c", input)
    return finish_kind(out, CummaxResult(*cummax_op(input, dim=one_dim(input, dim))))


@public()
@planned
def cummin(input: Any, dim: int, *, out: Any = None) -> Any:
    """(running minimum, its index) along an axis."""
    need_kernel("cummin_cpu", "c", input)
    return finish_kind(out, CumminResult(*cummin_op(input, dim=one_dim(input, dim))))


_kept_out = exactly("expected scalar_type {want} but found {have}")


@public()
@typed
def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None, *,
         out: Any = None) -> Any:
    """n-th differences between neighbours along an axis.

    >>> import adjoint as ad
    >>> ad.diff(ad.tensor([1, 3, 6]))
    tensor([2, 3])
    """
    from adjoint.ops.api_join import cat
    if not len(input.shape):
        raise ShapeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise ArgumentError(f"order must be non-negative but got {n}")
    d = one_dim(input, dim)
    if n == 0:
        return _kept_out(out, clone_op(input))
    parts = [p for p in (prepend, input, append) if p is not None]
    x = cat(parts, d) if len(parts) > 1 else input
    for _ in range(min(n, x.shape[d])):         # then nothing is left
        k = max(x.shape[d] - 1, 0)
        later = narrow_op(x, dim=d, start=min(1, x.shape[d]), length=k)
        earlier = narrow_op(x, dim=d, start=0, length=k)
        x = logical_xor(later, earlier) if dtype_of(x).kind == "b" else sub(later, earlier)
    return finish(out, x)


def _places_of_strips(name: str, x: Any) -> None:
    """Refuse places that are truth values."""
    if x is not None:
        need_kernel(f"{name}: received a bool input for `x` or `y`, but bool is not supported", "b",
                    x)


def _strips(y: Any, x: Any, dx: float, d: int) -> Any:
    """The areas between neighbouring samples along axis d."""
    from adjoint.ops.pointwise import add, mul
    k = y.shape[d] - 1
    both = add(narrow_op(y, dim=d, start=0, length=k), narrow_op(y, dim=d, start=1, length=k))
    if x is None:
        return mul(mul(both, 0.5), dx)
    step = diff(x, dim=0 if len(x.shape) == 1 else d - len(y.shape) + len(x.shape))
    if len(x.shape) == 1:
        step = reshape(step, (k, *(1,) * (len(y.shape) - d - 1)))
    if dtype_of(both).kind in "iu":
        return mul(both, step)              # in the range of the places: halved once summed
    return mul(mul(both, 0.5), step)


def _halved(total: Any, y: Any, x: Any) -> Any:
    """What sums of `_strips` still lack: the half, where samples are integers at given places."""
    from adjoint.ops.pointwise import mul
    return mul(total, 0.5) if x is not None and dtype_of(y).kind in "iu" else total


def _whole_integral(y: Any, dx: float, d: int) -> Any:
    """The integral of integers: the sum is as wide as sums are, the two ends in their own range."""
    from adjoint.ops.api_reduce import sum_
    from adjoint.ops.pointwise import add, mul, sub
    ends = [y[(*(slice(None),) * d, i)] for i in (0, -1)] if y.shape[d] else [0, 0]
    return mul(sub(sum_(y, d), mul(add(*ends), 0.5)), dx)


@public(method=False)
@typed
def trapezoid(y: Any, x: Any = None, *, dx: float = 1.0, dim: int = -1) -> Any:
    """The integral of samples by the trapezoid rule."""
    need_kernel("trapezoid: received a bool input for `x` or `y`, but bool is not supported", "b",
                y)
    _places_of_strips("trapezoid", x)
    from adjoint.ops.reduce import sum_op
    d = one_dim(y, dim)
    if x is None and dtype_of(y).kind in "iu":
        return _whole_integral(y, dx, d)
    return _halved(sum_op(_strips(y, x, dx, d), dim=(d,), keepdim=False), y, x)


@public(method=False)
@typed
def trapz(y: Any, x: Any = None, *, dx: float = 1.0, dim: int = -1) -> Any:
    """`trapezoid` under its older name."""
    return trapezoid(y, x, dx=dx, dim=dim)


@public(method=False)
@typed
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: float = 1.0, dim: int = -1) -> Any:
    """Running integrals of samples by the trapezoid rule."""
    need_kernel("cumulative_trapezoid: received a bool input for `x` or `y`, but bool is not "
                "supported", "b", y)
    _places_of_strips("cumulative_trapezoid", x)
    d = one_dim(y, dim)
    return _halved(cumsum_op(_strips(y, x, dx, d), dim=d), y, x)


__all__ = ["cumsum", "diff", "median", "sort", "topk", "unique"]
