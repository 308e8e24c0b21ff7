"""Functions of sparse tensors: products, construction, conversion, and those of `torch.sparse`."""
from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray
from adjoint.base.dtypes import I64, category, scalar_type
from adjoint.base.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRange,
    NotSupported,
    ShapeError,
)
from adjoint.core import bind as general
from adjoint.core import inplace as in_place
from adjoint.core.modes import GRAD, state, warn_as_pytorch
from adjoint.core.op import op
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.api_common import one_dim
from adjoint.ops.arrange import linear
from adjoint.ops.index import index_op, index_put_op
from adjoint.ops.linalg import conj
from adjoint.ops.pointwise import add, div, exp, log, mul, sub
from adjoint.ops.public import FUNCTIONS, METHODS, SPARSE, public
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import batch_loop, cat_op, reshape, t_op, unsqueeze_op
from adjoint.ops.sparse_tensor import (
    BLOCKED,
    BY_COLUMN,
    TURNED,
    ZERO_STAYS,
    SparseTensor,
    check_blocks,
    in_blocks,
    make,
    picked,
    sparse_coo,
    sparse_csr,
)

Array = Any


# ------------------------------------------------------------------ products
def _segment_sum(x: Array, group: Array, count: int) -> Array:
    """Rows of x summed by group."""
    out = np.zeros((count, *x.shape[1:]), x.dtype)
    if not len(group):
        return out
    if (np.diff(group) < 0).any():
        order = np.argsort(group, kind="stable")
        x, group = x[order], group[order]
    starts = np.concatenate([[0], np.nonzero(np.diff(group))[0] + 1])
    out[group[starts]] = np.add.reduceat(x, starts, axis=0)
    return out


def _spmm_impl(values: Any, dense: Any, rows: Any, cols: Any, /, *, n: int) -> Any:
    if values.dtype != dense.dtype:
        raise TypeError("dtypes differ")
    half = values.dtype.itemsize == 2
    v, d = (a.astype(np.float32) if half else a for a in (values, dense))
    return _segment_sum(v[:, None] * d[cols], rows, n).astype(values.dtype, copy=False)


def _spmm_infer(values: Aval, dense: Aval, rows: Aval, cols: Aval, *, n: int) -> Aval:
    if values.dtype != dense.dtype:
        raise ArgumentError("sparse matmul: expected operands of one dtype, got "
                            f"{values.dtype.name} and {dense.dtype.name}; cast one of them")
    return Aval((n, dense.shape[1]), dense.dtype)


def _spmm_samples() -> Any:
    rng = np.random.default_rng(2)
    rows, cols = np.array([0, 2, 2, 1]), np.array([1, 0, 1, 1])
    return [((rng.normal(size=4), rng.normal(size=(2, 3)), rows, cols), {"n": 4})]


spmm_op: Any = op(
    "spmm", impl=_spmm_impl, infer=_spmm_infer, node="SparseAddmmBackward0",
    vjp={"values": lambda ct, dense, rows, cols: sum_op(mul(
             index_op(ct, rows, dims=(0,)), conj(index_op(dense, cols, dims=(0,)))), dim=(1,),
             keepdim=False),
         "dense": lambda ct, values, rows, cols, dense_aval: spmm_op(
             conj(values), ct, cols, rows, n=dense_aval.shape[0])},
    jvp={"values": lambda t, dense, rows, cols, *, n: spmm_op(t, dense, rows, cols, n=n),
         "dense": lambda t, values, rows, cols, *, n: spmm_op(values, t, rows, cols, n=n)},
    batch=batch_loop, cost=lambda values, dense, *_, **__: 2 * values.size * dense.shape[1],
    why={"values": "dDense = Sᴴ·ct", "dense": "dValues = rows of ct times rows of it",
         "rows": "where the values are", "cols": "where the values are"}, domain=_spmm_samples)


def sparse_matmul(a: Any, b: Any) -> Any:
    """A product of which at least one factor is a sparse matrix: dense, or sparse for two."""
    for x in (a, b):
        if isinstance(x, SparseTensor) and (x.sparse_dim() != 2 or x.dense_dim()):
            raise ShapeError(f"matmul: a sparse factor must be a matrix, got {list(x.shape)} with "
                             f"{x.dense_dim()} dense axes")
    if not isinstance(a, (Tensor, np.ndarray)) or not isinstance(b, (Tensor, np.ndarray)):
        raise TypeError(f"matmul: expected two tensors, got {type(a).__name__} and "
                        f"{type(b).__name__}")
    if len(a.shape) > 2 or len(b.shape) > 2 or a.shape[-1] != b.shape[0]:
        raise ShapeError(f"matmul: mat1 and mat2 shapes cannot be multiplied ({list(a.shape)} and "
                         f"{list(b.shape)}): the last axis of the first must be the first of the "
                         "second")
    if not isinstance(a, SparseTensor):
        vector = len(a.shape) == 1
        out = sparse_matmul(b.t(), a if vector else t_op(a))  # type: ignore[union-attr]  # sparse
        return out if vector else t_op(out)
    if isinstance(b, SparseTensor):
        found = _sparse_product(a.coalesce(), b.coalesce())
        rows = a.layout is b.layout is sparse_csr
        return found.to_sparse(layout=sparse_csr) if rows else found
    rows, cols = a._at
    if len(b.shape) == 1:
        return reshape(spmm_op(a._held, unsqueeze_op(b, dim=1), rows, cols, n=a.shape[0]), (-1,))
    return spmm_op(a._held, b, rows, cols, n=a.shape[0])


def _sparse_product(a: Any, b: Any) -> Any:
    """Two sparse matrices: every stored a[i, k] meets the stored row k of b."""
    starts = np.searchsorted(b._at[0], np.arange(b.shape[0] + 1))
    count = np.diff(starts)[a._at[1]]
    left = np.repeat(np.arange(a._nnz()), count)
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    right = starts[a._at[1][left]] + offset
    values = mul(index_op(a._held, left, dims=(0,)), index_op(b._held, right, dims=(0,)))
    at = np.stack([a._at[0][left], b._at[1][right]]).astype(I64)
    return make(at, values, (a.shape[0], b.shape[1]), False).coalesce()


SPARSE[SparseTensor] = sparse_matmul


# ------------------------------------------------------------------ public
def integers(name: str, x: Any) -> Array:
    array = np.asarray(x.array if isinstance(x, Tensor) else x)
    if array.dtype.kind not in "iu" and array.size:
        raise ArgumentError(f"{name}: indices must be integers, got {array.dtype}")
    return array.astype(I64)


@public("sparse_coo_tensor", method=False)
def sparse_coo_tensor(indices: Any = None, values: Any = None, size: Any = None, *,
                      dtype: Any = None, device: Any = None, requires_grad: bool = False,
                      check_invariants: Any = None, is_coalesced: Any = None,
                      pin_memory: bool = False) -> Any:
    """A sparse tensor from positions (sparse_dim, nnz) and values (nnz, ...); values of repeated
    positions add up. The graph of `values` goes on.

    >>> import adjoint as ad
    >>> ad.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    if check_invariants is None:
        warn_as_pytorch("Sparse invariant checks are implicitly disabled. Memory errors (e.g. "
                        "SEGFAULT) will occur when operating on a sparse tensor which violates the "
                        "invariants, but checks incur performance overhead; here positions are "
                        "always checked.", once=True)
    if values is None:                                   # sparse_coo_tensor(size)
        shape = tuple(size if indices is None else indices)
        at = np.zeros((len(shape), 0), I64)
        held = FUNCTIONS["empty"]((0,), dtype=dtype)
        return make(at, held.requires_grad_(requires_grad), shape, True)
    at = integers("sparse_coo_tensor", indices)
    held = FUNCTIONS["as_tensor"](values, dtype=dtype)
    if at.ndim != 2:
        raise ShapeError(f"indices must be sparse_dim x nnz, but got: {list(at.shape)}")
    if not len(held.shape):
        held = FUNCTIONS["full"]((at.shape[1],), held.item(), dtype=held.dtype)
    if at.shape[1] != held.shape[0]:
        raise ShapeError("indices and values must have same nnz, but got nnz from indices: "
                         f"{at.shape[1]}, nnz from values: {held.shape[0]}")
    dense = tuple(held.shape[1:])
    if size is None:
        size = (*(int(n) for n in (at.max(1) + 1 if at.size else np.zeros(len(at), int))), *dense)
    shape = tuple(int(n) for n in size)
    if len(shape) != at.shape[0] + len(dense):
        raise ShapeError("'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = "
                         f"{len(shape)}, sparse_dim = {at.shape[0]}, dense_dim = {len(dense)}")
    if shape[at.shape[0]:] != dense:
        raise ShapeError(f"values has incorrect size, expected {list(shape[at.shape[0]:])} dense "
                         f"axes, got {list(dense)}")
    limits = np.array(shape[:at.shape[0]], I64)[:, None]
    bad = np.argwhere((at < 0) | (at >= limits))
    if len(bad):
        axis, k = bad[0]
        raise IndexOutOfRange(f"size is inconsistent with indices: for dim {axis}, size is "
                              f"{shape[axis]} but found index {at[axis, k]}")
    if requires_grad:
        held = held.detach().requires_grad_()
    return make(at, held, shape, bool(is_coalesced))


@public("to_sparse", function=False, aliases=("to_sparse_coo",))
def to_sparse(self: Any, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None,
              dense_dim: Any = None) -> Any:
    """The elements that are not 0, as a sparse tensor; differentiable."""
    if layout in BLOCKED and len(self.shape) == 2:
        return _tiled(self, layout, blocksize)
    if layout not in (None, sparse_coo):
        return to_sparse(self).to_sparse(layout=layout, blocksize=blocksize)
    if blocksize is not None:
        raise ArgumentError("to_sparse: blocksize belongs to the layouts sparse_bsr and sparse_bsc")
    rank = len(self.shape)
    split = rank if sparse_dim is None else int(sparse_dim)
    if not min(rank, 1) <= split <= rank:
        raise ArgumentError(f"to_sparse: sparse_dim must be in [1, {rank}], got {sparse_dim}")
    array = self.detach().numpy()
    full = (array != 0).reshape((*array.shape[:split], math.prod(array.shape[split:]))).any(-1)
    at = np.stack(np.nonzero(full)).astype(I64) if rank else np.zeros((0, int(array != 0)), I64)
    return make(at, picked(self, at), tuple(self.shape), True)


def _tiled(self: Any, kind: Any, blocksize: Any) -> Any:
    """The blocks of a dense matrix that are not all 0."""
    shape = tuple(self.shape)
    high, wide = block = check_blocks(f"to_{kind.name}", blocksize, shape)
    blocks = np.unique(np.stack(np.nonzero(self.detach().numpy())) // [[high], [wide]], axis=1)
    at = in_blocks(blocks, high, wide)
    at = at[:, np.argsort(linear(at, shape), kind="stable")]
    return make(at, picked(self, at), shape, True, kind, block)


def _into(kind: Any) -> None:
    blocked = kind in BLOCKED

    def convert(self: Any, *args: Any, blocksize: Any = None, dense_dim: Any = None) -> Any:
        return to_sparse(self, layout=kind, blocksize=args[0] if args and blocked else blocksize)
    convert.__name__ = convert.__qualname__ = f"to_{kind.name}"
    convert.__doc__ = (f"The elements of a matrix that are not 0, in the layout {kind.name}"
                       f"{' of blocks (rows, columns)' * blocked}; differentiable.")
    public(convert.__name__, function=False)(convert)


for _kind in TURNED:
    _into(_kind)


@public("to_dense", function=False)
def to_dense(self: Any, dtype: Any = None, *, masked_grad: Any = None) -> Any:
    """The dense tensor: a dense one is itself."""
    return self if dtype is None else self.to(dtype)


@public("sparse_mask", function=False)
def sparse_mask(self: Any, mask: Any) -> Any:
    """The elements of this tensor at the positions of a sparse one."""
    if tuple(self.shape) != tuple(mask.shape):
        raise ShapeError(f"sparse_mask(): operands have incompatible sizes; self has size "
                         f"{list(self.shape)} but mask has size {list(mask.shape)}")
    if isinstance(self, SparseTensor):
        return _stored_at(self.coalesce(), mask)
    c = mask.coalesce()
    return c._with(picked(self, c._at))


def _stored_at(c: Any, mask: Any) -> Any:
    """The elements of a sparse tensor at the positions of another; 0 where it has none."""
    if c.sparse_dim() != mask.sparse_dim():
        raise ShapeError(f"sparse_mask(): operands must have as many sparse axes, got "
                         f"{c.sparse_dim()} and {mask.sparse_dim()}")
    extents = c.shape[:c.sparse_dim()]
    have, want = linear(c._at, extents), linear(mask._at, extents)
    place = np.searchsorted(have, want)
    known = np.append(have, -1)[place] == want
    none = wrap(np.zeros((1, *c._held.shape[1:]), c._held.dtype.dtype))
    padded = cat_op(c._held, none, dim=0)
    return mask._with(index_op(padded, np.where(known, place, len(have)), dims=(0,)))


@public("spmm", method=False, aliases=("dsmm",))
def spmm(input: Any, mat2: Any) -> Any:
    """The product of a sparse matrix and a dense (or sparse) one."""
    if type(input) not in SPARSE and type(mat2) not in SPARSE:
        return FUNCTIONS["mm"](input, mat2)
    return sparse_matmul(input, mat2)


# ------------------------------------------------------------------ adjoint.sparse
def sparse_sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """Sum over axes: sparse while a sparse axis is left; all axes give a dense scalar."""
    return input.sum(dim, dtype=dtype)


def _rows_of(s: Any, dim: int) -> tuple[Array, int]:
    """For every stored value, the number of the line along `dim` that it is on."""
    rest = [d for d in range(s.sparse_dim()) if d != dim % len(s.shape)]
    return linear(s._at[rest], [s.shape[d] for d in rest]), math.prod(
        s.shape[d] for d in rest)


def _softmax(name: str, input: Any, dim: int, dtype: Any, log_: bool) -> Any:
    if not isinstance(input, SparseTensor):
        raise ArgumentError(f"sparse.{name}: expected a sparse tensor, got {type(input).__name__}")
    c, split, along = input.coalesce(), input.sparse_dim(), one_dim(input, dim)
    held = c._held if dtype is None else c._held.to(dtype)
    if along >= split:                              # a dense axis: of each stored vector
        return c._with(FUNCTIONS[name](held, along - split + 1))
    line, count = _rows_of(c, along)
    shape = (count, *held.shape[1:])
    top = np.full(shape, -np.inf, held.dtype.dtype)
    np.maximum.at(top, line, held.detach().numpy())
    shifted = sub(held, wrap(top[line]))
    zeros = wrap(np.zeros(shape, held.dtype.dtype))
    total = index_put_op(zeros, line, exp(shifted), dims=(0,), accumulate=True)
    total = index_op(total, line, dims=(0,))
    return c._with(sub(shifted, log(total)) if log_ else div(exp(shifted), total))


def sparse_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Softmax along an axis over the stored elements; the others count as -inf."""
    return _softmax("softmax", input, dim, dtype, False)


def sparse_log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """log of `softmax`."""
    return _softmax("log_softmax", input, dim, dtype, True)


def sparse_addmm(mat: Any, mat1: Any, mat2: Any, *, beta: float = 1.0, alpha: float = 1.0) -> Any:
    """beta·mat + alpha·(mat1 @ mat2) with sparse mat1, dense mat and mat2."""
    return add(mul(mat, beta), mul(sparse_matmul(mat1, mat2), alpha))


def sampled_addmm(input: Any, mat1: Any, mat2: Any, *, beta: float = 1.0,
                  alpha: float = 1.0) -> Any:
    """alpha·(mat1 @ mat2) at the positions of a sparse matrix, plus beta times it."""
    c = input.coalesce()
    rows, cols = c._at
    dots = sum_op(mul(index_op(mat1, rows, dims=(0,)), index_op(t_op(mat2), cols, dims=(0,))),
                  dim=(1,), keepdim=False)
    return c._with(add(mul(c._held, beta), mul(dots, alpha)))


def _copied(x: Any) -> Any:
    if type(x) is not MetaArray:
        return np.array(x)
    return call(np.array, x, otherwise=lambda: MetaArray(x.shape, x.dtype))


def embedding_gradient(ct: Any, index: Any, rows: int, padding_idx: int) -> Any:
    """The gradient of an embedding table: the rows that were read, uncoalesced."""
    held = ct if isinstance(ct, Tensor) else wrap(_copied(ct))
    width = held.shape[-1]
    at = np.asarray(index.array if isinstance(index, Tensor) else index).reshape(-1)
    held = reshape(held, (-1, width))
    if padding_idx >= 0:
        keep = np.nonzero(at != padding_idx)[0]
        at, held = at[keep], index_op(held, keep, dims=(0,))
    return make(at[None].astype(I64), held, (rows, width), False)


# ------------------------------------------------------------------ compressed, of values or blocks
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


# ------------------------------------------------------------------ what ops and methods do
_TURNED_IN_PLACE = ("transpose", "t", "unsqueeze")


def _unstored(op: Any, args: Any, attrs: Any) -> Any:
    """What an op does on sparse operands; None where no operand is sparse."""
    if not any([isinstance(a, SparseTensor) for a in args]):
        return None
    return import_module("adjoint.ops.sparse_rules").unstored(op, args, attrs)


def _strided(x: Any) -> Any:
    return x.to_dense() if isinstance(x, SparseTensor) else x


general.unstored, in_place.strided = _unstored, _strided


def _late(name: str) -> Any:
    """A function of the module of rules, which loads when it is first called."""
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module("adjoint.ops.sparse_rules"), name)(*args, **kwargs)
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Of sparse tensors, see `ops.sparse_rules.{name}`."
    return call


for _name in ("hspmm", "smm", "sspaddmm"):
    public(_name, method=_name != "hspmm", aliases=("hsmm",) if _name == "hspmm" else ())(
        _late(_name))


def _in_place(name: str) -> None:
    label = name + "_"

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if state() & GRAD:
            in_place.refuse_rewriting(self)
        if name in ZERO_STAYS and not self._sorted:
            raise ArgumentError(f"{label} requires coalesced input: call coalesce() first")
        made = (vars(SparseTensor).get(name) or METHODS[name])(self, *args, **kwargs)
        if name not in _TURNED_IN_PLACE:
            if not isinstance(made, SparseTensor) or tuple(made.shape) != tuple(self.shape):
                raise ShapeError(f"{label}: the result, of shape {list(made.shape)} and layout "
                                 f"{made.layout}, does not fit a sparse tensor of shape "
                                 f"{list(self.shape)}")
            if category(made.array.dtype) > category(self.array.dtype):
                raise DTypeError(f"result type {scalar_type(made.array.dtype)} can't be cast to "
                                 f"the desired output type {scalar_type(self.array.dtype)}")
            made = made if made.dtype == self.dtype else made.to(self.dtype)
            held = self._held
            if made._at is self._at and not made._rg and (
                    not held._rg or not state() & GRAD) and held.is_contiguous():
                held.copy_(made._held)          # (others that show these values see the change)
                return self
        return self._become(made)
    method.__name__ = method.__qualname__ = label
    method.__doc__ = f"In-place form of `{name}`."
    setattr(SparseTensor, label, method)


for _name in ("add", "sub", "mul", "div", "floor_divide", "neg", "pow", "nan_to_num",
              *_TURNED_IN_PLACE, *ZERO_STAYS):
    if _name + "_" in METHODS:
        _in_place(_name)
for _name, _called in (("iadd", "add_"), ("isub", "sub_"), ("imul", "mul_"),
                       ("itruediv", "div_")):
    setattr(SparseTensor, f"__{_name}__", getattr(SparseTensor, _called))


def _no_storage(self: Any) -> Any:
    """Raises: indices and values have a storage each."""
    raise NotSupported("Cannot access storage of SparseTensorImpl: take _indices() or _values()")


for _name in ("data_ptr", "storage", "untyped_storage"):
    setattr(SparseTensor, _name, _no_storage)
for _name in ("copy_", "sparse_resize_", "sparse_resize_and_clear_", "resize_as_sparse_"):
    setattr(SparseTensor, _name, _late(_name))
setattr(SparseTensor, "is_contiguous", lambda self, *_, **__: False)  # noqa: B010  # as `data`
setattr(SparseTensor, "data", property(SparseTensor.detach))  # noqa: B010  # Tensor has a setter


def _of_dense(name: str, kind: str) -> None:
    def method(self: Any) -> Any:
        raise ArgumentError(f"{name} expected {kind} layout but got Strided: call to_sparse()")
    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Of {kind} layouts only: a dense tensor raises ArgumentError."
    public(name, function=False)(method)


for _name, _what in (*dict.fromkeys(("indices", "coalesce", "is_coalesced"),
                                    "sparse coordinate tensor").items(),
                     ("values", "sparse tensor"),
                     ("crow_indices", "sparse row compressed tensor"),
                     ("col_indices", "sparse row compressed tensor"),
                     ("ccol_indices", "sparse column compressed tensor"),
                     ("row_indices", "sparse column compressed tensor")):
    _of_dense(_name, _what)


@public("sparse_dim", function=False)
def sparse_dim(self: Any) -> int:
    """Number of axes that indices address: 0 of a dense tensor."""
    return 0


@public("dense_dim", function=False)
def dense_dim(self: Any) -> int:
    """Number of axes that are dense: all of a dense tensor."""
    return len(self.shape)


__all__ = ["SparseTensor", "embedding_gradient", "integers", "sampled_addmm", "sparse_addmm",
           "sparse_coo_tensor", "sparse_log_softmax", "sparse_matmul",
           "sparse_softmax", "sparse_sum"]
