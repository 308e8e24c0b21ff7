"""Switches of the process: determinism, precision of products."""
from __future__ import annotations

import sys
import warnings
from contextlib import ContextDecorator
from typing import Any

import adjoint.core.modes as modes
from adjoint.base.errors import ArgumentError
from adjoint.ops.device import device as _device

__all__ = [
    "are_deterministic_algorithms_enabled", "get_deterministic_debug_mode", "get_device_module",
    "get_float32_matmul_precision",
    "is_deterministic_algorithms_warn_only_enabled", "is_warn_always_enabled",
    "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal",
    "set_warn_always", "use_deterministic_algorithms",
]

_precision = "highest"
_debug = 0           # 0 default, 1 warn, 2 error: what deterministic algorithms are asked to do
_sparse_checks = False


def set_float32_matmul_precision(precision: str) -> None:
    """Accepted: products of float32 are computed in float32 ("highest") whatever is asked."""
    global _precision
    if precision not in ("highest", "high", "medium"):
        raise ArgumentError(f"set_float32_matmul_precision: {precision!r} is not one of 'highest', "
                            "'high', 'medium'")
    _precision = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was given."""
    return _precision


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted: every algorithm here gives equal bits for equal operands and threads."""
    set_deterministic_debug_mode(0 if not mode else 1 if warn_only else 2)


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by a number or a name: default, warn, error."""
    global _debug
    names = ("default", "warn", "error")
    if debug_mode not in (*names, 0, 1, 2):
        raise ArgumentError(f"invalid value of debug_mode, expected one of {names}, but got "
                            f"{debug_mode}")
    _debug = debug_mode if isinstance(debug_mode, int) else names.index(debug_mode)


def get_deterministic_debug_mode() -> int:
    """0 default, 1 warn, 2 error."""
    return _debug


def are_deterministic_algorithms_enabled() -> bool:
    """True after `use_deterministic_algorithms(True)`; results are deterministic without, too."""
    return _debug > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """True where only a warning was asked for."""
    return _debug == 1


def set_warn_always(b: bool) -> None:
    """Whether what is told once in a process (`float` of a tensor that requires a gradient) is told
    each time. All warnings go through Python's `warnings`, whose filters decide too."""
    modes.warn_always[0] = bool(b)


def is_warn_always_enabled() -> bool:
    """What `set_warn_always` was given."""
    return modes.warn_always[0]


def set_flush_denormal(mode: bool) -> bool:
    """False: the processor's rounding of subnormal numbers is left as it is."""
    if mode:
        warnings.warn("set_flush_denormal has no effect: subnormal numbers are kept", stacklevel=2)
    return False


def get_device_module(device: Any = None) -> Any:
    """The module of a device: `cpu` for what is here."""
    name = _device("cpu" if device is None else device).type
    package = __package__.partition(".")[0]
    __import__(f"{package}.{name}")
    return sys.modules[f"{package}.{name}"]


class check_sparse_tensor_invariants(ContextDecorator):
    """A switch, a context and a decorator (`sparse.check_sparse_tensor_invariants`). Constructors
    of sparse tensors check indices and sizes here whatever it says; it is remembered.

    >>> import adjoint as ad
    >>> with ad.sparse.check_sparse_tensor_invariants():
    ...     ad.sparse.check_sparse_tensor_invariants.is_enabled()
    True
    """

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self._before: list[bool] = []

    @staticmethod
    def is_enabled() -> bool:
        """What was asked for last."""
        return _sparse_checks

    @staticmethod
    def enable() -> None:
        """Ask for checks."""
        _set_sparse_checks(True)

    @staticmethod
    def disable() -> None:
        """Ask for none; they are made all the same."""
        _set_sparse_checks(False)

    def __enter__(self) -> None:
        self._before.append(_sparse_checks)
        _set_sparse_checks(self.state)

    def __exit__(self, *exc: Any) -> None:
        _set_sparse_checks(self._before.pop())


def _set_sparse_checks(state: bool) -> None:
    global _sparse_checks
    _sparse_checks = state
