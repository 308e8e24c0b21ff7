"""`jax.version`: the version that is followed."""
__version_info__ = (0, 10, 2)
__version__ = "0.10.2+adjoint"
__all__ = ["__version__", "__version_info__"]
