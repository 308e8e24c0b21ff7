"""`torch.accelerator`'s questions, answered truthfully: there is none here."""
from __future__ import annotations

from typing import Any

from adjoint.ops.device import NoDevice


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def current_accelerator(check_available: bool = False) -> None:
    """None: this package computes on the cpu."""
    return None


def set_device_index(device: Any) -> None:
    """Raises: there is no accelerator."""
    raise NoDevice("accelerator.set_device_index: no accelerator is available; use device('cpu')")


def synchronize(device: Any = None) -> None:
    """Nothing to wait for."""
