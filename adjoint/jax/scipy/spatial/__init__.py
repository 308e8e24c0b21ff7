"""`jax.scipy.spatial`: rotations."""
from adjoint.base.errors import missing as _missing
from adjoint.jax.scipy.spatial import transform

__all__ = ["transform"]
__getattr__ = _missing("adjoint.jax.scipy.spatial")
