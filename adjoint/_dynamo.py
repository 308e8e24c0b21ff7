"""`torch._dynamo`: what programs set before they call `compile`.

Programs run operation by operation, so that the settings are noted and nothing reads them; what
`compile` makes of a module is an `OptimizedModule`, whose names in `state_dict` are PyTorch's.
"""
from __future__ import annotations

import sys
from contextlib import ContextDecorator, nullcontext
from functools import reduce
from typing import Any

from adjoint.backends import Switches
from adjoint.compiler import allow_in_graph as allow_in_graph
from adjoint.compiler import assume_constant_result as assume_constant_result
from adjoint.compiler import compile
from adjoint.compiler import disable as disable
from adjoint.compiler import is_compiling as is_compiling
from adjoint.compiler import list_backends as list_backends
from adjoint.compiler import reset as reset
from adjoint.nn.modules.compiled import OptimizedModule as OptimizedModule

eval_frame = sys.modules[__name__]     # where PyTorch defines OptimizedModule


class _Patch(ContextDecorator):
    """Settings for a while."""

    def __init__(self, owner: Any, changes: dict[str, Any]) -> None:
        self.owner, self.changes = owner, changes
        self.before: list[tuple[Any, str, Any]] = []

    def __call__(self, f: Any) -> Any:
        return f if isinstance(f, type) else super().__call__(f)    # (nothing reads the settings)

    def __enter__(self) -> None:
        for name, new in self.changes.items():
            *path, last = name.split(".")
            place = reduce(getattr, path, self.owner)
            self.before.append((place, last, getattr(place, last)))
            setattr(place, last, new)

    def __exit__(self, *exc: object) -> None:
        while self.before:
            setattr(*self.before.pop())


class Settings(Switches):
    """Settings that a compiler would read. They can be set, for a while too (`patch`)."""

    def patch(self, names: Any = None, value: Any = None, **changes: Any) -> Any:
        """A `with`, and a decorator, with settings as given: `patch("a.b", 1)`, `patch({"a": 1})`
        or `patch(a=1)`. Behind it they are as they were.

        >>> with config.patch(cache_size_limit=1):
        ...     config.cache_size_limit
        1
        >>> config.cache_size_limit
        8
        """
        given = names if isinstance(names, dict) else {names: value} if names else {}
        return _Patch(self, {**given, **changes})


config = Settings(f"{__name__}.config", suppress_errors=False, cache_size_limit=8)


def graph_break(msg: str = "") -> None:
    """Nothing: there is no graph that could end here."""


def optimize(backend: Any = "inductor", *, nopython: bool = False, dynamic: bool | None = None,
             disable: bool = False, **hints: Any) -> Any:
    """`compile` as a decorator, under its older name.

    >>> optimize("eager")(len)([1])
    1
    """
    return compile(backend=backend, fullgraph=nopython, dynamic=dynamic, disable=disable)


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Nothing: a hint to PyTorch's compiler about a tensor."""


def mark_dynamic(t: Any, index: Any, **hints: Any) -> None:
    """Nothing: a hint to PyTorch's compiler about sizes of a tensor."""


mark_static = maybe_mark_dynamic = mark_dynamic


class TransformGetItemToIndex(nullcontext[None]):
    """Within it, PyTorch's compiler takes numbers of a `vmap` for indices. They are, everywhere."""
