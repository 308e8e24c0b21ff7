"""Names of `jax._src` that libraries on JAX import and that mean something here too."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adjoint.base.errors import NotSupported
from adjoint.core.trace import current_level
from adjoint.jax._array import Array
from adjoint.jax._trace import RUN

F = Callable[..., Any]


class Effect:
    """What programs derive their kinds of side effects from; nothing here orders by them."""


class Trace:
    """`core.Trace`: a program can derive its kinds of traces from it, and make none."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotSupported(f"{type(self).__name__}: nothing here traces by jax.core.Trace. "
                           "jax.make_jaxpr gives the program of a function, and "
                           "jax.core.eval_jaxpr runs it")


def register_exclusion(path: str) -> None:
    """`traceback_util.register_exclusion`: tracebacks are not filtered here."""


def api_boundary(fun: F, **_: Any) -> F:
    """`traceback_util.api_boundary`: the function."""
    return fun


def wait_for_tokens() -> None:
    """`dispatch.wait_for_tokens`: nothing runs ahead here."""


def valid_jaxtype(x: Any) -> bool:
    """`core.valid_jaxtype`: whether a value is an array or a number.

    >>> valid_jaxtype(1.0), valid_jaxtype("a")
    (True, False)
    """
    if isinstance(x, (Array, bool, int, float, complex)):
        return True
    return isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "biufcV"


class OpaqueTraceState(NamedTuple):
    """Under how many transforms a program is: to be compared. Reverse mode, one tape for every
    order, and `jit` add none."""

    level: int


def get_opaque_trace_state(convention: str = "") -> OpaqueTraceState:
    """`extend.core.get_opaque_trace_state`: equal values under the same levels.

    >>> get_opaque_trace_state() == get_opaque_trace_state()
    True
    """
    return OpaqueTraceState(current_level())


def trace_state_clean() -> bool:
    """`_src.core.trace_state_clean`: True where no transform, `jit`, loop or branch runs.

    >>> trace_state_clean()
    True
    """
    return not (current_level() or RUN.trace is not None or RUN.recording is not None or RUN.tapes)


__all__ = ["Effect", "OpaqueTraceState", "Trace", "api_boundary", "get_opaque_trace_state",
           "register_exclusion", "trace_state_clean", "valid_jaxtype", "wait_for_tokens"]
