"""What ops and backward rules will ask the allocator for, before they are known."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray, aval_of
from adjoint.core.tensor import Tensor


def asked(error: Any) -> int:
    """Bytes of the request that NumPy was refused."""
    try:
        shape, dtype = error.args
        return int(np.prod(shape, dtype=np.int64)) * int(dtype.itemsize)
    except (AttributeError, TypeError, ValueError):
        return 0


def plain(values: Any) -> bool:
    """Whether these are arrays and tensors with memory, outside of transforms."""
    return all(not isinstance(v, Tensor) or (not v.level and type(v.array) is np.ndarray)
               for v in values) and not any(isinstance(v, MetaArray) for v in values)


def _shape(a: Any) -> Any:
    if isinstance(a, Tensor):
        return tuple(a.shape), a.array.dtype if not a.level else None
    return (a.shape, a.dtype) if isinstance(a, np.ndarray) else None


def key(name: str, args: Any) -> Any:
    """What an op is known by from one step to the next: its name, and what it reads."""
    return name, tuple([_shape(a) for a in args])


def guess(op: Any, args: Any, attrs: Any) -> int:
    """Bytes an op will ask for, before it was ever seen: those of its results."""
    if op.view or not plain(args):
        return 0
    try:
        arrays = [a.array if isinstance(a, Tensor) else a for a in args]
        if op.prepare is not None:
            arrays = op.prepare(arrays)
        made = op.infer(*(None if a is None else aval_of(a) for a in arrays), **attrs)
    except Exception:  # the op itself will say what is wrong with its operands
        return 0
    return sum(_size(a) for a in (made if type(made) in (tuple, list) else (made,)))


def _size(a: Aval) -> int:
    return int(np.prod(a.shape, dtype=np.int64)) * int(a.dtype.itemsize)


def guess_backward(node: Any) -> int:
    """Bytes the rules of a node will ask for: a cotangent per operand, and one more."""
    sizes = [0]
    for e in node.edges:
        if e is not None and e.shape is not None and not getattr(e, "ports", 0):
            sizes.append(8 * int(np.prod(tuple(e.shape), dtype=np.int64)) // 2)
    return sum(sizes) + max(sizes)
