"""The value of an array at one moment, small enough to be taken after every operation."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

FULL = 64           # elements up to which a value is kept whole
EXACT = 1 << 14     # elements up to which the statistics read all of them
PLAIN = "fiub"      # kinds of dtypes whose statistics need no copy
SAMPLE = 1024       # about how many they read of more
_names: dict[Any, str] = {}


def dtype_name(dtype: Any) -> str:
    """Its name as NumPy prints it, which NumPy makes anew in every call.

    >>> dtype_name(np.dtype("f4"))
    'float32'
    """
    name = _names.get(dtype)
    if name is None:
        name = _names[dtype] = str(dtype)
    return name


class Snapshot:
    """A copy of a small array; of a larger one what a sample of it says.

    The copy is kept as bytes and the statistics are read without temporaries: memory of arrays is
    what a budget limits and a ledger counts, and looking must not show there.

    >>> Snapshot(np.arange(3.0)).plain()
    [0.0, 1.0, 2.0]
    >>> Snapshot(np.ones((1000, 1000))).stats["mean"]
    1.0
    """

    __slots__ = ("shape", "size", "raw", "_type", "sampled", "_stats")

    def __init__(self, array: Any, full: int = FULL) -> None:
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.size = int(array.size)
        self.raw: bytes | None = None
        self.sampled = False
        self._type: Any = array.dtype
        self._stats: dict[str, Any] | None = None
        if not isinstance(array, (np.ndarray, np.generic)):      # without storage: no values
            return
        if self.size <= full:
            self.raw = array.tobytes()
        elif self.size <= EXACT and array.dtype.kind in PLAIN:
            self._stats = statistics(array)
        else:
            self.sampled = True
            self._stats = statistics(thin(array))

    @property
    def dtype(self) -> str:
        """The name of its dtype."""
        return dtype_name(self._type)

    @property
    def array(self) -> Any:
        """The value of a small array, read-only; None for what was not kept whole."""
        if self.raw is None:
            return None
        return np.frombuffer(self.raw, self._type).reshape(self.shape)

    @property
    def stats(self) -> dict[str, Any]:
        """min, max, mean, std of the finite elements and how many are not finite; {} without
        storage. Of a sample where `sampled` is true."""
        if self._stats is None:
            self._stats = {} if self.raw is None else statistics(self.array)
        return self._stats

    def plain(self) -> Any:
        """Nested lists of a value that was kept whole; None otherwise."""
        return None if self.raw is None else _plain(self.array)

    def brief(self, most: int = 8) -> str:
        """The value in a few words."""
        if self.raw is not None and self.size <= most:
            return _text(self.array)
        if not self.stats:
            return f"{list(self.shape)} without storage"
        s, about = self.stats, "about " if self.sampled else ""
        text = f"{list(self.shape)} mean {about}{number(s['mean'])}, {number(s['min'])} to " \
               f"{number(s['max'])}"
        return text + (f", {s['bad']} not finite" if s["bad"] else "")


def thin(array: Any) -> Any:
    """About SAMPLE elements spread over the array, without reading the others."""
    room = SAMPLE
    index = []
    for n in reversed(array.shape):        # keep the last axes dense: fewer cache lines
        take = min(n, max(1, min(room, 32)))
        index.append(slice(None, None, -(-n // take)))
        room = max(1, room // take)
    return array[tuple(reversed(index))]


def statistics(array: Any) -> dict[str, Any]:
    """min, max, mean, std, and how many elements are not finite ("bad")."""
    if array.dtype.kind == "c":
        array = np.abs(array)
    elif array.dtype.kind not in PLAIN:
        array = array.astype(np.float64)      # element types of other packages
    if not array.size:
        return {"min": 0.0, "max": 0.0, "mean": 0.0, "std": 0.0, "bad": 0}
    bad = 0
    total = float(np.add.reduce(array, axis=None, dtype=np.float64))
    if not math.isfinite(total):
        good = np.isfinite(array)
        bad = int(array.size - np.count_nonzero(good))
        array = array[good]
        if not array.size:
            nan = math.nan
            return {"min": nan, "max": nan, "mean": nan, "std": nan, "bad": bad}
        total = float(np.add.reduce(array, axis=None, dtype=np.float64))
    mean, axes = total / array.size, list(range(array.ndim))
    # (not BLAS: its threads wait for each other longer than the sum takes)
    squares = float(np.einsum(array, axes, array, axes, [], dtype=np.float64))
    return {"min": float(np.minimum.reduce(array, axis=None)),
            "max": float(np.maximum.reduce(array, axis=None)),
            "mean": mean, "std": math.sqrt(max(squares / array.size - mean * mean, 0.0)),
            "bad": bad}


def number(x: Any) -> str:
    """A number as it is shown: at most five digits."""
    if isinstance(x, (bool, int)):
        return str(x)
    return f"{x:.5g}"


def _plain(value: Any) -> Any:
    """Nested lists of JSON's numbers: five digits; what JSON lacks is a text."""
    items = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
    if isinstance(items, list):
        return [_plain(v) for v in items]
    if isinstance(items, (bool, int, str)):
        return items
    if isinstance(items, complex):
        return f"{items:.4g}"
    x = float(items)
    return float(f"{x:.5g}") if math.isfinite(x) else str(x)


def _text(array: Any) -> str:
    def walk(v: Any) -> str:
        return f"[{', '.join(walk(w) for w in v)}]" if isinstance(v, list) else (
            number(v) if isinstance(v, (bool, int, float)) else str(v))
    return walk(_plain(array))


__all__ = ["Snapshot", "dtype_name", "number", "statistics"]
