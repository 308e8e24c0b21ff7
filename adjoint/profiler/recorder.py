"""The observer that times ops, backward nodes, module calls and spans as they nest."""
from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import aval_of
from adjoint.core.modes import Observer, watchers
from adjoint.core.tensor import Kept, OutRef, Tensor
from adjoint.kernels import alloc, expr
from adjoint.ops.aten import name_of
from adjoint.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from adjoint.profiler.events import FunctionEvent

F = TypeVar("F", bound=Callable[..., Any])
_now = time.perf_counter_ns
_PRODUCTS = frozenset({"linear", "matmul", "mm", "mm_left", "mm_right", "bmm", "mv", "vm", "dot",
                       "addmm", "baddbmm", "convolution", "mul"})


class Recorder(Observer):
    """Events of one thread, in the order in which they begin."""

    cotangents = True

    def __init__(self, shapes: bool, memory: bool, stack: bool, modules: bool) -> None:
        self.shapes, self.memory, self.stack, self.modules = shapes, memory, stack, modules
        self.events: list[FunctionEvent] = []
        self.timeline: list[tuple[float, int]] = []      # (microseconds, live bytes)
        self.open: list[tuple[Any, FunctionEvent, int]] = []
        self.made: dict[int, tuple[int, int, str]] = {}  # sequence -> flops, bytes, module
        self.zero = _now()
        self._held: Any = None

    # -- entering and leaving ------------------------------------------------------------------
    def start(self) -> None:
        """Watch from now on."""
        self._ours = self.memory and not alloc.installed() and alloc.install()
        hooks = (register_optimizer_step_pre_hook(self._before_step),
                 register_optimizer_step_post_hook(self._after_step))
        self._held = watchers.push(watchers.observers, self), hooks

    def stop(self) -> None:
        """Watch no longer."""
        held, hooks = self._held
        self._held = None
        watchers.pop(held)
        for hook in hooks:
            hook.remove()
        while self.open:
            self.end(self.open[-1][0])
        if self._ours:
            alloc.uninstall()

    # -- spans ---------------------------------------------------------------------------------
    def begin(self, key: Any, name: str, kind: str, place: Any = (None, 0)) -> FunctionEvent:
        """Something begins; `end(key)` ends it."""
        event = FunctionEvent(name, kind, 0.0, module=watchers.module_path(), place=place,
                      depth=len(self.open), id=len(self.events) + 1)
        if self.open:
            event.cpu_parent = self.open[-1][1]
            event.cpu_parent.cpu_children.append(event)
        live = alloc.stats().live if self.memory else 0
        self.events.append(event)
        self.open.append((key, event, live))
        event.start = (_now() - self.zero) * 1e-3
        return event

    def end(self, key: Any) -> FunctionEvent | None:
        """End what began with `key`, and what an exception left open inside of it."""
        now = (_now() - self.zero) * 1e-3
        if not any(k is key for k, _, _ in self.open):
            return None
        while True:
            k, event, live = self.open.pop()
            event.duration = now - event.start
            if self.memory:
                present = alloc.stats().live
                event.memory = present - live
                self.timeline.append((now, present))
            if self.open:
                parent = self.open[-1][1]
                parent.inside += event.duration
                parent.inside_memory += event.memory
            if k is key:
                return event

    # -- ops -----------------------------------------------------------------------------------
    def before(self, op: Any, args: Any, attrs: Any) -> None:
        frame = provenance.user_frame(sys._getframe(1)) if self.stack else None
        self.begin(op, _aten(op), "op",
                   (frame.f_code, frame.f_lasti) if frame else (None, 0))

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        event = self.end(op)
        if event is None:
            return
        event.nbytes = 0 if op.view else _nbytes(args) + _nbytes(made)
        event.flops = _flops(op, args, attrs)
        if self.shapes:
            event.shapes = tuple(tuple(a.shape) if isinstance(a, Tensor) else () for a in args)
        if node is not None:
            event.sequence_nr = node.seq
            self.made[node.seq] = event.flops, event.nbytes, event.module

    def before_backward(self, node: Any, ct: Any) -> None:
        event = self.begin(node, node.name(), "backward", (node.code, node.lasti))
        event.sequence_nr = node.seq
        event.nbytes = sum(_nbytes(s) if type(s) is tuple else _nbytes((s,))
                           for s in (node.saved if type(node.saved) is tuple else ()))

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        event = self.end(node)
        if event is None:
            return
        flops, _, event.module = self.made.pop(node.seq, (0, 0, event.module))
        event.nbytes += _nbytes(ct if isinstance(ct, (list, tuple)) else (ct,)) + _nbytes(results)
        event.flops = _backward_flops(node, flops, results)

    # -- what contains ops ---------------------------------------------------------------------
    def enter_module(self, path: str, module: Any) -> None:
        if self.modules:
            self.begin(module, f"nn.Module: {type(module).__name__}", "module").module = path

    def leave_module(self, path: str, module: Any) -> None:
        if self.modules:
            self.end(module)

    def begin_walk(self, walk: Any) -> None:
        self.begin(walk, "backward", "span", (walk.mark.code, walk.mark.lasti))

    def end_walk(self, walk: Any) -> None:
        self.end(walk)

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self in watchers.observers.get():
            self.begin(optimizer, f"Optimizer.step#{type(optimizer).__name__}.step", "optimizer")

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self in watchers.observers.get():
            self.end(optimizer)


def _aten(op: Any) -> str:
    """PyTorch's name of a record, without its overload."""
    return op.name if "::" in op.name else f"aten::{name_of(op).partition('.')[0]}"


def _nbytes(values: Any) -> int:
    total = 0
    for v in values:
        array = v.array if isinstance(v, (Tensor, OutRef, Kept)) else v
        total += array.nbytes if isinstance(array, np.ndarray) else 0
    return total


def _flops(op: Any, args: Any, attrs: Any) -> int:
    """The record's own count; 0 where an operand has no shape of its own."""
    arrays = [a.array if isinstance(a, Tensor) else a for a in args]
    if op.variadic or any(a is not None and not hasattr(a, "dtype")
                          and not isinstance(a, (int, float, complex)) for a in arrays):
        return 0
    return int(op.cost(*(None if a is None else aval_of(np.asarray(a)) if not hasattr(a, "dtype")
                         else aval_of(a) for a in arrays), **attrs))


def _backward_flops(node: Any, forward: int, results: Any) -> int:
    """Products: a product for each operand that is wanted. Pointwise: the slopes' own count.
    Otherwise twice the forward, the usual ratio of reverse mode (Griewank and Walther 2008)."""
    if node.plan is None:
        return 0
    op, size = node.plan.op, node.shape
    if op.name in _PRODUCTS:
        return forward * sum(r is not None and getattr(r, "ndim", 0) >= min(2, len(size))
                             for r in results)
    slopes = op.rules[2] if hasattr(op, "rules") else None
    if slopes is not None and isinstance(size, tuple):
        each = sum(expr.flops(slopes[o]) + 1 for i, o in enumerate(op.operands)
                   if i in node.plan.wanted and o in slopes)
        return each * int(np.prod(size))
    return 2 * forward


class record_function:
    """Name a stretch of the program in the profile; context manager and decorator.

    Costs next to nothing where no profile runs.

    >>> import adjoint as ad
    >>> with ad.profiler.profile() as prof:
    ...     with ad.profiler.record_function("my part"):
    ...         y = ad.ones(3) * 2
    >>> [e.name for e in prof.events()]
    ['my part', 'aten::mul']
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name if args is None else f"{name}({args})"
        # The steps of a schedule are one row of a table, each with its number in the trace.
        # (The trace has the arguments too.)
        self.shown = "ProfilerStep*" if name.startswith("ProfilerStep#") else name
        self._open: list[tuple[Recorder, ...]] = []

    def __enter__(self) -> record_function:
        active = tuple(o for o in watchers.observers.get() if isinstance(o, Recorder))
        frame = provenance.user_frame(sys._getframe(1)) if active else None
        for recorder in active:
            event = recorder.begin(self, self.shown, "span",
                                   (frame.f_code, frame.f_lasti) if frame else (None, 0))
            event.trace_name = self.name
        self._open.append(active)
        return self

    def __exit__(self, *exc: object) -> None:
        for recorder in self._open.pop():
            recorder.end(self)

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)
        return wrapped  # type: ignore[return-value]  # same signature
