"""Anomaly detection: NaN (and, if asked, inf) found where it first arises, with the forward line.

Provenance is always recorded; what is switched on here is only the test of values: one pass over
each result at the speed of memory, so that it can stay on.
"""
from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.errors import AutogradError
from adjoint.core.modes import Observer, as_pytorch, warn, watchers
from adjoint.core.tensor import Kept, OutRef, Tensor


def surely_finite(array: Any) -> bool:
    """True if all elements are finite and their squares small enough; takes no memory."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fc" or not array.size:
        return True
    if array.dtype.itemsize >= 4 and array.flags.c_contiguous:
        flat = array.reshape(-1)
        return bool(np.isfinite(np.dot(flat, flat)))      # the fastest single pass there is
    return bool(np.isfinite(np.maximum.reduce(array, axis=None))
                and np.isfinite(np.minimum.reduce(array, axis=None)))


def not_finite(array: Any) -> str:
    """"nan" where the array has one, else "inf" where it has one, else ""."""
    if surely_finite(array):
        return ""
    if np.isnan(array).any():
        return "nan"
    return "inf" if np.isinf(array).any() else ""


class Anomaly(SimpleNamespace):
    """What an anomaly error is about, in its `about`: for programs that read errors.

    kind      "nan" or "inf"
    phase     "forward" or "backward"
    op        name of the op or of the node
    where     ``file:line in function`` of the forward call
    index     the first bad element
    shape     of the array it is in
    count     how many elements are bad
    operands  statistics of what the op, or the node's rule, was given
    """

    kind: str
    phase: str
    op: str
    where: str
    index: tuple[int, ...]
    shape: tuple[int, ...]
    count: int
    operands: tuple[str, ...]


class _Check(Observer):

    cotangents = True

    def __init__(self, check_nan: bool, check_inf: bool, check_forward: bool) -> None:
        self.check_nan, self.check_inf = check_nan, check_inf
        self.check_forward = check_forward
        self.saved: Any = None
        self.running: list[Any] = []     # per walk, the node whose rules run

    def bad(self, array: Any) -> str:
        """"nan", "inf" or "", of what is looked for."""
        kind = not_finite(array)
        if kind == "nan" and not self.check_nan and self.check_inf:
            kind = "inf" if np.isinf(array).any() else ""
        wanted = self.check_nan if kind == "nan" else self.check_inf
        return kind if wanted else ""

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        """An op has computed."""
        self._note(node)
        if self.check_forward and not op.view:
            self._forward(op.name, node, args, made)

    def forward(self, node: Any, args: Any, made: Any) -> None:
        """A custom function has (ops are seen in `after`)."""
        self._note(node)
        if self.check_forward and node.plan is None:
            self._forward(node.name(), node, args, made)

    def _note(self, node: Any) -> None:
        """For programs written for PyTorch: where a node was made, and by whose backward, in its
        `metadata`; here every node knows its line without that."""
        if as_pytorch[0] and node is not None:
            node.metadata["traceback_"] = [_call(node) + "\n"]
            if self.running and self.running[-1] is not None:
                node.metadata["parent_"] = self.running[-1]

    def _forward(self, name: str, node: Any, args: Any, made: Any) -> None:
        for i, t in enumerate(made):
            kind = self.bad(t.array)
            if kind:
                if node is not None:
                    place, name = (node.code, node.lasti), node.name()
                else:
                    frame = provenance.user_frame(sys._getframe(2))
                    place = (frame.f_code, frame.f_lasti) if frame else (None, 0)
                raise _error("forward", name, place, i, t.array, kind,
                             [_stats(a) for a in args if isinstance(a, (Tensor, np.ndarray))])

    def begin_walk(self, walk: Any) -> None:
        """A backward begins, maybe inside of another."""
        self.running.append(None)

    def end_walk(self, walk: Any) -> None:
        """It has ended; where rules raised, tell which."""
        failed = self.running.pop() if self.running else None
        if failed is not None:
            _tell(failed)

    def before_backward(self, node: Any, ct: Any) -> None:
        """Hold the residuals, which are released before `backward` is told."""
        self.saved = node.saved
        if self.running:
            self.running[-1] = node

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        """After a node's rules have run."""
        saved, self.saved = self.saved, None
        if self.running:
            self.running[-1] = None
        if not self.check_nan and not self.check_inf:
            return
        for i, r in enumerate(results):
            array = r.array if isinstance(r, Tensor) else r
            if array is None or array is ct or getattr(array, "base", None) is ct:
                continue                               # the cotangent itself, looked at already
            kind = self.bad(array)
            if kind:
                _tell(node)
                cts = ct if isinstance(ct, (list, tuple)) else [ct]
                given = [f"incoming gradient: {_stats(c)}" for c in cts if c is not None]
                raise _error("backward", node.name(), (node.code, node.lasti), i, array, kind,
                             given + _residuals(node, saved))


def _tell(node: Any) -> None:
    """Warn which call made the node that fails, as PyTorch does."""
    warn(f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n"
         + _call(node))


def _call(node: Any) -> str:
    """The user's call that made a node, as a traceback has it."""
    line = provenance.source_line(node.code, node.lasti)
    return f"  File \"{node.code.co_filename}\", line " \
           f"{provenance.line_of(node.code, node.lasti)}, in {node.code.co_name}\n    {line}" \
        if node.code else "  unknown place"


def _residuals(node: Any, saved: Any) -> list[str]:
    names = node.plan.names if node.plan is not None else ()
    held = saved if type(saved) is tuple else ()
    return [f"kept {name}: {_stats(s)}" for name, s in zip(names, held, strict=False)
            if isinstance(s, (Tensor, OutRef, Kept))]


def _stats(x: Any) -> str:
    array = x.array if isinstance(x, (Tensor, OutRef, Kept)) else x
    if not isinstance(array, np.ndarray) or not array.size:
        return f"{list(x.shape)}" if hasattr(x, "shape") else repr(x)
    if array.dtype.kind == "c":
        array = np.abs(array)
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    low, high = (finite.min(), finite.max()) if finite.size else (np.nan, np.nan)
    wrong = array.size - finite.size
    zeros = int(finite.size - np.count_nonzero(finite))
    return (f"{list(array.shape)} {array.dtype} min {low:.4g} max {high:.4g}, {zeros} zero, "
            f"{wrong} not finite")


def _error(phase: str, name: str, place: tuple[Any, int], i: int, array: Any, kind: str,
           given: list[str]) -> AutogradError:
    bad = np.isnan(array) if kind == "nan" else np.isinf(array)
    index = tuple(int(j) for j in np.unravel_index(int(bad.argmax()), array.shape))
    count = int(np.count_nonzero(bad))
    who = f"Function '{name}'" if phase == "backward" else f"forward of {name}"
    where = provenance.locate(*place)
    line = provenance.source_line(*place)
    told = "\n".join(f"  {g}" if phase == "backward" else f"  operand: {g}" for g in given)
    text = (f"{who} returned {kind} values in its {i}th output.\n"
            f"  forward at {where}: {line}\n"
            f"  first bad index {index} of {list(array.shape)}, {count} of {array.size} bad"
            + ("\n" + told if told else ""))
    return AutogradError(text, reason=kind, about=Anomaly(
        kind=kind, phase=phase, op=name, where=where, index=index, shape=tuple(array.shape),
        count=count, operands=tuple(given)))


class detect_anomaly:
    """Raise at the first node whose backward gives NaN, naming the forward line.

    check_nan      for NaN
    check_inf      for infinities too; a mask of -inf counts in forward as well
    check_forward  also when an op gives one in forward, recorded or not

    The AutogradError tells the forward line, the first bad index, and the range, zeros and
    non-finite values of everything the rule read; `error.about` is an `Anomaly`. A warning before
    it tells the forward call, as in PyTorch (the example keeps it silent).

    >>> import warnings
    >>> import adjoint as ad
    >>> x = ad.tensor([4.0, 0.0], requires_grad=True)
    >>> with warnings.catch_warnings(action="ignore"), ad.autograd.set_detect_anomaly(True):
    ...     (x.sqrt() * ad.tensor([1.0, 0.0])).sum().backward()
    Traceback (most recent call last):
    adjoint.base.errors.AutogradError: Function 'SqrtBackward0' returned nan values in its 0th ...
    """

    def __init__(self, check_nan: bool = True, check_inf: bool = False,
                 check_forward: bool = False) -> None:
        if type(self) is detect_anomaly and not (check_inf or check_forward):
            warn("Anomaly Detection has been enabled. This mode will increase the runtime and "
                 "should only be enabled for debugging: it looks for NaN in every gradient, which "
                 "takes up to a tenth of a step's time.")
        self.check = _Check(check_nan, check_inf, check_forward)
        self._held: list[Any] = []

    def __enter__(self) -> None:
        self._held.append(watchers.push(watchers.observers, self.check))

    def __exit__(self, *exc: object) -> None:
        watchers.pop(self._held.pop())


class set_detect_anomaly(detect_anomaly):
    """Switch anomaly detection on or off at once; as a context manager, back at its end."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(check_nan)
        self.mode = mode
        global _global
        while not mode and _global:
            watchers.pop(_global.pop())
        if mode:
            _global.append(watchers.push(watchers.observers, self.check))

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        if self.mode and _global:
            watchers.pop(_global.pop())


_global: list[Any] = []


def is_anomaly_enabled() -> bool:
    """True while anomaly detection is on in this thread."""
    return any(isinstance(o, _Check) for o in watchers.observers.get())


def is_anomaly_check_nan_enabled() -> bool:
    """True unless anomaly detection is on and leaves out NaN (`check_nan=False`)."""
    checks = [o for o in watchers.observers.get() if isinstance(o, _Check)]
    return not checks or any(o.check_nan for o in checks)
