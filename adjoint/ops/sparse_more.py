"""More functions of sparse matrices: diagonals, products with other sums than a sum, checks."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, NotSupported, ShapeError
from adjoint.ops.api_common import (
    choice,
    need,
    need_kernel,
)
from adjoint.ops.device import sparse_coo, sparse_csc, sparse_csr
from adjoint.ops.index import index_op
from adjoint.ops.pointwise import mul
from adjoint.ops.public import FUNCTIONS
from adjoint.ops.shape import reshape, unsqueeze_op
from adjoint.ops.sparse import integers, sparse_coo_tensor, sparse_matmul
from adjoint.ops.sparse_tensor import SparseTensor

REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "amax", "max": "amax", "amin": "amin",
              "min": "amin"}


def sparse_mm(mat1: Any, mat2: Any, reduce: str = "sum", *, out: Any = None) -> Any:
    """The product of a sparse and another matrix. With `reduce` "mean", "amax" or "amin" the
    products of a row's stored elements are averaged, or the largest or least is taken, in place of
    their sum; a row without any gives 0.

    >>> import adjoint as ad
    >>> s = ad.tensor([[1.0, 2.0], [0.0, 3.0]]).to_sparse_csr()
    >>> ad.sparse.mm(s, ad.tensor([[5.0], [1.0]]), "amax")
    tensor([[5.],
            [3.]])
    """
    need("sparse.mm", mat1, mat2)
    kind = choice("sparse.mm", "reduce", REDUCTIONS.get(reduce, reduce), tuple(
        dict.fromkeys(REDUCTIONS.values())))
    if kind == "sum":
        found = sparse_matmul(mat1, mat2)
    else:
        need_kernel("spmm_reduce_kernel", "biuc", mat2)
        if not isinstance(mat1, SparseTensor) or isinstance(mat2, SparseTensor):
            raise NotSupported(f"sparse.mm: reduce={reduce!r} takes a sparse and a dense matrix, "
                               f"got {type(mat1).__name__} and {type(mat2).__name__}")
        if len(mat1.shape) != 2 or len(mat2.shape) != 2 or mat1.shape[1] != mat2.shape[0]:
            raise ShapeError(f"sparse.mm: mat1 and mat2 shapes cannot be multiplied "
                             f"({list(mat1.shape)} and {list(mat2.shape)})")
        c = mat1.coalesce()
        rows, cols = c._at
        terms = mul(unsqueeze_op(c._held, dim=1), index_op(mat2, cols, dims=(0,)))
        at = FUNCTIONS["as_tensor"](np.repeat(rows[:, None], terms.shape[1], 1))
        zero = FUNCTIONS["zeros"](mat1.shape[0], mat2.shape[1], dtype=terms.dtype)
        found = FUNCTIONS["scatter_reduce"](zero, 0, at, terms, kind, include_self=False)
    return found if out is None else out.copy_(found)


def spdiags(diagonals: Any, offsets: Any, shape: Any, layout: Any = None) -> Any:
    """A sparse matrix with the rows of `diagonals` as its diagonals: element (i, i + offset) is
    entry i + offset of its row for offset >= 0, and (i - offset, i) entry i for offset < 0.

    diagonals (n, k) or (k,), offsets (n,) without repetition; layout: sparse_coo (default),
    sparse_csr or sparse_csc. Raises ArgumentError or ShapeError where they do not fit.

    >>> import adjoint as ad
    >>> ad.sparse.spdiags(ad.tensor([1, 2, 3]), ad.tensor([1]), (3, 3)).to_dense()
    tensor([[0, 2, 0],
            [0, 0, 3],
            [0, 0, 0]])
    """
    need("sparse.spdiags", diagonals)
    rows = reshape(diagonals, (1, -1)) if len(diagonals.shape) == 1 else diagonals
    at = np.atleast_1d(integers("sparse.spdiags", offsets))
    if len(rows.shape) != 2 or at.ndim != 1:
        raise ShapeError(f"spdiags: diagonals must be vector or matrix and offsets scalar or "
                         f"vector, got {list(diagonals.shape)} and {list(at.shape)}")
    if len(at) != rows.shape[0]:
        raise ShapeError(f"Number of diagonals ({rows.shape[0]}) does not match the number of "
                         f"offsets ({len(at)})")
    if len(set(at.tolist())) < len(at):
        raise ArgumentError(f"Offset tensor contains duplicate values: {at.tolist()}")
    if len(shape) != 2:
        raise ShapeError(f"spdiags: Output shape must be 2d, got {tuple(shape)}")
    if layout not in (None, sparse_coo, sparse_csr, sparse_csc):
        raise ArgumentError("spdiags: Only output layouts (Sparse, SparseCsr, SparseCsc) are "
                            f"supported, got {layout}")
    parts, places = [], []
    for i, k in enumerate(at.tolist()):
        j = np.arange(max(k, 0), min(rows.shape[1], shape[1], shape[0] + k))
        parts.append(np.stack([j - k, j]))
        places.append(i * rows.shape[1] + j)
    held = index_op(reshape(rows, (-1,)), np.concatenate(places), dims=(0,))
    found = sparse_coo_tensor(np.concatenate(parts, 1), held, tuple(shape))
    return found if layout in (None, sparse_coo) else found.coalesce().to_sparse(layout=layout)


def as_sparse_gradcheck(gradcheck: Callable[..., bool]) -> Callable[..., bool]:
    """`gradcheck` for functions of sparse tensors: their values are varied, at their positions.

    >>> import adjoint as ad
    >>> check = ad.sparse.as_sparse_gradcheck(ad.autograd.gradcheck)
    >>> x = ad.eye(2, dtype=ad.float64).to_sparse().requires_grad_()
    >>> check(lambda x: (x * 2).to_dense(), x)
    True
    """
    def check(func: Callable[..., Any], inputs: Any, **options: Any) -> bool:
        given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        options.pop("masked", None)

        def on_values(*values: Any) -> Any:
            outs = func(*(x._with(v) if isinstance(x, SparseTensor) else v
                          for x, v in zip(given, values, strict=True)))
            many = isinstance(outs, (tuple, list))
            found = tuple(o.to_dense() if isinstance(o, SparseTensor) else o
                          for o in (outs if many else (outs,)))
            return found if many else found[0]
        held = tuple(x._values().detach().requires_grad_(x.requires_grad)
                     if isinstance(x, SparseTensor) else x for x in given)
        return gradcheck(on_values, held, **options)
    return check


__all__ = ["as_sparse_gradcheck", "sparse_mm", "spdiags"]
