"""Shapes and parametrizations that distributions share."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from adjoint.autograd.modes import enable_grad, is_grad_enabled
from adjoint.base.dtypes import default_dtype, finfo
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.distributions._ops import F

euler_constant = EULER = 0.57721566490153286061
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Tensors of one shape. Numbers take the dtype of the tensors among them, else the default."""
    if not all(isinstance(v, (Tensor, int, float)) for v in values):
        kinds = ", ".join(type(v).__name__ for v in values)
        raise ArgumentError("Input arguments must all be instances of Number, torch.Tensor or "
                            f"objects implementing __torch_function__, got {kinds}")
    tensors = [v for v in values if isinstance(v, Tensor)]
    dtype = next((t.dtype for t in tensors if t.is_floating_point()), default_dtype())
    full = [v if isinstance(v, Tensor) else F.tensor(float(v), dtype=dtype) for v in values]
    return tuple(F.broadcast_tensors(*full))


class lazy_property:
    """Computed at the first access, with gradients recorded, then a plain attribute."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        if is_grad_enabled():
            value = self.wrapped(instance)
        else:
            with enable_grad():
                value = self.wrapped(instance)
        setattr(instance, self.name, value)
        return value


def clamp_probs(probs: Any) -> Any:
    """Probabilities away from 0 and 1 by the eps of their dtype."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """log p, or log p/(1 - p) if `is_binary`."""
    safe = clamp_probs(probs)
    return safe.log() - (-safe).log1p() if is_binary else safe.log()


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """The probabilities that log odds stand for: softmax over the last axis, or sigmoid."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def sum_rightmost(value: Any, dim: int) -> Any:
    """Sum over the last `dim` axes."""
    return value if dim == 0 else value.reshape((*value.shape[:-dim], -1)).sum(-1)


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """(..., n, n) -> (..., k): the entries on and below diagonal `diag`, row by row.

    >>> import adjoint as ad
    >>> tril_matrix_to_vec(ad.tensor([[1, 2], [3, 4]])).tolist()
    [1, 3, 4]
    """
    n = mat.shape[-1]
    if not -n < diag < n:
        raise ArgumentError(f"diag ({diag}) provided is outside [{1 - n}, {n - 1}].")
    rows, columns = F.tril_indices(n, n, diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """(..., k) -> (..., n, n): the inverse of `tril_matrix_to_vec`, zeros elsewhere.

    >>> import adjoint as ad
    >>> vec_to_tril_matrix(ad.tensor([1, 3, 4])).tolist()
    [[1, 0], [3, 4]]
    """
    k = vec.shape[-1]
    root = math.sqrt((1 + 2 * diag) ** 2 + 8 * k + 4 * abs(diag) * (diag + 1))
    n = (-(1 + 2 * diag) + root) / 2
    if round(n) - n:
        raise ArgumentError(f"The size of last dimension is {k} which cannot be expressed as the "
                            "lower triangular part of a square D x D matrix.")
    made = vec.new_zeros((*vec.shape[:-1], round(n), round(n)))
    rows, columns = F.tril_indices(round(n), round(n), diag)
    made[..., rows, columns] = vec
    return made


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    return F.randn(shape, dtype=dtype, device=device)


_sum_rightmost = sum_rightmost              # PyTorch's name for it


def one_of(name: str, probs: Any, logits: Any) -> None:
    """Exactly one of two parametrizations must be given."""
    if (probs is None) == (logits is None):
        raise ArgumentError("Either `probs` or `logits` must be specified, but not both "
                            f"({name}).")


__all__ = ["EULER", "HALF_LOG_2PI", "broadcast_all", "clamp_probs", "lazy_property",
           "logits_to_probs", "one_of", "probs_to_logits", "sum_rightmost", "tril_matrix_to_vec",
           "vec_to_tril_matrix"]
