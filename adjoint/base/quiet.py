"""NumPy code without floating-point warnings: `np.errstate(all="ignore")` at a quarter of its cost.

    with Quiet():
        ...

NumPy keeps what it does about an overflow or an invalid operation in a context variable. Where it
is the known one it is set directly, which counts for what works on a few numbers.
"""
from __future__ import annotations

from typing import Any

import numpy as np

_umath: Any = getattr(getattr(np, "_core", None), "umath", None)
_STATE: Any = getattr(_umath, "_extobj_contextvar", None)
_MAKE: Any = getattr(_umath, "_make_extobj", None)


class _Quiet:
    """The context manager; one object per block."""

    __slots__ = ("token",)

    def __enter__(self) -> None:
        self.token = _STATE.set(_IGNORE)

    def __exit__(self, *exc: object) -> None:
        _STATE.reset(self.token)


def _quiet() -> Any:
    return np.errstate(all="ignore")


Quiet: Any = _quiet
if _STATE is not None and _MAKE is not None:
    _IGNORE = _MAKE(all="ignore")
    Quiet = _Quiet
