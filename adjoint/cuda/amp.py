"""`torch.cuda.amp`: there is no CUDA device here, so both warn and do nothing."""
from __future__ import annotations

from typing import Any

from adjoint import amp as _amp
from adjoint.amp.autocast_mode import custom_bwd as custom_bwd
from adjoint.amp.autocast_mode import custom_fwd as custom_fwd
from adjoint.base.dtypes import float16
from adjoint.core.modes import warn


class autocast(_amp.autocast):
    """`amp.autocast("cuda", ...)`: warns that there is no CUDA device, and does nothing."""

    def __init__(self, enabled: bool = True, dtype: Any = float16,
                 cache_enabled: bool = True) -> None:
        warn("`torch.cuda.amp.autocast(args...)` is deprecated. Please use "
             "`torch.amp.autocast('cuda', args...)` instead.", FutureWarning)
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_amp.GradScaler):
    """`amp.GradScaler("cuda", ...)`: warns that there is no CUDA device, and does nothing."""

    def __init__(self, init_scale: float = 2.0 ** 16, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000,
                 enabled: bool = True) -> None:
        warn("`torch.cuda.amp.GradScaler(args...)` is deprecated. Please use "
             "`torch.amp.GradScaler('cuda', args...)` instead.", FutureWarning)
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval,
                         enabled)


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
