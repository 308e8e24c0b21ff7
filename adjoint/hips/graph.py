"""Graphs of nodes: a program's own record of what a function computes.

A `Node` class says what is kept of a call. `trace` runs a function on a box that carries a node;
every function of `hips.numpy` and every primitive that is called with such a box runs on the values
and puts its answer in a box with a node of the same class. Gradients do not go this way, except
those in values of types that the engine does not know (`Box.register`).
"""
from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import NotSupported
from adjoint.base.tree import flatten, unflatten
from adjoint.hips import box
from adjoint.hips.box import RECORD, UNRECORDED, Box, getval, recorded

F = Callable[..., Any]


class Node:
    """What a graph keeps of one call. A subclass defines `__init__`, and `initialize_root` for the
    node of the argument.

    >>> class Name(Node):
    ...     def __init__(self, value, fun, args, kwargs, parent_argnums, parents):
    ...         self.text = f"{fun.__name__}({', '.join(p.text for p in parents)})"
    ...     def initialize_root(self, text):
    ...         self.text = text
    >>> import adjoint.hips.numpy as np
    >>> trace(Name.new_root("x"), lambda x: np.sin(x) * x, 2.0)[1].text
    'multiply(sin(x), x)'
    """

    __slots__: Any = []

    def __init__(self, value: Any, fun: F, args: tuple[Any, ...], kwargs: dict[str, Any],
                 parent_argnums: tuple[int, ...], parents: tuple[Any, ...]) -> None:
        raise AssertionError(f"{type(self).__name__} must define __init__")

    def initialize_root(self, *args: Any, **kwargs: Any) -> None:
        """Makes this the node of the argument."""
        raise AssertionError(f"{type(self).__name__} must define initialize_root")

    @classmethod
    def new_root(cls, *args: Any, **kwargs: Any) -> Any:
        """The node of the argument."""
        root = cls.__new__(cls)
        root.initialize_root(*args, **kwargs)
        return root


class VJPNode(Node):
    """A call with its pull: `vjp(g)` gives the cotangents of the parents."""

    __slots__ = ["parents", "vjp"]

    def __init__(self, value: Any, fun: F, args: tuple[Any, ...], kwargs: dict[str, Any],
                 parent_argnums: tuple[int, ...], parents: tuple[Any, ...]) -> None:
        self.parents: Sequence[Any] = parents
        self.vjp: F = primitive_vjps[fun](parent_argnums, value, args, kwargs)

    def initialize_root(self, *args: Any, **kwargs: Any) -> None:
        """Without parents."""
        self.parents, self.vjp = [], lambda g: ()


class JVPNode(Node):
    """A call with the tangent of its answer, `g`."""

    __slots__ = ["g"]

    def __init__(self, value: Any, fun: F, args: tuple[Any, ...], kwargs: dict[str, Any],
                 parent_argnums: tuple[int, ...], parents: tuple[Any, ...]) -> None:
        self.g = primitive_jvps[fun](parent_argnums, [p.g for p in parents], value, args, kwargs)

    def initialize_root(self, *args: Any, **kwargs: Any) -> None:
        """With the tangent of the argument."""
        self.g, = args


class _Rules(dict[Any, Any]):
    """Rules by function. A primitive has its own; those of other functions come from the engine."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __missing__(self, fun: Any) -> F:
        if not hasattr(fun, "lacks"):
            return _pull_of(fun) if self.kind == "vjp" else _push_of(fun)
        found: F | None = getattr(fun, self.kind)

        def none(argnums: Any, *rest: Any) -> Any:
            raise fun.lacks(self.kind.upper(), argnums)
        return found or none


primitive_vjps, primitive_jvps = _Rules("vjp"), _Rules("jvp")


def _among(fun: F, nums: Sequence[int], args: Any, kwargs: Any) -> tuple[F, Any]:
    """A function of some of its arguments, as one tuple, and their values."""
    def run(values: Any) -> Any:
        full = list(args)
        for i, v in zip(nums, values, strict=True):
            full[i] = v
        return fun(*full, **kwargs)
    return run, tuple(args[i] for i in nums)


def _pull_of(fun: F) -> F:
    def rule(nums: Any, ans: Any, args: Any, kwargs: Any) -> F:
        from adjoint.hips.core import make_vjp
        return make_vjp(*_among(fun, nums, args, kwargs))[0]
    return rule


def _push_of(fun: F) -> F:
    def rule(nums: Any, gs: Any, ans: Any, args: Any, kwargs: Any) -> Any:
        from adjoint.hips.core import make_jvp
        return make_jvp(*_among(fun, nums, args, kwargs))(tuple(gs))[1]
    return rule


# ------------------------------------------------------------------ boxes with nodes
_UNRECORDED = ("a function that graphs of nodes do not record was called with a box of such a "
               "graph: call it outside of trace()")


def _named(name: str, run: F) -> F:
    run.__name__ = run.__qualname__ = name
    return recorded(run)


def _array(x: Any) -> Any:
    return x if isinstance(x, Box) else np.asarray(x)


_real, _imag = _named("real", lambda x: x.real), _named("imag", lambda x: x.imag)
_item = _named("__getitem__", lambda x, at: x[at])
_astype = _named("_astype", lambda x, *args, **kwargs: _array(x).astype(*args, **kwargs))
container_take = _named("container_take", lambda A, idx: A[idx])
sequence_extend_right = _named("sequence_extend_right",
                               lambda seq, *elts: type(seq)((*seq, *elts)))
sequence_extend_left = _named("sequence_extend_left",
                              lambda seq, *elts: type(seq)((*elts, *seq)))


class _Held(Box):
    """A value in a graph of a program's own nodes, with its node."""

    __slots__ = ("_inner", "_node", "_trace")
    _inner: Any

    def __init__(self, value: Any, trace: int, node: Any) -> None:
        self._inner, self._trace, self._node = value, trace, node

    @property
    def _value(self) -> Any:
        return self._inner

    @property
    def tensor(self) -> Any:  # type: ignore[override] # it has none
        raise NotSupported(_UNRECORDED)


class ArrayBox(_Held, box.ArrayBox):
    """The box of an array in a graph."""

    __slots__ = ()

    shape = property(lambda self: np.shape(getval(self)))
    size = property(lambda self: np.size(getval(self)))
    dtype = property(lambda self: np.asarray(getval(self)).dtype)
    real = property(lambda self: _real(self))
    imag = property(lambda self: _imag(self))

    def __getitem__(self, at: Any) -> Any:
        return _item(self, at)

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        """In another dtype."""
        return _astype(self, *args, **kwargs)


class _ContainerBox(_Held):
    """The box of a container in a graph. What is taken out of it is in a box again."""

    __slots__ = ()

    def __getitem__(self, at: Any) -> Any:
        return container_take(self, at)

    def __contains__(self, item: Any) -> bool:
        return item in self._inner


class SequenceBox(_ContainerBox):
    """The box of a list or tuple in a graph."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self._inner))])

    def __add__(self, other: Any) -> Any:
        return sequence_extend_right(self, *other)

    def __radd__(self, other: Any) -> Any:
        return sequence_extend_left(self, *other)

    def index(self, item: Any) -> int:
        """The first place of that value."""
        return int(self._inner.index(item))


class DictBox(_ContainerBox):
    """The box of a dict in a graph."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._inner)

    def keys(self) -> list[Any]:
        """The keys."""
        return list(self._inner)

    def values(self) -> list[Any]:
        """The values, in boxes."""
        return [self[k] for k in self._inner]

    def items(self) -> list[tuple[Any, Any]]:
        """Keys and values, those in boxes."""
        return [(k, self[k]) for k in self._inner]

    iterkeys, itervalues, iteritems = keys, values, items

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key."""
        return self[key] if key in self._inner else default


SequenceBox.register(list)
SequenceBox.register(tuple)
DictBox.register(dict)
KNOWN = frozenset(Box.type_mappings)         # the rest is what programs registered
box_type_mappings, box_types = Box.type_mappings, Box.types
notrace_primitives: dict[Any, set[Any]] = defaultdict(set)


def new_box(value: Any, trace: int, node: Any) -> Any:
    """A value in a box that carries a node. TypeError for values that are no floats, arrays or
    containers, nor of a type that has a box of its own (`Box.register`)."""
    if not RECORD:
        RECORD.append(_record)
    kind = Box.type_mappings.get(type(value))
    if kind is None and isinstance(value, tuple):
        kind = SequenceBox
    if kind is None and (isinstance(value, box.ArrayBox) or (
            isinstance(value, (float, complex, np.ndarray, np.generic))
            and np.asarray(value).dtype.kind in "fciub"
            and (isinstance(value, np.ndarray) or is_inexact(np.asarray(value).dtype)))):
        kind = ArrayBox
    if kind is None:
        raise TypeError(f"Can't differentiate w.r.t. type {type(value)}")
    if issubclass(kind, _Held):
        return kind(value, trace, node)
    made = _own_class(kind).__new__(_own_class(kind))
    made._inner, made._trace, made._node = value, trace, node
    return made


_OWN: dict[type, Any] = {}


def _own_class(kind: type) -> Any:
    """A program's class of boxes, with what a box of a graph has."""
    if kind not in _OWN:
        _OWN[kind] = type(kind.__name__, (kind, _ContainerBox), {"__slots__": ()})
    return _OWN[kind]


def _in_graph(x: Any) -> bool:
    return isinstance(x, _Held)


def find_top_boxed_args(args: Sequence[Any]) -> tuple[list[tuple[int, Any]], int, Any]:
    """(position, box) of the arguments that belong to the innermost trace, its number (-1 where
    there is none), and its class of nodes."""
    found = [(i, a) for i, a in enumerate(args) if _in_graph(a)]
    top = max((a._trace for _, a in found), default=-1)
    found = [(i, a) for i, a in found if a._trace == top]
    return found, top, type(found[0][1]._node) if found else None


def _record(fun: F, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer of a call with boxes of a graph, in a box; UNRECORDED where there are none."""
    leaves, spec = flatten((args, kwargs))
    if not any(map(_in_graph, leaves)):
        return UNRECORDED
    if sum(map(_in_graph, args)) < sum(map(_in_graph, leaves)):
        fun, args, kwargs = _spread(fun, spec), tuple(leaves), {}
    boxes, top, kind = find_top_boxed_args(args)
    nums = tuple(i for i, _ in boxes)
    values = list(args)
    for i, b in boxes:
        values[i] = b._value
    ans = fun(*values, **kwargs)
    if fun in notrace_primitives[kind] or not _flows(ans):
        return ans
    return new_box(ans, top, kind(ans, fun, tuple(values), kwargs, nums,
                                  tuple(b._node for _, b in boxes)))


def _spread(fun: F, spec: Any) -> F:
    """A function of the leaves of its arguments, where boxes are within lists."""
    def run(*leaves: Any) -> Any:
        args, kwargs = unflatten(leaves, spec)
        return fun(*args, **kwargs)
    run.__name__ = run.__qualname__ = fun.__name__
    return run


def _flows(ans: Any) -> bool:
    if isinstance(ans, (Box, list, tuple, dict)) or type(ans) in Box.type_mappings:
        return True
    return isinstance(ans, (float, complex, np.ndarray, np.generic)) and is_inexact(
        np.asarray(ans).dtype)


# ------------------------------------------------------------------ traces
class TraceStack:
    """The traces that are running, by number."""

    def __init__(self) -> None:
        self.top = -1

    @contextmanager
    def new_trace(self) -> Iterator[int]:
        """The number of a further trace, for as long as it runs."""
        self.top += 1
        try:
            yield self.top
        finally:
            self.top -= 1


trace_stack = TraceStack()


def trace(start_node: Any, fun: F, x: Any) -> tuple[Any, Any]:
    """(value, node) of `fun` at x; the node is None, with a warning, where the value does not
    depend on x."""
    with trace_stack.new_trace() as number:
        end = fun(new_box(x, number, start_node))
        if type(end) in (list, tuple) and any(map(_in_graph, end)):
            end = _gather(type(end), *end)
        if _in_graph(end) and end._trace == number:
            return end._value, end._node
    warnings.warn("Output seems independent of input.", stacklevel=2)
    return end, None


_gather = _named("make_sequence", lambda kind, *parts: kind(parts))


def gradient_in_graph(fun: F, x: Any) -> tuple[F, Any]:
    """(pull, value) by a graph of `VJPNode`s: for values of types of the program's own."""
    from adjoint.hips.core import backward_pass, vspace
    value, end = trace(VJPNode.new_root(), fun, x)
    if end is None:
        return lambda g: vspace(x).zeros(), value

    def pull(g: Any) -> Any:
        found = backward_pass(g, end)
        return vspace(x).zeros() if found is None else found
    return pull, value


__all__ = ["DictBox", "JVPNode", "KNOWN", "Node", "SequenceBox", "TraceStack", "VJPNode",
           "box_type_mappings", "box_types", "container_take", "find_top_boxed_args",
           "gradient_in_graph", "new_box", "notrace_primitives", "primitive_jvps",
           "primitive_vjps", "sequence_extend_left", "sequence_extend_right", "trace",
           "trace_stack"]
