"""`torch.utils._mode_utils`: questions about dispatch modes."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from adjoint.core.dispatch import unasked
from adjoint.utils._python_dispatch import _disable_current_modes

__all__ = ["all_same_mode", "no_dispatch"]


def all_same_mode(modes: Sequence[Any]) -> bool:
    """Whether all of these modes are one object.

    >>> all_same_mode(["m", "m"]), all_same_mode([])
    (True, True)
    """
    return all(mode is modes[0] for mode in modes)


@contextmanager
def no_dispatch() -> Iterator[None]:
    """No dispatch mode is asked within, and no class: a wrapper is what it shows of itself, shape,
    strides and dtype without values."""
    token = unasked.set(True)
    try:
        with _disable_current_modes():
            yield
    finally:
        unasked.reset(token)
