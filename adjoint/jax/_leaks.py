"""`jax.checking_leaks`: arrays that outlive the transform, loop or branch that made them."""
from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from adjoint.jax._array import Array, describe, tracer_kind
from adjoint.jax._dtypes import config

F = Callable[..., Any]


def _left() -> dict[int, Any]:
    """The arrays of traces and transforms that are over."""
    gc.collect()
    return {id(x): x for x in gc.get_objects() if type(x) is Array and (
        x._trace is not None and x._trace.closed or x.tensor.level and not x.tensor.trace.alive)}


@contextlib.contextmanager
def leaks_told() -> Iterator[None]:
    """While a function is traced: Exception, with `jax_check_tracer_leaks`, if arrays of the trace
    are still held when it is over."""
    if not config.values["jax_check_tracer_leaks"]:
        yield
        return
    before = _left()
    yield
    found = [x for k, x in _left().items() if k not in before]
    if found:
        kind = "BatchTrace" if tracer_kind(found[0]) == "VmapTracer" else "DynamicJaxprTrace"
        texts = "\n".join(f"{tracer_kind(x)}({'~' if x.weak_type else ''}{describe(x)})"
                          for x in found)
        raise Exception(f"Leaked trace {kind}. Leaked tracer(s):\n\n{texts}")


def tells_leaks(f: F) -> F:
    """A function of `jax.lax` that traces its operands, with that check."""
    @wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        with leaks_told():
            return f(*args, **kwargs)
    return run


__all__ = ["leaks_told", "tells_leaks"]
