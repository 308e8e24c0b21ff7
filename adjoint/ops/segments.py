"""Reductions of stretches of an axis, and the hash of a tensor's bits."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray
from adjoint.base.dtypes import of_numpy
from adjoint.base.errors import ArgumentError, DTypeError, NotSupported, ShapeError
from adjoint.core.op import op
from adjoint.core.tensor import wrap
from adjoint.ops.api_common import (
    dtype_of,
    exactly,
    many_dims,
    need,
    need_kernel,
    numel,
    one_dim,
    value,
)
from adjoint.ops.pointwise import div
from adjoint.ops.public import FUNCTIONS
from adjoint.ops.reduce import reduced_shape
from adjoint.ops.shape import narrow_op

UINT64 = np.dtype(np.uint64)
EMPTY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf}
LONG = {"max": "amax", "min": "amin"}


def _lengths(lengths: Any, offsets: Any, data: Any, axis: int, unsafe: bool) -> Any:
    """Lengths (*batch, segments) of the stretches, checked against the data."""
    if (lengths is None) == (offsets is None):
        raise ArgumentError("segment_reduce(): Either lengths or offsets must be defined."
                            + ("" if lengths is None else " They are both given."))
    sizes = value(lengths, "segment_reduce") if offsets is None else np.diff(
        value(offsets, "segment_reduce"), axis=-1)
    if sizes.ndim - 1 != axis:
        raise ShapeError("segment_reduce(): Expected axis to be the last dimension of lengths but "
                         f"got {axis}: lengths have {sizes.ndim} axes, so axis={sizes.ndim - 1}")
    if tuple(sizes.shape[:-1]) != tuple(data.shape[:axis]):
        raise ShapeError(f"segment_reduce(): lengths {list(sizes.shape)} must have the leading "
                         f"axes of data {list(data.shape)}")
    if not unsafe and ((sizes < 0).any() or (sizes.sum(-1) != data.shape[axis]).any()):
        raise ArgumentError("segment_reduce(): Expected all rows of lengths along axis to sum to "
                            "data.size(lengths.dim()-1) when !unsafe. Got sums "
                            f"{sizes.sum(-1).tolist()} for {data.shape[axis]} elements")
    return sizes


def _segment_of(sizes: Any, n: int) -> Any:
    """The segment of each of n elements, row by row; what no segment has goes to one more."""
    ends = np.cumsum(sizes, axis=-1).reshape(-1, sizes.shape[-1])
    rows = [np.searchsorted(e, np.arange(n), side="right") for e in ends]
    return np.array(rows, np.int64).reshape(*sizes.shape[:-1], n)


def segment_reduce(data: Any, reduce: str, *, lengths: Any = None, indices: Any = None,
                   offsets: Any = None, axis: int = 0, unsafe: bool = False,
                   initial: Any = None) -> Any:
    """Stretches of `axis` reduced one by one: "sum", "mean", "max", "min" or "prod".

    lengths (*batch, segments) or offsets (*batch, segments + 1), whose leading axes are those of
    data before `axis`. `initial` takes part in every stretch; without it an empty one gives 0, nan,
    -inf, inf or 1. Differentiable; ties of "max" and "min" share the gradient. Raises ArgumentError
    or ShapeError where lengths do not fit, unless `unsafe`.

    >>> import adjoint as ad
    >>> ad.segment_reduce(ad.tensor([1.0, 2.0, 3.0]), "sum", lengths=ad.tensor([2, 0, 1]))
    tensor([3., 0., 3.])
    """
    need("segment_reduce", data)
    need_kernel("_segment_reduce_cpu", "biuc", data)
    if indices is not None:
        raise NotSupported("segment_reduce(): indices based reduction is not supported; give "
                           "lengths, or use scatter_reduce")
    kind = LONG.get(reduce, reduce)
    if kind not in EMPTY:
        raise ArgumentError("reduce argument must be either sum, prod, mean, amax or amin, got "
                            f"{reduce}")
    axis = one_dim(data, axis)
    sizes = _lengths(lengths, offsets, data, axis, unsafe)
    n, count = data.shape[axis], sizes.shape[-1]
    at = _segment_of(sizes, n)
    at = np.broadcast_to(at.reshape(*at.shape, *(1,) * (len(data.shape) - axis - 1)), data.shape)
    shape = (*data.shape[:axis], count + 1, *data.shape[axis + 1:])
    start = FUNCTIONS["full"](shape, EMPTY[kind] if initial is None else initial,
                              dtype=dtype_of(data))
    how = "sum" if kind == "mean" else kind
    out = FUNCTIONS["scatter_reduce"](start, axis, wrap(at), data, how)
    out = narrow_op(out, dim=axis, start=0, length=count)
    if kind != "mean":
        return out.contiguous()
    counts = np.where(sizes == 0, 0 if initial is None else 1, sizes).astype(dtype_of(data))
    return div(out, counts.reshape(*counts.shape, *(1,) * (len(data.shape) - axis - 1)))


def _hash(x: Any, /, *, dim: tuple[int, ...], keepdim: bool) -> Any:
    wide = x.astype(np.float64) if x.dtype.kind in "fV" else x.astype(np.int64)
    xor: Any = np.bitwise_xor      # typed loosely: the stubs know too few forms of reduce
    return xor.reduce(wide.view(UINT64), axis=dim, keepdims=keepdim)


hash_op: Any = op(
    "hash_tensor", impl=_hash, infer=lambda x, *, dim, keepdim: Aval(
        reduced_shape(x.shape, dim, keepdim), UINT64), cost=lambda x, **_: x.size,
    batch=lambda op_, args, b, attrs: op_.call(args[0], dim=tuple(d + 1 for d in attrs["dim"]),
                                               keepdim=attrs["keepdim"]),
    domain=lambda: [((np.array([[1.0, 2.0], [3.0, 4.0]]),), {"dim": (1,), "keepdim": False})])


_hash_out = exactly("Expected result to be of dtype {want}, but got {have}")


def hash_tensor(input: Any, dim: Any = (), *, keepdim: bool = False, mode: int = 0,
                out: Any = None) -> Any:
    """The exclusive or of the elements' bits over axes, uint64: floats as float64, others as int64.

    Equal tensors have equal hashes. Raises NotSupported for complex numbers and other modes.

    >>> import adjoint as ad
    >>> ad.hash_tensor(ad.tensor([1, 2, 4])).item()
    7
    """
    need("hash_tensor", input)
    if mode != 0:
        raise ArgumentError(f"Unknown hash_tensor mode: {mode}; 0 (exclusive or) is the only one")
    if dtype_of(input).kind == "c":
        raise NotSupported('"xor_sum_cpu" not implemented for complex numbers: hash '
                           "view_as_real(input)")
    dims = many_dims(input, dim)
    if not numel(input) and len(dims) == len(input.shape) and not isinstance(
            getattr(input, "array", input), MetaArray):
        raise ArgumentError("hash_tensor: Expected reduction dim to be specified for input.numel() "
                            "== 0. Specify the reduction dim with the 'dim' argument.")
    return _hash_out(out, hash_op(input, dim=dims, keepdim=bool(keepdim)))


def _vector(name: str, **given: Any) -> list[Any]:
    for what, x in given.items():
        need(name, x)
        if dtype_of(x).kind not in "i":
            raise DTypeError(f'"{name}_cpu" not implemented for {of_numpy(dtype_of(x)).name}: '
                             f"{what} holds indices, int32 or int64")
    return [value(x, name) for x in given.values()]


def _convert_indices_from_coo_to_csr(input: Any, size: int, *, out_int32: bool = False) -> Any:
    """Where each of `size` rows begins and ends, (size + 1,), in sorted row indices (n,).

    >>> import adjoint as ad
    >>> ad._convert_indices_from_coo_to_csr(ad.tensor([0, 0, 2]), 4)
    tensor([0, 2, 2, 3, 3])
    """
    rows, = _vector("convert_indices_from_coo_to_csr", input=input)
    if rows.ndim != 1:
        raise ShapeError("Input is supposed to be a vector, but got "
                         f"{rows.ndim} dimensional tensor.")
    return wrap(np.searchsorted(rows, np.arange(size + 1)).astype(
        np.int32 if out_int32 else np.int64))


def _convert_indices_from_csr_to_coo(crow_indices: Any, col_indices: Any, *,
                                     out_int32: bool = False, transpose: bool = False) -> Any:
    """Positions (2, n) of what a compressed matrix stores; `transpose` gives columns first.

    >>> import adjoint as ad
    >>> ad._convert_indices_from_csr_to_coo(ad.tensor([0, 2, 2, 3]), ad.tensor([1, 2, 0]))
    tensor([[0, 0, 2],
            [1, 2, 0]])
    """
    name = "convert_indices_from_csr_to_coo"
    ends, columns = _vector(name, crow_indices=crow_indices, col_indices=col_indices)
    if ends.ndim != 1 or columns.ndim != 1:
        raise ShapeError(f"{name}: crow_indices {list(ends.shape)} and col_indices "
                         f"{list(columns.shape)} must be vectors; convert batches one by one")
    pair = [np.repeat(np.arange(len(ends) - 1), np.diff(ends)), columns]
    return wrap(np.stack(pair[::-1] if transpose else pair).astype(
        np.int32 if out_int32 else np.int64))


_segment_reduce = segment_reduce        # programs call it by this name too

__all__ = ["hash_tensor", "segment_reduce"]
