"""`torch.cpu.amp`: mixed precision under the older name of this device."""
from __future__ import annotations

from typing import Any

from adjoint import amp as _amp
from adjoint.base.dtypes import bfloat16
from adjoint.core.modes import warn


class autocast(_amp.autocast):
    """`amp.autocast("cpu", ...)`.

    >>> import warnings
    >>> import adjoint as ad
    >>> with warnings.catch_warnings(action="ignore"), autocast():
    ...     (ad.ones(1, 1) @ ad.ones(1, 1)).dtype
    adjoint.bfloat16
    """

    def __init__(self, enabled: bool = True, dtype: Any = bfloat16,
                 cache_enabled: bool = True) -> None:
        warn("`torch.cpu.amp.autocast(args...)` is deprecated. Please use "
             "`torch.amp.autocast('cpu', args...)` instead.", FutureWarning)
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(_amp.GradScaler):
    """`amp.GradScaler("cpu", ...)`."""

    def __init__(self, init_scale: float = 2.0 ** 16, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000,
                 enabled: bool = True) -> None:
        warn("`torch.cpu.amp.GradScaler(args...)` is deprecated. Please use "
             "`torch.amp.GradScaler('cpu', args...)` instead.", FutureWarning)
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval,
                         enabled)


__all__ = ["GradScaler", "autocast"]
