"""Limits on live bytes that several blocks ask for at a time, in one thread or in many: the least
one holds, whatever the order in which they end."""
from __future__ import annotations

import threading

from adjoint.kernels import alloc

_lock = threading.Lock()
_asked: dict[int, int] = {}
_before = [0]                   # the limit that was set before the first of them


def ask(key: int, limit: int) -> int:
    """Ask for a limit, or for another one; returns what held before (0: none)."""
    with _lock:
        outer = alloc.set_limit(0)
        if not _asked:
            _before[0] = outer
        _asked[key] = limit
        _hold()
        return outer


def leave(key: int) -> None:
    """Ask for no limit any more."""
    with _lock:
        _asked.pop(key, None)
        _hold()


def held() -> bool:
    """Whether anybody asks for one."""
    return bool(_asked)


def _hold() -> None:
    alloc.set_limit(min([x for x in (*_asked.values(), _before[0]) if x], default=0))
