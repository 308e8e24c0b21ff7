"""AD019: (N, 1) minus (N,) is (N, N).

    adjoint doctor examples/labs/broadcast_loss.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn


def main(healthy: bool) -> None:
    """Every prediction is pulled towards the mean of all targets."""
    ad.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05)
    x = ad.randn(64, 8)
    y = x.sum(1)
    for _ in range(4):
        predicted = model(x).squeeze(1) if healthy else model(x)
        loss = ((predicted - y) ** 2).mean()  # AD019
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
