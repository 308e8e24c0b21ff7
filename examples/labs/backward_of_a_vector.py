"""AD006: backward() of a tensor with more than one element.

    adjoint doctor examples/labs/backward_of_a_vector.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """reduction="none" gives a loss for every row."""
    ad.manual_seed(0)
    model = nn.Linear(4, 1)
    x = ad.randn(8, 4)
    loss = F.mse_loss(model(x), x[:, :1], reduction="none")
    if healthy:
        loss = loss.mean()
    loss.backward()  # AD006


if __name__ == "__main__":
    main("--healthy" in sys.argv)
