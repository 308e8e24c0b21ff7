"""Functions of `jax.numpy` that are made of others: phases, histograms, readers."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.jax._array import Array, as_array, concrete, make
from adjoint.jax._dtypes import as_dtype, issubdtype
from adjoint.jax._table import entering, floating
from adjoint.jax._words import placing
from adjoint.jax.numpy import _create, _reduce, _select, _shape
from adjoint.jax.numpy._elementwise import NAMES as _E

NAMES: dict[str, Any] = {}
_enter = entering(NAMES)
_C, _R, _S, _H = (m.NAMES for m in (_create, _reduce, _select, _shape))


@_enter("bitwise_count")
def bitwise_count(x: Any, /) -> Any:
    from adjoint.jax.lax import population_count
    a = as_array(x, "bitwise_count")
    if a.dtype.kind == "b":
        return a.astype("uint8")
    return population_count(_E["abs"](a) if a.dtype.kind != "u" else a).astype("uint8")


@_enter("spacing")
def spacing(x: Any, /) -> Any:
    a = as_array(x, "spacing")
    if a.dtype.kind == "c":
        raise ValueError("jnp.spacing is not defined for complex inputs.")
    a = make(floating(a, "spacing"))
    away = _S["where"](a < 0, -np.inf, np.inf).astype(a.dtype)
    return _E["nextafter"](a, away) - a


@_enter("unwrap")
def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 2 * np.pi) -> Any:
    x = as_array(p, "unwrap")
    if x.dtype.kind == "c":
        raise ValueError("jnp.unwrap does not support complex inputs.")
    if x.dtype.kind in "iub" and isinstance(period, float):
        x = x.astype(float)
    whole = x.dtype.kind in "iu"
    half = period // 2 if whole else period / 2
    least = half if discont is None else _E["maximum"](half, discont)
    step = _R["diff"](x, axis=axis)
    moved = _E["mod"](step + half, period) - half
    if not whole or period % 2 == 0:
        moved = _S["where"]((moved == -half) & (step > 0), half, moved)
    change = _S["where"](_E["abs"](step) < least, 0, moved - step).astype(x.dtype)
    first = _H["split"](x, [1], axis)
    return _H["concatenate"]([first[0], first[1] + _R["cumsum"](change, axis)], axis)


@_enter("polydiv")
def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> Any:
    from adjoint.jax._util import promote_dtypes_inexact
    a, b = promote_dtypes_inexact(u, v)
    a, b = _H["atleast_1d"](a), _H["atleast_1d"](b)
    n = max(a.shape[0] - b.shape[0] + 1, 1)
    quotient = []
    for k in range(a.shape[0] - b.shape[0] + 1):
        quotient.append(a[k] / b[0])
        a = a.at[k:k + b.shape[0]].add(-quotient[-1] * b)
    if trim_leading_zeros:
        a = trim_zeros(a, "f")
    return _H["stack"](quotient) if quotient else _C["zeros"](n, a.dtype), a


@_enter("trim_zeros")
def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    x = as_array(filt)
    used = np.nonzero(concrete(x, "The error arose in jnp.trim_zeros(): the size depends on it"))
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in np.atleast_1d(axis)]
    at = [slice(None)] * x.ndim
    for d in axes:
        low, high = (used[d].min(), used[d].max() + 1) if used[d].size else (0, 0)
        at[d] = slice(low if "f" in trim.lower() else None, high if "b" in trim.lower() else None)
    return x[tuple(at)]


@_enter("put")
def put(a: Any, ind: Any, v: Any, mode: Any = None, *, inplace: bool = True) -> Any:
    if inplace:
        raise ValueError("jax.numpy.put cannot modify arrays in-place, because JAX arrays are "
                         "immutable. Pass inplace=False to instead return an updated array.")
    x, at, values = as_array(a), as_array(ind).ravel(), as_array(v).ravel()
    if not x.size or not at.size or not values.size:
        return x
    if mode not in (None, "clip", "wrap"):
        raise ValueError(f"mode should be one of 'wrap' or 'clip'; got mode={mode}")
    at = at % x.size if mode == "wrap" else at.clip(0, x.size - 1) if mode == "clip" else at
    how = "clip" if mode is None else None
    values = _H["tile"](values, -(-at.size // values.size))[:at.size]
    return x.ravel().at[at].set(values.astype(x.dtype), mode=how).reshape(x.shape)


@_enter("place")
def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Any:
    if inplace:
        raise ValueError("jax.numpy.place cannot modify arrays in-place, because JAX arrays are "
                         "immutable. Pass inplace=False to instead return an updated array.")
    x, m, v = as_array(arr), as_array(mask), as_array(vals).ravel()
    if m.size != x.size:
        raise ValueError("place: arr and mask must be the same size")
    if not v.size:
        raise ValueError("Cannot place values from an empty array")
    at = _E["mod"](_R["cumsum"](m.astype(bool).ravel()) - 1, v.size)
    return _S["where"](m.astype(bool), v[at].reshape(x.shape), x).astype(x.dtype)


@_enter("mask_indices")
def mask_indices(n: int, mask_func: Any, k: int = 0, *, size: Any = None) -> Any:
    return _S["nonzero"](mask_func(_C["ones"]((n, n)), k), size=size)


@_enter("isdtype")
def isdtype(dtype: Any, kind: Any) -> bool:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    own = as_dtype(dtype)
    groups: dict[str, Any] = {
        "bool": np.bool_, "signed integer": np.signedinteger, "integral": np.integer,
        "unsigned integer": np.unsignedinteger, "real floating": np.floating,
        "complex floating": np.complexfloating, "numeric": np.number}
    for k in kinds:
        if isinstance(k, str) and k not in groups:
            try:
                np.dtype(k)
            except TypeError:
                raise ValueError(f"Unrecognized kind='{k}' expected one of {list(groups)}, or a "
                                 "compatible input for jnp.dtype()") from None
    return any(issubdtype(own, groups[k]) if isinstance(k, str) and k in groups
               else own == as_dtype(k) for k in kinds)


# ------------------------------------------------------------------ counts
def _floats(x: Any) -> Any:
    return x if is_inexact(x.dtype) else x.astype(float)


@_enter("histogram_bin_edges")
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    if isinstance(bins, str):
        raise NotImplementedError("string values for `bins` not implemented.")
    x = _floats(as_array(a))
    if np.ndim(bins):
        return as_array(bins).astype(x.dtype)
    low, high = map(as_array, range or (x.min(), x.max()))
    half = _S["where"](low == high, 0.5, 0.0)
    return _C["linspace"](low - half, high + half, int(bins) + 1, dtype=x.dtype)


@_enter("histogram")
def histogram(a: Any, bins: Any = 10, range: Any = None, weights: Any = None,
              density: Any = None) -> Any:                                  # (JAX's names)
    x = _floats(as_array(a)).ravel()
    if weights is not None and np.shape(weights) != np.shape(a):
        raise ValueError("weights should have the same shape as a.")
    w = _C["ones"](x.shape, x.dtype) if weights is None else _floats(as_array(weights)).ravel()
    counts, (edges,) = histogramdd(x[:, None], [bins], None if range is None else [range], w,
                                   density)
    return counts, edges.astype(counts.dtype)


@_enter("histogramdd")
def histogramdd(sample: Any, bins: Any = 10, range: Any = None, weights: Any = None,
                density: Any = None) -> Any:                                # (JAX's names)
    x = as_array(sample)
    count = x.shape[1]
    many = [bins] * count if isinstance(bins, int) else list(bins)
    if len(many) != count:
        raise ValueError("should be a bin for each dimension.")
    spans = [None] * count if range is None else list(range)
    edges, flat, sizes = [], None, []
    for d, (own, span) in enumerate(zip(many, spans, strict=True)):
        values = x[:, d]
        e = histogram_bin_edges(values, own, span)
        at = _S["searchsorted"](e, values, side="right")
        at = _S["where"](values == e[-1], at - 1, at)
        flat = at if flat is None else flat * (e.shape[0] + 1) + at
        edges.append(e)
        sizes.append(e.shape[0] + 1)
    total = _S["bincount"](flat, weights, length=int(np.prod(sizes))).reshape(tuple(sizes))
    total = total[(slice(1, -1),) * count]
    if density:
        total = total.astype(x.dtype) / total.sum()
        for d, e in enumerate(edges):
            total = total / _R["diff"](e).reshape([-1 if i == d else 1 for i in np.arange(count)])
    return total, edges


@_enter("histogram2d")
def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, weights: Any = None,
                density: Any = None) -> Any:                                # (JAX's names)
    if isinstance(bins, (list, tuple, np.ndarray, Array)) and len(bins) not in (1, 2):
        bins = [np.asarray(bins)] * 2
    h, (a, b) = histogramdd(_H["stack"]([as_array(x), as_array(y)], 1), bins, range, weights,
                            density)
    return h, a, b


@_enter("ix_")
def ix_(*args: Any) -> Any:
    found = []
    for d, a in enumerate(args):
        x = as_array(a, "ix_")
        if x.ndim != 1:
            raise ValueError("Arguments to jax.numpy.ix_ must be 1-dimensional, got shape "
                             f"{x.shape}")
        if x.dtype.kind == "b":
            raise NotImplementedError("Boolean arguments to jax.numpy.ix_ are not implemented")
        x = x if x.size else x.astype(np.dtype(np.int32))
        found.append(x.reshape([-1 if i == d else 1 for i in range(len(args))]))
    return tuple(found)


@_enter("fill_diagonal")
def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Any:
    """A copy with another diagonal; `inplace=True` is refused."""
    if inplace:
        raise NotImplementedError("JAX arrays are immutable, must use inplace=False")
    x = as_array(a)
    if x.ndim < 2:
        raise ValueError("array must be at least 2-d")
    i = np.arange(min(x.shape))
    return x.at[(i,) * x.ndim].set(val)


@_enter("fromstring")
def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Any:
    return _C["asarray"](np.fromstring(string, dtype, count, sep=sep))


@_enter("from_dlpack")
@placing("device")
def from_dlpack(x: Any, /, *, copy: Any = None) -> Any:
    return _C["asarray"](np.from_dlpack(x, copy=copy))


__all__ = ["NAMES"]
