"""Initializers: fill a tensor in place, without recording gradients, and return it.

Random ones take ``generator`` (None: the global one that ``manual_seed`` sets).
"""
from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.base.errors import missing as _missing
from adjoint.core.modes import warn
from adjoint.core.tensor import Tensor, wrap
from adjoint.nn import _core
from adjoint.nn._core import no_grad

_LINEAR = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
           "conv_transpose3d")


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Factor by which a nonlinearity shrinks the standard deviation of its input, inverted.

    ``param`` is leaky_relu's negative slope (0.01 if None). Raises ArgumentError for a name
    that is not known.

    >>> calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity in _LINEAR or nonlinearity == "sigmoid":
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if isinstance(param, bool) or not isinstance(param, (int, float, type(None))):
            raise ArgumentError(f"negative_slope {param} not a valid number")
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4  # keeps the variance of a self-normalizing net near 1 in practice
    raise ArgumentError(f"Unsupported nonlinearity {nonlinearity}: known are "
                        f"{', '.join((*_LINEAR, 'sigmoid', 'tanh', 'relu', 'leaky_relu', 'selu'))}")


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with draws from the uniform distribution on [a, b).

    >>> import adjoint as ad
    >>> bool((uniform_(ad.empty(100), 2.0, 3.0) >= 2).all())
    True
    """
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with draws from the normal distribution of this mean and standard deviation."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0,
                  b: float = 2.0, generator: Any = None) -> Tensor:
    """Fill with draws from a normal distribution that is cut to [a, b].

    Draws anew what is rejected: of the normal distribution itself where more than 3 draws in 10
    fall into [a, b], else of the uniform one, with the density as chance of being accepted.
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
                      "The distribution of values may be incorrect.", stacklevel=2)

    def cdf(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    if tensor.is_meta:
        return tensor
    with no_grad():
        if cdf((b - mean) / std) - cdf((a - mean) / std) > 0.3:
            low, high = (float(tensor.array.dtype.type(x)) for x in (a, b))
            tensor.normal_(mean, std, generator=generator)
            again = (tensor < low) | (tensor > high)
            while again.any():
                more = _core.empty_like(tensor).normal_(mean, std, generator=generator)
                tensor.copy_(_core.where(again, more, tensor))
                again = (tensor < low) | (tensor > high)
            return tensor
        peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
        tensor.uniform_(a, b, generator=generator)
        again = _refused(tensor, mean, std, peak, generator)
        while again.any():
            more = _core.empty_like(tensor).uniform_(a, b, generator=generator)
            tensor.copy_(_core.where(again, more, tensor))
            again = again & _refused(more, mean, std, peak, generator)
        return tensor


def _refused(drawn: Tensor, mean: float, std: float, peak: float, generator: Any) -> Any:
    """Whether the logarithm of a uniform number is above that of the density over its peak."""
    density = drawn.clone().sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(peak)
    chance = _core.empty_like(drawn).uniform_(0.0, 1.0, generator=generator)
    return chance.log_() > density


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with ``val``."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with 0."""
    with no_grad():
        return tensor.zero_()


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity (ones on the diagonal, also of an oblong one)."""
    if tensor.ndim != 2:
        raise ShapeError("Only tensors with 2 dimensions are supported, got shape "
                         f"{tuple(tensor.shape)}")
    return _put(tensor, np.eye(*tensor.shape))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a 3, 4 or 5-dimensional convolution weight so that it passes its input through.

    As many input channels as fit are kept, in each of ``groups`` groups. Raises ArgumentError
    if the first axis is not divisible by ``groups``.
    """
    if tensor.ndim not in (3, 4, 5):
        raise ShapeError("Only tensors with 3, 4, or 5 dimensions are supported, got shape "
                         f"{tuple(tensor.shape)}")
    outs = tensor.shape[0]
    if outs % groups:
        raise ArgumentError(f"dim 0 must be divisible by groups: {outs} % {groups} = "
                            f"{outs % groups}")
    values = np.zeros(tensor.shape)
    per_group = outs // groups
    centre = tuple(n // 2 for n in tensor.shape[2:])
    for g in range(groups):
        for d in range(min(per_group, tensor.shape[1])):
            values[(g * per_group + d, d, *centre)] = 1
    return _put(tensor, values)


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ShapeError("Fan in and fan out can not be computed for tensor with fewer than 2 "
                         f"dimensions, got shape {tuple(tensor.shape)}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in +-gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with standard deviation gain sqrt(2 / (fan_in + fan_out)) (Glorot, Bengio 2010)."""
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return normal_(tensor, 0.0, std, generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in",
                     nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """Uniform in +-gain sqrt(3 / fan) (He et al. 2015); ``a`` is leaky_relu's negative slope."""
    if 0 in tensor.shape:
        warn("Initializing zero-element tensors is a no-op")
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in",
                    nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """Normal with standard deviation gain / sqrt(fan) (He et al. 2015)."""
    if 0 in tensor.shape:
        warn("Initializing zero-element tensors is a no-op")
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Fill with a random (semi-)orthogonal matrix times ``gain`` (Saxe et al. 2013).

    Axes after the first are taken together; needs at least two axes.

    >>> import adjoint as ad
    >>> w = orthogonal_(ad.empty(3, 5))
    >>> bool(ad.allclose(w @ w.T, ad.eye(3), atol=1e-6))
    True
    """
    if tensor.ndim < 2:
        raise ShapeError("Only tensors with 2 or more dimensions are supported, got shape "
                         f"{tuple(tensor.shape)}")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    cols = tensor.numel() // rows
    flat = normal_(_core.empty((rows, cols), dtype=tensor.dtype), generator=generator).array
    if flat.dtype.itemsize < 4:
        flat = flat.astype(np.float32)
    q, r = np.linalg.qr(flat.T if rows < cols else flat)
    q = q * np.sign(np.diagonal(r))  # makes the draw uniform over the orthogonal matrices
    return _put(tensor, gain * (q.T if rows < cols else q).reshape(tensor.shape))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal draws in a matrix, with the fraction ``sparsity`` of each column set to zero
    (Martens 2010)."""
    if tensor.ndim != 2:
        raise ShapeError("Only tensors with 2 dimensions are supported, got shape "
                         f"{tuple(tensor.shape)}")
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    normal_(tensor, 0.0, std, generator)
    values = tensor.array.copy()
    for column in range(cols):
        values[_core.randperm(rows).array[:zeros], column] = 0      # (PyTorch's generator too)
    return _put(tensor, values)


def _put(tensor: Tensor, values: np.ndarray[Any, Any]) -> Tensor:
    with no_grad():
        return tensor.copy_(wrap(values.astype(tensor.array.dtype)))


def _deprecated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    new = function.__name__
    old = new[:-1]

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.",
                      FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    wrapper.__name__ = old
    wrapper.__doc__ = f"Old name of ``{new}``."
    return wrapper


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)
__getattr__ = _missing("adjoint.nn.init", "adjoint.nn._names")
