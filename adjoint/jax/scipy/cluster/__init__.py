"""`jax.scipy.cluster`."""
from adjoint.jax.scipy.cluster import vq

__all__ = ["vq"]
