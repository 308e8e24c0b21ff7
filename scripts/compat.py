"""Make docs/compat.md: every public name of PyTorch's modules, and what there is of it here.

`scripts/compat_names.txt` holds PyTorch's names (facts, read off an installed PyTorch by
`--names`); `scripts/compat_notes.txt` says how some differ, and why others are not here.
Usage: `python scripts/compat.py` writes the page, `--check` only says whether it is up to date.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "docs" / "compat.md"
NAMES = ROOT / "scripts" / "compat_names.txt"
NODES = ROOT / "scripts" / "grad_fn_names.txt"
NOTES = ROOT / "scripts" / "compat_notes.txt"
MODULES = (
    "torch Tensor nn nn.Module nn.functional nn.init nn.utils nn.utils.rnn nn.utils.parametrize"
    " nn.utils.parametrizations nn.utils.prune nn.utils.stateless nn.parallel nn.attention optim"
    " optim.lr_scheduler optim.swa_utils utils.data utils.checkpoint autograd autograd.forward_ad"
    " autograd.functional autograd.graph func linalg fft special distributions"
    " distributions.constraints distributions.transforms amp random sparse masked nested"
    " signal.windows profiler compiler accelerator overrides"
).split()

HEADER = """# PyTorch's names, and what there is of them

Every public name of PyTorch 2.13's modules: here under the same name, here and different (how), or
not here (why). Made by `python scripts/compat.py`; a test keeps it true. Which operations give
PyTorch's values, gradients, tangents and refusals on PyTorch's own samples: [opinfo](opinfo.md).

`adjoint.<name>` stands for `torch.<name>`. A name that is not here raises `AttributeError` with the
nearest names and this page.
"""


@dataclass
class Section:
    """One module: the names that are here, those that differ, those that are not here."""

    module: str
    here: list[str] = field(default_factory=list)
    differs: list[tuple[str, str]] = field(default_factory=list)
    absent: dict[str, list[str]] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """How many are not here."""
        return sum(map(len, self.absent.values())) + len(self.unexplained)


def read_names(path: Path = NAMES) -> dict[str, list[str]]:
    """Module -> PyTorch's public names in it."""
    found: dict[str, list[str]] = {}
    module = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            module = line[1:-1]
            found[module] = []
        elif line and not line.startswith("#"):
            found[module] += line.split()
    return found


def read_notes(path: Path = NOTES) -> list[tuple[str, str, re.Pattern[str], str]]:
    """(kind, module or *, names, text) in order; the first that fits counts."""
    notes = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            kind, module, pattern, text = (part.strip() for part in line.split(" | "))
            notes.append((kind, module, re.compile(pattern), text))
    return notes


def ours(module: str) -> Any:
    """Our object for one of PyTorch's modules, or None."""
    import adjoint

    where: Any = adjoint
    if module == "torch":
        return where
    path = "adjoint"
    for part in module.split("."):
        path += f".{part}"
        try:
            where = getattr(where, part)
        except AttributeError:
            try:
                where = importlib.import_module(path)
            except ModuleNotFoundError:
                return None
    return where


def sections() -> Iterator[Section]:
    """What there is, module by module."""
    notes = read_notes()
    for module, names in read_names().items():
        section, where = Section(module), ours(module)
        for name in names:
            fits = [
                (kind, text)
                for kind, of, pattern, text in notes
                if of in (module, "*") and pattern.fullmatch(name)
            ]
            if where is not None and hasattr(where, name):
                text = next((t for kind, t in fits if kind == "differs"), None)
                if text is None:
                    section.here.append(name)
                else:
                    section.differs.append((name, text))
                continue
            text = next((t for kind, t in fits if kind == "absent"), None)
            if text is None:
                section.unexplained.append(name)
            else:
                section.absent.setdefault(text, []).append(name)
        yield section


def _listed(names: list[str]) -> str:
    return " ".join(f"`{n}`" for n in names)


def page() -> str:
    """The whole page."""
    found = list(sections())
    lines = [HEADER, "| module | PyTorch's names | here | differ | not here |",
             "| --- | ---: | ---: | ---: | ---: |"]
    total = [0, 0, 0, 0]
    for s in found:
        row = [len(s.here) + len(s.differs) + s.missing, len(s.here), len(s.differs), s.missing]
        total = [a + b for a, b in zip(total, row, strict=True)]
        lines.append(f"| [{s.module}](#{s.module.lower().replace('.', '')}) | "
                     + " | ".join(map(str, row)) + " |")
    lines += ["| **all** | " + " | ".join(f"**{n}**" for n in total) + " |", ""]
    for s in found:
        lines += [f"## {s.module}", ""]
        if s.here:
            lines += [f"Here: {_listed(s.here)}", ""]
        if s.differs:
            lines += ["| here, and different | how |", "| --- | --- |",
                      *(f"| `{n}` | {text} |" for n, text in s.differs), ""]
        if s.absent or s.unexplained:
            lines += ["| not here | why |", "| --- | --- |"]
            lines += [f"| {_listed(names)} | {why} |" for why, names in s.absent.items()]
            if s.unexplained:
                lines.append(f"| {_listed(s.unexplained)} | not written yet |")
            lines.append("")
    return "\n".join([*lines, *nodes()])


def nodes() -> list[str]:
    """The section of what `grad_fn` prints."""
    split = [line.rsplit(" | ", 2) for line in NODES.read_text(encoding="utf-8").splitlines()
             if not line.startswith("#")]
    differ = [row for row in split if row[1] != row[2]]
    return ["## grad_fn", "",
            f"Of {len(split)} calls of public functions ([the walk](../scripts/grad_fn_names.txt)),"
            f" {len(split) - len(differ)} have a `grad_fn` of PyTorch's name.",
            "These have another, as a rule because one record here is several there, or the other "
            "way round:", "",
            "| call | PyTorch | here |", "| --- | --- | --- |",
            *(f"| `{e}` | `{theirs}` | `{ours}` |" for e, theirs, ours in differ), ""]


def _public(module: str) -> list[str]:
    """The public names of one of PyTorch's modules, from an installed PyTorch."""
    where: Any = importlib.import_module("torch")
    for part in module.split(".") if module != "torch" else ():
        path = f"{where.__name__}.{part}" if inspect.ismodule(where) else ""
        where = getattr(where, part, None) or importlib.import_module(path)
    if inspect.isclass(where):
        return sorted(n for n in dir(where) if not n.startswith("_"))
    listed = set(getattr(where, "__all__", ()))
    if not listed or module in ("torch", "linalg", "fft", "special", "nn", "nn.functional",
                                "optim", "amp"):
        listed |= set(dir(where))
    foreign = set(sys.stdlib_module_names) | {"typing_extensions"}
    names = []
    for name in sorted(listed):
        value = getattr(where, name, None)
        home = str(getattr(value, "__module__", "")).partition(".")[0]
        builtin = home == "builtins" and callable(value)
        if not name.startswith("_") and not inspect.ismodule(value) and (
                home not in foreign or builtin) and name not in ("TYPE_CHECKING",):
            names.append(name)
    return names


def write_names() -> None:
    """Read PyTorch's names off the installed PyTorch."""
    import textwrap

    lines = ["# Public names of PyTorch, module by module; made by scripts/compat.py --names"]
    for module in MODULES:
        lines += [f"[{module}]", *textwrap.wrap(" ".join(_public(module)), 99)]
    NAMES.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(argv: list[str]) -> int:
    """Write the page; with --check, the exit code says whether it is up to date."""
    if "--names" in argv:
        write_names()
    new = page()
    if "--check" in argv:
        return int(PAGE.read_text(encoding="utf-8") != new)
    PAGE.write_text(new, encoding="utf-8")
    for s in sections():
        if s.unexplained:
            print(f"{s.module}: not here, no reason given: {' '.join(s.unexplained)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
