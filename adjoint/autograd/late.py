"""Parts of the backward pass that load when they are first of use."""
from __future__ import annotations

from typing import Any

from adjoint.base.tier import pays

_walkers: list[Any] = []


def walker(nodes: int, large: int) -> Any:
    """What visits plain nodes in machine code (sums of `large` elements are left to the engine);
    None where there is none, or before it pays."""
    if not _walkers and pays(nodes):
        from adjoint.autograd import plain  # loaded with the machine code
        _walkers.append(plain.walker(large))
    return _walkers[0] if _walkers else None


def adding() -> Any:
    """What adds cotangents to those that have arrived."""
    from adjoint.autograd import sums  # loaded by the first backward that can
    return sums
