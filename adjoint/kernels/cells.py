"""LSTM and GRU cells in one pass each way, and whole LSTM sequences, as generated code.

The expressions are those of `cells_numpy`. A step of a sequence is one product, which adds the
input's share on its way out, and one pass over the gates. Each thread takes some rows of the batch
through all steps (`cells_ir`); where that would have every thread read a large weight for few rows,
threads share each step's product instead.
"""
from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import cells_ir, cells_numpy, codegen, gemm, launch, llvm, rows, threads
from adjoint.kernels.cells_numpy import Cell, steps_of
from adjoint.kernels.codegen import Frame
from adjoint.kernels.expr import Expr
from adjoint.kernels.gemm_ir import GemmSpec, Tile, product_parts, tile_for
from adjoint.kernels.gemm_plan import address, compiled, depth_of, machine, release, workspace
from adjoint.kernels.ir import Value, vec
from adjoint.kernels.loops import Pointwise, geometry, pointwise

Array = NDArray[Any]
_LLVM = {"f": "float", "d": "double"}
_NEAR = 1 << 20         # bytes of a weight that a thread's own cache holds
_MOST = 96              # rows of a task: what a step writes of them is read while it is there


@functools.cache
def _kernels(cell: Cell) -> tuple[Pointwise | None, Pointwise | None]:
    return (pointwise(cell.name, cell.parts, list(cell.outs.values()), single=False),
            pointwise(cell.name + "_backward", cell.pulled_params, cell.pulled, single=False))


def _fits(cell: Cell, cts: Sequence[Array], arrays: Sequence[Array]) -> bool:
    """Whether all parts and cotangents have one shape."""
    if any(type(a) is not np.ndarray or a.ndim == 0 for a in (*cts, *arrays)):
        return False
    shapes = {(*a.shape[:-1], a.shape[-1] / len(parts))
              for a, parts in zip(arrays, cell.operands.values(), strict=True)}
    return len(shapes | {ct.shape for ct in cts}) == 1


def _forward(cell: Cell, arrays: Sequence[Array]) -> Any:
    kernel = _kernels(cell)[0]
    if kernel is None or not _fits(cell, (), arrays):
        return NotImplemented
    return kernel(*cell.split(arrays))


def _backward(cell: Cell, cts: Sequence[Array], arrays: Sequence[Array]) -> Any:
    kernel = _kernels(cell)[1]
    if kernel is None or not _fits(cell, cts, arrays):
        return NotImplemented
    outs = tuple(np.empty(a.shape, a.dtype) for a in arrays)
    done = kernel(*cts, *cell.split(arrays), out=cell.split(outs))
    return NotImplemented if done is NotImplemented else outs


def lstm_cell(gates: Array, c: Array) -> Any:
    """(h', c') of an LSTM cell from gates (..., 4H) and c (..., H), or NotImplemented.

    >>> r = lstm_cell(np.zeros((1, 8), np.float32), np.ones((1, 2), np.float32))
    >>> r is NotImplemented or r[1].tolist() == [[0.5, 0.5]]
    True
    """
    return _forward(cells_numpy.lstm_cell(), (gates, c))


def lstm_cell_backward(ch: Array, cc: Array, gates: Array, c: Array) -> Any:
    """(cotangent of gates (..., 4H), of c) from those of h' and c'; or NotImplemented."""
    return _backward(cells_numpy.lstm_cell(), (ch, cc), (gates, c))


def gru_cell(from_x: Array, from_h: Array, h: Array) -> Any:
    """(h',) of a GRU cell from products (..., 3H) with biases and h (..., H), or NotImplemented.

    >>> z = np.zeros((1, 3), np.float32)
    >>> r = gru_cell(z, z, np.ones((1, 1), np.float32))
    >>> r is NotImplemented or r[0].tolist() == [[0.5]]
    True
    """
    return _forward(cells_numpy.gru_cell(), (from_x, from_h, h))


def gru_cell_backward(ch: Array, from_x: Array, from_h: Array, h: Array) -> Any:
    """(cotangents of from_x, from_h, h) from that of h', or NotImplemented."""
    return _backward(cells_numpy.gru_cell(), (ch,), (from_x, from_h, h))


# -- sequences -------------------------------------------------------------------------------
class _Slices:
    """Addresses inside of one step of (T, N, ...) operands: the generator of a step's body."""

    def __init__(self, frame: Frame, kind: str) -> None:
        self.frame, self.f, self.kind = frame, frame.f, kind
        self.group, self.rows, self.width = (frame.geometry(i) for i in (1, 2, 3))
        self.n = codegen.width(kind)

    def row(self, array: int, t: Value, r: Value, parts: int = 1) -> list[Value]:
        """The parts of row `r` at time `t`."""
        start = (t * self.rows + r) * (self.width * parts)
        p = self.f.at(self.frame.array(array), self.kind, start)
        return [p, *(self.f.at(p, self.kind, self.width * k) for k in range(1, parts))]

    def run(self, exprs: Sequence[Expr], names: Sequence[str],
            place: Callable[[Value], tuple[list[Value], list[Value]]],
            before: Callable[[dict[str, Value]], None] = lambda env: None) -> None:
        """Evaluate `exprs` along every row; `place(r)` gives addresses of operands and results."""
        f, ty = self.f, vec(self.n, self.kind)

        def one(r: Value, _: list[Value]) -> list[Value]:
            sources, targets = place(r)

            def body(j: Value, mask: Value | None, _: list[Value]) -> list[Value]:
                env = {name: f.load(f.at(p, self.kind, j), ty, mask=mask)
                       for name, p in zip(names, sources, strict=True)}
                before(env)
                for v, p in zip(codegen.lower(f, exprs, env, ty), targets, strict=True):
                    f.store(v, f.at(p, self.kind, j), mask=mask)
                return []
            f.vector_loop(f.i64(0), self.width, self.n, [], body)
            return []

        def chunk(c: Value, _: list[Value]) -> list[Value]:
            start = c * self.group
            f.loop(start, f.intrinsic("smin", start + self.group, self.rows), 1, [], one)
            return []
        f.loop(self.frame.first, self.frame.end, 1, [], chunk)


def _emit_step(kind: str, frame: Frame) -> None:
    """sums, cells before, out, cells; integers: t, time of the cells before."""
    k, cell = _Slices(frame, kind), cells_numpy.lstm_cell()
    t, p = frame.integer(0), frame.integer(1)
    k.run(list(cell.outs.values()), cell.parts, lambda r: (
        [*k.row(0, t, r, 4), *k.row(1, p, r)], [*k.row(2, t, r), *k.row(3, t, r)]))


def _emit_step_backward(kind: str, frame: Frame) -> None:
    """ct of out, dh, dc (in place), sums, cells before, pulled; integers as above."""
    k, cell = _Slices(frame, kind), cells_numpy.lstm_cell()
    t, p, zero = frame.integer(0), frame.integer(1), k.f.i64(0)

    def place(r: Value) -> tuple[list[Value], list[Value]]:
        dc = k.row(2, zero, r)
        return ([*k.row(0, t, r), *dc, *k.row(3, t, r, 4), *k.row(4, p, r), *k.row(1, zero, r)],
                [*k.row(5, t, r, 4), *dc])

    def join(env: dict[str, Value]) -> None:
        env["ct_h"] = env["ct_h"] + env.pop("dh")
    k.run(cell.pulled, [*cell.pulled_params, "dh"], place, join)


class _Pass(NamedTuple):
    """The pass over the gates of a step: its entry in Python and its machine code."""

    entry: launch.Entry
    address: int


@functools.cache
@llvm.generating
def _passes(dtype: np.dtype[Any]) -> tuple[_Pass, _Pass] | None:
    """Those of a forward and of a backward step."""
    kinds = codegen.storage(dtype)
    if kinds is None or kinds[0] not in ("float", "double") or not gemm.generates():
        return None

    def made(name: str, emit: Any, arrays: int) -> _Pass:
        body = codegen.body(name, kinds, functools.partial(emit, kinds[0]), arrays, 2)
        return _Pass(launch.entry(name, body, arrays, 2, 0), body)
    return (made("lstm_step", _emit_step, 4),
            made("lstm_step_backward", _emit_step_backward, 6))


def _plain(*arrays: Array) -> bool:
    return rows.plain(*arrays) and len({a.dtype for a in arrays}) == 1 and all(
        a.size for a in arrays)


def lstm(gates: Array, h: Array, c: Array, weight: Array, *, reverse: bool = False) -> Any:
    """`cells_numpy.lstm`, or NotImplemented where strides or dtypes do not fit."""
    passes = _passes(gates.dtype) if _plain(gates, h, c, weight) else None
    if passes is None:
        return NotImplemented
    count, batch, width = *gates.shape[:2], c.shape[-1]
    sums = np.empty(gates.shape, gates.dtype)
    out, cells = (np.empty((count, batch, width), gates.dtype) for _ in range(2))
    order, operands = steps_of(count, reverse), [sums, c, out, cells]
    each = _rows_each(batch, weight, False)
    if each:
        _through(passes[0], order, operands, weight, each, dict(
            a=out, c=sums, residual=gates, start=h, earlier=cells, origin=c))
        return out, cells, sums
    # turned once: as it is, every step would turn it to read it
    turned = np.ascontiguousarray(weight.T) if count > 1 else weight.T
    product = gemm.prepared(h, turned, sums[0], residual=gates[0])
    if product is None:
        return NotImplemented
    words, run = rows.row_geometry(batch, width, 4 * gates.itemsize)[1], threads.entry()
    wide, narrow = sums[0].nbytes, h.nbytes
    at, to, source, left = (a.ctypes.data for a in (gates, sums, turned, h))
    base, before = out.ctypes.data, 0
    for t in order:
        product(left, source, to + t * wide, at + t * wide)
        passes[0].entry(run, words, *operands, t, before)
        left, before, operands[1] = base + t * narrow, t, cells
    return out, cells, sums


def lstm_backward(cts: Sequence[Array | None], out: Array, cells: Array, sums: Array, h: Array,
                  c: Array, weight: Array, *, reverse: bool = False) -> Any:
    """`cells_numpy.lstm_backward`, or NotImplemented where strides or dtypes do not fit."""
    if cts[0] is None or cts[1] is not None or cts[2] is not None:
        return NotImplemented
    passes = _passes(sums.dtype) if _plain(cts[0], out, cells, sums, h, c, weight) else None
    if passes is None:
        return NotImplemented
    pulled = np.empty(sums.shape, sums.dtype)
    dh, dc = np.zeros_like(c), np.zeros_like(c)
    order, operands = steps_of(len(out), reverse)[::-1], [cts[0], dh, dc, sums, cells, pulled]
    each = _rows_each(len(c), weight, True)
    if each:
        _through(passes[1], order, operands, weight, each,
                 dict(a=pulled, c=dh, earlier=cells, origin=c))
    elif not _backward_by_step(passes[1], order, operands, c, weight):
        return NotImplemented
    return pulled, dh, dc, cells_numpy.weight_cotangent(pulled, out, h, reverse, gemm.matmul)


def _backward_by_step(one: _Pass, order: range, operands: list[Array], c: Array, weight: Array
                      ) -> bool:
    """Threads share the pass and the product of every step; False without generated products."""
    dh, pulled = operands[1], operands[5]
    product = gemm.prepared(pulled[0], weight, dh)
    if product is None:
        return False
    words, run = rows.row_geometry(*c.shape, 4 * c.itemsize)[1], threads.entry()
    at, source, to = (a.ctypes.data for a in (pulled, weight, dh))
    for t in order:
        last = t == order[-1]
        if last:
            operands[4] = c
        one.entry(run, words, *operands, t, 0 if last else t + order.step)
        product(at + t * pulled[0].nbytes, source, to, 0)
    return True


# -- all steps in one call -------------------------------------------------------------------
def _tile(weight: Array) -> Tile:
    return tile_for(machine(), _LLVM[weight.dtype.char])


def _rows_each(batch: int, weight: Array, backward: bool) -> int:
    """How many rows a task takes through all steps; 0 where sharing every step's product is
    faster (few rows of a weight that each thread would have to read from far away), or where the
    function of all steps cannot be had."""
    workers, tile = threads.get_num_threads(), _tile(weight)
    share = -(-batch // workers)
    if workers > 1 and weight.nbytes > _NEAR and share < tile.mr:
        return 0
    if _sequence(_LLVM[weight.dtype.char], backward) is None:
        return 0
    share = -(-batch // (workers * -(-share // _MOST)))
    return -(-share // tile.heights[-1]) * tile.heights[-1]


@functools.cache
@llvm.generating
def _sequence(kind: str, backward: bool) -> int | None:
    """The address of the function of all steps."""
    spec = GemmSpec(kind, kind, kind, residual=not backward)
    return compiled(("lstm", kind, str(backward)),
                    lambda: cells_ir.sequence_module(spec, machine(), backward),
                    name="lstm", parts=product_parts(spec, machine()))


def _through(one: _Pass, order: range, operands: Sequence[Array], weight: Array, each: int,
             arrays: dict[str, Array]) -> None:
    """All steps in one call, `each` rows a task; `arrays` are those that `cells_ir` names."""
    tile, size, c = _tile(weight), weight.itemsize, arrays["origin"]
    backward = "start" not in arrays
    (batch, width), tasks = c.shape, -(-len(c) // each)
    n, k = (width, 4 * width) if backward else (4 * width, width)
    kc = depth_of(k, size)
    nb = max(1, _NEAR // 2 // (kc * size * tile.nr)) * tile.nr
    words = geometry([tasks, each, batch, width])
    slots = launch.words_of([words[1], *(address(x) for x in operands), 0, 0])
    packed = (-(-n // tile.nr) * tile.nr * k * size + 128 + 63) & -64
    work = (packed + (tile.mr * kc + 4 * tile.lanes) * size + 192) & -64
    workers = min(threads.get_num_threads(), tasks)
    buffer = workspace(work * workers)
    values = dict(
        {name: address(x) for name, x in arrays.items()}, b=address(weight),
        b_row=width if backward else 1, b_col=1 if backward else width, m=batch, n=n, k=k,
        mb=each, nb=nb, kc=kc, tasks=tasks, work=address(buffer), work_bytes=work,
        b_bytes=packed, steps=len(order), first=order[0], stride=order.step,
        cell=one.address, operands=ctypes.addressof(slots))
    block = launch.words_of([values.get(name, 0) for name in cells_ir.SEQUENCE])
    program = _sequence(_LLVM[weight.dtype.char], backward)
    assert program is not None          # `_rows_each` has asked
    threads.parallel(program, ctypes.addressof(block), workers)
    release(buffer)
