"""AD009: a large negative bias puts every unit where ReLU is 0.

    adjoint doctor examples/labs/dead_relu.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """No data brings a unit back: its gradient is 0."""
    ad.manual_seed(0)
    hidden, head = nn.Linear(16, 32), nn.Linear(32, 1)
    if not healthy:
        nn.init.constant_(hidden.bias, -10.0)
    optimizer = ad.optim.SGD([*hidden.parameters(), *head.parameters()], lr=0.01)
    for _ in range(6):
        x = ad.randn(32, 16)
        h = F.relu(hidden(x))  # AD009
        optimizer.zero_grad()
        F.mse_loss(head(h), x[:, :1]).backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
