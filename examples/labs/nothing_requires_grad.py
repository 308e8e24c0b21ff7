"""AD023: every parameter was frozen.

    adjoint doctor examples/labs/nothing_requires_grad.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """The head should have stayed trainable."""
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    for p in (model[0] if healthy else model).parameters():
        p.requires_grad_(False)
    x = ad.randn(16, 8)
    loss = F.mse_loss(model(x), x[:, :1])
    loss.backward()  # AD023


if __name__ == "__main__":
    main("--healthy" in sys.argv)
