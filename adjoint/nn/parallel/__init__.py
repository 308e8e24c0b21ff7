"""Data parallelism over devices: with one CPU device, the module itself."""
from __future__ import annotations

from adjoint.nn.parallel.data_parallel import DataParallel, data_parallel

__all__ = ["DataParallel", "data_parallel"]
