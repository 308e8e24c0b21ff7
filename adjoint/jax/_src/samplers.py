"""Random arguments of tests: `rand_default(rng)(shape, dtype)` and its like.

A shape may be `PYTHON_SCALAR_SHAPE` (a Python number) or `NUMPY_SCALAR_SHAPE` (a NumPy scalar).
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from adjoint.jax import dtypes as _dtypes

Rng = np.random.RandomState
Sampler = Callable[[Any, Any], Any]


class ScalarShape:
    """The shape of a number that is no array."""

    def __len__(self) -> int:
        return 0

    def __getitem__(self, i: Any) -> Any:
        raise IndexError(f"index {i} out of range.")


class _Numpy(ScalarShape):
    """A NumPy scalar."""


class _Python(ScalarShape):
    """A Python number."""


NUMPY_SCALAR_SHAPE, PYTHON_SCALAR_SHAPE = _Numpy(), _Python()


def dims_of_shape(shape: Any) -> tuple[int, ...]:
    """The sizes, () for numbers."""
    return () if isinstance(shape, ScalarShape) else (shape,) if isinstance(shape, int) else tuple(
        shape)


def is_valid_shape(shape: Any, dtype: Any) -> bool:
    """Is there a value of that shape and dtype? Python has numbers of four dtypes."""
    if shape is PYTHON_SCALAR_SHAPE:
        return np.dtype(dtype) in {np.dtype(t) for t in (bool, int, float, complex)}
    return True


def format_shape_dtype_string(shape: Any, dtype: Any) -> str:
    """`float32[2,3]`, `pyint8` for Python's number."""
    name = np.dtype(dtype).name if not isinstance(dtype, str) else dtype
    if isinstance(shape, ScalarShape):
        return name if shape is NUMPY_SCALAR_SHAPE else "py" + name
    if isinstance(shape, int):
        return f"{name}[{shape}]"
    return f"{name}[{','.join(str(n) for n in shape)}]"


def _cast(value: Any, shape: Any, dtype: Any) -> Any:
    kind = np.dtype(dtype)
    with np.errstate(all="ignore"):
        x = np.asarray(value).astype(kind)
    if shape is NUMPY_SCALAR_SHAPE:
        return kind.type(x)
    if shape is PYTHON_SCALAR_SHAPE:
        return x.item() if kind.kind in "biufc" else float(x)
    return x


def _drawn(draw: Callable[..., Any], shape: Any, dtype: Any, scale: float = 1.0,
           post: Callable[[Any], Any] = lambda x: x) -> Any:
    """post(scale * draw(...)) with that shape and dtype, imaginary parts drawn too."""
    dims = dims_of_shape(shape)
    x = np.asarray(scale * draw(*dims))
    if np.dtype(dtype).kind == "c":
        x = x + 1j * np.asarray(scale * draw(*dims))
    if np.dtype(dtype).kind == "u":
        x = np.abs(x)
    return _cast(post(x), shape, dtype)


def rand_default(rng: Rng, scale: float = 3) -> Sampler:
    """Normal numbers of a scale."""
    return partial(_drawn, rng.randn, scale=scale)


def rand_small(rng: Rng) -> Sampler:
    """Normal numbers of scale 1e-3."""
    return partial(_drawn, rng.randn, scale=1e-3)


def rand_small_positive(rng: Rng) -> Sampler:
    """Uniform numbers below 2e-5."""
    return partial(_drawn, rng.rand, scale=2e-5)


def rand_positive(rng: Rng) -> Sampler:
    """Uniform numbers from 1 to 3."""
    return partial(_drawn, rng.rand, scale=2, post=lambda x: x + 1)


def rand_not_small(rng: Rng, offset: float = 10.0) -> Sampler:
    """Normal numbers that are moved away from zero by an offset."""
    return partial(_drawn, rng.randn, scale=3,
                   post=lambda x: x + np.where(np.real(x) > 0, offset, -offset))


def rand_uniform(rng: Rng, low: float = 0.0, high: float = 1.0) -> Sampler:
    """Uniform numbers from low to high."""
    return partial(_drawn, lambda *dims: rng.rand(*dims) * (high - low) + low)


def rand_nonzero(rng: Rng) -> Sampler:
    """Normal numbers of scale 3, with 1 where one would be 0 in the dtype."""
    def run(shape: Any, dtype: Any) -> Any:
        x = np.asarray(_drawn(rng.randn, dims_of_shape(shape), dtype, 3))
        return _cast(np.where(x == 0, np.ones((), x.dtype), x), shape, dtype)
    return run


def rand_bool(rng: Rng) -> Sampler:
    """Zeros and ones."""
    return lambda shape, dtype: _cast(rng.rand(*dims_of_shape(shape)) < 0.5, shape, dtype)


def rand_int(rng: Rng, low: int = 0, high: Any = None) -> Sampler:
    """Integers from low up to, not including, high; ValueError where a float has no high."""
    def run(shape: Any, dtype: Any) -> Any:
        top = high
        if top is None:
            if np.dtype(dtype).kind not in "iu":
                raise ValueError("rand_int requires an explicit `high` value for non-integer types")
            top = np.iinfo(np.dtype(dtype)).max
        wide = np.int64 if top < 2**63 else np.uint64
        return _cast(rng.randint(low, high=top, size=dims_of_shape(shape), dtype=wide), shape,
                     dtype)
    return run


def rand_unique_int(rng: Rng, high: Any = None) -> Sampler:
    """Different integers below high, by default below their number."""
    def run(shape: Any, dtype: Any) -> Any:
        dims = dims_of_shape(shape)
        n = int(np.prod(dims, dtype=np.int64))
        return _cast(rng.choice(np.arange(n if high is None else high), n, replace=False)
                     .reshape(dims), shape, dtype)
    return run


def rand_indices_unique_along_axis(rng: Rng) -> Callable[..., Any]:
    """f(dim, shape, axis, dtype="int32", allow_negative=True): indices below dim, different along
    the axis."""
    def run(dim: int, shape: Any, axis: int, dtype: Any = "int32",
            allow_negative: bool = True) -> Any:
        sizes = list(shape)
        count = sizes.pop(axis)
        rows = [rng.choice(dim, count, replace=False)
                for _ in range(int(np.prod(sizes, dtype=np.int64)))]
        found = np.array(rows).reshape(*sizes, count)
        if allow_negative:
            found = found - dim * (rng.rand(*found.shape) < 0.5)
        return np.moveaxis(found, -1, axis).astype(dtype)
    return run


def rand_fullrange(rng: Rng, standardize_nans: bool = False) -> Sampler:
    """Random bits, as numbers of the dtype."""
    def run(shape: Any, dtype: Any, **_: Any) -> Any:
        kind, dims = np.dtype(dtype), dims_of_shape(shape)
        n = int(np.prod(dims, dtype=np.int64)) * kind.itemsize
        bits = rng.randint(0, 2 if kind.kind == "b" else 256, n).astype(np.uint8)
        x = bits.view(kind).reshape(dims)
        if standardize_nans and _dtypes.issubdtype(kind, np.inexact):
            x = np.where(np.isnan(x), np.full((), np.nan, kind), x)
        return _cast(x, shape, dtype)
    return run


def _some(rng: Rng, value: Callable[[Any, Any], Any], scale: float = 3) -> Sampler:
    """Normal numbers, about half of them replaced by `value(x, kind)`."""
    def run(shape: Any, dtype: Any) -> Any:
        kind, dims = np.dtype(dtype), dims_of_shape(shape)
        x = np.asarray(_drawn(rng.randn, dims, dtype, scale))
        return _cast(np.where(rng.rand(*dims) < 0.5, value(x, kind), x), shape, dtype)
    return run


def rand_some_equal(rng: Rng) -> Sampler:
    """Normal numbers, half of them equal to one of them."""
    return _some(rng, lambda x, kind: x.ravel()[0] if x.size else x, 100)


def rand_some_zero(rng: Rng) -> Sampler:
    """Normal numbers, half of them 0."""
    return _some(rng, lambda x, kind: np.zeros((), kind))


def _special(rng: Rng, values: tuple[float, ...]) -> Sampler:
    """Normal numbers with some of these values in dtypes that have them."""
    def replaced(x: Any, kind: Any) -> Any:
        if not _dtypes.issubdtype(kind, np.inexact):
            return x
        return np.asarray(values)[rng.randint(0, len(values), x.shape)].astype(kind)

    def parts(shape: Any, dtype: Any) -> Any:
        if np.dtype(dtype).kind != "c":
            return _some(rng, replaced)(shape, dtype)
        real = np.finfo(dtype).dtype
        a, b = (np.asarray(_some(rng, replaced)(dims_of_shape(shape), real)) for _ in range(2))
        whole = np.empty(a.shape, dtype)
        whole.real, whole.imag = a, b
        return _cast(whole, shape, dtype)
    return parts


def rand_some_inf(rng: Rng) -> Sampler:
    """Normal numbers and infinities in floating dtypes."""
    return _special(rng, (np.inf, -np.inf))


def rand_some_nan(rng: Rng) -> Sampler:
    """Normal numbers and NaNs in floating dtypes."""
    return _special(rng, (np.nan, -np.nan))


def rand_some_inf_and_nan(rng: Rng) -> Sampler:
    """Normal numbers, infinities and NaNs in floating dtypes."""
    return _special(rng, (np.inf, -np.inf, np.nan))


__all__ = ["NUMPY_SCALAR_SHAPE", "PYTHON_SCALAR_SHAPE", "ScalarShape", "dims_of_shape",
           "format_shape_dtype_string", "is_valid_shape", "rand_bool", "rand_default",
           "rand_fullrange", "rand_indices_unique_along_axis", "rand_int", "rand_nonzero",
           "rand_not_small", "rand_positive", "rand_small", "rand_small_positive",
           "rand_some_equal", "rand_some_inf", "rand_some_inf_and_nan", "rand_some_nan",
           "rand_some_zero", "rand_uniform", "rand_unique_int"]
