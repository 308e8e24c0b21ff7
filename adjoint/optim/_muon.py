"""Muon."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.errors import NotSupported
from adjoint.core.rehearsal import call
from adjoint.core.tensor import bump
from adjoint.optim.optimizer import (
    Closure,
    Optimizer,
    ParamsT,
    check,
    number,
    one_element,
    zeros_like,
)

__all__ = ["Muon"]


class Muon(Optimizer):
    """Momentum whose update matrix is replaced by a nearby orthogonal one (Jordan et al. 2024).

    For matrices only; biases and embeddings go to another optimizer. The orthogonal factor comes
    from ``ns_steps`` Newton-Schulz iterations ``X -> a X + (b A + c A A) X`` with ``A = X X^T``,
    rounded to bfloat16 as in the published method. ``adjust_lr_fn``: None or "original" scales
    lr by ``sqrt(max(1, rows / cols))``, "match_rms_adamw" by ``0.2 sqrt(max(rows, cols))``.
    Raises ArgumentError for parameters that are no matrices.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.eye(2))
    >>> opt = ad.optim.Muon([w], lr=0.1)
    >>> (w * w).sum().backward(); opt.step(); bool(w[0, 0] < 1)
    True
    """

    def __init__(self, params: ParamsT, lr: float = 1e-3, weight_decay: float = 0.1,
                 momentum: float = 0.95, nesterov: bool = True,
                 ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
                 eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None) -> None:
        one_element(lr)
        check(number(lr) >= 0.0, f"Learning rate should be >= 0 but is: {lr}")
        check(weight_decay >= 0.0, f"weight decay should be >= 0 but is: {weight_decay}")
        check(momentum >= 0.0, f"momentum should be >= 0 but is: {momentum}")
        check(adjust_lr_fn in (None, "original", "match_rms_adamw"),
              f"Adjust learning rate function {adjust_lr_fn} is not supported")
        check(ns_steps < 100, "Number of steps must be less than 100 for computational efficiency")
        check(len(ns_coefficients) == 3, "Coefficients must be a tuple of exactly 3 values")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As Optimizer.add_param_group, for matrices only."""
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if p.ndim != 2:
                self.param_groups.pop()
                check(False, "Muon only supports 2D parameters whereas we found a parameter with "
                             f"size: {p.shape}")

    def step(self, closure: Closure | None = None) -> Any:
        """One update; see Optimizer.step."""
        loss, groups = self._begin(closure)
        for _, params in groups:
            for p in params:
                if p.array.dtype.kind == "c":
                    raise NotSupported("Muon does not support complex parameters: use Adam")
        for group, params in groups:
            for p in params:
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = zeros_like(p)
                grad: Any = p.grad
                arrays = p.array, grad.array, state["momentum_buffer"].array
                rule = muon if type(p.array) is not MetaArray else _rehearsed
                rule(*arrays, lr=number(group["lr"]), weight_decay=group["weight_decay"],
                     momentum=group["momentum"], nesterov=group["nesterov"],
                     coefficients=group["ns_coefficients"], eps=group["eps"],
                     steps=group["ns_steps"], adjust=group["adjust_lr_fn"])
                bump(p, "Muon.step")
        return loss


def _rehearsed(*arrays: Any, **numbers: Any) -> None:
    """`muon` of arrays without storage: what it holds on the way."""
    call(muon, *arrays, otherwise=tuple, **numbers)


def muon(p: Any, g: Any, buf: Any, *, lr: float, weight_decay: float, momentum: float,
         nesterov: bool, coefficients: tuple[float, float, float], eps: float, steps: int,
         adjust: str | None) -> None:
    """The update rule on raw arrays, in place."""
    buf += (1 - momentum) * (g - buf)
    update = orthogonalize(g + momentum * (buf - g) if nesterov else buf, coefficients, steps, eps)
    rows, cols = p.shape
    scale = (0.2 * math.sqrt(max(rows, cols)) if adjust == "match_rms_adamw"
             else math.sqrt(max(1, rows / cols)))
    p *= 1 - lr * weight_decay
    p -= (lr * scale * update).astype(p.dtype)


def orthogonalize(g: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """An approximately orthogonal matrix with the singular vectors of ``g``."""
    a, b, c = coefficients
    x = to_bfloat16(g.T if g.shape[0] > g.shape[1] else g)
    x = to_bfloat16(x / max(float(to_bfloat16(np.linalg.norm(x))), eps))
    for _ in range(steps):
        gram = to_bfloat16(x @ x.T)
        inner = to_bfloat16(b * gram + c * (gram @ gram))
        x = to_bfloat16(a * x + inner @ x)
    return x.T if g.shape[0] > g.shape[1] else x


def to_bfloat16(x: Any) -> Any:
    """float32 values rounded to the nearest bfloat16, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)
