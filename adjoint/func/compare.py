"""The ways to a derivative, side by side: finite differences, forward mode, reverse mode."""
from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor, wrap
from adjoint.func.push import jvp
from adjoint.func.reverse import as_tensor, vjp


@dataclass(frozen=True)
class Method:
    """One way to the Jacobian, measured.

    evaluations  runs of the function, plain or with a tangent or a tape
    pulls        backward passes
    error        largest |entry - reference| over max(1, largest |reference|)
    seconds      wall time of one run
    peak_bytes   peak of the memory allocated while it ran
    """

    name: str
    evaluations: int
    pulls: int
    error: float
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Comparison:
    """What `compare_methods` found; prints as a table."""

    inputs: int
    outputs: int
    methods: tuple[Method, ...]

    def __getitem__(self, name: str) -> Method:
        found = [m for m in self.methods if m.name == name]
        if not found:
            raise ArgumentError(f"no method named {name!r}; there are "
                                f"{', '.join(m.name for m in self.methods)}")
        return found[0]

    @property
    def advice(self) -> str:
        """Which mode needs fewer passes."""
        mode = "forward" if self.inputs <= self.outputs else "reverse"
        return (f"{self.inputs} inputs, {self.outputs} outputs: forward mode needs {self.inputs} "
                f"passes, reverse mode 1 forward and {self.outputs} backward: use {mode} mode")

    def __str__(self) -> str:
        head = f"{'method':<20}{'evaluations':>12}{'pulls':>7}{'error':>10}{'ms':>9}{'peak kB':>9}"
        rows = [f"{m.name:<20}{m.evaluations:>12}{m.pulls:>7}{m.error:>10.1e}"
                f"{1e3 * m.seconds:>9.2f}{m.peak_bytes / 1e3:>9.1f}" for m in self.methods]
        return "\n".join([head, *rows, self.advice])


class _Counted:
    """The function, counting its runs."""

    def __init__(self, f: Callable[[Any], Any]) -> None:
        self.f, self.runs, self.pulls = f, 0, 0

    def __call__(self, x: Any) -> Any:
        self.runs += 1
        return self.f(x)


def _differences(f: _Counted, x: Tensor, m: int, central: bool) -> np.ndarray[Any, Any]:
    """One column per input element; the steps that balance rounding and truncation error."""
    array = x.array
    eps = float(np.finfo(array.dtype).eps) ** (1 / 3 if central else 1 / 2)
    columns = np.empty((m, array.size), array.dtype)
    base = None if central else f(x).array.reshape(-1)
    for j in range(array.size):
        h = eps * max(1.0, abs(float(array.reshape(-1)[j])))
        ends = []
        for sign in (1, -1) if central else (1,):
            moved = array.copy()
            moved.reshape(-1)[j] += sign * h
            ends.append(f(wrap(moved)).array.reshape(-1))
        columns[:, j] = (ends[0] - ends[1]) / (2 * h) if central else (ends[0] - base) / h
    return columns


def _unit(shape: tuple[int, ...], dtype: Any, k: int) -> Tensor:
    seed = np.zeros(shape, dtype)
    seed.reshape(-1)[k] = 1
    return wrap(seed)


def _forward(f: _Counted, x: Tensor, m: int, _: bool) -> np.ndarray[Any, Any]:
    """One push per input element."""
    columns = [jvp(f, (x,), (_unit(tuple(x.shape), x.array.dtype, j),))[1].array.reshape(-1)
               for j in range(x.array.size)]
    return np.stack(columns, 1) if columns else np.zeros((m, 0), x.array.dtype)


def _reverse(f: _Counted, x: Tensor, m: int, _: bool) -> np.ndarray[Any, Any]:
    """One pull per output element, over one recorded run."""
    y, pull = vjp(f, x)
    rows = []
    for i in range(m):
        f.pulls += 1
        rows.append(pull(_unit(tuple(y.shape), y.array.dtype, i))[0].array.reshape(-1))
    return np.stack(rows) if rows else np.zeros((0, x.array.size), x.array.dtype)


_WAYS: tuple[tuple[str, Callable[..., Any], bool], ...] = (
    ("forward difference", _differences, False), ("central difference", _differences, True),
    ("forward mode", _forward, False), ("reverse mode", _reverse, False))


def compare_methods(f: Callable[[Any], Any], x: Any) -> Comparison:
    """The Jacobian of `f` at `x` by finite differences (one-sided, central), forward mode and
    reverse mode: evaluations, error, time and peak memory of each (F11, F127).

    f  a function of one tensor that returns one tensor
    x  a tensor of real floating dtype; n = x.numel()

    Errors are measured against forward mode in float64. With n inputs and m outputs, differences
    cost n + 1 or 2n evaluations and lose half or a third of the digits; forward mode costs n
    evaluations and reverse mode one evaluation and m pulls, both exact to rounding. Each method
    runs twice: once for the time, once (traced, slower) for the memory.

    >>> import adjoint as ad
    >>> table = ad.func.compare_methods(lambda x: (x ** 3).sum(), ad.ones(10))
    >>> [(m.name, m.evaluations, m.pulls) for m in table.methods]  # doctest: +NORMALIZE_WHITESPACE
    [('forward difference', 11, 0), ('central difference', 20, 0),
     ('forward mode', 10, 0), ('reverse mode', 1, 1)]
    """
    x = as_tensor(x, "compare_methods").detach()
    if x.array.dtype.kind != "f":
        raise ArgumentError(f"compare_methods: x must be of a real floating dtype, got {x.dtype}")
    y = f(x)
    if not isinstance(y, Tensor):
        raise ArgumentError(f"compare_methods: f must return one tensor, got {type(y).__name__}")
    n, m = x.array.size, math.prod(y.shape)
    exact = _forward(_Counted(f), wrap(x.array.astype(np.float64)), m, False)
    scale = max(1.0, float(np.abs(exact).max(initial=0.0)))
    found = []
    for name, way, central in _WAYS:
        counted = _Counted(f)
        start = time.perf_counter()
        jacobian = way(counted, x, m, central)
        seconds = time.perf_counter() - start
        peak = _peak(partial(way, _Counted(f), x, m, central))
        error = float(np.abs(jacobian - exact).max(initial=0.0)) / scale
        found.append(Method(name, counted.runs, counted.pulls, error, seconds, peak))
    return Comparison(n, m, tuple(found))


def _peak(run: Callable[[], Any]) -> int:
    """Peak of the bytes allocated during `run`; a tracer that is on already is left on."""
    outer = tracemalloc.is_tracing()
    if not outer:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        run()
        return max(0, tracemalloc.get_traced_memory()[1] - before)
    finally:
        if not outer:
            tracemalloc.stop()


__all__ = ["Comparison", "Method", "compare_methods"]
