"""AD018: a loss summed over the batch with the learning rate of a mean.

    adjoint doctor examples/labs/summed_loss.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """512 rows: the step is 512 times as long."""
    ad.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.002)
    x = ad.randn(512, 8)
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x[:, :1], reduction="mean" if healthy else "sum")  # AD018
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
