"""Choice, sorting, search, sets and piecewise functions of `jax.numpy`."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint import numpy as anp
from adjoint.core.tensor import wrap
from adjoint.jax._array import as_array, concrete, inside, is_traced, joined, make, value_of
from adjoint.jax._dtypes import default_dtype
from adjoint.jax._table import T, entering, is_weak
from adjoint.jax._util import canonicalize_axis
from adjoint.jax.numpy._elementwise import NAMES as _E
from adjoint.jax.numpy._index import take

NAMES: dict[str, Any] = {}
_enter = entering(NAMES)


def _host(x: Any, size: Any = None, why: str = "The size argument of jnp.nonzero must be "
          "statically specified to use jnp.nonzero within JAX transformations.") -> Any:
    """Values as a NumPy array. With a size they may be hidden: no shape depends on them."""
    if x is None:
        return None
    return concrete(as_array(x), why) if size is None else inside(as_array(x))


def truth(c: Any) -> Any:
    """A condition as a tensor of truth values."""
    t = as_array(c, "where").tensor
    return t if t.array.dtype.kind == "b" else t != 0


@_enter("where")
def where(condition: Any, x: Any = None, y: Any = None, /, *, size: Any = None,
          fill_value: Any = None) -> Any:
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ValueError("Either both or neither of the x and y arguments should be provided to "
                         "jax.numpy.where")
    c = truth(condition)
    ts, weak = joined("where", (x, y))
    try:
        found = T["where"](c, *ts)
    except ValueError:
        shapes = ", ".join(str(tuple(t.shape)) for t in (c, *ts))
        raise ValueError(f"Incompatible shapes for broadcasting: shapes=[{shapes}]") from None
    return make(found, weak)


@_enter("select")
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if len(condlist) != len(choicelist):
        raise ValueError("condlist must have length equal to choicelist "
                         f"({len(condlist)} vs {len(choicelist)})")
    if not len(condlist):
        raise ValueError("condlist must be non-empty")
    ts, _ = joined("select", (*choicelist, default))
    out = ts[-1]
    for c, x in zip(reversed(condlist), reversed(ts[:-1]), strict=True):
        out = T["where"](truth(c), x, out)
    return make(out)


@_enter("piecewise")
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    a = as_array(x)
    conds = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    if len(funclist) not in (len(conds), len(conds) + 1):
        raise ValueError(f"with {len(conds)} condition(s), either {len(conds)} or "
                         f"{len(conds) + 1} functions are expected; got {len(funclist)}")
    found = [f(a, *args, **kw) if callable(f) else f for f in funclist]
    values = [T["broadcast_to"](as_array(v).tensor.to(a.dtype), a.shape) for v in found]
    out = values[-1] if len(found) > len(conds) else T["zeros_like"](a.tensor)
    for c, v in zip(reversed(conds), reversed(values[:len(conds)]), strict=True):
        out = T["where"](truth(c), v, out)
    return make(out)


@_enter("choose")
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    ts, _ = joined("choose", list(choices))
    if as_array(a).dtype.kind not in "iu":
        raise ValueError("`a` array must be integer typed")
    at = inside(as_array(a))
    at = at % len(ts) if mode == "wrap" else np.clip(at, 0, len(ts) - 1)
    return make(anp.ours["choose"](at, ts))


# ------------------------------------------------------------------ masks
def _sized(found: Any, size: Any, fill: Any) -> Any:
    """Indices cut or filled up to a size."""
    found = found[:size]
    rest = size - found.shape[0]
    return np.concatenate([found, np.full((rest, *found.shape[1:]), fill, found.dtype)])


@_enter("nonzero")
def nonzero(a: Any, *, size: Any = None, fill_value: Any = None) -> Any:
    if as_array(a, "nonzero").ndim == 0:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use "
                         "jnp.atleast_1d(scalar).nonzero() instead.")
    found = np.nonzero(_host(a, size))
    if size is not None:
        fills = fill_value if isinstance(fill_value, tuple) else (fill_value or 0,) * len(found)
        found = tuple(_sized(v, size, f) for v, f in zip(found, fills, strict=True))
    return tuple(make(wrap(v)) for v in found)


@_enter("flatnonzero")
def flatnonzero(a: Any, *, size: Any = None, fill_value: Any = None) -> Any:
    return nonzero(as_array(a).reshape(-1), size=size, fill_value=fill_value)[0]


@_enter("argwhere")
def argwhere(a: Any, *, size: Any = None, fill_value: Any = None) -> Any:
    found = np.argwhere(_host(a, size))
    return make(wrap(found if size is None else _sized(found, size, fill_value or 0)))


@_enter("compress")
def compress(condition: Any, a: Any, axis: Any = None, *, size: Any = None, fill_value: Any = 0,
             out: Any = None) -> Any:
    x = as_array(a)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    at = np.flatnonzero(_host(condition, size))
    if size is None:
        return take(x, at, axis)
    kept = take(x, _sized(at, size, 0), axis)
    there = np.arange(size).reshape(-1, *[1] * (x.ndim - 1 - axis % x.ndim)) < at.size
    return where(there, kept, as_array(fill_value).astype(x.dtype))


@_enter("extract")
def extract(condition: Any, arr: Any, *, size: Any = None, fill_value: Any = 0) -> Any:
    return compress(as_array(condition).reshape(-1), arr, size=size, fill_value=fill_value)


@_enter("delete")
def delete(arr: Any, obj: Any, axis: Any = None, *, assume_unique_indices: bool = False) -> Any:
    x = as_array(arr)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    at = obj if isinstance(obj, (int, slice)) else _host(
        obj, 0 if assume_unique_indices else None, "The error occurred because of argument 'obj' "
        "of jnp.delete(). Pass assume_unique_indices=True where it holds")
    return take(x, np.delete(np.arange(x.shape[axis]), at), axis)


@_enter("insert")
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    x = as_array(arr)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis % x.ndim)
    n = x.shape[axis]
    at = np.atleast_1d(_host(obj, None, "The error arose in jnp.insert() argument obj"))
    order = np.insert(np.arange(n), at, np.full(at.shape, -1))
    whole = take(x, np.where(order < 0, 0, order), axis)
    new = as_array(values).astype(x.dtype)
    index = (*[slice(None)] * axis, np.flatnonzero(order < 0))
    return whole.at[index].set(new)


# ------------------------------------------------------------------ sorting
def _ordered(a: Any, name: str, axis: Any) -> Any:
    x = as_array(a, name)
    if axis is not None:
        canonicalize_axis(axis, x.ndim)
    return x


@_enter("sort")
def sort(a: Any, axis: Any = -1, *, kind: Any = None, order: Any = None, stable: bool = True,
         descending: bool = False) -> Any:
    x = _ordered(a, "sort", axis)
    t, axis = (x.tensor.reshape(-1), 0) if axis is None else (x.tensor, axis)
    if t.is_complex():
        return make(T["gather"](t, axis, _order(t, axis, bool(descending))), x.weak_type)
    return make(T["sort"](t, axis, bool(descending))[0], x.weak_type)


@_enter("argsort")
def argsort(a: Any, axis: Any = -1, *, kind: Any = None, order: Any = None, stable: bool = True,
            descending: bool = False, dtype: Any = None) -> Any:
    x = _ordered(a, "argsort", axis)
    if kind is not None:
        raise TypeError("'kind' argument to argsort is not supported. Use stable=True or "
                        "stable=False to specify sort stability.")
    t, axis = (x.tensor.reshape(-1), 0) if axis is None else (x.tensor, axis)
    found = make(_order(t.detach(), axis, bool(descending)))
    return found if dtype is None else found.astype(dtype)


def _order(t: Any, axis: int, descending: bool) -> Any:
    """The places of the elements in ascending order; complex ones by their real parts, then by
    their imaginary ones."""
    if not t.is_complex():
        return T["argsort"](t, axis, descending, stable=True)
    lower = T["argsort"](t.imag.detach(), axis, descending, stable=True)
    upper = T["argsort"](T["gather"](t.real.detach(), axis, lower), axis, descending, stable=True)
    return T["gather"](lower, axis, upper)


@_enter("sort_complex")
def sort_complex(a: Any) -> Any:
    x = np.sort(inside(as_array(a, "sort_complex")), -1)
    return make(wrap(x.astype(np.result_type(x.dtype, np.complex64))))


@_enter("argpartition")
def argpartition(a: Any, kth: int, axis: int = -1) -> Any:
    return argsort(a, axis)


@_enter("partition")
def partition(a: Any, kth: int, axis: int = -1) -> Any:
    return sort(a, axis)


@_enter("lexsort")
def lexsort(keys: Any, axis: int = -1) -> Any:
    order: Any = None
    for key in keys:                        # the last key counts most, so it is sorted by last
        t = as_array(key).tensor.detach()
        row = t if order is None else T["gather"](t, axis, order)
        step = T["argsort"](row, axis, stable=True)
        order = step if order is None else T["gather"](order, axis, step)
    return make(order)


@_enter("searchsorted")
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: Any = None
                 ) -> Any:
    if side not in ("left", "right"):
        raise ValueError(f"{side!r} is an invalid value for keyword 'side'. Expected one of "
                         "['left', 'right'].")
    (seq, x), _ = joined("searchsorted", (a, v))
    if seq.array.dtype.kind == "b":
        seq, x = seq.to(np.dtype(np.uint8)), x.to(np.dtype(np.uint8))
    if sorter is not None:
        seq = T["gather"](seq, 0, as_array(sorter).tensor.to(np.dtype(np.int64)))
    return make(T["searchsorted"](seq.detach(), x.detach(), side=side).to(np.dtype(np.int32)))


@_enter("digitize")
def digitize(x: Any, bins: Any, right: bool = False, *, method: Any = None) -> Any:
    at = as_array(bins)
    side = "left" if right else "right"
    if at.ndim != 1:
        raise ValueError(f"digitize: bins must be a 1-dimensional array; got {at.shape}")
    up = searchsorted(at, x, side)
    if at.size < 2 or not is_traced(at) and value_of(at)[0] <= value_of(at)[-1]:
        return up
    return where(at[0] > at[-1], at.shape[0] - searchsorted(at[::-1], x, side), up)


# ------------------------------------------------------------------ counts and sets
@_enter("bincount")
def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: Any = None) -> Any:
    at = as_array(x, "bincount")
    if at.ndim != 1:
        raise ValueError("only 1-dimensional input supported.")
    if length is None:
        values = _host(at, None, "The error occurred because of argument 'x' of jnp.bincount. To "
                       "avoid this error, pass a static `length` argument.")
        length = max(int(values.max()) + 1 if at.size else 0, int(minlength))
    w = as_array(1 if weights is None else weights)
    kind = default_dtype("int") if weights is None else w.dtype
    zeros = make(wrap(np.zeros(int(length), kind)))
    keep = T["clamp"](at.tensor, min=0)
    return zeros.at[make(keep)].add(w)


def _set(name: str, *kept: str) -> None:
    theirs = np.unique if name == "unique_values" else getattr(np, name)

    def run(*args: Any, size: Any = None, fill_value: Any = None, **kwargs: Any) -> Any:
        count = 2 if name[-2:] == "1d" else 1
        ts, weak = joined(name, args[:count])
        first = as_array(args[0]).dtype
        weak = is_weak(args[0]) if name == "setdiff1d" else weak
        args = (*[make(t) for t in ts], *args[count:])
        out = theirs(*[_host(a, size, f"The error arose in jnp.{name}(). To make it compatible "
                             "with JIT and other transforms, specify a concrete value for the "
                             "size argument, which will determine the output size.")
                       for a in args[:count]], *args[count:], **kwargs)
        parts = out if isinstance(out, tuple) else (out,)
        made = []
        for i, v in enumerate(parts):
            v = np.asarray(v)
            if size is not None:
                fill = fill_value if fill_value is not None and i == 0 else (
                    v.min() if v.size and i == 0 else 0)
                v = _sized(v, size, fill)
            kind = first if i == 0 and name == "setdiff1d" else v.dtype
            made.append(make(wrap(v.astype(kind)), weak and i == 0 and v.dtype.kind != "c"))
        return made[0] if not isinstance(out, tuple) else (
            type(out)(*made) if hasattr(out, "_fields") else tuple(made))
    _enter(name)(run)


for _name in ("intersect1d union1d setdiff1d setxor1d unique unique_counts unique_values "
              "unique_all unique_inverse").split():
    _set(_name)


@_enter("isin")
def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
         method: str = "auto") -> Any:
    (x, among), _ = joined("isin", (element, test_elements))
    found = (x.unsqueeze(-1) == among.reshape(-1)).any(-1)
    return make(~found if invert else found)


@_enter("unravel_index")
def unravel_index(indices: Any, shape: Any) -> Any:
    at, out = as_array(indices), []
    for n in reversed(tuple(shape)):
        out.append(at % n)
        at = at // n
    return tuple(reversed(out))


@_enter("ravel_multi_index")
def ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C") -> Any:
    out: Any = 0
    pairs = list(zip(multi_index, dims, strict=True))
    for i, n in pairs if order == "C" else reversed(pairs):
        i = _E["clip"](i, 0, n - 1) if mode == "clip" else i % n if mode == "wrap" else i
        out = out * n + as_array(i)
    return out


@_enter("packbits")
def packbits(a: Any, axis: Any = None, bitorder: Any = "big") -> Any:
    return make(wrap(np.packbits(inside(as_array(a)), axis, bitorder)))


@_enter("unpackbits")
def unpackbits(a: Any, axis: Any = None, count: Any = None, bitorder: Any = "big") -> Any:
    return make(wrap(np.unpackbits(inside(as_array(a)), axis, count, bitorder)))


# ------------------------------------------------------------------ along points
@_enter("interp")
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
           ) -> Any:
    (at, knots, values), _ = joined("interp", (x, xp, fp), floating=True)
    if period is not None:
        at, knots = at % period, knots % period
        order = T["argsort"](knots)
        knots, values = knots[order], values[order]
        knots = T["cat"]([knots[-1:] - period, knots, knots[:1] + period])
        values = T["cat"]([values[-1:], values, values[:1]])
    n = knots.shape[0]
    i = T["clamp"](T["searchsorted"](knots.detach(), at.detach(), side="right"), 1, n - 1)

    def pick(t: Any, k: Any) -> Any:
        return take(make(t), make(k)).tensor
    low, high = pick(knots, i - 1), pick(knots, i)
    y0, gap = pick(values, i - 1), high - low
    flat = abs(gap) <= np.finfo(gap.array.dtype).smallest_normal
    y = T["where"](flat, y0, y0 + (at - low) / T["where"](flat, gap.new_ones(()), gap) * (
        pick(values, i) - y0))
    if period is None:
        ends = [values[k] if e is None or e == "extrapolate" else as_array(e).tensor.to(
            y.array.dtype) for e, k in ((left, 0), (right, -1))]
        y = y if isinstance(left, str) else T["where"](at < knots[0], ends[0], y)
        y = y if isinstance(right, str) else T["where"](at > knots[-1], ends[1], y)
    return make(y)


@_enter("apply_along_axis")
def apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    from adjoint.jax._transforms import vmap
    x = as_array(arr)
    axis = axis % x.ndim
    run: Any = lambda v: func1d(v, *args, **kwargs)    # noqa: E731  # it is wrapped axis by axis
    for i in range(1, x.ndim - axis):
        run = vmap(run, in_axes=i, out_axes=-1)
    for _ in range(axis):
        run = vmap(run, in_axes=0, out_axes=0)
    return run(x)


@_enter("apply_over_axes")
def apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    x = as_array(a)
    for axis in axes if isinstance(axes, (tuple, list)) else (axes,):
        b = func(x, axis=axis)
        x = b if b.ndim == x.ndim else _expand(b, axis)
    return x


def _expand(x: Any, axis: int) -> Any:
    return make(x.tensor.unsqueeze(axis), x.weak_type)


__all__ = ["NAMES"]
