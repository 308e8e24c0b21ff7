"""What a file of tests imports from PyTorch that is not here: the tests that use it fail, alone.

A file of PyTorch's tests imports, at its top, private names of many parts (compilers, profilers,
the dispatcher), each of which one or two of its hundred tests use. In a process where this package
is `torch`, such a file (one that imports `torch.testing._internal`, or is in there) gets an
`Unmet` for every name and module that PyTorch has and this package has not. Any other program gets
the error that says what is missing, as always, for it may have an answer to that.
"""
from __future__ import annotations

import builtins
import dis
import functools
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from adjoint.base.errors import Absent, NotSupported, otherwise
from adjoint.testing import wheel

MARK = b"torch.testing._internal"
TOPS = ("torch", "functorch")


def _while_defining(depth: int) -> bool:
    """Is the code that many calls up the body of a module or a class, in which a call makes a
    decorator or a constant?"""
    return not sys._getframe(depth + 1).f_code.co_flags & inspect.CO_OPTIMIZED


class Unmet(Absent):
    """A name that tests have imported and that is not here. While a file is being defined it can be
    called, subscripted, iterated and decorated with; the test that needs it raises `NotSupported`.

    >>> broken = Unmet("torch.private")(lambda: 1)
    >>> broken()
    Traceback (most recent call last):
    adjoint.base.errors.NotSupported: torch.private is not here
    """

    def __getattr__(self, name: str) -> Unmet:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unmet(f"{self.__name__}.{name}", self._why)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _while_defining(1):
            super().__call__()
        if len(args) == 1 and not kwargs:
            if isinstance(args[0], type):
                return args[0]
            if inspect.isfunction(args[0]):
                return self._failing(args[0])
        return self

    def _failing(self, test: Any) -> Any:
        @functools.wraps(test)
        def fails(*args: Any, **kwargs: Any) -> Any:
            raise NotSupported(f"{self.__name__} is not here")
        return fails

    def __getitem__(self, *args: Any) -> Any:
        return self if _while_defining(1) else super().__call__()

    def __iter__(self) -> Iterator[Any]:
        return iter(()) if _while_defining(1) else super().__call__()

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        from adjoint.testing.absent import kind
        return (kind(self.__name__),)

    def __bool__(self) -> bool:
        return False


@functools.cache
def _tests(path: str) -> bool:
    try:
        return MARK in Path(path).read_bytes()
    except OSError:
        return False


def of_tests(path: str | None) -> bool:
    """Is this a file of tests, by its text?"""
    return bool(path) and _tests(str(path))


@functools.cache
def _text(name: str) -> str | None:
    """The text of a module of the installed PyTorch; "" where PyTorch is not installed, or the
    module is compiled; None where PyTorch has no such module."""
    folder = wheel.installed()
    if folder is None or name.startswith("torch._C"):
        return ""
    top, _, rest = name.partition(".")
    place = (folder if top == "torch" else folder.parent / top).joinpath(*rest.split("."))
    for path in (place / "__init__.py", place.with_suffix(".py")):
        if path.is_file():
            return path.read_text("utf-8")
    return "" if place.is_dir() else None


def known(module: str, name: str = "") -> bool:
    """Has PyTorch this module, and this name in it?"""
    text = _text(module)
    if text is None or not name:
        return text is not None
    return (text == "" or "import *" in text or re.search(rf"\b{name}\b", text) is not None
            or known(f"{module}.{name}"))


def _module(name: str) -> ModuleType:
    """A module of which all is unmet."""
    made = ModuleType(name, "Names of a part of PyTorch that is not here.")
    vars(made)["__path__"] = []

    def named(key: str) -> Unmet:
        if key.startswith("__"):
            raise AttributeError(key)
        return Unmet(f"{name}.{key}")
    vars(made)["__getattr__"] = named
    return made


def _supply(name: str) -> None:
    """Make the modules on the way to `name` that cannot be imported."""
    parts = name.split(".")
    for end in range(2, len(parts) + 1):
        path = ".".join(parts[:end])
        try:
            _imported(path)
        except ImportError:
            sys.modules[path] = made = _module(path)
            parent = sys.modules[".".join(parts[:end - 1])]
            vars(parent).setdefault(parts[end - 1], made)


_READS = {dis.opmap[op] for op in ("LOAD_ATTR", "LOAD_METHOD") if op in dis.opmap}


def _read_while_defining(module: str, name: str) -> Unmet | None:
    """What `torch.part.name` gives in the body of a file of tests, or of a class in it; `hasattr`
    there, and whatever runs later, gets the truth."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_name == "__getattr__":
        frame = frame.f_back
    code = frame.f_code
    if (name.startswith("__") or code.co_flags & inspect.CO_OPTIMIZED
            or code.co_code[frame.f_lasti] not in _READS or not of_tests(code.co_filename)):
        return None
    theirs = "torch" + module.removeprefix("adjoint")
    return Unmet(f"{theirs}.{name}") if known(theirs, name) else None


_import = builtins.__import__


def _imported(name: str) -> ModuleType:
    _import(name)
    return sys.modules[name]


def _with_unmet(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (),
                level: int = 0) -> Any:
    """`__import__`, which gives files of tests what they ask for."""
    top = name.partition(".")[0]
    if level or top not in TOPS or not of_tests((globals or {}).get("__file__")):
        return _import(name, globals, locals, fromlist, level)
    try:
        found = _import(name, globals, locals, fromlist, level)
    except ImportError:
        if not known(name):
            raise
        _supply(name)
        found = sys.modules[name] if fromlist else sys.modules[top]
    if not fromlist or "*" in fromlist:
        return found
    names = {key: getattr(found, key, None) for key in fromlist}
    for key in [key for key in fromlist if not hasattr(found, key)]:
        if not known(name, key):
            return found                    # the import statement says what is missing
        names[key] = Unmet(f"{name}.{key}")
    return SimpleNamespace(**names)


def watch(path: str | None = None) -> None:
    """From now on in this process, if `path` is a file of tests (or no file is given)."""
    if path is not None and not of_tests(path):
        return
    setattr(builtins, "__import__", _with_unmet)  # noqa: B010  # a name of the process
    if _read_while_defining not in otherwise:
        otherwise.append(_read_while_defining)
