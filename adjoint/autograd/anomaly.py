"""Anomaly detection: NaN (and, if asked, inf) found where it first arises, with the forward line.

Provenance is always recorded; what is switched on here is only the test of values.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.errors import AutogradError
from adjoint.core.modes import Observer, watchers
from adjoint.core.tensor import Tensor


class _Check(Observer):
    def __init__(self, check_nan: bool, check_inf: bool, check_forward: bool) -> None:
        self.check_nan, self.check_inf = check_nan, check_inf
        self.check_forward = check_forward

    def bad(self, array: Any) -> str:
        """"nan", "inf" or ""."""
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fc":
            return ""
        total = np.add.reduce(array, axis=None)    # one pass; not finite if any element is not
        if np.isfinite(total):
            return ""
        if self.check_nan and np.isnan(array).any():
            return "nan"
        return "inf" if self.check_inf and np.isinf(array).any() else ""

    def forward(self, node: Any, args: Any, made: Any) -> None:
        """After an op was recorded."""
        if not self.check_forward:
            return
        for i, t in enumerate(made):
            kind = self.bad(t.array)
            if kind:
                raise AutogradError(_forward_text(node, args, t, i, kind))

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        """After a node's rules have run."""
        if not self.check_nan and not self.check_inf:
            return
        for i, r in enumerate(results):
            array = r.array if isinstance(r, Tensor) else r
            kind = self.bad(array)
            if kind:
                raise AutogradError(_backward_text(node, ct, array, i, kind))


def _first(array: Any, kind: str) -> tuple[int, ...]:
    bad = np.isnan(array) if kind == "nan" else np.isinf(array)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), array.shape))


def _stats(x: Any) -> str:
    array = x.array if isinstance(x, Tensor) else x
    if not isinstance(array, np.ndarray) or not array.size:
        return repr(x) if not isinstance(x, Tensor) else f"{list(x.shape)}"
    finite = array[np.isfinite(array)] if array.dtype.kind in "fc" else array
    low, high = (finite.min(), finite.max()) if finite.size else (np.nan, np.nan)
    wrong = array.size - finite.size
    return f"{list(array.shape)} {array.dtype} min {low:.4g} max {high:.4g} non-finite {wrong}"


def _forward_text(node: Any, args: Any, t: Any, i: int, kind: str) -> str:
    return (f"forward of {node.name()} returned {kind} values in its {i}th output, first at index "
            f"{_first(t.array, kind)}.\n  at {node.where()}: "
            f"{provenance.source_line(node.code, node.lasti)}\n  operands: "
            + "; ".join(_stats(a) for a in args))


def _backward_text(node: Any, ct: Any, array: Any, i: int, kind: str) -> str:
    cts = ct if isinstance(ct, (list, tuple)) else [ct]
    return (f"Function '{node.name()}' returned {kind} values in its {i}th output.\n"
            f"  forward at {node.where()}: {provenance.source_line(node.code, node.lasti)}\n"
            f"  first bad index {_first(array, kind)} of {list(array.shape)}\n"
            f"  incoming gradient: {'; '.join(_stats(c) for c in cts if c is not None)}")


class detect_anomaly:
    """Raise at the first node whose backward gives NaN, naming the forward line.

    check_inf      also for infinities
    check_forward  also when an op gives NaN (or inf) in forward
    """

    def __init__(self, check_nan: bool = True, check_inf: bool = False,
                 check_forward: bool = False) -> None:
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
    """True while backward is tested for NaN."""
    return any(isinstance(o, _Check) and o.check_nan for o in watchers.observers.get())
