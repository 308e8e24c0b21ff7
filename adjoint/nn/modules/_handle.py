"""Handles that undo a hook registration, and the ordered tables they point into."""
from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Any

HookTable = OrderedDict[int, Any]
_ids = itertools.count()


class RemovableHandle:
    """What every ``register_*_hook`` returns: ``remove()`` takes the hook away again.

    Holding the handle keeps neither the module nor the hook alive. Used as a context manager
    it removes the hook at the end of the block.

    >>> table = OrderedDict()
    >>> handle = RemovableHandle(table)
    >>> table[handle.id] = print
    >>> handle.remove()
    >>> len(table)
    0
    """

    def __init__(self, table: HookTable, *, extra: HookTable | tuple[HookTable, ...] = ()) -> None:
        self.id = next(_ids)
        extras = extra if isinstance(extra, tuple) else (extra,)
        self._tables: tuple[Callable[[], HookTable | None], ...] = tuple(
            weakref.ref(t) for t in (table, *extras))

    def remove(self) -> None:
        """Take the hook away; a second call does nothing."""
        for ref in self._tables:
            table = ref()
            if table is not None:
                table.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.remove()

    def __getstate__(self) -> tuple[int, tuple[HookTable | None, ...]]:
        return self.id, tuple(ref() for ref in self._tables)

    def __setstate__(self, state: tuple[int, tuple[HookTable | None, ...]]) -> None:
        self.id = state[0]
        self._tables = tuple(weakref.ref(t if t is not None else OrderedDict()) for t in state[1])


def add_hook(table: HookTable, hook: Any, *, prepend: bool = False,
             extra: tuple[HookTable, ...] = ()) -> RemovableHandle:
    """Put ``hook`` into ``table`` (in front if ``prepend``) and return its handle."""
    handle = RemovableHandle(table, extra=extra)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle
