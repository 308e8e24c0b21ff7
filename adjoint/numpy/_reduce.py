"""Reductions, scans and elementwise functions with NumPy's arguments."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.core.tensor import Tensor
from adjoint.numpy._table import F, as_tensor, axes_of, like, one_axis, refuse_out


def _fold(name: str, start: float) -> Callable[..., Any]:
    """sum, prod, max, min: `start` stands where the mask of `where` is False."""
    def run(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False,
            initial: Any = None, where: Any = None) -> Any:
        refuse_out(name, out)
        x = as_tensor(a)
        if dtype is not None:
            x = x.to(np.dtype(dtype))
        if where is not None:
            x = F["where"](as_tensor(where), x, x.new_full((), start))
        dims = axes_of(x, axis)
        if name == "prod":
            y = x
            for d in sorted(dims, reverse=True):
                y = F["prod"](y, d, keepdim=keepdims)
        else:
            f = {"sum": "sum", "max": "amax", "min": "amin"}[name]
            y = F[f](x, dims, keepdim=keepdims) if dims else x
        if initial is None:
            return y
        join = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[name]
        return F[join](y, y.new_full((), initial))
    return run


like("sum")(_fold("sum", 0.0))
like("prod")(_fold("prod", 1.0))


def _extreme(name: str, start: float) -> Callable[..., Any]:
    inner = _fold(name, start)

    def run(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False,
            initial: Any = None, where: Any = None) -> Any:
        return inner(a, axis, None, out, keepdims, initial, where)
    return run


amax = like("max", "amax")(_extreme("max", -math.inf))
amin = like("min", "amin")(_extreme("min", math.inf))
total = _fold("sum", 0.0)


def _inexact(a: Any, dtype: Any) -> Any:
    """The tensor that means are taken of: whole numbers are in double precision."""
    x = as_tensor(a) if dtype is None else as_tensor(a).to(np.dtype(dtype))
    return x if x.is_floating_point() or x.is_complex() else x.double()


@like("mean")
def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *,
         where: Any = None) -> Any:
    refuse_out("mean", out)
    x = _inexact(a, dtype)
    if where is not None:
        count = total(F["broadcast_to"](as_tensor(where), x.shape).to(x.dtype), axis,
                      keepdims=keepdims)
        return total(x, axis, keepdims=keepdims, where=where) / count
    dims = axes_of(x, axis)
    return F["mean"](x, dims, keepdim=keepdims) if dims else x


average_of = mean


def _moment(root: bool) -> Callable[..., Any]:
    def run(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
            keepdims: bool = False, *, where: Any = True, mean: Any = None,
            correction: float | None = None) -> Any:
        refuse_out("std" if root else "var", out)
        x = _inexact(a, dtype)
        dims = axes_of(x, axis)
        if where is not True or mean is not None or not dims:
            middle = average_of(x, axis, keepdims=True, where=None if where is True else where
                                ) if mean is None else mean
            off = abs(x - middle) ** 2
            kept = F["broadcast_to"](as_tensor(where), x.shape).to(off.dtype)
            many = total(kept, axis, keepdims=keepdims) - (ddof if correction is None
                                                           else correction)
            y = total(off * kept, axis, keepdims=keepdims) / many
            return F["sqrt"](y) if root and dims else y       # (along no axis y is 0)
        return F["std" if root else "var"](x, dims, keepdim=keepdims, correction=(
            ddof if correction is None else correction))
    return run


like("var")(_moment(False))
like("std")(_moment(True))


@like("ptp")
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return amax(a, axis, out, keepdims) - amin(a, axis, out, keepdims)


@like("average")
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *,
            keepdims: bool = False) -> Any:
    x = as_tensor(a)
    if weights is None:
        y, scale = mean(x, axis, keepdims=keepdims), None
    else:
        w = as_tensor(weights)
        if w.ndim != x.ndim and axis is not None:
            w = w.reshape([-1 if d == axes_of(x, axis)[0] else 1 for d in range(x.ndim)])
        w = F["broadcast_to"](w, x.shape)
        scale = total(w, axis, keepdims=keepdims)
        y = total(x * w, axis, keepdims=keepdims) / scale
    if not returned:
        return y
    return y, scale if scale is not None else F["full_like"](y, x.numel() / y.numel())


# ------------------------------------------------------------------ without NaN
def _filled(x: Any, value: float) -> Any:
    return F["where"](F["isnan"](x), x.new_full((), value), x)


def _count(x: Any, axis: Any, keepdims: bool) -> Any:
    return total((~F["isnan"](x)).to(x.dtype), axis, keepdims=keepdims)


def _nan_fold(name: str, fold: Callable[..., Any], value: float) -> None:
    def run(a: Any, axis: Any = None, **kwargs: Any) -> Any:
        return fold(_filled(as_tensor(a), value), axis, **kwargs)
    like(name)(run)


_nan_fold("nansum", total, 0.0)
_nan_fold("nanprod", _fold("prod", 1.0), 1.0)
_nan_fold("nanmax", amax, -math.inf)
_nan_fold("nanmin", amin, math.inf)


@like("nanmean")
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None,
            keepdims: bool = False) -> Any:
    x = _inexact(a, dtype)
    return total(_filled(x, 0.0), axis, None, out, keepdims) / _count(x, axis, keepdims)


@like("nanvar")
def nanvar(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
           keepdims: bool = False) -> Any:
    x = _inexact(a, dtype)
    off = _filled(x, 0.0) - nanmean(x, axis, keepdims=True)
    off = F["where"](F["isnan"](x), x.new_zeros(()), off)
    square = off.real ** 2 + off.imag ** 2 if x.is_complex() else off * off
    return total(square, axis, None, out, keepdims) / (_count(x, axis, keepdims).real - ddof)


@like("nanstd")
def nanstd(*args: Any, **kwargs: Any) -> Any:
    return F["sqrt"](nanvar(*args, **kwargs))


# ------------------------------------------------------------------ order statistics
def _quantile(name: str, scale: float) -> Callable[..., Any]:
    def run(a: Any, q: Any, axis: Any = None, out: Any = None, *, method: str = "linear",
            keepdims: bool = False, **_: Any) -> Any:
        refuse_out(name, out)
        x = as_tensor(a)
        dims = axes_of(x, axis)
        rest = [d for d in range(x.ndim) if d not in dims]
        flat = x.permute(*rest, *dims).reshape([*[x.shape[d] for d in rest], -1])
        wide = np.dtype(np.float64)
        wanted = (q.to(wide) if isinstance(q, Tensor) else as_tensor(np.asarray(q, wide))) * scale
        y = F[name](flat, wanted.reshape([-1]).to(x.dtype), dim=-1, interpolation=method)
        if keepdims:
            y = y.reshape([y.shape[0], *[1 if d in dims else n for d, n in enumerate(x.shape)]])
        return y.reshape([*wanted.shape, *y.shape[1:]])
    return run


quantile = like("quantile")(_quantile("quantile", 1.0))
nanquantile = like("nanquantile")(_quantile("nanquantile", 1.0))
like("percentile")(_quantile("quantile", 0.01))
like("nanpercentile")(_quantile("nanquantile", 0.01))


@like("median")
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
           keepdims: bool = False) -> Any:
    return quantile(a, 0.5, axis, out, keepdims=keepdims)


@like("nanmedian")
def nanmedian(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
              keepdims: bool = False) -> Any:
    return nanquantile(a, 0.5, axis, out, keepdims=keepdims)


# ------------------------------------------------------------------ scans and differences
def _scan(name: str, fill: float | None = None) -> Callable[..., Any]:
    def run(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        refuse_out(name, out)
        x = as_tensor(a) if fill is None else _filled(as_tensor(a), fill)
        x, flat = x if dtype is None else x.to(np.dtype(dtype)), axis is None
        axis = 0 if flat else one_axis(x, axis)
        return F[name](x.reshape(-1) if flat or not x.ndim else x, axis)
    return run


like("cumsum", "cumulative_sum")(_scan("cumsum"))
like("cumprod", "cumulative_prod")(_scan("cumprod"))
like("nancumsum")(_scan("cumsum", 0.0))
like("nancumprod")(_scan("cumprod", 1.0))


@like("diff")
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    x = as_tensor(a)
    ends = [None if e is None else as_tensor(e).to(x.dtype) for e in (prepend, append)]
    one = [1 if d == axis % x.ndim else m for d, m in enumerate(x.shape)]
    before, after = [e if e is None or e.ndim else F["broadcast_to"](e, one) for e in ends]
    return F["diff"](x, n=n, dim=axis, prepend=before, append=after)


@like("ediff1d")
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    x = as_tensor(ary).reshape(-1)
    parts = [x[1:] - x[:-1]]
    if to_begin is not None:
        parts.insert(0, as_tensor(to_begin).reshape(-1))
    if to_end is not None:
        parts.append(as_tensor(to_end).reshape(-1))
    return F["cat"](parts) if len(parts) > 1 else parts[0]


@like("gradient")
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    x = as_tensor(f)
    dims = axes_of(x, axis)
    steps = [as_tensor(v) if not isinstance(v, (int, float)) else v for v in varargs] or [1.0]
    steps = steps * len(dims) if len(steps) == 1 else steps
    found = [F["gradient"](x, spacing=(s,) if not isinstance(s, (int, float)) else s, dim=d,
                           edge_order=edge_order)[0] for s, d in zip(steps, dims, strict=True)]
    return found[0] if len(dims) == 1 else tuple(found)


@like("trapezoid", "trapz")
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    if x is None:
        return F["trapezoid"](as_tensor(y), dx=dx, dim=axis)
    return F["trapezoid"](as_tensor(y), as_tensor(x), dim=axis)


@like("unwrap")
def unwrap(p: Any, discont: float | None = None, axis: int = -1, *,
           period: float = 2 * math.pi) -> Any:
    x = as_tensor(p)
    turns = np.unwrap(x.detach().numpy(), discont, axis, period=period) - x.detach().numpy()
    return x + as_tensor(turns)


# ------------------------------------------------------------------ elementwise
@like("round", "around")
def around(a: Any, decimals: int = 0, out: Any = None) -> Any:
    refuse_out("round", out)
    x = as_tensor(a)
    if x.is_complex():
        return F["complex"](*[F["round"](p, decimals=decimals) for p in (x.real, x.imag)])
    return F["round"](x, decimals=decimals)


@like("clip")
def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None,
         max: Any = None) -> Any:
    refuse_out("clip", out)
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    x = as_tensor(a)
    if low is not None:
        x = _bounded("maximum", x, as_tensor(low).to(x.dtype))
    return x if high is None else _bounded("minimum", x, as_tensor(high).to(x.dtype))


def _bounded(name: str, x: Any, bound: Any) -> Any:
    """The larger or the smaller of two; complex numbers in NumPy's order, by their real parts
    first, with no derivative where x is the bound."""
    if not x.is_complex():
        return F[name](x, bound)
    more, less = (x, bound) if name == "maximum" else (bound, x)
    beyond = F["where"](more.real == less.real, more.imag > less.imag, more.real > less.real)
    return F["where"](beyond | F["isnan"](x), x, bound)


@like("nan_to_num")
def nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None,
               neginf: Any = None) -> Any:
    return F["nan_to_num"](as_tensor(x), nan, posinf, neginf)


@like("angle")
def angle(z: Any, deg: bool = False) -> Any:
    y = F["angle"](as_tensor(z))
    return F["rad2deg"](y) if deg else y


@like("real")
def real(val: Any) -> Any:
    x = as_tensor(val)
    return F["real"](x) if x.is_complex() else x


@like("imag")
def imag(val: Any) -> Any:
    x = as_tensor(val)
    return F["imag"](x) if x.is_complex() else F["zeros_like"](x)


@like("real_if_close")
def real_if_close(a: Any, tol: float = 100) -> Any:
    x = as_tensor(a)
    if not x.is_complex():
        return x
    still = np.real_if_close(x.detach().numpy(), tol)
    return x if still.dtype.kind == "c" else F["real"](x)


for _name in ("sinc", "fix"):
    like(_name)(lambda x, out=None, _n=_name: F[_n](as_tensor(x)))
