"""Cross-entropy where the classes are not the last axis: logits (N, C, S), a vector of positions
at a time.

The formulas are those of `softmax.cross_entropy` and its backward; a row there is a position here.
"""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import rows
from adjoint.kernels.ir import Value, vec
from adjoint.kernels.maps import Maps, map_geometry
from adjoint.kernels.mathlib import apply
from adjoint.kernels.rows import Rows

Array = NDArray[Any]
_RUN = 512              # positions of a chunk


class _Maps(Maps):
    """What is read at a position."""

    def __init__(self, k: Rows) -> None:
        super().__init__(k)
        frame = k.frame
        self.x, self.target = frame.array(0), frame.array(1)
        self.ignored = k.f.splat(frame.integer(0), k.n)
        self.eps = frame.real(0, k.register)
        self.total_weight = k.wide(frame.real(1, k.register))
        self.weight: Value | None = None
        self.share = self.eps / k.f.cast("sitofp", self.classes, k.register)

    def targets(self, place: Value, m: Value | None) -> tuple[Value, Value]:
        """(classes, which of them are ignored) at a vector of places."""
        t = self.f.load(self.f.at(self.target, "i64", place), vec(self.k.n, "i64"), mask=m)
        return t, t.compare("eq", self.ignored)

    def class_weight(self, c: Value) -> Value | None:
        return self.k.wide(self.k.scalar(self.weight, c)) if self.weight is not None else None


def _forward(k: Rows, weighted: bool, smooth: bool) -> None:
    """x, target, [weight], loss, lse, share; integers: ignore_index; reals: smoothing, W."""
    maps, f = _Maps(k), k.f
    maps.weight = k.frame.array(2) if weighted else None
    outs = [k.frame.array(2 + weighted + i) for i in range(3)]
    zero, one = f.const(k.ty, 0.0), f.const(k.ty, 1.0)

    def at(example: Value, j: Value, m: Value | None) -> None:
        base, place = maps.example(maps.x, example), example * maps.positions + j
        t, skip = maps.targets(place, m)
        top, = maps.along([f.const(k.ty, -np.inf)], lambda c, v: [
            k.join("max", v[0], maps.read(base, c, j, m))])

        def add(c: Value, v: list[Value]) -> list[Value]:
            x, w = maps.read(base, c, j, m), maps.class_weight(c)
            here = t.compare("eq", f.splat(c, k.n))
            new = [v[0] + apply(f, "exp_negative", x - top), f.select(here, x, v[1])]
            if w is not None:
                new.append(f.select(here, w, v[2]))
            if smooth:
                new.append(v[-1] + (x * w if w is not None else x))
            return new
        got = maps.along([zero, zero, *[one] * weighted, *[zero] * smooth], add)
        log_total = apply(f, "log", got[0])
        lse, w = top + log_total, got[2] if weighted else one
        loss = w * (log_total - (got[1] - top))
        if smooth:
            spread = maps.total_weight * lse - got[-1]
            loss = loss * k.wide(1.0 - maps.eps) + spread * k.wide(maps.share)
        found = [f.select(skip, zero, loss), lse, f.select(skip, zero, w)]
        for out, v in zip(outs, found, strict=True):
            k.store(v, out, place, m, k.register)
    maps.each(at)


def _backward(k: Rows, weighted: bool, smooth: bool) -> None:
    """x, target, lse, scale, [weight], out; integers: ignore_index; reals: smoothing, W."""
    maps, f = _Maps(k), k.f
    lses, scales = k.frame.array(2), k.frame.array(3)
    maps.weight = k.frame.array(4) if weighted else None
    outs = k.frame.array(4 + weighted)
    zero = f.const(k.ty, 0.0)

    def at(example: Value, j: Value, m: Value | None) -> None:
        base, place = maps.example(maps.x, example), example * maps.positions + j
        t, skip = maps.targets(place, m)
        lse = k.load(lses, place, m, k.register)
        scale = f.select(skip, zero, k.load(scales, place, m, k.register))
        hit = scale
        if weighted:
            w, = maps.along([zero], lambda c, v: [
                f.select(t.compare("eq", f.splat(c, k.n)), maps.class_weight(c) or v[0], v[0])])
            hit = hit * w
        each = scale * k.wide(maps.share) if smooth else None
        if each is not None:
            hit = hit * k.wide(1.0 - maps.eps)
        factor = hit + each * maps.total_weight if each is not None else hit
        to = maps.example(outs, example)

        def write(c: Value, _: list[Value]) -> list[Value]:
            p = apply(f, "exp_negative", maps.read(base, c, j, m) - lse)
            g = f.select(skip, zero, p * factor)
            if each is not None:
                v = maps.class_weight(c)
                g = g - (each * v if v is not None else each)
            here = t.compare("eq", f.splat(c, k.n))
            k.store(f.select(here, g - hit, g), to, c * maps.positions + j, m)
            return []
        maps.along([], write)
    maps.each(at)


def forward(x: Array, target: Array, weight: Array | None, ignore_index: int, smoothing: float,
            total: float) -> Any:
    """(loss, lse, share), one number per position each, in the order of `target`; NotImplemented
    where there is no generated code for the dtype. Shapes and targets have been checked."""
    weighted = weight is not None
    entry = rows.compiled(_forward, "cross_entropy_maps", x.dtype, 6 if weighted else 5, 1, 2,
                          (weighted, smoothing != 0))
    if entry is None:
        return NotImplemented
    outs = tuple([np.empty(target.size, np.float64 if x.dtype == np.float64 else np.float32)
                  for _ in range(3)])
    operands = [x, target, *([weight] if weight is not None else []), *outs]
    entry(rows.run_address(), _address(x), *operands, ignore_index, smoothing, total)
    return outs


def backward(scale: Array, x: Array, target: Array, lse: Array, weight: Array | None,
             ignore_index: int, smoothing: float, total: float) -> Any:
    """The gradient to the logits, like `x`; NotImplemented like `forward`."""
    weighted = weight is not None
    entry = rows.compiled(_backward, "cross_entropy_maps_backward", x.dtype, 6 if weighted else 5,
                          1, 2, (weighted, smoothing != 0))
    if entry is None:
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    operands = [x, target, lse, scale, *([weight] if weight is not None else []), out]
    entry(rows.run_address(), _address(x), *operands, ignore_index, smoothing, total)
    return out


def _address(x: Array) -> int:
    return map_geometry(x.shape[0], x.shape[1], x.size // (x.shape[0] * x.shape[1]), _RUN)[1]
