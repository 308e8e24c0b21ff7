"""Ready parametrizations: orthogonal matrices, weight and spectral normalization."""
from __future__ import annotations

from typing import Any

import numpy as np

import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError, IndexOutOfRange, NotSupported, ShapeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.nn._core import no_grad
from adjoint.nn.modules.module import Module
from adjoint.nn.utils.parametrize import register_parametrization
from adjoint.nn.utils.spectral_norm import as_matrix, start_vectors
from adjoint.nn.utils.weight_norm import norm_except
from adjoint.ops.api_decompose import matrix_exp, solve
from adjoint.ops.create import zeros_like
from adjoint.ops.householder import geqrf, householder_product
from adjoint.ops.pointwise import eq, neg, where_op
from adjoint.ops.random import randn
from adjoint.ops.shape import cat_op

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    """``weight = g v / |v|`` (Salimans and Kingma 2016)."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """(length, direction) whose product is ``weight``."""
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Parametrize ``name`` by its length along ``dim`` (original0) and direction (original1).

    State of the older ``nn.utils.weight_norm`` (name_g, name_v) can be loaded.

    >>> import adjoint as ad
    >>> m = weight_norm(ad.nn.Linear(2, 3))
    >>> sorted(n for n, _ in m.named_parameters())[1:]
    ['parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: Any, prefix: str, *_: Any) -> None:
        for old, new in (("_g", "original0"), ("_v", "original1")):
            if prefix + name + old in state_dict:
                value = state_dict.pop(prefix + name + old)
                state_dict[f"{prefix}parametrizations.{name}.{new}"] = value

    module._register_load_state_dict_pre_hook(rename)
    return module


ORTHOGONAL_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """A matrix with orthonormal columns (rows where it is wide) made of any matrix X, for a batch.

    matrix_exp, cayley: exp(A) and (I - A/2)^-1 (I + A/2) of the skew A = L - L^H, where L is the
    lower triangle of X (Lezcano-Casado and Martinez-Rubio, "Cheap orthogonal constraints in neural
    networks", 2019). householder: the product of the reflectors below the diagonal of X, columns
    times the signs on it. With a base point Q0 the result is Q0 times that ("Trivializations for
    gradient-based optimization on manifolds", 2019), so that every matrix can be assigned.
    """

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ArgumentError("orthogonal: the householder parametrization does not support "
                                "complex tensors; use matrix_exp or cayley")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        self.register_buffer("base", zeros_like(weight) if use_trivialization else None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        if wide:
            X = X.mT
        rows, columns = X.shape[-2:]
        if self.orthogonal_map == "householder":
            below = X.tril(-1)
            q = householder_product(below, 2.0 / (1.0 + (below * below).sum(-2)))
            q = q * X.diagonal(dim1=-2, dim2=-1).trunc().unsqueeze(-2)
        else:
            low = X.tril()
            if rows != columns:
                low = F.pad(low, (0, rows - columns))
            skew = low - low.mH
            if self.orthogonal_map == "matrix_exp":
                q = matrix_exp(skew)
            else:
                one = wrap(np.eye(rows, dtype=X.dtype.dtype))
                q = solve(one - skew / 2, one + skew / 2)
            q = q[..., :columns]
        if self.base is not None:
            q = self.base @ q
        return q.mT if wide else q

    def right_inverse(self, Q: Tensor) -> Tensor:
        """An X that gives ``Q``; without a base point only householder has one."""
        if tuple(Q.shape) != tuple(self.shape):
            raise ShapeError(f"Expected a matrix or batch of matrices of shape {self.shape}. "
                             f"Got a tensor of shape {Q.shape}.")
        wide = Q.shape[-2] < Q.shape[-1]
        if wide:
            Q = Q.mT
        rows, columns = Q.shape[-2:]
        if self.base is None:
            if self.orthogonal_map != "householder":
                raise NotSupported("It is not possible to assign to the matrix exponential or the "
                                   "Cayley parametrizations when use_trivialization=False.")
            packed, tau = geqrf(Q)
            sign = packed.diagonal(dim1=-2, dim2=-1).sign()
            sign = where_op(eq(tau, 0.0), neg(sign), sign)
            found = packed.tril(-1) + diagonal_matrix(sign, rows)
            return found.mT if wide else found
        if rows != columns or not _is_orthogonal(Q):
            fill = randn(*Q.shape[:-1], rows - columns, dtype=Q.dtype)
            Q = _nearest(cat_op(Q, fill, dim=Q.ndim - 1))
        self.base = Q
        start = -wrap(np.eye(rows, columns, dtype=Q.dtype.dtype)).expand(*Q.shape[:-1], columns)
        return (start.mT if wide else start).clone()


def diagonal_matrix(values: Tensor, rows: int) -> Tensor:
    """(..., k) on the diagonal of (..., rows, k)."""
    return values.unsqueeze(-2) * wrap(np.eye(rows, values.shape[-1], dtype=values.dtype.dtype))


def _is_orthogonal(Q: Tensor) -> bool:
    one = wrap(np.eye(Q.shape[-1], dtype=Q.dtype.dtype))
    eps = 10 * Q.shape[-1] * np.finfo(Q.dtype.dtype).eps
    return bool(((Q.mH @ Q) - one).abs().max() <= eps) if Q.numel() else True


def _nearest(X: Tensor) -> Tensor:
    """The orthogonal factor of X, with the signs that keep orthogonal columns as they are."""
    packed, tau = geqrf(X)
    q = householder_product(packed, tau)
    return q * packed.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> Module:
    """Parametrize the matrix (or batch of matrices) ``name`` as an orthogonal one.

    Its columns become orthonormal, its rows where it is wider than high. ``orthogonal_map`` is
    "matrix_exp" (the default for square and complex ones), "cayley" or "householder".
    Without ``use_trivialization`` there is no base point: cheaper, but only householder then takes
    an assigned matrix. Raises ArgumentError for another map, or a tensor with less than two axes.

    >>> import adjoint as ad
    >>> m = orthogonal(ad.nn.Linear(2, 4))
    >>> ad.allclose(m.weight.mT @ m.weight, ad.eye(2), atol=1e-5)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"Module '{module}' has no parameter or buffer with name "
                            f"'{name}'")
    if weight.ndim < 2:
        raise ArgumentError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim}"
                            " dimensions.")
    square = weight.shape[-2] == weight.shape[-1]
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ORTHOGONAL_MAPS:
        known = ", ".join(f'"{name}"' for name in ORTHOGONAL_MAPS)
        raise ArgumentError(f"orthogonal_map has to be one of {known}. Got: {orthogonal_map}")
    return register_parametrization(module, name, _Orthogonal(weight, orthogonal_map,
                                                              use_trivialization), unsafe=True)


class _SpectralNorm(Module):
    """``weight`` divided by an estimate of its largest singular value (Miyato et al. 2018)."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0,
                 eps: float = 1e-12) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexOutOfRange(f"Dimension out of range (expected to be in range of "
                                  f"[-{weight.ndim}, {weight.ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ArgumentError("Expected n_power_iterations to be positive, but got "
                                f"n_power_iterations={n_power_iterations}")
        self.dim = dim if dim >= 0 else dim + weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = as_matrix(weight.detach(), self.dim)
            u, v = start_vectors(matrix, eps)
            self.register_buffer("_u", u)
            self.register_buffer("_v", v)
            self._iterate(matrix, 15)

    def _iterate(self, matrix: Tensor, n: int) -> None:
        """Power iterations, left vector first (the hook version begins with the right one)."""
        with no_grad():
            for _ in range(n):
                self._u.copy_(F.normalize(matrix @ self._v, dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.t() @ self._u, dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the graph keeps these; the buffers move on
        return weight / (u * (matrix @ v)).sum()

    def right_inverse(self, value: Tensor) -> Tensor:
        """``value``: which of its multiples it came from cannot be known."""
        return value


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1,
                  eps: float = 1e-12, dim: int | None = None) -> Module:
    """Parametrize ``name`` as itself divided by its largest singular value.

    ``dim`` is the output axis: 1 for transposed convolutions, else 0, if None.

    >>> import adjoint as ad, numpy as np
    >>> m = spectral_norm(ad.nn.Linear(4, 4)).eval()
    >>> bool(np.linalg.norm(m.weight.detach().numpy(), 2) < 1.1)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"Module '{module}' has no parameter or buffer with name "
                            f"'{name}'")
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    return register_parametrization(module, name,
                                    _SpectralNorm(weight, n_power_iterations, dim, eps))
