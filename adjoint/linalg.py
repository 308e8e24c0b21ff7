"""Linear algebra with derivatives: the functions of `torch.linalg`.

Policies: the gradient of a norm at 0 is 0; pairs of equal eigenvalues or singular values do not
couple, so gradients of degenerate spectra are finite; `det` differentiates singular matrices.
"""
from __future__ import annotations

from adjoint.base.errors import missing as _missing
from adjoint.ops import lu as _lu  # noqa: F401 - registers
from adjoint.ops.api_arrange import cross as cross
from adjoint.ops.api_arrange import diagonal as diagonal
from adjoint.ops.api_decompose import LINALG as _LINALG
from adjoint.ops.api_decompose import LinAlgError as LinAlgError
from adjoint.ops.api_linalg import matmul as matmul

globals().update(_LINALG)
__all__ = ["LinAlgError", "cross", "diagonal", "matmul", *sorted(_LINALG)]
__getattr__ = _missing("adjoint.linalg")
