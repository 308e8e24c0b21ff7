"""`jax.nn.initializers`: functions (key, shape, dtype) that draw weights.

Scales: Glorot and Bengio 2010; He, Zhang, Ren, Sun 2015; LeCun, Bottou, Orr, Mueller 1998.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.base.errors import missing as _missing
from adjoint.jax import random as _random
from adjoint.jax._dtypes import as_dtype as _as_dtype
from adjoint.jax._dtypes import default_dtype as _default_dtype
from adjoint.jax.numpy._create import NAMES as _C

Initializer = Callable[..., Any]


def _kind(dtype: Any) -> Any:
    return _default_dtype("float") if dtype is None else _as_dtype(dtype)


def zeros(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Any:
    """Zeros."""
    return _C["zeros"](shape, _kind(dtype))


def ones(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Any:
    """Ones."""
    return _C["ones"](shape, _kind(dtype))


def constant(value: Any, dtype: Any = None) -> Initializer:
    """A function that gives arrays full of a value."""
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Any:
        return _C["full"](shape, value, _kind(dtype))
    return init


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Uniform in [0, scale)."""
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Any:
        return _random.uniform(key, shape, _kind(dtype)) * _C["array"](scale, _kind(dtype))
    return init


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Normal with a standard deviation."""
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Any:
        return _random.normal(key, shape, _kind(dtype)) * _C["array"](stddev, _kind(dtype))
    return init


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0
                     ) -> Initializer:
    """Normal, cut off at `lower` and `upper` standard deviations."""
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Any:
        return _random.truncated_normal(key, lower, upper, shape, _kind(dtype)) * _C["array"](
            stddev, _kind(dtype))
    return init


def _fans(shape: Sequence[int], inner: Any, outer: Any, batch: Any) -> tuple[float, float]:
    if len(shape) <= 1:
        raise ValueError("Can't compute input and output sizes of a "
                         f"{len(shape)}-dimensional weights tensor. Must be at least 2D.")

    def size(axes: Any) -> int:
        many = axes if isinstance(axes, (tuple, list)) else (axes,)
        return math.prod(shape[a] for a in many)
    fan_in, fan_out = size(inner), size(outer)
    field = math.prod(shape) / fan_in / fan_out / (size(batch) if batch != () else 1)
    return fan_in * field, fan_out * field


def variance_scaling(scale: Any, mode: str, distribution: str, in_axis: Any = -2,
                     out_axis: Any = -1, batch_axis: Any = (), dtype: Any = None) -> Initializer:
    """Draws whose variance is `scale` over a fan: mode "fan_in", "fan_out", "fan_avg" or
    "fan_geo_avg"; distribution "normal", "truncated_normal" or "uniform"."""
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Any:
        kind = _kind(dtype)
        fan_in, fan_out = _fans(shape, in_axis, out_axis, batch_axis)
        fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2,
                "fan_geo_avg": math.sqrt(fan_in * fan_out)}
        if mode not in fans:
            raise ValueError(f"invalid mode for variance scaling initializer: {mode}")
        variance = np.array(scale / fans[mode], kind)
        if distribution == "normal":
            return _random.normal(key, shape, kind) * np.sqrt(variance)
        if distribution == "uniform":
            return _random.uniform(key, shape, kind, -1) * np.sqrt(3 * variance)
        if distribution == "truncated_normal":     # the deviation of a normal cut off at 2
            width = np.sqrt(variance) / np.array(.87962566103423978, kind)
            return _random.truncated_normal(key, -2, 2, shape, kind) * width
        raise ValueError(f"invalid distribution for variance scaling initializer: {distribution}")
    return init


def _scaled(name: str, scale: float, mode: str, distribution: str) -> Any:
    def make(in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = None
             ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)
    make.__name__ = name
    make.__doc__ = f"`jax.nn.initializers.{name}`."
    return make


glorot_normal = xavier_normal = _scaled("glorot_normal", 1.0, "fan_avg", "truncated_normal")
glorot_uniform = xavier_uniform = _scaled("glorot_uniform", 1.0, "fan_avg", "uniform")
he_normal = kaiming_normal = _scaled("he_normal", 2.0, "fan_in", "truncated_normal")
he_uniform = kaiming_uniform = _scaled("he_uniform", 2.0, "fan_in", "uniform")
lecun_normal = _scaled("lecun_normal", 1.0, "fan_in", "truncated_normal")
lecun_uniform = _scaled("lecun_uniform", 1.0, "fan_in", "uniform")


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Orthogonal rows or columns (Saxe, McClelland, Ganguli 2014)."""
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Any:
        from adjoint.jax.numpy import _shape
        if len(shape) < 2:
            raise ValueError("orthogonal initializer requires at least a 2D shape")
        n = shape[column_axis]
        q = _random.orthogonal(key, math.prod(shape) // n, dtype=_kind(dtype), m=n)
        rest = tuple(np.delete(shape, column_axis))
        q = q.reshape((*rest, n))
        return scale * _shape.NAMES["moveaxis"](q, -1, column_axis)
    return init


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An orthogonal matrix in the middle of a convolution's kernel, zeros elsewhere (Xiao et al.
    2018); shapes (space..., in, out) with 1, 2 or 3 axes of space."""
    def init(key: Any, shape: Any, dtype: Any = dtype, out_sharding: Any = None) -> Any:
        if len(shape) not in (3, 4, 5):
            raise ValueError("Delta orthogonal initializer requires a 3D, 4D or 5D shape.")
        if shape[-1] < shape[-2]:
            raise ValueError("`fan_in` must be less or equal than `fan_out`. ")
        q = orthogonal(scale, column_axis, dtype)(key, (shape[-1], shape[-1]), _kind(dtype))
        middle = tuple((n - 1) // 2 for n in shape[:-2])
        return _C["zeros"](shape, _kind(dtype)).at[middle].set(q[:shape[-2]])
    return init


__getattr__ = _missing("adjoint.jax.nn.initializers")
