"""Two tensors exchange what they are."""
from __future__ import annotations

import weakref
from typing import Any

from adjoint.base.errors import NotSupported
from adjoint.core.tensor import AccumulateGrad, bump, share_cell


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchange what two tensors are: values, class, gradient, history and attributes. Whoever holds
    one of the objects sees the other's content from now on. A graph that kept the values of one
    says so at backward; tensors with views, and views, are refused.

    >>> import adjoint as ad
    >>> a, b = ad.zeros(2), ad.nn.Parameter(ad.ones(3))
    >>> ad.utils.swap_tensors(a, b); a.requires_grad, a.shape, b.tolist()
    (True, adjoint.Size([3]), [0.0, 0.0])
    """
    for name, t in (("t1", t1), ("t2", t2)):
        views = any(ref() is not None for ref in t._kids or ())
        if t.level or views or t._base is not None or t._retains and not t.is_leaf:
            raise NotSupported(f"Cannot swap {name} because it has views, is one, belongs to a "
                               "transform or retains the gradient of a node; clone it first")
    if t1 is t2:
        return
    top = max(share_cell(t1).version, share_cell(t2).version)
    for t in (t1, t2):                   # what a graph kept of either counts as overwritten
        share_cell(t).version = top
        bump(t, "swap_tensors")
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    for slot in ("array", "_rg", "_edge", "_cell", "__dict__"):
        mine, other = getattr(t1, slot), getattr(t2, slot)
        setattr(t1, slot, other)
        setattr(t2, slot, mine)
    for t in (t1, t2):
        if type(t._edge) is AccumulateGrad:
            t._edge._leaf = weakref.ref(t)
