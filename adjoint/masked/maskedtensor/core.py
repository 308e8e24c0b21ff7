"""Tensors with a mask: which of their elements have a value.

    >>> import adjoint as ad
    >>> t = ad.masked.masked_tensor(ad.tensor([1.0, 2.0]), ad.tensor([True, False]))
    >>> t * 3
    MaskedTensor(
      [  3.0000,       --]
    )

The data is an ordinary tensor, held by the masked one: functions act on it, and on the mask where
they move elements (`rules.py`). No value of the data under a False reaches a result.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.core.modes import warn_as_pytorch
from adjoint.core.tensor import Tensor
from adjoint.holders import Holder
from adjoint.ops.device import sparse_coo, sparse_csr, strided
from adjoint.ops.public import FUNCTIONS as F
from adjoint.ops.sparse_tensor import SparseTensor

_PROTOTYPE = ("The PyTorch API of MaskedTensors is in prototype stage and will change in the near "
              "future. Please open a Github issue for features requests and see our documentation "
              "on the torch.masked module for further information about the project.")
_LEAF = ("It is not recommended to create a MaskedTensor with a tensor that requires_grad. To "
         "avoid this, you can use data.detach().clone()")


class MaskedTensor(Holder):
    """`data` where `mask` is True; no value elsewhere.

    data  a tensor of real numbers or bools; copied by `masked_tensor`
    mask  bools, of the shape and the layout of `data`
    Raises TypeError or ArgumentError where they do not fit.

    >>> import adjoint as ad
    >>> t = MaskedTensor(ad.tensor([1.0, 2.0, 4.0]), ad.tensor([True, False, True]))
    >>> t.mean().item(), t.to_tensor(0.0)
    (2.5, tensor([1., 0., 4.]))
    """

    _mask: Tensor

    def __init__(self, data: Any, mask: Any, requires_grad: bool = False) -> None:
        _check(data, mask)
        warn_as_pytorch(_PROTOTYPE, once=True)
        if data.requires_grad:
            warn_as_pytorch(_LEAF)
        self._set(data.detach().clone(), mask.detach().clone())
        if requires_grad:
            self._held.requires_grad_()

    def _set(self, data: Any, mask: Any) -> None:
        if isinstance(mask, SparseTensor):
            data, mask = data.coalesce(), mask.coalesce()
            if not np.array_equal(data._at, mask._at):       # stored where the mask is
                data = data.to_dense().sparse_mask(mask)
        self._mask = mask
        self._hold(data, data.array.shape)

    def _with(self, values: Any) -> Any:
        return made(values, self._mask)

    @classmethod
    def _refused(cls, func: Any, name: str) -> Any:
        raise DispatchFailed(f"Multiple dispatch failed for 'torch._ops.aten.{name.strip('_')}': "
                             "there is no such function of a MaskedTensor; take to_tensor(value), "
                             "or get_data() and get_mask()")

    # -- data and mask ------------------------------------------------------------------------
    def get_data(self) -> Any:
        """The data, connected to the graph; without meaning under a False of the mask."""
        if isinstance(self._held, SparseTensor):
            return self._held
        return self._held.view(self._held.shape)

    def get_mask(self) -> Tensor:
        """True where there is a value."""
        return self._mask

    @property
    def _masked_data(self) -> Any:
        return self._held

    @property
    def _masked_mask(self) -> Tensor:
        return self._mask

    def to_tensor(self, value: Any) -> Any:
        """A dense tensor, `value` in the place of what has none; differentiable."""
        dense = self.to_dense() if self.is_sparse_coo() or self.is_sparse_csr() else self
        return F["masked_fill"](dense._held, ~dense._mask, value)

    # -- layouts ------------------------------------------------------------------------------
    @property
    def layout(self) -> Any:
        """That of the data."""
        return self._held.layout

    @property
    def is_sparse(self) -> bool:
        """Whether data and mask are in the coordinate layout."""
        return self.is_sparse_coo()

    def is_sparse_coo(self) -> bool:
        """Whether data and mask are in the coordinate layout."""
        return self._held.layout is sparse_coo

    def is_sparse_csr(self) -> bool:
        """Whether data and mask are in compressed rows."""
        return self._held.layout is sparse_csr

    def to_dense(self, dtype: Any = None, *, masked_grad: Any = None) -> Any:
        """The same values with data and mask dense."""
        if not isinstance(self._held, SparseTensor):
            return self
        return made(self._held.to_dense(), self._mask.to_dense())

    def to_sparse(self, *args: Any, layout: Any = None, **kwargs: Any) -> Any:
        """The same values with data and mask in coordinates, those of the mask."""
        if layout is sparse_csr:
            return self.to_sparse_csr()
        if self.is_sparse_coo():
            return self
        dense = self.to_dense()
        mask = dense._mask.to_sparse()
        return made(dense._held.sparse_mask(mask), mask)

    to_sparse_coo = to_sparse

    def to_sparse_csr(self, dense_dim: Any = None) -> Any:
        """The same values with data and mask in compressed rows."""
        if self.is_sparse_csr():
            return self
        found = self.to_sparse()
        return made(found._held.to_sparse_csr(), found._mask.to_sparse_csr())

    # -- shape and values ---------------------------------------------------------------------
    @property
    def shape(self) -> Any:
        """Extent along each axis."""
        return self._held.shape

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the extent of one axis."""
        return self._held.size() if dim is None else self._held.size(dim)

    def stride(self, dim: int | None = None) -> Any:
        """Steps in elements along each axis."""
        return self._held.stride() if dim is None else self._held.stride(dim)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the data is."""
        return bool(self._held.is_contiguous())

    def __len__(self) -> int:
        return len(self._held)

    def numel(self) -> int:
        """Number of elements, with and without a value."""
        return int(np.prod(self.array.shape, dtype=np.int64))

    def item(self) -> Any:
        """The one element as a Python number. Raises ArgumentError if it has no value."""
        found = self._held.item()
        if not self._mask.item():
            raise ArgumentError("item(): the element has no value, its mask is False; use "
                                "to_tensor(value).item()")
        return found

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        if self.numel() == 1:
            return bool(self.item())
        return bool(self._held)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        dense = self.to_dense()
        text = _text(dense._held.detach(), dense._mask)
        return f"MaskedTensor({text})" if not self.dim() else (
            "MaskedTensor(\n  " + text.replace("\n", "\n  ") + "\n)")

    def __deepcopy__(self, memo: Any) -> Any:
        twin = memo[id(self)] = made(self._held.clone() if not self.is_leaf else
                                     self._held.detach().clone(), self._mask.clone())
        if self.is_leaf and self.requires_grad:
            twin.requires_grad_()
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        return made, (self._held, self._mask)


class DispatchFailed(NotSupported, TypeError):
    """A function that masked tensors do not have."""


def made(data: Any, mask: Any) -> MaskedTensor:
    """A masked tensor of these very tensors, connected to the graph of the data."""
    t: Any = object.__new__(MaskedTensor)
    t._set(data, mask)
    return t


def _check(data: Any, mask: Any) -> None:
    for name, x in (("data", data), ("mask", mask)):
        if not isinstance(x, Tensor) or is_masked_tensor(x):
            raise TypeError(f"{name} must be a Tensor")
    if data.layout != mask.layout:
        raise TypeError("data and mask must have the same layout.")
    if data.layout not in (strided, sparse_coo, sparse_csr):
        raise TypeError(f"data layout of {data.layout} is not supported.")
    if data.array.dtype.kind not in "fiub":
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if mask.array.dtype.kind != "b":
        raise TypeError("mask must have dtype bool.")
    if data.dim() != mask.dim():
        raise ArgumentError("data.dim() must equal mask.dim()")
    if tuple(data.array.shape) != tuple(mask.array.shape):
        raise ArgumentError("data.size() must equal mask.size()")


def _element(x: Any) -> str:
    return f"{x:8.4f}" if isinstance(x, float) else str(x)


def _text(data: Any, mask: Any) -> str:
    """The elements as nested lists, `--` for what has no value."""
    if not data.dim():
        return f"{_element(data.item())}, True" if mask.item() else "--, False"
    if data.dim() > 1:
        inner = [_text(d, m).replace("\n", "\n  ")
                 for d, m in zip(data.unbind(), mask.unbind(), strict=True)]
        return "[\n  " + ",\n  ".join(inner) + "\n]"
    texts = [_element(x) for x in data.tolist()]
    shown = [t if kept else "--" for t, kept in zip(texts, mask.tolist(), strict=True)]
    wide = max([8, *map(len, shown)])
    return "[" + ", ".join([t if t != "--" else t.rjust(wide) for t in shown]) + "]"


def is_masked_tensor(obj: Any, /) -> bool:
    """True for tensors with a mask.

    >>> import adjoint as ad
    >>> is_masked_tensor(ad.ones(2))
    False
    """
    return isinstance(obj, MaskedTensor)


def masks_equal(a: Tensor, b: Tensor) -> bool:
    """Whether two masks, dense or sparse, have True in the same places."""
    a, b = (m.to_dense() if isinstance(m, SparseTensor) else m for m in (a, b))
    return a.array.shape == b.array.shape and np.array_equal(a.array, b.array)


def _masks_match(a: Any, b: Any) -> bool:
    """Whether the masks are equal, where both have one."""
    return not (is_masked_tensor(a) and is_masked_tensor(b)) or masks_equal(a._mask, b._mask)


def _tensors_match(a: Any, b: Any, exact: bool = True, rtol: float = 1e-05,
                   atol: float = 1e-08) -> bool:
    """Whether two tensors of one layout are equal, or nearly so."""
    if is_masked_tensor(a) or is_masked_tensor(b):
        raise ArgumentError("Neither `a` nor `b` can be a MaskedTensor.")
    if a.layout != b.layout:
        raise ArgumentError(f"`a` and `b` must have the same layout. Got {a.layout} and {b.layout}")
    a, b = (x.to_dense() if isinstance(x, SparseTensor) else x for x in (a, b))
    if exact:
        return a.dim() == b.dim() and bool((a == b).all())
    return a.dim() == b.dim() and bool(F["allclose"](a, b, rtol=rtol, atol=atol))


__all__ = ["DispatchFailed", "MaskedTensor", "is_masked_tensor", "made", "masks_equal"]
