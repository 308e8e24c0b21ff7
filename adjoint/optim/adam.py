"""Adam."""
from __future__ import annotations

from typing import Any

from adjoint.core.tensor import Tensor
from adjoint.optim import _rules
from adjoint.optim.optimizer import (
    Closure,
    Optimizer,
    ParamsT,
    Work,
    advance,
    check,
    check_common,
    check_modes,
    counter,
    number,
    setting,
    zeros_like,
)

__all__ = ["Adam"]


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015): steps from bias-corrected running means of g and g^2.

    ``m += (1 - beta1)(g - m)``, ``v = beta2 v + (1 - beta2) g^2``,
    ``p -= lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)``. ``amsgrad`` divides by the
    largest v so far; ``decoupled_weight_decay`` makes it AdamW. ``foreach`` and ``fused``
    change nothing; ``capturable`` is refused by the step, as on any CPU.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([1.0]))
    >>> opt = ad.optim.Adam([w], lr=0.5)
    >>> (3 * w).sum().backward(); opt.step(); round(w.item(), 4)
    0.5
    """

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-3,
                 betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False, differentiable: bool = False,
                 fused: bool | None = None, decoupled_weight_decay: bool = False) -> None:
        check_common(lr, weight_decay, eps, betas)
        check_modes(foreach, fused, differentiable)
        check(len({isinstance(b, Tensor) for b in betas}) == 1,
              f"betas must be either both floats or both Tensors, got {betas}")
        for name, value in (("lr", lr), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
            check(not (isinstance(value, Tensor) and foreach and not capturable),
                  f"{name} as a Tensor is not supported for capturable=False and foreach=True")
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay})

    def step(self, closure: Closure | None = None) -> Any:
        """One update; see Optimizer.step."""
        loss, groups = self._begin(closure)
        for group, params in groups:
            names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]
            by_step: dict[float, Work] = {}
            for p in params:
                state = self.state[p]
                if not state:
                    state["step"] = counter()
                    for name in names:
                        state[name] = zeros_like(p)
                held = [state[name] for name in names]
                by_step.setdefault(advance(state["step"]), []).append((p, held))
            for step, work in by_step.items():
                self._update_all(group, step, work)
        return loss

    def _update_all(self, group: dict[str, Any], step: float, work: Work) -> None:
        """Update parameters that are at the same step: in one compiled call if that is possible."""
        beta1, beta2 = group["betas"] if group["differentiable"] else map(number, group["betas"])
        shared = {"lr": setting(group, "lr"), "eps": group["eps"], "step": step,
                  "weight_decay": group["weight_decay"], "maximize": group["maximize"],
                  "decoupled": group["decoupled_weight_decay"]}
        for p, held in self._together("adam", work, betas=(beta1, beta2), **shared):
            self._update(_rules.adam, p, held, 2, beta1=beta1, beta2=beta2, **shared)
