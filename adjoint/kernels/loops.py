"""Pointwise kernels: any expressions over strided, broadcasting operands, in one pass.

`pointwise("gelu", ["x"], [expr])` returns a function with the call signature of
`expr.compile_numpy`'s result. A call picks (or builds) the kernel for the dtypes and the layout of
its operands: axes of size 1 go, neighbouring axes that every operand walks through evenly become
one, and what remains is a nest of at most seven outer axes around rows that are contiguous,
constant or strided per operand. The layout is worked out once per combination of shapes and
strides.
"""
from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, launch, llvm, threads
from adjoint.kernels.codegen import BOOL, Frame
from adjoint.kernels.expr import Expr, call, var, where_
from adjoint.kernels.ir import Function, Value, vec
from adjoint.kernels.order import broadcast_strides, empty, walking_order

Array = NDArray[Any]
_BLOCK = 16384          # elements of a chunk
_HELD = 4               # chunks that run without giving the GIL back: tens of microseconds at most
_LINE = 256             # elements that a row needs for its stores to go around the cache
_TOGETHER = 2           # vectors a turn of approximated functions of large arrays
_MAX_OUTER = 7
_TILE = 64              # operations on vectors that a tile's text may have
_TURNED = 16            # a multiple of the rows of every tile
_MAX_PLANS = 4096


class Layout(NamedTuple):
    """Where the operands of a pointwise kernel lie: outer axes, and one row.

    `outer` are the sizes of the outer axes, `inner` the length of a row; `strides[k]` holds the
    bytes per step of operand k along the outer axes and then along the row.
    """

    outer: tuple[int, ...]
    inner: int
    strides: tuple[tuple[int, ...], ...]

    def modes(self, itemsizes: Sequence[int]) -> str:
        """Per operand: "c" contiguous row, "s" constant along it, "g" strided."""
        return "".join("s" if s[-1] == 0 else "c" if s[-1] == size else "g"
                       for s, size in zip(self.strides, itemsizes, strict=True))


def layout(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> Layout:
    """Drop axes of size 1 and merge axes that all operands walk through evenly.

    >>> layout((4, 1, 5), [(20, 99, 4), (0, 0, 0)])
    Layout(outer=(), inner=20, strides=((4,), (0,)))
    """
    dims: list[int] = []
    steps: list[tuple[int, ...]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        step = tuple(s[axis] for s in strides)
        if dims and all(a == b * size for a, b in zip(steps[-1], step, strict=True)):
            dims[-1] *= size
            steps[-1] = step
        else:
            dims.append(size)
            steps.append(step)
    if not dims:
        return Layout((), 1, tuple((0,) for _ in strides))
    by_operand = tuple(zip(*steps, strict=True)) if strides else ()
    return Layout(tuple(dims[:-1]), dims[-1], by_operand)


def geometry(words: Sequence[int]) -> tuple[Any, int]:
    """The words in memory, and its address (valid while it lives)."""
    memory = launch.words_of(words)
    return memory, ctypes.addressof(memory)


class _Plan(NamedTuple):
    entry: launch.Entry
    body: int                        # address of the kernel
    words: Any
    address: int
    shape: tuple[int, ...]
    order: tuple[int, ...] | None    # axes from slowest to fastest; None = C order
    dtypes: tuple[np.dtype[Any], ...]
    bare: bool                       # no operand but arrays


class Pointwise:
    """Expressions of arrays, computed in one pass; see `pointwise`."""

    def __init__(self, name: str, params: Sequence[str], exprs: Sequence[Expr],
                 keyword: Sequence[str], single: bool, table: launch.Table | None,
                 returns: Sequence[int], near: int) -> None:
        self._near = near
        self._table, self._returns = table, None if single else tuple(returns)
        self.name, self.params, self.exprs = name, tuple(params), tuple(exprs)
        self.keyword, self.single = tuple(keyword), single
        self.minimum = max(64, 16384 // max(1, codegen.weight(exprs)) ** 2)
        self._text = codegen.text_of(exprs)
        self._truths = _truth_valued(exprs)
        self._plans: dict[Any, _Plan | None] = {}
        self.__name__ = name

    def __call__(self, *args: Any, out: Sequence[Array | None] | None = None, **attrs: Any) -> Any:
        """The values, in new arrays or in those of `out` (one per expression, None for a new one;
        they may be operands, and views whose innermost axis is contiguous)."""
        key = tuple([(a.shape, a.strides, a.dtype) if type(a) is np.ndarray else type(a)
                     for a in (args if out is None else (*args, None, *out))])
        try:
            plan = self._plans[key]
        except KeyError:
            plan = self._remember(key, args, out)
        if plan is None:
            return NotImplemented
        if out is None:
            outs = [empty(plan.shape, plan.order, d) for d in plan.dtypes]
        else:
            outs = []
            for o, d in zip(out, plan.dtypes, strict=True):
                if o is None:
                    o = empty(plan.shape, plan.order, d)
                elif not o.flags.writeable:
                    return NotImplemented
                outs.append(o)
        if plan.bare:
            plan.entry(threads.light_entry(), plan.address, *args, *outs)
        else:
            scalars = [a for a in args if type(a) is not np.ndarray]
            scalars += [attrs[k] for k in self.keyword]
            plan.entry(threads.light_entry(), plan.address,
                       *[a for a in args if type(a) is np.ndarray], *outs, *scalars)
        return outs[0] if self.single else tuple(outs)

    def _remember(self, key: Any, args: Sequence[Any],
                  out: Sequence[Array | None] | None) -> _Plan | None:
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        plan = self._plans[key] = self._make(args, out)
        if (self._table is not None and out is None and plan is not None and plan.order is None
                and plan.words[0] <= _HELD and all(type(a) is np.ndarray for a in args)):
            self._table.add(args, plan.shape, plan.dtypes, self._returns, plan.address, plan.body,
                            plan.words)
        return plan

    @llvm.generating
    def _make(self, args: Sequence[Any], out: Sequence[Array | None] | None) -> _Plan | None:
        arrays = [a for a in args if type(a) is np.ndarray]
        if not arrays or any(type(a) not in (np.ndarray, int, float, bool) for a in args):
            return None
        floats = {a.dtype for a in arrays if a.dtype != BOOL}
        if len(floats) != 1 or codegen.storage(next(iter(floats))) is None:
            return None
        dtype = floats.pop()
        if any(not a.dtype.isnative or not a.flags.aligned for a in arrays):
            return None
        try:
            shape = np.broadcast_shapes(*(a.shape for a in arrays))
        except ValueError:
            return None
        if any(s == 0 for s in shape):
            return None
        dtypes = tuple(BOOL if t else dtype for t in self._truths)
        outs = [None] * len(dtypes) if out is None else out
        if len(outs) != len(dtypes) or any(
                o is not None and (type(o) is not np.ndarray or o.shape != shape or o.dtype != d
                                   or not o.flags.behaved)
                for o, d in zip(outs, dtypes, strict=True)):
            return None
        return self._fit(args, arrays, outs, shape, dtype, dtypes)

    def _fit(self, args: Sequence[Any], arrays: list[Array], outs: Sequence[Array | None],
             shape: tuple[int, ...], dtype: np.dtype[Any],
             dtypes: tuple[np.dtype[Any], ...]) -> _Plan | None:
        order = walking_order([o for o in outs if o is not None] or arrays, shape)
        axes = order if order is not None else tuple(range(len(shape)))
        walked = tuple(shape[i] for i in axes)
        strides = [tuple(broadcast_strides(a, shape)[i] for i in axes) for a in arrays]
        strides += [_dense(walked, d.itemsize) if o is None else tuple(o.strides[i] for i in axes)
                    for o, d in zip(outs, dtypes, strict=True)]
        lay = layout(walked, strides)
        sizes = [a.dtype.itemsize for a in arrays] + [d.itemsize for d in dtypes]
        if len(lay.outer) > _MAX_OUTER or (
                lay.inner > 1 and set(lay.modes(sizes)[len(arrays):]) != {"c"}):
            return None
        entry, body = self._kernel(args, arrays, outs, lay, sizes, dtypes, dtype, shape)
        words, address = geometry(_words(lay))
        return _Plan(entry, body, words, address, shape, order, dtypes,
                     len(arrays) == len(args) and not self.keyword)

    def _kernel(self, args: Sequence[Any], arrays: list[Array], outs: Sequence[Any], lay: Layout,
                sizes: Sequence[int], dtypes: Sequence[np.dtype[Any]], dtype: np.dtype[Any],
                shape: tuple[int, ...]) -> tuple[launch.Entry, int]:
        stored = [codegen.storage(d) or ("", "")
                  for d in (*(a.dtype for a in arrays), *dtypes)]
        modes = _tiled(lay, lay.modes(sizes), stored, sizes, self.exprs)
        names = [p for p, a in zip(self.params, args, strict=True) if type(a) is np.ndarray]
        scalars = [p for p, a in zip(self.params, args, strict=True) if type(a) is not np.ndarray]
        scalars += self.keyword
        size = int(np.prod(shape, dtype=np.int64))
        big = lay.inner >= _LINE and "t" not in modes and codegen.streams(size * dtype.itemsize)
        near = self._near if size * dtype.itemsize < llvm.cache_bytes() else 0
        around = tuple(big and o is None and i >= near for i, o in enumerate(outs))
        together = _TOGETHER if size > 2 * _BLOCK and codegen.pairs(self.exprs) else 1
        job = _Job(self.exprs, names, scalars, [s[0] for s in stored], modes, len(lay.outer),
                   (codegen.storage(dtype) or ("", ""))[1], around, together)
        spec = (self._text, ",".join([*names, "|", *scalars]), repr(job[2:]))
        name = f"pointwise.{self.name}"
        body = codegen.body(name, spec, job.emit, len(stored))
        return launch.entry(name, body, len(stored), 0, len(scalars)), body


def pointwise(name: str, params: Sequence[str], exprs: Sequence[Expr], *,
              keyword: Sequence[str] = (), single: bool = True, table: launch.Table | None = None,
              returns: Sequence[int] = (), near: int = 0) -> Pointwise | None:
    """A function of arrays that computes all `exprs` in one pass over memory.

    It is called like the result of `expr.compile_numpy`: operands (arrays of one float dtype,
    bool arrays for conditions, Python numbers) by position, attributes by keyword; it returns
    an array (a tuple where `single` is False), or NotImplemented where it does not do the
    dtypes or the layout: then NumPy has to. `minimum` is the number of elements from which on
    it beats NumPy. None is returned where an expression has no generated code. Layouts of a
    few chunks of work are added to `table`, whose call then returns the results of the numbers
    `returns` (-1: None). The first `near` results will be read soon: they are not written around
    the cache where one fits.

    >>> from adjoint.kernels.expr import trace, exp_
    >>> f = pointwise("f", ["x"], [trace(lambda x: exp_(-(x * x)))])
    >>> if llvm.available():
    ...     y = f(np.zeros((2, 3), np.float32))
    ...     assert y.shape == (2, 3) and (y == 1).all()
    """
    if not llvm.available() or not codegen.can_lower(exprs):
        return None
    return Pointwise(name, params, exprs, keyword, single, table,
                     returns or range(len(exprs)), near)


@functools.cache
def _sum() -> Pointwise | None:
    return pointwise("add", ["a", "b"], [var("a") + var("b")])


def plus(a: Array, b: Array, out: Array | None = None) -> Any:
    """a + b of two large arrays, stored in `out` if given; NotImplemented where NumPy has to."""
    kernel = _sum()
    if kernel is None:
        return NotImplemented
    return kernel(a, b) if out is None else kernel(a, b, out=(out,))


_MOVED = {np.dtype(np.int64): np.dtype(np.float64), np.dtype(np.int32): np.dtype(np.float32)}


@functools.cache
def _choice() -> Pointwise | None:
    return pointwise("where", ["c", "a", "b"], [where_(var("c"), var("a"), var("b"))])


def where(c: Array, a: Array, b: Array, out: Array | None = None) -> Any:
    """`a` where `c` holds, else `b`, stored in `out` if given; NotImplemented where NumPy has to.
    Whole numbers travel as floats of their width: nothing is computed."""
    kernel = _choice()
    if kernel is None or c.dtype is not BOOL or a.dtype is not b.dtype:
        return NotImplemented
    moved = _MOVED.get(a.dtype)
    if moved is None:
        return kernel(c, a, b, out=None if out is None else (out,))
    if out is not None:
        return NotImplemented
    made = kernel(c, a.view(moved), b.view(moved))
    return made if made is NotImplemented else made.view(a.dtype)


@functools.cache
def _next() -> Pointwise | None:
    return pointwise("nextafter", ["a", "b"], [call("nextafter", var("a"), var("b"))])


def nextafter(a: Array, b: Array) -> Any:
    """The float after a towards b; NotImplemented where NumPy has to: numbers of 16 bits are wider
    while they are computed."""
    kernel = _next()
    if kernel is None or a.dtype is not b.dtype or a.dtype.itemsize == 2:
        return NotImplemented
    return kernel(a, b)


def _truth_valued(exprs: Sequence[Expr]) -> tuple[bool, ...]:
    truth = frozenset("lt le gt ge eq ne and or not isnan".split())
    return tuple(e.fn in truth or isinstance(e.value, bool) for e in exprs)


def _dense(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    out = []
    for size in reversed(shape):
        out.append(itemsize)
        itemsize *= size
    return tuple(reversed(out))


def _tiled(lay: Layout, modes: str, stored: Sequence[tuple[str, str]], sizes: Sequence[int],
           exprs: Sequence[Expr]) -> str:
    """The modes with "t" for an operand that lies contiguous across the rows, if tiles of it are to
    be turned in registers: gathered, each of its elements is a load of its own, and where rows are
    long its lines have left the cache before the next row needs them."""
    for k in range(len(sizes) - len(exprs)):
        kind, register = stored[k]
        if modes[k] == "g" and kind == register and lay.outer and lay.strides[k][-2] == sizes[k]:
            n = codegen.width(register)
            if lay.outer[-1] >= n <= lay.inner and n * codegen.weight(exprs) <= _TILE:
                return modes[:k] + "t" + modes[k + 1:]
    return modes


def _words(lay: Layout) -> list[int]:
    """[chunks, blocks per row, block, rows per chunk, rows, inner, outer..., strides...]."""
    rows = int(np.prod(lay.outer, dtype=np.int64))
    blocks = max(1, -(-lay.inner // _BLOCK)) if rows * lay.inner > 2 * _BLOCK else 1
    if lay.inner <= 2 * _BLOCK and rows > 1:
        blocks = 1
    block = -(-lay.inner // blocks)
    block = -(-block // 64) * 64 if blocks > 1 else lay.inner
    blocks = max(1, -(-lay.inner // max(1, block)))
    group = 1 if blocks > 1 else max(1, min(rows, _BLOCK // max(1, lay.inner)))
    if any([len(s) > 1 and abs(s[-1]) > abs(s[-2]) > 0 for s in lay.strides]):
        group = -(-group // _TURNED) * _TURNED       # whole tiles
    chunks = blocks * -(-rows // group)
    if rows * lay.inner <= 2 * _BLOCK:
        group, chunks = rows, 1
    return [chunks, blocks, block, group, rows, lay.inner, *lay.outer,
            *(s for operand in lay.strides for s in operand)]


class _Job(NamedTuple):
    """Everything that determines the text of a pointwise kernel."""

    exprs: tuple[Expr, ...]
    names: Sequence[str]
    scalars: Sequence[str]
    stored: Sequence[str]
    modes: str
    outer: int
    register: str
    around: tuple[bool, ...]         # the results that are written around the cache
    together: int                    # vectors that are computed on in turns

    def emit(self, frame: Frame) -> None:
        f = frame.f
        outer = self.outer
        dims = [frame.geometry(6 + i) for i in range(outer)]
        base = 6 + outer
        steps = [[frame.geometry(base + k * (outer + 1) + i) for i in range(outer + 1)]
                 for k in range(len(self.stored))]
        pointers = [frame.array(k) for k in range(len(self.stored))]
        _, blocks, block, group, rows, inner = (frame.geometry(i) for i in range(6))
        n = codegen.width(self.register)
        env = {wide: {name: f.splat(frame.real(i, self.register), wide)
                      for i, name in enumerate(self.scalars)} for wide in {n, n * self.together}}

        def rows_of(above: Value, i0: Value, i1: Value, j0: Value, j1: Value) -> None:
            """Rows i0 to i1 - 1 along the innermost outer axis."""
            starts = [f.at(p, "i8", _offset(f, above, dims[:-1], s[:-2])) if outer > 1 else p
                      for p, s in zip(pointers, steps, strict=True)]

            self._rows(f, starts, steps, env, (i0, i1, j0, j1), n)

        def chunk(c: Value, _: list[Value]) -> list[Value]:
            if outer < 1:
                j0 = c * block
                rows_of(f.i64(0), f.i64(0), f.i64(1), j0, f.intrinsic("smin", j0 + block, inner))
                return []
            part = c / blocks
            j0 = (c - part * blocks) * block
            j1 = f.intrinsic("smin", j0 + block, inner)
            r0 = part * group
            r1 = f.intrinsic("smin", r0 + group, rows)
            if outer < 2:
                rows_of(f.i64(0), r0, r1, j0, j1)
                return []
            d = dims[-1]                     # a division per turn of that axis, not per row

            def turn(a: Value, _: list[Value]) -> list[Value]:
                first = a * d
                rows_of(a, f.intrinsic("smax", r0 - first, f.i64(0)),
                        f.intrinsic("smin", r1 - first, d), j0, j1)
                return []
            f.loop(r0 / d, (r1 + d - 1) / d, 1, [], turn)
            return []

        f.loop(frame.first, frame.end, 1, [], chunk)
        if any(self.around):
            codegen.fence(f)

    def _rows(self, f: Function, starts: list[Value], steps: list[list[Value]],
              env: dict[int, dict[str, Value]], span: tuple[Value, Value, Value, Value], n: int
              ) -> None:
        """Rows i0 to i1 - 1, of each the columns j0 to j1 - 1."""
        i0, i1, j0, j1 = span

        def from_column(first: Value) -> Callable[[Value, list[Value]], list[Value]]:
            def one(i: Value, _: list[Value]) -> list[Value]:
                here = [f.at(p, "i8", i * s[-2]) if self.outer else p
                        for p, s in zip(starts, steps, strict=True)]
                self._row(f, here, [s[-1] for s in steps],
                          {wide: dict(values) for wide, values in env.items()}, first, j1, n)
                return []
            return one

        if "t" in self.modes:
            whole = i0 + (i1 - i0) / n * n
            middle = j0 + (j1 - j0) / n * n

            def tiles(i: Value, _: list[Value]) -> list[Value]:
                rows = [[f.at(p, "i8", (i + r) * s[-2])
                         for p, s in zip(starts, steps, strict=True)] for r in range(n)]
                self._tiles(f, rows, [s[-1] for s in steps], env[n], j0, middle, n)
                return []
            f.loop(i0, whole, n, [], tiles)
            f.loop(i0, whole, 1, [], from_column(middle))
            i0 = whole
        f.loop(i0, i1, 1, [], from_column(j0))

    def _row(self, f: Function, starts: list[Value], steps: list[Value],
             env: dict[int, dict[str, Value]], j0: Value, j1: Value, n: int) -> None:
        """Columns j0 to j1 - 1; `env` has the constants along the row by the lanes they fill."""
        inputs = len(self.names)
        for k, name in enumerate(self.names):
            if self.modes[k] == "s":
                one = codegen.load_scalar(f, starts[k], self.stored[k])
                for wide, values in env.items():
                    values[name] = f.splat(one, wide)

        def body(j: Value, mask: Value | None, stream: bool, wide: int) -> None:
            values = self._values(f, starts, steps, env[wide], j, j1, mask, wide)
            for k, (v, around) in enumerate(zip(values, self.around, strict=True), inputs):
                v = f.splat(v, wide) if v.ty in ("i1", self.register) else v
                codegen.store(f, v, f.at(starts[k], self.stored[k], j), self.stored[k],
                              mask=mask, stream=stream and around)

        streamed = [p for p, around in zip(starts[inputs:], self.around, strict=True) if around]
        codegen.streaming_loop(f, j0, j1, n, streamed, body, self.together)

    def _tiles(self, f: Function, rows: list[list[Value]], steps: list[Value],
               env: dict[str, Value], j0: Value, j1: Value, n: int) -> None:
        """Columns j0 to j1 - 1, whole vectors, of n rows: what lies across them is read n columns
        at a time, down these, and turned."""
        inputs, k = len(self.names), self.modes.index("t")
        constant = [{name: f.splat(codegen.load_scalar(f, row[i], self.stored[i]), n)
                     for i, name in enumerate(self.names) if self.modes[i] == "s"} for row in rows]

        def tile(j: Value, _: list[Value]) -> list[Value]:
            columns = [codegen.load(f, f.at(rows[0][k], "i8", (j + c) * steps[k]), self.stored[k],
                                    n) for c in range(n)]
            for row, fixed, turned in zip(rows, constant, codegen.turned(f, columns), strict=True):
                values = self._values(f, row, steps, {**env, **fixed, self.names[k]: turned}, j,
                                      j1, None, n)
                for i, v in enumerate(values, inputs):
                    v = f.splat(v, n) if v.ty in ("i1", self.register) else v
                    codegen.store(f, v, f.at(row[i], self.stored[i], j), self.stored[i])
            return []
        f.loop(j0, j1, n, [], tile)

    def _values(self, f: Function, starts: list[Value], steps: list[Value],
                env: dict[str, Value], j: Value, end: Value, mask: Value | None,
                n: int) -> list[Value]:
        """The expressions at columns j to j + n - 1."""
        here = dict(env)
        for k, name in enumerate(self.names):
            kind = self.stored[k]
            if self.modes[k] == "c":
                here[name] = codegen.load(f, f.at(starts[k], kind, j), kind, n, mask=mask)
            elif self.modes[k] in "gt" and name not in here:
                p = f.at(starts[k], "i8", j * steps[k])
                here[name] = codegen.gather(f, p, kind, n, steps[k],
                                             None if mask is None else end - j)
        return codegen.lower(f, self.exprs, here, vec(n, self.register))


def _offset(f: Function, r: Value, dims: list[Value], steps: list[Value]) -> Value:
    """Bytes from the first element to row `r` of the outer axes."""
    total = f.i64(0)
    for axis in range(len(dims) - 1, 0, -1):
        above = r / dims[axis]
        total = total + (r - above * dims[axis]) * steps[axis]
        r = above
    return total + r * steps[0]
