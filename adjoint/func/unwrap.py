"""What a transform does to a function or a value, undone for looking at it."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor

_REMOVE = ("mutations", "mutations_and_views")


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """`func` itself: its values, and its writes to its operands, are what PyTorch's keeps.

    PyTorch's form takes in-place operations out of a program that is being traced; here a program
    runs operation by operation, and a traced one (`fx`) shows the calls as they were written.
    Raises ArgumentError for another `remove` than PyTorch's two.

    >>> import adjoint as ad
    >>> functionalize(lambda x: x.clone().add_(1))(ad.zeros(2))
    tensor([1., 1.])
    """
    if remove not in _REMOVE:
        raise ArgumentError(f"functionalize(f, remove='mutations'): received invalid argument for "
                            f"remove={remove}. Valid options are: {', '.join(_REMOVE)}")
    if not callable(func):
        raise ArgumentError(f"functionalize: expected a function, got {type(func).__name__}")
    return func


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """The value under a tensor of a transform, for printing it inside of one: all examples of a
    `vmap` with their axis, the value without its derivative. `recurse=False`: one level.

    >>> import adjoint as ad
    >>> def f(x):
    ...     print(debug_unwrap(x))
    ...     return x
    >>> _ = ad.func.vmap(f)(ad.ones(2))
    tensor([1., 1.])
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"debug_unwrap: expected a Tensor, got {type(tensor).__name__}")
    while tensor.level:
        inner: Any = tensor
        tensor = inner.value
        if not recurse:
            break
    return tensor
