"""Draws of categories and counts, whose probabilities and rates are tensors."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import I64, scalar_type
from adjoint.base.errors import ArgumentError, DTypeError, NotSupported
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Tensor, wrap
from adjoint.core.trace import mapping
from adjoint.kernels import samplers
from adjoint.kernels.stream import F32, F64, Stream
from adjoint.ops.api_common import exactly, need_kernel, resized, undifferentiated
from adjoint.ops.generator import again, source
from adjoint.ops.public import public, typed
from adjoint.ops.random import drawn

_multinomial_out = exactly("multinomial expects Long tensor out, got: {have}")


_FEWER = ("cannot sample n_sample > prob_dist.size(-1) samples without replacement: {} of {}")


@public()
@typed
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *,
                generator: Any = None, out: Any = None) -> Tensor:
    """Indices drawn with probability proportional to each row of `input` ((n,) or (m, n))."""
    need_kernel("multinomial only supports floating-point dtypes for input, got: {}", "biuc", input)
    if input.level or mapping.get() is not None:
        return _multinomial_levels(input, num_samples, replacement, generator)
    shape = tuple(input.array.shape)
    if len(shape) not in (1, 2):
        raise ArgumentError(f"prob_dist must be 1 or 2 dim, got shape {list(shape)}")
    if isinstance(out, Tensor) and out.array.dtype != I64:
        raise DTypeError("multinomial expects Long tensor out, got: "
                         f"{scalar_type(out.array.dtype)}")
    if num_samples <= 0:
        raise ArgumentError("cannot sample n_sample <= 0 samples")
    if shape[-1] > 2 ** 24:
        raise ArgumentError("number of categories cannot exceed 2^24, as many as float32 counts; "
                            f"got {shape[-1]}")
    if not replacement and num_samples > shape[-1]:
        raise ArgumentError(_FEWER.format(num_samples, shape[-1]))
    given = source(generator), input.array, num_samples, replacement
    if type(input.array) is MetaArray:
        made = wrap(call(_picked, *given, otherwise=lambda: MetaArray(
            (*shape[:-1], num_samples), I64)))
    else:
        made = wrap(_picked(*given))
    return _multinomial_out(resized(out, made), made)


def _picked(s: Stream, array: Any, num_samples: int, replacement: bool) -> Any:
    """`multinomial` of checked arguments but for the weights themselves."""
    weights = np.asarray(array, np.float64)
    rows = np.atleast_2d(weights)
    least = np.minimum.reduce(rows, None) if rows.size else 0.0
    if not least >= 0 or rows.size and np.maximum.reduce(rows, None) == np.inf:     # (nan: neither)
        raise ArgumentError(
            "probability tensor contains either `inf`, `nan` or element < 0"
            if num_samples == 1 or not replacement else "invalid multinomial distribution "
            f"(encountering probability entry {'= infinity or NaN' if least >= 0 else '< 0'})")
    if (rows.sum(1) <= 0).any():
        raise ArgumentError("invalid multinomial distribution (sum of probabilities <= 0)")
    own = rows.astype(array.dtype if array.dtype == F64 else F32)
    if replacement or num_samples == 1:
        picks = again(samplers.picks, s, own, num_samples)
    else:
        picks = again(lambda s: np.argsort(-samplers.race(s, own), 1, kind="stable"), s)[
            :, :num_samples]
    return picks.astype(I64).reshape(*weights.shape[:-1], num_samples)


def _multinomial_levels(input: Tensor, k: int, replacement: bool, generator: Any) -> Any:
    """`multinomial` inside of a transform: by ops, whose values are not looked at."""
    weights = input.detach().double()
    n = int(input.shape[-1])
    if replacement:
        edges = weights.cumsum(-1)
        u = drawn((*input.shape[:-1], k), lambda s, shape: s.uniform(shape, F64),
                  generator) * edges[..., -1:]
        return (edges[..., None, :] <= u[..., None]).sum(-1).clamp(0, n - 1)
    keys = drawn(tuple(input.shape), lambda s, shape: samplers.exponential(s, shape, 1.0),
                 generator)
    return (keys / weights).argsort(-1)[..., :k]


@public(method=False)
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Poisson counts with the rates in `input`, in its dtype."""
    if not input.level and type(input.array) is np.ndarray and (input.array < 0).any():
        raise ArgumentError("invalid Poisson rate, expected rate to be non-negative, got "
                            f"{input.array.min()}")
    if input.level:
        trace = input.trace
        if getattr(trace, "randomness", "different") != "different":
            raise NotSupported("poisson of mapped rates has one draw per example: use vmap("
                               "randomness='different')")
        source(generator)
        token = mapping.set(None)
        try:
            return trace.lift(poisson(input.value, generator)) if hasattr(
                trace, "randomness") else poisson(input.value, generator)
        finally:
            mapping.reset(token)
    if mapping.get() is not None:
        return drawn(tuple(input.shape), lambda s, shape: samplers.poisson(
            s, np.broadcast_to(input.array, shape)), generator).to(input.dtype)
    x = input.array
    if type(x) is MetaArray:
        return wrap(call(_counts, source(generator), x,
                         otherwise=lambda: MetaArray(x.shape, x.dtype)))
    return wrap(_counts(source(generator), x))


def _counts(s: Stream, rates: Any) -> Any:
    return again(samplers.poisson, s, rates).astype(rates.dtype)


@public(method=False)
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Successes among `count` trials of probability `prob`, in the dtype of `count`.

    >>> import adjoint as ad
    >>> ad.binomial(ad.tensor([5.0]), ad.tensor([1.0]))
    tensor([5.])
    """
    n, p = count.array, prob.array
    shape = np.broadcast_shapes(n.shape, p.shape)
    if type(n) is MetaArray or type(p) is MetaArray:
        return wrap(call(_successes, source(generator), n, p,
                         otherwise=lambda: MetaArray(shape, n.dtype)))
    found = wrap(_successes(source(generator), n, p))
    return undifferentiated("binomial", found, count, prob)


def _successes(s: Stream, n: Any, p: Any) -> Any:
    if (n < 0).any() or (p < 0).any() or (p > 1).any():
        raise ArgumentError("binomial: counts must be >= 0 and probabilities in [0, 1]")
    return again(samplers.binomial, s, n, p).astype(n.dtype)
