"""Softmax, log-softmax and cross-entropy along contiguous rows, forward and backward.

The forward of cross-entropy keeps one number per row (the log-sum-exp); its backward recomputes
the probabilities and writes the gradient in one pass. Numerics: the row maximum is subtracted
first, sums run over independent partial sums in blocks.
"""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, cross_maps, maps, rows
from adjoint.kernels.ir import Value
from adjoint.kernels.mathlib import apply
from adjoint.kernels.rows import Rows

Array = NDArray[Any]
_SCRATCH = 8192         # elements of the longest row that is kept on the stack of its thread
_BLOCK = 4096           # elements of a long row that are read twice while they are in the cache


def _shifted_sum(k: Rows, x: Value) -> tuple[Value, Value]:
    """(max, sum of exp(x - max)) of a row, the maximum as a vector.

    One turn over the row in blocks that stay in the first cache: the maximum of a block, then its
    exponentials, while memory brings the next one; sums of before move to the new maximum (M.
    Milakov, N. Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867).
    Every lane has a maximum of its own until the end. They begin with the lowest finite number,
    so that lanes that met -inf alone count nothing.
    """
    f = k.f
    lowest = float(np.finfo(np.float64 if k.register == "double" else np.float32).min)

    def block(lo: Value, carried: list[Value]) -> list[Value]:
        before, total = carried
        end = f.intrinsic("smin", lo + _BLOCK, k.columns)
        top, = f.vector_loop(
            lo, end, k.n, [before], lambda j, m, c: [k.join("max", c[0], k.load(x, j, m))],
            unroll=4, combine=lambda a, b: [k.join("max", a[0], b[0])])

        def exps(j: Value, m: Value | None, c: list[Value]) -> list[Value]:
            f.fetch(f.at(x, k.stored, j + _BLOCK))
            return [c[0] + apply(f, "exp_negative", k.load(x, j, m) - top)]
        part, = f.vector_loop(lo, end, k.n, [f.const(k.ty, 0.0)], exps, unroll=2,
                              combine=lambda a, b: [a[0] + b[0]])
        return [top, total * apply(f, "exp_negative", before - top) + part]

    top, total = f.loop(f.i64(0), k.columns, _BLOCK,
                        [f.const(k.ty, lowest), f.const(k.ty, 0.0)], block)
    wide = k.wide(k.lanes_joined("max", top))
    return wide, k.lanes_joined("add", total * apply(f, "exp_negative", top - wide))


def _kept_sum(k: Rows, x: Value, kept: Value | None) -> tuple[Value, Value]:
    """The same in two turns over the row, which write the exponentials to `kept` (if there is room
    for them: the bits have to be the same without)."""
    top, = k.reduce(["max"], lambda j, m: [k.load(x, j, m)])
    wide = k.wide(top)

    def exps(j: Value, m: Value | None) -> list[Value]:
        k.ahead(x, j)
        e = apply(k.f, "exp_negative", k.load(x, j, m) - wide)
        if kept is not None:
            k.store(e, kept, j, m, k.register)
        return [e]
    total, = k.reduce(["add"], exps, unroll=2)
    return wide, total


def _softmax(k: Rows, stream: bool, short: bool) -> None:
    f = k.f
    xs, ys = k.frame.array(0), k.frame.array(1)
    room = k.scratch() if stream and short else None

    def row(r: Value) -> None:
        x, y = k.row(xs, r), k.row(ys, r)
        kept = y if not stream and k.stored == k.register else room
        wide, total = _kept_sum(k, x, kept)
        scale = k.wide(1.0 / total)

        def write(j: Value, m: Value | None, s: bool) -> None:
            if kept is not None:
                e = k.load(kept, j, m, k.register)
            else:
                e = apply(f, "exp_negative", k.load(x, j, m) - wide)
            k.store(e * scale, y, j, m, stream=s)
        k.map(write, [y] if stream else [])
    k.each(row)


def _softmax_backward(k: Rows, stream: bool) -> None:
    ys, gs, os = (k.frame.array(i) for i in range(3))

    def row(r: Value) -> None:
        y, g, o = k.row(ys, r), k.row(gs, r), k.row(os, r)
        dot, = k.reduce(["add"], lambda j, m: [k.load(y, j, m) * k.load(g, j, m)])
        wide = k.wide(dot)

        def write(j: Value, m: Value | None, s: bool) -> None:
            if s:
                k.ahead(y, j)
                k.ahead(g, j)
            k.store(k.load(y, j, m) * (k.load(g, j, m) - wide), o, j, m, stream=s)
        k.map(write, [o] if stream else [])
    k.each(row)


def _logsumexp(k: Rows) -> None:
    xs, ys = k.frame.array(0), k.frame.array(1)

    def row(r: Value) -> None:
        f = k.f
        x = k.row(xs, r)
        top, = k.reduce(["max"], lambda j, m: [k.load(x, j, m)])
        finite = f.intrinsic("fabs", top).compare("olt", float("inf"))
        shift = f.select(finite, top, k.number(0.0))   # rows of -inf give -inf, of inf give inf
        wide = k.wide(shift)
        total, = k.reduce(["add"], lambda j, m: [apply(f, "exp", k.load(x, j, m) - wide)],
                          unroll=2)
        k.put(shift + apply(f, "log", total), ys, r, k.stored)
    k.each(row)


def _log_softmax(k: Rows, stream: bool) -> None:
    xs, ys = k.frame.array(0), k.frame.array(1)

    def row(r: Value) -> None:
        x, y = k.row(xs, r), k.row(ys, r)
        top, total = _shifted_sum(k, x)
        log = k.wide(apply(k.f, "log", total))
        k.map(lambda j, m, s: k.store((k.load(x, j, m) - top) - log, y, j, m, stream=s),
              [y] if stream else [])
    k.each(row)


def _log_softmax_backward(k: Rows, stream: bool) -> None:
    ys, gs, os = (k.frame.array(i) for i in range(3))

    def row(r: Value) -> None:
        y, g, o = k.row(ys, r), k.row(gs, r), k.row(os, r)
        total, = k.reduce(["add"], lambda j, m: [k.load(g, j, m)])
        wide = k.wide(total)

        def write(j: Value, m: Value | None, s: bool) -> None:
            p = apply(k.f, "exp", k.load(y, j, m))
            k.store(k.load(g, j, m) - p * wide, o, j, m, stream=s)
        k.map(write, [o] if stream else [])
    k.each(row)


def _cross_entropy(k: Rows, weighted: bool, smooth: bool) -> None:
    """x, target, [weight], loss, lse, share; integers: ignore_index; reals: smoothing, W."""
    f, frame = k.f, k.frame
    arrays = [frame.array(i) for i in range(6 if weighted else 5)]
    xs, targets = arrays[:2]
    weight = arrays[2] if weighted else None
    loss, lse, share = arrays[-3:]
    ignored = frame.integer(0)
    eps, total_weight = frame.real(0, k.register), frame.real(1, k.register)

    def row(r: Value) -> None:
        x = k.row(xs, r)
        top, total = _shifted_sum(k, x)
        log_total = apply(f, "log", total)
        log_sum = f.extract(top, 0) + log_total
        k.put(log_sum, lse, r)
        t = f.load(f.at(targets, "i64", r), "i64")
        skip = t.compare("eq", ignored)
        at = f.select(skip, f.i64(0), t)
        w = k.scalar(weight, at) if weight is not None else k.number(1.0)
        value = w * (log_total - (k.scalar(x, at) - f.extract(top, 0)))
        if smooth:
            spread = _spread(k, x, weight, log_sum, total_weight)
            real = f.cast("sitofp", k.columns, k.register)
            value = value * (1.0 - eps) + spread * (eps / real)
        zero = k.number(0.0)
        k.put(f.select(skip, zero, value), loss, r)
        k.put(f.select(skip, zero, w), share, r)
    k.each(row)


def _spread(k: Rows, x: Value, weight: Value | None, log_sum: Value, total: Value) -> Value:
    """The sum of w_c (lse - x_c) over the row."""
    if weight is None:
        s, = k.reduce(["add"], lambda j, m: [k.load(x, j, m)])
    else:
        s, = k.reduce(["add"], lambda j, m: [k.load(x, j, m) * k.load(weight, j, m)])
    return total * log_sum - s


def _cross_entropy_backward(k: Rows, weighted: bool, smooth: bool, stream: bool) -> None:
    """x, target, lse, scale, [weight], out; integers: ignore_index; reals: smoothing, W."""
    f, frame = k.f, k.frame
    arrays = [frame.array(i) for i in range(6 if weighted else 5)]
    xs, targets, lse, scales = arrays[:4]
    weight = arrays[4] if weighted else None
    outs = arrays[-1]
    ignored = frame.integer(0)
    eps, total_weight = frame.real(0, k.register), frame.real(1, k.register)

    def row(r: Value) -> None:
        x, o = k.row(xs, r), k.row(outs, r)
        t = f.load(f.at(targets, "i64", r), "i64")
        skip = t.compare("eq", ignored)
        at = f.select(skip, f.i64(0), t)
        w = k.scalar(weight, at) if weight is not None else k.number(1.0)
        scale = f.load(f.at(scales, k.register, r), k.register)
        scale = f.select(skip, k.number(0.0), scale)
        hit = scale * w * (1.0 - eps) if smooth else scale * w
        each = scale * (eps / f.cast("sitofp", k.columns, k.register)) if smooth else None
        factor = hit + each * total_weight if each is not None else hit
        lowest = k.wide(f.load(f.at(lse, k.register, r), k.register))
        wide = k.wide(factor)
        spread = k.wide(each) if each is not None else None

        def write(j: Value, m: Value | None, s: bool) -> None:
            g = apply(f, "exp_negative", k.load(x, j, m) - lowest) * wide
            if spread is not None:
                g = g - (spread * k.load(weight, j, m) if weight is not None else spread)
            k.store(g, o, j, m, stream=s)

        def compute() -> list[Value]:
            k.map(write, [o] if stream else [])
            if stream:
                codegen.fence(f)            # the target's element is written once more
            p = apply(f, "exp_negative", k.scalar(x, at) - f.extract(lowest, 0)) * factor
            if each is not None:
                p = p - (each * w)
            k.put(p - hit, o, at, k.stored)
            return []

        def clear() -> list[Value]:
            zero = f.const(k.ty, 0.0)
            k.map(lambda j, m, s: k.store(zero, o, j, m))
            return []
        f.when(skip ^ True, compute)
        f.when(skip, clear)
    k.each(row)


def _unary(emit: Any, name: str, x: Array, axis: int, *variant: Any) -> Any:
    if not rows.plain(x) or not rows.last_axis(x, axis) or x.size == 0:
        return NotImplemented
    entry = rows.compiled(emit, name, x.dtype, 2, variant=(codegen.streams(x.nbytes), *variant))
    if entry is None:
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    entry(rows.run_address(), rows.row_geometry(*rows.as_rows(x), x.itemsize)[1], x, out)
    return out


def _unary_backward(emit: Any, name: str, ct: Array, out: Array, axis: int) -> Any:
    if (not rows.plain(ct, out) or not rows.last_axis(out, axis) or out.size == 0
            or ct.shape != out.shape or ct.dtype != out.dtype):
        return NotImplemented
    entry = rows.compiled(emit, name, out.dtype, 3, variant=(codegen.streams(out.nbytes),))
    if entry is None:
        return NotImplemented
    grad = np.empty(out.shape, out.dtype)
    entry(rows.run_address(), rows.row_geometry(*rows.as_rows(out), out.itemsize)[1], out, ct,
          grad)
    return grad


def _inner(x: Array, axis: int) -> bool:
    """Whether `axis` has others behind it."""
    return 0 <= axis < x.ndim - 1


def softmax(x: Array, *, axis: int = -1) -> Any:
    """exp(x) / sum(exp(x)) along an axis of a C-contiguous array.

    NotImplemented for other strides, a dtype without generated code, or another axis than the last
    with few positions behind it.

    >>> y = softmax(np.zeros((2, 4), np.float32))
    >>> y is NotImplemented or bool((y == 0.25).all())
    True
    """
    if _inner(x, axis):
        return maps.softmax(x, axis=axis, log=False)
    return _unary(_softmax, "softmax", x, axis, x.ndim > 0 and x.shape[-1] <= _SCRATCH)


def softmax_backward(ct: Array, out: Array, *, axis: int = -1) -> Any:
    """out * (ct - sum(ct * out)) along an axis; NotImplemented like `softmax`."""
    if _inner(out, axis):
        return maps.softmax(ct, out, axis=axis, log=False)
    return _unary_backward(_softmax_backward, "softmax_backward", ct, out, axis)


def log_softmax(x: Array, *, axis: int = -1) -> Any:
    """x - log(sum(exp(x))) along an axis; NotImplemented like `softmax`."""
    if _inner(x, axis):
        return maps.softmax(x, axis=axis, log=True)
    return _unary(_log_softmax, "log_softmax", x, axis)


def log_softmax_backward(ct: Array, out: Array, *, axis: int = -1) -> Any:
    """ct - exp(out) * sum(ct) along an axis; NotImplemented like `softmax`."""
    if _inner(out, axis):
        return maps.softmax(ct, out, axis=axis, log=True)
    return _unary_backward(_log_softmax_backward, "log_softmax_backward", ct, out, axis)


def logsumexp(x: Array, *, axis: int = -1, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) along the last axis; NotImplemented like `softmax`.

    >>> y = logsumexp(np.zeros((2, 1), np.float32))
    >>> y is NotImplemented or y.tolist() == [0.0, 0.0]
    True
    """
    if not rows.plain(x) or not rows.last_axis(x, axis) or x.size == 0:
        return NotImplemented
    entry = rows.compiled(_logsumexp, "logsumexp", x.dtype, 2)
    if entry is None:
        return NotImplemented
    out = np.empty((*x.shape[:-1], 1) if keepdims else x.shape[:-1], x.dtype)
    entry(rows.run_address(), rows.row_geometry(*rows.as_rows(x), x.itemsize)[1], x, out)
    return out


def _targets_fit(target: Array, columns: int, ignore_index: int) -> bool:
    if target.size == 0:
        return False
    flat = target if target.ndim == 1 else target.reshape(-1)
    if int(np.maximum.reduce(flat.view(np.uint64))) < columns:      # (negative ones are large)
        return True
    kept = target[target != ignore_index]
    return kept.size == 0 or (int(kept.min()) >= 0 and int(kept.max()) < columns)


def cross_entropy(x: Array, target: Array, weight: Array | None = None, *,
                  ignore_index: int = -100, label_smoothing: float = 0.0) -> Any:
    """Row statistics of the cross-entropy of logits (N, C) or (N, C, ...) against int64 classes
    (N,) or (N, ...).

    Returns:
        (loss, lse, share), one number a target in the compute dtype: the unreduced loss (0 where
        ignored), the log-sum-exp, and the weight of the row's class (0 where ignored), whose sum
        is what the mean divides by. NotImplemented where strides, dtypes or a target do not fit.

    >>> r = cross_entropy(np.zeros((1, 4), np.float32), np.array([2]))
    >>> r is NotImplemented or abs(float(r[0][0]) - 1.3862944) < 1e-6
    True
    """
    if not _fits(x, target, weight) or not _targets_fit(target, x.shape[1], ignore_index):
        return NotImplemented
    if x.ndim > 2:
        return cross_maps.forward(x, target, weight, ignore_index, label_smoothing,
                                  _total(weight, x.shape[1]))
    weighted = weight is not None
    entry = rows.compiled(_cross_entropy, "cross_entropy", x.dtype, 6 if weighted else 5, 1, 2,
                          (weighted, label_smoothing != 0))
    if entry is None:
        return NotImplemented
    dtype = np.float64 if x.dtype == np.float64 else np.float32
    outs = [np.empty(x.shape[0], dtype) for _ in range(3)]
    operands = [x, target] + ([weight] if weight is not None else []) + outs
    entry(rows.run_address(), rows.row_geometry(*x.shape, x.itemsize)[1], *operands,
          ignore_index, label_smoothing, _total(weight, x.shape[1]))
    return tuple(outs)


def _total(weight: Array | None, columns: int) -> float:
    return float(columns) if weight is None else float(weight.sum(dtype=np.float64))


def _fits(x: Array, target: Array, weight: Array | None) -> bool:
    if (not rows.plain(x, target) or x.ndim < 2 or x.size == 0
            or target.shape != (x.shape[0], *x.shape[2:])):
        return False
    if target.dtype != np.int64:
        return False
    return weight is None or (rows.plain(weight) and weight.dtype == x.dtype
                              and weight.shape == x.shape[1:2])


def cross_entropy_backward(scale: Array, x: Array, target: Array, lse: Array,
                           weight: Array | None = None, *, ignore_index: int = -100,
                           label_smoothing: float = 0.0) -> Any:
    """The gradient of the cross-entropy to the logits, in one pass over them.

    Args:
        scale: one number a target in the dtype of `lse`: what each row's loss counts, so the
            cotangent of an unreduced loss, or cotangent / sum(share) for a mean.
        lse: of the forward.

    Returns:
        Like `x`: scale * [(1 - s) w_t (p - onehot) + s/C (p sum(w) - w)]; rows whose
        target is `ignore_index` are 0. NotImplemented like `cross_entropy`.
    """
    if not _fits(x, target, weight) or not rows.plain(scale, lse):
        return NotImplemented
    if scale.dtype != lse.dtype or scale.size != target.size or lse.size != target.size:
        return NotImplemented
    if x.ndim > 2:
        return cross_maps.backward(scale, x, target, lse, weight, ignore_index, label_smoothing,
                                   _total(weight, x.shape[1]))
    weighted = weight is not None
    entry = rows.compiled(
        _cross_entropy_backward, "cross_entropy_backward", x.dtype, 6 if weighted else 5, 1, 2,
        (weighted, label_smoothing != 0, codegen.streams(x.nbytes)))
    if entry is None:
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    operands = [x, target, lse, scale] + ([weight] if weight is not None else []) + [out]
    entry(rows.run_address(), rows.row_geometry(*x.shape, x.itemsize)[1], *operands,
          ignore_index, label_smoothing, _total(weight, x.shape[1]))
    return out
