"""Embedding: rows of a table, their gradient scattered back."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray
from adjoint.base.dtypes import is_inexact, scalar_type
from adjoint.base.errors import (
    AssertedError,
    DTypeError,
    IndexOutOfRange,
    ShapeError,
)
from adjoint.core.modes import not_replayed
from adjoint.core.op import op
from adjoint.core.rehearsal import call
from adjoint.ops.api_common import dtype_of, narrowed, need, raw, wide
from adjoint.ops.gather import add_picked, pick
from adjoint.ops.index import FEW, add_rows, index_op
from adjoint.ops.pointwise import add, eq, ge, logical_and, lt, where_op
from adjoint.ops.public import planned
from adjoint.ops.shape import expand_op, reshape, unsqueeze_op
from adjoint.ops.sparse import embedding_gradient


def _embedding_impl(weight: Any, index: Any, /, *, padding_idx: int) -> Any:
    picked = pick(weight, index, 0, along=False)
    if picked is not None:
        return picked
    if index.size and (index.min() < 0 or index.max() >= len(weight)):
        bad = index[(index < 0) | (index >= len(weight))].flat[0]
        raise IndexOutOfRange(f"index out of range in self: embedding index {bad}, the table has "
                              f"{len(weight)} rows (0..{len(weight) - 1})")
    return np.take(weight, index, axis=0)


def _scatter_impl(ct: Any, index: Any, /, *, rows: int, padding_idx: int) -> Any:
    w = wide(ct).reshape(index.size, ct.shape[-1])
    flat = index.reshape(-1)
    out = np.zeros((rows, ct.shape[-1]), w.dtype)
    if padding_idx < 0 and index.size <= FEW and add_picked(out, flat, w, 0, along=False):
        return narrowed(out, ct.dtype)
    if padding_idx >= 0:
        kept = flat != padding_idx
        flat, w = flat[kept], w[kept]
    add_rows(out, flat, w)
    return narrowed(out, ct.dtype)


def _masked_rows(ct: Any, index: Any, padding_idx: int) -> Any:
    from adjoint.ops.index import masked_fill_op
    rows = embedding_op(ct, index, padding_idx=-1)
    if padding_idx < 0:
        return rows
    return masked_fill_op(rows, unsqueeze_op(eq(index, padding_idx), dim=len(index.shape)), 0.0)


def _batch_tables(op_: Any, args: Any, attrs: Any) -> Any:
    """Every example has its table: all tables are one, with rows counted through."""
    weight, index = args
    size, rows = weight.shape[0], weight.shape[1]
    return embedding_op(reshape(weight, (size * rows, *weight.shape[2:])),
                        _counted_through(index, size, rows), padding_idx=-1)


def _counted_through(index: Any, size: int, rows: int) -> Any:
    """Row i of example b as row b·rows + i; what is out of range stays out of range."""
    first = np.arange(size).reshape(size, *(1,) * (len(index.shape) - 1)) * rows
    inside = logical_and(ge(index, 0), lt(index, rows))
    return where_op(inside, add(index, first), -1)


def _batch_scatter(op_: Any, args: Any, batched: Any, attrs: Any) -> Any:
    """Every example has its own gradient table: one table for all, rows counted through."""
    ct, index = args
    size = next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)
    ct, index = (a if b else expand_op(a, shape=(size, *a.shape))
                 for a, b in zip(args, batched, strict=True))
    rows, pad = attrs["rows"], attrs["padding_idx"]
    if pad >= 0:
        kept = unsqueeze_op(eq(index, pad), dim=len(index.shape))
        ct = where_op(kept, 0.0, ct)
    whole = embedding_backward_op(ct, _counted_through(index, size, rows), rows=size * rows,
                                  padding_idx=-1)
    return reshape(whole, (size, rows, *whole.shape[1:]))


embedding_op: Any = op(
    "embedding", impl=_embedding_impl,
    infer=lambda weight, index, *, padding_idx: Aval((*index.shape, *weight.shape[1:]),
                                                     weight.dtype),
    vjp={"weight": lambda ct, index, weight_aval, *, padding_idx: embedding_backward_op(
        ct, index, rows=weight_aval.shape[0], padding_idx=padding_idx)},
    jvp={"weight": lambda t, index: embedding_op(t, index, padding_idx=-1)},
    batch=lambda op_, args, b, attrs: op_.call(*args, **attrs) if not b[0] else (
        index_op(args[0], args[1], dims=(1,)) if not b[1] else _batch_tables(op_, args, attrs)),
    cost=lambda weight, index, **_: index.size * weight.shape[-1],
    why={"index": "which rows of the table were read"})
embedding_backward_op: Any = op(
    "embedding_backward", impl=_scatter_impl,
    infer=lambda ct, index, *, rows, padding_idx: Aval((rows, ct.shape[-1]), ct.dtype),
    vjp={"ct": lambda ct, index, *, padding_idx: _masked_rows(ct, index, padding_idx)},
    jvp={"ct": lambda t, index, *, rows, padding_idx: embedding_backward_op(
        t, index, rows=rows, padding_idx=padding_idx)},
    batch=_batch_scatter, cost=lambda ct, index, **_: ct.size,
    node="EmbeddingDenseBackwardBackward0",
    why={"index": "which rows were added to"})


sparse_embedding_op: Any = op(
    "embedding_sparse", node="EmbeddingSparseBackward0",
    impl=lambda weight, index, /, *, padding_idx: embedding_op.op.impl(weight, index,
                                                                       padding_idx=padding_idx),
    infer=embedding_op.op.infer,
    vjp={"weight": lambda ct, index, weight_aval, *, padding_idx: embedding_gradient(
        ct, index, weight_aval.shape[0], padding_idx)},
    jvp=embedding_op.op.jvp, batch=lambda op_, args, b, attrs: embedding_op.op.batch(
        embedding_op.op, args, b, attrs),
    cost=embedding_op.op.cost, why=embedding_op.op.why)


@planned
def embedding(input: Any, weight: Any, padding_idx: Any = None, max_norm: Any = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False,
              sparse: bool = False) -> Any:
    """Rows of `weight` (V, D) by integers (...,) -> (..., D); no gradient to row `padding_idx`.

    `sparse=True` makes the gradient of `weight` a sparse tensor of the rows that were read, for
    SGD, Adagrad and SparseAdam. With `max_norm`, rows that are used and longer are scaled down in
    place first. Raises IndexOutOfRange for an index outside of [0, V).

    >>> import adjoint as ad
    >>> ad.nn.functional.embedding(ad.tensor([1, 1]), ad.tensor([[0.0], [2.0]]))
    tensor([[2.],
            [2.]])
    """
    need("embedding", input, weight)
    if dtype_of(input).kind not in "iu":
        raise DTypeError("Expected tensor for argument #1 'indices' to have one of the following "
                         "scalar types: Long, Int; but got "
                         f"{scalar_type(dtype_of(input))}Tensor instead (embedding)")
    if len(weight.shape) != 2:
        raise ShapeError(f"embedding(): 'weight' must be 2-D, got {list(weight.shape)}")
    rows = weight.shape[0]
    pad = -1
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise AssertedError("Padding_idx must be within num_embeddings: got "
                                f"{padding_idx} for {rows} rows")
        pad = padding_idx % rows
    if max_norm is not None:
        not_replayed()
        renorm_rows(weight, raw(input), float(max_norm), float(norm_type))
    out = (sparse_embedding_op if sparse else embedding_op)(weight, input, padding_idx=pad)
    if scale_grad_by_freq and getattr(out, "requires_grad", False):
        not_replayed()
        out = scale_gradient(out, _of_arrays(_shares, raw(input), rows, dtype_of(weight),
                                             otherwise=lambda: MetaArray((*input.shape, 1),
                                                                         dtype_of(weight))))
    return out


def _shares(index: Any, rows: int, dtype: Any) -> Any:
    """One over how often each index is there."""
    counts = np.bincount(index.reshape(-1), minlength=rows)
    return (1.0 / np.maximum(counts, 1)[index].astype(dtype))[..., None]


def renorm_rows(weight: Any, index: Any, max_norm: float, p: float) -> None:
    """Scale the used rows of a table down to a p-norm of at most `max_norm`, in place."""
    from adjoint.core.tensor import bump
    table = weight.array
    if not is_inexact(table.dtype):
        raise DTypeError("norm(): input dtype should be either floating point or complex. Got "
                         f"{scalar_type(table.dtype)} instead: max_norm scales the rows")
    _of_arrays(_renorm, table, index, max_norm, p, otherwise=tuple)
    bump(weight, "embedding_renorm_")


def _renorm(table: Any, index: Any, max_norm: float, p: float) -> None:
    used = np.unique(index)
    size = np.linalg.norm(table[used], ord=p, axis=1)
    scale = np.where(size > max_norm, max_norm / (size + 1e-7), 1.0)
    table[used] *= scale.astype(table.dtype)[:, None]


def _of_arrays(f: Any, *args: Any, otherwise: Any) -> Any:
    """`f` of arrays, of which some may have no storage."""
    meta = any([type(a) is MetaArray for a in args])
    return call(f, *args, otherwise=otherwise) if meta else f(*args)


def _batch_scaled(op_: Any, args: Any, batched: Any, attrs: Any) -> Any:
    size = next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)
    return op_.call(*[a if b else expand_op(a, shape=(size, *a.shape))
                      for a, b in zip(args, batched, strict=True)])


scale_gradient_op: Any = op(
    "scale_gradient", impl=lambda x, share, /: x.view(), infer=lambda x, share: Aval(x.shape,
                                                                                   x.dtype),
    vjp={"x": lambda ct, share: _times(ct, share)}, jvp={"x": lambda t, share: _times(t, share)},
    batch=_batch_scaled, why={"share": "how much each row counts"})


def _times(ct: Any, share: Any) -> Any:
    from adjoint.ops.pointwise import mul
    return mul(ct, share)


def scale_gradient(x: Any, share: Any) -> Any:
    """`x`, with its cotangent multiplied by `share` on the way back."""
    return scale_gradient_op(x, share)
