"""Pooling: maximum, mean, adaptive and power-mean windows."""
from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import I64, is_inexact
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.autocast import in_float32
from adjoint.core.bind import bind
from adjoint.core.op import Op, op
from adjoint.kernels import conv as k
from adjoint.kernels.conv_numpy import per_dim
from adjoint.kernels.expr import sqrt_, var
from adjoint.ops.api_common import (
    dtype_of,
    finish_same,
    need,
    need_kernel,
    raw,
)
from adjoint.ops.api_shape import in_format_of
from adjoint.ops.device import following
from adjoint.ops.family import derived_op
from adjoint.ops.gather import gather_op, put_along_op, scatter_op
from adjoint.ops.pointwise import abs_op, mul, pow_op, sign
from adjoint.ops.public import planned, public
from adjoint.ops.shape import reshape, squeeze_op, unsqueeze_op

Shape = tuple[int, ...]


def _batch_first(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    """Examples join the batch axis that pooling has anyway."""
    x = args[0]
    b, n = x.shape[:2]
    if "x_shape" in attrs:
        attrs = {**attrs, "x_shape": (b * n, *attrs["x_shape"][1:])}
    out = bind(op_, (reshape(x, (b * n, *x.shape[2:])),), attrs)
    if isinstance(out, tuple):
        return tuple(reshape(o, (b, n, *o.shape[1:])) for o in out)
    return reshape(out, (b, n, *out.shape[1:]))


def _planes(x: Any) -> Any:
    return reshape(x, (x.shape[0], x.shape[1], math.prod(x.shape[2:])))


def _max_vjp(cts: Any, indices: Any, x_aval: Aval) -> Any:
    n, c, *space = x_aval.shape
    flat = put_along_op(_planes(cts[0]), _planes(indices), dim=2, shape=(n, c, math.prod(space)))
    return in_format_of(reshape(flat, x_aval.shape), indices)


def _max_jvp(t: Any, indices: Any) -> Any:
    return reshape(gather_op(_planes(t), _planes(indices), dim=2), tuple(indices.shape)), None


def _max_infer(x: Aval, *, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape,
               ceil_mode: bool) -> Any:
    space = tuple(k.pool_size(*s, ceil_mode=ceil_mode) for s in zip(
        x.shape[2:], kernel, stride, padding, dilation, strict=True))
    shape = (*x.shape[:2], *space)
    return Aval(shape, x.dtype), Aval(shape, I64)


WHY = {"indices": "the gradient goes to the element that won"}
max_pool_op: Any = op(
    "max_pool", impl=following(0)(lambda x, /, *, kernel, stride, padding, dilation, ceil_mode:
    k.max_pool_forward(x, kernel, stride, padding, dilation, ceil_mode)),
    infer=_max_infer, outs=("out", "indices"), differentiable=("out",), vjp={"x": _max_vjp},
    jvp={"x": _max_jvp}, batch=_batch_first, node="MaxPool2DWithIndicesBackward0",
    cost=lambda x, *, kernel, **_: x.size * math.prod(kernel), why=WHY)
adaptive_max_pool_op: Any = op(
    "adaptive_max_pool", impl=following(0, ranks=(4,))(
        lambda x, /, *, size: k.adaptive_max_pool_forward(x, size)),
    infer=lambda x, *, size: (Aval((*x.shape[:2], *size), x.dtype),
                              Aval((*x.shape[:2], *size), I64)),
    outs=("out", "indices"), differentiable=("out",), vjp={"x": _max_vjp}, jvp={"x": _max_jvp},
    batch=_batch_first, node="AdaptiveMaxPool2DBackward0", cost=lambda x, **_: x.size, why=WHY)


def _avg_shape(x: Aval, kernel: Shape, stride: Shape, padding: Shape, ceil_mode: bool) -> Shape:
    return (*x.shape[:2], *(k.pool_size(n, w, s, p, 1, ceil_mode) for n, w, s, p in zip(
        x.shape[2:], kernel, stride, padding, strict=True)))


@following(0, ranks=(4,))
def _avg_impl(x: Any, /, *, kernel: Shape, stride: Shape, padding: Shape, ceil_mode: bool,
              count_include_pad: bool, divisor_override: Any) -> Any:
    whole = x.dtype.kind in "iu"
    out = k.avg_pool_forward(x.astype(np.float64) if whole else x, kernel, stride, padding,
                             ceil_mode, count_include_pad, divisor_override)
    return np.trunc(out).astype(x.dtype) if whole else out


avg_pool_op: Any = op(
    "avg_pool", impl=_avg_impl,
    infer=lambda x, *, kernel, stride, padding, ceil_mode, **_: Aval(
        _avg_shape(x, kernel, stride, padding, ceil_mode), x.dtype),
    vjp={"x": lambda ct, x_aval, **attrs: avg_unpool_op(ct, x_shape=x_aval.shape, **attrs)},
    jvp={"x": None}, batch=_batch_first, node="AvgPool2DBackward0",
    cost=lambda x, *, kernel, **_: x.size * math.prod(kernel))


def _pool_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v for n, v in attrs.items() if n != "x_shape"}


avg_unpool_op: Any = op(
    "avg_pool_backward",
    impl=following(0, ranks=(4,))(
        lambda ct, /, *, x_shape, kernel, stride, padding, ceil_mode, count_include_pad,
        divisor_override: k.avg_pool_backward(ct, x_shape, kernel, stride, padding, ceil_mode,
                                              count_include_pad, divisor_override)),
    infer=lambda ct, *, x_shape, **_: Aval(x_shape, ct.dtype),
    vjp={"ct": lambda g, **attrs: avg_pool_op(g, **_pool_attrs(attrs))}, jvp={"ct": None},
    batch=_batch_first, cost=lambda ct, *, kernel, **_: ct.size * math.prod(kernel))
adaptive_avg_op: Any = op(
    "adaptive_avg_pool", impl=following(0, ranks=(4,))(
        lambda x, /, *, size: k.adaptive_avg_pool_forward(x, size)),
    infer=lambda x, *, size: Aval((*x.shape[:2], *size), x.dtype),
    vjp={"x": lambda ct, x_aval: adaptive_avg_back_op(ct, x_shape=x_aval.shape)},
    jvp={"x": None}, batch=_batch_first, node="AdaptiveAvgPool2DBackward0",
    cost=lambda x, **_: x.size)
adaptive_avg_back_op: Any = op(
    "adaptive_avg_pool_backward",
    impl=following(0, ranks=(4,))(
        lambda ct, /, *, x_shape: k.adaptive_avg_pool_backward(ct, x_shape)),
    infer=lambda ct, *, x_shape: Aval(x_shape, ct.dtype),
    vjp={"ct": lambda g, ct_aval: adaptive_avg_op(g, size=ct_aval.shape[2:])}, jvp={"ct": None},
    batch=_batch_first, cost=lambda ct, *, x_shape: math.prod(x_shape))


# ------------------------------------------------------------------ public
def _ready(name: str, input: Any, dims: int) -> tuple[Any, bool]:
    need(name, input)
    rank = len(input.shape)
    if rank not in (dims + 1, dims + 2):
        if dims > 1 and not name.startswith("adaptive"):
            raise ShapeError(f"non-empty {dims + 1}D or {dims + 2}D (batch mode) tensor expected "
                             f"for input; {name}: Expected {dims + 1}D or {dims + 2}D, got "
                             f"{list(input.shape)}")
        raise ShapeError(f"{name}: Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with "
                         "optional 0 dim batch size for input, but got: "
                         f"{list(input.shape)}")
    if name.startswith("adaptive") and 0 in tuple(input.shape)[rank - dims:]:
        at = tuple(input.shape).index(0, rank - dims)
        raise ShapeError(f"{name}(): Expected input to have non-zero size for non-batch dimensions,"
                         f" but input has sizes {list(input.shape)} with dimension {at} being "
                         "empty")
    if 0 in tuple(input.shape)[rank - dims - 1:]:
        raise ShapeError(f"{name}: Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with "
                         f"optional 0 dim batch size for input, but got: {list(input.shape)}. "
                         "Expected input's non-batch dimensions to have positive length")
    return (unsqueeze_op(input, dim=0), True) if rank == dims + 1 else (input, False)


def _of_length(name: str, what: str, given: Shape, dims: int) -> None:
    """Refuse a kernel size, stride, padding or dilation that is not one number for each axis."""
    if len(given) == dims:
        return
    if dims == 1 and name.startswith("avg"):
        raise ArgumentError(f"{name}() argument '{what}' should contain one int (got "
                            f"{len(given)})")
    none = {1: "None, ", 2: "either be omitted, ", 3: "either be omitted, "} if what == "stride" \
        else {1: "", 2: "either be ", 3: "either be "}
    if dims == 1:
        raise ArgumentError(f"{name}() {what} must be {none[1]}an int, list of ints"
                            f"{', or' if what in ('stride', 'padding') else ' or'} tuple of ints "
                            f"of size 1 but got size {len(given)}")
    words = none[dims] if what != "dilation" else "be either "
    if name == "avg_pool3d":
        words = "be omitted, " if what == "stride" else "be "
    count = {2: "two", 3: "three"}[dims]
    raise ArgumentError(f"{name}: {what} must {words}a single int, or a tuple of {count} ints; got "
                        f"{given}")


def _window(name: str, kernel: Any, stride: Any, padding: Any, dims: int,
            ) -> tuple[Shape, Shape, Shape]:
    w = per_dim(kernel, dims)
    empty = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    s = w if empty else per_dim(stride, dims)
    p = per_dim(padding, dims)
    for what, given in (("kernel_size", w), ("stride", s), ("padding", p)):
        _of_length(name, what, given, dims)
    if name == "max_pool1d":
        what, low = ("stride", s[0]) if w[0] > 0 else ("kernel_size", w[0])
        if low < 1:
            raise ArgumentError(f"max_pool1d() {what} must be greater than zero, but got {low}")
    if 0 in s:
        raise ArgumentError(f"stride should not be zero ({name}, got {s})")
    if min(w) < 1 or min(s) < 1:
        spans = w if dims > 1 else (1, *w)
        sizes = " ".join(f"k{a}: {n}" for a, n in zip("THW"[-len(spans):], spans, strict=True))
        raise ArgumentError(f"kernel size should be greater than zero, but got {sizes} ({name}, "
                            f"stride {s})")
    if min(p) < 0:
        what = "max_pool1d() padding must be non-negative, but got" if name == "max_pool1d" else (
            f"{name}: pad must be non-negative, but got pad:")
        raise ArgumentError(f"{what} {min(p)}")
    if any(2 * q > n for q, n in zip(p, w, strict=True)):
        if name == "max_pool1d":
            raise ArgumentError("max_pool1d() padding should be at most half of kernel size, but "
                                f"got padding={p[0]} and kernel_size={w[0]}")
        raise ArgumentError("pad should be at most half of effective kernel size, but got "
                            f"pad={max(p)}, kernel_size={min(w)} and dilation=1 ({name})")
    return w, s, p


def _nonempty(name: str, x: Any, shape: Shape) -> None:
    if min(shape, default=1) < 1:
        def listed(sizes: Any) -> str:
            lone = (1,) * (len(shape) == 1)
            return "x".join(str(n) for n in (x.shape[1], *lone, *sizes))
        if name == "max_pool1d":
            raise ShapeError(f"max_pool1d() Invalid computed output size: {min(shape)}")
        raise ShapeError(f"Given input size: ({listed(x.shape[2:])}). Calculated output size: "
                         f"({listed(shape)}). Output size is too small ({name})")


def _max(name: str, dims: int, input: Any, kernel: Any, stride: Any, padding: Any, dilation: Any,
         ceil_mode: bool, return_indices: bool) -> Any:
    w, s, p = _window(name, kernel, stride, padding, dims)
    x, single = _ready(name, input, dims)
    if dims == 1 and not return_indices:
        need_kernel("max_pool1d_impl", "biu", x)
    need_kernel(f"max_pool{max(dims, 2)}d", "bc", x)
    d = per_dim(dilation, dims)
    _of_length(name, "dilation", d, dims)
    if min(d) < 1:
        if dims == 1:
            raise ArgumentError("max_pool1d() dilation must be greater than zero, but got "
                                f"{min(d)}")
        sizes = " ".join(f"dilation{a}: {n}" for a, n in zip("THW"[-dims:], d, strict=True))
        raise ArgumentError(f"dilation should be greater than zero, but got {sizes} ({name})")
    _nonempty(name, x, tuple(k.pool_size(*z, ceil_mode=ceil_mode) for z in zip(
        x.shape[2:], w, s, p, d, strict=True)))
    outs = max_pool_op(x, kernel=w, stride=s, padding=p, dilation=d, ceil_mode=ceil_mode)
    if single:
        outs = tuple(squeeze_op(o, dims=(0,)) for o in outs)
    return outs if return_indices else outs[0]


def _avg(name: str, dims: int, input: Any, kernel: Any, stride: Any, padding: Any,
         ceil_mode: bool, include: bool, divisor: Any) -> Any:
    w, s, p = _window(name, kernel, stride, padding, dims)
    x, single = _ready(name, input, dims)
    need_kernel("avg_pool3d_out_frame" if dims == 3 else "avg_pool2d",
                "busch" if dims == 3 else "busc", x)
    if divisor == 0:
        raise ArgumentError("divisor must be not zero")
    _nonempty(name, x, tuple(k.pool_size(*z, 1, ceil_mode) for z in zip(
        x.shape[2:], w, s, p, strict=True)))
    out = avg_pool_op(x, kernel=w, stride=s, padding=p, ceil_mode=ceil_mode,
                      count_include_pad=include, divisor_override=divisor)
    return squeeze_op(out, dims=(0,)) if single else out


def _size(name: str, size: Any, input: Any, dims: int) -> tuple[int | None, ...]:
    if size is None:
        return (None,) * dims
    if hasattr(size, "__index__") and not getattr(size, "ndim", 0):     # (a tensor without axes)
        return (size.__index__(),) * dims
    if dims == 1 and len(size) != 1:
        raise ArgumentError(f"{name}() argument 'output_size' should contain one int (got "
                            f"{len(size)})")
    if len(size) >= len(input.shape):
        raise ArgumentError(f"Input dimension should be at least {len(size) + 1}, got "
                            f"{len(input.shape)} ({name} to output_size {tuple(size)})")
    if len(size) != dims:
        raise ArgumentError(f"{name}(): internal error: output_size must be {dims}, as many as the "
                            f"axes that are pooled, or an int; got {tuple(size)}")
    return tuple(size)


def _adaptive(name: str, dims: int, input: Any, size: Any, maximum: bool, indices: bool) -> Any:
    need(name, input)
    wanted = _size(name, size, input, dims)
    if any(s is not None and s < 0 for s in wanted):
        raise ArgumentError(f"{name}: elements of output_size must be greater than or equal to 0 "
                            f"but received {wanted} (Trying to create tensor with negative "
                            f"dimension {min(s for s in wanted if s is not None)})")
    x, single = _ready(name, input, dims)
    kernel = f"adaptive_{'max' if maximum else 'avg'}_pool{max(dims, 2)}d{'_cpu' * (dims == 3)}"
    ones = not maximum and all(s == 1 for s in wanted)     # a mean, which complex numbers have
    need_kernel(kernel, "biu" if ones else "biuc", x)
    record = adaptive_max_pool_op if maximum else adaptive_avg_op
    out = record(x, size=tuple(n if s is None else int(s) for s, n in zip(
        wanted, x.shape[2:], strict=True)))
    outs = out if isinstance(out, tuple) else (out,)
    if single:
        outs = tuple(squeeze_op(o, dims=(0,)) for o in outs)
    return outs if indices else outs[0]


@cache
def _root() -> Any:
    """A square root that is told as the power it is in PyTorch."""
    return derived_op("lp_root", ("x",), (), sqrt_(var("x")), "PowBackward0")


def _declare(dims: int) -> dict[str, Any]:
    def max_pool(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                 dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
        return _max(f"max_pool{dims}d", dims, input, kernel_size, stride, padding, dilation,
                    ceil_mode, return_indices)

    def avg_pool(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True,
                 divisor_override: Any = None, *, out: Any = None) -> Any:
        return finish_same(out, _avg(f"avg_pool{dims}d", dims, input, kernel_size, stride, padding,
                                     ceil_mode, count_include_pad, divisor_override))

    def avg_pool_of_rows(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                         ceil_mode: bool = False, count_include_pad: bool = True) -> Any:
        return avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad)

    def adaptive_avg(input: Any, output_size: Any) -> Any:
        return _adaptive(f"adaptive_avg_pool{dims}d", dims, input, output_size, False, False)

    def adaptive_max(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        return _adaptive(f"adaptive_max_pool{dims}d", dims, input, output_size, True,
                         return_indices)

    def lp_pool(input: Any, norm_type: float, kernel_size: Any, stride: Any = None,
                ceil_mode: bool = False) -> Any:
        if math.isinf(norm_type):
            return max_pool(abs_op(input), kernel_size, stride, ceil_mode=ceil_mode)
        w = per_dim(kernel_size, dims)
        square = norm_type == 2 and is_inexact(dtype_of(input))
        power = mul(input, input) if square else pow_op(input, float(norm_type))
        name = f"lp_pool{dims}d"
        if ceil_mode:           # PyTorch's: the mean of what is there, times the whole window
            summed = mul(_avg(name, dims, power, w, stride, 0, True, True, None),
                         float(math.prod(w)))
        else:
            summed = _avg(name, dims, power, w, stride, 0, False, True, 1)
        total = mul(sign(summed), _relu(abs_op(summed)))
        return _root()(total) if square else pow_op(total, 1.0 / norm_type)

    def unpool(input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
               output_size: Any = None) -> Any:
        return _unpool(dims, input, indices, kernel_size, stride, padding, output_size)
    average = avg_pool if dims > 1 else avg_pool_of_rows
    made: dict[str, Any] = {f"max_pool{dims}d": max_pool, f"avg_pool{dims}d": average,
            f"adaptive_avg_pool{dims}d": adaptive_avg, f"adaptive_max_pool{dims}d": adaptive_max,
            f"lp_pool{dims}d": lp_pool, f"max_unpool{dims}d": unpool}
    docs = {"max_pool": "Maximum of every window", "avg_pool": "Mean of every window",
            "adaptive_avg_pool": "Mean over `output_size` nearly equal windows",
            "adaptive_max_pool": "Maximum over `output_size` nearly equal windows",
            "lp_pool": "(Σ xᵖ)^(1/p) of every window",
            "max_unpool": "Values put back to the places that a max pool took them from"}
    for name, f in made.items():
        f.__name__ = f.__qualname__ = name
        f.__doc__ = (f"{docs[name[:-2]]}, over the last {dims} "
                     f"{'axis' if dims == 1 else 'axes'} of (N, C, ...) or (C, ...).")
        if dims == 3 and not name.startswith(("lp", "max_unpool")):
            made[name] = in_float32(f)              # PyTorch's list for cpu has these alone
        made[name] = planned(made[name])
        public(name, method=False)(made[name])
    return made


def _relu(x: Any) -> Any:
    from adjoint.ops.pointwise import relu
    return relu(x)


def _asked_space(size: Shape, expected: Shape, stride: Shape) -> Shape:
    """The spatial part of ``output_size``, within a stride of what the window sizes say."""
    dims = len(expected)
    if len(size) not in (dims, dims + 2):
        raise ArgumentError(f"output_size should be a sequence containing {dims} or {dims + 2} "
                            f"elements, but it has a length of '{len(size)}'")
    space = size[-dims:]
    for d, (n, middle, step) in enumerate(zip(space, expected, stride, strict=True)):
        if not middle - step < n < middle + step:
            raise ArgumentError(f'invalid output_size "{space}" (dim {d} must be between '
                                f"{middle - step} and {middle + step})")
    return space


def _unpool(dims: int, input: Any, indices: Any, kernel: Any, stride: Any, padding: Any,
            size: Any) -> Any:
    x, single = _ready(f"max_unpool{dims}d", input, dims)
    need_kernel(f"max_unpool{max(dims, 2)}d", "biu", x)
    if tuple(indices.shape) != tuple(input.shape):
        raise ShapeError(f"Expected shape of indices to be same as that of the input tensor "
                         f"({list(input.shape)}) but got indices tensor with shape: "
                         f"{list(indices.shape)}")
    at = unsqueeze_op(indices, dim=0) if single else indices
    w, s, p = _window(f"max_unpool{dims}d", kernel, stride, padding, dims)
    space = tuple((n - 1) * b - 2 * c + a for n, a, b, c in zip(x.shape[2:], w, s, p, strict=True))
    if size is not None:
        space = _asked_space(tuple(int(n) for n in size), space, s)
    at_values = raw(at)
    if at_values.dtype != I64:
        raise DTypeError(f"elements in indices should be type int64 but got: {at.dtype}")
    if isinstance(at_values, np.ndarray) and at_values.size:
        worst = int(max(at_values.max(), -at_values.min() + math.prod(space) - 1))
        if worst >= math.prod(space):
            raise ShapeError(f"Found an invalid max index: {at_values.max()} (output volumes are "
                             f"of size {'x'.join(map(str, space))}): pass output_size, the shape "
                             "before the pooling")
    shape = (*x.shape[:2], math.prod(space))
    flat = scatter_op(np.zeros(shape, dtype_of(x)), _planes(at), _planes(x), dim=2)
    out = reshape(flat, (*x.shape[:2], *space))
    if dims == 2:
        out = in_format_of(out, x)
    return squeeze_op(out, dims=(0,)) if single else out


POOLS = {n: f for dims in (1, 2, 3) for n, f in _declare(dims).items()}
