"""Choice, sorting, search, sets and piecewise functions of `jax.numpy`."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.core.tensor import wrap
from adjoint.jax._array import as_array, concrete, is_traced, joined, make, value_of
from adjoint.jax._dtypes import default_dtype
from adjoint.jax._host import computed
from adjoint.jax._table import T, entering, floating, is_weak
from adjoint.jax._util import canonicalize_axis
from adjoint.jax._words import placing, taking
from adjoint.jax.numpy._elementwise import NAMES as _E
from adjoint.jax.numpy._index import take

NAMES: dict[str, Any] = {}
_enter = entering(NAMES)


_NO_SIZE = ("The size argument of jnp.nonzero must be statically specified to use jnp.nonzero "
            "within JAX transformations.")


def _host(x: Any, why: str = _NO_SIZE) -> Any:
    """Values as a NumPy array; ConcretizationTypeError where they are hidden."""
    return None if x is None else concrete(as_array(x), why)


def truth(c: Any) -> Any:
    """A condition as a tensor of truth values."""
    t = as_array(c, "where").tensor
    return t if t.array.dtype.kind == "b" else t != 0


@_enter("where")
def where(condition: Any, x: Any = None, y: Any = None, /, *, size: Any = None,
          fill_value: Any = None) -> Any:
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
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
    ts, weak = joined("select", (*choicelist, default))
    out = ts[-1]
    for c, x in zip(reversed(condlist), reversed(ts[:-1]), strict=True):
        out = T["where"](truth(c), x, out)
    return make(out, weak)


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
    at = as_array(a).tensor
    at = at % len(ts) if mode == "wrap" else T["clamp"](at, 0, len(ts) - 1)
    out = T["broadcast_tensors"](at, *ts)[1]
    for k, choice in enumerate(ts[1:], 1):
        out = T["where"](at == k, choice, out)
    return make(out)


# ------------------------------------------------------------------ masks
def _sized(found: Any, size: Any, fill: Any) -> Any:
    """Indices cut or filled up to a size."""
    found = found[:size]
    rest = size - found.shape[0]
    return np.concatenate([found, np.broadcast_to(np.asarray(fill).astype(found.dtype),
                                                  (rest, *found.shape[1:]))])


@_enter("nonzero")
def nonzero(a: Any, *, size: Any = None, fill_value: Any = None) -> Any:
    if as_array(a, "nonzero").ndim == 0:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use "
                         "jnp.atleast_1d(scalar).nonzero() instead.")
    if size is None:
        return tuple(make(wrap(v)) for v in np.nonzero(_host(a)))
    many = isinstance(fill_value, tuple)

    def run(x: Any) -> Any:
        found = np.nonzero(x)
        fills = fill_value if many else (fill_value or 0,) * len(found)
        return [_sized(v, size, f) for v, f in zip(found, fills, strict=True)]
    return tuple(map(make, computed(run, as_array(a).tensor)))


@_enter("flatnonzero")
def flatnonzero(a: Any, *, size: Any = None, fill_value: Any = None) -> Any:
    return nonzero(as_array(a).reshape(-1), size=size, fill_value=fill_value)[0]


@_enter("argwhere")
def argwhere(a: Any, *, size: Any = None, fill_value: Any = None) -> Any:
    if size is None:
        return make(wrap(np.argwhere(_host(a))))
    return make(*computed(lambda x: [_sized(np.argwhere(x), size, fill_value or 0)],
                          as_array(a).tensor))


@_enter("compress")
def compress(condition: Any, a: Any, axis: Any = None, *, size: Any = None, fill_value: Any = 0,
             out: Any = None) -> Any:
    x = as_array(a)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    if size is None:
        return take(x, np.flatnonzero(_host(condition)), axis)
    found = flatnonzero(condition, size=size, fill_value=-1).tensor
    kept = take(x, make(T["clamp"](found, min=0)), axis)
    there = (found >= 0).reshape(-1, *[1] * (x.ndim - 1 - axis % x.ndim))
    return where(make(there), kept, as_array(fill_value).astype(x.dtype))


@_enter("extract")
def extract(condition: Any, arr: Any, *, size: Any = None, fill_value: Any = 0) -> Any:
    return compress(as_array(condition).reshape(-1), arr, size=size, fill_value=fill_value)


@_enter("delete")
def delete(arr: Any, obj: Any, axis: Any = None, *, assume_unique_indices: bool = False) -> Any:
    x = as_array(arr)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    if assume_unique_indices and not isinstance(obj, (int, slice)):
        at, = computed(lambda i: [np.delete(np.arange(x.shape[axis]), i)], as_array(obj).tensor)
        return take(x, make(at), axis)
    if isinstance(obj, int):
        canonicalize_axis(obj, x.shape[axis])
    gone = obj if isinstance(obj, (int, slice)) else _host(
        obj, "The error occurred because of argument 'obj' of jnp.delete(). Pass "
        "assume_unique_indices=True where it holds")
    return take(x, np.delete(np.arange(x.shape[axis]), gone), axis)


@_enter("insert")
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    x = as_array(arr)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, canonicalize_axis(axis, x.ndim))
    n = x.shape[axis]
    at = np.atleast_1d(_host(obj, "The error arose in jnp.insert() argument obj"))
    order = np.insert(np.arange(n), np.clip(at, -n, n), np.full(at.shape, -1))
    whole = take(x, np.where(order < 0, 0, order), axis)
    new = as_array(values).astype(x.dtype)
    index = (*[slice(None)] * axis, np.flatnonzero(order < 0))
    return whole.at[index].set(new)


# ------------------------------------------------------------------ sorting
def _ordered(a: Any, name: str, axis: Any, kind: Any = None, order: Any = None) -> Any:
    x = as_array(a, name)
    if axis is not None:
        canonicalize_axis(axis, x.ndim)
    for word, value, tip in (("kind", kind, " Use stable=True or stable=False to specify sort "
                              "stability."), ("order", order, "")):
        if value is not None:
            raise TypeError(f"'{word}' argument to {name} is not supported.{tip}")
    return x


def _part(name: str, a: Any, kth: int, axis: int) -> None:
    """What `partition` and `argpartition` refuse."""
    x = as_array(a, name)
    if x.dtype.kind == "c":
        raise NotImplementedError(f"jnp.{name} for complex dtype is not implemented.")
    canonicalize_axis(kth, x.shape[canonicalize_axis(axis, x.ndim)])


@_enter("sort")
def sort(a: Any, axis: Any = -1, *, kind: Any = None, order: Any = None, stable: bool = True,
         descending: bool = False) -> Any:
    x = _ordered(a, "sort", axis, kind, order)
    t, axis = (x.tensor.reshape(-1), 0) if axis is None else (x.tensor, axis)
    if t.is_complex():
        return make(T["gather"](t, axis, _order(t, axis, bool(descending))), x.weak_type)
    return make(T["sort"](t, axis, bool(descending))[0], x.weak_type)


@_enter("argsort")
def argsort(a: Any, axis: Any = -1, *, kind: Any = None, order: Any = None, stable: bool = True,
            descending: bool = False, dtype: Any = None) -> Any:
    x = _ordered(a, "argsort", axis, kind, order)
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
    x = make(floating(a, "sort_complex"))
    return sort(x.astype(np.result_type(x.dtype, np.complex64)))


@_enter("argpartition")
def argpartition(a: Any, kth: int, axis: int = -1) -> Any:
    _part("argpartition", a, kth, axis)
    return argsort(a, axis)


@_enter("partition")
def partition(a: Any, kth: int, axis: int = -1) -> Any:
    _part("partition", a, kth, axis)
    return sort(a, axis)


@_enter("lexsort")
def lexsort(keys: Any, axis: int = -1) -> Any:
    order: Any = None
    for key in keys:                        # the last key counts most, so it is sorted by last
        t = as_array(key).tensor.detach()
        row = t if order is None else T["gather"](t, axis, order)
        step = _order(row, axis, False)
        order = step if order is None else T["gather"](order, axis, step)
    return make(order)


@_enter("searchsorted")
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, *,
                 method: str = "scan") -> Any:
    if side not in ("left", "right"):
        raise ValueError(f"{side!r} is an invalid value for keyword 'side'. Expected one of "
                         "['left', 'right'].")
    if as_array(a, "searchsorted").ndim != 1:
        raise ValueError("a should be 1-dimensional")
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
@placing("out_sharding")
def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: Any = None) -> Any:
    at = as_array(x, "bincount")
    if at.dtype.kind not in "iu":
        raise TypeError("x argument to bincount must have an integer type; got "
                        f"{at.dtype.name}")
    if at.ndim != 1:
        raise ValueError("only 1-dimensional input supported.")
    if length is None:
        values = _host(at, "The error occurred because of argument 'x' of jnp.bincount. To "
                       "avoid this error, pass a static `length` argument.")
        length = max(int(values.max()) + 1 if at.size else 0, int(minlength))
    w = as_array(1 if weights is None else weights)
    kind = default_dtype("int") if weights is None else w.dtype
    zeros = make(wrap(np.zeros(int(length), kind)))
    keep = T["clamp"](at.tensor, min=0)
    return zeros.at[make(keep)].add(w)


def _set(name: str, words: str) -> None:
    """A function of sets, of one array or two, of NumPy's words, and a size and what fills it."""
    count = 2 if name[-2:] == "1d" else 1
    asked = [w.partition("=")[0] for w in words.partition(", *")[0].split(", ")[count:] if w != "/"]
    theirs = np.unique if name == "unique_values" else getattr(np, name)
    why = (f"The error arose in jnp.{name}(). To make it compatible with JIT and other transforms, "
           "specify a concrete value for the size argument, which will determine the output size.")

    def run(*given: Any, size: Any, fill_value: Any, **named: Any) -> Any:
        args = given[:count]
        kwargs = dict(zip(asked, given[count:], strict=True)) | named
        kwargs.pop("sorted", None)                    # (they are, either way)
        ts, weak = joined(name, args)
        first, weak = (as_array(args[0]).dtype, is_weak(args[0])) if name == "setdiff1d" else (
            None, weak)
        shape: list[Any] = []

        def go(*values: Any) -> Any:
            out = theirs(*values, **kwargs)
            shape[:] = [out]
            parts = [np.asarray(v) for v in (out if isinstance(out, tuple) else (out,))]
            if size is not None:
                parts = _filled(name, parts, values, size, fill_value, kwargs)
            return parts if first is None else [parts[0].astype(first)]
        found = ([wrap(v) for v in go(*[concrete(make(t), why) for t in ts])] if size is None
                 else computed(go, *ts))
        made = [make(t, weak and not i and not t.is_complex()) for i, t in enumerate(found)]
        out = shape[0]
        return made[0] if not isinstance(out, tuple) else (
            type(out)(*made) if hasattr(out, "_fields") else tuple(made))
    _enter(name)(taking(words, run))


def _filled(name: str, parts: list[Any], given: Any, size: int, fill: Any, asked: dict[str, Any]
            ) -> list[Any]:
    """The results of a set function brought to a size. Past the elements stands `fill`, else the
    least of them; past the places of these the place of the least, past counts 0."""
    axis = asked.get("axis") or 0
    values = np.moveaxis(parts[0], axis, 0)
    if fill is None:
        if not values.size and size and name[:6] == "unique":
            raise ValueError("jnp.unique: for zero-sized input with nonzero size argument, "
                             "fill_value must be specified.")
        fill = values[0] if len(values) and name != "setdiff1d" else 0
    out = [np.moveaxis(_sized(values, size, fill), 0, axis)]
    if name == "intersect1d":
        return out + [_sized(at, size, x.size) for at, x in zip(parts[1:], given, strict=False)]
    kinds = {"unique_all": "return_index return_inverse return_counts", "unique_inverse":
             "return_inverse", "unique_counts": "return_counts"}.get(name, "").split() or [
        k for k in ("return_index", "return_inverse", "return_counts") if asked.get(k)]
    return out + [v if k == "return_inverse" else _sized(
        v, size, v[0] if v.size and k == "return_index" else 0)
        for k, v in zip(kinds, parts[1:], strict=True)]


_SIZED = "*, size=None, fill_value=None"
_set("intersect1d", f"ar1, ar2, assume_unique=False, return_indices=False, {_SIZED}")
_set("union1d", f"ar1, ar2, {_SIZED}")
_set("setdiff1d", f"ar1, ar2, assume_unique=False, {_SIZED}")
_set("setxor1d", f"ar1, ar2, assume_unique=False, {_SIZED}")
for _name in "unique_counts unique_values unique_all unique_inverse".split():
    _set(_name, f"x, /, {_SIZED}")
_set("unique", "ar, return_index=False, return_inverse=False, return_counts=False, axis=None, *, "
     "equal_nan=True, size=None, fill_value=None, sorted=True")


@_enter("isin")
def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
         method: str = "auto") -> Any:
    if method not in ("compare_all", "binary_search", "sort", "auto"):
        raise ValueError(f"{method=} is not implemented; options are 'compare_all', "
                         "'binary_search', 'sort', and 'auto'")
    (x, among), _ = joined("isin", (element, test_elements))
    found = (x.unsqueeze(-1) == among.reshape(-1)).any(-1)
    return make(~found if invert else found)


@_enter("unravel_index")
def unravel_index(indices: Any, shape: Any) -> Any:
    at, out = as_array(indices), []
    for n in reversed(shape if isinstance(shape, (tuple, list)) else (shape,)):
        out.append(at % n)
        at = at // n
    return tuple(reversed(out))


@_enter("ravel_multi_index")
def ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C", *,
                      dtype: Any = None) -> Any:
    out: Any = 0
    pairs = list(zip(multi_index, dims, strict=True))
    for i, n in pairs if order == "C" else reversed(pairs):
        i = _E["clip"](i, 0, n - 1) if mode == "clip" else i % n if mode == "wrap" else i
        out = out * n + as_array(i)
    return out if dtype is None else out.astype(dtype)


@_enter("packbits")
def packbits(a: Any, axis: Any = None, bitorder: Any = "big") -> Any:
    return make(*computed(lambda x: [np.packbits(x, axis, bitorder)], as_array(a).tensor))


@_enter("unpackbits")
def unpackbits(a: Any, axis: Any = None, count: Any = None, bitorder: Any = "big") -> Any:
    return make(*computed(lambda x: [np.unpackbits(x, axis, count, bitorder)],
                          as_array(a).tensor))


# ------------------------------------------------------------------ along points
@_enter("interp")
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
           ) -> Any:
    shape = as_array(xp).shape
    if len(shape) != 1 or as_array(fp).shape != shape:
        raise ValueError("xp and fp must be one-dimensional arrays of equal size")
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
    from adjoint.jax._vmap import vmap
    x = as_array(arr)
    axis = canonicalize_axis(axis, x.ndim)
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
