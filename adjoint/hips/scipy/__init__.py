"""`autograd.scipy`: special functions, distributions, linear algebra, convolution, ODEs.

The modules load when they are asked for: SciPy is an optional dependency.
"""
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

from adjoint.base.errors import missing as _missing

__all__ = ["integrate", "linalg", "signal", "special", "stats"]
_absent = _missing("adjoint.hips.scipy")


def __getattr__(name: str) -> _ModuleType:
    if name in __all__:
        return _import_module(f"adjoint.hips.scipy.{name}")
    found: _ModuleType = _absent(name)
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
