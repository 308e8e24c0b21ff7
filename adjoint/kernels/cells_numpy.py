"""LSTM and GRU cells as scalar expressions, and NumPy's way to compute them.

An operand of a cell holds several parts side by side in its last axis. With gates (..., 4H) =
x W_i + h W_h + b in the order i, f, g, o (Hochreiter and Schmidhuber, Neural Computation 9, 1997,
with Gers' forget gate; PyTorch's layout):

    c' = sigma(f) c + sigma(i) tanh(g)        h' = sigma(o) tanh(c')

and with products from_x and from_h (..., 3H) in the order r, z, n (Cho et al., arXiv:1406.1078):

    h' = n' + sigma(z + hz) (h - n')          n' = tanh(n + sigma(r + hr) hn)

The backward recomputes the gates from the products and writes their cotangents side by side.
"""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.kernels import expr as ex
from adjoint.kernels.expr import Expr, compile_numpy, sigmoid_, tanh_, var

Array = np.ndarray[Any, Any]


class Cell:
    """`operands`: name -> its parts; `outs`: name -> expression over the parts."""

    def __init__(self, name: str, operands: dict[str, tuple[str, ...]], outs: dict[str, Expr]
                 ) -> None:
        self.name, self.operands, self.outs = name, operands, outs

    @functools.cached_property
    def parts(self) -> list[str]:
        """The variables of the expressions, in order."""
        return [p for parts in self.operands.values() for p in parts]

    @functools.cached_property
    def pulled(self) -> list[Expr]:
        """The cotangent of every part, over the parts and `ct_<out>`."""
        return [functools.reduce(ex.add, [var(f"ct_{o}") * ex.diff(e, p)
                                          for o, e in self.outs.items()]) for p in self.parts]

    @property
    def pulled_params(self) -> list[str]:
        """The variables of `pulled`, in order."""
        return [*(f"ct_{o}" for o in self.outs), *self.parts]

    def split(self, arrays: Sequence[Any]) -> list[Any]:
        """Views of the parts of all operands."""
        found = []
        for a, parts in zip(arrays, self.operands.values(), strict=True):
            width = a.shape[-1] // len(parts)
            found += [a[..., k * width:(k + 1) * width] for k in range(len(parts))]
        return found

    @functools.cached_property
    def _functions(self) -> tuple[Any, Any]:
        return (compile_numpy(self.name, self.parts, list(self.outs.values()), single=False),
                compile_numpy(self.name, self.pulled_params, self.pulled, single=False))

    def forward(self, *arrays: Array) -> tuple[Array, ...]:
        """The outputs."""
        return tuple(self._functions[0](*self.split(arrays)))

    def backward(self, cts: Sequence[Array], *arrays: Array) -> tuple[Array, ...]:
        """The cotangent of every operand."""
        found = iter(self._functions[1](*cts, *self.split(arrays)))
        return tuple(np.concatenate([next(found) for _ in parts], -1)
                     for parts in self.operands.values())


@functools.cache
def lstm_cell() -> Cell:
    """(gates, c) -> (h', c').

    >>> [v.tolist() for v in lstm_cell().forward(np.zeros((1, 8)), np.ones((1, 2)))][1]
    [[0.5, 0.5]]
    """
    i, f, g, o, c = map(var, "ifgoc")
    new = sigmoid_(f) * c + sigmoid_(i) * tanh_(g)
    return Cell("lstm_cell", {"gates": ("i", "f", "g", "o"), "c": ("c",)},
                {"h": sigmoid_(o) * tanh_(new), "cell": new})


@functools.cache
def gru_cell() -> Cell:
    """(from_x, from_h, h) -> h'.

    >>> z = np.zeros((1, 3))
    >>> gru_cell().forward(z, z, np.ones((1, 1)))[0].tolist()
    [[0.5]]
    """
    r, z, n, hr, hz, hn, h = map(var, ("r", "z", "n", "hr", "hz", "hn", "h"))
    new = tanh_(n + sigmoid_(r + hr) * hn)
    return Cell("gru_cell", {"from_x": ("r", "z", "n"), "from_h": ("hr", "hz", "hn"),
                             "h": ("h",)}, {"out": new + sigmoid_(z + hz) * (h - new)})


def steps_of(count: int, reverse: bool) -> range:
    """The order in which a sequence is walked through."""
    return range(count - 1, -1, -1) if reverse else range(count)


def lstm(gates: Array, h: Array, c: Array, weight: Array, *, reverse: bool
         ) -> tuple[Array, Array, Array]:
    """A whole sequence: (out, cells, sums) from gates (T, N, 4H), h, c (N, H), weight (4H, H).

    `gates` is the input's share; sums = gates + h W^T is what the cell sees.
    """
    cell = lstm_cell()
    sums = np.empty(gates.shape, gates.dtype)
    out = np.empty((*gates.shape[:2], c.shape[-1]), gates.dtype)
    cells = np.empty_like(out)
    for t in steps_of(len(gates), reverse):
        np.matmul(h, weight.T, out=sums[t])
        sums[t] += gates[t]
        out[t], cells[t] = cell.forward(sums[t], c)
        h, c = out[t], cells[t]
    return out, cells, sums


def lstm_backward(cts: Sequence[Array | None], out: Array, cells: Array, sums: Array, h: Array,
                  c: Array, weight: Array, *, reverse: bool) -> tuple[Array, ...]:
    """Cotangents of (gates, h, c, weight) from those of (out, cells, sums), where not None."""
    cell = lstm_cell()
    pulled = np.empty(sums.shape, sums.dtype)
    dh, dc = np.zeros_like(c), np.zeros_like(c)
    order = list(steps_of(len(sums), reverse))
    for k in reversed(range(len(order))):
        t = order[k]
        before = cells[order[k - 1]] if k else c
        ch, cc = (d if ct is None else d + ct[t] for d, ct in zip((dh, dc), cts, strict=False))
        pulled[t], dc = cell.backward((ch, cc), sums[t], before)
        if cts[2] is not None:
            pulled[t] += cts[2][t]
        dh = pulled[t] @ weight
    return pulled, dh, dc, weight_cotangent(pulled, out, h, reverse)


def weight_cotangent(pulled: Array, out: Array, h: Array, reverse: bool, matmul: Any = np.matmul
                     ) -> Array:
    """The sum over time of pulled[t]^T h[t - 1], as one product."""
    first, later, earlier = ((-1, slice(None, -1), slice(1, None)) if reverse
                             else (0, slice(1, None), slice(None, -1)))
    rows = pulled[later].reshape(-1, pulled.shape[2])
    found = matmul(rows.T, out[earlier].reshape(-1, out.shape[2]))
    if h.any():
        found += matmul(pulled[first].T, h)
    return np.asarray(found)
