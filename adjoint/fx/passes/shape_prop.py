"""Shapes and dtypes of every value of a graph."""
from __future__ import annotations

from typing import Any, NamedTuple

import adjoint
from adjoint.core.tensor import Tensor
from adjoint.fx.interpreter import Interpreter
from adjoint.fx.node import Node, map_aggregate


class TensorMetadata(NamedTuple):
    """What a tensor of the graph is, without its values."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _of(t: Any) -> Any:
    if not isinstance(t, Tensor):
        return t
    order = next((form for form in (adjoint.contiguous_format, adjoint.channels_last,
                                    adjoint.channels_last_3d)
                  if t.is_contiguous(memory_format=form)), None)
    return TensorMetadata(t.shape, t.dtype, t.requires_grad, t.stride(), order, False, {})


class ShapeProp(Interpreter):
    """Runs a graph on sample arguments and notes, in `meta["tensor_meta"]` of each node, what its
    tensors are, in `meta["type"]` the type of its value.

    >>> import adjoint as ad
    >>> from adjoint.fx import symbolic_trace
    >>> module = symbolic_trace(lambda x: x.reshape(2, 3).sum(0))
    >>> _ = ShapeProp(module).propagate(ad.ones(6))
    >>> [tuple(n.meta["tensor_meta"].shape) for n in module.graph.nodes]
    [(6,), (2, 3), (3,), (3,)]
    """

    def run_node(self, n: Node) -> Any:
        """The value of one node, noted."""
        value = super().run_node(n)
        found: list[Any] = []
        map_aggregate(value, lambda x: found.append(x) if isinstance(x, Tensor) else None)
        if found:
            n.meta["tensor_meta"] = map_aggregate(value, _of)
        n.meta["type"] = type(value)
        return value

    def propagate(self, *args: Any) -> Any:
        """The graph's result for the arguments."""
        return super().run(*args)


__all__ = ["ShapeProp", "TensorMetadata"]
