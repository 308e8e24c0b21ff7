"""Two training steps of a small classifier, made to be walked through.

    adjoint step examples/walk_through.py          writes walk_through.walk.html
    adjoint step examples/walk_through.py --text   prints the events

It shows module calls, a value that is used twice, what each operation saves, the backward pass,
the optimizer's write, and `zero_grad`. Run it plainly too: `python examples/walk_through.py`.
"""

from __future__ import annotations

from typing import Any

import adjoint as ad
from adjoint import nn


class Residual(nn.Module):
    """x + relu(linear(x)): x is used twice, so its gradient is a sum of two."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return x + self.linear(x).relu()


class Classifier(nn.Module):
    """Points of the plane into two classes."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(2, width)
        self.body = nn.Sequential(Residual(width), Residual(width))
        self.last = nn.Linear(width, 2)

    def forward(self, x: Any) -> Any:
        h = self.first(x).tanh()
        h = self.body(h)
        return self.last(h)


def main() -> None:
    """Train for two steps and print the losses."""
    ad.manual_seed(0)
    points = ad.randn(6, 2)
    classes = (points[:, 0] * points[:, 1] > 0).long()
    model = Classifier()
    optimizer = ad.optim.SGD(model.parameters(), lr=0.5)
    for step in range(2):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(points), classes)
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
