"""Checkpointing under PyTorch's module name; see `adjoint.autograd.checkpoint`."""
from typing import Any

from adjoint.autograd.checkpoint import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    noop_context_fn,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)
from adjoint.autograd.selective import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint_name,
    create_selective_checkpoint_contexts,
)
from adjoint.memory.chain_run import auto, checkpoint_chain


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """The devices of the tensors in the arguments that have a random generator of their own, and
    its states: none, ([], [])."""
    return [], []


def set_device_states(devices: Any, states: Any, *, device_type: Any = None) -> None:
    """Nothing to set, for what `get_device_states` gives."""


__all__ = ["CheckpointError", "CheckpointPolicy", "SelectiveCheckpointContext", "auto",
           "checkpoint", "checkpoint_chain", "checkpoint_name", "checkpoint_sequential",
           "create_selective_checkpoint_contexts", "get_device_states", "noop_context_fn",
           "set_checkpoint_debug_enabled", "set_checkpoint_early_stop", "set_device_states"]
