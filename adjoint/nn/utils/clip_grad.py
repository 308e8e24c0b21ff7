"""Clipping of gradients, in place."""
from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from types import GeneratorType
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import result_type
from adjoint.base.errors import ArgumentError
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Tensor, bump, wrap
from adjoint.ops.family import generated as kernel

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_",
           "get_total_norm"]


def _listed(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [p.grad for p in _listed(parameters) if p.grad is not None]


def _norm(a: Any, p: float) -> float:
    """The p-norm of all entries; half precision is summed in single."""
    if a.dtype.itemsize == 2:
        a = a.astype(np.float32)
    if a.size == 0:
        return 0.0
    if p == 2:
        if a.dtype.kind == "c" or not (a.flags.c_contiguous or a.flags.f_contiguous):
            return float(np.linalg.norm(a.ravel()))
        flat = a.ravel(order="K")
        return math.sqrt(float(np.dot(flat, flat)))
    magnitude = np.abs(a)
    if math.isinf(p):
        return float(magnitude.max() if p > 0 else magnitude.min())
    if p == 0:
        return float(np.count_nonzero(a))
    return float((magnitude**p).sum()) ** (1.0 / p)


def _together(norms: list[float], p: float) -> float:
    return _norm(np.asarray(norms, np.float64), p)


def get_total_norm(tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0,
                   error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """The norm of all tensors taken as one vector, as a 0-d tensor of the widest of their dtypes.

    Raises ArgumentError (a RuntimeError) for a norm that is not finite if asked to.

    >>> import adjoint as ad
    >>> get_total_norm([ad.tensor([3.0]), ad.tensor([4.0])]).item()
    5.0
    """
    arrays = [t.array for t in _listed(tensors)]
    norm_type = float(norm_type)
    if not arrays:
        return wrap(np.array(0.0, np.float32))
    real = result_type([np.empty(0, dtype).real for dtype in {a.dtype for a in arrays}])
    if any(type(a) is MetaArray for a in arrays):
        return wrap(call(_total, arrays, norm_type, real, otherwise=lambda: MetaArray((), real)))
    total = _total(arrays, norm_type, real)
    if error_if_nonfinite and not math.isfinite(total):
        raise ArgumentError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`")
    return wrap(total)


def _total(arrays: list[Any], norm_type: float, real: Any) -> Any:
    together = kernel("clip_norm") if norm_type == 2 else None
    total = NotImplemented if together is None else together(arrays)
    if total is NotImplemented:
        with np.errstate(divide="ignore"):      # a 0 to a negative power is inf, as it has to be
            total = _together([_norm(a, norm_type) for a in arrays], norm_type)
    return np.array(total, real)


def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float,
                          total_norm: Tensor, foreach: bool | None = None) -> None:
    """Scale all gradients by ``max_norm / (total_norm + 1e-6)`` if that is less than 1."""
    grads = _grads(parameters)
    if not grads:
        return
    if type(total_norm.array) is MetaArray:     # as if the norm were too large
        call(_scaled, [g.array for g in grads], 0.5, otherwise=tuple)
        return
    scale = float(max_norm) / (float(total_norm.array) + 1e-6)
    if scale >= 1.0:
        return
    _scaled([g.array for g in grads], scale)
    for g in grads:
        bump(g, "clip_grads_with_norm_")


def _scaled(arrays: list[Any], scale: float) -> None:
    together = kernel("scale_")
    if together is None or together(arrays, scale) is NotImplemented:
        for a in arrays:
            np.multiply(a, scale, out=a)


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float,
                    norm_type: float = 2.0, error_if_nonfinite: bool = False,
                    foreach: bool | None = None) -> Tensor:
    """Scale the gradients of ``parameters`` so that their norm, as one vector, is at most
    ``max_norm``; returns the norm before (Pascanu et al. 2013).

    ``norm_type`` is the order of the norm (``float("inf")`` for the largest entry). ``foreach`` is
    accepted and changes nothing.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.zeros(2)); w.grad = ad.tensor([3.0, 4.0])
    >>> clip_grad_norm_([w], 1.0).item(), w.grad.round(decimals=3).tolist()
    (5.0, [0.6000000238418579, 0.800000011920929])
    """
    params = _listed(parameters)
    if not params and isinstance(parameters, GeneratorType):
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.",
                      stacklevel=2)
    total = get_total_norm(_grads(params), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(params, max_norm, total, foreach)
    return total


def clip_grad_norm(parameters: Tensor | Iterable[Tensor], max_norm: float,
                   norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Tensor:
    """Old name of ``clip_grad_norm_``."""
    warnings.warn("`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
                  "`torch.nn.utils.clip_grad_norm_`.", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float,
                     foreach: bool | None = None) -> None:
    """Clip every entry of the gradients to [-clip_value, clip_value].

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.zeros(2)); w.grad = ad.tensor([3.0, -0.5])
    >>> clip_grad_value_(w, 1.0); w.grad.tolist()
    [1.0, -0.5]
    """
    limit = float(clip_value)
    for g in _grads(parameters):
        if type(g.array) is not MetaArray:
            np.clip(g.array, -limit, limit, out=g.array)
            bump(g, "clip_grad_value_")
