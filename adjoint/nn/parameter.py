"""Parameter, and Buffer: a tensor that registers itself as a buffer when assigned to a module."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.core.tensor import Parameter, Tensor

__all__ = ["Buffer", "Parameter"]


class Buffer(Tensor):
    """A tensor that becomes a module's buffer by plain assignment.

    ``persistent=False`` keeps it out of ``state_dict()``. Shares memory with ``data``.

    >>> import adjoint as ad
    >>> m = ad.nn.Module(); m.mean = ad.nn.Buffer(ad.zeros(3)); list(m.state_dict())
    ['mean']
    """

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        if data is None:
            data = np.empty(0, np.float32)
        super().__init__(data.array if isinstance(data, Tensor) else np.asarray(data))
        self.persistent = persistent
