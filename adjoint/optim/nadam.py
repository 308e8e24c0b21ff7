"""NAdam."""
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

__all__ = ["NAdam"]


class NAdam(Optimizer):
    """Adam with Nesterov momentum (Dozat 2016): the momentum of step t is
    ``mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2)``.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([1.0]))
    >>> opt = ad.optim.NAdam([w])
    >>> (w * w).sum().backward(); opt.step(); w.item() < 1
    True
    """

    def __init__(self, params: ParamsT, lr: float | Tensor = 2e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, momentum_decay: float = 4e-3,
                 decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False, differentiable: bool = False
                 ) -> None:
        check_common(lr, weight_decay, eps, betas)
        check(momentum_decay >= 0.0, f"Invalid momentum_decay value: {momentum_decay}")
        check_modes(foreach, differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable})

    def step(self, closure: Closure | None = None) -> Any:
        """One update; see Optimizer.step."""
        loss, groups = self._begin(closure)
        for group, params in groups:
            for p in params:
                state = self.state[p]
                if not state:
                    state.update(step=counter(), mu_product=counter(1.0), exp_avg=zeros_like(p),
                                 exp_avg_sq=zeros_like(p))
                step, (beta1, beta2) = advance(state["step"]), group["betas"]
                mu, mu_next = (beta1 * (1.0 - 0.5 * 0.96 ** (t * group["momentum_decay"]))
                               for t in (step, step + 1))
                state["mu_product"].array[...] *= mu
                product = float(state["mu_product"].array)
                self._update(
                    _rules.nadam, p, [state["exp_avg"], state["exp_avg_sq"]], 3,
                    lr=setting(group, "lr"), beta1=beta1, beta2=beta2, eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    decoupled=group["decoupled_weight_decay"], maximize=group["maximize"],
                    step=step, of_g=(1.0 - mu) / (1.0 - product),
                    of_m=mu_next / (1.0 - product * mu_next))
        return loss
