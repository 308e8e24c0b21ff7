"""docs/features.md is what the citations in the tests say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers_loading import load

ROOT = Path(__file__).resolve().parent.parent


features = load("scripts/features.py")


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    assert page == features.render(), "docs/features.md is out of date: run ./run features"


def test_rows_are_numbered_without_gaps() -> None:
    numbers = [number for number, _ in features.read_rows() if number]
    assert numbers == [f"F{n}" for n in range(1, 135)]


def test_every_named_file_exists() -> None:
    page = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    files = set(re.findall(r"\]\(\.\./(tests/[^)]+)\)", page))
    assert files and all((ROOT / file).is_file() for file in files)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("A second backward raises (F18).", {"F18"}),
        ("F22: in-place.", {"F22"}),
        ("Hooks (F1, F25-F27).", {"F1", "F25", "F26", "F27"}),
        ("Writes F32 and F16 tensors.", set()),
        ("Row (F32) is linear.", {"F32"}),
        ("Nothing is cited: BF16, xF3, F.relu.", set()),
    ],
)
def test_how_a_docstring_cites(text: str, rows: set[str]) -> None:
    assert features.rows_in_text(text) == rows


def test_how_a_name_cites() -> None:
    assert features.rows_in_name("test_f22_and_f24_raise") == {"F22", "F24"}
    assert features.rows_in_name("test_f32_is_a_dtype") == set()


def test_an_unknown_row_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "citations", lambda: {"F999": ["tests/test_x.py::test_y"]})
    with pytest.raises(ValueError, match="F999 by tests/test_x.py::test_y"):
        features.render()
