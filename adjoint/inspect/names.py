"""What the user calls the tensors of a graph: variables of the calling frame, parameters of modules
found there, and v1, v2, ... for everything that has no name any more."""
from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any

from adjoint.core.tensor import AccumulateGrad, Port
from adjoint.inspect.bindings import bound_tensors, tensors_in


def key_of(t: Any) -> Any:
    """What identifies the value of a tensor in a graph: (node, output index), or the leaf."""
    edge = t._edge
    if type(edge) is Port:
        return edge.node, edge.index
    if edge is None or type(edge) is AccumulateGrad:
        return id(t)
    return edge, 0


def key_of_edge(edge: Any) -> Any:
    """The same for an edge of a node."""
    if type(edge) is AccumulateGrad:
        leaf = edge.variable
        return id(leaf) if leaf is not None else id(edge)
    return (edge.node, edge.index) if type(edge) is Port else (edge, 0)


class Names:
    """Names of values. `given` wins over what is found in `frame`.

    >>> import adjoint as ad
    >>> x = ad.ones(2, requires_grad=True)
    >>> Names(None, {"x": x}).of(x)
    'x'
    """

    def __init__(self, frame: FrameType | None, given: Mapping[str, Any] | None = None) -> None:
        self.found: dict[Any, str] = {}
        self.tensors: dict[Any, Any] = {}       # key -> a live tensor, for its value
        self.arrays: dict[int, str] = {}        # id of an array -> name
        self.used: set[str] = set()
        self._count = 0
        for name, value in [*tensors_in(given or {}), *bound_tensors(frame)]:
            self._note(name, value)

    def _note(self, name: str, t: Any) -> None:
        key = key_of(t)
        if key not in self.found and name not in self.used:
            self.found[key] = name
            self.used.add(name)
        self.tensors.setdefault(key, t)
        if not t.level:
            self.arrays.setdefault(id(t.array), self.found.get(key, name))

    def of(self, t: Any) -> str:
        """The name of a tensor."""
        return self.at(key_of(t))

    def at(self, key: Any) -> str:
        """The name of a value; a new one where it has none."""
        found = self.found.get(key)
        if found is None:
            found = self.fresh("v")
            self.found[key] = found
        return found

    def fresh(self, stem: str) -> str:
        """A name that nothing has."""
        while True:
            self._count += 1
            name = f"{stem}{self._count}"
            if name not in self.used:
                self.used.add(name)
                return name

    def known(self, key: Any) -> bool:
        """True if the value has a name already."""
        return key in self.found


__all__ = ["Names", "key_of", "key_of_edge"]
