"""`autograd.wrap_util`: operators over functions of many arguments."""
from adjoint.hips.util import unary_to_nary

__all__ = ["unary_to_nary"]
