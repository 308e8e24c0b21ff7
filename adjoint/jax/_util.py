"""`jax.util` and `jax._src.util`: small functions on sequences, and promotion of operands."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.jax._array import as_array, checked, joined, make

prod = math.prod
cache = functools.cache


def safe_zip(*args: Iterable[Any]) -> list[tuple[Any, ...]]:
    """zip as a list; ValueError where lengths differ."""
    return list(zip(*args, strict=True))


def safe_map(f: Callable[..., Any], *args: Iterable[Any]) -> list[Any]:
    """map as a list; ValueError where lengths differ."""
    return [f(*xs) for xs in zip(*args, strict=True)]


def unzip2(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first and the second entries."""
    rows = list(pairs)
    return tuple(a for a, _ in rows), tuple(b for _, b in rows)


def unzip3(triples: Iterable[tuple[Any, Any, Any]]) -> tuple[tuple[Any, ...], ...]:
    """The first, second and third entries."""
    rows = list(triples)
    return tuple(tuple(r[i] for r in rows) for i in range(3))


def split_list(args: Sequence[Any], ns: Sequence[int]) -> list[list[Any]]:
    """Parts of these lengths, and the rest."""
    rest, out = list(args), []
    for n in ns:
        out.append(rest[:n])
        rest = rest[n:]
    return [*out, rest]


def concatenate(xs: Iterable[Sequence[Any]]) -> list[Any]:
    """Sequences one after another."""
    return [v for x in xs for v in x]


def canonicalize_axis(axis: int, num_dims: int) -> int:
    """The axis as a number from 0; ValueError for one that is not there."""
    if not -num_dims <= axis < num_dims:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {num_dims}")
    return axis % num_dims if num_dims else axis


def wraps(wrapped: Any, *_: Any, **__: Any) -> Callable[..., Any]:
    """`functools.wraps`."""
    return functools.wraps(wrapped)


def tuple_insert(t: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    """The tuple with a value before an entry."""
    return (*t[:at], value, *t[at:])


def tuple_delete(t: tuple[Any, ...], at: int) -> tuple[Any, ...]:
    """The tuple without an entry."""
    return (*t[:at], *t[at + 1:])


class NumpyComplexWarning(UserWarning):
    """A complex number lost its imaginary part."""


def _promoted(args: Any, numeric: bool = False, floating: bool = False) -> list[Any]:
    ts, weak = joined("promote", args, numeric, floating)
    return [make(t, weak) for t in ts]


def promote_dtypes(*args: Any) -> list[Any]:
    """Operands in their common dtype."""
    return _promoted(args)


def promote_dtypes_numeric(*args: Any) -> list[Any]:
    """Operands in their common dtype, truth values as integers."""
    return _promoted(args, numeric=True)


def promote_dtypes_inexact(*args: Any) -> list[Any]:
    """Operands in their common dtype, integers as floats."""
    return _promoted(args, floating=True)


def check_arraylike(name: str, *args: Any) -> None:
    """TypeError for what is no array and no number."""
    checked(name, args)


def ensure_arraylike(name: str, *args: Any) -> Any:
    """Operands as arrays; TypeError for what is none."""
    out = tuple(as_array(x, name) for x in args)
    return out[0] if len(out) == 1 else out


__all__ = ["NumpyComplexWarning", "cache", "canonicalize_axis", "check_arraylike", "concatenate",
           "ensure_arraylike", "prod", "promote_dtypes", "promote_dtypes_inexact",
           "promote_dtypes_numeric", "safe_map", "safe_zip", "split_list", "tuple_delete",
           "tuple_insert", "unzip2", "unzip3", "wraps"]
__getattr__ = _missing("adjoint.jax._util")
