"""`jax.numpy.ufunc`: functions of numbers as functions of arrays, with folds."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.jax._array import Array, as_array, inside
from adjoint.jax._table import entering, no_out
from adjoint.jax.numpy import _create, _reduce, _select, _shape
from adjoint.jax.numpy._elementwise import NAMES as _E

NAMES: dict[str, Any] = {}
_enter = entering(NAMES)
_C, _R, _S, _H = (m.NAMES for m in (_create, _reduce, _select, _shape))


class ufunc:
    """A function of numbers as one of arrays, with folds: `jnp.frompyfunc(f, 2, 1, identity=0)`.

    call    runs it on arrays; default: func, mapped over the elements
    folds   methods that are functions of their own: `reduce`, `accumulate`, `at`
    """

    __name__: str

    def __init__(self, func: Callable[..., Any], /, nin: int, nout: int, *,
                 name: str | None = None, nargs: int | None = None, identity: Any = None,
                 call: Callable[..., Any] | None = None, **folds: Any) -> None:
        functools.update_wrapper(self, func)
        own: Any = name or getattr(func, "__name__", type(func).__name__)
        self.__name__ = own
        self.nin, self.nout, self.identity = nin, nout, identity
        self.nargs = nargs or nin
        self._folds = {k: f for k, f in folds.items() if f is not None}
        if call is None:
            from adjoint.jax._vectorize import vectorize
            call = vectorize(func)
        self._run = call

    def __call__(self, *args: Any, out: Any = None, where: Any = None) -> Any:
        no_out(self.__name__, out, where)
        return self._run(*args)

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __reduce__(self) -> Any:
        return self.__name__ if NAMES.get(self.__name__) is self else object.__reduce__(self)

    def _pairs(self, what: str, out: Any = None) -> None:
        if self.nin != 2:
            raise ValueError(f"{what} only supported for binary ufuncs")
        if self.nout != 1:
            raise ValueError(f"{what} only supported for functions returning a single value")
        no_out(f"{self.__name__}.{what}", out)

    def _rows(self, a: Any, axis: int, dtype: Any = None) -> list[Any]:
        x = as_array(a) if dtype is None else as_array(a).astype(dtype)
        if not x.ndim:
            raise ValueError("axis 0 is out of bounds for array of dimension 0")
        return list(_H["moveaxis"](x, axis, 0))

    def reduce(self, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None,
               keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
        """The fold along an axis (None: over all elements)."""
        self._pairs("reduce", out)
        if self.nin == 2 and where is not None and initial is None and self.identity is None:
            raise ValueError(f"reduction operation {self.__name__!r} does not have an identity, so "
                             "to use a where mask one has to specify 'initial'.")
        if "reduce" in self._folds:
            return self._folds["reduce"](a, axis=axis, dtype=dtype, keepdims=keepdims,
                                         initial=initial, where=where)
        x = as_array(a) if dtype is None else as_array(a).astype(dtype)
        if where is not None:
            x = _S["where"](where, x, self.identity if self.identity is not None else initial
                            ).astype(x.dtype)
        if isinstance(axis, tuple):
            axes = _reduce.axes_of(x, axis)
            flat = _H["moveaxis"](x, axes, range(len(axes)))
            flat = flat.reshape((-1, *flat.shape[len(axes):]))
        elif axis is None:
            axes, flat = tuple(range(x.ndim)), x.ravel()
        else:
            axes = _reduce.axes_of(x, axis)
            flat = _H["moveaxis"](x, axes[0], 0)
        rows = self._rows(flat, 0)
        initial = self.identity if initial is None else initial
        if initial is None and not rows:
            raise ValueError(f"zero-size array to reduction operation {self.__name__!r} which "
                             "has no identity")
        start = [] if initial is None else [_C["full"](flat.shape[1:], initial, x.dtype)]
        found = functools.reduce(self._run, start + rows)
        return _H["expand_dims"](found, axes) if keepdims else found

    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """All prefixes of the fold along an axis."""
        self._pairs("accumulate", out)
        if "accumulate" in self._folds:
            return self._folds["accumulate"](a, axis=axis, dtype=dtype)
        rows = self._rows(a, axis, dtype)
        for i in range(1, len(rows)):
            rows[i] = self._run(rows[i - 1], rows[i])
        return _H["stack"](rows, axis) if rows else as_array(a)

    def outer(self, A: Any, B: Any, /) -> Any:
        """Every element of one with every element of the other."""
        self._pairs("outer")
        x, y = as_array(A), as_array(B)
        return self._run(x.reshape(x.shape + (1,) * y.ndim), y)

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Any:
        """A copy in which elements at indices are replaced by the function of them; where one
        comes more often, it is applied as often."""
        if inplace:
            raise NotImplementedError("Because JAX arrays are immutable, jnp.ufunc.at() cannot "
                                      "operate inplace like np.ufunc.at(). Instead, you can pass "
                                      "inplace=False and capture the result; e.g. "
                                      "result = jnp.add.at(arr, ind, val, inplace=False)")
        x = as_array(a)
        if "at" in self._folds:
            return self._folds["at"](x, indices, b)
        if self.nin > 1:
            self._pairs("at")
        places = np.arange(x.size).reshape(x.shape)[inside(indices) if isinstance(
            indices, Array) else tuple(inside(i) if isinstance(i, Array) else i for i in indices)
            if isinstance(indices, tuple) else indices]
        rest = [] if self.nin == 1 else [_H["broadcast_to"](as_array(b), places.shape).ravel()]
        flat = x.ravel()
        for k, i in enumerate(places.ravel()):
            flat = flat.at[int(i)].set(self._run(flat[int(i)], *[v[k] for v in rest]))
        return flat.reshape(x.shape)

    def reduceat(self, a: Any, indices: Sequence[int], axis: int = 0, dtype: Any = None,
                 out: Any = None) -> Any:
        """The folds of the parts that start at indices."""
        self._pairs("reduceat", out)
        rows = self._rows(a, axis, dtype)
        at = [int(i) for i in np.asarray(inside(indices) if isinstance(indices, Array) else
                                         indices)] + [len(rows)]
        parts = [functools.reduce(self._run, rows[i:max(j, i + 1)])
                 for i, j in zip(at, at[1:], strict=False)]
        return _H["stack"](parts, axis)


@_enter("frompyfunc")
def frompyfunc(func: Any, /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    return ufunc(func, nin, nout, identity=identity)


# ------------------------------------------------------------------ those of jax.numpy
def _fold(name: str) -> Any:
    """A reduction of `jax.numpy` as the fold of a ufunc; what it does not take is not passed on."""
    def run(a: Any, *, dtype: Any = None, initial: Any = None, **how: Any) -> Any:
        if name in ("all", "any"):
            return _R[name](a, **how)
        if name in ("max", "min"):
            return _R[name](a, initial=initial, **how)
        return _R[name](a, dtype=dtype, initial=initial, **how)
    return run


def _logsumexp(base: float) -> Any:
    def run(a: Any, *, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Any:
        from adjoint.jax.nn import logsumexp
        x = as_array(a) if dtype is None else as_array(a).astype(dtype)
        found = logsumexp(x if base == 1 else x * base, axis, keepdims=keepdims, where=where)
        found = found if base == 1 else found / base
        return found if initial is None else NAMES[
            "logaddexp" if base == 1 else "logaddexp2"](initial, found)
    return run


def _bits(name: str) -> Any:
    def run(a: Any, *, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Any:
        from adjoint.jax import lax
        x = as_array(a) if dtype is None else as_array(a).astype(dtype)
        axes, own = _reduce.axes_of(x, axis), NAMES[f"bitwise_{name}"]
        if where is not None:
            x = _S["where"](where, x, own.identity).astype(x.dtype)
        found = getattr(lax, f"reduce_{name}")(x, axes)
        found = found if initial is None else own(found, as_array(initial).astype(x.dtype))
        return _H["expand_dims"](found, axes) if keepdims else found
    return run


def _at(method: str) -> Any:
    return lambda x, indices, b: getattr(x.at[indices], method)(b)


_OWN: dict[str, tuple[int, Any, dict[str, Any]]] = {
    "add": (2, 0, {"reduce": _fold("sum"), "accumulate": _R["cumsum"], "at": _at("add")}),
    "multiply": (2, 1, {"reduce": _fold("prod"), "accumulate": _R["cumprod"],
                        "at": _at("multiply")}),
    "maximum": (2, None, {"reduce": _fold("max"), "at": _at("max")}),
    "minimum": (2, None, {"reduce": _fold("min"), "at": _at("min")}),
    "logical_and": (2, True, {"reduce": _fold("all")}),
    "logical_or": (2, False, {"reduce": _fold("any")}),
    "logical_xor": (2, False, {}),
    "bitwise_and": (2, -1, {"reduce": _bits("and")}),
    "bitwise_or": (2, 0, {"reduce": _bits("or")}),
    "bitwise_xor": (2, 0, {"reduce": _bits("xor")}),
    "logaddexp": (2, -np.inf, {"reduce": _logsumexp(1)}),
    "logaddexp2": (2, -np.inf, {"reduce": _logsumexp(float(np.log(2)))}),
    "subtract": (2, None, {"at": _at("subtract")}),
    "negative": (1, None, {})}
for _name, (_nin, _identity, _folds) in _OWN.items():
    NAMES[_name] = ufunc(_E[_name], _nin, 1, identity=_identity, call=_E[_name], **_folds)
__all__ = ["NAMES", "ufunc"]
