"""Public reductions."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact, scalar_type, to_numpy
from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange
from adjoint.core.autocast import in_float32
from adjoint.core.modes import warn
from adjoint.core.tensor import Tensor
from adjoint.ops.api_common import (
    cast_to,
    dtype_of,
    exactly,
    finish,
    finish_same,
    floating,
    many_dims,
    need,
    need_float,
    need_kernel,
    need_tensors,
    numel,
    one_dim,
    result,
    summed,
)
from adjoint.ops.moments import logsumexp_op, norm_op, prod_op, std_op, var_op
from adjoint.ops.pointwise import abs_op, cast, isnan, logical_not, maximum, minimum, where_op
from adjoint.ops.public import known_as, planned, public, typed
from adjoint.ops.reduce import (
    all_op,
    amax_op,
    amin_op,
    any_op,
    argmax_op,
    argmin_op,
    count_nonzero_op,
    max_all_op,
    max_dim_op,
    mean_all_op,
    mean_op,
    min_all_op,
    min_dim_op,
    sum_all_op,
    sum_op,
)
from adjoint.ops.shape import reshape

MaxResult = result("max", "values indices")
MinResult = result("min", "values indices")
AminmaxResult = result("aminmax", "min max")


@public("sum")
@planned
def sum_(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None,
         out: Any = None) -> Any:
    """Sum over all axes or those of `dim`; integers and truth values give int64.

    >>> import adjoint as ad
    >>> ad.sum(ad.ones(2, 3), 1)
    tensor([3., 3.])
    """
    need("sum", input)
    dtype, into = summed(dtype, out)
    x = cast_to(input, dtype)
    if dim is None and not keepdim:
        made = sum_all_op(x, dim=many_dims(x, None), keepdim=False)
    else:
        made = sum_op(x, dim=many_dims(x, dim), keepdim=keepdim)
    return into(out, made if dtype is None else cast_to(made, dtype))


@public()
@planned
def mean(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None,
         out: Any = None) -> Any:
    """Mean over all axes or those of `dim`; integers need `dtype=`.

    >>> import adjoint as ad
    >>> ad.mean(ad.tensor([1.0, 3.0]))
    tensor(2.)
    """
    need("mean", input)
    if dtype is not None and not is_inexact(to_numpy(dtype)):
        raise DTypeError("mean(): could not infer output dtype. Optional dtype must be either a "
                         f"floating point or complex dtype. Got: {scalar_type(to_numpy(dtype))}")
    into = finish if dtype is None else finish_same
    x = cast_to(input, dtype)
    if not is_inexact(dtype_of(x)):
        raise DTypeError("mean(): could not infer output dtype. Input dtype must be either a "
                         f"floating point or complex dtype. Got: {scalar_type(dtype_of(x))}")
    if dim is None and not keepdim:
        return into(out, mean_all_op(x, dim=many_dims(x, None), keepdim=False))
    return into(out, mean_op(x, dim=many_dims(x, dim), keepdim=keepdim))


@public()
@known_as("NansumBackward0")
@planned
def nansum(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None,
           out: Any = None) -> Any:
    """Sum with nan taken as 0."""
    need_kernel("nansum on CPU does not support complex inputs", "c", input)
    if out is not None:
        if dtype is None and is_inexact(dtype_of(input)):
            need_kernel("nansum_cpu", "biuc", out)
        if dtype is not None and out.dtype != dtype:
            raise DTypeError("nansum: provided dtype must match dtype of result. Got "
                             f"{scalar_type(out.dtype.dtype)} and {scalar_type(to_numpy(dtype))}.")
    x = cast_to(input, dtype)
    x = where_op(isnan(x), 0, x) if is_inexact(dtype_of(x)) else x
    return sum_(x, dim, keepdim, dtype=dtype, out=out)


@public()
@planned
def nanmean(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None,
            out: Any = None) -> Any:
    """Mean of what is not nan."""
    if not is_inexact(dtype_of(input)):
        raise DTypeError("nanmean(): expected input to have floating point or complex dtype but "
                         f"got {scalar_type(dtype_of(input))}")
    if out is not None:
        need_kernel("nansum_cpu", "c", out)
    x = cast_to(input, dtype)
    kept = cast(logical_not(isnan(x)), dtype=dtype_of(x))
    from adjoint.ops.pointwise import div
    return finish(out, div(nansum(x, dim, keepdim), sum_(kept, dim, keepdim)))


def _degrees(name: str, x: Any, dims: tuple[int, ...], correction: float) -> None:
    """Warn where the variance of that many values has no meaning."""
    rest = math.prod([n for d, n in enumerate(x.shape) if d not in dims])
    n = math.prod([x.shape[d] for d in dims]) if rest else 0
    if n - correction <= 0:
        warn(f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the "
             f"reduction factor (input numel divided by output numel): {n} values, correction "
             f"{correction}.")


def _correction(dim: Any, unbiased: Any, correction: Any) -> tuple[Any, float]:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    return dim, correction


def _spread(name: str, record: Any, input: Any, dim: Any, unbiased: Any, keepdim: bool,
            correction: Any) -> Any:
    need(name, input)
    said = "only support floating point and complex dtypes"
    need_float(name, input, f"{name if '_' in name else 'std and var'} {said}")
    dim, c = _correction(dim, unbiased, correction)
    dims = many_dims(input, dim)
    _degrees(name, input, dims, c)
    return record(input, dim=dims, correction=c, keepdim=keepdim)


def _real_out(input: Any, dim: Any, out: Any) -> None:
    if out is not None and dtype_of(input).kind != "c" and len(many_dims(input, dim)) < len(
            input.shape):            # (of everything PyTorch has a kernel of its own)
        need_kernel("std_cpu", "c", out)


@public()
@planned
def var(input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
        correction: Any = None, out: Any = None) -> Any:
    """Variance, divided by n - correction (1 by default: unbiased).

    >>> import adjoint as ad
    >>> ad.var(ad.tensor([1.0, 3.0]))
    tensor(2.)
    """
    _real_out(input, None if isinstance(dim, bool) else dim, out)
    return finish(out, _spread("var", var_op, input, dim, unbiased, keepdim, correction))


@public()
@planned
def std(input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
        correction: Any = None, out: Any = None) -> Any:
    """Standard deviation: the root of `var`; its gradient is 0 where it is 0.

    >>> import adjoint as ad
    >>> ad.std(ad.tensor([1.0, 1.0]))
    tensor(0.)
    """
    _real_out(input, None if isinstance(dim, bool) else dim, out)
    return finish(out, _spread("std", std_op, input, dim, unbiased, keepdim, correction))


@public(method=False)
@planned
@typed
def var_mean(input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
             correction: Any = None, out: Any = None) -> Any:
    """(variance, mean)."""
    where = None if isinstance(dim, bool) else dim
    return finish(out, (_spread("var_mean", var_op, input, dim, unbiased, keepdim, correction),
                        mean(input, where, keepdim)))


@public(method=False)
@planned
@typed
def std_mean(input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
             correction: Any = None, out: Any = None) -> Any:
    """(standard deviation, mean)."""
    where = None if isinstance(dim, bool) else dim
    return finish(out, (_spread("std_mean", std_op, input, dim, unbiased, keepdim, correction),
                        mean(input, where, keepdim)))


@public()
@planned
@in_float32
def prod(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None,
         out: Any = None) -> Any:
    """Product over all axes or one; its gradient is right where elements are 0.

    >>> import adjoint as ad
    >>> ad.prod(ad.tensor([2.0, 3.0]))
    tensor(6.)
    """
    need("prod", input)
    dtype, into = summed(dtype, out)
    x = cast_to(input, dtype)
    dims = many_dims(x, None) if dim is None else (one_dim(x, dim),)[:len(x.shape)]
    made = prod_op(x, dim=dims, keepdim=keepdim)
    return into(out, made if dtype is None else cast_to(made, dtype))


# ------------------------------------------------------------------ extreme values
def _extreme(name: str, input: Any, dim: Any, keepdim: bool, out: Any, ops: Any) -> Any:
    every, along, pair, kind = ops
    need(name, input)
    need_kernel(f"{name}_all" if dim is None else f"{name}imum not implemented for complex tensors."
                if isinstance(dim, Tensor) else f"{name}_cpu", "c", input)
    if dim is None:
        if not numel(input):
            raise IndexOutOfRange(f"{name}(): Expected reduction dim to be specified for "
                                  "input.numel() == 0. Specify the reduction dim with the 'dim' "
                                  "argument.")
        return finish(out, every(input, dim=many_dims(input, None), keepdim=False))
    if isinstance(dim, (Tensor, np.ndarray)):
        return finish(out, pair(input, dim))
    d = one_dim(input, dim)
    return finish_same(out, kind(*along(input, dim=d, keepdim=keepdim)))


@public("max")
@planned
def max_(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None,
         out: Any = None) -> Any:
    """The largest value; along `dim` with its index; or the larger of two tensors.

    Ties: without `dim` the gradient is shared evenly, along `dim` it goes to the index given.

    >>> import adjoint as ad
    >>> ad.max(ad.tensor([[1.0, 4.0], [3.0, 2.0]]), 1)
    adjoint.return_types.max(
    values=tensor([4., 3.]),
    indices=tensor([1, 0]))
    """
    return _extreme("max", input, dim if other is None else other, keepdim, out,
                    (max_all_op, max_dim_op, maximum, MaxResult))


@public("min")
@planned
def min_(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None,
         out: Any = None) -> Any:
    """The smallest value; along `dim` with its index; or the smaller of two tensors."""
    return _extreme("min", input, dim if other is None else other, keepdim, out,
                    (min_all_op, min_dim_op, minimum, MinResult))


_extreme_out = exactly("Expected the dtype for input and out to match, but got {want} for "
                       "input's dtype and {have} for out's dtype.")


@public()
@planned
def amax(input: Any, dim: Any = (), keepdim: bool = False, *, out: Any = None) -> Any:
    """The largest value over axes; ties share the gradient evenly."""
    need("amax", input)
    need_kernel("max_values_cpu", "c", input)
    return _extreme_out(out, amax_op(input, dim=many_dims(input, dim), keepdim=keepdim))


@public()
@planned
def amin(input: Any, dim: Any = (), keepdim: bool = False, *, out: Any = None) -> Any:
    """The smallest value over axes; ties share the gradient evenly."""
    need("amin", input)
    need_kernel("min_values_cpu", "c", input)
    return _extreme_out(out, amin_op(input, dim=many_dims(input, dim), keepdim=keepdim))


@public()
@planned
def aminmax(input: Any, *, dim: Any = None, keepdim: bool = False, out: Any = None) -> Any:
    """(smallest, largest) over all axes or one."""
    need("aminmax", input)
    need_kernel("aminmax_cpu", "c", input)
    if dim is not None:
        one_dim(input, dim)
    dims = many_dims(input, dim)
    return finish_same(out, AminmaxResult(amin_op(input, dim=dims, keepdim=keepdim),
                                          amax_op(input, dim=dims, keepdim=keepdim)))


@public()
@planned
def argmax(input: Any, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Index of the largest value, of the flattened tensor or along `dim`; nan counts as largest.

    >>> import adjoint as ad
    >>> ad.argmax(ad.tensor([1.0, 4.0, 3.0]))
    tensor(1)
    """
    need("argmax", input)
    need_kernel("argmax(): does not support complex input", "c", input)
    need_kernel("argmax(): does not support bool input", "b", input)
    if dim is None and not numel(input):
        raise IndexOutOfRange("argmax(): Expected reduction dim to be specified for input.numel() "
                              "== 0. Specify the reduction dim with the 'dim' argument.")
    return finish_same(out, argmax_op(input, dim=None if dim is None else one_dim(input, dim),
                                      keepdim=keepdim))


@public()
@planned
def argmin(input: Any, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Index of the smallest value, of the flattened tensor or along `dim`."""
    need("argmin", input)
    need_kernel("argmin(): does not support complex input", "c", input)
    need_kernel("argmin(): does not support bool input", "b", input)
    if dim is None and not numel(input):
        raise IndexOutOfRange("argmin(): Expected reduction dim to be specified for input.numel() "
                              "== 0. Specify the reduction dim with the 'dim' argument.")
    return finish_same(out, argmin_op(input, dim=None if dim is None else one_dim(input, dim),
                                      keepdim=keepdim))


# ------------------------------------------------------------------ truth and counts
def _truth_dims(x: Any, dim: Any) -> tuple[int, ...]:
    """`many_dims`, of an empty list none: the truth of each element."""
    return () if isinstance(dim, (tuple, list)) and not dim else many_dims(x, dim)


def _truth(name: str, out: Any, answer: Any) -> Any:
    """`finish` of a truth value, which may be written as a byte."""
    if isinstance(out, Tensor) and out.array.dtype not in (np.bool_, np.uint8):
        raise DTypeError(f"{name} only supports bool tensor for result, got: "
                         f"{scalar_type(out.array.dtype)}")
    return finish(out, answer)


@public("all")
@planned
def all_(input: Any, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """True where no element is zero."""
    need("all", input)
    return _truth("all", out, all_op(input, dim=_truth_dims(input, dim), keepdim=keepdim))


@public("any")
@planned
def any_(input: Any, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """True where some element is not zero."""
    need("any", input)
    return _truth("any", out, any_op(input, dim=_truth_dims(input, dim), keepdim=keepdim))


@public()
@planned
def count_nonzero(input: Any, dim: Any = None, *, keepdim: bool = False) -> Any:
    """How many elements are not zero."""
    need("count_nonzero", input)
    return count_nonzero_op(input, dim=many_dims(input, dim), keepdim=keepdim)


# ------------------------------------------------------------------ norms, log-sum-exp
@public()
@planned
def logsumexp(input: Any, dim: Any, keepdim: bool = False, *, out: Any = None) -> Any:
    """log Σ exp(x), without overflow; -inf rows give -inf and gradient 0.

    >>> import adjoint as ad
    >>> ad.logsumexp(ad.zeros(2), 0)
    tensor(0.6931)
    """
    need("logsumexp", input)
    x = floating(input)
    return finish(out, logsumexp_op(x, dim=many_dims(x, dim), keepdim=keepdim))


@public()
@planned
def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None,
         dtype: Any = None) -> Any:
    """The p-norm over axes; its gradient at 0 is 0.

    p: a number, inf, -inf, "fro" (the 2-norm of all elements) or "nuc" (sum of singular values).

    >>> import adjoint as ad
    >>> ad.norm(ad.tensor([3.0, 4.0]))
    tensor(5.)
    """
    need("norm", input)
    need_float("norm", input, "linalg.vector_norm: Expected a floating point or complex tensor as "
                              "input. Got {}")
    x = cast_to(input, dtype)
    if p is None or p == "fro":
        p = 2.0
    if p == "nuc":
        from adjoint.ops.api_decompose import matrix_norm
        dims = many_dims(x, dim)
        return matrix_norm(x, "nuc", dims, keepdim, out=out)
    if isinstance(p, str):
        raise ArgumentError(f"linalg.matrix_norm: Order {p} not supported. norm(): use a number, "
                            "'fro' or 'nuc'")
    need_identity(x, float(p), dim, many_dims(x, dim))
    return finish_same(out, norm_op(x, p=float(p), dim=many_dims(x, dim), keepdim=keepdim))


def need_identity(x: Any, p: float, dim: Any, dims: Any) -> None:
    """Refuse the norms of nothing that are no number: an extreme value, a negative power."""
    empty = [d for d in dims if not x.shape[d]]
    if (p < 0 or p == math.inf) and empty:
        where = "an empty tensor because" if dim is None else (
            f"the dimension {empty[0]} because this dimension is empty and")
        raise ArgumentError(f"linalg.vector_norm cannot compute the {p} norm on {where} the "
                            f"operation does not have an identity; the operand is {list(x.shape)}")


@public()
@known_as("DistBackward0")
def dist(input: Any, other: Any, p: float = 2) -> Any:
    """The p-norm of the difference."""
    need_tensors("dist", input, other)
    from adjoint.ops.pointwise import sub
    return norm(sub(input, other), p)


@public()
@known_as("RenormBackward0")
@typed
def renorm(input: Any, p: float, dim: int, maxnorm: float, *, out: Any = None) -> Any:
    """Slices along `dim`, scaled down to the p-norm `maxnorm` where theirs is larger."""
    need_kernel("linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}",
                "biu", input)
    from adjoint.ops.pointwise import div, gt, mul
    if len(input.shape) < 2:
        raise ArgumentError(f"renorm: input needs at least 2 dimensions, got {len(input.shape)} "
                            "dimensions")
    d = one_dim(input, dim)
    rest = tuple(i for i in range(len(input.shape)) if i != d)
    size = norm_op(input, p=float(p), dim=rest, keepdim=True)
    scale = where_op(gt(size, maxnorm), div(maxnorm, maximum(size, 1e-7)), 1.0)
    return finish_same(out, mul(input, cast_to(scale, dtype_of(input))))


__all__ = ["abs_op", "all_", "any_", "count_nonzero", "math", "max_", "mean", "min_", "norm",
           "reshape", "std", "sum_", "var"]
