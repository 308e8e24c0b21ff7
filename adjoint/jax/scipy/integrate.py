"""`jax.scipy.integrate`."""
from adjoint.base.errors import missing as _missing
from adjoint.jax.numpy._reduce import NAMES as _R

trapezoid = _R["trapezoid"]
__getattr__ = _missing("adjoint.jax.scipy.integrate")
