"""Public functions around splitting, integration, windows and low-level names."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.dtypes import default_dtype, to_numpy
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.tensor import bump, wrap
from adjoint.ops.api_common import box, finish, one_dim, raw
from adjoint.ops.api_join import tensor_split
from adjoint.ops.api_sort import diff, trapezoid
from adjoint.ops.pointwise import add, mul
from adjoint.ops.public import public, typed
from adjoint.ops.shape import narrow_op, permute_op, reshape


def _splitter(name: str, least: int, axis: Callable[[int], int]) -> None:
    def f(input: Any, indices_or_sections: Any) -> Any:
        rank = len(input.shape)
        if rank < least:
            raise ShapeError(f"torch.{name} requires a tensor with at least {least} dimension, but "
                             f"got a tensor with {rank} dimensions!")
        d = axis(rank)
        if isinstance(indices_or_sections, int) and indices_or_sections < 0:
            raise ArgumentError(f"torch.{name}: number of sections must be larger than 0, got "
                                f"{indices_or_sections}")
        if isinstance(indices_or_sections, int) and (
                not indices_or_sections or input.shape[d] % indices_or_sections):
            raise ArgumentError(f"torch.{name} attempted to split along dimension {d}, but the size"
                                f" of the dimension {input.shape[d]} is not divisible by the "
                                f"split_size {indices_or_sections}!")
        return tensor_split(input, indices_or_sections, d)
    f.__name__ = f.__qualname__ = name
    f.__doc__ = "`tensor_split` along an axis that the rank decides."
    public(name)(f)


_splitter("hsplit", 1, lambda rank: 0 if rank == 1 else 1)
_splitter("vsplit", 2, lambda rank: 0)
_splitter("dsplit", 3, lambda rank: 2)


@public(method=False)
@typed
def trapz(y: Any, x: Any = None, *, dx: float = 1.0, dim: int = -1) -> Any:
    """`trapezoid` under its older name."""
    return trapezoid(y, x, dx=dx, dim=dim)


@public(method=False)
@typed
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: float = 1.0, dim: int = -1) -> Any:
    """Running integrals of samples by the trapezoid rule."""
    from adjoint.ops.cumulative import cumsum_op
    d = one_dim(y, dim)
    k = y.shape[d] - 1
    mean = mul(add(narrow_op(y, dim=d, start=0, length=k), narrow_op(y, dim=d, start=1, length=k)),
               0.5)
    step: Any = dx
    if x is not None:
        own = 0 if len(x.shape) == 1 else d - len(y.shape) + len(x.shape)
        step = diff(x, dim=own)
        if len(x.shape) == 1:
            step = reshape(step, (k, *(1,) * (len(y.shape) - d - 1)))
    return cumsum_op(mul(mean, step), dim=d)


@public(method=False)
def unravel_index(indices: Any, shape: Any) -> Any:
    """Coordinates of positions in a flat tensor of that shape."""
    size = (shape,) if isinstance(shape, int) else tuple(shape)
    found = np.unravel_index(np.asarray(raw(indices)), size)
    return tuple(box(indices, np.asarray(f, np.int64)) for f in found)


@public("resize_", function=False)
def resize_(self: Any, *sizes: Any, memory_format: Any = None) -> Any:
    """Another shape in place; elements are kept in order, new ones are 0."""
    shape = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if self.requires_grad:
        raise ArgumentError("cannot resize variables that require grad")
    old = self.array.reshape(-1)
    new = np.zeros(math.prod(shape), old.dtype)
    k = min(old.size, new.size)
    new[:k] = old[:k]
    self.array = new.reshape(shape)
    bump(self, "resize_")
    return self


@public("resize_as_", function=False)
def resize_as_(self: Any, other: Any) -> Any:
    """`resize_` to another tensor's shape."""
    return resize_(self, tuple(other.shape))


@public(method=False)
def constant_pad_nd(input: Any, pad: Any, value: Any = 0) -> Any:
    """`nn.functional.pad` with a constant."""
    from adjoint.ops.vision import pad as pad_
    return pad_(input, pad, "constant", value)


@public()
@typed
def as_strided_scatter(input: Any, src: Any, size: Any, stride: Any,
                       storage_offset: Any = None) -> Any:
    """A copy of `input` with `src` written to a strided view of it."""
    from adjoint.ops.api_arrange import in_memory_order
    from adjoint.ops.arrange import strided_places
    from adjoint.ops.index import index_put_op
    at = strided_places(tuple(size), tuple(stride), int(storage_offset or 0))
    if at.size and at.max() >= math.prod(input.shape):
        raise ShapeError(f"as_strided_scatter: sizes {list(size)}, strides {list(stride)} reach "
                         f"element {at.max()} of a tensor of {math.prod(input.shape)} elements")
    whole, order = in_memory_order(input)
    flat = reshape(whole, (math.prod(input.shape),))
    made = reshape(index_put_op(flat, at, src, dims=(0,), accumulate=False), tuple(whole.shape))
    return made if whole is input else permute_op(made, dims=tuple(np.argsort(order).tolist()))


@public(method=False)
def native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any,
                      eps: float) -> Any:
    """(layer norm, mean, 1/std)."""
    from adjoint.ops.norm import layer_norm
    from adjoint.ops.pointwise import rsqrt
    from adjoint.ops.reduce import mean_op
    out = layer_norm(input, normalized_shape, weight, bias, eps)
    rank = len(input.shape)
    dims = tuple(range(rank - len(normalized_shape), rank))
    mean = mean_op(input, dim=dims, keepdim=True)
    from adjoint.ops.moments import var_op
    rstd = rsqrt(add(var_op(input, dim=dims, correction=0, keepdim=True), eps))
    from adjoint.ops.cross_entropy import stopped
    return out, stopped(mean), stopped(rstd)


# ------------------------------------------------------------------ windows of signals
def _symmetric(n: int, periodic: bool) -> Any:
    """Positions 0..n-1 over the length of a period."""
    return np.arange(n) / max(n if periodic else n - 1, 1)


def _enter_window(name: str, form: Callable[..., Any], *names: str, **defaults: float) -> None:
    def f(window_length: int, periodic: bool = True, *args: Any, dtype: Any = None,
          layout: Any = None, device: Any = None, requires_grad: bool = False,
          out: Any = None, **kwargs: Any) -> Any:
        kind = default_dtype() if dtype is None else to_numpy(dtype)
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        w = np.ones(1) if window_length == 1 else form(_symmetric(window_length, periodic),
                                                       **given)
        return finish(out, wrap(np.asarray(w, kind), requires_grad))
    f.__name__ = f.__qualname__ = name
    f.__doc__ = "A window of `window_length` samples; periodic for spectral analysis."
    public(name, method=False)(f)


_enter_window("hann_window", lambda t: 0.5 - 0.5 * np.cos(2 * np.pi * t))
_enter_window("hamming_window", lambda t, alpha, beta: alpha - beta * np.cos(2 * np.pi * t),
              "alpha", "beta", alpha=0.54, beta=0.46)
_enter_window("blackman_window", lambda t: 0.42 - 0.5 * np.cos(2 * np.pi * t)
              + 0.08 * np.cos(4 * np.pi * t))
_enter_window("bartlett_window", lambda t: 1 - np.abs(2 * t - 1))
_enter_window("kaiser_window", lambda t, beta: np.i0(
    beta * np.sqrt(np.maximum(0, 1 - (2 * t - 1) ** 2))) / np.i0(beta), "beta", beta=12.0)
__all__ = ["cumulative_trapezoid", "trapz", "unravel_index"]
