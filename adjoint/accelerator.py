"""`torch.accelerator`'s questions, answered truthfully: there is none here."""
from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from adjoint.base.errors import missing as _missing
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


set_device_idx = set_device_index


def current_device_index() -> int:
    """Raises: there is no accelerator."""
    raise NoDevice("accelerator.current_device_index: no accelerator is available "
                   "(accelerator.is_available() is False)")


current_device_idx = current_device_index


def device_index(device: Any) -> Any:
    """A context that changes nothing, for index None; another raises: there is no accelerator."""
    if device is not None:
        set_device_index(device)
    return nullcontext()


def get_device_capability(device: Any = None) -> dict[str, Any]:
    """Raises: there is no accelerator."""
    raise NoDevice("accelerator.get_device_capability: no accelerator is available")


def get_memory_info(device: Any = None) -> tuple[int, int]:
    """(0, 0): free and total bytes of the accelerators that are here."""
    return 0, 0


def empty_cache() -> None:
    """Nothing is cached on a device."""


empty_host_cache = empty_cache


def memory_allocated(device: Any = None) -> int:
    """0 bytes."""
    return 0


memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Empty: see `memory.track()` for the cpu."""
    return {}


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing to reset."""


reset_accumulated_memory_stats = reset_peak_memory_stats


def synchronize(device: Any = None) -> None:
    """Nothing to wait for."""

__getattr__ = _missing("adjoint.accelerator")
