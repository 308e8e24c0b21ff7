"""Draws of PyTorch's less common distributions from a `Stream`: how many uniform numbers each
takes, and what it makes of them. Rejection takes numbers one by one.

Sources, with PyTorch's (ATen, native/Distributions.cpp): Hoermann, "The transformed rejection
method for generating Poisson random variables" (1993) and "The generation of binomial random
variates" (1993); Marsaglia and Tsang, "A simple method for generating gamma variables" (2000).
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.kernels.stream import F32, F64, Stream, Tape, fused

Array = np.ndarray[Any, Any]


def exponential(s: Stream, shape: Any, rate: float) -> Array:
    """Exponential numbers, float64."""
    u = s.uniform(shape, F64)
    np.log1p(np.negative(u, out=u), out=u)
    return np.multiply(u, -1.0 / rate, out=u)


def geometric(s: Stream, shape: Any, p: float) -> Array:
    """How many trials the first success takes."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.ceil(np.log(s.uniform(shape, F64)) / math.log1p(-p)))


def cauchy(s: Stream, shape: Any, median: float, sigma: float) -> Array:
    """Cauchy numbers, float64."""
    return fused(np.tan(np.pi * (s.uniform(shape, F64) - 0.5)), sigma, median)


def log_normal(s: Stream, shape: Any, mean: float, std: float) -> Array:
    """Exponentials of normal numbers that are drawn one by one."""
    return np.exp(s.normal(shape, F64, mean, std, single=True))


def poisson(s: Stream, rates: Array) -> Array:
    """Counts, one after the other."""
    return _each(s, _poisson, rates)


def binomial(s: Stream, counts: Array, chances: Array) -> Array:
    """Successes, one after the other; nan where a chance is not a number."""
    return _each(s, _binomial, *np.broadcast_arrays(counts, chances))


def log_gamma(s: Stream, orders: Array) -> Array:
    """Logarithms of gamma variates of scale 1, one after the other: those of orders near 0 would
    underflow."""
    single = orders.dtype != F64
    return _each(s, lambda t, a: _log_gamma(t, a, single), orders)


def flips(s: Stream, chances: Array) -> Array:
    """Whether each happens: 53 bits decide where the chances are float64, else 24."""
    if chances.dtype == F64:
        return s.uniform(chances.shape, F64) < chances
    return s.uniform(chances.shape, F32) < chances.astype(F32, copy=False)


def race(s: Stream, rows: Array) -> Array:
    """Weights (R, K) over exponential numbers: the largest of a row is drawn first, the next one
    second, without replacement (Efraimidis and Spirakis 2006)."""
    with np.errstate(divide="ignore"):
        return np.asarray(rows / exponential(s, rows.shape, 1.0).astype(rows.dtype))


def picks(s: Stream, rows: Array, n: int) -> Array:
    """`n` indices for each row (R, K) of weights, with replacement: (R, n). One is the first of a
    race, which draws K numbers for a row; of several, each takes one number."""
    if n == 1:
        return race(s, rows).argmax(1)[:, None]
    edges = np.cumsum(rows.astype(F64 if rows.dtype == F64 else F32), 1)
    edges /= edges[:, -1:]
    edges[:, -1:] = 1
    u = s.uniform((len(rows), n), F64)
    out = np.empty(u.shape, np.int64)
    for i, (e, v) in enumerate(zip(edges.astype(F64), u, strict=True)):
        out[i] = np.searchsorted(e, v)
    return out


def von_mises(s: Stream, loc: Array, concentration: Array) -> Array:
    """Angles of [-pi, pi), all drawn again until each was accepted once (Best and Fisher 1979)."""
    k = concentration.astype(F64)
    tau = 1 + np.sqrt(1 + 4 * k * k)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = (tau - np.sqrt(2 * tau)) / (2 * k)
        r = np.where(k < 1e-5, 1 / k + k, (1 + rho * rho) / (2 * rho))
        angle, done = np.empty(k.shape), np.zeros(k.shape, bool)
        while not done.all():
            u1, u2, u3 = s.uniform((3, *k.shape), F64)
            z = np.cos(np.pi * u1)
            f = (1 + r * z) / (r + z)
            c = k * (r - f)
            accepted = (c * (2 - c) - u2 > 0) | (np.log(c / u2) + 1 - c >= 0)
            angle = np.where(accepted, np.sign(u3 - 0.5) * np.arccos(f), angle)
            done |= accepted
    return np.asarray((angle + np.pi + loc) % (2 * np.pi) - np.pi)


def _each(s: Stream, draw: Callable[..., float], *params: Array) -> Array:
    with s.tape() as tape:
        rows = zip(*(p.astype(F64).ravel().tolist() for p in params), strict=True)
        return np.array([draw(tape, *row) for row in rows], F64).reshape(params[0].shape)


def _poisson(tape: Tape, rate: float) -> float:
    if rate < 10:
        floor, count, product = math.exp(-rate), 0, 1.0
        while rate > 0:
            product *= tape.uniform()
            if product <= floor:
                break
            count += 1
        return count
    log = math.log(rate)
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse, fast = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)
    while True:
        u, v = tape.uniform() - 0.5, tape.uniform()
        us = 0.5 - abs(u)
        k = math.floor((2 * a / us + b) * u + rate + 0.43) if us else -1
        if us >= 0.07 and v <= fast:
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        if (math.log(v) + math.log(inverse) - math.log(a / (us * us) + b)
                <= -rate + k * log - math.lgamma(k + 1)):
            return k


def _binomial(tape: Tape, count: float, p: float) -> float:
    if count <= 0 or p <= 0:
        return 0.0
    if p >= 1:
        return count
    if p > 0.5:
        return count - _binomial(tape, count, 1.0 - p)
    if p <= 0.5:
        return (_rejected if count * p >= 10 else _inverted)(tape, count, p)
    return math.nan


def _inverted(tape: Tape, count: float, p: float) -> float:
    """By the waiting times between successes."""
    successes, at, log = 0, 0.0, math.log1p(-p)
    while True:
        u = tape.uniform()
        at += math.ceil(math.log(u) / log) if u else math.inf
        if at > count:
            return successes
        successes += 1


_STIRLING = (0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
             0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
             0.00925546218271273, 0.00833056343336287)


_THIRD, _SQUEEZE = float(np.float32(1) / np.float32(3)), float(np.float32(0.0331))


def _tail(k: float) -> float:
    """What Stirling's formula leaves of log k!"""
    if k <= 9:
        return _STIRLING[int(k)]
    square = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)


def _rejected(tape: Tape, count: float, p: float) -> float:
    """Hoermann's BTRS, for count p >= 10 and p <= 1/2."""
    deviation = math.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre, fast, r = count * p + 0.5, 0.92 - 4.2 / b, p / (1 - p)
    alpha, mode = (2.83 + 5.1 / b) * deviation, math.floor((count + 1) * p)
    while True:
        u, v = tape.uniform() - 0.5, tape.uniform()
        us = 0.5 - abs(u)
        k = math.floor((2 * a / us + b) * u + centre) if us else -1
        if us >= 0.07 and v <= fast:
            return k
        if k < 0 or k > count:
            continue
        bound = ((mode + 0.5) * math.log((mode + 1) / (r * (count - mode + 1)))
                 + (count + 1) * math.log((count - mode + 1) / (count - k + 1))
                 + (k + 0.5) * math.log(r * (count - k + 1) / (k + 1))
                 + _tail(mode) + _tail(count - mode) - _tail(k) - _tail(count - k))
        if math.log(v * alpha / (a / (us * us) + b)) <= bound:
            return k


def _log_gamma(tape: Tape, order: float, single: bool) -> float:
    """`single`: orders are float32, and so is what is made of them alone."""
    if order == 0:
        return -math.inf
    scale = 0.0
    if order < 1:
        power = float(np.float32(1) / np.float32(order)) if single else 1.0 / order
        scale = math.log(1.0 - tape.uniform()) * power
        order = float(np.float32(order) + np.float32(1)) if single else order + 1.0
    d = float(np.float32(order) - np.float32(_THIRD)) if single else order - _THIRD
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        y = 0.0
        while y <= 0:
            x = tape.normal()
            y = 1.0 + c * x
        v, u, xx = y * y * y, 1.0 - tape.uniform(), x * x
        if u < 1.0 - _SQUEEZE * xx * xx or math.log(u) < 0.5 * xx + d * (1.0 - v + math.log(v)):
            return scale + math.log(d * v)
