"""docs/nesting.md is what the code does (F54)."""
from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from helpers_loading import load

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "nesting.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def nesting() -> ModuleType:
    """The script that writes the page."""
    return load("scripts/nesting.py")


def table(feature: str) -> dict[str, list[str]]:
    """Outer transform -> cells of the page."""
    lines = PAGE.split(f"## {feature}\n")[1].split("\n## ")[0].splitlines()
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in lines if "|" in line]
    return {row[0]: row[1:] for row in rows[2:]}


def test_the_page_is_whole_and_nothing_is_wrong(nesting: ModuleType) -> None:
    """Every feature, every pair; no cell is silently wrong; every number has its reason."""
    assert "WRONG" not in PAGE
    numbers = set()
    for feature in nesting.FEATURES:
        rows = table(feature)
        assert list(rows) == list(nesting.TRANSFORMS)
        for cells in rows.values():
            assert len(cells) == len(nesting.TRANSFORMS) + 1
            numbers |= {c.strip("[]") for c in cells if c != "right"}
    for n in numbers:
        assert f"\n{n}. " in PAGE.split("## Reasons")[1]


@pytest.mark.parametrize("feature", ["in-place", "Function", "from_callable", "checkpoint"])
def test_one_column_again(nesting: ModuleType, feature: str) -> None:
    """Some of it on every run: all outer transforms of the function itself and of its vmap."""
    inner = [None, *nesting.TRANSFORMS]
    for outer, cells in table(feature).items():
        for name in (None, "vmap"):
            found = nesting.cell(outer, name, feature, {})
            assert (found == "right") == (cells[inner.index(name)] == "right"), (outer, name)


@pytest.mark.slow
def test_the_page_is_what_the_script_writes(nesting: ModuleType) -> None:
    assert nesting.render() == PAGE


def test_a_wrong_cell_is_seen(nesting: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: a function whose rule is not its derivative is reported."""
    rule = nesting.func.custom_jvp(nesting.ad.sin)
    rule.defjvp(lambda p, t: (rule(*p), t[0]))
    monkeypatch.setitem(nesting.FEATURES, "ops", rule)
    assert nesting.cell("grad", None, "ops", {}) == "WRONG"
    assert nesting.cell("jvp", "vmap", "ops", {}) == "WRONG"
