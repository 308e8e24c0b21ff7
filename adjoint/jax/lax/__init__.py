"""`jax.lax`: the functions under `jax.numpy`, which promote nothing, and control flow."""
from __future__ import annotations

import enum as _enum
from typing import Any as _Any

from adjoint import func as _func
from adjoint.jax._absent import lacking as _lacking
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._array import make as _make
from adjoint.jax._flat import Leaves as _Leaves
from adjoint.jax._keys import keyed as _keyed
from adjoint.jax._util import canonicalize_axis as _canonicalize_axis
from adjoint.jax.lax import _dots, _elementwise, _shapes, _windows, linalg
from adjoint.jax.lax._control import (
    associative_scan,
    cond,
    custom_linear_solve,
    custom_root,
    fori_loop,
    map,
    scan,
    stop_gradient,
    switch,
    while_loop,
)
from adjoint.jax.lax._elementwise import RoundingMethod
from adjoint.jax.lax._precision import (
    DotAlgorithm,
    DotAlgorithmPreset,
    Precision,
    PrecisionLike,
)
from adjoint.jax.lax._rest import (
    AccuracyMode,
    RaggedDotDimensionNumbers,
    RandomAlgorithm,
    Tolerance,
    after_all,
    broadcast_like,
    composite,
    conv_general_dilated_local,
    create_token,
    dce_sink,
    platform_dependent,
    ragged_dot,
    ragged_dot_general,
    reduce_window_shape_tuple,
    rng_bit_generator,
    rng_uniform,
    shape_as_value,
    stage,
)
from adjoint.jax.numpy._create import NAMES as _C
from adjoint.jax.numpy._select import NAMES as _S
from adjoint.jax.numpy._shape import NAMES as _M

_part: _Any
for _part in (_dots, _elementwise, _shapes, _windows):
    globals().update(_part.NAMES)
_keyed(globals(), "jax.lax")


class GatherScatterMode(_enum.Enum):
    """What happens out of bounds."""

    CLIP = 0
    FILL_OR_DROP = 1
    PROMISE_IN_BOUNDS = 2


class FftType(_enum.IntEnum):
    """The kinds of Fourier transform."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


# ------------------------------------------------------------------ collectives of a named vmap
def _one_group(axis_index_groups: _Any) -> None:
    """NotImplementedError for collectives of groups of examples, as under JAX's vmap."""
    if axis_index_groups is not None:
        raise NotImplementedError("axis_index_groups not supported in vmap: all examples of the "
                                  "mapped axis take part")


def _collective(name: str) -> _Any:
    ours = getattr(_func, name)

    def run(x: _Any, axis_name: _Any, *, axis_index_groups: _Any = None) -> _Any:
        given = _Leaves(x)
        names = axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,)
        found = given.tensors
        _one_group(axis_index_groups)
        for n in names:
            found = [ours(t, n) for t in found]
        return given.tree(found)
    run.__name__ = name
    run.__doc__ = f"`jax.lax.{name}` over the axis of a vmap with that `axis_name`."
    return run


psum, pmean, pmax, pmin = (_collective(n) for n in ("psum", "pmean", "pmax", "pmin"))


def all_gather(x: _Any, axis_name: _Any, *, axis_index_groups: _Any = None, axis: int = 0,
               tiled: bool = False, to: str = "varying") -> _Any:
    """The values of all examples of a vmap along a new axis, or one after another along an axis
    that is there, where `tiled`. `to` is about the types of `shard_map`."""
    _one_group(axis_index_groups)
    if to not in ("varying", "reduced", "invarying"):
        raise ValueError(f"all_gather: to={to!r} is none of 'varying', 'reduced', 'invarying'")
    given = _Leaves(x)
    found = given.tensors
    for n in axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,):
        found = [_func.all_gather(t, n, axis=axis if not tiled else axis % t.ndim) for t in found]
        if tiled:
            found = [t.reshape((*t.shape[:axis % (t.ndim - 1)], -1,
                                *t.shape[axis % (t.ndim - 1) + 2:])) for t in found]
    return given.tree(found)


def axis_index(axis_name: _Any) -> _Any:
    """The number of the example along a named axis."""
    return _make(_func.axis_index(axis_name)).astype("int32")


def axis_size(axis_name: _Any) -> int:
    """The number of examples along a named axis."""
    return int(_func.axis_size(axis_name))


def ppermute(x: _Any, axis_name: _Any, perm: _Any) -> _Any:
    """Values sent from example to example: `perm` has (source, target) pairs; zeros elsewhere."""
    given = _Leaves(x)
    n = axis_size(axis_name)
    source: list[int | None] = [None] * n
    for s, t in perm:
        source[t] = s
    here = axis_index(axis_name)
    out = []
    for a in given.arrays:
        rows = all_gather(a, axis_name)
        table = _as_array_list([-1 if s is None else s for s in source])
        at = table[here]
        got = rows[_S["where"](at < 0, 0, at)]
        out.append(_S["where"](at < 0, 0, got).astype(a.dtype).tensor)
    return given.tree(out)


def _sent(name: str, x: _Any, axis_name: _Any, split_axis: int, tiled: bool) -> tuple[_Any, _Any]:
    """The leaves of `x`, and for each what every example has for this one: entry k comes from
    example k, without the axis that is split, or with it where `tiled`."""
    given, n, here, found = _Leaves(x), axis_size(axis_name), axis_index(axis_name), []
    for a in given.arrays:
        at = _canonicalize_axis(split_axis, a.ndim)
        size = a.shape[at]
        if size % n if tiled else size != n:
            what = "divide" if tiled else "equal"
            raise ValueError(f"{name} requires the size of the mapped axis axis_name to {what} "
                             f"x.shape[split_axis], but they are {n} and {size} respectively.")
        if tiled:
            a = a.reshape((*a.shape[:at], n, size // n, *a.shape[at + 1:]))
        found.append(_M["moveaxis"](all_gather(a, axis_name), at + 1, 0)[here])
    return given, found


def all_to_all(x: _Any, axis_name: _Any, split_axis: int, concat_axis: int, *,
               axis_index_groups: _Any = None, tiled: bool = False) -> _Any:
    """Example i gets entry i along `split_axis` of every example, in a new axis `concat_axis`.

    tiled  parts along `split_axis` in place of entries, joined along `concat_axis`

    >>> from adjoint import jax
    >>> jax.vmap(lambda x: jax.lax.all_to_all(x, "i", 0, 0), axis_name="i")(jax.numpy.array(
    ...     [[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    _one_group(axis_index_groups)
    given, found = _sent("all_to_all", x, axis_name, split_axis, tiled)
    out = []
    for y in found:
        at = _canonicalize_axis(concat_axis, y.ndim - tiled)
        y = _M["moveaxis"](y, 0, at)
        out.append((y.reshape((*y.shape[:at], y.shape[at] * y.shape[at + 1], *y.shape[at + 2:]))
                    if tiled else y).tensor)
    return given.tree(out)


def psum_scatter(x: _Any, axis_name: _Any, *, scatter_dimension: int = 0,
                 axis_index_groups: _Any = None, tiled: bool = False) -> _Any:
    """The sum over examples, of which example i keeps entry i along `scatter_dimension`, or, where
    `tiled`, its part of that axis."""
    _one_group(axis_index_groups)
    given, found = _sent("psum_scatter", x, axis_name, scatter_dimension, tiled)
    return given.tree([y.sum(0).tensor for y in found])


def pshuffle(x: _Any, axis_name: _Any, perm: _Any) -> _Any:
    """Example i gets the value of example `perm[i]`."""
    if {*perm} != {*range(len(perm))}:
        raise ValueError(f"`perm` does not represent a permutation: {perm}")
    return ppermute(x, axis_name, list(zip(perm, range(len(perm)), strict=True)))


def pswapaxes(x: _Any, axis_name: _Any, axis: int, *, axis_index_groups: _Any = None) -> _Any:
    """`all_to_all` along one axis: it and the mapped one change places."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def _as_array_list(values: list[int]) -> _Any:
    return _C["array"](values)


def with_sharding_constraint(x: _Any, shardings: _Any) -> _Any:
    """x: there is one device."""
    return x


def igamma_grad_a(a: _Any, x: _Any) -> _Any:
    """The derivative of `igamma` in its first argument."""
    from adjoint.jax._transforms import jvp
    from adjoint.jax.scipy.special import gammainc
    first = _as_array(a)
    return jvp(lambda v: gammainc(v, x), (first,), (first * 0 + 1,))[1]


__all__ = ["AccuracyMode", "DotAlgorithm", "DotAlgorithmPreset", "FftType", "GatherScatterMode",
           "Precision", "PrecisionLike", "RaggedDotDimensionNumbers", "RandomAlgorithm",
           "RoundingMethod", "Tolerance", "after_all", "all_gather", "all_to_all",
           "associative_scan", "axis_index", "axis_size", "broadcast_like", "composite", "cond",
           "conv_general_dilated_local", "create_token", "custom_linear_solve", "custom_root",
           "dce_sink", "fori_loop", "linalg", "map", "platform_dependent", "pmax", "pmean", "pmin",
           "ppermute", "pshuffle", "psum", "psum_scatter", "pswapaxes", "ragged_dot",
           "ragged_dot_general", "reduce_window_shape_tuple", "rng_bit_generator", "rng_uniform",
           "scan", "shape_as_value", "stage", "stop_gradient", "switch", "while_loop",
           "with_sharding_constraint"]
__getattr__ = _lacking("lax")
