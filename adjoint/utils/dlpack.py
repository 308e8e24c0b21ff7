"""Exchange of arrays without copying, by the DLPack protocol."""
from typing import Any

from adjoint.core.tensor import Tensor
from adjoint.protocols import from_dlpack as from_dlpack


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule that another library's `from_dlpack` takes, once."""
    return tensor.__dlpack__()
