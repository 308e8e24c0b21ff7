"""`torch.mtia`'s questions, answered truthfully: there is no such device here."""
from __future__ import annotations

from adjoint.base.errors import missing as _missing
from adjoint.cuda import (
    current_device,
    device_count,
    empty_cache,
    get_device_name,
    is_available,
    is_bf16_supported,
    manual_seed,
    manual_seed_all,
    memory_allocated,
    set_device,
    synchronize,
)

__all__ = ["current_device", "device_count", "empty_cache", "get_device_name", "is_available",
           "is_bf16_supported", "manual_seed", "manual_seed_all", "memory_allocated", "set_device",
           "synchronize"]
__getattr__ = _missing("adjoint.mtia")
