"""`adjoint run --as-torch script.py [args]`: a PyTorch program, served by this package
(`adjoint run --as-torch -m package.module [args]` as `python -m` does).

For that process `import torch` and its submodules give this package's; with `--as-autograd` it is
`import autograd` (HIPS autograd's name), with `--as-jax` `import jax`. The script is run as
`__main__` with its own arguments. A name that is not here raises where it is used, with the nearest
name that is.
"""
from __future__ import annotations

import argparse
import builtins
import contextlib
import difflib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import runpy
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import adjoint
from adjoint.base.dtypes import DType
from adjoint.base.errors import missing
from adjoint.cli import homes, unbound
from adjoint.cli.children import inherited
from adjoint.cli.parser import Parser
from adjoint.cli.served import ABSENT, KINDS, RENAMED
from adjoint.core import modes
from adjoint.core.tensor import Cell, Tensor
from adjoint.ops import aten
from adjoint.testing import unmet, wheel
from adjoint.testing.absent import ABSENT_DTYPES, LimitsOf, OrAbsent, kind
from adjoint.torch_version import TorchVersion
from adjoint.version import __version__

_SERVED = {"torch": "adjoint", "torchvision": "adjoint.vision"}
_AUTOGRAD = {"autograd": "adjoint.hips"}
# Modules that are served by the one they lie in: known with it, for importing one later would put
# it in the place of the function that has its name (`_higher_order_ops.cond`).
_INNER = {ours: [k for k, v in RENAMED.items() if v == ours and k.startswith(f"torch{ours[7:]}.")]
          for ours in ("adjoint._higher_order_ops",)}
_FILES = ("PyTorchFileReader", "PyTorchFileWriter")   # classes that annotations name
_OF_TRACES = ("Block", "Graph", "Node", "Value")            # the same, in `torch._C`
_JAX = {"jax": "adjoint.jax"}


class _Loader(importlib.abc.Loader):
    """Gives the module of this package that stands for another package's."""

    def __init__(self, ours: str) -> None:
        self.ours = ours

    def create_module(self, spec: Any) -> ModuleType:
        return importlib.import_module(self.ours)

    def exec_module(self, module: ModuleType) -> None:
        """The module is executed already."""

    def get_code(self, name: str) -> Any:
        """What `-m torch.distributed.run` executes."""
        spec = importlib.util.find_spec(self.ours)
        get_code = getattr(spec and spec.loader, "get_code", None)
        return get_code(self.ours) if get_code else None


class _Kinds(importlib.abc.Loader):
    """Makes a module of classes that nothing is an instance of (`served.KINDS`)."""

    def create_module(self, spec: Any) -> ModuleType:
        module = ModuleType(spec.name, "Names of parts that are not here.")
        unknown = missing(spec.name)

        vars(module)["is_available"] = lambda: False

        def named(name: str) -> Any:
            return unknown(name) if name.startswith("__") else vars(module).setdefault(
                name, kind(name))
        vars(module)["__getattr__"] = named
        return module

    def exec_module(self, module: ModuleType) -> None:
        """All is there."""


class _Finder(importlib.abc.MetaPathFinder):
    """Finds packages (`torch`, `torchvision`) and what is in them in this package."""

    def __init__(self, served: dict[str, str], renamed: dict[str, str]) -> None:
        self.served, self.renamed = served, renamed

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        top, dot, rest = name.partition(".")
        theirs = "torch" + dot + rest if top == "adjoint" else name    # for `from torch.a import b`
        if "torch" in self.served and any(theirs == k or theirs.startswith(k + ".") for k in KINDS):
            return importlib.machinery.ModuleSpec(name, _Kinds(), is_package=True)
        if top not in self.served and name not in self.renamed:
            return None
        if top == "torch" and (file := wheel.find_spec(name)):
            return file
        if top == "jax" and (file := wheel.find_jax(name)):
            return file
        ours = self.renamed.get(name) or self.served[top] + dot + rest
        try:
            module = importlib.import_module(ours)
        except ModuleNotFoundError as error:
            if error.name and ours.startswith(error.name):
                raise ModuleNotFoundError(
                    f"No module named {name!r} here: adjoint has no {ours}; see docs/compat.md",
                    name=name) from None
            raise
        _alias(self.served, name)
        own = module.__spec__
        package = hasattr(module, "__path__") or any(n.startswith(name + ".") for n in self.renamed)
        spec = importlib.machinery.ModuleSpec(name, _Loader(ours), is_package=package)
        module.__spec__ = own
        return spec

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        """What `importlib.metadata.version` reads: the version that the served package gives."""
        asked = getattr(context, "name", None)
        return [_Served(name, version) for name, ours in self.served.items()
                if asked in (None, name)
                and (version := getattr(importlib.import_module(ours), "__version__", None))]


class _Served(importlib.metadata.Distribution):
    """A package that is installed as far as programs can see: its name and version."""

    def __init__(self, name: str, version: str) -> None:
        self.files_of = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
                         "top_level.txt": name}

    def read_text(self, filename: str) -> str | None:
        return self.files_of.get(filename)

    def locate_file(self, path: Any) -> Any:
        return Path(adjoint.__file__).parent.parent / path


def serve_torch() -> None:
    """Make `import torch` mean this package in this process.

    Programs that ask for the name of what they imported, or for `torch.torch`, are answered."""
    _serve(_SERVED, RENAMED)
    sys.modules["torch"] = adjoint
    setattr(adjoint, "torch", adjoint)  # noqa: B010  # a name of this process, not of the package
    homes.move_in()
    unbound.keep_static()
    modes.as_pytorch[0] = True
    # a division by zero in a kernel of NumPy's: PyTorch's give inf without a word
    warnings.filterwarnings("ignore", r".* encountered in ", RuntimeWarning, r"adjoint(\.|$)")
    DType.__name__ = DType.__qualname__ = "dtype"
    adjoint.__name__ = DType.namespace = "torch"
    adjoint.version.__version__ = f"{adjoint.version.followed}+adjoint{__version__}"
    adjoint.__version__ = TorchVersion(adjoint.version.__version__)


def serve_program() -> None:
    """`serve_torch`, for a program that is to run as it does there, not to be looked into.

    Two things that go further here are as in PyTorch: a write through `.data` is no version (F23),
    and NumPy's functions give arrays of tensors' values, not tensors. Dtypes and entries of
    `ops.aten` that are not here have names, for programs that list them without using them.
    """
    serve_torch()
    for name, stand_in in (*ABSENT_DTYPES.items(), *((n, kind(n)) for n in _FILES)):
        vars(adjoint).setdefault(name, stand_in)
    for name in _OF_TRACES:
        vars(adjoint._C).setdefault(name, kind(name))
    for name in ABSENT:
        vars(adjoint).setdefault(name, importlib.import_module(f"torch.{name}"))
    setattr(adjoint, "finfo", LimitsOf)  # noqa: B010  # of these dtypes too
    setattr(adjoint.ops, "aten", OrAbsent(aten))  # noqa: B010  # as `torch` above
    Cell.data_counts = False
    if hasattr(Tensor, "__array_function__"):
        del Tensor.__array_function__
    unmet.watch(sys.argv[0])


def serve_autograd() -> None:
    """Make `import autograd` mean `adjoint.hips` in this process."""
    _serve(_AUTOGRAD, {})


def serve_jax() -> None:
    """Make `import jax` mean `adjoint.jax` in this process."""
    _serve(_JAX, {})


def _serve(served: dict[str, str], renamed: dict[str, str]) -> None:
    if not any(isinstance(f, _Finder) and f.served is served for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder(served, renamed))
    _alias(served)


def _alias(served: dict[str, str], wanted: str = "") -> None:
    """Know the modules that are loaded under the other name too: importing one again would put it
    into its package, over a function of its name (`autograd.gradcheck`). Not the module that is
    being looked for: the import system takes one that is there for another way to load it."""
    for theirs, ours in served.items():
        for name, module in list(sys.modules.items()):
            other = theirs + name[len(ours):]
            if name.startswith(ours + ".") and other != wanted:
                sys.modules.setdefault(other, module)
            for inner in _INNER.get(name, ()) if theirs == "torch" else ():
                sys.modules.setdefault(inner, module)


def nearest(module: ModuleType, name: str) -> str:
    """A hint for a name that a module lacks."""
    found = difflib.get_close_matches(name, dir(module), 1)
    return f"; the nearest name is {found[0]!r}" if found else ""


def _run_file(path: Path) -> None:
    """As `python path`: `__file__` is absolute and `sys.argv[0]` as it was given, which
    `runpy.run_path` would make the same."""
    main = ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", str(path))
    vars(main).update(__file__=str(path), __loader__=loader, __cached__=None,
                      __builtins__=builtins)
    before = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), vars(main))
    finally:
        sys.modules["__main__"] = before


def run(argv: Sequence[str]) -> int:
    """The command: returns the exit code."""
    parser = Parser(prog="adjoint run", description=__doc__.splitlines()[0])
    parser.add_argument("--as-torch", action="store_true",
                        help="serve `import torch` from this package")
    parser.add_argument("--as-autograd", action="store_true",
                        help="serve `import autograd` (HIPS autograd) from this package")
    parser.add_argument("--as-jax", action="store_true",
                        help="serve `import jax` from this package")
    parser.add_argument("-m", dest="module", action="store_true",
                        help="script is the name of a module or package, as for python -m")
    parser.add_argument("script", help="the Python program")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    given = parser.parse_args(argv)
    path = Path(given.script).absolute()            # `__file__` is absolute in a main program
    if not given.module and not path.is_file():
        print(f"adjoint run: no file {given.script}", file=sys.stderr)
        return 2
    with contextlib.ExitStack() as served:
        for asked, serve, packages in (
                (given.as_torch, serve_program, (*_SERVED, "functorch")),
                (given.as_autograd, serve_autograd, _AUTOGRAD), (given.as_jax, serve_jax, _JAX)):
            if asked:
                serve()
                served.enter_context(inherited(serve.__name__, packages))
        sys.argv = [given.script, *given.args]
        sys.path.insert(0, os.getcwd() if given.module else str(path.resolve().parent))
        if given.as_torch:
            unmet.watch(None if given.script in ("pytest", "unittest") else str(path))
        if given.module:
            runpy.run_module(given.script, run_name="__main__", alter_sys=True)
        else:
            _run_file(path)
    return 0
