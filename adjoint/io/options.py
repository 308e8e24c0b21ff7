"""What a program sets once for all files that it writes and reads: `torch.serialization`'s
switches and `torch.utils.serialization.config`, which are two views of the same values."""
from __future__ import annotations

import contextlib
import enum
import mmap
import threading
from collections.abc import Iterator
from typing import Any

from adjoint.base.errors import ArgumentError, MissingName, StructureError

_PRIVATE: int | None = getattr(mmap, "MAP_PRIVATE", None)       # Windows has neither
_SHARED: int | None = getattr(mmap, "MAP_SHARED", None)


class LoadEndianness(enum.Enum):
    """The byte order of storages in a file that does not say which it has."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class Section:
    """The values of `config.load` or `config.save`: attributes, and no others than those there.

    >>> Section("load", mmap=False).mmap
    False
    """

    def __init__(self, name: str, **values: Any) -> None:
        self.__dict__.update(values, _name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__:
            raise MissingName(f"config.{self._name}", name, lambda: self.__dict__)
        self.__dict__[name] = value

    _name: str


class _Load(Section):
    mmap: bool
    endianness: LoadEndianness | None
    mmap_flags: int | None
    calculate_storage_offsets: bool


class _Save(Section):
    compute_crc32: bool
    use_pinned_memory_for_d2h: bool
    storage_alignment: int


LOAD = _Load("load", mmap=False, endianness=None, mmap_flags=_PRIVATE,
             calculate_storage_offsets=False)
SAVE = _Save("save", compute_crc32=True, use_pinned_memory_for_d2h=False, storage_alignment=64)


@contextlib.contextmanager
def patch(name: str | dict[str, Any], value: Any = None) -> Iterator[None]:
    """Other values for the length of a block: `patch("load.mmap", True)`, or a dict of such names.

    >>> with patch("load.mmap", True):
    ...     LOAD.mmap
    True
    """
    wanted = name if isinstance(name, dict) else {name: value}
    places = [({"load": LOAD, "save": SAVE}[key.partition(".")[0]], key.partition(".")[2], new)
              for key, new in wanted.items()]
    before = [(section, key, getattr(section, key)) for section, key, _ in places]
    try:
        for section, key, new in places:
            setattr(section, key, new)
        yield
    finally:
        for section, key, old in before:
            setattr(section, key, old)


def get_default_load_endianness() -> LoadEndianness | None:
    """What `set_default_load_endianness` chose; None: this machine's byte order."""
    return LOAD.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """The byte order of files that do not say theirs; files written since 2023 do."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise StructureError("Invalid argument type in function set_default_load_endianness: a "
                             f"LoadEndianness or None is needed, got {endianness!r}")
    LOAD.endianness = endianness


def get_default_mmap_options() -> int | None:
    """The flags with which `load(mmap=True)` maps a file."""
    return LOAD.mmap_flags


class set_default_mmap_options:
    """How `load(mmap=True)` maps a file: `mmap.MAP_PRIVATE`, the default, keeps what is written to
    a tensor from the file, `mmap.MAP_SHARED` writes it there: the file's checksums are those of
    before, so that it is to be mapped again to be read. In a `with` statement: for its block."""

    def __init__(self, flags: int) -> None:
        if flags not in (_PRIVATE, _SHARED) or flags is None:
            raise ArgumentError("Invalid argument in function set_default_mmap_options, expected "
                                f"mmap.MAP_PRIVATE or mmap.MAP_SHARED, but got {flags}")
        self._before = LOAD.mmap_flags
        LOAD.mmap_flags = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        LOAD.mmap_flags = self._before


def map_mode() -> Any:
    """NumPy's letter for these flags: copy-on-write, or the file itself."""
    return "r+" if LOAD.mmap_flags is not None and LOAD.mmap_flags == _SHARED else "c"


def get_crc32_options() -> bool:
    """Does `save` put checksums into its files?"""
    return SAVE.compute_crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Whether `save` may leave out checksums. It never does: they cost little, and `unzip` and
    Python's zipfile refuse a file without them."""
    SAVE.compute_crc32 = compute_crc32


class _Skipping(threading.local):
    on = False


SKIPPING = _Skipping()


class skip_data:
    """A block in which `save` leaves the bytes of storages out of the file, which keeps room for
    them: zeros, for another writer to fill. `load` is not changed by it.

    Args:
        materialize_fake_tensors: accepted; tensors here either have values or are on device meta.

    >>> import adjoint as ad, io
    >>> buffer = io.BytesIO()
    >>> with skip_data():
    ...     ad.save(ad.ones(3), buffer)
    >>> _ = buffer.seek(0); ad.load(buffer).tolist()
    [0.0, 0.0, 0.0]
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self._before = SKIPPING.on
        SKIPPING.on = True

    def __exit__(self, *exc: object) -> None:
        SKIPPING.on = self._before
