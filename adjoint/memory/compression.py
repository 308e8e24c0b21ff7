"""Residuals stored smaller: in fewer bits with a known error, or without loss.

int8 and int4 scale groups of numbers by their largest magnitude (Chen et al., "ActNN", 2021, and
Dettmers et al., "8-bit optimizers via block-wise quantization", arXiv 2110.02861, use the same
blocks). Gradients then differ: the report says what was lost where.
"""
from __future__ import annotations

import math
import zlib
from typing import Any, NamedTuple

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import is_float
from adjoint.base.errors import ArgumentError
from adjoint.base.provenance import locate
from adjoint.core.rehearsal import assume
from adjoint.memory.offload import _Elsewhere, _Made, _slot, elsewhere

GROUP = 64            # numbers that share a scale in int8 and int4
Code = tuple[Any, ...]
_LOSSY = ("bf16", "fp16", "int8", "int4")


class Loss(NamedTuple):
    """What compression did to the residuals of one kind of node.

    residuals: how many; before, after: bytes (of each of them; an array that several show is
    stored once); worst: largest absolute error; relative: root mean
    square of the error over that of the values.
    """

    residuals: int
    before: int
    after: int
    worst: float
    relative: float


class _Stored:
    """A code, which several residuals may share."""

    __slots__ = ("code", "__weakref__")

    def __init__(self, code: Code) -> None:
        self.code = code


class _Sums:
    """Running sums behind one `Loss`."""

    def __init__(self) -> None:
        self.count = self.before = self.after = 0
        self.worst = self.error = self.power = 0.0

    def add(self, worst: float, error: float, power: float) -> None:
        """One more residual."""
        self.worst = self.worst if worst <= self.worst else worst         # (nan: not known)
        self.error += error
        self.power += power

    def loss(self) -> Loss:
        """The figures so far."""
        relative = (self.error / self.power) ** 0.5 if self.power else 0.0
        return Loss(self.count, self.before, self.after, self.worst, relative)


class compressed(_Elsewhere):
    """Store residuals compressed between forward and backward.

    dtype      "bf16" and "fp16" (half of float32), "int8" and "int4" (about a quarter and an
               eighth; groups of 64 numbers share a scale), "zlib" (no loss; only data that
               repeats gets small, such as masks and sparse activations)
    min_bytes  smaller residuals stay as they are
    measure    compute the error of every residual for `report()`; costs one pass

    Integers and booleans are packed without loss whatever the dtype; complex numbers stay.

    >>> import adjoint as ad
    >>> x = ad.linspace(0, 1, 4096, requires_grad=True)
    >>> with ad.memory.compressed("int8") as held:
    ...     y = x.exp().sum()
    >>> y.backward()
    >>> bool((x.grad - x.exp()).abs().max() < 0.02), held.report()["ExpBackward0"].after
    (True, 4352)
    """

    def __init__(self, dtype: str = "bf16", min_bytes: int = 1024, measure: bool = True) -> None:
        super().__init__(min_bytes)
        if dtype not in ("bf16", "fp16", "int8", "int4", "zlib"):
            raise ArgumentError(f"compressed: dtype={dtype!r}; it is 'bf16', 'fp16', 'int8', "
                                "'int4' or 'zlib'")
        self.dtype, self.measure = dtype, measure
        self._sums: dict[str, _Sums] = {}
        self._stored = _Made()

    def __enter__(self) -> compressed:  # type: ignore[override]  # the hooks' own returns nothing
        super().__enter__()
        return self

    def pack(self, saved: Any, node: Any) -> Any:
        array = getattr(saved, "array", None)
        if self.dtype != "zlib" and array is not None and array.dtype.kind == "c":
            return saved
        return super().pack(saved, node)

    def put(self, array: Any, owner: Any, cell: Any, version: int, node: Any) -> Any:
        slot = _slot(array, owner, cell, version)
        what = version, slot.offset, array.shape, array.strides, array.dtype
        stored = self._stored.find(owner, what)
        sums = self._sums.setdefault(node.name(), _Sums())
        sums.count += 1
        if stored is None:
            code = encode(array, self.dtype)
            if code[0] == "zlib" and type(array) is MetaArray:
                assume(f"zlib at {locate(node.code, node.lasti)}: no more than without it")
            stored = _Stored(code)
            self._stored.keep(owner, what, stored)
        sums.before += array.nbytes
        sums.after += sum(p.nbytes for p in stored.code[1:])
        if self.measure and stored.code[0] in _LOSSY:
            unknown = (math.nan,) * 3
            found = elsewhere(_difference, array, stored.code, otherwise=lambda: unknown)
            sums.add(*(unknown if type(array) is MetaArray else found))
        return slot, stored, array.shape, array.dtype

    def get(self, value: Any) -> Any:
        _, stored, shape, dtype = value
        return decode(stored.code, shape, dtype)

    def report(self) -> dict[str, Loss]:
        """What was lost, by the name of the node that saved."""
        return {name: sums.loss() for name, sums in self._sums.items()}


def encode(array: Any, dtype: str) -> Code:
    """(kind, arrays ...): an array compressed."""
    if array.dtype.kind == "b":
        kind = "bits"
    else:
        kind = dtype if is_float(array.dtype) else "zlib"
    if kind == "zlib" and type(array) is MetaArray:
        return kind, *_meta_parts(array, kind)
    return kind, *elsewhere(_parts, array, kind, otherwise=lambda: _meta_parts(array, kind))


def _parts(array: Any, kind: str) -> tuple[Any, ...]:
    """The arrays that a code of that kind consists of."""
    if kind == "bits":
        return (np.packbits(array),)
    if kind == "zlib":
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return (np.frombuffer(zlib.compress(flat.data, 1), np.uint8).copy(),)
    if kind == "fp16":
        return (array.astype(np.float16),)
    if kind == "bf16":
        return (_to_bf16(array),)
    top = 127 if kind == "int8" else 7
    flat = np.zeros(-(-array.size // GROUP) * GROUP, np.float32)
    flat[:array.size] = array.reshape(-1)
    groups = flat.reshape(-1, GROUP)
    scale = np.abs(groups).max(1, keepdims=True) / top
    numbers = np.rint(groups / np.where(scale > 0, scale, 1)).astype(np.int8)
    if kind == "int8":
        return numbers, scale
    low, high = numbers[:, ::2] + 8, numbers[:, 1::2] + 8
    return (low | high << 4).astype(np.uint8), scale


def _meta_parts(array: Any, kind: str) -> tuple[Any, ...]:
    """The same of an array that is too large to be tried, or whose bytes hang on its values."""
    n = array.size
    if kind in ("fp16", "bf16"):
        return (MetaArray(array.shape, np.uint16),)
    if kind in ("bits", "zlib"):
        copy = [] if array.contiguous else [MetaArray(array.shape, array.dtype)]
        most = (n + 7) // 8 if kind == "bits" else array.nbytes
        made = MetaArray((most,), np.uint8)              # beside the copy, as in a real run
        copy.clear()
        return (made,)
    groups = -(-n // GROUP)
    wide = MetaArray((groups, GROUP if kind == "int8" else GROUP // 2), np.uint8)
    return wide, MetaArray((groups, 1), np.float32)


def decode(code: Code, shape: tuple[int, ...], dtype: Any) -> Any:
    """The array of a code, in the given shape and dtype."""
    if code[0] == "zlib" and type(code[1]) is MetaArray:
        return MetaArray(shape, dtype)
    return elsewhere(_decoded, code[1], code, shape, dtype,
                     otherwise=lambda: MetaArray(shape, dtype))


def _decoded(first: Any, code: Code, shape: tuple[int, ...], dtype: Any) -> Any:
    kind = code[0]
    size = math.prod(shape)
    if kind == "bits":
        return np.unpackbits(first, count=size).view(bool).reshape(shape)
    if kind == "zlib":
        return np.frombuffer(zlib.decompress(first), dtype).reshape(shape).copy()
    if kind == "fp16":
        return first.astype(dtype)
    if kind == "bf16":
        return (first.astype(np.uint32) << 16).view(np.float32).astype(dtype)
    if kind == "int4":
        both = np.empty((len(first), GROUP), np.int8)
        both[:, ::2], both[:, 1::2] = (first & 15).astype(np.int8) - 8, (first >> 4).astype(
            np.int8) - 8
        first = both
    return (first * code[2]).reshape(-1)[:size].reshape(shape).astype(dtype)


def _difference(array: Any, code: Code) -> tuple[float, float, float]:
    """(largest error, sum of squared errors, sum of squares) of a code."""
    error = _decoded(code[1], code, array.shape, array.dtype).astype(np.float64) - array
    return (float(np.abs(error).max(initial=0.0)), float(np.vdot(error, error)),
            float(np.vdot(array, array)))


def _to_bf16(array: Any) -> Any:
    """The upper halves of float32 numbers, rounded to nearest even."""
    single = np.ascontiguousarray(array, np.float32)
    bits = single.view(np.uint32)
    upper = ((bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16).astype(np.uint16)
    upper[np.isnan(single)] = 0x7FC0
    return upper.reshape(array.shape)
