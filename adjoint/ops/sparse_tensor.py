"""Sparse tensors: indices and values; every method is dense arithmetic on the values.

A SparseTensor holds `indices` (sparse_dim, nnz) as integers and `values` (nnz, *dense shape) as a
tensor, which carries the gradient. Positions may repeat until `coalesce()` sums them.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import I64
from adjoint.base.errors import ArgumentError, IndexOutOfRange, NotSupported, ShapeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.device import layout, sparse_coo, sparse_csr, strided
from adjoint.ops.index import index_op, index_put_op
from adjoint.ops.pointwise import add, div, mul, neg
from adjoint.ops.public import FUNCTIONS, METHODS, SPARSE
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import cat_op, reshape

Array = Any
ZERO_STAYS = ("abs", "asin", "asinh", "atan", "atanh", "ceil", "erf", "expm1", "floor", "log1p",
              "relu", "round", "sgn", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
              "trunc")


class SparseArray(MetaArray):
    """What `.array` of a sparse tensor is: shape and dtype, and an error for its elements."""

    __slots__ = ()

    def _no_value(self, *_: Any, **__: Any) -> Any:
        raise NotSupported(f"this function does not take a sparse tensor (shape {list(self.shape)})"
                           ": call to_dense() first, or work on its values()")

    __array__ = __bool__ = __float__ = __int__ = __index__ = __iter__ = _no_value
    __array_ufunc__ = _no_value  # type: ignore[assignment]  # a function here: it says why
    item = tolist = _no_value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._no_value()


class SparseTensor(Tensor, own=True):
    """A tensor of which only some elements are stored; the rest are 0."""

    __slots__ = ()
    __array_ufunc__ = None
    _at: Array                       # (sparse_dim, nnz) integers
    _held: Any                       # (nnz, *dense) tensor
    _sorted: bool                    # distinct positions in row-major order
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

    def _nnz(self) -> int:
        return int(self._at.shape[1])

    def is_coalesced(self) -> bool:
        """True if no position repeats."""
        return self._sorted

    def _indices(self) -> Tensor:
        return wrap(self._at)

    def _values(self) -> Any:
        return self._held

    def indices(self) -> Tensor:
        """(sparse_dim, nnz) positions; only of a coalesced tensor."""
        self._need_coalesced("indices")
        return wrap(self._at)

    def values(self) -> Any:
        """(nnz, ...) values, connected to the graph; only of a coalesced tensor."""
        self._need_coalesced("values")
        return self._held

    def _need_coalesced(self, what: str) -> None:
        if not self._sorted:
            raise ArgumentError(f"Cannot get {what} on an uncoalesced tensor, please call "
                                ".coalesce() first")

    def crow_indices(self) -> Tensor:
        """Where each row begins in `values` (compressed rows)."""
        self._need_csr()
        counts = np.bincount(self._at[0], minlength=self.shape[0])
        return wrap(np.concatenate([[0], np.cumsum(counts)]).astype(I64))

    def col_indices(self) -> Tensor:
        """The column of each value (compressed rows)."""
        self._need_csr()
        return wrap(self._at[1])

    def _need_csr(self) -> None:
        if self.layout is not sparse_csr:
            raise ArgumentError(f"expected sparse_csr layout, this tensor is {self.layout}: call "
                                "to_sparse_csr()")

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
        return None if g is None else make(self._at, g, tuple(self.shape), self._sorted)

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
        return make(at.astype(I64), summed, tuple(self.shape), True, self.layout)

    def to_dense(self, dtype: Any = None, *, masked_grad: Any = None) -> Any:
        """The dense tensor; differentiable."""
        split, shape = self.sparse_dim(), tuple(self.shape)
        held = self._held if dtype is None else self._held.to(dtype)
        rows = math.prod(shape[:split])
        base = wrap(np.zeros((rows, *shape[split:]), held.dtype.dtype))
        full = index_put_op(base, linear(self._at, shape[:split]), held, dims=(0,),
                            accumulate=True)
        return reshape(full, shape)

    def to_sparse(self, *args: Any, **kwargs: Any) -> Any:
        """This tensor in coordinates."""
        return make(self._at, self._held, tuple(self.shape), self._sorted)

    to_sparse_coo = to_sparse

    def to_sparse_csr(self, dense_dim: Any = None) -> Any:
        """This matrix in compressed rows."""
        if self.sparse_dim() != 2 or self.dense_dim():
            raise ShapeError(f"to_sparse_csr: a matrix is needed, got {list(self.shape)} with "
                             f"{self.dense_dim()} dense axes")
        c = self.coalesce()
        return make(c._at, c._held, tuple(self.shape), True, sparse_csr)

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: there is no dense array."""
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def _with(self, values: Any) -> Any:
        return make(self._at, values, tuple(self.shape), self._sorted, self.layout)

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
                    self.layout)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """With values of another dtype."""
        return self._with(self._held.to(*args, **kwargs))

    def type(self, *args: Any, **kwargs: Any) -> Any:
        """With values of another type, or its name."""
        found = self._held.type(*args, **kwargs)
        return found if isinstance(found, str) else self._with(found)

    def zero_(self) -> Any:
        """Remove every element, in place."""
        self._at = self._at[:, :0]
        self._held = wrap(np.zeros((0, *self._held.shape[1:]), self._held.dtype.dtype))
        self._sorted, self._rg = True, False
        return self

    # -- arithmetic ---------------------------------------------------------------------------
    def __neg__(self) -> Any:
        return self._with(neg(self._held))

    def __add__(self, other: Any) -> Any:
        if isinstance(other, SparseTensor):
            if other.shape != self.shape or other.sparse_dim() != self.sparse_dim():
                raise ShapeError(f"add: sparse tensors must have one shape, got {list(self.shape)} "
                                 f"and {list(other.shape)}")
            both = np.concatenate([self._at, other._at], 1)
            total = make(both, cat_op(self._held, other._held, dim=0), tuple(self.shape), False)
            return total.coalesce() if self._sorted and other._sorted else total
        if isinstance(other, (Tensor, np.ndarray)):
            return add(other, self.to_dense())
        raise TypeError("add: a number added to a sparse tensor would make it dense; use "
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

    add, sub, mul, div = __add__, __sub__, __mul__, __truediv__
    matmul = mm = mv = __matmul__
    multiply, divide, neg, pow = __mul__, __truediv__, __neg__, __pow__

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
        return make(self._at[order], self._held, tuple(shape), False)

    T = mT = property(lambda self: self.t())

    def size(self, dim: Any = None) -> Any:
        """Extent along each axis, or along one."""
        return self.shape if dim is None else self.shape[dim]

    def float(self) -> Any:
        """With float32 values."""
        return self._with(self._held.float())

    def double(self) -> Any:
        """With float64 values."""
        return self._with(self._held.double())

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int):
            raise NotSupported("a sparse tensor is indexed by an integer only: call to_dense(), or "
                               "index_select on its values")
        n = self.shape[0]
        if not -n <= index < n:
            raise IndexOutOfRange(f"index {index} is out of bounds for axis 0 of size {n}")
        keep = np.nonzero(self._at[0] == index % n)[0]
        held = index_op(self._held, keep, dims=(0,))
        if self.sparse_dim() == 1:
            return sum_op(held, dim=(0,), keepdim=False)
        return make(self._at[1:, keep], held, tuple(self.shape[1:]), self._sorted)

    def __repr__(self) -> str:
        def block(name: str, t: Any) -> str:
            text = repr(t.detach()) if isinstance(t, Tensor) else repr(t)
            return f"{name}=" + text.replace("\n", "\n" + " " * (len(name) + 8))
        if self.layout is sparse_csr:
            parts = [block("crow_indices", self.crow_indices()),
                     block("col_indices", self.col_indices())]
        else:
            parts = [block("indices", wrap(self._at))]
        last = f"size={tuple(self.shape)}, nnz={self._nnz()}"
        if self.dtype.name != "float32":
            last += f", dtype={self.dtype}"
        last += f", layout={self.layout}"
        if self.requires_grad:
            last += f", grad_fn={self.grad_fn}" if self.grad_fn else ", requires_grad=True"
        return "tensor(" + ",\n       ".join([*parts, block("values", self._held), last]) + ")"

    __hash__ = Tensor.__hash__

    def __reduce_ex__(self, protocol: Any) -> Any:
        return make, (self._at, self._held, tuple(self.shape), self._sorted, self.layout)


def _unary(name: str) -> Callable[..., Any]:
    def f(self: Any) -> Any:
        c = self.coalesce()
        return c._with(METHODS[name](c._held))
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"`{name}` of every stored value; zeros stay zeros."
    return f


for _name in (*ZERO_STAYS, "__abs__"):
    setattr(SparseTensor, _name, _unary(_name.strip("_")))


def make(at: Array, values: Any, shape: Any, sorted_: bool, kind: layout = sparse_coo) -> Any:
    """A sparse tensor from parts that fit."""
    t: Any = object.__new__(SparseTensor)
    t.array = SparseArray(tuple(shape), values.dtype.dtype)
    t._edge = t._cell = None
    t._rg = values.requires_grad
    t._at, t._held, t._sorted, t.layout = at, values, sorted_, kind
    return t


def linear(at: Array, shape: Any) -> Array:
    """Positions as numbers in row-major order."""
    if not len(shape):
        return np.zeros(at.shape[1], I64)
    return np.ravel_multi_index(tuple(at), tuple(shape)).astype(I64) if at.size else np.zeros(
        at.shape[1], I64)


def picked(dense: Any, at: Array) -> Any:
    """Elements (or dense slices) of a tensor at positions."""
    split = at.shape[0]
    flat = reshape(dense, (math.prod(dense.shape[:split]), *dense.shape[split:]))
    return index_op(flat, linear(at, dense.shape[:split]), dims=(0,))


Tensor.layout = strided  # type: ignore[attr-defined]  # a constant of dense tensors
__all__ = ["SparseArray", "SparseTensor", "layout", "linear", "make", "picked", "sparse_coo",
           "sparse_csr", "strided"]
