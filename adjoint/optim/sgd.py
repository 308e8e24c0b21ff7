"""Stochastic gradient descent."""
from __future__ import annotations

from typing import Any

from adjoint.core.tensor import Tensor
from adjoint.optim import _rules
from adjoint.optim.optimizer import (
    Closure,
    Optimizer,
    ParamsT,
    Work,
    check,
    check_common,
    check_modes,
    number,
    setting,
    zeros_like,
)

__all__ = ["SGD"]


class SGD(Optimizer):
    """``p -= lr g``, with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013).

    ``b = momentum b + (1 - dampening) g`` replaces g (the first b is g itself); ``nesterov`` uses
    ``g + momentum b``. ``weight_decay`` adds ``weight_decay p`` to g; ``maximize`` goes up.
    ``foreach`` and ``fused`` are accepted and change nothing.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([2.0]))
    >>> opt = ad.optim.SGD([w], lr=0.25)
    >>> (w * w).sum().backward(); opt.step(); w.tolist()
    [1.0]
    """

    _sparse = True

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-3, momentum: float = 0,
                 dampening: float = 0, weight_decay: float | Tensor = 0, nesterov: bool = False,
                 *, maximize: bool = False, foreach: bool | None = None,
                 differentiable: bool = False, fused: bool | None = None) -> None:
        check_common(lr)
        check(momentum >= 0.0, f"Invalid momentum value: {momentum}")
        check_common(0, weight_decay)
        check(not nesterov or (momentum > 0 and dampening == 0),
              "Nesterov momentum requires a momentum and zero dampening")
        check_modes(foreach, fused, differentiable)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "fused": fused})

    def step(self, closure: Closure | None = None) -> Any:
        """One update; see Optimizer.step."""
        loss, groups = self._begin(closure)
        for group, params in groups:
            fresh: Work = []
            known: Work = []
            for p in params:
                if p._grad.is_sparse:
                    self._sparse_step(group, p)
                    continue
                if not group["momentum"]:
                    known.append((p, []))
                    continue
                state = self.state[p]
                first = state.get("momentum_buffer") is None
                if first:
                    state["momentum_buffer"] = zeros_like(p)
                (fresh if first else known).append((p, [state["momentum_buffer"]]))
            for work, first in ((fresh, True), (known, False)):
                if work:
                    self._update_all(group, work, first)
        return loss

    def _sparse_step(self, group: dict[str, Any], p: Tensor) -> None:
        """A sparse gradient moves its own rows; momentum moves all, so that it becomes dense."""
        check(not number(group["weight_decay"]),
              "SGD: weight_decay option is not compatible with sparse gradients")
        if group["momentum"]:
            held = p.grad
            p.grad = held.detach().to_dense()
            first = self.state[p].get("momentum_buffer") is None
            if first:
                self.state[p]["momentum_buffer"] = zeros_like(p)
            self._update_all(group, [(p, [self.state[p]["momentum_buffer"]])], first)
            p.grad = held
            return
        self._update_rows(_rules.sgd, p, [], 2, lr=number(group["lr"]), momentum=0.0,
                          dampening=0.0, weight_decay=0.0, nesterov=False,
                          maximize=group["maximize"], first=False)

    def _update_all(self, group: dict[str, Any], work: Work, first: bool) -> None:
        """Update these parameters: in one compiled call if that is possible."""
        numbers = {
            "lr": setting(group, "lr"), "momentum": group["momentum"],
            "dampening": group["dampening"], "weight_decay": setting(group, "weight_decay"),
            "nesterov": group["nesterov"], "maximize": group["maximize"], "first": first}
        for p, held in self._together("sgd", work, **numbers):
            self._update(_rules.sgd, p, held, 2, **numbers)
