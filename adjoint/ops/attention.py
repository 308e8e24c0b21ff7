"""Scaled dot-product attention: a record that keeps q, k, v, the output and one number per row,
and one for whole weights, which are made again in backward.

Source: T. Dao et al., "FlashAttention" (2022): the gradient from row log-sum-exps, tile by tile.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray
from adjoint.base.dtypes import BOOL, F32, of_numpy
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.autocast import lowered
from adjoint.core.bind import bind
from adjoint.core.modes import AUTOCAST, not_replayed, state
from adjoint.core.op import Op, op
from adjoint.core.rehearsal import call
from adjoint.kernels import attention as raw_attention
from adjoint.kernels import attention_numpy
from adjoint.kernels.dropout_numpy import drawn_mask, kept_scale
from adjoint.kernels.stream import Stream
from adjoint.ops.api_common import (
    cast_to,
    dtype_of,
    is_recorded,
    kernel,
    need,
    need_kernel,
)
from adjoint.ops.dropout import applied, drawn, mapped_as
from adjoint.ops.dropout import dropout as dropped
from adjoint.ops.generator import source
from adjoint.ops.linalg import matmul_op
from adjoint.ops.pointwise import add, mul, sub
from adjoint.ops.public import planned
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import batch_loop, expand_op, mT, relaid_op, reshape, unsqueeze_op
from adjoint.ops.softmax import softmax_backward_op, softmax_op

Shape = tuple[int, ...]
_WHOLE = 2**20           # scores up to which dropout draws PyTorch's mask of all of them


def _forward(q: Any, k: Any, v: Any, mask: Any, /, *, causal: bool, scale: float, dropout: float,
             seed: int) -> Any:
    return raw_attention.attention_forward(q, k, v, mask=mask, causal=causal, scale=scale,
                                           dropout=dropout, seed=seed)


def _infer(q: Aval, k: Aval, v: Aval, mask: Aval | None, **_: Any) -> Any:
    wide = F32 if q.dtype.itemsize == 2 else q.dtype
    return Aval((*q.shape[:-1], v.shape[-1]), q.dtype), Aval(q.shape[:-1], wide)


def _backward(ct: Any, q: Any, k: Any, v: Any, mask: Any, out: Any, lse: Any, /, *,
              mask_grad: bool, **attrs: Any) -> Any:
    return raw_attention.attention_backward(ct, q, k, v, out, lse, mask=mask, mask_grad=mask_grad,
                                            **attrs)


def _grad_op(mask_grad: bool) -> Any:
    names = ("dq", "dk", "dv", "dmask") if mask_grad else ("dq", "dk", "dv")

    def impl(ct: Any, q: Any, k: Any, v: Any, mask: Any, out: Any, lse: Any, /, *, causal: bool,
             scale: float, dropout: float, seed: int) -> Any:
        return _backward(ct, q, k, v, mask, out, lse, mask_grad=mask_grad, causal=causal,
                         scale=scale, dropout=dropout, seed=seed)
    return kernel("attention_backward", impl,
                  lambda ct, q, k, v, mask, *_, **__: (q, k, v, mask)[:len(names)], outs=names,
                  cost=lambda ct, q, k, v, *_, **__: 10 * q.size * k.shape[-2])


_kernels = {False: _grad_op(False), True: _grad_op(True)}


def _grouped(q: Any, k: Any) -> Any:
    """k or v with every head repeated for the queries that share it."""
    if len(q.shape) < 3 or q.shape[-3] == k.shape[-3]:
        return k
    each = q.shape[-3] // k.shape[-3]
    s = tuple(k.shape)
    spread = expand_op(unsqueeze_op(k, dim=len(s) - 2), shape=(*s[:-2], each, *s[-2:]))
    return reshape(spread, (*s[:-3], q.shape[-3], *s[-2:]))


def _ungrouped(g: Any, k: Aval) -> Any:
    if len(k.shape) < 3 or g.shape[-3] == k.shape[-3]:
        return g
    s = k.shape
    split = reshape(g, (*s[:-2], g.shape[-3] // s[-3], *s[-2:]))
    return sum_op(split, dim=(len(s) - 2,), keepdim=False)


def dropout_keep(q: Aval, k: Aval, dropout: float, seed: int) -> Any:
    """The keep mask (divided by 1-p) that the kernel applies, as a full array."""
    lead = q.shape[:-2]
    heads = lead[-1] if lead else 1
    batch = math.prod(lead[:-1])
    spec = attention_numpy.Attend(1.0, False, None, dropout, seed)
    rows = np.arange(batch * heads * q.shape[-2], dtype=np.uint64)
    kept = attention_numpy.keep_tile(spec, rows, range(k.shape[-2]))
    return kept.reshape(*q.shape[:-1], k.shape[-2]).astype(q.dtype) / (1 - dropout)


def composed(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, dropout: float,
             seed: int) -> tuple[Any, Any, Any]:
    """(output, probabilities after dropout, keep factors or None), in ops."""
    p, keep = probabilities(q, k, mask, causal, scale), None
    if dropout:
        keep = dropout_keep(_aval(q), _aval(k), dropout, seed)
        p = mul(p, keep)
    return matmul_op(p, _grouped(q, v)), p, keep


def probabilities(q: Any, k: Any, mask: Any, causal: bool, scale: float,
                  fill: bool = True) -> Any:
    """Softmax of the scores, whole, in ops; `fill`: rows with nothing to attend to give 0, not
    NaN."""
    scores = matmul_op(mul(q, scale), mT(_grouped(q, k)))
    bias = _bias(q, k, mask, causal)
    if bias is None:
        return softmax_op(scores, dim=len(scores.shape) - 1)
    empty = None
    if fill and mask is not None and not is_recorded(bias):
        bias, empty = call(_without_empty_rows, bias, otherwise=lambda: (bias, None)) if type(
            bias) is MetaArray else _without_empty_rows(bias)
    p = softmax_op(add(scores, bias), dim=len(scores.shape) - 1)
    if empty is None:
        return p
    from adjoint.ops.index import masked_fill_op
    return masked_fill_op(p, np.broadcast_to(empty, tuple(p.shape)), 0.0)


def _without_empty_rows(bias: Any) -> tuple[Any, Any]:
    """The bias, where rows of minus infinity alone are 0 (their softmax would be NaN, and spoil
    derivatives), and which rows these are."""
    empty = (bias == -np.inf).all(-1, keepdims=True)
    return np.where(empty, bias.dtype.type(0), bias), empty


def _aval(x: Any) -> Aval:
    return Aval(tuple(x.shape), dtype_of(x))


def _bias(q: Any, k: Any, mask: Any, causal: bool) -> Any:
    dtype = dtype_of(q)
    bias: Any = None
    if causal:
        below = np.tril(np.ones((q.shape[-2], k.shape[-2]), bool))
        bias = np.where(below, 0, -np.inf).astype(dtype)
    if mask is None:
        return bias
    if dtype_of(mask) == BOOL:
        found = np.where(getattr(mask, "array", mask), 0, -np.inf).astype(dtype)
        return found if bias is None else bias + found
    raw_mask = mask if not is_recorded(mask) or mask.requires_grad or mask.level else mask.array
    return raw_mask if bias is None else add(bias, raw_mask)


def _attention_vjp(cts: Any, q: Any, k: Any, v: Any, mask: Any, out: Any, lse: Any, wanted: Any, *,
                   causal: bool, scale: float, dropout: float, seed: int) -> Any:
    ct = cts[0]
    attrs: dict[str, Any] = {"causal": causal, "scale": scale, "dropout": dropout, "seed": seed}
    if not is_recorded(ct, q, k, v, mask):
        want_mask = len(wanted) > 3 and wanted[3]
        found = _kernels[bool(want_mask)](ct, q, k, v, mask, out, lse, **attrs)
        found = (*found, None) if not want_mask else found
        return tuple(f if w else None for f, w in zip(found, wanted, strict=True))
    return _composed_vjp(ct, q, k, v, mask, wanted, attrs)


def _composed_vjp(ct: Any, q: Any, k: Any, v: Any, mask: Any, wanted: Any,
                  attrs: Mapping[str, Any]) -> Any:
    _, kept, keep = composed(q, k, v, mask, **attrs)
    dv = _ungrouped(matmul_op(mT(kept), ct), _aval(v))
    dp = mul(matmul_op(ct, mT(_grouped(q, v))), kept)       # dp·p, with dropout's factor in it
    p = kept if keep is None else composed(q, k, v, mask, attrs["causal"], attrs["scale"], 0.0,
                                           0)[1]
    ds = sub(dp, mul(p, sum_op(dp, dim=(len(dp.shape) - 1,), keepdim=True)))
    scaled = mul(ds, attrs["scale"])
    dq = matmul_op(scaled, _grouped(q, k))
    dk = _ungrouped(matmul_op(mT(scaled), q), _aval(k))
    found = (dq, dk, dv, ds)
    return tuple(f if w else None for f, w in zip(found, wanted, strict=True))


def _jvp(which: int) -> Any:
    def rule(t: Any, q: Any, k: Any, v: Any, mask: Any, *, causal: bool, scale: float,
             dropout: float, seed: int) -> Any:
        attrs: dict[str, Any] = {"causal": causal, "scale": scale, "dropout": dropout,
                                 "seed": seed}
        out, kept, keep = composed(q, k, v, mask, **attrs)
        if which == 2:
            return (matmul_op(kept, _grouped(q, t)),)
        if which == 3:
            moved = t
        elif which == 0:
            moved = mul(matmul_op(t, mT(_grouped(q, k))), scale)
        else:
            moved = mul(matmul_op(q, mT(_grouped(q, t))), scale)
        p = kept if keep is None else composed(q, k, v, mask, causal, scale, 0.0, 0)[1]
        mean = sum_op(mul(p, moved), dim=(len(p.shape) - 1,), keepdim=True)
        return (matmul_op(mul(kept, sub(moved, mean)), _grouped(q, v)),)
    return rule


def _batch(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    q, k, v, mask = args
    if attrs["dropout"] or len(q.shape) - batched[0] < 3 or batched[3] or not all(batched[:3]) \
            or mask is not None:
        return batch_loop_one(op_, args, batched, attrs)
    return bind(op_, (q, k, v, None), attrs)


def batch_loop_one(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    """The loop rule for records with an optional operand."""
    return batch_loop(op_, args, batched, attrs)


attention_op: Any = op(
    "scaled_dot_product_attention", impl=_forward, infer=_infer, hidden=("lse",),
    autocast="lower",
    vjp={("q", "k", "v", "mask"): _attention_vjp},
    jvp={"q": _jvp(0), "k": _jvp(1), "v": _jvp(2), "mask": _jvp(3)}, batch=_batch,
    cost=lambda q, k, v, mask, **_: 4 * q.size * k.shape[-2],
    node="ScaledDotProductFlashAttentionForCpuBackward0",
    why={"q": "scores are made again, tile by tile; dk = dSᵀ @ q·scale",
         "k": "scores are made again, tile by tile; dq = dS @ k·scale",
         "v": "dP = ct @ vᵀ; dS = P·(dP - Σ ct·out)",
         "out": "Σ ct·out replaces a pass over the scores", "lse": "P = exp(scores - lse)",
         "mask": "which scores count"})


# ------------------------------------------------------------------ whole weights
# Dropout of few scores drops what PyTorch drops, and weights that are asked for are there whole.
# Of neither anything is kept: weights are the softmax of a product, and made again for less than
# the block around them takes.
def _weights(q: Any, k: Any, mask: Any, bits: Any, attrs: Mapping[str, Any]) -> tuple[Any, Any]:
    """(probabilities, probabilities after dropout)."""
    how = {name: attrs[name] for name in ("causal", "scale", "fill")}
    p = probabilities(q, k, mask, **how) if is_recorded(q, k, mask) else made_again(
        q, k, mask, **how)
    return p, _kept(p, bits, attrs)


def _kept(x: Any, bits: Any, attrs: Mapping[str, Any]) -> Any:
    return x if bits is None else applied(x, bits, attrs["shape"], attrs["keep"])


made_again: Any = kernel(
    "attention_weights", lambda q, k, mask, /, *, causal, scale, fill: probabilities(
        q, k, mask, causal, scale, fill),
    lambda q, k, mask, **_: Aval((*q.shape[:-1], k.shape[-2]), q.dtype),
    cost=lambda q, k, mask, **_: 2 * q.size * k.shape[-2])


def _whole_impl(q: Any, k: Any, v: Any, mask: Any, bits: Any, /, *, causal: bool, scale: float,
                fill: bool, shape: Shape, keep: float) -> Any:
    p = _kept(probabilities(q, k, mask, causal, scale, fill), bits, {"shape": shape, "keep": keep})
    return matmul_op(p, _grouped(q, v)), p


def _whole_vjp(cts: Any, q: Any, k: Any, v: Any, mask: Any, bits: Any, wanted: Any,
               **attrs: Any) -> Any:
    ct, ct_weights = cts
    dq = dk = dv = ds = None
    p, kept = _weights(q, k, mask, bits, attrs)
    if ct is not None and wanted[2]:
        dv = _ungrouped(matmul_op(mT(kept), ct), _aval(v))
    del kept
    if any(wanted[i] for i in (0, 1, 3)):
        if ct is not None:
            dp = matmul_op(ct, mT(_grouped(q, v)))
            ct_weights = dp if ct_weights is None else add(dp, ct_weights)
            del dp
        ct_weights = _kept(ct_weights, bits, attrs)
        ds = softmax_backward_op(ct_weights, p, dim=len(p.shape) - 1)
        del p, ct_weights
        if wanted[0]:
            dq = mul(matmul_op(ds, _grouped(q, k)), attrs["scale"])
        if wanted[1]:
            dk = _ungrouped(matmul_op(mT(ds), mul(q, attrs["scale"])), _aval(k))
    return dq, dk, dv, ds if len(wanted) > 3 and wanted[3] else None


def _whole_jvp(which: int) -> Any:
    def rule(t: Any, q: Any, k: Any, v: Any, mask: Any, bits: Any, **attrs: Any) -> Any:
        p, kept = _weights(q, k, mask, bits, attrs)
        if which == 2:
            return matmul_op(kept, _grouped(q, t)), None
        if which == 3:
            moved = t
        elif which == 0:
            moved = matmul_op(mul(t, attrs["scale"]), mT(_grouped(q, k)))
        else:
            moved = matmul_op(mul(q, attrs["scale"]), mT(_grouped(q, t)))
        mean = sum_op(mul(p, moved), dim=(len(p.shape) - 1,), keepdim=True)
        dp = _kept(mul(p, sub(moved, mean)), bits, attrs)
        return matmul_op(dp, _grouped(q, v)), dp
    return rule


def _whole_batch(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    """The examples are one more axis in front; what has none is the same for all."""
    if batched[4]:
        return batch_loop(op_, args, batched, attrs)
    size = next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)
    q, k, v = (a if b else expand_op(unsqueeze_op(a, dim=0), shape=(size, *a.shape))
               for a, b in zip(args[:3], batched, strict=False))
    mask = args[3]
    if batched[3]:
        ones = (1,) * (len(q.shape) - len(mask.shape))
        mask = reshape(mask, (size, *ones, *mask.shape[1:]))
    return bind(op_, (q, k, v, mask, args[4]), attrs)


def _whole_domain() -> list[Any]:
    def r(*shape: int) -> Any:
        return np.sin(np.arange(math.prod(shape)) * 1.7 + len(shape)).reshape(shape)

    def how(*shape: int, causal: bool = False) -> dict[str, Any]:
        return {"causal": causal, "scale": 0.5, "fill": True, "shape": shape, "keep": 2.0}

    def bits(*shape: int) -> Any:
        return drawn_mask(Stream(3), shape, 0.5)
    two, four = (2, 2, 3, 5), (1, 4, 3, 5)
    return [((r(2, 2, 3, 4), r(2, 2, 5, 4), r(2, 2, 5, 2), None, bits(*two)), how(*two)),
            ((r(2, 3, 4), r(2, 3, 4), r(2, 3, 2), r(3, 3), None), how(2, 3, 3, causal=True)),
            ((r(1, 4, 3, 4), r(1, 2, 5, 4), r(1, 2, 5, 2), r(3, 5), bits(*four)), how(*four))]


whole_attention_op: Any = op(
    "attention_with_weights", impl=_whole_impl,
    infer=lambda q, k, v, mask, bits, **_: (Aval((*q.shape[:-1], v.shape[-1]), q.dtype),
                                            Aval((*q.shape[:-1], k.shape[-2]), q.dtype)),
    outs=("out", "weights"), autocast="lower",
    vjp={("q", "k", "v", "mask"): _whole_vjp},
    jvp={"q": _whole_jvp(0), "k": _whole_jvp(1), "v": _whole_jvp(2), "mask": _whole_jvp(3)},
    batch=_whole_batch, domain=_whole_domain,
    cost=lambda q, k, v, mask, bits, **_: 4 * q.size * k.shape[-2], node="UnsafeViewBackward0",
    why={"q": "the weights are made again; dk = dSᵀ @ q·scale",
         "k": "the weights are made again; dq = dS @ k·scale", "v": "dP = ct @ vᵀ",
         "mask": "which scores count", "bits": "which weights were kept: a bit for each"})


def _whole(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, rate: float,
           fill: bool) -> tuple[Any, Any]:
    """(output, weights after dropout) of attention that makes its weights whole."""
    shape = (*q.shape[:-1], k.shape[-2])
    bits, keep = None, 1.0
    if rate and math.prod(shape):
        bits, shape = drawn(q, rate, shape)
        keep = kept_scale(rate, dtype_of(q))
        q = mapped_as(q, shape)
    made: tuple[Any, Any] = whole_attention_op(q, k, v, mask, bits, causal=causal, scale=scale,
                                               fill=fill, shape=shape, keep=keep)
    return made


def attention_and_weights(q: Any, k: Any, v: Any, mask: Any, rate: float) -> tuple[Any, Any]:
    """(output, weights (..., L, S) after dropout of `rate`); a row that masks leave nothing gives
    NaN. Without mask and dropout fused attention gives the same output: the graph of the weights
    then goes with them if nobody differentiates them."""
    scale = math.sqrt(1.0 / max(1, q.shape[-1]))
    if mask is None and not rate:
        return scaled_dot_product_attention(q, k, v), probabilities(q, k, None, False, scale)
    if not state() & AUTOCAST:
        return _whole(q, k, v, mask, False, scale, rate, False)
    p = dropped(probabilities(q, k, mask, False, scale, False), rate)     # (in float32)
    return matmul_op(p, v), p


def _check(query: Any, key: Any, value: Any, gqa: bool) -> None:
    need("scaled_dot_product_attention", query, key, value)
    kinds = {dtype_of(t) for t in (query, key, value)}
    if len(kinds) > 1:
        names = ", ".join(of_numpy(dtype_of(t)).name for t in (query, key, value))
        raise DTypeError("Expected query, key, and value to have the same dtype, but got "
                         f"{names}; cast them with .to(dtype)")
    q, k, v = tuple(query.shape), tuple(key.shape), tuple(value.shape)
    if min(len(q), len(k), len(v)) < 2:
        raise ShapeError("scaled_dot_product_attention: query, key and value need at least 2 axes, "
                         f"got {list(q)}, {list(k)}, {list(v)}")
    if q[-1] != k[-1] or k[-2] != v[-2]:
        raise ShapeError("scaled_dot_product_attention: query (..., L, E), key (..., S, E) and "
                         f"value (..., S, Ev) are needed, got {list(q)}, {list(k)}, {list(v)}")
    if gqa and min(len(q), len(k), len(v)) < 3:
        raise ShapeError("enable_gqa: query, key and value need an axis of heads, (..., H, L, E), "
                         f"got {list(q)}, {list(k)}, {list(v)}")
    for name, heads in (("key", k[-3]), ("value", v[-3])) if gqa else ():
        if not heads or q[-3] % heads:
            raise ShapeError(f"enable_gqa: the {q[-3]} heads of query are not a multiple of the "
                             f"{heads} heads of {name} (Number of heads in key and value must "
                             "divide the number of heads in query)")


def _expanded(x: Any, lead: Shape) -> Any:
    shape = (*lead, *x.shape[-2:])
    return x if tuple(x.shape) == shape else expand_op(x, shape=shape)


@planned
def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = None,
                                 dropout_p: float = 0.0, is_causal: bool = False,
                                 scale: Any = None, enable_gqa: bool = False) -> Any:
    """softmax(scale·q·kᵀ + mask)·v without ever holding the matrix of scores.

    query (..., L, E), key (..., S, E), value (..., S, Ev) -> (..., L, Ev). A boolean mask keeps
    where True, a float mask is added; `is_causal` keeps key j <= query i. scale: 1/√E by default.
    Dropout of up to 2**20 scores holds them on its way, and drops those that PyTorch drops; of
    more, it drops by a function of one draw and the position, tile by tile. Backward makes them
    again.

    >>> import adjoint as ad
    >>> q = ad.ones(1, 1, 2, 4)
    >>> ad.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    adjoint.Size([1, 1, 2, 4])
    """
    query, key, value, attn_mask = lowered(query, key, value, attn_mask)
    _check(query, key, value, enable_gqa)
    need_kernel("expected scalar type Float but found {}", "biu", query)
    need_kernel("softmax_lastdim_kernel_impl", "c", query)
    if is_causal and attn_mask is not None:
        raise ArgumentError("scaled_dot_product_attention: Explicit attn_mask should not be set "
                            "when is_causal=True")
    if not 0.0 <= dropout_p <= 1.0:
        raise ArgumentError("dropout probability has to be between 0 and 1, but got "
                            f"{dropout_p}")
    q, k, v = query, key, value
    if enable_gqa and not (tuple(k.shape[:-2]) == tuple(v.shape[:-2])
                           and tuple(q.shape[:-3]) == tuple(k.shape[:-3])):
        k, v, enable_gqa = _grouped(q, k), _grouped(q, v), False    # (kernels share one grouping)
    if not enable_gqa and not tuple(q.shape[:-2]) == tuple(k.shape[:-2]) == tuple(v.shape[:-2]):
        try:
            lead = np.broadcast_shapes(*(tuple(t.shape[:-2]) for t in (q, k, v)))
        except ValueError:
            raise ShapeError("scaled_dot_product_attention: the leading axes of query, key and "
                             f"value do not broadcast: {[list(t.shape[:-2]) for t in (q, k, v)]}"
                             "; for grouped heads pass enable_gqa=True") from None
        q, k, v = (_expanded(t, lead) for t in (q, k, v))
        if q is not query:                  # (the result takes over how it lies)
            q = relaid_op(q, axes=tuple(range(len(q.shape))))
    mask = attn_mask
    if mask is not None:
        if dtype_of(mask) != BOOL and dtype_of(mask) != dtype_of(q):
            raise DTypeError("Expected attn_mask dtype to be bool or to match query dtype, but got "
                             f"attn_mask.dtype: {of_numpy(dtype_of(mask)).name} and query.dtype: "
                             f"{of_numpy(dtype_of(q)).name} instead.")
        mask = cast_to(mask, None)
    factor = 1.0 / math.sqrt(max(1, q.shape[-1])) if scale is None else float(scale)
    if dropout_p == 1.0:
        return mul(attention_op(q, k, v, mask, causal=is_causal, scale=factor, dropout=0.0,
                                seed=0)[0], 0.0)
    if dropout_p:
        not_replayed()
        if math.prod(q.shape[:-1]) * k.shape[-2] <= _WHOLE:
            return _whole(q, k, v, mask, bool(is_causal), factor, dropout_p, True)[0]
    seed = int(source().long(1)[0]) >> 1 if dropout_p else 0
    return attention_op(q, k, v, mask, causal=bool(is_causal), scale=factor,
                        dropout=float(dropout_p), seed=seed)[0]


__all__ = ["attention_and_weights", "attention_op", "scaled_dot_product_attention"]
