"""Object code on disk, so that a second process compiles nothing.

A cached object is machine code that will be run, so the store trusts nothing it cannot check:
the directory must belong to this user with mode 0700 and must not be a symbolic link, files must
belong to this user and be writable by nobody else, and each file starts with a header that names
its key, its symbols and the SHA-256 of the code. Anything that fails a check is ignored with a
warning and rebuilt. Files are written to a temporary name and renamed, so that readers never see
half a file. The oldest files go when the store exceeds its bound.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from adjoint.base.provenance import warn

_MAGIC = b"adjoint-kernel-1\n"
_SUFFIX = ".kernel"
_PART = ".part"
_ABANDONED = 3600       # seconds after which a temporary file has lost its writer


class CacheWarning(RuntimeWarning):
    """Something in the kernel cache could not be used; the kernel is compiled again."""


class Entry(NamedTuple):
    """Machine code and the symbols that it defines."""

    symbols: tuple[str, ...]
    code: bytes


def key_of(*parts: str) -> str:
    """The file name of what the parts describe: a SHA-256 over them, unambiguously joined.

    >>> key_of("a", "bc") == key_of("ab", "c")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def default_directory() -> Path:
    """`$ADJOINT_CACHE_DIR`, else `adjoint/kernels` under the user's cache directory."""
    named = os.environ.get("ADJOINT_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    if not base:
        try:
            base = str(Path.home() / ".cache")
        except RuntimeError:            # a user without a home: nothing can be made below this
            base = os.devnull
    return Path(base) / "adjoint" / "kernels"


def _warn(text: str) -> None:
    warn(text, CacheWarning)


class Store:
    """A bounded directory of object code.

    `directory` is made (0700) when it is first written to; `limit` bounds its size in bytes, which
    a process may exceed by a sixteenth.
    Every method works, and does nothing, where the directory cannot be used.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as d:
    ...     store = Store(Path(d) / "k", limit=1 << 20)
    ...     store.put("0" * 64, Entry(("f",), b"code"))
    ...     store.get("0" * 64)
    Entry(symbols=('f',), code=b'code')
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory = directory
        self.limit = limit
        self._usable: bool | None = None
        self._unseen = 0            # bytes that were written since the files were last counted

    def usable(self) -> bool:
        """Whether the directory exists (or was made) and is private to this user."""
        if self._usable is None:
            self._usable = self._check()
        return self._usable

    def _check(self) -> bool:
        path = self.directory
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass
            info = os.lstat(path)
        except (OSError, RuntimeError):
            return False
        if not stat.S_ISDIR(info.st_mode):
            _warn(f"kernel cache {path} is not a directory (or is a link); kernels are not cached")
            return False
        if not _private(info, 0o077):
            _warn(f"kernel cache {path} is not private (owner {info.st_uid}, mode "
                  f"{stat.S_IMODE(info.st_mode):04o}; it has to be yours with mode 0700); "
                  "kernels are not cached")
            return False
        return True

    def path(self, key: str) -> Path:
        """Where the object of that key lies."""
        return self.directory / (key + _SUFFIX)

    def get(self, key: str) -> Entry | None:
        """The entry of that key; None where there is none or it fails a check (with a warning)."""
        if not self.usable():
            return None
        path = self.path(key)
        try:
            data = self._read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn(f"kernel cache file {path} cannot be read ({error}); it is built again")
            return None
        if data is None:
            _warn(f"kernel cache file {path} can be written by others; it is built again")
            return None
        entry = _decode(key, data)
        if entry is None:
            _warn(f"kernel cache file {path} is damaged; it is built again")
        return entry

    @staticmethod
    def _read(path: Path) -> bytes | None:
        """What the file holds; None where others may write to it."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise OSError("it is no file")
            if not _private(info, 0o022):
                return None
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)

    def put(self, key: str, entry: Entry) -> None:
        """Write the entry atomically; failures are silent (the cache is an optimisation)."""
        if not self.usable():
            return
        data = _encode(key, entry)
        try:
            descriptor, temporary = tempfile.mkstemp(_PART, ".", self.directory)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                os.replace(temporary, self.path(key))
            except OSError:
                os.unlink(temporary)
                return
            # counting thousands of files takes longer than compiling one: after many bytes, and,
            # as most processes write few, at one key of 256
            self._unseen += len(data)
            if self._unseen >= self.limit // 16 or key.startswith("00"):
                self._unseen = 0
                self.prune()
        except OSError:
            return

    def files(self) -> list[tuple[float, int, Path]]:
        """(time of writing, bytes, path) of every cached file, oldest first."""
        return self._listed(_SUFFIX)

    def _listed(self, ending: str) -> list[tuple[float, int, Path]]:
        found = []
        if self.usable():
            with contextlib.suppress(FileNotFoundError):        # the directory may go meanwhile
                for item in os.scandir(self.directory):
                    with contextlib.suppress(FileNotFoundError):        # and so may files
                        if item.name.endswith(ending):
                            info = item.stat(follow_symlinks=False)
                            found.append((info.st_mtime, info.st_size, Path(item.path)))
        return sorted(found)

    def prune(self) -> None:
        """Delete the oldest files until the bound holds, and what killed writers left."""
        for written, _, path in self._listed(_PART):
            if time.time() - written > _ABANDONED:
                path.unlink(missing_ok=True)
        files = self.files()
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self.limit:
                break
            path.unlink(missing_ok=True)
            total -= size

    def clear(self) -> int:
        """Delete every cached file; returns how many there were."""
        files = self.files()
        for _, _, path in files:
            path.unlink(missing_ok=True)
        return len(files)


def _private(info: os.stat_result, forbidden: int) -> bool:
    owner = getattr(os, "geteuid", lambda: info.st_uid)()
    return info.st_uid == owner and (os.name != "posix" or not info.st_mode & forbidden)


def _encode(key: str, entry: Entry) -> bytes:
    head = {"key": key, "symbols": list(entry.symbols), "size": len(entry.code),
            "sha256": hashlib.sha256(entry.code).hexdigest()}
    return _MAGIC + json.dumps(head).encode() + b"\n" + entry.code


def _decode(key: str, data: bytes) -> Entry | None:
    if not data.startswith(_MAGIC):
        return None
    head, _, code = data[len(_MAGIC):].partition(b"\n")
    try:
        fields = json.loads(head)
        good = (fields["key"] == key and fields["size"] == len(code)
                and fields["sha256"] == hashlib.sha256(code).hexdigest())
        symbols = tuple(fields["symbols"])
    except (ValueError, KeyError, TypeError):
        return None
    return Entry(symbols, code) if good else None
