"""Hooks for `DistributedDataParallel.register_comm_hook`, and registering them by name."""
from __future__ import annotations

import enum
from functools import partial
from typing import Any

from adjoint.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks
from adjoint.distributed.group import the

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


class DDPCommHookType(enum.Enum):
    """The hooks that are here."""

    ALLREDUCE = partial(default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = partial(default_hooks.bf16_compress_hook)
    NOOP = partial(debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Register one of them with a data parallel module; `state` is the group (the default one)."""
    model.register_comm_hook(the(state), comm_hook_type.value)
