"""PyTorch's name for what `adjoint.io` holds: `save`, `load`, the list of safe names, and the
switches for all files."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.io import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    load,
    safe_globals,
    save,
)
from adjoint.io.options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from adjoint.ops.device import check, device
from adjoint.storage import TypedStorage, UntypedStorage
from adjoint.utils.serialization import config

MAP_LOCATION = Callable[[Any, str], Any] | device | str | dict[str, str] | None  # what `load` takes
FILE_LIKE = Any
DEFAULT_PROTOCOL = 2                    # of the pickle in a file
STORAGE_KEY_SEPARATOR = ","
LONG_SIZE, INT_SIZE, SHORT_SIZE = 4, 4, 2       # as the old format states them


class SourceChangeWarning(Warning):
    """A module's source is another than in the file. Never given: files here hold no source."""


def location_tag(storage: UntypedStorage | TypedStorage) -> str:
    """The name of the device that a file notes for a storage: 'cpu' or 'meta'.

    >>> import adjoint as ad
    >>> location_tag(ad.ones(2).untyped_storage())
    'cpu'
    """
    return str(storage.device.type)


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage on the device that a file notes; `NoDevice` for one that is not here."""
    if check(location) == "meta":
        return type(storage)(storage.tensor.to("meta"))
    return storage


def check_module_version_greater_or_equal(module: Any, req_version_tuple: tuple[int, ...],
                                          error_if_malformed: bool = True) -> bool:
    """Is a module of this version or a later one?

    >>> import numpy
    >>> check_module_version_greater_or_equal(numpy, (1, 0))
    True
    """
    try:
        parts = module.__version__.split(".")
        have = tuple(type(need)(parts[i]) for i, need in enumerate(req_version_tuple))
    except (AttributeError, IndexError, ValueError) as error:
        if error_if_malformed:
            text = f"'{module.__name__}' module version string is malformed '{module.__version__}'"
            raise RuntimeError(f"{text} and cannot be compared with tuple "
                               f"{req_version_tuple}") from error
        return True
    return have >= req_version_tuple


__all__ = ["LoadEndianness", "SourceChangeWarning", "add_safe_globals",
           "check_module_version_greater_or_equal", "clear_safe_globals", "config",
           "default_restore_location", "get_crc32_options", "get_default_load_endianness",
           "get_default_mmap_options", "get_safe_globals", "get_unsafe_globals_in_checkpoint",
           "load", "location_tag", "safe_globals", "save", "set_crc32_options",
           "set_default_load_endianness", "set_default_mmap_options", "skip_data"]

__getattr__ = _missing("adjoint.serialization")
