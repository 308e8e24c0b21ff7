"""`jax.experimental.checkify`: checks inside of transformed functions, their failures as values.

A function runs as it is written, so a check is looked at where it stands: those of a program's own
(`check`), and those of every operation for NaNs, divisions by zero and indices out of bounds.
"""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from functools import wraps
from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import missing as _missing
from adjoint.core.modes import Observer as _Observer
from adjoint.core.modes import watchers
from adjoint.core.tensor import Tensor
from adjoint.jax._api import quiet
from adjoint.jax._array import as_array, is_array_like, is_hidden
from adjoint.jax._to_lax import POINT as _POINT
from adjoint.jax._trace import RUN
from adjoint.jax.debug import callback
from adjoint.jax.errors import JaxRuntimeError as _RuntimeError
from adjoint.jax.tree_util import register_pytree_node, tree_leaves
from adjoint.ops.family import PointwiseOp

F = Callable[..., Any]


class JaxRuntimeError(_RuntimeError, ValueError):
    """A check failed."""


class FailedCheckError(JaxRuntimeError):
    """A check of the program's own failed."""


class NaNError(JaxRuntimeError):
    """A result is NaN."""


class DivisionByZeroError(JaxRuntimeError):
    """A division by zero."""


class OOBError(JaxRuntimeError):
    """An index out of bounds."""


ErrorCategory = type[JaxRuntimeError]
Failures = list[tuple[ErrorCategory, str]]
user_checks, nan_checks = frozenset({FailedCheckError}), frozenset({NaNError})
index_checks, div_checks = frozenset({OOBError}), frozenset({DivisionByZeroError})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


class Error:
    """The first check that failed, or none."""

    def __init__(self, failed: tuple[ErrorCategory, str] | None = None) -> None:
        self._failed = failed

    def get(self) -> str | None:
        """What failed, in words; None where nothing did."""
        return self._failed[1] if self._failed else None

    def get_exception(self) -> JaxRuntimeError | None:
        """What failed as an exception of its kind; None where nothing did."""
        return self._failed[0](self._failed[1]) if self._failed else None

    def throw(self) -> None:
        """JaxRuntimeError if a check failed."""
        if self._failed is not None:
            raise JaxRuntimeError(self._failed[1])

    def __repr__(self) -> str:
        return f"Error({self.get()!r})"


register_pytree_node(Error, lambda e: ((), e._failed), lambda failed, _: Error(failed))
init_error = Error()


class _Running(threading.local):
    """What failed in the innermost `checkify` of this thread (None outside of one), and the kinds
    that it asks for."""

    failed: Failures | None = None
    kinds: frozenset[ErrorCategory] = frozenset()


_STATE = _Running()


def _fail(kind: ErrorCategory, message: str) -> None:
    if _STATE.failed is None:
        raise JaxRuntimeError(message)
    if kind in _STATE.kinds:
        _STATE.failed.append((kind, message))


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Note a failure unless pred holds: raised outside of `checkify`. Under vmap of each example.

    pred  one truth value; msg is formatted with the other arguments, trees of arrays
    """
    p = as_array(pred)
    if p.shape or p.dtype.kind != "b":
        raise TypeError(f"check takes a scalar pred as argument, got {pred} of shape {p.shape} and "
                        f"dtype {p.dtype}")
    for x in tree_leaves((fmt_args, fmt_kwargs)):
        if not is_array_like(x) or not hasattr(x, "dtype"):
            raise TypeError("Formatting arguments to checkify.check need to be PyTrees of arrays, "
                            f"but got {x!r} of type {type(x)}.")
    if quiet() or debug and _STATE.failed is None:
        return
    if _STATE.failed is None and is_hidden(p):
        raise ValueError("Cannot abstractly evaluate a checkify.check which was not "
                         "functionalized. This probably means you tried to stage "
                         "(jit/scan/pmap/...) a `check` without functionalizing it through "
                         "`checkify.checkify`.")

    def look(holds: Any, args: Any, kwargs: Any) -> None:
        if not holds:
            _fail(FailedCheckError, f"{msg.format(*args, **kwargs)} (`check` failed)")
    callback(look, pred, fmt_args, fmt_kwargs)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """`check` that counts inside of `checkify` only."""
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Note the failure that an `Error` holds, if there is one."""
    if not isinstance(error, Error):
        raise TypeError(f"check_error takes an Error as argument, got type {type(error)} instead.")
    if error._failed is not None:
        _fail(*error._failed)


# ops that JAX looks for NaNs after, besides the pointwise ones, and its names of ops; those that
# choose or move values are not asked
_NAMES = {**{"sum": "reduce_sum", "mean": "reduce_sum", "prod": "reduce_prod", "matmul":
             "dot_general", "dot": "dot_general", "cumsum": "cumsum", "cumprod": "cumprod",
             "logsumexp": "exp", "softmax": "sub", "log_softmax": "sub", "remainder": "rem",
             "var": "sub", "std": "sub"}, **_POINT}
_CHOOSE = frozenset("where sign abs neg floor ceil round".split())


class _Watch(_Observer):
    """Looks at what the ops of a run divide by, and whether they make NaNs."""

    def __init__(self, kinds: frozenset[ErrorCategory], found: Failures) -> None:
        self.kinds, self.found = kinds, found

    def before(self, op: Any, args: Any, attrs: Any) -> None:
        """An op is about to compute: what does it divide by?"""
        if op.name in ("div", "floor_divide"):
            self.divides(args[1], op.name == "floor_divide")

    def divides(self, by: Any, with_rest: bool = False) -> None:
        """Something is divided by `by`; of floats the rest comes first, as in JAX, and is NaN."""
        value = _plain(by) if isinstance(by, Tensor) else np.asarray(by)
        if value.all():
            return
        if with_rest and NaNError in self.kinds:
            self.found.append((NaNError, "nan generated by primitive: rem."))
        if DivisionByZeroError in self.kinds:
            self.found.append((DivisionByZeroError, "division by zero"))

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        """It has computed."""
        if op.name in _NAMES or isinstance(op, PointwiseOp) and op.name not in _CHOOSE:
            for t in made if isinstance(made, tuple) else (made,):
                self._look(_NAMES.get(op.name, op.name), t.array)

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        """The rules of a node have."""
        for x in results if isinstance(results, (tuple, list)) else (results,):
            if isinstance(x, np.ndarray):
                self._look(node.plan.op.name if node.plan else node.name(), x)

    def _look(self, name: str, x: Any) -> None:
        if NaNError in self.kinds and is_inexact(x.dtype) and np.isnan(x).any():
            self.found.append((NaNError, f"nan generated by primitive: {name}."))


def _plain(t: Any) -> Any:
    """The values of a tensor, those of all examples."""
    while t.level:
        t = t.value
    return t.array


def _outside(found: Failures) -> F:
    """What is called with the indices of a run (`_trace.RUN.indices`)."""
    def look(shape: tuple[int, ...], axis: int, at: Any, last: int) -> None:
        value = _plain(at)
        wrong = value[(value < 0) | (value > last)]
        if wrong.size:
            found.append((OOBError, f"out-of-bounds indexing for array of shape {shape}: index "
                          f"{wrong.ravel()[0]} is out of bounds for axis {axis} with size "
                          f"{shape[axis]}. "))
    return look


@contextlib.contextmanager
def _looking(kinds: frozenset[ErrorCategory], found: Failures) -> Iterator[None]:
    """While failures of these kinds are noted."""
    before, outer = (_STATE.failed, _STATE.kinds), (RUN.indices, RUN.divisor)
    watch = _Watch(kinds, found)
    _STATE.failed, _STATE.kinds = found, kinds
    RUN.indices = _outside(found) if OOBError in kinds else None
    RUN.divisor = watch.divides if DivisionByZeroError in kinds else None
    held = watchers.push(watchers.observers, watch) if kinds & float_checks else None
    try:
        yield
    finally:
        if held is not None:
            watchers.pop(held)
        _STATE.failed, _STATE.kinds = before
        RUN.indices, RUN.divisor = outer


def checkify(f: F, errors: Collection[ErrorCategory] = user_checks) -> F:
    """The function that gives (its first failed check as an `Error`, its output).

    errors  which failures are looked for: those of `check` (`user_checks`), NaNs that an operation
            makes (`nan_checks`), divisions by zero (`div_checks`) and indices out of bounds
            (`index_checks`, whatever an index out of bounds gives), or all of them

    >>> from adjoint.jax import numpy as jnp
    >>> def root(x):
    ...     check(x >= 0, "negative: {x}", x=x)
    ...     return jnp.sqrt(jnp.abs(x))
    >>> checkify(root)(jnp.array(-4.0))[0].get()
    'negative: -4.0 (`check` failed)'
    >>> checkify(lambda x, i: x[i], index_checks)(jnp.arange(3), 7)[0].get()
    'out-of-bounds indexing for array of shape (3,): index 7 is out of bounds for axis 0 ...'
    """
    if not callable(f):
        raise TypeError(f"Expected a callable value, got {f}")

    @wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        found: Failures = []
        with _looking(frozenset(errors), found):
            out = f(*args, **kwargs)
        return Error(found[0] if found else None), out
    return run


__all__ = ["Error", "ErrorCategory", "JaxRuntimeError", "all_checks", "automatic_checks", "check",
           "check_error", "checkify", "debug_check", "div_checks", "float_checks", "index_checks",
           "init_error", "nan_checks", "user_checks"]
__getattr__ = _missing("adjoint.jax.experimental.checkify")
