"""`custom_jvp` and `custom_vjp` on arrays, over the rules of `adjoint.func`."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, NamedTuple

import numpy as np

from adjoint import func as _func
from adjoint.base.dtypes import is_inexact
from adjoint.base.tree import beside, unflatten
from adjoint.core.tensor import wrap
from adjoint.jax._array import Array, as_array, describe, is_traced, make, moves
from adjoint.jax._flat import FLOAT0, Leaves, conjugate, is_key, leaf, zeros
from adjoint.jax._trace import RUN, pulling
from adjoint.jax.errors import UnexpectedTracerError
from adjoint.jax.tree_util import (
    PyTreeDef,
    flat,
    keystr,
    split,
    tree_leaves_with_path,
    tree_map,
)

F = Callable[..., Any]


def _positions(fun: F, argnums: Sequence[int], argnames: Sequence[str]) -> tuple[int, ...]:
    """Positions of arguments given by number or name."""
    nums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not argnames:
        return tuple(sorted(nums))
    order = list(inspect.signature(fun).parameters)
    names = (argnames,) if isinstance(argnames, str) else argnames
    return tuple(sorted({*nums, *(order.index(n) for n in names)}))


class _Ruled:
    """A function with a rule: what the two kinds share."""

    __name__: str

    def __init__(self, fun: F, nondiff_argnums: Sequence[int] = (),
                 nondiff_argnames: Sequence[str] = ()) -> None:
        update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = _positions(fun, nondiff_argnums, nondiff_argnames)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        from functools import partial
        return self if instance is None else partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _bound(self, args: Any, kwargs: Any) -> tuple[Any, ...]:
        """All arguments in their positions, defaults among them."""
        try:
            signature = inspect.signature(self.fun)
        except (TypeError, ValueError):
            return tuple(args)
        try:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            if bound.kwargs:
                raise TypeError("The following keyword arguments could not be resolved to "
                                f"positions: {', '.join(bound.kwargs)}")
        except TypeError as error:
            raise TypeError(f"The input arguments to the {type(self).__name__}-decorated function "
                            f"{self.__name__} could not be resolved to positional-only arguments. "
                            f"Binding failed with the error:\n{error}") from None
        return bound.args


class SymbolicZero:
    """A tangent or cotangent that is zero whatever the values are, for rules that ask to see it."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array that it stands for."""
        return tuple(self.aval.shape)

    @property
    def dtype(self) -> Any:
        """Of the array that it stands for."""
        return self.aval.dtype

    @staticmethod
    def from_primal_value(value: Any) -> SymbolicZero:
        """The zero of the tangents of a value."""
        return SymbolicZero(as_array(value).aval)

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval})"


class CustomVJPPrimal(NamedTuple):
    """An argument of a forward rule that asks for symbolic zeros.

    perturbed  is a derivative taken of it?
    """

    value: Any
    perturbed: bool


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangent of a value; symbolic_zeros: as a `SymbolicZero`."""
    x = as_array(val)
    return SymbolicZero(x.aval) if symbolic_zeros else make(zeros(x), x.weak_type)


def _arguments_only(name: str, fun: Any, call: _Called) -> None:
    """UnexpectedTracerError for a function with a rule, or for a rule, that closes over a value of
    a derivative, which would get none."""
    if not any(map(moves, call.given.tensors)):
        return
    cells = getattr(fun, "__closure__", None) or ()
    for word, cell in zip(fun.__code__.co_freevars if cells else (), cells, strict=True):
        try:
            x = cell.cell_contents
        except ValueError:                              # (it is empty)
            continue
        if type(x) is Array and moves(x.tensor):
            raise UnexpectedTracerError(
                f"{name} has a rule of its own and closes over {word!r}, a traced array with shape "
                f"{describe(x)} that a derivative is taken of: its rule covers arguments alone, so "
                f"{word!r} would get no derivative; pass it as an argument")


def _no_tracers(args: Sequence[Any], nums: Sequence[int]) -> None:
    """UnexpectedTracerError for traced values where no derivative is to be taken."""
    for i in nums:
        if any([type(x) is Array and is_traced(x) for x in flat(args[i])[0]]):
            raise UnexpectedTracerError(
                "Found a JAX Tracer object passed as an argument to a custom_vjp function in a "
                "position indicated by nondiff_argnums as non-differentiable. Tracers cannot be "
                "passed as non-differentiable arguments to custom_vjp functions; instead, "
                "nondiff_argnums should only be used for arguments that can't be or contain JAX "
                "tracers, e.g. function-valued arguments. In particular, array-valued arguments "
                "should typically not be indicated as nondiff_argnums.")


def _stopped(x: Any) -> Any:
    """A leaf without a derivative."""
    return make(x.tensor.detach(), x.weak_type) if type(x) is Array and moves(x.tensor) else x


class _Called:
    """One call: the moving arguments as tensors, the others beside them."""

    def __init__(self, args: Sequence[Any], fixed: Sequence[int]) -> None:
        self.args, self.fixed = tuple(args), fixed
        self.given = Leaves(tuple(a for i, a in enumerate(args) if i not in fixed))
        self.out: Leaves

    @property
    def constants(self) -> tuple[Any, ...]:
        """The arguments that no derivative is taken of."""
        return tuple(self.args[i] for i in self.fixed)

    def all(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """All arguments in their order."""
        rest = iter(self.given.tree(tensors))
        return tuple(a if i in self.fixed else next(rest) for i, a in enumerate(self.args))

    def outputs(self, found: Any) -> tuple[Any, ...]:
        """An output as tensors; its structure is kept."""
        self.out = Leaves(found)
        return tuple(self.out.tensors)


def _tangent(t: Any, like: Any) -> Any:
    """A tangent or cotangent for a rule to read; float0 zeros for an integer."""
    if is_key(like) or not is_inexact(like.dtype):
        return np.zeros(like.shape, FLOAT0)
    return make(t, like.weak_type)


def _recorded(kind: str, f: _Ruled, call: _Called, **rules: Any) -> Any:
    """The call as an equation of the program that is being recorded, or None."""
    if RUN.recording is None or f.nondiff_argnums:
        return None
    return RUN.recording.ruled(kind, f, lambda tree: f.fun(*tree), call.given, **rules)


class custom_jvp(_Ruled):
    """A function whose forward rule is written by hand: `f.defjvp(rule)`, or `f.defjvps(...)`.

    >>> from adjoint import jax
    >>> @jax.custom_jvp
    ... def cube(x):
    ...     return x ** 3
    >>> _ = cube.defjvp(lambda x, t: (cube(*x), 3 * x[0] ** 2 * t[0]))
    >>> jax.grad(cube)(2.0)
    Array(12., dtype=float32, weak_type=True)
    """

    rule: Any = None
    symbolic = False

    def defjvp(self, jvp: F, symbolic_zeros: bool = False) -> F:
        """Set the rule: `jvp(*nondiff, primals, tangents) -> (output, tangent)`."""
        self.rule, self.symbolic = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: F | None) -> None:
        """One rule per argument: `rule(tangent, output, *primals)`; None where it is zero."""
        if self.nondiff_argnums:
            raise TypeError("Can't use ``defjvps`` with ``nondiff_argnums``.")

        def whole(primals: Any, tangents: Any) -> Any:
            out = self(*primals)
            shares = [r(t, out, *primals) for r, t in zip(jvps, tangents, strict=True) if r]
            zero = tree_map(lambda x: as_array(x) * 0, out)
            total = shares[0] if shares else zero
            for s in shares[1:]:
                total = tree_map(lambda a, b: a + b, total, s)
            return out, total
        self.rule = whole

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.rule is None:
            raise AttributeError(f"No JVP defined for custom_jvp function {self.__name__} using "
                                 "defjvp.")
        bound = [tree_map(_stopped, a) if i in self.nondiff_argnums else a
                 for i, a in enumerate(self._bound(args, kwargs))]
        call = _Called(bound, self.nondiff_argnums)
        for part in (self.fun, self.rule):
            _arguments_only(self.__name__, part, call)
        made = _recorded("custom_jvp_call", self, call, jvp=self.rule)
        if made is not None:
            return made[0]
        run = _func.custom_jvp(lambda *ts: call.outputs(self.fun(*call.all(ts))))

        def rule(primals: Any, tangents: Any) -> Any:
            arrays = call.given.like.back(primals)
            ts = [_tangent(t, a) for t, a in zip(tangents, arrays, strict=True)]
            if self.symbolic:
                ts = [t if moves(x) else SymbolicZero(a.aval)
                      for t, a, x in zip(ts, arrays, call.given.tensors, strict=True)]
            spec = call.given.spec
            with pulling():
                found = self.rule(*call.constants, unflatten(arrays, spec), unflatten(ts, spec))
                return self._checked(found, call)
        run.defjvp(rule)
        found = run(*call.given.tensors)
        return call.out.tree(found)

    def _checked(self, found: Any, call: _Called) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        name = getattr(self.rule, "__name__", "rule")
        if not isinstance(found, (list, tuple)) or len(found) != 2:
            raise TypeError(f"Custom JVP rule {name} for function {self.__name__} must produce a "
                            "pair (list or tuple of length two) representing primal and tangent "
                            f"outputs, but got {found!r:.200}.")
        out = Leaves(found[0])
        ts, spec = flat(found[1])
        if spec != out.spec:
            raise TypeError(f"Custom JVP rule {name} for function {self.__name__} must produce "
                            "primal and tangent outputs with equal container (pytree) structures, "
                            f"but got {out.treedef} and {PyTreeDef(spec)} respectively.")
        if hasattr(call, "out") and call.out.spec != out.spec:
            raise TypeError(f"Custom JVP rule {name} for function {self.__name__} must produce a "
                            "primal output of the function's own container (pytree) structure, "
                            f"{call.out.treedef}, but got {out.treedef}.")
        made = []
        for t, o in zip(ts, out.arrays, strict=True):
            if getattr(t, "dtype", None) == FLOAT0 or type(t) is SymbolicZero:
                made.append(wrap(np.zeros(o.shape, np.float32)))
                continue
            x = leaf(t)
            if x.shape != o.shape or (x.dtype != o.dtype and is_inexact(o.dtype)):
                raise TypeError("Custom JVP rule must produce primal and tangent outputs with "
                                f"corresponding shapes and dtypes. Expected {describe(o)} "
                                f"(tangent type of {describe(o)}) but got {describe(x)}.")
            made.append(x.tensor)
        return tuple(out.tensors), tuple(made)


class custom_vjp(_Ruled):
    """A function whose reverse rule is written by hand: `f.defvjp(fwd, bwd)`.

    Unlike JAX's, it can be pushed forward too: the rule, linear in the cotangent, is transposed.

    >>> from adjoint import jax
    >>> @jax.custom_vjp
    ... def double(x):
    ...     return 2 * x
    >>> double.defvjp(lambda x: (double(x), None), lambda _, ct: (10 * ct,))
    >>> jax.grad(double)(1.0)
    Array(10., dtype=float32, weak_type=True)
    """

    fwd: Any = None
    bwd: Any = None
    symbolic = False

    def defvjp(self, fwd: F, bwd: F, symbolic_zeros: bool = False, optimize_remat: bool = False
               ) -> None:
        """Set the rule: `fwd(*args) -> (output, residuals)` and `bwd(*nondiff, residuals, ct) ->`
        a tuple with a cotangent per differentiable argument."""
        self.fwd, self.bwd, self.symbolic = fwd, bwd, symbolic_zeros

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.fwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {self.__name__} using "
                                 "defvjp.")
        bound = self._bound(args, kwargs)
        _no_tracers(bound, self.nondiff_argnums)
        call = _Called(bound, self.nondiff_argnums)
        for part in (self.fun, self.fwd, self.bwd):
            _arguments_only(self.__name__, part, call)
        made = _recorded("custom_vjp_call", self, call, fwd=self.fwd, bwd=self.bwd)
        if made is not None:
            return made[0]
        run = _func.custom_vjp(lambda *ts: call.outputs(self.fun(*call.all(ts))))

        def fwd(*ts: Any) -> Any:
            found = self.fwd(*self._seen(call, ts))
            if not isinstance(found, (list, tuple)) or len(found) != 2:
                raise TypeError(_no_pair(self, found))
            leaves, spec = flat(found[1])
            moving = tuple(x.tensor if type(x) is Array else None for x in leaves)
            return call.outputs(found[0]), (moving, _Residuals(leaves, spec))
        run.defvjp(fwd, lambda res, cts: self._pulled(call, res, cts))
        run.symbolic_zeros = self.symbolic
        found = run(*call.given.tensors)
        return call.out.tree(found)

    def _seen(self, call: _Called, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments as the forward rule sees them."""
        full = call.all(tensors)
        if not self.symbolic:
            return full
        follows = iter(map(moves, call.given.tensors))
        return tuple(a if i in call.fixed else tree_map(
            lambda x: CustomVJPPrimal(x, next(follows)), a) for i, a in enumerate(full))

    def _pulled(self, call: _Called, res: Any, cts: Any) -> Any:
        residuals = res[1].filled(res[0])
        arrays = [SymbolicZero(o.aval) if c is None and self.symbolic else
                  _tangent(zeros(o) if c is None else conjugate(c), o)
                  for c, o in zip(cts, call.out.arrays, strict=True)]
        with pulling():
            found = self.bwd(*call.constants, residuals, unflatten(arrays, call.out.spec))
            return _cotangents(call.given, found)


def _no_pair(f: custom_vjp, found: Any) -> str:
    """What a forward rule that gives no pair is told."""
    rule = getattr(f.fwd, "__name__", "fwd")
    return (f"Custom VJP fwd rule {rule} for function {f.__name__} must produce a pair (list or "
            "tuple of length two) where the first element represents the primal output (equal to "
            f"those of the custom_vjp-decorated function {f.__name__}) and the second element "
            "represents residuals (i.e. values stored from the forward pass for use on the "
            f"backward pass), but instead of a pair the fwd rule {rule} produced {found}.")


class _Residuals:
    """What a rule keeps beside tensors, and the tree that all of it is in."""

    def __init__(self, leaves: Sequence[Any], spec: Any) -> None:
        self.spec = spec
        self.leaves = [None if type(x) is Array else x for x in leaves]
        self.weak = [type(x) is Array and x.weak_type for x in leaves]

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The tree, with these tensors' arrays."""
        return unflatten([x if t is None else make(t, w) for x, t, w in zip(
            self.leaves, tensors, self.weak, strict=True)], self.spec)


def _place(given: Leaves, k: int) -> str:
    """Where leaf `k` of the arguments is, as `[0]['w']`."""
    return keystr(tree_leaves_with_path(given.tree(given.tensors))[k][0])


def _cotangents(given: Leaves, found: Any) -> tuple[Any, ...]:
    """The cotangents that a rule gave, one per leaf of the arguments; None is zero."""
    parts = None
    if isinstance(found, (tuple, list)) and len(found) == len(given.spec.children):
        parts = [beside(ct, s, split) for ct, s in zip(found, given.spec.children, strict=True)]
    if parts is None or any(p is None for p in parts):
        raise TypeError("Custom VJP bwd rule must produce an output with the same container "
                        "(pytree) structure as the args tuple of the primal function, and in "
                        "particular must produce a tuple of length equal to the number of "
                        "arguments to the primal function, but got bwd output structure "
                        f"{PyTreeDef(flat(found)[1])} for primal input structure {given.treedef}.")
    out = [x for part in parts for x in part or ()]
    made: list[Any] = []
    for c, a in zip(out, given.arrays, strict=True):
        if c is None or type(c) is SymbolicZero or is_key(a) or not is_inexact(a.dtype):
            made.append(None)
            continue
        x = leaf(c)
        if x.shape != a.shape:
            raise ValueError("Custom VJP bwd rule must produce an output with the same type as the "
                             "args tuple of the primal function, but at output"
                             f"{_place(given, len(made))} the bwd rule produced an output of "
                             f"type {describe(x)} corresponding to an input of type "
                             f"{describe(a)}, so the shapes do not match")
        made.append(conjugate(x.tensor if x.dtype == a.dtype else x.tensor.to(a.dtype)))
    return tuple(made)


def custom_gradient(fun: F) -> Any:
    """`fun(*args) -> (value, pull)` as a function with that pull-back."""
    @custom_vjp
    def wrapped(*args: Any) -> Any:
        value, _ = fun(*args)
        return value
    def fwd(*args: Any) -> Any:
        return wrapped.fun(*args), args

    def bwd(args: Any, ct: Any) -> Any:
        found = fun(*args)[1](ct)
        return found if isinstance(found, tuple) else (found,)
    wrapped.defvjp(fwd, bwd)
    return wrapped


def linear_call(fun: F, fun_transpose: F, residual_args: Any, linear_args: Any) -> Any:
    """`fun(residual_args, linear_args)`, linear in the second, with `fun_transpose(residual_args,
    ct)` as its transpose.

    >>> from adjoint import jax
    >>> from adjoint.jax.custom_derivatives import linear_call
    >>> jax.grad(lambda x: linear_call(lambda r, v: v / r, lambda r, ct: ct / r, 4.0, x))(1.0)
    Array(0.25, dtype=float32, weak_type=True)
    """
    kept = Leaves(residual_args)
    if any(map(moves, kept.tensors)):
        raise NotImplementedError("linear_call: a derivative in residual_args; it is linear in "
                                  "linear_args alone")

    @custom_vjp
    def run(linear: Any) -> Any:
        return fun(residual_args, linear)
    run.defvjp(lambda linear: (fun(residual_args, linear), None),
               lambda _, ct: (fun_transpose(residual_args, ct),))
    return run(linear_args)


def closure_convert(fun: F, *example_args: Any) -> Any:
    """(fun, []): a function's closure is followed as it is, and needs no arguments of its own."""
    return (lambda *args: fun(*args)), []
