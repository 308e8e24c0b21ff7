"""AD012: weights that are too large multiply the gradient at every layer.

    adjoint doctor examples/labs/exploding_gradients.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn


def main(healthy: bool) -> None:
    """Eight linear layers with a gain of about six each."""
    ad.manual_seed(0)
    layers = [nn.Linear(32, 32) for _ in range(8)]
    for layer in layers:
        nn.init.normal_(layer.weight, 0.0, 0.15 if healthy else 1.0)
    optimizer = ad.optim.SGD([p for m in layers for p in m.parameters()], lr=1e-12)
    for _ in range(5):
        h = ad.randn(64, 32)
        for layer in layers:
            h = layer(h)  # AD012
        optimizer.zero_grad()
        (h * h).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
