"""Selection, sorting, products and small numerical tools with NumPy's arguments."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.numpy._table import F, as_tensor, find, like, of_one_dtype, one_axis


def _plain(x: Any) -> Any:
    """Operands as plain arrays, for functions without a derivative."""
    if isinstance(x, Tensor):
        return x.detach().numpy()
    return type(x)(_plain(v) for v in x) if isinstance(x, (list, tuple)) else x


def _discrete(name: str) -> None:
    """NumPy's own function: its results are indices, counts or truth values."""
    theirs = find(name)

    def run(*args: Any, **kwargs: Any) -> Any:
        out = theirs(*_plain(args), **{k: _plain(v) for k, v in kwargs.items()})
        if isinstance(out, tuple):
            return tuple(as_tensor(v) if isinstance(v, np.ndarray) else v for v in out)
        return as_tensor(out) if isinstance(out, (np.ndarray, np.integer, np.bool_)) else out
    if theirs is not None:
        like(name)(run)


for _name in ("all any argmax argmin argsort argpartition argwhere nonzero flatnonzero "
              "searchsorted digitize bincount count_nonzero nanargmax nanargmin isclose allclose "
              "array_equal array_equiv isreal iscomplex isposinf isneginf isin unravel_index "
              "lexsort histogram linalg.matrix_rank may_share_memory shares_memory result_type "
              "triu_indices_from tril_indices_from").split():
    _discrete(_name)
like("iscomplexobj")(lambda x: x.is_complex())
like("isrealobj")(lambda x: not x.is_complex())


# ------------------------------------------------------------------ selection
@like("where")
def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    c = as_tensor(condition)
    if x is None:
        return tuple(F["nonzero"](c, as_tuple=True))
    x, y = as_tensor(x), as_tensor(y)
    return F["where"](c if c.dtype == as_tensor(np.zeros(0, bool)).dtype else c != 0, x, y)


@like("select")
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    given = [x if isinstance(x, Tensor) else np.asarray(x) for x in choicelist]
    out = np.asarray(default, np.result_type(*[x.dtype for x in given], default)) if isinstance(
        default, (int, float, complex)) else default
    *given, out = of_one_dtype(*given, out)
    for c, x in zip(reversed(condlist), reversed(given), strict=True):
        out = F["where"](as_tensor(c), x, out)
    return out


@like("take")
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    x = as_tensor(a)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis % x.ndim)
    at, n = np.asarray(_plain(indices)), x.shape[axis]
    if mode == "raise" and at.size and (at.min() < -n or at.max() >= n):
        raise ArgumentError(f"np.take: index {at.min()}..{at.max()} out of bounds for size {n}")
    at = np.clip(at, 0, n - 1) if mode == "clip" else at % n
    y = F["index_select"](x, axis, as_tensor(at.ravel()))
    return y.reshape([*x.shape[:axis], *at.shape, *x.shape[axis + 1:]])


@like("take_along_axis")
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    x, at = as_tensor(arr), as_tensor(indices)
    return F["take_along_dim"](x, at, None if axis is None else axis)


@like("compress")
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    return take(a, np.flatnonzero(_plain(condition)), axis)


like("extract")(lambda condition, arr: take(arr, np.flatnonzero(_plain(condition))))


@like("choose")
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    rows = F["stack"](F["broadcast_tensors"](*[as_tensor(c) for c in choices]))
    at = np.broadcast_to(np.asarray(_plain(a)), rows.shape[1:])
    return F["gather"](rows, 0, as_tensor(at[None].astype(np.int64)))[0]


@like("delete")
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    x = as_tensor(arr)
    n = x.numel() if axis is None else x.shape[axis]
    return take(x, np.delete(np.arange(n), obj), axis)


@like("sort")
def sort(a: Any, axis: Any = -1, **_: Any) -> Any:
    x = as_tensor(a)
    return F["sort"](x.reshape(-1), -1)[0] if axis is None else F["sort"](x, one_axis(x, axis))[0]


@like("partition")
def partition(a: Any, kth: Any, axis: Any = -1, **_: Any) -> Any:
    x = as_tensor(a)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    return take_along_axis(x, np.argpartition(_plain(x), kth, axis), axis)


def forward_slices(t: Any, at: Any) -> tuple[Any, Any]:
    """The tensor with the axes flipped that slices walk down, and the slices walking up."""
    items = list(at) if isinstance(at, tuple) else [at]
    if not any(isinstance(i, slice) and (i.step or 1) < 0 for i in items):
        return t, at
    taken = [0 if i is None or i is Ellipsis else max(np.ndim(i), 1) if (
        not isinstance(i, (slice, Tensor)) and np.asarray(i).dtype == bool) else 1 for i in items]
    axis, down = 0, []
    for k, i in enumerate(items):
        if i is Ellipsis:
            axis += t.ndim - sum(taken)
        elif isinstance(i, slice) and (i.step or 1) < 0:
            n = t.shape[axis]
            walk = range(*i.indices(n))
            low = n - 1 - walk.start
            items[k] = slice(low, max(low, n - 1 - walk.stop), -walk.step)
            down.append(axis)
        axis += taken[k]
    return t.flip(down), tuple(items)


# ------------------------------------------------------------------ products
@like("dot")
def dot(a: Any, b: Any, out: Any = None) -> Any:
    x, y = of_one_dtype(a, b)
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    if x.ndim <= 2 and y.ndim <= 2 or y.ndim == 1:
        return F["matmul"](x, y)
    return F["tensordot"](x, y, dims=([x.ndim - 1], [y.ndim - 2]))


@like("inner")
def inner(a: Any, b: Any, /) -> Any:
    x, y = of_one_dtype(a, b)
    return x * y if x.ndim == 0 or y.ndim == 0 else F["tensordot"](
        x, y, dims=([x.ndim - 1], [y.ndim - 1]))


@like("vdot")
def vdot(a: Any, b: Any, /) -> Any:
    return F["vdot"](*[x.reshape(-1) for x in of_one_dtype(a, b)])


@like("outer", "linalg.outer")
def outer(a: Any, b: Any, out: Any = None) -> Any:
    return F["outer"](as_tensor(a).reshape(-1), as_tensor(b).reshape(-1))


@like("tensordot", "linalg.tensordot")
def tensordot(a: Any, b: Any, /, axes: Any = 2) -> Any:
    if not isinstance(axes, (int, np.integer)):
        axes = tuple([int(v)] if isinstance(v, (int, np.integer)) else [int(w) for w in v]
                     for v in axes)
    return F["tensordot"](*of_one_dtype(a, b), dims=axes)


like("kron")(lambda a, b: F["kron"](as_tensor(a), as_tensor(b)))
like("linalg.matmul")(lambda a, b, /: F["matmul"](*of_one_dtype(a, b)))
like("linalg.vecdot")(lambda a, b, /, *, axis=-1: (as_tensor(a).conj() * as_tensor(b)).sum(axis))


@like("einsum")
def einsum(*operands: Any, optimize: Any = False, **_: Any) -> Any:
    first, *rest = operands
    return F["einsum"](first, *(of_one_dtype(*rest) if isinstance(first, str)
                                else [as_tensor(x) for x in rest]))


@like("cross", "linalg.cross")
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
          ) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = (F["movedim"](as_tensor(v), d, -1) for v, d in ((a, axisa), (b, axisb)))
    sizes = x.shape[-1], y.shape[-1]
    if any(n not in (2, 3) for n in sizes):
        raise ArgumentError("np.cross of tensors: the vectors must have 2 or 3 entries, got "
                            f"{sizes[0]} and {sizes[1]}")
    if sizes == (2, 2):
        return x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0]
    x, y = (v if v.shape[-1] == 3 else F["cat"]([v, F["zeros_like"](v[..., :1])], -1)
            for v in (x, y))
    x, y = F["broadcast_tensors"](x, y)
    return F["movedim"](F["cross"](x, y, dim=-1), -1, axisc)


# ------------------------------------------------------------------ signals and polynomials
@like("convolve")
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    x, w = of_one_dtype(a, v)
    n, m = x.shape[0], w.shape[0]
    if m > n:
        x, w, n, m = w, x, m, n
    full = F["conv1d"](x[None, None], w.flip(0)[None, None], padding=m - 1)[0, 0]
    if mode == "full":
        return full
    if mode == "valid":
        return full[m - 1:n]
    start = (m - 1) // 2
    return full[start:start + n]


@like("correlate")
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    return convolve(a, as_tensor(v).conj().flip(0), mode)


@like("polyval")
def polyval(p: Any, x: Any) -> Any:
    coefficients, at = as_tensor(p), as_tensor(x)
    y = F["zeros_like"](at)
    for i in range(coefficients.shape[0]):
        y = y * at + coefficients[i]
    return y


@like("interp")
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
           ) -> Any:
    if period is not None:
        raise ArgumentError("np.interp(period=...) of tensors: reduce x modulo the period first")
    x, xp, fp = as_tensor(x), as_tensor(xp), as_tensor(fp)
    knots, at = _plain(xp), _plain(x)
    i = np.clip(np.searchsorted(knots, at, "right") - 1, 0, len(knots) - 2)
    low, high = (take(xp, i), take(fp, i)), (take(xp, i + 1), take(fp, i + 1))
    y = low[1] + (high[1] - low[1]) * (x - low[0]) / (high[0] - low[0])
    ends = (as_tensor(left) if left is not None else fp[0],
            as_tensor(right) if right is not None else fp[-1])
    y = F["where"](as_tensor(at < knots[0]), ends[0].to(y.dtype), y)
    return F["where"](as_tensor(at > knots[-1]), ends[1].to(y.dtype), y)


@like("cov")
def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, **_: Any
        ) -> Any:
    x = as_tensor(m) if y is None else F["cat"]([F["atleast_2d"](as_tensor(v)) for v in (m, y)])
    x = x if rowvar or x.ndim == 1 else x.transpose(0, 1)
    return F["cov"](x, correction=int(not bias) if ddof is None else ddof)


@like("corrcoef")
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, **_: Any) -> Any:
    c = cov(x, y, rowvar)
    if c.ndim == 0:
        return c / c
    d = F["sqrt"](F["diagonal"](c))
    return c / d[:, None] / d[None, :]
