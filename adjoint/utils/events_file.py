"""TensorBoard's event files, written and read without TensorBoard.

A file is a row of TFRecords: length, checksum of the length, bytes, checksum of the bytes. Each
holds one `Event` message of tensorflow/core/util/event.proto, encoded here by hand: the fields
that `SummaryWriter` needs. What TensorBoard's plugins (curves, meshes, settings) put into their
messages is in `board_messages`.
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
def varint(n: int) -> bytes:
    n &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def int_field(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def double_field(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def float_field(field: int, value: float) -> bytes:
    with np.errstate(over="ignore"):
        return varint(field << 3 | 5) + np.array(value, "<f4").tobytes()


def bytes_field(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def event(wall_time: float, step: int = 0, *, summary: bytes = b"", version: str = "") -> bytes:
    """An Event with a summary value, or with the version that begins a file."""
    head = double_field(1, wall_time) + (int_field(2, step) if step else b"")
    return head + (bytes_field(3, version) if version else bytes_field(5, bytes_field(1, summary)))


def scalar(tag: str, value: float) -> bytes:
    """A summary value: one number, in single precision."""
    return bytes_field(1, tag) + float_field(2, value)


def tensor(tag: str, plugin: str, content: bytes, dtype: int, shape: Sequence[int],
           values: bytes) -> bytes:
    """A summary value for a plugin: its own message, and a tensor of `shape` whose `values` are an
    encoded field of TensorProto."""
    dims = b"".join(bytes_field(2, int_field(1, n)) for n in shape)
    meta = bytes_field(1, bytes_field(1, plugin) + (bytes_field(2, content) if content else b""))
    held = int_field(1, dtype) + bytes_field(2, dims) + values
    return bytes_field(1, tag) + bytes_field(8, held) + bytes_field(9, meta)


def text(tag: str, value: str) -> bytes:
    """A summary value: a Markdown text."""
    return tensor(tag, "text", b"", 7, (1,), bytes_field(8, value))


def image(tag: str, height: int, width: int, channels: int, png: bytes) -> bytes:
    """A summary value: an encoded picture."""
    sizes = int_field(1, height) + int_field(2, width) + int_field(3, channels)
    return bytes_field(1, tag) + bytes_field(4, sizes + bytes_field(4, png))


def audio(tag: str, rate: float, channels: int, length: int, wave: bytes) -> bytes:
    """A summary value: sound, as a WAV file."""
    sizes = float_field(1, rate) + int_field(2, channels) + int_field(3, length)
    return bytes_field(1, tag) + bytes_field(
        6, sizes + bytes_field(4, wave) + bytes_field(5, "audio/wav"))


def histogram(tag: str, values: Any, bins: Any, most: int | None = None) -> bytes:
    """A summary value: counts of `values` between the rising edges `bins` (or by a rule that
    NumPy names); at most about `most` of them, neighbours put together."""
    flat = np.asarray(values, np.float64).reshape(-1)
    if not flat.size:
        raise ArgumentError(f"histogram {tag!r}: no values (The input has no element.)")
    counts, edges = np.histogram(flat, bins=bins)
    if most is not None and len(counts) > most:
        step = len(counts) // most
        short = -len(counts) % step
        counts = np.concatenate([counts, np.zeros(short, counts.dtype)]).reshape(-1, step).sum(1)
        inner = edges[::step]
        edges = inner if edges[-1] == inner[-1] else np.append(inner, edges[-1])
    used = np.flatnonzero(counts)
    if not used.size:
        raise ArgumentError(f"histogram {tag!r}: all {flat.size} values are outside of "
                            f"[{edges[0]:g}, {edges[-1]:g}]")
    first, last = int(used[0]), int(used[-1]) + 1
    return histogram_raw(tag, [float(flat.min()), float(flat.max()), flat.size, float(flat.sum()),
                               float(flat @ flat)], edges[first:last + 1], [0, *counts[first:last]])


def histogram_raw(tag: str, moments: Sequence[float], limits: Any, counts: Any) -> bytes:
    """A summary value: least, greatest, number, sum and sum of squares; `counts` up to `limits`."""
    body = [double_field(i, float(x)) for i, x in enumerate(moments, 1)]
    for field, row in ((6, limits), (7, counts)):
        body.append(bytes_field(field, np.asarray(row, "<f8").tobytes()))
    return bytes_field(1, tag) + bytes_field(5, b"".join(body))


def default_limits() -> list[float]:
    """Edges that grow by a tenth from 1e-12 to 1e20, both signs, as PyTorch's."""
    positive, v = [], 1e-12
    while v < 1e20:
        positive.append(v)
        v *= 1.1
    return [*(-p for p in reversed(positive)), 0.0, *positive]


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

    def number() -> int:
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
        key = number()
        kind = key & 7
        value: Any
        if kind == 0:
            value = number()
        elif kind == 2:
            length = number()
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
