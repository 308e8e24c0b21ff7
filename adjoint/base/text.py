"""Numbers as people read them."""
from __future__ import annotations

_DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def printable(text: str) -> str:
    """`text` with a mark in place of every character that could steer a terminal.

    >>> printable("a\\tb\\n\\x1b[2Jc")
    'a\\tb\\n\ufffd[2Jc'
    """
    return "".join(c if c in "\t\n" or c.isprintable() else "\ufffd" for c in text)


def format_bytes(n: float, form: str = ".1f", *, binary: bool = False) -> str:
    """A size with a unit of its magnitude; whole bytes stay whole.

    form    of the number before a unit above bytes
    binary  powers of 1024 (KiB, ...) instead of 1000

    >>> format_bytes(512), format_bytes(3_250_000), format_bytes(-2048, ".2f", binary=True)
    ('512 B', '3.2 MB', '-2.00 KiB')
    """
    base, units = (1024, _BINARY) if binary else (1000, _DECIMAL)
    power = 0
    while abs(n) >= base and power < len(units) - 1:
        n /= base
        power += 1
    return f"{n:{form if power else '.0f'}} {units[power]}"
