"""Writing a file so that a crash at any moment leaves the old contents or the new ones.

The bytes go to a temporary file in the same folder, which is fsynced and renamed over the
target; then the folder is fsynced, so that the rename itself survives a power cut.
"""
from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_serial = itertools.count()
_SUFFIX = ".partial"


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Flush a folder's entries to the disk; does nothing where the system cannot."""
    if os.name != "posix":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A writable binary file that becomes `path` when the block ends without an exception.

    After an exception (a full disk, Ctrl-C) `path` is as it was and nothing is left beside it.

    >>> import tempfile, os
    >>> target = os.path.join(tempfile.mkdtemp(), "a.bin")
    >>> with atomic_write(target) as f:
    ...     _ = f.write(b"whole")
    >>> Path(target).read_bytes()
    b'whole'
    """
    target = Path(path)
    scratch = target.with_name(f".{target.name}.{os.getpid()}.{next(_serial)}{_SUFFIX}")
    fd = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with open(fd, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, target)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise
    sync_folder(target.parent)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the contents of `path` in one step.

    >>> import tempfile, os
    >>> write_bytes(os.path.join(tempfile.mkdtemp(), "b"), b"xyz")
    """
    with atomic_write(path) as file:
        file.write(data)


def remove_partial(folder: str | os.PathLike[str]) -> int:
    """Delete what killed writers left in `folder`; returns how many files that were.

    Call it only where no other process is writing.
    """
    count = 0
    for leftover in Path(folder).glob(f".*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            leftover.unlink()
            count += 1
    return count
