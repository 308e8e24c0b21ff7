"""Linear algebra with derivatives: the functions of `torch.linalg`.

Policies: the gradient of a norm at 0 is 0; pairs of equal eigenvalues or singular values do not
couple, so gradients of degenerate spectra are finite; `det` differentiates singular matrices.
"""
from __future__ import annotations

from typing import Any as _Any

from adjoint.base.errors import missing as _missing
from adjoint.ops import ldl as _ldl  # noqa: F401 - registers
from adjoint.ops import lu as _lu  # noqa: F401 - registers
from adjoint.ops.api_arrange import cross as _cross
from adjoint.ops.api_arrange import diagonal as _diagonal
from adjoint.ops.api_decompose import LINALG as _LINALG
from adjoint.ops.api_decompose import LinAlgError as LinAlgError
from adjoint.ops.api_linalg import matmul as matmul
from adjoint.ops.public import other_names as _other_names


@_other_names
def cross(input: _Any, other: _Any, *, dim: int = -1, out: _Any = None) -> _Any:
    """The cross product along an axis of size 3, the last by default; other axes broadcast.

    >>> import adjoint as ad
    >>> cross(ad.tensor([1.0, 0.0, 0.0]), ad.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    return _cross(input, other, dim, out=out)


@_other_names
def diagonal(A: _Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> _Any:
    """A view of the diagonals of two axes, the last two by default, as the last axis.

    >>> import adjoint as ad
    >>> diagonal(ad.arange(8).reshape(2, 2, 2))
    tensor([[0, 3],
            [4, 7]])
    """
    return _diagonal(A, offset, dim1, dim2)


globals().update(_LINALG)
__all__ = ["LinAlgError", "cross", "diagonal", "matmul", *sorted(_LINALG)]
__getattr__ = _missing("adjoint.linalg")
