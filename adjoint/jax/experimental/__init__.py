"""`jax.experimental`: Taylor series along curves (`jet`)."""
from adjoint.base.errors import missing as _missing

__getattr__ = _missing("adjoint.jax.experimental")
