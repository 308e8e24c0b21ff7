"""`torch.cuda`'s questions, answered truthfully: there is no CUDA device here.

Seeding and synchronising do nothing; asking for a device raises one clear line.
"""
from __future__ import annotations

import importlib
from contextlib import nullcontext
from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.ops.device import NoDevice

_initialized = False                    # programs that keep random states ask it


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


def seed() -> None:
    """Nothing to seed."""


seed_all = seed


def init() -> None:
    """Raises: there is no CUDA to start."""
    _absent("init()")


def initial_seed() -> int:
    """Raises: there is no generator of a device."""
    return int(_absent("initial_seed()"))

default_generators: tuple[Any, ...] = ()    # a generator per device


def get_arch_list() -> list[str]:
    """Empty: the architectures that CUDA kernels were compiled for."""
    return []


def is_tf32_supported() -> bool:
    """False: there is no CUDA device."""
    return False


def is_current_stream_capturing() -> bool:
    """False: no work is recorded for a device."""
    return False


def get_rng_state(device: Any = None) -> Any:
    """Raises: there is no generator of a device."""
    return _absent("get_rng_state()")


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Raises: there is no generator of a device."""
    _absent("set_rng_state()")


def memory_allocated(device: Any = None) -> int:
    """0 bytes on CUDA devices."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated
memory_cached = max_memory_cached = memory_allocated


def memory_stats(device: Any = None) -> dict[str, int]:
    """Empty: nothing is counted for a device."""
    return {}


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Raises: there is no memory of a device."""
    found: tuple[int, int] = _absent("mem_get_info()")
    return found


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing to reset."""


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats
reset_accumulated_memory_stats = ipc_collect = reset_peak_memory_stats


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


def current_stream(device: Any = None) -> Any:
    """Raises: there is no queue of a device."""
    return _absent("current_stream()")


def stream(stream: Any) -> Any:
    """A context; with None, which is all there can be here, it changes nothing."""
    return nullcontext() if stream is None else _absent("stream()")


class device(nullcontext[None]):
    """A context in which a device is the current one: with None or -1, which are all there can be
    here, it changes nothing."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        if device is not None and device != -1:
            _absent(f"device({device!r})")


class device_of(nullcontext[None]):
    """A context in which the device of a tensor is the current one; a cpu tensor changes nothing.
    """

    def __init__(self, obj: Any) -> None:
        super().__init__()


class AcceleratorError(RuntimeError):
    """What an accelerator reports. Nothing here raises it."""


class OutOfMemoryError(RuntimeError):
    """The memory of an accelerator is used up. Nothing here raises it: where the machine's own is,
    that is Python's MemoryError."""


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
    if name in ("amp", "nvtx", "random"):
        return importlib.import_module(f"adjoint.cuda.{name}")
    if name.endswith("Tensor") and (
            found := importlib.import_module("adjoint.legacy").CUDA.get(name)):
        return found
    return _missing("adjoint.cuda")(name)
