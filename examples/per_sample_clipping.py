"""Per-sample gradient clipping (DP-SGD, Abadi et al. 2016, arXiv:1607.00133) with vmap of grad.

Uses: func.vmap, func.grad, func.functional_call. One call gives the gradient of every example; each
is scaled to norm <= C before they are averaged, and noise of standard deviation sigma*C/N is added.
(No privacy accounting: epsilon is not computed.)

    python examples/per_sample_clipping.py
"""
from __future__ import annotations

from typing import Any

import adjoint as ad
from adjoint.func import functional_call, grad, vmap


def per_sample_gradients(model: Any, params: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    """name -> (N, *shape): the gradient of every example's squared error."""
    def loss(p: dict[str, Any], xi: Any, yi: Any) -> Any:
        return ((functional_call(model, p, xi) - yi) ** 2).sum()
    found: dict[str, Any] = vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)
    return found


def clipped_mean(grads: dict[str, Any], limit: float, sigma: float = 0.0) -> dict[str, Any]:
    """The mean of the gradients after scaling each to norm <= `limit`, plus noise."""
    square: Any = sum((g * g).reshape(g.shape[0], -1).sum(1) for g in grads.values())
    scale = (limit / square.sqrt().clamp(min=1e-12)).clamp(max=1.0)
    n = scale.shape[0]
    out = {}
    for name, g in grads.items():
        mean = (g * scale.reshape(n, *[1] * (len(g.shape) - 1))).mean(0)
        out[name] = mean + sigma * limit / n * ad.randn(*mean.shape) if sigma else mean
    return out


def train(steps: int = 120, sigma: float = 0.05, seed: int = 0) -> tuple[float, float]:
    """(loss before, loss after) of a small network on y = x0 * x1."""
    ad.manual_seed(seed)
    model = ad.nn.Sequential(ad.nn.Linear(2, 16), ad.nn.Tanh(), ad.nn.Linear(16, 1))
    params = {n: p.detach() for n, p in model.named_parameters()}
    x = ad.randn(64, 2)
    y = (x[:, 0] * x[:, 1]).reshape(64, 1)

    def mean_loss() -> float:
        with ad.no_grad():
            value: float = ((functional_call(model, params, x) - y) ** 2).mean().item()
            return value
    before = mean_loss()
    for _ in range(steps):
        step = clipped_mean(per_sample_gradients(model, params, x, y), limit=1.0, sigma=sigma)
        params = {n: (p - 0.3 * step[n]).detach() for n, p in params.items()}
    return before, mean_loss()


def main() -> None:
    """Train and print."""
    before, after = train()
    print(f"loss {before:.3f} -> {after:.3f} with every gradient clipped to norm 1")


if __name__ == "__main__":
    main()
