"""Rprop."""
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
    number,
    zeros_like,
)

__all__ = ["Rprop"]


class Rprop(Optimizer):
    """Resilient backpropagation (Riedmiller and Braun 1993): one step size per element, grown by
    ``etas[1]`` while the gradient keeps its sign and shrunk by ``etas[0]`` when it turns.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([1.0]))
    >>> opt = ad.optim.Rprop([w])
    >>> (w * w).sum().backward(); opt.step(); w.item() < 1
    True
    """

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-2,
                 etas: tuple[float, float] = (0.5, 1.2),
                 step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
                 foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False) -> None:
        check_common(lr)
        check(0.0 < etas[0] < 1.0 < etas[1], f"Invalid eta values: {etas[0]}, {etas[1]}")
        check_modes(foreach, differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable})

    def step(self, closure: Closure | None = None) -> Any:
        """One update; see Optimizer.step."""
        loss, groups = self._begin(closure)
        for group, params in groups:
            for p in params:
                state = self.state[p]
                if not state:
                    lr = number(group["lr"])
                    start = complex(lr, lr) if p.array.dtype.kind == "c" else lr
                    state.update(step=counter(), prev=zeros_like(p),
                                 step_size=zeros_like(p, start))
                advance(state["step"])
                self._update(
                    _rules.rprop, p, [state["prev"], state["step_size"]], 2,
                    eta_minus=group["etas"][0], eta_plus=group["etas"][1],
                    size_min=group["step_sizes"][0], size_max=group["step_sizes"][1],
                    maximize=group["maximize"])
        return loss
