"""`autograd.numpy.numpy_vspaces`: the spaces of arrays."""
from adjoint.hips.space import ArrayVSpace, ComplexArrayVSpace, NamedTupleVSpace, VSpace

EigResultVSpace = EighResultVSpace = QRResultVSpace = SVDResultVSpace = NamedTupleVSpace
SlogdetResultVSpace = NamedTupleVSpace
__all__ = ["ArrayVSpace", "ComplexArrayVSpace", "EigResultVSpace", "EighResultVSpace",
           "NamedTupleVSpace", "QRResultVSpace", "SVDResultVSpace", "SlogdetResultVSpace",
           "VSpace"]
