"""What a node shows of its residuals: `saved_tensors`, `_saved_self`, `_saved_result`, `_raw_*`."""
from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from adjoint.autograd.engine import Backward
from adjoint.autograd.fit import fit_tensor
from adjoint.autograd.graph import freed_message, saved_tensors_hooks
from adjoint.base.aval import Aval
from adjoint.base.dtypes import is_inexact, of_numpy
from adjoint.base.errors import AutogradError
from adjoint.core.bind import packed, tensor_of
from adjoint.core.tensor import Kept, Node, OutRef, Packed, Size, Tensor, alias, wrap
from adjoint.ops.device import device

# PyTorch's names of residuals that are called otherwise in our records.
_SHOWN = {"a": "self", "x": "self", "b": "other", "out": "result", "input": "self"}


REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


_PAIRS = {"kernel_size", "dilation", "padding", "stride", "output_size"}      # of the plane
_COUNTED = ("dim", "padding_idx")                    # (from the front, in the record's attributes)


def _own(node: Node) -> tuple[dict[str, str], dict[str, Callable[[Any], Any]]]:
    """PyTorch's names of what this node keeps, and what it makes under others."""
    from adjoint.autograd.saved_names import MADE, NAMES  # loaded by the first question for a name
    name = type(node).__name__
    return NAMES.get(name, {}), MADE.get(name, {})


def _names(node: Node, key: str) -> tuple[str, ...]:
    """PyTorch's name of a residual or an attribute, and ours."""
    theirs = [n for n, ours in _own(node)[0].items() if ours == key]
    return (*(theirs or [_SHOWN.get(key, key)]), key)


def residuals(node: Node) -> dict[str, Any]:
    """Residual name -> value (tensors, avals, numbers), versions checked."""
    plan = node.plan
    if plan is None or not plan.names:
        return {}
    if node.freed is not None:
        raise AutogradError(freed_message(node))
    return {n: _shown(tensor_of(s, node)) for n, s in zip(plan.names, node.saved, strict=True)}


def _shown(value: Any) -> Any:
    """A residual for the user: places (the indices of a maximum) have no gradient."""
    return alias(value) if isinstance(value, Tensor) and value._rg and not is_inexact(
        value.array.dtype) else value


class SavedTensor:
    """A residual itself, as `_raw_saved_<name>` of a node gives it; index -1: it is not kept."""

    def __init__(self, node: Node, index: int) -> None:
        self._node, self._index = node, index

    def _held(self) -> Any:
        if self._node.freed is not None:
            raise AutogradError("Calling register_hooks on a saved tensor after it has been freed. "
                                + freed_message(self._node).partition(". ")[2])
        return self._node.saved[self._index] if self._index >= 0 else None

    def register_hooks(self, pack_hook: Callable[[Tensor], Any],
                       unpack_hook: Callable[[Any], Tensor]) -> None:
        """Pack this residual now; its backward asks `unpack_hook` for it."""
        if not callable(pack_hook) or not callable(unpack_hook):
            raise TypeError("register_hooks(): incompatible function arguments: it takes two "
                            "functions, pack and unpack")
        held = self._held()
        if isinstance(held, Packed):
            raise AutogradError("Calling register_hooks on a saved tensor whose hooks have already "
                                "been set. Hint: only one pair of hooks is allowed at a time.")
        if held is None:
            raise AutogradError("Calling register_hooks on a saved tensor with value None is "
                                "forbidden")
        if not isinstance(held, (Tensor, OutRef, Kept)):
            raise AutogradError("Calling register_hooks on a saved value that is no tensor")
        new = packed(held, self._node, saved_tensors_hooks(pack_hook, unpack_hook), self._index)
        saved: tuple[Any, ...] = self._node.saved
        self._node.saved = (*saved[:self._index], new, *saved[self._index + 1:])

    def unpack(self) -> Any:
        """The tensor."""
        return tensor_of(self._held(), self._node)


def _raw_saved_tensors(self: Node) -> tuple[SavedTensor, ...]:
    """What a custom function saved for backward, for hooks."""
    if self.freed is not None:
        raise AutogradError(freed_message(self))
    return tuple(SavedTensor(self, i) for i in range(len(self.saved or ())))


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
    if name.startswith("_raw_saved_") and getattr(self, "plan", None) is not None:
        for i, key in enumerate(self.plan.names):
            if name[11:] in _names(self, key):
                return SavedTensor(self, i)
        if _of_operand(self, name[11:]) == (None,):
            return SavedTensor(self, -1)
    if name.startswith("_saved_") and getattr(self, "plan", None) is not None:
        wanted = name[7:]
        named = [k for k in self.plan.names if wanted in _names(self, k)]
        for key, value in residuals(self).items() if named or self.freed is None else ():
            if key in named:
                return wrap(value) if isinstance(value, np.ndarray) else value
            if isinstance(value, Aval) and wanted in [
                    f"{n}_sym_sizes" for n in _names(self, key.removesuffix("_aval"))]:
                return value.shape
        asked = _asked(self)
        if wanted in asked:
            return asked[wanted]
        made = _own(self)[1].get(wanted)
        if made is not None:
            try:
                return made(self)
            except LookupError:
                pass                     # another record of the same name does not have it
        for key, value in self.attrs.items():
            if wanted in (*_names(self, key), key.rstrip("s")):
                return value
        found = _of_operand(self, wanted)
        if found is not None:
            return found[0]
    raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


def _asked(node: Node) -> dict[str, Any]:
    """The numbers of the call that made the node, by the names of its function's arguments."""
    if getattr(node, "said", None) is None:
        return {}
    f, args, kwargs = node.said  # type: ignore[attr-defined]  # of a WideNode
    known = inspect.signature(f).parameters
    names = [n for n, p in known.items() if p.kind is not p.VAR_POSITIONAL]
    found = {n: p.default for n, p in known.items()}
    found |= {names[i]: x for i, x in args.items() if i < len(names)} | kwargs
    if isinstance(found.get("reduction"), str):
        found["reduction"] = REDUCTIONS[found["reduction"]]
    for n in _PAIRS & found.keys():
        found[n] = (found[n],) * 2 if isinstance(found[n], int) else found[n]
    return {n: x for n, x in found.items() if n not in _COUNTED and isinstance(
        x, (int, float, tuple, list)) and not (n in ("dims", "shifts") and isinstance(x, int))}


def _of_operand(node: Node, wanted: str) -> tuple[Any] | None:
    """What a node tells of an operand that it does not keep: its sizes; None in its place."""
    op, edges = node.op, node.edges
    if op is None or op.variadic or len(op.operands) != len(edges):
        return None
    for name, edge in zip(op.operands, edges, strict=True):
        if edge is not None and wanted in [f"{n}_sym_sizes" for n in _names(node, name)]:
            return (Size(edge.shape),)
    kept = op.plan((1 << len(op.operands)) - 1).kept
    return (None,) if any(wanted in _names(node, k) for k in kept) else None


def _input_metadata(self: Node) -> tuple[Any, ...]:
    """Shape, dtype and device of what the node's backward is given: of its outputs."""
    shapes = self.shape if self.ports else (self.shape,)
    dtypes = self.dtype if self.ports else (self.dtype or self.plan.dtype,)
    return tuple(SimpleNamespace(shape=Size(s), dtype=of_numpy(d), device=device("cpu"),
                                 is_nested_tensor=False, is_cpp_nested_tensor=False)
                 for s, d in zip(shapes, dtypes, strict=True) if s is not None)


def _node_call(self: Node, *grads: Any) -> Any:
    """What the node's backward gives for cotangents of its outputs; the graph stays as it is."""
    n = max(self.ports, 1)
    if len(grads) != n:
        raise TypeError(f"{self.name()}: expected {n} arguments, got {len(grads)} instead")
    for i, g in enumerate(grads):
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(f"{self.name()}: argument {i} is not a Variable but a "
                            f"{type(g).__name__}")
    walk, ct = Backward(True, True, None, False), list(grads) if self.ports else grads[0]
    found = [None] * len(self.edges) if not any([g is not None for g in grads]) else (
        walk._call(self, ct, False, [], None) if self.plan is not None
        else self.apply(walk, ct))  # type: ignore[attr-defined]  # a node without a plan has it
    made = [None if c is None or e is None else fit_tensor(c, e)
            for c, e in zip(found, self.edges, strict=True)]
    return made[0] if len(made) == 1 else tuple(made)


def _node_dir(self: Node) -> list[str]:
    names = set(object.__dir__(self))
    if self.plan is not None and type(self.saved) is tuple:
        kept = {_names(self, n)[0] for n in self.plan.kept}
        names |= {f"_saved_{n}" for n in kept | _own(self)[1].keys()}
        names |= {f"_saved_{_names(self, a)[0]}" for a in self.attrs}
        names |= {f"_raw_saved_{n}" for n in kept}
    return sorted(names)


for _name, _value in (("saved_tensors", property(_saved_tensors)),
                      ("_raw_saved_tensors", property(_raw_saved_tensors)),
                      ("_input_metadata", property(_input_metadata)), ("__call__", _node_call),
                      ("__getattr__", _node_getattr), ("__dir__", _node_dir)):
    setattr(Node, _name, _value)
