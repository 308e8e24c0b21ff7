"""Graphs run node by node, and changed while they are."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adjoint.fx.graph import Graph, attribute_of
from adjoint.fx.graph_module import GraphModule
from adjoint.fx.node import Node, map_arg
from adjoint.fx.tracer import Proxy, Tracer


class Interpreter:
    """Runs a graph module node by node: override `call_function` and its kin, or `run_node`.

    >>> import adjoint as ad
    >>> from adjoint.fx import symbolic_trace
    >>> class Names(Interpreter):
    ...     def call_function(self, target, args, kwargs):
    ...         print(target.__name__)
    ...         return super().call_function(target, args, kwargs)
    >>> Names(symbolic_trace(lambda x: ad.exp(x) + 1)).run(ad.zeros(1))
    exp
    add
    tensor([2.])
    """

    def __init__(self, module: Any, garbage_collect_values: bool = True,
                 graph: Graph | None = None) -> None:
        self.module, self.graph = module, graph or module.graph
        self.submodules = dict(module.named_modules())
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self.args_iter: Iterator[Any] = iter(())

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None,
            enable_io_processing: bool = True) -> Any:
        """The graph's result for these arguments; values in `initial_env` are not computed."""
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        last: dict[Node, Node] = {n: u for u in self.graph.nodes for n in u.all_input_nodes}
        for node in self.graph.nodes:
            if node not in self.env:
                try:
                    self.env[node] = self.run_node(node)
                except Exception as error:
                    error.add_note(f"While executing {node.format_node()}")
                    raise
            if node.op == "output":
                return self.env[node]
            if self.garbage_collect_values:
                for n in node.all_input_nodes:
                    if last[n] is node:
                        self.env.pop(n, None)
        return None

    def run_node(self, n: Node) -> Any:
        """The value of one node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        """A node's arguments as values."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Values for the nodes among the arguments of `n`."""
        return map_arg(args, lambda node: self.env[node])

    def fetch_attr(self, target: str) -> Any:
        """What the module has at a path."""
        return attribute_of(self.module, target)

    def placeholder(self, target: str, args: Any, kwargs: Any) -> Any:
        """The next argument, or its default."""
        if target.startswith("*"):
            return list(self.args_iter)
        for value in self.args_iter:
            return value
        if args:
            return args[0]
        raise TypeError(f"Expected positional argument for parameter {target}, but one was not "
                        "passed in!")

    def get_attr(self, target: str, args: Any, kwargs: Any) -> Any:
        """An attribute of the module."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A function's result."""
        return target(*args, **kwargs)

    def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
        """A method's result."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: str, args: Any, kwargs: Any) -> Any:
        """A submodule's result."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: str, args: Any, kwargs: Any) -> Any:
        """The result of the graph."""
        return args[0]


class _Into(Tracer):
    """A tracer whose nodes go into a given graph."""

    def __init__(self, graph: Graph, root: Any) -> None:
        super().__init__()
        self.graph, self.root = graph, root

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """An interpreter of which the values are proxies: `transform` gives a module with the graph
    that the overridden methods make."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = _Into(self.new_graph, module)

    def placeholder(self, target: str, args: Any, kwargs: Any) -> Any:
        """An argument of the new graph."""
        return Proxy(self.new_graph.placeholder(target, default_value=args[0] if args else ...),
                     self.tracer)

    def get_attr(self, target: str, args: Any, kwargs: Any) -> Any:
        """An attribute in the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A function's call in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
        """A method's call in the new graph."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def call_module(self, target: str, args: Any, kwargs: Any) -> Any:
        """A submodule's call in the new graph."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module with the new graph."""
        result = super().run()
        if result is not None:
            self.new_graph.output(self.tracer.create_arg(result))
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)


__all__ = ["Interpreter", "Transformer"]
