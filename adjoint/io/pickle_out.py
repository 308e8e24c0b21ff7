"""A pickle writer (protocol 2) that can name classes which are not installed here.

PyTorch's checkpoints refer to `torch._utils._rebuild_tensor_v2` and `torch.FloatStorage`.
The standard pickler writes such a name only after importing it, so the few opcodes needed are
emitted here. Source of the opcodes: `Lib/pickletools.py` of CPython.
"""
from __future__ import annotations

import copyreg
import importlib
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, get_origin

from adjoint.base.errors import DTypeError
from adjoint.io.errors import Unpicklable


class Global(NamedTuple):
    """A name to be looked up when the pickle is read."""

    module: str
    name: str


class Call(NamedTuple):
    """A function to be called with arguments when the pickle is read."""

    function: Global
    args: tuple[Any, ...]


class Persistent(NamedTuple):
    """A reference to something outside the pickle, for the reader's `persistent_load`."""

    pid: tuple[Any, ...]


Replace = Callable[[Any], Any]


class PickleWriter:
    """Builds a pickle in memory; `replace` turns special objects into `Call`s or `Global`s.

    `replace(obj)` returns its argument unchanged for everything ordinary.

    >>> import pickle
    >>> pickle.loads(PickleWriter(lambda x: x).dump({"a": [1, (2.5, None)]}))
    {'a': [1, (2.5, None)]}
    """

    def __init__(self, replace: Replace) -> None:
        self._replace = replace
        self._out: list[bytes] = []
        self._memo: dict[int, int] = {}
        self._names: dict[Any, int] = {}
        self._alive: list[Any] = []
        self._count = 0

    def dump(self, obj: Any) -> bytes:
        """The pickle of `obj`; DTypeError when something in it cannot be pickled."""
        self._out.append(b"\x80\x02")
        try:
            self._save(obj)
        except RecursionError:
            raise DTypeError("save: the object is nested too deeply to be written") from None
        self._out.append(b".")
        return b"".join(self._out)

    def _remember(self, obj: Any) -> None:
        self._memo[id(obj)] = self._count
        self._alive.append(obj)
        self._put()

    def _put(self) -> None:
        n = self._count
        self._out.append(b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<I", n))
        self._count = n + 1

    def _get(self, n: int) -> None:
        self._out.append(b"h" + bytes([n]) if n < 256 else b"j" + struct.pack("<I", n))

    def _save(self, obj: Any) -> None:
        if id(obj) in self._memo:
            self._get(self._memo[id(obj)])
            return
        new = self._replace(obj)
        writer = _WRITERS.get(type(new))
        if writer is not None:
            writer(self, new)
        elif new is type(None):                # no module has it under its name
            self._save(type)
            self._save((None,))
            self._out.append(b"R")
            self._remember(new)
        elif isinstance(new, type) or (callable(new) and hasattr(new, "__qualname__")
                                       and get_origin(new) is None):
            self._global(_locate(new))
        else:
            self._reduced(new)
        if new is not obj:
            self._memo[id(obj)] = self._count
            self._alive.append(obj)
            self._put()

    def _constant(self, obj: Any) -> None:
        self._out.append({None: b"N", True: b"\x88", False: b"\x89"}[obj])

    def _int(self, obj: int) -> None:
        if 0 <= obj < 256:
            self._out.append(b"K" + bytes([obj]))
        elif -(2**31) <= obj < 2**31:
            self._out.append(b"J" + struct.pack("<i", obj))
        else:
            data = obj.to_bytes(obj.bit_length() // 8 + 1, "little", signed=True)
            head = b"\x8a" + bytes([len(data)]) if len(data) < 256 else (
                b"\x8b" + struct.pack("<i", len(data)))
            self._out.append(head + data)

    def _float(self, obj: float) -> None:
        self._out.append(b"G" + struct.pack(">d", obj))

    def _complex(self, obj: complex) -> None:
        self._call(Call(Global("builtins", "complex"), (obj.real, obj.imag)))

    def _str(self, obj: str) -> None:
        if obj in self._names:
            self._get(self._names[obj])
            return
        data = obj.encode("utf-8", "surrogatepass")
        self._out.append(b"X" + struct.pack("<I", len(data)) + data)
        self._names[obj] = self._count
        self._put()

    def _bytes(self, obj: bytes) -> None:
        self._call(Call(Global("_codecs", "encode"), (obj.decode("latin1"), "latin1")))

    def _bytearray(self, obj: bytearray) -> None:
        self._call(Call(Global("builtins", "bytearray"), (bytes(obj),)))

    def _tuple(self, obj: tuple[Any, ...]) -> None:
        if not obj:
            self._out.append(b")")
            return
        if len(obj) > 3:
            self._out.append(b"(")
        for item in obj:
            self._save(item)
        if id(obj) in self._memo:  # a cycle through this tuple wrote it meanwhile
            self._out.append(b"0" * len(obj) if len(obj) <= 3 else b"1")
            self._get(self._memo[id(obj)])
            return
        self._out.append({1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(len(obj), b"t"))
        self._remember(obj)

    def _list(self, obj: list[Any]) -> None:
        self._out.append(b"]")
        self._remember(obj)
        self._append(obj)

    def _append(self, items: Iterable[Any]) -> None:
        self._out.append(b"(")
        for item in items:
            self._save(item)
        self._out.append(b"e")

    def _dict(self, obj: dict[Any, Any]) -> None:
        self._out.append(b"}")
        self._remember(obj)
        self._fill(obj.items())

    def _ordered(self, obj: OrderedDict[Any, Any]) -> None:
        self._call(Call(Global("collections", "OrderedDict"), ()))
        self._remember(obj)
        self._fill(obj.items())
        state = vars(obj)
        if state:  # state_dict() keeps its `_metadata` there
            self._save(state)
            self._out.append(b"b")

    def _fill(self, items: Iterable[tuple[Any, Any]]) -> None:
        self._out.append(b"(")
        for key, value in items:
            self._save(key)
            self._save(value)
        self._out.append(b"u")

    def _set(self, obj: set[Any] | frozenset[Any]) -> None:
        name = "set" if type(obj) is set else "frozenset"
        self._call(Call(Global("builtins", name), (list(obj),)))
        self._remember(obj)

    def _global(self, name: Global) -> None:
        if name in self._names:
            self._get(self._names[name])
            return
        self._out.append(f"c{name.module}\n{name.name}\n".encode())
        self._names[name] = self._count
        self._put()

    def _call(self, call: Call) -> None:
        self._global(call.function)
        self._tuple(call.args)
        self._out.append(b"R")

    def _persistent(self, ref: Persistent) -> None:
        self._tuple(ref.pid)
        self._out.append(b"Q")

    def _reduced(self, obj: Any) -> None:
        """An object of any other class, by its own `__reduce_ex__` (PEP 307)."""
        try:
            reduced = obj.__reduce_ex__(2)
        except TypeError as error:
            raise DTypeError(f"save: cannot pickle a {type(obj).__qualname__}: {error}; save its "
                             f"state as tensors, numbers, strings and containers") from None
        if isinstance(reduced, str):
            self._global(Global(_module_of(obj, reduced), reduced))
            return
        padded: tuple[Any, ...] = (*reduced, None, None, None)
        function, args, state, items, pairs = padded[:5]
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]  # no stub
            self._save(args[0])
            self._save(tuple(args[1:]))
            self._out.append(b"\x81")
        else:
            self._save(function)
            self._save(tuple(args))
            self._out.append(b"R")
        self._remember(obj)
        if items is not None:
            self._append(items)
        if pairs is not None:
            self._fill(pairs)
        if state is not None:
            self._save(state)
            self._out.append(b"b")


def _module_of(obj: Any, name: str) -> str:
    return str(getattr(obj, "__module__", None) or type(obj).__module__)


def _locate(obj: Any) -> Global:
    """Where a class or function can be imported from; refuses local ones, like pickle."""
    module, name = _module_of(obj, obj.__qualname__), obj.__qualname__
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        found = None
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not obj or "." in name:
        raise Unpicklable(f"save: cannot pickle {module}.{name}: it is not found under that name "
                          f"at the top level of its module")
    return Global(module, name)


_WRITERS: dict[type, Callable[[PickleWriter, Any], None]] = {
    type(None): PickleWriter._constant, bool: PickleWriter._constant, int: PickleWriter._int,
    float: PickleWriter._float, complex: PickleWriter._complex, str: PickleWriter._str,
    bytes: PickleWriter._bytes, bytearray: PickleWriter._bytearray, tuple: PickleWriter._tuple,
    list: PickleWriter._list, dict: PickleWriter._dict, OrderedDict: PickleWriter._ordered,
    set: PickleWriter._set, frozenset: PickleWriter._set, Global: PickleWriter._global,
    Call: PickleWriter._call, Persistent: PickleWriter._persistent,
}
