"""`jax.extend.core.Primitive`: an operation that a program names, and gives rules to.

    bind ─> impl                          values that nothing follows
            primitive_jvps[p]             forward mode; reverse mode is the transpose of that rule
            primitive_transposes[p]       in the transpose, where a tangent comes in
            primitive_batchers[p]         vmap, on the values below it

Under `jit` the function that was registered as the lowering runs, or `impl`, with values.
"""
from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np

from adjoint import func as _func
from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import is_inexact
from adjoint.core.tensor import Port, edge_of, wrap
from adjoint.func.reverse import Pull
from adjoint.func.rules import Rule, call_rule, transpose
from adjoint.jax._array import (
    Array,
    ShapedArray,
    as_array,
    constant,
    has_no_values,
    is_array_like,
    is_traced,
    make,
)
from adjoint.jax._flat import FLOAT0, conjugate
from adjoint.jax._trace import RUN, in_the_open

F = Callable[..., Any]
JVPS: dict[Any, F] = {}
TRANSPOSES: dict[Any, F] = {}
BATCHERS: dict[Any, F] = {}
FANCY_BATCHERS: dict[Any, F] = {}
LOWERINGS: dict[Any, Any] = {}


class Zero:
    """A tangent or cotangent that is zero: its shape and dtype."""

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    @staticmethod
    def from_primal_value(x: Any) -> Zero:
        """The zero tangent of a value."""
        return Zero(as_array(x).aval)

    def instantiate(self) -> Any:
        """An array of zeros."""
        return instantiate_zeros(self)

    def __repr__(self) -> str:
        return f"Zero({self.aval.str_short()})"


class UndefinedPrimal:
    """The argument of a transpose rule that the operation is linear in."""

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"UndefinedPrimal({self.aval})"


def instantiate_zeros(t: Any) -> Any:
    """The tangent, an array of zeros for a `Zero`."""
    if type(t) is not Zero:
        return t
    return make(wrap(np.zeros(t.aval.shape, t.aval.dtype)), getattr(t.aval, "weak_type", False))


class _Linear(threading.local):
    """The tangents of the rule that is being transposed, as nodes."""

    nodes: frozenset[Any] = frozenset()


_STATE = _Linear()


@contextlib.contextmanager
def _tangents(ts: Sequence[Any]) -> Iterator[None]:
    before = _STATE.nodes
    _STATE.nodes = before | {_node(e) for e in map(edge_of, ts) if e is not None}
    try:
        yield
    finally:
        _STATE.nodes = before


def _node(edge: Any) -> Any:
    return edge.node if type(edge) is Port else edge


def _is_linear(t: Any) -> bool:
    """Does a tensor come from a tangent of the rule that is being transposed?"""
    if not _STATE.nodes:
        return False
    while True:
        stack, seen = [_node(edge_of(t))] if t._rg else [], set()
        while stack:
            node = stack.pop()
            if node in _STATE.nodes:
                return True
            if node not in seen:
                seen.add(node)
                stack.extend(_node(e) for e in node.edges if e is not None)
        if not t.level:
            return False
        t = t.value


# ------------------------------------------------------------------ a primitive
class Primitive:
    """An operation with rules: `p = Primitive("name")`, `p.def_impl(f)`, `p.bind(x, option=1)`.

    >>> from adjoint.jax.extend.core import Primitive
    >>> double = Primitive("double")
    >>> _ = double.def_impl(lambda x: 2 * x)
    >>> double.bind(3.0)
    6.0
    """

    multiple_results = False
    call_primitive = map_primitive = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.impl: F = self._no_impl
        self.abstract_eval: F = self._no_abstract_eval
        self.own_impl = False

    def __repr__(self) -> str:
        return self.name

    def _no_impl(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"Evaluation rule for '{self.name}' not implemented")

    def _no_abstract_eval(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"Abstract evaluation for '{self.name}' not implemented")

    def def_impl(self, impl: F) -> F:
        """Set what computes values."""
        self.impl, self.own_impl = impl, True
        return impl

    def def_abstract_eval(self, abstract_eval: F) -> F:
        """Set what computes shapes and dtypes from those of the arguments."""
        self.abstract_eval = abstract_eval
        return abstract_eval

    def def_effectful_abstract_eval(self, effectful_abstract_eval: F) -> F:
        """The same, for a rule that gives effects too."""
        self.abstract_eval = lambda *a, **k: effectful_abstract_eval(*a, **k)[0]
        return effectful_abstract_eval

    def bind(self, *args: Any, **params: Any) -> Any:
        """The result for arguments: arrays by position, all else by keyword."""
        for i, a in enumerate(args):
            if not is_array_like(a):
                raise TypeError(
                    f"Error interpreting argument to {self.name} as a JAX value. The problematic "
                    f"value is of type {type(a)} and was passed to {self.name} at position {i}.")
        if RUN.trace is None and not any(type(a) is Array and is_traced(a) for a in args):
            return self.impl(*args, **params)
        arrays = [as_array(a) for a in args]
        if RUN.trace is not None:
            _avals(self, arrays, params)             # (it says what is missing)
        rule = _Ruled(self, arrays, params)
        outs = [make(t, w) for t, w in zip(call_rule(rule, [a.tensor for a in arrays]),
                                           rule.weak, strict=True)]
        return outs if self.multiple_results else outs[0]


def _avals(p: Primitive, arrays: Sequence[Any], params: Any) -> list[Any]:
    found = p.abstract_eval(*[a.aval for a in arrays], **params)
    return list(found) if p.multiple_results else [found]


def run_impl(p: Primitive, args: Sequence[Any], params: Any) -> Any:
    """The values: by the lowering's function, where `impl` is none of the program's."""
    low = LOWERINGS.get(p)
    if isinstance(low, Lowered) and (RUN.trace is not None or not p.own_impl):
        return low.fun(*args, **params)
    with in_the_open():
        return p.impl(*args, **params)


class Lowered:
    """What `mlir.lower_fun` gives: the function."""

    def __init__(self, fun: F) -> None:
        self.fun = fun


class _Ruled(Rule):
    """A call of a primitive: its rules on tensors."""

    native = False

    def __init__(self, p: Primitive, arrays: Sequence[Any], params: Any) -> None:
        super().__init__(self._run, self._push, self._pull)
        self.p, self.params = p, params
        self.weak_in = [a.weak_type for a in arrays]
        self.linear = [_is_linear(a.tensor) for a in arrays]
        self.weak: list[bool] = []

    def arrays(self, ts: Sequence[Any]) -> list[Any]:
        """Tensors as arrays of the arguments."""
        return [make(t, w) for t, w in zip(ts, self.weak_in, strict=True)]

    def outputs(self, found: Any) -> list[Any]:
        """A result of the primitive as tensors."""
        outs = [as_array(o) for o in (found if self.p.multiple_results else [found])]
        self.weak = [o.weak_type for o in outs]
        return [o.tensor for o in outs]

    def _run(self, *ts: Any) -> tuple[Any, ...]:
        arrays = [constant(t.detach() if t._rg else t, w)
                  for t, w in zip(ts, self.weak_in, strict=True)]
        if any(map(has_no_values, arrays)):
            avals = _avals(self.p, arrays, self.params)
            self.weak = [getattr(a, "weak_type", False) for a in avals]
            if RUN.recording is not None:
                return tuple(RUN.recording.bound(self.p, [a.tensor for a in arrays], avals,
                                                 self.params))
            return tuple(wrap(MetaArray(tuple(a.shape), np.dtype(a.dtype))) for a in avals)
        return tuple(self.outputs(run_impl(self.p, arrays, self.params)))

    def _push(self, primals: Any, tangents: Any) -> list[Any]:
        rule = JVPS.get(self.p)
        if rule is None:
            raise NotImplementedError(f"Differentiation rule for '{self.p}' not implemented")
        arrays = self.arrays(primals)
        ts = [make(t, a.weak_type) if is_inexact(a.dtype) else Zero(ShapedArray(a.shape, FLOAT0))
              for t, a in zip(tangents, arrays, strict=True)]
        outs, pushed = rule(arrays, ts, **self.params)
        made = self.outputs(outs)
        pushed = list(pushed) if self.p.multiple_results else [pushed]
        return [wrap(np.zeros(o.shape, o.array.dtype)) if type(t) is Zero else as_array(t).tensor
                for t, o in zip(pushed, made, strict=True)]

    def _pull(self, primals: Any, cts: Any) -> list[Any]:
        if any(self.linear) or self.p not in JVPS and self.p in TRANSPOSES:
            return self._transposed(primals, cts)

        def push(*ts: Any) -> Any:
            with _tangents(ts):
                return tuple(self._push(primals, ts))
        return transpose(push, [wrap(np.zeros(tuple(t.shape), t.array.dtype)) for t in primals],
                         cts)

    def _transposed(self, primals: Any, cts: Any) -> list[Any]:
        rule = TRANSPOSES.get(self.p)
        if rule is None:
            raise NotImplementedError("Transpose rule (for reverse-mode differentiation) for "
                                      f"'{self.p}' not implemented")
        arrays = self.arrays(primals)
        linear = self.linear if any(self.linear) else [True] * len(arrays)
        args = [UndefinedPrimal(a.aval) if moves else a
                for a, moves in zip(arrays, linear, strict=True)]
        given = [make(conjugate(c)) for c in cts]
        found = rule(given if self.p.multiple_results else given[0], *args, **self.params)
        return [wrap(np.zeros(a.shape, a.dtype)) if c is None or type(c) is Zero else
                conjugate(as_array(c).tensor) for c, a in zip(found, arrays, strict=True)]

    def batched(self, trace: Any, mask: Sequence[bool]) -> Rule:
        """The batching rule, on the values below."""
        return _Below(self, trace, mask)


class _Axis:
    """What a batching rule is told of the axis."""

    spmd_name = explicit_mesh_axis = None

    def __init__(self, trace: Any) -> None:
        self.size, self.name = trace.size, trace.axis_name


class _Below(Rule):
    """The batching rule of a primitive as a rule: a function made of operations."""

    native = False

    def __init__(self, ruled: _Ruled, trace: Any, mask: Sequence[bool]) -> None:
        super().__init__(self._run, self._push, self._pull)
        self.ruled, self.trace, self.mask = ruled, trace, mask

    def _run(self, *ts: Any) -> tuple[Any, ...]:
        from adjoint.jax import numpy
        p, params = self.ruled.p, self.ruled.params
        move: Any = numpy.moveaxis
        args, dims = self.ruled.arrays(ts), [0 if m else None for m in self.mask]
        if p in FANCY_BATCHERS:
            found, places = FANCY_BATCHERS[p](_Axis(self.trace), args, dims, **params)
        elif p in BATCHERS:
            found, places = BATCHERS[p](args, tuple(dims), **params)
        else:
            raise NotImplementedError(f"Batching rule for '{p}' not implemented")
        outs = list(found) if p.multiple_results else [found]
        places = list(places) if p.multiple_results else [places]
        size: Any = numpy.broadcast_to
        moved = [move(as_array(o), d, 0) if d is not None else size(
            o, (self.trace.size, *as_array(o).shape)) for o, d in zip(outs, places, strict=True)]
        self.ruled.weak = [o.weak_type for o in moved]
        return tuple(o.tensor for o in moved)

    def _push(self, primals: Any, tangents: Any) -> Any:
        return _func.jvp(lambda *ts: self._run(*ts), tuple(primals), tuple(tangents))[1]

    def _pull(self, primals: Any, cts: Any) -> list[Any]:
        def run(*ts: Any) -> Any:
            with _tangents([t for t, moves in zip(ts, self.ruled.linear, strict=True) if moves]):
                return self._run(*ts)
        places = [i for i, t in enumerate(primals) if is_inexact(t.array.dtype)]
        p = Pull(run, tuple(primals), {}, tuple(places), "batching rule", False)
        found: list[Any] = [None] * len(primals)
        for i, c in zip(places, p.back(list(cts), keep=False), strict=True):
            found[i] = c
        return found


_asked: ContextVar[Any] = ContextVar("adjoint_asked_op", default=None)


class Known(Primitive):
    """One of JAX's primitives: a function of `jax.lax`."""

    def __init__(self, name: str, fun: F) -> None:
        super().__init__(name)
        self.fun = fun
        self.taken = frozenset(inspect.signature(fun).parameters)

    @property
    def op(self) -> Any:
        """While a checkpoint policy is asked, the op that it is asked about: policies of the
        library take that where they are handed the primitive on."""
        return _asked.get()

    def bind(self, *args: Any, **params: Any) -> Any:
        """The function; parameters that it does not have are about programs, and left out."""
        if self.name in ("concatenate", "stack"):
            args = (args,)
        elif self.name == "dynamic_slice":
            args = (args[0], args[1:])
        elif self.name == "dynamic_update_slice":
            args = (*args[:2], args[2:])
        elif self.name in ("argmax", "argmin") and "axes" in params:
            params["axis"] = params.pop("axes")[0]
        elif self.name == "iota" and "shape" in params:
            from adjoint.jax import lax
            return lax.broadcasted_iota(params["dtype"], params["shape"], params["dimension"])
        return self.fun(*args, **{k: v for k, v in params.items() if k in self.taken})


@cache
def known(name: str) -> Primitive | None:
    """`jax.lax.sin_p` and its like, by the function of that name; None where there is none."""
    from adjoint.jax import lax
    own = name.removesuffix("_p")
    there = f"bitwise_{own}" if own in ("and", "or", "xor", "not") else own
    fun = vars(lax).get(there) or vars(lax.linalg).get(there)
    return Known(own, fun) if callable(fun) else None


_NAME = Known("name", lambda x, *, name: x)
_GENERAL = {**dict.fromkeys(("mm", "bmm", "mv", "dot", "matmul", "linear"), "dot_general"),
            "convolution": "conv_general_dilated", "checkpoint_name": "name",
            "permute": "transpose", "view": "reshape", "sum": "reduce_sum", "amax": "reduce_max",
            "amin": "reduce_min"}


def of_primitives(policy: F) -> F:
    """A checkpoint policy that looks at JAX's primitives, as one of ops."""
    from adjoint.jax._to_lax import POINT

    def decide(op: Any, *args: Any, **attrs: Any) -> Any:
        name = _GENERAL.get(op.name) or POINT.get(op.name, op.name)
        token = _asked.set(op)
        try:
            return policy(_NAME if name == "name" else known(f"{name}_p") or op, *args, **attrs)
        finally:
            _asked.reset(token)
    return decide


__all__ = ["Primitive", "UndefinedPrimal", "Zero", "instantiate_zeros"]
