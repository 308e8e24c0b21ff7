"""Data parallelism: over devices (with one CPU device, the module itself), over processes."""
from __future__ import annotations

from adjoint.nn.parallel.data_parallel import DataParallel, data_parallel
from adjoint.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]
