"""Adam for sparse gradients."""
from __future__ import annotations

from typing import Any

from adjoint.core.tensor import Tensor
from adjoint.optim import _rules
from adjoint.optim.optimizer import (
    Closure,
    Optimizer,
    ParamsT,
    check,
    check_common,
    number,
    zeros_like,
)

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam (Kingma and Ba 2015) that moves only the rows a sparse gradient has; the averages of
    the others rest.

    >>> import adjoint as ad
    >>> table = ad.nn.Embedding(5, 2, sparse=True)
    >>> opt = ad.optim.SparseAdam(table.parameters(), lr=0.1)
    >>> table(ad.tensor([1])).sum().backward(); opt.step()
    """

    _sparse = True

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 maximize: bool = False) -> None:
        check_common(lr, eps=eps, betas=betas)
        check(number(lr) > 0.0, f"Invalid learning rate: {lr}")
        check(eps > 0.0, f"Invalid epsilon value: {eps}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        for kind, asked in (("Sparse", "requires dense parameter tensors"),
                            ("Complex", "does not support complex parameters")):
            at = [[i, j] for i, group in enumerate(self.param_groups)
                  for j, p in enumerate(group["params"])
                  if (p.is_sparse if kind == "Sparse" else p.is_complex())]
            check(not at, f"{kind} params at indices {at}: SparseAdam {asked}")

    def step(self, closure: Closure | None = None) -> Any:
        """One update; see Optimizer.step."""
        loss, groups = self._begin(closure)
        for _, params in groups:
            for p in params:
                check(p.grad.is_sparse, "SparseAdam does not support dense gradients, please "
                                        "consider Adam instead")
        for group, params in groups:
            beta1, beta2 = group["betas"]
            for p in params:
                state = self.state[p]
                if not state:
                    state["step"] = 0                           # (PyTorch saves an int)
                    state["exp_avg"], state["exp_avg_sq"] = zeros_like(p), zeros_like(p)
                state["step"] += 1
                step = number(state["step"])
                # here eps is added to the root before its bias is corrected
                self._update_rows(
                    _rules.adam, p, [state["exp_avg"], state["exp_avg_sq"]], 2,
                    lr=number(group["lr"]), beta1=beta1, beta2=beta2,
                    eps=group["eps"] / (1 - beta2 ** step) ** 0.5, weight_decay=0.0,
                    decoupled=False, maximize=group["maximize"], step=step)
        return loss
