"""What LLVM says of this machine, remembered beside the kernels it compiled.

Asking LLVM means loading it: 50 ms and 80 MB, for some words that have not changed since the last
process asked. They are kept in the cache of kernels, trusted by the same checks, under a key of
all they follow from: what Linux says of the CPU, llvmlite's version, and which file LLVM's library
is and when it was last changed. Where any of that cannot be told, LLVM is asked.
"""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from adjoint.kernels.cache import Entry, Store, key_of

_FORMAT = "host 1"
_TOLD = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
_CPUINFO = Path("/proc/cpuinfo")
_ENOUGH = 16384                          # bytes of it that hold the first processor


class Host(NamedTuple):
    """LLVM's version and what it calls this machine, its CPU and the CPU's features."""

    llvmlite: str
    llvm: str
    triple: str
    cpu: str
    features: str


def key(llvmlite: Any) -> str:
    """The key in the cache of what LLVM would say; empty where that cannot be known unasked.

    Args:
        llvmlite: the package. Importing it does not load LLVM; importing `llvmlite.binding` does.
    """
    cpu = _cpu()
    try:
        folder = os.path.join(llvmlite.__path__[0], "binding")
        files = [(e.name, e.stat()) for e in os.scandir(folder) if ".so" in e.name]
    except (OSError, AttributeError, IndexError):
        return ""
    libraries = sorted(repr((folder, name, s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns))
                       for name, s in files)
    if not cpu or not libraries:
        return ""
    return key_of(_FORMAT, cpu, str(llvmlite.__version__), *libraries)


def _cpu() -> str:
    """What Linux says of the first processor; empty elsewhere."""
    try:
        with open(_CPUINFO, "rb") as file:
            text = file.read(_ENOUGH).partition(b"\n\n")[0].decode()
    except (OSError, UnicodeError):
        return ""
    lines = [line for line in text.splitlines() if line.partition("\t")[0].strip() in _TOLD]
    return "\n".join(lines) if any(line.startswith("flags") for line in lines) else ""


def known(store: Store, key: str) -> Host | None:
    """What LLVM said when it was last asked; None where that is not known."""
    entry = store.get(key) if key else None
    if entry is None:
        return None
    try:
        return Host(*json.loads(entry.code))
    except (ValueError, TypeError):
        return None


def remember(store: Store, key: str, host: Host) -> None:
    """Keep what LLVM said for the next process."""
    if key:
        store.put(key, Entry((), json.dumps(host).encode()))
