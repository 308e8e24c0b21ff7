"""`autograd.tracer`: boxes, and primitives, which are traced as one operation."""
from adjoint.hips.box import Box, getval, isbox
from adjoint.hips.extend import notrace_primitive, primitive, register_notrace
from adjoint.hips.util import subvals

__all__ = ["Box", "getval", "isbox", "notrace_primitive", "primitive",
           "register_notrace", "subvals"]
