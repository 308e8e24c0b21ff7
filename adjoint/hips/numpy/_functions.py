"""Functions whose arguments NumPy's protocols do not look into: lists, numbers, shapes."""
from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np

from adjoint import numpy as anp
from adjoint.hips.box import OWN, ArrayBox, arithmetic, getval, holds_box, on_arrays

_PLAIN = {"result_type", "isscalar", "may_share_memory", "shares_memory", "issubdtype", "dtype"}
_LISTS = set("sum mean prod max min amax amin var std cumsum ravel reshape transpose diag trace "
             "repeat tile roll flip squeeze expand_dims sort".split())
array = on_arrays(np.array, anp.array)
asarray = on_arrays(np.asarray, anp.asarray)
ravel = on_arrays(np.ravel, anp.ours["ravel"])


def iscomplexobj(x: Any) -> bool:
    """`numpy.iscomplexobj`."""
    return bool(np.iscomplexobj(getval(x)))


def isrealobj(x: Any) -> bool:
    """`numpy.isrealobj`."""
    return not iscomplexobj(x)


def shape(a: Any) -> tuple[int, ...]:
    """`numpy.shape`."""
    return tuple(a.shape) if isinstance(a, ArrayBox) else np.shape(getval(a))


def ndim(a: Any) -> int:
    """`numpy.ndim`."""
    return len(shape(a))


def size(a: Any, axis: Any = None) -> int:
    """`numpy.size`."""
    return int(np.prod(shape(a))) if axis is None else shape(a)[axis]


def metadata(A: Any) -> tuple[tuple[int, ...], int, Any, bool]:
    """(shape, number of axes, dtype, whether it is complex) of an array."""
    return shape(A), ndim(A), np.result_type(getval(A)), iscomplexobj(A)


def array_from_args(array_args: Any, array_kwargs: Any, *args: Any) -> Any:
    """The array of some values, which may be boxes."""
    return array(list(args), *array_args, **array_kwargs)


def concatenate_args(axis: int, *args: Any) -> Any:
    """`concatenate` of its arguments."""
    return concatenate(args, axis)


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
             dtype: Any = None, axis: int = 0) -> Any:
    """`numpy.linspace`; the ends may be boxes."""
    if not holds_box([start, stop]):
        theirs: Any = np.linspace
        return theirs(start, stop, num, endpoint, retstep, dtype, axis)
    start, stop = [arithmetic(np.multiply)(1.0, v) for v in (start, stop)]
    steps = np.arange(num) / max(num - endpoint, 1)
    grid = steps.reshape(-1, *[1] * max(ndim(start), ndim(stop)))
    y = on_arrays(np.moveaxis)(start + grid * (stop - start), 0, axis)
    y = y if dtype is None else y.astype(dtype)
    return (y, (stop - start) / max(num - endpoint, 1)) if retstep else y


def full(shape: Any, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """`numpy.full`; the value may be a box."""
    if not isinstance(fill_value, ArrayBox):
        return np.full(shape, fill_value, dtype, **kwargs)
    y = on_arrays(np.broadcast_to)(fill_value, shape)
    return y if dtype is None else y.astype(dtype)


def astype(x: Any, dtype: Any, **kwargs: Any) -> Any:
    """`numpy.astype`."""
    return x.astype(dtype, **kwargs)


def make_diagonal(D: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Matrices with these diagonals, of shape (..., n, n) from (..., n), for `offset=0, axis1=-1,
    axis2=-2`; NotImplementedError for others.

    >>> make_diagonal(np.array([1.0, 2.0]), axis1=-1, axis2=-2)
    array([[1., 0.],
           [0., 2.]])
    """
    if (offset, axis1, axis2) != (0, -1, -2):
        raise NotImplementedError("Currently make_diagonal only supports offset=0, axis1=-1, "
                                  f"axis2=-2, got {offset}, {axis1}, {axis2}")
    x = asarray(D)
    return x[..., None] * np.eye(x.shape[-1])


def concatenate(arrays: Any, axis: Any = 0, **kwargs: Any) -> Any:
    """`numpy.concatenate`; axis None joins the flattened arrays."""
    if axis is None:
        arrays, axis = [ravel(a) for a in arrays], 0
    return on_arrays(np.concatenate, anp.ours["concatenate"])(arrays, axis, **kwargs)


class _Joined:
    """`numpy.r_` and `numpy.c_`, where boxes may be among the parts."""

    def __init__(self, theirs: Any, columns: bool) -> None:
        self.theirs, self.columns = theirs, columns

    def __getitem__(self, key: Any) -> Any:
        parts = list(key) if isinstance(key, tuple) else [key]
        if not holds_box(parts):
            return self.theirs[key]
        parts = [np.r_[p] if isinstance(p, slice) else p for p in parts]
        if self.columns:
            parts = [p.reshape(-1, 1) if ndim(p) < 2 else p for p in map(asarray, parts)]
            return concatenate(parts, -1)
        return concatenate([p.reshape(1) if ndim(p) == 0 else p for p in map(asarray, parts)])


r_, c_ = _Joined(np.r_, False), _Joined(np.c_, True)


def _lexical(name: str, real: Any) -> Any:
    """`max`, `min` or `sort`, which NumPy has of complex numbers too: by the real part, then the
    imaginary one. Equal largest ones share a gradient."""
    plain = getattr(np, name)

    @wraps(plain)
    def run(a: Any, *args: Any, **kwargs: Any) -> Any:
        if not holds_box(a) or not iscomplexobj(a):
            return real(a, *args, **kwargs)
        last = -1 if name == "sort" else None
        x, axis = asarray(a), args[0] if args else kwargs.get("axis", last)
        value = np.asarray(getval(x))
        if name == "sort":
            if axis is None:
                x, value, axis = ravel(x), value.ravel(), 0
            return of_numpy("take_along_axis")(x, np.argsort(value, axis), axis)
        top = value == plain(value, axis, keepdims=True)
        share = top / top.sum(axis, keepdims=True)
        return of_numpy("sum")(x * share, axis=axis, keepdims=kwargs.get("keepdims", False))
    return run


def of_numpy(name: str) -> Any:
    """NumPy's object of that name; a function is made to take boxes."""
    theirs, ours = getattr(np, name), OWN.get(name)
    if name in _PLAIN:
        return lambda *args, **kwargs: theirs(*getval(args), **getval(kwargs))
    if isinstance(theirs, np.ufunc):
        return arithmetic(theirs)
    if isinstance(theirs, type) or not callable(theirs) or name.startswith("__"):
        return theirs
    if name not in _LISTS:
        return on_arrays(theirs, ours)

    def run(a: Any, *args: Any, **kwargs: Any) -> Any:
        return (ours or theirs)(anp.array(a) if isinstance(a, (list, tuple)) else a, *args,
                                **kwargs)
    found = on_arrays(theirs, run)
    return _lexical(name, found) if name in ("max", "min", "amax", "amin", "sort") else found


for _name in ("max", "min"):
    _method = of_numpy(_name)
    _method.__doc__ = f"`numpy.{_name}`."
    setattr(ArrayBox, _name, _method)
__all__ = ["array", "array_from_args", "asarray", "astype", "c_", "concatenate",
           "concatenate_args", "full", "iscomplexobj", "isrealobj",
           "linspace", "make_diagonal", "metadata", "ndim", "r_", "shape", "size"]
