"""Construction of sparse matrices from compressed rows or columns, of values or of blocks."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.ops.public import FUNCTIONS, public
from adjoint.ops.shape import reshape
from adjoint.ops.sparse import integers, sparse_coo_tensor
from adjoint.ops.sparse_tensor import BLOCKED, BY_COLUMN, TURNED, check_blocks, in_blocks

Array = Any


def _check(name: str, kind: Any, compressed: Array, plain: Array, count: int) -> None:
    first, second = (("ccol_indices", "row_indices") if kind in BY_COLUMN
                     else ("crow_indices", "col_indices"))
    if compressed.ndim != 1 or plain.ndim != 1:
        raise ShapeError(f"{name}: {first} and {second} must be vectors, got shapes "
                         f"{list(compressed.shape)} and {list(plain.shape)}; batches are not here")
    if len(compressed) < 1 or compressed[0] != 0 or compressed[-1] != len(plain) or (
            np.diff(compressed) < 0).any():
        raise ArgumentError(f"{name}: {first} must rise from 0 to {len(plain)}, the number of "
                            f"{second} given")
    if count != len(plain):
        raise ShapeError(f"{name}: {count} values for {len(plain)} {second}; there must be as many")


def _construct(name: str, kind: Any, compressed_indices: Any, plain_indices: Any, values: Any,
               size: Any, dtype: Any, requires_grad: bool) -> Any:
    compressed, plain = (integers(name, x) for x in (compressed_indices, plain_indices))
    held = values if isinstance(values, Tensor) else FUNCTIONS["tensor"](values)
    rank = 3 if kind in BLOCKED else 1
    if len(held.shape) != rank:
        raise ShapeError(f"{name}: values must have {rank} axes, got shape {list(held.shape)}"
                         + ("; they are blocks (number, rows, columns)" if rank == 3 else ""))
    _check(name, kind, compressed, plain, held.shape[0])
    high, wide = tuple(held.shape[1:]) if rank == 3 else (1, 1)
    major = np.repeat(np.arange(len(compressed) - 1), np.diff(compressed))
    extent = (len(compressed) - 1, int(plain.max(initial=-1)) + 1)
    blocks = np.stack([major, plain])
    if kind in BY_COLUMN:
        blocks, extent = blocks[::-1], extent[::-1]
    if size is None:
        size = (extent[0] * high, extent[1] * wide)
    check_blocks(name, (high, wide), tuple(size))
    lines = size[1] // wide if kind in BY_COLUMN else size[0] // high
    if lines != len(compressed) - 1:
        raise ShapeError(f"{name}: {len(compressed)} compressed indices for {lines} "
                         f"{'columns' if kind in BY_COLUMN else 'rows'} (of blocks) of a matrix "
                         f"{list(size)}; there must be {lines + 1}")
    made = sparse_coo_tensor(in_blocks(blocks, high, wide), reshape(held, (-1,)), tuple(size),
                             dtype=dtype)
    made = made.to_sparse(layout=kind, blocksize=(high, wide) if rank == 3 else None)
    return made.detach().requires_grad_() if requires_grad else made


def _declare(kind: Any) -> None:
    name = f"{kind.name}_tensor"
    first, second = ("ccol", "row") if kind in BY_COLUMN else ("crow", "col")

    def construct(compressed: Any, plain: Any, values: Any, size: Any, options: Any) -> Any:
        return _construct(name, kind, compressed, plain, values, size, options.get("dtype"),
                          bool(options.get("requires_grad", False)))

    if kind in BY_COLUMN:
        def make(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *,
                 dtype: Any = None, device: Any = None, requires_grad: bool = False,
                 check_invariants: Any = None, pin_memory: bool = False) -> Any:
            return construct(ccol_indices, row_indices, values, size, {
                "dtype": dtype, "requires_grad": requires_grad})
    else:
        def make(  # type: ignore[misc]  # other names of arguments than above
                crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *,
                dtype: Any = None, device: Any = None, requires_grad: bool = False,
                check_invariants: Any = None, pin_memory: bool = False) -> Any:
            return construct(crow_indices, col_indices, values, size, {
                "dtype": dtype, "requires_grad": requires_grad})
    what = "blocks (n, rows, columns)" if kind in BLOCKED else "values (n,)"
    line = "column" if kind in BY_COLUMN else "row"
    make.__name__ = make.__qualname__ = name
    make.__doc__ = (f"A sparse matrix from compressed {line}s: {line} i has the {what} from "
                    f"{first}_indices[i] up to {first}_indices[i + 1], at {second}_indices. Raises "
                    "ArgumentError or ShapeError where they do not fit.")
    public(name, method=False)(make)


for _kind in TURNED:
    _declare(_kind)


@public("sparse_compressed_tensor", method=False)
def sparse_compressed_tensor(compressed_indices: Any, plain_indices: Any, values: Any,
                             size: Any = None, *, dtype: Any = None, layout: Any = None,
                             device: Any = None, requires_grad: bool = False,
                             check_invariants: Any = None, pin_memory: bool = False) -> Any:
    """A sparse matrix in one of the compressed layouts: sparse_csr, sparse_csc, sparse_bsr,
    sparse_bsc.

    >>> import adjoint as ad
    >>> s = ad.sparse_compressed_tensor([0, 1, 2], [1, 0], [5.0, 6.0], layout=ad.sparse_csc)
    >>> s.to_dense()
    tensor([[0., 6.],
            [5., 0.]])
    """
    if layout not in TURNED:
        raise ArgumentError("sparse_compressed_tensor expected a compressed sparse layout "
                            f"({', '.join(k.name for k in TURNED)}), got {layout}")
    return _construct("sparse_compressed_tensor", layout, compressed_indices, plain_indices, values,
                      size, dtype, requires_grad)


__all__ = ["sparse_compressed_tensor"]
