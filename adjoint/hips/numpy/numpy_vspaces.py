"""`autograd.numpy.numpy_vspaces`: the spaces of arrays."""
from adjoint.hips.space import VSpace

ArrayVSpace = ComplexArrayVSpace = VSpace
__all__ = ["ArrayVSpace", "ComplexArrayVSpace", "VSpace"]
