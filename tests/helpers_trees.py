"""Comparing nested results."""

from __future__ import annotations

from typing import Any

import numpy as np


def same(got: Any, want: Any, rtol: float, atol: float, order: bool = True) -> None:
    """Equal containers, keys (and their `order`), shapes and, to the tolerances, values."""
    assert type(got) is type(want), (got, want)
    if isinstance(want, dict):
        assert list(got) == list(want) if order else got.keys() == want.keys()
        for k in want:
            same(got[k], want[k], rtol, atol, order)
    elif isinstance(want, tuple):
        assert len(got) == len(want), (got, want)
        for a, b in zip(got, want, strict=True):
            same(a, b, rtol, atol, order)
    elif isinstance(want, np.ndarray):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
    else:
        assert got == want
