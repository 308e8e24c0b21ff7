"""AD020: validation with dropout on.

    adjoint doctor examples/labs/eval_forgotten.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """no_grad() switches recording off, not dropout."""
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 1))
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        model.train()
        for _ in range(3):
            x = ad.randn(32, 8)
            optimizer.zero_grad()
            F.mse_loss(model(x), x[:, :1]).backward()
            optimizer.step()
        if healthy:
            model.eval()
        with ad.no_grad():
            held = ad.randn(32, 8)
            out = model(held)  # AD020
            print(f"validation {F.mse_loss(out, held[:, :1]).item():.3f}")


if __name__ == "__main__":
    main("--healthy" in sys.argv)
