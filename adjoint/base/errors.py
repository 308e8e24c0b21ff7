"""The exception tree.

    AdjointError
    ├── ShapeError        also ValueError, RuntimeError    shapes or sizes that do not fit
    ├── DTypeError        also TypeError, RuntimeError     dtypes that do not fit
    ├── ArgumentError     also ValueError, RuntimeError    a bad value of an argument
    │   ├── StructureError     also TypeError              trees that do not fit a transform
    │   └── UnboundAxis        also NameError              an axis name that no vmap has
    ├── IndexOutOfRange   also IndexError                  an index outside of its axis
    ├── AutogradError     also RuntimeError                graphs, versions, backward
    │   ├── GradcheckError
    │   └── TransformError     also TypeError              what a transform has no answer to
    ├── MetaError         also NotImplementedError         a value is needed and there is no storage
    ├── MissingName       also AttributeError              a name that is not here
    ├── FixedValue        also AttributeError              an attribute that cannot be set
    └── NotSupported      also NotImplementedError         known, and deliberately absent

Every class is also the builtin a caller would catch; where PyTorch raises RuntimeError for
the same mistake, that too.
"""
from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from types import ModuleType as Module
from typing import Any

import numpy as np


class AdjointError(Exception):
    """Root of every exception raised on purpose by this package."""


class ShapeError(AdjointError, ValueError, RuntimeError):
    """Shapes or sizes of operands do not fit together."""


class DTypeError(AdjointError, TypeError, RuntimeError):
    """The dtypes of operands are not accepted by the function."""


class ArgumentError(AdjointError, ValueError, RuntimeError):
    """An argument has a value outside of what the function accepts."""


class NumberTooBig(ArgumentError, OverflowError):
    """A Python integer has no place in 64 bits."""


class StructureError(ArgumentError, TypeError):
    """The arguments or results of a function do not have the structure that a transform needs."""


class UnboundAxis(ArgumentError, NameError):
    """A collective names an axis that no enclosing vmap has."""


class AssertedError(ArgumentError, ShapeError, AssertionError):
    """Arguments, or their sizes, that PyTorch checks by an assertion."""


class IndexOutOfRange(AdjointError, IndexError, RuntimeError):
    """An index lies outside of the axis it refers to."""


class AutogradError(AdjointError, RuntimeError):
    """A graph was built, changed or walked in a way that has no right answer.

    `reason` names the mistake for tools ("no graph", "not scalar", "overwritten", "freed", "nan";
    "" where it has no name), `about` is what it happened to: a tensor or a storage cell.
    """

    def __init__(self, *args: object, reason: str = "", about: object = None) -> None:
        super().__init__(*args)
        self.reason, self.about = reason, about


class ExportError(AutogradError, BufferError):
    """A tensor cannot be handed to another library as it is."""


class AssertedAutogradError(AutogradError, AssertionError):
    """A mistake about a graph that PyTorch checks by an assertion."""


class GradcheckError(AutogradError):
    """An analytic derivative differs from the numerical one."""


class TransformError(AutogradError, TypeError):
    """A function has no such derivative, or a value of a transform is needed where it has none."""


class MetaError(AdjointError, NotImplementedError):
    """The value of a storage-less (meta) tensor was asked for."""


class NotSupported(AdjointError, NotImplementedError):
    """The feature is known and deliberately not offered; the message says what to use."""


class CompilerLost(NotSupported):
    """Generated kernels were available, and no further one can be compiled: NumPy computes."""


class NoKernel(NotSupported, DTypeError):
    """The operation is not computed for operands of this dtype."""


class Absent:
    """A function, a class, or a namespace of them, that is not here. It can be imported and handed
    about; a call of it, a subscript or a class made of it raises `NotSupported`, and nothing is an
    instance of it."""

    def __init__(self, name: str, why: str = "") -> None:
        self.__name__ = self.__qualname__ = name
        self._why = why

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}", self._why)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotSupported(f"{self.__name__} is not here" + (self._why and f": {self._why}"))

    __getitem__ = __setitem__ = __iter__ = __mro_entries__ = __call__

    def __instancecheck__(self, x: Any) -> bool:
        return False

    def __or__(self, other: Any) -> Absent:
        return self                        # in annotations: of several types, one that is not here

    __ror__ = __or__


PAGE = "docs/compat.md"


class MissingName(AdjointError, AttributeError):
    """A name was asked for that the module or class does not have. The text is put together when
    it is read, so that `hasattr` stays cheap."""

    def __init__(self, owner: str, name: str, known: Callable[[], Iterable[str]]) -> None:
        super().__init__(owner, name)
        self.owner, self.wanted, self._known = owner, name, known

    def __str__(self) -> str:
        import difflib  # for who meets the error: not at every import

        names = [n for n in self._known() if not n.startswith("_")]
        lower = {n.lower(): n for n in names}
        close = [lower[n] for n in difflib.get_close_matches(self.wanted.lower(), lower, 3, 0.72)]
        nearest = f"; the nearest names are {', '.join(map(repr, close))}" if close else ""
        return (f"{self.owner} has no attribute {self.wanted!r}{nearest}. {PAGE} lists every "
                "PyTorch name and what there is of it")


class FixedValue(AdjointError, AttributeError):
    """An attribute was to be set that is what it is."""


# Who is asked before a missing name raises (`testing.unmet`): module and name -> value, or None.
otherwise: list[Callable[[str, str], Any]] = []


def missing(module: str, also: str = "") -> Callable[[str], Any]:
    """The `__getattr__` of a module: raises `MissingName` for whatever is not in it, nor in
    `__all__` of the module `also`, which is loaded when such a name is first wanted.

    >>> import adjoint as ad
    >>> ad.nn.Linera
    Traceback (most recent call last):
    adjoint.base.errors.MissingName: module 'adjoint.nn' has no attribute 'Linera'; ...
    """
    def known() -> list[str]:
        own = vars(sys.modules[module])     # of names that differ in case only, the last is told:
        return sorted(own, key=lambda n: type(own[n]) is not Module)     # a class, not its module

    def __getattr__(name: str) -> Any:
        if also and not name.startswith("__"):
            names = importlib.import_module(also)
            if name in names.__all__:
                return getattr(names, name)
        for ask in otherwise:
            if (found := ask(module, name)) is not None:
                return found
        raise MissingName(f"module {module!r}", name, known)
    return __getattr__


def instead_of(operand: Any) -> str:
    """What to do about an operand that is not a tensor."""
    if hasattr(type(operand), "__torch_function__"):
        return ("its class has __torch_function__, which functions look for once adjoint.overrides "
                "is imported: add `import adjoint.overrides`")
    return "make one with tensor(...)"


# ------------------------------------------------------------------ NumPy's floating-point errors
_umath: Any = getattr(getattr(np, "_core", None), "umath", None)
_STATE: Any = getattr(_umath, "_extobj_contextvar", None)
_MAKE: Any = getattr(_umath, "_make_extobj", None)


class _Quiet:
    """NumPy code without floating-point warnings: `np.errstate(all="ignore")` at a quarter of its
    cost. NumPy keeps what it does about an overflow or an invalid operation in a context variable;
    where it is the known one it is set directly, which counts for work on a few numbers."""

    __slots__ = ("token",)

    def __enter__(self) -> None:
        self.token = _STATE.set(_IGNORE)

    def __exit__(self, *exc: object) -> None:
        _STATE.reset(self.token)


def _quiet() -> Any:
    return np.errstate(all="ignore")


Quiet: Any = _quiet
if _STATE is not None and _MAKE is not None:
    _IGNORE = _MAKE(all="ignore")
    Quiet = _Quiet
