"""Products, convolutions and polynomials of `jax.numpy`."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint import numpy as anp
from adjoint.base.errors import ShapeError
from adjoint.core.tensor import wrap
from adjoint.jax._array import as_array, concrete, convert, joined, make
from adjoint.jax._dtypes import as_dtype, canonical
from adjoint.jax._host import computed
from adjoint.jax._singular import LINALG
from adjoint.jax._table import T, entering, floating, named, no_out
from adjoint.jax._util import canonicalize_axis
from adjoint.jax._words import placing, taking

NAMES: dict[str, Any] = {}
_enter = entering(NAMES)


def _result(y: Any, weak: bool, preferred: Any) -> Any:
    return make(y, weak) if preferred is None else make(convert(y, as_dtype(preferred)))


def _mismatch(x: Any, y: Any, a: int, b: int) -> None:
    if x.shape[a] != y.shape[b]:
        raise TypeError("dot_general requires contracting dimensions to have the same shape, got "
                        f"({x.shape[a]},) and ({y.shape[b]},).")


def _wider(ts: Any, asked: Any) -> list[Any]:
    """Operands in the dtype that is asked for, where sums in it are rounded less; TypeError for
    whole numbers in fewer bits."""
    kind = ts[0].array.dtype
    if asked is not None and kind.kind in "iu" and as_dtype(asked).itemsize < kind.itemsize:
        raise TypeError("`preferred_element_type` must not be narrower than the original type, got "
                        f"preferred_element_type of {as_dtype(asked).name} for result type of "
                        f"{kind.name}.")
    if asked is None or as_dtype(asked).itemsize <= ts[0].array.dtype.itemsize:
        return list(ts)
    return [convert(t, as_dtype(asked)) for t in ts]


def _whole(t: Any) -> Any:
    """Truth values as bytes, for products."""
    return t.to(np.dtype(np.uint8)) if t.array.dtype.kind == "b" else t


def _product(name: str, op: Any) -> Any:
    def run(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
        (x, y), weak = joined(name, (a, b))
        x, y = _wider((x, y), preferred_element_type)
        kind = x.array.dtype
        found = op(_whole(x), _whole(y))
        found = found != 0 if kind.kind == "b" else found
        found = found if found.array.dtype == kind else found.to(kind)
        return _result(found, weak, preferred_element_type)
    if name == "kron":
        return _enter(name)(taking("a, b", run))
    return _enter(name)(run if name in ("inner", "vdot") else placing("out_sharding")(
        named(run, name, "adjoint.jax.numpy")))


def _dot(x: Any, y: Any) -> Any:
    if x.ndim and y.ndim:
        _mismatch(x, y, -1, -2 if y.ndim > 1 else 0)
    return anp.ours["dot"](x, y)


def _matmul(x: Any, y: Any) -> Any:
    for i, t in enumerate((x, y)):
        if t.ndim == 0:
            raise ValueError(f"matmul input operand {i} must have ndim at least 1, but it has ndim "
                             "0")
    _mismatch(x, y, -1, -2 if y.ndim > 1 else 0)
    return T["matmul"](x, y)


def _inner(x: Any, y: Any) -> Any:
    if x.ndim and y.ndim:
        _mismatch(x, y, -1, -1)
    return anp.ours["inner"](x, y)


def _vdot(x: Any, y: Any) -> Any:
    x, y = x.reshape(-1).conj() if x.is_complex() else x.reshape(-1), y.reshape(-1)
    _mismatch(x, y, -1, -1)
    return T["matmul"](x, y)


dot, matmul = _product("dot", _dot), _product("matmul", _matmul)
_product("inner", _inner)
_product("vdot", _vdot)
_product("kron", T["kron"])


@_enter("outer")
def outer(a: Any, b: Any, out: Any = None) -> Any:
    (x, y), weak = joined("outer", (a, b))
    return make(x.reshape(-1)[:, None] * y.reshape(-1)[None, :], weak)


@_enter("vecdot")
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None,
           preferred_element_type: Any = None) -> Any:
    (x, y), weak = joined("vecdot", (x1, x2))
    for t in (x, y):
        if not t.ndim:
            raise ValueError("vecdot: each operand needs an axis to sum over, got shapes "
                             f"{tuple(x.shape)} and {tuple(y.shape)}")
    if x.shape[axis] != y.shape[axis]:
        raise ValueError(f"axes must match; got shapes {tuple(x.shape)} and {tuple(y.shape)} with "
                         f"{axis=}")
    x, y = _wider((x, y), preferred_element_type)
    found = (x.conj() * y if x.is_complex() else x * y).sum(axis).to(x.array.dtype)
    return _result(found, weak, preferred_element_type)


@_enter("matvec")
def matvec(x1: Any, x2: Any, /) -> Any:
    _core("('n', 'm')", x1, 2)
    return matmul(x1, as_array(x2)[..., None])[..., 0]


@_enter("vecmat")
def vecmat(x1: Any, x2: Any, /) -> Any:
    _core("('n', 'm')", x2, 2)
    return matmul(as_array(x1).conj()[..., None, :], x2)[..., 0, :]


def _core(names: str, x: Any, n: int) -> None:
    """ValueError for an operand without the axes that a function is of."""
    if as_array(x).ndim < n:
        raise ValueError(f"input with shape {as_array(x).shape} does not have enough dimensions "
                         f"for all core dimensions {names} on vectorized function")


@_enter("tensordot")
@placing("out_sharding")
def tensordot(a: Any, b: Any, axes: Any = 2, *, precision: Any = None,
              preferred_element_type: Any = None) -> Any:
    (x, y), weak = joined("tensordot", (a, b))
    if isinstance(axes, int) and axes > min(x.ndim, y.ndim):
        raise TypeError(f"Number of tensordot axes (axes {axes}) exceeds input ranks "
                        f"({tuple(x.shape)} and {tuple(y.shape)})")
    if isinstance(axes, (tuple, list)):
        for t, given in zip((x, y), axes, strict=True):
            for d in given if isinstance(given, (tuple, list)) else (given,):
                canonicalize_axis(d, t.ndim)
    x, y = _wider((x, y), preferred_element_type)
    try:
        found = anp.ours["tensordot"](x, y, axes)
    except ShapeError as error:
        raise TypeError("dot_general requires contracting dimensions to have the same shape, got "
                        f"operands of shapes {tuple(x.shape)} and {tuple(y.shape)} for "
                        f"axes={axes}") from error
    return _result(found.to(x.array.dtype), weak, preferred_element_type)


def _written(subscripts: Any, operands: Any) -> tuple[str, Any]:
    """Subscripts as text, and the operands, where they were given as lists of axes."""
    if isinstance(subscripts, str):
        return subscripts, operands
    given = (subscripts, *operands)
    arrays, lists = given[:len(given) // 2 * 2:2], given[1::2]
    last = given[-1] if len(given) % 2 else None

    def text(axes: Any) -> str:
        return "".join("..." if i is Ellipsis else chr(ord("a") + i if i < 26 else
                                                       ord("A") + i - 26) for i in axes)
    return ",".join(map(text, lists)) + ("" if last is None else "->" + text(last)), arrays


@_enter("einsum_path")
def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "auto") -> tuple[Any, Any]:
    """(the order of contraction, how it is printed), as NumPy finds it."""
    text, arrays = _written(subscripts, operands)
    shapes = [as_array(a).shape for a in arrays]
    views = [np.broadcast_to(np.float32(0), s) for s in shapes]
    how = "greedy" if isinstance(optimize, str) and optimize != "optimal" else optimize
    path, text = np.einsum_path(text, *views, optimize=how)
    return list(path[1:]), text


@_enter("einsum")
@placing("out_sharding")
def einsum(subscripts: Any, /, *operands: Any, out: Any = None, optimize: Any = "auto",
           precision: Any = None, preferred_element_type: Any = None, _dot_general: Any = None
           ) -> Any:
    """`jax.numpy.einsum`, with a string or with lists of axes; `_dot_general` has no part in it."""
    no_out("einsum", out)
    subscripts, operands = _written(subscripts, operands)
    wanted = subscripts.split("->")[0].count(",") + 1
    if wanted != len(operands):
        raise ValueError(f"Number of einsum subscripts, {wanted}, must be equal to the number of "
                         f"operands, {len(operands)}.")
    ts, weak = joined("einsum", operands)
    ts = _wider(ts, preferred_element_type)
    kind = ts[0].array.dtype
    found = T["einsum"](subscripts.replace(" ", ""), *ts)
    return _result(found.to(kind), weak, preferred_element_type)


@_enter("cross")
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
          ) -> Any:
    (x, y), weak = joined("cross", (a, b))
    return make(anp.ours["cross"](x, y, axisa, axisb, axisc, axis), weak)


# ------------------------------------------------------------------ convolutions
def _convolver(name: str) -> None:
    def run(a: Any, v: Any, mode: str = "full" if name == "convolve" else "valid", *,
            precision: Any = None, preferred_element_type: Any = None) -> Any:
        (x, y), weak = joined(name, (a, v), floating=True)
        if mode not in ("full", "same", "valid"):
            raise ValueError("mode must be one of ['full', 'same', 'valid']")
        if x.ndim != 1 or y.ndim != 1:
            raise ValueError(f"{name}() only support 1-dimensional inputs.")
        if x.shape[0] == 0 or y.shape[0] == 0:
            raise ValueError(f"{name}: inputs cannot be empty, got shapes {tuple(x.shape)} and "
                             f"{tuple(y.shape)}")
        flip = name == "correlate" and x.shape[0] < y.shape[0]
        if name == "correlate":
            y = y.conj() if y.is_complex() else y
            found = anp.ours["convolve"](x, y.flip(0), mode)
            if flip and mode == "same":
                full = anp.ours["convolve"](x, y.flip(0), "full")
                low = (x.shape[0]) // 2
                found = full[low:low + y.shape[0]]
        else:
            found = anp.ours["convolve"](x, y, mode)
        return _result(found, weak, preferred_element_type)
    _enter(name)(run)


_convolver("convolve")
_convolver("correlate")


# ------------------------------------------------------------------ polynomials
@_enter("polyval")
def polyval(p: Any, x: Any, *, unroll: int = 16) -> Any:
    (c, at), _ = joined("polyval", (p, x))
    y = at * 0
    for i in range(c.shape[0]):
        y = y * at + c[i]
    return make(y.to(c.array.dtype))


@_enter("polyadd")
def polyadd(a1: Any, a2: Any) -> Any:
    (x, y), _ = joined("polyadd", (a1, a2))
    n = max(x.shape[0], y.shape[0])
    x, y = (T["cat"]([t.new_zeros((n - t.shape[0],)), t]) for t in (x, y))
    return make(x + y)


@_enter("polysub")
def polysub(a1: Any, a2: Any) -> Any:
    return polyadd(a1, -as_array(a2))


@_enter("polymul")
def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Any:
    ts, _ = joined("polymul", (a1, a2), floating=True)
    x, y = (make(t if t.shape[:1] != (0,) else t.new_zeros((1,))) for t in ts)
    return NAMES["convolve"](x, y)


@_enter("polyder")
def polyder(p: Any, m: int = 1) -> Any:
    if m < 0:
        raise ValueError("Order of derivative must be positive")
    c = make(floating(p, "polyder"))
    for _ in range(m):
        n = c.shape[0]
        c = c[:-1] * make(wrap(np.arange(n - 1, 0, -1).astype(c.dtype)))
    return c


@_enter("polyint")
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    (c,), _ = joined("polyint", (p,), floating=True)
    extra = np.broadcast_to(np.asarray(0 if k is None else as_array(k)), (m,))
    for i in range(m):
        scale = wrap(np.arange(c.shape[0], 0, -1).astype(c.array.dtype))
        c = T["cat"]([c / scale, c.new_full((1,), float(extra[i]))])
    return make(c)


@_enter("polyfit")
def polyfit(x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None,
            cov: Any = False) -> Any:
    for name, v, ranks, words in (("x", x, (1,), "1D vector"), ("y", y, (1, 2), "1D or 2D array")):
        if as_array(v).ndim not in ranks:
            raise TypeError(f"expected {words} for {name}")
    (at, values), _ = joined("polyfit", (x, y), floating=True)
    if at.shape[0] != values.shape[0]:
        raise TypeError("expected x and y to have same length")
    powers = T["stack"]([at ** (deg - k) if deg - k else at * 0 + 1 for k in range(deg + 1)], 1)
    if w is not None:
        weights = as_array(w).tensor.to(at.array.dtype)
        powers, values = powers * weights[:, None], values * (
            weights if values.ndim == 1 else weights[:, None])
    scale = T["sqrt"]((powers * powers).sum(0))
    solved = LINALG["pinv"](powers / scale) @ values
    found = make(solved / scale if solved.ndim == 1 else solved / scale[:, None])
    if not (full or cov):
        return found
    left = values - powers / scale @ solved
    rest = make((left * left).sum(0).reshape(-1))
    if full:
        few = rcond if rcond is not None else at.shape[0] * np.finfo(at.array.dtype).eps
        sizes = LINALG["svdvals"](powers / scale)
        rank = make((sizes > few * sizes.max()).sum().to(np.dtype(np.int32)))
        return found, rest, rank, make(sizes), few
    spread = LINALG["inv"](powers.transpose(0, 1) @ powers)
    if cov != "unscaled":
        if at.shape[0] <= deg + 1:
            raise ValueError("the number of data points must exceed order to scale the covariance "
                             "matrix")
        by = rest.tensor / (at.shape[0] - deg - 1)
        spread = spread * by[0] if values.ndim == 1 else spread[..., None] * by
    return found, make(spread)


@_enter("roots")
def roots(p: Any, *, strip_zeros: bool = True) -> Any:
    x = as_array(p)
    kind = canonical(np.dtype(np.complex128))
    if strip_zeros:
        values = concrete(x, "The error occurred in jnp.roots(). To use this within a "
                          "JIT-compiled/transformed context, pass strip_zeros=False")
        return make(wrap(np.roots(np.atleast_1d(values)).astype(kind)))

    def run(c: Any) -> Any:                # a leading zero divides, as in JAX
        return [np.linalg.eigvals(_companion(c.astype(kind)))]
    return make(*computed(run, x.tensor))


def _companion(c: Any) -> Any:
    """The matrix whose eigenvalues are the roots of a polynomial."""
    found = np.diag(np.ones(max(len(c) - 2, 0), c.dtype), -1)[:max(len(c) - 1, 0)]
    with np.errstate(all="ignore"):
        found[:1] = -c[1:] / c[:1]
    return np.where(np.isfinite(found), found, 0)


@_enter("poly")
def poly(seq_of_zeros: Any) -> Any:
    z = make(joined("poly", (seq_of_zeros,), floating=True)[0][0]).reshape(
        np.shape(seq_of_zeros) or (1,))
    if not z.size:
        return make(wrap(np.ones((), z.dtype)))
    if z.ndim > 2 or z.ndim == 2 and (z.shape[0] != z.shape[1] or not z.size):
        raise ValueError("input must be 1d or non-empty square 2d array.")
    if z.ndim == 2:
        kind = np.result_type(z.dtype, np.complex64)
        z = make(*computed(lambda m: [np.linalg.eigvals(m).astype(kind)], z.tensor))
    c = make(wrap(np.ones(1, z.dtype)))
    for i in range(z.shape[0]):
        c = polyadd(make(T["cat"]([c.tensor, c.tensor.new_zeros((1,))])), -z[i] * c)
    return c


__all__ = ["NAMES"]
