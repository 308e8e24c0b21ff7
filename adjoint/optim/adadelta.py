"""Adadelta."""
from __future__ import annotations

from typing import Any

from adjoint.core.tensor import Tensor
from adjoint.optim import _rules
from adjoint.optim.optimizer import (
    Closure,
    Optimizer,
    ParamsT,
    advance,
    check,
    check_common,
    check_modes,
    counter,
    setting,
    zeros_like,
)

__all__ = ["Adadelta"]


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012): each step is scaled by the ratio of the running averages of past
    steps and past gradients, ``sqrt(E[d^2] + eps) / sqrt(E[g^2] + eps)``.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([1.0]))
    >>> opt = ad.optim.Adadelta([w])
    >>> (w * w).sum().backward(); opt.step(); w.item() < 1
    True
    """

    def __init__(self, params: ParamsT, lr: float | Tensor = 1.0, rho: float = 0.9,
                 eps: float = 1e-6, weight_decay: float = 0, foreach: bool | None = None, *,
                 capturable: bool = False, maximize: bool = False, differentiable: bool = False
                 ) -> None:
        check_common(lr, weight_decay, eps)
        check(0.0 <= rho <= 1.0, f"Invalid rho value: {rho}")
        check_modes(foreach, differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "capturable": capturable, "foreach": foreach,
            "differentiable": differentiable})

    def step(self, closure: Closure | None = None) -> Any:
        """One update; see Optimizer.step."""
        loss, groups = self._begin(closure)
        for group, params in groups:
            for p in params:
                state = self.state[p]
                if not state:
                    state.update(step=counter(), square_avg=zeros_like(p), acc_delta=zeros_like(p))
                advance(state["step"])
                self._update(
                    _rules.adadelta, p, [state["square_avg"], state["acc_delta"]], 3,
                    lr=setting(group, "lr"), rho=group["rho"], eps=group["eps"],
                    weight_decay=group["weight_decay"], maximize=group["maximize"])
        return loss
