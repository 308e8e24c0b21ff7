"""`autograd.numpy.numpy_wrapper`: the functions of `autograd.numpy`."""
from __future__ import annotations

from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as _np

from adjoint.hips import numpy as _numpy
from adjoint.hips.extend import primitive as _primitive

_FUNCTIONS = (_np.ufunc, FunctionType, BuiltinFunctionType, type(_np.sum))


def wrap_namespace(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Puts the names of a module into another one, its functions as primitives that rules can be
    given to by `defvjp`.

    >>> import math
    >>> found = {}
    >>> wrap_namespace(vars(math), found)
    >>> found["sin"](0.0), round(found["pi"], 2)
    (0.0, 3.14)
    """
    for name, value in old.items():
        if isinstance(value, _FUNCTIONS):
            new[name] = _primitive(value)
        elif isinstance(value, (type, int, float, type(None))):
            new[name] = value


def __getattr__(name: str) -> Any:
    return getattr(_numpy, name)


def __dir__() -> list[str]:
    return dir(_numpy)
