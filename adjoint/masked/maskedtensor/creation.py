"""How masked tensors are made."""
from __future__ import annotations

from adjoint.core.tensor import Tensor
from adjoint.masked.maskedtensor import rules as rules
from adjoint.masked.maskedtensor.core import MaskedTensor, made
from adjoint.masked.maskedtensor.core import _check as check
from adjoint.ops.public import FUNCTIONS as F
from adjoint.ops.sparse_tensor import SparseTensor


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A masked tensor of copies of `data` and `mask`; a leaf.

    >>> import adjoint as ad
    >>> masked_tensor(ad.tensor([1, 2]), ad.tensor([True, False])).sum()
    MaskedTensor(1, True)
    """
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """A masked tensor of `data` itself, connected to its graph: no gradient goes to elements
    without a value.

    >>> import adjoint as ad
    >>> x = ad.tensor([1.0, -1.0], requires_grad=True)
    >>> as_masked_tensor(x, x > 0).log().sum().backward()
    >>> x.grad
    tensor([1., 0.])
    """
    check(data, mask)
    if data.requires_grad and not isinstance(data, SparseTensor):
        data = F["where"](mask, data, data.detach())
    return made(data, mask)


__all__ = ["as_masked_tensor", "masked_tensor"]
