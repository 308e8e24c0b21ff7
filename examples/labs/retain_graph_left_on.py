"""AD003: retain_graph=True on a backward that no other one follows.

    adjoint doctor examples/labs/retain_graph_left_on.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """Somebody silenced an error with retain_graph=True and left it."""
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(6):
        x = ad.randn(16, 16)
        loss = F.mse_loss(model(x), x[:, :1])
        optimizer.zero_grad()
        loss.backward(retain_graph=not healthy)  # AD003
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
