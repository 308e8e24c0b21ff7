"""`autograd.builtins`: containers, and types that see through boxes.

Lists, tuples and dicts with boxes in them are the builtins themselves.
"""
from __future__ import annotations

import builtins
from builtins import dict, list, tuple  # noqa: UP029 - given on under these names
from typing import Any

from adjoint.hips.box import Box


def isinstance(x: Any, kind: Any) -> bool:
    """The builtin, where a box is of the type of its value as well."""
    return builtins.isinstance(x, kind) or (
        builtins.isinstance(x, Box) and builtins.isinstance(x._value, kind))


def type(x: Any) -> Any:
    """The builtin; of a box the type of its value."""
    return builtins.type(x._value if builtins.isinstance(x, Box) else x)


__all__ = ["dict", "isinstance", "list", "tuple", "type"]
