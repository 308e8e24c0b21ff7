"""`torch._check` and its kin: what libraries test their arguments with."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.core.tensor import Tensor

__all__ = ["_check", "_check_index", "_check_is_size", "_check_not_implemented",
           "_check_tensor_all", "_check_tensor_all_with", "_check_type", "_check_value",
           "_check_with"]
Message = Callable[[], Any] | None


def _raise_unless(error_type: type[Exception], cond: bool, message: Message) -> None:
    if message is not None and not callable(message):
        raise TypeError(f"message must be a callable, got {type(message).__name__}: write "
                        "lambda: '...'")
    if not cond:
        raise error_type("Expected cond to be True, but got False" if message is None
                         else str(message()))


def _check_with(error_type: type[Exception], cond: bool, message: Message = None) -> None:
    """Raise `error_type` with the text that `message()` gives, unless `cond` is True.

    >>> _check_with(ValueError, 1 < 2, lambda: "1 is not less than 2")
    """
    if not isinstance(cond, bool):
        kind = "a Tensor: _check_tensor_all takes those" if isinstance(cond, Tensor) else type(cond)
        raise TypeError(f"cond must be a bool, but got {kind}")
    _raise_unless(error_type, cond, message)


def _check(cond: bool, message: Message = None) -> None:
    """`_check_with` of RuntimeError."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: bool, message: Message = None) -> None:
    """`_check_with` of IndexError."""
    _check_with(IndexError, cond, message)


def _check_value(cond: bool, message: Message = None) -> None:
    """`_check_with` of ValueError."""
    _check_with(ValueError, cond, message)


def _check_type(cond: bool, message: Message = None) -> None:
    """`_check_with` of TypeError."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: bool, message: Message = None) -> None:
    """`_check_with` of NotImplementedError."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: int, message: Message = None, *, max: int | None = None) -> None:
    """RuntimeError unless 0 <= i, and i <= `max` where that is given."""
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all_with(error_type: type[Exception], cond: Tensor,
                           message: Message = None) -> None:
    """Raise `error_type` unless every element of the bool tensor `cond` is True."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.array.dtype != bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _raise_unless(error_type, bool(cond.array.all()), message)


def _check_tensor_all(cond: Tensor, message: Message = None) -> None:
    """`_check_tensor_all_with` of RuntimeError."""
    _check_tensor_all_with(RuntimeError, cond, message)
