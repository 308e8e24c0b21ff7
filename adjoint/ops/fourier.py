"""Fourier transforms: three records, linear, each with its adjoint; and the functions of `fft`.

The adjoint of a transform is the opposite transform with the scaling of the same direction: of
"backward" (1 forward, 1/n back) it is "forward", of "ortho" it is "ortho".
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import default_dtype, is_inexact, scalar_type, to_numpy
from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from adjoint.core.autocast import in_float32
from adjoint.core.op import op
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.api_common import (
    cast_to,
    dtype_of,
    finish,
    finish_kept,
    many_dims,
    need,
    one_dim,
)
from adjoint.ops.device import contiguous_format, in_order, relaid
from adjoint.ops.linalg import conj
from adjoint.ops.pointwise import mul, real_part, to_complex
from adjoint.ops.public import FUNCTIONS, other_names
from adjoint.ops.shape import narrow_op, pad_zero, roll_op
from adjoint.ops.threads import in_parts

Shape = tuple[int, ...]
FLIP = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
FFT: dict[str, Callable[..., Any]] = {}
_SHARED = 524288         # elements from which threads pay
_PART = 16384            # the least that one thread takes


def _complex_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype("c16") if dtype.itemsize >= 8 and dtype.kind == "f" or dtype == np.dtype(
        "c16") else np.dtype("c8")


def _real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"f{dtype.itemsize // 2}")


def _shift(op_: Any, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    new = dict(attrs)
    new["dims"] = tuple(d + 1 for d in attrs["dims"])
    return op_.call(args[0], **new)


def _cost(x: Aval, **_: Any) -> int:
    return int(5 * x.size * max(1, np.log2(max(2, x.size))))


def _placed(out: Any, x: Any, dims: Shape, last: tuple[int, ...] = ()) -> Any:
    """The transform of `x` over `dims` with its axes in memory where PyTorch has them: the others
    first, then `dims`, each in the order of `x`; `last` (one that is halved) innermost."""
    if (out.flags.c_contiguous and x.flags.c_contiguous
            and dims == tuple(range(x.ndim - len(dims), x.ndim))):
        return out
    inner = [d for d in dims if d not in last]
    axes = tuple(sorted(range(x.ndim), key=lambda d: (d in last, d in inner, -x.strides[d])))
    return out if in_order(out, axes) else relaid(out, axes)


def _along(f: Any, x: Any, d: int, norm: Any, n: int | None = None) -> Any:
    """f(x, n, d, norm), large ones in parts along another axis, on all threads."""
    axis = max((a for a in range(x.ndim) if a != d), key=lambda a: x.shape[a], default=d)
    if x.size < _SHARED or axis == d or x.shape[axis] < 2:
        return f(x, n, d, norm)
    first = f(x[_part(axis, 0, 1)], n, d, norm)
    size = x.shape[axis]
    shape = (*first.shape[:axis], size, *first.shape[axis + 1:])
    out, parts = np.empty(shape, first.dtype), min(size, -(-x.size // _PART))

    def run(start: int, end: int) -> None:
        at = _part(axis, start * size // parts, end * size // parts)
        f(x[at], n, d, norm, out[at])
    in_parts(run, parts)
    return out


def _part(axis: int, start: int, end: int) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, slice(start, end))


def _c2c(x: Any, /, *, dims: Shape, norm: Any, inverse: bool) -> Any:
    if not x.size:
        return x.copy()
    out = x
    for d in reversed(dims):
        out = _along(np.fft.ifft if inverse else np.fft.fft, out, d, norm)
    return _placed(out.astype(x.dtype, copy=False), x, dims)


c2c_op: Any = op(
    "fft_c2c", node="FftC2CBackward0", autocast="wide", impl=_c2c,
    infer=lambda x, **_: Aval(x.shape, x.dtype),
    vjp={"x": lambda ct, *, dims, norm, inverse: c2c_op(ct, dims=dims, norm=FLIP[norm],
                                                        inverse=not inverse)},
    jvp={"x": None}, batch=_shift, cost=_cost)


def _half(shape: Shape, dims: Shape) -> Shape:
    d = dims[-1]
    return (*shape[:d], shape[d] // 2 + 1, *shape[d + 1:])


def _r2c(x: Any, /, *, dims: Shape, norm: Any) -> Any:
    out = _along(np.fft.rfft, x, dims[-1], norm)
    for d in reversed(dims[:-1]):
        out = _along(np.fft.fft, out, d, norm)
    return _placed(out.astype(_complex_of(x.dtype), copy=False), x, dims, dims[-1:])


def _r2c_vjp(ct: Any, x_aval: Aval, *, dims: Shape, norm: str) -> Any:
    d = dims[-1]
    full = pad_zero(ct, d, 0, x_aval.shape[d] - ct.shape[d])
    return real_part(c2c_op(full, dims=dims, norm=FLIP[norm], inverse=True))


r2c_op: Any = op(
    "fft_r2c", node="FftR2CBackward0", autocast="wide",
    impl=_r2c,
    infer=lambda x, *, dims, norm: Aval(_half(x.shape, dims), _complex_of(x.dtype)),
    vjp={"x": _r2c_vjp}, jvp={"x": None}, batch=_shift, cost=_cost)


def _c2r_shape(x: Aval, dims: Shape, n: int) -> Shape:
    d = dims[-1]
    return (*x.shape[:d], n, *x.shape[d + 1:])


def _c2r_vjp(ct: Any, *, dims: Shape, norm: str, n: int) -> Any:
    """Frequencies that stand for a conjugate pair count twice."""
    found = r2c_op(ct, dims=dims, norm=FLIP[norm])
    d = dims[-1]
    twice = np.ones(n // 2 + 1, _real_of(dtype_of(found)))
    twice[1:(n + 1) // 2] = 2
    return mul(found, twice.reshape((-1, *(1,) * (len(ct.shape) - d - 1))))


def _c2r(x: Any, /, *, dims: Shape, norm: Any, n: int) -> Any:
    out = x
    for d in dims[:-1]:
        out = _along(np.fft.ifft, out, d, norm)
    out = _along(np.fft.irfft, out, dims[-1], norm, n).astype(_real_of(x.dtype), copy=False)
    return _placed(out, x, dims, dims[-1:])


c2r_op: Any = op(
    "fft_c2r", node="FftC2RBackward0", autocast="wide", impl=_c2r,
    infer=lambda x, *, dims, norm, n: Aval(_c2r_shape(x, dims, n), _real_of(x.dtype)),
    vjp={"x": _c2r_vjp}, jvp={"x": None}, batch=_shift, cost=_cost)


# ------------------------------------------------------------------ public
@in_float32
def _ready(name: str, x: Any, complex_wanted: bool) -> Any:
    need(f"fft.{name}", x)
    if not is_inexact(dtype_of(x)):
        x = cast_to(x, default_dtype())
    if dtype_of(x).itemsize == 2:
        raise DTypeError(f"fft.{name}: 16-bit floats are not supported; call .float() first")
    return to_complex(x) if complex_wanted and dtype_of(x).kind != "c" else x


def _norm(norm: Any) -> str:
    if norm not in (None, "backward", "forward", "ortho"):
        raise ArgumentError(f'Invalid normalization mode: "{norm}"')
    return "backward" if norm is None else norm


def _sized(x: Any, n: int, d: int) -> Any:
    if n < 1:
        raise ArgumentError(f"Invalid number of data points ({n}) specified")
    have = x.shape[d]
    if n < have:
        return narrow_op(x, dim=d, start=0, length=n)
    return pad_zero(x, d, 0, n - have) if n > have else x


def _plan(name: str, x: Any, s: Any, dim: Any) -> tuple[Shape, list[int] | None]:
    s = (s,) if isinstance(s, int) else s
    if dim is None:
        count = len(x.shape) if s is None else len(s)
        if count > len(x.shape):
            raise ArgumentError(f"Got shape with {count} values but input tensor only has "
                                f"{len(x.shape)} dimensions.")
        dims = tuple(range(len(x.shape) - count, len(x.shape)))
    else:
        wanted = (dim,) if isinstance(dim, int) else tuple(dim)
        if wanted and not len(x.shape):
            raise IndexOutOfRange(f"Dimension specified as {wanted[0]} but tensor has no "
                                  "dimensions")
        dims = tuple(one_dim(x, d) for d in wanted)
        if len(set(dims)) < len(dims):
            raise ArgumentError(f"FFT dims must be unique, got {list(wanted)}")
        dims = dims or many_dims(x, dim)
    if s is not None and len(s) != len(dims):
        raise ArgumentError("When given, dim and shape arguments must have the same length")
    if not dims and "r" in name:
        raise ShapeError(f"{name}n must transform at least one axis")
    return dims, None if s is None else [x.shape[d] if n == -1 else int(n)
                                         for n, d in zip(s, dims, strict=True)]


def _complex_n(name: str, x: Any, s: Any, dim: Any, norm: Any, inverse: bool) -> Any:
    x = _ready(name, x, True)
    dims, sizes = _plan(name, x, s, dim)
    for d, n in zip(dims, sizes or (), strict=False):
        x = _sized(x, n, d)
    return c2c_op(x, dims=dims, norm=_norm(norm), inverse=inverse) if dims else x


def _real_n(name: str, x: Any, s: Any, dim: Any, norm: Any) -> Any:
    x = _ready(name, x, False)
    if dtype_of(x).kind == "c":
        raise DTypeError(f"{name} expects a real input tensor, but got {x.dtype}")
    dims, sizes = _plan(name, x, s, dim)
    for d, n in zip(dims, sizes or (), strict=False):
        x = _sized(x, n, d)
    return r2c_op(x, dims=dims, norm=_norm(norm))


def _back_n(name: str, x: Any, s: Any, dim: Any, norm: Any) -> Any:
    x = _ready(name, x, True)
    dims, sizes = _plan(name, x, s, dim)
    last = dims[-1]
    open_ = sizes is None or (s if isinstance(s, int) else s[-1]) == -1
    n = 2 * (x.shape[last] - 1) if open_ or sizes is None else sizes[-1]
    if n < 1:
        raise ArgumentError(f"Invalid number of data points ({n}) specified")
    for d, m in zip(dims[:-1], (sizes or ())[:-1], strict=False):
        x = _sized(x, m, d)
    return c2r_op(_sized(x, n // 2 + 1, last), dims=dims, norm=_norm(norm), n=n)


def _back_half(x: Any, s: Any, dim: Any, norm: Any) -> Any:
    """The last axis first, then the others, as a transform of their own."""
    x = _ready("ihfft", x, False)
    dims, sizes = _plan("ihfft", x, s, dim)
    half = conj(_real_n("ihfft", x, None if sizes is None else sizes[-1], dims[-1],
                        FLIP[_norm(norm)]))
    if not dims[:-1]:
        return half
    return _complex_n("ihfft", half, None if sizes is None else sizes[:-1], dims[:-1], norm, True)


def _written(name: str, out: Any, answer: Any, x: Any, dim: Any) -> Any:
    """`finish`: a complex result into complex numbers, a real one into real ones. What was empty
    comes out in C order; of the inverse over one axis of a real signal it is the result itself."""
    if not isinstance(out, Tensor):
        return finish(out, answer)
    own, given = dtype_of(answer), dtype_of(out)
    if given.kind != own.kind:
        kind = "complex" if own.kind == "c" else "floating point"
        shown = {"fft2": "fftn", "ifft2": "fftn", "ifftn": "fftn"}.get(name, name)
        raise DTypeError(f"{shown.replace('2', 'n')} expects a {kind} output tensor, but got "
                         f"{scalar_type(given)}")
    single = isinstance(dim, int) or len(x.shape if dim is None else dim) == 1
    if (name == "ifft" or name[:5] == "ihfft" and single) and dtype_of(x).kind != "c":
        return finish_kept(out, answer)
    return finish(out, FUNCTIONS["clone"](answer, memory_format=contiguous_format))


def _enter(f: Callable[..., Any]) -> Callable[..., Any]:
    FFT[f.__name__] = other_names(f)
    return f


def _declare() -> None:
    kinds: list[tuple[str, Callable[..., Any]]] = [
        ("fft", lambda x, s, d, m: _complex_n("fft", x, s, d, m, False)),
        ("ifft", lambda x, s, d, m: _complex_n("ifft", x, s, d, m, True)),
        ("rfft", lambda x, s, d, m: _real_n("rfft", x, s, d, m)),
        ("irfft", lambda x, s, d, m: _back_n("irfft", x, s, d, m)),
        ("hfft", lambda x, s, d, m: _back_n("hfft", conj(x), s, d, FLIP[_norm(m)])),
        ("ihfft", _back_half)]
    for name, run in kinds:
        _declare_three(name, run)


def _declare_three(name: str, run: Callable[..., Any]) -> None:
    def one(input: Any, n: Any = None, dim: int = -1, norm: Any = None, *, out: Any = None) -> Any:
        size = None if n is None else [int(n)]
        if not len(input.shape):
            raise IndexOutOfRange(f"Dimension specified as {dim} but tensor has no dimensions")
        return _written(name, out, run(input, size, (one_dim(input, dim),), norm), input, dim)

    def two(input: Any, s: Any = None, dim: Any = (-2, -1), norm: Any = None, *,
            out: Any = None) -> Any:
        return _written(name + "2", out, run(input, s, dim, norm), input, dim)

    def many(input: Any, s: Any = None, dim: Any = None, norm: Any = None, *,
             out: Any = None) -> Any:
        return _written(name + "n", out, run(input, s, dim, norm), input, s if dim is None else dim)
    what = {"fft": "Discrete Fourier transform", "ifft": "Inverse transform",
            "rfft": "Transform of a real signal: its non-negative frequencies",
            "irfft": "Real signal from non-negative frequencies",
            "hfft": "Transform of a Hermitian-symmetric signal: real",
            "ihfft": "Inverse of `hfft`"}[name]
    for f, own, where in ((one, name, "an axis"), (two, name + "2", "two axes"),
                          (many, name + "n", "axes")):
        f.__name__ = f.__qualname__ = own
        f.__doc__ = f"{what}, over {where}; norm is \"backward\", \"ortho\" or \"forward\"."
        _enter(f)


_declare()


def _turn(input: Any, dim: Any, sign: int) -> Any:
    dims = many_dims(input, dim)
    shifts = tuple(input.shape[d] // 2 if sign > 0 else -(input.shape[d] // 2) for d in dims)
    return roll_op(input, shifts=shifts, dims=dims)


@_enter
def fftshift(input: Any, dim: Any = None) -> Any:
    """Frequency 0 moved to the middle."""
    return _turn(input, dim, 1)


@_enter
def ifftshift(input: Any, dim: Any = None) -> Any:
    """The inverse of `fftshift`."""
    return _turn(input, dim, -1)


def _frequencies(f: Callable[..., Any], n: int, d: float, dtype: Any, requires_grad: bool) -> Any:
    kind = default_dtype() if dtype is None else to_numpy(dtype)
    if not is_inexact(kind):
        raise DTypeError(f"{f.__name__} requires a floating point or complex dtype")
    found = f(n, d) if n else np.full(int(f is np.fft.rfftfreq), np.nan)    # (0/0 of half as many)
    return wrap(found.astype(kind), requires_grad)


@_enter
def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, layout: Any = None,
            requires_grad: bool = False, out: Any = None) -> Any:
    """The frequencies of `fft` of n samples d apart."""
    return finish(out, _frequencies(np.fft.fftfreq, n, d, dtype, requires_grad))


@_enter
def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, layout: Any = None,
             requires_grad: bool = False, out: Any = None) -> Any:
    """The frequencies of `rfft` of n samples d apart."""
    return finish(out, _frequencies(np.fft.rfftfreq, n, d, dtype, requires_grad))


