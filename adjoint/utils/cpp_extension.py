"""`torch.utils.cpp_extension`: there is no libtorch to build against, so that nothing is built.

The module imports, because programs import it for an optional speed-up; what would build says why
it cannot. Operators of one's own are Python here: `library.custom_op`, `autograd.Function`, and
`fuse` for elementwise ones.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from adjoint.base.errors import NotSupported

__all__ = ["BuildExtension", "CUDAExtension", "CppExtension", "SyclExtension", "include_paths",
           "is_ninja_available", "library_paths", "load", "load_inline",
           "verify_ninja_availability"]

CUDA_HOME = None
ROCM_HOME = None


def _absent(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotSupported(f"cpp_extension.{name}: extensions are C++ on PyTorch's own library, "
                           "which is not here; write the operator in Python: library.custom_op, "
                           "autograd.Function, or fuse(f) where it is elementwise")
    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Raises NotSupported: nothing can be built."
    return refuse


load, load_inline = _absent("load"), _absent("load_inline")
CppExtension, CUDAExtension = _absent("CppExtension"), _absent("CUDAExtension")
SyclExtension = _absent("SyclExtension")
include_paths, library_paths = _absent("include_paths"), _absent("library_paths")


class BuildExtension:
    """The command of setuptools that PyTorch replaces; making one raises NotSupported."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _absent("BuildExtension")()

    @classmethod
    def with_options(cls, **options: Any) -> type[BuildExtension]:
        """The class: options are for building."""
        return cls


def is_ninja_available() -> bool:
    """False: nothing is built."""
    return False


def verify_ninja_availability() -> None:
    """Raises NotSupported."""
    _absent("verify_ninja_availability")()
