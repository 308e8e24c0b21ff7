"""Ordered tables of hooks, and entering them."""
from __future__ import annotations

from collections import OrderedDict
from typing import Any

from adjoint.core.tensor import RemovableHandle as RemovableHandle

HookTable = OrderedDict[int, Any]


def add_hook(table: HookTable, hook: Any, *, prepend: bool = False,
             extra: tuple[HookTable, ...] = ()) -> RemovableHandle:
    """Put ``hook`` into ``table`` (in front if ``prepend``) and return its handle."""
    handle = RemovableHandle(table, extra_dict=extra)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


def typename(value: Any) -> str:
    """What an error calls a value: "torch.FloatTensor", "int"."""
    from adjoint.legacy import typename as named  # loaded for an error alone

    return named(value)
