"""PyTorch's `__torch_function__`: classes and modes that answer for the public functions.

Plain tensors never look for it. A public function is an ordinary Python function; once a program
has a class or a mode that wants to be asked, `install` gives each of them another code object that
asks first (`overrides.py` says which, and when). The function objects stay the same, so what was
imported or put in tables before still fits.

    call f(args) ─> all operands of plain types, no mode ─> f as it was written
                 ─> a mode is open                       ─> mode.__torch_function__, mode set aside
                 ─> an operand's class has an answer     ─> cls.__torch_function__(f, types, ...)
"""
from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar, Token
from functools import cache
from inspect import getattr_static, signature
from types import CodeType, FrameType, FunctionType, NoneType
from typing import Any

import numpy as np

from adjoint.base.dtypes import DType
from adjoint.base.errors import ArgumentError
from adjoint.base.provenance import is_own_code
from adjoint.core.callers import Own
from adjoint.core.tensor import (
    DISPATCHED,
    OWN,
    AccumulateGrad,
    Parameter,
    Size,
    Tensor,
    alias,
)

NAME = "__torch_function__"
DISPATCH = "__torch_dispatch__"
# names of functions that make a tensor like an operand, and have no record: what a class with
# `__torch_dispatch__` is asked here -> how
LIKE: dict[str, Any] = {}
MODES: ContextVar[tuple[Any, ...]] = ContextVar("adjoint_function_modes", default=())
# 0: classes and modes are asked, 1: only modes, 2: nobody.
_silent: ContextVar[int] = ContextVar("adjoint_function_silent", default=0)
# Types of operands that have no answer; others are added when they are met.
_plain: set[type] = {Tensor, Parameter, int, float, bool, complex, str, NoneType, DType,
                     np.ndarray}
_installed: set[Any] = set()


def disabled(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """A class with this as its `__torch_function__` is not asked: it goes as a plain tensor."""
    return NotImplemented


def answers(x: Any) -> bool:
    """True if the class of `x` has an answer of its own for public functions."""
    kind = type(x)
    if kind in _plain:
        return False
    found = getattr(kind, NAME, None)
    if found is None or found is disabled or kind in OWN:
        if kind not in (list, tuple, dict) and not hasattr(kind, DISPATCH):
            _plain.add(kind)
        return False
    return True


def silence(level: int | None = None) -> int:
    """The level of `Silence` that holds now; with `level`, that one from now on."""
    if level is not None:
        _silent.set(level)
    return _silent.get()


class Silence:
    """Within the context classes are not asked (`level` 1), or classes and modes (2)."""

    level = 1

    def __enter__(self) -> None:
        self.token: Token[int] = _silent.set(max(self.level, _silent.get()))

    def __exit__(self, *exc: Any) -> None:
        _silent.reset(self.token)


def operands_that_answer(args: Iterable[Any], seen: list[Any] | None = None) -> list[Any]:
    """One operand per class that has an answer, subclasses before their bases; lists are looked
    into one level deep."""
    found: list[Any] = [] if seen is None else seen
    for a in args:
        if isinstance(a, (list, tuple)) and seen is None:
            operands_that_answer(a, found)
        elif answers(a) and not any(type(a) is type(b) for b in found):
            at = next((i for i, b in enumerate(found) if isinstance(a, type(b))), len(found))
            found.insert(at, a)
    return found


def is_asked(args: Iterable[Any]) -> bool:
    """True if a mode or the class of an operand is to be asked about a call with these operands."""
    level = _silent.get()
    return level < 2 and bool(MODES.get()) or not level and bool(operands_that_answer(args))


def ask(public: Callable[..., Any], relevant: Sequence[Any], args: Any, kwargs: Any) -> Any:
    """What modes and the classes of `relevant` answer to `public(*args, **kwargs)`; TypeError if
    nobody does."""
    level = _silent.get()
    owners = operands_that_answer(relevant) if not level else []
    types = tuple(map(type, owners))
    modes = MODES.get() if level < 2 else ()
    if modes:
        token = MODES.set(modes[:-1])
        try:
            result = modes[-1].__torch_function__(public, types, args, kwargs)
        finally:
            MODES.reset(token)
        if result is not NotImplemented:
            return result
    for owner in owners:
        result = type(owner).__torch_function__(public, types, args, kwargs)
        if result is not NotImplemented:
            return result
    name = getattr(public, "__name__", repr(public))
    asked = [f"{type(o).__module__}.{type(o).__qualname__}" for o in owners]
    by = f", nor by mode {type(modes[-1]).__name__}" if modes else ""
    raise TypeError(f"no implementation found for {name!r} on types that implement {NAME}: "
                    f"{asked}{by}; each returned NotImplemented")


# ------------------------------------------------------------------ asking, in each function
@cache
def _template(free: int) -> CodeType:
    """The code that asks first, with as many free variables as the function it replaces: Python
    changes the code of a function only for code that closes over as many."""
    names = [f"_{i}" for i in range(free)]
    lines = ["def outer():", *(f"    {n} = None" for n in names),
             "    def call(*args, _adjoint=None, **kwargs):",
             *(["        if 0: " + ", ".join(names)] if names else []),
             "        if not kwargs and not _adjoint[2]():",
             "            for a in args:",
             "                if type(a) not in _adjoint[1]: break",
             "            else: return _adjoint[0](*args)",
             "        return _adjoint[3](*_adjoint, args, kwargs)",
             "    return call.__code__"]
    space: dict[str, Any] = {}
    exec(compile("\n".join(lines), __file__, "exec"), space)  # noqa: S102  # our own text
    code: CodeType = space["outer"]()
    return code


# Functions that tell whoever answers for them other arguments than they were given.
TOLD: dict[str, Callable[[Any], Any]] = {}
# Functions that give all their optional arguments as keywords, as PyTorch's do that are written in
# Python: handlers read `kwargs["p"]`. With True the required ones, too.
KEYWORDS: dict[Any, bool] = {}


def spelled(public: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a call of a function of `KEYWORDS`: the required ones by position, the
    others by name."""
    try:
        bound = signature(public.__wrapped__).bind(*args, **kwargs)
    except TypeError:
        return args, kwargs             # the function itself says what is wrong
    bound.apply_defaults()
    first: list[Any] = []
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name]
        if kind.kind is kind.VAR_POSITIONAL:
            first.extend(value)
        elif kind.kind is kind.VAR_KEYWORD:
            named.update(value)
        elif kind.default is kind.empty and not KEYWORDS[public]:
            first.append(value)
        else:
            named[name] = value
    return tuple(first), named


def _route(original: Callable[..., Any], plain: Any, modes: Any, route: Any, public: Any,
           asks_classes: bool, args: Any, kwargs: Any) -> Any:
    """The call of a public function that is not plainly one of plain operands."""
    if public.__name__ in TOLD:
        args = TOLD[public.__name__](args)
    operands = (*args, *kwargs.values()) if asks_classes else ()
    if is_asked(operands):
        if public in KEYWORDS:
            args, kwargs = spelled(public, args, kwargs)
        return ask(public, operands, args, kwargs)
    like = LIKE.get(public.__name__)
    if like is not None and any([getattr(a, "level", 0) == DISPATCHED for a in operands]):
        return like(original, args, kwargs)
    return original(*args, **kwargs)


def copied(f: FunctionType) -> FunctionType:
    """Another function that does the same."""
    twin = FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
    twin.__kwdefaults__ = f.__kwdefaults__
    twin.__dict__.update(f.__dict__)
    twin.__annotations__, twin.__qualname__ = f.__annotations__, f.__qualname__
    twin.__doc__ = f.__doc__
    return twin


def install(f: FunctionType, asks_classes: bool = True, public: Any = None,
            original: Any = None) -> None:
    """Make a function ask: modes, and unless told otherwise the classes of its operands. They are
    told that `public` was called, if that is another function. `original` does what `f` did."""
    if f in _installed:
        return
    if original is None:
        original = copied(f)
        if f.__code__.co_freevars == ("own",):      # `Own` changes the code of its function
            own = f.__closure__[0].cell_contents    # type: ignore[index]  # there is one
            if isinstance(own, Own):
                own.function = original
    free = len(f.__code__.co_freevars)
    f.__wrapped__ = original  # type: ignore[attr-defined]  # read by inspect and by core.op
    f.__code__ = _template(free).replace(co_name=f.__name__)
    f.__defaults__ = None
    f.__kwdefaults__ = {"_adjoint": (original, _plain, MODES.get, _route, public or f,
                                     asks_classes)}
    _installed.add(f)


def defines(frame: FrameType | None) -> bool:
    """True if a module that is being executed, from `frame` outwards, defines a class or a
    function of that name: read off its code object."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and _mentions(frame.f_code):
            return True
        frame = frame.f_back
    return False


def _mentions(code: CodeType) -> bool:
    return NAME in code.co_names or any(
        _mentions(c) for c in code.co_consts if isinstance(c, CodeType))


# ------------------------------------------------------------------ subclasses of Tensor
def shown_as(t: Tensor, kind: type[Any]) -> Any:
    """An object of the class on the same memory at the same place in the graph; its constructor
    is not called."""
    if not issubclass(kind, Tensor):
        raise ArgumentError(f"as_subclass: {kind.__name__} is not a subclass of Tensor")
    out: Any = object.__new__(kind)
    out.array, out._rg, out._edge, out._cell = t.array, t._rg, t._edge, t._cell
    if type(out._edge) is AccumulateGrad:
        out._edge = None
    for name in ("_base", "_steps", "_creation", "_born", "_grad"):
        if name in t.__dict__:
            out.__dict__[name] = t.__dict__[name]
    if t._base is not None:
        t._base._kids.append(weakref.ref(out))
    return out


def keep_class(result: Any, kind: type[Any]) -> Any:
    """The result of a function with the tensors in it as objects of the class."""
    if isinstance(result, Tensor):
        return result if isinstance(result, kind) or result.level else shown_as(result, kind)
    if isinstance(result, (tuple, list)) and not isinstance(result, Size):
        made = [keep_class(r, kind) for r in result]
        return type(result)(*made) if hasattr(result, "_fields") else type(result)(made)
    return result


def answer_of_tensor(cls: type[Any], func: Any, types: Any, args: Any = (),
                     kwargs: Any = None) -> Any:
    """The answer that subclasses of Tensor inherit: the function itself, its results as objects of
    the class. NotImplemented if another class takes part that is not above it."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with Silence():
        result = func(*args, **(kwargs or {}))
    return result if getattr(func, "__self__", None) is _GRAD else keep_class(result, cls)


_GRAD: Any = None
_made: list[type[Any]] = []


class Accessor:
    """What those that are asked about a property are told: its `__get__` or `__set__`. It equals
    that of the property itself, and of the one that asks; to call it is to read or to write."""

    def __init__(self, prop: property, of: str, name: str) -> None:
        self.__self__, self.of, self.__name__ = prop, of, name

    def __call__(self, owner: Any, *rest: Any) -> Any:
        if is_asked((owner,)):
            return ask(self, (owner,), (owner, *rest[:self.__name__ == "__set__"]), {})
        return getattr(self.__self__, self.__name__)(owner, *rest)

    def __eq__(self, other: object) -> bool:
        return getattr(other, "__name__", "") == self.__name__ and (
            getattr(other, "__self__", None) is self.__self__)

    def __hash__(self) -> int:
        return hash(getattr(self.__self__, self.__name__))

    def __repr__(self) -> str:
        return f"<{self.__name__} of Tensor.{self.of}>"


class Asking(property):
    """A property that asks modes and the class of its owner first."""

    def __init__(self, prop: property, name: str) -> None:
        self.prop, self.reads = prop, Accessor(prop, name, "__get__")
        self.writes = Accessor(prop, name, "__set__")
        super().__init__(self.reads, self.writes if prop.fset else None, prop.fdel, prop.__doc__)

    def __getattribute__(self, name: str) -> Any:
        if name == "__get__":       # of the program's; Python itself looks at the type
            return self.reads
        return self.writes if name == "__set__" else super().__getattribute__(name)


_askers: dict[str, Asking] = {}
# Properties with a leading underscore that PyTorch's modes are told of.
_TOLD_OF = ("_version",)


def asking(name: str) -> Asking:
    """The property of that name of Tensor, which asks."""
    if name not in _askers:
        found = Tensor.__dict__[name]
        prop = found if isinstance(found, property) else property(
            lambda self: self.__dict__.get(name, found),
            lambda self, value: self.__dict__.__setitem__(name, value))
        _askers[name] = Asking(prop, name)
    return _askers[name]


def properties_ask() -> None:
    """From now on all properties of Tensor ask; called when the first mode is entered."""
    for name, found in list(Tensor.__dict__.items()):
        fixed = isinstance(found, bool) and name.startswith("is_") or name == "layout"
        told = isinstance(found, property) and (not name.startswith("_") or name in _TOLD_OF)
        if (told or fixed) and not isinstance(found, Asking):
            setattr(Tensor, name, asking(name))


class _Theirs:
    """What a user's class calls `array`, which is where a tensor has its memory: this package goes
    on seeing the memory under that name, everybody else the class's own attribute."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def __get__(self, obj: Any, kind: Any = None) -> Any:
        if obj is not None and is_own_code(sys._getframe(1).f_code):
            return _ARRAY.__get__(obj)
        return self.found.__get__(obj, kind) if hasattr(self.found, "__get__") else self.found

    def __set__(self, obj: Any, value: Any) -> None:
        owner = _ARRAY if is_own_code(sys._getframe(1).f_code) else self.found
        if not hasattr(owner, "__set__"):
            raise AttributeError(f"'{type(obj).__name__}' object attribute 'array' is read-only")
        owner.__set__(obj, value)


_ARRAY: Any = Tensor.__dict__["array"]


def base_of_subclasses() -> type[Any]:
    """What stands in for Tensor among the bases of a user's class: its constructor makes objects of
    that class, its properties ask. Made at the first such class."""
    global _GRAD
    if _made:
        return _made[0]

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return shown_as(type(Tensor).legacy(*args, **kwargs), cls)

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing is left to do."""

    def subclass(cls: Any, /, **kwargs: Any) -> None:
        """A class that answers for ops is not asked about functions unless it says so."""
        theirs = getattr_static(cls, "array")
        if theirs is not _ARRAY and not isinstance(theirs, _Theirs):
            cls.array = _Theirs(theirs)
        if DISPATCH in cls.__dict__:
            from adjoint.core.dispatch import take_over  # few programs have such a class
            take_over(cls)
            found = getattr(cls, NAME)
            if getattr(found, "__func__", None) is answer_of_tensor:
                setattr(cls, NAME, staticmethod(disabled))

    _GRAD = asking("grad").prop
    space: dict[str, Any] = {"__slots__": (), "__module__": "adjoint", "__new__": new,
                             "__init__": init, "__doc__": Tensor.__doc__,
                             "__init_subclass__": classmethod(subclass)}
    for name, found in Tensor.__dict__.items():
        if isinstance(found, property) and not name.startswith("_"):
            space[name] = asking(name) if not isinstance(found, Asking) else found
    metaclass: Any = type(Tensor)
    made: type[Any] = metaclass("TensorSubclass", (Tensor,), space, own=True)
    OWN.discard(made)                  # it stands in for Tensor, and what derives from it asks
    _made.append(made)
    return made


def make_subclass(cls: type[Any], data: Tensor, require_grad: bool = False) -> Any:
    """`Tensor._make_subclass(cls, data)`: a leaf of the class on the memory of `data`."""
    out = shown_as(alias(data), cls)
    out.requires_grad = require_grad
    return out


setattr(Tensor, NAME, classmethod(answer_of_tensor))
setattr(Parameter, NAME, staticmethod(disabled))
__all__ = ["DISPATCH", "KEYWORDS", "LIKE", "MODES", "NAME", "Accessor", "Asking", "Silence",
           "answer_of_tensor", "answers", "ask", "asking", "base_of_subclasses", "copied",
           "defines", "disabled", "install", "is_asked", "keep_class", "make_subclass",
           "operands_that_answer", "properties_ask", "shown_as"]
