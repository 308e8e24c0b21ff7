"""Records of unusual views: diagonals, sliding windows, strides of one's own, complex numbers as
pairs and back, and their parts; the functions of the last."""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from adjoint.base.aval import Aval, aval_of
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.autocast import in_float32
from adjoint.core.inplace import inplace
from adjoint.core.op import Op, op
from adjoint.core.tensor import mirrored
from adjoint.ops.api_common import finish_kept, finish_same, need, need_tensors
from adjoint.ops.family import is_complex
from adjoint.ops.index import index_op, tril_op, triu_op, unindex_op
from adjoint.ops.pointwise import conj_op
from adjoint.ops.public import planned, public
from adjoint.ops.shape import clone_op, permute_op, reshape, select_op

Shape = tuple[int, ...]


def diagonal_length(shape: Shape, offset: int, dim1: int, dim2: int) -> int:
    """Elements of a diagonal."""
    n, m = shape[dim1], shape[dim2]
    return max(0, min(n, m - offset) if offset >= 0 else min(n + offset, m))


def _diagonal(x: Any, /, *, offset: int, dim1: int, dim2: int) -> Any:
    """A writable view of the diagonals, the diagonal axis last."""
    out = np.diagonal(x, offset, dim1, dim2)
    if x.flags.writeable:
        out.flags.writeable = True
    return out


def _diagonal_shape(x: Any, offset: int, dim1: int, dim2: int) -> Shape:
    rest = tuple(n for d, n in enumerate(x.shape) if d not in (dim1, dim2))
    return (*rest, diagonal_length(x.shape, offset, dim1, dim2))


def _undiagonal(ct: Any, /, *, shape: Shape, offset: int, dim1: int, dim2: int) -> Any:
    out = np.zeros(shape, ct.dtype)
    _diagonal(out, offset=offset, dim1=dim1, dim2=dim2)[...] = ct
    return out


def _deeper(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    new = {**attrs, "dim1": attrs["dim1"] + 1, "dim2": attrs["dim2"] + 1}
    if "shape" in attrs:
        new["shape"] = (args[0].shape[0], *attrs["shape"])
    return op_.call(args[0], **new)


diagonal_op: Any = op(
    "diagonal", impl=_diagonal, infer=lambda x, *, offset, dim1, dim2: Aval(
        _diagonal_shape(x, offset, dim1, dim2), x.dtype),
    vjp={"x": lambda ct, x_aval, *, offset, dim1, dim2: undiagonal_op(
        ct, shape=x_aval.shape, offset=offset, dim1=dim1, dim2=dim2)},
    jvp={"x": None}, view=True, batch=_deeper)
undiagonal_op: Any = op(
    "diagonal_backward", impl=_undiagonal,
    infer=lambda ct, *, shape, **_: Aval(shape, ct.dtype),
    vjp={"ct": lambda ct, *, offset, dim1, dim2: diagonal_op(ct, offset=offset, dim1=dim1,
                                                             dim2=dim2)},
    jvp={"ct": None}, batch=_deeper, node="DiagEmbedBackward0")


# ------------------------------------------------------------------ sliding windows
def _windows(x: Any, /, *, dim: int, size: int, step: int) -> Any:
    count = (x.shape[dim] - size) // step + 1
    shape = (*x.shape[:dim], count, *x.shape[dim + 1:], size)
    steps = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1:], x.strides[dim])
    return as_strided(x, shape, steps, writeable=bool(x.flags.writeable))


def _windows_vjp(ct: Any, x_aval: Aval, *, dim: int, size: int, step: int) -> Any:
    rank = x_aval.ndim
    count = (x_aval.shape[dim] - size) // step + 1
    at = np.arange(count)[:, None] * step + np.arange(size)
    moved = permute_op(ct, dims=(*range(dim + 1), rank, *range(dim + 1, rank)))
    return unindex_op(moved, at, shape=x_aval.shape, dims=(dim,))


windows_op: Any = op(
    "unfold", impl=_windows, infer=lambda x, *, dim, size, step: Aval(
        (*x.shape[:dim], (x.shape[dim] - size) // step + 1, *x.shape[dim + 1:], size), x.dtype),
    vjp={"x": _windows_vjp}, jvp={"x": None}, view=True,
    batch=lambda op_, args, b, attrs: op_.call(args[0], **{**attrs, "dim": attrs["dim"] + 1}))


# ------------------------------------------------------------------ as_strided
def _strided(x: Any, /, *, size: Shape, stride: Shape, offset: int) -> Any:
    flat = np.ascontiguousarray(x).reshape(-1)[offset:]
    return as_strided(flat, size, tuple(s * x.itemsize for s in stride),
                      writeable=bool(x.flags.writeable))


def strided_places(size: Shape, stride: Shape, offset: int) -> Any:
    """Positions in the flat operand that a strided view shows."""
    at = np.full((1,) * len(size), offset, np.int64)
    for d, (n, s) in enumerate(zip(size, stride, strict=True)):
        at = at + (np.arange(n) * s).reshape((-1, *(1,) * (len(size) - d - 1)))
    return np.broadcast_to(at, size)


def linear(at: Any, shape: Any) -> Any:
    """Positions (axes, n) as numbers in row-major order."""
    if not len(shape):
        return np.zeros(at.shape[1], np.int64)
    return np.ravel_multi_index(tuple(at), tuple(shape)).astype(np.int64) if at.size else np.zeros(
        at.shape[1], np.int64)


def ordered(at: Any, shape: Any) -> bool:
    """Whether positions (axes, n) rise in row-major order, so that none repeats."""
    flat = linear(at, shape)
    return bool(np.all(flat[1:] > flat[:-1]))


def _strided_vjp(ct: Any, x_aval: Aval, *, size: Shape, stride: Shape, offset: int) -> Any:
    at = strided_places(size, stride, offset)
    flat = unindex_op(ct, at, shape=(x_aval.size,), dims=(0,))
    return reshape(flat, x_aval.shape)


def _batch_strided(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    x = args[0]
    flat = reshape(x, (x.shape[0], math.prod(x.shape[1:])))
    at = strided_places(attrs["size"], attrs["stride"], attrs["offset"])
    return index_op(flat, at, dims=(1,))


as_strided_op: Any = op(
    "as_strided", impl=_strided, infer=lambda x, *, size, **_: Aval(size, x.dtype),
    vjp={"x": _strided_vjp}, jvp={"x": None}, view=True, batch=_batch_strided)


# ------------------------------------------------------------------ complex numbers as pairs
def _pairs(x: Any, /) -> Any:
    _pairs_aval(aval_of(x))
    return x[..., None].view(np.dtype(f"f{x.dtype.itemsize // 2}"))


def _pairs_aval(x: Aval) -> Aval:
    if x.dtype.kind != "c":
        raise DTypeError(f"view_as_real is only supported for complex tensors, got {x.dtype}; "
                         "a real tensor x is torch.stack([x, torch.zeros_like(x)], -1)")
    return Aval((*x.shape, 2), np.dtype(f"f{x.dtype.itemsize // 2}"))


def _joined(x: Any, /) -> Any:
    _joined_aval(aval_of(x))
    if x.strides[-1] != x.itemsize:
        x = np.ascontiguousarray(x)
    return x.view(np.dtype(f"c{x.dtype.itemsize * 2}"))[..., 0]


def _joined_aval(x: Aval) -> Aval:
    if x.dtype.kind != "f" or x.dtype.itemsize < 4:
        raise DTypeError("view_as_complex is only supported for half, float and double tensors (of "
                         f"which half has no complex dtype here), got {x.dtype}")
    if not x.ndim or x.shape[-1] != 2:
        raise ShapeError("Tensor must have a last dimension of size 2: view_as_complex reads pairs "
                         f"(real, imaginary), got shape {list(x.shape)}")
    return Aval(x.shape[:-1], np.dtype(f"c{x.dtype.itemsize * 2}"))


def _same(op_: Op, args: Any, batched: Any, attrs: Any) -> Any:
    return op_.call(*args)


def _complex_domain() -> list[Any]:
    a = np.random.default_rng(0).standard_normal((2, 3, 2))
    return [((a[..., 0] + 1j * a[..., 1],), {}), ((np.array(1 - 2j),), {})]


def _pairs_domain() -> list[Any]:
    return [((np.random.default_rng(0).standard_normal((3, 2)),), {})]


view_as_real_op: Any = op(
    "view_as_real", impl=_pairs, infer=_pairs_aval, vjp={"x": lambda ct: view_as_complex_op(ct)},
    jvp={"x": None}, batch=_same, view=True, domain=_complex_domain)
view_as_complex_op: Any = op(
    "view_as_complex", impl=_joined, infer=_joined_aval,
    vjp={"x": lambda ct: view_as_real_op(ct)}, jvp={"x": None}, batch=_same, view=True,
    domain=_pairs_domain)


@public()
def view_as_real(input: Any) -> Any:
    """Complex (...) as real (..., 2): a view.

    >>> import adjoint as ad
    >>> ad.view_as_real(ad.tensor([1 + 2j]))
    tensor([[1., 2.]])
    """
    return view_as_real_op(input)


@public()
@in_float32
def view_as_complex(input: Any) -> Any:
    """Real (..., 2) as complex (...): a view.

    >>> import adjoint as ad
    >>> ad.view_as_complex(ad.tensor([[1.0, 2.0]]))
    tensor([1.+2.j])
    """
    if not len(input.shape):
        raise ShapeError("Input tensor must have one or more dimensions: Tensor must have a last "
                         "dimension of size 2")
    array = input.array
    if type(array) is np.ndarray and array.size and array.shape[-1] == 2:
        _paired(array)
    return view_as_complex_op(input)


def _paired(array: Any) -> None:
    """Refuse memory in which the two numbers of a pair do not lie side by side, as PyTorch does."""
    *steps, last = (s // array.itemsize for s in array.strides)
    if last != 1:
        raise ArgumentError("Tensor must have a last dimension with stride 1: it is "
                            f"{last}; call contiguous() first")
    if any(s % 2 for s, n in zip(steps, array.shape[:-1], strict=True) if n > 1):
        raise ArgumentError("Tensor must have a stride divisible by 2 for all but last dimension, "
                            f"got strides {[*steps, last]}; call contiguous() first")


@public(method=False, quick=True)
def real(input: Any) -> Any:
    """The real part: a view of a complex tensor, a real tensor itself."""
    return _part(input, 0) if is_complex(input) else input


@public(method=False, quick=True)
def imag(input: Any) -> Any:
    """The imaginary part of a complex tensor: a view.

    >>> import adjoint as ad
    >>> z = ad.tensor([1 + 2j])
    >>> z.imag.mul_(10), z
    (tensor([20.]), tensor([1.+20.j]))
    """
    if not is_complex(input):
        raise DTypeError("imag is not implemented for tensors with non-complex dtypes.")
    return _part(input, 1)


def _part(input: Any, index: int) -> Any:
    if getattr(input, "turn", ""):             # of what it is the conjugate of
        part = _part(mirrored(input, "conj"), index)
        return mirrored(part, "neg") if index else part
    return select_op(view_as_real_op(input), dim=len(input.shape), index=index)


@public()
def conj(input: Any) -> Any:
    """The complex conjugate, a view; real tensors as they are.

    >>> import adjoint as ad
    >>> x = ad.tensor([1 + 2j])
    >>> x.conj().mul_(2), x
    (tensor([2.-4.j]), tensor([2.+4.j]))
    """
    need_tensors("conj", input)
    return mirrored(input, "conj") if is_complex(input) else input


@public("_neg_view")
def neg_view(input: Any) -> Any:
    """The negative, a view."""
    need_tensors("_neg_view", input)
    return mirrored(input, "neg")


def _resolved(turn: str) -> None:
    def resolve(input: Any) -> Any:
        need_tensors(resolve.__name__, input)
        return clone_op(input) if getattr(input, "turn", "") == turn else input
    resolve.__name__ = resolve.__qualname__ = f"resolve_{turn}"
    resolve.__doc__ = f"The tensor itself, or a copy of what is a view by `{turn}`."
    public(f"resolve_{turn}")(resolve)


_resolved("conj")
_resolved("neg")


@public(name="conj_physical")
def conj_physical(input: Any, *, out: Any = None) -> Any:
    """The complex conjugate, in memory."""
    need_tensors("conj_physical", input)
    return finish_kept(out, conj_op(input) if is_complex(input) else input, input)


# ------------------------------------------------------------------ triangles
@public()
@planned
def tril(input: Any, diagonal: int = 0, *, out: Any = None) -> Any:
    """The lower triangle of the last two axes, 0 above `diagonal`."""
    _matrix("tril", input)
    return finish_same(out, tril_op(input, diagonal=diagonal))


@public()
@planned
def triu(input: Any, diagonal: int = 0, *, out: Any = None) -> Any:
    """The upper triangle of the last two axes, 0 below `diagonal`."""
    _matrix("triu", input)
    return finish_same(out, triu_op(input, diagonal=diagonal))


def _matrix(name: str, x: Any) -> None:
    need(name, x)
    if len(x.shape) < 2:
        raise ShapeError(f"{name}: input tensor must have at least 2 dimensions, got "
                         f"{len(x.shape)}")


@public("tril_", function=False)
def tril_(self: Any, diagonal: int = 0) -> Any:
    """In-place `tril`."""
    return inplace(tril_op.op, self, (), {"diagonal": diagonal}, name="tril_")


@public("triu_", function=False)
def triu_(self: Any, diagonal: int = 0) -> Any:
    """In-place `triu`."""
    return inplace(triu_op.op, self, (), {"diagonal": diagonal}, name="triu_")


__all__ = ["as_strided_op", "diagonal_length", "diagonal_op", "imag", "real", "strided_places",
           "undiagonal_op", "view_as_complex", "view_as_real", "windows_op"]
