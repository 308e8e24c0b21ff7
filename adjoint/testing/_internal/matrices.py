"""Random matrices of given kinds and ranks, as PyTorch's test files ask for them."""
from __future__ import annotations

from typing import Any

import adjoint as ad
from adjoint.core.tensor import Tensor


def random_matrix(rows: int, columns: int, *batch_dims: int, dtype: Any = None, device: Any = None,
                  singular: bool = False, **kwargs: Any) -> Tensor:
    """Matrices with singular values between 0 and 1, well apart from 0 unless `singular`: then the
    smallest is 0."""
    u, _, vh = ad.linalg.svd(ad.randn(*batch_dims, rows, columns, dtype=dtype, device=device),
                             full_matrices=False)
    n = min(rows, columns)
    values = ad.linspace(1.0 / (n + 1), 1.0, n, dtype=ad.real(u).dtype) if n else ad.ones(0)
    if singular and n:
        values = values.clone()
        values[0] = 0
    made: Tensor = (u * values.to(u.dtype).unsqueeze(-2)) @ vh
    return made


def random_lowrank_matrix(rank: int, rows: int, columns: int, *batch_dims: int,
                          **kwargs: Any) -> Tensor:
    """Matrices (*batch_dims, rows, columns) of that rank at most."""
    made: Tensor = (ad.randn(*batch_dims, rows, rank, **kwargs)
                    @ ad.randn(*batch_dims, rank, columns, **kwargs))
    return made


def random_square_matrix_of_rank(size: int, rank: int, dtype: Any = None,
                                 device: Any = "cpu") -> Tensor:
    """A (size, size) matrix with `rank` singular values of 1 or more, the others 0."""
    u, s, vh = ad.linalg.svd(ad.randn(size, size, dtype=dtype, device=device))
    s = ad.where(ad.arange(size) < rank, s + 1, ad.zeros_like(s))
    made: Tensor = (u * s.to(u.dtype)) @ vh
    return made


def random_symmetric_matrix(size: int, *batches: int, **kwargs: Any) -> Tensor:
    """Matrices that equal their transposes."""
    a = ad.randn(*batches, size, size, **kwargs)
    made: Tensor = (a + a.mT) / 2
    return made


def random_symmetric_psd_matrix(size: int, *batches: int, **kwargs: Any) -> Tensor:
    """A·Aᵀ of a random A."""
    a = ad.randn(*batches, size, size, **kwargs)
    made: Tensor = a @ a.mT
    return made


def random_symmetric_pd_matrix(matrix_size: int, *batch_dims: int, **kwargs: Any) -> Tensor:
    """A·Aᵀ of a random A, with no eigenvalue near 0."""
    a = ad.randn(*batch_dims, matrix_size, matrix_size, **kwargs)
    made: Tensor = a @ a.mT + 1e-5 * ad.eye(matrix_size, **kwargs)
    return made


def random_hermitian_matrix(size: int, *batches: int, **kwargs: Any) -> Tensor:
    """Matrices that equal their conjugate transposes."""
    a = ad.randn(*batches, size, size, **kwargs)
    made: Tensor = (a + a.mH) / 2
    return made


def random_hermitian_psd_matrix(size: int, *batches: int, **kwargs: Any) -> Tensor:
    """A·Aᴴ of a random A."""
    a = ad.randn(*batches, size, size, **kwargs)
    made: Tensor = a @ a.mH
    return made


def random_hermitian_pd_matrix(matrix_size: int, *batch_dims: int, dtype: Any, device: Any
                               ) -> Tensor:
    """A·Aᴴ + 1 of a random A."""
    a = ad.randn(*batch_dims, matrix_size, matrix_size, dtype=dtype, device=device)
    made: Tensor = a @ a.mH + ad.eye(matrix_size, dtype=dtype, device=device)
    return made


def make_fullrank_matrices_with_distinct_singular_values(*shape: int, device: Any, dtype: Any,
                                                         requires_grad: bool = False) -> Tensor:
    """Matrices (*, m, n) whose singular values lie 1 apart, between 1 and min(m, n) + 1."""
    u, _, vh = ad.linalg.svd(ad.randn(*shape, dtype=dtype, device=device), full_matrices=False)
    values = ad.arange(2, u.shape[-1] + 2).to(u.dtype)
    made: Tensor = ((u * values) @ vh).detach().requires_grad_(requires_grad)
    return made


def make_symmetric_matrices(*shape: int, device: Any, dtype: Any) -> Tensor:
    """Symmetric matrices (*, n, n)."""
    a = ad.randn(*shape, dtype=dtype, device=device)
    made: Tensor = (a + a.mT) / 2
    return made
