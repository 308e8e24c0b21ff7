"""Numbers and texts as people read them."""
from __future__ import annotations

import re
import sys
from typing import TextIO

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


def fold(text: str, width: int) -> str:
    """`text` with every line longer than `width` characters broken at spaces. What goes on stands
    below the last column of its line (columns are two spaces apart), or below its indent.

    >>> print(fold("  fix:  give the optimizer all parameters", 26))
      fix:  give the optimizer
            all parameters
    """
    out: list[str] = []
    for line in text.split("\n"):
        columns = [m.end() for m in re.finditer(r"^ *|(?<=\S) {2,}", line)]
        indent = " " * max(c for c in columns if c <= width - 16 or c == columns[0])
        while len(line) > width:
            at = line.rfind(" ", len(indent) + 1, width + 1)
            if at < 0:
                at = line.find(" ", width)      # one long word: whole, so that it can be copied
            if at < 0:
                break
            out.append(line[:at].rstrip())
            line = indent + line[at:].lstrip()
        out.append(line)
    return "\n".join(out)


def say(text: str, file: TextIO | None = None) -> None:
    """Print `text` to `file` (standard output): on a terminal folded to its width, elsewhere line
    by line as it is, for other programs to read."""
    to = sys.stdout if file is None else file
    if to.isatty():
        import shutil
        text = fold(text, max(40, shutil.get_terminal_size().columns))
    print(text, file=to)
