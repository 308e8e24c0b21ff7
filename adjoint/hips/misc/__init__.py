"""`autograd.misc`: optimisers, fixed points, trees as vectors."""
from adjoint.hips.misc.flatten import flatten
from adjoint.hips.misc.tracers import const_graph

__all__ = ["const_graph", "flatten"]
