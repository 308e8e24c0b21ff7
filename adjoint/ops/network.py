"""Functions of networks, composed of records: bilinear forms, bags, attention blocks."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import BOOL, I64, is_inexact, lacking, of_numpy
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.autocast import in_float32
from adjoint.core.modes import warn_as_pytorch
from adjoint.ops.api_common import (
    cast_to,
    dtype_of,
    need,
    need_kernel,
    raw,
)
from adjoint.ops.api_linalg import linear
from adjoint.ops.attention import attention_and_weights, scaled_dot_product_attention
from adjoint.ops.embedding import embedding
from adjoint.ops.index import index_op, masked_fill_op, unindex_op
from adjoint.ops.linalg import matmul_op
from adjoint.ops.moments import norm_op
from adjoint.ops.pointwise import add, div, mul, sub
from adjoint.ops.public import known_as, typed
from adjoint.ops.reduce import max_dim_op, mean_op, sum_op
from adjoint.ops.shape import (
    cat_op,
    expand_op,
    narrow_op,
    permute_op,
    reshape,
    squeeze_op,
    unsqueeze_op,
)


@typed
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """y[k] = x1ᵀ·W[k]·x2 + b[k]: (..., i), (..., j), weight (k, i, j) -> (..., k)."""
    need("bilinear", input1, input2, weight)
    need_kernel("bmm", "b", input1)
    k, i, j = weight.shape
    if len({dtype_of(t) for t in (input1, input2, weight)}) > 1:
        raise DTypeError("All tensors must have the same dtype, got input1: "
                         f"{dtype_of(input1)}, input2: {dtype_of(input2)}, weight: "
                         f"{dtype_of(weight)}: bilinear")
    for name, x, size in (("input1", input1, i), ("input2", input2, j)):
        if x.shape[-1] != size:
            raise ShapeError(f"bilinear(): {name} size does not match weight size: got "
                             f"{x.shape[-1]} but expected {size} (weight {list(weight.shape)})")
    if bias is not None and tuple(bias.shape) != (k,):
        raise ShapeError("bilinear(): bias size does not match weight size: got "
                         f"{list(bias.shape)} but expected {k} (weight {list(weight.shape)})")
    lead = tuple(input1.shape[:-1])
    if lead != tuple(input2.shape[:-1]):
        raise ShapeError("bilinear(): input batch dimensions do not match: got input1 "
                         f"{list(input1.shape)} and input2 {list(input2.shape)}")
    n = math.prod(lead)
    a, b = reshape(input1, (n, i)), reshape(input2, (n, j))
    table = reshape(permute_op(weight, dims=(1, 0, 2)), (i, k * j))
    left = reshape(matmul_op(a, table), (n, k, j))
    out = sum_op(mul(left, unsqueeze_op(b, dim=1)), dim=(2,), keepdim=False)
    if not is_inexact(dtype_of(out)):
        out = cast_to(out, dtype_of(left))                      # (sums of integers are int64)
    out = reshape(out, (*lead, k))
    return out if bias is None else add(out, bias)


@known_as("PdistBackward0")
@in_float32
def pdist(input: Any, p: float = 2.0) -> Any:
    """The p-norm distances of all pairs of rows i < j."""
    need_kernel("pdist only supports floating-point dtypes", "biuc", input)
    if dtype_of(input).itemsize == 2 and len(input.shape) == 2 and input.shape[0] > 1 and (
            input.shape[1]):
        raise lacking("pdist", dtype_of(input))
    if p < 0:
        raise ArgumentError(f"pdist only supports non-negative p values, got {p}")
    if len(input.shape) != 2:
        raise ShapeError(f"pdist only supports 2D tensors, got: {len(input.shape)}D")
    n = input.shape[0]
    i, j = np.triu_indices(n, 1)
    gap = sub(index_op(input, i, dims=(0,)), index_op(input, j, dims=(0,)))
    return norm_op(gap, p=float(p), dim=(1,), keepdim=False)


# ------------------------------------------------------------------ bags
def _bags(index: Any, offsets: Any, include_last: bool) -> tuple[Any, int]:
    """(which bag each index is in, number of bags)."""
    if index.ndim == 2:
        return np.repeat(np.arange(len(index)), index.shape[1]), len(index)
    at = np.asarray(raw(offsets))
    if at.ndim != 1:
        raise ArgumentError(f"embedding_bag: offsets has to be a 1D Tensor, got {at.ndim}D")
    if len(at) and at[0] != 0:
        raise ArgumentError("offsets[0] has to be 0, i.e., the first sequence in the mini-batch "
                            f"has to start from position 0. However, got {at[0]}")
    if len(at) and at[-1] > index.size:
        raise ArgumentError(f"offsets[-1] can not be greater than input's length {index.size} but "
                            f"got offsets[-1] of {at[-1]}")
    if include_last and not len(at):
        raise ArgumentError("include_last_offset: number of offset should be at least 1")
    bags = len(at) - 1 if include_last else len(at)     # (what follows the last offset is in none)
    return np.searchsorted(at, np.arange(index.size), "right") - 1, bags


def without_values(index: Any, offsets: Any) -> bool:
    """Whether which index is in which bag is not there to be read."""
    return type(index) is MetaArray or offsets is not None and type(raw(offsets)) is MetaArray


def _bag_index(input: Any, offsets: Any, mode: str, sparse: bool, scale_grad_by_freq: bool,
               per_sample_weights: Any) -> Any:
    """The indices of `embedding_bag` as an array; what does not fit together is refused."""
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError("mode has to be one of sum, mean or max")
    if mode == "max" and (sparse or scale_grad_by_freq):
        raise ArgumentError("embedding_bag: max mode does not support "
                            + ("sparse weights" if sparse else
                               "scaling the gradient by the frequency"))
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. "
                                  "per_sample_weights is only supported for mode='sum' (got "
                                  f"mode='{mode}').")
    index = raw(input)
    if type(index) is not MetaArray:
        index = np.asarray(index)
    if index.ndim == 1 and offsets is None:
        raise ArgumentError("offsets has to be a 1D Tensor but got None")
    if index.ndim == 2 and offsets is not None:
        raise ArgumentError("if input is 2D, then offsets has to be None, as input is treated is a "
                            "mini-batch of fixed length sequences. However, found offsets")
    if offsets is not None and dtype_of(offsets).name not in ("int32", "int64"):
        raise DTypeError("Expected tensor for argument #1 'offsets' to have one of the following "
                         f"scalar types: Long, Int; but got {of_numpy(dtype_of(offsets)).name} "
                         "instead (embedding_bag)")
    if index.ndim not in (1, 2):
        raise ArgumentError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension "
                            f"{index.ndim}")
    if per_sample_weights is not None and tuple(per_sample_weights.shape) != index.shape:
        raise ArgumentError("embedding_bag: If per_sample_weights "
                            f"(torch.Size({list(per_sample_weights.shape)})) is not None, then it "
                            "must have the same shape as the input "
                            f"(torch.Size({list(index.shape)}))")
    return index


@known_as("EmbeddingBagBackward0")
@typed
def embedding_bag(input: Any, weight: Any, offsets: Any = None, max_norm: Any = None,
                  norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean",
                  sparse: bool = False, per_sample_weights: Any = None,
                  include_last_offset: bool = False, padding_idx: Any = None) -> Any:
    """Sums, means or maxima of bags of embedding rows.

    input (B, L): a bag per row; or (N,) with `offsets` (B,) where bags begin. Rows at
    `padding_idx` do not count. per_sample_weights only with mode "sum". `sparse=True` makes the
    gradient of `weight` a sparse tensor of the rows that were read, as in `embedding`; not with
    mode "max".
    """
    need("embedding_bag", input, weight)
    if dtype_of(weight).kind == "i" and is_inexact(dtype_of(input)):
        warn_as_pytorch("Argument order of nn.functional.embedding_bag was changed. Usage "
                        "`embedding_bag(weight, input, ...)` is deprecated, and should now be "
                        "`embedding_bag(input, weight, ...)`.")
        input, weight = weight, input
    need_kernel("Expected tensor for argument #1 'weight' to have one of the following scalar "
                "types: Half, BFloat16, Float, Double; but got {} instead", "biuc", weight)
    index = _bag_index(input, offsets, mode, sparse, scale_grad_by_freq, per_sample_weights)
    if per_sample_weights is not None and dtype_of(per_sample_weights) != dtype_of(weight):
        raise DTypeError("Expected tensor for argument #1 'weight' to have the same type as tensor "
                         "for argument #1 'per_sample_weights'; but type "
                         f"{of_numpy(dtype_of(weight))} does not equal "
                         f"{of_numpy(dtype_of(per_sample_weights))} (embedding_bag)")
    if index.ndim == 2 and index.size and padding_idx is None and mode != "max":    # equal bags
        rows = embedding(input, weight, None, max_norm, norm_type, scale_grad_by_freq, sparse)
        if per_sample_weights is not None:
            rows = mul(rows, unsqueeze_op(per_sample_weights, dim=2))
        return (mean_op if mode == "mean" else sum_op)(rows, dim=(1,), keepdim=False)
    if without_values(index, offsets):
        rows = embedding(reshape(input, (-1,)), weight, None, max_norm, norm_type,
                         scale_grad_by_freq, sparse)
        if per_sample_weights is not None:
            rows = mul(rows, unsqueeze_op(reshape(per_sample_weights, (-1,)), dim=1))
        bags = index.shape[0] if index.ndim == 2 else offsets.shape[0] - include_last_offset
        return unindex_op(rows, MetaArray(rows.shape[:1], I64), shape=(bags, weight.shape[1]),
                          dims=(0,))
    bag, bags = _bags(index, offsets, include_last_offset)
    flat = index.reshape(-1)
    if padding_idx is not None:
        rows = weight.shape[0]
        if not -rows <= padding_idx < rows:
            raise ArgumentError("padding_idx must be within the number of embeddings, "
                                f"{-rows} through {rows - 1}, but got {padding_idx}")
        kept = np.flatnonzero((flat != padding_idx % weight.shape[0]) & (bag < bags))
    else:
        kept = np.flatnonzero(bag < bags)
    bag = bag[kept]
    rows = embedding(flat[kept], weight, None, max_norm, norm_type, scale_grad_by_freq, sparse)
    if mode == "max":
        return _bag_max(rows, bag, bags, weight)
    if per_sample_weights is not None:
        given = index_op(reshape(per_sample_weights, (-1,)), kept, dims=(0,))
        rows = mul(rows, unsqueeze_op(given, dim=1))
    total = unindex_op(rows, bag, shape=(bags, weight.shape[1]), dims=(0,))
    if mode == "mean":
        counts = np.maximum(np.bincount(bag, minlength=bags), 1).astype(dtype_of(weight))
        total = div(total, counts[:, None])
    return total


def _bag_max(rows: Any, bag: Any, bags: int, weight: Any) -> Any:
    """Rows of each bag side by side, short bags filled up with -inf; an empty bag gives 0."""
    sizes = np.bincount(bag, minlength=bags)
    if not len(bag):
        return np.zeros((bags, weight.shape[1]), dtype_of(weight))
    places = np.full((bags, sizes.max()), len(bag))
    for b in range(bags):
        places[b, :sizes[b]] = np.flatnonzero(bag == b)
    low = np.full((1, weight.shape[1]), -np.inf, dtype_of(weight))
    side = index_op(cat_op(rows, low, dim=0), places, dims=(0,))
    best = max_dim_op(side, dim=1, keepdim=False)[0]
    return masked_fill_op(best, (sizes == 0)[:, None], 0.0)


# ------------------------------------------------------------------ multi-head attention
def _projected(query: Any, key: Any, value: Any, embed: int, w: Any, b: Any, separate: bool,
               parts: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    xs = (query, key, value)
    if separate:
        biases: list[Any] = [None] * 3 if b is None else [
            narrow_op(b, dim=0, start=i * embed, length=embed) for i in range(3)]
        q, k, v = (linear(x, p, c) for x, p, c in zip(xs, parts, biases, strict=True))
        return q, k, v
    if query is key and key is value:
        joint = linear(query, w, b)
        q, k, v = (narrow_op(joint, dim=len(joint.shape) - 1, start=i * embed, length=embed)
                   for i in range(3))
        return q, k, v
    cut = [(narrow_op(w, dim=0, start=i * embed, length=embed),
            None if b is None else narrow_op(b, dim=0, start=i * embed, length=embed))
           for i in range(3)]
    q, k, v = (linear(x, p, c) for x, (p, c) in zip(xs, cut, strict=True))
    return q, k, v


def _heads(x: Any, n: int, heads: int, width: int) -> Any:
    """(L, N, E) -> (N, heads, L, width)."""
    return permute_op(reshape(x, (x.shape[0], n, heads, width)), dims=(1, 2, 0, 3))


def _as_float(mask: Any, dtype: Any) -> Any:
    if mask is None or dtype_of(mask) != BOOL:
        return mask
    return np.where(np.asarray(raw(mask)), -np.inf, 0.0).astype(dtype)


def _joint_mask(attn: Any, padding: Any, n: int, heads: int, target: int, source: int,
                dtype: Any) -> Any:
    attn, padding = _as_float(attn, dtype), _as_float(padding, dtype)
    if attn is not None:
        if len(attn.shape) == 2:
            if tuple(attn.shape) != (target, source):
                raise ShapeError(f"The shape of the 2D attn_mask is {tuple(attn.shape)}, but should"
                                 f" be {(target, source)}.")
            attn = reshape(attn, (1, 1, target, source))
        else:
            if tuple(attn.shape) != (n * heads, target, source):
                raise ShapeError(f"The shape of the 3D attn_mask is {tuple(attn.shape)}, but should"
                                 f" be {(n * heads, target, source)}.")
            attn = reshape(attn, (n, heads, target, source))
    if padding is not None:
        padding = reshape(padding, (n, 1, 1, source))
        attn = padding if attn is None else add(attn, padding)
    return attn


def _extended(x: Any, extra: Any, n: int) -> Any:
    return cat_op(x, expand_op(extra, shape=(1, n, x.shape[2])), dim=0)


def _padded(mask: Any, by: int) -> Any:
    if mask is None:
        return None
    shape = (*mask.shape[:-1], by)
    return cat_op(mask, np.zeros(shape, dtype_of(mask)), dim=len(shape) - 1)


def _attend(q: Any, k: Any, v: Any, mask: Any, rate: float, need_weights: bool, average: bool,
            batched: bool) -> tuple[Any, Any]:
    """(heads' outputs, weights or None)."""
    if not need_weights:
        return scaled_dot_product_attention(q, k, v, mask, rate), None
    attended, weights = attention_and_weights(q, k, v, mask, rate)
    if average:
        weights = mean_op(weights, dim=(1,), keepdim=False)
    return attended, weights if batched else squeeze_op(weights, dims=(0,))


def multi_head_attention_forward(
        query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int,
        in_proj_weight: Any, in_proj_bias: Any, bias_k: Any, bias_v: Any, add_zero_attn: bool,
        dropout_p: float, out_proj_weight: Any, out_proj_bias: Any, training: bool = True,
        key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
        use_separate_proj_weight: bool = False, q_proj_weight: Any = None,
        k_proj_weight: Any = None, v_proj_weight: Any = None, static_k: Any = None,
        static_v: Any = None, average_attn_weights: bool = True, is_causal: bool = False) -> Any:
    """Multi-head attention of (L, N, E) queries on (S, N, E) keys: (output, weights or None).

    Boolean masks drop where True, float masks are added.
    Source: A. Vaswani et al., "Attention is all you need" (2017), section 3.2.2.
    """
    batched = len(query.shape) == 3
    if not batched:
        same_k, same_v = key is query, value is key
        query = unsqueeze_op(query, dim=1)
        key = query if same_k else unsqueeze_op(key, dim=1)
        value = key if same_v else unsqueeze_op(value, dim=1)
        if key_padding_mask is not None:
            key_padding_mask = unsqueeze_op(key_padding_mask, dim=0)
    length, n, embed = query.shape
    if embed != embed_dim_to_check:
        raise ShapeError(f"was expecting embedding dimension of {embed_dim_to_check}, but got "
                         f"{embed}")
    if embed % num_heads:
        raise ShapeError(f"embed_dim {embed} not divisible by num_heads {num_heads}")
    width = embed // num_heads
    if is_causal and attn_mask is None:
        raise ArgumentError("Need attn_mask if specifying the is_causal hint.")
    q, k, v = _projected(query, key, value, embed, in_proj_weight, in_proj_bias,
                         use_separate_proj_weight, (q_proj_weight, k_proj_weight, v_proj_weight))
    if bias_k is not None and bias_v is not None:
        k, v = _extended(k, bias_k, n), _extended(v, bias_v, n)
        attn_mask, key_padding_mask = _padded(attn_mask, 1), _padded(key_padding_mask, 1)
    q = _heads(q, n, num_heads, width)
    k = _heads(k, n, num_heads, width) if static_k is None else reshape(
        static_k, (n, num_heads, static_k.shape[1], width))
    v = _heads(v, n, num_heads, width) if static_v is None else reshape(
        static_v, (n, num_heads, static_v.shape[1], width))
    if add_zero_attn:
        zero = np.zeros((n, num_heads, 1, width), dtype_of(q))
        k, v = cat_op(k, zero, dim=2), cat_op(v, zero, dim=2)
        attn_mask, key_padding_mask = _padded(attn_mask, 1), _padded(key_padding_mask, 1)
    mask = _joint_mask(attn_mask, key_padding_mask, n, num_heads, length, k.shape[2], dtype_of(q))
    rate = dropout_p if training else 0.0
    attended, weights = _attend(q, k, v, mask, rate, need_weights, average_attn_weights, batched)
    merged = reshape(permute_op(attended, dims=(2, 0, 1, 3)), (length, n, embed))
    out = linear(merged, out_proj_weight, out_proj_bias)
    return (out if batched else squeeze_op(out, dims=(1,))), weights


__all__ = ["bilinear", "embedding_bag", "multi_head_attention_forward",
           "pdist"]
