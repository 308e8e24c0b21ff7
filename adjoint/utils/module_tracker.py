"""`torch.utils.module_tracker`: in which modules the program is, forward and backward.

    >>> import adjoint as ad
    >>> with ModuleTracker() as tracker:
    ...     layer = ad.nn.Linear(2, 2)
    ...     _ = layer.register_forward_hook(lambda *_: print(sorted(tracker.parents)))
    ...     y = layer(ad.ones(1, 2))
    ['Global', 'Linear']
"""
from __future__ import annotations

from typing import Any, Self
from weakref import WeakKeyDictionary

from adjoint.base.errors import missing
from adjoint.core.modes import Observer, watchers

__all__ = ["ModuleTracker"]


class Where(Observer):
    """In which module nodes are made, and which node's rules run."""

    def __init__(self) -> None:
        self.made: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()
        self.now: tuple[str, ...] | None = None

    def forward(self, node: Any, args: Any, made: Any) -> None:
        self.made[node] = self.here()

    def before_backward(self, node: Any, ct: Any) -> None:
        self.now = self.made.get(node, ())

    def end_walk(self, walk: Any) -> None:
        self.now = None

    def here(self) -> tuple[str, ...]:
        """Names of the modules that the present op belongs to, the outermost first."""
        if self.now is not None:
            return self.now
        stack = watchers.modules.get()
        if not stack:
            return ()
        top = type(stack[0][1]).__name__
        return tuple(top + f".{path}" if path else top for path, _ in stack)


class ModuleTracker:
    """While it is entered, `parents` is the set of names of the modules that are running: "Global",
    the class of the outermost ("Net"), and paths below it ("Net.layer.0"). In backward it is that
    of the node whose rule runs, and `is_bw` is True."""

    def __init__(self) -> None:
        self._where = Where()

    @property
    def parents(self) -> set[str]:
        """The names."""
        return {"Global", *self._where.here()}

    @property
    def is_bw(self) -> bool:
        """True while backward runs."""
        return self._where.now is not None

    def __enter__(self) -> Self:
        self._observing = watchers.push(watchers.observers, self._where)
        return self

    def __exit__(self, *exc: Any) -> None:
        watchers.pop(self._observing)


__getattr__ = missing("adjoint.utils.module_tracker")
