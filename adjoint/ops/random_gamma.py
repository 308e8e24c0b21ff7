"""Gamma variates that are differentiable in their order, and draws that transforms see."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.core.bind import bind
from adjoint.core.op import Op, op
from adjoint.core.trace import mapping
from adjoint.kernels import samplers
from adjoint.kernels.expr import call, var
from adjoint.ops.family import batch_broadcast, derived_op
from adjoint.ops.generator import source
from adjoint.ops.pointwise import mul
from adjoint.ops.shape import reshape

_slope: Any = derived_op("log_gamma_slope", ("a", "t"), (),
                         call("log_gamma_slope", var("a"), var("t")))
log_gamma_op: Any = op(
    "log_gamma_variate", impl=lambda a, draw, /: np.array(draw), infer=lambda a, draw: draw,
    vjp={"a": lambda ct, a, out: mul(ct, _slope(a, out))},
    jvp={"a": lambda t, a, out: mul(t, _slope(a, out))},
    batch=batch_broadcast, cost=lambda a, draw: 400 * a.size, node="StandardGammaBackward0",
    why={"a": "d log x/da of a gamma variate", "out": "the variate itself"})


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


def log_gamma_draw(a: Any) -> Any:
    """log X with X gamma of order `a`, differentiable in `a`."""
    return log_gamma_op(a, drawn(samplers.log_gamma, tuple(a.shape), a))


__all__ = ["drawn", "log_gamma_draw"]
