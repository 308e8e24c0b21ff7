"""Adagrad."""
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

__all__ = ["Adagrad"]


class Adagrad(Optimizer):
    """``s += g^2``, ``p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)`` (Duchi et al. 2011).

    The sums exist from the start, filled with ``initial_accumulator_value``.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([1.0]))
    >>> opt = ad.optim.Adagrad([w])
    >>> (w * w).sum().backward(); opt.step(); w.item() < 1
    True
    """

    _sparse = True

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-2, lr_decay: float = 0,
                 weight_decay: float = 0, initial_accumulator_value: float = 0,
                 eps: float = 1e-10, foreach: bool | None = None, *, maximize: bool = False,
                 differentiable: bool = False, fused: bool | None = None) -> None:
        check_common(lr, weight_decay, eps)
        check(lr_decay >= 0.0, f"Invalid lr_decay value: {lr_decay}")
        check(initial_accumulator_value >= 0.0,
              f"Invalid initial_accumulator_value value: {initial_accumulator_value}")
        check_modes(foreach, fused, differentiable)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused})
        for group in self.param_groups:
            for p in group["params"]:
                self._start(group, p)

    def _start(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[p]
        if not state:
            state["step"] = counter()
            start = group["initial_accumulator_value"]
            state["sum"] = zeros_like(
                p, complex(start, start) if p.array.dtype.kind == "c" else start)
        return state

    def share_memory(self) -> None:
        """Move the state to memory that other processes write to as well."""
        for state in self.state.values():
            for value in state.values():
                value.share_memory_()

    def step(self, closure: Closure | None = None) -> Any:
        """One update; see Optimizer.step."""
        loss, groups = self._begin(closure)
        for group, params in groups:
            for p in params:
                state = self._start(group, p)
                check(not (p.grad.is_sparse and group["weight_decay"]),
                      "Adagrad: weight_decay option is not compatible with sparse gradients")
                update = self._update_rows if p.grad.is_sparse else self._update
                update(
                    _rules.adagrad, p, [state["sum"]], 2, lr=setting(group, "lr"),
                    lr_decay=group["lr_decay"], eps=group["eps"],
                    weight_decay=group["weight_decay"], maximize=group["maximize"],
                    step=advance(state["step"]))
        return loss
