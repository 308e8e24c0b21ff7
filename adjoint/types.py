"""Names for annotations, as in `torch.types`: Number, Device, FileLike, Storage."""
from __future__ import annotations

import os
from typing import IO, Any

from adjoint.base.dtypes import DType
from adjoint.core.tensor import Size as Size
from adjoint.core.tensor import Tensor as Tensor
from adjoint.ops.device import device as _device

Number = int | float | bool
Device = _device | str | int | None
FileLike = str | os.PathLike[str] | IO[bytes]
Storage = Any
_dtype = DType
_size = Size | list[int] | tuple[int, ...]
_int, _float, _bool, _complex = int, float, bool, complex
__all__ = ["Device", "FileLike", "Number", "Size", "Storage", "Tensor"]
