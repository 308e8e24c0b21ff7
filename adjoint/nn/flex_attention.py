"""`torch.nn.attention.flex_attention`: attention whose scores a function of the program changes.

The scores are made in full, (queries x keys) per head; `nn.functional.scaled_dot_product_attention`
does without them, for masks that it takes.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import adjoint as ad
from adjoint.base.errors import ShapeError
from adjoint.core.tensor import Tensor
from adjoint.func import vmap

_DEFAULT_SPARSE_BLOCK_SIZE = 128
__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "create_block_mask", "create_mask",
           "flex_attention"]


class AuxRequest(NamedTuple):
    """What to give beside the result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for, (B, H, Q) each; None where it was not."""

    lse: Any = None
    max_scores: Any = None


class BlockMask:
    """Which keys a query sees: `mask_mod(b, h, q_idx, kv_idx)`, for (B, H, Q_LEN, KV_LEN)."""

    def __init__(self, mask_mod: Callable[..., Any], shape: tuple[int, int, int, int],
                 block_size: Any) -> None:
        self.mask_mod, self.shape, self.BLOCK_SIZE = mask_mod, shape, block_size
        self.seq_lengths = shape[2:]

    def to(self, *args: Any, **kwargs: Any) -> BlockMask:
        """The mask itself: there is one device."""
        return self

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape})"


def _over_indices(f: Callable[..., Any], batched: int) -> Callable[..., Any]:
    """`f(*arrays, b, h, q, k)` of single numbers, on vectors of indices and arrays (B, H, Q, K)."""
    for axis in (3, 2, 1, 0):
        dims = [0 if i == axis else None for i in range(4)]
        f = vmap(f, in_dims=(*(0,) * batched, *dims))
    return f


def create_mask(mod_fn: Callable[..., Any], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
                device: Any = None) -> Any:
    """The mask of `mod_fn(b, h, q_idx, kv_idx)` in full: bool (B or 1, H or 1, Q_LEN, KV_LEN).

    >>> create_mask(lambda b, h, q, k: q >= k, None, None, 2, 2)[0, 0].tolist()
    [[True, False], [True, True]]
    """
    indices = [ad.arange(n or 1) for n in (B, H, Q_LEN, KV_LEN)]
    return _over_indices(mod_fn, 0)(*indices)


def create_block_mask(mask_mod: Callable[..., Any], B: int | None, H: int | None, Q_LEN: int,
                      KV_LEN: int, device: Any = None, BLOCK_SIZE: Any = 128,
                      **ignored: Any) -> BlockMask:
    """What `flex_attention` takes for a mask. No blocks are left out: the argument is kept."""
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), BLOCK_SIZE)


def flex_attention(query: Tensor, key: Tensor, value: Tensor,
                   score_mod: Callable[..., Any] | None = None,
                   block_mask: BlockMask | None = None, scale: float | None = None,
                   enable_gqa: bool = False, return_lse: bool = False,
                   kernel_options: Any = None, *, return_aux: AuxRequest | None = None) -> Any:
    """softmax(score_mod(query.key * scale)) @ value for query (B, H, Q, E), key (B, H, K, E) and
    value (B, H, K, Ev): (B, H, Q, Ev).

    score_mod    score_mod(score, b, h, q_idx, kv_idx) -> score, of single numbers
    block_mask   from `create_block_mask`: where it is False, a query does not see the key; a query
                 that sees none gives zeros
    scale        1 / sqrt(E) unless given
    enable_gqa   fewer heads of key and value, each for a group of query heads
    return_lse   also the logarithm of each row's sum of exponentials, (B, H, Q)
    return_aux   also an `AuxOutput` of what an `AuxRequest` names

    Source: Dong et al., 2024 (FlexAttention).

    >>> q = ad.ones(1, 1, 2, 4)
    >>> flex_attention(q, q, q, lambda score, b, h, i, j: score + (i - j)).shape
    adjoint.Size([1, 1, 2, 4])
    """
    for name, t in (("query", query), ("key", key), ("value", value)):
        if t.ndim != 4:
            raise ShapeError(f"flex_attention: {name} is (batch, heads, length, features), got "
                             f"{list(t.shape)}")
    if enable_gqa:
        groups = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(groups, 1) for t in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if score_mod is not None:
        scores = _over_indices(score_mod, 1)(scores, *(ad.arange(n) for n in scores.shape))
    if block_mask is not None:
        batch, heads, queries, keys = block_mask.shape
        seen = create_mask(block_mask.mask_mod, batch, heads, max(queries, scores.shape[2]),
                           max(keys, scores.shape[3]))[..., :scores.shape[2], :scores.shape[3]]
        scores = scores.masked_fill(~seen, -math.inf)
    wanted = return_aux or AuxRequest(lse=return_lse)
    lse = (scores if wanted.lse else scores.detach()).logsumexp(-1)
    weights = scores.softmax(-1).masked_fill((lse == -math.inf)[..., None], 0.0)
    out = weights.to(query.dtype) @ value
    if return_aux is None:
        return (out, lse) if return_lse else out
    return out, AuxOutput(lse if wanted.lse else None,
                          scores.amax(-1) if wanted.max_scores else None)
