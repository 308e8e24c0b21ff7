"""What `register_*hook` returns."""
from collections.abc import Callable
from typing import Any, TypeVar

from adjoint.core.copies import warn_if_has_hooks as warn_if_has_hooks
from adjoint.core.tensor import RemovableHandle as RemovableHandle

F = TypeVar("F", bound=Callable[..., Any])


def unserializable_hook(f: F) -> F:
    """Mark a hook as one that is not pickled with its tensor, and that nobody need be warned of."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]  # PyTorch's mark
    return f


__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]
