"""`jax.custom_derivatives`."""
from adjoint.base.errors import missing as _missing
from adjoint.jax._rules import closure_convert, custom_gradient, custom_jvp, custom_vjp

__all__ = ["closure_convert", "custom_gradient", "custom_jvp", "custom_vjp"]
__getattr__ = _missing("adjoint.jax.custom_derivatives")
