"""Checkpointing under PyTorch's module name; see `adjoint.autograd.checkpoint`."""
from adjoint.autograd.checkpoint import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    noop_context_fn,
    set_checkpoint_early_stop,
)

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn",
           "set_checkpoint_early_stop"]
