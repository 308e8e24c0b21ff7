"""A pickle reader that can build containers and call listed functions, and nothing else.

Note [Why not pickle.Unpickler]: overriding `find_class` decides which names a file may use,
but not what it may do to them: the BUILD opcode still sets attributes on any object,
including the functions and dtypes handed out. Here every opcode that touches an object checks
it first. Opcodes are decoded by `pickletools.genops`; their meaning is in its source.
"""
from __future__ import annotations

import math
import pickletools
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.io.errors import FileFormatError, NotAStorage, UnsafePickleError

Find = Callable[[str, str], Any]
Persistent = Callable[[Any], Any]


class Callable_:
    """A function that a file may call: opaque, so that it cannot be changed by the file."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


class Inner(Callable_):
    """A function that may also be the argument of another, as it is for tensors of a class."""

    __slots__ = ()


class Listed(Callable_):
    """A function on the user's own list: it may be a value too, as an activation of a module."""

    __slots__ = ()


class Trusted(Callable_):
    """A class on the user's own list: the file may also set its state."""

    __slots__ = ()


_MARK = object()
_PUSH = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8"}
_BYTES = {"STRING", "BINSTRING", "SHORT_BINSTRING"}
_FIXED: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set,
    "MARK": lambda: _MARK}


def global_names(data: bytes) -> set[tuple[str, str]]:
    """The (module, name) pairs that a pickle refers to; nothing is executed."""
    names, strings = set(), [""]
    memo: dict[int, str] = {}
    arg: Any
    for opcode, arg, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            module, _, name = arg.partition(" ")
            names.add((module, name))
        elif opcode.name == "STACK_GLOBAL":
            names.add((strings[-2], strings[-1]))
        elif opcode.name in _PUSH and isinstance(arg, str):
            strings.append(arg)
        elif opcode.name == "MEMOIZE":
            memo[len(memo)] = strings[-1]
        elif opcode.name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[int(arg)] = strings[-1]
        elif opcode.name in ("GET", "BINGET", "LONG_BINGET"):
            strings.append(memo.get(int(arg), ""))
    return names


class SafeUnpickler:
    """Reads one pickle.

    `find(module, name)` returns a constant, a `Callable_` or a `Trusted`; it raises for names
    that are not safe. `persistent(pid)` resolves references out of the pickle.
    """

    def __init__(self, find: Find, persistent: Persistent | None = None,
                 encoding: str = "ASCII") -> None:
        self._find, self._persistent, self._encoding = find, persistent, encoding
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._trusted: set[type] = set()

    def load(self, data: bytes) -> Any:
        """The object in `data`; FileFormatError when it is damaged, cut short or not safe."""
        try:
            for opcode, arg, _ in pickletools.genops(data):
                if opcode.name == "STOP":
                    (result,) = self._stack
                    return _kept(result)
                self._step(opcode.name, arg)
        except (FileFormatError, NotAStorage):      # the program's mistake, not the file's
            raise
        except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError,
                UnicodeError, MemoryError) as error:
            raise FileFormatError(f"the pickle in it is damaged: {error}") from error
        raise FileFormatError("the pickle in it has no end")

    def _step(self, name: str, arg: Any) -> None:
        stack = self._stack
        if name in _PUSH:
            stack.append(arg)
        elif name in _BYTES:
            raw = arg.encode("latin1")
            stack.append(raw if self._encoding == "bytes" else raw.decode(self._encoding))
        elif name in _FIXED:
            stack.append(_FIXED[name]())
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[int(arg)] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[int(arg)])
        elif name not in ("PROTO", "FRAME"):
            act = _ACTIONS.get(name)
            if act is None:
                raise UnsafePickleError(f"the pickle in it uses the instruction {name}, which "
                                        f"is not accepted")
            act(self, arg)

    def _items(self) -> list[Any]:
        """Pop everything above the last mark."""
        stack = self._stack
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("a mark is missing")
        items = stack[at + 1:]
        del stack[at:]
        return [_plain(item) for item in items]

    def _tuple(self, count: int) -> None:
        items = tuple(_plain(item) for item in self._stack[-count:])
        self._stack[-count:] = [items]

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise ValueError(f"cannot append to a {type(target).__name__}")
        target.extend(items)

    def _update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) not in (dict, OrderedDict, Counter):
            raise ValueError(f"cannot set items of a {type(target).__name__}")
        target.update(zip(items[::2], items[1::2], strict=True))

    def _set_item(self) -> None:
        value, key = _plain(self._stack.pop()), _plain(self._stack.pop())
        self._update([key, value])

    def _dict(self, arg: Any) -> None:
        items = self._items()
        self._stack.append(dict(zip(items[::2], items[1::2], strict=True)))

    def _add(self, arg: Any) -> None:
        items = self._items()
        target = self._stack[-1]
        if type(target) is not set:
            raise ValueError(f"cannot add to a {type(target).__name__}")
        target.update(items)

    def _global(self, arg: str) -> None:
        module, _, name = arg.partition(" ")
        self._stack.append(self._find(module, name))

    def _stack_global(self, arg: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if type(module) is not str or type(name) is not str:
            raise ValueError("a name that is not a string")
        self._stack.append(self._find(module, name))

    def _reduce(self, arg: Any) -> None:
        args, function = self._stack.pop(), self._stack.pop()
        if not isinstance(function, Callable_) or type(args) is not tuple:
            raise UnsafePickleError(f"the pickle in it calls {function!r}, which is not on the "
                                    f"list of safe functions")
        made = function.function(*args)
        if isinstance(function, Trusted):
            self._trusted.add(type(made))
        self._stack.append(made)

    def _newobj(self, arg: Any) -> None:
        args, cls = self._stack.pop(), self._stack.pop()
        if not isinstance(cls, Trusted) or type(args) is not tuple:
            raise UnsafePickleError(f"the pickle in it makes an instance of {cls!r}, which is "
                                    f"not on the list of safe classes")
        kind: Any = cls.function
        made = kind.__new__(kind, *args)
        self._trusted.add(type(made))
        self._stack.append(made)

    def _build(self, arg: Any) -> None:
        state, target = _plain(self._stack.pop()), self._stack[-1]
        if type(target) is OrderedDict and type(state) is dict:
            vars(target).update(state)
        elif type(target) is np.ndarray:
            _fill_array(target, state)
        elif isinstance(target, np.dtype):
            self._stack[-1] = new = _with_order(target, state)
            self._memo.update({k: new for k, v in self._memo.items() if v is target})
        elif type(target) in self._trusted:
            _set_state(target, state)
        else:
            raise UnsafePickleError(f"the pickle in it sets the state of a "
                                    f"{type(target).__name__}, which is not accepted")

    def _persid(self, arg: Any) -> None:
        if self._persistent is None:
            raise UnsafePickleError("the pickle in it refers to objects outside of it")
        self._stack.append(self._persistent(self._stack.pop()))


def _set_state(target: Any, state: Any) -> None:
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    slots = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    if state:
        vars(target).update(state)
    for key, value in (slots or {}).items():
        setattr(target, key, value)


def _plain(value: Any) -> Any:
    """A value fit to be kept: what the user listed is unwrapped, another function refused."""
    if isinstance(value, (Trusted, Listed)):
        return value.function
    if isinstance(value, Callable_) and type(value) is not Inner or value is _MARK:
        raise UnsafePickleError("the pickle in it keeps a function as a value")
    return value


def _kept(value: Any) -> Any:
    """A result: no function at all."""
    if type(value) is Inner:
        raise UnsafePickleError("the pickle in it keeps a function as a value")
    return _plain(value)


def _fill_array(target: np.ndarray, state: Any) -> None:
    """The state of a pickled array: (version, shape, dtype, column-major?, bytes)."""
    _, shape, dtype, _, raw = state
    if not isinstance(dtype, np.dtype) or dtype.hasobject or type(raw) is not bytes:
        raise UnsafePickleError("a NumPy array in it holds Python objects")
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise FileFormatError(f"a NumPy array in it has shape {shape} and {len(raw)} bytes")
    target.__setstate__(state)


def _with_order(dtype: np.dtype[Any], state: Any) -> np.dtype[Any]:
    """A simple dtype with the byte order of its pickled state."""
    if dtype.hasobject or dtype.fields is not None or state[2:5] != (None, None, None):
        raise UnsafePickleError("a NumPy dtype in it is not a plain number type")
    return dtype.newbyteorder(state[1]) if state[1] in ("<", ">") else dtype


def _scalar(dtype: np.dtype[Any], raw: bytes) -> Any:
    if not isinstance(dtype, np.dtype) or dtype.hasobject or type(raw) is not bytes:
        raise UnsafePickleError("a NumPy scalar in it holds a Python object")
    return np.frombuffer(raw, dtype, 1)[0]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode(encoding)


def _make_dtype(name: Any, align: bool = False, copy: bool = False) -> np.dtype[Any]:
    if not isinstance(name, str | bytes):
        raise UnsafePickleError("a NumPy dtype in it is not a plain number type")
    dtype = np.dtype(name.decode() if isinstance(name, bytes) else name)
    if dtype.hasobject or dtype.fields is not None:
        raise UnsafePickleError("a NumPy dtype in it is not a plain number type")
    return dtype


def _empty_array(cls: Any, shape: Any, kind: Any) -> np.ndarray:
    return np.empty(0, np.uint8)


def _complex(real: float, imag: float) -> complex:
    return complex(float(real), float(imag))


_MULTIARRAY = {"_reconstruct": Callable_(_empty_array), "scalar": Callable_(_scalar)}
SAFE: dict[str, Any] = {
    "collections.OrderedDict": Callable_(OrderedDict), "collections.Counter": Callable_(Counter),
    "builtins.set": Callable_(set), "builtins.frozenset": Callable_(frozenset),
    "builtins.bytearray": Callable_(bytearray), "builtins.complex": Callable_(_complex),
    "_codecs.encode": Callable_(_encode), "numpy.dtype": Callable_(_make_dtype),
    "numpy.ndarray": np.ndarray,
    **{f"numpy.{package}.multiarray.{name}": function
       for package in ("core", "_core") for name, function in _MULTIARRAY.items()},
}


def find_safe(module: str, name: str) -> Any:
    """Standard containers and NumPy arrays of numbers; everything else is refused.

    >>> find_safe("os", "system")
    Traceback (most recent call last):
    adjoint.io.errors.UnsafePickleError: the pickle in it names os.system, which is not on ...
    """
    module = {"__builtin__": "builtins"}.get(module, module)
    found = SAFE.get(f"{module}.{name}")
    if found is None:
        raise UnsafePickleError(f"the pickle in it names {module}.{name}, which is not on the "
                                f"list of safe names: Unsupported global: GLOBAL {module}.{name} "
                                "was not an allowed global by default")
    return found


_ACTIONS: dict[str, Callable[[SafeUnpickler, Any], None]] = {
    "TUPLE": lambda u, _: u._stack.append(tuple(u._items())),
    "TUPLE1": lambda u, _: u._tuple(1), "TUPLE2": lambda u, _: u._tuple(2),
    "TUPLE3": lambda u, _: u._tuple(3),
    "LIST": lambda u, _: u._stack.append(u._items()),
    "DICT": SafeUnpickler._dict,
    "FROZENSET": lambda u, _: u._stack.append(frozenset(u._items())),
    "APPEND": lambda u, _: u._extend([_plain(u._stack.pop())]),
    "APPENDS": lambda u, _: u._extend(u._items()),
    "SETITEM": lambda u, _: u._set_item(),
    "SETITEMS": lambda u, _: u._update(u._items()),
    "ADDITEMS": SafeUnpickler._add, "GLOBAL": SafeUnpickler._global,
    "STACK_GLOBAL": SafeUnpickler._stack_global, "REDUCE": SafeUnpickler._reduce,
    "NEWOBJ": SafeUnpickler._newobj, "BUILD": SafeUnpickler._build,
    "BINPERSID": SafeUnpickler._persid, "POP": lambda u, _: u._stack.pop(),
}
