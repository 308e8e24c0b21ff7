"""What random transforms share: how arguments are read and numbers drawn."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjoint.base.errors import ArgumentError, DTypeError
from adjoint.nn import Module
from adjoint.ops.create import empty
from adjoint.ops.random import rand, randint


def pair(size: Any) -> tuple[int, int]:
    """(height, width): one number, or one in a sequence, is both."""
    if not isinstance(size, int) and len(size) not in (1, 2):
        raise ArgumentError("Please provide only two dimensions (h, w) for size.")
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))


def uniform(low: float, high: float) -> float:
    """A float32 number of [low, high) by the default generator."""
    return float(empty(1).uniform_(low, high).item())


def integer(low: int, high: int) -> int:
    """An integer of [low, high) by the default generator."""
    return int(randint(low, high, (1,)).item())


def angles(value: Any, name: str, lengths: tuple[int, ...] = (2,)) -> list[float]:
    """[-value, value] of a number; the numbers of a sequence."""
    if isinstance(value, (int, float)):
        if value < 0:
            raise ArgumentError(f"If {name} is a single number, it must be positive.")
        return [float(-value), float(value)]
    allowed = " or ".join(map(str, lengths))
    if not isinstance(value, Sequence):
        raise DTypeError(f"{name} should be a sequence of length {allowed}.")
    if len(value) not in lengths:
        raise ArgumentError(f"{name} should be a sequence of length {allowed}.")
    return [float(v) for v in value]


class Sometimes(Module):
    """Something done with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def change(self, img: Any) -> Any:
        """What is done."""
        raise NotImplementedError

    def forward(self, img: Any) -> Any:
        return self.change(img) if float(rand(()).item()) < self.p else img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"
