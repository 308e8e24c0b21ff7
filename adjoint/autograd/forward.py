"""Forward mode: a value with its tangent, pushed through every op (no intermediates are kept)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adjoint.autograd.function import Function, FunctionCtx, has_setup, run_function
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import AutogradError, DTypeError, NotSupported, ShapeError
from adjoint.core.bind import bind
from adjoint.core.inplace import zeros_of
from adjoint.core.modes import GRAD, state
from adjoint.core.op import Op, attr_names, aval_of_value, reads
from adjoint.core.tensor import Tensor, alias, named, wrap
from adjoint.core.trace import LevelTensor, Trace, become
from adjoint.ops.pointwise import add, cast, real_part
from adjoint.ops.shape import expand_op, identity_op

_new = object.__new__


class ForwardTensor(LevelTensor):
    """A primal (`value`) with its `tangent`."""

    __slots__ = ()

    @property
    def requires_grad(self) -> bool:
        """Whether a dual tensor has a reverse mode too: that of its primal."""
        return bool(self.trace.dual and self.value.requires_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        Tensor.requires_grad.__set__(self, value)  # type: ignore[attr-defined]  # a property

    def __repr__(self, **options: Any) -> str:
        if not self.trace.alive and self.trace.leave(self):
            return repr(self)
        if not self.trace.dual:
            return super().__repr__(**options)
        return f"{repr(self.value)[:-1]}, tangent={self.tangent!r})"


class Forward(Trace):
    """One call of `jvp`."""

    name = "jvp"
    dual = False                # made by `forward_ad`: its values may be differentiated backwards

    def aval(self, t: Any) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of the primal."""
        array = t.value.array
        return array.shape, array.dtype

    def lift(self, primal: Any, tangent: Any) -> Any:
        """A dual value."""
        t: Any = _new(ForwardTensor)                # (`trace.make`, for it is called per op)
        t._edge = t._cell = None
        t._rg = False
        t.__dict__ = {"value": primal, "tangent": tangent, "trace": self, "level": self.level}
        return t

    def leave(self, t: Any) -> bool:
        """A dual tensor is its primal once its level is closed."""
        value = t.value
        if not self.dual or value.level:
            return False
        if value._rg and value.is_leaf:
            left = named(identity_op(value), "ViewBackward0")
        else:
            left = alias(value)
            left._edge, left._rg = value._edge, value._rg
        become(t, left)
        t._cell = left._cell
        return True

    def parts(self, t: Any) -> tuple[Any, Any]:
        """(primal, tangent) of an operand; the tangent is None where it is constant here."""
        if isinstance(t, ForwardTensor) and t.trace is self:
            return t.value, t.tangent
        if isinstance(t, Tensor) and t.level >= self.level:
            self.check(t)
        return self.below(t), None

    def process(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        primals, tangents = [], []
        moving, bit = 0, 1
        for a in args:
            if type(a) is ForwardTensor and a.trace is self:
                primals.append(a.value)
                tangents.append(a.tangent)
                moving |= bit
            else:
                primals.append(self.constant(a) if isinstance(a, Tensor) else a)
                tangents.append(None)
            bit <<= 1
        found = bind(op.exposed, primals, attrs) if op.hidden or op.call is None \
            else op.call(*primals, **attrs)
        if not op.multi and not op.variadic:
            return self._single(op, primals, tangents, moving, found, attrs)
        every = tuple(found) if op.multi else (found,)
        outs = every[: len(every) - len(op.hidden)]
        if op.variadic:
            ts = self._variadic(op, primals, tangents, every, attrs, outs)
        else:
            ts = [None] * len(outs)
            for push in op.pushed(moving):
                share = push(tangents, primals, every, attrs)
                for i, s in enumerate(share if isinstance(share, tuple) else (share,)):
                    if s is not None and i < len(ts):
                        ts[i] = s if ts[i] is None else add(ts[i], s)
        made = tuple([o if t is None or not op.carries(i) else self.lift(o, self._shaped(t, o))
                      for i, (o, t) in enumerate(zip(outs, ts, strict=True))])
        return made if op.multi else made[0]

    def constant(self, t: Any) -> Any:
        """A tensor that does not move here, for the level below."""
        if t.level:
            if not t.trace.alive:
                self.check(t)
            return t
        return self.below(t) if t._rg else t

    def _single(self, op: Op, primals: Sequence[Any], tangents: Sequence[Any], moving: int,
                out: Any, attrs: Mapping[str, Any]) -> Any:
        """The common case: one output, which is the only one."""
        total: Any = None
        if op.differentiable is None or op.carries(0):
            for push in op.pushed(moving):
                share = push(tangents, primals, (out,), attrs)
                if share is not None:
                    total = share if total is None else add(total, share)
        return out if total is None else self.lift(out, self._shaped(total, out))

    def single(self, op: Op, x: Any) -> Any:
        p = (x.value,)
        return self._single(op, p, (x.tangent,), 1, op.call(*p), {})

    def pair(self, op: Op, a: Any, b: Any) -> Any:
        """A pointwise op of two operands, neither in a tape of this level."""
        if type(a) is ForwardTensor and a.trace is self:
            if type(b) is ForwardTensor and b.trace is self:
                p, t, moving = (a.value, b.value), (a.tangent, b.tangent), 3
            else:
                b = self.constant(b) if isinstance(b, Tensor) else b
                p, t, moving = (a.value, b), (a.tangent, None), 1
        else:
            a = self.constant(a) if isinstance(a, Tensor) else a
            p, t, moving = (a, b.value), (None, b.tangent), 2
        return self._single(op, p, t, moving, op.call(*p), {})

    def _variadic(self, op: Op, primals: Sequence[Any], tangents: Sequence[Any],
                  every: tuple[Any, ...], attrs: Mapping[str, Any], outs: Sequence[Any]
                  ) -> list[Any]:
        if all(t is None for t in tangents) or ("*",) not in op.compact[1]:
            return [None] * len(outs)
        rule = op.compact[1][("*",)]
        if rule is None:
            full = [wrap(zeros_of(aval_of_value(p))) if t is None else t
                    for p, t in zip(primals, tangents, strict=True)]
            share = bind(op, full, attrs)
        else:
            env = {"xs": tuple(primals), "avals": tuple(map(aval_of_value, primals)),
                   "out": every[0], "outs": every,
                   **dict(zip((*op.outs, *op.hidden), every, strict=False))}
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

    def held(self, t: Any) -> tuple[Any, ...]:
        value, tangent = self.parts(t)
        return value, wrap(zeros_of(aval_of_value(value))) if tangent is None else tangent

    def detach(self, t: Any) -> Any:
        return t.value.detach()

    def value(self, t: Any, what: str) -> Any:
        self.check(t)
        if not t.level:
            return t.array
        inner = t.value
        return inner.trace.value(inner, what) if inner.level else inner.array


def through_function(trace: Any, cls: Any, args: tuple[Any, ...]) -> Any:
    """Forward mode through a Function: primals by `apply`, tangents by its `jvp`."""
    parts = [trace.parts(a) if isinstance(a, Tensor) else (a, None) for a in args]
    primals = tuple(p for p, _ in parts)
    tangents = tuple([t for _, t in parts])
    if cls.jvp is Function.jvp:
        raise NotSupported("You must implement the jvp function for custom autograd.Function to use"
                           f" it with forward mode AD. ({cls.__name__}: jvp(ctx, *tangents))")
    ctx = FunctionCtx()
    if cls.setup_context is Function.setup_context:
        out = cls.forward(ctx, *primals)
    else:                                  # by apply: tapes of lower levels take its backward
        out = cls.apply(*primals)
        cls.setup_context(ctx, primals, out)
    if not ctx._to_save:
        ctx._to_save = ctx._for_forward
    if ctx._materialize:
        tangents = tuple([wrap(zeros_of(aval_of_value(p))) if t is None and isinstance(p, Tensor)
                          else t for p, t in parts])
    ts = cls.jvp(ctx, *tangents)
    outs = out if isinstance(out, tuple) else (out,)
    ts = ts if isinstance(ts, tuple) else (ts,)
    if len(ts) != len(outs):
        raise AutogradError("Function's jvp returned an invalid number of forward gradients "
                            f"(expected {len(outs)} but got {len(ts)})")
    lifted = tuple([o if t is None else trace.lift(o, _tangent(o, t, i))
                    for i, (o, t) in enumerate(zip(outs, ts, strict=True))])
    return lifted if isinstance(out, tuple) else lifted[0]


def _tangent(out: Any, t: Any, i: int) -> Any:
    """What a `jvp` gave for output `i`, which has to be of its shape."""
    if not isinstance(t, Tensor):
        raise DTypeError(f"expected Variable or None (got {type(t).__name__}) for grad output {i}.")
    if tuple(t.shape) != tuple(out.shape):
        raise ShapeError("Trying to set a forward gradient that has a different size than that of "
                         "the original Tensor, this is not supported. Tensor is of size "
                         f"{list(out.shape)} while the given forward gradient is of size "
                         f"{list(t.shape)}.")
    return t
