"""AD010: inputs of a sigmoid are far out where it is flat.

    adjoint doctor examples/labs/saturated_sigmoid.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """Data in the hundreds, weights of order one."""
    ad.manual_seed(0)
    hidden, head = nn.Linear(16, 32), nn.Linear(32, 1)
    optimizer = ad.optim.SGD([*hidden.parameters(), *head.parameters()], lr=0.01)
    for _ in range(6):
        x = ad.randn(32, 16) * (1.0 if healthy else 400.0)
        h = ad.sigmoid(hidden(x))  # AD010
        optimizer.zero_grad()
        F.mse_loss(head(h), x[:, :1].sign()).backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
