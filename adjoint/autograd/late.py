"""Parts of the backward pass that load when they are first of use."""
from __future__ import annotations

from typing import Any

from adjoint.base.tier import pays

_walkers: list[Any] = []


def walker(nodes: int, large: int, whole: int) -> Any:
    """What visits plain nodes in machine code (sums of `large` elements and cotangents of `whole`
    are left to the engine); None where there is none, or before it pays."""
    if not _walkers and pays(nodes):
        from adjoint.autograd import plain  # loaded with the machine code
        _walkers.append(plain.walker(large, whole))
    return _walkers[0] if _walkers else None


def adding() -> Any:
    """What puts cotangents where there is memory already: into sums, over other cotangents."""
    from adjoint.autograd import sums  # loaded by the first backward that can
    return sums
