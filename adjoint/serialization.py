"""PyTorch's name for what `adjoint.io` holds: `save`, `load` and the list of safe names."""
from adjoint.io import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    load,
    safe_globals,
    save,
)

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals",
           "save"]
