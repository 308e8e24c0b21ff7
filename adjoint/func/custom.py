"""autograd.Function under vmap: its `vmap` staticmethod, or its own code on mapped values."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from adjoint.autograd.function import MORE, Function, FunctionCtx, has_setup, run_function
from adjoint.autograd.modes import no_grad
from adjoint.base.errors import AutogradError, NotSupported, TransformError
from adjoint.core.modes import GRAD, state
from adjoint.core.tensor import Tensor
from adjoint.func.rules import Rule, call_rule, zeros_like_value


class VmapInfo(NamedTuple):
    """What a `vmap` staticmethod is told."""

    batch_size: int
    randomness: str


def batch_function(trace: Any, cls: Any, args: tuple[Any, ...]) -> Any:
    """A Function on mapped values: by its `vmap` staticmethod where it has one, else by running
    its forward and backward on mapped values (what `generate_vmap_rule` stands for)."""
    rule = getattr(cls, "vmap", None)
    recording = state() & GRAD and any(isinstance(a, Tensor) and a._rg for a in args)
    if rule is not None:
        if cls.generate_vmap_rule:
            raise AutogradError(f"You tried to vmap over {cls.__name__}, but it has both "
                                "generate_vmap_rule=True and an overridden vmap staticmethod. "
                                "Please set generate_vmap_rule=False or delete the overridden vmap "
                                f"staticmethod to avoid ambiguity. {MORE}")
        if recording:
            return run_function(cls, args, lambda own: _by_rule(trace, rule, own))
        return _by_rule(trace, rule, args)
    below = [trace.parts(a)[0] for a in args if isinstance(a, Tensor)]
    if not any(v.level or v._rg for v in below):
        return run_function(cls, args)
    if not recording:
        return _below(trace, cls, args)
    if not has_setup(cls):
        raise NotSupported(f"{cls.__name__} in nested transforms: save what backward needs in a "
                           "setup_context staticmethod, with forward(*args) taking no ctx")
    return run_function(cls, args, lambda own: _below(trace, cls, own))


class _Plain(Rule):
    """A Function as a rule: its forward, backward and jvp on values of any level."""

    native = False

    def __init__(self, cls: Any, args: Sequence[Any]) -> None:
        super().__init__(self._run, self._push, self._pull)
        self.cls, self.args = cls, list(args)
        self.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        self.many = False

    def fill(self, tensors: Sequence[Any]) -> list[Any]:
        """All arguments, with these tensors at their places."""
        full = list(self.args)
        for i, t in zip(self.places, tensors, strict=True):
            full[i] = t
        return full

    def _context(self, tensors: Sequence[Any], record: bool) -> tuple[Any, Any]:
        """(ctx, output); the output in the tapes around, as what is saved of it has to be."""
        ctx, full = FunctionCtx(), self.fill(tensors)
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) for a in full)
        out = self.cls.apply(*full) if record and has_setup(self.cls) else None
        with no_grad():
            if not has_setup(self.cls):
                out = self.cls.forward(ctx, *full)
            else:
                out = self.cls.forward(*full) if out is None else out
                self.cls.setup_context(ctx, tuple(full), out)
        return ctx, out

    def _run(self, *tensors: Any) -> tuple[Any, ...]:
        out = self._context(tensors, False)[1]
        self.many = isinstance(out, tuple)
        return out if isinstance(out, tuple) else (out,)

    def _pull(self, primals: Any, cts: Any) -> list[Any]:
        found = self.cls._pull(self._context(primals, True)[0], *cts)
        found = found if isinstance(found, tuple) else (found,)
        return [zeros_like_value(p) if found[i] is None else found[i]
                for i, p in zip(self.places, primals, strict=True)]

    def _push(self, primals: Any, tangents: Any) -> list[Any]:
        if self.cls.jvp is Function.jvp:
            raise NotSupported("You must implement the jvp function for custom autograd.Function to"
                               f" use it with forward mode AD. ({self.cls.__name__}: jvp(ctx, "
                               "*tangents))")
        ctx = self._context(primals, True)[0]
        ctx._to_save = ctx._to_save or ctx._for_forward
        full: list[Any] = [None] * len(self.args)
        for i, t in zip(self.places, tangents, strict=True):
            full[i] = t
        found = self.cls.jvp(ctx, *full)
        return list(found) if isinstance(found, tuple) else [found]


def _below(trace: Any, cls: Any, args: tuple[Any, ...]) -> Any:
    """The outputs by a Function of the level below, whose code runs on mapped values."""
    rule = _Plain(cls, args)
    parts = [trace.parts(args[i]) for i in rule.places]
    outs = call_rule(rule.batched(trace, [b for _, b in parts]), [v for v, _ in parts])
    made = tuple([trace.lift(o) for o in outs])
    return made if rule.many else made[0]


def _by_rule(trace: Any, rule: Any, args: tuple[Any, ...]) -> Any:
    """The outputs of a `vmap` staticmethod as mapped values."""
    parts = [trace.parts(a) if isinstance(a, Tensor) else (a, False) for a in args]
    dims = tuple(0 if b else None for _, b in parts)
    given = rule(VmapInfo(trace.size, trace.randomness), dims, *[v for v, _ in parts])
    if not isinstance(given, tuple) or len(given) != 2:
        raise TransformError("Expected the vmap staticmethod to have two returns, an output and "
                             "out_dims with pytree structure compatible with the output. Got a "
                             f"{type(given)} instead")
    out, out_dims = given
    several = len(out) if isinstance(out, tuple) else -1
    if isinstance(out_dims, tuple) and len(out_dims) != several:
        raise TransformError(
            "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) "
            f"tuple. Expected out_dims={out_dims} to be compatible with the structure of `output`, "
            f"which is {'one value' if several < 0 else f'a tuple of {several}'}")
    if not isinstance(out, tuple):
        return _mapped(trace, out, out_dims)
    places = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(out)
    return tuple(_mapped(trace, o, d) for o, d in zip(out, places, strict=True))


def _mapped(trace: Any, value: Any, dim: Any) -> Any:
    if dim is None:
        return value
    from adjoint.func.vmap import move_axis
    return trace.lift(move_axis(value, dim, 0))
