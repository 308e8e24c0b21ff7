"""Modules whose forward is a graph."""
from __future__ import annotations

import copy
import linecache
from itertools import count
from typing import Any

from adjoint import nn
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.fx.graph import Graph, PythonCode, attribute_of

_numbers = count()


class GraphModule(nn.Module):
    """A module that runs `graph`: its code is Python text, made anew by `recompile`.

    root   a module, or a dict of "name" -> module or tensor, for what nodes refer to
    graph  copied references only; the graph becomes the module's
    Raises RuntimeError where the root lacks what a node names.

    >>> import adjoint as ad
    >>> graph = Graph()
    >>> _ = graph.output(graph.call_function(ad.neg, (graph.placeholder("x"),)))
    >>> module = GraphModule(ad.nn.Module(), graph)
    >>> print(module.code.strip())
    def forward(self, x):
        neg = torch.neg(x);  x = None
        return neg
    >>> module(ad.ones(2))
    tensor([-1., -1.])
    """

    _graph: Graph

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        own = type(cls.__name__, (cls,), {"__module__": cls.__module__})   # forward is its own
        return object.__new__(own)

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        self.meta: dict[str, Any] = {}       # the user's notes
        if isinstance(root, nn.Module):
            self.training = root.training
            self.meta = dict(getattr(root, "meta", {}))
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if isinstance(root, dict) and node.target not in root:
                    raise ArgumentError(f"Node {node} referenced target {node.target} but that "
                                        "target was not provided in ``root``!")
                found = root[node.target] if isinstance(root, dict) else attribute_of(
                    root, node.target)
                self._place(node.target, found)
        self.graph = graph

    def _place(self, path: str, value: Any) -> None:
        *parents, last = path.split(".")
        owner: Any = self
        for part in parents:
            if not hasattr(owner, part):
                owner.add_module(part, nn.Module())
            owner = getattr(owner, part)
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            owner.register_buffer(last, value)
        else:
            setattr(owner, last, value)

    @property
    def graph(self) -> Graph:
        """The graph; setting it makes the code anew."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        object.__setattr__(self, "_graph", g)
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The text of `forward`."""
        return str(self._code)

    def recompile(self) -> PythonCode:
        """Make `forward` of the graph as it is now."""
        made = self._graph.python_code("self")
        object.__setattr__(self, "_code", made.src)
        name = f"<adjoint.fx graph {next(_numbers)}>"
        linecache.cache[name] = (len(made.src), None, made.src.splitlines(True), name)
        space = dict(made.globals)
        exec(compile(made.src, name, "exec"), space)  # noqa: S102  # the text of our own graph
        setattr(type(self), "forward", space["forward"])  # noqa: B010  # a class per module
        return made

    def add_submodule(self, target: str, m: Any) -> bool:
        """Put a module at a path, with empty modules above it where there are none."""
        self._place(target, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take a module out; False where there is none."""
        *parents, last = target.split(".")
        owner: Any = self
        for part in parents:
            owner = getattr(owner, part, None)
        if owner is None or last not in owner._modules:
            return False
        del owner._modules[last]
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take out the modules that no node names, in whole or in part."""
        used = [n.target for n in self._graph.nodes if n.op in ("call_module", "get_attr")]
        for name, _ in list(self.named_modules()):
            if name and not any(u == name or u.startswith(name + ".") or name.startswith(u + ".")
                                for u in used):
                self.delete_submodule(name)

    def print_readable(self, print_output: bool = True, **_: Any) -> str:
        """The text of a class with this forward."""
        text = f"class {type(self).__name__}(torch.nn.Module):" + self.code.strip("\n").join(
            ["\n", "\n"]).replace("\n", "\n    ").rstrip() + "\n"
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        return "\n".join([super().__str__(), self.code, "# To see more debug info, please use "
                          "`graph_module.print_readable()`"])

    def _rest(self) -> dict[str, Any]:
        """What the module has beside its graph."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        return _module(copy.deepcopy(self._rest(), memo), copy.deepcopy(self._graph),
                       "GraphModule")

    def __copy__(self) -> GraphModule:
        return GraphModule(self, self._graph, type(self).__name__)

    def __reduce__(self) -> Any:
        return _module, (self._rest(), self._graph, type(self).__name__)


def _module(rest: dict[str, Any], graph: Graph, name: str) -> GraphModule:
    """The module of a graph, with what a copy or a file has of another one."""
    root = nn.Module()
    root.__dict__.update(rest)
    return GraphModule(root, graph, name)


__all__ = ["GraphModule"]
