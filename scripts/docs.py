"""Build the API pages with pdoc into docs/_build; a warning is an error.

pdoc was chosen over Sphinx because the docstrings are the documentation: it needs no second tree
of stub pages that can drift from the code, and renders in seconds. Prose lives in docs/*.md.
"""

from __future__ import annotations

import builtins
import importlib
import pkgutil
import shutil
import sys
import typing
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pdoc
import pdoc.doc
import pdoc.extract
import pdoc.render

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "_build"
INTERNAL = {"kernels", "cli"}  # of interest to their authors only, who read the source

# pdoc evaluates `float | None` inside the class, where Tensor.float, a method, stands before the
# builtin; and annotations of generated __init__ methods where the module's imports are not seen,
# nor those of the module that a class was imported from: typing's names are known everywhere.
BUILTINS = {name: value for name, value in vars(builtins).items() if isinstance(value, type)}


def evaluate(
    annotation: Any,
    names: dict[str, Any],
    local: dict[str, Any] | None,
    module: ModuleType | None,
    label: str,
) -> Any:
    """As pdoc does it, but builtin types come first and the module of `label` last."""
    parts = label.split(".")
    homes = (sys.modules.get(".".join(parts[:n])) for n in range(len(parts), 0, -1))
    home = next((vars(found) for found in homes if found is not None), {})
    known = vars(typing) | home | (local or {}) | BUILTINS
    return _evaluate(annotation, names, known, module, label)


_evaluate, pdoc.doc.safe_eval_type = pdoc.doc.safe_eval_type, evaluate


def load_late(names: typing.Iterable[str]) -> None:
    """Put names that modules promise in `__all__` but load on first use where pdoc looks."""
    for module in map(importlib.import_module, names):
        for name in getattr(module, "__all__", ()):
            if name not in vars(module):
                setattr(module, name, getattr(module, name))


def main() -> int:
    """Render the public modules; the exit status says whether it went without warnings."""
    sys.path.insert(0, str(ROOT))
    parts = [info.name for info in pkgutil.iter_modules([str(ROOT / "adjoint")])]
    chosen = [f"adjoint.{name}" for name in parts if name[0] != "_" and name not in INTERNAL]
    excluded = [f"!adjoint.{name}" for name in sorted(INTERNAL)]
    shutil.rmtree(OUT, ignore_errors=True)
    pdoc.render.configure(docformat="markdown", math=True, show_source=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # adjoint.__all__ brings its parts along, but not those that are imported on first use.
        known = set(pdoc.extract.walk_specs(["adjoint"]))
        late = [name for name in chosen if name not in known]
        load_late(pdoc.extract.walk_specs(["adjoint", *late, *excluded]))
        pdoc.pdoc("adjoint", *late, *excluded, output_directory=OUT)
    messages = sorted({str(warning.message) for warning in caught})
    print("".join(f"warning: {message}\n" for message in messages), end="", file=sys.stderr)
    pages = len(list(OUT.rglob("*.html")))
    print(f"{pages} pages in {OUT.relative_to(ROOT)}, {len(messages)} warnings")
    return int(bool(messages) or pages < 10)


if __name__ == "__main__":
    sys.exit(main())
