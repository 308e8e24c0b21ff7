"""DistributedDataParallel: one copy of a module per process, gradients averaged over them all."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from adjoint import distributed
from adjoint.autograd.engine import queue_callback
from adjoint.autograd.modes import is_grad_enabled, no_grad
from adjoint.base.errors import ArgumentError, StructureError
from adjoint.core.tensor import wrap
from adjoint.distributed.bucket import GradBucket
from adjoint.distributed.collectives import average, reduce_all
from adjoint.distributed.group import the
from adjoint.nn.modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Calls `module`; at the end of every backward each gradient becomes its mean over the group.

    Parameters and buffers begin as rank 0's; buffers are rank 0's again at every forward that
    follows one whose gradients were to be averaged (`broadcast_buffers`). Every process must run
    the same backwards. A parameter without a gradient on some ranks counts as zero there; one
    without on all ranks stays without.

    device_ids, output_device, bucket_cap_mb, find_unused_parameters, static_graph and
    gradient_as_bucket_view are accepted: there is one device, gradients travel in one message per
    dtype, and unused parameters are always found.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None,
                 dim: int = 0, broadcast_buffers: bool = True, init_sync: bool = True,
                 process_group: Any = None, bucket_cap_mb: float | None = None,
                 find_unused_parameters: bool = False, check_reduction: bool = False,
                 gradient_as_bucket_view: bool = False, static_graph: bool = False,
                 **_: Any) -> None:
        super().__init__()
        self.process_group = the(process_group)
        self.module, self.dim, self.broadcast_buffers = module, dim, broadcast_buffers
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._queued, self._hook = False, None
        self.device_ids = self.output_device = None
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        wanted = [p for p in module.parameters() if p.requires_grad]
        if not wanted:
            raise ArgumentError("DistributedDataParallel is not needed when a module doesn't have "
                                "any parameter that requires a gradient.")
        object.__setattr__(self, "_wanted", wanted)
        if init_sync:
            self._spread([*module.parameters(), *module.buffers()])
        for p in wanted:
            p.register_post_accumulate_grad_hook(self._arrived)

    def _spread(self, tensors: list[Any]) -> None:
        for t in tensors:
            distributed.broadcast(t.detach(), self.process_group.ranks[0], self.process_group)

    def _arrived(self, _: Any) -> None:
        if self.require_backward_grad_sync and not self._queued:
            self._queued = True
            queue_callback(self._synchronize)

    def _synchronize(self) -> None:
        """Average the gradients; those that no rank has are left out, by agreement."""
        self._queued = False
        wanted: list[Any] = self.__dict__["_wanted"]
        have = np.array([p.grad is not None for p in wanted], np.uint8)
        some = reduce_all(self.process_group, have, "max")
        for p, there, anywhere in zip(wanted, have, some, strict=True):
            if anywhere and not there:
                p.grad = wrap(np.zeros_like(p.array))
        made = [p for p, anywhere in zip(wanted, some, strict=True) if anywhere]
        if self._hook is None:
            average([p.grad for p in made], self.process_group)
        else:
            self._by_hook(made)

    def _by_hook(self, made: list[Any]) -> None:
        state, hook = self.__dict__["_hook"]
        kinds = list(dict.fromkeys(p.grad.dtype for p in made))
        for i, kind in enumerate(kinds):
            bucket = GradBucket(i, i == len(kinds) - 1, [p for p in made if p.grad.dtype == kind])
            with no_grad():
                found = hook(state, bucket).wait()
            bucket.put(found[0] if isinstance(found, (list, tuple)) else found)

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Let `hook(state, bucket)` do what is done with the gradients, in place of their mean: a
        Future of the vector that they become. There is a bucket for each dtype."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self._hook is not None:
            raise StructureError("register_comm_hook or register_builtin_comm_hook can only be "
                                 "called once.")
        self.__dict__["_hook"] = (state, hook)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, backwards only accumulate; the first one outside averages the sums."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.broadcast_buffers and self.require_forward_param_sync:
            self._spread(list(self.module.buffers()))
        out = self.module(*inputs, **kwargs)
        self.require_forward_param_sync = is_grad_enabled() and self.require_backward_grad_sync
        return out
