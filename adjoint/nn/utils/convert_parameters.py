"""Parameters as one vector, and back."""
from __future__ import annotations

from collections.abc import Iterable

import adjoint.nn._core as core
from adjoint.base.errors import ShapeError
from adjoint.core.tensor import Tensor
from adjoint.nn._core import no_grad

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters, flattened, one after the other; differentiable.

    >>> import adjoint as ad
    >>> parameters_to_vector([ad.ones(2), ad.zeros(1, 1)]).tolist()
    [1.0, 1.0, 0.0]
    """
    out: Tensor = core.cat([p.reshape(-1) for p in parameters])
    return out


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy the parts of ``vec`` into the parameters; ShapeError if the sizes differ.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.zeros(1, 2))
    >>> vector_to_parameters(ad.tensor([1.0, 2.0]), [w]); w.tolist()
    [[1.0, 2.0]]
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected a Tensor, but got: {type(vec).__name__}")
    params = list(parameters)
    total = sum(p.numel() for p in params)
    if vec.ndim != 1 or vec.numel() < total:
        raise ShapeError(f"vector_to_parameters: the parameters have {total} elements, the vector "
                         f"has shape {tuple(vec.shape)}")
    start = 0
    with no_grad():
        for p in params:
            n = p.numel()
            p.data = vec.detach()[start:start + n].reshape(p.shape)
            start += n
