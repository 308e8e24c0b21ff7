"""Layer norm and RMS norm over contiguous rows, forward and backward, and group norm.

Forward: the row is read from memory once and swept three times in cache (mean, centred second
moment, result), so the variance does not cancel. Backward, with x^ = (x - mean) rstd and
h = ct * weight:

    cx = rstd (h - mean(h) - x^ mean(h x^))      (Ba, Kiros, Hinton, arXiv:1607.06450, section 3)

(without the mean(h) term for RMS norm). The sums over rows for weight and bias go to one partial
row per chunk, at most 32, added up at the end.
"""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, rows
from adjoint.kernels.ir import Value
from adjoint.kernels.rows import Rows

Array = NDArray[Any]
_GROUPS = 32


def _forward(k: Rows, rms: bool, affine: str, spread: bool, stream: bool = False) -> None:
    """x, [weight], [bias], out, [mean], rstd; reals: eps. `affine`: which of "wb" are there."""
    f, frame = k.f, k.frame
    arrays = [frame.array(i) for i in range(2 + len(affine) + (1 if rms else 2))]
    xs, outs = arrays[0], arrays[1 + len(affine)]
    weight = arrays[1] if "w" in affine else None
    bias = arrays[len(affine)] if "b" in affine else None
    means, rstds = (None if rms else arrays[-2]), arrays[-1]
    eps = frame.real(0, k.register)
    inverse = 1.0 / f.cast("sitofp", k.columns, k.register)
    every = frame.geometry(4) if spread else None

    def row(r: Value) -> None:
        x, o = k.row(xs, r), k.row(outs, r)
        mean = None
        if means is not None:
            s, = k.reduce(["add"], lambda j, m: [k.load(x, j, m)])
            k.put(s * inverse, means, r)
            mean = k.wide(s * inverse)
        var, = k.reduce(["add"], lambda j, m: [_square(k, x, mean, j, m)])
        rstd = 1.0 / f.intrinsic("sqrt", var * inverse + eps)
        k.put(rstd, rstds, r)
        wide = k.wide(rstd)
        if every is not None:
            _spread_affine(k, x, o, mean, wide, weight, bias, r, every)
            return

        def write(j: Value, m: Value | None, around: bool) -> None:
            v = k.load(x, j, m)
            v = (v - mean if mean is not None else v) * wide
            if weight is not None:
                w = k.load(weight, j, m)
                v = f.fma(v, w, k.load(bias, j, m)) if bias is not None else v * w
            k.store(v, o, j, m, stream=around)
        k.map(write, [o] if stream else [])
    k.each(row)


def _square(k: Rows, x: Value, mean: Value | None, j: Value, m: Value | None) -> Value:
    v = k.load(x, j, m)
    if mean is not None:
        v = v - mean
        if m is not None:
            v = k.f.select(m, v, k.f.const(v.ty, 0.0))
    return v * v


def _spread_affine(k: Rows, x: Value, o: Value, mean: Value | None, rstd: Value,
                   weight: Value | None, bias: Value | None, r: Value, every: Value) -> None:
    """Group norm's result: weight and bias belong to runs of `every` columns (channels)."""
    f = k.f
    runs = k.columns / every
    groups = k.frame.geometry(5)
    first = (r % groups) * runs

    def channel(c: Value, _: list[Value]) -> list[Value]:
        w = k.wide(k.scalar(weight, first + c)) if weight is not None else None
        b = k.wide(k.scalar(bias, first + c)) if bias is not None else None

        def turn(j: Value, m: Value | None, _: list[Value]) -> list[Value]:
            v = k.load(x, j, m)
            v = (v - mean if mean is not None else v) * rstd
            v = v * w if w is not None else v
            k.store(v + b if b is not None else v, o, j, m)
            return []
        start = c * every
        f.vector_loop(start, start + every, k.n, [], turn)
        return []
    f.loop(f.i64(0), runs, 1, [], channel)


def _backward(k: Rows, rms: bool, affine: str, gradients: bool, stream: bool) -> None:
    """ct, x, [mean], rstd, [weight], out, [weight partials], [bias partials]."""
    f, frame = k.f, k.frame
    at = iter(range(16))
    cts, xs = frame.array(next(at)), frame.array(next(at))
    means = None if rms else frame.array(next(at))
    rstds = frame.array(next(at))
    weight = frame.array(next(at)) if "w" in affine else None
    outs = frame.array(next(at))
    partial = {kind: frame.array(next(at)) for kind in affine} if gradients else {}
    inverse = 1.0 / f.cast("sitofp", k.columns, k.register)

    def begin(c: Value) -> None:
        zero = f.const(k.ty, 0.0)
        for p in partial.values():
            clear(k.row(p, c, k.register), zero)

    def clear(p: Value, zero: Value) -> None:
        k.map(lambda j, m, _: k.store(zero, p, j, m, k.register))

    def row(r: Value) -> None:
        ct, x, o = k.row(cts, r), k.row(xs, r), k.row(outs, r)
        mean = k.wide(_stat(k, means, r)) if means is not None else None
        rstd = k.wide(_stat(k, rstds, r))

        def parts(j: Value, m: Value | None) -> tuple[Value, Value, Value]:
            g, v = k.load(ct, j, m), k.load(x, j, m)
            hat = (v - mean if mean is not None else v) * rstd
            return g, hat, g * k.load(weight, j, m) if weight is not None else g

        def sums(j: Value, m: Value | None) -> list[Value]:
            _, hat, h = parts(j, m)
            return [h * hat] if rms else [h * hat, h]
        total = k.reduce(["add"] * (1 if rms else 2), sums, unroll=2)
        with_hat = k.wide(total[0] * inverse)
        alone = None if rms else k.wide(total[1] * inverse)
        chunk = r / k.group
        rows_of = {kind: k.row(p, chunk, k.register) for kind, p in partial.items()}

        def write(j: Value, m: Value | None, around: bool) -> None:
            g, hat, h = parts(j, m)
            v = h - hat * with_hat
            k.store((v - alone if alone is not None else v) * rstd, o, j, m, stream=around)
            for kind, p in rows_of.items():
                old = k.load(p, j, m, k.register)
                new = f.fma(g, hat, old) if kind == "w" else old + g
                k.store(new, p, j, m, k.register)
        k.map(write, [o] if stream else [])
    k.each(row, begin)


def _stat(k: Rows, p: Value, r: Value) -> Value:
    return k.f.load(k.f.at(p, k.register, r), k.register)


def _compute_dtype(x: Array) -> Any:
    return np.float64 if x.dtype == np.float64 else np.float32


def _affine(weight: Array | None, bias: Array | None) -> str:
    return ("w" if weight is not None else "") + ("b" if bias is not None else "")


def _fits(x: Array, columns: int, *operands: Array | None) -> bool:
    if x.size == 0 or columns == 0 or not rows.plain(x):
        return False
    for a in operands:
        if a is not None and (not rows.plain(a) or a.dtype != x.dtype or a.size != columns):
            return False
    return True


def layer_norm(x: Array, weight: Array | None = None, bias: Array | None = None, *,
               eps: float = 1e-5, columns: int | None = None) -> Any:
    """Layer norm over the last `columns` elements (the last axis unless given).

    Args:
        x: C-contiguous (..., columns).
        weight, bias: (columns,) in the dtype of x; a bias needs a weight.

    Returns:
        (out, mean, rstd), the statistics one per row in the compute dtype; NotImplemented where
        strides or dtypes do not fit.

    >>> r = layer_norm(np.array([[1., 3.]], np.float32), eps=0.0)
    >>> r is NotImplemented or r[0].tolist() == [[-1.0, 1.0]]
    True
    """
    return _norm(False, x, weight, bias, eps, columns)


def rms_norm(x: Array, weight: Array | None = None, *, eps: float = 1e-6,
             columns: int | None = None) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis: (out, rstd), or NotImplemented.

    >>> r = rms_norm(np.array([[3., -3.]], np.float32), eps=0.0)
    >>> r is NotImplemented or r[0].tolist() == [[1.0, -1.0]]
    True
    """
    return _norm(True, x, weight, None, eps, columns)


def _norm(rms: bool, x: Array, weight: Array | None, bias: Array | None, eps: float,
          columns: int | None) -> Any:
    n = columns or (x.shape[-1] if x.ndim else 0)
    if not _fits(x, n, weight, bias) or (weight is None and bias is not None):
        return NotImplemented
    affine = _affine(weight, bias)
    name = "rms_norm" if rms else "layer_norm"
    entry = rows.compiled(_forward, name, x.dtype, 2 + len(affine) + (1 if rms else 2), 0, 1,
                          (rms, affine, False, codegen.streams(x.nbytes)))
    if entry is None:
        return NotImplemented
    count = x.size // n
    out = np.empty(x.shape, x.dtype)
    stats = [np.empty(count, _compute_dtype(x)) for _ in range(1 if rms else 2)]
    operands = [x, *[a for a in (weight, bias) if a is not None], out, *stats]
    entry(rows.run_address(), rows.row_geometry(count, n, x.itemsize)[1], *operands, eps)
    return (out, *stats)


def layer_norm_backward(ct: Array, x: Array, mean: Array, rstd: Array,
                        weight: Array | None = None, *, bias: bool = False,
                        gradients: bool = True, columns: int | None = None) -> Any:
    """Cotangents of layer norm: (cx, cweight, cbias), all three in one pass.

    Args:
        ct, x: C-contiguous (..., columns) of one dtype.
        mean, rstd: the forward's statistics.
        bias: whether there is a bias.
        gradients: whether weight and bias want cotangents; those not wanted come back as None.

    Returns:
        The tuple, or NotImplemented where strides or dtypes do not fit.
    """
    affine = ("w" if weight is not None else "") + ("b" if bias else "")
    return _norm_backward(False, ct, x, [mean, rstd], weight, affine, gradients, columns)


def rms_norm_backward(ct: Array, x: Array, rstd: Array, weight: Array | None = None, *,
                      gradients: bool = True, columns: int | None = None) -> Any:
    """Cotangents of RMS norm: (cx, cweight), or NotImplemented; see `layer_norm_backward`."""
    got = _norm_backward(True, ct, x, [rstd], weight, "w" if weight is not None else "",
                         gradients, columns)
    return got if got is NotImplemented else got[:2]


def _norm_backward(rms: bool, ct: Array, x: Array, stats: list[Array], weight: Array | None,
                   affine: str, gradients: bool, columns: int | None) -> Any:
    n = columns or (x.shape[-1] if x.ndim else 0)
    if not _fits(x, n, weight) or not rows.plain(ct, *stats) or ct.dtype != x.dtype:
        return NotImplemented
    count = x.size // n
    compute = _compute_dtype(x)
    if ct.size != x.size or [s for s in stats if s.size != count or s.dtype != compute]:
        return NotImplemented
    gradients = gradients and bool(affine)
    arrays = 3 + len(stats) + ("w" in affine) + (len(affine) if gradients else 0)
    entry = rows.compiled(_backward, "norm_backward", x.dtype, arrays, 0, 0,
                          (rms, affine, gradients, codegen.streams(x.nbytes)))
    if entry is None:
        return NotImplemented
    _, address, chunks = rows.row_geometry(count, n, x.itemsize, _GROUPS)
    out = np.empty(x.shape, x.dtype)
    partial = [np.empty((chunks, n), compute) for _ in affine] if gradients else []
    operands = [ct, x, *stats, *([weight] if weight is not None else []), out, *partial]
    entry(rows.run_address(), address, *operands)
    total = [p[0] if chunks == 1 else np.add.reduce(p, axis=0) for p in partial]
    sums = dict(zip(affine, [t.astype(x.dtype, copy=False) for t in total], strict=False))
    return out, sums.get("w"), sums.get("b")


def group_norm(x: Array, groups: int, weight: Array | None = None, bias: Array | None = None, *,
               eps: float = 1e-5) -> Any:
    """Group norm of C-contiguous (N, C, ...): (out, mean, rstd), statistics (N * groups,).

    Weight and bias are (C,). NotImplemented where strides, dtypes or sizes do not fit.

    >>> r = group_norm(np.array([[[1.], [3.]]], np.float32), 1, eps=0.0)
    >>> r is NotImplemented or r[0].ravel().tolist() == [-1.0, 1.0]
    True
    """
    if x.ndim < 2 or not _fits(x, x.shape[1], weight, bias) or x.shape[1] % groups:
        return NotImplemented
    channels = x.shape[1]
    per = channels // groups
    columns = x.size // (x.shape[0] * groups)
    affine = _affine(weight, bias)
    entry = rows.compiled(_forward, "group_norm", x.dtype, 4 + len(affine), 0, 1,
                          (False, affine, True))
    if entry is None:
        return NotImplemented
    count = x.shape[0] * groups
    out = np.empty(x.shape, x.dtype)
    stats = [np.empty(count, _compute_dtype(x)) for _ in range(2)]
    operands = [x, *(a for a in (weight, bias) if a is not None), out, *stats]
    address = rows.row_geometry(count, columns, x.itemsize, 0, (columns // per, groups))[1]
    entry(rows.run_address(), address, *operands, eps)
    return (out, *stats)
