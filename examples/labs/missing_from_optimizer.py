"""AD008: the optimizer is given a part of the parameters.

    adjoint doctor examples/labs/missing_from_optimizer.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """The encoder learns nothing, though it gets gradients."""
    ad.manual_seed(0)
    encoder, head = nn.Linear(8, 16), nn.Linear(16, 1)
    model = nn.Sequential(encoder, nn.Tanh(), head)
    chosen = model.parameters() if healthy else head.parameters()
    optimizer = ad.optim.SGD(chosen, lr=0.1)  # AD008
    x = ad.randn(32, 8)
    for _ in range(4):
        optimizer.zero_grad()
        F.mse_loss(model(x), x[:, :1]).backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
