"""`jax.scipy.sparse`: solvers of linear systems given as functions."""
from adjoint.base.errors import missing as _missing
from adjoint.jax.scipy.sparse import linalg

__all__ = ["linalg"]
__getattr__ = _missing("adjoint.jax.scipy.sparse")
