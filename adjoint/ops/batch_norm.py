"""Batch normalization, and local response normalization.

Source: S. Ioffe, C. Szegedy, "Batch normalization" (2015); its gradient as in layer norm, with
channels in the place of rows.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray
from adjoint.base.dtypes import F32
from adjoint.base.errors import ArgumentError, AutogradError, DTypeError, ShapeError
from adjoint.core.inplace import inplace
from adjoint.core.modes import GRAD, change, restore, state
from adjoint.core.op import op
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Size, Tensor, bump
from adjoint.ops.api_common import (
    cast_to,
    dtype_of,
    is_recorded,
    kernel,
    narrowed,
    need,
    need_kernel,
    raw,
    wide,
)
from adjoint.ops.device import following
from adjoint.ops.pointwise import add, div, mul, neg, pow_op, rsqrt, sub
from adjoint.ops.public import typed
from adjoint.ops.reduce import added, mean_op, paired, sum_op
from adjoint.ops.shape import batch_loop, reshape

Shape = tuple[int, ...]


def _per_channel(v: Any, rank: int) -> Any:
    return v.reshape(-1, *(1,) * (rank - 2))


@following(0)
def _impl(x: Any, weight: Any, bias: Any, /, *, eps: float) -> Any:
    w = wide(x)
    axes = (0, *range(2, w.ndim))
    n = max(w.size // max(w.shape[1], 1), 1)
    mean = added(w, axes) / w.dtype.type(n)
    out = np.ascontiguousarray(w - _per_channel(mean, w.ndim))
    flat = out.reshape(w.shape[0], w.shape[1], math.prod(w.shape[2:]))
    var = paired("ncs,ncs->c", flat, flat) / n
    scale = 1 / np.sqrt(var + w.dtype.type(eps))
    if weight is not None:
        scale = scale * wide(weight)
    out *= _per_channel(scale, w.ndim)
    if bias is not None:
        out += _per_channel(wide(bias), w.ndim)
    return narrowed(out, x.dtype), mean, var


def _infer(x: Aval, weight: Any, bias: Any, *, eps: float) -> Any:
    one = Aval((x.shape[1],), F32 if x.dtype.itemsize == 2 else x.dtype)
    return Aval(x.shape, x.dtype), one, one


@following(1)
def _grad(ct: Any, x: Any, weight: Any, mean: Any, var: Any, /, *, eps: float,
          wanted: tuple[bool, ...], training: bool) -> Any:
    g, w = wide(ct), wide(x)
    axes = (0, *range(2, w.ndim))
    n = max(w.size // max(w.shape[1], 1), 1)
    rstd = 1 / np.sqrt(var + w.dtype.type(eps))
    xhat = (w - _per_channel(mean, w.ndim)) * _per_channel(rstd, w.ndim)
    db = added(g, axes)
    rows = (*w.shape[:2], math.prod(w.shape[2:]))
    dw = paired("ncs,ncs->c", g.reshape(rows), xhat.reshape(rows))
    dx = xhat
    if wanted[0]:
        scale = rstd if weight is None else rstd * wide(weight)
        if training:
            dx *= _per_channel(-dw / n, w.ndim)
            dx += g
            dx -= _per_channel(db / n, w.ndim)
        else:
            dx[...] = g
        dx *= _per_channel(scale, w.ndim)
    return narrowed(dx, x.dtype), dw, db


_kernel: Any = kernel("batch_norm_backward", _grad, lambda ct, x, *_, **__: (
    x, *(Aval((x.shape[1],), F32 if x.dtype.itemsize == 2 else x.dtype),) * 2),
    outs=("dx", "dweight", "dbias"), cost=lambda ct, *_, **__: 9 * ct.size)


def _axes(x: Any) -> Shape:
    return (0, *range(2, len(x.shape)))


def column(v: Any, x: Any) -> Any:
    return reshape(v, (x.shape[1], *(1,) * (len(x.shape) - 2)))


def _normalised(x: Any, eps: float) -> tuple[Any, Any]:
    centred = sub(x, mean_op(x, dim=_axes(x), keepdim=True))
    rstd = rsqrt(add(mean_op(mul(centred, centred), dim=_axes(x), keepdim=True), eps))
    return mul(centred, rstd), rstd


def _vjp(cts: Any, x: Any, weight: Any, mean: Any, var: Any, wanted: Any, *, eps: float) -> Any:
    ct = cts[0]
    if not is_recorded(ct, x, weight):
        found = _kernel(ct, x, weight, mean, var, eps=eps, wanted=tuple(wanted), training=True)
    else:
        xhat, rstd = _normalised(x, eps)
        g = ct if weight is None else mul(ct, column(weight, x))
        pulled = mean_op(mul(g, xhat), dim=_axes(x), keepdim=True)
        flat = sub(sub(g, mean_op(g, dim=_axes(x), keepdim=True)), mul(xhat, pulled))
        found = (mul(flat, rstd), sum_op(mul(ct, xhat), dim=_axes(x), keepdim=False),
                 sum_op(ct, dim=_axes(x), keepdim=False))
    return tuple(f if w else None for f, w in zip(found, wanted, strict=True))


def _jvp(t: Any, x: Any, weight: Any, *, eps: float) -> Any:
    xhat, rstd = _normalised(x, eps)
    pulled = mean_op(mul(t, xhat), dim=_axes(x), keepdim=True)
    moved = mul(sub(sub(t, mean_op(t, dim=_axes(x), keepdim=True)), mul(xhat, pulled)), rstd)
    return (moved if weight is None else mul(moved, column(weight, x)), None, None)


batch_norm_op: Any = op(
    "batch_norm", impl=_impl, infer=_infer, outs=("out", "mean", "var"), differentiable=("out",),
    vjp={("x", "weight", "bias"): _vjp,
         "bias": lambda cts, x_aval: sum_op(cts[0], dim=_axes(x_aval), keepdim=False)},
    jvp={"x": _jvp,
         "weight": lambda t, x, *, eps: (mul(_normalised(x, eps)[0], column(t, x)), None, None),
         "bias": lambda t, x_aval: (column(t, x_aval), None, None)},
    batch=batch_loop, node="NativeBatchNormBackward0", cost=lambda x, *_, **__: 8 * x.size,
    why={"x": "x̂ is made again", "weight": "dx̂ = ct·weight", "mean": "for x̂", "var": "for x̂"})


# -- with statistics that are given ----------------------------------------------------------
@following(0)
def _given_impl(x: Any, weight: Any, bias: Any, mean: Any, var: Any, /, *, eps: float) -> Any:
    out = x - _per_channel(mean, x.ndim)
    scale = 1 / np.sqrt(var + var.dtype.type(eps))
    out *= _per_channel(scale if weight is None else scale * weight, x.ndim)
    if bias is not None:
        out += _per_channel(bias, x.ndim)
    return out


def _given_scale(x: Any, var: Any, weight: Any, eps: float) -> Any:
    rstd = rsqrt(add(var, eps))
    return column(rstd if weight is None else mul(rstd, weight), x)


def _given_hat(x: Any, mean: Any, var: Any, eps: float) -> Any:
    return mul(sub(x, column(mean, x)), _given_scale(x, var, None, eps))


def _given_turn(x: Any, mean: Any, var: Any, weight: Any, eps: float) -> Any:
    """The derivative to var: (x - mean)·weight·(-1/2)·(var + eps)^(-3/2)."""
    rstd = _given_scale(x, var, None, eps)
    return mul(mul(sub(x, column(mean, x)), _given_scale(x, var, weight, eps)),
               mul(mul(rstd, rstd), -0.5))


def _given_vjp(ct: Any, x: Any, weight: Any, mean: Any, var: Any, wanted: Any, *,
               eps: float) -> Any:
    if not is_recorded(ct, x, weight):
        found = _kernel(ct, x, weight, mean, var, eps=eps, wanted=tuple(wanted), training=False)
    else:
        found = (mul(ct, _given_scale(x, var, weight, eps)),
                 sum_op(mul(ct, _given_hat(x, mean, var, eps)), dim=_axes(x), keepdim=False),
                 sum_op(ct, dim=_axes(x), keepdim=False))
    return tuple(f if w else None for f, w in zip(found, wanted[:3], strict=True))


batch_norm_given_op: Any = op(
    "batch_norm_given", impl=_given_impl, infer=lambda x, *_, **__: Aval(x.shape, x.dtype),
    vjp={("x", "weight", "bias"): _given_vjp,
         "x": lambda ct, var, weight, *, eps: mul(ct, _given_scale(ct, var, weight, eps)),
         "bias": lambda ct: sum_op(ct, dim=_axes(ct), keepdim=False),
         "mean": lambda ct, var, weight, *, eps: neg(sum_op(
             mul(ct, _given_scale(ct, var, weight, eps)), dim=_axes(ct), keepdim=False)),
         "var": lambda ct, x, mean, var, weight, *, eps: sum_op(
             mul(ct, _given_turn(x, mean, var, weight, eps)), dim=_axes(ct), keepdim=False)},
    jvp={"x": lambda t, var, weight, *, eps: mul(t, _given_scale(t, var, weight, eps)),
         "mean": lambda t, var, weight, x_aval, *, eps: neg(
             mul(column(t, x_aval), _given_scale(x_aval, var, weight, eps))),
         "var": lambda t, x, mean, var, weight, *, eps: mul(
             column(t, x), _given_turn(x, mean, var, weight, eps)),
         "weight": lambda t, x, mean, var, *, eps: mul(_given_hat(x, mean, var, eps), column(t, x)),
         "bias": lambda t, x_aval: column(t, x_aval)},
    batch=batch_loop, node="NativeBatchNormBackward0", cost=lambda x, *_, **__: 3 * x.size,
    domain=lambda: [((np.random.default_rng(0).standard_normal((3, 2, 4)), np.array([2.0, 0.5]),
                      np.array([0.0, 3.0]), np.array([0.5, -1.0]), np.array([1.5, 0.25])),
                     {"eps": 1e-5})],
    why={"x": "dweight = Σ ct·x̂", "mean": "for x̂", "var": "dx = ct·weight/√(var + eps)",
         "weight": "dx = ct·weight/√(var + eps)"})


def _all_given(*operands: Any) -> bool:
    """Whether the record takes them: tensors of no transform, of one dtype that is computed in."""
    kind = dtype_of(operands[0])
    return kind.itemsize > 2 and kind.kind == "f" and not any(
        x is not None and (getattr(x, "level", 0) or dtype_of(x) != kind) for x in operands)


def check_channels(name: str, input: Any, *params: Any) -> None:
    """Statistics, weight and bias have a number for each channel, in the input's dtype or, over 16
    bits, in float32."""
    own = dtype_of(input)
    if len(input.shape) < 2:
        raise ShapeError(f"Expected at least 2 dimensions for input tensor but received "
                         f"{len(input.shape)} ({name} of {list(input.shape)}, wanted (N, C, ...)); "
                         "unsqueeze one axis")
    for at, p in enumerate(params):
        if p is not None and not hasattr(p, "shape"):
            raise DTypeError(f"{name}: running statistics, weight and bias are tensors, not "
                             f"{type(p).__name__}")
        if p is not None and tuple(p.shape) != (input.shape[1],):
            what = ("running_mean", "running_var", "weight", "bias")[at - len(params)]
            if name == "group_norm":
                raise ShapeError(f"Expected {what} to be a vector of size equal to the number of "
                                 f"channels in input, but got {what} of shape {list(p.shape)} and "
                                 f"input of shape {list(input.shape)}")
            raise ShapeError(f"{what} should contain {input.shape[1]} elements not "
                             f"{math.prod(p.shape)} ({name} of {list(input.shape)}; {what} is "
                             f"{list(p.shape)})")
        if p is not None and dtype_of(p) != own and not (own.itemsize == 2 and dtype_of(p) == F32):
            what = ("running_mean", "running_var", "weight", "bias")[at - len(params)]
            raise DTypeError(f"mixed dtype (CPU): expect parameter to have scalar type of Float: "
                             f"all inputs must share same datatype, but {name} got an input of "
                             f"{own} and {what} of {dtype_of(p)}; convert one with .to()")


def _per_batch(input: Any) -> int:
    """How many numbers of a batch a channel has."""
    return math.prod(input.shape[:1] + input.shape[2:])


def check_batch(input: Any, training: bool, eps: float, layer: str = "") -> None:
    """What PyTorch looks at first: the deviation of a channel is to be defined and not 0."""
    if training and _per_batch(input) == 1:
        raise ShapeError(f"{layer}Expected more than 1 value per channel when training, got input "
                         f"size {Size(input.shape)}: use a larger batch or eval()")
    if eps < 0 or training and not eps:
        raise ArgumentError(f"{layer}batch_norm eps must be "
                            f"{'positive during training' if training else 'non-negative'}, but "
                            f"got {eps}")


def batch_norm(input: Any, running_mean: Any, running_var: Any, weight: Any = None,
               bias: Any = None, training: bool = False, momentum: float = 0.1,
               eps: float = 1e-5) -> Any:
    """Normalizes every channel of (N, C, ...) by batch statistics (training) or running ones.

    In training the running statistics move by `momentum` towards the batch's, in place.

    >>> import adjoint as ad
    >>> x = ad.tensor([[1.0], [3.0]])
    >>> ad.nn.functional.batch_norm(x, None, None, training=True).shape
    adjoint.Size([2, 1])
    """
    need("batch_norm", input)
    check_batch(input, training, eps)
    need_kernel("batch_norm", "biuc", input)
    if not math.prod(input.shape) and len(input.shape) < 2:
        return mul(input, 1.0)                      # nothing to normalize, as in PyTorch
    check_channels("batch_norm", input, running_mean, running_var, weight, bias)
    if training:
        n = _per_batch(input)
        out, mean, var = batch_norm_op(input, weight, bias, eps=float(eps))
        if running_mean is not None and momentum is not None and n:
            track(running_mean, mean, momentum, 1.0)
            track(running_var, var, momentum, n / (n - 1))
        return out
    if running_mean is None or running_var is None:
        what = "running_mean" if running_mean is None else "running_var"
        raise ShapeError(f"{what} must be defined in evaluation mode (batch_norm: Expected "
                         "running_mean and running_var to be defined when training=False)")
    if _all_given(input, running_mean, running_var, weight, bias):
        return batch_norm_given_op(input, weight, bias, running_mean, running_var, eps=float(eps))
    scale = rsqrt(add(running_var, eps))
    if weight is not None:
        scale = mul(scale, weight)
    out = mul(sub(input, column(running_mean, input)), column(scale, input))
    out = out if bias is None else add(out, column(bias, input))
    own = dtype_of(input)         # float32 parameters over 16 bits: stored in 16 bits again
    return cast_to(out, own) if own.itemsize == 2 and dtype_of(out) == F32 else out


def track(running: Any, found: Any, momentum: float, factor: float) -> None:
    """Move a running statistic towards the one that was found, in place."""
    found = found.detach() if isinstance(found, Tensor) else found
    if getattr(found, "level", 0) or getattr(running, "level", 0):
        _track_level(running, found, momentum, factor)
        return
    target, value = raw(running), raw(found)
    if isinstance(target, MetaArray) or isinstance(value, MetaArray):
        call(_moved, target, value, momentum, factor, otherwise=tuple)
    else:
        _moved(target, value, momentum, factor)
    if running is not target:
        bump(running, "batch_norm (running statistics)")


def counted(counter: Any) -> bool:
    """counter += 1, in place and without a node; False (and nothing done) where it is no plain
    tensor with memory."""
    target, level = raw(counter), getattr(counter, "level", 0)
    if type(target) is not np.ndarray or level or counter is target:
        return False
    target += 1
    bump(counter, "batch_norm (batches seen)")
    return True


def _track_level(running: Any, found: Any, momentum: float, factor: float) -> None:
    if getattr(found, "level", 0) > getattr(running, "level", 0):
        raise AutogradError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which "
            "will be updated in place, were not batched. Pass them as mapped arguments (func."
            "stack_module_state), or give them up: func.replace_all_batch_norm_modules_(module)")
    mode = state()
    token = change(clear_bits=GRAD)
    try:
        inplace(mul.op, running, (1 - momentum,))
        inplace(add.op, running, (mul(found, momentum * factor),))
    finally:
        restore(token, mode)


def _moved(target: Any, value: Any, momentum: float, factor: float) -> None:
    target *= 1 - momentum
    target += (momentum * factor * value).astype(target.dtype)


@typed
def local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75,
                        k: float = 1.0) -> Any:
    """x/(k + alpha·mean of x² over `size` neighbouring channels)^beta.

    Source: A. Krizhevsky et al., "ImageNet classification" (2012), section 3.3.
    """
    if 0 not in input.shape:
        need_kernel("avg_pool2d", "busc", input)
    from adjoint.ops.api_shape import in_format_of
    from adjoint.ops.pool import avg_pool_op
    if len(input.shape) < 3:
        raise ShapeError(f"Expected 3D or higher dimensionality input (got {len(input.shape)} "
                         "dimensions)")
    if not math.prod(input.shape):
        return input
    n, c = input.shape[:2]
    rest = math.prod(input.shape[2:])
    from adjoint.ops.shape import pad_zero_op
    square = reshape(mul(input, input), (n, 1, c, rest))
    padded = pad_zero_op(square, pads=((0, 0), (0, 0), (size // 2, (size - 1) // 2), (0, 0)))
    mean = avg_pool_op(padded, kernel=(size, 1), stride=(1, 1), padding=(0, 0), ceil_mode=False,
                       count_include_pad=True, divisor_override=None)
    scale = pow_op(add(mul(reshape(mean, tuple(input.shape)), alpha), k), beta)
    return in_format_of(div(input, scale), input)


@typed
def normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12,
              out: Any = None) -> Any:
    """x/max(‖x‖, eps) along `dim`."""
    need_kernel("linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}",
                "biu", input)
    from adjoint.ops.api_common import finish, many_dims
    from adjoint.ops.moments import norm_op
    from adjoint.ops.pointwise import clamp_min
    size = norm_op(input, p=float(p), dim=many_dims(input, dim), keepdim=True)
    return finish(out, div(input, clamp_min(size, low=eps)))
