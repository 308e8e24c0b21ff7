"""Ready parametrizations: weight and spectral normalization."""
from __future__ import annotations

from typing import Any

import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.nn._core import no_grad
from adjoint.nn.modules.module import Module
from adjoint.nn.utils.parametrize import register_parametrization
from adjoint.nn.utils.spectral_norm import as_matrix, start_vectors
from adjoint.nn.utils.weight_norm import norm_except

__all__ = ["spectral_norm", "weight_norm"]


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


class _SpectralNorm(Module):
    """``weight`` divided by an estimate of its largest singular value (Miyato et al. 2018)."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0,
                 eps: float = 1e-12) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise ShapeError(f"Dimension out of range (expected to be in range of "
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
        raise ArgumentError(f"Module '{module._get_name()}' has no parameter or buffer with name "
                            f"'{name}'")
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    return register_parametrization(module, name,
                                    _SpectralNorm(weight, n_power_iterations, dim, eps))
