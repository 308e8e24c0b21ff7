"""AD024: detach() between the encoder and the loss.

    adjoint doctor examples/labs/detached_path.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


class Net(nn.Module):
    """An encoder whose output is detached, as it was for plotting."""

    def __init__(self, healthy: bool) -> None:
        super().__init__()
        self.healthy = healthy
        self.encoder, self.head = nn.Linear(8, 4), nn.Linear(4, 1)

    def forward(self, x: ad.Tensor) -> ad.Tensor:
        """(batch, 8) -> (batch, 1)."""
        code = ad.tanh(self.encoder(x))
        if not self.healthy:
            code = code.detach()  # AD024
        return self.head(code)


def main(healthy: bool) -> None:
    """Train it."""
    ad.manual_seed(0)
    model = Net(healthy)
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(4):
        x = ad.randn(32, 8)
        optimizer.zero_grad()
        F.mse_loss(model(x), x[:, :1]).backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
