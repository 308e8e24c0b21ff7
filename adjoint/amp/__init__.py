"""Mixed precision: autocast, gradient scaling, and what 16 bits lose, in numbers."""
from __future__ import annotations

from adjoint.amp.autocast_mode import autocast as autocast
from adjoint.amp.autocast_mode import custom_bwd as custom_bwd
from adjoint.amp.autocast_mode import custom_fwd as custom_fwd
from adjoint.amp.autocast_mode import get_autocast_dtype as get_autocast_dtype
from adjoint.amp.autocast_mode import is_autocast_available as is_autocast_available
from adjoint.amp.autocast_mode import is_autocast_cache_enabled as is_autocast_cache_enabled
from adjoint.amp.autocast_mode import is_autocast_enabled as is_autocast_enabled
from adjoint.amp.grad_scaler import GradScaler as GradScaler
from adjoint.amp.underflow import UnderflowReport as UnderflowReport
from adjoint.amp.underflow import underflow_report as underflow_report

__all__ = ["GradScaler", "UnderflowReport", "autocast", "custom_bwd", "custom_fwd",
           "get_autocast_dtype", "is_autocast_available", "is_autocast_cache_enabled",
           "is_autocast_enabled", "underflow_report"]
