"""`torch.cuda`'s questions, answered truthfully: there is no CUDA device here.

Seeding and synchronising do nothing; asking for a device raises one clear line.
"""
from __future__ import annotations

import importlib
from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.ops.device import NoDevice


def is_available() -> bool:
    """False: this package computes on the cpu."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False: there is no CUDA device."""
    return False


def device_count() -> int:
    """0."""
    return 0


def _absent(what: str) -> Any:
    raise NoDevice(f"cuda.{what}: no CUDA device is available (cuda.is_available() is False); use "
                   "device('cpu')")


def current_device() -> int:
    """Raises: there is none."""
    return int(_absent("current_device()"))


def get_device_name(device: Any = None) -> str:
    """Raises: there is none."""
    return str(_absent("get_device_name()"))


def get_device_properties(device: Any = None) -> Any:
    """Raises: there is none."""
    return _absent("get_device_properties()")


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Raises: there is none."""
    found: tuple[int, int] = _absent("get_device_capability()")
    return found


def set_device(device: Any) -> None:
    """Raises: there is none."""
    _absent("set_device()")


def synchronize(device: Any = None) -> None:
    """Nothing to wait for."""


def empty_cache() -> None:
    """Nothing is cached on a device."""


def manual_seed(seed: int) -> None:
    """Nothing to seed; the cpu generator is seeded by `manual_seed`."""


def manual_seed_all(seed: int) -> None:
    """Nothing to seed."""


def memory_allocated(device: Any = None) -> int:
    """0 bytes on CUDA devices."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing to reset."""


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """One line: there is no CUDA device."""
    return "no CUDA device: see memory.memory_summary() for the cpu"


def get_rng_state_all() -> list[Any]:
    """Empty: a state per device."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Sets the state of each device: there must be none."""
    if len(new_states):
        raise NoDevice(f"cuda.set_rng_state_all: {len(new_states)} states for 0 CUDA devices")


class _OfDevice:
    """What belongs to a CUDA device: a class for annotations and isinstance; making one raises."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NoDevice(f"cuda.{type(self).__name__}: there is no CUDA device here; a CPU runs "
                       "operations in the order of the program")


class Stream(_OfDevice):
    """A queue of work of a CUDA device."""


class StreamContext(_OfDevice):
    """What `stream(s)` gives where there are streams."""


class Event(_OfDevice):
    """A mark in a stream."""


class graph(_OfDevice):
    """Records work into a `CUDAGraph`."""


class CUDAGraph(_OfDevice):
    """Recorded work of a CUDA device."""


def __getattr__(name: str) -> Any:
    if name == "amp":
        return importlib.import_module("adjoint.cuda.amp")
    return _missing("adjoint.cuda")(name)
