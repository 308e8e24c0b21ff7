"""AD007: a layer is built and never used.

    adjoint doctor examples/labs/unused_layer.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


class Net(nn.Module):
    """Two hidden layers, one of them forgotten in forward."""

    def __init__(self, healthy: bool) -> None:
        super().__init__()
        self.healthy = healthy
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 16)  # AD007
        self.head = nn.Linear(16, 1)

    def forward(self, x: ad.Tensor) -> ad.Tensor:
        """(batch, 8) -> (batch, 1)."""
        h = F.relu(self.first(x))
        if self.healthy:
            h = F.relu(self.second(h))
        return self.head(h)


def main(healthy: bool) -> None:
    """Train it."""
    ad.manual_seed(0)
    model = Net(healthy)
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-2)
    x = ad.randn(32, 8)
    for _ in range(4):
        optimizer.zero_grad()
        F.mse_loss(model(x), x[:, :1]).backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
