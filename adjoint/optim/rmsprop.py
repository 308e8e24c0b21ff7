"""RMSprop."""
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

__all__ = ["RMSprop"]


class RMSprop(Optimizer):
    """``p -= lr g / (sqrt(v) + eps)`` with ``v = alpha v + (1 - alpha) g^2`` (Hinton, lecture 6e).

    ``centered`` subtracts the squared running mean of g from v (Graves 2013).

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([1.0]))
    >>> opt = ad.optim.RMSprop([w])
    >>> (w * w).sum().backward(); opt.step(); w.item() < 1
    True
    """

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-2, alpha: float = 0.99,
                 eps: float = 1e-8, weight_decay: float = 0, momentum: float = 0,
                 centered: bool = False, capturable: bool = False, foreach: bool | None = None,
                 maximize: bool = False, differentiable: bool = False) -> None:
        check_common(lr, weight_decay, eps)
        check(momentum >= 0.0, f"Invalid momentum value: {momentum}")
        check(alpha >= 0.0, f"Invalid alpha value: {alpha}")
        check_modes(foreach, differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps,
            "centered": centered, "weight_decay": weight_decay,
            "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable})

    def step(self, closure: Closure | None = None) -> Any:
        """One update; see Optimizer.step."""
        loss, groups = self._begin(closure)
        for group, params in groups:
            names = ["square_avg", *(["momentum_buffer"] if group["momentum"] > 0 else []),
                     *(["grad_avg"] if group["centered"] else [])]
            for p in params:
                state = self.state[p]
                if not state:
                    state["step"] = counter()
                    for name in names:
                        state[name] = zeros_like(p)
                advance(state["step"])
                self._update(
                    _rules.rmsprop, p, [state[name] for name in names], 2,
                    lr=setting(group, "lr"), alpha=group["alpha"], eps=group["eps"],
                    weight_decay=group["weight_decay"], momentum=group["momentum"],
                    centered=group["centered"], maximize=group["maximize"])
        return loss
