"""Maximum likelihood of a Gaussian mixture with full covariances, by gradients.

Component k has precision Q Qᵀ with Q lower triangular, exp(q) on its diagonal, as in ADBench
(Šrajer, Kukelova, Fitzgibbon 2018, "A benchmark of selected algorithmic differentiation tools").
Uses: func.value_and_grad, einsum, logsumexp, index_put.

    python examples/gmm.py
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

import adjoint as ad
from adjoint.func import value_and_grad

Parameters = dict[str, Any]


def lower(entries: Any, d: int, m: Any = ad) -> Any:
    """(K, d(d-1)/2) -> (K, d, d), strictly lower triangular."""
    rows, columns = (m.tensor(i) for i in np.tril_indices(d, -1))
    k = entries.shape[0]
    empty = m.zeros((k, d, d), dtype=entries.dtype)
    return empty.index_put((m.arange(k)[:, None], rows[None], columns[None]), entries)


def log_likelihood(p: Parameters, x: Any, m: Any = ad) -> Any:
    """Σ_n log Σ_k w_k N(x_n; μ_k, (Q_k Q_kᵀ)⁻¹) of points (n, d).

    p   "weights" (K,) before softmax, "means" (K, d), "diagonal" (K, d) log of Q's, "off" the rest
    m   the module that computes: this package, or one with the same names
    """
    n, d = x.shape
    centred = x[:, None, :] - p["means"]
    scaled = m.exp(p["diagonal"]) * centred + m.einsum(
        "kij,nkj->nki", lower(p["off"], d, m), centred)
    log_density = p["diagonal"].sum(1) - 0.5 * (scaled * scaled).sum(2)
    log_weights = p["weights"] - m.logsumexp(p["weights"], 0)
    return m.logsumexp(log_weights + log_density, 1).sum() - 0.5 * n * d * math.log(2 * math.pi)


def start(x: np.ndarray, k: int, seed: int = 0) -> Parameters:
    """Means at k of the points, spheres around them."""
    rng = np.random.default_rng(seed)
    d = x.shape[1]
    return {"weights": ad.zeros(k, dtype=ad.float64),
            "means": ad.tensor(x[rng.choice(len(x), k, replace=False)]),
            "diagonal": ad.zeros((k, d), dtype=ad.float64),
            "off": ad.zeros((k, d * (d - 1) // 2), dtype=ad.float64)}


def fit(x: np.ndarray, k: int, steps: int = 300, rate: float = 0.05) -> tuple[Parameters, Any]:
    """Parameters and mean log-likelihood after Adam."""
    p = start(x, k)
    points = ad.tensor(x)
    names = list(p)
    leaves = [p[n].requires_grad_() for n in names]
    rule = ad.optim.Adam(leaves, lr=rate)
    both = value_and_grad(lambda q: -log_likelihood(q, points) / len(x))
    loss = None
    for _ in range(steps):
        loss, g = both({n: v.detach() for n, v in zip(names, leaves, strict=True)})
        for leaf, name in zip(leaves, names, strict=True):
            leaf.grad = g[name]
        rule.step()
    assert loss is not None
    return {n: v.detach() for n, v in zip(names, leaves, strict=True)}, -loss


def blobs(n: int = 400, seed: int = 0) -> np.ndarray:
    """Points of two long, tilted clouds."""
    rng = np.random.default_rng(seed)
    tilt = np.array([[1.0, 0.0], [0.8, 0.3]])
    half = rng.normal(size=(n, 2)) @ tilt.T
    return np.where(np.arange(n)[:, None] % 2 == 0, half + [4.0, 0.0], half - [4.0, 0.0])


def main() -> None:
    """Fit two clouds; print where they were found."""
    p, value = fit(blobs(), 2)
    print("mean log-likelihood", round(value.item(), 3))
    print("means", p["means"].round(decimals=2).tolist())


if __name__ == "__main__":
    main()
