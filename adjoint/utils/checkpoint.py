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
from adjoint.base.errors import ArgumentError
from adjoint.core.modes import warn
from adjoint.core.tensor import Tensor
from adjoint.memory.chain_run import auto, checkpoint_chain


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """The devices of the tensors in the arguments that have a random generator of their own, and
    its states: none, ([], [])."""
    return [], []


def set_device_states(devices: Any, states: Any, *, device_type: Any = None) -> None:
    """Nothing to set, for what `get_device_states` gives."""


class DefaultDeviceType:
    """The kind of device whose generators are kept where no operand tells: it is remembered."""

    _kind = "cpu"

    @classmethod
    def set_device_type(cls, device: str = "cpu") -> None:
        """Remember one."""
        cls._kind = device

    @classmethod
    def get_device_type(cls) -> str:
        """The one that is remembered."""
        return cls._kind


def _infer_device_type(*args: Any) -> str:
    """The kind of device that the operands are on."""
    return DefaultDeviceType.get_device_type()


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors, cut off from what made them, which require gradients as before."""
    if not isinstance(inputs, tuple):
        raise ArgumentError("Only tuple of tensors is supported. Got Unsupported input type: "
                            f"{type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x
                 for x in inputs)


def check_backward_validity(inputs: Any) -> None:
    """Warn if no operand requires gradients, for then none comes out of a checkpoint."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warn("None of the inputs have requires_grad=True. Gradients will be None")


__all__ = ["CheckpointError", "CheckpointPolicy", "SelectiveCheckpointContext", "auto",
           "checkpoint", "checkpoint_chain", "checkpoint_name", "checkpoint_sequential",
           "create_selective_checkpoint_contexts", "get_device_states", "noop_context_fn",
           "set_checkpoint_debug_enabled", "set_checkpoint_early_stop", "set_device_states"]
