"""`torch.cuda.amp`: there is no CUDA device here, so both warn and do nothing."""
from __future__ import annotations

from typing import Any

from adjoint import amp as _amp
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


def custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Any:
    """`amp.custom_fwd` of the device that is not here."""
    warn("`torch.cuda.amp.custom_fwd(args...)` is deprecated. Please use "
         "`torch.amp.custom_fwd(args..., device_type='cuda')` instead.", FutureWarning)
    return _amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """`amp.custom_bwd` of the device that is not here."""
    warn("`torch.cuda.amp.custom_bwd(args...)` is deprecated. Please use "
         "`torch.amp.custom_bwd(args..., device_type='cuda')` instead.", FutureWarning)
    return _amp.custom_bwd(bwd, device_type="cuda")


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
