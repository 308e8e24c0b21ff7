"""AD015: sqrt has an infinite slope at 0.

    adjoint doctor examples/labs/sqrt_at_zero.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad


def main(healthy: bool) -> None:
    """The distance of a point to itself: forward is fine, backward is inf times 0."""
    ad.manual_seed(0)
    points = ad.randn(4, 2)
    points.requires_grad_()
    optimizer = ad.optim.SGD([points], lr=0.1)
    for _ in range(3):
        squared = ((points[:, None] - points[None]) ** 2).sum(-1)
        distance = (squared + 1e-12 if healthy else squared).sqrt()  # AD015
        optimizer.zero_grad()
        distance.mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
