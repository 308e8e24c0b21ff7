"""Rules for whole functions: `custom_vjp`, `custom_jvp` (JAX's names), `straight_through`.

The function itself runs as it is; only its derivative is replaced. A `custom_jvp` rule is linear in
the tangents, so reverse mode is its transpose and needs no second rule. A `custom_vjp` rule is
linear in the cotangent, so transposing it gives the push-forward.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

import numpy as np

from adjoint.autograd.engine import running_walk
from adjoint.autograd.forward import Forward
from adjoint.autograd.function import Function, run_function
from adjoint.autograd.modes import enable_grad, is_grad_enabled
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import ArgumentError, AutogradError, StructureError
from adjoint.base.tree import Spec, beside, flatten, unflatten
from adjoint.core.inplace import zeros_of
from adjoint.core.op import aval_of_value
from adjoint.core.tensor import Tensor, wrap
from adjoint.func.batch import Batch
from adjoint.func.push import jvp as push_forward
from adjoint.func.reverse import Pull
from adjoint.ops.create import tensor
from adjoint.ops.shape import expand_op, unsqueeze_op


def arity(fun: Callable[..., Any]) -> int:
    """How many arguments may be given by position; 0 where that cannot be told."""
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return 0
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def positional(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
               count: int) -> tuple[Any, ...]:
    """The arguments of a call in their positions, keywords and defaults among them; `count` is
    the function's `arity`."""
    if not kwargs and len(args) >= count:
        return args
    bound = inspect.signature(fun).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise ArgumentError(f"{getattr(fun, '__name__', 'function')}: {sorted(bound.kwargs)} can "
                            "only be given by keyword, and a function with a custom rule takes its "
                            "arguments by position")
    return bound.args


def zeros_like_value(x: Any) -> Tensor:
    """Zeros with the shape and dtype of a tensor of any level."""
    return wrap(np.array(zeros_of(aval_of_value(x))))


def as_value(derivative: Any, like: Any) -> Any:
    """A derivative that a rule gave, numbers and arrays as tensors."""
    if derivative is None or isinstance(derivative, Tensor):
        return derivative
    return tensor(derivative, dtype=like.dtype)


def _count(tree: Any) -> int:
    """Number of leaves, None among them."""
    return len(flatten(tree, lambda x: x is None)[0])


def _tangents(found: Any, what: str) -> tuple[Any, ...]:
    """The tangents of (outputs, tangents) as a rule gave them, checked against the outputs."""
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise StructureError(f"{what}: the custom_jvp rule must return a pair, output and tangent, "
                             f"got {found!r:.80}")
    outs, spec = flatten(found[0])
    tangents = beside(found[1], spec)
    if tangents is None:
        raise StructureError(f"{what}: the tangent that the custom_jvp rule returned has "
                             f"{_count(found[1])} leaves, the output {spec.leaves}; they must be "
                             "trees of one structure, with None where nothing moves")
    for t, o in zip(tangents, outs, strict=True):
        if t is not None and np.shape(t) not in (np.shape(o), ()):
            raise StructureError(f"{what}: the custom_jvp rule returned a tangent of shape "
                                 f"{list(np.shape(t))} for an output of shape {list(np.shape(o))}")
    return tuple([t if isinstance(t, Tensor) else zeros_like_value(o) if t is None else
                  tensor(t, dtype=getattr(o, "dtype", None))
                  for t, o in zip(tangents, outs, strict=True)])


def is_variable(x: Any) -> bool:
    """True for tensors that can carry a derivative."""
    return isinstance(x, Tensor) and is_inexact(x.array.dtype)


class Call:
    """One call of a function with a rule: its arguments as tensors and everything else."""

    def __init__(self, fun: Callable[..., Any], args: tuple[Any, ...], fixed: tuple[int, ...]
                 ) -> None:
        self.fun, self.args, self.fixed = fun, args, tuple(i % len(args) for i in fixed)
        moving = tuple(a for i, a in enumerate(args) if i not in self.fixed)
        self.leaves, self.spec = flatten(moving)
        self.places = [i for i, x in enumerate(self.leaves) if is_variable(x)]
        self.out_spec: Spec | None = None

    @property
    def tensors(self) -> list[Any]:
        """The differentiable leaves of the arguments."""
        return [self.leaves[i] for i in self.places]

    def moving(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The differentiable arguments with these tensors as their leaves."""
        full = list(self.leaves)
        for i, t in zip(self.places, tensors, strict=True):
            full[i] = t
        return tuple(unflatten(full, self.spec))

    def arguments(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """All arguments in their order."""
        rest = iter(self.moving(tensors))
        return tuple(a if i in self.fixed else next(rest) for i, a in enumerate(self.args))

    def constants(self) -> tuple[Any, ...]:
        """The arguments that no derivative is taken of."""
        return tuple(self.args[i] for i in self.fixed)

    def tree(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Per-tensor values in the structure of the arguments; zeros at other leaves' places."""
        full: list[Any] = [zeros_like_value(x) if isinstance(x, Tensor) else
                           0.0 if isinstance(x, (float, complex)) else None for x in self.leaves]
        for i, t in zip(self.places, leaves, strict=True):
            full[i] = zeros_like_value(self.leaves[i]) if t is None else t
        return tuple(unflatten(full, self.spec))

    def pick(self, cotangents: Any, what: str) -> tuple[Any, ...]:
        """The cotangents a rule returned, one per differentiable tensor."""
        if not isinstance(cotangents, tuple):
            raise StructureError(f"{what}: the backward rule must return a tuple with one entry "
                                 "per differentiable argument, got "
                                 f"{type(cotangents).__name__}")
        if len(cotangents) != len(self.spec.children):
            raise StructureError(f"{what}: the backward rule returned {len(cotangents)} cotangents "
                                 f"for {len(self.spec.children)} differentiable arguments")
        full: list[Any] = []
        for ct, spec in zip(cotangents, self.spec.children, strict=True):
            if ct is None:
                full += [None] * spec.leaves
                continue
            leaves = beside(ct, spec)
            if leaves is None:
                raise StructureError(f"{what}: a cotangent has {_count(ct)} leaves, its argument "
                                     f"{spec.leaves}; they must be trees of one structure, with "
                                     "None where nothing flows")
            full += leaves
        return tuple(as_value(full[i], self.leaves[i]) for i in self.places)

    def outputs(self, out: Any) -> tuple[Any, ...]:
        """The leaves of an output, whose structure is remembered."""
        leaves, self.out_spec = flatten(out)
        return tuple(leaves)

    def rebuild(self, leaves: Any) -> Any:
        """An output from its leaves."""
        assert self.out_spec is not None
        return unflatten(list(leaves), self.out_spec)


def _place(tensors: Sequence[Any]) -> Any:
    """The trace of the highest level among tensors, or None."""
    best = max((t for t in tensors if t.level), key=lambda t: t.level, default=None)
    return None if best is None else best.trace


def transpose(linear: Callable[..., Any], zeros: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    """The transpose of a linear function of tensors, applied to cotangents; differentiable in
    them."""
    p = Pull(linear, tuple(zeros), {}, tuple(range(len(zeros))), "transpose of a rule", False)
    p.open = p.open or any(isinstance(c, Tensor) and c._rg for c in cts)
    return p.back(list(cts), keep=False)


class Rule:
    """A function of tensors with its derivative both ways: `run(*ts) -> outs`,
    `push(primals, tangents) -> tangents of outs`, `pull(primals, cts) -> cotangents`."""

    # (*ts) -> (outs, residuals) and (residuals, cts) -> cotangents, where residuals are kept
    saving: Any = None
    pull_saved: Any = None
    symbolic = False            # does the pull tell None, for no cotangent, from zeros?
    native = True               # `run` is made of ops, and so works on values of any level

    def __init__(self, run: Callable[..., Any], push: Callable[..., Any],
                 pull: Callable[..., Any]) -> None:
        self.run, self.push, self.pull = run, push, pull

    def batched(self, trace: Any, mask: Sequence[bool]) -> Rule:
        """The rule of one example as a rule of the values below a vmap."""
        def lift(inner: Any, xs: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
            return [inner.lift(x) if m else x for x, m in zip(xs, flags, strict=True)]

        def below(f: Callable[..., Any], *groups: tuple[Sequence[Any], Sequence[bool]]
                  ) -> list[Any]:
            with Batch(trace.size, trace.randomness, trace.axis_name) as inner:
                outs = f(*[lift(inner, xs, flags) for xs, flags in groups])
                return [_lowered(inner, trace, o) for o in outs]

        def push(primals: Any, tangents: Any) -> Any:
            return below(self.push, (primals, mask), (tangents, mask))

        def pull(primals: Any, cts: Any) -> Any:
            found = below(self.pull, (primals, mask), (cts, [True] * len(cts)))
            return [c if m else c.sum(0) for c, m in zip(found, mask, strict=True)]
        return Rule(lambda *ts: tuple(below(lambda xs: self.run(*xs), (ts, mask))), push, pull)


def _lowered(inner: Any, outer: Any, o: Any) -> Any:
    """The value below a vmap, with the mapped axis in front."""
    if getattr(o, "trace", None) is inner:
        o = o.value
    else:
        o = expand_op(unsqueeze_op(o, dim=0), shape=(inner.size, *o.shape))
    if getattr(o, "trace", None) is outer:
        raise AutogradError("a function with a custom rule uses a value of the enclosing vmap that "
                            "is not among its arguments; pass it as an argument")
    return o


def call_rule(rule: Rule, tensors: Sequence[Any], record: bool = True) -> tuple[Any, ...]:
    """Run a rule at the highest level of its operands: record it, push it or go one level down."""
    if record and is_grad_enabled() and any(t._rg for t in tensors):
        return tuple(run_function(_Recorded, (rule, *tensors)))
    trace = _place(tensors)
    if trace is None:
        return tuple(rule.run(*tensors))
    if isinstance(trace, Forward):
        primals, tangents = zip(*[trace.parts(t) for t in tensors], strict=True)
        outs = call_rule(rule, primals)
        if all(t is None for t in tangents):
            return outs
        pushed = rule.push(primals, [zeros_like_value(p) if t is None else t for p, t in zip(
            primals, tangents, strict=True)])
        return tuple(trace.lift(o, t) if is_variable(o) else o
                     for o, t in zip(outs, pushed, strict=True))
    if not isinstance(trace, Batch):                 # a run on symbols
        return tuple(rule.run(*tensors))
    values, mask = zip(*[trace.parts(t) for t in tensors], strict=True)
    if rule.native and not any(v.level or v._rg for v in values):
        return tuple(rule.run(*tensors))
    return tuple(trace.lift(o) for o in call_rule(rule.batched(trace, mask), values))


class _Recorded(Function):
    """The node of a call with a rule."""

    @staticmethod
    def forward(ctx: Any, rule: Rule, *tensors: Any) -> Any:
        ctx.rule, ctx.residuals = rule, None
        ctx.set_materialize_grads(not rule.symbolic)
        trace = _place(tensors)
        if trace is None and rule.saving is not None:
            outs, residuals = rule.saving(*tensors)
            kept, spec = flatten(residuals)
            ctx.places = [i for i, r in enumerate(kept) if isinstance(r, Tensor)]
            ctx.residuals = [None if isinstance(r, Tensor) else r for r in kept], spec
            known = {*map(id, tensors), *map(id, outs)}
            # a residual made on the way is a constant to a tape: a derivative of the derivative
            # needs the operands, to make it again
            ctx.again = any(isinstance(r, Tensor) and id(r) not in known
                            and is_inexact(r.array.dtype) for r in kept)
            ctx.save_for_backward(*[kept[i] for i in ctx.places], *tensors if ctx.again else ())
            return outs
        ctx.save_for_backward(*tensors)
        if trace is None:
            return rule.run(*tensors)
        with enable_grad():              # tapes of lower levels go on
            return call_rule(rule, [trace.strip(t) if t.level == trace.level else t
                                    for t in tensors], record=False)

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> Any:
        saved, walk = ctx.saved_tensors, running_walk()
        again = is_grad_enabled() if walk is None else walk.create
        if not again:                    # (a walk below a vmap has gradients on: values alone here)
            saved = tuple([s.detach() if s._rg and not s.level else s for s in saved])
        if ctx.residuals is None:
            return (None, *ctx.rule.pull(saved, cts))
        kept, spec = list(ctx.residuals[0]), ctx.residuals[1]
        n = len(ctx.places)
        if ctx.again and again:
            return (None, *ctx.rule.pull(saved[n:], cts))
        for i, r in zip(ctx.places, saved[:n], strict=True):
            kept[i] = r
        return (None, *ctx.rule.pull_saved(unflatten(kept, spec), cts))


class custom_vjp:
    """A function whose reverse rule is written by hand; used as a decorator, then `defvjp`.

    nondiff_argnums  positions of arguments that no derivative is taken of; the backward rule gets
                     them first

    Under forward mode the rule is transposed, which is exact because it is linear in the cotangent.
    The function must not use values of an enclosing vmap that are not among its arguments.

    >>> import adjoint as ad
    >>> @ad.func.custom_vjp
    ... def clip(x):
    ...     return x * 1.0
    >>> clip.defvjp(lambda x: (clip(x), None), lambda _, ct: (ct.clamp(-1, 1),))
    >>> ad.func.grad(lambda x: (5 * clip(x)).sum())(ad.ones(2))
    tensor([1., 1.])
    """

    __name__: str

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        update_wrapper(self, fun)
        self.fun, self.fixed, self.count = fun, tuple(nondiff_argnums), arity(fun)
        self.fwd: Any = None
        self.bwd: Any = None
        self.symbolic_zeros = False

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the rule: `fwd(*args) -> (output, residuals)`, and
        `bwd(*nondiff, residuals, cotangent) -> (cotangent per differentiable argument, ...)`."""
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.fwd is None:
            raise AutogradError(f"{self.__name__}: custom_vjp without a rule; call "
                                "defvjp(fwd, bwd)")
        args = positional(self.fun, args, kwargs, self.count)
        call = Call(self.fun, args, self.fixed)
        if not any(t._rg or t.level for t in call.tensors):
            return self.fun(*args)
        return call.rebuild(call_rule(self._rule(call), call.tensors))

    def _rule(self, call: Call) -> Rule:
        def saving(*ts: Any) -> Any:
            out, residuals = self.fwd(*call.arguments(ts))
            return call.outputs(out), residuals

        def pull_saved(residuals: Any, cts: Any) -> Any:
            return call.pick(self.bwd(*call.constants(), residuals, call.rebuild(cts)),
                             self.__name__)

        def pull(primals: Any, cts: Any) -> Any:
            return [zeros_like_value(p) if c is None else c for c, p in zip(
                pull_saved(saving(*primals)[1], cts), primals, strict=True)]

        def push(primals: Any, tangents: Any) -> Any:
            outs, residuals = saving(*primals)

            def linear(*cts: Any) -> Any:
                return tuple(zeros_like_value(p) if c is None else c for c, p in zip(
                    pull_saved(residuals, cts), primals, strict=True))
            return transpose(linear, [zeros_like_value(o) for o in outs], tangents)
        rule = Rule(lambda *ts: call.outputs(self.fun(*call.arguments(ts))), push, pull)
        rule.saving, rule.pull_saved, rule.symbolic = saving, pull_saved, self.symbolic_zeros
        return rule


class custom_jvp:
    """A function whose forward rule is written by hand; used as a decorator, then `defjvp` (or
    `defjvps`, one rule per argument). Reverse mode is the transpose of the rule.

    nondiff_argnums  positions of arguments that no derivative is taken of; the rule gets them first

    The function must not use values of an enclosing vmap that are not among its arguments.

    >>> import adjoint as ad
    >>> @ad.func.custom_jvp
    ... def cube(x):
    ...     return x ** 3
    >>> _ = cube.defjvp(lambda x, t: (cube(*x), 3 * x[0] ** 2 * t[0]))
    >>> ad.func.grad(cube)(ad.tensor(2.0))
    tensor(12.)
    """

    __name__: str

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        update_wrapper(self, fun)
        self.fun, self.fixed, self.count = fun, tuple(nondiff_argnums), arity(fun)
        self.rule: Any = None

    def defjvp(self, jvp: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule: `jvp(*nondiff, primals, tangents) -> (output, tangent of the output)`."""
        self.rule = jvp
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """One rule per argument, `rule(tangent, output, *primals) -> share of the tangent`; None
        for arguments that do not matter."""
        def whole(primals: Any, tangents: Any) -> Any:
            out = self(*primals)
            shares = [r(t, out, *primals) for r, t in zip(jvps, tangents, strict=True)
                      if r is not None]
            return out, sum(shares[1:], shares[0]) if shares else zeros_like_value(out)
        self.rule = whole

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.rule is None:
            raise AutogradError(f"{self.__name__}: custom_jvp without a rule; call defjvp(rule)")
        args = positional(self.fun, args, kwargs, self.count)
        call = Call(self.fun, args, self.fixed)
        if not any(t._rg or t.level for t in call.tensors):
            return self.fun(*args)
        return call.rebuild(call_rule(self._rule(call), call.tensors))

    def _rule(self, call: Call) -> Rule:
        def push(primals: Any, tangents: Any) -> Any:
            found = self.rule(*call.constants(), call.moving(primals), call.tree(tangents))
            return _tangents(found, self.__name__)

        def pull(primals: Any, cts: Any) -> Any:
            return transpose(lambda *ts: push(primals, ts),
                              [zeros_like_value(p) for p in primals], cts)
        return Rule(lambda *ts: call.outputs(self.fun(*call.arguments(ts))), push, pull)


def straight_through(forward: Callable[[Any], Any], surrogate: Callable[[Any], Any] | None = None
                     ) -> Callable[[Any], Any]:
    """`forward(x)` with the derivative of `surrogate` (default: of the identity), for functions
    whose own derivative is zero or missing: rounding, sign, thresholds (Bengio, Léonard and
    Courville 2013, arXiv:1308.3432). Shapes of x, forward(x) and surrogate(x) must be equal.

    >>> import adjoint as ad
    >>> ad.func.grad(lambda x: ad.func.straight_through(ad.round)(x).sum())(ad.tensor([0.3, 1.7]))
    tensor([1., 1.])
    """
    def run(x: Any) -> Any:
        y = passed(x)
        if tuple(y.shape) != tuple(x.shape):
            raise ArgumentError(f"straight_through: forward changed the shape from "
                                f"{list(x.shape)} to {list(y.shape)}")
        return y

    @custom_jvp
    def passed(x: Any) -> Any:
        return forward(x)

    def rule(primals: Any, tangents: Any) -> Any:
        if surrogate is None:
            return passed(*primals), tangents[0]
        return passed(*primals), push_forward(surrogate, primals, tangents)[1]
    passed.defjvp(rule)
    return update_wrapper(run, forward) if hasattr(forward, "__name__") else run


__all__ = ["custom_jvp", "custom_vjp", "straight_through"]
