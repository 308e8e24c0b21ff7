"""The package from outside: names, what an import costs and pulls in, docstrings, version."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import adjoint

ROOT = Path(__file__).resolve().parent.parent
OPTIONAL = ("llvmlite", "ml_dtypes", "rich", "safetensors", "scipy", "torch", "jax", "numba")
MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(adjoint.__path__, "adjoint.")
    if not info.name.endswith("__main__")
)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def pyproject() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("name", ["adjoint", *MODULES])
def test_every_module_imports_and_its_all_is_true(name: str) -> None:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])
    assert len(names) == len(set(names)), "a name is listed twice"
    missing = [entry for entry in names if not hasattr(module, entry)]
    assert not missing, f"{name}.__all__ lists {missing}, which do not exist"


@pytest.mark.parametrize(
    "name", ["adjoint", "adjoint.nn", "adjoint.nn.functional", "adjoint.optim", "adjoint.autograd"]
)
def test_all_lists_every_public_name(name: str) -> None:
    module = importlib.import_module(name)
    public = {
        entry
        for entry, value in vars(module).items()
        if not entry.startswith("_") and not inspect.ismodule(value) and entry != "annotations"
    }
    unlisted = public - set(module.__all__)
    assert not unlisted, f"{name} shows names that __all__ does not list: {sorted(unlisted)}"


def test_import_pulls_in_no_optional_package_and_is_silent() -> None:
    done = python(
        f"import sys, adjoint\nprint([name for name in {OPTIONAL!r} if name in sys.modules])\n"
    )
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_import_starts_no_thread_and_writes_no_file(tmp_path: Path) -> None:
    code = (
        "import threading, os, numpy\n"
        f"os.environ['HOME'] = os.environ['XDG_CACHE_HOME'] = {str(tmp_path)!r}\n"
        "before = threading.active_count()\n"
        "import adjoint\n"
        "print(threading.active_count() - before)\n"
    )
    done = python(code)
    assert done.stdout == "0\n", done.stderr
    assert list(tmp_path.iterdir()) == []


def test_import_loads_only_what_every_program_needs() -> None:
    """What makes `import adjoint` cheap, counted; benchmarks/import_time.py has the milliseconds.
    Layers, the compiler and its kernels load when they are first used."""
    code = ("import numpy, sys; before = set(sys.modules); import adjoint; "
            "print(*sorted(set(sys.modules) - before))")
    every = python(code).stdout.split()
    assert not {"numpy.random", "difflib", "inspect", "dataclasses", "string"} & set(every)
    loaded = [m for m in every if m.startswith("adjoint")]
    late = ("adjoint.nn", "adjoint.optim", "adjoint.func", "adjoint.io", "adjoint.memory",
            "adjoint.utils.data", "adjoint.cli", "adjoint.kernels.llvm", "adjoint.kernels.choose",
            "adjoint.kernels.gemm", "adjoint.kernels.mathlib")
    assert not [m for m in loaded if m.startswith(late)]
    assert len(loaded) <= 114


def test_import_asks_the_garbage_collector_for_nothing() -> None:
    """What it loads is no garbage. The collector is left as it was: on, off, or with objects
    that a program froze before it forks."""
    code = ("import gc, numpy; {before}; passes = []; "
            "gc.callbacks.append(lambda phase, info: passes.append(phase)); import adjoint; "
            "print(gc.isenabled(), gc.get_freeze_count() > 0, passes[:1])")
    for before, left in (("pass", "True False []"), ("gc.disable()", "False False []"),
                         ("gc.freeze()", "True True ['start']")):     # the new is young then
        assert python(code.format(before=before)).stdout == left + "\n"
    broken = ("import gc, sys; sys.modules['numpy'] = None\ntry: import adjoint\n"
              "except ImportError: print(gc.isenabled())")
    assert python(broken).stdout == "True\n"


def test_pointwise_records_are_built_when_first_used() -> None:
    """No expression is traced, differentiated or compiled by the import, and no class of nodes
    made."""
    code = ("import adjoint; from adjoint.core.op import OPS; print(sum(bool("
            "{'expression', 'rules', 'node_type', 'facts'} & {*vars(o)}) for o in OPS.values()))")
    assert int(python(code).stdout) <= 3


def test_own_files_are_known_by_their_place() -> None:
    from adjoint.base import provenance

    assert provenance.inside[provenance.__file__] and provenance.inside["<adjoint rule>"]
    assert not provenance.inside[__file__] and not provenance.inside["<string>"]
    assert not provenance.inside[provenance.PACKAGE + "notes.txt"]


def test_a_record_refuses_a_field_that_there_is_none_of() -> None:
    from adjoint.core.op import Op

    with pytest.raises(TypeError, match=r"twice: an op has no \['vpj'\]; it has .*'why'"):
        Op("twice", impl=lambda x, /: x, infer=lambda x: x, vpj={})


def test_version_is_said_once() -> None:
    assert adjoint.__version__ == pyproject()["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{adjoint.__version__}]" in changelog


def test_numpy_is_the_only_hard_dependency() -> None:
    dependencies = pyproject()["dependencies"]
    assert [re.split(r"[<>=~]", str(d))[0] for d in dependencies] == ["numpy"]  # type: ignore[attr-defined]


def test_types_are_shipped() -> None:
    assert (ROOT / "adjoint" / "py.typed").is_file()


def _public_objects(module: ModuleType) -> list[tuple[str, object]]:
    """Classes, functions and methods that a user sees, by their dotted names."""
    found: list[tuple[str, object]] = []
    for name in getattr(module, "__all__", []):
        value = getattr(module, name)
        if inspect.isclass(value):
            found.append((f"{module.__name__}.{name}", value))
            found += [
                (f"{module.__name__}.{name}.{entry}", method)
                for entry, method in vars(value).items()
                if not entry.startswith("_")
                and value.__module__.startswith("adjoint")
                and (inspect.isroutine(method) or isinstance(method, property))
            ]
        elif callable(value):
            found.append((f"{module.__name__}.{name}", value))
    return found


def test_95_percent_of_what_is_public_has_a_docstring() -> None:
    objects: dict[str, object] = {}
    seen: set[int] = set()  # an alias of a class or function is counted once
    for name in ["adjoint", *MODULES]:
        if not any(part.startswith("_") for part in name.split(".")):
            for label, value in _public_objects(importlib.import_module(name)):
                if id(value) not in seen:
                    seen.add(id(value))
                    objects[label] = value
    bare = sorted(name for name, value in objects.items() if not inspect.getdoc(value))
    assert len(objects) > 100
    share = 1 - len(bare) / len(objects)
    assert share >= 0.95, f"{share:.1%} have a docstring; these have none: {bare}"


@pytest.mark.parametrize("name", ["adjoint", *MODULES])
def test_every_module_says_what_it_is(name: str) -> None:
    assert (importlib.import_module(name).__doc__ or "").strip(), f"{name} has no docstring"
