"""Averages of gradients over the ranks, as they are or in 16 bits on the way."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.base import dtypes
from adjoint.core.tensor import Tensor
from adjoint.distributed.bucket import GradBucket
from adjoint.distributed.collectives import all_reduce
from adjoint.distributed.group import ProcessGroup, the
from adjoint.futures import Future

__all__ = ["allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook",
           "fp16_compress_wrapper"]
Hook = Callable[[Any, GradBucket], Future]


def known(value: Tensor) -> Future:
    """A future that has its value."""
    future = Future()
    future.set_result(value)
    return future


def _averaged(group: ProcessGroup | None, bucket: GradBucket, dtype: Any) -> Future:
    g, buffer = the(group), bucket.buffer()
    sent = buffer.to(dtype).div_(g.size())
    all_reduce(sent, group=g)
    return known(buffer.copy_(sent))


def allreduce_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future:
    """The mean over the ranks, which is what is done without a hook."""
    return _averaged(process_group, bucket, bucket.buffer().dtype)


def fp16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future:
    """The same, sent as float16."""
    return _averaged(process_group, bucket, dtypes.float16)


def bf16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future:
    """The same, sent as bfloat16."""
    return _averaged(process_group, bucket, dtypes.bfloat16)


def _compressed(hook: Hook, dtype: Any) -> Hook:
    def run(state: Any, bucket: GradBucket) -> Future:
        own = bucket.buffer()
        bucket.set_buffer(own.to(dtype))
        return known(own.copy_(hook(state, bucket).wait()))
    return run


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that is given the gradients as float16."""
    return _compressed(hook, dtypes.float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that is given the gradients as bfloat16."""
    return _compressed(hook, dtypes.bfloat16)
