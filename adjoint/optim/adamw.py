"""AdamW."""
from __future__ import annotations

from adjoint.core.tensor import Tensor
from adjoint.optim.adam import Adam
from adjoint.optim.optimizer import ParamsT

__all__ = ["AdamW"]


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019): ``p *= 1 - lr weight_decay``
    before each step, instead of adding the decay to the gradient.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([1.0]))
    >>> opt = ad.optim.AdamW([w], lr=0.5, weight_decay=0.5)
    >>> (3 * w).sum().backward(); opt.step(); round(w.item(), 4)
    0.25
    """

    def __init__(self, params: ParamsT, lr: float | Tensor = 1e-3,
                 betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
                 foreach: bool | None = None, capturable: bool = False,
                 differentiable: bool = False, fused: bool | None = None) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach,
                         maximize=maximize, capturable=capturable, differentiable=differentiable,
                         fused=fused, decoupled_weight_decay=True)
