"""`autograd.misc`: optimisers, fixed points, trees as vectors."""
from adjoint.hips.misc.flatten import flatten

__all__ = ["flatten"]
