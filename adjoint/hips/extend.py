"""Primitives with rules of their own, and vector spaces of values.

A primitive is plain-array code. `defvjp` and `defjvp` say what its derivatives are; the rules are
functions of arrays and boxes, so derivatives of any order come from them.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, update_wrapper
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.base.tree import flatten, unflatten
from adjoint.core.tensor import Tensor, wrap
from adjoint.func.rules import Rule, call_rule, transpose, zeros_like_value
from adjoint.hips.box import (
    OVERRIDES,
    RECORD,
    UNRECORDED,
    Box,
    getval,
    holds_box,
    lower,
    plain,
    raised,
)
from adjoint.hips.graph import (
    JVPNode,
    Node,
    VJPNode,
    notrace_primitives,
    primitive_jvps,
    primitive_vjps,
)
from adjoint.hips.space import SparseObject, VSpace, dense, vspace

F = Callable[..., Any]


class primitive:
    """Plain-array code that transforms call as one operation: it sees arrays, never boxes.

    >>> import numpy as np
    >>> from adjoint.hips import grad
    >>> @primitive
    ... def cube(x):
    ...     return x ** 3
    >>> defvjp(cube, lambda ans, x: lambda g: g * 3 * x ** 2)
    >>> float(grad(grad(cube))(2.0))
    12.0
    """

    __name__: str

    def __init__(self, fun: F) -> None:
        update_wrapper(self, fun, updated=())
        self.fun = fun
        self.vjp: Any = None       # (argnums, ans, args, kwargs) -> g -> cotangents
        self.jvp: Any = None       # (argnums, tangents, ans, args, kwargs) -> tangent

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not holds_box(args):
            return self.fun(*args, **{k: getval(v) for k, v in kwargs.items()})
        if RECORD:
            found = RECORD[0](self, args, kwargs)
            if found is not UNRECORDED:
                return found
        call = _Call(self, args, kwargs)
        return call.answer(call_rule(call, call.tensors))

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else lambda *args, **kwargs: self(owner, *args, **kwargs)

    def lacks(self, what: str, argnums: Sequence[int]) -> NotSupported:
        """The error where a rule is needed that is not there."""
        return NotSupported(f"{what} of {self.__name__} wrt argnums {tuple(argnums)} not defined: "
                            f"give it with def{what.lower()}({self.__name__}, ...)")


def _conj(x: Any) -> Any:
    """Cotangents follow df/dx + i df/dy below, its conjugate above."""
    return (x.conj_physical() if x.is_complex() else x) if isinstance(x, Tensor) else np.conj(x)


class _Call(Rule):
    """One call of a primitive as a function of the tensors among its arguments."""

    native = False

    def __init__(self, owner: primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(self._run, self._push, self._pull)
        self.owner, self.kwargs = owner, {k: getval(v) for k, v in kwargs.items()}
        self.leaves, self.spec = flatten(args)
        self.places = [i for i, x in enumerate(self.leaves) if isinstance(x, Box)]
        self.tensors = [self.leaves[i].tensor for i in self.places]
        self.argnums = [i for i, a in enumerate(args) if holds_box(a)]
        self.out_spec: Any = None

    def fill(self, values: Sequence[Any], rest: Any = None) -> tuple[Any, ...]:
        """The arguments with these values in the places of the boxes."""
        full = list(self.leaves) if rest is None else [
            x if isinstance(x, Box) else rest(x) for x in self.leaves]
        for i, v in zip(self.places, values, strict=True):
            full[i] = v
        return tuple(unflatten(full, self.spec))

    def answer(self, outs: Sequence[Any]) -> Any:
        """The output from its leaves, as boxes or arrays."""
        return raised(unflatten(list(outs), self.out_spec))

    def _run(self, *ts: Any) -> tuple[Any, ...]:
        out = dense(self.owner.fun(*self.fill([plain(t) for t in ts]), **self.kwargs))
        leaves, self.out_spec = flatten(out)
        return tuple(wrap(np.array(o)) for o in leaves)

    def _pull(self, primals: Any, cts: Any) -> list[Any]:
        if self.owner.vjp is None:
            raise self.owner.lacks("VJP", self.argnums)
        ans = self.answer(call_rule(self, primals))
        args = self.fill([raised(p) for p in primals])
        g = raised(unflatten([_conj(c) for c in cts], self.out_spec))
        found = self.owner.vjp(self.argnums, ans, args, self.kwargs)(g)
        full: list[Any] = [None] * len(args)
        for i, ct in zip(self.argnums, found, strict=True):
            full[i] = dense(ct)
        flat: list[Any] = []
        for ct, spec in zip(full, self.spec.children, strict=True):
            flat += [None] * spec.leaves if ct is None else flatten(ct)[0]
        return [zeros_like_value(p) if flat[i] is None else _fit(_conj(lower(flat[i])), p)
                for i, p in zip(self.places, primals, strict=True)]

    def _push(self, primals: Any, tangents: Any) -> Any:
        if self.owner.jvp is None:
            if self.owner.vjp is None:
                raise self.owner.lacks("JVP", self.argnums)
            outs = call_rule(self, primals)
            return transpose(lambda *cts: tuple(self._pull(primals, cts)),
                             [zeros_like_value(o) for o in outs], tangents)
        ans = self.answer(call_rule(self, primals))
        leaves = flatten(lower(ans))[0]
        args = self.fill([raised(p) for p in primals])
        moved = self.fill([raised(t) for t in tangents], np.zeros_like)
        found = self.owner.jvp(self.argnums, [moved[i] for i in self.argnums], ans, args,
                               self.kwargs)
        return [_fit(t, o if isinstance(o, Tensor) else wrap(np.asarray(o)))
                for t, o in zip(flatten(found)[0], leaves, strict=True)]


def _fit(value: Any, like: Any) -> Any:
    """What a rule returned, in the dtype of the tensor it belongs to."""
    value = lower(value)
    t = value if isinstance(value, Tensor) else wrap(np.asarray(value))
    kind = like.array.dtype
    if t.array.dtype == kind:
        return t
    return (t.real if t.is_complex() and kind.kind == "f" else t).to(kind)


# ------------------------------------------------------------------ rules
def _ruled(fun: Any) -> Any:
    """The primitive that rules belong to. A function of `hips.numpy` becomes one, which keeps the
    rules that it had until others are given."""
    if isinstance(fun, primitive):
        return fun
    if not hasattr(fun, "own"):
        raise ArgumentError(f"{getattr(fun, '__name__', fun)} is not a primitive: decorate it")
    if fun not in OVERRIDES:
        OVERRIDES[fun] = made = primitive(fun.__wrapped__)
        made.vjp, made.jvp = primitive_vjps[fun.own], primitive_jvps[fun.own]
    return OVERRIDES[fun]


def _by_argnum(rules: Sequence[Any], argnums: Any) -> dict[int, Any]:
    return dict(zip(argnums if argnums is not None else range(len(rules)), rules, strict=False))


def defvjp(fun: Any, *vjpmakers: Any, argnums: Any = None) -> None:
    """One rule per argument: `maker(ans, *args, **kwargs)` gives the function from the cotangent of
    the answer to that of the argument. None: no derivative flows into the argument.

    argnums  the positions that the rules belong to (default: in order)
    """
    fun, rules = _ruled(fun), _by_argnum(vjpmakers, argnums)

    def vjp(nums: Sequence[int], ans: Any, args: Any, kwargs: Any) -> F:
        if any(i not in rules for i in nums):
            raise fun.lacks("VJP", nums)
        pulls = [None if rules[i] is None else rules[i](ans, *args, **kwargs) for i in nums]
        return lambda g: [None if pull is None else pull(g) for pull in pulls]
    fun.vjp = vjp


def defvjp_argnum(fun: Any, vjpmaker: F) -> None:
    """One rule for all arguments: `vjpmaker(argnum, ans, args, kwargs)` gives the pull."""
    def vjp(nums: Sequence[int], *rest: Any) -> F:
        pulls = [vjpmaker(i, *rest) for i in nums]
        return lambda g: [pull(g) for pull in pulls]
    _ruled(fun).vjp = vjp


def defvjp_argnums(fun: Any, vjpmaker: F) -> None:
    """One rule for all arguments at once: `vjpmaker(argnums, ans, args, kwargs)` gives a pull whose
    result has one entry per position in argnums."""
    _ruled(fun).vjp = lambda nums, *rest: vjpmaker(tuple(nums), *rest)


def _sum(parts: Sequence[Any], ans: Any) -> Any:
    """The sum of trees of tangents; zeros like the answer where there is none."""
    found = [flatten(p)[0] for p in parts if p is not None]
    leaves, spec = flatten(ans)
    if not found:
        return unflatten([np.zeros_like(getval(x)) for x in leaves], spec)
    return unflatten([sum(column[1:], column[0]) for column in zip(*found, strict=True)], spec)


def defjvp(fun: Any, *jvpfuns: Any, argnums: Any = None) -> None:
    """One rule per argument: `rule(g, ans, *args, **kwargs)` is the answer's tangent for the
    argument's tangent g. "same": the function itself with g in the argument's place; None: zero."""
    fun, rules = _ruled(fun), _by_argnum(jvpfuns, argnums)

    def one(i: int, g: Any, ans: Any, args: Any, kwargs: Any) -> Any:
        if i not in rules:
            raise fun.lacks("JVP", [i])
        if isinstance(rules[i], str):
            return fun(*args[:i], g, *args[i + 1:], **kwargs)
        return None if rules[i] is None else rules[i](g, ans, *args, **kwargs)
    defjvp_argnum(fun, one)


def defjvp_argnum(fun: Any, jvpmaker: F) -> None:
    """One rule for all arguments: `jvpmaker(argnum, g, ans, args, kwargs)` is the tangent."""
    _ruled(fun).jvp = lambda nums, gs, ans, args, kwargs: _sum(
        [jvpmaker(i, g, ans, args, kwargs) for i, g in zip(nums, gs, strict=True)], ans)


def defjvp_argnums(fun: Any, jvpmaker: F) -> None:
    """One rule for all arguments at once: `jvpmaker(argnums, gs, ans, args, kwargs)`."""
    _ruled(fun).jvp = lambda nums, gs, *rest: jvpmaker(tuple(nums), gs, *rest)


def def_linear(fun: Any) -> None:
    """The function is linear in every argument: its tangent is its value at the tangent."""
    defjvp_argnum(fun, lambda i, g, ans, args, kwargs: fun(*args[:i], g, *args[i + 1:], **kwargs))


def unruled(theirs: Any) -> F:
    """The `__getattr__` of a module that hands on the names of another: its functions refuse boxes
    where a derivative is asked for, by name, rather than take them for objects. Ufuncs and
    classes are as they are."""
    @cache
    def find(name: str) -> Any:
        found = getattr(theirs(), name)
        as_it_is = isinstance(found, (type, np.ufunc)) or not callable(found)
        return found if as_it_is else primitive(found)

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return find(name)
    return get


def notrace_primitive(fun: F) -> F:
    """Plain-array code whose result no derivative flows through."""
    def run(*args: Any, **kwargs: Any) -> Any:
        return fun(*getval(args), **getval(kwargs))
    return update_wrapper(run, fun, updated=())


def register_notrace(node_type: type, fun: Any) -> None:
    """No derivative flows through a primitive in the mode that is named.

    >>> rounded = primitive(lambda x: x // 1)
    >>> register_notrace(VJPNode, rounded)
    >>> from adjoint.hips import grad
    >>> float(grad(lambda x: x * rounded(x))(2.5))
    2.0
    """
    if not (isinstance(node_type, type) and issubclass(node_type, Node)):
        raise ArgumentError(f"register_notrace: {node_type} is not a class of nodes")
    notrace_primitives[node_type].add(fun)
    fun = _ruled(fun)
    if issubclass(node_type, VJPNode):
        fun.vjp = lambda nums, *rest: lambda g: [None] * len(nums)
    elif issubclass(node_type, JVPNode):
        fun.jvp = lambda nums, gs, ans, args, kwargs: _sum([], ans)


__all__ = ["Box", "JVPNode", "SparseObject", "VJPNode", "VSpace", "def_linear", "defjvp",
           "defjvp_argnum", "defjvp_argnums", "defvjp", "defvjp_argnum", "defvjp_argnums",
           "notrace_primitive", "primitive", "register_notrace", "vspace"]
