"""autograd.Function under vmap: its `vmap` staticmethod, or its own code on mapped values."""
from __future__ import annotations

from typing import Any

from adjoint.autograd.function import run_function
from adjoint.core.modes import GRAD, state
from adjoint.core.tensor import Tensor


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
    if state() & GRAD and any(isinstance(a, Tensor) and a._rg for a in args):
        return run_function(cls, args, lambda own: _by_rule(trace, rule, own))
    return _by_rule(trace, rule, args)


def _by_rule(trace: Any, rule: Any, args: tuple[Any, ...]) -> Any:
    """The outputs of a `vmap` staticmethod as mapped values."""
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
