"""Draws of counts, whose rates and probabilities are tensors."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Tensor, wrap
from adjoint.core.trace import mapping
from adjoint.kernels import samplers
from adjoint.kernels.stream import Stream
from adjoint.ops.api_common import undifferentiated
from adjoint.ops.generator import again, source
from adjoint.ops.public import public
from adjoint.ops.random import drawn


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
