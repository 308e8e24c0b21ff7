"""What ops do on sparse operands: functions such as `sin(s)`, `add(dense, s)` and `cat([s, s])`.

An op whose kernel does not take an operand asks here (`core/bind.py`). A rule has the op's operands
and attributes, and calls a method of SparseTensor or arithmetic on the stored values.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.dtypes import I64
from adjoint.base.errors import ArgumentError, NotSupported, ShapeError
from adjoint.core.inplace import refuse_rewriting
from adjoint.core.modes import GRAD, state
from adjoint.core.op import Op
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.device import sparse_coo
from adjoint.ops.pointwise import add, mul, neg
from adjoint.ops.public import FUNCTIONS, METHODS
from adjoint.ops.shape import cat_op, reshape
from adjoint.ops.sparse import sparse_matmul, spmm_op
from adjoint.ops.sparse_tensor import ZERO_STAYS, SparseTensor, make

Rule = Callable[..., Any]


# ------------------------------------------------------------------ arithmetic
def _add(a: Any, b: Any, alpha: Any = 1) -> Any:
    b = b if alpha == 1 else mul(b, alpha)
    if isinstance(a, SparseTensor):
        return a.__add__(b)
    if isinstance(a, Tensor):
        return add(a, b.to_dense())
    return b.__add__(a)                             # (says what is wrong with a number)


def _sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return _add(a, b.__neg__() if isinstance(b, SparseTensor) else neg(b), alpha)


def _mul(a: Any, b: Any) -> Any:
    return a.__mul__(b) if isinstance(a, SparseTensor) else b.__mul__(a)


def _by_number(name: str) -> Rule:
    def rule(a: Any, b: Any) -> Any:
        if not isinstance(a, SparseTensor) or isinstance(b, Tensor) and len(b.shape):
            raise NotSupported(f"{name}: a sparse tensor is divided by numbers only; the quotient "
                               "by a tensor would be dense (0/0)")
        c = a if name == "div" else a.coalesce()
        return c._with(FUNCTIONS[name](c._held, b))
    return rule


def _pow(a: Any, b: Any) -> Any:
    if not isinstance(a, SparseTensor):
        raise NotSupported("pow: a sparse exponent would give a dense result: call to_dense()")
    return a.__pow__(b)


def _addmm(c: Any, a: Any, b: Any, *, beta: Any, alpha: Any) -> Any:
    if isinstance(c, SparseTensor) and not (isinstance(a, SparseTensor)
                                            and isinstance(b, SparseTensor)):
        raise ArgumentError("addmm: expected strided result tensor, got tensor with layout "
                            f"{c.layout}: call to_dense() on the tensor that is added to")
    product = sparse_matmul(a, b)
    return _add(c if beta == 1 else mul(c, beta), product if alpha == 1 else mul(product, alpha))


def _bmm(a: Any, b: Any) -> Any:
    if not isinstance(a, SparseTensor) or isinstance(b, SparseTensor) or a.sparse_dim() != 3:
        raise NotSupported("bmm: a sparse tensor (without dense axes) times a dense one is here; "
                           "call to_dense() on the other operand")
    (many, n, k), at = a.shape, a._at
    flat = spmm_op(a._held, reshape(b, (many * k, b.shape[2])), at[0] * n + at[1],
                   at[0] * k + at[2], n=many * n)
    return reshape(flat, (many, n, b.shape[2]))


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    many, flat = tuple(x.shape[:-1]), x
    if not isinstance(x, SparseTensor) and len(many) != 1:
        flat = reshape(x, (-1, x.shape[-1]))
    found = sparse_matmul(flat, weight.t())
    found = found if flat is x else reshape(found, (*many, weight.shape[0]))
    return found if bias is None else _add(found, bias)


# ------------------------------------------------------------------ sums
def _norm(x: Any, *, p: Any, dim: Any, keepdim: bool) -> Any:
    if keepdim:
        raise ArgumentError("norm_sparse currently does not support keepdim=True")
    if len(dim) < len(x.shape):
        raise ArgumentError("norm_sparse currently only supports full reductions, so 'dim' must "
                            "either be empty or contain all dimensions of the input")
    return FUNCTIONS["norm"](reshape(x.coalesce().values(), (-1,)), p)


def _sum(x: Any, *, dim: Any, keepdim: bool) -> Any:
    return x.sum(dim if len(dim) < len(x.shape) or keepdim else None, keepdim)


def _any(x: Any, *, dim: Any, keepdim: bool) -> Any:
    if len(dim) < len(x.shape) or keepdim:
        raise NotSupported("any: over all axes of a sparse tensor only; call to_dense()")
    return FUNCTIONS["any"](x.coalesce()._held)


# ------------------------------------------------------------------ one beside another
def _alike(name: str, xs: Any) -> None:
    for i, x in enumerate(xs):
        if not isinstance(x, SparseTensor) or x.layout is not sparse_coo:
            raise NotSupported(f"{name}: expected all elements to be sparse_coo, but tensor {i} is "
                               f"{x.layout}: call to_sparse() or to_dense()")
        if (x.sparse_dim(), x.dense_dim()) != (xs[0].sparse_dim(), xs[0].dense_dim()):
            raise ShapeError(f"All tensors must have the same sparse and dense dims: "
                             f"{xs[0].sparse_dim()}, {xs[0].dense_dim()}, but tensor at position "
                             f"{i} has {x.sparse_dim()}, {x.dense_dim()}")


def _cat(*xs: Any, dim: int) -> Any:
    _alike("cat", xs)
    first, split = xs[0], xs[0].sparse_dim()
    for i, x in enumerate(xs):
        if [n for d, n in enumerate(x.shape) if d != dim] != [
                n for d, n in enumerate(first.shape) if d != dim]:
            raise ShapeError(f"All tensors must have the same shape: {list(first.shape)} (except "
                             f"in the concatenating dimension), but found shape: {list(x.shape)} "
                             f"at position {i}")
    total = sum(x.shape[dim] for x in xs)
    shape = (*first.shape[:dim], total, *first.shape[dim + 1:])
    places, held, start = [], [], 0
    for x in xs:
        at, values, n = x._at, x._held, x.shape[dim]
        if dim < split:
            at = at.copy()
            at[dim] += start
        else:
            behind = len(shape) - 1 - dim                   # axes after it, which are not padded
            values = FUNCTIONS["constant_pad_nd"](values, [0, 0] * behind + [
                start, total - start - n])
        places.append(at)
        held.append(values)
        start += n
    return make(np.concatenate(places, 1), FUNCTIONS["cat"](held), shape, False)


def _stack(*xs: Any, dim: int) -> Any:
    _alike("stack", xs)
    for i, x in enumerate(xs):
        if tuple(x.shape) != tuple(xs[0].shape):
            raise ShapeError(f"stack expects each tensor to be equal size, but got "
                             f"{list(xs[0].shape)} at entry 0 and {list(x.shape)} at entry {i}")
    return _cat(*(x.unsqueeze(dim) for x in xs), dim=dim)


def _nan_to_num(x: Any, *, nan: Any, high: Any, low: Any) -> Any:
    c = x.coalesce()
    return c._with(FUNCTIONS["nan_to_num"](c._held, nan, high, low))


RULES: dict[str, Rule] = {
    "add": _add, "add_scaled": _add, "sub": _sub, "sub_scaled": _sub, "mul": _mul,
    "div": _by_number("div"), "floor_divide": _by_number("floor_divide"), "pow": _pow,
    "addmm": _addmm, "sum": _sum, "sum_all": _sum, "any": _any, "linalg_vector_norm": _norm,
    "bmm": _bmm, "mv": lambda a, v: a @ v, "linear": _linear, "cat": _cat, "stack": _stack,
    "nan_to_num": _nan_to_num,
    "t": SparseTensor.t,
    "transpose": SparseTensor.transpose, "permute": lambda x, *, dims: x.permute(dims),
    "unsqueeze": SparseTensor.unsqueeze, "select": SparseTensor.select,
    "narrow": SparseTensor.narrow, "clone": SparseTensor.clone,
    "index_select": lambda x, at, *, dims: x.index_select(dims[0], at),
    "unbind": lambda x, *, dim: tuple(x.select(dim, i) for i in range(x.shape[dim])),
    "to_dtype": lambda x, *, dtype: x._with(METHODS["to"](x._held, dtype)),
    **{name: getattr(SparseTensor, name) for name in (*ZERO_STAYS, "neg")},
}


def unstored(op: Op, args: Any, attrs: Any) -> Any:
    """The result of an op on operands of which a sparse one is one; NotSupported without a rule."""
    rule = RULES.get(op.name)
    if rule is None:
        shape = next(list(a.shape) for a in args if isinstance(a, SparseTensor))
        raise NotSupported(f"{op.name}: this function does not take a sparse tensor (shape "
                           f"{shape}): call to_dense() first, or work on its values()")
    return rule(*args, **attrs)


# ------------------------------------------------------------------ in place
def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """The positions and values of another sparse tensor, in place."""
    if not isinstance(src, SparseTensor) or src.layout is not self.layout:
        raise ArgumentError(f"copy_() between dense and sparse Tensors is not implemented! Found "
                            f"self type = {self.layout} and src type = {src.layout}; call "
                            "to_sparse() or to_dense() on the source")
    if state() & GRAD:
        refuse_rewriting(self)
    _fits(self, tuple(src.shape), src.sparse_dim(), src.dense_dim())
    return self._become(src.clone() if src.dtype == self.dtype else src.to(self.dtype))


def _fits(self: Any, size: Any, split: int, inner: int) -> None:
    """Refuse a size that stored elements would not fit."""
    if split + inner != len(size):
        raise ShapeError(f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = "
                         f"{len(size)}, sparse_dim = {split}, dense_dim = {inner}")
    if not self._at.shape[1]:
        return
    had, have = self.sparse_dim(), tuple(self.shape)
    for kind, before, after in (("dense", self.dense_dim(), inner), ("sparse", had, split)):
        if before != after:
            raise ShapeError(f"changing the number of {kind} dimensions (from {before} to {after}) "
                             "on a non-empty sparse tensor is not supported: clear it by zero_() "
                             "first, or make a new one")
    for kind, part in (("sparse", slice(split)), ("dense", slice(split, None))):
        if any(n < m for n, m in zip(size[part], have[part], strict=True)):
            raise ShapeError(f"shrinking the size of {kind} dimensions (from {list(have[part])} to "
                             f"{list(size[part])}) on a non-empty sparse tensor is not supported: "
                             "clear it by zero_() first, or make a new one")


def sparse_resize_(self: Any, size: Any, sparse_dim: int, dense_dim: int) -> Any:
    """Another size, in place; what is stored stays, and new elements are 0."""
    shape = tuple(size)
    _fits(self, shape, sparse_dim, dense_dim)
    if not self._at.shape[1]:
        return sparse_resize_and_clear_(self, shape, sparse_dim, dense_dim)
    inner = [m for n, d in zip(reversed(shape[sparse_dim:]), reversed(self._held.shape[1:]),
                               strict=True) for m in (0, n - d)]
    held = FUNCTIONS["constant_pad_nd"](self._held, inner) if any(inner) else self._held
    return self._become(make(self._at, held, shape, self._sorted))


def sparse_resize_and_clear_(self: Any, size: Any, sparse_dim: int, dense_dim: int) -> Any:
    """Another size, in place, and nothing stored."""
    shape = tuple(size)
    if sparse_dim + dense_dim != len(shape):
        _fits(self, shape, sparse_dim, dense_dim)
    held = wrap(np.zeros((0, *shape[sparse_dim:]), self.array.dtype))
    return self._become(make(np.zeros((sparse_dim, 0), I64), held, shape, True))


def resize_as_sparse_(self: Any, other: Any) -> Any:
    """The size of another sparse tensor, in place."""
    return sparse_resize_(self, other.shape, other.sparse_dim(), other.dense_dim())


# ------------------------------------------------------------------ products that stay sparse
def hspmm(mat1: Any, mat2: Any, *, out: Any = None) -> Any:
    """The product of a sparse and a dense matrix as a hybrid tensor: its rows that are not empty,
    each a dense vector.

    >>> import adjoint as ad
    >>> ad.hspmm(ad.tensor([[0.0, 0.0], [0.0, 2.0]]).to_sparse(), ad.ones(2, 3))._values()
    tensor([[2., 2., 2.]])
    """
    if not isinstance(mat1, SparseTensor) or isinstance(mat2, SparseTensor):
        raise NotSupported("hspmm: expected a sparse and a dense matrix")
    if len(mat1.shape) != 2 or len(mat2.shape) != 2 or mat1.shape[1] != mat2.shape[0]:
        raise ShapeError(f"hspmm: mat1 and mat2 shapes cannot be multiplied ({list(mat1.shape)} "
                         f"and {list(mat2.shape)})")
    c = mat1.coalesce()
    rows, place = np.unique(c._at[0], return_inverse=True)
    held = spmm_op(c._held, mat2, place.reshape(-1), c._at[1], n=len(rows))
    made = make(rows[None].astype(I64), held, (mat1.shape[0], mat2.shape[1]), True)
    return made if out is None else out._become(made)


def sspaddmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1,
             out: Any = None) -> Any:
    """beta·input + alpha·(mat1 @ mat2) with sparse input and mat1, dense mat2: sparse, uncoalesced;
    of the product all elements of the rows that are not empty are stored.

    >>> import adjoint as ad
    >>> s = ad.tensor([[0.0, 0.0], [0.0, 2.0]]).to_sparse()
    >>> ad.sspaddmm(s, s, ad.ones(2, 2)).to_dense()
    tensor([[0., 0.],
            [2., 4.]])
    """
    if not isinstance(mat1, SparseTensor) or not isinstance(input, SparseTensor):
        raise ArgumentError("tensor.sspaddmm(...) can only be called on sparse tensors")
    rows = hspmm(mat1, mat2)
    wide = rows.shape[1]
    if tuple(input.shape) != tuple(rows.shape):
        raise ShapeError(f"sspaddmm: Argument #1: expected {list(rows.shape)}, got "
                         f"{list(input.shape)}")
    count = rows._at.shape[1]
    at = np.stack([np.repeat(rows._at[0], wide), np.tile(np.arange(wide), count)]).astype(I64)
    product = reshape(rows._held, (-1,))
    product = product if alpha == 1 else mul(product, alpha)
    before = input._held if beta == 1 else mul(input._held, beta)
    made = make(np.concatenate([input._at, at], 1), cat_op(before, product, dim=0),
                tuple(input.shape), False)
    return made if out is None else out._become(made)


def smm(input: Any, mat: Any) -> Any:
    """The product of a sparse and a dense matrix as a sparse one, see `sspaddmm`.

    >>> import adjoint as ad
    >>> ad.smm(ad.eye(2).to_sparse(), ad.ones(2, 2)).is_sparse
    True
    """
    if not isinstance(input, SparseTensor):
        raise ArgumentError("tensor.sspaddmm(...) can only be called on sparse tensors")
    none = make(np.zeros((2, 0), I64), wrap(np.zeros(0, input._held.dtype.dtype)),
                (input.shape[0], mat.shape[-1]), True)
    return sspaddmm(none, input, mat)


__all__ = ["RULES", "copy_", "hspmm", "resize_as_sparse_", "smm", "sparse_resize_",
           "sparse_resize_and_clear_", "sspaddmm", "unstored"]
