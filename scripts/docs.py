"""Build the API pages with pdoc into docs/_build; a warning is an error.

pdoc was chosen over Sphinx because the docstrings are the documentation: it needs no second tree
of stub pages that can drift from the code, and renders in seconds. Prose lives in docs/*.md.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pdoc
import pdoc.render

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "_build"


def main() -> int:
    """Render every public module; the exit status says whether it went without warnings."""
    sys.path.insert(0, str(ROOT))
    pdoc.render.configure(docformat="markdown", math=True, show_source=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdoc.pdoc("adjoint", output_directory=OUT)
    for message in {str(warning.message) for warning in caught}:
        print(f"warning: {message}", file=sys.stderr)
    pages = len(list(OUT.rglob("*.html")))
    print(f"{pages} pages in {OUT.relative_to(ROOT)}, {len(caught)} warnings")
    return int(bool(caught) or pages < 10)


if __name__ == "__main__":
    sys.exit(main())
