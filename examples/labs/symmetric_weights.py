"""AD025: weights that begin equal stay equal.

    adjoint doctor examples/labs/symmetric_weights.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """A hidden layer of constants: eight copies of one unit."""
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    if not healthy:
        for p in model.parameters():
            nn.init.constant_(p, 0.1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        x = ad.randn(32, 4)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x[:, :1])  # AD025
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
