"""`torch.mps`'s questions, answered truthfully: there is no such device here."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import missing as _missing


def is_available() -> bool:
    """False: this package computes on the cpu."""
    return False


def device_count() -> int:
    """0."""
    return 0


def synchronize(device: Any = None) -> None:
    """Nothing to wait for."""


def empty_cache() -> None:
    """Nothing is cached on a device."""


def manual_seed(seed: int) -> None:
    """Nothing to seed; the cpu generator is seeded by `manual_seed`."""


def seed() -> None:
    """Nothing to seed."""


__getattr__ = _missing("adjoint.mps")
