"""Sparse tensors: indices and values; every method is dense arithmetic on the values.

A SparseTensor holds `indices` (sparse_dim, nnz) as integers and `values` (nnz, *dense shape) as a
tensor, which carries the gradient. Positions may repeat until `coalesce()` sums them.
"""
from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.aval import UnreadArray
from adjoint.base.dtypes import I64
from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from adjoint.core.modes import warn_as_pytorch
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.arrange import linear, ordered
from adjoint.ops.device import (
    layout,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from adjoint.ops.index import index_op, index_put_op
from adjoint.ops.pointwise import add, div, mul, neg
from adjoint.ops.public import FUNCTIONS, METHODS, SPARSE
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import cat_op, narrow_op, normalize_dim, reshape

Array = Any
BLOCKED, BY_COLUMN = (sparse_bsr, sparse_bsc), (sparse_csc, sparse_bsc)
TURNED = {sparse_csr: sparse_csc, sparse_csc: sparse_csr, sparse_bsr: sparse_bsc,
          sparse_bsc: sparse_bsr}
ZERO_STAYS = ("abs", "asin", "asinh", "atan", "atanh", "ceil", "erf", "expm1", "floor", "log1p",
              "relu", "round", "sgn", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
              "trunc", "deg2rad", "rad2deg", "erfinv", "isinf", "isnan", "isposinf", "isneginf",
              "signbit")


class SparseArray(UnreadArray):
    """What `.array` of a sparse tensor is: shape and dtype, and an error for its elements."""

    __slots__ = ()
    why = ("this function does not take a sparse tensor (shape {shape}): call to_dense() first, or "
           "work on its values()")


class SparseTensor(Tensor, own=True):
    """A tensor of which only some elements are stored; the rest are 0."""

    __slots__ = ()
    __array_ufunc__ = None
    _at: Array                       # (sparse_dim, nnz) integers
                                     # _held: (nnz, *dense) tensor
    _sorted: bool                    # distinct positions in row-major order, whatever the layout
    _block: tuple[int, int]          # extents of the blocks that are full; (1, 1) if not blocked
    layout: Any

    # -- what it is made of -------------------------------------------------------------------
    @property
    def is_sparse(self) -> bool:
        """True for the coordinate layout."""
        return self.layout is sparse_coo

    @property
    def is_sparse_csr(self) -> bool:
        """True for compressed rows."""
        return self.layout is sparse_csr

    def sparse_dim(self) -> int:
        """Number of axes that `indices` address."""
        return int(self._at.shape[0])

    def dense_dim(self) -> int:
        """Number of axes of each value."""
        return len(self._held.shape) - 1

    _dimI, _dimV = sparse_dim, dense_dim

    def _nnz(self) -> int:
        """Stored values, or stored blocks."""
        return int(self._at.shape[1]) // math.prod(self._block)

    def is_coalesced(self) -> bool:
        """True if no position repeats."""
        return self._sorted

    def _indices(self) -> Tensor:
        return wrap(self._at)

    def _values(self) -> Any:
        return self._held

    def indices(self) -> Tensor:
        """(sparse_dim, nnz) positions; only of a coalesced tensor."""
        if self.layout is not sparse_coo:
            raise ArgumentError(f"indices expected sparse coordinate tensor layout but got "
                                f"{self.layout}: call to_sparse()")
        self._need_coalesced("indices")
        return wrap(self._at)

    def values(self) -> Any:
        """(nnz, ...) values, or blocks (nnz, rows, columns), connected to the graph; only of a
        coalesced tensor."""
        self._need_coalesced("values")
        if self.layout in (sparse_coo, sparse_csr):
            return self._held
        blocked = self._block if self.layout in BLOCKED else ()
        return reshape(index_op(self._held, self._compressed()[2], dims=(0,)), (-1, *blocked))

    def _need_coalesced(self, what: str) -> None:
        if not self._sorted:
            raise ArgumentError(f"Cannot get {what} on an uncoalesced tensor, please call "
                                ".coalesce() first")

    def _compressed(self) -> tuple[Array, Array, Array]:
        """(where each row or column of blocks begins, the other coordinate of each block, the order
        of the values block by block)."""
        (rows, cols), (high, wide) = self._at, self._block
        inner = (cols % wide, rows % high)
        major, minor, lines = rows // high, cols // wide, self.shape[0] // high
        if self.layout in BY_COLUMN:
            major, minor, lines = minor, major, self.shape[1] // wide
        order = np.lexsort((*inner, minor, major))
        first = order[::high * wide]
        counts = np.bincount(major[first], minlength=lines)
        return np.concatenate([[0], np.cumsum(counts)]).astype(I64), minor[first], order

    def crow_indices(self) -> Tensor:
        """Where each row begins in `values` (compressed rows)."""
        return wrap(self._part("row", (sparse_csr, sparse_bsr), 0))

    def col_indices(self) -> Tensor:
        """The column of each value or block (compressed rows)."""
        return wrap(self._part("row", (sparse_csr, sparse_bsr), 1))

    def ccol_indices(self) -> Tensor:
        """Where each column begins in `values` (compressed columns)."""
        return wrap(self._part("column", BY_COLUMN, 0))

    def row_indices(self) -> Tensor:
        """The row of each value or block (compressed columns)."""
        return wrap(self._part("column", BY_COLUMN, 1))

    def _part(self, axis: str, layouts: tuple[layout, ...], index: int) -> Array:
        if self.layout not in layouts:
            kind = layouts[0]
            raise ArgumentError(f"expected {kind.name} layout or another compressed by {axis}, "
                                f"this tensor is {self.layout}: call to_{kind.name}()")
        return self._compressed()[index]

    # -- the graph ----------------------------------------------------------------------------
    @property
    def requires_grad(self) -> bool:
        """True if gradients are to be computed for the values."""
        return bool(self._held.requires_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._held.requires_grad = value
        self._rg = value

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Set `requires_grad`; returns the tensor."""
        self.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        """True if the values were not computed from other tensors."""
        return bool(self._held.is_leaf)

    @property
    def grad_fn(self) -> Any:
        """The node that made the values."""
        return self._held.grad_fn

    @property
    def grad(self) -> Any:
        """The gradient of the values, at their positions."""
        g = self._held.grad
        return None if g is None else self._with(g)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._held.grad = None if value is None else value._values()

    # -- conversions --------------------------------------------------------------------------
    def coalesce(self) -> Any:
        """The same tensor with each position once, in order."""
        if self._sorted:
            return self
        split = self.sparse_dim()
        flat = linear(self._at, self.shape[:split])
        unique, inverse = np.unique(flat, return_inverse=True)
        inverse = inverse.reshape(-1)
        held = self._held
        total = np.zeros((len(unique), *held.shape[1:]), held.dtype.dtype)
        summed = index_put_op(wrap(total), inverse, held, dims=(0,), accumulate=True)
        at = np.stack(np.unravel_index(unique, self.shape[:split])) if split else self._at[:, :1]
        return make(at.astype(I64), summed, tuple(self.shape), True, self.layout, self._block)

    def to_dense(self, dtype: Any = None, *, masked_grad: Any = None) -> Any:
        """The dense tensor; differentiable."""
        split, shape = self.sparse_dim(), tuple(self.shape)
        held = self._held if dtype is None else self._held.to(dtype)
        rows = math.prod(shape[:split])
        base = wrap(np.zeros((rows, *shape[split:]), held.dtype.dtype))
        full = index_put_op(base, linear(self._at, shape[:split]), held, dims=(0,),
                            accumulate=True)
        return reshape(full, shape)

    def to_sparse(self, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None,
                  dense_dim: Any = None) -> Any:
        """This tensor in coordinates, or in the layout asked for."""
        if layout in (None, sparse_coo):
            return make(self._at, self._held, tuple(self.shape), self._sorted)
        return self._relaid(layout, blocksize)

    to_sparse_coo = to_sparse

    def to_sparse_csr(self, dense_dim: Any = None) -> Any:
        """This matrix in compressed rows."""
        return self._relaid(sparse_csr)

    def to_sparse_csc(self, dense_dim: Any = None) -> Any:
        """This matrix in compressed columns."""
        return self._relaid(sparse_csc)

    def to_sparse_bsr(self, blocksize: Any, dense_dim: Any = None) -> Any:
        """This matrix in blocks, compressed by rows of blocks."""
        return self._relaid(sparse_bsr, blocksize)

    def to_sparse_bsc(self, blocksize: Any, dense_dim: Any = None) -> Any:
        """This matrix in blocks, compressed by columns of blocks."""
        return self._relaid(sparse_bsc, blocksize)

    def _relaid(self, kind: layout, blocksize: Any = None) -> Any:
        if self.sparse_dim() != 2 or self.dense_dim():
            raise ShapeError(f"to_{kind.name}: a matrix is needed, got {list(self.shape)} with "
                             f"{self.dense_dim()} dense axes")
        warn_as_pytorch(f"Sparse {kind.name.removeprefix('sparse_').upper()} tensor support is in "
                        "beta state. If you miss a functionality in the sparse tensor support, "
                        "please submit a feature request.", once=True)
        c = self.coalesce()
        if kind not in BLOCKED:
            return make(c._at, c._held, tuple(self.shape), True, kind)
        if blocksize is None and self.layout in BLOCKED:
            blocksize = self._block
        high, wide = check_blocks(f"to_{kind.name}", blocksize, tuple(self.shape))
        if (high, wide) == c._block:
            return make(c._at, c._held, tuple(self.shape), True, kind, (high, wide))
        blocks = np.unique(c._at // [[high], [wide]], axis=1)
        full = make(in_blocks(blocks, high, wide), wrap(np.zeros(
            blocks.shape[1] * high * wide, c._held.dtype.dtype)), tuple(self.shape), False)
        total = make(np.concatenate([c._at, full._at], 1), cat_op(c._held, full._held, dim=0),
                     tuple(self.shape), False).coalesce()
        return make(total._at, total._held, tuple(self.shape), True, kind, (high, wide))

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: there is no dense array."""
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def _with(self, values: Any) -> Any:
        return make(self._at, values, tuple(self.shape), self._sorted, self.layout, self._block)

    def detach(self) -> Any:
        """The same positions and values, without history."""
        return self._with(self._held.detach())

    def detach_(self) -> Any:
        """Forget the history of the values."""
        self._held, self._rg = self._held.detach(), False
        return self

    def clone(self, *args: Any, **kwargs: Any) -> Any:
        """A copy; differentiable."""
        return make(self._at.copy(), self._held.clone(), tuple(self.shape), self._sorted,
                    self.layout, self._block)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """With values of another dtype."""
        return self._with(self._held.to(*args, **kwargs))

    def type(self, *args: Any, **kwargs: Any) -> Any:
        """With values of another type, or its name."""
        found = self._held.type(*args, **kwargs)
        if isinstance(found, str) and self.is_sparse:
            return found.replace("torch.", "torch.sparse.")
        return found if isinstance(found, str) else self._with(found)

    def zero_(self) -> Any:
        """Remove every element, in place."""
        return self._become(self._cleared())

    def _cleared(self, dtype: Any = None) -> Any:
        """One of this shape and layout without an element."""
        none = wrap(np.zeros((0, *self._held.shape[1:]), dtype or self._held.dtype.dtype))
        return make(self._at[:, :0], none, tuple(self.shape), True, self.layout, self._block)

    def _become(self, made: Any) -> Any:
        """From now on this object shows another sparse tensor."""
        leaf = self._rg and self.is_leaf        # (written without a graph: it stays one)
        for name in ("array", "_rg", "_at", "_held", "_sorted", "_block"):
            setattr(self, name, getattr(made, name))
        return self.requires_grad_() if leaf else self

    # -- arithmetic ---------------------------------------------------------------------------
    def __neg__(self) -> Any:
        return self._with(neg(self._held))

    def __add__(self, other: Any) -> Any:
        if isinstance(other, SparseTensor):
            if other.shape != self.shape or other.sparse_dim() != self.sparse_dim():
                raise ShapeError(f"add: sparse tensors must have one shape, got {list(self.shape)} "
                                 f"and {list(other.shape)}")
            both = np.concatenate([self._at, other._at], 1)
            alike = self.layout is other.layout and self._block == other._block
            held = FUNCTIONS["cat"]((self._held, other._held))
            total = make(both, held, tuple(self.shape), False,
                         *((self.layout, self._block) if alike else ()))
            split = tuple(self.shape)[:self.sparse_dim()]
            if not (ordered(self._at, split) and ordered(other._at, split)):
                return total
            merged = total.coalesce()
            merged._sorted = self._sorted and other._sorted
            return merged
        if isinstance(other, (Tensor, np.ndarray)):
            return add(other, self.to_dense())
        raise DTypeError("add: a number added to a sparse tensor would make it dense; use "
                        "to_dense() first")

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, SparseTensor):
            other = other.to_dense()
        if isinstance(other, Tensor) and len(other.shape):
            if tuple(other.shape) != tuple(self.shape):
                other = FUNCTIONS["broadcast_to"](other, tuple(self.shape))
            c = self.coalesce()
            return c._with(mul(c._held, picked(other, c._at)))
        return self._with(mul(self._held, other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Tensor) and len(other.shape):
            raise NotSupported("div: a sparse tensor is divided by numbers only; the quotient by "
                               "a tensor would be dense (0/0)")
        return self._with(div(self._held, other))

    def __matmul__(self, other: Any) -> Any:
        return SPARSE[SparseTensor](self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return SPARSE[SparseTensor](other, self)

    def __pow__(self, exponent: Any) -> Any:
        if not isinstance(exponent, (int, float)) or exponent <= 0:
            raise NotSupported("pow: the exponent of a sparse tensor must be a positive number")
        c = self.coalesce()
        return c._with(c._held ** exponent)

    matmul = mm = mv = __matmul__
    neg, pow = __neg__, __pow__

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        """Sum of all elements (a dense scalar), or over axes (sparse while one sparse axis is
        left)."""
        held = self._held if dtype is None else self._held.to(dtype)
        if dim is None:
            return sum_op(held, dim=tuple(range(len(held.shape))), keepdim=False)
        rank, split = len(self.shape), self.sparse_dim()
        dims = {d % rank for d in ((dim,) if isinstance(dim, int) else tuple(dim))}
        inner = tuple(d - split + 1 for d in sorted(dims) if d >= split)
        if inner:
            held = sum_op(held, dim=inner, keepdim=False)
        kept = [d for d in range(split) if d not in dims]
        shape = tuple(n for d, n in enumerate(self.shape) if d not in dims)
        if not kept:
            out = sum_op(held, dim=(0,), keepdim=False)
        else:
            out = make(self._at[kept], held, shape, False).coalesce()
        for d in sorted(dims) if keepdim else ():
            out = out.unsqueeze(d)
        return out

    def t(self) -> Any:
        """The transpose of a matrix."""
        return self.transpose(0, 1) if len(self.shape) > 1 else self

    def transpose(self, dim0: int, dim1: int) -> Any:
        """Two sparse axes exchanged."""
        rank, split = len(self.shape), self.sparse_dim()
        a, b = dim0 % rank, dim1 % rank
        if max(a, b) >= split:
            raise NotSupported("transpose: only sparse axes of a sparse tensor can be exchanged")
        order = list(range(split))
        order[a], order[b] = order[b], order[a]
        shape = [*(self.shape[o] for o in order), *self.shape[split:]]
        turned = make(self._at[order], self._held, tuple(shape), False)
        if self.layout is sparse_coo or a == b:
            return self if a == b else turned
        made = turned.coalesce()
        made.layout, made._block = TURNED[self.layout], (self._block[1], self._block[0])
        return made

    T = mT = property(lambda self: self.t())

    def size(self, dim: Any = None) -> Any:
        """Extent along each axis, or along one."""
        return self.shape if dim is None else self.shape[dim]

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if any([p is Ellipsis for p in parts]):
            i = [p is Ellipsis for p in parts].index(True)
            fill = len(self.shape) - sum([p is not None for p in parts]) + 1
            parts = (*parts[:i], *(slice(None),) * fill, *parts[i + 1:])
        found, dim = self, 0
        for p in parts:
            if isinstance(p, int) and not isinstance(p, bool):
                found = found.select(dim, p) if dim or not isinstance(
                    found, SparseTensor) else found._first(p)
            elif p is None or isinstance(p, slice) and p == slice(None):
                found, dim = found.unsqueeze(dim) if p is None else found, dim + 1
            else:
                raise NotSupported("a sparse tensor is indexed by integers, None and ':' only: "
                                   "call to_dense(), or use index_select")
        return found

    def _first(self, index: int) -> Any:
        """The part at one place of the first axis, without that axis."""
        n = self.shape[0]
        if not -n <= index < n:
            raise IndexOutOfRange(f"index {index} is out of bounds for axis 0 of size {n}")
        keep = np.nonzero(self._at[0] == index % n)[0]
        held = index_op(self._held, keep, dims=(0,))
        if self.sparse_dim() == 1:
            return sum_op(held, dim=(0,), keepdim=False)
        return make(self._at[1:, keep], held, tuple(self.shape[1:]), self._sorted)

    def narrow(self, dim: int, start: int, length: int) -> Any:
        """A copy of the part of an axis from `start` on."""
        dim = normalize_dim(dim, len(self.shape))
        size = self.shape[dim]
        start = start + size if start < 0 else start
        if not 0 <= start <= start + length <= size:
            raise ShapeError(f"narrow: start ({start}) + length ({length}) exceeds dimension size "
                             f"({size})")
        shape = (*self.shape[:dim], length, *self.shape[dim + 1:])
        split = self.sparse_dim()
        if dim >= split:
            held = narrow_op(self._held, dim=dim - split + 1, start=start, length=length)
            return make(self._at, held, shape, self._sorted)
        keep = np.nonzero((self._at[dim] >= start) & (self._at[dim] < start + length))[0]
        at = self._at[:, keep]
        at[dim] -= start
        return make(at, index_op(self._held, keep, dims=(0,)), shape, self._sorted)

    def index_select(self, dim: int, index: Any) -> Any:
        """The places `index` of an axis, in that order."""
        c, dim = self.coalesce(), normalize_dim(dim, len(self.shape))
        shape = (*self.shape[:dim], index.numel(), *self.shape[dim + 1:])
        if dim >= self.sparse_dim():
            return make(c._at, c._held.index_select(dim - self.sparse_dim() + 1, index), shape,
                        True)
        new, found = np.nonzero(index.array.reshape(-1, 1) == c._at[dim])    # place by place
        at = c._at[:, found]
        at[dim] = new
        return make(at, index_op(c._held, found, dims=(0,)), shape, False)

    def select(self, dim: int, index: int) -> Any:
        """The part at one place of an axis, without that axis."""
        dim = normalize_dim(dim, len(self.shape))
        if dim == 0:
            return self._first(int(index))
        size = self.shape[dim]
        if not -size <= index < size:
            raise IndexOutOfRange(f"select(): index {index} out of range for tensor of size "
                                  f"{list(self.shape)} at dimension {dim}")
        part = self.narrow(dim, index % size, 1)
        shape = (*self.shape[:dim], *self.shape[dim + 1:])
        if dim < self.sparse_dim():
            return make(np.delete(part._at, dim, 0), part._held, shape, self._sorted)
        return make(part._at, part._held.squeeze(dim - self.sparse_dim() + 1), shape, self._sorted)

    def permute(self, *dims: Any) -> Any:
        """Axes in another order; sparse ones stay before dense ones."""
        given = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
        order = [normalize_dim(d, len(self.shape)) for d in given]
        split = self.sparse_dim()
        if sorted(order[:split]) != list(range(split)) or sorted(order) != list(
                range(len(self.shape))):
            raise ArgumentError(f"permute(sparse_coo): {tuple(given)} is no order of {split} sparse"
                                f" axes and then {self.dense_dim()} dense ones")
        held = self._held.permute(0, *(d - split + 1 for d in order[split:]))
        return make(self._at[order[:split]], held, tuple(self.shape[d] for d in order), False)

    def unsqueeze(self, dim: int) -> Any:
        """With an axis of one place more."""
        dim = normalize_dim(dim, len(self.shape) + 1)
        shape = (*self.shape[:dim], 1, *self.shape[dim:])
        if dim > self.sparse_dim():
            return make(self._at, self._held.unsqueeze(dim - self.sparse_dim() + 1), shape,
                        self._sorted)
        return make(np.insert(self._at, dim, 0, 0), self._held, shape, self._sorted)

    __hash__ = Tensor.__hash__

    def __deepcopy__(self, memo: Any) -> Any:
        return make(self._at.copy(), copy.deepcopy(self._held, memo), tuple(self.shape),
                    self._sorted, self.layout, self._block)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return make, (self._at, self._held, tuple(self.shape), self._sorted, self.layout,
                      self._block)


def _unary(name: str) -> Callable[..., Any]:
    def f(self: Any) -> Any:
        c = self.coalesce()
        return c._with(METHODS[name](c._held))
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"`{name}` of every stored value; zeros stay zeros."
    return f


for _name in (*ZERO_STAYS, "__abs__"):
    setattr(SparseTensor, _name, _unary(_name.strip("_")))


def make(at: Array, values: Any, shape: Any, sorted_: bool, kind: layout = sparse_coo,
         block: tuple[int, int] = (1, 1)) -> Any:
    """A sparse tensor from parts that fit. Values lie in row-major order of their positions in
    every layout; in a blocked one every block that has a value is full."""
    t: Any = object.__new__(SparseTensor)
    t.array = SparseArray(tuple(shape), values.dtype.dtype)
    t._edge = t._cell = None
    t._rg = values.requires_grad
    t._at, t._held, t.layout, t._block = at, values, kind, block
    t._sorted = sorted_ or at.shape[1] < 2          # one position does not repeat
    return t


def check_blocks(name: str, blocksize: Any, shape: tuple[int, ...]) -> tuple[int, int]:
    """The extents of blocks that tile a matrix."""
    if blocksize is None or len(blocksize) != 2 or min(blocksize) < 1:
        raise ArgumentError(f"{name}: blocksize must be two positive numbers, got {blocksize}")
    high, wide = (int(b) for b in blocksize)
    if shape[0] % high or shape[1] % wide:
        raise ShapeError(f"{name}: tensor sparse size {list(shape)} must be divisible by given "
                         f"blocksize {[high, wide]}")
    return high, wide


def in_blocks(blocks: Array, high: int, wide: int) -> Array:
    """Positions (2, n high wide) of all elements of blocks (2, n), block by block, row by row."""
    inner = np.indices((high, wide)).reshape(2, 1, -1)
    return (blocks[:, :, None] * [[[high]], [[wide]]] + inner).reshape(2, -1).astype(I64)


def picked(dense: Any, at: Array) -> Any:
    """Elements (or dense slices) of a tensor at positions."""
    split = at.shape[0]
    flat = reshape(dense, (math.prod(dense.shape[:split]), *dense.shape[split:]))
    return index_op(flat, linear(at, dense.shape[:split]), dims=(0,))


Tensor.layout = strided  # type: ignore[attr-defined]  # a constant of dense tensors
__all__ = ["SparseArray", "SparseTensor", "layout", "make", "picked", "sparse_coo", "sparse_csr",
           "strided"]
