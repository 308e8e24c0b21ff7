"""Gamma and Dirichlet variates that are differentiable in their concentrations, and draws that
transforms see."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import finfo
from adjoint.core.bind import bind
from adjoint.core.op import Op, op
from adjoint.core.trace import mapping
from adjoint.kernels import samplers
from adjoint.kernels.expr import call, var
from adjoint.ops.api_pointwise import clamp
from adjoint.ops.api_reduce import sum_
from adjoint.ops.family import batch_broadcast, derived_op
from adjoint.ops.generator import source
from adjoint.ops.pointwise import exp, log, mul, sub
from adjoint.ops.public import public
from adjoint.ops.shape import reshape
from adjoint.ops.softmax import softmax

_slope: Any = derived_op("log_gamma_slope", ("a", "t"), (),
                         call("log_gamma_slope", var("a"), var("t")))
log_gamma_op: Any = op(
    "log_gamma_variate", impl=lambda a, draw, /: np.array(draw), infer=lambda a, draw: draw,
    vjp={"a": lambda ct, a, out: mul(ct, _slope(a, out))},
    jvp={"a": lambda t, a, out: mul(t, _slope(a, out))},
    batch=batch_broadcast, cost=lambda a, draw: 400 * a.size, node="StandardGammaBackward0",
    why={"a": "d log x/da of a gamma variate", "out": "the variate itself"})


# Each coordinate moves as the quantile of its own beta distribution does, the others give way in
# proportion: dx_j/da_i = s_i (1[i = j] - x_j).
_share: Any = derived_op("dirichlet_slope", ("x", "a", "total"), (),
                         call("dirichlet_slope", var("x"), var("a"), var("total")))


def _own(a: Any, x: Any) -> Any:
    return _share(x, a, sum_(a, -1, keepdim=True))


def _dirichlet_vjp(ct: Any, a: Any, out: Any) -> Any:
    return mul(_own(a, out), sub(ct, sum_(mul(out, ct), -1, keepdim=True)))


def _dirichlet_jvp(t: Any, a: Any, out: Any) -> Any:
    moved = mul(_own(a, out), t)
    return sub(moved, mul(out, sum_(moved, -1, keepdim=True)))


dirichlet_op: Any = op(
    "dirichlet_variate", impl=lambda a, draw, /: np.array(draw), infer=lambda a, draw: draw,
    vjp={"a": _dirichlet_vjp}, jvp={"a": _dirichlet_jvp}, batch=batch_broadcast,
    cost=lambda a, draw: 4000 * a.size, node="_DirichletBackward",
    why={"a": "how each coordinate's beta distribution moves", "out": "the variate itself"})


# ------------------------------------------------------------------ draws as an op
def _draw_impl(*arrays: Any, draw: Callable[..., Any], shape: Any, dtype: Any) -> Any:
    full = [np.broadcast_to(a, (*shape[:len(shape) - a.ndim], *a.shape)) for a in arrays]
    return np.asarray(draw(source(None), *full)).astype(dtype)


def _draw_batch(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    size = next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)
    rank = len(attrs["shape"])
    args = [reshape(a, (size, *(1,) * (rank + 1 - len(a.shape)), *a.shape[1:])) if b else a
            for a, b in zip(args, batched, strict=True)]
    return bind(op_, args, {**attrs, "shape": (size, *attrs["shape"])})


# Without a rule, so that a draw is a constant; as an op, so that transforms see it.
_draw = Op("draw", _draw_impl, lambda *avals, draw, shape, dtype: Aval(tuple(shape), dtype),
           batch=_draw_batch)


def drawn(draw: Callable[..., Any], shape: Any, *params: Any, dtype: Any = None) -> Any:
    """draw(stream, *parameters broadcast to `shape`) as a constant; inside of a vmap over the
    parameters, or with randomness "different", one draw per example."""
    kind = (dtype or params[0].dtype).dtype
    trace = mapping.get()
    attrs = {"draw": draw, "shape": tuple(shape), "dtype": kind}
    mapped = any(p.level == trace.level for p in params) if trace is not None else False
    if trace is not None and trace.randomness == "different" and not mapped:
        attrs["shape"] = (trace.size, *shape)
        return trace.lift(bind(_draw, params, attrs))
    return bind(_draw, params, attrs)


def _log_gammas(a: Any, generator: Any) -> Any:
    given = (lambda _, orders: samplers.log_gamma(source(generator), orders)) \
        if generator is not None else samplers.log_gamma
    return drawn(given, tuple(a.shape), a)


def log_gamma_draw(a: Any, generator: Any = None) -> Any:
    """log X with X gamma of order `a`, differentiable in `a`."""
    return log_gamma_op(a, _log_gammas(a, generator))


# ------------------------------------------------------------------ by PyTorch's names
@public(method=False)
def _standard_gamma(input: Any, generator: Any = None) -> Any:
    """Gamma variates of the orders `input` and rate 1, differentiable in `input`."""
    draw = exp(log_gamma_draw(input, generator))
    return clamp(draw, min=finfo(draw.dtype).tiny)


@public(method=False)
def _standard_gamma_grad(input: Any, output: Any) -> Any:
    """d output/d input of gamma variates `output` of the orders `input`: how the quantile moves.

    >>> import adjoint as ad
    >>> ad._standard_gamma_grad(ad.tensor(1.0), ad.tensor(0.5))
    tensor(0.8070)
    """
    return mul(output, _slope(input, log(output)))


@public(method=False)
def _sample_dirichlet(input: Any, generator: Any = None) -> Any:
    """Dirichlet variates of the concentrations `input` (..., K): K gamma variates over their sum,
    made in logarithms so that concentrations far below 1 do not underflow. Differentiable in
    `input`: each coordinate moves as the quantile of its own beta distribution (M. Jankowiak,
    F. Obermeyer, 2018, 3.2)."""
    shares = softmax(_log_gammas(input, generator), -1)
    return dirichlet_op(input, clamp(shares, min=finfo(shares.dtype).tiny))


@public(method=False)
def _dirichlet_grad(x: Any, alpha: Any, total: Any) -> Any:
    """dx/dalpha / (1 - x) for a variate x of Beta(alpha, total - alpha): how the quantile moves.
    nan where not 0 <= x <= 1 and 0 < alpha < total.

    >>> import adjoint as ad
    >>> ad._dirichlet_grad(ad.tensor(0.5), ad.tensor(1.0), ad.tensor(2.0))
    tensor(0.6931)
    """
    return _share(x, alpha, total)


__all__ = ["drawn", "log_gamma_draw"]
