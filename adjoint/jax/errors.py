"""`jax.errors`: what a function under `vmap` raises where a value would have to be known."""
from __future__ import annotations

from adjoint.base.errors import AdjointError


class JAXTypeError(AdjointError, TypeError):
    """A TypeError of a transform."""


class JAXIndexError(AdjointError, IndexError):
    """An IndexError of a transform."""


class ConcretizationTypeError(JAXTypeError):
    """A Python number was asked for where there is one value per example."""


class TracerArrayConversionError(JAXTypeError):
    """A NumPy array was asked for where a transform follows the values."""


class TracerBoolConversionError(ConcretizationTypeError):
    """A Python branch on a value that every example has its own of."""


class TracerIntegerConversionError(JAXTypeError):
    """A Python index that every example has its own of."""


class NonConcreteBooleanIndexError(JAXIndexError):
    """A mask that every example has its own of, where the shape would depend on it."""


class UnexpectedTracerError(JAXTypeError):
    """A value that outlived its transform."""


class KeyReuseError(AdjointError, RuntimeError):
    """A PRNG key that was used twice."""


class JaxRuntimeError(AdjointError, RuntimeError):
    """A failure while a computation runs."""
