"""`autograd.numpy.numpy_jvps`: what forward rules are written with."""
from adjoint.hips.extend import def_linear, defjvp, defjvp_argnum, register_notrace, vspace
from adjoint.hips.numpy._rules import (
    balanced_eq,
    broadcast,
    dot_adjoint_0,
    dot_adjoint_1,
    match_complex,
    replace_zero,
    untake,
)
from adjoint.hips.util import func

__all__ = ["balanced_eq", "broadcast", "def_linear", "defjvp", "defjvp_argnum", "dot_adjoint_0",
           "dot_adjoint_1", "func", "match_complex", "register_notrace", "replace_zero", "untake",
           "vspace"]
