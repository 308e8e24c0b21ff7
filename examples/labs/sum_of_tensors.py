"""AD021: total += loss keeps the graph of every step.

    adjoint doctor examples/labs/sum_of_tensors.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """The running total is a tensor with a graph."""
    ad.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05)
    total = 0.0
    for _ in range(8):
        x = ad.randn(32, 8)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x[:, :1])
        loss.backward()
        optimizer.step()
        total += loss.item() if healthy else loss  # AD021
    print(f"mean loss {float(total) / 8:.3f}")


if __name__ == "__main__":
    main("--healthy" in sys.argv)
