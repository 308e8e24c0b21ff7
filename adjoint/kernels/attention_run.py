"""Runs the generated attention kernels on arrays: padding, argument blocks, workspaces."""

from __future__ import annotations

import ctypes
import functools
import math
import struct

import numpy as np

from . import threads
from .attention_grad_ir import backward_bytes, backward_module, backward_parts
from .attention_ir import (
    ARGS,
    INDEX,
    SIDE,
    AttentionSpec,
    attention_parts,
    forward_bytes,
    forward_module,
)
from .attention_numpy import Array, Attend, laid_like, threshold
from .gemm_ir import Tile, tile_for
from .gemm_plan import address, compiled, machine, release, usable, workspace

_ArgBlock = ctypes.c_int64 * len(ARGS)
_SLICE = 128 << 10  # bytes of padded keys below which another call costs more than it saves
_ALONE = 4_000_000  # multiplications below which a worker is not woken: that takes some 50 us
_NO_LIMIT = 1 << 30  # causal limit of attention that is not causal; positions stay below 2**31


_SLOTS = {name: tuple(INDEX[name + part] for part in ("", "_b", "_h", "_s"))
          for name in ("q", "k", "v", "o", "ct", "dq", "dk", "dv")}


@functools.cache
def _tile() -> Tile:
    return tile_for(machine(), "float")


@functools.cache
def _entry(which: str, spec: AttentionSpec) -> int:
    module, parts = ((forward_module, attention_parts) if which == "forward"
                     else (backward_module, backward_parts))
    key = ("attention", which, spec.mask, str(spec.dropout))
    return compiled(key, lambda: module(spec, machine()), name=f"attention {which}",
                    symbol="attend", parts=parts(spec, machine()))


def supported(q: Array, k: Array, v: Array, spec: Attend) -> bool:
    """Whether the generated kernels compute this: float32, not empty, not tiny."""
    if not all(x.dtype == np.float32 for x in (q, k, v)) or not usable():
        return False
    if q.size == 0 or k.size == 0 or v.size == 0 or SIDE % _tile().mr:
        return False
    work = q.shape[1] * q.shape[0] * q.shape[2] * k.shape[2] * (q.shape[3] + v.shape[3])
    if max(q.shape[2], k.shape[2]) >= _NO_LIMIT or work < 2_000:
        return False
    return spec.mask is None or spec.mask.dtype in (np.dtype(np.bool_), np.dtype(np.float32))


def rows_of(x: Array) -> Array:
    """`x` with unit stride in its last axis and a width that is a multiple of the register tile."""
    width = _tile().nr
    extra = -x.shape[-1] % width
    if extra == 0:
        return x if x.strides[-1] == 4 else np.ascontiguousarray(x)
    out = np.zeros((*x.shape[:-1], x.shape[-1] + extra), x.dtype)
    out[..., : x.shape[-1]] = x
    return out


def _bits(value: float) -> int:
    number: int = struct.unpack("<i", struct.pack("<f", value))[0]
    return number


class Block:
    """The argument block of one call."""

    def __init__(self, which: str, spec: Attend, q: Array, k: Array, v: Array) -> None:
        batch, heads, rows, _ = q.shape
        kind = "" if spec.mask is None else "i8" if spec.mask.dtype == np.bool_ else "float"
        self.entry = _entry(which, AttentionSpec(kind, spec.dropout > 0))
        self.values = _ArgBlock()
        self.kept: list[Array] = []
        survive = 1.0 / (1.0 - spec.dropout) if spec.dropout < 1 else 0.0
        self.set(
            heads=heads, groups=heads // k.shape[1], rows=rows, cols=k.shape[2], e=q.shape[3],
            ev=v.shape[3], factor=_bits(spec.scale * math.log2(math.e)), scale=_bits(spec.scale),
            limit=0 if spec.causal else _NO_LIMIT, key=_signed(spec.seed),
            threshold=threshold(spec.dropout), survive=_bits(survive),
        )  # fmt: skip
        self.array(q=q, k=k, v=v)
        if spec.mask is not None:
            strides = spec.mask.strides
            self.kept.append(spec.mask)
            self.set(mask=address(spec.mask), mask_b=strides[0], mask_h=strides[1])
            self.set(mask_s=strides[2], mask_t=strides[3])

    def set(self, **values: int) -> None:
        """Set slots by name."""
        for name, value in values.items():
            self.values[INDEX[name]] = value

    def array(self, **arrays: Array) -> None:
        """Set the address and the batch, head and row strides of operands."""
        values = self.values
        for name, x in arrays.items():
            self.kept.append(x)
            slots, strides = _SLOTS[name], x.strides
            values[slots[0]] = address(x)
            for slot, stride in zip(slots[1:], strides, strict=False):     # (the last one is 4)
                values[slot] = stride

    def run(self, tasks: int, bytes_each: int, work: int) -> None:
        """Share the tasks, of `work` multiplications together, among the threads."""
        workers = 1 if work < _ALONE else min(threads.get_num_threads(), tasks)
        each = -(-bytes_each // 4096) * 4096 + 192
        buffer = workspace(each * workers)
        self.set(tasks=tasks, work=address(buffer), work_bytes=each)
        threads.parallel(self.entry, ctypes.addressof(self.values), workers)
        release(buffer)


def _work(q: Array, k: Array, v: Array) -> int:
    """Multiplications of a forward pass; backward has five products in place of two."""
    return int(q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] * (q.shape[3] + v.shape[3]))


def _signed(seed: int) -> int:
    seed &= (1 << 64) - 1
    return seed - (1 << 64) if seed >> 63 else seed


def _in_turn(spec: Attend, k: Array, v: Array) -> list[slice]:
    """The batch in slices that keep the threads busy, where rows are padded: only one slice's
    padded copies are there at a time. In one where not, or where dropout counts the rows."""
    batch, heads, rows, width = k.shape
    tile = _tile().nr
    step = batch
    if (width % tile or v.shape[3] % tile) and not spec.dropout:
        one = 4 * heads * rows * (width + -width % tile)        # bytes of an example, padded
        step = max(-(-threads.get_num_threads() // heads), -(-_SLICE // one))
    return [slice(at, at + step) for at in range(0, batch, step)]


def _part(spec: Attend, at: slice) -> Attend:
    return spec if spec.mask is None else spec._replace(mask=spec.mask[at])


def forward(q: Array, k: Array, v: Array, spec: Attend) -> tuple[Array, Array]:
    """Output and log-sum-exp, as `attention_numpy.forward`."""
    slices = _in_turn(spec, k, v)
    if len(slices) == 1:
        return _forward(q, k, v, spec)
    out, lse = laid_like(q, v.shape[3], np.empty), np.empty(q.shape[:3], np.float32)
    for at in slices:
        out[at], lse[at] = _forward(q[at], k[at], v[at], _part(spec, at))
    return out, lse


def _forward(q: Array, k: Array, v: Array, spec: Attend) -> tuple[Array, Array]:
    width, like = v.shape[3], q
    q, k, v = rows_of(q), rows_of(k), rows_of(v)
    batch, heads, rows, _ = q.shape
    out = laid_like(like, v.shape[3], np.empty)
    top, total = (np.empty((batch, heads, rows), np.float32) for _ in range(2))
    block = Block("forward", spec, q, k, v)
    blocks = -(-rows // SIDE)
    block.array(o=out)
    block.set(top=address(top), total=address(total), blocks=blocks)
    size = forward_bytes(q.shape[3], v.shape[3], k.shape[2], _tile())
    block.run(batch * heads * blocks, size, _work(q, k, v))
    with np.errstate(divide="ignore"):
        np.log(total, out=total)
    top *= np.float32(math.log(2))
    top += total
    return (out if width == out.shape[3] else out[..., :width].copy("K")), top


def backward(
    ct: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, spec: Attend
) -> tuple[Array, Array, Array]:
    """Cotangents of query, key and value, as `attention_numpy.backward`."""
    slices = _in_turn(spec, k, v)
    if len(slices) == 1:
        return _backward(ct, q, k, v, out, lse, spec)
    dq, dk, dv = (laid_like(x, x.shape[3], np.empty) for x in (q, k, v))
    for at in slices:
        dq[at], dk[at], dv[at] = _backward(
            ct[at], q[at], k[at], v[at], out[at], lse[at], _part(spec, at))
    return dq, dk, dv


def _backward(
    ct: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, spec: Attend
) -> tuple[Array, Array, Array]:
    likes, widths = (q, k, v), [int(x.shape[3]) for x in (q, k, v)]
    ct, q, k, v, out = (rows_of(x) for x in (ct, q, k, v, out))
    # fewer heads than threads: a head's keys are shared out, each share with its own sum for q
    tasks, workers = q.shape[0] * k.shape[1], threads.get_num_threads()
    blocks = -(-k.shape[2] // SIDE)
    parts = 1 if tasks >= workers else min(blocks, -(-workers // tasks))
    shares = np.zeros((parts, *q.shape), np.float32) if parts > 1 else (
        laid_like(likes[0], q.shape[3], np.empty)[None])
    grads = [shares[0], *(laid_like(like, x.shape[3], np.empty)
                          for like, x in zip(likes[1:], (k, v), strict=True))]
    top = np.ascontiguousarray(lse) * np.float32(math.log2(math.e))
    top[top == -np.inf] = np.inf  # rows that see nothing: every power of two is 0
    block = Block("backward", spec, q, k, v)
    block.array(o=out, ct=ct, dq=grads[0], dk=grads[1], dv=grads[2])
    block.set(top=address(top), parts=parts, dq_part=shares.strides[0])
    tile, groups = _tile(), q.shape[1] // k.shape[1]
    size = backward_bytes(q.shape[3], v.shape[3], q.shape[2], groups, tile)
    block.run(tasks * parts, size, 5 * _work(q, k, v) // 2)
    if parts > 1:
        grads[0] = np.add.reduce(shares, axis=0)
    done = [g if w == g.shape[3] else g[..., :w].copy("K")
            for g, w in zip(grads, widths, strict=True)]
    return done[0], done[1], done[2]
