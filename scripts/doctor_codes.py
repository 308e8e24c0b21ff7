"""Rewrite the table of codes in docs/doctor.md from the checks themselves."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "doctor.md"
_TABLE = re.compile(r"(<!-- codes: .*? -->\n).*?(<!-- end -->)", re.DOTALL)


def labs() -> dict[str, str]:
    """Code -> the program in examples/labs that shows it."""
    found = {}
    for path in sorted((ROOT / "examples" / "labs").glob("*.py")):
        found[path.read_text(encoding="utf-8")[3:8]] = path.name
    return found


def table() -> str:
    """The codes as a Markdown table."""
    from adjoint.inspect.doctor import codes

    shown = labs()
    rows = ["| code | what | why it happens | fix | lab |", "| --- | --- | --- | --- | --- |"]
    for c in codes():
        lab = shown[c.code]
        link = f"[{lab[:-3]}](../examples/labs/{lab})"
        cells = (text.replace("|", "\\|") for text in (c.title, c.cause, c.fix))
        rows.append(f"| {c.code} | {' | '.join(cells)} | {link} |")
    return "\n".join(rows) + "\n"


def page(text: str) -> str:
    """The page with the table that the code says."""
    return _TABLE.sub(lambda m: f"{m[1]}\n{table()}\n{m[2]}", text)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
