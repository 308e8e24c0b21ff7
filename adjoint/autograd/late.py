"""Parts of the backward pass that load when they are first of use."""
from __future__ import annotations

from typing import Any

from adjoint.base.tier import pays

_loaded: list[tuple[Any, Any]] = []


def machine(nodes: int, large: int, whole: int) -> tuple[Any, Any]:
    """What visits plain nodes in machine code (sums of `large` elements and cotangents of `whole`
    are left to the engine), and what finds the nodes to visit; (None, None) where there is none,
    or before it pays."""
    if not _loaded and pays(nodes):
        from adjoint.autograd import plain  # loaded with the machine code
        _loaded.append(plain.walker(large, whole) or (None, None))
    return _loaded[0] if _loaded else (None, None)


def choices() -> Any:
    """What keeps branches that a choice did not take from spoiling a gradient."""
    from adjoint.autograd import masks  # loaded by the first backward of a choice
    return masks


def adding() -> Any:
    """What puts cotangents where there is memory already: into sums, over other cotangents."""
    from adjoint.autograd import sums  # loaded by the first backward that can
    return sums


def duals() -> Any:
    """Forward mode as a context, whose tensors `backward` and `grad` may meet."""
    from adjoint.autograd import forward_ad  # loaded with the first level of dual tensors
    return forward_ad


def leaf_dtypes() -> Any:
    """What gives gradients of leaves dtypes of their own."""
    from adjoint.autograd import leaf_dtypes as found  # loaded by the first question for one
    return found


def drawing() -> Any:
    """What walks where a graph is built or values of a transform flow, and nobody looks on."""
    from adjoint.autograd import draw  # loaded by the first such backward
    return draw
