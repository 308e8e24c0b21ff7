"""Nested tensors: batches of tensors of different sizes, the functions of `torch.nested`.

    >>> import adjoint as ad
    >>> t = ad.nested.nested_tensor([ad.tensor([1.0, 2.0]), ad.tensor([3.0])], layout=ad.jagged)
    >>> (t * 2).to_padded_tensor(0.0)
    tensor([[2., 4.],
            [6., 0.]])

Of the two layouts `jagged` is the one to take: one axis differs between the parts, and most
functions work. In the layout `strided`, the default, every axis may differ, and fewer do.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.errors import (
    ArgumentError,
    AutogradError,
    DTypeError,
    NotSupported,
    ShapeError,
    missing,
)
from adjoint.core.tensor import Tensor, wrap
from adjoint.nested import jagged as _jagged
from adjoint.nested import strided as _strided
from adjoint.nested.tensor import NestedTensor, StridedNested, jagged_of, strided_of
from adjoint.ops import device as _device
from adjoint.ops.public import FUNCTIONS as _F

__all__ = ["as_nested_tensor", "masked_select", "narrow", "nested_tensor",
           "nested_tensor_from_jagged", "to_padded_tensor"]
_ONLY_LISTS = "Only lists (List[Tensor] and List[List...[Scalar]]) are accepted in nested_tensor"


def _is_jagged(layout: Any) -> bool:
    if layout not in (None, _device.strided, _device.jagged):
        raise ArgumentError(f"Specified layout is unsupported for nested tensors: {layout}")
    return layout is _device.jagged


def _jagged_parts(tensors: list[Any]) -> Any:
    """The parts joined along the one axis in which they differ."""
    if not tensors:
        raise ArgumentError("Cannot construct a nested tensor from an empty tensor list")
    for what, found in (("dtype", {t.dtype for t in tensors}),
                        ("device", {t.device for t in tensors}), ("dim", {t.dim() for t in tensors})
                        ):
        if len(found) > 1:
            raise ShapeError("When constructing a nested tensor, all tensors in list must have the "
                             f"same {what}")
    if not tensors[0].dim():
        raise ShapeError("Cannot construct a nested tensor from a list of zero-dim tensors")
    varies = [d for d, n in enumerate(zip(*(t.shape for t in tensors), strict=True))
              if len(set(n)) > 1]
    if len(varies) > 1:
        raise ShapeError("Cannot represent given tensor list as a nested tensor with the jagged "
                         "layout. Note that the jagged layout only represents shapes of the form "
                         "(B, *_0, ..., *_N), with only one irregular dimension in it; got shapes "
                         f"{[tuple(t.shape) for t in tensors]}")
    return jagged_of(tensors, varies[0] + 1 if varies else 1)


def _strided_parts(tensors: list[Any]) -> Any:
    for i, t in enumerate(tensors):
        if t.dim() != tensors[0].dim():
            raise ShapeError("All Tensors given to nested_tensor must have the same dimension. "
                             f"Found dimension {t.dim()} for Tensor at index {i} and dimension "
                             f"{tensors[0].dim()} for Tensor at index 0.")
    return strided_of(tensors)


def _made(tensors: list[Any], layout: Any) -> Any:
    return _jagged_parts(tensors) if _is_jagged(layout) else _strided_parts(tensors)


def nested_tensor(tensor_list: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                  requires_grad: bool = False, pin_memory: bool = False) -> Any:
    """A nested tensor of copies of the parts; a leaf.

    tensor_list  tensors, arrays or lists of numbers with equally many axes
    dtype        that of the first part, if None
    layout       `strided` (any axis may differ between the parts) or `jagged` (one of them)
    Raises ShapeError where the parts do not fit together.

    >>> import adjoint as ad
    >>> nested_tensor([[1.0, 2.0], [3.0]])
    nested_tensor([
      tensor([1., 2.]),
      tensor([3.])
    ])
    """
    if isinstance(tensor_list, NestedTensor) and _is_jagged(layout):
        parts = tensor_list.parts()
    elif isinstance(tensor_list, (list, tuple)):
        parts = list(tensor_list)
    elif isinstance(tensor_list, Tensor) and _is_jagged(layout):
        parts = list(tensor_list.unbind())
    else:
        raise DTypeError(f"{_ONLY_LISTS}, got {type(tensor_list).__name__}")
    made = [p.detach() if isinstance(p, Tensor) else _F["as_tensor"](p, dtype=dtype) for p in parts]
    if dtype is None and made and not _is_jagged(layout):
        dtype = made[0].dtype
    found = _made([p.to(device, dtype) if dtype is not None else p.to(device or p.device)
                   for p in made], layout)
    if dtype is not None and not made:
        found = found.to(dtype)
    if requires_grad and not (found.is_floating_point() or found.is_complex()):
        raise AutogradError("Only Tensors of floating point and complex dtype can require "
                            f"gradients, these are of {found.dtype}")
    return found.requires_grad_() if requires_grad else found


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Any:
    """A nested tensor of tensors, connected to their graphs.

    ts  tensors in a list or a tuple; a tensor (its first axis counts the parts); a nested tensor
    Raises DTypeError for anything else.

    >>> import adjoint as ad
    >>> x = ad.ones(2, requires_grad=True)
    >>> as_nested_tensor([x, ad.ones(3)], layout=ad.jagged).sum().backward()
    >>> x.grad
    tensor([1., 1.])
    """
    wanted = _device.jagged if _is_jagged(layout) else _device.strided
    if isinstance(ts, (NestedTensor, StridedNested)):
        if ts.layout is not wanted:
            raise ArgumentError("as_nested_tensor(): Converting between nested tensor layouts is "
                                "not supported")
        return ts.to(device or ts.device, dtype or ts.dtype)
    if not isinstance(ts, Tensor) and not (isinstance(ts, (list, tuple)) and all(
            isinstance(t, Tensor) for t in ts)):
        raise TypeError("as_nested_tensor(): Expected first argument to be a tensor or a list / "
                        "tuple of tensors ")
    if not isinstance(ts, Tensor):
        parts = [t.to(device or t.device, dtype or ts[0].dtype) for t in ts]
        return _made(parts, layout)
    x = ts.to(device or ts.device, dtype or ts.dtype).contiguous()
    if wanted is _device.strided:
        return StridedNested(x.reshape(-1), [x.shape[1:]] * x.shape[0], rank=x.dim())
    if x.dim() < 2:
        raise ShapeError("as_nested_tensor(): Expected tensor argument to have dim() > 1")
    batch, length = x.shape[:2]
    return NestedTensor(x.reshape(batch * length, *x.shape[2:]),
                        wrap(np.arange(batch + 1, dtype=np.int64) * length))


def nested_tensor_from_jagged(values: Any, offsets: Any = None, lengths: Any = None,
                              jagged_dim: int | None = None, min_seqlen: int | None = None,
                              max_seqlen: int | None = None) -> Any:
    """A nested tensor of layout jagged that is a view of its parts, which lie end to end.

    offsets     (parts + 1,) where each begins, and the end
    lengths     (parts,) how long each is: without `offsets` they follow on each other, with them
                there may be holes
    jagged_dim  the ragged axis of the result (1)
    min_seqlen, max_seqlen  taken as they are; they are worked out here
    Raises ArgumentError if both are missing.

    >>> import adjoint as ad
    >>> t = nested_tensor_from_jagged(ad.arange(6.0), ad.tensor([0, 2, 6]))
    >>> t.sum(1)
    tensor([ 1., 14.])
    """
    if offsets is None:
        if lengths is None:
            raise ArgumentError("nested_tensor_from_jagged(): At least one of offsets or lengths "
                                "is required.")
        offsets, lengths = _F["cat"]([lengths.new_zeros(1), lengths.cumsum(0)]), None
    for name, x in (("input' (position 1)", values), ("offsets' (position 2)", offsets)):
        if not isinstance(x, Tensor):
            raise TypeError(f"nested_tensor_from_jagged(): argument '{name} must be Tensor, not "
                            f"{type(x).__name__}")
    if isinstance(values, (NestedTensor, StridedNested)):
        raise ArgumentError("nested_tensor_from_jagged(): expected values to be a tensor, got a "
                            "nested one")
    ragged = 1 if jagged_dim is None else jagged_dim
    if ragged < 1:
        raise ArgumentError(f"Expected jagged_dim >=1, but got {ragged}.")
    return NestedTensor(values.view(values.shape), offsets, lengths=lengths, _ragged_idx=ragged)


def _column(x: Any, n: int) -> Any:
    return x if isinstance(x, Tensor) else wrap(np.full(n, x, np.int64))


def narrow(tensor: Any, dim: int, start: Any, length: Any, layout: Any = _device.strided) -> Any:
    """Places `start` to ``start + length`` of an axis, which may differ from row to row (tensors).

    In the layout jagged a view of `tensor`, of its axis 1 only; in the layout strided a copy, of
    one range of the first axis of a nested tensor.

    >>> import adjoint as ad
    >>> t = narrow(ad.arange(6.0).view(2, 3), 1, 0, ad.tensor([1, 3]), layout=ad.jagged)
    >>> [p.tolist() for p in t.unbind()]
    [[0.0], [3.0, 4.0, 5.0]]
    """
    if not _is_jagged(layout):
        if isinstance(start, Tensor) or isinstance(length, Tensor):
            raise ArgumentError("start and length must be integers for the strided layout NT impl")
        return as_nested_tensor(_F["unbind"](tensor)).narrow(dim, start, length)
    if dim != 1:
        raise ArgumentError("jagged layout only supports dim=1")
    batch, wide = tensor.shape[:2]
    begin, long = _column(start, batch), _column(length, batch)
    for name, x in (("start", begin), ("length", long)):
        if tuple(x.shape) != (batch,):
            raise ShapeError(f"When {name} is a tensor, it must have batch_size = {batch} elements,"
                             f" got {list(x.shape)}")
    first = begin.array + np.arange(batch) * wide
    values = tensor.reshape(batch * wide, *tensor.shape[2:])
    if batch and (begin.array == 0).all() and (long.array == wide).all():
        return NestedTensor(values, wrap(np.append(first, batch * wide).astype(np.int64)))
    offsets = np.append(first, first[-1] + long.array[-1] if batch else 0).astype(np.int64)
    return NestedTensor(values, wrap(offsets), lengths=long)


def masked_select(tensor: Any, mask: Any) -> Any:
    """The elements where `mask` is True, row by row: a nested tensor of layout jagged.

    >>> import adjoint as ad
    >>> t = masked_select(ad.ones(2, 3), ad.tensor([[True, False, True], [False, True, False]]))
    >>> t.offsets().tolist()
    [0, 2, 3]
    """
    if tensor.layout is not _device.strided:
        raise ArgumentError("torch.nested.masked_select requires a strided tensor, given "
                            f"{tensor.layout}")
    if mask.layout is not _device.strided:
        raise ArgumentError(f"torch.nested.masked_select requires a strided mask, given "
                            f"{mask.layout}")
    if mask.array.dtype.kind != "b":
        raise DTypeError(f"masked_select: expected BoolTensor for mask, got {mask.dtype}")
    values = tensor.masked_select(mask)
    full = np.broadcast_to(mask.array, np.broadcast_shapes(tensor.shape, mask.shape))
    rows = full if full.ndim > 1 else full[None]
    counts = np.cumsum(rows.sum(-1).reshape(-1))
    return NestedTensor(values, wrap(np.concatenate([[0], counts]).astype(np.int64)))


def to_padded_tensor(input: Any, padding: float, output_size: Any = None, out: Any = None) -> Any:
    """The parts in one dense tensor, short ones filled up with `padding` at their ends.

    output_size  extents of the result; those of the largest parts, if None
    Raises ShapeError if `output_size` is too small (layout strided), NotSupported for a tensor that
    is not nested.

    >>> import adjoint as ad
    >>> ad.nested.nested_tensor([[1.0, 2.0], [3.0]]).to_padded_tensor(-1.0)
    tensor([[ 1.,  2.],
            [ 3., -1.]])
    """
    if not isinstance(input, (NestedTensor, StridedNested)):
        raise NotSupported("Could not run 'aten::to_padded_tensor' with arguments from the 'CPU' "
                           "backend: only nested tensors can be padded")
    table = (_jagged if isinstance(input, NestedTensor) else _strided).RULES
    found = table["to_padded_tensor"](None, input, padding, output_size)
    return found if out is None else out.copy_(found)


for _kind in (NestedTensor, StridedNested):
    _kind.to_padded_tensor = to_padded_tensor  # type: ignore[union-attr]  # a method
__getattr__ = missing("adjoint.nested")
