"""How functions of tensors become functions of arrays."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import ShapeError
from adjoint.core.tensor import Tensor
from adjoint.jax._array import (
    Array,
    has_no_values,
    joined,
    make,
    pair_of,
    tensor_of,
    value_of,
)
from adjoint.jax._dtypes import config
from adjoint.jax._words import form, taking
from adjoint.ops.public import FUNCTIONS

F = Callable[..., Any]
T = FUNCTIONS


def raised(x: Any, weak: bool = False) -> Any:
    """Tensors in tuples and lists as arrays."""
    if isinstance(x, Tensor):
        return make(x, weak)
    if isinstance(x, (tuple, list)):
        parts = [raised(v, weak) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return x


def lowered(x: Any) -> Any:
    """Arrays in tuples, lists and dicts as tensors."""
    if type(x) is Array:
        return x.tensor
    if isinstance(x, (tuple, list)):
        return type(x)(map(lowered, x)) if not hasattr(x, "_fields") else x
    return x


def named(f: F, name: str, module: str) -> F:
    """The function with its public name."""
    f.__name__ = f.__qualname__ = name
    f.__module__ = module
    f.__doc__ = f.__doc__ or f"`{module.removeprefix('adjoint.')}.{name}`."
    return f


def broadcast(name: str, ts: list[Any]) -> None:
    """Where shapes do not broadcast, in JAX's words, TypeError; ValueError if ranks differ."""
    try:
        np.broadcast_shapes(*[tuple(t.shape) for t in ts])
    except ValueError:
        shapes = [tuple(t.shape) for t in ts]
        if len({len(s) for s in shapes if s}) > 1:
            raise ValueError(f"Incompatible shapes for broadcasting: shapes={shapes}") from None
        raise TypeError(f"{name} got incompatible shapes for broadcasting: "
                        + ", ".join(map(str, shapes)) + ".") from None


def entering(table: dict[str, F], module: str = "adjoint.jax.numpy") -> Callable[..., F]:
    """A decorator that enters functions in a table under their public names."""
    def enter(*names: str) -> Callable[[F], F]:
        def run(f: F) -> F:
            table.update(dict.fromkeys(names, f))
            return named(f, names[0], module)
        return run
    return enter


def ordered(name: str) -> Any:
    """The comparison or choice of tensors, with complex numbers in the order of their real parts,
    then of the imaginary ones: JAX orders them, PyTorch does not."""
    def before(x: Any, y: Any, same: str) -> Any:
        return T["where"](x.real == y.real, T[same](x.imag, y.imag), x.real < y.real)

    def run(x: Any, y: Any) -> Any:
        if name in ("eq", "ne") or not (x.is_complex() or y.is_complex()):
            return T[name](x, y)
        if name in ("lt", "le"):
            return before(x, y, name)
        if name in ("gt", "ge"):
            return before(y, x, {"gt": "lt", "ge": "le"}[name])
        first = before(y, x, "le") if "max" in name else before(x, y, "le")
        return T["where"](T["isnan"](y if name[0] == "f" else x) | first, x, y)
    return run


def elementwise(name: str, run: F, *, floating: bool = False, numeric: bool = False,
                kind: str = "same", module: str = "adjoint.jax.numpy", takes: str = "") -> F:
    """A function of broadcast operands that are brought to their common dtype.

    floating  integers count as floats
    numeric   truth values count as integers
    kind      "same": weak where their common type is; "all": where all operands are; "strong":
              never
    takes     JAX's primitive and the dtypes' kinds that it takes: "rem iuf"
    """
    primitive, _, kinds = takes.partition(" ")

    def call(*args: Any, out: Any = None) -> Any:
        no_out(name, out)
        ts, weak = joined(name, args, numeric, floating)
        if config.watched:
            same_ranks(name, ts)
        if kinds and ts[0].array.dtype.kind not in kinds and not (
                "f" in kinds and is_real_float(ts[0].array.dtype)):
            not_taken(primitive, kinds, ts)
        try:
            y = run(*ts)
        except (ShapeError, ValueError):
            broadcast(name, ts)
            raise
        found = make(y, weak and (kind == "same" or kind == "all" and all(
            map(_is_number, args))))
        if config.watched:
            finite(found, name)
        return found
    words = form(module, name)
    if words.endswith(", /, out=None"):     # NumPy's place of a result, by position too
        return named(taking(words, lambda *given: call(*given[:-1], out=given[-1])), name, module)
    return named(taking(words, call), name, module)


_CATEGORIES = {"i": "integer", "f": "floating", "c": "complexfloating", "b": "bool"}


def is_real_float(dtype: Any) -> bool:
    """True for floats, those of 16 bits too."""
    return is_inexact(dtype) and dtype.kind != "c"


def not_taken(primitive: str, kinds: str, ts: list[Any]) -> None:
    """TypeError for operands of a dtype that JAX's primitive does not take."""
    at = " at position 0" if len(ts) > 1 else ""
    words = ", ".join(w for k, w in _CATEGORIES.items() if k in kinds)
    raise TypeError(f"{primitive} does not accept dtype {ts[0].array.dtype.name}{at}. Accepted "
                    f"dtypes{at} are subtypes of {words}.")


def _is_number(x: Any) -> bool:
    return is_weak(x) or isinstance(x, bool)


def same_ranks(name: str, ts: list[Any]) -> None:
    """What `jax_numpy_rank_promotion` says where operands differ in their number of axes."""
    asked = config.values["jax_numpy_rank_promotion"]
    if asked == "allow" or len({t.ndim for t in ts if t.ndim}) < 2:
        return
    shapes = " ".join(str(tuple(t.shape)) for t in ts)
    if asked == "warn":
        warnings.warn(f"Following NumPy automatic rank promotion for {name} on shapes {shapes}. "
                      "Set the jax_numpy_rank_promotion config option to 'allow' to disable this "
                      "warning.", UserWarning, stacklevel=4)
        return
    raise ValueError(f"Operands could not be broadcast together for {name} on shapes {shapes} and "
                     "with the config option jax_numpy_rank_promotion='raise'.")


def finite(x: Array, where: str) -> None:
    """FloatingPointError for a value that `jax_debug_nans` or `jax_debug_infs` does not allow."""
    if x.dtype.kind not in "fc" or has_no_values(x):
        return
    value = value_of(x)
    for flag, test, word in (("jax_debug_nans", np.isnan, "nan"),
                             ("jax_debug_infs", np.isinf, "inf")):
        if config.values[flag] and test(value).any():
            raise FloatingPointError(f"invalid value ({word}) encountered in {where}")


def no_out(name: str, out: Any, where: Any = None) -> None:
    """NotImplementedError for NumPy's `out=`: arrays are immutable."""
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{name} is not supported.")
    if where is not None:
        raise NotImplementedError(f"The 'where' argument to jnp.{name} is not supported.")


def operands(name: str, *xs: Any, floating: bool = False, numeric: bool = False) -> list[Any]:
    """Operands as tensors of their common dtype."""
    return joined(name, xs, numeric, floating)[0]


def floating(x: Any, name: str) -> Any:
    """One operand as a tensor of floats."""
    return joined(name, (x,), floating=True)[0][0]


def is_weak(x: Any) -> bool:
    """True for Python's numbers and weak arrays."""
    pair = pair_of(x)
    return pair is not None and pair[1]


__all__ = ["T", "broadcast", "elementwise", "entering", "floating", "is_weak", "lowered", "named",
           "no_out", "operands", "ordered", "raised", "tensor_of"]
