"""`autograd.numpy.numpy_boxes`: the box of an array."""
from adjoint.hips.box import ArrayBox

__all__ = ["ArrayBox"]
