"""`adjoint.jax` against JAX, expression by expression: values, dtypes, weak types, derivatives of
both modes and orders, and mapped runs (F54, F60)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import helpers_jax as helpers
import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("scipy")
LINES = (Path(__file__).parent / "jax_expressions.txt").read_text("utf-8").splitlines()
STEP = 20                    # by default one in so many is run; the slow sweep runs all of them
OURS, THEIRS = helpers.library("adjoint.jax"), helpers.library("jax")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.row("F54")]


def floating(x: Any) -> bool:
    """True if a result has floats that JAX would differentiate."""
    return any(hasattr(y, "dtype") and hasattr(y, "__array__")
               and np.dtype(y.dtype).kind in "fc" for y in helpers.leaves(x))


def check_value(text: str) -> None:
    """The value, or an error where JAX raises one."""
    try:
        want = helpers.run(text, THEIRS)
    except Exception:                    # what it refuses, we may refuse or serve
        return
    helpers.same(helpers.run(text, OURS), want)


def check_derivatives(text: str) -> None:
    """Whatever derivative JAX has, we have, and it is the same."""
    if not any(n in text for n in "XVP") or "cho_factor" in text:
        return       # (of a matrix that is symmetric: ours is the symmetric part of theirs)
    try:
        if not floating(helpers.run(text, THEIRS)):
            return
    except Exception:
        return
    ours, theirs = (helpers.derivatives(text, m) for m in (OURS, THEIRS))
    for name, want in theirs.items():
        if not isinstance(want, Exception):
            assert not isinstance(ours[name], Exception), (name, ours[name])
            helpers.same(ours[name], want, 2e-3, 3e-4)


# What depends on values keeps to plain arrays here, where JAX traces it.
HOST = ("device_get", "linear_ramp", "mode='mean'", "where(X > 0.5, size", "lstsq",
        "unique", "optimize.minimize")


def check_mapped(text: str) -> None:
    """The expression under vmap."""
    if not any(n in text for n in "XV") or any(h in text for h in HOST):
        return
    try:
        want = helpers.mapped(text, THEIRS)
    except Exception:
        return
    helpers.same(helpers.mapped(text, OURS), want)


def part(offset: int) -> list[str]:
    """One expression in STEP, others for every test."""
    return LINES[offset::STEP]


@pytest.mark.parametrize("text", part(0))
def test_values(text: str) -> None:
    """Value, shape, dtype and weakness (F54)."""
    check_value(text)


@pytest.mark.parametrize("text", part(7)[::3])
def test_derivatives(text: str) -> None:
    """Gradient, push, gradient of a gradient, push of a gradient (F10, F11, F54)."""
    check_derivatives(text)


@pytest.mark.parametrize("text", part(13)[::2])
def test_mapped(text: str) -> None:
    """Under vmap (F12, F54)."""
    check_mapped(text)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_value, check_derivatives, check_mapped])
@pytest.mark.parametrize("text", LINES)
def test_all(text: str, check: Any) -> None:
    """The whole table."""
    check(text)
