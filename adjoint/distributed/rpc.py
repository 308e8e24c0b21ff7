"""`torch.distributed.rpc`: calls of functions in other processes are not here, as in a PyTorch that
was built without them."""
from __future__ import annotations

from adjoint.base.errors import missing as _missing


def is_available() -> bool:
    """False."""
    return False


__all__ = ["is_available"]
__getattr__ = _missing("adjoint.distributed.rpc")
