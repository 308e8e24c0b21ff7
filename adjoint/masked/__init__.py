"""Reductions over the elements where a mask is True, and tensors that have a mask: `torch.masked`.

An element under a False takes no part. Where a whole slice is masked out, the result is that of no
elements: 0 for a sum, 1 for a product, nan for a mean, the extreme of the dtype for amax and amin.
"""
from __future__ import annotations

import importlib
import math
import sys
from typing import Any

import numpy as np

from adjoint.base.dtypes import float64, is_inexact
from adjoint.base.errors import ArgumentError, AssertedError, NotSupported
from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import Tensor
from adjoint.ops.api_decompose import vector_norm as _vector_norm
from adjoint.ops.public import FUNCTIONS as _F

__all__ = ["MaskedTensor", "amax", "amin", "argmax", "argmin", "as_masked_tensor", "cumprod",
           "cumsum", "is_masked_tensor", "log_softmax", "logaddexp", "logsumexp", "masked_tensor",
           "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var"]

def _lowest(x: Tensor) -> Any:
    kind = x.dtype.dtype
    return -math.inf if is_inexact(kind) else False if kind.kind == "b" else int(np.iinfo(kind).min)


def _highest(x: Tensor) -> Any:
    kind = x.dtype.dtype
    return math.inf if is_inexact(kind) else True if kind.kind == "b" else int(np.iinfo(kind).max)


def _filled(x: Any, mask: Any, value: Any, dtype: Any = None) -> Any:
    """`x` (in `dtype`) with `value` where the mask is False."""
    x = x if dtype is None else x.to(dtype)
    if mask is None:
        return x
    if mask.dtype.dtype.kind != "b":
        raise ArgumentError(f"masked operations take a mask of bools, got {mask.dtype}")
    if x.dtype.dtype.kind in "iu" and math.isinf(value):       # (the least and the greatest number)
        info = np.iinfo(x.dtype.dtype)
        value = int(info.min if value < 0 else info.max)
    return _F["where"](mask, x, _F["full"]((), value, dtype=x.dtype))


def _dims(dim: Any) -> Any:
    return None if dim is None or dim == () else dim


def _counts(x: Any, mask: Any, dim: Any, keepdim: bool) -> Any:
    every = _F["ones_like"](x, dtype=np.dtype(np.int64))
    return sum(every, dim, keepdim=keepdim, mask=mask)


def _reduced(x: Any, name: str, dim: Any, keepdim: bool) -> Any:
    if not x.ndim and name not in ("sum",):
        return x.clone()
    dim = _dims(dim)
    every = tuple(range(x.ndim)) if dim is None else dim
    return _F[name](x, every, keepdim) if x.ndim else _F[name](x)


def sum(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
        mask: Any = None) -> Any:
    """Sums of what the mask keeps.

    >>> import adjoint as ad
    >>> sum(ad.tensor([1.0, 2.0, 3.0]), 0, mask=ad.tensor([True, False, True]))
    tensor(4.)
    """
    return _reduced(_filled(input, mask, 0, dtype), "sum", dim, keepdim)


def prod(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
         mask: Any = None) -> Any:
    """Products of what the mask keeps."""
    x = _filled(input, mask, 1, dtype)
    dim = _dims(dim)
    if not is_inexact(x.dtype.dtype) and dtype is None:
        x = x.long()
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    for d in sorted((d % max(x.ndim, 1) for d in dims), reverse=True):
        x = _F["prod"](x, d, keepdim)
    return x


def _no_truth(name: str, x: Any, mask: Any) -> None:
    if mask is not None and x.dtype.dtype.kind == "b":
        raise NotSupported(f"identity of {name} on {x.dtype} input: there is no truth value that "
                           "a mask could leave out; use any() or all()")


def amax(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
         mask: Any = None) -> Any:
    """Largest of what the mask keeps."""
    _no_truth("amax", input, mask)
    return _reduced(_filled(input, mask, _lowest(input), dtype), "amax", dim, keepdim)


def amin(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
         mask: Any = None) -> Any:
    """Smallest of what the mask keeps."""
    _no_truth("amin", input, mask)
    return _reduced(_filled(input, mask, _highest(input), dtype), "amin", dim, keepdim)


def _place(name: str, x: Any, dim: Any, keepdim: bool) -> Any:
    """An index, in the operand's dtype: PyTorch's answer."""
    return _F[name](x, dim, keepdim).to(x.dtype)


def argmax(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
           mask: Any = None) -> Any:
    """Where the largest of what the mask keeps is."""
    return _place("argmax", _filled(input, mask, _lowest(input), dtype), dim, keepdim)


def argmin(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
           mask: Any = None) -> Any:
    """Where the smallest of what the mask keeps is."""
    return _place("argmin", _filled(input, mask, _highest(input), dtype), dim, keepdim)


def mean(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
         mask: Any = None) -> Any:
    """Means of what the mask keeps; of integers only in a floating `dtype`."""
    if input.dtype.dtype.kind in "iub" and dtype is None:
        raise ArgumentError(f"masked mean() does not support input of dtype {input.dtype}: give a "
                            "floating dtype=")
    total = sum(input, dim, keepdim=keepdim, dtype=dtype, mask=mask)
    return total / _counts(input, mask, dim, keepdim)


def median(input: Any, dim: int = -1, *, keepdim: bool = False, dtype: Any = None,
           mask: Any = None) -> Any:
    """The lower median of what the mask keeps along one axis."""
    if mask is not None and not is_inexact(input.dtype.dtype) and dtype is None:
        if not _F["broadcast_to"](mask, input.shape).any(dim).all():
            raise ArgumentError("masked median expects no fully masked out rows if dtype is not "
                                "floating point")
        return median(input, dim, keepdim=keepdim, dtype=float64, mask=mask).to(input.dtype)
    x = _filled(input, mask, math.nan, dtype)
    return _F["nanmedian" if mask is not None else "median"](x, dim, keepdim).values if (
        x.ndim) else x.clone()


def norm(input: Any, ord: float | None = 2.0, dim: Any = None, *, keepdim: bool = False,
         dtype: Any = None, mask: Any = None) -> Any:
    """Vector norms of what the mask keeps."""
    power = 2.0 if ord is None else float(ord)
    rest = math.inf if power < 0 else 0
    if mask is not None and power == -math.inf and not is_inexact(input.dtype.dtype):
        raise AssertedError(f"input must be floating point, got {input.dtype}")
    return _vector_norm(_filled(input, mask, rest, dtype), power, _dims(dim), keepdim)


def var(input: Any, dim: Any = None, unbiased: bool | None = None, *, correction: int | None = None,
        keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Variances of what the mask keeps; `correction` (1) is taken off the counts."""
    off = correction if correction is not None else 1 if unbiased is None else int(unbiased)
    x = input if dtype is None else input.to(dtype)
    if x.dtype.dtype.kind == "b":
        x = x - x                           # (refused, in the words of a subtraction)
    x = x if is_inexact(x.dtype.dtype) else x.to(_F["empty"](0).dtype)
    gap = x - mean(x, dim, keepdim=True, mask=mask)
    square = _F["real"](gap * gap.conj()) if gap.dtype.is_complex else gap * gap
    count = _counts(x, mask, dim, keepdim)
    out = sum(square, dim, keepdim=keepdim, mask=mask) / _F["clamp"](count - off, min=0)
    return out.to(x.dtype)


def std(input: Any, dim: Any = None, unbiased: bool | None = None, *, correction: int | None = None,
        keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Standard deviations of what the mask keeps."""
    return _F["sqrt"](var(input, dim, unbiased, correction=correction, keepdim=keepdim,
                          dtype=dtype, mask=mask))


def softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """`softmax` of what the mask keeps; what it drops gets 0 (nan where all is dropped)."""
    _no_truth("amax", input, mask)
    return _F["softmax"](_filled(input, mask, -math.inf, dtype), dim)


def log_softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """`log_softmax` of what the mask keeps; what it drops gets -inf."""
    _no_truth("amax", input, mask)
    return _F["log_softmax"](_filled(input, mask, -math.inf, dtype), dim)


def softmin(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """`softmax` of the negated elements."""
    _no_truth("amin", input, mask)
    return softmax(-input, dim, dtype=dtype, mask=mask)


def logsumexp(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
              mask: Any = None) -> Any:
    """`logsumexp` of what the mask keeps."""
    x = input if dtype is None else input.to(dtype)
    if mask is not None and x.dtype.dtype.kind == "b":
        raise NotSupported(f"identity of logsumexp on {x.dtype} input: cast it, x.float()")
    x = _filled(x, mask, _lowest(x))
    dim = _dims(dim)
    out = _F["logsumexp"](x, tuple(range(x.ndim)) if dim is None else dim, keepdim)
    return out.to(x.dtype)


def logaddexp(input: Any, other: Any, *, dtype: Any = None, input_mask: Any = None,
              other_mask: Any = None) -> Any:
    """`logaddexp`, each operand under its own mask."""
    a, b = (x if dtype is None else x.to(dtype) for x in (input, other))
    return _F["logaddexp"](_filled(a, input_mask, _lowest(a)), _filled(b, other_mask, _lowest(b)))


def normalize(input: Any, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None,
              mask: Any = None) -> Any:
    """Each slice along `dim` divided by its norm; what the mask drops gets 0."""
    size = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled(input, mask, 0, dtype) / _F["clamp"](size, min=eps)


def cumsum(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Running sums of what the mask keeps."""
    x = _filled(input, mask, 0, dtype)
    return _F["cumsum"](x, dim, dtype=x.dtype)


def cumprod(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Running products of what the mask keeps."""
    x = _filled(input, mask, 1, dtype)
    return _F["cumprod"](x, dim, dtype=x.dtype)


_ops = sys.modules[__name__]        # PyTorch's own examples call the functions by this path
_LATE = ("MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor")


def __getattr__(name: str) -> Any:
    """The tensors with a mask load on first use."""
    if name in _LATE or name == "maskedtensor":
        found = importlib.import_module("adjoint.masked.maskedtensor")
        return found if name == "maskedtensor" else getattr(found, name)
    return _missing("adjoint.masked")(name)
