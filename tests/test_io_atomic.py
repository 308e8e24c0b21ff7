"""Atomic writing: after any failure the old contents are there and nothing lies beside them."""
from __future__ import annotations

import os
import subprocess
import sys

import pytest

from adjoint.io.atomic import atomic_write, remove_partial, write_bytes


def test_replaces_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a"
    write_bytes(path, b"one")
    write_bytes(path, b"two")
    assert path.read_bytes() == b"two" and os.listdir(tmp_path) == ["a"]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_an_exception_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    write_bytes(path, b"old")
    with pytest.raises(KeyboardInterrupt):
        with atomic_write(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    write_bytes(path, b"old")
    code = ("import resource, sys; from adjoint.io.atomic import write_bytes\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
            "try: write_bytes(sys.argv[1], bytes(5000))\n"
            "except OSError as error: sys.exit(error.errno)")
    done = subprocess.run([sys.executable, "-c", code, str(path)])
    import errno
    assert done.returncode == errno.EFBIG
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_leftovers_of_killed_writers_are_removed(tmp_path):
    path = tmp_path / "a"
    code = ("import os, signal, sys; from adjoint.io.atomic import atomic_write\n"
            "with atomic_write(sys.argv[1]) as f:\n"
            "    f.write(bytes(100)); f.flush(); os.kill(os.getpid(), signal.SIGKILL)")
    subprocess.run([sys.executable, "-c", code, str(path)])
    assert len(os.listdir(tmp_path)) == 1 and not path.exists()
    assert remove_partial(tmp_path) == 1 and os.listdir(tmp_path) == []
