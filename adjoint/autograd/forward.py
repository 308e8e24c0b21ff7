"""Forward mode: a value with its tangent, pushed through every op (no intermediates are kept)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.autograd.function import Function, FunctionCtx, has_setup, run_function
from adjoint.base.aval import Aval
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import NotSupported
from adjoint.core.bind import bind
from adjoint.core.inplace import zeros_of
from adjoint.core.modes import GRAD, state
from adjoint.core.op import Op, attr_names, reads
from adjoint.core.tensor import Tensor, wrap
from adjoint.core.trace import LevelTensor, Trace, make
from adjoint.ops.pointwise import add, cast, real_part
from adjoint.ops.shape import expand_op


class ForwardTensor(LevelTensor):
    """A primal (`value`) with its `tangent`."""

    __slots__ = ()


def aval_of_value(x: Any) -> Aval:
    """Shape and dtype of a tensor of any level, an array or a number."""
    array = x.array if isinstance(x, Tensor) else x
    if not hasattr(array, "shape"):
        array = np.asarray(array)
    return Aval(tuple(array.shape), array.dtype)


class Forward(Trace):
    """One call of `jvp`."""

    name = "jvp"

    def aval(self, t: Any) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of the primal."""
        array = t.value.array
        return array.shape, array.dtype

    def lift(self, primal: Any, tangent: Any) -> Any:
        """A dual value."""
        return make(ForwardTensor, self, value=primal, tangent=tangent)

    def parts(self, t: Any) -> tuple[Any, Any]:
        """(primal, tangent) of an operand; the tangent is None where it is constant here."""
        if isinstance(t, ForwardTensor) and t.trace is self:
            return t.value, t.tangent
        if isinstance(t, Tensor) and t.level >= self.level:
            self.check(t)
        return self.below(t), None

    def process(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        self.check_args(args)
        primals, tangents = zip(*[self.parts(a) for a in args], strict=True)
        full = op.exposed
        found = bind(full, primals, attrs)
        every = tuple(found) if full.multi else (found,)
        outs = every[: len(every) - len(op.hidden)]
        env = self._env(op, primals, every)
        push = self._variadic if op.variadic else self._fixed
        ts = push(op, primals, tangents, env, attrs, outs)
        made = tuple([o if t is None or not op.carries(i) else self.lift(o, self._shaped(t, o))
                      for i, (o, t) in enumerate(zip(outs, ts, strict=True))])
        return made if op.multi else made[0]

    def check_args(self, args: Sequence[Any]) -> None:
        """Refuse values of calls that have ended."""
        for a in args:
            if isinstance(a, LevelTensor) and not a.trace.alive:
                self.check(a)

    def _env(self, op: Op, primals: Sequence[Any], every: Sequence[Any]) -> dict[str, Any]:
        if op.variadic:
            env: dict[str, Any] = {"xs": primals, "avals": tuple(map(aval_of_value, primals))}
        else:
            env = dict(zip(op.operands, primals, strict=False))
            env.update({f"{o}_aval": None if p is None else aval_of_value(p)
                        for o, p in zip(op.operands, primals, strict=False)})
        names = (*op.outs, *op.hidden)
        env.update(zip(names, every, strict=False))
        env["out"], env["outs"] = every[0], tuple(every)
        return env

    def _fixed(self, op: Op, primals: Sequence[Any], tangents: Sequence[Any],
               env: dict[str, Any], attrs: Mapping[str, Any], outs: Sequence[Any]) -> list[Any]:
        total: list[Any] = [None] * len(outs)
        given = {o: t for o, t in zip(op.operands, tangents, strict=False) if t is not None}
        table = op.compact[1]
        for key in sorted(table, key=lambda k: -len(k)):
            if not set(key) & set(given):
                continue
            rule = table[key]
            if rule is None:
                k = op.operands.index(key[0])
                operands = list(primals)
                operands[k] = given.pop(key[0])
                share = bind(op, operands, attrs)
            else:
                t = tuple(given.pop(o, None) for o in key) if len(key) > 1 else given.pop(key[0])
                share = rule(t, *[env[n] for n in reads(rule)],
                             **{a: attrs[a] for a in attr_names(rule, op)})
            many = share if op.multi and isinstance(share, tuple) else (share,)
            for i, s in enumerate(many):
                if s is not None and i < len(total):
                    total[i] = s if total[i] is None else _plus(total[i], s)
        for operand in given:
            if operand in {o for key in op.compact[0] for o in key}:
                raise NotSupported(f"{op.name}: no forward-mode rule for operand {operand!r}")
        return total

    def _variadic(self, op: Op, primals: Sequence[Any], tangents: Sequence[Any],
                  env: dict[str, Any], attrs: Mapping[str, Any], outs: Sequence[Any]
                  ) -> list[Any]:
        if all(t is None for t in tangents) or ("*",) not in op.compact[1]:
            return [None] * len(outs)
        rule = op.compact[1][("*",)]
        if rule is None:
            full = [wrap(zeros_of(aval_of_value(p))) if t is None else t
                    for p, t in zip(primals, tangents, strict=True)]
            share = bind(op, full, attrs)
        else:
            share = rule(tuple(tangents), *[env[n] for n in reads(rule)],
                         **{a: attrs[a] for a in attr_names(rule, op)})
        return list(share) if op.multi else [share]

    def _shaped(self, t: Any, out: Any) -> Any:
        """The tangent in the shape and dtype of its primal (rules may leave broadcasting open)."""
        t = t if isinstance(t, Tensor) else wrap(t)
        want = out.array
        if tuple(t.array.shape) != tuple(want.shape):
            t = expand_op(t, shape=tuple(want.shape))
        if t.array.dtype != want.dtype and is_inexact(want.dtype):
            if t.array.dtype.kind == "c" and want.dtype.kind != "c":
                t = real_part(t)
            t = cast(t, dtype=want.dtype) if t.array.dtype != want.dtype else t
        return t

    def custom(self, cls: Any, args: tuple[Any, ...]) -> Any:
        """An autograd.Function: its `jvp` staticmethod gives the tangent."""
        if state() & GRAD and any(isinstance(a, Tensor) and a._rg for a in args):
            if not has_setup(cls):
                return run_function(cls, args)
            return run_function(cls, args, lambda own: through_function(self, cls, own))
        return through_function(self, cls, args)

    def strip(self, t: Any) -> Any:
        return self.lift(t.value, t.tangent)

    def detach(self, t: Any) -> Any:
        return t.value.detach()

    def value(self, t: Any, what: str) -> Any:
        inner = t.value
        return inner.trace.value(inner, what) if inner.level else inner.array


def _plus(a: Any, b: Any) -> Any:
    return add(a, b)


def through_function(trace: Any, cls: Any, args: tuple[Any, ...]) -> Any:
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
