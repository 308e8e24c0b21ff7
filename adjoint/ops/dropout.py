"""The dropout family. The mask is drawn from the generator, kept as one byte per element."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.inplace import inplace
from adjoint.core.op import op
from adjoint.ops.api_common import dtype_of, need, raw
from adjoint.ops.family import batch_broadcast, broadcast_shapes
from adjoint.ops.pointwise import add, mul
from adjoint.ops.public import public
from adjoint.ops.random import source


def _dropout_impl(x: Any, mask: Any, /, *, scale: float) -> Any:
    factor = mask * np.asarray(scale, np.float32 if x.dtype.itemsize == 2 else x.dtype.type(0).real
                               .dtype)
    return (x * factor).astype(x.dtype, copy=False)


dropout_op: Any = op(
    "dropout", impl=_dropout_impl,
    infer=lambda x, mask, *, scale: Aval(broadcast_shapes("dropout", x, mask), x.dtype),
    vjp={"x": lambda ct, mask, *, scale: dropout_op(ct, mask, scale=scale)},
    jvp={"x": lambda t, mask, *, scale: dropout_op(t, mask, scale=scale)},
    batch=batch_broadcast, cost=lambda x, *_, **__: 2 * x.size,
    node="NativeDropoutBackward0", why={"mask": "one byte per element: which were kept"})


def keep_mask(x: Any, shape: tuple[int, ...], p: float) -> Any:
    """A boolean mask, True with probability 1 - p, drawn from the default generator."""
    if isinstance(raw(x), MetaArray):
        return MetaArray(shape, np.dtype(bool))
    if p == 0:
        return np.ones(shape, bool)
    return source().random(shape, dtype=np.float32) >= p


def _checked(name: str, input: Any, p: float) -> None:
    need(name, input)
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"dropout probability has to be between 0 and 1, but got {p}")


def _drop(name: str, input: Any, p: float, training: bool, in_place: bool,
          shape: tuple[int, ...]) -> Any:
    if not training or p == 0 or not math.prod(input.shape):
        return input
    if dtype_of(input).kind in "iub":
        raise DTypeError(f"{name}(): result type Float can't be cast to the input's integer dtype")
    mask = keep_mask(input, shape, p)
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    if in_place:
        return inplace(dropout_op.op, input, (mask,), {"scale": scale}, name="dropout_")
    return dropout_op(input, mask, scale=scale)


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeros elements with probability p and scales the others by 1/(1-p); identity in evaluation.

    >>> import adjoint as ad
    >>> ad.nn.functional.dropout(ad.ones(3), p=0.0)
    tensor([1., 1., 1.])
    """
    _checked("dropout", input, p)
    return _drop("dropout", input, p, training, inplace, tuple(input.shape))


@public("dropout", method=False)
def torch_dropout(input: Any, p: float, train: bool) -> Any:
    """`nn.functional.dropout` under its older name, with its older arguments."""
    return dropout(input, p, train)


def _channels(name: str, input: Any, p: float, training: bool, in_place: bool,
              ranks: tuple[int, ...], unbatched: int) -> Any:
    _checked(name, input, p)
    n = len(input.shape)
    if n not in ranks:
        raise ShapeError(f"{name}: expected an input with {' or '.join(map(str, ranks))} axes, got "
                         f"{list(input.shape)}")
    lead = 1 if n == unbatched else 2
    shape = (*input.shape[:lead], *(1,) * (n - lead))
    return _drop(name, input, p, training, in_place, shape)


def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeros whole channels of (N, C, L) or (C, L)."""
    return _channels("dropout1d", input, p, training, inplace, (2, 3), 2)


def dropout2d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeros whole channels of (N, C, H, W); a 3-d input counts as (N, C, L), as in PyTorch."""
    return _channels("dropout2d", input, p, training, inplace, (3, 4), 0)


def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeros whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    return _channels("dropout3d", input, p, training, inplace, (4, 5), 4)


ALPHA = 1.7580993408473766


def _alpha(input: Any, p: float, training: bool, shape: tuple[int, ...]) -> Any:
    """Dropout that keeps mean and variance of SELU activations.

    Source: G. Klambauer et al., "Self-normalizing neural networks" (2017), section 3.
    """
    if not training or p == 0:
        return input
    if p == 1:
        return mul(input, 0.0)
    mask = keep_mask(input, shape, p)
    a = 1.0 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p))
    kept = dropout_op(input, mask, scale=a)
    dtype = dtype_of(input)
    if isinstance(mask, MetaArray):
        return add(kept, MetaArray(shape, dtype))
    shift = np.where(mask, 0.0, -ALPHA * a) + ALPHA * a * p
    return add(kept, shift.astype(dtype))


def alpha_dropout(input: Any, p: float = 0.5, training: bool = False,
                  inplace: bool = False) -> Any:
    """Dropout for SELU networks: keeps zero mean and unit variance."""
    _checked("alpha_dropout", input, p)
    return _alpha(input, p, training, tuple(input.shape))


def feature_alpha_dropout(input: Any, p: float = 0.5, training: bool = False,
                          inplace: bool = False) -> Any:
    """`alpha_dropout` of whole channels."""
    _checked("feature_alpha_dropout", input, p)
    n = len(input.shape)
    return _alpha(input, p, training, (*input.shape[:2], *(1,) * (n - 2)))
