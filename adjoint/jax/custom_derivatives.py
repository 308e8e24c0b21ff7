"""`jax.custom_derivatives`."""
from adjoint.jax._absent import lacking as _lacking
from adjoint.jax._rules import (
    CustomVJPPrimal,
    SymbolicZero,
    closure_convert,
    custom_gradient,
    custom_jvp,
    custom_vjp,
    linear_call,
    zero_from_primal,
)

__all__ = ["CustomVJPPrimal", "SymbolicZero", "closure_convert", "custom_gradient", "custom_jvp",
           "custom_vjp", "linear_call", "zero_from_primal"]
__getattr__ = _lacking("custom_derivatives")
