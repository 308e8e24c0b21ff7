"""Activations by name, with their backward, as generated pointwise kernels.

`kernel("gelu")` maps x to gelu(x); `kernel("gelu_backward")` maps (ct, x) to ct * gelu'(x) in one
pass, the slope being the symbolic derivative of the same expression. Attributes (alpha,
negative_slope, ...) are keyword arguments of both. Values at kinks are those of the expression:
the branch that `where` takes.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.kernels.expr import (
    Expr,
    diff,
    erf_,
    exp_,
    expm1_,
    log1p_,
    sigmoid_,
    tanh_,
    trace,
    var,
    variables,
    where_,
)
from adjoint.kernels.loops import Pointwise, pointwise

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
_GELU_C = math.sqrt(2 / math.pi)


def _softplus(x: Any, beta: Any, threshold: Any) -> Any:
    z = x * beta
    return where_(z > threshold, x, (log1p_(exp_(-abs_of(z))) + where_(z >= 0, z, 0.0)) / beta)


def abs_of(x: Any) -> Expr:
    """|x| with slope 1 at 0, so that softplus' is 1/2 there."""
    return where_(x >= 0, x, -x)


_TABLE: dict[str, Callable[..., Any]] = {
    "relu": lambda x: where_(x > 0, x, x * 0.0),
    "leaky_relu": lambda x, *, negative_slope: where_(x > 0, x, x * negative_slope),
    "elu": lambda x, *, alpha: where_(x > 0, x, alpha * expm1_(x)),
    "celu": lambda x, *, alpha: where_(x > 0, x, alpha * expm1_(x / alpha)),
    "selu": lambda x: _SELU_SCALE * where_(x > 0, x, _SELU_ALPHA * expm1_(x)),
    "gelu": lambda x: 0.5 * x * (1 + erf_(x * math.sqrt(0.5))),
    # 0.5 (1 + tanh u) = sigmoid(2 u), which keeps the left tail
    "gelu_tanh": lambda x: x * sigmoid_(2 * _GELU_C * (x + 0.044715 * (x * x * x))),
    "silu": lambda x: x * sigmoid_(x),
    "mish": lambda x: x * tanh_(_softplus(x, 1.0, 20.0)),
    "sigmoid": lambda x: sigmoid_(x),
    "tanh": lambda x: tanh_(x),
    "softplus": lambda x, *, beta, threshold: _softplus(x, beta, threshold),
    "hardsigmoid": lambda x: where_(x <= -3, x * 0.0, where_(x >= 3, 1.0, x / 6 + 0.5)),
    "hardswish": lambda x: where_(x <= -3, x * 0.0, where_(x >= 3, x, x * (x + 3) / 6)),
    "hardtanh": lambda x, *, min_val, max_val: where_(
        x <= min_val, min_val, where_(x >= max_val, max_val, x)),
}


def names() -> tuple[str, ...]:
    """Every name that `kernel` knows."""
    return tuple([*_TABLE, *(n + "_backward" for n in _TABLE)])


@functools.cache
def kernel(name: str) -> Pointwise | None:
    """The kernel of that name; None where the name is unknown or there is no generated code.

    >>> import numpy as np
    >>> f = kernel("relu")
    >>> f is None or f(np.array([-1.0, 2.0])).tolist() == [0.0, 2.0]
    True
    """
    plain = name.removesuffix("_backward")
    f = _TABLE.get(plain)
    if f is None:
        return None
    e = trace(f)
    params = ["x"]
    if plain != name:
        e = var("ct") * diff(e, "x")
        params = ["ct", "x"]
    keyword = [v for v in variables(trace(f)) if v != "x"]
    return pointwise(name, params, [e], keyword=keyword)


@functools.cache
def _gate(backward: bool) -> Pointwise | None:
    a, s, ct = var("a"), sigmoid_(var("b")), var("ct")
    exprs = [ct * s, ct * s * a * (1 - s)] if backward else [a * s]
    return pointwise("glu", ["ct", "a", "b"] if backward else ["a", "b"], exprs,
                     single=not backward)


def _halves(x: Any, dim: int) -> tuple[Any, Any]:
    n, before = x.shape[dim] // 2, (slice(None),) * dim
    return x[(*before, slice(n))], x[(*before, slice(n, None))]


def glu(x: Any, dim: int) -> Any:
    """a sigmoid(b) of the halves along an axis; NotImplemented where a pointwise kernel is."""
    kernel = _gate(False)
    return NotImplemented if kernel is None else kernel(*_halves(x, dim))


def glu_backward(ct: Any, x: Any, dim: int) -> Any:
    """The cotangent of x in `glu`, both halves in one pass."""
    kernel, out = _gate(True), np.empty(x.shape, x.dtype)
    made = NotImplemented if kernel is None else kernel(ct, *_halves(x, dim),
                                                        out=_halves(out, dim))
    return made if made is NotImplemented else out
