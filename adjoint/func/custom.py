"""autograd.Function under transforms: its `jvp` and `vmap` staticmethods, or its own code."""
from __future__ import annotations

from typing import Any

from adjoint.autograd.function import Function, FunctionCtx, run_function
from adjoint.base.errors import NotSupported
from adjoint.core.tensor import Tensor


def forward_function(trace: Any, cls: Any, args: tuple[Any, ...]) -> Any:
    """Forward mode through a Function: primals by `apply`, tangents by its `jvp`."""
    parts = [trace.parts(a) if isinstance(a, Tensor) else (a, None) for a in args]
    primals = tuple(p for p, _ in parts)
    tangents = tuple(t for _, t in parts)
    if cls.jvp is Function.jvp:
        raise NotSupported(f"You are trying to use jvp with {cls.__name__}, which has no jvp "
                           "staticmethod; define jvp(ctx, *tangents) to push tangents through it")
    ctx = FunctionCtx()
    if cls.setup_context is Function.setup_context:
        out = cls.forward(ctx, *primals)
    else:
        out = cls.forward(*primals)
        cls.setup_context(ctx, primals, out)
    if not ctx._to_save:
        ctx._to_save = ctx._for_forward
    ts = cls.jvp(ctx, *tangents)
    if isinstance(out, tuple):
        return tuple(o if t is None else trace.lift(o, t) for o, t in zip(out, ts, strict=True))
    return out if ts is None else trace.lift(out, ts)


class Info:
    """What a `vmap` staticmethod is told: `batch_size` and `randomness`."""

    def __init__(self, batch_size: int, randomness: str) -> None:
        self.batch_size, self.randomness = batch_size, randomness


def batch_function(trace: Any, cls: Any, args: tuple[Any, ...]) -> Any:
    """A Function on mapped values: by its `vmap` staticmethod where it has one, else by running
    its forward and backward on mapped values (what `generate_vmap_rule` stands for)."""
    rule = getattr(cls, "vmap", None)
    if rule is None:
        return run_function(cls, args)
    parts = [trace.parts(a) if isinstance(a, Tensor) else (a, False) for a in args]
    dims = tuple(0 if b else None for _, b in parts)
    out, out_dims = rule(Info(trace.size, trace.randomness), dims, *[v for v, _ in parts])
    if not isinstance(out, tuple):
        return _mapped(trace, out, out_dims)
    places = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(out)
    return tuple(_mapped(trace, o, d) for o, d in zip(out, places, strict=True))


def _mapped(trace: Any, value: Any, dim: Any) -> Any:
    if dim is None:
        return value
    from adjoint.func.vmap import move_axis
    return trace.lift(move_axis(value, dim, 0))
