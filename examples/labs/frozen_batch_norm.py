"""AD016: frozen layers whose running statistics go on moving.

    adjoint doctor examples/labs/frozen_batch_norm.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


def main(healthy: bool) -> None:
    """Fine-tuning a head on a frozen backbone; model.train() unfreezes the statistics."""
    ad.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
    for p in backbone.parameters():
        p.requires_grad_(False)
    model = nn.Sequential(backbone, nn.Linear(16, 1))
    optimizer = ad.optim.SGD(model[1].parameters(), lr=0.1)
    model.train()
    if healthy:
        backbone.eval()
    for _ in range(5):
        x = ad.randn(32, 8) + 3
        optimizer.zero_grad()
        F.mse_loss(model(x), x[:, :1]).backward()  # AD016
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
