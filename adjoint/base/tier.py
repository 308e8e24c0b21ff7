"""When small operations get machine code of their own.

Loading the compiler's code for them costs as much as several thousand of them take in Python, so a
process that runs few never pays for it. Values, bits and memory are the same before and after.
"""
from __future__ import annotations

ENOUGH = 2000        # small operations after which machine code pays

_seen = 0


def pays(operations: int = 1) -> bool:
    """Count that many operations more; True once there were enough of them.

    >>> pays(ENOUGH) and pays()
    True
    """
    global _seen
    _seen += operations
    return _seen >= ENOUGH


def at_once() -> None:
    """Load machine code at the first use from now on: for tests and measurements."""
    pays(ENOUGH)
