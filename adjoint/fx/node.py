"""Nodes of a traced graph."""
from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import adjoint
from adjoint.base.errors import AssertedError
from adjoint.core.dispatch import Named
from adjoint.core.op import Op
from adjoint.overrides import resolve_name

if TYPE_CHECKING:
    from adjoint.fx.graph import Graph

Argument = Any
OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """`fn` at everything that is no list, tuple, dict or slice, in its place."""
    if isinstance(a, tuple):
        parts = [map_aggregate(x, fn) for x in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return [map_aggregate(x, fn) for x in a]
    if isinstance(a, dict):
        return {k: map_aggregate(v, fn) for k, v in a.items()}
    if isinstance(a, slice):
        return slice(*[map_aggregate(x, fn) for x in (a.start, a.stop, a.step)])
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """`fn` at every node of an argument."""
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def qualified_name(f: Any) -> str:
    """The full name of a function, as code writes it."""
    name = str(getattr(f, "__name__", type(f).__name__))
    if getattr(builtins, name, None) is f:
        return name
    if getattr(operator, name, None) is f:
        return f"operator.{name}"
    if isinstance(f, (Op, Named)):
        return f"torch.ops.{f}"
    return resolve_name(f) or f"{f.__module__}.{getattr(f, '__qualname__', name)}"


def call_name(target: Any) -> str:
    """What the node of a call is called: the method or function; of an operator without overload.

    >>> import adjoint as ad
    >>> call_name(ad.relu), call_name(ad.ops.aten.mm.default)
    ('relu', 'mm')
    """
    if isinstance(target, str):
        return target.replace(".", "_")
    if isinstance(target, (Op, Named)):
        return str(target).split(".")[1]
    return qualified_name(target).rpartition(".")[2]


def type_name(t: Any) -> str:
    """An annotation as graphs print it."""
    args = get_args(t)
    if isinstance(t, UnionType):
        return " | ".join(map(type_name, args))
    if isinstance(t, str) or get_origin(t) is Literal or not (args or isinstance(t, type)):
        return repr(t)
    if not args:
        if t.__module__.partition(".")[0] != "adjoint":
            return t.__name__ if t.__module__ == "builtins" else f"{t.__module__}.{t.__qualname__}"
        public = (name for name, value in vars(adjoint).items() if value is t)
        return "torch." + next(public, f"{t.__module__}.{t.__qualname__}".removeprefix("adjoint."))
    name = getattr(t, "_name", None)
    if name == "Optional":
        args = tuple(a for a in args if a is not NoneType)
    head = f"typing.{name or 'Union'}" if t.__module__ == "typing" else get_origin(t).__name__
    return f"{head}[{', '.join('...' if a is ... else type_name(a) for a in args)}]"


class Node:
    """One step of a graph.

    op      "placeholder", "get_attr", "call_function", "call_method", "call_module", "output"
    target  the function, or the name of the method, module, attribute or argument
    args, kwargs  what it is called with; nodes stand for values. Setting them updates `users`
    users   nodes that read this one (a dict: in order)
    meta    the user's notes
    """

    def __init__(self, graph: Graph, name: str, op: str, target: Any, args: tuple[Any, ...],
                 kwargs: dict[str, Any], return_type: Any = None) -> None:
        if op not in OPS:
            raise AssertedError(f"op '{op}' is not in _legal_ops: {', '.join(OPS)}")
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._inputs: dict[Node, None] = {}
        self._set(tuple(args), dict(kwargs))

    def _set(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for n in self._inputs:
            n.users.pop(self, None)
        self._args, self._kwargs, self._inputs = args, kwargs, {}
        map_arg((args, kwargs), lambda n: self._inputs.setdefault(n))
        for n in self._inputs:
            n.users.setdefault(self)

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments."""
        return self._args

    @args.setter
    def args(self, value: tuple[Any, ...]) -> None:
        self._set(tuple(value), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, Any]) -> None:
        self._set(self._args, dict(value))

    @property
    def stack_trace(self) -> str | None:
        """Where the call stands in the program, if `meta["stack_trace"]` was noted."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._inputs)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replace one positional argument."""
        self.args = (*self._args[:idx], arg, *self._args[idx + 1:])

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Put an argument before position `idx`."""
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Set one keyword argument."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Read `new_input` where `old_input` was read."""
        def other(n: Node) -> Any:
            return new_input if n is old_input else n
        self._set(map_arg(self._args, other), map_arg(self._kwargs, other))

    def replace_all_uses_with(self, replace_with: Node,
                              delete_user_cb: Callable[[Node], bool] = lambda user: True, *,
                              propagate_meta: bool = False) -> list[Node]:
        """Let every user (that `delete_user_cb` says yes to) read another node; gives the users."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        changed = [u for u in self.users if delete_user_cb(u)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    @property
    def next(self) -> Node:
        """The node after this one."""
        return self.graph._neighbour(self, 1)

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self.graph._neighbour(self, -1)

    def prepend(self, x: Node) -> None:
        """Move `x` right before this node."""
        self.graph._move(x, self, 0)

    def append(self, x: Node) -> None:
        """Move `x` right after this node."""
        self.graph._move(x, self, 1)

    def is_impure(self) -> bool:
        """True for nodes that stay though nobody reads them: arguments, the result, and calls of
        in-place methods and functions."""
        if self.op in ("placeholder", "output"):
            return True
        name = self.target if isinstance(self.target, str) else getattr(
            self.target, "__name__", "")
        return self.op in ("call_function", "call_method") and (
            name.endswith("_") and not name.endswith("__") or name in ("setitem", "setattr"))

    def format_node(self) -> str:
        """The line that a graph prints for this node."""
        if self.op == "output":
            return f"return {self.args[0]}"
        target = self.target if isinstance(self.target, str) else _printed(self.target)
        kind = "" if self.type is None else f"{type_name(self.type)} "
        head = f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}[target={target}]"
        if self.op == "placeholder":
            return head + (f"(default={self.args[0]!r})" if self.args else "")
        if self.op == "get_attr":
            return head
        return f"{head}(args = {_percent(self.args)}, kwargs = {_percent(self.kwargs)})"

    def __repr__(self) -> str:
        return self.name

    def __lt__(self, other: Node) -> bool:
        """Does it run before `other`?"""
        return self.graph._order.index(self) < self.graph._order.index(other)

    def __gt__(self, other: Node) -> bool:
        return other < self

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or other < self


def _printed(f: Any) -> str:
    name = qualified_name(f)
    return f"builtins.{name}" if "." not in name else name


def _percent(a: Any) -> str:
    if isinstance(a, tuple):
        return "(" + ", ".join(map(_percent, a)) + (",)" if len(a) == 1 else ")")
    if isinstance(a, list):
        return "[" + ", ".join(map(_percent, a)) + "]"
    if isinstance(a, dict):
        return "{" + ", ".join(f"{k}: {_percent(v)}" for k, v in a.items()) + "}"
    return f"%{a.name}" if isinstance(a, Node) else str(a)


class NodeList:
    """The nodes of a graph in order, which may be changed while they are walked."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self._graph, self._backwards = graph, backwards

    def __len__(self) -> int:
        return len(self._graph._order)

    def __iter__(self) -> Iterator[Node]:
        for node in list(reversed(self._graph._order) if self._backwards
                         else self._graph._order):
            if node in self._graph._known:
                yield node

    def __reversed__(self) -> NodeList:
        return NodeList(self._graph, not self._backwards)


__all__ = ["Argument", "Node", "call_name", "map_aggregate", "map_arg", "type_name"]
