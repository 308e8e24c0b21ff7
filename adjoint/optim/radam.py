"""RAdam."""
from __future__ import annotations

from typing import Any

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
    setting,
    zeros_like,
)

__all__ = ["RAdam"]


class RAdam(Optimizer):
    """Rectified Adam (Liu et al. 2020): plain momentum while the variance of the adaptive step is
    unknown (the first steps), then Adam times a rectification factor.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([1.0]))
    >>> opt = ad.optim.RAdam([w])
    >>> (w * w).sum().backward(); opt.step(); w.item() < 1
    True
    """

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, decoupled_weight_decay: bool = False, *,
                 foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False) -> None:
        check_common(lr, weight_decay, eps, betas)
        check_modes(foreach, differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable})

    def step(self, closure: Closure | None = None) -> Any:
        """One update; see Optimizer.step."""
        loss, groups = self._begin(closure)
        for group, params in groups:
            for p in params:
                state = self.state[p]
                if not state:
                    state.update(step=counter(), exp_avg=zeros_like(p), exp_avg_sq=zeros_like(p))
                self._update(
                    _rules.radam, p, [state["exp_avg"], state["exp_avg_sq"]], 3,
                    lr=setting(group, "lr"), beta1=group["betas"][0], beta2=group["betas"][1],
                    eps=group["eps"], weight_decay=group["weight_decay"],
                    decoupled=group["decoupled_weight_decay"], maximize=group["maximize"],
                    step=advance(state["step"]))
        return loss
