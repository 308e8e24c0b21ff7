"""Where gradients end: accumulation into `.grad` of leaves."""
from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np

from adjoint.autograd import graph
from adjoint.autograd.late import adding
from adjoint.base.aval import MetaArray
from adjoint.core.held import ALONE, own, refs, sole
from adjoint.core.modes import GRAD_LAYOUT
from adjoint.core.rehearsal import call
from adjoint.core.tensor import AccumulateGrad, Tensor, bump, wrap
from adjoint.ops.accelerate import plus
from adjoint.ops.device import in_order, laid_as
from adjoint.ops.shape import clone_op

_LARGE = 1 << 16  # elements of a cotangent of which no copy is made if waiting for it spares one
_lock = threading.RLock()   # several threads may run backward on graphs that share leaves


def accumulate(node: AccumulateGrad, ct: Any, walk: Any) -> None:
    """leaf.grad += ct, then the hooks that wait for the accumulated gradient."""
    leaf = node._leaf()
    if leaf is None:
        return graph.gone(walk, node)
    if not leaf._rg:                # taken back since the graph was made
        return
    if (array := leaf.array).shape != ct.shape or array.dtype != getattr(ct, "array", ct).dtype:
        node.follow(array)
    with _lock:
        if (type(ct) is type(array) is np.ndarray and leaf._grad is None and refs(ct) <= ALONE + 1
                and sole(ct) and array.flags.c_contiguous):
            leaf._grad = wrap(ct)       # nobody else has it: what `_store` would do, at once
        elif isinstance(ct, Tensor):
            have = leaf._grad
            if have is None and walk.levels:
                ct = ct.trace.detach(ct) if ct.level else wrap(np.array(ct.array))
            elif have is None:
                ct = owned(ct)
            leaf._grad = ct if have is None else have + ct
        elif leaf._grad is None and ct.size >= _LARGE and adding().waits(walk, node, ct):
            return
        else:
            _store(leaf, ct)
        walk.stored.append(node)
    if node._accumulated or node._post_hooks:
        graph.after_leaf(walk, node, leaf, ct)


def owned(ct: Tensor) -> Any:
    """A gradient of a walk with a graph for one place alone: a copy, if it has a history."""
    if ct.is_sparse:
        return ct
    return clone_op(ct) if ct._rg or ct.level else wrap(own(ct.array, 0))


def _store(leaf: Tensor, ct: Any) -> None:
    have = leaf._grad
    if have is None:
        leaf._grad = wrap(own(ct, 4) if in_order(leaf.array) or not GRAD_LAYOUT.get()
                          else laid_as(leaf.array, ct))
    elif have._rg or have.is_sparse:
        leaf._grad = have.detach() + wrap(ct)
    else:
        a = have.array
        (partial(call, plus, otherwise=tuple) if type(a) is MetaArray else plus)(a, ct, out=a)
        bump(have, "gradient accumulation")


def zero_gradient(grad: Any) -> None:
    """Fill a gradient with zeros and cut it from its graph. One that a program has set may be a
    view, which cannot be detached in place and, without a graph, need not be."""
    (grad.detach_() if grad.grad_fn is not None else grad.requires_grad_(False)).zero_()
