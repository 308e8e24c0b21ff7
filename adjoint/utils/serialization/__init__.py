"""`torch.utils.serialization`: the values in `config` that `save` and `load` go by."""
from __future__ import annotations

from adjoint.utils.serialization import config as config

__all__ = ["config"]
