"""`autograd.numpy.numpy_boxes`: the box of an array, and the methods it has."""
from adjoint.hips.box import ArrayBox, Box
from adjoint.hips.extend import primitive
from adjoint.hips.graph import SequenceBox

diff_methods = ("clip cumprod cumsum diagonal max mean min prod ptp ravel repeat reshape squeeze "
                "std sum swapaxes take trace transpose var").split()
nondiff_methods = "all any argmax argmin argpartition argsort nonzero searchsorted round".split()
__all__ = ["ArrayBox", "Box", "SequenceBox", "diff_methods", "nondiff_methods", "primitive"]
