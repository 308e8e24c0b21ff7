"""Scaled dot-product attention in tiles, forward and backward, on raw NumPy arrays.

The reference for the generated kernels and the fallback without them. Scores exist only one tile at
a time: the forward keeps a running maximum and sum per query row (Rabe and Staats 2021; Dao et al.
2022, "FlashAttention", algorithm 1) and hands back the log-sum-exp of each row, from which the
backward recomputes every tile (Dao 2023, algorithm 2): with P = exp(S - lse) and D_i = <ct_i,
out_i>, dV = P^T ct, dP = ct V^T, dS = P * (dP - D), dQ = scale * dS K, dK = scale * dS^T Q.

Shapes: query `(B, H, S, E)`, key `(B, Hk, T, E)`, value `(B, Hk, T, Ev)`, `Hk` dividing `H`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from adjoint.base.aval import inverse

Array = np.ndarray[Any, Any]

TILE_BYTES = 4 << 20
_GOLDEN = np.uint32(0x9E3779B9)
_NO_KEY = np.uint32(0)
_M1, _M2 = np.uint32(0x7FEB352D), np.uint32(0x846CA68B)


class Attend(NamedTuple):
    """What modifies the scores: `scale`, a causal limit, a mask `(B, H, S, T)` view, and dropout.

    A boolean mask keeps where True; a float mask is added. `seed` selects the dropout pattern,
    which is a pure function of `(seed, batch, head, query, key)`, so that nothing is stored for
    backward.
    """

    scale: float
    causal: bool = False
    mask: Array | None = None
    dropout: float = 0.0
    seed: int = 0


def mix(x: Array, key: Array | np.uint32 = _NO_KEY) -> Array:
    """A 32-bit bijection with good avalanche (multipliers of C. Wellons' "lowbias32" search).

    `key` enters between the rounds, so that two rows whose counters overlap still differ.
    """
    x = x ^ (x >> np.uint32(16))
    x = (x * _M1) ^ key
    x = x ^ (x >> np.uint32(15))
    x = x * _M2
    return x ^ (x >> np.uint32(16))


def row_keys(seed: int, rows: Array) -> tuple[Array, Array]:
    """Two 32-bit keys for each row number (uint64) of the score matrices of all heads."""
    low = (rows & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    high = (rows >> np.uint64(32)).astype(np.uint32)
    seed_low, seed_high = np.uint32(seed & 0xFFFFFFFF), np.uint32((seed >> 32) & 0xFFFFFFFF)
    first = mix(low ^ seed_low, high ^ seed_high)
    return first, mix(first + _GOLDEN, seed_low)


def threshold(dropout: float) -> int:
    """Hashes below this are dropped: `dropout` as a fraction of 2**32."""
    return min(int(dropout * 4294967296.0), 4294967295)


def keep_tile(spec: Attend, rows: Array, cols: range) -> Array:
    """Which elements of a tile survive dropout: bool, `rows.shape + (len(cols),)`.

    `rows` holds row numbers `(b * H + h) * S + i` as uint64.
    """
    first, second = row_keys(spec.seed, rows)
    counter = np.arange(cols.start, cols.stop, dtype=np.uint32) * _GOLDEN
    hashes = mix(first[..., None] + counter, second[..., None])
    return hashes >= np.uint32(threshold(spec.dropout))


def _tiles(
    spec: Attend, heads: int, rows: int, cols: int, itemsize: int
) -> Iterator[tuple[range, range]]:
    """Tiles `(query range, key range)`, query-major; those wholly above the diagonal are skipped.
    """
    side = max(16, min(512, math.isqrt(TILE_BYTES // (max(1, heads) * itemsize))))
    for i in range(0, rows, side):
        stop = min(i + side, rows)
        limit = min(cols, stop) if spec.causal else cols
        for j in range(0, limit, side):
            yield range(i, stop), range(j, min(j + side, limit))


def _scores(q: Array, k: Array, spec: Attend, batch: int, i: range, j: range) -> Array:
    """Masked scores of one tile: `(Hk, G, len(i), len(j))`."""
    s = np.matmul(q[:, :, i.start : i.stop], k[:, :, j.start : j.stop].swapaxes(-1, -2))
    s *= s.dtype.type(spec.scale)
    if spec.mask is not None:
        part = spec.mask[batch, :, i.start : i.stop, j.start : j.stop].reshape(s.shape)
        if part.dtype == np.bool_:
            s[~part] = -np.inf
        else:
            s += part
    if spec.causal and j.stop > i.start + 1:
        above = np.arange(j.start, j.stop) > np.arange(i.start, i.stop)[:, None]
        np.copyto(s, -np.inf, where=above)
    return s


def _row_numbers(batch: int, heads: int, groups: tuple[int, int], rows: int, i: range) -> Array:
    head = np.arange(batch * heads, (batch + 1) * heads, dtype=np.uint64).reshape(*groups, 1)
    return head * np.uint64(rows) + np.arange(i.start, i.stop, dtype=np.uint64)


def _drop(p: Array, spec: Attend, batch: int, rows: int, i: range, j: range) -> Array:
    keep = keep_tile(spec, _row_numbers(batch, p.shape[0] * p.shape[1], p.shape[:2], rows, i), j)
    survive = 1.0 / (1.0 - spec.dropout) if spec.dropout < 1 else 0.0
    return np.where(keep, p * p.dtype.type(survive), p.dtype.type(0))


def laid_like(x: Array, width: int, make: Callable[..., Array] = np.zeros) -> Array:
    """A new array `x.shape[:-1] + (width,)` whose leading axes lie in memory in the order of those
    of `x`: where a view split the heads off the last axis, a view joins them again.

    >>> x = np.zeros((2, 5, 3, 4), np.float32).swapaxes(1, 2)
    >>> laid_like(x, 4).strides == x.strides
    True
    """
    if x.flags.c_contiguous:
        return make((*x.shape[:-1], width), x.dtype)
    order = sorted(range(x.ndim - 1), key=lambda axis: -x.strides[axis])
    made = make((*(x.shape[axis] for axis in order), width), x.dtype)
    return made.transpose(*inverse(order), x.ndim - 1)


def forward(q: Array, k: Array, v: Array, spec: Attend) -> tuple[Array, Array]:
    """Output `(B, H, S, Ev)` and log-sum-exp `(B, H, S)`; rows with nothing to attend to give 0,
    -inf.
    """
    batch, heads, rows, _ = q.shape
    groups, cols = (k.shape[1], heads // max(1, k.shape[1])), k.shape[2]
    out = laid_like(q, v.shape[3])
    lse = np.full((batch, heads, rows), -np.inf, q.dtype)
    for b in range(batch):
        qb = q[b].reshape(*groups, rows, q.shape[3])
        kb, vb = k[b][:, None], v[b][:, None]
        acc = out[b].reshape(*groups, rows, v.shape[3])
        top = lse[b].reshape(*groups, rows)
        total = np.zeros(top.shape, q.dtype)
        for i, j in _tiles(spec, heads, rows, cols, q.itemsize):
            at = (slice(None), slice(None), slice(i.start, i.stop))
            s = _scores(qb, kb, spec, b, i, j)
            high = np.maximum(top[at], s.max(axis=-1))
            shift = np.where(high == -np.inf, 0, high)
            with np.errstate(invalid="ignore"):
                s -= shift[..., None]
                rescale = np.exp(top[at] - shift)
            np.exp(s, out=s)
            total[at] = total[at] * rescale + s.sum(axis=-1)
            if spec.dropout:
                s = _drop(s, spec, b, rows, i, j)
            acc[at] = acc[at] * rescale[..., None] + np.matmul(s, vb[:, :, j.start : j.stop])
            top[at] = high
        with np.errstate(divide="ignore"):
            acc /= np.where(total == 0, 1, total)[..., None]
            top += np.log(total)
    return out, lse


def backward(
    ct: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    spec: Attend,
    mask_ct: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Cotangents of query, key and value; if `mask_ct` is given, that of the float mask is added to
    it.

    `mask_ct` is a `(B, H, S, T)` view whose broadcast axes have stride 0.
    """
    batch, heads, rows, _ = q.shape
    groups, cols = (k.shape[1], heads // max(1, k.shape[1])), k.shape[2]
    dq, dk, dv = (laid_like(x, x.shape[3]) for x in (q, k, v))
    scale = q.dtype.type(spec.scale)
    for b in range(batch):
        qb, dqb = (a[b].reshape(*groups, rows, q.shape[3]) for a in (q, dq))
        cb = ct[b].reshape(*groups, rows, v.shape[3])
        kb, vb = k[b][:, None], v[b][:, None]
        delta = np.einsum("hsd,hsd->hs", ct[b], out[b]).reshape(*groups, rows)
        top = np.where(lse[b] == -np.inf, np.inf, lse[b]).reshape(*groups, rows)
        for i, j in _tiles(spec, heads, rows, cols, q.itemsize):
            rs, cs = slice(i.start, i.stop), slice(j.start, j.stop)
            p = _scores(qb, kb, spec, b, i, j)
            p -= top[:, :, rs, None]
            np.exp(p, out=p)
            kept = _drop(p, spec, b, rows, i, j) if spec.dropout else p
            dv[b][:, cs] += np.matmul(kept.swapaxes(-1, -2), cb[:, :, rs]).sum(axis=1)
            ds = np.matmul(cb[:, :, rs], vb[:, :, cs].swapaxes(-1, -2))
            # kept * dP is P * (masked, rescaled dP): one product serves both factors
            ds *= kept
            ds -= p * delta[:, :, rs, None]
            if mask_ct is not None:
                _add_broadcast(mask_ct[b, :, rs, cs], ds.reshape(heads, *ds.shape[2:]))
            ds *= scale
            dqb[:, :, rs] += np.matmul(ds, kb[:, :, cs])
            dk[b][:, cs] += np.matmul(ds.swapaxes(-1, -2), qb[:, :, rs]).sum(axis=1)
    return dq, dk, dv


def _add_broadcast(target: Array, value: Array) -> None:
    """`target += value`, summed over the axes along which `target` repeats itself (stride 0)."""
    axes = tuple(a for a in range(target.ndim) if target.strides[a] == 0 and target.shape[a] > 1)
    where = tuple(slice(0, 1) if a in axes else slice(None) for a in range(target.ndim))
    target[where] += value.sum(axis=axes, keepdims=True)
