"""What the tests of the generated kernels share."""
from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from adjoint.kernels import alloc


def guard_workspace(monkeypatch: pytest.MonkeyPatch, owner: ModuleType) -> list[np.ndarray]:
    """Let each workspace of `owner` end in bytes of 0xA5; returns those ends, to be checked."""
    guards: list[np.ndarray] = []

    def guarded(nbytes: int) -> np.ndarray:
        raw = np.empty(nbytes + 8192, np.uint8)
        start = -raw.ctypes.data % 64
        raw[start + nbytes :] = 0xA5
        guards.append(raw[start + nbytes :])
        return raw[start : start + nbytes]

    monkeypatch.setattr(owner, "workspace", guarded)
    monkeypatch.setattr(owner, "release", lambda buffer: None)
    return guards


def leaks_nothing(work: Callable[[], None], shared: Sequence[Any], slack: int) -> None:
    """`work` leaves behind no object, no byte, and no more than `slack` references to any of the
    objects it shares; it has run once, and does the same thing some hundred times."""
    for _ in range(4):                       # nested tuples are untracked level by level
        gc.collect()
    live, count = alloc.live_and_peak()[0], len(gc.get_objects())
    before = [sys.getrefcount(s) for s in shared]
    work()
    gc.collect()
    after = [sys.getrefcount(s) for s in shared]
    assert [(i, b - a) for i, (a, b) in enumerate(zip(before, after, strict=True))
            if abs(b - a) > slack] == []
    assert alloc.live_and_peak()[0] == live and len(gc.get_objects()) - count < 50
