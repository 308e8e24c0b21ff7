"""`jax.custom_derivatives`."""
from adjoint.jax._absent import lacking as _lacking
from adjoint.jax._rules import (
    closure_convert,
    custom_gradient,
    custom_jvp,
    custom_vjp,
    linear_call,
)

__all__ = ["closure_convert", "custom_gradient", "custom_jvp", "custom_vjp", "linear_call"]
__getattr__ = _lacking("custom_derivatives")
