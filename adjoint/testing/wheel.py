"""PyTorch's testing files (`torch.testing._internal`), run with this package in PyTorch's place.

PyTorch's wheel holds, besides PyTorch, the Python files that its own tests and those of others are
written with: a TestCase, decorators, tables of operations with sample inputs. Where a program runs
with this package as `torch` (`adjoint run --as-torch`) and PyTorch is installed, importing one of
them executes the installed file. PyTorch itself is never imported: `torch` in it is this package.

    import torch.testing._internal.common_utils
      ─> find_spec: the file in the installed wheel   (no wheel: `adjoint.testing._internal`)
      ─> stand_in: names that it reads of parts that are not here (compilers, other devices)

What is not on a CPU without a compiler is answered by `ANSWERS`: truthfully, or by an error.
"""
from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from adjoint.base.errors import Absent
from adjoint.testing.absent import ANSWERS, REPLACED, Unmade

# What is executed from the wheel: files of Python that need nothing but public names.
FILES = ("torch.testing._internal", "torch.testing._comparison", "torch.testing._utils",
         "torch._vendor", "torch.utils.weak", "torch.utils._import_utils")
JAX_FILES = ("jax._src.lax_reference", "jax._src.internal_test_util")
_FIRST = "torch.testing._internal"  # until one of these is wanted, nothing stands in


def installed(package: str = "torch", needs: str = "expecttest") -> Path | None:
    """The folder of the installed PyTorch, which is not imported; None where it is missing, or
    expecttest, which its testing files need. Of another package, with what its files need."""
    if PathFinder.find_spec(needs) is None:
        return None
    for place in sys.path:
        spec = PathFinder.find_spec(package, [place])
        if spec is not None and spec.origin and spec.submodule_search_locations:
            return Path(spec.origin).parent
    return None                         # (a module alone is what `cli.children` puts in its place)


def _file(folder: Path, name: str) -> tuple[Path, list[str] | None]:
    """The file of a module of that package, and where the modules inside it are."""
    path = folder.joinpath(*name.split(".")[1:])
    if path.is_dir():
        return path / "__init__.py", [str(path)]
    return path.with_suffix(".py"), None


def find_spec(name: str) -> ModuleSpec | None:
    """Where `name` is in the installed wheel, if it is one of its testing files."""
    if not any(name == f or name.startswith(f + ".") for f in FILES):
        return None
    if _FIRST not in sys.modules and not name.startswith(_FIRST):
        return None
    folder = installed()
    if folder is None:
        return None
    path, inside = _file(folder, name)
    if not path.is_file():
        return None
    if name == _FIRST:
        stand_in(sys.modules["torch"])
    return importlib.util.spec_from_file_location(name, path, loader=_Loader(name, str(path)),
                                                  submodule_search_locations=inside)


def find_jax(name: str) -> ModuleSpec | None:
    """Where `name` is in the installed JAX, if it is one of its tests' tables (NumPy's reference of
    `jax.lax`, the lists of operations); they are executed as they are, on this package."""
    if not any(name == f or name.startswith(f + ".") for f in JAX_FILES):
        return None
    folder = installed("jax", "absl")
    if folder is None:
        return None
    path, inside = _file(folder, name)
    if not path.is_file():
        return None
    return importlib.util.spec_from_file_location(name, path, submodule_search_locations=inside)


class _Loader(SourceFileLoader):
    """Executes a file of the wheel, then leaves of its tables what is here."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the file."""
        super().exec_module(module)
        if module.__name__ == _FIRST:
            importlib.import_module("torch.testing._utils")  # PyTorch's package imports it itself
        if module.__name__ == f"{_FIRST}.opinfo.core":
            found = vars(module)["_getattr_qual"]
            vars(module)["_getattr_qual"] = partial(_found_or_absent, found)
        names = vars(module).get("MODULE_CLASS_NAMES", {})  # "nn.Linear": parts of tests' names
        names.update({cls: name.removeprefix("adjoint.") for cls, name in names.items()})
        for value in vars(module).values():
            if isinstance(value, list) and value and hasattr(value[0], "supported_dtypes"):
                value[:] = [info for info in value if _is_here(info)]


def _is_here(info: Any) -> bool:
    """False for a row about an operation, a module or an optimizer that is not here."""
    about = [getattr(info, name, None) for name in ("op", "module_cls", "optim_cls")]
    return not any(isinstance(x, Absent) or isinstance(x, type) and issubclass(x, Unmade)
                   or x is not None and not callable(x) for x in about)


def _found_or_absent(find: Callable[..., Any], where: Any, name: str, *default: Any) -> Any:
    return find(where, name, *(default or (Absent(name),)))


def stand_in(package: ModuleType) -> None:
    """Give `package` and its modules the names of `ANSWERS` that they lack."""
    for where, names in ANSWERS.items():
        module = _module(package, where)
        for name, value in names.items():
            found = getattr(module, name, Unmade)
            if name in REPLACED or isinstance(found, type) and issubclass(found, Unmade):
                setattr(module, name, value)


def _module(package: ModuleType, where: str) -> ModuleType:
    if not where:
        return package
    name = f"torch.{where}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        parent, _, last = where.rpartition(".")
        made = sys.modules[name] = ModuleType(name, "Stands for a part of PyTorch that is absent.")
        made.__path__ = []
        setattr(_module(package, parent), last, made)
        return made
