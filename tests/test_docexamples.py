"""scripts/docexamples.py: PyTorch's documentation examples, run on both sides (F123)."""
from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from helpers_loading import load

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("scripts/docexamples.py")


def test_statements_are_found_behind_prompts(script: ModuleType) -> None:
    text = ">>> a = 1\n>>> def f(x):\n>>>     return x\n1\n>>> f(a)\n... # more\n"
    assert script._sources(text) == ["a = 1", "def f(x):\n    return x", "f(a)"]
    broken = ">>> a = 1\ntext\n>>> if (\n"
    assert script._sources(broken) == ["a = 1", "if ("]


def test_the_first_difference_is_told(script: ModuleType) -> None:
    same = {"printed": "", "shown": [1.0], "repr": [], "new": {}}
    assert script.compare([same], [same], False) == ("same", "")
    other = {**same, "shown": [2.0]}
    assert script.compare([same], [other], False)[0] == "values"
    assert script.compare([same], [other], True)[0] == "same"
    failed = {**same, "error": [["TypeError", "Exception"], "no"]}
    assert script.compare([same], [failed], False)[0] == "raises"
    assert script.compare([failed], [same], False)[0] == "accepts"
    sort = {**same, "error": [["ValueError", "Exception"], "no"]}
    assert script.compare([failed], [sort], False)[0] == "another error"


def test_some_examples_are_the_same_on_both_sides(script: ModuleType) -> None:
    pytest.importorskip("torch")
    found = {e["name"]: e["kind"] for e in script.judge("torch.special.er")}
    assert len(found) >= 3 and set(found.values()) == {"same"}


def test_the_page_counts_what_it_lists(script: ModuleType) -> None:
    text = (ROOT / "docs" / "docexamples.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()
            if line.startswith(("| torch", "| all"))]
    assert rows[-1][0] == "all" and len(rows) > 25
    for column in range(1, 6):
        assert int(rows[-1][column]) == sum(int(r[column]) for r in rows[:-1])
    differ, raised = int(rows[-1][3]), int(rows[-1][4])
    body = text.split("| what differs first |")[1].split("| skipped because of |")[0]
    assert body.count("`") == 2 * (differ + raised)
    assert int(rows[-1][2]) > 4 * (differ + raised)
