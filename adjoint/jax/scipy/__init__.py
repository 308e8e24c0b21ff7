"""`jax.scipy`: special functions, distributions, linear algebra, optimisation."""
from adjoint.base.errors import missing as _missing
from adjoint.jax.scipy import (
    cluster,
    fft,
    integrate,
    interpolate,
    linalg,
    ndimage,
    optimize,
    signal,
    sparse,
    spatial,
    special,
    stats,
)

__all__ = ["cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal",
           "sparse", "spatial", "special", "stats"]
__getattr__ = _missing("adjoint.jax.scipy")
