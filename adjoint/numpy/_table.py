"""The table from NumPy's functions to ours."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.errors import NotSupported
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.public import FUNCTIONS

F = FUNCTIONS
TABLE: dict[str, Callable[..., Any]] = {}      # "sum", "linalg.norm"
BY_FUNCTION: dict[Any, Callable[..., Any]] = {}


def find(name: str) -> Any:
    """NumPy's function of that name; None where this NumPy has none."""
    at: Any = np
    for part in name.split("."):
        at = getattr(at, part, None)
    return at


def like(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function as ours for NumPy's functions of these names."""
    def enter(f: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            TABLE[name] = f
            theirs = find(name)
            if theirs is not None:
                BY_FUNCTION[theirs] = f
        return f
    return enter


def renamed(name: str, ours: Callable[..., Any], **keywords: str) -> None:
    """NumPy's `name` is `ours` with some keywords under other names."""
    def run(*args: Any, **kwargs: Any) -> Any:
        return ours(*map(lift, args), **{keywords.get(k, k): v for k, v in kwargs.items()})
    run.__name__ = name.split(".")[-1]
    like(name)(run)


def lift(x: Any) -> Any:
    """Arrays among the operands become tensors; numbers, tuples and the rest stay."""
    return wrap(np.asarray(x)) if isinstance(x, (np.ndarray, np.generic)) else x


def as_tensor(x: Any) -> Any:
    """Anything array-like as a tensor."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, (list, tuple)) and any(isinstance(v, (Tensor, list, tuple)) for v in x):
        return F["stack"]([as_tensor(v) for v in x])
    return wrap(np.asarray(x))


def of_one_dtype(*xs: Any) -> list[Any]:
    """Operands as tensors of the dtype that NumPy's rules give them together."""
    ts = [as_tensor(x) for x in xs]
    kinds = {t.dtype for t in ts}
    if len(kinds) == 1:
        return ts
    kind = np.result_type(*kinds)
    return [t if t.dtype == kind else t.to(kind) for t in ts]


def axes_of(x: Any, axis: Any) -> tuple[int, ...]:
    """`axis` as a tuple of dims; None is all of them. AxisError for one that is not there; a number
    is taken along the axes 0 and -1 too, as by NumPy."""
    n = len(x.shape)
    if axis is None:
        return tuple(range(n))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    many = max(n, 1)
    for a in given:
        if not -many <= a < many:
            raise np.exceptions.AxisError(int(a), n)
    return tuple(int(a) % many for a in given)


def one_axis(x: Any, axis: Any) -> int:
    """The one dim that `axis` names; TypeError where it is no integer."""
    return axes_of(x, operator.index(axis))[0]


def refuse_out(name: str, out: Any) -> None:
    """`out=` would lose the derivative."""
    if out is not None:
        raise NotSupported(f"np.{name}(out=...) is not differentiable: use the returned tensor")
