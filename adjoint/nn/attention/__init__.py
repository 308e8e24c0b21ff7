"""Choosing the kernel of `scaled_dot_product_attention`: there is one, so the choice is noted."""
from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from adjoint.backends import cuda as switches
from adjoint.base.errors import AssertedError, missing

__all__ = ["SDPBackend", "sdpa_kernel"]
_MODULES = ("bias", "flex_attention")


class SDPBackend(enum.IntEnum):
    """PyTorch's kernels of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    __str__ = enum.Enum.__str__


WARN_FOR_UNFUSED_KERNELS = False        # none is fused with another, none is warned of
_FIRST_TO_LAST = tuple(map(SDPBackend, (1, 2, 0, 3, 4)))     # as PyTorch prefers them
_LISTED = tuple(map(SDPBackend, (3, 1, 2, 0, 4)))            # and in which order it names them
_asked: ContextVar[tuple[SDPBackend, ...]] = ContextVar("adjoint_sdpa", default=_FIRST_TO_LAST)


_SWITCHES = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH,
             "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
             "cudnn": SDPBackend.CUDNN_ATTENTION}


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Kernels that may be chosen within the context, by preference if `set_priority`. It is noted
    (`backends.cuda`), and changes no result: attention is computed in tiles, without the N x N
    matrix, whatever is asked.

    >>> with sdpa_kernel(SDPBackend.MATH):
    ...     pass
    """
    given = backends if isinstance(backends, (list, tuple, set)) else [backends]
    if not given or not all(isinstance(b, SDPBackend) for b in given):
        raise AssertedError("Backend must be an instance of SDPBackend or a list of SDPBackend "
                            f"instances, got {type(backends).__name__}"
                            + ("" if given else " without any"))
    before = _asked.set(tuple(given) if set_priority else tuple(
        b for b in _FIRST_TO_LAST if b in given))
    try:
        with switches.only(**{name: kind in given for name, kind in _SWITCHES.items()}):
            yield
    finally:
        _asked.reset(before)


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """The kernels that may be chosen; by preference if asked for."""
    off = [kind for name, kind in _SWITCHES.items()
           if not getattr(switches, f"{name}_sdp_enabled")()]
    asked = [b for b in _asked.get() if b not in off]
    return asked if with_priority else [b for b in _LISTED if b in asked]


def __getattr__(name: str) -> Any:
    """The modules of this one, imported when they are asked for."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    return _absent(name)


_absent = missing("adjoint.nn.attention")
