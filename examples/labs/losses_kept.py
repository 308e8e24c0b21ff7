"""AD002: a list of loss tensors keeps a graph for every step.

    adjoint doctor examples/labs/losses_kept.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """Validation losses are collected as tensors, outside of no_grad."""
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    losses = []
    for _ in range(12):
        x = ad.randn(32, 64)
        loss = F.mse_loss(model(x), x[:, :1])  # AD002
        losses.append(loss.item() if healthy else loss)
    print(f"mean loss {sum(float(v) for v in losses) / len(losses):.3f}")


if __name__ == "__main__":
    main("--healthy" in sys.argv)
