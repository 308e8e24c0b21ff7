"""Tensors with a mask: the class, its constructors and the functions that it has."""
from adjoint.masked.maskedtensor.core import MaskedTensor as MaskedTensor
from adjoint.masked.maskedtensor.core import is_masked_tensor as is_masked_tensor
from adjoint.masked.maskedtensor.creation import as_masked_tensor as as_masked_tensor
from adjoint.masked.maskedtensor.creation import masked_tensor as masked_tensor

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]
