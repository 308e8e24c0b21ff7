"""`torch.nn.attention.flex_attention`: attention whose scores a function of the program changes.

The scores are made in full, (queries x keys) per head; `nn.functional.scaled_dot_product_attention`
does without them, for masks that it takes.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import numpy as np

import adjoint as ad
from adjoint.base.errors import ArgumentError, AssertedError, NotSupported, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.func import vmap

_DEFAULT_SPARSE_BLOCK_SIZE = 128
__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks",
           "create_block_mask", "create_mask", "flex_attention", "noop_mask", "or_masks"]


class FlexKernelOptions(TypedDict, total=False):
    """Options of PyTorch's kernels on other devices; taken and not read."""

    BACKEND: str
    BLOCK_M: int
    BLOCK_N: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    FORCE_USE_FLEX_ATTENTION: bool
    num_warps: int
    num_stages: int


class AuxRequest(NamedTuple):
    """What to give beside the result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for, (B, H, Q) each; None where it was not."""

    lse: Any = None
    max_scores: Any = None


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """The mask under which every query sees every key."""
    return batch.new_ones((), dtype=ad.bool)


def _sliced_mask(*_: Any) -> Any:
    raise ArgumentError("Cannot use mask_mod from a sliced BlockMask. When you slice a BlockMask "
                        "using [], the mask_mod attribute is reset. You must set it from the "
                        "original BlockMask's mask_mod: sliced.mask_mod = whole.mask_mod, with the "
                        "offsets of the slice added to the indices")


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def _listed(dense: Any) -> tuple[Any, Any]:
    """(number, indices) of the blocks of each row that are set: theirs first, then the others."""
    counts = dense.sum(-1).to(ad.int32)
    return counts, ad.argsort(dense.to(ad.int32), dim=-1, descending=True,
                              stable=True).to(ad.int32).contiguous()


def _dense(counts: Any, indices: Any) -> Any:
    """Which blocks the first `counts` of each row's `indices` name: int32 (..., rows, columns)."""
    columns = indices.shape[-1]
    named = (ad.arange(columns) < counts[..., None]).to(ad.int32)
    return ad.zeros_like(named).scatter_(-1, indices.long(), named)


class BlockMask:
    """Which keys a query sees, by blocks of `BLOCK_SIZE` (queries, keys).

    `kv_num_blocks` (B, H, rows) counts the blocks of each row of queries that are seen in part,
    `kv_indices` (B, H, rows, columns) begins with their columns; in them `mask_mod(b, h, q_idx,
    kv_idx)` says what is seen. The `full_` ones are seen whole, all others not at all. The `q_`
    ones say the same for each column of keys. `create_block_mask` makes them of a function.

    >>> create_block_mask(lambda b, h, q, k: q >= k, None, None, 4, 4, BLOCK_SIZE=2).to_dense()
    tensor([[[[1, 0],
              [1, 1]]]], dtype=adjoint.int32)
    """

    _TABLES = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices",
               "q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices")

    def __init__(self, seq_lengths: tuple[int, int], kv_num_blocks: Any, kv_indices: Any,
                 full_kv_num_blocks: Any, full_kv_indices: Any, q_num_blocks: Any, q_indices: Any,
                 full_q_num_blocks: Any, full_q_indices: Any, BLOCK_SIZE: Any = (128, 128),
                 mask_mod: Callable[..., Any] = noop_mask) -> None:
        if kv_indices.ndim < 2:
            raise ArgumentError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertedError("full_kv_num_blocks and full_kv_indices must be both provided or "
                                "omitted")
        given = (kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, q_num_blocks,
                 q_indices, full_q_num_blocks, full_q_indices)
        for name, table in zip(self._TABLES, given, strict=True):
            setattr(self, name, table)
        self.seq_lengths, self.mask_mod = (int(seq_lengths[0]), int(seq_lengths[1])), mask_mod
        self.BLOCK_SIZE = _pair(BLOCK_SIZE)

    @classmethod
    def from_kv_blocks(cls, kv_num_blocks: Any, kv_indices: Any, full_kv_num_blocks: Any = None,
                       full_kv_indices: Any = None, BLOCK_SIZE: Any = 128,
                       mask_mod: Callable[..., Any] | None = None,
                       seq_lengths: tuple[int, int] | None = None,
                       compute_q_blocks: bool = True) -> BlockMask:
        """The mask of these tables; the ones by columns follow from them."""
        if kv_indices.ndim < 2:
            raise ArgumentError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertedError("full_kv_num_blocks and full_kv_indices must be both provided or "
                                "omitted")
        part: tuple[Any, Any] = (None, None)
        full: tuple[Any, Any] = (None, None)
        if compute_q_blocks:
            part = _listed(_dense(kv_num_blocks, kv_indices).mT)
            if full_kv_indices is not None:
                full = _listed(_dense(full_kv_num_blocks, full_kv_indices).mT)
        rows, columns = _pair(BLOCK_SIZE)
        lengths = seq_lengths or (kv_indices.shape[-2] * rows, kv_indices.shape[-1] * columns)
        return cls(lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices,
                   part[0], part[1], full[0], full[1], BLOCK_SIZE, mask_mod or noop_mask)

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, Q_LEN, KV_LEN)."""
        return (*self._table("kv_indices").shape[:-2], *self.seq_lengths)

    def _table(self, name: str) -> Any:
        return getattr(self, name)

    def numel(self) -> int:
        """The number of pairs of a query and a key."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """The share of the pairs that lie in blocks that are not looked at, in percent."""
        blocks = self._table("kv_num_blocks").sum().item()
        if self._table("full_kv_num_blocks") is not None:
            blocks += self._table("full_kv_num_blocks").sum().item()
        return float(100 * (1 - blocks * math.prod(self.BLOCK_SIZE) / self.numel()))

    def _full(self) -> Any:
        counts = self._table("full_kv_num_blocks")
        return None if counts is None else _dense(counts, self._table("full_kv_indices"))

    def to_dense(self) -> Any:
        """1 for each block that is seen in part or whole: int32 (B, H, rows, columns)."""
        part = _dense(self._table("kv_num_blocks"), self._table("kv_indices"))
        full = self._full()
        return part if full is None else part | full

    def seen(self, queries: int, keys: int) -> Any:
        """The mask in full, bool (B, H, queries, keys), `mask_mod` asked in partial blocks."""
        def spread(blocks: Any) -> Any:
            wide = blocks.bool().repeat_interleave(self.BLOCK_SIZE[0], -2)
            return wide.repeat_interleave(self.BLOCK_SIZE[1], -1)[..., :queries, :keys]
        batch, heads = self.shape[-4:-2]
        part = spread(_dense(self._table("kv_num_blocks"), self._table("kv_indices")))
        seen = part & create_mask(self.mask_mod, batch, heads, *part.shape[-2:])
        full = self._full()
        return seen if full is None else seen | spread(full)

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """All parts, in the order of PyTorch's kernel; nested pairs of sizes unless `flatten`."""
        tables = [self._table(name) for name in self._TABLES]
        if flatten:
            return (*self.seq_lengths, *tables, *(None,) * 4, *self.BLOCK_SIZE, self.mask_mod)
        return (self.seq_lengths, *tables, *(None,) * 4, self.BLOCK_SIZE, self.mask_mod)

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask of some examples, heads or rows of blocks; `mask_mod` has to be set anew."""
        index = index if isinstance(index, tuple) else (index,)
        index = tuple(slice(i, i + 1 or None) if isinstance(i, int) else i for i in index)
        tables = [t if t is None else t[index] for t in map(self._table, self._TABLES[:4])]
        return self._of(tables, _sliced_mask, self.seq_lengths)

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The mask of the first queries and keys."""
        rows, columns = (-(-n // b) for n, b in zip((new_q_len, new_kv_len), self.BLOCK_SIZE,
                                                    strict=True))
        part = _dense(self._table("kv_num_blocks"), self._table("kv_indices"))
        tables: list[Any] = [*_listed(part[..., :rows, :columns]), None, None]
        full = self._full()
        if full is not None:
            tables[2:] = _listed(full[..., :rows, :columns])
        return self._of(tables, self.mask_mod, (new_q_len, new_kv_len))

    def _of(self, tables: list[Any], mask_mod: Callable[..., Any], lengths: Any) -> BlockMask:
        counts, indices, full_counts, full_indices = tables
        return BlockMask.from_kv_blocks(
            counts, indices, full_counts, full_indices, self.BLOCK_SIZE, mask_mod, lengths,
            compute_q_blocks=self._table("q_indices") is not None)

    def to(self, device: Any) -> BlockMask:
        """The mask itself: there is one device."""
        return self

    def to_string(self, grid_size: Any = (20, 20), limit: int = 4) -> str:
        """A picture of the blocks of up to `limit` examples and heads: full, empty, or part of
        what a place stands for where the blocks are more than `grid_size`."""
        dense = np.asarray(self.to_dense().tolist(), float)
        rows, columns = (-(-n // g) for n, g in zip(dense.shape[-2:], _pair(grid_size),
                                                    strict=True))
        pictures = []
        for k, at in enumerate(np.ndindex(*dense.shape[:-2])):
            if k == limit:
                pictures.append("...\nTo print out more, set BlockMask.to_string(limit=N)\nYou can "
                                "also index (BlockMask[batch, head]) to choose a specific batch or "
                                "head")
                break
            parts = [[dense[at][r:r + rows, c:c + columns].mean() for c in range(
                0, dense.shape[-1], columns)] for r in range(0, dense.shape[-2], rows)]
            pictures.append(f"{at}\n" + "".join("".join(
                "██" if p == 1 else "░░" if p else "  " for p in row) + "\n" for row in parts))
        return "\n".join(pictures)

    def __repr__(self) -> str:
        tables = ((name, self._table(name)) for name in self._TABLES)
        lines = [f"{n}={None if t is None else t.shape}" for n, t in tables]
        lines += [f"BLOCK_SIZE={self.BLOCK_SIZE}", f"shape={self.shape}",
                  f"sparsity={self.sparsity():.2f}%",
                  f"mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)}"]
        return "BlockMask(\n    " + ",\n    ".join(lines) + "\n)"

    def __str__(self) -> str:
        return (f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n"
                f"{self.to_string().strip()}\n)")


def _joined(mods: tuple[Any, ...], start: bool) -> Callable[..., Any]:
    if not all(callable(m) for m in mods):
        raise ArgumentError(f"All inputs should be callable mask_mods: {mods}")

    def joined(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        made = b.new_full((), start, dtype=ad.bool)
        for m in mods:
            found = m(b, h, q_idx, kv_idx)
            made = made & found if start else made | found
        return made
    return joined


def and_masks(*mask_mods: Callable[..., Any]) -> Callable[..., Any]:
    """The mask function that is True where all of these are."""
    return _joined(mask_mods, True)


def or_masks(*mask_mods: Callable[..., Any]) -> Callable[..., Any]:
    """The mask function that is True where one of these is."""
    return _joined(mask_mods, False)


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
    sizes = [1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN]
    indices = [ad.arange(n) for n in sizes]
    if _operands(mod_fn) == 5:                        # a function of scores
        return _over_indices(mod_fn, 1)(ad.zeros(sizes), *indices) != -math.inf
    return _over_indices(mod_fn, 0)(*indices)


def _operands(f: Callable[..., Any]) -> int:
    """How many positional arguments without defaults a function takes."""
    code, of = getattr(f, "__code__", None), getattr(f, "__func__", None)
    if code is None:
        return 4
    return int(code.co_argcount) - len(f.__defaults__ or ()) - (of is not None)


def create_block_mask(mask_mod: Callable[..., Any], B: int | None, H: int | None, Q_LEN: int,
                      KV_LEN: int, device: Any = None, BLOCK_SIZE: Any = 128,
                      _compile: bool = False, separate_full_blocks: bool = True,
                      **ignored: Any) -> BlockMask:
    """The `BlockMask` of `mask_mod(b, h, q_idx, kv_idx)`; B or H is None where it reads none.

    Which blocks are seen whole, in part or not at all is found from the mask in full.
    """
    if not callable(mask_mod) or _operands(mask_mod) != 4:
        raise AssertedError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    rows, columns = _pair(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN)
    mask = ad.nn.functional.pad(mask, (0, -KV_LEN % columns, 0, -Q_LEN % rows))
    batch, heads, queries, keys = mask.shape
    counts = mask.reshape(batch, heads, queries // rows, rows, keys // columns, columns).sum((3, 5))
    full = counts == rows * columns
    if not separate_full_blocks:
        return BlockMask.from_kv_blocks(*_listed(counts > 0), None, None, (rows, columns), mask_mod,
                                        (Q_LEN, KV_LEN))
    return BlockMask.from_kv_blocks(*_listed((counts > 0) & ~full), *_listed(full), (rows, columns),
                                    mask_mod, (Q_LEN, KV_LEN))


def _check(query: Any, key: Any, value: Any, block_mask: Any, enable_gqa: bool) -> None:
    for name, t in (("query", query), ("key", key), ("value", value)):
        if t.ndim != 4:
            raise NotSupported("query, key, and value must be 4D tensors: flex_attention takes "
                               "(batch, heads, length, features), "
                               f"{name} is {list(t.shape)}")
    if query.shape[-1] != key.shape[-1]:
        raise ShapeError("Expect query and key/value to have the same embedding dimension but got "
                         f"E={query.shape[-1]} and E={key.shape[-1]}.")
    if key.shape[:3] != value.shape[:3]:
        raise ShapeError(f"flex_attention: key {list(key.shape)} and value {list(value.shape)} "
                         "differ before the features")
    many, few = query.shape[1], key.shape[1]
    if not enable_gqa and many != few:
        raise ShapeError("Expect query and key/value to have the same number of heads but got Hq="
                         f"{many} and Hkv={few}. Try setting enable_gqa=True for GQA.")
    if many % max(few, 1):
        raise ShapeError("Expect number of query heads to be a multiple of kv heads for GQA but got"
                         f" Hq={many} and Hkv={few}.")
    if block_mask is None:
        return
    lengths, wanted = block_mask.seq_lengths, (query.shape[2], key.shape[2])
    if lengths == wanted:
        return
    larger = lengths[0] >= wanted[0] and lengths[1] >= wanted[1]
    fix = ("As the block mask was created for a larger length than you're using it for, you can "
           "either 1. create a new block mask with the correct length, or 2. 'adjust' the existing "
           "block mask to the correct length by calling block_mask._adjust(q_len, kv_len)."
           if larger else "As the block mask was created for a smaller length than you're using it "
           "for, you likely need to create a new block mask.")
    raise ShapeError(f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len"
                     f"={wanted[0]} and kv_len={wanted[1]}. {fix}")


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
    _check(query, key, value, block_mask, enable_gqa)
    if enable_gqa:
        groups = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(groups, 1) for t in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if score_mod is not None:
        scores = _over_indices(score_mod, 1)(scores, *(ad.arange(n) for n in scores.shape))
    if block_mask is not None:
        seen = block_mask.seen(*scores.shape[-2:])
        scores = scores.masked_fill(~seen, -math.inf)
    wanted = return_aux or AuxRequest(lse=return_lse)
    lse = (scores if wanted.lse else scores.detach()).logsumexp(-1)
    weights = scores.softmax(-1).masked_fill((lse == -math.inf)[..., None], 0.0)
    out = weights.to(query.dtype) @ value
    if return_aux is None:
        return (out, lse) if return_lse else out
    return out, AuxOutput(lse if wanted.lse else None,
                          scores.amax(-1) if wanted.max_scores else None)
