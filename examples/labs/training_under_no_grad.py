"""AD004: the forward pass runs under no_grad().

    adjoint doctor examples/labs/training_under_no_grad.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """no_grad() was meant for the validation below."""
    ad.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x = ad.randn(32, 8)
    for _ in range(3):
        with ad.set_grad_enabled(healthy):  # AD004
            loss = F.mse_loss(model(x), x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
