"""`jax.scipy`: special functions, distributions, linear algebra, optimisation."""
from adjoint.base.errors import missing as _missing
from adjoint.jax.scipy import integrate, linalg, optimize, signal, sparse, special, stats

__all__ = ["integrate", "linalg", "optimize", "signal", "sparse", "special", "stats"]
__getattr__ = _missing("adjoint.jax.scipy")
