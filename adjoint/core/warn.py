"""Warnings about what the user's program does, at the user's line."""
from __future__ import annotations

import sys
import warnings

from adjoint.base.provenance import is_own_code
from adjoint.core.modes import not_replayed


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest frame outside of the package. A call that warns is not replayed, so that
    it warns again where the filters let it."""
    not_replayed()
    depth, frame = 2, sys._getframe(1)
    while frame.f_back is not None and is_own_code(frame.f_code):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, category, stacklevel=depth)
