"""Public products of matrices and vectors."""
from __future__ import annotations

from typing import Any

from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import ShapeError
from adjoint.core.autocast import as_it_is, lowered
from adjoint.core.inplace import inplace
from adjoint.core.modes import warn
from adjoint.core.tensor import Tensor
from adjoint.core.trace import LevelTensor
from adjoint.ops.api_common import (
    cast_to,
    dtype_of,
    exactly,
    finish,
    finish_same,
    need,
    need_kernel,
    need_rank,
    older,
    same_dtype,
)
from adjoint.ops.linalg import (
    addmm_op,
    baddbmm_op,
    bmm_op,
    conj,
    dot_op,
    linear_op,
    matmul_op,
    mm_op,
    mv_op,
    scaled,
    vm_op,
)
from adjoint.ops.pointwise import add, mul, ne
from adjoint.ops.public import SPARSE, known_as, planned, public
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import reshape, squeeze_op, transpose_op, unsqueeze_op

_dot_out = exactly("result dtype {have} does not match input dtype {want}")


@public()
@planned
def matmul(input: Any, other: Any, *, out: Any = None) -> Any:
    """Matrix product; leading axes broadcast, vectors are rows or columns as needed.

    Shapes: (n,)·(n,) -> (); (n, m)·(m, p) -> (n, p); (..., n, m)·(..., m, p) -> (..., n, p).
    Raises ShapeError where the inner axes differ and DTypeError where the dtypes do.

    >>> import adjoint as ad
    >>> ad.matmul(ad.ones(2, 3), ad.ones(3, 4)).shape
    adjoint.Size([2, 4])
    """
    if type(input) is not Tensor or type(other) is not Tensor:
        product = SPARSE.get(type(input)) or SPARSE.get(type(other))
        if product is not None:
            return finish(out, product(input, other))
    need("matmul", input, other)
    need_kernel("dot" if len(input.shape) == len(other.shape) == 1 else "addmm_impl_cpu_", "b",
                input)
    return finish_same(out, _matmul(input, other))


def _matmul(a: Any, b: Any) -> Any:
    m, n = len(a.shape), len(b.shape)
    if m == 2 and n == 2:
        return mm_op(a, b)
    if m == 0 or n == 0:
        raise ShapeError(f"both arguments to matmul need to be at least 1D, but they are {m}D and "
                         f"{n}D; use mul for numbers")
    if m == 1 or n == 1:
        a, b = lowered(a, b)
    if m == 1 and n == 1:
        return dot_op(a, b)
    if m == 2 and n == 1:
        return mv_op(a, b)
    if m == 1 and n == 2 and (isinstance(a, LevelTensor) or isinstance(b, LevelTensor)):
        return vm_op(a, b)
    if m == 1:
        return squeeze_op(_matmul(unsqueeze_op(a, dim=0), b), dims=(max(n, 2) - 2,))
    if n == 1:
        return squeeze_op(matmul_op(a, unsqueeze_op(b, dim=1)), dims=(m - 1,))
    if m == 3 and n == 3 and a.shape[0] == b.shape[0]:
        return bmm_op(a, b)
    return matmul_op(a, b)


@public()
@planned
def mm(input: Any, mat2: Any, *, out: Any = None) -> Any:
    """Product of two matrices (n, m) and (m, p); does not broadcast.

    >>> import adjoint as ad
    >>> ad.mm(ad.ones(2, 3), ad.ones(3, 1))
    tensor([[3.],
            [3.]])
    """
    if type(input) is not Tensor or type(mat2) is not Tensor:
        product = SPARSE.get(type(input)) or SPARSE.get(type(mat2))
        if product is not None:
            return finish(out, product(input, mat2))
    need("mm", input, mat2)
    need_kernel("addmm_impl_cpu_", "b", input)
    need_rank("mm", (input, 2), (mat2, 2))
    return finish_same(out, mm_op(input, mat2))


@public()
@planned
def bmm(input: Any, mat2: Any, *, out: Any = None) -> Any:
    """Products of two batches of matrices (b, n, m) and (b, m, p).

    >>> import adjoint as ad
    >>> ad.bmm(ad.ones(5, 2, 3), ad.ones(5, 3, 4)).shape
    adjoint.Size([5, 2, 4])
    """
    need("bmm", input, mat2)
    need_kernel("bmm", "b", input)
    need_rank("bmm", (input, 3), (mat2, 3))
    fits = [input.shape[0], input.shape[2]]
    if list(mat2.shape[:2]) != fits:
        raise ShapeError("Expected size for first two dimensions of batch2 tensor to be: "
                         f"{fits} but got: {list(mat2.shape[:2])}.")
    return finish_same(out, bmm_op(input, mat2))


@public()
@planned
def mv(input: Any, vec: Any, *, out: Any = None) -> Any:
    """Product of a matrix (n, m) and a vector (m,).

    >>> import adjoint as ad
    >>> ad.mv(ad.ones(2, 3), ad.ones(3))
    tensor([3., 3.])
    """
    if type(input) is not Tensor or type(vec) is not Tensor:
        product = SPARSE.get(type(input)) or SPARSE.get(type(vec))
        if product is not None:
            return finish(out, product(input, vec))
    need("mv", input, vec)
    need_kernel("addmv_impl_cpu", "b", input)
    need_rank("mv", (input, 2), (vec, 1))
    return finish_same(out, mv_op(input, vec))


@public()
@planned
def dot(input: Any, tensor: Any, *, out: Any = None) -> Any:
    """Σ a·b of two vectors of one length (no conjugate; see `vdot`).

    >>> import adjoint as ad
    >>> ad.dot(ad.tensor([2.0, 3.0]), ad.tensor([2.0, 1.0]))
    tensor(7.)
    """
    need("dot", input, tensor)
    need_kernel("dot", "b", input)
    need_rank("dot", (input, 1), (tensor, 1))
    return _dot_out(out, dot_op(input, tensor))


@public()
@planned
def vdot(input: Any, other: Any, *, out: Any = None) -> Any:
    """Σ conj(a)·b of two vectors of one length.

    >>> import adjoint as ad
    >>> ad.vdot(ad.tensor([2.0, 3.0]), ad.tensor([2.0, 1.0]))
    tensor(7.)
    """
    need("vdot", input, other)
    need_kernel("dot", "b", input)
    need_rank("vdot", (input, 1), (other, 1))
    return _dot_out(out, dot_op(conj(input), other))


@public()
@planned
@as_it_is
def inner(input: Any, other: Any, *, out: Any = None) -> Any:
    """Sum of products over the last axes of both.

    >>> import adjoint as ad
    >>> ad.inner(ad.ones(2, 3), ad.ones(4, 3)).shape
    adjoint.Size([2, 4])
    """
    need("inner", input, other)
    if not len(input.shape) or not len(other.shape):
        return finish(out, mul(input, other))
    need_kernel("dot", "b", input)
    from adjoint.ops.api_arrange import tensordot_out
    if input.shape[-1] != other.shape[-1]:
        raise ShapeError(f"inner() the last dimension must match on both input tensors but got "
                         f"shapes {list(input.shape)} and {list(other.shape)}")
    lead = (*input.shape[:-1], *other.shape[:-1])
    k = input.shape[-1]
    a, b = (reshape(t, (_lead(t), k)) for t in (input, other))
    return tensordot_out(out, reshape(mm_op(a, transpose_op(b, dim0=0, dim1=1)), lead))


def _lead(t: Any) -> int:
    n = 1
    for s in t.shape[:-1]:
        n *= s
    return n


@public(aliases=("ger",))
@planned
def outer(input: Any, vec2: Any, *, out: Any = None) -> Any:
    """a[i]·b[j] of two vectors.

    >>> import adjoint as ad
    >>> ad.outer(ad.tensor([1.0, 2.0]), ad.tensor([3.0, 4.0]))
    tensor([[3., 4.],
            [6., 8.]])
    """
    need("outer", input, vec2)
    if len(input.shape) != 1 or len(vec2.shape) != 1:
        raise ShapeError(f"outer: Expected 1-D arguments, got {len(input.shape)}-D and "
                         f"{len(vec2.shape)}-D")
    return finish(out, mul(unsqueeze_op(input, dim=1), vec2))


_FACTORS = ("beta", "alpha")


def _weights(beta: Any, alpha: Any, x: Any) -> tuple[Any, Any]:
    """(beta, alpha), without their fractions for integer operands."""
    return (beta, alpha) if is_inexact(dtype_of(x)) else (int(beta), int(alpha))


@public()
@planned
def addmm(input: Any, mat1: Any, mat2: Any, *more: Any, beta: Any = 1,
          alpha: Any = 1, out: Any = None) -> Any:
    """beta·input + alpha·(mat1 @ mat2); with beta 0 the input is not read.

    >>> import adjoint as ad
    >>> ad.addmm(ad.ones(2), ad.ones(2, 3), ad.ones(3, 2), alpha=2)
    tensor([[7., 7.],
            [7., 7.]])
    """
    if more:
        return older(addmm, _FACTORS, input, mat1, mat2, *more, out=out)
    need("addmm", input, mat1, mat2)
    need_kernel("addmm_impl_cpu_", "b", input)
    input, mat1, mat2 = lowered(input, mat1, mat2)
    beta, alpha = _weights(beta, alpha, input)
    same_dtype("addmm", input, mat1, mat2)
    need_rank("addmm", (mat1, 2), (mat2, 2))
    return finish_same(out, addmm_op(input, mat1, mat2, beta=beta, alpha=alpha))


@public()
@planned
def baddbmm(input: Any, batch1: Any, batch2: Any, *more: Any, beta: Any = 1,
            alpha: Any = 1, out: Any = None) -> Any:
    """beta·input + alpha·(batch1 @ batch2), matrix by matrix.

    >>> import adjoint as ad
    >>> ad.baddbmm(ad.ones(2), ad.ones(4, 2, 3), ad.ones(4, 3, 2)).shape
    adjoint.Size([4, 2, 2])
    """
    if more:
        return older(baddbmm, _FACTORS, input, batch1, batch2, *more, out=out)
    need("baddbmm", input, batch1, batch2)
    need_kernel("baddbmm", "b", input)
    input, batch1, batch2 = lowered(input, batch1, batch2)
    beta, alpha = _weights(beta, alpha, input)
    same_dtype("baddbmm", input, batch1, batch2)
    need_rank("bmm", (batch1, 3), (batch2, 3))
    return finish_same(out, baddbmm_op(input, batch1, batch2, beta=beta, alpha=alpha))


@public()
@known_as("AddbmmBackward0")
@planned
def addbmm(input: Any, batch1: Any, batch2: Any, *more: Any, beta: Any = 1,
           alpha: Any = 1, out: Any = None) -> Any:
    """beta·input + alpha·Σ over the batch of (batch1 @ batch2).

    >>> import adjoint as ad
    >>> ad.addbmm(ad.zeros(2, 2), ad.ones(4, 2, 3), ad.ones(4, 3, 2))
    tensor([[12., 12.],
            [12., 12.]])
    """
    if more:
        return older(addbmm, _FACTORS, input, batch1, batch2, *more, out=out)
    need("addbmm", input, batch1, batch2)
    need_kernel("addmm_impl_cpu_", "b", input)
    input, batch1, batch2 = lowered(input, batch1, batch2)
    same_dtype("addbmm", input, batch1, batch2)
    beta, alpha = _weights(beta, alpha, input)
    total = sum_op(bmm_op(batch1, batch2), dim=(0,), keepdim=False)
    total = scaled(cast_to(total, dtype_of(batch1)), alpha)
    return finish_same(out, total if beta == 0 else add(scaled(input, beta), total))


@public()
@known_as("AddmvBackward0")
@planned
def addmv(input: Any, mat: Any, vec: Any, *more: Any, beta: Any = 1,
          alpha: Any = 1, out: Any = None) -> Any:
    """beta·input + alpha·(mat @ vec).

    >>> import adjoint as ad
    >>> ad.addmv(ad.ones(2), ad.ones(2, 3), ad.ones(3))
    tensor([4., 4.])
    """
    if more:
        return older(addmv, _FACTORS, input, mat, vec, *more, out=out)
    need("addmv", input, mat, vec)
    need_kernel("addmv_impl_cpu", "b", input)
    beta, alpha = _weights(beta, alpha, input)
    need_rank("mv", (mat, 2), (vec, 1))
    product = scaled(mv_op(mat, vec), alpha)
    return finish_same(out, product if beta == 0 else add(scaled(input, beta), product))


@public()
@known_as("AddrBackward0")
@planned
def addr(input: Any, vec1: Any, vec2: Any, *more: Any, beta: Any = 1,
         alpha: Any = 1, out: Any = None) -> Any:
    """beta·input + alpha·outer(vec1, vec2).

    >>> import adjoint as ad
    >>> ad.addr(ad.zeros(2, 2), ad.ones(2), ad.tensor([1.0, 2.0]))
    tensor([[1., 2.],
            [1., 2.]])
    """
    if more:
        return older(addr, _FACTORS, input, vec1, vec2, *more, out=out)
    need("addr", input, vec1, vec2)
    product = scaled(outer(vec1, vec2), alpha)
    if all(dtype_of(x).kind == "b" for x in (input, vec1, vec2)):
        whole = product if not beta else add(scaled(input, beta), product)
        return finish(out, ne(whole, 0))
    return finish(out, product if beta == 0 else add(scaled(input, beta), product))


@public("addmm_", function=False)
def addmm_(self: Any, mat1: Any, mat2: Any, *more: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """In-place `addmm`."""
    if more:
        return older(addmm_, _FACTORS, self, mat1, mat2, *more)
    need_rank("addmm", (mat1, 2), (mat2, 2))
    beta, alpha = _weights(beta, alpha, self)
    return inplace(addmm_op.op, self, (mat1, mat2), {"beta": beta, "alpha": alpha}, name="addmm_")


@public("baddbmm_", function=False)
def baddbmm_(self: Any, batch1: Any, batch2: Any, *more: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """In-place `baddbmm`."""
    if more:
        return older(baddbmm_, _FACTORS, self, batch1, batch2, *more)
    need_rank("bmm", (batch1, 3), (batch2, 3))
    beta, alpha = _weights(beta, alpha, self)
    return inplace(baddbmm_op.op, self, (batch1, batch2), {"beta": beta, "alpha": alpha},
                   name="baddbmm_")


@planned
def linear(input: Any, weight: Any, bias: Any = None, *, out: Any = None) -> Any:
    """``input @ weightᵀ + bias``: (..., in) with weight (out, in) and bias (out,) -> (..., out).

    >>> import adjoint as ad
    >>> ad.nn.functional.linear(ad.ones(5, 3), ad.ones(2, 3), ad.ones(2)).shape
    adjoint.Size([5, 2])
    """
    need("linear", input, weight)
    need_kernel("addmm_impl_cpu_", "b", input)
    if len(weight.shape) == 1:
        made = _matmul(input, weight)
        return finish(out, made if bias is None else add(made, bias))
    return finish_same(out, linear_op(input, weight, bias))


@public()
def chain_matmul(*matrices: Any, out: Any = None) -> Any:
    """Product of several matrices in the order that needs the fewest multiplications."""
    from adjoint.ops.lu import multi_dot
    warn("torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use "
         "torch.linalg.multi_dot instead, which takes a list of the matrices.")
    for x in matrices:
        if len(x.shape) != 2:
            raise ShapeError(f"Tensor dimension is {len(x.shape)}, expected 2 instead.")
    if len(matrices) == 1:
        return matrices[0]
    return finish(out, multi_dot(list(matrices)))
