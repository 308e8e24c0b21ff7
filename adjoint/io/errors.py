"""What reading and writing files can go wrong with."""
from __future__ import annotations

import pickle

from adjoint.base.errors import AdjointError, ArgumentError, DTypeError


class FileFormatError(AdjointError, ValueError, RuntimeError, pickle.UnpicklingError):
    """A file is damaged, cut short, or of another format than the one asked for."""


class EmptyFileError(FileFormatError, EOFError):
    """A file has no content at all."""


class UnsafePickleError(FileFormatError, pickle.UnpicklingError):
    """A checkpoint names a class or function that is not on the list of safe ones."""


class NotAFile(ArgumentError, AttributeError):
    """What was given to be written to or read from is neither a path nor a binary file."""


class NotAStorage(AdjointError, TypeError):
    """What a function given as `map_location` returned is no storage."""


class NoFolder(AdjointError, FileNotFoundError, RuntimeError):
    """The folder that a file is to be written into does not exist."""


class Unpicklable(DTypeError, pickle.PicklingError, AttributeError):
    """A function or class that cannot be named in a file, since it is not found by its name."""
