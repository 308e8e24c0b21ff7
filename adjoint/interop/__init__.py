"""Other libraries: the array API standard, SciPy's optimizers, scikit-learn's estimators."""
from __future__ import annotations

from adjoint.interop import array_api as array_api
from adjoint.interop.estimator import Estimator as Estimator
from adjoint.interop.minimize import scipy_minimize as scipy_minimize

__all__ = ["Estimator", "array_api", "scipy_minimize"]
