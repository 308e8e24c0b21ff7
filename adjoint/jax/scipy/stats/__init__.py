"""`jax.scipy.stats`: densities and distribution functions, one module per distribution."""
import sys as _sys

from adjoint.base.errors import missing as _missing
from adjoint.jax.scipy.stats import _distributions
from adjoint.jax.scipy.stats._kde import gaussian_kde
from adjoint.jax.scipy.stats._summary import mode, rankdata, sem

for _name, _module in _distributions.MODULES.items():
    globals()[_name] = _module
    _sys.modules[f"{__name__}.{_name}"] = _module
__all__ = ["gaussian_kde", "mode", "rankdata", "sem"]
__getattr__ = _missing("adjoint.jax.scipy.stats")
