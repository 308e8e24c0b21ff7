"""Checkpoint files as PyTorch wrote them before version 1.6, and still does when asked to.

Five pickles one after the other (a magic number, the version of the protocol, sizes of the
writer's C types, the object, the keys of its storages), then per key the number of elements as
an int64 and the elements.
"""
from __future__ import annotations

import pickle
import pickletools
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np

from adjoint.base.errors import NotSupported
from adjoint.io.errors import FileFormatError, UnsafePickleError
from adjoint.io.pickle_in import SafeUnpickler
from adjoint.io.storages import StorageData
from adjoint.io.torch_names import STORAGE_OF, Storage, StorageType, in_order
from adjoint.storage import UntypedStorage

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
START = pickle.dumps(MAGIC, 2)[:12]
_SIZES = {"short": 2, "int": 4, "long": 4}


def _no_names(module: str, name: str) -> Any:
    raise UnsafePickleError(f"the header names {module}.{name}")


class LegacyReader:
    """An open file in the old format. The bytes of its storages follow the object, so that
    their sizes are known after the object has been read once: `fill` fetches them then."""

    def __init__(self, file: BinaryIO, locate: Callable[[str, Storage], str]) -> None:
        self._file, self._locate = file, locate
        magic, protocol, sizes = (self._plain() for _ in range(3))
        if magic != MAGIC or protocol != PROTOCOL or not isinstance(sizes, dict):
            raise FileFormatError("Invalid magic number; corrupt file? It is a pickle, but not one "
                                  "that torch.save began")
        self._order = "little" if sizes.get("little_endian", True) else "big"
        self._object = self._next()
        self._keys = self._plain()
        self._storages: dict[str, Storage] = {}
        self.filled = False

    def _next(self) -> bytes:
        start = self._file.tell()
        for _ in pickletools.genops(self._file):    # to its end: nothing is executed
            pass
        size = self._file.tell() - start
        self._file.seek(start)
        return self._file.read(size)

    def _plain(self) -> Any:
        return SafeUnpickler(_no_names).load(self._next())

    def pickle(self) -> bytes:
        """The bytes of the object's pickle."""
        return self._object

    def storage(self, pid: Any) -> UntypedStorage:
        """Resolve ('storage', type, key, location, numel, view); zeros until `fill`."""
        if type(pid) is not tuple or len(pid) not in (5, 6) or (
                pid[0] not in ("storage", b"storage")):
            raise UnsafePickleError(f"the pickle in it refers to {pid!r}; only storages may be")
        kind, key, location, numel = pid[1:5]
        if not isinstance(kind, StorageType) or type(numel) is not int or numel < 0:
            raise FileFormatError(f"a storage in it is of type {kind!r}")
        if len(pid) == 6 and pid[5] is not None:
            raise NotSupported("load: the file holds views of storages, which PyTorch 0.3 wrote; "
                               "write it anew with a later one")
        key = str(key)
        if key not in self._storages:
            width = kind.dtype.itemsize if kind.dtype is not None else 1
            left = self._end() - self._file.tell()
            if not self.filled and numel * width > left:
                raise FileFormatError(f"a storage in it has {numel} elements of {width} bytes, but "
                                      f"{left} bytes are left in the file")
            made = self._storages[key] = Storage(np.zeros(numel * width, np.uint8), kind.dtype)
            made.device = self._locate(str(location), made)
        return self._storages[key].of(kind.dtype).public()

    def _end(self) -> int:
        at = self._file.tell()
        end = self._file.seek(0, 2)
        self._file.seek(at)
        return end

    def fill(self) -> bool:
        """Read the elements of the storages seen so far; True the first time."""
        if self.filled:
            return False
        for key in self._keys:
            storage = self._storages.get(str(key))
            (numel,) = struct.unpack("<q", self._file.read(8))
            if storage is None:
                raise FileFormatError(f"nothing in it refers to its storage {key}")
            width = storage.dtype.itemsize if storage.dtype is not None else 1
            if numel * width != storage.raw.nbytes:
                raise FileFormatError(f"storage {key} has {numel} elements of {width} bytes, its "
                                      f"tensors want {storage.raw.nbytes} bytes")
            raw = np.frombuffer(self._file.read(storage.raw.nbytes), np.uint8)
            if raw.nbytes != storage.raw.nbytes:
                raise FileFormatError(f"storage {key} ends early")
            storage.raw[:] = in_order(raw, storage.dtype, self._order)
        self.filled = True
        return True


def write(file: BinaryIO, data: bytes, storages: Sequence[StorageData]) -> None:
    """Write an object's pickle and its storages, whose keys are their numbers."""
    sizes = {"protocol_version": PROTOCOL, "little_endian": sys.byteorder == "little",
             "type_sizes": _SIZES}
    for part in (MAGIC, PROTOCOL, sizes):
        pickle.dump(part, file, 2)
    file.write(data)
    pickle.dump([str(i) for i in range(len(storages))], file, 2)
    for storage in storages:
        typed = storage.dtype is not None and storage.dtype.name in STORAGE_OF  # others are bytes
        file.write(struct.pack("<q", storage.numel if typed else storage.raw.nbytes))
        file.write(storage.raw.view(np.uint8).data)
