"""Reductions, scans, order statistics and searches of `jax.numpy`."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint import numpy as anp
from adjoint.base.dtypes import is_inexact
from adjoint.jax._array import Array, as_array, concrete, convert, inside, joined, make
from adjoint.jax._dtypes import as_dtype, canonical, default_dtype, inexact
from adjoint.jax._table import T, entering, floating, no_out, ordered
from adjoint.jax._util import canonicalize_axis
from adjoint.jax._words import placing, taking
from adjoint.jax.numpy._elementwise import NAMES as _E

F = Callable[..., Any]
NAMES: dict[str, F] = {}
_enter = entering(NAMES)


def axes_of(x: Any, axis: Any) -> tuple[int, ...]:
    """`axis` as a tuple; None is all. ValueError for an axis that is not there."""
    n = len(x.shape)
    if axis is None:
        return tuple(range(n))
    found = []
    for a in axis if isinstance(axis, (tuple, list)) else (axis,):
        if isinstance(a, float):
            raise TypeError(f"axis must be an integer or integers, got {a!r}")
        a = int(concrete(a, "The axis argument must be known statically.")) if isinstance(
            a, Array) else int(a)
        if not -n <= a < n:
            raise ValueError(f"axis {a} is out of bounds for array of dimension {n}")
        found.append(a % n)
    if len(set(found)) != len(found):
        raise ValueError(f"duplicate value in 'axis': {axis}")
    return tuple(found)


def _summed(t: Any) -> Any:
    """The dtype that sums and products of integers have."""
    kind = t.array.dtype.kind
    if kind == "b":
        return t.to(default_dtype("int"))
    if kind in "iu":
        return t.to(canonical(np.dtype("int64" if kind == "i" else "uint64")))
    return t


def _masked(t: Any, where: Any, value: Any, name: str = "") -> Any:
    if where is None:
        return t
    mask = as_array(where)
    if name and mask.dtype.kind != "b":
        raise ValueError(f"jnp.{name}: where must be None or a boolean array; got where.dtype="
                         f"{mask.dtype!r}.")
    return T["where"](mask.tensor.to(np.dtype(bool)), t, t.new_full((), value))


def _extreme_complex(t: Any, dims: tuple[int, ...], keepdims: bool, sign: int) -> Any:
    """The extreme in the order of real, then imaginary parts; sign -1: the greatest."""
    rest = [d for d in range(t.ndim) if d not in dims]
    rows = t.permute(*rest, *dims).reshape((*[t.shape[d] for d in rest], -1))
    real, imag = (p.detach() * -sign for p in (rows.real, rows.imag))
    first = real == T["amax"](real, (-1,), keepdim=True)
    at = T["argmax"](T["where"](first, imag, imag.new_full((), -math.inf)), -1, keepdim=True)
    found = T["gather"](rows, -1, at)
    return found.reshape([1 if d in dims else n for d, n in enumerate(t.shape)
                          if keepdims or d not in dims])


def _lowest(dtype: Any, sign: int) -> Any:
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if sign < 0 else np.iinfo(dtype).max
    return sign * math.inf if dtype.kind != "b" else sign > 0


def _scalar(initial: Any) -> Any:
    a = as_array(initial)
    if a.ndim:
        raise ValueError(f"initial value must be a scalar. Got array of shape {a.shape}")
    return a.tensor


def _fold(name: str, unit: Any) -> F:
    """sum and prod."""
    def run(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False,
            initial: Any = None, where: Any = None, promote_integers: bool = True) -> Any:
        no_out(name, out)
        x = as_array(a, name)
        t = x.tensor if dtype is None else convert(x.tensor, as_dtype(dtype))
        kind = t.array.dtype
        t = _summed(t) if promote_integers and dtype is None else t
        kind = t.array.dtype
        t = _masked(t, where, unit, name)
        dims = axes_of(t, axis)
        if name == "sum":
            y = T["sum"](t, dims, keepdim=keepdims) if dims else t
        else:
            y = t
            for d in sorted(dims, reverse=True):
                y = T["prod"](y, d, keepdim=keepdims)
        y = y if y.array.dtype == kind else y.to(kind)
        if initial is not None:
            start = _scalar(initial).to(kind)
            y = y + start if name == "sum" else y * start
        return make(y)
    return _enter(name)(run)


sum_, prod = _fold("sum", 0), _fold("prod", 1)


def _extreme(name: str, op: str, sign: int) -> F:
    def run(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None,
            where: Any = None) -> Any:
        no_out(name, out)
        x = as_array(a, name)
        t, dims = x.tensor, axes_of(x, axis)
        if where is not None and initial is None:
            raise ValueError(f"reduction operation {name} does not have an identity, so to use a "
                             "where mask one has to specify 'initial'")
        if initial is None and any(x.shape[d] == 0 for d in dims):
            raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
        t = _masked(t, where, _lowest(x.dtype, sign), name)
        if x.dtype.kind == "b":
            y = T["any" if sign < 0 else "all"](t, dims, keepdim=keepdims) if dims else t
        elif x.dtype.kind == "c":
            y = _extreme_complex(t, dims, keepdims, sign) if dims else t
        elif any(x.shape[d] == 0 for d in dims):
            shape = [1 if d in dims else n for d, n in enumerate(x.shape) if keepdims
                     or d not in dims]
            y = t.new_full(tuple(shape), _lowest(x.dtype, sign))
        else:
            y = T[op](t, dims, keepdim=keepdims) if dims else t
        if initial is not None:
            y = ordered("maximum" if sign < 0 else "minimum")(y, _scalar(initial).to(x.dtype))
        return make(y)
    return _enter(name, "a" + name)(run)


max_, min_ = _extreme("max", "amax", -1), _extreme("min", "amin", 1)


def _truth(name: str) -> F:
    def run(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *,
            where: Any = None) -> Any:
        no_out(name, out)
        x = as_array(a, name)
        t = x.tensor if x.dtype.kind == "b" else x.tensor != 0
        t = _masked(t, where, name == "all", name)
        dims = axes_of(x, axis)
        return make(T[name](t, dims, keepdim=keepdims) if dims else t)
    return _enter(name)(run)


any_, all_ = _truth("any"), _truth("all")


def _floats(x: Array, dtype: Any) -> Any:
    if dtype is not None:
        return convert(x.tensor, as_dtype(dtype))
    return x.tensor if is_inexact(x.dtype) else x.tensor.to(inexact((x.dtype, False))[0])


def _counted(t: Any, dims: tuple[int, ...], where: Any, keepdims: bool) -> Any:
    """How many elements a reduction takes: a number, or a tensor where a mask picks them."""
    if where is None:
        return math.prod(t.shape[d] for d in dims)
    mask = T["broadcast_to"](as_array(where).tensor.to(np.dtype(bool)), tuple(t.shape))
    return T["sum"](mask.to(t.array.dtype), dims, keepdim=keepdims) if dims else mask.to(
        t.array.dtype)


@_enter("mean")
def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *,
         where: Any = None) -> Any:
    no_out("mean", out)
    if dtype is not None and as_dtype(dtype).kind == "b":
        raise TypeError("div does not accept dtype bool at position 0. Accepted dtypes at position "
                        "0 are subtypes of integer, floating, complexfloating.")
    t = _floats(as_array(a, "mean"), dtype)
    dims = axes_of(t, axis)
    total = _masked(t, where, 0, "mean")
    total = T["sum"](total, dims, keepdim=keepdims) if dims else total
    found = make(total / _counted(t, dims, where, keepdims))
    return found if dtype is None or found.dtype == as_dtype(dtype) else make(
        convert(found.tensor, as_dtype(dtype)))


@_enter("average")
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False,
            keepdims: bool = False) -> Any:
    x = floating(a, "average")
    if axis == () and weights is None:         # (NumPy's takes it for all axes)
        found = (make(x), make(T["ones_like"](x)))
        return found if returned else found[0]
    if weights is not None and axis is None and np.shape(weights) != tuple(x.shape):
        raise ValueError("Axis must be specified when shapes of a and weights differ.")
    given = None if weights is None else floating(weights, "average")
    found = anp.ours["average"](x, axis, given, returned, keepdims=keepdims)
    return tuple(map(make, found)) if returned else make(found)


_mean = mean


def _moment(name: str) -> F:
    def run(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
            keepdims: bool = False, *, where: Any = None, mean: Any = None, correction: Any = None
            ) -> Any:
        no_out(name, out)
        if ddof and correction is not None:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        x = as_array(a, name)
        _check_moment(name, x.dtype, dtype)
        t = _floats(x, dtype if dtype is None or is_inexact(as_dtype(dtype)) else None)
        dims = axes_of(t, axis)
        middle = _mean(make(t), axis, keepdims=True, where=where).tensor if mean is None else (
            joined(name, (make(t), mean))[0][1])
        off = t - middle
        off = (off * off.conj()).real if t.is_complex() else off * off
        off = _masked(off, where, 0, name)
        total = T["sum"](off, dims, keepdim=keepdims) if dims else off
        count = _counted(t, dims, where, keepdims) - (ddof if correction is None else correction)
        if not isinstance(count, (int, float)):
            count = T["real"](count) if count.is_complex() else count
            count = T["where"](count > 0, count, count.new_full((), math.nan))
        y = total / (count if not isinstance(count, (int, float)) or count > 0 else math.nan)
        y = T["sqrt"](y) if name == "std" else y
        return make(y if dtype is None else convert(y, as_dtype(dtype)))
    return _enter(name)(run)


def _check_moment(name: str, kind: Any, dtype: Any) -> None:
    """ValueError for a dtype that a spread is not computed in."""
    if dtype is None:
        return
    to = as_dtype(dtype)
    if name == "std" and not is_inexact(to):
        raise ValueError(f"dtype argument to jnp.std must be inexact; got {to.name}")
    if kind.kind == "c" and to.kind != "c":
        raise ValueError("jax.numpy.var does not yet support real dtype parameters when computing "
                         "the variance of an array of complex values. The semantics of numpy.var "
                         "seem unclear in this case.")


_moment("var")
_moment("std")


@_enter("ptp")
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return max_(a, axis, out, keepdims) - min_(a, axis, out, keepdims)


@_enter("count_nonzero")
def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    x = as_array(a, "count_nonzero")
    return sum_(_E["not_equal"](x, np.zeros((), x.dtype)), axis, keepdims=keepdims)


# ------------------------------------------------------------------ without NaN
def _nan_fold(name: str, fold: F, fill: Any) -> None:
    """A fold of what is no NaN; a maximum of NaN alone is NaN."""
    extreme = name in ("nanmax", "nanmin")

    def run(a: Any, axis: Any, *given: Any, keepdims: Any, initial: Any, where: Any) -> Any:
        x = as_array(a, name)
        how = {"keepdims": keepdims, "initial": initial, "where": where}
        if not is_inexact(x.dtype):
            return fold(x, axis, *given, **how)
        bad = T["isnan"](x.tensor)
        y = fold(make(T["where"](bad, x.tensor.new_full((), fill), x.tensor)), axis, *given, **how)
        if not extreme or initial is not None:
            return y
        none = make(bad) if where is None else _E["logical_not"](where) | make(bad)
        empty = all_(none, axis, keepdims=keepdims).tensor
        return make(T["where"](empty, y.tensor.new_full((), math.nan), y.tensor))

    def call(a: Any, axis: Any, *given: Any) -> Any:
        *most, keepdims, initial, where = given
        return run(a, axis, *most, keepdims=keepdims, initial=initial, where=where)
    dtype = "" if extreme else "dtype=None, "
    _enter(name)(taking(f"a, axis=None, {dtype}out=None, keepdims=False, initial=None, where=None",
                        call))


_nan_fold("nansum", sum_, 0.0)
_nan_fold("nanprod", prod, 1.0)
_nan_fold("nanmax", max_, -math.inf)
_nan_fold("nanmin", min_, math.inf)


def _nan_moment(name: str) -> None:
    def run(a: Any, axis: Any, dtype: Any, *given: Any) -> Any:
        where = given[-1] if name == "nanmean" else given[-2]
        mean = {} if name == "nanmean" else {"mean": given[-1]}
        given = given[:-1] if name == "nanmean" else given[:-2]
        x = as_array(a, name)
        kept = _E["logical_not"](_E["isnan"](x))
        safe = make(T["where"](kept.tensor, x.tensor, x.tensor.new_zeros(())))
        kept = kept if where is None else _E["logical_and"](kept, where)
        y = NAMES[name[3:]](safe, axis, dtype, *given, where=kept, **mean)
        return y.real if name != "nanmean" and not dtype else y
    _enter(name)(taking("a, axis=None, dtype=None, out=None, keepdims=False, where=None" if name ==
                        "nanmean" else "a, axis=None, dtype=None, out=None, ddof=0, "
                        "keepdims=False, where=None, mean=None", run))


for _name in ("nanmean", "nanvar", "nanstd"):
    _nan_moment(_name)


# ------------------------------------------------------------------ places of extremes
def _place(name: str) -> F:
    def run(a: Any, axis: Any = None, out: Any = None, keepdims: bool | None = None) -> Any:
        no_out(name, out)
        keepdims = bool(keepdims)
        x = as_array(a, name)
        if axis is not None:
            axes_of(x, axis)
        if x.dtype.kind == "c":
            compare = "gt" if name == "argmax" else "lt"
            raise TypeError(f"{compare} does not accept dtype {x.dtype.name} at position 0. "
                            "Accepted dtypes at position 0 are subtypes of integer, floating.")
        if x.size == 0:
            raise ValueError(f"attempt to get {name} of an empty sequence")
        t = x.tensor.to(np.dtype("int8")) if x.dtype.kind == "b" else x.tensor
        y = T[name](t.detach(), axis, keepdim=keepdims) if axis is not None else T[name](
            t.detach().reshape(-1), 0)
        if axis is None and keepdims:
            y = y.reshape([1] * x.ndim)
        return make(y.to(default_dtype("int")))
    return _enter(name)(run)


argmax, argmin = _place("argmax"), _place("argmin")


def _nan_place(name: str, fill: float) -> None:
    def run(a: Any, axis: Any = None, out: Any = None, keepdims: bool | None = None) -> Any:
        x, keepdims = as_array(a, name), bool(keepdims)
        if not is_inexact(x.dtype):
            return NAMES[name[3:]](x, axis, out, keepdims)
        bad = T["isnan"](x.tensor)
        t = T["where"](bad, x.tensor.new_full((), fill), x.tensor)
        y = NAMES[name[3:]](make(t), axis, out, keepdims).tensor
        empty = all_(make(bad), axis, keepdims=keepdims).tensor
        return make(T["where"](empty, y.new_full((), -1), y))
    _enter(name)(run)


_nan_place("nanargmax", -math.inf)
_nan_place("nanargmin", math.inf)


# ------------------------------------------------------------------ scans
def _scan(name: str, op: str, fill: Any = None) -> F:
    def run(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        no_out(name, out)
        x = as_array(a, name)
        t = x.tensor if dtype is None else convert(x.tensor, as_dtype(dtype))
        if fill is not None and is_inexact(x.dtype):
            t = T["where"](T["isnan"](t), t.new_full((), fill), t)
        kind = t.array.dtype
        if dtype is None and kind.kind == "b":
            kind = default_dtype("int")
            t = t.to(kind)
        if isinstance(axis, (tuple, list)):
            raise TypeError(f"'{type(axis).__name__}' object cannot be interpreted as an integer")
        y = T[op](t.reshape(-1), 0) if axis is None else T[op](t, axes_of(t, axis)[0])
        return make(y if y.array.dtype == kind else y.to(kind))
    return _enter(name)(run)


cumsum, cumprod = _scan("cumsum", "cumsum"), _scan("cumprod", "cumprod")
_scan("nancumsum", "cumsum", 0.0)
_scan("nancumprod", "cumprod", 1.0)


def _cumulative(name: str, f: F, unit: int) -> None:
    def run(x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
            ) -> Any:
        a = as_array(x)
        if axis is None:
            if a.ndim > 1:
                raise ValueError(f"The input array has rank {a.ndim}, however axis was not set to "
                                 "an explicit value. The axis argument is only optional for "
                                 "one-dimensional arrays.")
            axis = 0
        y = f(a, axis, dtype).tensor
        if include_initial:
            first = [1 if d == axis % a.ndim else n for d, n in enumerate(a.shape)]
            y = T["cat"]([y.new_full(tuple(first), unit), y], axis)
        return make(y)
    _enter(name)(run)


_cumulative("cumulative_sum", cumsum, 0)
_cumulative("cumulative_prod", cumprod, 1)


# ------------------------------------------------------------------ order statistics
def _weighted(x: Any, q: Any, axes: tuple[int, ...], weights: Any, keepdims: bool,
              without_nan: bool) -> Any:
    """The least elements up to which lies a share `q` of the weights."""
    shape = tuple(x.shape)
    rest, along = [i for i in range(len(shape)) if i not in axes], [shape[i] for i in axes]
    if tuple(weights.shape) == shape:
        weights = weights.permute((*rest, *axes))
    elif list(weights.shape) != along:
        raise ValueError(f"Weights shape {tuple(weights.shape)} must match reduction axes "
                         f"{tuple(along)}")
    left = [shape[i] for i in rest]
    rows = x.permute((*rest, *axes)).reshape((*left, math.prod(along)))
    share = T["broadcast_to"](weights.to(x.dtype), (*left, *along)).reshape(rows.shape)
    lacking = T["isnan"](rows)
    if without_nan:
        share = T["where"](lacking, 0.0, share)
    order = T["argsort"](rows, stable=True)
    rows, share = T["gather"](rows, -1, order), T["gather"](share, -1, order)
    reached = T["cumsum"](share, -1)
    reached = (reached / reached[..., -1:])[None] >= T["as_tensor"](
        np.atleast_1d(q)).to(x.dtype).reshape((-1, *(1,) * rows.ndim))
    at = reached.to(np.dtype(np.uint8)).argmax(-1, keepdim=True)
    found = T["gather"](rows[None].expand((np.size(q), *rows.shape)), -1, at)[..., 0]
    if not without_nan:
        found = T["where"](lacking.any(-1), math.nan, found)
    kept = [1 if i in axes else n for i, n in enumerate(shape)] if keepdims else left
    return found.reshape((*np.shape(q), *kept))


def _quantile(name: str, op: str, scale: float) -> F:
    def run(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
            method: str = "linear", keepdims: bool = False, *, weights: Any = None) -> Any:
        if overwrite_input or out is not None:
            raise ValueError(f"jax.numpy.{name} does not support overwrite_input=True or out != "
                             "None")
        x = floating(a, name)
        if x.is_complex():
            raise ValueError("quantile does not support complex input, as the operation is poorly "
                             "defined.")
        at = as_array(q, name)
        if at.ndim > 1:
            raise ValueError(f"q must be have rank <= 1, got shape {at.shape}")
        if at.dtype.kind == "c" or scale == 1 and at.dtype.kind not in "fV":
            raise TypeError(f"floor does not accept dtype {at.dtype.name}. Accepted dtypes are "
                            "subtypes of floating.")
        places = T["clamp"](at.tensor.to(np.dtype(np.float64)) * scale, 0, 1)
        if weights is not None:
            if method != "inverted_cdf":
                raise NotImplementedError(f"{method} doesn't support weights. Only method "
                                          "'inverted_cdf' supports weights.")
            if axis is None and np.shape(weights) != tuple(x.shape):
                raise ValueError("Weights shape must match 'a' shape when axis is None.")
            shares = np.clip(inside(at).astype(np.float64) * scale, 0, 1)
            return make(_weighted(x, shares, axes_of(x, axis), floating(weights, name), keepdims,
                                  op == "nanquantile"))
        half = x.array.dtype.itemsize == 2
        bad = T["isnan"](places)
        y = anp.ours[op](x.to(np.dtype(np.float32)) if half else x,
                         T["where"](bad, 0.0, places), axis, method=method, keepdims=keepdims)
        y = T["where"](bad.reshape((*at.shape, *(1,) * (y.ndim - at.ndim))), math.nan, y)
        return make(y.to(x.array.dtype) if half else y)
    _enter(name)(run)
    if name == "percentile":
        NAMES[name] = placing("out_sharding")(run)
    return NAMES[name]


quantile, nanquantile = (_quantile("quantile", "quantile", 1.0),
                         _quantile("nanquantile", "nanquantile", 1.0))
_quantile("percentile", "quantile", 0.01)
_quantile("nanpercentile", "nanquantile", 0.01)


def _median(name: str, of: F) -> None:
    def run(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
            keepdims: bool = False) -> Any:
        if overwrite_input:
            raise ValueError(f"jax.numpy.{of.__name__} does not support overwrite_input=True or "
                             "out != None")
        axes_of(as_array(a, name), axis)
        return of(a, 0.5, axis, out, keepdims=keepdims)
    _enter(name)(run)


_median("median", quantile)
_median("nanmedian", nanquantile)


# ------------------------------------------------------------------ statistics of several
@_enter("cov")
def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None,
        fweights: Any = None, aweights: Any = None, dtype: Any = None) -> Any:
    m = m if dtype is None else _E["astype"](m, dtype)
    x = floating(m, "cov")
    if y is not None:
        (x, other), _ = joined("cov", (m, y), floating=True)
        x, other = (T["atleast_2d"](v) for v in (x, other))
        if not rowvar and x.shape[0] != 1:
            x = x.transpose(0, 1)
        if not rowvar and other.shape[0] != 1:
            other = other.transpose(0, 1)
        x = T["cat"]([x, other])
    elif not rowvar and x.ndim == 2:
        x = x.transpose(0, 1)
    weights = {k: None if w is None else as_array(w).tensor for k, w in (
        ("fweights", fweights), ("aweights", aweights))}
    return make(T["cov"](x, correction=int(not bias) if ddof is None else ddof, **weights))


@_enter("corrcoef")
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Any:
    c = cov(x, y, rowvar, dtype=dtype).tensor
    if c.ndim == 0:
        return make(c / c)
    d = T["sqrt"](T["diagonal"](c).real if c.is_complex() else T["diagonal"](c))
    return make(c / d[:, None] / d[None, :])


@_enter("trapezoid", "trapz")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    canonicalize_axis(axis, as_array(y).ndim)
    if x is None:
        values = T["movedim"](floating(y, "trapezoid"), axis, -1)
        gaps: Any = as_array(dx).tensor.to(values.array.dtype)
    else:
        (values, at), _ = joined("trapezoid", (y, x), floating=True)
        values = T["movedim"](values, axis, -1)
        gaps = T["diff"](at if at.ndim == 1 else T["movedim"](at, axis, -1))
    return make(0.5 * (gaps * (values[..., 1:] + values[..., :-1])).sum(-1))


@_enter("diff")
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    x = as_array(a, "diff")
    if x.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional; got " + repr(x))
    if x.dtype.kind == "b":
        wide = [None if e is None else as_array(e).astype("int8") for e in (prepend, append)]
        found = x.astype("int8")
        for i in range(n):
            found = diff(found, 1, axis, *(wide if i == 0 else (None, None))) % 2
        return found.astype(bool)
    ends = [None if e is None else as_array(e).tensor for e in (prepend, append)]
    return make(anp.ours["diff"](x.tensor, n, axis, *ends))


@_enter("ediff1d")
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    a = as_array(ary)
    ends = [None if e is None else as_array(e).tensor.to(a.dtype) for e in (to_end, to_begin)]
    return make(anp.ours["ediff1d"](a.tensor, *ends), a.weak_type)


@_enter("gradient")
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: Any = None) -> Any:
    if edge_order is not None:
        raise NotImplementedError("The 'edge_order' argument to jnp.gradient is not supported.")
    x = floating(f, "gradient")
    dims = axes_of(x, axis)
    if any(x.shape[d] < 2 for d in dims):
        raise ValueError("Shape of array too small to calculate a numerical gradient, at least 2 "
                         "elements are required.")
    if len(varargs) == len(dims) and any(
            np.ndim(v) == 1 and np.shape(v) != (x.shape[d],)
            for v, d in zip(varargs, dims, strict=True)):
        raise ValueError("Spacing arrays must have the same length as the dimension along which "
                         "the gradient is calculated.")
    steps = [v if isinstance(v, (int, float)) else as_array(v).tensor.to(x.array.dtype)
             for v in varargs]
    found = anp.ours["gradient"](x, *steps, axis=axis)
    return [make(g) for g in found] if isinstance(found, tuple) else make(found)


__all__ = ["NAMES", "axes_of"]
