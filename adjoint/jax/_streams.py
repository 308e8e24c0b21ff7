"""Draws by rejection: gamma variates, Poisson, binomial and multinomial counts, on NumPy's arrays.

Each loop splits its key and draws its uniforms in the order in which JAX does, so the same key
gives the same variates, up to the rounding of the logarithms that decide.

Sources: Marsaglia and Tsang 2000 (gamma); Knuth, and Hoermann 1993, "PTRS" (Poisson); geometric
steps (Devroye 1986) and Hoermann 1993, "BTRS" (binomial).
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.core.tensor import wrap
from adjoint.jax._table import T
from adjoint.ops.threefry import raw_bits, raw_fold, raw_philox

Raw = np.ndarray[Any, Any]
# (the dtype of the bits, how many are drawn, how many are the mantissa), by a float's name
_KINDS = {"bfloat16": ("uint16", 8, 7), "float16": ("uint16", 16, 10),
          "float32": ("uint32", 32, 23), "float64": ("uint64", 64, 52)}


# ------------------------------------------------------------------ keys and plain draws
def split(keys: Raw, n: int) -> list[Raw]:
    """n new keys of every key: arrays [..., 2]."""
    count = np.arange(n, dtype=np.uint32)
    return [_fold(keys, np.broadcast_to(c, keys.shape[:-1])) for c in count]


def _fold(keys: Raw, data: Raw) -> Raw:
    return np.concatenate([raw_fold(keys[..., i:i + 2], data)
                           for i in range(0, keys.shape[-1], 2)], -1)


def uniform(keys: Raw, shape: tuple[int, ...], kind: Any) -> Raw:
    """Uniform in [0, 1), of that shape for every key."""
    word, width, mantissa = _KINDS[np.dtype(kind).name]
    draw = raw_bits if keys.shape[-1] == 2 else raw_philox
    bits = (draw(keys, shape=shape, width=width) >> (width - mantissa)).astype(word)
    one = np.ones((), kind).view(word)
    return np.asarray((bits | one).view(kind) - np.ones((), kind))


def _normal(keys: Raw, kind: Any) -> Raw:
    """A standard normal variate for every key."""
    low = np.nextafter(np.array(-1, kind), np.array(0, kind), dtype=kind)
    u = np.maximum(low, uniform(keys, (), kind) * (np.ones((), kind) - low) + low)
    return np.asarray(T["erfinv"](wrap(u)).array * np.array(np.sqrt(2), kind))


# ------------------------------------------------------------------ gamma
def log_gamma(key: Raw, order: Raw) -> Raw:
    """Logarithms of gamma variates; an order below one is drawn one higher, and a power of a
    uniform draw brings it down."""
    kind, flat = order.dtype, order.reshape(-1)
    keys = _fold(key[None], np.arange(flat.size, dtype=np.uint32))
    low = flat < 1
    d = np.where(low, flat + kind.type(1), flat) - kind.type(1 / 3)
    with np.errstate(all="ignore"):
        c = kind.type(1 / 3) / np.sqrt(d)
        keys, last = split(keys, 2)
        cube = _cubes(keys, c, d)
        below = np.log1p(-uniform(last, (), kind))
        lift = np.where(~low | (below == 0), kind.type(0), below * (kind.type(1) / flat))
        return np.asarray(np.log(d) + np.log(cube) + lift).reshape(order.shape)


def _cubes(keys: Raw, c: Raw, d: Raw) -> Raw:
    """v^3 with v = 1 + c x that is accepted, x normal."""
    kind = d.dtype
    found, left = np.ones_like(d), np.arange(d.size)
    while left.size:
        keys, by_x, by_u = split(keys, 3)
        x, v = np.zeros(left.size, kind), np.full(left.size, -1, kind)
        again = np.arange(left.size)
        while again.size:
            by_x[again], now = split(by_x[again], 2)
            x[again] = _normal(now, kind)
            v[again] = kind.type(1) + x[again] * c[left][again]
            again = again[v[again] <= 0]
        square, cube = x * x, v * v * v
        u, scale = uniform(by_u, (), kind), d[left]
        refused = (u >= kind.type(1) - kind.type(0.0331) * (square * square)) & (
            np.log(u) >= square * kind.type(0.5) + scale * (kind.type(1) - cube + np.log(cube)))
        found[left] = cube
        left, keys = left[refused], keys[refused]
    return found


# ------------------------------------------------------------------ counts
def poisson(key: Raw, rate: Raw) -> Raw:
    """Counts at rates of single precision: by products of uniforms below 10, else by rejection."""
    rate = rate.astype(np.float32)
    slow = np.isnan(rate) | (rate < 10)
    with np.errstate(all="ignore"):
        few = _knuth(key, np.where(slow, rate, np.float32(0)))
        many = _ptrs(key, np.where(slow, np.float32(1e5), rate))
    return np.where(rate == 0, 0, np.where(slow, few, many))


def _knuth(key: Raw, rate: Raw) -> Raw:
    count, total = np.zeros(rate.shape, np.int64), np.zeros_like(rate)
    while (total > -rate).any():
        key, now = split(key, 2)
        count = np.where(total > -rate, count + 1, count)
        total = total + np.log(uniform(now, rate.shape, np.float32))
    return count - 1


def _ptrs(key: Raw, rate: Raw) -> Raw:
    f = np.float32
    b = f(0.931) + f(2.53) * np.sqrt(rate)
    a = f(-0.059) + f(0.02483) * b
    alpha, least = f(1.1239) + f(1.1328) / (b - f(3.4)), f(0.9277) - f(3.6224) / (b - f(2))
    found, done = np.full_like(rate, -1), np.zeros(rate.shape, bool)
    while not done.all():
        key, first, second = split(key, 3)
        u = uniform(first, rate.shape, f) - f(0.5)
        v = uniform(second, rate.shape, f)
        room = f(0.5) - abs(u)
        k = np.floor((2 * a / room + b) * u + rate + f(0.43))
        left = np.log(v * alpha / (a / (room * room) + b))
        right = -rate + k * np.log(rate) - T["lgamma"](wrap(k + 1)).array
        refused = (k < 0) | ((room < f(0.013)) & (v > room))
        taken = ((room >= f(0.07)) & (v <= least)) | (~refused & (left <= right))
        found = np.where(taken, k, found)
        done |= taken
    return found.astype(np.int64)


def binomial(key: Raw, count: Raw, chance: Raw) -> Raw:
    """Successes among `count`: by geometric steps where few are expected, else by rejection."""
    kind = chance.dtype
    under = chance < 0.5
    q = np.where(under, chance, kind.type(1) - chance)
    bad_count, bad_q = np.isnan(count) | (count < 0), np.isnan(q) | (q < 0)
    q = np.where(bad_q, kind.type(0.01), q)
    with np.errstate(all="ignore"):
        few = bad_count | (count * q <= 10)
        endless, count = np.isinf(count), np.floor(count)
        found = np.where(few, _steps(key, np.where(few, count, kind.type(0)), q), _btrs(
            key, np.where(few, kind.type(1e4), count), np.where(few, kind.type(0.5), q)))
    found = np.where(bad_count | bad_q, np.nan, np.where(endless, np.inf, found))
    kept = under | bad_count | np.isnan(chance) | endless
    return np.where(kept, found, count - found).astype(kind)


def _steps(key: Raw, count: Raw, q: Raw) -> Raw:
    below, found, place = np.log1p(-q), np.zeros_like(q), np.zeros_like(q)
    while (place <= count).any():
        now, key = split(key, 2)
        found = np.where(place <= count, found + 1, found)
        place = place + np.ceil(np.log(uniform(now, q.shape, q.dtype)) / below)
    return found - 1


# log k! less Stirling's formula without its tail, for k = 0, ..., 9
_TAILS = [math.lgamma(k + 1) - (k + 0.5) * math.log(k + 1) + (k + 1) - 0.5 * math.log(2 * math.pi)
          for k in range(10)]


def _tail(k: Raw) -> Raw:
    f, square = k.dtype.type, (k + 1) * (k + 1)
    series = (f(1 / 12) - (f(1 / 360) - f(1 / 1260) / square) / square) / (k + 1)
    known = np.array(_TAILS, k.dtype)[np.clip(np.nan_to_num(np.floor(k)), 0, 9).astype(int)]
    return np.where(k <= 9, known, series)


def _btrs(key: Raw, count: Raw, q: Raw) -> Raw:
    f = q.dtype.type
    spread = np.sqrt(count * q * (1 - q))
    b = f(1.15) + f(2.53) * spread
    a = f(-0.0873) + f(0.0248) * b + f(0.01) * q
    c, least, odds = count * q + f(0.5), f(0.92) - f(4.2) / b, q / (1 - q)
    alpha, mode = (f(2.83) + f(5.1) / b) * spread, np.floor((count + 1) * q)
    found, done = np.full_like(q, -1), np.zeros(q.shape, bool)
    while not done.all():
        key, first, second = split(key, 3)
        u, v = uniform(first, q.shape, q.dtype), uniform(second, q.shape, q.dtype)
        u = u - f(0.5)
        room = f(0.5) - abs(u)
        k = np.floor((2 * a / room + b) * u + c)
        quick, refused = (room >= f(0.07)) & (v <= least), (k < 0) | (k > count)
        left = np.log(v * alpha / (a / (room * room) + b))
        right = ((mode + f(0.5)) * np.log((mode + 1) / (odds * (count - mode + 1)))
                 + (count + 1) * np.log((count - mode + 1) / (count - k + 1))
                 + (k + f(0.5)) * np.log(odds * (count - k + 1) / (k + 1))
                 + _tail(mode) + _tail(count - mode) - _tail(k) - _tail(count - k))
        taken = quick | (~refused & (left <= right))
        found = np.where(taken, k, found)
        done |= taken
    return found


def multinomial(key: Raw, count: Raw, chances: Raw) -> Raw:
    """Counts of `count` draws among the categories of the last axis: one binomial after another."""
    rest = np.asarray(count[..., 0])
    after = np.cumsum(chances[..., ::-1], -1, dtype=chances.dtype)[..., ::-1]
    shares = chances / np.where(after == 0, chances.dtype.type(1), after)
    found = np.empty(chances.shape, chances.dtype)
    for i, own in enumerate(split(key, chances.shape[-1])):
        found[..., i] = binomial(own, rest, np.clip(shares[..., i], 0, 1))
        rest = rest - found[..., i]
    return found


__all__ = ["binomial", "log_gamma", "multinomial", "poisson", "split", "uniform"]
