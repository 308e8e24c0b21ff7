"""Records of products of matrices. Rules conjugate, which is a no-op for real operands."""
from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray
from adjoint.base.dtypes import F32, F64, cpp_type, of_numpy, promote_dtypes, scalar_type, to_numpy
from adjoint.base.errors import DTypeError, ShapeError
from adjoint.core.bind import bind, remade
from adjoint.core.modes import WATCH, state, watchers
from adjoint.core.op import Op, op
from adjoint.core.rehearsal import call, current
from adjoint.core.tensor import Tensor
from adjoint.ops.api_common import cast_to, dtype_of
from adjoint.ops.device import in_order
from adjoint.ops.family import batch_broadcast, broadcast_shapes, generated, through_float32
from adjoint.ops.pointwise import conj_op, mul
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import (
    mT,
    refuse_expansion,
    relaid_op,
    reshape,
    select_op,
    squeeze_op,
    t_op,
    transpose_op,
    unsqueeze_op,
)

ndarray = np.ndarray


def conj(x: Any) -> Any:
    """The complex conjugate; a real operand itself."""
    kind = x.dtype.kind if type(x) is ndarray else dtype_of(x).kind
    return conj_op(x) if kind == "c" else x


def mH(x: Any) -> Any:
    """The conjugate transpose of the last two axes."""
    return conj(mT(x))


def _same(name: str, *avals: Aval | None) -> None:
    have = [a.dtype for a in avals if a is not None]
    if any(d != have[0] for d in have):
        said = f"expected m1 and m2 to have the same dtype, but got: {cpp_type(have[0])} != " \
               f"{cpp_type(have[1])}"
        pair = scalar_type(have[0]), scalar_type(have[1])
        if len(have) == 3 and have[1] == have[2]:
            said = "mat1 and mat2 must have the same dtype, but got {} and {}".format(*pair)
        elif len(have) == 3:
            pair = scalar_type(have[2]), scalar_type(have[1])
            said = "self and mat2 must have the same dtype, but got {} and {}".format(*pair)
        elif name in ("mv", "vm"):
            said = "addmv input tensors must have the same dtype"
        elif name == "bmm" or have[0] == have[1]:
            other = next(d for d in have if d != have[0])
            said = f"expected scalar type {scalar_type(have[0])} but found {scalar_type(other)}"
        raise DTypeError(f"{said}: {name}: expected operands to have the same dtype, but got "
                         f"{' and '.join(of_numpy(d).name for d in have)}; cast one of them")


def _inner(name: str, a: Aval, b: Aval, m: int, n: int) -> None:
    if m != n:
        raise ShapeError(
            f"{name}: mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, a.shape))} and "
            f"{'x'.join(map(str, b.shape))}): the last axis of the first has {m}, the second-last "
            f"of the second {n}; transpose or reshape one of them")


def _mm_infer(a: Aval, b: Aval) -> Aval:
    if a.ndim != 2 or b.ndim != 2:
        raise ShapeError(f"mm: expected two matrices, got {a.ndim}-d and {b.ndim}-d tensors; use "
                         "matmul for other ranks")
    _same("mm", a, b)
    _inner("mm", a, b, a.shape[1], b.shape[0])
    return Aval((a.shape[0], b.shape[1]), a.dtype)


def _product(a: Any, b: Any) -> Any:
    return np.matmul(a, b)


_wide_product = through_float32(_product)


def matrices(a: Any, b: Any) -> Any:
    """The product of matrices or vectors: of small ones `dot` takes half of matmul's time."""
    return a.dot(b)


def _matmul(a: Any, b: Any) -> Any:
    if a.dtype is b.dtype and (a.dtype is F32 or a.dtype is F64):
        if a.ndim <= 2 and b.ndim <= 2:
            return matrices(a, b)
        with np.errstate(over="ignore", invalid="ignore"):     # (`dot` does not warn)
            return np.matmul(a, b)
    if a.dtype != b.dtype:
        raise TypeError("operands of different dtypes")      # put into words by infer
    return _wide_product(a, b)


def _flops(a: Aval, b: Aval) -> int:
    return 2 * a.size * b.shape[-1]


def _batch_products(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    return batch_broadcast(matmul_op.op, args, batched, attrs)


def _batch_mm(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    a, b = args
    if batched[1]:
        return _batch_products(op_, args, batched, attrs)
    n, rows, inner = a.shape                       # one b: the rows of all examples at once
    return reshape(mm_op(reshape(a, (n * rows, inner)), b), (n, rows, b.shape[1]))


def widened(name: str, x: Any, dtype: Any) -> Any:
    """The operand in the dtype that was asked for, which has to hold it."""
    if dtype is None:
        return x
    have, want = dtype_of(x), to_numpy(dtype)
    kind = "complex" if have.kind == "c" else "floating point"
    if (have.kind == "c") != (want.kind == "c"):
        raise DTypeError(f"linalg.{name}: dtype should be {kind} for {kind} inputs, but got "
                         f"{scalar_type(want)}")
    if promote_dtypes(have, want) != want:
        raise DTypeError(f"linalg.{name}: the dtype of the input ({scalar_type(have)}) should be "
                         "convertible without narrowing to the specified dtype "
                         f"({scalar_type(want)})")
    return cast_to(x, dtype)


def product(a: Any, b: Any, *, left: bool = False, right: bool = False) -> Any:
    """The product of two matrices, the one named as its conjugate transpose. Of real tensors that
    is one node; dispatch modes are told of the transpose too, as PyTorch's are."""
    if type(a) is ndarray is type(b) and a.dtype is b.dtype and (a.dtype is F32 or a.dtype is F64):
        return mm_op.op.run(a.T if left else a, b.T if right else b)    # (no op watches arrays)
    if not (isinstance(a, Tensor) or isinstance(b, Tensor)) or dtype_of(a).kind == "c" or (
            state() & WATCH and watchers.modes.get()):
        return mm_op(*_turned(a, b, left, right))
    return (left_op if left else right_op if right else mm_op)(a, b)


def _turned(a: Any, b: Any, left: bool, right: bool) -> tuple[Any, Any]:
    return _adjoint(a) if left else a, _adjoint(b) if right else b


def _adjoint(x: Any) -> Any:
    return conj(x.T if type(x) is ndarray else t_op(x))      # (no op for a view of an array)


class ProductRule:
    """A rule whose cotangent is the product of two matrices, `factors(ct, *residuals)`, of which
    one may be meant transposed (see `product`): it can be added to what other nodes sent to the
    same operand while it is computed."""

    def __init__(self, factors: Any, left: bool = False, right: bool = False) -> None:
        self.factors, self.left, self.right = factors, left, right
        self.__signature__ = inspect.signature(factors)

    def __call__(self, *values: Any) -> Any:
        return product(*self.factors(*values), left=self.left, right=self.right)

    def grow(self, total: Any, *values: Any) -> bool:
        """total += the product, for raw arrays of one dtype; False where that is not so."""
        a, b = self.factors(*values)
        a, b = _turned(a, b, self.left, self.right)
        add_product = generated("add_product")
        if add_product is None or not (total.dtype is a.dtype is b.dtype) or total.shape != (
                a.shape[0], b.shape[1]):
            return False
        if type(total) is not MetaArray:
            add_product(a, b, total)
            return True
        if current() is not None:                # a rehearsal: what that does to memory
            call(add_product, a, b, total, otherwise=tuple)
        return current() is not None


WHY = {"a": "db = aᴴ·ct", "b": "da = ct·bᴴ"}
mm_op: Any = op(
    "mm", show="{a} @ {b}", impl=lambda a, b, /: _matmul(a, b), infer=_mm_infer, autocast="lower",
    vjp={"a": ProductRule(lambda ct, b: (ct, b), right=True),
         "b": ProductRule(lambda ct, a: (a, ct), left=True)},
    jvp={"a": None, "b": None}, batch=_batch_mm, cost=_flops, why=WHY)


def _turned_aval(x: Aval) -> Aval:
    return Aval(x.shape[::-1], x.dtype)


def _batch_turned(left: bool) -> Any:
    def batch(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
        a, b = args
        if not left and not batched[1]:          # the rows of all examples at once
            n, rows, inner = a.shape
            return reshape(right_op(reshape(a, (n * rows, inner)), b), (n, rows, b.shape[0]))
        pair = (mT(a), b) if left else (a, mT(b))
        return _batch_mm(mm_op.op, pair, batched, attrs)
    return batch


# What derivatives of products are, and theirs again: the three are closed under `vjp`. Real only.
left_op: Any = op(
    "mm_left", show="{a}ᵀ @ {b}", impl=lambda a, b, /: _matmul(a.T, b), node="MmBackward0",
    infer=lambda a, b: _mm_infer(_turned_aval(a), b), autocast="lower",
    vjp={"a": ProductRule(lambda ct, b: (b, ct), right=True),
         "b": ProductRule(lambda ct, a: (a, ct))},
    jvp={"a": None, "b": None}, batch=_batch_turned(True), cost=_flops,
    why={"a": "db = a·ct", "b": "da = b·ctᵀ"})
right_op: Any = op(
    "mm_right", show="{a} @ {b}ᵀ", impl=lambda a, b, /: _matmul(a, b.T), node="MmBackward0",
    infer=lambda a, b: _mm_infer(a, _turned_aval(b)), autocast="lower",
    vjp={"a": ProductRule(lambda ct, b: (ct, b)),
         "b": ProductRule(lambda ct, a: (ct, a), left=True)},
    jvp={"a": None, "b": None}, batch=_batch_turned(False),
    cost=lambda a, b: 2 * a.size * b.shape[0], why={"a": "db = ctᵀ·a", "b": "da = ct·b"})


def _bmm_infer(a: Aval, b: Aval) -> Aval:
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0]:
        raise ShapeError(f"bmm: expected two batches of matrices of one length, got "
                         f"{list(a.shape)} and {list(b.shape)}; use matmul to broadcast")
    _same("bmm", a, b)
    _inner("bmm", a, b, a.shape[2], b.shape[1])
    return Aval((a.shape[0], a.shape[1], b.shape[2]), a.dtype)


bmm_op: Any = op(
    "bmm", show="{a} @ {b}", impl=lambda a, b, /: _matmul(a, b), infer=_bmm_infer, autocast="lower",
    vjp={"a": lambda ct, b: matmul_op(ct, mH(b)), "b": lambda ct, a: matmul_op(mH(a), ct)},
    jvp={"a": None, "b": None}, batch=_batch_products, cost=_flops, why=WHY)


def _matmul_infer(a: Aval, b: Aval) -> Aval:
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeError(f"matmul: the record takes matrices, got {list(a.shape)} and "
                         f"{list(b.shape)}")
    _same("matmul", a, b)
    _inner("matmul", a, b, a.shape[-1], b.shape[-2])
    try:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        broadcast_shapes("matmul", *(Aval(x.shape[:-2], x.dtype) for x in (a, b)))
        raise
    return Aval((*lead, a.shape[-2], b.shape[-1]), a.dtype)


def _matmul_impl(a: Any, b: Any, /) -> Any:
    if b.ndim == 2 and a.ndim > 2 and a.flags.c_contiguous:     # one large product, not many
        flat = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
        return _matmul(flat, b).reshape(*a.shape[:-1], b.shape[-1])
    return _matmul(a, b)


def _fold(a: Any, ct: Any) -> Any:
    """Σ over leading axes of aᴴ·ct, as one product where the other operand had none."""
    if len(a.shape) > 2 and len(a.shape) == len(ct.shape):
        a, ct = _rows(a), _rows(ct)
    return matmul_op(mH(a), ct)


matmul_op: Any = op(
    "matmul", show="{a} @ {b}", impl=_matmul_impl, infer=_matmul_infer, autocast="lower",
    node="UnsafeViewBackward0",
    vjp={"a": lambda ct, b: matmul_op(ct, mH(b)),
         "b": lambda ct, a, b_aval: _fold(a, ct) if b_aval.ndim == 2 else matmul_op(mH(a), ct)},
    jvp={"a": None, "b": None}, batch=batch_broadcast, cost=lambda a, b: 2 * math.prod(
        np.broadcast_shapes(a.shape[:-2], b.shape[:-2])) * a.shape[-2] * a.shape[-1] * b.shape[-1],
    why=WHY)


def outer_of(a: Any, b: Any) -> Any:
    """a[..., i] · b[..., j]."""
    return mul(unsqueeze_op(a, dim=len(a.shape)), unsqueeze_op(b, dim=len(b.shape) - 1))


def _vector_product(name: str, a: Aval, v: Aval, inner: int) -> Aval:
    """A matrix and a vector along its axis `inner`."""
    if a.ndim != 2 or v.ndim != 1 or a.shape[inner] != v.shape[0]:
        got = f"input ({a.shape[1 - inner] if a.ndim > 1 else 1}), mat (" \
              f"{'x'.join(map(str, a.shape))}), vec ({v.shape[0] if v.ndim else 1})"
        raise ShapeError(f"size mismatch, got {got}: {name} of {list(a.shape)} and {list(v.shape)}"
                         f": a matrix (n, m) and a vector ({'nm'[inner]},) are needed")
    _same(name, a, v)
    return Aval((a.shape[1 - inner],), a.dtype)


def _batch_mv(op_: Op, args: Any, batched: Any, attrs: Any) -> Any:
    """Where one operand is shared, the examples are rows of one product."""
    a, v = args
    if not batched[0]:
        return mm_op(v, t_op(a))
    if not batched[1]:
        n, rows, inner = a.shape
        return reshape(mv_op(reshape(a, (n * rows, inner)), v), (n, rows))
    out = bind(matmul_op.op, (a, unsqueeze_op(v, dim=len(v.shape))), {})
    return squeeze_op(out, dims=(2,))


mv_op: Any = op(
    "mv", show="{a} @ {v}", impl=lambda a, v, /: _matmul(a, v),
    infer=lambda a, v: _vector_product("mv", a, v, 1),
    vjp={"a": lambda ct, v: outer_of(ct, conj(v)), "v": lambda ct, a: mv_op(conj(t_op(a)), ct)},
    jvp={"a": None, "v": None}, batch=_batch_mv, cost=lambda a, v: 2 * a.size,
    why={"a": "dv = aᴴ·ct", "v": "da = ct ⊗ v"})


def _batch_vm(op_: Op, args: Any, batched: Any, attrs: Any) -> Any:
    """As `_batch_mv`."""
    v, a = args
    if not batched[1]:
        return mm_op(v, a)
    out = matmul_op(unsqueeze_op(v, dim=len(v.shape) - 1), a)
    return squeeze_op(out, dims=(1,))


# A row of a batch times a matrix: one op of a transform where an axis in front would take three.
vm_op: Any = op(
    "vm", show="{v} @ {a}", impl=lambda v, a, /: _matmul(v, a),
    infer=lambda v, a: _vector_product("vm", a, v, 0),
    vjp={"v": lambda ct, a: mv_op(conj(a), ct), "a": lambda ct, v: outer_of(conj(v), ct)},
    jvp={"v": None, "a": None}, batch=_batch_vm, cost=lambda v, a: 2 * a.size,
    why={"v": "da = v ⊗ ct", "a": "dv = a·ct"})


def _dot_infer(a: Aval, b: Aval) -> Aval:
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"dot: 1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    if a.dtype != b.dtype:
        raise DTypeError("dot : expected both vectors to have same dtype, but found "
                         f"{scalar_type(a.dtype)} and {scalar_type(b.dtype)}")
    if a.shape != b.shape:
        raise ShapeError(f"inconsistent tensor size, expected tensor {list(a.shape)} and src "
                         f"{list(b.shape)} to have the same number of elements, but got {a.size} "
                         f"and {b.size} elements respectively")
    return Aval((), a.dtype)


def _batch_dot(op_: Op, args: Any, batched: Any, attrs: Any) -> Any:
    return sum_op(mul(args[0], args[1]), dim=(1,), keepdim=False)


dot_op: Any = op(
    "dot", show="{a} · {b}", impl=lambda a, b, /: np.asarray(_matmul(a, b)), infer=_dot_infer,
    vjp={"a": lambda ct, b: mul(ct, conj(b)), "b": lambda ct, a: mul(ct, conj(a))},
    jvp={"a": None, "b": None}, batch=_batch_dot, cost=lambda a, b: 2 * a.size,
    why={"a": "db = ct·a", "b": "da = ct·b"})


# ------------------------------------------------------------------ x·Wᵀ + bias
def _linear_infer(x: Aval, weight: Aval, bias: Aval | None) -> Aval:
    _same("linear", x, weight, bias)
    if weight.ndim != 2 or x.ndim < 1:
        raise ShapeError(f"linear: input (..., in), weight (out, in) are needed, got "
                         f"{list(x.shape)} and {list(weight.shape)}")
    _inner("linear", x, Aval(weight.shape[::-1], weight.dtype), x.shape[-1], weight.shape[1])
    if bias is not None and bias.shape not in ((weight.shape[0],), (1,), ()):
        raise ShapeError(f"linear: bias {list(bias.shape)} does not fit weight "
                         f"{list(weight.shape)}: ({weight.shape[0]},) is needed")
    return Aval((*x.shape[:-1], weight.shape[0]), x.dtype)


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    flat = x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out = matrices(flat, weight.T)
    if bias is not None:
        out += bias
    return out if x.ndim == 2 else out.reshape(*x.shape[:-1], weight.shape[0])


_wide_linear = through_float32(_linear)


def _linear_checked(x: Any, weight: Any, bias: Any, /) -> Any:
    if x.dtype != weight.dtype or bias is not None and bias.dtype != x.dtype:
        _linear_infer(x, weight, bias)
    return (_linear if x.dtype.itemsize > 2 else _wide_linear)(x, weight, bias)


def _rows(x: Any) -> Any:
    return x if len(x.shape) == 2 else reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _flat(x: Any) -> Any:
    """The conjugate of the rows: a real matrix itself."""
    if type(x) is ndarray and x.ndim == 2 and x.dtype.kind != "c":
        return x
    return conj(_rows(x))


def _linear_dx(ct: Any, weight: Any, x_aval: Aval) -> Any:
    out = product(_rows(ct), conj(weight))
    return out if x_aval.ndim == 2 else reshape(out, x_aval.shape)


def _column_sums(ct: Any) -> Any:
    rows = _rows(ct)
    run = sum_op.op.run if type(rows) is ndarray else sum_op
    return run(rows, dim=(0,), keepdim=False)


def _batch_linear(op_: Op, args: Any, batched: Any, attrs: Any) -> Any:
    x, weight, bias = args
    if not batched[1] and not batched[2]:
        return bind(op_, args, attrs)
    from adjoint.ops.pointwise import add
    vector = len(x.shape) - batched[0] == 1
    if vector:
        x = unsqueeze_op(x, dim=len(x.shape) - 1)
    lead = len(x.shape) - batched[0]
    if batched[1]:
        n, o, i = weight.shape
        weight = reshape(weight, (n, *(1,) * (lead - 2), o, i))
    out = matmul_op(x, mT(weight))
    if bias is not None:
        if batched[2]:
            bias = reshape(bias, (bias.shape[0], *(1,) * (lead - 1), -1))
        out = add(out, bias)
    return squeeze_op(out, dims=(len(out.shape) - 2,)) if vector else out


linear_op: Any = op(
    "linear", show="{x} @ {weight}ᵀ[ + {bias}]", impl=_linear_checked, infer=_linear_infer,
    autocast="lower", node="AddmmBackward0", thrift=remade,
    vjp={"x": _linear_dx,
         "weight": ProductRule(lambda ct, x: (_flat(ct), _flat(x)), left=True),
         "bias": _column_sums},
    jvp={"x": lambda t, weight: linear_op(t, weight, None),
         "weight": lambda t, x: linear_op(x, t, None),
         "bias": lambda t, x_aval: broadcast_rows(t, x_aval)},
    batch=_batch_linear, cost=lambda x, weight, bias: 2 * x.size * weight.shape[0],
    why={"x": "dW = ctᵀ·x", "weight": "dx = ct·W"})


def broadcast_rows(t: Any, x: Aval) -> Any:
    """A vector, once per row of `x`."""
    from adjoint.ops.shape import expand_op
    if not t.shape:
        return t
    return expand_op(t, shape=(*x.shape[:-1], t.shape[-1]))


# ------------------------------------------------------------------ beta·c + alpha·a·b
def _addmm_infer(c: Aval, a: Aval, b: Aval, *, beta: float, alpha: float) -> Aval:
    out = _mm_infer(a, b) if a.ndim == 2 else _bmm_infer(a, b)
    _same("addmm", c, a)
    refuse_expansion(c.shape, out.shape)
    return out


_PIECE = 1 << 16        # elements


@through_float32
def _addmm(c: Any, a: Any, b: Any, *, beta: float, alpha: float) -> Any:
    out = matrices(a, b) if a.ndim == 2 else np.matmul(a, b)
    if alpha != 1:
        out *= alpha
    if beta != 0:            # as in BLAS: c is not read where beta is 0, not even its nans
        if beta == 1:
            out += c
        else:
            _add_scaled(out, c, beta)
    return out


def _add_scaled(out: Any, c: Any, beta: float) -> None:
    """Add c·beta, large c by pieces: no array of its size is made."""
    step = max(1, _PIECE * len(c) // c.size) if c.size > _PIECE and c.shape == out.shape else 0
    for part in [slice(i, i + step) for i in range(0, len(c), step)] if step else [...]:
        piece = out[part]
        piece += np.multiply(c[part], beta, dtype=out.dtype)


def _addmm_checked(c: Any, a: Any, b: Any, /, *, beta: float, alpha: float) -> Any:
    if not a.dtype == b.dtype == c.dtype or a.ndim != b.ndim:
        raise TypeError("dtypes differ")
    return _addmm(c, a, b, beta=beta, alpha=alpha)


def columns(x: Any) -> Any:
    """Matrices column by column in memory, as LAPACK leaves them; `x` where they lie so, and inside
    of a transform, whose memory nobody sees."""
    last = len(x.shape) - 1
    axes = (*range(last - 1), last, last - 1)
    if last < 1 or getattr(x, "level", False) or in_order(getattr(x, "array", x), axes):
        return x
    return relaid_op(x, axes=axes)


def scaled(x: Any, factor: Any) -> Any:
    """x·factor; nothing is done for 1."""
    return x if isinstance(factor, (int, float)) and factor == 1 else mul(x, factor)


def _batch_addmm(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    from adjoint.ops.pointwise import add
    c, a, b = args
    out = scaled(batch_broadcast(matmul_op.op, (a, b), batched[1:], {}), attrs["alpha"])
    if not (batched[1] or batched[2]):
        out = unsqueeze_op(out, dim=0)
    if batched[0]:
        c = reshape(c, (c.shape[0], *(1,) * (len(out.shape) - len(c.shape)), *c.shape[1:]))
    return add(out, scaled(c, attrs["beta"]))


def _bar(number: Any) -> Any:
    return number.conjugate() if isinstance(number, complex) else number


def _declare_addmm(name: str) -> Any:
    return op(
        name, impl=_addmm_checked, infer=_addmm_infer, autocast="lower",
        vjp={"c": lambda ct, *, beta: scaled(ct, _bar(beta)),
             "a": lambda ct, b, *, alpha: scaled(matmul_op(ct, mH(b)), _bar(alpha)),
             "b": lambda ct, a, *, alpha: scaled(matmul_op(mH(a), ct), _bar(alpha))},
        jvp={"c": lambda t, *, beta: scaled(t, beta),
             "a": lambda t, b, *, alpha: scaled(matmul_op(t, b), alpha),
             "b": lambda t, a, *, alpha: scaled(matmul_op(a, t), alpha)},
        batch=_batch_addmm, cost=lambda c, a, b, **_: 2 * a.size * b.shape[-1],
        why={"a": "db = alpha·aᴴ·ct", "b": "da = alpha·ct·bᴴ"})


addmm_op: Any = _declare_addmm("addmm")
baddbmm_op: Any = _declare_addmm("baddbmm")
__all__ = ["MetaArray", "addmm_op", "baddbmm_op", "bmm_op", "columns", "conj", "dot_op",
           "left_op", "linear_op", "mH", "matmul_op", "mm_op", "mv_op", "outer_of", "right_op",
           "scaled", "select_op", "transpose_op", "vm_op"]
