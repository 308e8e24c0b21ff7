"""The safetensors format, read and written with NumPy alone.

A file is an 8-byte little-endian header length, a JSON header
``{"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
"__metadata__": {str: str}}`` padded with spaces, and the tensors' bytes, row-major and
little-endian, without gaps (https://github.com/huggingface/safetensors, "Format").
Nothing in such a file is ever executed, and the header is checked in full before a byte of
data is used. Function names and arguments are those of the safetensors package.
"""
from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from adjoint.base.dtypes import bfloat16
from adjoint.base.errors import ArgumentError, DTypeError, NotSupported
from adjoint.io.arrays import Tensor, as_array, as_tensor
from adjoint.io.atomic import atomic_write
from adjoint.io.errors import FileFormatError

_HEADER_LIMIT = 100_000_000
_NUMPY = {
    "F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16",
    "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}
# The order in which the safetensors package lays out dtypes: equal tensors give equal files.
_ORDER = ["U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16", "I8", "U8",
          "BOOL"]
_NAMES = {np.dtype(v): k for k, v in _NUMPY.items()}
_SIZES = {k: np.dtype(v).itemsize for k, v in _NUMPY.items()} | {
    "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}


class Entry(NamedTuple):
    """One tensor of a file: its dtype name, shape, and place in the data section."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class Header(NamedTuple):
    """A checked header: entries by name, metadata, and where the data section begins."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    data_start: int


def _numpy_dtype(name: str, tensor: str, where: str) -> np.dtype[Any]:
    if name == "BF16":
        return bfloat16.dtype
    if name not in _NUMPY:
        raise NotSupported(f"{where}: tensor {tensor!r} has dtype {name}, which has no tensor "
                           f"type here; accepted: {', '.join([*_NUMPY, 'BF16'])}")
    return np.dtype(_NUMPY[name])


def _dtype_name(dtype: np.dtype[Any], tensor: str) -> str:
    native = dtype.newbyteorder("=")
    if native in _NAMES:
        return _NAMES[native]
    if native.name == "bfloat16":
        return "BF16"
    raise DTypeError(f"safetensors: tensor {tensor!r} has dtype {dtype}, which the format does "
                     f"not have; convert it to one of {', '.join(_NUMPY.values())}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise FileFormatError(f"the header names {key!r} twice")
        found[key] = value
    return found


def _entry(name: str, spec: Any) -> Entry:
    """One header value, checked; the message of a refusal is completed by the caller."""
    if not isinstance(spec, dict) or set(spec) != {"dtype", "shape", "data_offsets"}:
        raise FileFormatError(f"tensor {name!r} is not described by dtype, shape, data_offsets")
    dtype, shape, offsets = spec["dtype"], spec["shape"], spec["data_offsets"]
    if dtype not in _SIZES:
        raise FileFormatError(f"tensor {name!r} has the unknown dtype {dtype!r}")
    for part, what in ((shape, "shape"), (offsets, "data_offsets")):
        if not isinstance(part, list) or not all(type(n) is int and n >= 0 for n in part):
            raise FileFormatError(f"tensor {name!r} has the {what} {part!r}; "
                                  f"non-negative integers are needed")
    if len(offsets) != 2 or offsets[1] - offsets[0] != math.prod(shape) * _SIZES[dtype]:
        raise FileFormatError(f"tensor {name!r} ({dtype}, shape {shape}) needs "
                              f"{math.prod(shape) * _SIZES[dtype]} bytes, its data_offsets are "
                              f"{offsets}")
    return Entry(dtype, tuple(shape), offsets[0], offsets[1])


def _check_layout(entries: Mapping[str, Entry], size: int) -> None:
    """The tensors must tile the data section: no hole, no overlap, nothing behind."""
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.start != at:
            raise FileFormatError(f"tensor {name!r} starts at data byte {entry.start}; "
                                  f"the tensors before it end at {at}")
        at = entry.stop
    if at != size:
        raise FileFormatError(f"the header describes {at} bytes of data, the file has {size}: "
                              f"{'it was cut short' if size < at else 'bytes follow the last'}")


def _parse(raw: bytes, data_size: int) -> Header:
    try:
        content = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FileFormatError(f"the header is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise FileFormatError("the header is not a JSON object")
    metadata = content.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FileFormatError("__metadata__ is not a map of strings")
    entries = {name: _entry(name, spec) for name, spec in content.items()}
    _check_layout(entries, data_size)
    return Header(entries, metadata, 8 + len(raw))


def parse_header(file: BinaryIO, size: int, where: str) -> Header:
    """Read and check the header of an open file of `size` bytes; `where` names it in errors."""
    try:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise FileFormatError(f"{size} bytes are too few for a header")
        length = int.from_bytes(prefix, "little")
        if length > min(_HEADER_LIMIT, size - 8):
            raise FileFormatError(f"the header would be {length} bytes long, the file has {size}")
        return _parse(file.read(length), size - 8 - length)
    except FileFormatError as error:
        raise FileFormatError(f"{where}: not a whole safetensors file: {error}") from None


def read_header(path: str | os.PathLike[str]) -> Header:
    """Names, dtypes, shapes and metadata of a file, without reading its tensors.

    >>> import tempfile; path = tempfile.mktemp(suffix=".safetensors")
    >>> save_file({"w": np.zeros((2, 3), np.float32)}, path, metadata={"made": "here"})
    >>> header = read_header(path); header.entries["w"].shape, header.metadata
    ((2, 3), {'made': 'here'})
    """
    with open(path, "rb") as file:
        return parse_header(file, os.fstat(file.fileno()).st_size, os.fspath(path))


def _little(array: np.ndarray) -> np.ndarray:
    """The array row-major and in the file's byte order."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    swapped = array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and _BIG)
    return array.byteswap() if swapped else array


_BIG = sys.byteorder == "big"


def _layout(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None
            ) -> tuple[bytes, list[np.ndarray]]:
    """Header bytes, and the arrays in file order: by dtype, then by name."""
    arrays: dict[str, np.ndarray] = {}
    for name, value in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise ArgumentError(f"safetensors: {name!r} cannot be the name of a tensor")
        arrays[name] = as_array(value, f"safetensors: tensor {name!r}")
    names = {name: _dtype_name(array.dtype, name) for name, array in arrays.items()}
    order = sorted(arrays, key=lambda n: (_ORDER.index(names[n]), n))
    header: dict[str, Any] = {}
    if metadata is not None:
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
            raise ArgumentError("safetensors: metadata must map strings to strings")
        header["__metadata__"] = dict(metadata)
    at = 0
    for name in order:
        nbytes = arrays[name].size * arrays[name].itemsize
        header[name] = {"dtype": names[name], "shape": list(arrays[name].shape),
                        "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, [arrays[name] for name in order]


def _chunks(arrays: Iterable[np.ndarray]) -> Iterator[memoryview]:
    for array in arrays:
        if array.size:
            yield _little(array).reshape(-1).view(np.uint8).data


def save_file(tensors: Mapping[str, Any], filename: str | os.PathLike[str],
              metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors or arrays by name to `filename`, in one atomic step.

    Raises `DTypeError` for dtypes that the format lacks and OSError when the disk is full;
    the old file is then untouched.

    >>> import tempfile; path = tempfile.mktemp(suffix=".safetensors")
    >>> save_file({"w": np.arange(3.0)}, path)
    >>> load_numpy(path)["w"]
    array([0., 1., 2.])
    """
    head, arrays = _layout(tensors, metadata)
    with atomic_write(filename) as file:
        file.write(head)
        for chunk in _chunks(arrays):
            file.write(chunk)


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes that `save_file` would write.

    >>> load(save({"a": np.ones(2, np.float32)}))["a"].tolist()
    [1.0, 1.0]
    """
    head, arrays = _layout(tensors, metadata)
    return b"".join([head, *_chunks(arrays)])


def _view(buffer: np.ndarray, entry: Entry, name: str, where: str) -> np.ndarray:
    dtype = _numpy_dtype(entry.dtype, name, where)
    flat = buffer[entry.start:entry.stop]
    if flat.ctypes.data % dtype.itemsize:
        flat = flat.copy()
    array = flat.view(dtype).reshape(entry.shape)
    return array.byteswap() if _BIG else array


def load_numpy(filename: str | os.PathLike[str], mmap: bool = False) -> dict[str, np.ndarray]:
    """All tensors of a file as NumPy arrays; `mmap=True` maps them copy-on-write instead.

    Raises `FileFormatError` for a damaged file, FileNotFoundError for a missing one.

    >>> import tempfile; path = tempfile.mktemp(suffix=".safetensors")
    >>> save_file({"n": np.arange(2)}, path); load_numpy(path, mmap=True)["n"].sum()
    np.int64(1)
    """
    where = os.fspath(filename)
    with open(filename, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header = parse_header(file, size, where)
        nbytes = size - header.data_start
        if mmap and nbytes:
            data: np.ndarray = np.memmap(filename, np.uint8, "c", header.data_start, (nbytes,))
        else:
            data = np.empty(nbytes, np.uint8)
            got = file.readinto(data.data) if nbytes else 0
            if got != nbytes:
                raise FileFormatError(f"{where}: {got} of {nbytes} data bytes could be read")
    return {name: _view(data, entry, name, where) for name, entry in header.entries.items()}


def load_file(filename: str | os.PathLike[str], device: Any = "cpu") -> dict[str, Tensor]:
    """All tensors of a file, by name.

    >>> import tempfile; path = tempfile.mktemp(suffix=".safetensors")
    >>> save_file({"w": np.ones((2, 2), np.float32)}, path)
    >>> load_file(path)["w"].shape
    adjoint.Size([2, 2])
    """
    return {name: as_tensor(array, where=device) for name, array in load_numpy(filename).items()}


def load(data: bytes) -> dict[str, Tensor]:
    """Tensors from the bytes of a safetensors file.

    >>> load(save({"a": np.zeros(1, np.float32)}))["a"].tolist()
    [0.0]
    """
    header = parse_header(io.BytesIO(data), len(data), "safetensors.load")
    buffer = np.frombuffer(data, np.uint8, offset=header.data_start).copy()
    return {name: as_tensor(_view(buffer, entry, name, "safetensors.load"))
            for name, entry in header.entries.items()}


class safe_open:
    """Read single tensors of a file; the rest stays on the disk.

    >>> import tempfile; path = tempfile.mktemp(suffix=".safetensors")
    >>> save_file({"a": np.ones(3, np.float32), "b": np.zeros(2, np.float32)}, path)
    >>> with safe_open(path) as f:
    ...     print(f.keys(), f.get_tensor("a").sum().item(), f.get_slice("b")[:1].shape)
    ['a', 'b'] 3.0 adjoint.Size([1])
    """

    def __init__(self, filename: str | os.PathLike[str], framework: str = "adjoint",
                 device: Any = "cpu") -> None:
        if framework not in ("adjoint", "pt", "numpy", "np"):
            raise ArgumentError(f"safe_open: framework {framework!r} is not known; "
                                f"accepted: 'adjoint', 'pt' (the same), 'numpy'")
        self._numpy = framework in ("numpy", "np")
        self._where, self._device = os.fspath(filename), device
        self._header = read_header(filename)
        nbytes = os.path.getsize(filename) - self._header.data_start
        self._data: np.ndarray = (
            np.memmap(filename, np.uint8, "c", self._header.data_start, (nbytes,))
            if nbytes else np.empty(0, np.uint8))

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *exc: object) -> None:
        self._data = np.empty(0, np.uint8)

    def keys(self) -> list[str]:
        """Names of the tensors, sorted."""
        return sorted(self._header.entries)

    def metadata(self) -> dict[str, str]:
        """The file's own notes: a map of strings."""
        return dict(self._header.metadata)

    def _array(self, name: str) -> np.ndarray:
        if name not in self._header.entries:
            raise FileFormatError(f"{self._where}: no tensor named {name!r}; it has "
                                  f"{', '.join(self.keys()[:8])}")
        return _view(self._data, self._header.entries[name], name, self._where)

    def get_tensor(self, name: str) -> Any:
        """The tensor `name`, read into memory of its own."""
        array = np.array(self._array(name))
        return array if self._numpy else as_tensor(array, where=self._device)

    def get_slice(self, name: str) -> _Slice:
        """Index the result as an array: only the pages it needs are read."""
        return _Slice(self, name)


class _Slice:
    """A tensor of an open file that is read where it is indexed."""

    def __init__(self, file: safe_open, name: str) -> None:
        self._file, self._array = file, file._array(name)

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._array.shape)

    def __getitem__(self, index: Any) -> Any:
        part = np.array(self._array[index])
        return part if self._file._numpy else as_tensor(part, where=self._file._device)
