"""TensorBoard's event files, written and read without TensorBoard.

A file is a row of TFRecords: length, checksum of the length, bytes, checksum of the bytes. Each
holds one `Event` message of tensorflow/core/util/event.proto, encoded here by hand: the handful
of fields that scalars, histograms, texts and images need.
"""
from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError


def _table() -> list[int]:
    out = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        out.append(i)
    return out


_CRC = _table()


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum (RFC 3720, appendix B.4).

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    table = _CRC
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    """One TFRecord."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


# ------------------------------------------------------------------ protocol buffers, the wire
def _varint(n: int) -> bytes:
    n &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    with np.errstate(over="ignore"):
        return _varint(field << 3 | 5) + np.array(value, "<f4").tobytes()


def _bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def event(wall_time: float, step: int = 0, *, summary: bytes = b"", version: str = "") -> bytes:
    """An Event with a summary value, or with the version that begins a file."""
    head = _double(1, wall_time) + (_int(2, step) if step else b"")
    return head + (_bytes(3, version) if version else _bytes(5, _bytes(1, summary)))


def scalar(tag: str, value: float) -> bytes:
    """A summary value: one number, in single precision."""
    return _bytes(1, tag) + _float(2, value)


def text(tag: str, value: str) -> bytes:
    """A summary value: a Markdown text."""
    plugin = _bytes(1, _bytes(1, "text"))
    shape = _bytes(2, _int(1, 1))
    tensor = _int(1, 7) + _bytes(2, shape) + _bytes(8, value)
    return _bytes(1, tag) + _bytes(8, tensor) + _bytes(9, plugin)


def image(tag: str, height: int, width: int, channels: int, png: bytes) -> bytes:
    """A summary value: an encoded picture."""
    return _bytes(1, tag) + _bytes(4, _int(1, height) + _int(2, width) + _int(3, channels)
                                   + _bytes(4, png))


def histogram(tag: str, values: Any, limits: Sequence[float]) -> bytes:
    """A summary value: counts of `values` between the rising `limits` (upper edges)."""
    flat = np.asarray(values, np.float64).reshape(-1)
    if not flat.size:
        raise ArgumentError(f"histogram {tag!r}: no values")
    if not np.isfinite(flat).all():
        raise ArgumentError(f"histogram {tag!r}: {int((~np.isfinite(flat)).sum())} of {flat.size} "
                            "values are not finite; drop them, or look for where they arise")
    counts = np.bincount(np.searchsorted(limits, flat, side="left"), minlength=len(limits))
    used = np.flatnonzero(counts)
    first, last = max(int(used[0]) - 1, 0), int(used[-1]) + 1
    edges = np.asarray(limits, np.float64)[first:last]
    body = b"".join([_double(1, float(flat.min())), _double(2, float(flat.max())),
                     _double(3, float(flat.size)), _double(4, float(flat.sum())),
                     _double(5, float(flat @ flat)), _bytes(6, edges.astype("<f8").tobytes()),
                     _bytes(7, counts[first:last].astype("<f8").tobytes())])
    return _bytes(1, tag) + _bytes(5, body)


def default_limits() -> list[float]:
    """Edges that grow by a tenth from 1e-12 to 1e20, both signs, as TensorFlow's."""
    positive, v = [], 1e-12
    while v < 1e20:
        positive.append(v)
        v *= 1.1
    top = float(np.finfo(np.float64).max)
    return [-top, *(-p for p in reversed(positive)), 0.0, *positive, top]


# ------------------------------------------------------------------ reading
def read_records(path: str | Path) -> Iterator[bytes]:
    """The records of a file; ArgumentError where a checksum is wrong or the end is cut off."""
    data = Path(path).read_bytes()
    at = 0
    while at < len(data):
        head = data[at:at + 8]
        (length,) = struct.unpack("<Q", head) if len(head) == 8 else (-1,)
        body = data[at + 12:at + 12 + max(length, 0)]
        if (length < 0 or data[at + 8:at + 12] != _masked(head) or len(body) < length
                or data[at + 12 + length:at + 16 + length] != _masked(body)):
            raise ArgumentError(f"{path}: damaged record at byte {at} of {len(data)}")
        yield body
        at += 16 + length


def fields(data: bytes) -> dict[int, list[Any]]:
    """Field number -> values of a message: ints, floats, or bytes."""
    found: dict[int, list[Any]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return n

    while at < len(data):
        key = varint()
        kind = key & 7
        value: Any
        if kind == 0:
            value = varint()
        elif kind == 2:
            length = varint()
            value = data[at:at + length]
            at += length
        else:
            size, code = (8, "<d") if kind == 1 else (4, "<f")
            (value,) = struct.unpack(code, data[at:at + size])
            at += size
        found.setdefault(key >> 3, []).append(value)
    return found


def read_scalars(path: str | Path) -> dict[str, list[tuple[int, float]]]:
    """tag -> [(step, value), ...] of the scalars in an event file."""
    found: dict[str, list[tuple[int, float]]] = {}
    for data in read_records(path):
        message = fields(data)
        (step,) = message.get(2, [0])
        step -= (step >> 63) << 64
        for summary in message.get(5, []):
            for value in fields(summary).get(1, []):
                parts = fields(value)
                if 2 in parts:
                    found.setdefault(parts[1][0].decode(), []).append((step, parts[2][0]))
    return found
