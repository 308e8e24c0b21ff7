"""Graphs of calls, and the Python text that they stand for."""
from __future__ import annotations

import builtins
import keyword
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import adjoint
from adjoint.base.errors import ArgumentError
from adjoint.fx.node import Node, NodeList, call_name, map_arg, qualified_name, type_name

_INFIX = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
          "pow": "**", "matmul": "@", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
          "ne": "!=", "and_": "&", "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}
_PREFIX = {"neg": "-", "pos": "+", "invert": "~"}


@dataclass(frozen=True)
class PythonCode:
    """The text of a function `forward`, and the globals that it reads."""

    src: str
    globals: dict[str, Any]


class Graph:
    """Nodes in the order in which they run. New nodes come at the end, or where `inserting_before`
    and `inserting_after` say.

    >>> import adjoint as ad
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_function(ad.relu, (x,))
    >>> _ = graph.output(graph.call_method("sum", (y,)))
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
        %sum_1 : [num_users=1] = call_method[target=sum](args = (%relu,), kwargs = {})
        return sum_1
    """

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None) -> None:
        self.owning_module, self._tracer_cls = owning_module, tracer_cls
        self._order: list[Node] = []
        self._known: set[Node] = set()
        self._names: dict[str, int] = {}
        self._at: Callable[[], int] | None = None
        self._transforms: list[Callable[[list[str]], list[str]]] = []

    @property
    def nodes(self) -> NodeList:
        """The nodes; `reversed` of it too."""
        return NodeList(self)

    def _name(self, candidate: str) -> str:
        name = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate)
        name = f"_{name}" if name[:1].isdigit() else name or "_"
        found = re.fullmatch(r"(.*)_(\d+)", name)
        base, number = (found[1], int(found[2])) if found else (name, None)
        taken = hasattr(builtins, name) or keyword.iskeyword(name) or name == "self"
        if name not in self._names and not taken:
            self._names[name] = 0
            return name
        number = self._names.get(base, 0) + 1
        while f"{base}_{number}" in self._names:
            number += 1
        self._names[base] = number
        self._names[f"{base}_{number}"] = 0
        return f"{base}_{number}"

    def create_node(self, op: str, target: Any, args: Any = None, kwargs: Any = None,
                    name: str | None = None, type_expr: Any = None) -> Node:
        """A node at the place of insertion."""
        if name is None:
            name = call_name(target)
        node = Node(self, self._name(name), op, target, args or (), kwargs or {}, type_expr)
        self._order.insert(len(self._order) if self._at is None else self._at(), node)
        self._known.add(node)
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An argument of the function."""
        return self.create_node("placeholder", name, () if default_value is ... else (
            default_value,), {}, name, type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """An attribute of the module: a parameter, a buffer."""
        return self.create_node("get_attr", qualified_name, (), {}, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None,
                    type_expr: Any = None) -> Node:
        """A call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None,
                    type_expr: Any = None) -> Node:
        """A call of a method of `args[0]`."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(self, the_function: Any, args: Any = None, kwargs: Any = None,
                      type_expr: Any = None, name: str | None = None) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """The result; the last node."""
        return self.create_node("output", "output", (result,), {}, "output", type_expr)

    def output_node(self) -> Node:
        """The node of the result."""
        return next(n for n in reversed(self._order) if n.op == "output")

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of an op, and of a target if one is given."""
        return [n for n in self._order if n.op == op and (target is None or n.target == target)]

    @contextmanager
    def inserting_before(self, n: Node | None = None) -> Iterator[None]:
        """New nodes come before `n` (the beginning, without one)."""
        yield from self._inserting(lambda: 0 if n is None else self._order.index(n))

    @contextmanager
    def inserting_after(self, n: Node | None = None) -> Iterator[None]:
        """New nodes come after `n` (the end, without one), in the order in which they are made."""
        anchor = [n]
        before = len(self._order)

        def place() -> int:
            nonlocal before
            grown = len(self._order) - before
            return len(self._order) if anchor[0] is None else (
                self._order.index(anchor[0]) + 1 + grown)
        yield from self._inserting(place)

    def _inserting(self, place: Callable[[], int]) -> Iterator[None]:
        outer, self._at = self._at, place
        try:
            yield
        finally:
            self._at = outer

    def _neighbour(self, node: Node, step: int) -> Node:
        at = self._order.index(node) + step
        return self._order[at % len(self._order)]

    def _move(self, node: Node, anchor: Node, after: int) -> None:
        if node is not anchor:
            self._order.remove(node)
            self._order.insert(self._order.index(anchor) + after, node)

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out; RuntimeError while others read it."""
        if to_erase.users:
            raise ArgumentError(f"Tried to erase Node {to_erase} but it still had "
                                f"{len(to_erase.users)} users in the graph: {to_erase.users}!")
        to_erase._set((), {})
        self._order.remove(to_erase)
        self._known.discard(to_erase)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """A copy of a node of another graph; `arg_transform` gives what its arguments become."""
        made = self.create_node(node.op, node.target, map_arg(node.args, arg_transform),
                                map_arg(node.kwargs, arg_transform), node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node],
                   return_output_node: bool = False) -> Any:
        """All nodes of another graph, noted in `val_map`; gives what that graph returns."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: Any = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        val_map: dict[Node, Node] = {}
        for node in self._order:
            val_map[node] = made.node_copy(node, lambda n: val_map[n])
        return made

    def __reduce__(self) -> Any:
        number = {n: i for i, n in enumerate(self._order)}

        def reference(n: Node) -> _Reference:
            return _Reference(number[n])
        rows = [(n.op, _by_name(n.target), map_arg(n.args, reference),
                 map_arg(n.kwargs, reference), n.name, n.type) for n in self._order]
        return _restored, (rows, self._tracer_cls)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take out what nobody reads; True if there was any."""
        impure = is_impure_node or Node.is_impure
        dead = 0
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
                dead += 1
        return bool(dead)

    def lint(self) -> None:
        """Raise where the graph is not sound: a node read before it runs, or of another graph, two
        of one name, a target that the module has not."""
        seen: dict[Node, None] = {}
        names: set[str] = set()
        for node in self._order:
            for n in node.all_input_nodes:
                if n.graph is not self:
                    raise ArgumentError(f"Argument '{n}' of Node '{node}' does not belong to this "
                                        "Graph, but was used as an argument!")
                if n not in seen:
                    raise ArgumentError(f"Argument '{n}' of Node '{node}' was used before it has "
                                        f"been defined! Please check that Nodes in the graph are "
                                        f"topologically ordered\n{self}")
            if node.name in names:
                raise ArgumentError(f"Node redefined name {node.name}!")
            seen.setdefault(node)
            names.add(node.name)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                attribute_of(self.owning_module, node.target)

    @contextmanager
    def on_generate_code(self, make_transformer: Callable[[Any], Callable[[list[str]], list[str]]]
                         ) -> Iterator[None]:
        """Code that is made inside of the block passes through `make_transformer(now)`: from the
        lines of the body to the lines to be. `now` is what was there before, or None."""
        outer = self._transforms
        made = make_transformer(outer[-1] if outer else None)
        self._transforms = [made]
        try:
            yield
        finally:
            self._transforms = outer

    def python_code(self, root_module: str = "self") -> PythonCode:
        """The text of `forward`, and the globals that it reads."""
        return _Writer(self, root_module).code()

    def __str__(self) -> str:
        return "graph():\n" + "\n".join(f"    {n.format_node()}" for n in self._order)


class _Reference(NamedTuple):
    """A node of a graph in a file: its number."""

    number: int


class _Named(NamedTuple):
    """A public function in a file: its name."""

    name: str


def _by_name(target: Any) -> Any:
    name = "" if isinstance(target, str) else qualified_name(target)
    return _Named(name) if name.startswith("torch.") else target


def _restored(rows: Sequence[Any], tracer_cls: Any) -> Graph:
    """The graph of what `Graph.__reduce__` gives."""
    graph = Graph(tracer_cls=tracer_cls)
    for op, target, args, kwargs, name, kind in rows:
        if isinstance(target, _Named):
            target = attribute_of(adjoint, target.name.removeprefix("torch."))

        def value(a: Any) -> Any:
            if type(a) is _Reference:
                return graph._order[a.number]
            if type(a) in (list, tuple):
                return type(a)(map(value, a))
            if type(a) is dict:
                return {k: value(v) for k, v in a.items()}
            return slice(*map(value, (a.start, a.stop, a.step))) if type(a) is slice else a
        node = Node(graph, name, op, target, value(args), value(kwargs), kind)
        graph._order.append(node)
        graph._known.add(node)
        graph._names.setdefault(name, 0)
    return graph


def attribute_of(module: Any, path: str) -> Any:
    """`module.a.b` for the path "a.b"; RuntimeError, with the path, where it is not there."""
    found = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"Node referenced nonexistent target {path}: "
                                f"{type(found).__name__} has no {part!r}")
        found = getattr(found, part)
    return found


def _operator(name: str) -> Any:
    """What `torch.ops.<namespace>.<name>.<overload>` is; None where there is nothing."""
    found: Any = adjoint
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found


class _Writer:
    """Python text of a graph: a statement per node; values are let go after their last use."""

    def __init__(self, graph: Graph, root: str) -> None:
        self.graph, self.root = graph, root
        self.globals: dict[str, Any] = {"torch": adjoint, "inf": float("inf"),
                                        "nan": float("nan")}
        used: set[Node] = set()
        self.ends: dict[Node, list[Node]] = {}
        for node in reversed(list(graph._order)):
            self.ends[node] = [n for n in node.all_input_nodes if n not in used]
            used.update(self.ends[node])

    def code(self) -> PythonCode:
        parameters: list[str] = []
        body: list[str] = []
        result = ""
        for node in self.graph._order:
            if node.op == "placeholder":
                default = f" = {self.value(node.args[0])}" if node.args else ""
                parameters.append(node.target + self.typed(node) + default)
                if node.name != node.target.lstrip("*"):
                    body.append(f"{node.name} = {node.target.lstrip('*')}")
            elif node.op == "output":
                result = "" if node.type is None else f" -> {self.annotation(node.type)}"
                body.append(f"return {self.value(node.args[0])}")
            else:
                done = self.ends.get(node, [])
                free = "".join(f"{n.name} = " for n in (
                    [*done, *([] if node.users else [node])]))
                body.append(f"{node.name}{self.typed(node)} = {self.call(node)}"
                            + (f";  {free}None" if free else ""))
        lines = [f"{line}\n" for line in body or ["pass"]]
        for transform in self.graph._transforms:
            lines = transform(lines)
        text = "".join(f"    {line}" for line in "".join(lines).splitlines(True)).rstrip("\n")
        head = ", ".join([self.root, *parameters])
        return PythonCode(f"\n\n\ndef forward({head}){result}:\n{text}\n    ", self.globals)

    def typed(self, node: Node) -> str:
        """What follows a name that has a type."""
        return "" if node.type is None else f" : {self.annotation(node.type)}"

    def annotation(self, t: Any) -> str:
        """A type as code writes it: names that are no builtins are globals."""
        args = get_args(t)
        plain = all(a is ... or not isinstance(a, (list, str)) for a in args)
        if not args or not plain or get_origin(t) is Literal:
            name = type_name(t)
            if name.startswith("torch.") or hasattr(builtins, name):
                return name
            return self.known(re.sub(r"\W+", "_", name), t)
        inner = ",".join("..." if a is ... else "None" if a is None else self.annotation(a)
                         for a in args)
        origin = get_origin(t)
        if origin in (Union, UnionType):
            return f"{self.known('typing_Union', Union)}[{inner}]"
        if t.__module__ == "typing":
            return f"{self.known(f'typing_{t._name}', getattr(typing, t._name))}[{inner}]"
        return f"{self.annotation(origin)}[{inner}]"

    def call(self, node: Node) -> str:
        args, kwargs = node.args, node.kwargs
        given = ", ".join([*map(self.value, args),
                           *(f"{k} = {self.value(v)}" for k, v in kwargs.items())])
        if node.op == "get_attr":
            return self.path(node.target)
        if node.op == "call_module":
            return f"{self.path(node.target)}({given})"
        if node.op == "call_method":
            rest = ", ".join([*map(self.value, args[1:]),
                              *(f"{k} = {self.value(v)}" for k, v in kwargs.items())])
            return f"{self.value(args[0])}.{node.target}({rest})"
        module, _, name = qualified_name(node.target).rpartition(".")
        if module == "operator" and not kwargs:
            if name in _INFIX and len(args) == 2:
                return f"{self.value(args[0])} {_INFIX[name]} {self.value(args[1])}"
            if name in _PREFIX:
                return f"{_PREFIX[name]}{self.value(args[0])}"
            if name == "getitem":
                return f"{self.value(args[0])}[{self.value(args[1])}]"
        if node.target is getattr and len(args) == 2 and str(args[1]).isidentifier():
            return f"{self.value(args[0])}.{args[1]}"
        return f"{self.function(node.target)}({given})"

    def path(self, target: str) -> str:
        text = self.root
        for part in target.split("."):
            text = f"{text}.{part}" if part.isidentifier() else f'getattr({text}, "{part}")'
        return text

    def function(self, f: Any) -> str:
        name = qualified_name(f)
        operator = name.startswith("torch.ops.")
        if operator and _operator(name) == f or not operator and (
                name.startswith("torch.") or hasattr(builtins, name)):
            return name
        return self.known(name.replace(".", "_").replace("<", "_").replace(">", "_"), f)

    def known(self, name: str, value: Any) -> str:
        """A global of that name, or of one with a number."""
        own, n = name, 0
        while self.globals.get(own, value) is not value:
            n += 1
            own = f"{name}_{n}"
        self.globals[own] = value
        return own

    def value(self, a: Any) -> str:
        if isinstance(a, Node):
            return a.name
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return f"{self.known(type(a).__name__, type(a))}({', '.join(map(self.value, a))})"
        if isinstance(a, tuple):
            return "(" + ", ".join(map(self.value, a)) + (",)" if len(a) == 1 else ")")
        if isinstance(a, list):
            return "[" + ", ".join(map(self.value, a)) + "]"
        if isinstance(a, dict):
            return "{" + ", ".join(f"{k!r}: {self.value(v)}" for k, v in a.items()) + "}"
        if isinstance(a, slice):
            return f"slice({', '.join(self.value(x) for x in (a.start, a.stop, a.step))})"
        if a is None or a is ... or type(a) in (int, float, bool, str, complex, bytes):
            return repr(a)
        return self.known(f"_{type(a).__name__}", a)


__all__ = ["Graph", "PythonCode", "attribute_of"]
