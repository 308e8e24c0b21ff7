"""Parameter, and Buffer: a tensor that registers itself as a buffer when assigned to a module."""
from __future__ import annotations

import numpy as np

from adjoint.core.tensor import Parameter, Tensor, share_cell, wrap

__all__ = ["Buffer", "Parameter"]


class Buffer(Tensor):
    """A tensor that becomes a module's buffer by plain assignment.

    ``persistent=False`` keeps it out of ``state_dict()``. Shares memory with ``data``.

    >>> import adjoint as ad
    >>> m = ad.nn.Module(); m.mean = ad.nn.Buffer(ad.zeros(3)); list(m.state_dict())
    ['mean']
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        t: Buffer = object.__new__(cls)
        if data is None:
            data = wrap(np.empty(0, np.float32))
        if not isinstance(data, Tensor):
            raise TypeError(f"Buffer(data) takes a tensor, got {type(data).__name__}")
        t.array, t._cell, t._edge, t._rg = data.array, share_cell(data), None, False
        t.persistent = persistent
        return t

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        pass
