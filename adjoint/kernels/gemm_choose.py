"""Which implementation multiplies fastest, by class of shapes: measured once, kept on disk.

A class is the types, the layouts and the sizes rounded to a power of two. Where the answer is known
(all but small products: the generated kernel) nothing is measured. The verdicts lie in one small
JSON file beside the cached kernels, named by the CPU and the versions; a damaged file counts as
empty.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import llvm
from .cache import default_directory

CERTAIN = 400_000  # multiply-adds from which the generated kernel is taken unmeasured
MARGIN = 1.15  # NumPy has to be this much faster to be taken: its threads disturb ours afterwards

_lock = threading.Lock()
_verdicts: dict[str, bool] | None = None


def _path() -> Path | None:
    store = llvm.store()
    if not store.usable():
        return None
    tag = hashlib.sha256(llvm.fingerprint().encode()).hexdigest()[:16]
    return default_directory() / f"gemm-{tag}.json"


def _load() -> dict[str, bool]:
    path = _path()
    try:
        if path is None or path.is_symlink() or path.stat().st_size > 1 << 20:
            return {}
        found = json.loads(path.read_text())
        return {str(k): v for k, v in found.items() if isinstance(v, bool)}
    except (OSError, ValueError, AttributeError):
        return {}


def _save(verdicts: dict[str, bool]) -> None:
    path = _path()
    if path is None:
        return
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
        with os.fdopen(descriptor, "w") as file:
            json.dump(verdicts, file)
        os.replace(temporary, path)
    except OSError:
        return


def _best_time(f: Callable[..., Any], args: tuple[Any, ...], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        f(*args, None)
        best = min(best, time.perf_counter() - start)
    return best


def generated_is_faster(
    shape_class: str,
    generated: Callable[..., Any],
    reference: Callable[..., Any],
    operands: tuple[Any, ...],
    work: int,
) -> bool:
    """Whether to use the generated kernel for a class of shapes; measures on `operands` if unknown.
    """
    global _verdicts
    if work >= CERTAIN or not shape_class:
        return True
    with _lock:
        if _verdicts is None:
            _verdicts = _load()
        verdict = _verdicts.get(shape_class)
        if verdict is None:
            rounds = max(3, min(20, int(2e7 / (work + 1e5))))
            ours = _best_time(generated, operands, rounds)
            theirs = _best_time(reference, operands, rounds)
            verdict = _verdicts[shape_class] = ours <= theirs * MARGIN
            _save(_verdicts)
    return verdict
