"""Sizes in bytes, read from words."""
from __future__ import annotations

import os
import re

from adjoint.base.errors import ArgumentError

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
         "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def parse_bytes(size: int | float | str) -> int:
    """A size in bytes: a number, "2GB" (10^9), "512MiB" (2^20), "60%" of the machine's memory.

    >>> parse_bytes("2GB"), parse_bytes("1.5 KiB"), parse_bytes(10)
    (2000000000, 1536, 10)
    """
    if isinstance(size, int | float) and not isinstance(size, bool):
        return int(size)
    found = re.fullmatch(r"\s*([0-9][0-9_,]*\.?[0-9]*(?:e[0-9]+)?)\s*([a-z]*|%)\s*",
                         str(size).lower())
    if not found or (found[2] != "%" and found[2] not in UNITS):
        raise ArgumentError(f"{size!r} is no size in bytes: give a number, or words such as "
                            "'2GB', '512MiB' or '60%' (of the machine's memory)")
    number = float(found[1].replace(",", "").replace("_", ""))
    if number > 1e30:
        raise ArgumentError(f"{size!r} is more bytes than there are")
    if found[2] == "%":
        return int(machine_memory() * number / 100)
    return int(number * UNITS[found[2]])


def machine_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or the limit of its group."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") \
        if hasattr(os, "sysconf") else 1 << 34
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="ascii") as f:
                text = f.read().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return int(total)
