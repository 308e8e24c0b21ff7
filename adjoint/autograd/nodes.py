"""What a node shows of its residuals: `saved_tensors`, `_saved_self`, `_saved_result`, `_raw_*`."""
from __future__ import annotations

from typing import Any

from adjoint.autograd.engine import freed_message
from adjoint.base.aval import Aval
from adjoint.base.errors import AutogradError
from adjoint.core.bind import tensor_of
from adjoint.core.tensor import Node, Tensor, wrap

# PyTorch's names of residuals that are called otherwise in our records.
_SHOWN = {"a": "self", "x": "self", "b": "other", "out": "result", "input": "self"}
_BY_NODE = {"MmBackward0": {"b": "mat2"}, "BmmBackward0": {"b": "mat2"},
            "PowBackward0": {"b": "exponent"}}


def residuals(node: Node) -> dict[str, Any]:
    """Residual name -> value (tensors, avals, numbers), versions checked."""
    plan = node.plan
    if plan is None or not plan.names:
        return {}
    if node.freed is not None:
        raise AutogradError(freed_message(node))
    return {n: tensor_of(s, node) for n, s in zip(plan.names, node.saved, strict=True)}


def _saved_tensors(self: Node) -> tuple[Any, ...]:
    """The tensors this node keeps for backward, each once."""
    out: list[Any] = []
    seen: set[int] = set()
    for value in residuals(self).values():
        for v in value if isinstance(value, tuple) else (value,):
            if v is None or isinstance(v, Aval) or id(v) in seen:
                continue
            seen.add(id(v))
            out.append(v if isinstance(v, Tensor) else _boxed(v))
    return tuple(out)


def _boxed(v: Any) -> Any:
    import numpy as np
    return wrap(np.asarray(v))


def _node_getattr(self: Node, name: str) -> Any:
    """`_saved_<name>`: a residual or an attribute under PyTorch's name."""
    if name.startswith("_saved_") and getattr(self, "plan", None) is not None:
        wanted = name[7:]
        own = _BY_NODE.get(type(self).__name__, {})
        for key, value in residuals(self).items():
            if wanted in (own.get(key, _SHOWN.get(key, key)), key):
                return value
        for key, value in self.attrs.items():
            if wanted in (key, key.rstrip("s")):
                return value
    raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


def _node_dir(self: Node) -> list[str]:
    names = set(object.__dir__(self))
    if self.plan is not None and type(self.saved) is tuple:
        own = _BY_NODE.get(type(self).__name__, {})
        names |= {"_saved_" + own.get(n, _SHOWN.get(n, n)) for n in self.plan.kept}
        names |= {"_saved_" + a for a in self.attrs}
    return sorted(names)


for _name, _value in (("saved_tensors", property(_saved_tensors)), ("__getattr__", _node_getattr),
                      ("__dir__", _node_dir)):
    setattr(Node, _name, _value)
