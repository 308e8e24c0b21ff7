"""Which records are computed by generated kernels, and from which size.

Every record keeps its NumPy `impl`: the reference, and what runs on small arrays, where a kernel
refuses (NotImplemented), where llvmlite is missing and with ADJOINT_JIT=0.
"""
from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.aval import inverse
from adjoint.base.dtypes import F32, F64, is_float
from adjoint.core.bind import remaking
from adjoint.core.op import OPS, Op
from adjoint.ops import activation, batch_norm, cross_entropy, group_norm, norm, recurrent
from adjoint.ops.api_common import narrowed, wide
from adjoint.ops.device import channels_last_of, following, in_order
from adjoint.ops.family import generated
from adjoint.ops.gather import whole_rows
from adjoint.ops.reduce import c_order

ON = os.environ.get("ADJOINT_JIT", "1") != "0"
_SUM = 16384             # elements from which threads pay for a sum
Adapter = Callable[..., Any]
ACCELERATED: dict[str, Op] = {}     # `impl` of each is the kernels', `impl.__wrapped__` NumPy's
_TINY = 128        # the same for kernels that replace tens of NumPy calls
_SMALL = 4096      # elements below which a launch costs more than it saves
_ROWS = 256        # the same for what takes several passes over rows
_MAP = 256         # positions from which on a map of classes is read as it lies
_ALONE = 9216      # elements of a matrix up to which BLAS multiplies it with a vector on one thread
_PRODUCT = 2048    # elements of an operand from which on a product is not left to NumPy


def accelerate(record: Op, adapter: Adapter, minimum: int = _SMALL) -> None:
    """Let `adapter(kernel, *arrays, **attrs)` compute an op where its first operand has at least
    `minimum` elements."""
    slow, kernel_name = record.impl, record.name
    ACCELERATED[record.name] = record

    @functools.wraps(slow)          # the record reads its operands off the signature
    def impl(*arrays: Any, **attrs: Any) -> Any:
        first = arrays[0]                    # (of `where` it may be a number)
        if not minimum or type(first) is np.ndarray and first.size >= minimum:
            k = generated(kernel_name)
            if k is not None:
                got = adapter(k, *arrays, **attrs)
                if got is not NotImplemented:
                    return got
        return slow(*arrays, **attrs)
    record.impl = impl
    record.settle(slow, minimum)


def _half(dtype: np.dtype[Any]) -> bool:
    """Whether elements are floats of 16 bits."""
    return dtype.itemsize == 2 and is_float(dtype)


def plus(a: Any, b: Any, out: Any = None) -> Any:
    """a + b of raw arrays, stored in `out` if given: on all threads where they are large and
    alike, else by NumPy."""
    dtype = a.dtype
    if (dtype is F32 or dtype is F64) and dtype is b.dtype and a.shape == b.shape:
        large = generated("plus") if a.size >= _SUM else None
        made = NotImplemented if large is None else large(a, b, out)
        if made is not NotImplemented:
            return made
    return a + b if out is None else np.add(a, b, out=out, casting="unsafe")


def _last(x: Any, dim: int) -> bool:
    return dim == x.ndim - 1 and x.flags.c_contiguous


def _packed(x: Any) -> Any:
    """`x` in C order."""
    if x.flags.c_contiguous:
        return x
    kernel = generated("contiguous") if x.size >= _SMALL else None
    found = NotImplemented if kernel is None else kernel(x)
    return np.ascontiguousarray(x) if found is NotImplemented else found


def packed_copy(x: Any) -> Any:
    """A copy of `x` in C order."""
    return x.copy(order="C") if x.flags.c_contiguous else _packed(x)


def _contiguous(k: Any, x: Any) -> Any:
    return k(x)


@following(1)
def _pad(k: Any, x: Any, *, pads: Any, value: Any = 0) -> Any:
    zero = type(value) in (int, float) and not value and math.copysign(1, value) > 0
    return k(x, tuple([tuple(p) for p in pads])) if zero else NotImplemented


@following(1)
def _flip(k: Any, x: Any, *, dims: tuple[int, ...]) -> Any:
    return k(np.flip(x, dims))


def _softmax(k: Any, x: Any, *, dim: int) -> Any:
    return k(x, axis=dim)


def _softmax_backward(k: Any, ct: Any, out: Any, *, dim: int) -> Any:
    if not out.flags.c_contiguous:
        return NotImplemented
    return k(_packed(ct), out, axis=dim)


def _layer_norm(k: Any, x: Any, weight: Any, bias: Any, *, ndim: int, eps: float) -> Any:
    columns = math.prod(x.shape[x.ndim - ndim:])
    if not columns or not x.flags.c_contiguous:
        return NotImplemented
    got = k(x, _flat(weight), _flat(bias), eps=eps, columns=columns)
    if got is NotImplemented:
        return got
    y, mean, rstd = got
    return _shaped(y, x.shape), mean, rstd


def _flat(x: Any) -> Any:
    return None if x is None else x.reshape(-1)


def _shaped(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` in that shape; itself where it has it, because a view as gradient would be copied."""
    return x if x.shape == shape else x.reshape(shape)


def _layer_norm_backward(k: Any, ct: Any, x: Any, weight: Any, mean: Any, rstd: Any, *, ndim: int,
                         wanted: tuple[bool, ...]) -> Any:
    columns = math.prod(x.shape[x.ndim - ndim:])
    if not columns or not x.flags.c_contiguous:
        return NotImplemented
    got = k(_packed(ct), x, mean, rstd, _flat(weight), bias=bool(wanted[2]),
            gradients=bool(wanted[1] or wanted[2]), columns=columns)
    if got is NotImplemented:
        return got
    inner = x.shape[x.ndim - ndim:]
    dx, dw, db = got
    if (wanted[1] and dw is None) or (wanted[2] and db is None):
        return NotImplemented
    empty = np.zeros(inner, mean.dtype)
    return (_shaped(dx, x.shape),
            *(empty if d is None else _shaped(d, inner).astype(mean.dtype, copy=False)
              for d in (dw, db)))


def _widened(adapter: Adapter) -> Adapter:
    """An adapter whose kernel has no 16-bit form: operands of 16 bits are given in float32, and the
    first result is stored in 16 again (statistics and gradients of parameters stay wide)."""
    @functools.wraps(adapter)
    def run(k: Any, *arrays: Any, **attrs: Any) -> Any:
        dtype = arrays[0].dtype
        if not _half(dtype):
            return adapter(k, *arrays, **attrs)
        got = adapter(k, *[wide(a) if type(a) is np.ndarray else a for a in arrays], **attrs)
        if got is NotImplemented:
            return got
        if type(got) is not tuple:
            return narrowed(got, dtype)
        return narrowed(got[0], dtype), *got[1:]
    return run


def _as_rows(*places: int) -> Callable[..., Any]:
    """Hand images that lie channels last on as the matrix (pixels, channels) that their memory is,
    and lay the first result so. The last of `places` says in what order the images lie."""
    def around(adapter: Callable[..., Any]) -> Callable[..., Any]:
        def run(k: Any, *arrays: Any, **attrs: Any) -> Any:
            x = arrays[places[-1]]
            form = None if x.flags.c_contiguous else channels_last_of(x)
            axes = None if form is None else form.axes
            if axes is None or not in_order(x, axes):
                return adapter(k, *arrays, **attrs)
            shape = x.transpose(axes).shape
            got = adapter(k, *[a.transpose(axes).reshape(-1, shape[-1]) if i in places else a
                               for i, a in enumerate(arrays)], **attrs)
            if got is NotImplemented:
                return got
            first, *rest = got if type(got) is tuple else (got,)
            image = first.reshape(shape).transpose(inverse(axes))
            return (image, *rest) if rest else image
        return run
    return around


@following(1)
@_as_rows(0)
@_widened
def _batch_norm(k: Any, x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    got = k(x, weight, bias, eps=eps)
    return got if got is NotImplemented else (got[0], got[1], got[3])


@following(1)
@_as_rows(0)
@_widened
def _batch_norm_given(k: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, *,
                      eps: float) -> Any:
    got = k(x, weight, bias, mean=mean, var=var, eps=eps)
    return got if got is NotImplemented else got[0]


@following(2)
@_as_rows(0, 1)
@_widened
def _batch_norm_backward(k: Any, ct: Any, x: Any, weight: Any, mean: Any, var: Any, *, eps: float,
                         wanted: tuple[bool, ...], training: bool) -> Any:
    rstd = 1 / np.sqrt(var + var.dtype.type(eps))
    return k(_packed(ct), x, mean, rstd, weight, training=training)


@following(1)
@_widened
def _group_norm(k: Any, x: Any, weight: Any, bias: Any, *, groups: int, eps: float) -> Any:
    return k(x, groups, weight, bias, eps=eps)


@following(2)
@_widened
def _group_norm_backward(k: Any, ct: Any, x: Any, weight: Any, mean: Any, rstd: Any, *,
                         groups: int, wanted: tuple[bool, ...]) -> Any:
    return k(_packed(ct), x, groups, mean, rstd, weight)


def _rms_norm(k: Any, x: Any, weight: Any, *, ndim: int, eps: float) -> Any:
    columns = math.prod(x.shape[x.ndim - ndim:])
    if not columns or not x.flags.c_contiguous:
        return NotImplemented
    got = k(x, _flat(weight), eps=eps, columns=columns)
    return got if got is NotImplemented else (_shaped(got[0], x.shape), got[1])


@_widened
def _rms_norm_backward(k: Any, ct: Any, x: Any, weight: Any, rstd: Any, *, ndim: int,
                       wanted: tuple[bool, ...]) -> Any:
    inner = x.shape[x.ndim - ndim:]
    if not x.flags.c_contiguous:
        return NotImplemented
    got = k(_packed(ct), x, rstd, _flat(weight), gradients=wanted[1],
            columns=math.prod(inner))
    if got is NotImplemented:
        return got
    dx, dw = got
    return (_shaped(dx, x.shape),
            np.zeros(inner, rstd.dtype) if dw is None else _shaped(dw, inner))


def _cross_entropy(k: Any, x: Any, target: Any, weight: Any, *, reduction: str, ignore_index: int,
                   label_smoothing: float) -> Any:
    shape = target.shape
    logits, target = _logits(x, target)
    got = k(logits, target, weight, ignore_index=ignore_index, label_smoothing=label_smoothing)
    if got is NotImplemented:
        return got
    loss, lse, share = got
    if reduction == "none":
        return loss.reshape(shape).astype(x.dtype, copy=False), lse
    total = np.add.reduce(loss)              # (the methods cost a call more)
    if reduction == "mean":
        total = _quotient(total, np.add.reduce(share))
    return np.asarray(total, x.dtype), lse


def _logits(x: Any, target: Any) -> tuple[Any, Any]:
    """Logits and classes as the kernels read them: large maps (N, C, ...) in place, else rows,
    which give small maps the bits of their rows."""
    if x.ndim > 2 and x.flags.c_contiguous and math.prod(x.shape[2:]) >= _MAP:
        return x, np.ascontiguousarray(target)
    return (_packed(cross_entropy.rows_of(x)),
            np.ascontiguousarray(target).reshape(-1))


def _quotient(a: Any, b: Any) -> Any:
    """a / b of NumPy's scalars, silent where b is 0 (`errstate` costs as much as the loss)."""
    if b:
        return a / b
    with np.errstate(invalid="ignore", divide="ignore"):
        return a / b


def _cross_entropy_backward(k: Any, ct: Any, x: Any, target: Any, weight: Any, lse: Any, *,
                            reduction: str, ignore_index: int, label_smoothing: float) -> Any:
    logits, target = _logits(x, target)
    scale = np.asarray(ct, lse.dtype).reshape(-1 if ct.ndim else ())
    if reduction == "mean":
        used = target != ignore_index
        share = (np.count_nonzero(used) if weight is None
                 else weight[np.where(used, target, 0)][used].sum())
        scale = np.asarray(_quotient(scale, lse.dtype.type(share)), lse.dtype)
    if scale.ndim:
        full = np.ascontiguousarray(scale)
    else:
        full = np.empty(target.size, lse.dtype)
        full.fill(scale)
    got = k(full, logits, target, lse, weight, ignore_index=ignore_index,
            label_smoothing=label_smoothing)
    return got if got is NotImplemented or got.ndim == x.ndim > 2 else cross_entropy.back(
        got, x.shape)


def _nll(k: Any, x: Any, target: Any, weight: Any, *, reduction: str, ignore_index: int) -> Any:
    got = NotImplemented if reduction == "none" else k(x, target, weight, ignore_index)
    if got is NotImplemented:
        return got
    total, share = got
    if reduction == "mean":
        total = total / share if share else np.nan * total
    return np.array(total, x.dtype)


def _nll_backward(k: Any, ct: Any, target: Any, weight: Any, *, shape: tuple[int, ...],
                  reduction: str, ignore_index: int) -> Any:
    scale = np.asarray(_packed(ct))
    if reduction == "mean":
        used = target != ignore_index
        share = np.count_nonzero(used) if weight is None else weight[target[used]].sum()
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = np.asarray(scale / scale.dtype.type(share))
    return k(scale, target, weight, shape, ignore_index)


def _margins(k: Any, *arrays: Any, margin: float) -> Any:
    return k(_packed(arrays[0]), *arrays[1:], margin)


def _glu(k: Any, *arrays: Any, dim: int) -> Any:
    return k(*arrays, dim)


def _embedding(k: Any, weight: Any, index: Any, *, padding_idx: Any) -> Any:
    return k(weight, index)


def _embedding_backward(k: Any, ct: Any, index: Any, *, rows: int, padding_idx: Any) -> Any:
    return k(_packed(ct), index, rows,
             padding_idx=None if padding_idx is None or padding_idx < 0 else padding_idx)


def _unindex(k: Any, ct: Any, index: Any, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    if dims != (0,) or ct.dtype.itemsize == 2 or len(shape) < 2 or not ct.size:
        return NotImplemented
    got = k(_packed(ct).reshape(index.size, -1), index.reshape(-1), shape[0])
    return got if got is NotImplemented else _shaped(got, shape)


def _gather(k: Any, x: Any, index: Any, *, dim: int) -> Any:
    if index.size < _SMALL or whole_rows(index, x.shape, dim) is not None:
        return NotImplemented
    return k(x, index, dim)


def _index(k: Any, x: Any, index: Any, *, dims: tuple[int, ...]) -> Any:
    if dims != (x.ndim - 1,) or not index.ndim or not index.flags.c_contiguous:
        return NotImplemented
    got = k(x, index.reshape(-1), *dims)
    return got if got is NotImplemented else _shaped(got, (*x.shape[:-1], *index.shape))


def _where(k: Any, c: Any, a: Any, b: Any) -> Any:
    return k(c, a, b)


def _masked_fill(k: Any, x: Any, mask: Any, v: Any) -> Any:
    return k(mask, np.asarray(v).astype(x.dtype, copy=False), x)


@following(1)
def _dropout(k: Any, x: Any, bits: Any, *, shape: tuple[int, ...], scale: float) -> Any:
    return k(x, bits, shape, scale)


@following(1)
def _alpha(k: Any, x: Any, bits: Any, *, shape: tuple[int, ...], scale: float, kept: float,
           lost: float) -> Any:
    return k(x, bits, shape, scale, kept, lost)


def _convert(k: Any, x: Any, *, dtype: Any) -> Any:
    return k(x, dtype)


def _forward_all(k: Any, *arrays: Any, **attrs: Any) -> Any:
    return k(*map(_packed, arrays), **attrs)


def _gru_cell(k: Any, *arrays: Any) -> Any:
    got = k(*arrays)
    return got if got is NotImplemented else got[0]


def _lstm_backward(k: Any, ct_out: Any, ct_cells: Any, ct_sums: Any, *arrays: Any,
                   reverse: bool) -> Any:
    if ct_out is None:
        return NotImplemented
    return k((_packed(ct_out), ct_cells, ct_sums), *arrays, reverse=reverse)


def _recurrent() -> None:
    back = {name: f.op for name, f in recurrent.BACKWARD.items()}
    accelerate(OPS["lstm_cell"], _forward_all, _TINY)
    accelerate(OPS["gru_cell"], _gru_cell, _TINY)
    accelerate(back["lstm_cell"], _forward_all, _TINY)
    accelerate(back["gru_cell"], _forward_all, _TINY)
    accelerate(OPS["lstm"], _forward_all, _TINY)
    accelerate(back["lstm"], _lstm_backward, 0)


def _in_c_order(found: Any) -> Any:
    return found if found is NotImplemented else c_order(found)


def _reduce(k: Any, x: Any, *, dim: Any, keepdim: bool) -> Any:
    dtype = x.dtype
    if dtype is not F32 and dtype is not F64 and (dtype.itemsize != 2 or dtype.kind not in "fV"):
        return NotImplemented
    return _in_c_order(k(x, axis=tuple(dim), keepdims=keepdim))


def _norm(k: Any, x: Any, *, p: float, dim: Any, keepdim: bool) -> Any:
    floats = x.dtype is F32 or x.dtype is F64
    return _in_c_order(k(x, p, tuple(dim), keepdim)) if floats else NotImplemented


def _count(k: Any, x: Any, *, dim: Any, keepdim: bool) -> Any:
    floats = x.dtype is F32 or x.dtype is F64
    return _in_c_order(k(x, tuple(dim), keepdim)) if floats else NotImplemented


def _running(k: Any, x: Any, *, dim: int) -> Any:
    return k(x, dim)


def _logsumexp(k: Any, x: Any, *, dim: tuple[int, ...], keepdim: bool) -> Any:
    return k(x, axis=-1, keepdims=keepdim) if len(dim) == 1 and _last(x, *dim) else NotImplemented


_TABLES = {"mm": "product", "linear": "linear"}     # records that take the kernel's operands


def _product(name: str, arrange: Callable[..., Any]) -> None:
    """Matrix products of floats go to `kernels.gemm`, which picks by measurement; NumPy
    would convert 16-bit ones element by element, before and after."""
    record = ACCELERATED[name] = OPS[name]
    slow = record.impl

    @functools.wraps(slow)          # the record reads its operands off the signature
    def impl(*arrays: Any, **attrs: Any) -> Any:
        a, b = arrays[:2]
        # either operand: a threaded product of NumPy's, however small, leaves OpenBLAS's threads
        # spinning for milliseconds on the cores that the next kernels want
        large = a.size >= _PRODUCT or b.size >= _PRODUCT
        if large and (a.dtype is F32 or a.dtype is F64 or _half(a.dtype)):
            got = arrange(*arrays, **attrs)
            if got is not NotImplemented:
                if record.run is impl and name in _TABLES:
                    own = getattr(generated(_TABLES[name]), "__self__", None)
                    if type(own) is tuple:      # the call of a table of layouts
                        record.run = own[2].before(name, impl)
                return got
        return slow(*arrays, **attrs)
    record.impl = impl
    record.settle(slow, _PRODUCT)


@functools.cache
def _gemm() -> Any:
    from adjoint.kernels import gemm
    return gemm.matmul


def _pair(a: Any, b: Any) -> Any:
    if a.ndim < 2 or b.ndim < 2 or a.dtype is not b.dtype or a.shape[-1] != b.shape[-2]:
        return NotImplemented
    if not b.size:
        return NotImplemented
    if a.ndim == b.ndim == 2:
        return (generated("product") or _gemm())(a, b)
    by_vectors = NotImplemented if _half(a.dtype) else _with_vectors(a, b)
    return _gemm()(a, b) if by_vectors is NotImplemented else by_vectors


def _with_vectors(a: Any, b: Any) -> Any:
    """Batches of small matrices times vectors, which are no work for tiles of sums."""
    row, column = a.shape[-2] == 1, b.shape[-1] == 1
    matrix = b if row else a
    if not (row or column) or matrix.shape[-1] * matrix.shape[-2] > _ALONE \
            or matrix.itemsize not in matrix.strides[-2:]:
        return NotImplemented
    return np.matmul(_one_line(a) if row else a, _one_line(b) if column else b)


def _one_line(x: Any) -> Any:
    """x, contiguous, with strides of axes of size 1 that say so: NumPy asks BLAS by them."""
    return np.ascontiguousarray(x).reshape(-1).reshape(x.shape)


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    if (x.ndim < 2 or weight.ndim != 2 or x.shape[-1] != weight.shape[1] or not weight.size
            or weight.dtype is not x.dtype):
        return NotImplemented
    if bias is not None and (bias.shape != weight.shape[:1] or bias.dtype is not x.dtype):
        return NotImplemented
    if bias is not None and _half(x.dtype):
        bias = bias.astype(F32)         # to what sums are kept in
    small = generated("linear") if x.ndim == 2 else None
    if small is not None:
        return small(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    return _shaped(_gemm()(rows, weight.T, bias=bias), (*x.shape[:-1], weight.shape[0]))


def _arrays() -> None:
    """What moves elements of arrays of real size, and runs along their axes."""
    for name, adapter in (
            ("to_dtype", _convert), ("gather", _gather), ("index_select", _index),
            ("index", _index), ("contiguous", _contiguous), ("flip", _flip),
            ("where", _where), ("masked_fill", _masked_fill), ("constant_pad", _pad),
            ("constant_pad_zero", _pad), ("prod", _reduce),
            ("linalg_vector_norm", _norm), ("count_nonzero", _count)):
        accelerate(OPS[name], adapter)
    for name in ("cumsum", "cumprod", "cummax", "cummin"):  # extremes: no loop of NumPy's
        accelerate(OPS[name], _running, 2 if name[:4] == "cumm" else _SMALL // 4)


def _losses() -> None:
    accelerate(OPS["nll_loss"], _nll, 1)
    accelerate(cross_entropy._nll_kernel.op, _nll_backward, 1)
    accelerate(OPS["multi_margin"], _margins, _TINY)
    accelerate(OPS["multi_margin_backward"], _margins, 1)
    accelerate(OPS["cross_entropy"], _cross_entropy, _TINY)
    accelerate(cross_entropy._class_kernel.op, _cross_entropy_backward, 0)


def install() -> None:
    """Put the kernels behind the records (once, when the ops have been declared)."""
    if not ON:
        return
    remaking.quick = True
    accelerate(OPS["logsumexp"], _logsumexp, _TINY)
    for name, adapter in (
            ("softmax", _softmax), ("log_softmax", _softmax),
            ("softmax_backward", _softmax_backward),
            ("log_softmax_backward", _softmax_backward), ("layer_norm", _layer_norm),
            ("embedding", _embedding), ("embedding_backward", _embedding_backward),
            ("batch_norm", _batch_norm), ("batch_norm_given", _batch_norm_given),
            ("group_norm", _group_norm), ("rms_norm", _rms_norm),
            ("unindex", _unindex), ("sum", _reduce), ("sum_all", _reduce), ("mean", _reduce),
            ("mean_all", _reduce)):
        accelerate(OPS[name], adapter)
    _arrays()
    _losses()
    for record, backward in ((norm._kernel.op, _layer_norm_backward),
                             (batch_norm._kernel.op, _batch_norm_backward),
                             (group_norm._kernel.op, _group_norm_backward),
                             (group_norm._rms_kernel.op, _rms_norm_backward)):
        accelerate(record, backward)
    accelerate(OPS["dropout"], _dropout, 1)
    accelerate(OPS["alpha_dropout"], _alpha, 1)
    accelerate(OPS["nextafter"], lambda k, a, b: k(a, b))
    accelerate(OPS["glu"], _glu)
    accelerate(activation._glu_kernel.op, _glu, activation.FEW // 2)
    _recurrent()
    _product("mm", _pair)
    _product("mm_left", lambda a, b: _pair(a.T, b))
    _product("mm_right", lambda a, b: _pair(a, b.T))
    _product("bmm", _pair)
    _product("matmul", _pair)
    _product("linear", _linear)
