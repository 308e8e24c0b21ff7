"""AD001: zero_grad() is forgotten, so each step adds to the gradients of all steps before.

    adjoint doctor examples/labs/missing_zero_grad.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """Linear regression with SGD."""
    ad.manual_seed(0)
    model = nn.Linear(10, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.01)
    x = ad.randn(32, 10)
    y = x.sum(1, keepdim=True)
    for _ in range(8):
        if healthy:
            optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()  # AD001
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
