"""Nested tensors in checkpoints, as PyTorch writes them: the tensors that they are made of."""
from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from adjoint.core.tensor import Tensor
from adjoint.io.errors import FileFormatError
from adjoint.io.pickle_in import Callable_, Inner, Trusted
from adjoint.io.pickle_out import Call, Global
from adjoint.ops.device import strided

_INTERNAL = "torch.nested._internal.nested_tensor"


def nested_call(tensor: Any, parts: dict[int, Any]) -> Call:
    """The call that makes a nested tensor. `parts` holds the tensors in it from the first of two
    passes to the second."""
    found = parts.get(id(tensor))
    if tensor.layout is strided:
        if found is None:
            found = parts[id(tensor)] = (
                tensor._held.detach(), tensor._nested_tensor_size(),
                tensor._nested_tensor_strides(), tensor._nested_tensor_storage_offsets())
        return Call(Global("torch._utils", "_rebuild_nested_tensor"), found)
    if found is None:
        found = parts[id(tensor)] = {
            "values": tensor._held.detach(), "offsets": tensor._offsets,
            "lengths": tensor._lengths, "_ragged_idx": tensor._ragged_idx, "_metadata_cache": {},
            "requires_grad": bool(tensor.requires_grad)}
    return Call(Global("torch._tensor", "_rebuild_from_type_v2"), (
        Global(_INTERNAL, "_rebuild_njt"), Global(_INTERNAL, "NestedTensor"), (found,), {}))


class _Note:
    """What PyTorch's compiler has noted on a tensor; left out."""

    def __setstate__(self, state: Any) -> None:
        """Nothing is kept."""


def _ints(x: Any) -> Any:
    if not isinstance(x, Tensor) or x.array.dtype.kind not in "iu":
        raise FileFormatError("a nested tensor in it has no integers for its sizes")
    return x.tolist()


def _strided(buffer: Any, sizes: Any, strides: Any, starts: Any) -> Any:
    made = importlib.import_module("adjoint.nested.tensor").StridedNested
    sizes, strides, starts = _ints(sizes), _ints(strides), _ints(starts)
    for size, step, start in zip(sizes, strides, starts, strict=True):
        ends = start + sum((n - 1) * s for n, s in zip(size, step, strict=True))
        if min([start, *size, *step]) < 0 or min(size, default=1) and ends >= buffer.numel():
            raise FileFormatError(f"a part {size} of a nested tensor in it lies outside of its "
                                  f"buffer of {buffer.numel()} elements")
    return made(buffer, sizes, strides, starts)


def rebuilt_jagged(given: Any) -> Any:
    """The nested tensor of layout jagged that PyTorch's dictionary of arguments describes."""
    made = importlib.import_module("adjoint.nested")
    values, ragged = given["values"], given.get("_ragged_idx", 1)
    bounds, lengths = _ints(given["offsets"]), given["lengths"]
    counts = [b - a for a, b in zip(bounds, bounds[1:], strict=False)] if lengths is None else (
        _ints(lengths))
    wide = values.shape[ragged - 1]
    if any(n < 0 or a < 0 or a + n > wide for a, n in zip(bounds, counts, strict=False)):
        raise FileFormatError(f"a nested tensor in it has parts at {bounds}, outside of its {wide} "
                              "values")
    found = made.nested_tensor_from_jagged(values, given["offsets"], lengths, ragged)
    return found.detach().requires_grad_() if given.get("requires_grad") is True else found


def later(*args: Any) -> None:
    """A nested tensor in the first of two passes, where its offsets are not read yet."""


def names(filled: bool) -> dict[str, Any]:
    """PyTorch's names for what nested tensors are made by."""
    strided_: Callable[..., Any] = _strided if filled else later
    return {"torch._utils._rebuild_nested_tensor": Callable_(strided_),
            f"{_INTERNAL}._rebuild_njt": Inner(rebuilt_jagged if filled else later),
            f"{_INTERNAL}.NestedTensor": Tensor,
            "torch._dynamo.decorators._DimRange": Trusted(_Note)}


__all__ = ["later", "names", "nested_call", "rebuilt_jagged"]
