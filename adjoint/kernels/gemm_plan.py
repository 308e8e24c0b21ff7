"""How a matrix product is cut into tasks, and the argument block of the generated kernel."""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoint.base.aval import address as address

from . import alloc, llvm, threads
from .gemm_emit import BYTES, FLOATS, Machine, Part
from .gemm_ir import ARGS, INDEX, GemmSpec, Tile, gemm_module, product_parts, tile_for

Array = np.ndarray[Any, Any]

DEPTH = 512  # longest block of K: a panel of A (12 x 512 float32) takes three quarters of L1
BLOCK_BYTES = 2 << 20  # packed block of B: twice a usual L2, as its panels stream well from L3
_KEPT_BYTES = 320 << 10  # packed rows of A that stay in L2
_SERIAL = 6e5  # multiply-adds below which a second thread costs more than it brings
_ArgBlock = ctypes.c_int64 * len(ARGS)
_WORK, _SLOT, _NEXT = INDEX["work"], INDEX["slot"], INDEX["next"]
_ACCUMULATE, _BIAS, _RESIDUAL = INDEX["accumulate"], INDEX["bias"], INDEX["residual"]
_spare: dict[int, list[Array]] = {}


@functools.cache
def machine() -> Machine:
    """The CPU that kernels are generated for."""
    bits = llvm.vector_bits()
    return Machine(bits, bits >= 256)


def usable() -> bool:
    """Whether generated products can win: LLVM is there, and the CPU fuses multiply and add."""
    return llvm.available() and _fuses()


@functools.cache
def _fuses() -> bool:
    return "fma" in llvm.host_features() or platform.machine().lower() in ("aarch64", "arm64")


def mapped(size: int) -> Array:
    """Memory from the system, not from NumPy's allocator: no array of the user's, and kept.

    Private: after a fork, parent and child must not write to the same pages.
    """
    if hasattr(mmap, "MAP_PRIVATE"):
        return np.frombuffer(
            mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8
        )
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def workspace(nbytes: int) -> Array:
    """A reusable page-aligned buffer of at least `nbytes`; give it back with `release`."""
    size = 1 << max(12, (nbytes - 1).bit_length())
    try:
        return _spare[size].pop()
    except (IndexError, KeyError):
        return mapped(size)


def release(buffer: Array) -> None:
    """Give a workspace back (a few of each size are kept)."""
    pool = _spare.setdefault(buffer.size, [])
    if len(pool) < 4:
        pool.append(buffer)


def trim() -> int:
    """Return the workspaces that nobody uses to the system; how many bytes there were."""
    held = sum(size * len(pool) for size, pool in _spare.items())
    _spare.clear()
    return held


@dataclass(frozen=True, slots=True)
class Blocking:
    """Sizes of a task, of the blocks of K and of the columns that pass at a time; `in_place` reads
    B without packing it."""

    mb: int
    nb: int
    kc: int
    in_place: bool
    workers: int
    sweep: int

    @property
    def kept(self) -> bool:
        """Whether the packed panels of A are kept while the columns pass."""
        return self.sweep < self.nb


def _rounded(count: int, tile: Tile) -> float:
    """Rows as the micro-kernels count them; the lower panels are a little less efficient."""
    full, left = divmod(count, tile.mr)
    rest = min((h for h in tile.heights if h >= left), default=0) if left else 0
    return full * tile.mr + rest * 1.15


def _cost(
    m: int, n: int, k: int, mb: int, nb: int, tile: Tile, tasks: int, workers: int, in_place: bool
) -> float:
    """Estimated time of the slowest thread, in multiply-add vectors."""
    rounds = -(-tasks // workers)
    flops = _rounded(min(mb, m), tile) * -(-min(nb, n) // tile.lanes) * k
    pack_a = min(mb, m) * k * 0.55
    pack_b = 0.0 if in_place else min(nb, n) * k * 0.3
    tiles = -(-min(mb, m) // tile.mr) * -(-min(nb, n) // tile.nr) * 50.0
    return rounds * (flops + pack_a + pack_b + tiles + 300)


def depth_of(k: int, acc_bytes: int) -> int:
    """How much of K a block has: the sums' order, and so their bits, follow from it."""
    most = DEPTH * 4 // acc_bytes
    parts = -(-k // most)
    return k if k <= most * 5 // 4 else -(-k // (8 * parts)) * 8


def _most_in_place(tile: Tile, kc: int, acc_bytes: int) -> int:
    """Rows of A up to which B is read in place: that costs a page per row of a panel, and is worth
    it while each is read few times. Where a row of a panel is one cache line (no AVX-512), every
    line comes without its neighbours, and long panels do not stay in the first-level cache: of
    (128, 512)(512, 512) 40 GFLOP/s in place and 67 packed, one thread of Zen 3."""
    if tile.nr * acc_bytes > 64:
        return 192
    return 4 * tile.mr if kc <= 128 else tile.mr


@functools.lru_cache(4096)
def blocking(
    m: int, n: int, k: int, batch: int, tile: Tile, acc_bytes: int, workers: int,
    beside: bool, single: bool,
) -> Blocking:  # fmt: skip
    """The cut that a cost model finds best.

    `beside`: rows of B are contiguous (so B can be read in place); `single`: K must be one block.
    """
    kc = k if single else depth_of(k, acc_bytes)  # 16-bit outputs are written once
    widest = max(tile.nr, BLOCK_BYTES // (acc_bytes * max(1, kc)) // tile.nr * tile.nr)
    in_place = beside and m <= _most_in_place(tile, kc, acc_bytes)
    if batch * m * n * k < _SERIAL:
        workers = 1
    best: tuple[float, int, int] | None = None
    panels = -(-n // tile.nr)
    for parts_n in sorted({min(panels, p * s) for p in range(1, 9) for s in (1, workers)}):
        nb = -(-panels // parts_n) * tile.nr
        if nb > widest:
            if parts_n < min(panels, 8 * workers):
                continue
            nb = widest
        for parts_m in sorted({1, 2, workers, 2 * workers, 4 * workers}):
            mb = -(-m // parts_m)
            mb = m if parts_m == 1 else -(-mb // tile.mr) * tile.mr
            tasks = batch * -(-m // mb) * -(-n // nb)
            cost = _cost(m, n, k, mb, nb, tile, tasks, workers, in_place)
            if best is None or cost < best[0] * 0.99:
                best = (cost, mb, nb)
    assert best is not None
    _, mb, nb = best
    sweep = tile.nr if not in_place and mb == m and _near(mb, kc, tile, acc_bytes) else nb
    return Blocking(mb, nb, kc, in_place, workers, sweep)


def _near(mb: int, kc: int, tile: Tile, acc_bytes: int) -> bool:
    """Whether A, packed, stays in L2 while one panel of B after the other passes through L1. With
    AVX2 the products of (128, 784)(784, 512), (128, 512)(512, 512) take 0.93 of the time so, and
    those with K = 128 take 1.03."""
    return (tile.nr * acc_bytes <= 64 and 4 * tile.mr <= mb and kc * acc_bytes >= 1024
            and mb * kc * acc_bytes <= _KEPT_BYTES)


def compiled(
    key: tuple[str, ...], make: Callable[[], str], *, name: str, symbol: str = "gemm",
    parts: Sequence[Part] = (),
) -> int:
    """The address of a kernel made of products; its results are large, so the caching allocator
    comes with it.

    The text is written ready for the code generator: LLVM's optimisations find nothing that shows
    in the time of a product, and would double that of compiling.
    """
    alloc.install()
    links = {name: where for part in parts for name, where in _addresses(part).items()}
    module = llvm.compile_spec((*key, str(machine())), make, name=name, opt=0, links=links)
    return module.address(symbol)


@functools.cache
def _addresses(part: Part) -> dict[str, int]:
    """Where the functions of a part are."""
    module = llvm.compile_spec(("part", *part.key, str(machine())), lambda: part.text(machine()),
                               name=part.key[0], opt=0)
    return {symbol: module.address(symbol) for symbol in module.symbols}


@functools.cache
def kernel(spec: GemmSpec) -> Any:
    """Entry point of the module for a spec: `f(args, lo, hi)`, and its address."""
    text = (spec.a, spec.c, spec.acc, spec.bias, spec.activation,
            f"{spec.residual} {spec.pairs}")
    where = compiled(("gemm", *text), lambda: gemm_module(spec, machine()), name="gemm",
                     parts=product_parts(spec, machine()))
    proto = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return proto(where), where


def spec_for(
    dtype: np.dtype[Any],
    out: np.dtype[Any],
    bias: str = "",
    activation: str = "",
    residual: bool = False,
) -> GemmSpec | None:
    """The module for operand and output types; None if the generator does not know them."""
    a, c = FLOATS.get(dtype.name), FLOATS.get(out.name)
    if a is None or c is None or not dtype.isnative or not out.isnative:
        return None
    acc = "double" if a == "double" else "float"
    if c not in (a, acc):
        return None
    pairs = a == "i16" and machine().bits == 512 and "avx512bf16" in llvm.host_features()
    return GemmSpec(a, c, acc, bias, activation, residual, pairs)


class Plan:
    """A product of fixed shapes, strides and types, ready to run on any arrays that have them."""

    def __init__(
        self,
        spec: GemmSpec,
        dims: tuple[int, int, int],
        strides: tuple[tuple[int, int], tuple[int, int], int, int],
        offsets: Array,
        workers: int,
    ) -> None:
        m, n, k = dims
        (a_row, a_col), (b_row, b_col), c_row, residual_row = strides
        size = BYTES[spec.acc]
        tile = tile_for(machine(), spec.acc)
        beside = b_col == 1 and spec.a == spec.acc
        cut = blocking(m, n, k, len(offsets), tile, size, workers, beside, spec.c != spec.acc)
        self.function, self.address = kernel(spec)
        self.workers = cut.workers
        # plans are kept: in memory that is not NumPy's, where they would count as the user's
        self.offsets = (ctypes.c_int64 * offsets.size).from_buffer_copy(offsets.tobytes())
        parts_m, parts_n = -(-m // cut.mb), -(-n // cut.nb)
        nb = -(-min(cut.sweep, n) // tile.nr) * tile.nr
        b_bytes = -(-(tile.nr if cut.in_place else nb) * cut.kc * size // 64) * 64 + 128
        # the panels of A, and the vector that packing may write past the last one's end
        rows = -(-cut.mb // tile.mr) * tile.mr if cut.kept else tile.mr
        work_bytes = -(-(b_bytes + (rows * cut.kc + 4 * tile.lanes) * size) // 64) * 64 + 192
        self.work_bytes = work_bytes * self.workers
        values = dict(
            a_row=a_row, a_col=a_col, b_row=b_row, b_col=b_col, c_row=c_row, m=m, n=n, k=k,
            mb=cut.mb, nb=cut.nb, kc=cut.kc, sweep=cut.sweep, kept=int(cut.kept),
            in_place=int(cut.in_place), tasks_m=parts_m,
            tasks_n=parts_n, tasks=parts_m * parts_n * len(offsets), residual_row=residual_row,
            offsets=ctypes.addressof(self.offsets), work_bytes=work_bytes, b_bytes=b_bytes,
        )  # fmt: skip
        self.values = [values.get(name, 0) for name in ARGS]
        self.blocks: list[Any] = []

    def run(
        self, a: int, b: int, c: int, accumulate: bool = False, bias: int = 0, residual: int = 0
    ) -> None:
        """Compute with operands at these addresses."""
        buffer = workspace(self.work_bytes)
        try:
            block = self.blocks.pop()  # of an earlier call; no other thread has it
        except IndexError:
            block = _ArgBlock(*self.values)
        block[0], block[1], block[2] = a, b, c
        block[_WORK] = address(buffer)
        block[_SLOT] = block[_NEXT] = 0
        block[_ACCUMULATE] = accumulate
        block[_BIAS], block[_RESIDUAL] = bias, residual
        if self.workers == 1:
            self.function(ctypes.addressof(block), 0, 1)
        else:
            threads.parallel(self.address, ctypes.addressof(block), self.workers)
        self.blocks.append(block)
        release(buffer)
