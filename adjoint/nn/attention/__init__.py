"""Choosing the kernel of `scaled_dot_product_attention`: there is one, so the choice is noted."""
from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from adjoint.backends import cuda as switches
from adjoint.base.errors import missing

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


_SWITCHES = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH,
             "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
             "cudnn": SDPBackend.CUDNN_ATTENTION}


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Kernels that may be chosen within the context. It is noted (`backends.cuda`), and changes
    nothing: attention is computed in tiles, without the N x N matrix, whatever is asked.

    >>> with sdpa_kernel(SDPBackend.MATH):
    ...     pass
    """
    given = backends if isinstance(backends, (list, tuple, set)) else [backends]
    if not given or not all(isinstance(b, SDPBackend) for b in given):
        raise TypeError(f"sdpa_kernel: backends must be SDPBackend or a list of them, got {given}")
    with switches.only(**{name: kind in given for name, kind in _SWITCHES.items()}):
        yield


def __getattr__(name: str) -> Any:
    """The modules of this one, imported when they are asked for."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    return _absent(name)


_absent = missing("adjoint.nn.attention")
