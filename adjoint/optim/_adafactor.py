"""Adafactor."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import finfo
from adjoint.base.errors import NotSupported
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Tensor, bump, wrap
from adjoint.optim.optimizer import (
    Closure,
    Optimizer,
    ParamsT,
    advance,
    check,
    check_modes,
    counter,
    number,
    one_element,
    zeros_like,
)

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Adam without a mean, and with the second moment of a matrix kept as one row and one column
    (Shazeer and Stern 2018): memory n + m instead of n m.

    The decay of the second moment is ``1 - t^beta2_decay``; the update is clipped to root mean
    square ``d``; the step is ``max(eps[1], rms(p)) min(lr, 1 / sqrt(t))``. ``eps[0]`` keeps
    second moments away from 0 (None: machine epsilon). Real parameters only.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.ones(2, 3))
    >>> opt = ad.optim.Adafactor([w])
    >>> (w * w).sum().backward(); opt.step(); tuple(opt.state[w]["row_var"].shape)
    (2, 1)
    """

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-2, beta2_decay: float = -0.8,
                 eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
                 weight_decay: float = 0.0, *, foreach: bool | None = None,
                 maximize: bool = False) -> None:
        one_element(lr)
        check(number(lr) >= 0.0, f"Learning rate should be >= 0 but is: {lr}")
        check(weight_decay >= 0.0, f"weight_decay should be >= 0 but is: {weight_decay}")
        check(beta2_decay <= 0, f"beta2_decay should be <= 0 but is: {beta2_decay}")
        check(eps[0] is None or eps[0] >= 0, f"epsilon1 should be >= 0 but is: {eps[0]}")
        check(eps[1] >= 0, f"epsilon2 should be >= 0 but is: {eps[1]}")
        check(d >= 1.0, f"Clipping threshold d should be >= 1 but is: {d}")
        check_modes(foreach)
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d,
            "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize})

    def step(self, closure: Closure | None = None) -> Any:
        """One update; see Optimizer.step."""
        loss, groups = self._begin(closure)
        for _, params in groups:
            for p in params:
                if p.array.dtype.kind == "c":
                    raise NotSupported("Adafactor does not support complex parameters: use Adam")
        for group, params in groups:
            for p in params:
                state = self.state[p]
                if not state:
                    _start(p, state)
                step = advance(state["step"])
                grad: Any = p.grad
                moments = {k: v.array for k, v in state.items() if k != "step"}
                rule = adafactor if type(p.array) is not MetaArray else _rehearsed
                rule(p.array, grad.array, moments, step=step, lr=number(group["lr"]),
                     beta2_decay=group["beta2_decay"], eps=group["eps"], d=group["d"],
                     weight_decay=group["weight_decay"], maximize=group["maximize"])
                bump(p, "Adafactor.step")
        return loss


def _start(p: Tensor, state: dict[str, Any]) -> None:
    state["step"] = counter()
    shape, dtype = tuple(p.array.shape), p.array.dtype
    if len(shape) > 1:
        rows, cols = (*shape[:-1], 1), (*shape[:-2], 1, shape[-1])
        make = MetaArray if type(p.array) is MetaArray else np.zeros
        state["row_var"], state["col_var"] = wrap(make(rows, dtype)), wrap(make(cols, dtype))
    else:
        state["variance"] = zeros_like(p)


def _rehearsed(*arrays: Any, **numbers: Any) -> None:
    """`adafactor` of arrays without storage: what it holds on the way."""
    call(adafactor, *arrays, otherwise=tuple, **numbers)


def adafactor(p: Any, g: Any, moments: dict[str, Any], *, step: float, lr: float,
              beta2_decay: float, eps: tuple[float | None, float], d: float,
              weight_decay: float, maximize: bool) -> None:
    """The update rule on raw arrays, in place."""
    if not p.size:
        return                          # no mean of nothing
    if maximize:
        g = -g
    weight = step**beta2_decay
    tiny = finfo(p.dtype).eps if eps[0] is None else eps[0]
    size = max(p.size, 1)
    alpha = max(eps[1], _norm(p) / math.sqrt(size)) * min(lr, 1 / math.sqrt(step))
    if weight_decay:
        np.multiply(p, 1 - lr * weight_decay, out=p)
    square = g * g
    if "variance" in moments:
        variance = moments["variance"]
        variance += weight * (square - variance)
        estimate = variance.copy()
    else:
        row, col = moments["row_var"], moments["col_var"]
        row += weight * (square.mean(axis=-1, keepdims=True) - row)
        col += weight * (square.mean(axis=-2, keepdims=True) - col)
        estimate = row * col
        estimate /= np.maximum(row.mean(axis=-2, keepdims=True), tiny)
    np.maximum(estimate, tiny * tiny, out=estimate)
    update = np.divide(g, np.sqrt(estimate, out=estimate), out=estimate)
    clip = max(1.0, _norm(update) / (math.sqrt(size) * d))
    np.multiply(update, alpha / clip, out=update)
    np.subtract(p, update, out=p)


def _norm(a: Any) -> float:
    return float(np.sqrt(np.sum(np.square(a), dtype=np.float64)))
