"""PyTorch's name for what `adjoint.io` holds: `save`, `load` and the list of safe names."""
from collections.abc import Callable
from typing import Any

from adjoint.io import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    load,
    safe_globals,
    save,
)

MAP_LOCATION = Callable[[Any, str], Any] | str | dict[str, str] | None   # what `load` takes
FILE_LIKE = Any
DEFAULT_PROTOCOL = 2                    # of the pickle in a file

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals",
           "get_unsafe_globals_in_checkpoint", "load", "safe_globals", "save"]
