"""LSTM and GRU cells: everything between the matrix products, in one pass each way.

With gates (N, 4H) = x W_i + h W_h + b in the order i, f, g, o (Hochreiter and Schmidhuber, Neural
Computation 9, 1997, with Gers' forget gate; PyTorch's layout):

    c' = sigma(f) c + sigma(i) tanh(g)        h' = sigma(o) tanh(c')

The backward recomputes the gates from the products, which are kept anyway, and writes their
cotangents side by side into one (N, 4H) array, ready for the next product.
"""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels.expr import Expr, sigmoid_, tanh_, var
from adjoint.kernels.loops import Pointwise, pointwise

Array = NDArray[Any]


def _names(*names: str) -> list[Expr]:
    return [var(n) for n in names]


@functools.cache
def _lstm() -> Pointwise | None:
    i, f, g, o, c = _names("i", "f", "g", "o", "c")
    new = sigmoid_(f) * c + sigmoid_(i) * tanh_(g)
    return pointwise("lstm", ["i", "f", "g", "o", "c"], [sigmoid_(o) * tanh_(new), new],
                     single=False)


@functools.cache
def _lstm_backward() -> Pointwise | None:
    i, f, g, o, c, new, ch, cc = _names("i", "f", "g", "o", "c", "new", "ch", "cc")
    si, sf, so, tg, tc = sigmoid_(i), sigmoid_(f), sigmoid_(o), tanh_(g), tanh_(new)
    total = cc + ch * so * (1 - tc * tc)
    exprs = [total * tg * (si * (1 - si)), total * c * (sf * (1 - sf)), total * si * (1 - tg * tg),
             ch * tc * (so * (1 - so)), total * sf]
    return pointwise("lstm_backward", ["i", "f", "g", "o", "c", "new", "ch", "cc"], exprs,
                     single=False)


@functools.cache
def _gru() -> Pointwise | None:
    r, z, n, hr, hz, hn, h = _names("r", "z", "n", "hr", "hz", "hn", "h")
    reset, keep = sigmoid_(r + hr), sigmoid_(z + hz)
    new = tanh_(n + reset * hn)
    return pointwise("gru", ["r", "z", "n", "hr", "hz", "hn", "h"], [new + keep * (h - new)])


@functools.cache
def _gru_backward() -> Pointwise | None:
    r, z, n, hr, hz, hn, h, ch = _names("r", "z", "n", "hr", "hz", "hn", "h", "ch")
    reset, keep = sigmoid_(r + hr), sigmoid_(z + hz)
    new = tanh_(n + reset * hn)
    cn = ch * (1 - keep) * (1 - new * new)
    cr = cn * hn * (reset * (1 - reset))
    cz = ch * (h - new) * (keep * (1 - keep))
    exprs = [cr, cz, cn, cr, cz, cn * reset, ch * keep]
    return pointwise("gru_backward", ["r", "z", "n", "hr", "hz", "hn", "h", "ch"], exprs,
                     single=False)


def _split(a: Array, parts: int) -> list[Array]:
    width = a.shape[-1] // parts
    return [a[..., k * width:(k + 1) * width] for k in range(parts)]


def _same(shape: Sequence[int], *arrays: Array) -> bool:
    return all(type(a) is np.ndarray and a.shape == tuple(shape) for a in arrays)


def lstm_cell(gates: Array, c: Array) -> Any:
    """(h', c') of an LSTM cell from gates (..., 4H) and c (..., H), or NotImplemented.

    >>> r = lstm_cell(np.zeros((1, 8), np.float32), np.ones((1, 2), np.float32))
    >>> r is NotImplemented or r[1].tolist() == [[0.5, 0.5]]
    True
    """
    kernel = _lstm()
    if kernel is None or gates.ndim == 0 or not _same((*gates.shape[:-1], gates.shape[-1] // 4), c):
        return NotImplemented
    return kernel(*_split(gates, 4), c)


def lstm_cell_backward(ch: Array, cc: Array, gates: Array, c: Array, new: Array) -> Any:
    """(cotangent of gates (..., 4H), of c) from those of h' and c'; `new` is the forward's c'.

    NotImplemented where dtypes or shapes do not fit.
    """
    kernel = _lstm_backward()
    if kernel is None or not _same(c.shape, ch, cc, new) or gates.shape[-1] != 4 * c.shape[-1]:
        return NotImplemented
    out, cold = np.empty(gates.shape, gates.dtype), np.empty(c.shape, c.dtype)
    done = kernel(*_split(gates, 4), c, new, ch, cc, out=[*_split(out, 4), cold])
    return NotImplemented if done is NotImplemented else (out, cold)


def gru_cell(from_x: Array, from_h: Array, h: Array) -> Any:
    """h' of a GRU cell (Cho et al., arXiv:1406.1078, in PyTorch's form), or NotImplemented.

    Args:
        from_x, from_h: (..., 3H) products with biases, in the order r, z, n.
        h: (..., H).

    >>> z = np.zeros((1, 3), np.float32)
    >>> r = gru_cell(z, z, np.ones((1, 1), np.float32))
    >>> r is NotImplemented or r.tolist() == [[0.5]]
    True
    """
    kernel = _gru()
    if kernel is None or from_x.shape != from_h.shape or from_x.shape[-1] != 3 * h.shape[-1]:
        return NotImplemented
    return kernel(*_split(from_x, 3), *_split(from_h, 3), h)


def gru_cell_backward(ch: Array, from_x: Array, from_h: Array, h: Array) -> Any:
    """(cotangents of from_x, from_h, h) from that of h', or NotImplemented."""
    kernel = _gru_backward()
    if kernel is None or from_x.shape != from_h.shape or not _same(h.shape, ch):
        return NotImplemented
    cx, chh = (np.empty(from_x.shape, from_x.dtype) for _ in range(2))
    cold = np.empty(h.shape, h.dtype)
    done = kernel(*_split(from_x, 3), *_split(from_h, 3), h, ch,
                  out=[*_split(cx, 3), *_split(chh, 3), cold])
    return NotImplemented if done is NotImplemented else (cx, chh, cold)
