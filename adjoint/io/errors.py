"""What reading and writing files can go wrong with."""
from __future__ import annotations

import pickle

from adjoint.base.errors import AdjointError


class FileFormatError(AdjointError, ValueError, RuntimeError):
    """A file is damaged, cut short, or of another format than the one asked for."""


class EmptyFileError(FileFormatError, EOFError):
    """A file has no content at all."""


class UnsafePickleError(FileFormatError, pickle.UnpicklingError):
    """A checkpoint names a class or function that is not on the list of safe ones."""
