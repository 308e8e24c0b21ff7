"""What is written is true: code blocks run, doctests pass, tables hold, links lead somewhere."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.op import OPS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
    if "_build" not in path.parts
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
EXAMPLE_LINES = 10  # of an example in the README, without blank lines and comments

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(.*?)` \| `(.*?)` \| `(.*?)` \|$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks() -> list[Any]:
    """Every python block of every page, padded so that a failure shows the page's own line."""
    found = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start(1))
            found.append(pytest.param(path, line, match[1], id=f"{name_of(path)}:{line + 1}"))
    return found


@pytest.fixture
def own_ops() -> Iterator[None]:
    """Ops that an example declares leave the registry with it."""
    before = dict(OPS)
    yield
    for name in set(OPS) - set(before):
        del OPS[name]


@pytest.mark.usefixtures("own_ops")
@pytest.mark.parametrize(("path", "line", "code"), blocks())
def test_code_blocks_run(path: Path, line: int, code: str) -> None:
    """Each in a fresh namespace; `expression  # -> text` also says what it prints."""
    if ">>>" in code:
        run_doctest(code, name_of(path), line)
        return
    space: dict[str, Any] = {"__name__": "__example__"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * line + code, str(path), "exec"), space)
    said = iter(printed.getvalue().splitlines())
    for claim in re.finditer(r"^(\S[^#\n]*?)\s+# -> (.+)$", code, re.MULTILINE):
        actual = next(said) if claim[1].startswith("print(") else str(eval(claim[1], space))
        assert actual == claim[2].strip(), claim[0]


def test_readme_examples_are_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = [match[1] for match in _BLOCK.finditer(text)]
    assert len(examples) >= 5
    for example in examples:
        lines = [part for part in example.splitlines() if part.strip() and part.strip()[0] != "#"]
        assert len(lines) <= EXAMPLE_LINES, example


def test_readme_begins_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert first is not None
    assert [line.split("#")[0].split() for line in first[1].splitlines()] == [
        ["./run", "train"],
        ["./run", "test"],
    ]
    assert text.index("```sh") < 800


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_to_files(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    broken = [
        target
        for target in _LINK.findall(text)
        if "://" not in target and not (path.parent / target.split("#")[0]).exists()
    ]
    assert not broken, broken


def subgradient_rows() -> list[tuple[str, str, str]]:
    text = (ROOT / "docs" / "subgradients.md").read_text(encoding="utf-8")
    return [(m[1], m[2], m[3]) for m in _ROW.finditer(text)]


def gradient(module: ModuleType, expression: str, values: str) -> Any:
    functional = importlib.import_module(module.__name__ + ".nn.functional")
    numbers = eval(values, {"inf": float("inf")})
    x = module.tensor(numbers, dtype=module.float64, requires_grad=True)
    with np.errstate(all="ignore"):
        eval(expression, {"ad": module, "F": functional, "x": x}).sum().backward()
    return x.grad.tolist()


@pytest.mark.parametrize(("expression", "values", "expected"), subgradient_rows())
def test_subgradients_are_as_stated(expression: str, values: str, expected: str) -> None:
    """Every row of docs/subgradients.md, with this package and with PyTorch."""
    wanted = eval(expected, {"inf": float("inf"), "nan": float("nan")})
    np.testing.assert_array_equal(gradient(ad, expression, values), wanted)


def test_subgradients_that_are_pytorchs_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    text = (ROOT / "docs" / "subgradients.md").read_text(encoding="utf-8")
    section = re.search(r"## As PyTorch\n(.*?)(?=\n## |\Z)", text, re.DOTALL)
    assert section is not None
    rows = _ROW.findall(section[1])
    assert len(rows) > 30
    for expression, values, expected in rows:
        wanted = eval(expected, {"inf": float("inf"), "nan": float("nan")})
        np.testing.assert_array_equal(gradient(torch, expression, values), wanted, expression)


def modules() -> list[str]:
    found = pkgutil.walk_packages(ad.__path__, "adjoint.")
    return ["adjoint", *sorted(info.name for info in found if not info.name.endswith("__main__"))]


def _docstrings(module: ModuleType) -> dict[str, str]:
    """Docstrings that belong to the module, also those of functions made by decorators."""
    found = {module.__name__: module.__doc__ or ""}
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members: list[tuple[str, object]] = [(name, value)]
        if inspect.isclass(value):
            members += [(f"{name}.{key}", inner) for key, inner in vars(value).items()]
        for label, member in members:
            if isinstance(member, classmethod | staticmethod):
                member = member.__func__
            if inspect.isclass(member) or callable(member) or isinstance(member, property):
                found[f"{module.__name__}.{label}"] = getattr(member, "__doc__", None) or ""
    return found


def run_doctest(text: str, name: str, line: int = 0, names: dict[str, Any] | None = None) -> None:
    space = {**(names or {}), "ad": ad, "np": np}
    test = doctest.DocTestParser().get_doctest(text, space, name, name, line)
    output: list[str] = []
    write: Callable[[str], object] = output.append
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=write)
    assert not result.failed, "".join(output)


@pytest.mark.parametrize("name", modules())
def test_docstring_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `>>>` example of each docstring, in its module's namespace with `ad` and `np` added."""
    monkeypatch.chdir(tmp_path)  # examples may write files
    module = importlib.import_module(name)
    for label, text in _docstrings(module).items():
        if ">>>" in text:
            ad.manual_seed(0)
            run_doctest(inspect.cleandoc(text), label, names=vars(module))
