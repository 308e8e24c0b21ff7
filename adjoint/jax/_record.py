"""`make_jaxpr`: the program of a function, from a run on symbols.

The symbols are tensors of a transform level. An op on them becomes equations: those of `jax.lax`
where `_to_lax.py` has a row for the op, else one equation under the op's own name. `jit`, loops,
branches and functions with a rule become one equation with a program in it, unless a derivative or
vmap inside of the function follows their values: then their ops stand in the program itself.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray, aval_of
from adjoint.base.errors import NotSupported
from adjoint.base.tree import unflatten
from adjoint.core.op import Op
from adjoint.core.tensor import Tensor, wrap
from adjoint.core.trace import LevelTensor, Trace, current_level
from adjoint.core.trace import make as level_tensor
from adjoint.jax import _to_lax
from adjoint.jax._array import ShapeDtypeStruct, as_array, is_array_like, make
from adjoint.jax._flat import Leaves, outputs
from adjoint.jax._jaxpr import (
    ClosedJaxpr,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    aval,
    eval_jaxpr,
)
from adjoint.jax._primitive import Primitive, known
from adjoint.jax._trace import RUN, traced
from adjoint.jax.tree_util import tree_map

F = Callable[..., Any]


class SymbolTensor(LevelTensor):
    """A value of the function that is being recorded: `var` in the program."""

    __slots__ = ()


class OpPrimitive(Primitive):
    """An op under its own name; `operands` has None at the places of arrays."""

    def __init__(self, op: Op, operands: Sequence[Any], many: bool) -> None:
        super().__init__(op.name)
        self.op, self.operands, self.multiple_results = op, operands, many

    def bind(self, *args: Any, **params: Any) -> Any:
        rest = iter(args)
        given = [as_array(next(rest)).tensor if o is _HOLE else o for o in self.operands]
        found = self.op.call(*given, **params)
        return [make(t) for t in found] if self.multiple_results else make(found)


_HOLE = object()


class CallPrimitive(Primitive):
    """An equation with programs in it; `run` is what it does."""

    multiple_results = True

    def __init__(self, name: str, run: F) -> None:
        super().__init__(name)
        self.run = run

    def bind(self, *args: Any, **params: Any) -> Any:
        return self.run(*args, **params)


class _Followed(Exception):
    """A derivative or vmap follows a value that an inner program closes over."""


class Recording(Trace):
    """One run of a function on symbols."""

    name = "make_jaxpr"

    def __init__(self) -> None:
        super().__init__()
        self.eqns: list[JaxprEqn] = []
        self.consts: dict[int, tuple[Var, Any]] = {}

    def __enter__(self) -> Recording:
        self.before, RUN.recording = RUN.recording, self
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        RUN.recording = self.before

    # ---------------------------------------------------------------- values
    def aval(self, t: Any) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype."""
        array = t.value.array
        return array.shape, array.dtype

    def symbol(self, var: Any) -> Any:
        """The tensor of a value."""
        return level_tensor(SymbolTensor, self, var=var, value=wrap(
            MetaArray(var.aval.shape, np.dtype(var.aval.dtype))))

    def new(self, shape: Any, dtype: Any, weak: bool = False) -> Any:
        """The tensor of a new value."""
        return self.symbol(Var(aval(shape, dtype, weak)))

    def atom(self, x: Any, dtype: Any = None) -> Any:
        """A tensor or number as what stands in an equation."""
        if isinstance(x, SymbolTensor) and x.trace is self:
            return x.__dict__["var"]
        if isinstance(x, Tensor) and (x.level or x._rg):
            if x._rg or not isinstance(x, SymbolTensor):
                raise _Followed
            self.check(x)
            return self._constant(x, x, x.trace.aval(x))
        value = x.array if isinstance(x, Tensor) else np.asarray(x)
        if value.ndim == 0 and not isinstance(value, MetaArray):
            value = value.astype(dtype or value.dtype)
            return Literal(value[()], aval((), value.dtype, weak=True))
        return self._constant(value, x if isinstance(x, Tensor) else wrap(value),
                              (value.shape, value.dtype))

    def bound(self, p: Primitive, ins: Sequence[Any], avals: Sequence[Any],
              params: Mapping[str, Any]) -> list[Any]:
        """The results of a program's own primitive."""
        return self.emit(p, [self.atom(t) for t in ins], [
            (tuple(a.shape), np.dtype(a.dtype), getattr(a, "weak_type", False)) for a in avals],
            params)

    def filled(self, shape: Any, value: Any, dtype: Any) -> Any:
        """The tensor of one value everywhere."""
        if not shape:
            return wrap(np.full(shape, value, dtype))
        t = self.lax("broadcast_in_dim", [np.asarray(value, dtype)], shape, dtype, shape=shape,
                     broadcast_dimensions=(), sharding=None)
        t.var.aval.weak_type = False
        return t

    def counted(self, size: int, dtype: Any) -> Any:
        """The tensor 0, 1, 2, ..."""
        return self.lax("iota", [], (size,), dtype, dtype=np.dtype(dtype), shape=(size,),
                        dimension=0, sharding=None)

    def _constant(self, key: Any, t: Any, kind: Any) -> Any:
        if isinstance(key, np.ndarray) and key.size > 1 and not any(key.strides):
            return self.filled(key.shape, key.flat[0], key.dtype).var
        if id(key) not in self.consts:
            self.consts[id(key)] = Var(aval(*kind)), (key, t)
        return self.consts[id(key)][0]

    def emit(self, primitive: Any, ins: Sequence[Any], outs: Sequence[tuple[Any, Any, bool]],
             params: Mapping[str, Any]) -> list[Any]:
        """The results of an equation, from their shapes, dtypes and weakness."""
        made = [self.new(*o) for o in outs]
        self.eqns.append(JaxprEqn(ins, [t.var for t in made], primitive, dict(params)))
        return made

    def lax(self, name: str, ins: Sequence[Any], out: Any, dtype: Any, /, **params: Any) -> Any:
        """The result of an equation of `jax.lax`: as weak as what it is made of."""
        primitive = known(f"{name}_p")
        if primitive is None:
            raise NotSupported(f"make_jaxpr: jax.lax has no {name} here")
        atoms = [self.atom(x, None if hasattr(x, "dtype") else dtype) for x in ins]
        weak = bool(atoms) and all([a.aval.weak_type for a in atoms])
        return self.emit(primitive, atoms, [(out, np.dtype(dtype), weak)], params)[0]

    # ---------------------------------------------------------------- ops
    def process(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """The op as equations: of the program inside, where that works on values of this one."""
        now = RUN.recording
        if now is not self and now.level > self.level and not now.follows([
                a for a in args if isinstance(a, Tensor)]):
            return now.process(op, args, attrs)
        avals = [None if a is None else aval_of(a.array if isinstance(a, Tensor) else a)
                 for a in args]
        made = op.infer(*avals, **attrs)
        many = isinstance(made, (tuple, list)) and not isinstance(made, Aval)
        outs = list(made) if many else [made]
        row = _to_lax.row(op)
        if row is not None and len(outs) == 1:
            found = row(self, op, args, attrs, outs[0])
            if found is not None:
                return (found,) if op.multi else found
        holes = [_HOLE if isinstance(a, (Tensor, np.ndarray)) else a for a in args]
        ins = [self.atom(a) for a in args if isinstance(a, (Tensor, np.ndarray))]
        made = self.emit(OpPrimitive(op, holes, op.multi), ins, [
            (o.shape, o.dtype, False) for o in outs], attrs)
        return tuple(made) if op.multi else made[0]

    def strip(self, t: Any) -> Any:
        return self.symbol(t.var) if isinstance(t, SymbolTensor) and t.trace is self else t

    detach = strip

    def held(self, t: Any) -> tuple[Any, ...]:
        return (t.value if isinstance(t, SymbolTensor) and t.trace is self else self.below(t),)

    def custom(self, cls: Any, args: tuple[Any, ...]) -> Any:
        raise NotSupported(f"make_jaxpr: {cls.__name__} is a Function of PyTorch's kind; use "
                           "jax.custom_vjp")

    def stopped(self, t: Any) -> Any:
        """`lax.stop_gradient` of a tensor that no derivative follows any more."""
        if type(t) is not SymbolTensor or self.follows((t,)):
            return t
        return self.lax("stop_gradient", [t], *self.aval(t))

    # ---------------------------------------------------------------- programs
    def record(self, f: F, kinds: Sequence[Any]) -> tuple[ClosedJaxpr, Any]:
        """The program of a function of tensors that gives `Leaves`, and those."""
        with self:
            ins = [self.new(k.shape, k.dtype, getattr(k, "weak_type", False)) for k in kinds]
            out = f(*ins)
            atoms = [self.atom(t) for t in out.tensors]
        for a, x in zip(atoms, out.arrays, strict=True):
            if type(a) is Var and not any(a is i.var for i in ins):
                a.aval.weak_type = getattr(x, "weak_type", False)
        read = {id(v) for e in self.eqns for v in e.invars} | {id(a) for a in atoms}
        for e in self.eqns:
            e.outvars = [v if id(v) in read else DropVar(v.aval) for v in e.outvars]
        held = list(self.consts.values())
        return ClosedJaxpr(Jaxpr([v for v, _ in held], [t.var for t in ins], atoms, self.eqns),
                           [make(t) for _, (_, t) in held]), out

    def follows(self, tensors: Sequence[Any]) -> bool:
        """Does something between this run and the call follow the values?"""
        return current_level() != self.level or any([t._rg for t in tensors])

    def inner(self, f: F, kinds: Sequence[Any]) -> tuple[ClosedJaxpr, Any, list[Any]]:
        """The program of a function that is called inside, what it gives, and the tensors that it
        closes over, which are its first arguments."""
        closed, out = Recording().record(f, kinds)
        j = closed.jaxpr
        extra = [c.tensor for c in closed.consts]
        return ClosedJaxpr(j.replace(constvars=[], invars=[*j.constvars, *j.invars])), out, extra

    def call(self, kind: str, run: F, key: str, f: F, given: Leaves, /, **params: Any) -> Any:
        """A call of `f`, a function of the tree `given`, as one equation; None where that cannot
        be."""
        if self.follows(given.tensors):
            return None

        def flat(*ts: Any) -> Any:
            with traced():
                return Leaves(f(given.tree(ts)), outputs(f, "jit"))
        try:
            closed, out, extra = self.inner(flat, given.arrays)
        except _Followed:
            return None
        ins = [self.atom(t) for t in [*extra, *given.tensors]]
        made = self.emit(CallPrimitive(kind, run), ins, [
            (v.shape, v.dtype, v.weak_type) for v in closed.out_avals], {**params, key: closed})
        return out.tree(made), closed

    def jit(self, name: str, f: F, given: Leaves) -> Any:
        """A call of a function that `jit` was called on; None where it cannot be one equation."""
        def run(*args: Any, jaxpr: Any, **_: Any) -> Any:
            return eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)
        return self.call("jit", run, "jaxpr", f, given, name=name)

    def ruled(self, kind: str, fun: Any, f: F, given: Leaves, **params: Any) -> Any:
        """A call of a function with a rule of its own."""
        def run(*args: Any, call_jaxpr: Any, **_: Any) -> Any:
            if len(args) != len(given.arrays):
                return eval_jaxpr(call_jaxpr.jaxpr, call_jaxpr.consts, *args)
            return Leaves(fun(*unflatten(list(args), given.spec))).arrays
        return self.call(kind, run, "call_jaxpr", f, given, name=fun.__name__,
                         symbolic_zeros=False, **params)

    def loop(self, body: F, state: Leaves, rows: Leaves, result: F, **params: Any) -> Any:
        """A scan as one equation: the tensors that it gives; None where that cannot be."""
        if self.follows([*state.tensors, *rows.tensors]):
            return None
        n, length = len(state.arrays), params["length"]

        def step(*ts: Any) -> Any:
            body(list(ts[:n]), list(ts[n:]))
            return Leaves(result())
        try:
            closed, _, extra = self.inner(step, [
                *[a.aval for a in state.arrays],
                *[aval(a.shape[1:], a.dtype, a.weak_type) for a in rows.arrays]])
        except _Followed:
            return None
        ins = [self.atom(t) for t in [*extra, *state.tensors, *rows.tensors]]
        outs = [((length, *v.shape) if i >= n else v.shape, v.dtype, v.weak_type)
                for i, v in enumerate(closed.out_avals)]
        made = self.emit(CallPrimitive("scan", _run_scan), ins, outs, {
            **params, "jaxpr": closed, "num_consts": len(extra), "num_carry": n})
        return made[:n], made[n:]

    def repeat(self, test: F, body: F, state: Leaves) -> Any:
        """A while loop as one equation: the tensors that it gives."""
        self.refuse("while_loop", state)
        kinds = [a.aval for a in state.arrays]
        cond, _, first = self.inner(lambda *ts: Leaves(make(test(list(ts)))), kinds)
        step, _, then = self.inner(lambda *ts: Leaves(state.tree(body(list(ts)))), kinds)
        return self.emit(CallPrimitive("while", _run_while), [
            self.atom(t) for t in [*first, *then, *state.tensors]], [
            (v.shape, v.dtype, v.weak_type) for v in step.out_avals], {
            "body_jaxpr": step, "body_nconsts": len(then), "cond_jaxpr": cond,
            "cond_nconsts": len(first)})

    def choose(self, index: Any, runs: Sequence[F], given: Leaves, outs: list[Any]) -> Any:
        """A choice of branches as one equation: the tensors that it gives."""
        self.refuse("cond", given)
        made = [Recording().record(lambda *ts, r=r: (r(*ts), outs[-1])[1],
                                   [a.aval for a in given.arrays])[0] for r in runs]
        extra = list({id(c.tensor): c.tensor for p in made for c in p.consts}.values())
        branches = []
        for p in made:
            own = {id(c.tensor): v for c, v in zip(p.consts, p.jaxpr.constvars, strict=True)}
            held = [own.get(id(t)) or Var(as_array(make(t)).aval) for t in extra]
            branches.append(ClosedJaxpr(p.jaxpr.replace(constvars=[],
                                                        invars=[*held, *p.jaxpr.invars])))
        return self.emit(CallPrimitive("cond", _run_cond), [
            self.atom(t) for t in [index, *extra, *given.tensors]], [
            (v.shape, v.dtype, v.weak_type) for v in branches[0].out_avals],
            {"branches": tuple(branches)})

    def refuse(self, what: str, given: Leaves) -> None:
        """NotSupported for what cannot stand in a program."""
        if self.follows(given.tensors):
            raise NotSupported(f"make_jaxpr: a {what} inside of a derivative or vmap has no "
                               "program here; make the program of the function itself")


def _run_scan(*args: Any, jaxpr: Any, num_consts: int, num_carry: int, length: Any, reverse: Any,
              **_: Any) -> list[Any]:
    from adjoint.jax import lax
    consts, n = args[:num_consts], num_carry

    def step(carry: Any, xs: Any) -> Any:
        found = eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *consts, *carry, *xs)
        return found[:n], found[n:]
    last, ys = lax.scan(step, list(args[num_consts:num_consts + n]), list(args[num_consts + n:]),
                        length, reverse)
    return [*last, *ys]


def _run_while(*args: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int
               ) -> Any:
    from adjoint.jax import lax
    a, b = cond_nconsts, cond_nconsts + body_nconsts
    return lax.while_loop(
        lambda s: eval_jaxpr(cond_jaxpr.jaxpr, cond_jaxpr.consts, *args[:a], *s)[0],
        lambda s: eval_jaxpr(body_jaxpr.jaxpr, body_jaxpr.consts, *args[a:b], *s), list(args[b:]))


def _run_cond(index: Any, *args: Any, branches: Any, **_: Any) -> Any:
    from adjoint.jax import lax
    return lax.switch(index, [lambda *xs, b=b: eval_jaxpr(b.jaxpr, b.consts, *xs)
                              for b in branches], *args)


def _kind(x: Any) -> Any:
    """A leaf as a shape and a dtype."""
    if not is_array_like(x) and hasattr(x, "shape"):
        return ShapeDtypeStruct(x.shape, x.dtype, weak_type=getattr(x, "weak_type", False))
    return as_array(x).aval


def make_jaxpr(fun: F, static_argnums: Any = (), axis_env: Any = None, return_shape: bool = False
               ) -> F:
    """A function that gives the program of `fun` for arguments of its arguments' types.

    >>> from adjoint import jax
    >>> jax.make_jaxpr(lambda x: jax.numpy.sin(x) * 2)(1.0)
    { lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = mul b 2.0:f32[] in (c,) }
    """
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}: make_jaxpr takes a function")
    nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @wraps(fun, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        static = {i % len(args) for i in nums}
        moving = [a for i, a in enumerate(args) if i not in static]
        given = _Given((moving, kwargs))

        def flat(*ts: Any) -> Any:
            with traced():
                given_args, named = given.tree(ts)
                rest = iter(given_args)
                full = [a if i in static else next(rest) for i, a in enumerate(args)]
                return Leaves(fun(*full, **named), outputs(fun, "make_jaxpr"))
        closed, out = Recording().record(flat, given.kinds)
        if not return_shape:
            return closed
        shapes = [ShapeDtypeStruct(v.shape, v.dtype, weak_type=v.weak_type)
                  for v in closed.out_avals]
        return closed, unflatten(shapes, out.spec)
    run.__name__ = f"make_jaxpr({getattr(fun, '__name__', 'function')})"
    return run


class _Given(Leaves):
    """Arguments, of which only the types count."""

    def __init__(self, tree: Any) -> None:
        self.kinds: list[Any] = []

        def leaf(x: Any) -> Any:
            kind = _kind(x)
            self.kinds.append(kind)
            return make(wrap(MetaArray(kind.shape, np.dtype(kind.dtype))), kind.weak_type)
        super().__init__(tree_map(leaf, tree))


__all__ = ["Recording", "make_jaxpr"]
