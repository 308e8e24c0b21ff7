"""Windows of M points, symmetric or (for spectra) periodic: the functions of
`torch.signal.windows`.

Source: F. Harris, "On the use of windows for harmonic analysis with the discrete Fourier
transform", Proc. IEEE 66 (1978).
"""
from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from adjoint.base.dtypes import default_dtype, is_float, of_numpy, to_numpy
from adjoint.base.errors import ArgumentError, DTypeError
from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.device import strided

__all__ = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine",
           "general_hamming", "hamming", "hann", "kaiser", "nuttall"]

_Array = np.ndarray[Any, Any]


def _points(name: str, M: int, dtype: Any, layout: Any) -> Any:
    """The dtype, after the arguments were checked."""
    if M < 0:
        raise ArgumentError(f"{name} requires non-negative window length, got M={M}")
    if layout is not None and layout != strided:
        raise ArgumentError(f"{name} is implemented for strided tensors only, got: {layout}")
    try:
        kind = default_dtype() if dtype is None else to_numpy(dtype)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name} expects float32 or float64 dtypes, got: {dtype}") from None
    if not is_float(kind) or kind.itemsize < 4:
        raise ArgumentError(f"{name} expects float32 or float64 dtypes, got: {of_numpy(kind)}")
    return kind


def _window(values: _Array, kind: Any, requires_grad: bool) -> Tensor:
    if type(requires_grad) is not bool:
        raise DTypeError("argument 'requires_grad' must be bool, not "
                         f"{type(requires_grad).__name__}")
    if values.size == 1:        # whatever the shape of the window
        values = np.ones(1)
    return wrap(np.ascontiguousarray(values.astype(kind)), requires_grad)


def _grid(M: int, sym: bool) -> _Array:
    """0 to 1 over the window: the last point is left out of a periodic one."""
    return np.arange(M) / max(M - 1 if sym else M, 1)


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, dtype: Any = None,
                   layout: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """sum_i (-1)^i a_i cos(2 pi i n / (M - 1))."""
    kind = _points("general_cosine", M, dtype, layout)
    if not isinstance(a, Iterable):
        raise TypeError(f"Coefficients must be a list/tuple, got {type(a).__name__}")
    weights = list(a)
    if not weights:
        raise ArgumentError("Coefficients cannot be empty")
    x = _grid(M, sym)
    values = sum((-1) ** i * w * np.cos(2 * math.pi * i * x) for i, w in enumerate(weights))
    return _window(np.asarray(values), kind, requires_grad)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None,
                    layout: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi n / (M - 1))."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, layout=layout,
                          device=device, requires_grad=requires_grad)


def hamming(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False) -> Tensor:
    """The raised cosine that cancels the first side lobe: 0.54 - 0.46 cos.

    >>> hamming(3)
    tensor([0.0800, 1.0000, 0.0800])
    """
    return general_hamming(M, sym=sym, dtype=dtype, layout=layout, device=device,
                           requires_grad=requires_grad)


def hann(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
         requires_grad: bool = False) -> Tensor:
    """The raised cosine that begins at 0: 0.5 - 0.5 cos."""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, layout=layout, device=device,
                           requires_grad=requires_grad)


def blackman(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None,
             device: Any = None, requires_grad: bool = False) -> Tensor:
    """Three cosines: 0.42 - 0.5 cos + 0.08 cos."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, layout=layout,
                          device=device, requires_grad=requires_grad)


def nuttall(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False) -> Tensor:
    """Four cosines of minimal side lobes (A. Nuttall 1981)."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, dtype=dtype,
                          layout=layout, device=device, requires_grad=requires_grad)


def bartlett(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None,
             device: Any = None, requires_grad: bool = False) -> Tensor:
    """The triangle that begins at 0."""
    kind = _points("bartlett", M, dtype, layout)
    return _window(1 - np.abs(2 * _grid(M, sym) - 1), kind, requires_grad)


def cosine(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False) -> Tensor:
    """Half a period of a sine through the middles of M cells."""
    kind = _points("cosine", M, dtype, layout)
    length = M if sym else M + 1
    return _window(np.sin(math.pi * (np.arange(M) + 0.5) / length), kind, requires_grad)


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True,
                dtype: Any = None, layout: Any = None, device: Any = None,
                requires_grad: bool = False) -> Tensor:
    """exp(-|n - center| / tau); a center only for periodic windows."""
    kind = _points("exponential", M, dtype, layout)
    if tau <= 0:
        raise ArgumentError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ArgumentError("Center must be None for symmetric windows")
    middle = (M - 1 if sym else M) / 2.0 if center is None else center
    return _window(np.exp(-np.abs(np.arange(M) - middle) / tau), kind, requires_grad)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None,
             device: Any = None, requires_grad: bool = False) -> Tensor:
    """exp(-(n - middle)^2 / (2 std^2))."""
    kind = _points("gaussian", M, dtype, layout)
    if std <= 0:
        raise ArgumentError(f"Standard deviation must be positive, got: {std} instead.")
    x = (np.arange(M) - (M - 1 if sym else M) / 2.0) / (std * math.sqrt(2))
    return _window(np.exp(-x * x), kind, requires_grad)


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, layout: Any = None,
           device: Any = None, requires_grad: bool = False) -> Tensor:
    """I0(beta sqrt(1 - x^2)) / I0(beta), x from -1 to 1 (J. Kaiser 1966)."""
    kind = _points("kaiser", M, dtype, layout)
    if beta < 0:
        raise ArgumentError(f"beta must be non-negative, got: {beta} instead.")
    x = 2 * _grid(M, sym) - 1
    values = np.i0(beta * np.sqrt(np.maximum(1 - x * x, 0.0))) / np.i0(beta)
    return _window(values, kind, requires_grad)


__getattr__ = _missing("adjoint.signal.windows")
