"""A caching, counting allocator under NumPy arrays (NEP 49).

    install()                       # arrays made from now on in this thread use it
    stats()                         # live and peak bytes, exact; bytes kept for reuse
    empty_cache()                   # give kept memory back to the system

Fresh pages cost about 1 ms per MB on the first touch, more than most kernels take to fill them,
so freed blocks are kept and the next array of that size class gets one warm. What is kept is
bounded: when memory has to be taken from the system, kept blocks go back first unless held and
kept bytes together stay within 9/8 of the most ever held (plus `slack`), so the footprint follows
the true peak of live arrays. If the system refuses, everything kept is given back and the request
is tried again.

`live` and `peak` count the bytes that NumPy asked for, temporaries included. The functions are
generated (see `alloc_ir`) because NumPy calls them without the GIL in places. NumPy keeps the
handler per thread (in a context variable): `ensure()` installs it in a thread that lacks it. Arrays
made before, or in other threads, are freed by the allocator that made them.
"""
from __future__ import annotations

import contextvars
import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.kernels import alloc_ir, llvm

_SET_HANDLER = 304              # PyDataMem_SetHandler in NumPy's C API table (NumPy >= 1.22)
_DEFAULT_SLACK = 64 << 20


class Stats(NamedTuple):
    """Counters of the allocator, in bytes unless said.

    live: asked for and not freed; peak: the most that ever was; idle: kept for reuse; held: live
    rounded up to size classes; calls: allocations (a count); reused: those served warm (a count).
    """

    live: int
    peak: int
    idle: int
    held: int
    calls: int
    reused: int


class _Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free")]


class _Handler(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8),
                ("allocator", _Allocator)]


class _Installed:
    """The compiled functions, the counters, and NumPy's capsules."""

    def __init__(self) -> None:
        module = llvm.compile_ir(alloc_ir.text(sys.platform == "linux"), name="allocator")
        at = module.address
        _hold_during_fork(at("allocator_lock"), at("allocator_unlock"))
        self.trim = ctypes.CFUNCTYPE(None, ctypes.c_int64)(at("allocator_trim"))
        # (with the GIL: to give it up costs more than the three instructions)
        self.reset_peak = ctypes.PYFUNCTYPE(None)(at("allocator_reset_peak"))
        state = ctypes.CFUNCTYPE(ctypes.c_void_p)(at("allocator_state"))()
        self.addresses = int(state), int(at("allocator_reset_peak"))
        self.words = (ctypes.c_int64 * len(alloc_ir.COUNTERS)).from_address(int(state))
        self.words[alloc_ir.COUNTERS.index("slack")] = _DEFAULT_SLACK
        functions = [at("allocator_" + n) for n in ("malloc", "calloc", "realloc", "free")]
        self._handler = _Handler(b"adjoint", 1, _Allocator(None, *functions))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.capsule = new(ctypes.addressof(self._handler), b"mem_handler", None)
        self.set_handler = _numpy_setter()
        for immortal in (self, self.capsule):  # arrays may outlive every module
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(immortal))


def _numpy_setter() -> Any:
    core = getattr(np, "_core", None) or np.core
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(get(core._multiarray_umath._ARRAY_API, None),
                        ctypes.POINTER(ctypes.c_void_p))
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])


@llvm.generating
def _compiled() -> _Installed:
    return _Installed()


MARK = alloc_ir.COUNTERS.index("mark")     # where `counters` has what `marked` gives
_installed: _Installed | None = None
_enabled = False
_previous: contextvars.ContextVar[Any] = contextvars.ContextVar("adjoint_numpy_allocator",
                                                                default=None)


def available() -> bool:
    """Whether the allocator can be installed here.

    Needs generated code and POSIX; `ADJOINT_ALLOC=0` switches it off.
    """
    return (os.environ.get("ADJOINT_ALLOC", "1") != "0" and os.name == "posix"
            and llvm.available())


def install() -> bool:
    """Use the allocator for arrays made from now on in this thread; False where unavailable.

    >>> installed = install()
    >>> before = stats().live
    >>> a = np.empty(1000, np.float32)
    >>> stats().live - before == (4000 if installed else 0)
    True
    """
    global _installed, _enabled
    if not available():
        return False
    if _installed is None:
        made = _compiled()
        if made is None:
            return False
        _installed = made
    _enabled = True
    if _previous.get() is None:
        _previous.set(_installed.set_handler(_installed.capsule))
    return True


def ensure() -> None:
    """Install the allocator in this thread if it is in use and the thread does not have it."""
    if _enabled and _previous.get() is None:
        install()


def uninstall() -> None:
    """Go back to NumPy's allocator in this thread; arrays that exist stay valid."""
    global _enabled
    before = _previous.get()
    if _installed is not None and before is not None:
        _installed.set_handler(before)
        _previous.set(None)
    _enabled = False


def installed() -> bool:
    """Whether arrays made in this thread use the allocator."""
    return _previous.get() is not None


def stats() -> Stats:
    """The counters now (zeros where the allocator was never installed).

    >>> stats().peak >= stats().live >= 0
    True
    """
    if _installed is None:
        return Stats(0, 0, 0, 0, 0, 0)
    w = dict(zip(alloc_ir.COUNTERS, _installed.words, strict=True))
    return Stats(w["live"], w["peak"], w["idle"], w["held"], w["calls"], w["reused"])


def live_and_peak() -> tuple[int, int]:
    """The first two counters, at a twentieth of the price of `stats`.

    >>> live, peak = live_and_peak()
    >>> 0 <= live <= peak
    True
    """
    if _installed is None:
        return 0, 0
    words = _installed.words
    return words[0], words[1]


def counters() -> tuple[Any, Callable[[], None]]:
    """Where the first two counters lie, as a sequence that changes with them, and what lets the
    peak start again: for whoever reads them all the time.

    >>> words, reset = counters()
    >>> reset(); words[0] == words[1]
    True
    """
    return ((0, 0), reset_peak) if _installed is None else (_installed.words, _installed.reset_peak)


def addresses() -> tuple[int, int]:
    """Of the counters and of what lets the peak start again, for machine code; 0 without them."""
    return (0, 0) if _installed is None else _installed.addresses


def reset_peak() -> None:
    """Let `peak` start again from the bytes that are live now."""
    if _installed is not None:
        _installed.reset_peak()


def mark() -> int:
    """Start a second peak from the bytes that are live now, and return those; see `marked`."""
    if _installed is None:
        return 0
    words = _installed.words
    live = words[0]
    words[MARK] = live
    return int(live)


def marked() -> int:
    """The most bytes that were live since the last `mark()`; `peak` is not touched by either."""
    return 0 if _installed is None else int(_installed.words[MARK])


def live() -> int:
    """The bytes that are live now: `stats().live`, cheaper."""
    return 0 if _installed is None else int(_installed.words[0])


def set_limit(nbytes: int) -> int:
    """Refuse requests that would bring the live bytes above `nbytes` (0: no limit): NumPy then
    raises MemoryError. Requests below 256 bytes are always served. Returns the limit before.

    >>> before = set_limit(0)
    """
    if _installed is None:
        return 0
    at = alloc_ir.COUNTERS.index("limit")
    before = int(_installed.words[at])
    _installed.words[at] = nbytes
    return before


def empty_cache() -> int:
    """Give every kept block back to the system; returns how many bytes that were.

    >>> empty_cache() >= 0 and stats().idle == 0
    True
    """
    if _installed is None:
        return 0
    before = stats().idle
    _installed.trim(0)
    return before - stats().idle


def set_slack(nbytes: int) -> None:
    """How many bytes may be kept beyond 9/8 of the most ever held (64 MiB unless set).

    Raises:
        ArgumentError: where `nbytes` is negative.
    """
    if nbytes < 0:
        raise ArgumentError(f"set_slack: nbytes = {nbytes} is negative; 0 keeps the least")
    if _installed is not None:
        _installed.words[alloc_ir.COUNTERS.index("slack")] = nbytes


def _hold_during_fork(lock: int, unlock: int) -> None:
    """Take the lock right before the system forks, and give it back in both processes right after.

    This has to be the C library's hook. Between Python's hooks (`os.register_at_fork`) other
    threads can run: one that allocates would spin on the lock with the GIL that this one needs.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "pthread_atfork"):
        libc.pthread_atfork(*map(ctypes.c_void_p, (lock, unlock, unlock)))
    elif hasattr(libc, "__register_atfork"):  # what glibc's static pthread_atfork calls
        register = getattr(libc, "__register_atfork")  # noqa: B009  # a name Python would mangle
        register(*map(ctypes.c_void_p, (lock, unlock, unlock, None)))
