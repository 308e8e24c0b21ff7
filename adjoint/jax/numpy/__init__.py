"""`jax.numpy`: NumPy's functions on immutable arrays, with JAX's dtypes.

>>> import adjoint.jax.numpy as jnp
>>> jnp.arange(3.0) * 2.5
Array([0. , 2.5, 5. ], dtype=float32)
"""
from __future__ import annotations

from typing import Any

import numpy as _np

from adjoint.base.errors import missing as _missing
from adjoint.jax._array import METHODS as _METHODS
from adjoint.jax._array import Array, ShapeDtypeStruct
from adjoint.jax._dtypes import SCALARS as _SCALARS
from adjoint.jax._dtypes import SMALL as _SMALL
from adjoint.jax._dtypes import as_dtype as _as_dtype
from adjoint.jax._dtypes import issubdtype
from adjoint.jax._keys import keyed as _keyed
from adjoint.jax.numpy import (
    _create,
    _elementwise,
    _index,
    _more,
    _products,
    _reduce,
    _select,
    _shape,
    _ufuncs,
    fft,
    linalg,
)
from adjoint.jax.numpy._types import finfo, iinfo, promote_types, result_type

_PARTS = (_elementwise, _create, _index, _reduce, _select, _shape, _products, _more, _ufuncs)
_part: Any
for _part in _PARTS:
    globals().update(_part.NAMES)
    _METHODS.update(_part.NAMES)
_METHODS.update(_shape.METHODS)
_keyed(globals(), "jax.numpy")
_elementwise.fill_operators(_products.NAMES["matmul"])
globals().update(_SCALARS | _SMALL)

bool_, float_, int_, uint, complex_ = (_SCALARS[n] for n in (
    "bool", "float64", "int64", "uint64", "complex128"))
single, double, half, csingle, cdouble = (_SCALARS[n] for n in (
    "float32", "float64", "float16", "complex64", "complex128"))
ndarray, ufunc = Array, _ufuncs.ufunc
pi, e, inf, nan, newaxis, euler_gamma = (
    _np.pi, _np.e, _np.inf, _np.nan, None, _np.euler_gamma)
dtype, generic, number, integer = _np.dtype, _np.generic, _np.number, _np.integer
floating, inexact, complexfloating = _np.floating, _np.inexact, _np.complexfloating
signedinteger, unsignedinteger, character, object_, flexible = (
    _np.signedinteger, _np.unsignedinteger, _np.character, _np.object_, _np.flexible)
printoptions, set_printoptions, get_printoptions = (
    _np.printoptions, _np.set_printoptions, _np.get_printoptions)


def array_repr(arr: Any, max_line_width: Any = None, precision: Any = None,
               suppress_small: Any = None) -> str:
    """`jax.numpy.array_repr`."""
    if max_line_width is precision is suppress_small is None:
        return repr(arr)
    return _np.array_repr(_np.asarray(arr), max_line_width, precision, suppress_small)


def array_str(a: Any, max_line_width: Any = None, precision: Any = None,
              suppress_small: Any = None) -> str:
    """`jax.numpy.array_str`."""
    return _np.array_str(_np.asarray(a), max_line_width, precision, suppress_small)


save, savez, iterable = _np.save, _np.savez, _np.iterable
s_, index_exp = _np.s_, _np.index_exp
ComplexWarning = _np.exceptions.ComplexWarning


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """`numpy.load`, as an array."""
    return _create.asarray(_np.load(file, *args, **kwargs))


class _Rows:
    """`r_` and `c_`: ranges and arrays joined by indexing."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs

    def __getitem__(self, at: Any) -> Any:
        items = at if isinstance(at, tuple) else (at,)
        return _create.asarray(self.theirs[tuple(
            _np.asarray(i) if isinstance(i, Array) else i for i in items)])


class _Grid(_Rows):
    """`mgrid` and `ogrid`."""

    def __getitem__(self, at: Any) -> Any:
        found = self.theirs[at]
        return list(map(_create.asarray, found)) if isinstance(found, (list, tuple)) else (
            _create.asarray(found))


r_, c_, mgrid, ogrid = _Rows(_np.r_), _Rows(_np.c_), _Grid(_np.mgrid), _Grid(_np.ogrid)


def vectorize(pyfunc: Any, *, excluded: Any = frozenset(), signature: Any = None) -> Any:
    """`jax.numpy.vectorize`: a function of core shapes, mapped over leading axes."""
    from adjoint.jax._vectorize import vectorize as run
    return run(pyfunc, excluded=excluded, signature=signature)


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """`numpy.can_cast`."""
    return _np.can_cast(_as_dtype(from_), _as_dtype(to), casting)


def __dir__() -> list[str]:
    return sorted(n for n in globals() if not n.startswith("_"))


_METHODS["view"] = lambda x, dtype=None: _view(x, dtype)
_METHODS["to_device"] = lambda x, device, *, stream=None: _moved_to(x, device)
_METHODS["compress"] = lambda x, condition, axis=None, **how: _select.NAMES["compress"](
    condition, x, axis, **how)


def _moved_to(x: Any, device: Any) -> Any:
    from adjoint.jax._devices import device_put
    return device_put(x, device)


def _view(x: Any, dtype: Any) -> Any:
    from adjoint.jax.lax import bitcast_convert_type
    to = _create.asked(dtype, "view") or x.dtype
    wider, narrower = to.itemsize // x.itemsize, x.itemsize // to.itemsize
    if wider > 1:
        if not x.ndim or x.shape[-1] % wider:
            raise ValueError("When changing to a larger dtype, its size must be a divisor of the "
                             "total size in bytes of the last axis of the array.")
        x = x.reshape((*x.shape[:-1], -1, wider))
    if narrower > 1 and not x.ndim:
        raise ValueError("Changing the dtype of a 0d array is only supported if the itemsize is "
                         f"unchanged: {x.dtype.name} as {to.name}")
    found = bitcast_convert_type(x, to)
    return found.reshape((*x.shape[:-1], -1)) if narrower > 1 else found


__all__ = ["Array", "ShapeDtypeStruct", "fft", "finfo", "iinfo", "issubdtype", "linalg",
           "promote_types", "result_type", "vectorize"]
__getattr__ = _missing("adjoint.jax.numpy")
