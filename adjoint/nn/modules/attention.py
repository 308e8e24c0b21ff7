"""MultiheadAttention (Vaswani et al. 2017)."""
from __future__ import annotations

import math
import warnings
from typing import Any

import adjoint.nn.functional as F
from adjoint.base import dtypes
from adjoint.base.errors import ArgumentError, AssertedError, ShapeError
from adjoint.core.modes import GRAD, state
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn import _core, init
from adjoint.nn.modules._check import empty_parameter, positive, tensor_input
from adjoint.nn.modules.linear import NonDynamicallyQuantizableLinear
from adjoint.nn.modules.module import Module
from adjoint.ops.attention import attention_and_weights
from adjoint.ops.device import strided

__all__ = ["MultiheadAttention"]


def additive_mask(mask: Tensor | None, name: str, like: Tensor) -> Tensor | None:
    """``mask`` as numbers to add to scores: a boolean True becomes minus infinity.

    Raises AssertedError for a mask that is neither boolean nor floating.
    """
    if mask is None:
        return None
    tensor_input(_Named(name), mask, name)
    kind = mask.array.dtype
    if kind == dtypes.BOOL:
        return _core.zeros(mask.shape, dtype=like.dtype).masked_fill_(mask, -math.inf)
    if not dtypes.is_float(kind):
        raise AssertedError(f"only bool and floating types of {name} are supported, got "
                            f"{mask.dtype}")
    return mask


class _Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def _get_name(self) -> str:
        return self.name


class MultiheadAttention(Module):
    """Attention in ``num_heads`` subspaces, with learned projections.

    ``forward(query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
    average_attn_weights=True, is_causal=False)``. Query (L, N, embed_dim), key (S, N, kdim),
    value (S, N, vdim); with ``batch_first`` N comes first; without a batch N is left out.
    ``key_padding_mask`` (N, S) and ``attn_mask`` (L, S) or (N num_heads, L, S): True forbids,
    numbers are added to the scores. ``is_causal`` is a promise that ``attn_mask`` is the causal
    one. Returns (output (L, N, embed_dim), weights (N, L, S) or None); ``need_weights=False``
    never holds the weights and is faster.

    Raises ShapeError, with all shapes, before anything is computed.

    >>> import adjoint as ad
    >>> mha = ad.nn.MultiheadAttention(4, 2)
    >>> x = ad.randn(3, 1, 4)
    >>> out, weights = mha(x, x, x)
    >>> tuple(out.shape), tuple(weights.shape)
    ((3, 1, 4), (1, 3, 3))
    """

    batch_first: bool
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False, device: Any = None,
                 dtype: Any = None) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ArgumentError("embed_dim and num_heads must be greater than 0, got "
                                f"embed_dim={embed_dim} and num_heads={num_heads} instead")
        positive("MultiheadAttention", embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise AssertedError(f"embed_dim must be divisible by num_heads: {embed_dim} % "
                                f"{num_heads} = {embed_dim % num_heads}")
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = kdim if kdim is not None else embed_dim
        self.vdim = vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        same = self._qkv_same_embed_dim
        shapes = {"in_proj_weight": (3 * embed_dim, embed_dim) if same else None,
                  "q_proj_weight": None if same else (embed_dim, embed_dim),
                  "k_proj_weight": None if same else (embed_dim, self.kdim),
                  "v_proj_weight": None if same else (embed_dim, self.vdim),
                  "in_proj_bias": (3 * embed_dim,) if bias else None}
        for name, shape in shapes.items():
            self.register_parameter(
                name, None if shape is None else empty_parameter(shape, device, dtype))
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias,
                                                        device=device, dtype=dtype)
        if add_bias_kv:
            self.bias_k = empty_parameter((1, 1, embed_dim), device, dtype)
            self.bias_v = empty_parameter((1, 1, embed_dim), device, dtype)
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            for weight in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        if self.bias_k is not None and self.bias_v is not None:
            init.xavier_normal_(self.bias_k)
            init.xavier_normal_(self.bias_v)

    def forward(self, query: Tensor, key: Tensor, value: Tensor,
                key_padding_mask: Tensor | None = None, need_weights: bool = True,
                attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        if query.is_nested:
            return self._nested(query, key, value, need_weights, average_attn_weights)
        batched = self._check(query, key, value, key_padding_mask, attn_mask)
        if is_causal and attn_mask is None:
            raise ArgumentError("Need attn_mask if specifying the is_causal hint: pass "
                                "Transformer.generate_square_subsequent_mask(L) as attn_mask")
        if key_padding_mask is not None and attn_mask is not None and (
                key_padding_mask.dtype != attn_mask.dtype):
            warnings.warn("Support for mismatched key_padding_mask and attn_mask is deprecated. "
                          f"Use same type for both instead: they are {key_padding_mask.dtype} and "
                          f"{attn_mask.dtype}", stacklevel=3)
        padding = additive_mask(key_padding_mask, "key_padding_mask", query)
        native_causal = is_causal and padding is None and not need_weights
        mask = None if native_causal else additive_mask(attn_mask, "attn_mask", query)
        if not batched:
            query, key, value = (t.unsqueeze(1) for t in (query, key, value))
            padding = None if padding is None else padding.unsqueeze(0)
        elif self.batch_first:
            query, key, value = self._swap(query, key, value)
        q, k, v = self._project(query, key, value)
        if self.bias_k is not None or self.add_zero_attn:
            k, v, mask, padding = self._extend(k, v, mask, padding)
        out, weights = self._attend(q, k, v, mask, padding, need_weights, native_causal)
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if not batched:
            return out.squeeze(1), None if weights is None else weights.squeeze(0)
        return (out.transpose(1, 0) if self.batch_first else out), weights

    def _nested(self, query: Any, key: Any, value: Any, need_weights: bool, average: bool) -> Any:
        """The parts of a nested tensor, each attending to itself: in evaluation, without
        gradients."""
        weights = [p for p in self.parameters() if p.requires_grad]
        grad = bool(state() & GRAD and (weights or query.requires_grad))
        for refused, why in (
                (query is not key or key is not value, "non-self attention was used (query, key, "
                 "and value are not the same Tensor)"),
                (query.layout is not strided, "some Tensor argument has_torch_function"),
                (self.training, "training is enabled"),
                (not self.batch_first, "batch_first was not True"),
                (grad, "grad is enabled and at least one of query or the input/output projection "
                 "weights or biases requires_grad")):
            if refused:
                raise AssertedError("MultiheadAttention does not support NestedTensor outside of "
                                    f"its fast path. The fast path was not hit because {why}")
        lengths = [len(p) for p in query.unbind()]
        full = query.to_padded_tensor(0.0)
        ends = _core.tensor(lengths).unsqueeze(1)
        out, found = self(full, full, full, _core.arange(full.shape[1]) >= ends, need_weights,
                          None, average)
        return query.of_parts([o[:n] for o, n in zip(out, lengths, strict=True)]), found

    def _swap(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, L, E) -> (L, N, E); tensors that are one object stay one object."""
        q = query.transpose(1, 0)
        k = q if key is query else key.transpose(1, 0)
        v = q if value is query else k if value is key else value.transpose(1, 0)
        return q, k, v

    def _project(self, query: Tensor, key: Tensor, value: Tensor
                 ) -> tuple[Tensor, Tensor, Tensor]:
        """Project to q (L, N, E), k and v (S, N, E)."""
        e, b = self.embed_dim, self.in_proj_bias
        if self._qkv_same_embed_dim:
            w = self.in_proj_weight
            if query is key and key is value:
                q, k, v = F.linear(query, w, b).chunk(3, dim=-1)
                return q, k, v
            wq, wk, wv = w.chunk(3)
        else:
            wq, wk, wv = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        bq, bk, bv = (None, None, None) if b is None else (b[:e], b[e:2 * e], b[2 * e:])
        return F.linear(query, wq, bq), F.linear(key, wk, bk), F.linear(value, wv, bv)

    def _extend(self, k: Tensor, v: Tensor, mask: Tensor | None, padding: Tensor | None) -> Any:
        """Append the learned position, then the zero position, to keys and values; both may
        always be attended to."""
        n, extra = k.shape[1], 0
        if self.bias_k is not None and self.bias_v is not None:
            k = _core.cat([k, self.bias_k.expand(1, n, -1)])
            v = _core.cat([v, self.bias_v.expand(1, n, -1)])
            extra += 1
        if self.add_zero_attn:
            zero = _core.zeros((1, n, self.embed_dim), dtype=k.dtype)
            k, v = _core.cat([k, zero]), _core.cat([v, zero])
            extra += 1
        mask = None if mask is None else F.pad(mask, (0, extra))
        padding = None if padding is None else F.pad(padding, (0, extra))
        return k, v, mask, padding

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None,
                padding: Tensor | None, need_weights: bool, causal: bool
                ) -> tuple[Tensor, Tensor | None]:
        """Attention of projected (L, N, E), (S, N, E) -> output (L, N, E), weights
        (N, heads, L, S) if wanted."""
        length, n, e = q.shape
        heads, s = self.num_heads, k.shape[0]
        q, k, v = (t.reshape(t.shape[0], n, heads, self.head_dim).permute(1, 2, 0, 3)
                   for t in (q, k, v))
        if mask is not None:
            mask = mask.reshape(n, heads, length, s) if mask.ndim == 3 else mask.reshape(
                1, 1, length, s)
        if padding is not None:
            padding = padding.reshape(n, 1, 1, s)
            mask = padding if mask is None else mask + padding
        p = self.dropout if self.training else 0.0
        weights: Tensor | None = None
        if need_weights:
            out, weights = attention_and_weights(q, k, v, mask, p)
        else:
            out = F.scaled_dot_product_attention(q, k, v, mask, p, causal)
        out = out.permute(2, 0, 1, 3).reshape(length, n, e)
        # its parameters alone: PyTorch calls neither a module put in its place nor its hooks
        return F.linear(out, self.out_proj.weight, self.out_proj.bias), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None,
               mask: Tensor | None) -> bool:
        """Refuse shapes that do not fit together; True if there is a batch axis."""
        for name, t in (("query", query), ("key", key), ("value", value)):
            tensor_input(self, t, name)
        if query.ndim not in (2, 3):
            raise AssertedError("query should be unbatched 2D or batched 3D tensor but received "
                                f"{query.ndim}-D query tensor of shape {tuple(query.shape)}")
        kind = "batched (3-D)" if query.ndim == 3 else "unbatched (2-D)"
        if key.ndim != query.ndim or value.ndim != query.ndim:
            raise AssertedError(
                f"For {kind} `query`, expected `key` and `value` to be {query.ndim}-D but found "
                f"{key.ndim}-D and {value.ndim}-D tensors respectively: query "
                f"{tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}")
        shapes = (f"query {tuple(query.shape)}, key {tuple(key.shape)}, "
                  f"value {tuple(value.shape)}, batch_first={self.batch_first}")
        wanted = (self.embed_dim, self.kdim, self.vdim)
        for name, t, size in zip(("query", "key", "value"), (query, key, value), wanted,
                                 strict=True):
            if t.shape[-1] != size:
                raise AssertedError(f"was expecting embedding dimension of {size}, but got "
                                    f"{t.shape[-1]} in the last axis of {name} ({shapes})")
        batched = query.ndim == 3
        b, s = (0, 1) if self.batch_first and batched else (1, 0)
        if key.shape[:-1] != value.shape[:-1] or (batched and key.shape[b] != query.shape[b]):
            raise AssertedError(f"key shape {key.shape} does not match value shape "
                                f"{value.shape}: key's sequence and batch dims must match "
                                f"value's, and its batch query's ({shapes})")
        n, length, source = (query.shape[b] if batched else 1), query.shape[s], key.shape[s]
        if padding is not None:
            fits = (n, source) if batched else (source,)
            if padding.ndim != len(fits):
                raise AssertedError(f"For {kind} `query`, expected `key_padding_mask` to be `None` "
                                    f"or {len(fits)}-D but found {padding.ndim}-D tensor instead "
                                    f"({shapes})")
            for axis, (size, got) in enumerate(zip(fits, padding.shape, strict=True)):
                if size != got:
                    raise AssertedError(f"Expected key_padded_mask.shape[{axis}] to be {size}, but "
                                        f"got {got}: its shape should be {fits} ({shapes})")
        if mask is not None:
            allowed = [(length, source), (n * self.num_heads, length, source)]
            if mask.ndim not in (2, 3):
                raise AssertedError(f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D "
                                    f"or 3-D but found {mask.ndim}-D tensor instead ({shapes})")
            if tuple(mask.shape) != allowed[mask.ndim - 2]:
                raise ShapeError(f"The shape of the {mask.ndim}D attn_mask is {mask.shape}, "
                                 f"but should be {allowed[mask.ndim - 2]}. ({shapes})")
        return batched
