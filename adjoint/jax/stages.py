"""`jax.stages`: what `jit` gives."""
from adjoint.jax._absent import lacking as _lacking
from adjoint.jax._api import Jitted as Wrapped
from adjoint.jax._api import Lowered

Traced = Lowered
__all__ = ["Lowered", "Traced", "Wrapped"]
__getattr__ = _lacking("stages")
