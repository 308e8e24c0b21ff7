"""What every layer checks before it computes or changes anything, and small shared helpers."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.base import dtypes
from adjoint.base.errors import ArgumentError, DTypeError, NotSupported, ShapeError
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn import _core

IntOrInts = int | Sequence[int]


def empty_parameter(shape: Sequence[int], device: Any = None, dtype: Any = None,
                    requires_grad: bool = True) -> Parameter:
    """A parameter whose values are still to be drawn."""
    return Parameter(_core.empty(tuple(shape), device=device, dtype=dtype),
                     requires_grad=requires_grad)


def positive(layer: str, *, zero_ok: bool = False, **sizes: Any) -> None:
    """ArgumentError unless every size is an integer > 0 (>= 0 with ``zero_ok``)."""
    low = 0 if zero_ok else 1
    for name, value in sizes.items():
        whole = isinstance(value, (int, np.integer)) or (      # (models compute sizes as tensors)
            isinstance(value, Tensor) and value.ndim == 0 and value.array.dtype.kind in "iu")
        if isinstance(value, bool) or not whole:
            raise DTypeError(f"{layer}: {name} must be an integer, got {value!r} "
                             f"({type(value).__name__})")
        if value < low:
            raise ArgumentError(
                f"Trying to create tensor with negative dimension {value}: {layer}: {name} must be "
                f">= 0, got {value}" if zero_ok else
                f"{layer}: {name} must be > 0, but got ({name}={value})")


def tensor_input(layer: Any, x: object, name: str = "input") -> None:
    """DTypeError unless ``x`` is a tensor."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"{layer._get_name()}: {name} must be a Tensor, got "
                         f"{type(x).__name__}; make one with adjoint.tensor(...)")


def features(layer: Any, x: Any, size: int, name: str = "input") -> None:
    """ShapeError unless the last axis of ``x`` has ``size`` entries."""
    try:  # past the property: this runs at every call of Linear
        shape = x.array.shape
        fits = shape[-1] == size
    except (AttributeError, IndexError):
        tensor_input(layer, x, name)
        fits = False
    if not fits:
        rows = math.prod(shape[:-1])
        product = f"mat1 and mat2 shapes cannot be multiplied ({rows}x{shape[-1]} and {size}x" \
                  f"{layer.out_features}): " if shape and name == "input" else ""
        raise ShapeError(
            f"{product}{layer._get_name()}: {name} has shape {tuple(shape)}, but its last axis "
            f"must be {size}, as in {layer}: reshape the input or change the layer's size")


def rank(layer: Any, x: Any, accepted: Sequence[int], what: str) -> None:
    """ShapeError unless ``x`` has one of the accepted numbers of axes."""
    tensor_input(layer, x)
    if x.ndim not in accepted:
        words, name, said = " or ".join(f"{n}D" for n in accepted), layer._get_name(), ""
        if "Conv" in name and len(accepted) == 2:
            call = name.removeprefix("Lazy").lower().replace("convtranspose", "conv_transpose")
            said = (f"Expected {accepted[0]}D (unbatched) or {accepted[1]}D (batched) input to "
                    f"{call}, but got input of size: {list(x.shape)}: ")
        raise ShapeError(f"{said}{name}: expected {words} input (got {x.ndim}D input), "
                         f"{what}; the input's shape is {tuple(x.shape)}")


def channels(layer: Any, x: Any, size: int, axis: int, what: str) -> None:
    """ShapeError unless axis ``axis`` of ``x`` has ``size`` entries."""
    if x.shape[axis] != size:
        raise ShapeError(f"{layer._get_name()}: expected axis {axis % x.ndim} of the input to have "
                         f"{size} channels ({what}), but the input's shape is {tuple(x.shape)}")


def ints(value: IntOrInts, n: int, layer: str, name: str) -> tuple[int, ...]:
    """``value`` as n integers: one number is repeated, alone or as a sequence of one."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        out = tuple(value) * (n if len(value) == 1 else 1)
        if len(out) != n:
            raise ArgumentError(f"{layer}: {name} must be one integer or {n} of them, got {value}")
    else:
        out = (value,) * n
    for v in out:
        if not isinstance(v, (int, np.integer)) or isinstance(v, bool):
            raise DTypeError(f"{layer}: {name} must be integers, got {value!r}")
    return out


def probability(layer: str, p: float) -> float:
    """``p`` if it lies in [0, 1], else ArgumentError."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"{layer}: dropout probability has to be between 0 and 1, "
                            f"but got {p}")
    return p


def floating(layer: str, dtype: Any) -> None:
    """DTypeError for a parameter dtype that is neither floating nor complex."""
    if dtype is not None and not dtypes.is_inexact(dtypes.to_numpy(dtype)):
        raise DTypeError(f"{layer}: parameters need a floating dtype, got {dtype}")


def refuse(condition: object, message: str) -> None:
    """NotSupported with ``message`` if ``condition`` holds."""
    if condition:
        raise NotSupported(message)
