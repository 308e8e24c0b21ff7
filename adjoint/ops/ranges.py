"""Ranges: arange, range, linspace, logspace; windows of signals; the identity matrix."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import (
    I64,
    default_dtype,
    default_of,
    is_float,
    is_inexact,
    of_numpy,
    scalar_type,
    to_numpy,
)
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.bind import patiently
from adjoint.core.modes import warn
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.api_common import finish, finish_made, need_kernel, numel, of_out
from adjoint.ops.create import _dtype
from adjoint.ops.device import storage_less
from adjoint.ops.public import public, typed

_FAR = 2**31                # numbers whose differences float64 has, and divides, without error


def _number(x: Any) -> Any:
    return x.item() if isinstance(x, (Tensor, np.generic)) else x


def _limits(name: str, *given: Any) -> list[Any]:
    """The numbers of a range; what is none is refused by PyTorch's words."""
    for word, x in zip(("start", "end", "step"), given, strict=True):
        if not isinstance(x, (int, float, complex, np.generic)) and (
                not isinstance(x, Tensor) or x.shape):
            raise DTypeError(f"{name}(): argument '{word}' must be Number, not {type(x).__name__}")
    found = [_number(x) for x in given]
    if any(isinstance(x, complex) for x in found):
        raise ArgumentError("value cannot be converted to type double without overflow: "
                            f"{name}({', '.join(map(str, found))})")
    return found


@public(method=False)
def arange(start: Any, end: Any = None, step: Any = 1, *, out: Any = None, dtype: Any = None,
           layout: Any = None, device: Any = None, requires_grad: bool = False,
           pin_memory: bool = False) -> Tensor:
    """start, start + step, ... below `end`; int64 when all three are ints.

    >>> import adjoint as ad
    >>> ad.arange(1, 4)
    tensor([1, 2, 3])
    """
    if end is None:
        start, end = 0, start
    if dtype is out is None and type(start) is type(end) is type(step) is int and (
            0 < step < _FAR and -_FAR < start <= end < _FAR):        # what most calls are
        count = (end - start + step - 1) // step
        if not storage_less(device, (count,), I64):
            return wrap(np.arange(start, end, step, dtype=I64), requires_grad)
    start, end, step = _limits("arange", start, end, step)
    if step == 0:
        raise ArgumentError("step must be nonzero")
    for v in (start, end):
        if isinstance(v, float) and not math.isfinite(v):
            raise ArgumentError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise ArgumentError(f"upper bound and lower bound inconsistent with step sign: arange("
                            f"{start}, {end}, {step})")
    wanted = of_out(dtype, out)
    whole = wanted is not None and not is_inexact(to_numpy(wanted))
    if whole and to_numpy(wanted) == np.int64:       # counted in int64, others in float64 (PyTorch)
        start, end, step = int(start), int(end), int(step)
        if step == 0:
            raise ArgumentError("step must be nonzero")
    ints = all([isinstance(v, int) for v in (start, end, step)])
    kind = _dtype(wanted, default_of("i") if ints else default_dtype())
    if kind.kind in "bc":
        need_kernel("arange_cpu", "bc", np.empty(0, kind))
    count = max(0, math.ceil((end - start) / step))
    if isinstance(out, Tensor) and numel(out) not in (0, count):
        warn(f"The number of elements in the out tensor of shape {list(out.shape)} is {numel(out)} "
             f"which does not match the computed number of elements {count}. Note that this may "
             "occur as a result of rounding error. The out tensor will be resized to a tensor of "
             f"shape ({count},).")
    if whole:
        start, step, ints = int(start), int(step), True
    if storage_less(device, (count,), kind):
        return finish_made(out, wrap(call(_counted, start, step, count, kind, ints,
                                     otherwise=lambda: MetaArray((count,), kind)), requires_grad))
    return finish_made(out, wrap(patiently(_counted, start, step, count, kind, ints),
                                 requires_grad))


def _counted(start: Any, step: Any, count: int, kind: Any, ints: bool) -> Any:
    if ints and not step:                       # a step below 1 between whole numbers
        return np.full(count, start, kind)
    if ints:
        end = start + (count - 1) * step + (1 if step > 0 else -1)
        made = np.arange(start, end, step, dtype=np.int64)
        return made if kind == np.int64 else made.astype(kind)
    return (start + np.arange(count, dtype=np.float64) * step).astype(kind)


@public(method=False, name="range")
def range_(start: Any, end: Any, step: Any = 1, **kwargs: Any) -> Tensor:
    """start, start + step, ... up to and including `end`."""
    warn("torch.range is deprecated and will be removed in a future release because its behavior "
         "is inconsistent with Python's range builtin. Instead, use torch.arange, which produces "
         "values in [start, end).")
    if step == 0:
        raise ArgumentError("step must be nonzero")
    if (end - start) / step < 0:
        raise ArgumentError("upper bound and lower bound inconsistent with step sign: "
                            f"range({start}, {end}, {step})")
    count = int(math.floor((end - start) / step)) + 1
    out = kwargs.pop("out", None)
    kwargs["dtype"] = of_out(kwargs.get("dtype"), out) or default_dtype()
    return finish_made(out, arange(0, count, **kwargs) * step + start)


@public(method=False)
@typed
def linspace(start: Any, end: Any, steps: int, *, out: Any = None, dtype: Any = None,
             layout: Any = None, device: Any = None, requires_grad: bool = False,
             pin_memory: bool = False) -> Tensor:
    """`steps` evenly spaced values from `start` to `end`, both included."""
    start, end = _ends("linspace", start, end)
    kind = _between("linspace", start, end, of_out(dtype, out))
    if steps > 1:
        need_kernel("linspace_cpu", "b", np.empty(0, kind))
    if storage_less(device, (steps,), kind):
        return finish_made(out, wrap(call(spaced, start, end, steps, kind,
                                     otherwise=lambda: MetaArray((steps,), kind)), requires_grad))
    return finish_made(out, wrap(patiently(spaced, start, end, steps, kind), requires_grad))


def _ends(name: str, start: Any, end: Any) -> tuple[Any, Any]:
    """Both ends as numbers."""
    ranks = [len(x.shape) if isinstance(x, Tensor) else 0 for x in (start, end)]
    if any(ranks):
        raise ShapeError(f"{name} only supports 0-dimensional start and end tensors, but got start "
                         f"with {ranks[0]} dimension(s) and end with {ranks[1]} dimension(s).")
    return _number(start), _number(end)


def _between(name: str, start: Any, end: Any, dtype: Any) -> np.dtype[Any]:
    """The dtype of values between two ends: a complex one where an end is."""
    if not isinstance(start, complex) and not isinstance(end, complex):
        return _dtype(dtype, default_dtype())
    wanted = _dtype(None, default_of("c"))
    if dtype is not None and to_numpy(dtype).kind != "c":
        raise DTypeError(f"torch.{name}(): inferred dtype {scalar_type(wanted)} can't be safely "
                         f"cast to passed dtype {scalar_type(to_numpy(dtype))}; pass a complex "
                         "dtype, or the real parts of the ends")
    return _dtype(dtype, wanted)


def spaced(start: Any, end: Any, steps: int, kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """What linspace gives, as an array.

    float32 and float64 to PyTorch's last bit: counted from the nearer end, the step rounded to the
    dtype, one rounding after it. So -1 to 1 is its own mirror image, and the identity of
    affine_grid meets the pixels where it does in PyTorch.
    """
    if kind not in (np.float32, np.float64) or steps < 2:
        return _even(start, end, steps, kind).astype(kind)
    first, last = kind.type(_number(start)), kind.type(_number(end))
    step, half = float((last - first) / kind.type(steps - 1)), steps // 2
    made, first, last = np.empty(steps, kind), float(first), float(last)
    count = np.arange(steps - half, dtype=np.float64)
    ways = np.multiply(count, step)
    head, tail = made[:half], made[:half - 1:-1]
    if kind == np.float32 or not math.isfinite(step * 2**28):   # 24 bits times a count: exact
        head[:] = first + ways[:half]
        tail[:] = last - ways
        return made
    high = step * (2**27 + 1)           # the step in two halves, whose products are exact
    high -= high - step
    rest = (high * count - ways) + (step - high) * count
    for out, end, way, more in ((head, first, ways[:half], rest[:half]),
                                (tail, last, -ways, -rest)):
        total = end + way                       # and what this rounding loses is added again
        back = total - way
        out[:] = total + ((end - back) + (way - (total - back)) + more)
    return made


def _even(start: Any, end: Any, steps: int, kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Evenly spaced values; between integers (as PyTorch takes the ends) for an integer dtype."""
    if steps < 0:
        raise ArgumentError(f"number of steps must be non-negative, got {steps}")
    start, end = _number(start), _number(end)
    if is_inexact(kind):
        return np.linspace(start, end, steps)
    start, end, place = int(start), int(end), np.arange(steps)
    step = (end - start) / max(steps - 1, 1)
    return np.where((place < steps // 2) | (steps == 1), start + step * place,
                    end - step * (steps - 1 - place))


@public(method=False)
@typed
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, out: Any = None,
             dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """base ** linspace(start, end, steps)."""
    start, end = _ends("logspace", start, end)
    kind = _between("logspace", start, end, of_out(dtype, out))
    if steps > 1:
        need_kernel("logspace_cpu", "b", np.empty(0, kind))
    with np.errstate(all="ignore"):
        values = np.power(float(base), _even(start, end, steps, kind))
    return finish_made(out, wrap(values.astype(kind), requires_grad))


@public(method=False)
def eye(n: int, m: int | None = None, *, out: Any = None, dtype: Any = None, layout: Any = None,
        device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """Ones on the diagonal of an (n, m) matrix of zeros."""
    kind = _dtype(of_out(dtype, out), default_dtype())
    for name, size in (("n", n), ("m", m)):
        if size is not None and size < 0:
            raise ArgumentError(f"{name} must be greater or equal to 0, got {size}")
    if storage_less(device, (n, n if m is None else m), kind):
        made = call(np.eye, n, m, 0, kind,
                    otherwise=lambda: MetaArray((n, n if m is None else m), kind))
        return finish_made(out, wrap(made, requires_grad))
    return finish_made(out, wrap(np.eye(n, m, dtype=kind), requires_grad))


# ------------------------------------------------------------------ windows of signals
def _symmetric(n: int, periodic: bool) -> Any:
    """Positions 0..n-1 over the length of a period."""
    return np.arange(n) / max(n if periodic else n - 1, 1)


def _enter_window(name: str, form: Callable[..., Any], *names: str, **defaults: float) -> None:
    def f(window_length: int, periodic: bool = True, *args: Any, dtype: Any = None,
          layout: Any = None, device: Any = None, requires_grad: bool = False,
          out: Any = None, **kwargs: Any) -> Any:
        kind = default_dtype() if dtype is None else to_numpy(dtype)
        if not is_float(kind):
            raise DTypeError(f"{name} expects floating point dtypes, got: {of_numpy(kind).name}")
        if window_length < 0:
            raise ArgumentError(f"{name} requires non-negative window_length, got window_length="
                                f"{window_length}")
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        w = np.ones(1) if window_length == 1 else form(_symmetric(window_length, periodic),
                                                       **given)
        return finish(out, wrap(np.asarray(w, kind), requires_grad))
    f.__name__ = f.__qualname__ = name
    f.__doc__ = "A window of `window_length` samples; periodic for spectral analysis."
    public(name, method=False)(f)


_enter_window("hann_window", lambda t: 0.5 - 0.5 * np.cos(2 * np.pi * t))
_enter_window("hamming_window", lambda t, alpha, beta: alpha - beta * np.cos(2 * np.pi * t),
              "alpha", "beta", alpha=0.54, beta=0.46)
_enter_window("blackman_window", lambda t: 0.42 - 0.5 * np.cos(2 * np.pi * t)
              + 0.08 * np.cos(4 * np.pi * t))
_enter_window("bartlett_window", lambda t: 1 - np.abs(2 * t - 1))
_enter_window("kaiser_window", lambda t, beta: np.i0(
    beta * np.sqrt(np.maximum(0, 1 - (2 * t - 1) ** 2))) / np.i0(beta), "beta", beta=12.0)


__all__ = ["arange", "eye", "linspace", "logspace", "spaced"]
