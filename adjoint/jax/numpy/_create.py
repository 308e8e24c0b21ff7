"""Arrays from values, shapes and ranges."""
from __future__ import annotations

import math
import operator
import warnings
from typing import Any

import numpy as np

from adjoint.core.tensor import wrap
from adjoint.jax._array import (
    Array,
    ShapeDtypeStruct,
    as_array,
    concrete,
    convert,
    joined,
    make,
    pair_of,
)
from adjoint.jax._dtypes import ScalarType, as_dtype, canonical, default_dtype
from adjoint.jax._flat import is_key
from adjoint.jax._table import T, is_weak, named
from adjoint.jax._trace import RUN
from adjoint.jax._words import placing, taking


def asked(dtype: Any, what: str) -> Any:
    """The dtype that was asked for; a warning where it is narrowed."""
    if dtype is None:
        return None
    to = as_dtype(dtype)
    if not isinstance(dtype, (type, ScalarType)) or not issubclass(
            dtype if isinstance(dtype, type) else object, (int, float, complex)):
        wide = dtype.dtype if isinstance(dtype, ScalarType) else np.dtype(dtype)
        if wide != to:
            warnings.warn(f"Explicitly requested dtype {wide.name} requested in {what} is not "
                          f"available, and will be truncated to dtype {to.name}. To enable more "
                          "dtypes, set the jax_enable_x64 configuration option", UserWarning, 3)
    return to


def _nested(x: Any) -> bool:
    return isinstance(x, (list, tuple)) and any(
        type(v) is Array or _nested(v) for v in x)


@placing("device", "out_sharding")
def array(object: Any, dtype: Any = None, copy: bool = True, order: Any = "K", ndmin: int = 0
          ) -> Any:
    """`jax.numpy.array`: of numbers, NumPy's arrays and nested lists, arrays among them."""
    to = asked(dtype, "array")
    if hasattr(object, "__jax_array__") and type(object) is not Array:
        object = object.__jax_array__()
    if type(object).__name__ == "KeyArray":
        return object
    if isinstance(object, (list, tuple)) and any(
            type(v).__name__ == "KeyArray" for v in object):
        return _stacked_keys(object)
    if type(object) is Array:
        out = make(object.tensor, object.weak_type and dtype is None)
    elif _nested(object):
        parts = [array(v) for v in object]
        ts, weak = joined("array", parts)
        if len({tuple(t.shape) for t in ts}) > 1:
            raise TypeError("array: the entries of a list must have one shape, got "
                            + ", ".join(str(tuple(t.shape)) for t in ts))
        out = make(T["stack"](ts), False)
    else:
        out = _of_host(object if to is None else _whole(object, to))
        if dtype is not None:
            out.weak_type = False
    if to is not None and out.dtype != to:
        out = make(T["ne"](out.tensor, 0) if to.kind == "b" else convert(out.tensor, to))
    if ndmin > out.ndim:
        out = make(out.tensor.reshape((*[1] * (ndmin - out.ndim), *out.shape)), out.weak_type)
    return out


def _stacked_keys(keys: Any) -> Any:
    from adjoint.jax._keys import moved
    return moved(lambda *xs: make(T["stack"]([x.tensor for x in xs])))(*keys)


def _whole(x: Any, to: Any) -> Any:
    """Python's numbers, alone or in lists, in that dtype; OverflowError for a whole number that
    does not fit."""
    if isinstance(x, bool) or not isinstance(x, (int, list, tuple)) or to.kind not in "iuf":
        return x
    return np.array(x, to) if np.array(x).dtype.kind in "iuf" else x


def _of_host(x: Any) -> Any:
    pair = pair_of(x)
    if pair is not None and not isinstance(x, (np.ndarray, np.generic)):
        return make(wrap(np.array(x, pair[0])), pair[1])
    if x is None or isinstance(x, (list, tuple)) and any(v is None for v in x):
        raise ValueError("None is not a valid value for jnp.array")
    leaves = isinstance(x, (list, tuple))
    value = np.array(x)
    if value.dtype.kind not in "biufcV":
        raise TypeError(f"Unexpected input type for array: {type(x)}" if not leaves else
                        f"Value {x!r:.80} with dtype {value.dtype} is not a valid JAX array type. "
                        "Only arrays of numeric types are supported by JAX.")
    if leaves and value.size == 0:
        value = value.astype(default_dtype("float"))
    to = canonical(value.dtype)
    return make(wrap(np.array(x, to) if leaves and to.kind in "iu" else value.astype(to)))


@placing("device", "out_sharding")
def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None) -> Any:
    """`jax.numpy.asarray`."""
    if type(a) is Array and dtype is None:
        return a
    return array(a, dtype)


def _shape(shape: Any) -> tuple[int, ...]:
    try:
        found = (shape,) if hasattr(shape, "__index__") and not getattr(
            shape, "shape", ()) else tuple(shape)
        found = tuple(operator.index(n) for n in found)
    except TypeError:
        raise TypeError("Shapes must be 1D sequences of concrete values of integer type, got "
                        f"{shape}.") from None
    if any(n < 0 for n in found):
        raise TypeError("broadcast_in_dim shape must have every element be nonnegative, got "
                        f"{found}.")
    return found


def _everywhere(shape: Any, value: Any, dtype: Any) -> Any:
    """The tensor of one value."""
    if RUN.recording is not None:
        return RUN.recording.filled(shape, value, dtype)
    return wrap(np.full(shape, value, dtype))


def _filled(name: str, value: float) -> Any:
    def run(shape: Any, dtype: Any = None) -> Any:
        if hasattr(dtype, "words"):                      # keys, all the words of which are that
            from adjoint.jax._keys import KeyArray
            return KeyArray(run((*_shape(shape), dtype.words), "uint32"), dtype)
        to = asked(dtype, name) or default_dtype("float")
        return make(_everywhere(_shape(shape), value, to))
    return placing("device", "out_sharding")(named(run, name, "adjoint.jax.numpy"))


zeros, ones, empty = _filled("zeros", 0), _filled("ones", 1), _filled("empty", 0)


@placing("device", "out_sharding")
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """`jax.numpy.full`."""
    value = as_array(array(fill_value), "full")
    value = value if dtype is None else value.astype(asked(dtype, "full"))
    return make(T["broadcast_to"](value.tensor, _shape(shape)).clone(),
                value.weak_type and dtype is None)


def _like(name: str, value: Any, words: str = "a, dtype=None, shape=None") -> Any:
    def run(a: Any, dtype: Any, shape: Any) -> Any:
        if is_key(a) and dtype is None:                  # keys, all the words of which are that
            return a.like(full((*(a.shape if shape is None else _shape(shape)), a.dtype.words),
                               value, "uint32"))
        a = ShapeDtypeStruct(a.shape, default_dtype("float")) if is_key(a) else a
        if isinstance(a, ShapeDtypeStruct):
            return make(wrap(np.full(a.shape if shape is None else _shape(shape), value,
                                     asked(dtype, name) or a.dtype)))
        x = as_array(a, name)
        to = asked(dtype, name) or x.dtype
        return make(_everywhere(x.shape if shape is None else _shape(shape), value, to),
                    x.weak_type and dtype is None)
    return named(taking(words, run), name, "adjoint.jax.numpy")


zeros_like, ones_like = (placing("device", "out_sharding")(_like(n, v)) for n, v in (
    ("zeros_like", 0), ("ones_like", 1)))
empty_like = placing("device")(_like("empty_like", 0, "prototype, dtype=None, shape=None"))


@placing("device", "out_sharding")
def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """`jax.numpy.full_like`."""
    x = a if isinstance(a, ShapeDtypeStruct) else as_array(a, "full_like")
    to = x.shape if shape is None else shape
    if isinstance(x, Array) and x.weak_type and dtype is None:
        return full(to, fill_value)
    return full(to, fill_value, dtype or x.dtype)


@placing("device")
def eye(N: int, M: Any = None, k: int = 0, dtype: Any = None) -> Any:
    """`jax.numpy.eye`."""
    return make(wrap(np.eye(N, M, k, asked(dtype, "eye") or default_dtype("float"))))


def identity(n: int, dtype: Any = None) -> Any:
    """`jax.numpy.identity`."""
    return eye(n, dtype=dtype)


def tri(N: int, M: Any = None, k: int = 0, dtype: Any = None) -> Any:
    """`jax.numpy.tri`."""
    return make(wrap(np.tri(N, M, k, asked(dtype, "tri") or default_dtype("float"))))


@placing("device", "out_sharding")
def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Any:
    """`jax.numpy.arange`."""
    given = [v for v in (start, stop, step) if v is not None]
    to = asked(dtype, "arange")
    if to is None:
        to = joined("arange", given)[0][0].array.dtype
    if to.kind == "c" and dtype is None:
        raise ValueError("arange: complex start, stop or step is not supported")
    words = ("start", "stop", "step") if stop is not None else ("stop", "step")
    values: list[Any] = [concrete(v, f"It arose in the jnp.arange argument '{w}'")[()]
                         if isinstance(v, (Array, np.ndarray)) else v
                         for w, v in zip(words, given, strict=False)]
    if stop is None and step is not None:
        return make(wrap(np.arange(0, values[0], values[1]).astype(to)))
    if RUN.recording is not None and len(values) == 1:
        return make(RUN.recording.counted(max(0, math.ceil(values[0])), to))
    return make(wrap(np.arange(*values).astype(to)))


@placing("device")
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
             dtype: Any = None, axis: int = 0) -> Any:
    """`jax.numpy.linspace`; the ends may be arrays, and carry derivatives."""
    num = operator.index(concrete(num, "'num' argument of jnp.linspace")[()])
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    ts, _ = joined("linspace", (start, stop), floating=True)
    low, high = T["broadcast_tensors"](*ts)
    kind = low.array.dtype
    parts = max(num - 1 if endpoint else num, 0)
    at = wrap((np.arange(num) / max(parts, 1)).astype(kind)).reshape((num, *[1] * low.ndim))
    y = low * (1 - at) + high * at
    if endpoint and num > 1:
        y = T["cat"]([y[:-1], high.unsqueeze(0)])
    to = asked(dtype, "linspace")
    if to is not None and to.kind in "iu":
        y = T["floor"](y)
    y = T["movedim"](y, 0, axis) if axis else y
    out = make(y if to is None else y.to(to))
    if not retstep:
        return out
    return out, make((high - low) / parts if parts else low * float("nan"))


def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0,
             dtype: Any = None, axis: int = 0) -> Any:
    """`jax.numpy.logspace`."""
    at = linspace(start, stop, num, endpoint, axis=axis)
    ts, _ = joined("logspace", (base, at), floating=True)
    y = make(T["pow"](*ts))
    return y if dtype is None else array(y, dtype)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None,
              axis: int = 0) -> Any:
    """`jax.numpy.geomspace`."""
    ends = joined("geomspace", (start, stop), floating=True)[0]
    sign = ends[0].sgn().detach()
    low, high = (make(T["log"](t / sign)) for t in ends)
    grid = T["exp"](linspace(low, high, num, endpoint, axis=axis).tensor)
    y = make(grid * (sign.unsqueeze(axis) if sign.ndim else sign))
    return y if dtype is None else array(y, dtype)


def copy(a: Any, order: Any = None) -> Any:
    """`jax.numpy.copy`."""
    return array(a)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    """`jax.numpy.frombuffer`."""
    return array(np.frombuffer(buffer, as_dtype(dtype), count, offset))


def _impure(name: str) -> Any:
    def run(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"jnp.{name}() is not implemented because it may be non-pure and thus unsafe for use "
            "with JIT and other JAX transformations. Consider using "
            f"jnp.asarray(np.{name}(...)) instead, although care should be taken if np.{name} is "
            "used within jax transformations because of its potential side-effect of consuming "
            "what it reads.")
    run.__doc__ = f"NotImplementedError: `jnp.asarray(np.{name}(...))` in its place."
    return named(run, name, "adjoint.jax.numpy")


fromfile, fromiter = _impure("fromfile"), _impure("fromiter")


def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """The function of index arrays, one per axis."""
    return function(*[array(g, dtype) for g in np.indices(_shape(shape))], **kwargs)


def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """`jax.numpy.indices`."""
    run: Any = np.indices
    found = run(dimensions, as_dtype(dtype or int), sparse)
    return tuple(map(array, found)) if sparse else array(found)


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """`jax.numpy.meshgrid`."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for indexing are 'xy' and 'ij', got {indexing}")
    if any(as_array(x).ndim != 1 for x in xi):
        raise ValueError("Arguments to jax.numpy.meshgrid must be 1D, got shapes "
                         f"{[as_array(x).shape for x in xi]}")
    ts = [as_array(x).tensor.reshape(-1) for x in xi]
    n = len(ts)
    swap = indexing == "xy" and n > 1
    place = [1, 0, *range(2, n)] if swap else list(range(n))
    grids = [t.reshape([-1 if d == place[i] else 1 for d in range(n)]) for i, t in enumerate(ts)]
    if not sparse:
        grids = list(T["broadcast_tensors"](*grids)) if grids else []
    return [make(g, is_weak(x)) for g, x in zip(grids, xi, strict=True)]


def _window(name: str, words: str = "M") -> Any:
    def run(M: int, *beta: Any) -> Any:
        return array(getattr(np, name)(int(M), *beta).astype(default_dtype("float")))
    return named(taking(words, run), name, "adjoint.jax.numpy")


bartlett, blackman, hamming, hanning = map(_window, ("bartlett", "blackman", "hamming", "hanning"))
kaiser = _window("kaiser", "M, beta")


def isscalar(element: Any) -> bool:
    """True for numbers and arrays without axes."""
    return (type(element) is Array and element.ndim == 0) or bool(np.isscalar(element)) or (
        isinstance(element, np.ndarray) and element.ndim == 0)


def iscomplexobj(x: Any) -> bool:
    """True if the dtype is complex."""
    return as_array(x).dtype.kind == "c"


def isrealobj(x: Any) -> bool:
    """True unless the dtype is complex."""
    return not iscomplexobj(x)


NAMES: dict[str, Any] = {f.__name__: f for f in (
    array, asarray, zeros, ones, empty, full, zeros_like, ones_like, empty_like, full_like, eye,
    identity, tri, arange, linspace, logspace, geomspace, copy, frombuffer, fromfile,
    fromfunction, fromiter, indices, meshgrid, bartlett, blackman, hamming, hanning, kaiser,
    isscalar, iscomplexobj, isrealobj)}
__all__ = ["NAMES", "asked"]
