"""Runs the generated convolution on arrays: tables, argument blocks, and the gradient of the input.

The gradient of the input is itself a convolution, of the cotangent with the flipped weight; with a
stride there is one for each residue of the input position modulo the stride, on the taps that reach
it.
"""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import conv_depth, conv_few, conv_pairs, gemm, threads
from .conv_ir import ARGS, ENTRY, INDEX, conv_module, conv_parts
from .conv_numpy import Array, ConvSpec, aside, conv_spec
from .gemm_emit import BYTES, FLOATS
from .gemm_ir import GemmSpec, tile_for
from .gemm_plan import address, blocking, compiled, machine, release, usable, workspace

_ArgBlock = ctypes.c_int64 * len(ARGS)
_plans: dict[Any, _Plan] = {}
_KEEP_BYTES = 2 << 20
_BLOCK_BYTES = 640 << 10  # packed windows that stay in L2 beside the panels of the weight
_DEPTH = 256  # positions in a block of the gradient of the weight, for the same reason
_PARTS, _PARTS_BYTES = 8, 8 << 20  # partial sums of the gradient of the weight
_LEAST = 1_500  # multiply-adds from which the compiler is loaded for kernels three times as fast


def supported(x: Array, w: Array, spec: ConvSpec) -> bool:
    """Whether the kernels compute this: one float type, up to three dimensions, not tiny."""
    if x.dtype != w.dtype or x.dtype.char not in "fd" or not x.dtype.isnative or spec.dims > 3:
        return False
    if x.size == 0 or w.size == 0 or spec.positions == 0 or not usable():
        return False
    return spec.batch * spec.filters * spec.depth * spec.positions >= _LEAST


def paired(a: Array, b: Array, spec: ConvSpec) -> bool:
    """Whether these 16-bit operands are multiplied two by two."""
    if a.size == 0 or b.size == 0 or spec.positions == 0:
        return False
    return conv_pairs.supported(spec, a.dtype)


@functools.cache
def _kernel(kind: str, bias: str, weight: bool, words: bool) -> int:
    spec = GemmSpec(kind, kind, kind, bias, pairs=words)
    key = ("conv", kind, bias, f"{weight} {words}")
    return compiled(key, lambda: conv_module(spec, weight, machine()), name="conv",
                    parts=conv_parts(spec, machine()))


@dataclass(frozen=True, slots=True)
class _Image:
    """How windows address an image: pitches of channel and dimensions, and what is copied where."""

    padded: bool
    pitches: tuple[int, ...]
    inner: int
    count: int


def _image(x: Array, spec: ConvSpec, last: bool) -> _Image:
    """The image in place if it needs no padding and its rows are contiguous, else a padded copy;
    with `last`, always a copy, channels last."""
    size = x.itemsize
    group = spec.channels // spec.groups
    steps = tuple(s // size for s in x.strides[1:])
    if not (last or any(spec.lo) or any(spec.hi)) and steps[-1] == 1:
        return _Image(False, steps, 0, 0)
    pitches = [group if last else 1]
    for length in reversed(spec.padded[1:]):
        pitches.insert(0, pitches[0] * length)
    plane = pitches[0] * spec.padded[0]
    inner = sum(a * p for a, p in zip(spec.lo, pitches, strict=True))
    count = plane if last else group * plane
    return _Image(True, (1 if last else plane, *pitches), inner, count + 64)


def _taps(spec: ConvSpec, pitches: tuple[int, ...]) -> Array:
    """Element offset of every tap of one channel."""
    total = np.zeros(1, np.int64)
    for k, d, p in zip(spec.kernel, spec.dilation, pitches[1:], strict=True):
        total = (total[:, None] + np.arange(k, dtype=np.int64) * (d * p)).reshape(-1)
    return total


def _rows_and_columns(spec: ConvSpec, pitches: tuple[int, ...], weight: bool
                      ) -> tuple[Array, Array]:
    """Element offsets of the rows and of the columns of the packed operand.

    Forward: (channel, tap) down and output positions across. Gradient of the weight: positions down
    and (tap, channel) across.
    """
    places = np.zeros(1, np.int64)
    for n, s, p in zip(spec.out, spec.stride, pitches[1:], strict=True):
        places = (places[:, None] + np.arange(n, dtype=np.int64) * (s * p)).reshape(-1)
    taps = _taps(spec, pitches)
    channels = np.arange(spec.channels // spec.groups, dtype=np.int64) * pitches[0]
    if weight:
        return places, (taps[:, None] + channels).reshape(-1)
    return (channels[:, None] + taps).reshape(-1), places


def _vector_table(places: Array, lanes: int, pad_to: int, masks: bool) -> tuple[Array, Array]:
    """How to load each vector of columns (see `conv_ir`), and their offsets padded to vectors."""
    count = len(places)
    padded = np.pad(places, (0, -count % pad_to), mode="edge").astype(np.int32)
    table = np.zeros((len(padded) // lanes, ENTRY // 4), np.int32)
    for row, start in enumerate(range(0, len(padded), lanes)):
        valid = max(0, min(lanes, count - start))
        part = padded[start : start + valid]
        cuts = [0, *(np.flatnonzero(np.diff(part) != 1) + 1).tolist(), valid] if valid else [0, 0]
        pieces = [(a, b) for a, b in zip(cuts[:-1], cuts[1:], strict=True) if b > a]
        if len(pieces) == 1 and valid == lanes:
            table[row, :2] = 1, part[0]
        elif masks and len(pieces) <= 4:
            table[row, 0] = max(2, len(pieces))
            for i, (a, b) in enumerate(pieces):
                table[row, 1 + i] = int(part[a]) - a
                table[row, 5 + i] = (1 << b) - (1 << a)
    return table, padded


class _Plan:
    """One convolution of fixed shapes and strides, forward or gradient of the weight; `words` hold
    two numbers each."""

    def __init__(
        self, x: Array, left: Array, out: Array, spec: ConvSpec, weight: bool, bias: bool,
        words: bool,
    ) -> None:  # fmt: skip
        self.weight = weight
        kind = FLOATS[x.dtype.name]
        self.entry = _kernel(kind, "row" if bias else "", weight, words)
        tile, size = tile_for(machine(), kind), BYTES[kind]
        image = _image(x, spec, weight)
        koff, columns = _rows_and_columns(spec, image.pitches, weight)
        vectors, poff = _vector_table(columns, tile.lanes, tile.nr, machine().masks)
        self.koff, self.vectors, self.poff = aside(koff), aside(vectors), aside(poff)
        filters, group = spec.filters // spec.groups, spec.channels // spec.groups
        m, n, k = filters, spec.positions, spec.depth
        if weight:
            n, k = k, n
        workers = threads.get_num_threads()
        self.parts = len(out) if weight else 1
        batch = (self.parts if weight else spec.batch) * spec.groups
        cut = blocking(m, n, k, batch, tile, size, workers, False, False)
        mb = m if weight else cut.mb
        kc = -(-min(cut.kc, k, _DEPTH if weight else k) // 16) * 16
        panels = -(-n // tile.nr) * -(-k // kc)
        self.tasks = -(-m // mb) * -(-n // cut.nb) * batch
        self.workers = min(cut.workers, self.tasks)
        # a small weight, the same for all tasks, stays packed in each thread's cache
        rows = -(-m // tile.mr) * tile.mr
        keep = not weight and spec.groups == 1 and mb >= m and rows * k * size <= _KEEP_BYTES
        block = -(-min(cut.nb, n) // tile.nr) * tile.nr
        if keep:
            block = min(block, max(1, _BLOCK_BYTES // (kc * size * tile.nr)) * tile.nr)
        b_bytes = -(-block * kc * size // 64) * 64 + 128
        panel = rows * k if keep else tile.mr * kc
        image_at = -(-(b_bytes + (panel + 4 * tile.lanes) * size) // 64) * 64 + 64
        work = -(-(image_at + image.count * size) // 64) * 64 + 192
        self.work_bytes = work * self.workers
        self.offsets = aside(self._offsets(x, left, out, spec, weight))
        lengths, strides = [1, 1, *spec.space][-3:], [0, 0, *x.strides[2:]][-3:]
        pitches = [0, 0, *image.pitches[1:]][-3:]
        per_part = -(-spec.batch // self.parts)
        values = dict(
            a_row=left.strides[1] // size if weight else k, a_col=1, c_row=n, m=m, n=n, k=k,
            mb=mb, nb=cut.nb, kc=kc, tasks_m=-(-m // mb), tasks_n=-(-n // cut.nb), tasks=self.tasks,
            offsets=address(self.offsets), work_bytes=work, b_bytes=b_bytes,
            koff=address(self.koff),
            poff=address(self.poff), vectors=address(self.vectors), padded=int(image.padded),
            inner=image.inner, chans=group, deep=lengths[0], high=lengths[1], wide=lengths[2],
            chan_s=x.strides[1], deep_s=strides[0], high_s=strides[1], wide_s=strides[2],
            chan_p=image.pitches[0], deep_p=pitches[0], high_p=pitches[1], image_at=image_at,
            image_count=image.count, groups=spec.groups, images=spec.batch, per_part=per_part,
            c_part=spec.filters * n * size, c_group=filters * n * size, keep=int(keep),
            block=block, lines=-(-group * math.prod(spec.space) * size // (64 * panels)),
            stride=spec.groups if weight else self.workers * spec.groups,
        )  # fmt: skip
        self.values = bytes(_ArgBlock(*[values.get(name, 0) for name in ARGS]))

    def _offsets(self, x: Array, left: Array, out: Array, spec: ConvSpec, weight: bool) -> Array:
        """Byte offsets of the left operand, the image and the output for every (image, group)."""
        number, group = np.divmod(np.arange(spec.batch * spec.groups, dtype=np.int64), spec.groups)
        filters, channels = spec.filters // spec.groups, spec.channels // spec.groups
        table = np.zeros((len(number), 4), np.int64)
        table[:, 1] = number * x.strides[0] + group * channels * x.strides[1]
        if weight:
            table[:, 0] = number * left.strides[0] + group * filters * left.strides[1]
        else:
            table[:, 0] = group * filters * left.strides[0]
            table[:, 2] = number * out.strides[0] + group * filters * out.strides[1]
        return table

    def run(self, left: Array, x: Array, out: Array, bias: Array | None) -> None:
        """Compute with these operands."""
        buffer = workspace(self.work_bytes)
        block = _ArgBlock.from_buffer_copy(self.values)
        block[0], block[1], block[2] = address(left), address(x), address(out)
        block[INDEX["work"]] = address(buffer)
        if bias is not None:
            block[INDEX["bias"]] = address(bias)
        threads.parallel(self.entry, ctypes.addressof(block), self.workers)
        release(buffer)


def _plan(x: Array, left: Array, out: Array, spec: ConvSpec, weight: bool, bias: bool,
          words: bool = False) -> _Plan:
    key = (x.strides, x.dtype, left.strides, spec, weight, bias, words, threads.get_num_threads())
    made = _plans.get(key)
    if made is None:
        if len(_plans) > 512:
            _plans.pop(next(iter(_plans)), None)         # the oldest: those of now stay
        made = _plans[key] = _Plan(x, left, out, spec, weight, bias, words)
    return made


def _readable(x: Array) -> Array:
    """`x`, copied only if a stride is no whole number of elements."""
    return x if all(s % x.itemsize == 0 for s in x.strides) else np.ascontiguousarray(x)


def forward(x: Array, w: Array, spec: ConvSpec, bias: Array | None = None) -> Array:
    """The convolution, `(N, O, *P)`."""
    if x.dtype.itemsize == 2:
        return conv_pairs.forward(x, w, spec, bias, _run_words)
    if conv_depth.supported(spec, x.itemsize) and (bias is None or bias.dtype == x.dtype):
        return conv_depth.forward(x, w, spec, bias)
    if conv_few.supported(spec, x.itemsize) and (bias is None or bias.dtype == x.dtype):
        return conv_few.forward(x, w, spec, bias)
    x, w = _readable(x), np.ascontiguousarray(w)
    out = np.empty((spec.batch, spec.filters, *spec.out), x.dtype)
    fused = bias is not None and spec.groups == 1 and bias.dtype == x.dtype
    row = np.ascontiguousarray(bias) if fused and bias is not None else None
    if spec.pointwise and row is None and x.flags.c_contiguous:
        product_of_maps(w.reshape(spec.groups, -1, spec.channels // spec.groups), x, out, spec)
    else:
        _plan(x, w, out, spec, False, row is not None).run(w, x, out, row)
    if bias is not None and not fused:
        out += bias.reshape(-1, *(1,) * spec.dims)
    return out


def _run_words(left: Array, x: Array, out: Array, spec: ConvSpec, bias: Array | None) -> None:
    _plan(x, left, out, spec, False, bias is not None, True).run(left, x, out, bias)


def product_of_maps(kernel: Array, x: Array, out: Array, spec: ConvSpec) -> Array:
    """`out`, filled with `kernel` `(groups, to, from)` times the channels of each position of `x`:
    a convolution of one tap, or the gradient of its input. Both lie in order; 16 bits too."""
    maps = (spec.batch, spec.groups, -1, spec.positions)
    gemm.matmul(kernel, x.reshape(maps), out.reshape(maps))
    return out


def sum_of_products(ct: Array, x: Array, spec: ConvSpec) -> Array:
    """The cotangent of the weight of a convolution of one tap, in float32, from 16-bit operands
    that lie in order."""
    maps = (spec.batch, spec.groups, -1, spec.positions)
    wide = np.empty(
        (spec.groups, spec.filters // spec.groups, spec.channels // spec.groups), np.float32
    )
    for i, (a, b) in enumerate(zip(ct.reshape(maps), x.reshape(maps), strict=True)):
        gemm.matmul(a, b.swapaxes(1, 2), wide, accumulate=i > 0)
    return wide


def grad_weight(ct: Array, x: Array, spec: ConvSpec) -> Array:
    """The cotangent of the weight, `(O, C/groups, *K)`."""
    if x.dtype.itemsize == 2:
        return conv_pairs.grad_weight(ct, x, spec, functools.partial(_over_images, words=True))
    if conv_depth.supported(spec, x.itemsize):
        return conv_depth.grad_weight(ct, x, spec)
    if conv_few.supported(spec, x.itemsize):
        whole = conv_few.grad_weight(ct, x, spec)
        if whole is not None:
            return whole
    return _over_images(np.ascontiguousarray(ct), _readable(x), spec)


def _over_images(ct: Array, x: Array, spec: ConvSpec, words: bool = False) -> Array:
    # as many for any number of threads: so are the bits
    held = spec.filters * spec.depth * x.itemsize
    parts = min(spec.batch, _PARTS, max(1, _PARTS_BYTES // held))
    out = np.empty((parts, spec.filters, *spec.kernel, spec.channels // spec.groups), x.dtype)
    made = _plan(x, ct, out, spec, True, False, words)
    # with few images per part the last parts may be empty
    used = -(-spec.batch // -(-spec.batch // parts))
    if used < parts:
        out[used:] = 0
    made.run(ct, x, out, None)
    total = out[0] if parts == 1 else np.add.reduce(out, axis=0)
    return np.ascontiguousarray(total.transpose(0, spec.dims + 1, *range(1, spec.dims + 1)))


@dataclass(frozen=True, slots=True)
class _Residue:
    """One dimension of the gradient for input positions `r + stride * t`."""

    taps: slice
    dilation: int
    lo: int
    hi: int
    count: int


@functools.lru_cache(maxsize=1024)
def _residues(
    length: int, out: int, kernel: int, stride: int, dilation: int, lo: int
) -> tuple[_Residue | None, ...]:
    """For each residue: the taps that reach it, as a convolution of the cotangent (None: no tap).

    Position r + stride t takes tap k from output t + q(k), q(k) = (r + lo - k dilation) / stride.
    """
    found: list[_Residue | None] = []
    common = math.gcd(stride, dilation)
    for r in range(min(stride, length)):
        ks = [k for k in range(kernel) if (r + lo - k * dilation) % stride == 0]
        if not ks:
            found.append(None)
            continue
        step = stride // common
        top = (r + lo - ks[0] * dilation) // stride
        low = (r + lo - ks[-1] * dilation) // stride
        count = -(-(length - r) // stride)
        found.append(
            _Residue(slice(ks[0], None, step), dilation // common, -low, count - out + top, count)
        )
    return tuple(found)


def grad_input(ct: Array, w: Array, spec: ConvSpec) -> Array:
    """The cotangent of the input, `(N, C, *S)`."""
    if ct.dtype.itemsize > 2 and conv_few.supported(spec, ct.itemsize):
        return conv_few.grad_input(ct, w, spec)
    group = spec.filters // spec.groups
    turned = w.reshape(spec.groups, group, -1, *spec.kernel).swapaxes(1, 2)
    turned = turned.reshape(spec.channels, group, *spec.kernel)
    axes = [
        _residues(*sizes)
        for sizes in zip(
            spec.space, spec.out, spec.kernel, spec.stride, spec.dilation, spec.lo, strict=True
        )
    ]
    first = [axis[0] for axis in axes if axis and axis[0] is not None]
    if set(spec.stride) <= {1} and len(first) == spec.dims:
        return _one_residue(ct, turned, spec, first)
    shape = (spec.batch, spec.channels, *spec.space)
    out = np.zeros(shape, ct.dtype)
    for where in np.ndindex(*(len(a) for a in axes)):
        chosen = [axis[i] for axis, i in zip(axes, where, strict=True)]
        parts = [c for c in chosen if c is not None]
        if len(parts) < len(chosen):
            continue
        picks = tuple(slice(r, None, s) for r, s in zip(where, spec.stride, strict=True))
        out[(slice(None), slice(None), *picks)] = _one_residue(ct, turned, spec, parts)
    return out


def _one_residue(ct: Array, turned: Array, spec: ConvSpec, parts: list[_Residue]) -> Array:
    """The convolution of the cotangent that gives the positions of one residue class."""
    both = (slice(None), slice(None))
    kernel = turned[(*both, *(p.taps for p in parts))]
    kernel = kernel[(*both, *(slice(None, None, -1) for _ in parts))]
    # negative padding crops the cotangent
    crop = tuple(
        slice(max(0, -p.lo), n - max(0, -p.hi)) for p, n in zip(parts, ct.shape[2:], strict=True)
    )
    part = ct[(*both, *crop)]
    padding = tuple([(max(0, p.lo), max(0, p.hi)) for p in parts])
    inner = conv_spec(
        part.shape, kernel.shape, 1, padding, tuple([p.dilation for p in parts]), spec.groups
    )
    if part.size == 0 or inner.positions == 0:
        return np.zeros((spec.batch, spec.channels, *(p.count for p in parts)), ct.dtype)
    return forward(part, kernel, inner)
