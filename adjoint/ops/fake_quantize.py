"""Rounding to the grid of an integer dtype and back, for training that knows of it.

The gradient passes where the grid reaches and stops outside: the straight-through estimator of
Bengio, Léonard and Courville (arXiv:1308.3432), used so by Jacob et al. (arXiv:1712.05877).
"""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import BOOL, F32, of_numpy
from adjoint.base.errors import ArgumentError, DTypeError, NotSupported, ShapeError
from adjoint.core.op import op
from adjoint.core.tensor import Tensor, bump
from adjoint.ops.api_common import dtype_of, need, one_dim, raw, value
from adjoint.ops.family import batch_broadcast
from adjoint.ops.pointwise import mul
from adjoint.ops.public import public
from adjoint.ops.shape import clone_op


def _impl(x: Any, scale: Any, zero: Any, /, *, low: int, high: int) -> Any:
    """(values on the grid, which were not clamped); nan goes to the lower end."""
    wide = x.astype(F32) if x.dtype.itemsize == 2 else x
    with np.errstate(invalid="ignore"):
        steps = wide * (1 / scale.astype(F32))
        steps = np.rint(steps) + zero if zero.dtype.kind == "i" else np.rint(steps + zero)
        inside = (steps >= low) & (steps <= high)            # (nan is not)
    steps = np.clip(np.where(np.isnan(steps), low, steps), low, high)
    return ((steps - zero).astype(F32) * scale.astype(F32)).astype(x.dtype), inside


def _domain() -> Any:
    rng = np.random.default_rng(0)
    return [((rng.standard_normal((2, 3)), np.full(1, 0.1, F32), np.full(1, 2, np.int32)),
             {"low": -3, "high": 9})]


def _declare(name: str) -> Any:
    return op(
        name, impl=_impl, hidden=("inside",), infer=lambda x, scale, zero, **_: (
            x, Aval(x.shape, np.dtype(BOOL))),
        vjp={"x": lambda cts, inside: mul(cts[0], inside)},
        jvp={"x": lambda t, inside: (mul(t, inside), None)},
        batch=batch_broadcast, cost=lambda x, *_, **__: 6 * x.size, domain=_domain,
        why={"inside": "the gradient passes where the grid reaches"})


_per_tensor = _declare("fake_quantize_per_tensor_affine_cachemask")
_by_tensors = _declare("fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
_per_channel = _declare("fake_quantize_per_channel_affine_cachemask")
_observed = _declare("fused_moving_avg_obs_fq_helper")


def _limits(low: int, high: int, zero: Any) -> None:
    if low > high:
        raise ArgumentError("`quant_min` should be less than or         equal to `quant_max`, got "
                            f"{low} and {high}")
    if np.size(zero) and (np.min(zero) < low or np.max(zero) > high):
        raise ArgumentError("`zero_point` must be between `quant_min` and `quant_max`, got "
                            f"{np.min(zero)} to {np.max(zero)} for [{low}, {high}]")


@public("fake_quantize_per_tensor_affine", method=False)
def fake_quantize_per_tensor_affine(input: Any, scale: Any, zero_point: Any, quant_min: int,
                                    quant_max: int) -> Any:
    """(clamp(round(x / scale) + zero_point, quant_min, quant_max) - zero_point) · scale.

    `scale` and `zero_point` are numbers, or tensors of one element. The gradient is 1 where nothing
    was clamped, else 0. Raises ArgumentError for a zero_point outside of the limits.

    >>> import adjoint as ad
    >>> ad.fake_quantize_per_tensor_affine(ad.tensor([0.26, 9.0]), 0.1, 0, 0, 15)
    tensor([0.3000, 1.5000])
    """
    name = "fake_quantize_per_tensor_affine"
    need(name, input)
    tensors = isinstance(scale, Tensor)
    if tensors:
        zero = value(zero_point, "zero_point").reshape(-1).astype(np.int64)
        _limits(quant_min, quant_max, zero if quant_min > quant_max else ())
        step = value(scale, "scale").reshape(-1)
    else:
        if not isinstance(zero_point, int):
            raise TypeError(f"{name}(): argument 'zero_point' must be int, not "
                            f"{type(zero_point).__name__}")
        zero, step = np.array([zero_point]), np.array([scale], F32)
        _limits(quant_min, quant_max, zero)
    _floats(name, input)
    record = _by_tensors if tensors else _per_tensor
    shape = (1,) * len(input.shape)
    return record(input, step.reshape(shape), zero.reshape(shape), low=quant_min,
                  high=quant_max)[0]


def _floats(name: str, x: Any) -> None:
    if dtype_of(x).kind not in "fV":
        raise NotSupported(f"\"{name}\" not implemented for '{of_numpy(dtype_of(x)).name}'; it "
                           "takes floating tensors")


@public("fake_quantize_per_channel_affine", method=False)
def fake_quantize_per_channel_affine(input: Any, scale: Any, zero_point: Any, axis: int,
                                     quant_min: int, quant_max: int) -> Any:
    """`fake_quantize_per_tensor_affine` with a scale and a zero point for each index of `axis`.

    scale (C,) float32, zero_point (C,) int32 or float32, where `input` has C indices along `axis`.

    >>> import adjoint as ad
    >>> x, step = ad.tensor([[0.3, 0.3]]), ad.tensor([0.2, 1.0])
    >>> ad.fake_quantize_per_channel_affine(x, step, ad.zeros(2, dtype=ad.int32), 1, 0, 15)
    tensor([[0.4000, 0.0000]])
    """
    name = "fake_quantize_per_channel_affine"
    need(name, input, scale, zero_point)
    step, zero = value(scale, "scale"), value(zero_point, "zero_point")
    if step.dtype != F32 and step.dtype.kind != "V":
        raise DTypeError(f"Scale must be Float or BFloat16, found {_title(step)}")
    if zero.dtype not in (np.int32, F32, np.float16):
        raise DTypeError(f"Zero-point must be Int32, Float or Half, found {_title(zero)}")
    if step.ndim != 1 or zero.ndim != 1 or step.shape != zero.shape:
        raise ShapeError("scale and zero-point need to have the same dimensions, one axis each, "
                         f"got {list(step.shape)} and {list(zero.shape)}")
    axis = one_dim(input, axis)
    if input.shape[axis] != len(step):
        raise ShapeError("dimensions of scale and zero-point are not consistent with input tensor: "
                         f"{len(step)} of them for axis {axis} of {list(input.shape)}")
    _limits(quant_min, quant_max, zero)
    _floats(name, input)
    return _channels(_per_channel, input, step, zero, axis, quant_min, quant_max)


def _title(array: Any) -> str:
    return {"int64": "Long", "int32": "Int", "float64": "Double", "float32": "Float"}.get(
        array.dtype.name, array.dtype.name)


def _channels(record: Any, x: Any, scale: Any, zero: Any, axis: int, low: int, high: int) -> Any:
    shape = [-1 if d == axis else 1 for d in range(len(x.shape))]
    return record(x, scale.reshape(shape), zero.reshape(shape), low=low, high=high)[0]


# ------------------------------------------------------------------ observed limits
@public("fused_moving_avg_obs_fake_quant", method=False)
def fused_moving_avg_obs_fake_quant(
        input: Any, observer_on: Any, fake_quant_on: Any, running_min: Any, running_max: Any,
        scale: Any, zero_point: Any, averaging_const: float, quant_min: int, quant_max: int,
        ch_axis: int, per_row_fake_quant: bool = False, symmetric_quant: bool = False) -> Any:
    """Fake quantization whose grid follows the values seen: with `observer_on`, `running_min` and
    `running_max` move by `averaging_const` towards those of `input` (to them, the first time), and
    `scale` and `zero_point` are set so that the grid covers them and 0; with `fake_quant_on`,
    `input` is rounded to the grid. These four tensors are written to; per row of `ch_axis` they
    have an element each, and are made longer where they have fewer.

    >>> import adjoint as ad
    >>> on, low, high = ad.tensor([1]), ad.tensor([ad.inf]), ad.tensor([-ad.inf])
    >>> scale, zero = ad.tensor([1.0]), ad.tensor([0], dtype=ad.int32)
    >>> x = ad.tensor([-1.0, 0.1, 2.0])
    >>> ad.fused_moving_avg_obs_fake_quant(x, on, on, low, high, scale, zero, 0.01, 0, 3, -1)
    tensor([-1.,  0.,  2.])
    >>> scale, zero
    (tensor([1.]), tensor([1], dtype=adjoint.int32))
    """
    name = "fused_moving_avg_obs_fake_quant"
    need(name, input)
    _floats(name, input)
    axis = one_dim(input, ch_axis) if per_row_fake_quant else 0
    if bool(raw(observer_on).item()):
        x = value(input, "input")
        _observe(x, axis, per_row_fake_quant, running_min, running_max, averaging_const)
        _grid(raw(running_min), raw(running_max), scale, zero_point, quant_min, quant_max,
              symmetric_quant)
    if not bool(raw(fake_quant_on).item()):
        return clone_op(input)
    _limits(quant_min, quant_max, ())
    step, zero = raw(scale).copy(), raw(zero_point).copy()
    if not per_row_fake_quant:
        step, zero = (a.reshape((1,) * len(input.shape)) for a in (step, zero))
        return _observed(input, step, zero, low=quant_min, high=quant_max)[0]
    return _channels(_observed, input, step, zero, axis, quant_min, quant_max)


def _observe(x: Any, axis: int, rows: bool, low: Any, high: Any, share: float) -> None:
    """Move the running limits towards those of `x`."""
    others = tuple(d for d in range(x.ndim) if d != axis) if rows else None
    for kept, found, start in ((low, x.min(others), np.inf), (high, x.max(others), -np.inf)):
        found = np.asarray(found, F32).reshape(-1)
        _fill(kept, len(found), start)
        first = np.isinf(kept.array)
        with np.errstate(invalid="ignore"):
            moved = kept.array + F32.type(share) * (found - kept.array)
        kept.array[...] = np.where(first, found, moved)
        bump(kept, "fused_moving_avg_obs_fake_quant")


def _fill(t: Any, n: int, number: float) -> None:
    """`n` elements in a tensor that has fewer."""
    if t.array.size < n:
        t.resize_(n)
        t.array[...] = number


def _grid(low: Any, high: Any, scale: Any, zero: Any, first: int, last: int, symmetric: bool
          ) -> None:
    """The step and the zero of a grid of integers [first, last] that covers [low, high] and 0."""
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    _fill(scale, len(low), 1.0)
    _fill(zero, len(low), 0)
    half = (last - first) // 2
    even = (low < 0) & (high > 0) & symmetric          # symmetric where 0 lies between
    step = np.where(even, np.maximum(-low / (half + 1), high / half),
                    (high - low) / F32.type(last - first))
    step = np.where(step == 0, F32.type(0.1), step).astype(F32)
    scale.array[...] = step
    zero.array[...] = np.where(even, np.rint((first + last) / 2),
                               np.clip(first - np.rint(low / step), first, last))
    for t in (scale, zero):
        bump(t, "fused_moving_avg_obs_fake_quant")


__all__ = ["fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine",
           "fused_moving_avg_obs_fake_quant"]
