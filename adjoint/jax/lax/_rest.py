"""`jax.lax`: products of groups of rows, convolutions whose kernel is another at each place, and
small names about programs."""
from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adjoint.core.tensor import wrap
from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array, make
from adjoint.jax._dtypes import as_dtype
from adjoint.jax._table import T
from adjoint.jax.lax._windows import conv_dimension_numbers, conv_general_dilated_patches
from adjoint.ops.threefry import draw_with, philox_bits, threefry_pairs

_n: Any = _jnp


def _products() -> Any:
    from adjoint.jax import lax
    return lax


# ------------------------------------------------------------------ ragged products
class RaggedDotDimensionNumbers:
    """Which axes a ragged product contracts, maps over, and splits into groups."""

    def __init__(self, dot_dimension_numbers: Any, lhs_ragged_dimensions: Any,
                 rhs_group_dimensions: Any) -> None:
        self.dot_dimension_numbers = tuple(
            tuple(tuple(axes) for axes in pair) for pair in dot_dimension_numbers)
        self.lhs_ragged_dimensions = tuple(lhs_ragged_dimensions)
        self.rhs_group_dimensions = tuple(rhs_group_dimensions)

    def __repr__(self) -> str:
        return (f"RaggedDotDimensionNumbers(dot_dimension_numbers={self.dot_dimension_numbers}, "
                f"lhs_ragged_dimensions={self.lhs_ragged_dimensions}, "
                f"rhs_group_dimensions={self.rhs_group_dimensions})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaggedDotDimensionNumbers) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))


BASIC_RAGGED_DOT_DIMENSION_NUMBERS = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def _members(sizes: Any, rows: int) -> Any:
    """(groups, rows): is a row of a group? Sizes of one axis."""
    end = _n.cumsum(sizes)
    at = np.arange(rows)
    return (at >= (end - sizes)[:, None]) & (at < end[:, None])


def ragged_dot_general(lhs: Any, rhs: Any, group_sizes: Any,
                       ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
                       precision: Any = None, preferred_element_type: Any = None,
                       group_offset: Any = None, out_sharding: Any = None) -> Any:
    """A product of `lhs`, an axis of which is in groups one after another, with `rhs`, of which
    each group may have its own; sizes of the groups in a vector."""
    d, x, y = ragged_dot_dimension_numbers, as_array(lhs), as_array(rhs)
    sizes = as_array(group_sizes)
    if sizes.dtype.kind not in "iu":
        raise TypeError("ragged_dot_general requires that group_sizes.dtype is subtype of "
                        "np.integer.")
    if group_offset is not None:
        raise NotImplementedError("Unimplemented group_offset support.")
    if len(d.lhs_ragged_dimensions) != 1:
        raise TypeError("ragged_dot_general expects exactly one ragged dimension on the lhs, got "
                        f"{len(d.lhs_ragged_dimensions)}.")
    if sizes.ndim != 1:
        raise NotImplementedError("ragged_dot_general: sizes of groups that differ along other "
                                  f"axes; got group_sizes of shape {sizes.shape}, expected 1 axis")
    axis, groups = d.lhs_ragged_dimensions[0], sizes.shape[0]
    inside = _members(sizes, x.shape[axis])
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    (lc, rc), (lb, rb) = d.dot_dimension_numbers
    dot = _products().dot_general
    kind = {"precision": precision, "preferred_element_type": preferred_element_type}
    if axis in lb:
        return dot(x, y, d.dot_dimension_numbers, **kind)      # (as in JAX: all of them)
    own = d.rhs_group_dimensions
    if own and y.shape[own[0]] != groups:
        raise TypeError(f"expected rhs group dimension size to be {groups}, got {y.shape[own[0]]}.")

    def lower(axes: Any) -> tuple[int, ...]:
        return tuple(a - (a > own[0]) for a in axes) if own else axes
    numbers = ((lc, lower(rc)), (lb, lower(rb)))
    parts = [dot(_n.where(inside[g].reshape(shape), x, 0), y.take(g, own[0]) if own else y,
                 numbers, **kind) for g in range(groups)]
    if axis in lc:
        return _n.stack(parts)
    total = parts[0]
    for p in parts[1:]:
        total = total + p
    return total


def ragged_dot(lhs: Any, rhs: Any, group_sizes: Any, precision: Any = None,
               preferred_element_type: Any = None, group_offset: Any = None,
               out_sharding: Any = None) -> Any:
    """Rows of `lhs` (m, k), in groups one after another, times the group's own matrix of `rhs`
    (g, k, n); rows past the last group are 0.

    >>> from adjoint.jax import lax, numpy as jnp
    >>> rhs = jnp.array([[[1.0]], [[10.0]]])
    >>> lax.ragged_dot(jnp.ones((3, 1)), rhs, jnp.array([1, 2]))[:, 0]
    Array([ 1., 10., 10.], dtype=float32)
    """
    return ragged_dot_general(lhs, rhs, group_sizes, BASIC_RAGGED_DOT_DIMENSION_NUMBERS, precision,
                              preferred_element_type, group_offset)


# ------------------------------------------------------------------ local convolutions
def conv_general_dilated_local(lhs: Any, rhs: Any, window_strides: Any, padding: Any,
                               filter_shape: Any, lhs_dilation: Any = None,
                               rhs_dilation: Any = None, dimension_numbers: Any = None,
                               precision: Any = None) -> Any:
    """A convolution with a kernel of its own at each place of the output: `rhs` has the output's
    places as its spatial axes, and windows and channels along its input axis."""
    x, w = as_array(lhs), as_array(rhs)
    d = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    rhs_spec, out_spec = d.rhs_spec, d.out_spec
    patches = conv_general_dilated_patches(x, filter_shape, window_strides, padding, lhs_dilation,
                                           rhs_dilation, d)
    spatial = range(x.ndim - 2)
    numbers = (((out_spec[1],), (rhs_spec[1],)),
               (tuple(out_spec[2 + i] for i in spatial), tuple(rhs_spec[2 + i] for i in spatial)))
    found = _products().dot_general(patches, w, numbers, precision=precision)
    # (places, examples, features) -> the order of the output
    places = tuple(spatial)
    return _n.moveaxis(found, (*places, found.ndim - 2, found.ndim - 1),
                       (*out_spec[2:], out_spec[0], out_spec[1]))


def reduce_window_shape_tuple(operand_shape: Any, window_dimensions: Any, window_strides: Any,
                              padding: Any, base_dilation: Any = None, window_dilation: Any = None
                              ) -> tuple[int, ...]:
    """The shape of a reduction over windows."""
    one = (1,) * len(operand_shape)
    out = []
    for n, k, s, p, b, w in zip(operand_shape, window_dimensions, window_strides, padding,
                                base_dilation or one, window_dilation or one, strict=True):
        wide = (n - 1) * b + 1 if n else 0
        room = wide + sum(p) - ((k - 1) * w + 1)
        out.append(max(math.floor(room / s) + 1, 0))
    return tuple(out)


# ------------------------------------------------------------------ about programs
def composite(decomposition: Callable[..., Any], name: str, version: int = 0
              ) -> Callable[..., Any]:
    """The function: what a compiler would know by its name is its decomposition here."""
    def run(*args: Any, **kwargs: Any) -> Any:
        return decomposition(*args, **kwargs)
    run.__name__ = name
    return run


def platform_dependent(*args: Any, default: Callable[..., Any] | None = None,
                       **per_platform: Callable[..., Any]) -> Any:
    """`cpu=` of the functions, or the default."""
    fun = per_platform.get("cpu", default)
    if fun is None:
        raise NotImplementedError(f"platform_dependent: functions for {sorted(per_platform)} and "
                                  "no default, and the platform is cpu")
    return fun(*args)


def broadcast_like(arr: Any, like_arr: Any) -> Any:
    """The array in the shape of another."""
    return _n.broadcast_to(arr, as_array(like_arr).shape)


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Nothing: what is computed is not left out."""


def stage(x: Any, /) -> Any:
    """The value as an array."""
    return _n.asarray(x)


def shape_as_value(shape: Any) -> Any:
    """The sizes as an array of integers."""
    return _n.asarray(list(shape), "int32")


class Token:
    """The order of effects, which happen where they stand."""


def create_token(_: Any = None) -> Token:
    """A token."""
    return Token()


def after_all(*operands: Any) -> Token:
    """A token after others."""
    return Token()


def rng_uniform(a: Any, b: Any, shape: Any) -> Any:
    """Uniform draws between two numbers, from the streams of `jax.random`."""
    from adjoint.jax import random
    low, high = as_array(a), as_array(b)
    if low.dtype != high.dtype:
        raise TypeError(f"rng_uniform requires arguments of one dtype, got {low.dtype.name} and "
                        f"{high.dtype.name}")
    return random.uniform(random.key(next(_DRAWS)), tuple(shape), as_dtype(low.dtype), low, high)


_DRAWS = itertools.count(1)


def rng_bit_generator(key: Any, shape: Any, dtype: Any = np.uint32, algorithm: Any = 0, *,
                      out_sharding: Any = None) -> Any:
    """(The state after, random bits): Philox, or Threefry where `algorithm` says so."""
    kind, words = as_dtype(dtype), as_array(key)
    if kind.kind != "u":
        raise TypeError(f"rng_bit_generator: unsupported dtype {kind}")
    assert words.dtype == np.uint32 and words.shape in ((4,), (2, 4)), (
        f"a state is 4 words of uint32, got {words.dtype}{list(words.shape)}")
    t, width, n = words.tensor, kind.itemsize * 8, math.prod(shape)
    block, draw = (64, _threefry_stream) if int(algorithm) == RandomAlgorithm.RNG_THREE_FRY else (
        128, philox_bits)
    used = -(-n * max(width, 32) // block)
    long = np.dtype(np.int64)
    low = t[2].to(long) + used
    after = T["stack"]([t[0].to(long), t[1].to(long), low & 0xFFFFFFFF,
                        (t[3].to(long) + (low >> 32)) & 0xFFFFFFFF])
    return make(after.to(words.dtype)), make(draw(t, shape=tuple(shape), width=width))


def _threefry_stream(state: Any, *, shape: Any, width: int) -> Any:
    """Two words of every number that follows the state's last two words."""
    n = math.prod(shape)
    blocks = -(-n * max(width, 32) // 64)
    place = state[2].to(np.dtype(np.int64)) + wrap(np.arange(blocks))
    drawn = draw_with(state, _threefry_words, (blocks, 2), place, dtype=np.uint32).reshape(-1)
    if width == 64:
        wide = drawn.to(np.dtype(np.uint64))
        drawn = wide[::2] | wide[1::2] << 32
    return drawn[:n].to(np.dtype(f"uint{width}")).reshape(shape)


def _threefry_words(state: Any, place: Any) -> Any:
    high = (place >> 32).astype(np.uint32) + state[3]
    return threefry_pairs(state[:2], place.astype(np.uint32), high)


class AccuracyMode(enum.Enum):
    """How accurate an elementwise function is asked to be; here they are as they are."""

    HIGHEST = 1
    DEFAULT = 2


class RandomAlgorithm(enum.IntEnum):
    """Generators of XLA."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


class Tolerance(NamedTuple):
    """The errors that an elementwise function may have."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0


__all__ = ["AccuracyMode", "RaggedDotDimensionNumbers", "RandomAlgorithm", "Tolerance",
           "after_all", "broadcast_like", "composite", "conv_general_dilated_local",
           "create_token", "dce_sink", "platform_dependent", "ragged_dot", "ragged_dot_general",
           "reduce_window_shape_tuple", "rng_bit_generator", "rng_uniform",
           "shape_as_value", "stage"]
