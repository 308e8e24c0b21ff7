"""`jax.typing`: names for annotations."""
from typing import Any

from adjoint.jax._array import Array

ArrayLike = Array | Any
DTypeLike = Any
__all__ = ["ArrayLike", "DTypeLike"]
