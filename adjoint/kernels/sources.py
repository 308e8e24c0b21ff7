"""The digest of the sources that generate kernels: part of the key of every cached kernel.

Reading and hashing them takes 1.5 to 2.5 ms, most of what the first kernel of a process would take
from the cache. So the digest is kept there too, under a key of what the system says of the files:
names, sizes, inodes, and when each was last changed (`st_ctime_ns`, which a program cannot set).
It is kept only where nothing was changed in the last seconds or while it was read: whatever is
changed later has a later time, and thereby another key.
"""
from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from adjoint.kernels.cache import Entry, Store, key_of

_SETTLED = 3_000_000_000          # nanoseconds; file systems tell times apart that differ by less

_Listing = list[tuple[str, int, int, int, int]]


def digest(folder: Path, store: Store) -> str:
    """SHA-256 over the Python files of a folder, in the order of their names."""
    listed = _listing(folder)
    key = key_of("sources 1", str(folder), repr(listed))
    known = store.get(key) if listed else None
    if known is not None:
        return known.code.decode()
    found = read(folder)
    if listed and listed == _listing(folder) and time.time_ns() - max(
            changed for *_, changed in listed) > _SETTLED:
        store.put(key, Entry((), found.encode()))
    return found


def read(folder: Path) -> str:
    """The digest, from the files themselves."""
    made = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        made.update(path.read_bytes())
    return made.hexdigest()


def _listing(folder: Path) -> _Listing:
    """What the system says of the files; empty where its times do not say when they changed."""
    if os.name != "posix":
        return []
    found = [(e.name, e.stat()) for e in os.scandir(folder) if e.name.endswith(".py")]
    return sorted((n, s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for n, s in found)
