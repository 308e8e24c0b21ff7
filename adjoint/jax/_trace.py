"""Runs that hide values from Python: what `jit`, loops and branches are to a program."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from adjoint.jax._dtypes import config


class Trace:
    """A run of a function that Python code must not look into: of `jit`, of a loop, of a branch.

    The values are there; the arrays made in the run hide them, as JAX's tracers do.
    """

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed = False


class _Running(threading.local):
    """The innermost trace of this thread, how many pull-backs run (they meet arrays of traces that
    are over), how many functions run that a derivative or a shape is taken of, the innermost run
    that records a program, how often refs were written, and what is told of indices: (shape, axis,
    indices from the front, the last one that is in bounds), and of what integers are divided by;
    None: nobody asks."""

    trace: Trace | None = None
    pulls = 0
    tapes = 0
    recording: Any = None
    writes = 0
    indices: Any = None
    divisor: Any = None


RUN = _Running()


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """While the arrays that are made hide their values; nothing with `jax_disable_jit`."""
    before = RUN.trace
    own = None if config.values["jax_disable_jit"] else Trace()
    RUN.trace = own or before
    try:
        yield
    finally:
        RUN.trace = before
        if own is not None:
            own.closed = True


@contextlib.contextmanager
def in_the_open() -> Iterator[None]:
    """While the arrays that are made show their values: callbacks, `ensure_compile_time_eval`."""
    before = RUN.trace
    RUN.trace = None
    try:
        yield
    finally:
        RUN.trace = before


@contextlib.contextmanager
def pulling() -> Iterator[None]:
    """While a pull-back runs: it may compute again what a trace that is over computed."""
    RUN.pulls += 1
    try:
        yield
    finally:
        RUN.pulls -= 1


@contextlib.contextmanager
def taping() -> Iterator[None]:
    """While a function runs of which a derivative or a shape is asked (`trace_state_clean`)."""
    RUN.tapes += 1
    try:
        yield
    finally:
        RUN.tapes -= 1
