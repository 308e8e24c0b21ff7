"""AD022: a hidden state connects every step to all before it.

    adjoint doctor examples/labs/carried_hidden_state.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """Truncated backpropagation through time without the detach that truncates."""
    ad.manual_seed(0)
    cell, head = nn.RNNCell(4, 8), nn.Linear(8, 4)
    optimizer = ad.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.05)
    hidden = ad.zeros(2, 8)
    for _ in range(6):
        x = ad.randn(2, 4)
        hidden = cell(x, hidden)
        loss = F.mse_loss(head(hidden), x)
        optimizer.zero_grad()
        loss.backward()  # AD022
        optimizer.step()
        if healthy:
            hidden = hidden.detach()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
