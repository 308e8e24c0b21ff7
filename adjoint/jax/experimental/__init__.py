"""`jax.experimental`: Taylor series along curves (`jet`), differential equations (`ode`), checks as
values (`checkify`), callbacks that have effects (`io_callback`)."""
from adjoint.base.errors import missing as _missing
from adjoint.jax._callback import io_callback

__all__ = ["io_callback"]
__getattr__ = _missing("adjoint.jax.experimental")
