"""The dropout family. Of the mask a bit for each element is kept for backward
(see `kernels/dropout_numpy.py`).
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.bind import bind, masking
from adjoint.core.inplace import inplace
from adjoint.core.modes import warn
from adjoint.core.op import Op, op
from adjoint.core.tensor import wrap
from adjoint.core.trace import mapping
from adjoint.kernels.dropout_numpy import (
    drawn_mask,
    dropout_numpy,
    kept_scale,
    mask_bytes,
    rounded,
)
from adjoint.kernels.dropout_numpy import kept as is_kept
from adjoint.kernels.stream import Stream
from adjoint.ops.api_common import (
    dtype_of,
    flag,
    need,
    need_kernel,
    raw,
    wide,
)
from adjoint.ops.device import following, memory_order
from adjoint.ops.generator import source
from adjoint.ops.pointwise import mul
from adjoint.ops.public import public, typed
from adjoint.ops.shape import batch_loop

Shape = tuple[int, ...]
BYTE = np.dtype(np.uint8)


@following(0)
def _impl(x: Any, bits: Any, /, *, shape: Shape, scale: float) -> Any:
    return dropout_numpy(x, bits, shape, scale)


def _batch(op_: Op, args: Sequence[Any], batched: Sequence[bool], attrs: Mapping[str, Any]) -> Any:
    """One mask for all examples: its shape lines up with the trailing axes."""
    return batch_loop(op_, args, batched, attrs) if batched[1] else bind(op_, args, attrs)


def _domain() -> list[Any]:
    x = np.linspace(-2, 2, 6).reshape(2, 3)
    return [((x, drawn_mask(Stream(3), s, 0.5)), {"shape": s, "scale": 2.0})
            for s in ((2, 3), (2, 1))]


dropout_op: Any = op(
    "dropout", impl=_impl, infer=lambda x, bits, *, shape, scale: Aval(x.shape, x.dtype),
    vjp={"x": lambda ct, bits, *, shape, scale: applied(ct, bits, shape, scale)},
    jvp={"x": lambda t, bits, *, shape, scale: applied(t, bits, shape, scale)},
    batch=_batch, cost=lambda x, bits, **_: 2 * x.size, node="NativeDropoutBackward0",
    domain=_domain, why={"bits": "which elements were kept: a bit for each"})


@following(0)
def _shifted(x: Any, bits: Any, /, *, shape: Shape, scale: float, kept: float, lost: float) -> Any:
    out = dropout_numpy(x, bits, shape, scale)
    out += np.where(is_kept(bits, shape), *np.array([kept, lost]).astype(x.dtype))
    return out


alpha_op: Any = op(
    "alpha_dropout", impl=_shifted, infer=lambda x, bits, **_: Aval(x.shape, x.dtype),
    vjp={"x": lambda ct, bits, *, shape, scale, kept, lost: applied(ct, bits, shape, scale)},
    jvp={"x": lambda t, bits, *, shape, scale, kept, lost: applied(t, bits, shape, scale)},
    batch=_batch, cost=lambda x, bits, **_: 3 * x.size, node="AddBackward0",
    domain=lambda: [(args, {**attrs, "kept": 0.3, "lost": -0.7}) for args, attrs in _domain()],
    why={"bits": "which elements were kept: a bit for each"})


def _maps() -> list[Any]:
    """The vmaps that run here and ask for draws, outermost first, from the first that wants one
    per example."""
    found: list[Any] = []
    trace = mapping.get()
    while trace is not None:
        found.insert(0, trace)
        trace = trace.outer
    while found and found[0].randomness != "different":
        del found[0]
    return found


def mapped_as(x: Any, shape: Shape) -> Any:
    """x with a value per example of the vmaps that run here, where a mask of that shape has one:
    these are the axes that it has more than x."""
    more = len(shape) - len(x.shape)
    for trace in _maps()[-more:] if more > 0 else ():
        if not _mapped(x, trace):
            x = mul(x, trace.lift(wrap(np.ones((trace.size, *(1,) * len(x.shape)), dtype_of(x)))))
    return x


def applied(x: Any, bits: Any, shape: Shape, scale: float) -> Any:
    """x * scale where `bits`, a mask of `shape`, keep it; x * 0 elsewhere."""
    return dropout_op(mapped_as(x, shape), bits, shape=shape, scale=scale)


def _mapped(x: Any, trace: Any) -> bool:
    """True if `x` has a value per example of that vmap."""
    while getattr(x, "level", 0):
        if x.trace is trace:
            return True
        x = x.value
    return False


def _mask_shape(shape: Shape) -> Shape:
    """With the examples in front where the vmaps that run here draw for each of them."""
    return (*[t.size if t.randomness == "different" else 1 for t in _maps()], *shape)


def drawn(input: Any, p: float, shape: Shape, axes: tuple[int, ...] | None = None
          ) -> tuple[Any, Shape]:
    """A mask of that shape for values computed of `input`, and its shape, with the examples of
    vmaps in front. For an array without storage nothing is drawn."""
    whole = _mask_shape(shape)
    if isinstance(raw(input), MetaArray) and not input.level:
        return MetaArray((mask_bytes(whole),), BYTE), whole
    return drawn_mask(source(), whole, float(p), axes), whole


def _drawn(input: Any, p: float, shape: Shape | None) -> tuple[Any, Shape]:
    """The same; None: for each element of `input`, in the order in which they lie in memory."""
    if shape is not None:
        return drawn(input, p, shape)
    array, shape = raw(input), tuple(input.shape)
    laid = type(array) is np.ndarray and array.shape == _mask_shape(shape)
    return drawn(input, p, shape, memory_order(array) if laid else None)


def _checked(name: str, input: Any, p: float) -> None:
    need(name, input)
    try:
        fits = bool(0.0 <= p <= 1.0)
    except (TypeError, ValueError):
        raise DTypeError(
            f"{name}(): argument 'p' must be float, not {type(p).__name__}") from None
    if not fits:
        raise ArgumentError(f"dropout probability has to be between 0 and 1, but got {p}")


def _ready(name: str, input: Any, p: float, shape: Shape | None) -> tuple[Any, Shape, float]:
    """A mask for `input`, its shape, and what the elements that are kept are scaled by."""
    need_kernel("bernoulli_scalar_cpu_", "c", input)
    if dtype_of(input).kind in "iub":
        raise DTypeError(f"{name}(): result type Float can't be cast to the input's integer dtype")
    return *_drawn(input, p, shape), kept_scale(p, dtype_of(input))


def with_mask(input: Any, p: float, ones: Any) -> tuple[Any, Any]:
    """(`dropout` of input, of `ones` those that were kept, 0 elsewhere), of one mask."""
    _checked("dropout", input, p)
    if p == 0 or not math.prod(input.shape):
        return mul(input, 1.0), ones
    bits, whole, scale = _ready("dropout", input, p, None)
    return applied(input, bits, whole, scale), applied(ones, bits, whole, 1.0)


def _drop(name: str, input: Any, p: float, training: bool, in_place: bool,
          shape: Shape | None) -> Any:
    if not training or p == 0 or not math.prod(input.shape):
        return input
    bits, whole, scale = _ready(name, input, p, shape)
    if flag(name, in_place):
        return inplace(dropout_op.op, input, (bits,), {"shape": whole, "scale": scale},
                       name="dropout_")
    made = applied(input, bits, whole, scale)
    masking(input, made)
    return made


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeros elements with probability p and scales the others by 1/(1-p); identity in evaluation.

    >>> import adjoint as ad
    >>> ad.nn.functional.dropout(ad.ones(3), p=0.0)
    tensor([1., 1., 1.])
    """
    _checked("dropout", input, p)
    return _drop("dropout", input, p, training, inplace, None)


@public("dropout", method=False)
def torch_dropout(input: Any, p: float, train: bool) -> Any:
    """`nn.functional.dropout` under its older name, with its older arguments."""
    return dropout(input, p, train)


def _channels(name: str, input: Any, p: float, training: bool, in_place: bool,
              ranks: tuple[int, ...], unbatched: int) -> Any:
    _checked(name, input, p)
    n = len(input.shape)
    if n < (1 if name == "dropout3d" else 2) or n not in ranks and name == "dropout1d":
        raise ShapeError(f"{name}: Expected {'D or '.join(map(str, ranks))}D input, but received a "
                         f"{n}D input: {list(input.shape)}")
    if n not in ranks:
        warn(f"{name}: Received a {n}-D input to {name}, which is deprecated: it drops channels of "
             f"{' or '.join(map(str, ranks))} axes; use dropout for single elements")
    elif name == "dropout2d" and n == 3:
        warn("dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D "
             "dropout behavior is desired, of (N, C, L); use dropout1d")
    lead = 1 if n <= unbatched else 2
    shape = (*input.shape[:lead], *(1,) * (n - lead))
    return _drop(name, input, p, training, in_place, shape)


def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeros whole channels of (N, C, L) or (C, L)."""
    return _channels("dropout1d", input, p, training, inplace, (2, 3), 2)


def dropout2d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeros whole channels of (N, C, H, W); a 3-d input counts as (N, C, L), as in PyTorch."""
    return _channels("dropout2d", input, p, training, inplace, (3, 4), 0)


@typed
def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zeros whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    return _channels("dropout3d", input, p, training, inplace, (4, 5), 4)


ALPHA = 1.7580993408473766


def _alpha(input: Any, p: float, training: bool, shape: Shape | None) -> Any:
    """Dropout that keeps mean and variance of SELU activations.

    Source: G. Klambauer et al., "Self-normalizing neural networks" (2017), section 3.
    """
    if not training or p == 0:
        return input
    need_kernel("result type Float can't be cast to the desired output type {}", "biu", input)
    need_kernel("bernoulli_scalar_cpu_", "c", input)
    if p == 1:
        return mul(input, 0.0)
    a = 1.0 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p))
    bits, whole = _drawn(input, p, shape)
    kept, lost = _shifts(ALPHA * a, p, dtype_of(input))
    a = rounded(a, dtype_of(input))
    return alpha_op(mapped_as(input, whole), bits, shape=whole, scale=a, kept=kept, lost=lost)


def _shifts(size: float, p: float, dtype: np.dtype[Any]) -> tuple[float, float]:
    """What is added to elements that are kept, and in place of the others: as PyTorch makes the
    two of its mask, rounding to `dtype` in between."""
    first = (np.array([0.0, -1.0]) * size).astype(dtype)
    kept, lost = (wide(first) + wide(first).dtype.type(rounded(size * p, dtype))).astype(dtype)
    return float(kept), float(lost)


@typed
def alpha_dropout(input: Any, p: float = 0.5, training: bool = False,
                  inplace: bool = False) -> Any:
    """Dropout for SELU networks: keeps zero mean and unit variance."""
    _checked("alpha_dropout", input, p)
    return _alpha(input, p, training, None)


@typed
def feature_alpha_dropout(input: Any, p: float = 0.5, training: bool = False,
                          inplace: bool = False) -> Any:
    """`alpha_dropout` of whole channels."""
    _checked("feature_alpha_dropout", input, p)
    n = len(input.shape)
    if n < 2 and training and p:
        raise ShapeError("Feature dropout requires at least 2 dimensions in the input "
                         f"(feature_alpha_dropout of {list(input.shape)})")
    return _alpha(input, p, training, (*input.shape[:2], *(1,) * (n - 2)))
