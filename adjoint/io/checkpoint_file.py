"""`save` and `load`: PyTorch's checkpoint files, without PyTorch.

The format (PyTorch documentation, "Serialization semantics", "torch.save") is a zip of
uncompressed members under one folder: `data.pkl`, a pickle whose persistent references name
storages; `data/0`, `data/1`, ..., their bytes, each aligned to 64; `version` and `byteorder`.
Both directions are covered: `torch.load(weights_only=True)` reads what `save` writes.
"""
from __future__ import annotations

import contextlib
import functools
import io
import os
import pickle
import struct
import sys
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from adjoint.base.dtypes import DType, of_numpy
from adjoint.base.errors import AdjointError, ArgumentError, StructureError
from adjoint.core.copies import warn_if_has_hooks
from adjoint.core.tensor import OWN, Size
from adjoint.io import legacy, safetensors
from adjoint.io.arrays import (
    Parameter,
    Tensor,
    as_array,
    as_tensor,
    destination,
    device,
    is_meta,
)
from adjoint.io.atomic import atomic_write
from adjoint.io.errors import (
    EmptyFileError,
    FileFormatError,
    NoFolder,
    NotAFile,
    NotAStorage,
    UnsafePickleError,
)
from adjoint.io.nested import nested_call
from adjoint.io.options import LOAD, SAVE, SKIPPING, LoadEndianness, map_mode
from adjoint.io.pickle_in import Callable_, Listed, SafeUnpickler, Trusted, find_safe, global_names
from adjoint.io.pickle_out import Call, Global, Persistent, PickleWriter
from adjoint.io.storages import StorageTable
from adjoint.io.torch_names import (
    STORAGE_OF,
    Storage,
    StorageType,
    attributes,
    in_order,
    torch_names,
)
from adjoint.nn.parameter import Buffer
from adjoint.ops.device import layout, sparse_bsr, sparse_coo, sparse_csr, strided
from adjoint.storage import TypedStorage, UntypedStorage

# What the zip module raises for offsets, names and sizes that make no sense.
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, LookupError,
           OverflowError, RuntimeError, OSError)
_allowed: dict[str, Any] = {}
File = str | os.PathLike[str] | BinaryIO
MapLocation = Callable[[Any, str], Any] | str | dict[str, str] | Any


def add_safe_globals(names: list[Any]) -> None:
    """Let `load(weights_only=True)` also build these classes and call these functions.

    Only do this for code whose constructors may run on the contents of the file.

    >>> import argparse; add_safe_globals([argparse.Namespace]); clear_safe_globals()
    """
    for item in names:
        obj, name = item if isinstance(item, tuple) else (
            item, f"{item.__module__}.{item.__qualname__}")
        _allowed[name] = obj


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` has added."""
    return list(_allowed.values())


def clear_safe_globals() -> None:
    """Forget what `add_safe_globals` has added."""
    _allowed.clear()


@contextlib.contextmanager
def safe_globals(names: list[Any]) -> Iterator[None]:
    """`add_safe_globals` for the length of a block."""
    before = dict(_allowed)
    add_safe_globals(names)
    try:
        yield
    finally:
        _allowed.clear()
        _allowed.update(before)


# ------------------------------------------------------------------------------- writing
class _Replacer:
    """Turns tensors, dtypes, sizes and devices into the calls PyTorch expects."""

    placing = False     # True in the second pass, when the table knows all tensors

    def __init__(self, table: StorageTable, view: tuple[None, ...]) -> None:
        self._table, self._view = table, view
        self._parts: dict[int, tuple[Any, ...]] = {}    # of tensors: the same in both passes

    def __call__(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        if isinstance(obj, DType):
            return Global("torch", obj.name)
        if type(obj) is Size:
            return Call(Global("torch", "Size"), (tuple(obj),))
        if type(obj) is layout:
            return Call(Global("torch.serialization", "_get_layout"), (f"torch.{obj.name}",))
        if type(obj) is device:
            return Call(Global("torch", "device"), (str(obj),))
        if isinstance(obj, UntypedStorage):
            return self._storage(obj)
        if obj is Tensor:
            return Global("torch", "Tensor")
        return obj

    def _tensor(self, tensor: Tensor) -> Call:
        if self.placing and not isinstance(tensor, Parameter):
            warn_if_has_hooks(tensor)
        if tensor.is_nested:
            return nested_call(tensor, self._parts)
        if tensor.layout is strided and is_meta(tensor):
            return self._with_class(tensor, Call(
                Global("torch._utils", "_rebuild_meta_tensor_no_storage"),
                (tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()),
                 bool(tensor.requires_grad))))
        call = (self._plain(tensor) if tensor.layout is strided else
                Call(Global("torch._utils", "_rebuild_sparse_tensor"),
                     (tensor.layout, self._sparse(tensor))))
        return self._with_class(tensor, call)

    def _with_class(self, tensor: Tensor, call: Call) -> Call:
        """The call that makes a tensor, inside of one that gives it its class and attributes."""
        kind: Any = type(tensor)
        state = attributes(tensor)
        if kind is Parameter:
            made: Any = (call, bool(tensor.requires_grad), OrderedDict())
            return (Call(Global("torch._utils", "_rebuild_parameter_with_state"), (*made, state))
                    if state else Call(Global("torch._utils", "_rebuild_parameter"), made))
        if isinstance(tensor, Buffer):
            kind, state = Tensor, {**state, "_is_buffer": True}
        if kind in OWN:
            kind = Tensor
        if kind is Tensor and not state:
            return call
        return Call(Global("torch._tensor", "_rebuild_from_type_v2"),
                    (call.function, kind, call.args, state))

    def _storage(self, storage: UntypedStorage) -> Persistent:
        """A storage by itself: the memory of the tensors on it, which it is again when read."""
        typed, zipped = isinstance(storage, TypedStorage), not self._view
        key, array = id(storage), storage._elements()
        inner = storage.tensor.array.dtype
        if zipped and array.nbytes % inner.itemsize == 0:
            array = array.view(inner)       # one storage with the tensors on it
        if not self.placing:
            self._table.add(key, array, storage._owner)  # type: ignore[arg-type]  # not on meta
            return Persistent(())
        number = self._table.place(key, array).storage
        nbytes, name = self._table.storages[number].raw.nbytes, of_numpy(array.dtype).name
        if typed and name in STORAGE_OF:
            kind, numel = Global("torch", STORAGE_OF[name]), nbytes // array.itemsize
        else:
            kind, numel = Global("torch.storage", "UntypedStorage"), nbytes
        return Persistent(("storage", kind, str(number), "cpu", numel, *self._view))

    def _sparse(self, tensor: Tensor) -> tuple[Any, ...]:
        return self._parts.get(id(tensor)) or self._parts.setdefault(
            id(tensor), _sparse_parts(tensor))

    def _plain(self, tensor: Tensor) -> Call:
        shown: Any = tensor.plain() if tensor.turn else tensor
        array = as_array(shown, "save: a tensor")
        wanted = bool(tensor.requires_grad) and not isinstance(tensor, Parameter)
        if not self.placing:
            self._table.add(id(tensor), array)
            return Call(Global("torch._utils", "_rebuild_tensor_v2"), (OrderedDict(),))
        number, offset, stride = self._table.place(id(tensor), array)
        data = self._table.storages[number]
        where = (str(number), "cpu")
        more = ({tensor.turn: True},) if tensor.turn else ()
        made: tuple[Any, ...] = (offset, tuple(array.shape), stride, wanted, OrderedDict())
        if data.dtype is not None and data.dtype.name in STORAGE_OF:
            kind = Global("torch", STORAGE_OF[data.dtype.name])
            ref = Persistent(("storage", kind, *where, data.numel, *self._view))
            return Call(Global("torch._utils", "_rebuild_tensor_v2"), (ref, *made, *more))
        kind = (Global("torch", "ByteStorage") if self._view else     # no type: not in old files
                Global("torch.storage", "UntypedStorage"))
        ref = Persistent(("storage", kind, *where, data.raw.nbytes, *self._view))
        return Call(Global("torch._utils", "_rebuild_tensor_v3"),
                    (ref, *made, of_numpy(array.dtype), *more))


def _sparse_parts(tensor: Any) -> tuple[Any, ...]:
    """What a sparse tensor is made of, in the order of its rebuild function."""
    if tensor.layout is sparse_coo:
        return tensor._indices(), tensor._values(), tensor.shape, tensor.is_coalesced()
    outer, inner = (("crow", "col") if tensor.layout in (sparse_csr, sparse_bsr)
                    else ("ccol", "row"))
    return (getattr(tensor, f"{outer}_indices")(), getattr(tensor, f"{inner}_indices")(),
            tensor.values(), tensor.shape)


class _ZipWriter:
    """Uncompressed members, which other programs can map."""

    def __init__(self, file: BinaryIO, folder: str) -> None:
        self._file, self._folder = file, folder
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)

    def add(self, name: str, data: bytes | memoryview, align: int = 1) -> None:
        """Write one member, its bytes at a multiple of `align`."""
        info = zipfile.ZipInfo(f"{self._folder}/{name}", (1980, 1, 1, 0, 0, 0))
        info.file_size = len(data)
        big = info.file_size * 1.05 > zipfile.ZIP64_LIMIT
        start = self._file.tell() + 30 + len(info.filename.encode()) + (20 if big else 0) + 4
        padding = -start % align
        info.extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding
        with self._zip.open(info, "w") as member:
            member.write(data)

    def close(self) -> None:
        """Write the zip's directory."""
        self._zip.close()


def save(obj: Any, f: File, pickle_module: Any = None, pickle_protocol: int = 2,
         _use_new_zipfile_serialization: bool = True,
         _disable_byteorder_record: bool = False) -> None:
    """Write tensors in any nesting of dicts, lists, tuples, numbers and strings to `f`.

    `f` is a path (replaced in one atomic step) or a writable binary file. Tensors that share
    memory share it when read; gradients and graphs are not kept. PyTorch reads the file;
    versions before 1.6 do with `_use_new_zipfile_serialization=False`.
    Raises `DTypeError` for objects that cannot be pickled, OSError for a full disk.

    >>> import adjoint as ad, io
    >>> buffer = io.BytesIO()
    >>> save({"w": ad.ones(2, 2), "step": 3}, buffer)
    >>> _ = buffer.seek(0); load(buffer)["step"]
    3
    """
    if pickle_protocol > pickle.HIGHEST_PROTOCOL:
        raise ArgumentError(f"pickle protocol must be <= {pickle.HIGHEST_PROTOCOL}")
    zipped, said = _use_new_zipfile_serialization, not _disable_byteorder_record
    if isinstance(f, str | os.PathLike):
        stem = os.path.basename(os.fspath(f)).rsplit(".", 1)[0] or "archive"
        folder = os.path.dirname(os.path.abspath(os.fspath(f)))
        if not os.path.isdir(folder):
            raise NoFolder(f"Parent directory {os.fsdecode(folder)} does not exist: make it first")
        with atomic_write(f) as file:
            _write(obj, file, stem if zipped else None, said)
        return
    if not hasattr(f, "write"):
        raise NotAFile("expected 'f' to be string, path, or a file-like object with a 'write' "
                       f"attribute: save got a {type(f).__name__}")
    buffer = io.BytesIO()
    _write(obj, buffer, "archive" if zipped else None, said)
    f.write(buffer.getbuffer())


def _write(obj: Any, file: BinaryIO, folder: str | None, order_said: bool) -> None:
    """As a zip with its members in ``folder``; None: in the old format."""
    if folder is None and SKIPPING.on:
        raise ArgumentError("Cannot use skip_data=True with _use_new_zipfile_serialization=False: "
                            "the old format has no room for storages that are filled later")
    table, view = StorageTable(), (None,) if folder is None else ()
    replacer = _Replacer(table, view)
    first = PickleWriter(replacer)  # alive: identities must not recur
    first.dump(obj)
    replacer.placing = True
    data = PickleWriter(replacer).dump(obj)
    if folder is None:
        legacy.write(file, data, table.storages)
        return
    align = SAVE.storage_alignment
    out = _ZipWriter(file, folder)
    out.add("data.pkl", data, align)
    out.add(".format_version", b"1")
    out.add(".storage_alignment", str(align).encode())
    if order_said:
        out.add("byteorder", sys.byteorder.encode())
    for number, storage in enumerate(table.storages):
        raw = storage.raw.view(np.uint8)
        out.add(f"data/{number}", (np.zeros_like(raw) if SKIPPING.on else raw).data, align)
    out.add("version", b"3\n")
    out.close()


# ------------------------------------------------------------------------------- reading
class _Reader:
    """An open checkpoint: finds members, reads each storage once."""

    filled = True       # a storage has its bytes from the first

    def __init__(self, file: BinaryIO, path: str | None, where: str, location: MapLocation) -> None:
        self._file, self._path, self._where, self._location = file, path, where, location
        self._zip = zipfile.ZipFile(file)
        for info in self._zip.infolist():
            if info.CRC == 0 and info.file_size:    # PyTorch's way to say that it made no checksum
                del info.CRC
        names = self._zip.namelist()
        found = [n for n in names if n == "data.pkl" or n.endswith("/data.pkl")]
        if not found:
            kind = "a TorchScript archive" if any(
                n.endswith("constants.pkl") for n in names) else "some other zip file"
            raise FileFormatError(f"it holds no data.pkl: {kind}, not a checkpoint")
        self._prefix = min(found, key=len).removesuffix("data.pkl")
        assumed = LOAD.endianness
        self._order = self._text("byteorder", sys.byteorder if assumed in (
            None, LoadEndianness.NATIVE) else assumed.name.lower())
        self._storages: dict[str, Storage] = {}

    def _text(self, name: str, default: str) -> str:
        try:
            return self._zip.read(self._prefix + name).decode().strip()
        except KeyError:
            return default

    def fill(self) -> bool:
        """False: storages are read where the pickle refers to them."""
        return False

    def pickle(self) -> bytes:
        """The bytes of the pickle."""
        return self._zip.read(self._prefix + "data.pkl")

    def storage(self, pid: Any) -> UntypedStorage:
        """Resolve a persistent reference ('storage', type, key, location, numel)."""
        if type(pid) is not tuple or len(pid) < 5 or pid[0] not in ("storage", b"storage"):
            raise UnsafePickleError(f"the pickle in it refers to {pid!r}; only storages may be")
        _, kind, key, location, numel = pid[:5]
        if not isinstance(kind, StorageType) or type(numel) is not int or numel < 0:
            raise FileFormatError(f"a storage in it is of type {kind!r}")
        key = str(key)
        if key not in self._storages:
            dtype = kind.dtype
            nbytes = numel * (dtype.itemsize if dtype is not None else 1)
            raw = self._raw(f"{self._prefix}data/{key}", nbytes)
            raw = in_order(raw, dtype, self._order)
            made = self._storages[key] = Storage(raw, dtype)
            made.device = _locate(self._location, str(location), made)
        return self._storages[key].of(kind.dtype).public()

    def _raw(self, member: str, nbytes: int) -> np.ndarray:
        try:
            info = self._zip.getinfo(member)
        except KeyError:
            raise FileFormatError(f"the member {member} is missing") from None
        if info.file_size < nbytes:
            raise FileFormatError(f"the member {member} has {info.file_size} bytes, "
                                  f"{nbytes} are needed")
        if not nbytes:
            return np.empty(0, np.uint8)
        if self._path is not None and info.compress_type == zipfile.ZIP_STORED:
            return self._mapped(info, nbytes)
        raw = np.empty(nbytes, np.uint8)
        view, done = raw.data, 0
        with self._zip.open(info) as stream:
            while done < nbytes:
                got = stream.readinto(view[done:])  # type: ignore[attr-defined]  # a ZipExtFile
                if not got:
                    raise FileFormatError(f"the member {member} ends early")
                done += got
            stream.read(1)  # the end is where the checksum is compared
        return raw

    def _mapped(self, info: zipfile.ZipInfo, nbytes: int) -> np.ndarray:
        """The member's pages of the file itself, copied where they are written to."""
        self._file.seek(info.header_offset + 26)
        name, extra = struct.unpack("<HH", self._file.read(4))
        start = info.header_offset + 30 + name + extra
        assert self._path is not None
        raw: np.ndarray = np.memmap(self._path, np.uint8, map_mode(), start,
                                    (nbytes,))
        return raw if start % 16 == 0 else np.array(raw)


def _locate(location: MapLocation, saved: str, storage: Storage | None = None) -> str:
    """Where a storage saved on device `saved` goes: 'cpu' or 'meta'."""
    if callable(location):
        before = None if storage is None else UntypedStorage(storage.public().tensor)
        after = location(before, saved)
        if storage is not None:
            storage.forget()
        if not (after is None or isinstance(after, UntypedStorage)):
            raise NotAStorage("load: the function given as map_location has to return a storage or "
                              f"None, it returned a {type(after).__name__}")
        location = "cpu" if after is None else after.device
    elif isinstance(location, dict):
        location = location.get(saved, "cpu")
    return destination(location)


def load(f: File, map_location: MapLocation = None, pickle_module: Any = None, *,
         weights_only: bool | None = None, mmap: bool | None = None,
         **pickle_load_args: Any) -> Any:
    """Read what `save`, `torch.save` or safetensors wrote.

    Nothing in the file is executed: only tensors, standard containers, numbers, strings, NumPy
    arrays and what `add_safe_globals` lists can come out. `weights_only=False` switches that
    protection off, for files whose author you trust as much as your own code. `mmap=True` maps
    storages from the file (a path), copy-on-write. `map_location` may be None, a device (every
    one but 'meta' is the CPU here), a dict of names or a function.

    Raises `UnsafePickleError` for a class that is not on the list, `FileFormatError` for a
    damaged file or another format, FileNotFoundError for a missing one.

    >>> import adjoint as ad, io
    >>> buffer = io.BytesIO(); save([ad.arange(3)], buffer); _ = buffer.seek(0)
    >>> load(buffer)[0].tolist()
    [0, 1, 2]
    """
    _check_location(map_location)
    _check_options(pickle_module, weights_only, pickle_load_args)
    safe = pickle_module is None if weights_only is None else weights_only
    how = _How(map_location, safe, pickle_module or pickle, pickle_load_args)
    if isinstance(f, str | os.PathLike):
        path = os.fspath(f)
        with open(path, "rb") as file:
            return _load(file, path, LOAD.mmap if mmap is None else bool(mmap), how)
    for needed in ("seek", "read"):
        if not hasattr(f, needed):
            raise NotAFile(f"'{type(f).__name__}' object has no attribute '{needed}'. load takes a "
                           "path or a binary file. You can only torch.load from a file that is "
                           "seekable: pre-load the data into a buffer like io.BytesIO and load "
                           "from it instead.")
    if mmap:
        raise ArgumentError("f must be a file path in order to use the mmap argument: load got an "
                            "open file")
    start = f.tell() if getattr(f, "seekable", lambda: hasattr(f, "tell"))() else None
    buffer = io.BytesIO(f.read())
    out = _load(buffer, getattr(f, "name", None) or "the file", False, how)
    if start is not None and not buffer.closed and buffer.getbuffer()[:12] == legacy.START:
        f.seek(start + buffer.tell())       # one after the other may lie in a file
    return out


class _How(NamedTuple):
    """What `load` was asked for beside the file."""

    location: MapLocation
    safe: bool
    pickler: Any
    options: dict[str, Any]


_OPTIONS = {"encoding", "fix_imports", "errors", "buffers"}     # of pickle.Unpickler


def _check_options(pickle_module: Any, weights_only: bool | None, options: dict[str, Any]) -> None:
    """Refuse what would not be used."""
    unknown = options.keys() - _OPTIONS
    if unknown:
        raise StructureError(f"load() got an unexpected keyword argument {min(unknown)!r}")
    if weights_only and pickle_module is not None:
        raise ArgumentError("Can not safely load weights when explicit pickle_module is "
                            "specified: leave out pickle_module, or weights_only=True")


def _check_location(location: MapLocation) -> None:
    """Refuse what cannot be a map_location before the file is opened."""
    if isinstance(location, str | device):
        destination(location)
    elif not (location is None or callable(location) or isinstance(location, dict)):
        raise StructureError(f"load: map_location is a {type(location).__name__}; None, a "
                             f"device, a dict or a function is needed")


def _load(file: BinaryIO, where: str, mmap: bool, how: _How) -> Any:
    head = file.read(16)
    file.seek(0)
    if not head.startswith((b"PK\x03\x04", legacy.START)):
        return _load_other(file, head, where, how.location)
    encoding = how.options.get("encoding", "utf-8")
    try:
        reader = _open(file, head, where, mmap, how.location)
        if how.safe:
            out = _read_safely(reader, encoding)
            return _read_safely(reader, encoding) if reader.fill() else out
    except UnsafePickleError as error:
        raise UnsafePickleError(
            f"Weights only load failed. load: {where}: {error}. If the file comes from a source "
            "you trust, list the name with adjoint.serialization.add_safe_globals, or pass "
            "weights_only=False, which may run code from the file") from None
    except FileFormatError as error:
        raise FileFormatError(f"load: {where}: {error}") from error.__cause__
    except AdjointError:
        raise
    except _DAMAGE as error:
        raise FileFormatError(f"load: {where}: the file is damaged or was cut short "
                              f"({error})") from None
    kind = _trusting(how.pickler)
    out = kind(reader, encoding).load()
    return kind(reader, encoding).load() if reader.fill() else out


def _read_safely(reader: Any, encoding: str) -> Any:
    find = _finder(reader.filled)
    return SafeUnpickler(find, reader.storage, encoding).load(reader.pickle())


def _open(file: BinaryIO, head: bytes, where: str, mmap: bool, location: MapLocation
          ) -> _Reader | legacy.LegacyReader:
    if not head.startswith(legacy.START):
        return _Reader(file, where if mmap else None, where, location)
    if mmap:
        raise FileFormatError("mmap can only be used with files saved with "
                              "`_use_new_zipfile_serialization=True`: this one has the old format")
    return legacy.LegacyReader(file, functools.partial(_locate, location))


def _load_other(file: BinaryIO, head: bytes, where: str, location: MapLocation) -> Any:
    """Files that are no zip: safetensors, or an error that says what they are."""
    if head[:1] == b"\x80":
        raise FileFormatError(f"Invalid magic number; corrupt file? load: {where} is a bare "
                              "pickle, which pickle.load reads")
    if len(head) > 8 and head[8:9] == b"{":
        tensors = safetensors.load(file.read())
        return {k: as_tensor(v.array, where=_locate(location, "cpu")) for k, v in tensors.items()}
    if not head:
        raise EmptyFileError(f"load: {where} is empty")
    raise FileFormatError(f"load: {where} is neither a checkpoint (zip) nor a safetensors file; "
                          f"it begins with {head[:8]!r}")


def get_unsafe_globals_in_checkpoint(f: File) -> list[str]:
    """The names in a checkpoint that `load` would not accept, sorted; nothing is executed.

    >>> import argparse, io
    >>> buffer = io.BytesIO(); save(argparse.Namespace(lr=0.1), buffer); _ = buffer.seek(0)
    >>> get_unsafe_globals_in_checkpoint(buffer)
    ['argparse.Namespace']
    """
    with contextlib.ExitStack() as stack:
        file = (stack.enter_context(open(f, "rb")) if isinstance(f, str | os.PathLike) else f)
        head = file.read(16)
        file.seek(0)
        names = global_names(_open(file, head, "the file", False, None).pickle())
    find, unsafe = _finder(), []
    for module, name in sorted(names):
        try:
            find(module, name)
        except UnsafePickleError:
            unsafe.append(f"{module}.{name}")
    return unsafe


def _finder(filled: bool = True) -> Callable[[str, str], Any]:
    names = torch_names(filled) | {
        name: Trusted(obj) if isinstance(obj, type) else Listed(obj)
        for name, obj in _allowed.items()}

    def find(module: str, name: str) -> Any:
        return names.get(f"{module}.{name}") or find_safe(module, name)
    return find


@functools.cache
def _trusting(pickler: Any) -> Any:
    """The reader for `weights_only=False`, on the `Unpickler` of a module such as pickle: PyTorch's
    names mean ours, all others are imported."""
    base: Any = pickler.Unpickler

    class Trusting(base):  # type: ignore[misc]     # a class that the program chose
        def __init__(self, reader: _Reader | legacy.LegacyReader, encoding: str) -> None:
            super().__init__(io.BytesIO(reader.pickle()), encoding=encoding)
            self._names, self._storage = torch_names(reader.filled), reader.storage

        def find_class(self, module: str, name: str) -> Any:
            found = self._names.get(f"{module}.{name}")
            if found is None and module.split(".")[0] == "torch":
                module = "adjoint" + module.removeprefix("torch")
            if found is None:
                return super().find_class(module, name)
            return found.function if isinstance(found, Callable_) else found

        def persistent_load(self, pid: Any) -> Any:
            if pid[0] == "module":      # the old format names a module's class with its source
                return pid[1]
            return self._storage(pid)
    return Trusting
