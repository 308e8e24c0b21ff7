"""`autograd.wrap_util`: operators over functions of many arguments."""
from adjoint.hips.util import get_doc, get_name, subvals, unary_to_nary, wrap_nary_f

__all__ = ["get_doc", "get_name", "subvals", "unary_to_nary", "wrap_nary_f"]
