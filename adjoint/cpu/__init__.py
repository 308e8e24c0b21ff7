"""`torch.cpu`: the one device that is here, under the calls that programs make of any device."""
from __future__ import annotations

import importlib
from contextlib import nullcontext
from typing import Any

from adjoint.base.errors import missing as _missing


def is_available() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """'cpu'."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing to choose from."""


def synchronize(device: Any = None) -> None:
    """Nothing to wait for: operations have finished when they return."""


def current_stream(device: Any = None) -> None:
    """None: operations run in the order of the program."""


def stream(stream: Any) -> Any:
    """A context that changes nothing."""
    return nullcontext()


def is_initialized() -> bool:
    """True."""
    return True


def __getattr__(name: str) -> Any:
    """`amp` lies above this module and is imported when it is asked for."""
    if name == "amp":
        return importlib.import_module("adjoint.cpu.amp")
    return _missing("adjoint.cpu")(name)
