"""Running user code on storage-less arrays as if they had memory (`memory.predict`).

While a rehearsal is entered, code that computes on raw arrays outside of ops gives its function to
`call`: the rehearsal then knows which storages the call makes, keeps and drops. Elsewhere
storage-less arrays only carry shapes, and `otherwise` says what they become.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray, account

rehearsal: ContextVar[Any] = ContextVar("adjoint_rehearsal", default=None)
_waiting: ContextVar[Any] = ContextVar("adjoint_rehearsal_apart", default=None)
current = rehearsal.get
on_scratch: ContextVar[bool] = ContextVar("adjoint_scratch", default=False)  # zeros, not the user's

KNOWN_BYTES = 16 << 20


def keeps_value(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """True for what stays real in a rehearsal, because code and kernels branch on it: integers and
    bools of moderate size (indices, labels, lengths, masks, counts)."""
    return dtype.kind in "iub" and math.prod(shape) * dtype.itemsize <= KNOWN_BYTES


def call(fn: Callable[..., Any], *args: Any, otherwise: Callable[[], Any], **kwargs: Any) -> Any:
    """`fn(*args, **kwargs)`, of which some arrays are storage-less; `fn` is one object for all
    calls (no lambda), because what it does to memory is remembered by it."""
    running = rehearsal.get()
    return otherwise() if running is None else running.call(fn, args, kwargs, otherwise)


def build(fn: Callable[..., Any], *args: Any) -> Any:
    """`fn(*args)`, whose memory the package keeps for all later calls: not the user's step's."""
    running = rehearsal.get() or _waiting.get()
    return fn(*args) if running is None else running.build(fn, args)


@contextmanager
def apart() -> Iterator[None]:
    """While functions run on shapes alone: a rehearsal around it does not count what they make, nor
    what the package builds for them."""
    books, running = account.set(None), rehearsal.get()
    token, held = rehearsal.set(None), _waiting.set(running or _waiting.get())
    try:
        yield
    finally:
        _waiting.reset(held)
        rehearsal.reset(token)
        account.reset(books)


def beginning(ct: Any, of: Any) -> Any:
    """A cotangent that begins a backward at `of`: one without storage in a graph without, where
    `ct` is data. Its memory is real, and counted as that."""
    if type(of) is not MetaArray or type(ct) is not np.ndarray:
        return ct
    books = account.set(None)
    memory = MetaArray(ct.shape, ct.dtype)
    account.reset(books)
    return MetaArray(ct.shape, ct.dtype, memory, ct.strides)


def copied(array: Any) -> Any:
    """A copy in memory of its own, with its axes in the same order."""
    if type(array) is not MetaArray:
        return array.copy("K") if isinstance(array, np.ndarray) else array
    return call(_copy, array, otherwise=lambda: MetaArray(array.shape, array.dtype, None, (
        array.steps if array.base is None else None)))


def _copy(array: Any) -> Any:
    return array.copy("K")


def assume(what: str) -> None:
    """In a rehearsal: real arrays go another way here, which `what` names; it is not exact."""
    running = rehearsal.get()
    if running is not None:
        running.assume(what)


def tell(tensor: Any, make: Callable[[], Any]) -> None:
    """In a rehearsal: `make()` gives the numbers of `tensor`, for code of the package that branches
    on them (`answer`), as long as nothing is written to it."""
    running = rehearsal.get()
    if running is not None:
        running.tell(tensor, make)


def answer(ask: Callable[[Any], bool], tensor: Any) -> bool | None:
    """In a rehearsal: `ask` of the numbers of a storage-less tensor that was there before and to
    which nothing was written, or of which they were told; None where they are not known."""
    found: bool | None = rehearsal.get().answer(ask, tensor)
    return found
