"""Checkpointing under PyTorch's module name; see `adjoint.autograd.checkpoint`."""
from adjoint.autograd.checkpoint import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    noop_context_fn,
    set_checkpoint_early_stop,
)
from adjoint.autograd.selective import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint_name,
    create_selective_checkpoint_contexts,
)
from adjoint.memory.chain_run import auto, checkpoint_chain

__all__ = ["CheckpointError", "CheckpointPolicy", "SelectiveCheckpointContext", "auto",
           "checkpoint", "checkpoint_chain", "checkpoint_name", "checkpoint_sequential",
           "create_selective_checkpoint_contexts", "noop_context_fn", "set_checkpoint_early_stop"]
