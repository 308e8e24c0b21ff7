"""AD017: cross_entropy applies log_softmax itself.

    adjoint doctor examples/labs/softmax_twice.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """Ten classes: the loss cannot fall below 1.46."""
    ad.manual_seed(0)
    model = nn.Linear(20, 10)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x, y = ad.randn(64, 20), ad.arange(64) % 10
    for _ in range(4):
        out = model(x)
        if not healthy:
            out = F.softmax(out, dim=1)
        loss = F.cross_entropy(out, y)  # AD017
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
