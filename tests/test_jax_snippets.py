"""Expressions on JAX and on `adjoint.jax`, all of them in each run: values, dtypes, weak types,
texts, and the class of what both refuse (F54)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import helpers_jax as helpers
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("scipy")
TABLE = (Path(__file__).parent / "jax_snippets.txt").read_text("utf-8")
LINES = [line for line in TABLE.splitlines() if line and line[0] != "#"]
OURS, THEIRS = helpers.library("adjoint.jax"), helpers.library("jax")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.row("F54")]


def outcome(text: str, m: Any) -> Any:
    """The value, or the name of the error's class."""
    try:
        return helpers.run(text, m)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("text", LINES)
def test_same(text: str) -> None:
    got, want = outcome(text, OURS), outcome(text, THEIRS)
    if isinstance(want, type):
        assert isinstance(got, type) and got.__name__ == want.__name__, (got, want)
        return
    helpers.same(got, want)
