"""`jax.ad_checkpoint`."""
from __future__ import annotations

from typing import Any

from adjoint.autograd.selective import Offloadable, Recompute, Saveable
from adjoint.func import checkpoint_name as _named
from adjoint.func import checkpoint_policies
from adjoint.jax._absent import lacking as _lacking
from adjoint.jax._api import checkpoint
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._array import make as _make
from adjoint.jax._residuals import print_saved_residuals

remat = checkpoint


def checkpoint_name(x: Any, name: str) -> Any:
    """x, with a name that policies may ask for."""
    a = _as_array(x)
    return _make(_named(a.tensor, name), a.weak_type)


__all__ = ["Offloadable", "Recompute", "Saveable", "checkpoint", "checkpoint_name",
           "checkpoint_policies", "print_saved_residuals", "remat"]
__getattr__ = _lacking("ad_checkpoint")
