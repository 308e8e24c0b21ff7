"""AD011: twelve sigmoid layers: each passes on a quarter of the gradient at most.

    adjoint doctor examples/labs/vanishing_gradients.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """The healthy twin has ReLU and He initialization."""
    ad.manual_seed(0)
    layers = [nn.Linear(32, 32) for _ in range(12)]
    head = nn.Linear(32, 1)
    if healthy:
        for layer in layers:
            nn.init.kaiming_normal_(layer.weight)
    optimizer = ad.optim.SGD([p for m in [*layers, head] for p in m.parameters()], lr=0.01)
    for _ in range(6):
        x = h = ad.randn(64, 32)
        for layer in layers:
            h = layer(h)  # AD011
            h = F.relu(h) if healthy else ad.sigmoid(h)
        optimizer.zero_grad()
        F.mse_loss(head(h), x[:, :1]).backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
