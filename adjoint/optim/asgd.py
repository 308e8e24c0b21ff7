"""ASGD."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.core.tensor import Tensor
from adjoint.optim import _rules
from adjoint.optim.optimizer import (
    Closure,
    Optimizer,
    ParamsT,
    advance,
    check_common,
    check_modes,
    counter,
    number,
    zeros_like,
)

__all__ = ["ASGD"]


class ASGD(Optimizer):
    """SGD with averaging of the iterates (Polyak and Juditsky 1992) in ``state[p]["ax"]``.

    ``eta = lr / (1 + lambd lr t)^alpha``; averaging starts after ``t0`` steps.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([1.0]))
    >>> opt = ad.optim.ASGD([w])
    >>> (w * w).sum().backward(); opt.step(); w.item() < 1
    True
    """

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-2, lambd: float = 1e-4,
                 alpha: float = 0.75, t0: float = 1e6, weight_decay: float = 0,
                 foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False) -> None:
        check_common(lr, weight_decay)
        check_modes(foreach, differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0,
            "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable})

    def step(self, closure: Closure | None = None) -> Any:
        """One update; see Optimizer.step."""
        loss, groups = self._begin(closure)
        for group, params in groups:
            lr = number(group["lr"])
            for p in params:
                state = self.state[p]
                if not state:
                    state.update(step=counter(), eta=counter(lr), mu=counter(1.0),
                                 ax=zeros_like(p))
                step = advance(state["step"])
                self._update(_rules.asgd, p, [state["ax"]], 2, lambd=group["lambd"],
                             eta=float(state["eta"].array), mu=float(state["mu"].array),
                             weight_decay=group["weight_decay"], maximize=group["maximize"])
                eta = lr / (1 + group["lambd"] * lr * step) ** group["alpha"]
                state["eta"].array[...] = np.float32(eta)  # single precision, also where the
                state["mu"].array[...] = np.float32(1 / max(1, step - group["t0"]))  # state is not
        return loss
