"""The default generator of random numbers: the functions of `torch.random`."""
from __future__ import annotations

from adjoint.ops.generator import default_generator as default_generator
from adjoint.ops.generator import fork_rng as fork_rng
from adjoint.ops.generator import get_rng_state as get_rng_state
from adjoint.ops.generator import initial_seed as initial_seed
from adjoint.ops.generator import manual_seed as manual_seed
from adjoint.ops.generator import seed as seed
from adjoint.ops.generator import set_rng_state as set_rng_state


def thread_safe_generator() -> None:
    """The generator of the calling thread of a data loader: None, the default generator, as its
    workers are processes, each with a default generator of its own."""


__all__ = ["default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed",
           "set_rng_state", "thread_safe_generator"]
