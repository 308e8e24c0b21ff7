"""`autograd.numpy.numpy_vjps`: reverse rules, and what they are written with."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.hips.extend import defvjp, defvjp_argnum, primitive, register_notrace, vspace
from adjoint.hips.numpy._rules import (
    balanced_eq,
    dot_adjoint_0,
    dot_adjoint_1,
    match_complex,
    repeat_to_match_shape,
    replace_zero,
    rule,
    unbroadcast,
    unbroadcast_f,
    untake,
)
from adjoint.hips.util import func

_RULES = {"grad_np_sum": "sum", "grad_np_mean": "mean", "grad_np_prod": "prod",
          "grad_np_var": "var", "grad_np_std": "std", "grad_np_cumsum": "cumsum",
          "np_abs_vjp": "abs", "np_conj_vjp": "conj", "pad_vjp": "pad", **{
              f"grad_{n}": n for n in "broadcast_to diff gradient partition repeat rollaxis sort "
              "tile transpose".split()}}
_absent = _missing("adjoint.hips.numpy.numpy_vjps")


def __getattr__(name: str) -> Any:
    if name in _RULES:
        return rule(_RULES[name], 0)
    for end, argnum in (("_vjp_0", 0), ("_vjp_1", 1)):
        if name in (f"dot{end}", f"matmul{end}", f"tensordot{end}"):
            return rule(name.removesuffix(end), argnum)
    return _absent(name)


__all__ = ["balanced_eq", "defvjp", "defvjp_argnum", "dot_adjoint_0", "dot_adjoint_1", "func",
           "match_complex", "primitive", "register_notrace", "repeat_to_match_shape",
           "replace_zero", "unbroadcast", "unbroadcast_f", "untake", "vspace"]
