"""Data parallelism: over devices (with one CPU device, the module itself), over processes."""
from __future__ import annotations

from adjoint.nn.parallel.data_parallel import DataParallel, data_parallel
from adjoint.nn.parallel.distributed import DistributedDataParallel
from adjoint.nn.parallel.parallel_apply import parallel_apply
from adjoint.nn.parallel.replicate import replicate
from adjoint.nn.parallel.scatter_gather import gather, scatter

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply",
           "replicate", "scatter"]
