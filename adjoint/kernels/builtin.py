"""Builtin functions of CPython whose machine code is generated.

    f = make("name", module.address("symbol"), own)      # f(*args) runs, `own` is its `__self__`

The symbol is an ordinary method of the fast calling convention,

    PyObject *symbol(PyObject *self, PyObject *const *args, Py_ssize_t count)

written in LLVM IR over CPython's public C functions. A call costs 40 ns where one through a ctypes
prototype costs a microsecond. The code runs with the GIL; where it works for long it has to give
it back (`PyEval_SaveThread`).
"""
from __future__ import annotations

import ctypes
import functools
import gc
import sys
import sysconfig
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.kernels import llvm

_WORD = 8
_FASTCALL = 0x0080
_FIELDS = ("data", "nd", "dims", "strides", "base", "descr", "flags")
NEW_FROM_DESCR, ARRAY_TYPE = 94, 2         # places in NumPy's table of C functions
CONTIGUOUS, ALIGNED = 0x0001, 0x0100       # of NumPy's array flags
_TRAVERSE, _CLEAR = 71, 51                 # Py_tp_traverse, Py_tp_clear: public numbers of slots
_ALLOC, _NEW, _FREE = 47, 65, 74           # Py_tp_alloc, Py_tp_new, Py_tp_free


class _Method(ctypes.Structure):
    """CPython's public `PyMethodDef`."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p),
                ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


class _Probe:
    """A class of known place."""


class _Derived(_Probe):
    """A class that derives from one of known place."""


def words_of(thing: Any, count: int) -> list[int]:
    """The first 8-byte words of an object."""
    return list((ctypes.c_uint64 * count).from_address(id(thing)))


@functools.cache
def offsets() -> dict[str, int] | None:
    """Where generated code finds the type of an object ("type"), the fields of an array, the items
    of a tuple ("items") and their number ("length"), the content of a bytes object ("bytes") and
    the class that a class derives from ("parent"), in bytes from its address; None where that is
    not certain, or builtins cannot be made.

    >>> found = offsets()
    >>> found is None or {"data", "nd", "dims", "strides", "items", "type"} <= {*found}
    True
    """
    head = object.__basicsize__
    if (sys.implementation.name != "cpython" or head != 2 * _WORD
            or sysconfig.get_config_var("Py_GIL_DISABLED")
            or sysconfig.get_config_var("Py_TRACE_REFS") or not llvm.available()):
        return None
    # the public struct PyArrayObject_fields
    found = {name: head + i * _WORD for i, name in enumerate(_FIELDS)}
    # (over memory that is not NumPy's, where it would count as the step's that needs it first)
    probe = np.frombuffer(bytearray(120), np.float32).reshape(3, 10)[:, ::2]
    words = words_of(probe, head // _WORD + len(_FIELDS))

    def field(name: str) -> int:
        return words[found[name] // _WORD]
    if (words[1] != id(np.ndarray) or field("data") != probe.ctypes.data
            or field("nd") & 0xFFFFFFFF != 2 or field("base") != id(probe.base)
            or field("descr") != id(probe.dtype)
            or field("flags") & (CONTIGUOUS | ALIGNED) != ALIGNED):
        return None
    pairs = [tuple((ctypes.c_int64 * 2).from_address(field(name))) for name in ("dims", "strides")]
    pair, text = (object(), object()), b"adjoint: builtin"
    struct: Any = type
    above = [i for i, w in enumerate(words_of(_Derived, struct.__basicsize__ // _WORD))
             if w == id(_Probe)]
    items = [i for i, w in enumerate(words_of(pair, 6)) if w == id(pair[0])]
    several: tuple[object, ...] = (pair,) * 1013
    length = [i for i, w in enumerate(words_of(several, items[0] if items else 0)) if w == 1013]
    start = ctypes.string_at(id(text), sys.getsizeof(text)).find(text)
    if (pairs != [probe.shape, probe.strides] or start < 0
            or not len(items) == len(above) == len(length) == 1
            or [words_of(t, 4)[length[0]] for t in (pair, text)] != [len(pair), len(text)]
            or words_of(pair, 6)[items[0] + 1] != id(pair[1])):
        return None
    return {"type": _WORD, "length": length[0] * _WORD, "items": items[0] * _WORD,
            "bytes": start, "parent": above[0] * _WORD, **found}


@functools.cache
def numpy_address(index: int) -> int:
    """The address at that place of NumPy's table of C functions (`NEW_FROM_DESCR`); 0 where the
    table is not the one known."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    core = getattr(np, "_core", None) or np.core
    table = ctypes.cast(get(core._multiarray_umath._ARRAY_API, None),
                        ctypes.POINTER(ctypes.c_void_p))
    return int(table[index] or 0) if table[ARRAY_TYPE] == id(np.ndarray) else 0


@llvm.generating
def generated(name: str, text: Callable[[dict[str, int]], str]) -> tuple[llvm.Module, int] | None:
    """The module whose IR is `text(offsets())`, and the address of NumPy's function that makes an
    array; None where the one or the other is not to be had."""
    known = offsets()
    new = numpy_address(NEW_FROM_DESCR) if known else 0
    if known is None or not new:
        return None
    found = known
    return llvm.compile_spec((name, repr(sorted(found.items()))), lambda: text(found),
                             name=name), new


@functools.cache
def _method(name: str, address: int) -> _Method:
    return _Method(name.encode(), address, _FASTCALL, None)


def make(name: str, address: int, own: Any) -> Callable[..., Any]:
    """A builtin function around the machine code at `address`; `own` becomes its `__self__`.

    Only where `offsets()` is not None, and the code has to stay loaded.
    """
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object,
                                                   ctypes.c_void_p]
    made: Callable[..., Any] = new(ctypes.addressof(_method(name, address)), own, None)
    return made


def slot(kind: type, number: int) -> int:
    """The address in a slot of a Python class, by its public number."""
    get = ctypes.pythonapi.PyType_GetSlot
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
    return int(get(kind, number) or 0)


def _words_at(kind: type, *values: int) -> Any:
    """The words of the struct of a class that hold these values in a row; None where there are
    none, or several."""
    struct: Any = type(kind)
    words, n = words_of(kind, struct.__basicsize__ // _WORD), len(values)
    found = [i for i in range(len(words) - n + 1) if words[i:i + n] == list(values)]
    if len(found) != 1:
        return None
    return (ctypes.c_uint64 * n).from_address(id(kind) + found[0] * _WORD)


def head_of(thing: Any) -> int:
    """How many bytes lie before an object, in the block of memory that is its own."""
    return sys.getsizeof(thing) - type(thing).__basicsize__


def allocator(kind: type, alloc: int, free: int) -> int:
    """Have instances of the Python class `kind` made and freed by the machine code at these
    addresses, where Python's own two functions for what the collector knows do that until now; the
    answer is what makes them from now on. The code has to stay loaded."""
    api = ctypes.pythonapi
    usual = [ctypes.cast(f, ctypes.c_void_p).value
             for f in (api.PyType_GenericAlloc, api.PyObject_GC_Del)]
    before = slot(kind, _ALLOC)
    if [before, slot(kind, _FREE)] == usual:
        place = _words_at(kind, before, slot(kind, _NEW), slot(kind, _FREE))
        if place is not None:
            place[0], place[2] = alloc, free
    return slot(kind, _ALLOC)


def follow(kind: type, address: int, example: Any, links: Sequence[Any]) -> bool:
    """Have the garbage collector learn what instances of the Python class `kind` refer to from the
    machine code at `address`, a `traverseproc`; the answer is whether it does now.

    Python's own function for classes with slots visits each of them, at every collection twice.
    The code has to visit all that can be part of a cycle, what slots of base classes hold too; what
    derived classes add is visited as before. It has to stay loaded. The place in the struct of the
    type is the one where the two functions lie that `PyType_GetSlot` tells; then `example`, an
    instance, must lead to exactly the objects `links`, in order. Only where `offsets()` is not
    None.
    """
    before = slot(kind, _TRAVERSE)
    place = _words_at(kind, before, slot(kind, _CLEAR))
    if place is None:
        return False
    place[0] = address
    if list(map(id, gc.get_referents(example))) != list(map(id, links)):
        place[0] = before
        return False
    return True
