"""A PyTorch checkpoint, loaded, trained for a step and written so that PyTorch reads it again.

Weights and the optimizer's state go both ways; PyTorch need not be installed for our side.

    python examples/pytorch_checkpoint.py model.pt        a checkpoint that PyTorch wrote
    python examples/pytorch_checkpoint.py                 one that is made here
"""
from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import adjoint as ad
from adjoint import nn


def model() -> nn.Module:
    """The network whose weights are in the file: convolution, norm, pooling, linear."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(16, 3))


def batch(seed: int = 0) -> tuple[Any, Any]:
    """Eight pictures with their labels."""
    rng = np.random.default_rng(seed)
    return (ad.tensor(rng.standard_normal((8, 1, 6, 6)), dtype=ad.float32),
            ad.from_numpy(rng.integers(0, 3, 8)))


def train_a_step(path: Path) -> float:
    """Load `path`, take one step of Adam, write it back; returns the loss before the step."""
    held = ad.load(path)
    net = model()
    net.load_state_dict(held["model"])
    optimizer = ad.optim.Adam(net.parameters(), lr=0.01)
    if held["optimizer"] is not None:
        optimizer.load_state_dict(held["optimizer"])
    x, y = batch()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    ad.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(),
             "step": held["step"] + 1}, path)
    return loss.item()


def main(path: Path | None = None) -> list[float]:
    """Three steps, each from the file that the last one wrote."""
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = Path(folder) / "model.pt"
            ad.save({"model": model().state_dict(), "optimizer": None, "step": 0}, path)
        losses = [train_a_step(path) for _ in range(3)]
        print(f"{path.name}: step {ad.load(path)['step']}, losses "
              + " ".join(f"{loss:.4f}" for loss in losses))
    return losses


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
