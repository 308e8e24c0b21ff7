"""NumPy's functions on tensors, with NumPy's names, arguments and defaults, and derivatives.

NumPy itself calls them: `np.sum(t, axis=1)` on a tensor is `adjoint.numpy.sum`. Imported in place
of NumPy (as `autograd.numpy` is), the module has every name of NumPy; those that are not
differentiable are NumPy's own, and `array` also takes lists of tensors.

>>> import adjoint.numpy as anp
>>> from adjoint.func import grad
>>> grad(lambda x: anp.sum(anp.array([x[0] * x[1], x[1]]) ** 2))(anp.array([2.0, 3.0]))
tensor([36., 30.], dtype=adjoint.float64)
"""
from __future__ import annotations

from typing import Any

import numpy as _np

from adjoint.core.tensor import Tensor as _Tensor
from adjoint.numpy import _index, _reduce, _shape, fft, linalg
from adjoint.numpy._table import BY_FUNCTION as _BY_FUNCTION
from adjoint.numpy._table import TABLE as _TABLE
from adjoint.ops.shape import stack_op as _stack

ours = {name.split(".")[-1]: f for name, f in _TABLE.items() if "." not in name}


def array(object: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """`numpy.array`, which also makes one tensor of a (nested) list that has tensors in it."""
    if isinstance(object, _Tensor):
        t = object.clone()
    elif isinstance(object, (list, tuple)) and _holds_tensor(object):
        parts = [array(x) for x in object]
        t = _stack(*[x if isinstance(x, _Tensor) else _np.asarray(x) for x in parts], dim=0)
    else:
        return _np.array(object, dtype=dtype, **kwargs)
    t = t if dtype is None else t.to(_np.dtype(dtype))
    return t[(None,) * max(kwargs.get("ndmin", 0) - t.ndim, 0)]


def _holds_tensor(x: Any) -> bool:
    return isinstance(x, _Tensor) or (isinstance(x, (list, tuple)) and any(map(_holds_tensor, x)))


def asarray(a: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """`numpy.asarray`; a tensor stays as it is."""
    if isinstance(a, _Tensor) and dtype is None:
        return a
    return array(a, dtype) if _holds_tensor(a) else _np.asarray(a, dtype=dtype, **kwargs)


def by_function(func: Any) -> Any:
    """Ours for a function object of NumPy's; None where there is none."""
    return _BY_FUNCTION.get(func)


def __getattr__(name: str) -> Any:
    found = ours.get(name)
    return found if found is not None else getattr(_np, name)


def __dir__() -> list[str]:
    return sorted({*dir(_np), *globals()})


__all__ = ["array", "asarray", "by_function", "fft", "linalg"]
_PARTS = (_index, _reduce, _shape)        # imported for what they enter into the table
