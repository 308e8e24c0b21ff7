"""Convolution: three records, the three faces of one trilinear form, each the others' derivative.

The rule of every operand is its own, so that a frozen weight does not keep the input.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from adjoint.base.aval import Aval
from adjoint.base.dtypes import cpp_type, scalar_type
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.autocast import lowered
from adjoint.core.bind import bind
from adjoint.core.modes import warn_as_pytorch
from adjoint.core.op import Op, op
from adjoint.kernels import conv as raw_conv
from adjoint.kernels.conv_numpy import per_dim
from adjoint.ops.api_common import (
    dtype_of,
    need,
    need_kernel,
    need_rank,
)
from adjoint.ops.device import following
from adjoint.ops.linalg import conj
from adjoint.ops.public import planned, public, typed
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import (
    lift_all,
    pad_zero_op,
    permute_op,
    reshape,
    squeeze_op,
    transpose_op,
    unsqueeze_op,
)

Shape = tuple[int, ...]


@following(0, 1)
def _forward(x: Any, w: Any, bias: Any, /, *, stride: Shape, padding: Any, dilation: Shape,
             groups: int) -> Any:
    return raw_conv.conv_forward(x, w, stride, padding, dilation, groups, bias)


def _infer(x: Aval, w: Aval, bias: Any, *, stride: Shape, padding: Any, dilation: Shape,
           groups: int) -> Aval:
    spec = raw_conv.conv_spec(x.shape, w.shape, stride, padding, dilation, groups)
    return Aval((x.shape[0], w.shape[0], *spec.out), x.dtype)


def _geometry(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {k: attrs[k] for k in ("stride", "padding", "dilation", "groups")}


def _fold(x: Any) -> Any:
    """(B, N, C, ...) -> (N, B·C, ...)."""
    moved = transpose_op(x, dim0=0, dim1=1)
    return reshape(moved, (moved.shape[0], moved.shape[1] * moved.shape[2], *moved.shape[3:]))


def _unfold(x: Any, b: int) -> Any:
    """(N, B·C, ...) -> (B, N, C, ...)."""
    split = reshape(x, (x.shape[0], b, x.shape[1] // b, *x.shape[2:]))
    return transpose_op(split, dim0=0, dim1=1)


def _flat(w: Any) -> Any:
    return reshape(w, (w.shape[0] * w.shape[1], *w.shape[2:]))


def _batch_conv(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    from adjoint.ops.pointwise import add
    x, w, bias = args
    if not batched[1]:
        b, n = x.shape[:2]
        flat = reshape(x, (b * n, *x.shape[2:])) if batched[0] else x
        out = bind(op_, (flat, w, None if batched[2] else bias), attrs)
        if batched[0]:
            out = reshape(out, (b, n, *out.shape[1:]))
    else:
        x, w = lift_all((x, w), batched[:2])
        b = w.shape[0]
        out = _unfold(bind(op_, (_fold(x), _flat(w), None), {**attrs,
                                                              "groups": b * attrs["groups"]}), b)
        if bias is not None and not batched[2]:
            out = add(out, reshape(bias, (-1, *(1,) * (len(out.shape) - 3))))
    if bias is not None and batched[2]:
        if not (batched[0] or batched[1]):
            out = unsqueeze_op(out, dim=0)
        rank = len(out.shape)
        out = add(out, reshape(bias, (bias.shape[0], 1, -1, *(1,) * (rank - 3))))
    return out


def _batch_input(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    ct, w = lift_all(args, batched)
    b, shape = ct.shape[0], attrs["x_shape"]
    out = bind(op_, (_fold(ct), _flat(w)), {
        **attrs, "groups": b * attrs["groups"], "x_shape": (shape[0], b * shape[1], *shape[2:])})
    return _unfold(out, b)


def _batch_weight(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    ct, x = lift_all(args, batched)
    b, shape = ct.shape[0], attrs["w_shape"]
    out = bind(op_, (_fold(ct), _fold(x)), {
        **attrs, "groups": b * attrs["groups"], "w_shape": (b * shape[0], *shape[1:])})
    return reshape(out, (b, *shape))


def _flops(x: Aval, w: Aval, *_: Any, **attrs: Any) -> int:
    spec = raw_conv.conv_spec(x.shape, w.shape, **_geometry(attrs))
    return 2 * x.shape[0] * math.prod(spec.out) * w.size


def _sum_bias(ct: Any) -> Any:
    return sum_op(ct, dim=(0, *range(2, len(ct.shape))), keepdim=False)


@following(0, 1)
def _input_impl(ct: Any, w: Any, /, *, x_shape: Shape, stride: Shape, padding: Any,
                dilation: Shape, groups: int) -> Any:
    return raw_conv.conv_grad_input(ct, w, x_shape, stride, padding, dilation, groups)


conv_op: Any = op(
    "convolution", impl=_forward, infer=_infer, node="ConvolutionBackward0",
    autocast="lower",
    vjp={"x": lambda ct, w, x_aval, **attrs: conv_input_op(ct, conj(w), x_shape=x_aval.shape,
                                                           **_geometry(attrs)),
         "w": lambda ct, x, w_aval, **attrs: conv_weight_op(ct, conj(x), w_shape=w_aval.shape,
                                                            **_geometry(attrs)),
         "bias": lambda ct: _sum_bias(ct)},
    jvp={"x": lambda t, w, **attrs: conv_op(t, w, None, **_geometry(attrs)),
         "w": lambda t, x, **attrs: conv_op(x, t, None, **_geometry(attrs)),
         "bias": lambda t, x_aval: reshape(t, (-1, *(1,) * (x_aval.ndim - 2)))},
    batch=_batch_conv, cost=_flops, why={"x": "dw = ct ⋆ x", "w": "dx = ct * w"})
conv_input_op: Any = op(
    "convolution_input", node="ConvolutionBackward0", autocast="lower",
    impl=_input_impl,
    infer=lambda ct, w, *, x_shape, **_: Aval(x_shape, ct.dtype),
    vjp={"ct": lambda g, w, **attrs: conv_op(g, conj(w), None, **_geometry(attrs)),
         "w": lambda g, ct, w_aval, **attrs: conv_weight_op(conj(ct), g, w_shape=w_aval.shape,
                                                            **_geometry(attrs))},
    jvp={"ct": lambda t, w, **attrs: conv_input_op(t, w, **attrs),
         "w": lambda t, ct, **attrs: conv_input_op(ct, t, **attrs)},
    batch=_batch_input, cost=lambda ct, w, *, x_shape, **attrs: _flops(
        Aval(x_shape, ct.dtype), w, **attrs),
    why={"ct": "dw = input ⋆ cotangent", "w": "the adjoint has the same weight"})
conv_weight_op: Any = op(
    "convolution_weight", node="ConvolutionBackward0",
    impl=lambda ct, x, /, *, w_shape, stride, padding, dilation, groups: raw_conv.conv_grad_weight(
        ct, x, w_shape, stride, padding, dilation, groups),
    infer=lambda ct, x, *, w_shape, **_: Aval(w_shape, ct.dtype),
    vjp={"ct": lambda g, x, **attrs: conv_op(conj(x), g, None, **_geometry(attrs)),
         "x": lambda g, ct, x_aval, **attrs: conv_input_op(conj(ct), g, x_shape=x_aval.shape,
                                                           **_geometry(attrs))},
    jvp={"ct": lambda t, x, **attrs: conv_weight_op(t, x, **attrs),
         "x": lambda t, ct, **attrs: conv_weight_op(ct, t, **attrs)},
    batch=_batch_weight, cost=lambda ct, x, *, w_shape, **attrs: _flops(
        x, Aval(w_shape, ct.dtype), **attrs),
    why={"ct": "dx = ct * weight", "x": "dct = x ⋆ weight"})


# ------------------------------------------------------------------ public
def _check(name: str, x: Any, w: Any, bias: Any, dims: int, groups: int, out_axis: int) -> None:
    need(name, x, argument="input")
    need(name, w, argument="weight")
    if groups < 1:
        raise ArgumentError(f"{name}: non-positive groups is not supported, got {groups}")
    if len(w.shape) < 3:
        raise ShapeError(f"{name}: weight should have at least three dimensions, got "
                         f"{list(w.shape)}")
    if len(w.shape) != dims + 2:
        raise ShapeError(f"{name}: expected a {dims + 2}-d weight, got {list(w.shape)}; Expected "
                         f"{len(w.shape)}-dimensional input for {len(w.shape)}-dimensional weight")
    if len(x.shape) not in (dims + 1, dims + 2):
        raise ShapeError(f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to "
                         f"{name}, but got input of size: {list(x.shape)}")
    if w.shape[0] < groups:
        raise ShapeError(f"Given groups={groups}, expected weight to be at least {groups} at "
                         f"dimension 0, but got weight of size {list(w.shape)} instead ({name})")
    for t, word in ((bias, "bias"), (w, "weight")):
        if t is not None and dtype_of(t) != dtype_of(x):
            kinds = dtype_of(x), dtype_of(t)
            said = f"expected scalar type {scalar_type(kinds[0])} but found {scalar_type(kinds[1])}"
            both = (f"Input type ({cpp_type(kinds[0])}) and {word} type ({cpp_type(kinds[1])}) "
                    "should be the same")
            raise DTypeError(f"{both}: {name}" if t is bias else f"{said}: {name}: {both}")
    of = "transposed=1" if out_axis else f"groups={groups}"
    if w.shape[0] % groups:
        raise ShapeError(f"Given {of}, expected weight to be divisible by {groups} at dimension 0, "
                         f"but got weight of size [{list(w.shape)}] instead ({name})")
    channels = x.shape[-dims - 1]
    need_channels = w.shape[1] * groups if out_axis == 0 else w.shape[0]
    if channels != need_channels:
        raise ShapeError(f"Given {of}, weight of size {list(w.shape)}, expected input"
                         f"{list(x.shape)} to have {need_channels} channels, but got {channels} "
                         "channels instead")
    outs = w.shape[0] if out_axis == 0 else w.shape[1] * groups
    if bias is not None and tuple(bias.shape) != (outs,):
        lead = "Given transposed=1, " if out_axis else "Given "
        raise ShapeError(f"{lead}weight of size {list(w.shape)}, expected bias to be 1-dimensional "
                         f"with {outs} elements, but got bias of size {list(bias.shape)} instead "
                         f"({name})")


_TOO_LOW = {"stride": "non-positive stride is not supported",
            "padding": "negative padding is not supported",
            "dilation": "dilation should be greater than zero"}


def _steps(name: str, what: str, value: Any, dims: int, low: int) -> Shape:
    given = per_dim(value, dims)
    if len(given) != dims:
        raise ArgumentError(f"expected {what} to be a single integer value or a list of {dims} "
                            f"values to match the convolution dimensions, but got {what}="
                            f"{list(given)} ({name})")
    if min(given) < low:
        got = f", but got {list(given)}" if what == "dilation" else ""
        raise ArgumentError(f"{name}: {_TOO_LOW.get(what, what)}{got}; {what}={value} must be at "
                            f"least {low}")
    return given


def _pads(name: str, padding: Any, w: Any, stride: Shape, dilation: Shape, dims: int) -> Any:
    if not isinstance(padding, str):
        return tuple((p, p) for p in _steps(name, "padding", padding, dims, 0))
    if padding == "valid":
        return ((0, 0),) * dims
    if padding != "same":
        raise ArgumentError(f"{name}: Invalid padding string: {padding!r}, should be one of "
                            "'valid', 'same'")
    if set(stride) != {1}:
        raise ArgumentError("padding='same' is not supported for strided convolutions")
    spans = [d * (k - 1) for d, k in zip(dilation, w.shape[2:], strict=True)]
    return tuple((s // 2, s - s // 2) for s in spans)


def _conv(name: str, dims: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any,
          dilation: Any, groups: int) -> Any:
    input, weight, bias = lowered(input, weight, bias)
    step, gap = _steps(name, "stride", stride, dims, 1), _steps(name, "dilation", dilation, dims, 1)
    if not isinstance(padding, str):
        _steps(name, "padding", padding, dims, 0)
    _check(name, input, weight, bias, dims, groups, 0)
    need_kernel(f"slow_conv{max(dims, 2)}d_cpu", "b", input)
    if max(gap) > 1:
        need_kernel("slow_conv_dilated<>", "us", input)
    pads = _pads(name, padding, weight, step, gap, dims)
    if padding == "same" and any(a != b for a, b in pads):
        warn_as_pytorch("Using padding='same' with even kernel lengths and odd dilation may require"
                        " a zero-padded copy of the input be created", once=True)
    single = len(input.shape) == dims + 1
    x = unsqueeze_op(input, dim=0) if single else input
    have = [n + a + b for n, (a, b) in zip(x.shape[2:], pads, strict=True)]
    need = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], gap, strict=True)]
    if any([n < k for n, k in zip(have, need, strict=True)]):
        raise ShapeError(f"Calculated padded input size per channel: ({' x '.join(map(str, have))})"
                         f". Kernel size: ({' x '.join(map(str, need))}). Kernel size can't be "
                         f"greater than actual input size: {name}")
    out = conv_op(x, weight, bias, stride=step, padding=pads, dilation=gap, groups=groups)
    return squeeze_op(out, dims=(0,)) if single else out


@public(method=False)
@planned
def conv1d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Any:
    """Cross-correlation of (N, C, L) with weight (O, C/groups, K); "same"/"valid" padding too.

    >>> import adjoint as ad
    >>> ad.nn.functional.conv1d(ad.ones(1, 1, 4), ad.ones(1, 1, 3), padding=1)
    tensor([[[2., 3., 3., 2.]]])
    """
    return _conv("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@public(method=False)
@planned
def conv2d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Any:
    """Cross-correlation of (N, C, H, W) with weight (O, C/groups, KH, KW)."""
    return _conv("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@public(method=False)
@planned
def conv3d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Any:
    """Cross-correlation of (N, C, D, H, W) with weight (O, C/groups, KD, KH, KW)."""
    return _conv("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def _transposed(name: str, dims: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any,
                output_padding: Any, groups: int, dilation: Any) -> Any:
    from adjoint.ops.pointwise import add
    input, weight, bias = lowered(input, weight, bias)
    _check(name, input, weight, bias, dims, groups, 1)
    need_kernel(f"slow_conv_transpose{max(dims, 2)}d_out_cpu", "bus", input)
    step, gap = _steps(name, "stride", stride, dims, 1), _steps(name, "dilation", dilation, dims, 1)
    pad = _steps(name, "padding", padding, dims, 0)
    extra = _steps(name, "output_padding", output_padding, dims, 0)
    for e, s, d in zip(extra, step, gap, strict=True):
        if e >= s and e >= d:
            raise ArgumentError("output padding must be smaller than either stride or dilation, but"
                                f" got output_padding {extra}, stride {step}, dilation {gap}")
    single = len(input.shape) == dims + 1
    x = unsqueeze_op(input, dim=0) if single else input
    inside = tuple(min(e, p) for e, p in zip(extra, pad, strict=True))
    space = tuple((n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, s, p, d, k, e in zip(
        x.shape[2:], step, pad, gap, weight.shape[2:], inside, strict=True))
    if min(space) <= 0:
        def listed(sizes: Any) -> str:
            return " x ".join(str(n) for n in ((1,) * (dims == 1) + tuple(sizes)))
        raise ShapeError(f"Given input size per channel: ({listed(x.shape[2:])}). Calculated output"
                         f" size per channel: ({listed(space)}). Output size is too small ({name}: "
                         f"padding {list(pad)} takes away more than there is)")
    out = conv_input_op(x, weight, x_shape=(x.shape[0], weight.shape[1] * groups, *space),
                        stride=step, padding=tuple((p, p - e) for p, e in zip(pad, inside,
                                                                              strict=True)),
                        dilation=gap, groups=groups)
    beyond = tuple((0, e - i) for e, i in zip(extra, inside, strict=True))
    if any(b for _, b in beyond):                   # out of reach of the kernel
        out = pad_zero_op(out, pads=((0, 0), (0, 0), *beyond))
    if bias is not None:
        out = add(out, reshape(bias, (-1, *(1,) * dims)))
    return squeeze_op(out, dims=(0,)) if single else out


@public(method=False)
def conv_transpose1d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Any:
    """The adjoint of `conv1d`: (N, C, L) with weight (C, O/groups, K)."""
    return _transposed("conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding,
                       groups, dilation)


@public(method=False)
def conv_transpose2d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Any:
    """The adjoint of `conv2d`: (N, C, H, W) with weight (C, O/groups, KH, KW)."""
    return _transposed("conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding,
                       groups, dilation)


@public(method=False)
@typed
def conv_transpose3d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Any:
    """The adjoint of `conv3d`: (N, C, D, H, W) with weight (C, O/groups, KD, KH, KW)."""
    return _transposed("conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding,
                       groups, dilation)


@public(method=False)
@typed
def conv_tbc(input: Any, weight: Any, bias: Any, pad: int = 0) -> Any:
    """`conv1d` of (time, batch, channels) with a weight (kernel, channels in, channels out).

    >>> import adjoint as ad
    >>> ad.conv_tbc(ad.ones(5, 1, 2), ad.ones(3, 2, 1), ad.zeros(1)).shape
    adjoint.Size([3, 1, 1])
    """
    need_rank("conv_tbc", (input, 3), (weight, 3), (bias, 1))
    out = conv1d(permute_op(input, dims=(1, 2, 0)), permute_op(weight, dims=(2, 1, 0)), bias, 1,
                 pad)
    return permute_op(out, dims=(2, 0, 1))


__all__ = ["conv1d", "conv2d", "conv3d", "conv_op", "conv_tbc", "conv_transpose1d",
           "conv_transpose2d", "conv_transpose3d"]
