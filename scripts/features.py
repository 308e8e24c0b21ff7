"""Make docs/features.md: every row of scripts/feature_rows.txt with the tests that prove it.

A test cites a row in one of three ways: the marker `@pytest.mark.row("F22")`, its name
(`test_f22_...`), or its docstring (`(F22)`, `F22:`, `F22, F24`). A citation in the docstring or
marker of a class counts for every test in it.
Usage: `python scripts/features.py` writes the page, `--check` only says whether it is up to date.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "features.md"
ROWS = ROOT / "scripts" / "feature_rows.txt"

_DTYPE_NAMES = {"F16", "F32", "F64"}  # safetensors' names of dtypes look like rows
_IN_TEXT = re.compile(r"\bF(\d{1,3})(?:\s?(?:-|\.\.|to)\s?F(\d{1,3}))?\b")
_CITATION = re.compile(r"^F\d+[:,.\s-]|\([^()]*\bF\d+\b[^()]*\)", re.MULTILINE)
_IN_NAME = re.compile(r"(?:^|_)[fF](\d{1,3})(?=_|$)")

HEADER = """# What is proved by which test

Each row is something the project promises. The tests named beside it prove it; a row without a
test is not done. Made by `./run features` from `scripts/feature_rows.txt` and the citations in
`tests/`; a test keeps it up to date.
"""


def read_rows(path: Path = ROWS) -> list[tuple[str, str]]:
    """The rows in order, as (number, text); a section is ("", its title)."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        if line.startswith("# "):
            rows.append(("", line[2:]))
        elif line.strip():
            number, text = line.split("\t", 1)
            rows.append((number, text))
    return rows


def rows_in_text(text: str) -> set[str]:
    """Rows cited in a docstring; a range `F25-F30` stands for all of it."""
    cited = " ".join(m.group() for m in _CITATION.finditer(text))
    found = set()
    for scope, explicit in ((text, False), (cited, True)):
        for match in _IN_TEXT.finditer(scope):
            first, last = int(match[1]), int(match[2] or match[1])
            names = {f"F{n}" for n in range(first, last + 1)}
            found |= names if explicit else names - _DTYPE_NAMES
    return found


def rows_in_name(name: str) -> set[str]:
    """Rows cited in a test's name: `test_f22_inplace` gives F22; `test_float_f32` gives none."""
    return {f"F{int(n)}" for n in _IN_NAME.findall(name)} - _DTYPE_NAMES


def rows_in_marks(decorators: list[ast.expr]) -> set[str]:
    """Rows named by `@pytest.mark.row("F22", ...)`."""
    found = set()
    for call in decorators:
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.row":
            found |= {str(a.value) for a in call.args if isinstance(a, ast.Constant)}
    return found


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _cited_by(node: Definition) -> set[str]:
    text = rows_in_text(ast.get_docstring(node) or "")
    return text | rows_in_name(node.name) | rows_in_marks(node.decorator_list)


def _tests_of(body: list[ast.stmt], prefix: str, outer: set[str]) -> Iterator[tuple[str, set[str]]]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _tests_of(node.body, f"{prefix}{node.name}::", outer | _cited_by(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test"):
                yield prefix + node.name, outer | _cited_by(node)


def citations(tests: Path = ROOT / "tests") -> dict[str, list[str]]:
    """Row -> the tests that cite it, as `tests/test_x.py::test_y`, in order."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, rows in _tests_of(tree.body, f"{path.relative_to(tests.parent)}::", set()):
            for row in sorted(rows):
                found.setdefault(row, []).append(name)
    return found


def _cell(tests: list[str]) -> str:
    by_file: dict[str, list[str]] = {}
    for test in tests:
        file, _, name = test.partition("::")
        by_file.setdefault(file, []).append(name)
    parts = []
    for file, names in by_file.items():
        shown = ", ".join(f"`{n}`" for n in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        parts.append(f"[{file}](../{file}): {shown}{more}")
    return "; ".join(parts)


def render() -> str:
    """The whole page."""
    cited, rows = citations(), read_rows()
    numbers = [number for number, _ in rows if number]
    unknown = sorted(set(cited) - set(numbers))
    if unknown:
        where = ", ".join(f"{row} by {cited[row][0]}" for row in unknown)
        raise ValueError(f"tests cite rows that scripts/feature_rows.txt does not have: {where}")
    proved = sum(number in cited for number in numbers)
    lines = [HEADER, f"{proved} of {len(numbers)} rows have a test.", ""]
    for number, text in rows:
        if not number:
            lines += ["", f"## {text}", "", "| row | what | proved by |", "| --- | --- | --- |"]
        else:
            lines.append(f"| {number} | {text} | {_cell(cited.get(number, [])) or '-'} |")
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it."""
    page = render()
    current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if "--check" in arguments:
        if page != current:
            print("docs/features.md is out of date: run ./run features", file=sys.stderr)
        return int(page != current)
    PAGE.write_text(page, encoding="utf-8")
    print(next(line for line in page.splitlines() if line.endswith("rows have a test.")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
