"""What the tests of the generated kernels share."""
from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest


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
