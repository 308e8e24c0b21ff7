"""Reductions of expressions over any axes: sum, mean, max, min, product, in one pass.

After layout has merged axes, what remains alternates between kept (K) and reduced (R) axes. The
row form reduces along the innermost axis with vector accumulators; the column form keeps the
innermost axis and walks down it, and also takes short rows, the elements of whose columns lie
apart. Either way a chunk owns a segment of the reduced range and writes one partial result, and the
partial results are joined in order, so the result depends on the shape and not on the threads.

Accuracy: sums of float32 (half, bfloat16) accumulate in float64; sums of float64 along rows run
over independent partial sums that are folded every 2048 elements into a compensated total
(Neumaier, ZAMM 54, 1974). Down columns, eight rows are added pairwise first. max and min keep a
nan.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
from adjoint.kernels.codegen import BOOL, Frame
from adjoint.kernels.expr import Expr, abs_, trace, var
from adjoint.kernels.ir import Function, Value, element, vec
from adjoint.kernels.loops import geometry
from adjoint.kernels.order import broadcast_strides

Array = NDArray[Any]
_SEGMENT = 1 << 15           # elements that a chunk reduces
_BLOCK = 2048                # elements between foldings of a float64 row sum
_COLUMNS = 1024              # columns of a chunk of the column form
_SHORT = 12                  # elements of a row, of which beginning and ending it is most
_TOGETHER = 8                # rows that the column form joins at once
_IDENTITY = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf}
_UFUNC: dict[str, np.ufunc] = {"add": np.add, "mean": np.add, "mul": np.multiply,
                              "max": np.maximum, "min": np.minimum}
_MAX_PLANS = 4096


class _Plan(NamedTuple):
    entry: Callable[..., None]
    words: Any
    address: int
    partial: tuple[int, ...]      # shape of the partial results: (segments, kept...)
    kept: tuple[int, ...]
    shape: tuple[int, ...]
    shape_keep: tuple[int, ...]
    dtype: np.dtype[Any]
    wide: np.dtype[Any]
    size: int


class Reduce:
    """Joined expressions of arrays; see `reduction`."""

    def __init__(self, name: str, params: Sequence[str], exprs: Sequence[Expr],
                 how: Sequence[str], keyword: Sequence[str]) -> None:
        self.name, self.params, self.exprs = name, tuple(params), tuple(exprs)
        self.how, self.keyword = tuple(how), tuple(keyword)
        self.minimum = 4096
        self._text = codegen.text_of(exprs)
        self._plans: dict[Any, _Plan | None] = {}

    def __call__(self, *args: Any, axis: int | tuple[int, ...] | None = None,
                 keepdims: bool = False, wide: bool = False, **attrs: Any) -> Any:
        """The reductions over `axis` (all axes where None), as a tuple of arrays; `wide` leaves
        them in float64, in which they were accumulated."""
        key = (axis, *[(a.shape, a.strides, a.dtype) if type(a) is np.ndarray else type(a)
                       for a in args])
        try:
            plan = self._plans[key]
        except KeyError:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._make(args, axis)
        if plan is None:
            return NotImplemented
        outs = [np.empty(plan.partial, plan.wide) for _ in self.exprs]
        plan.entry(threads.entry(), plan.address, *args, *outs,
                   *([attrs[k] for k in self.keyword] if attrs else ()))
        shape = plan.shape_keep if keepdims else plan.shape
        dtype = plan.wide if wide else plan.dtype
        results = []
        for how, total in zip(self.how, outs, strict=True):
            if plan.partial[0] != 1:
                total = _UFUNC[how].reduce(total, 0)
            if how == "mean":
                total = total / plan.size
            if total.dtype is not dtype:
                total = total.astype(dtype)
            results.append(total if total.shape == shape else total.reshape(shape))
        return tuple(results)

    @llvm.generating
    def _make(self, args: Sequence[Any], axis: int | tuple[int, ...] | None) -> _Plan | None:
        if not args or any(type(a) is not np.ndarray for a in args):
            return None
        floats = {a.dtype for a in args if a.dtype != BOOL}
        if len(floats) != 1 or any(not a.flags.aligned or not a.dtype.isnative for a in args):
            return None
        dtype = floats.pop()
        kinds = codegen.storage(dtype)
        try:
            shape = np.broadcast_shapes(*(a.shape for a in args))
        except ValueError:
            return None
        axes = _axes(axis, len(shape))
        if kinds is None or axes is None or 0 in shape:
            return None
        form = form_of(shape, axes, [broadcast_strides(a, shape) for a in args])
        if form is None:
            return None
        return self._build(args, form, dtype, kinds[1], shape, axes)

    def _build(self, args: Sequence[Any], form: Form, dtype: np.dtype[Any], register: str,
               shape: tuple[int, ...], axes: frozenset[int]) -> _Plan:
        stored = [(codegen.storage(a.dtype) or ("", ""))[0] for a in args]
        modes = "".join("s" if s[-1] == 0 else "c" if s[-1] == a.itemsize else "g"
                        for s, a in zip(form.strides, args, strict=True))
        job = Job(self.exprs, self.how, self.params, self.keyword, stored, modes,
                   len(form.kept), len(form.reduced), form.by_row, register)
        entry = codegen.build(f"reduce.{self.name}", (self._text, repr(job[1:])), job.emit,
                              arrays=len(args) + len(self.exprs), reals=len(self.keyword))
        wide = np.dtype(np.float64)
        words, address = geometry(words_of(form))
        segments = int(words[1])
        kept = tuple(n for i, n in enumerate(shape) if i not in axes)
        keep = tuple(1 if i in axes else n for i, n in enumerate(shape))
        count = int(np.prod([n for i, n in enumerate(shape) if i in axes], dtype=np.int64))
        return _Plan(entry, words, address, (segments, _product(form.kept)), kept, kept, keep,
                     dtype, wide, count)


class Form(NamedTuple):
    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]     # per operand: kept..., reduced..., innermost again
    by_row: bool


def _product(values: Sequence[int]) -> int:
    out = 1
    for v in values:
        out *= v
    return out


def _axes(axis: int | tuple[int, ...] | None, ndim: int) -> frozenset[int] | None:
    if axis is None:
        return frozenset(range(ndim))
    chosen = axis if isinstance(axis, tuple) else (axis,)
    if any(not -ndim <= a < ndim for a in chosen):
        return None
    return frozenset(a % ndim for a in chosen)


def form_of(shape: tuple[int, ...], axes: frozenset[int],
          strides: Sequence[tuple[int, ...]]) -> Form | None:
    """Merge neighbouring axes of one kind; the innermost axis decides the form."""
    order = sorted(range(len(shape)), key=lambda i: -abs(strides[0][i]) if shape[i] > 1 else 0)
    if any(s == 0 for s in strides[0]) or len(strides) > 1:
        order = list(range(len(shape)))
    merged: list[tuple[bool, int, tuple[int, ...]]] = []
    for i in order:
        if shape[i] == 1:
            continue
        step = tuple(s[i] for s in strides)
        if merged and merged[-1][0] == (i in axes) and _even(merged[-1][2], step, shape[i]):
            merged[-1] = (i in axes, merged[-1][1] * shape[i], step)
        else:
            merged.append((i in axes, shape[i], step))
    in_order = [i for i in order if i not in axes and shape[i] > 1]
    if in_order != sorted(in_order) or not merged:
        return None
    if len(merged) > 1 and merged[-1][0] and merged[-1][1] <= _SHORT < merged[-2][1]:
        merged[-2:] = merged[:-3:-1]       # short rows: down the columns, whatever the steps
    kept = [m for m in merged if not m[0]]
    reduced = [m for m in merged if m[0]]
    if not reduced or len(kept) > 3 or len(reduced) > 3:
        return None
    by_row = merged[-1][0]
    steps = [m[2] for m in (*kept, *reduced, merged[-1])]
    return Form(tuple(m[1] for m in kept), tuple(m[1] for m in reduced),
                 tuple(zip(*steps, strict=True)), by_row)


def _even(outer: tuple[int, ...], inner: tuple[int, ...], size: int) -> bool:
    return all(a == b * size for a, b in zip(outer, inner, strict=True))


def words_of(form: Form) -> list[int]:
    """[chunks, segments, blocks, rows per segment, rows, inner segment, inner, kept count, ...].

    Row form: rows are the outer reduced axes, a segment is a range of them, or, where there are
    none, a range of the innermost axis. Column form: the same over all reduced axes, and blocks
    of columns.
    """
    inner = form.reduced[-1] if form.by_row else form.kept[-1]
    outer = form.reduced[:-1] if form.by_row else form.reduced
    rows = _product(outer)
    kept = _product(form.kept if form.by_row else form.kept[:-1])
    segments, part, step = 1, rows, inner
    if form.by_row and rows * inner > _SEGMENT and kept < 64:
        if rows > 1:
            part = max(1, _SEGMENT // inner, -(-rows // 256))
            segments = -(-rows // part)
        else:
            step = max(_SEGMENT, -(-inner // 4096 // 64) * 64)
            segments = -(-inner // step)
    blocks = 1
    if not form.by_row:
        blocks = -(-inner // _COLUMNS)
        if rows * min(inner, _COLUMNS) > 2 * _SEGMENT and kept * blocks < 64:   # (joining costs)
            part = max(_SEGMENT // min(inner, _COLUMNS), -(-rows // 32))
            segments = -(-rows // part)
    small = kept * rows * inner <= _SEGMENT
    group = kept if small else max(1, _SEGMENT // (max(1, rows) * inner)) if segments == 1 else 1
    if not form.by_row:
        group = kept if small else 1
    chunks = -(-kept // group) * segments * blocks
    return [chunks, segments, blocks, part, rows, step, inner, kept, group,
            *form.kept, *form.reduced, *(s for operand in form.strides for s in operand)]


class Job(NamedTuple):
    """What determines the text of a reduction kernel."""

    exprs: tuple[Expr, ...]
    how: tuple[str, ...]
    names: Sequence[str]
    scalars: Sequence[str]
    stored: Sequence[str]
    modes: str
    kept: int
    reduced: int
    by_row: bool
    register: str
    stores: str = ""        # "cached", "around" (the cache): the only expression is stored as well
    singly: bool = False    # the column form, which then stores a sum, goes row after row

    def emit(self, frame: Frame) -> None:
        f = frame.f
        k, r = self.kept, self.reduced
        words = [frame.geometry(i) for i in range(9)]
        _, segments, blocks, _, _, _, _, kept, group = words
        dims = [frame.geometry(9 + i) for i in range(k + r)]
        base = 9 + k + r
        steps = [[frame.geometry(base + a * (k + r + 1) + i) for i in range(k + r + 1)]
                 for a in range(len(self.stored))]
        n = codegen.width(self.register)
        env = {name: f.splat(frame.real(i, self.register), n)
               for i, name in enumerate(self.scalars)}
        room = f.emit("ptr", f"alloca {self.register}, i64 {_TOGETHER // 2 * _COLUMNS}, align 64"
                      ) if self.singly else None

        def chunk(c: Value, _: list[Value]) -> list[Value]:
            block = c % blocks
            above = c / blocks
            segment = above % segments
            part = above / segments
            start = part * group
            stop = f.intrinsic("smin", start + group, kept)

            def one(i: Value, _: list[Value]) -> list[Value]:
                shape = dims[:k] if self.by_row else dims[:k - 1]
                offsets = [_offset(f, i, shape, s) for s in steps]
                at = [f.at(frame.array(a), "i8", o) for a, o in enumerate(offsets)]
                if self.by_row:
                    self._row(frame, words, dims, steps, at, env, segment, i, n)
                else:
                    self._column(frame, words, dims, steps, at, env, segment, i, block, n, room)
                return []
            f.loop(start, stop, 1, [], one)
            return []
        f.loop(frame.first, frame.end, 1, [], chunk)
        if self.stores == "around":
            codegen.fence(f)

    # -- the innermost axis is reduced ----------------------------------------------------
    def _row(self, frame: Frame, words: list[Value], dims: list[Value],
             steps: list[list[Value]], at: list[Value], env: dict[str, Value], segment: Value,
             index: Value, n: int) -> None:
        f, k = frame.f, self.kept
        _, _, _, part, rows, step, inner, kept, _ = words
        outer = dims[k:-1]
        lo = f.i64(0)
        if outer:
            first, last = segment * part, f.intrinsic("smin", segment * part + part, rows)
            j0, j1 = lo, inner
        else:
            first, last = lo, f.i64(1)
            j0 = segment * step
            j1 = f.intrinsic("smin", j0 + step, inner)
        m = len(self.how)
        start = [f.const("double", _IDENTITY[_op(h)]) for h in self.how]
        start += [f.const("double", 0.0)] * m

        def block(here: list[Value]) -> Callable[[Value, list[Value]], list[Value]]:
            def run(b: Value, carried: list[Value]) -> list[Value]:
                end = f.intrinsic("smin", b + _BLOCK, j1)
                got = self._span(f, here, [s[-1] for s in steps], env, b, end, n)
                return self._fold(f, carried, got, self.how)
            return run

        def row(r: Value, carried: list[Value]) -> list[Value]:
            here = [f.at(p, "i8", _offset(f, r, outer, s[k:])) if outer else p
                    for p, s in zip(at, steps, strict=True)]
            return f.loop(j0, j1, _BLOCK, carried, block(here))

        total = f.loop(first, last, 1, start, row)
        spot = segment * kept + index
        for i, h in enumerate(self.how):
            out = frame.array(len(self.stored) + i)
            v = total[i] + total[m + i] if _op(h) == "add" else total[i]
            f.store(v, f.at(out, "double", spot))

    def _fold(self, f: Function, carried: list[Value], got: list[Value],
              how: Sequence[str]) -> list[Value]:
        """Join results with the totals; sums keep what the addition lost (finite ones)."""
        m = len(how)
        totals, lost = [], []
        for h, t, c, v in zip(how, carried[:m], carried[m:], got, strict=True):
            if _op(h) != "add":
                totals.append(f.join(_op(h), t, v))
                lost.append(c)
                continue
            s = t + v
            big = f.intrinsic("fabs", t).compare("oge", f.intrinsic("fabs", v))
            error = f.select(big, (t - s) + v, (v - s) + t)
            finite = f.intrinsic("fabs", s).compare("olt", np.inf)
            totals.append(s)
            lost.append(f.select(finite, c + error, f.const(s.ty, 0.0)))
        return totals + lost

    def _values(self, f: Function, here: list[Value], steps: list[Value],
                env: dict[str, Value], j: Value, end: Value, mask: Value | None,
                n: int) -> list[Value]:
        scope = dict(env)
        for name, kind, mode, p, s in zip(self.names, self.stored, self.modes, here, steps,
                                          strict=False):       # (one more where it stores)
            if mode == "c":
                scope[name] = codegen.load(f, f.at(p, kind, j), kind, n, mask=mask)
            elif mode == "g":
                scope[name] = codegen.gather(f, f.at(p, "i8", j * s), kind, n, s,
                                              None if mask is None else end - j)
            else:
                scope[name] = f.splat(codegen.load_scalar(f, p, kind), n)
        out = codegen.lower(f, self.exprs, scope, vec(n, self.register))
        return [f.cast("uitofp", v, vec(n, self.register)) if element(v.ty) == "i1" else v
                for v in out]

    def _span(self, f: Function, here: list[Value], steps: list[Value], env: dict[str, Value],
              lo: Value, hi: Value, n: int) -> list[Value]:
        """The reductions of one stretch of a row, as doubles."""
        half = n // 2 if self.register == "float" else n
        pieces = n // half
        kinds = [vec(half, "double") if _op(h) in ("add", "mul") else vec(n, self.register)
                 for h in self.how]
        start: list[Value] = []
        for h, ty in zip(self.how, kinds, strict=True):
            copies = pieces if _op(h) in ("add", "mul") else 1
            start += [f.const(ty, _IDENTITY[_op(h)])] * copies

        def body(j: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
            values = self._values(f, here, steps, env, j, hi, mask, n)
            out: list[Value] = []
            for h, v in zip(self.how, values, strict=True):
                op = _op(h)
                if mask is not None:
                    v = f.select(mask, v, f.const(v.ty, _IDENTITY[op]))
                for w in _halves(f, v, half) if op in ("add", "mul") else [v]:
                    out.append(f.join(op, carried[len(out)], w))
            return out

        def combine(a: list[Value], b: list[Value]) -> list[Value]:
            ops = [_op(h) for h in self.how
                   for _ in range(pieces if _op(h) in ("add", "mul") else 1)]
            return [f.join(op, x, y) for op, x, y in zip(ops, a, b, strict=True)]

        got = f.vector_loop(lo, hi, n, start, body, unroll=2 if len(self.how) == 1 else 1,
                            combine=combine)
        result, at = [], 0
        for h in self.how:
            copies = pieces if _op(h) in ("add", "mul") else 1
            v = got[at] if copies == 1 else f.join(_op(h), got[at], got[at + 1])
            at += copies
            v = f.reduce(_op(h), v)
            result.append(f.cast("fpext", v, "double") if v.ty == "float" else v)
        return result

    # -- the innermost axis is kept -------------------------------------------------------
    def _column(self, frame: Frame, words: list[Value], dims: list[Value],
                steps: list[list[Value]], at: list[Value], env: dict[str, Value],
                segment: Value, index: Value, block: Value, n: int, room: Any) -> None:
        """Eight rows at a time are joined in registers and then with the float64 totals, which
        lie in the result: few enough columns to stay in the first-level cache."""
        f, k = frame.f, self.kept
        _, _, _, part, rows, _, inner, kept, _ = words
        first = segment * part
        last = f.intrinsic("smin", first + part, rows)
        c0 = block * _COLUMNS
        c1 = f.intrinsic("smin", c0 + _COLUMNS, inner)
        spot = (segment * kept + index) * inner
        outs = [f.at(frame.array(len(self.stored) + i), "double", spot)
                for i in range(len(self.how))]
        wide = vec(n, "double")
        inner_steps = [s[-1] for s in steps]

        def clear(j: Value, mask: Value | None, _: list[Value]) -> list[Value]:
            for h, out in zip(self.how, outs, strict=True):
                f.store(f.const(wide, _IDENTITY[_op(h)]), f.at(out, "double", j), mask=mask)
            return []
        f.vector_loop(c0, c1, n, [], clear)

        def row_at(r: Value) -> list[Value]:
            return [f.at(p, "i8", _offset(f, r, dims[k:], s[k:]))
                    for p, s in zip(at, steps, strict=True)]

        def together(count: int) -> Callable[[Value, list[Value]], list[Value]]:
            def run(r: Value, _: list[Value]) -> list[Value]:
                here, later = ([row_at(r + i) for i in some]
                               for some in (range(count), range(count, 2 * count)))

                def columns(j: Value, mask: Value | None, _: list[Value]) -> list[Value]:
                    for row in later if count > 1 and mask is None else ():
                        self._fetch(f, row, j)
                    values = [self._values(f, row, inner_steps, env, j, c1, mask, n)
                              for row in here]
                    for row, (v, *_) in zip(here, values, strict=True) if self.stores else ():
                        self._keep(f, v, row, j, mask)
                    for i, (h, out) in enumerate(zip(self.how, outs, strict=True)):
                        q = f.at(out, "double", j)
                        total = f.load(q, wide, mask=mask)
                        joined = _tree(f, _op(h), [v[i] for v in values])
                        f.store(_joined(f, _op(h), total, joined), q, mask=mask)
                    return []
                f.vector_loop(c0, c1, n, [], columns)
                return []
            return run
        def singly(r: Value, _: list[Value]) -> list[Value]:
            self._singly(f, lambda i: row_at(r + i), room, outs[0], c0, c1, n)
            return []
        middle = first + ((last - first) / _TOGETHER) * _TOGETHER
        f.loop(first, middle, _TOGETHER, [], singly if room else together(_TOGETHER))
        f.loop(middle, last, 1, [], together(1))

    def _singly(self, f: Function, row_at: Callable[[Value], list[Value]], room: Any, out: Value,
                c0: Value, c1: Value, n: int) -> None:
        """Eight rows one after the other, added as eight at once would be: pairs of rows lie in
        `room` until all are there. One text reads them all, so that the CPU sees one stream."""
        def row(i: Value, _: list[Value]) -> list[Value]:
            sums = f.at(room, self.register, i / 2 * _COLUMNS - c0)
            odd = f.i64(0) - (i & 1)                           # all bits, or none
            second = f.splat(odd if self.register == "double" else f.cast("trunc", odd, "i32"), n)
            here, later = row_at(i), row_at(i + 1)

            def columns(j: Value, mask: Value | None, _: list[Value]) -> list[Value]:
                if mask is None:
                    self._fetch(f, later, j)
                v, = self._values(f, here, here, {}, j, c1, mask, n)    # (all contiguous)
                self._keep(f, v, here, j, mask)
                q = f.at(sums, self.register, j)
                before = f.bits(f.load(q, v.ty, mask=mask), second.ty) & second
                f.store(f.bits(before, v.ty) + v, q, mask=mask)
                return []
            f.vector_loop(c0, c1, n, [], columns)
            return []
        f.loop(f.i64(0), f.i64(_TOGETHER), 1, [], row)

        def join(j: Value, mask: Value | None, _: list[Value]) -> list[Value]:
            pairs = [f.load(f.at(room, self.register, j - c0 + i * _COLUMNS),
                            vec(n, self.register), mask=mask) for i in range(_TOGETHER // 2)]
            q, wide = f.at(out, "double", j), vec(n, "double")
            total = f.load(q, wide, mask=mask)
            f.store(_joined(f, "add", total, _tree(f, "add", pairs)), q, mask=mask)
            return []
        f.vector_loop(c0, c1, n, [], join)

    def _keep(self, f: Function, v: Value, row: list[Value], j: Value, mask: Value | None) -> None:
        codegen.store(f, v, f.at(row[-1], self.stored[-1], j), self.stored[-1], mask=mask,
                      stream=self.stores == "around")

    def _fetch(self, f: Function, row: list[Value], j: Value) -> None:
        """Have columns of a later row fetched: CPUs do not foresee where eight rows go on."""
        for _, kind, mode, p in zip(self.names, self.stored, self.modes, row, strict=False):
            if mode == "c":
                f.fetch(f.at(p, kind, j))


def _tree(f: Function, op: str, values: list[Value]) -> list[Value]:
    """Join pairwise in the type of registers; products stay apart (they would overflow)."""
    if op == "mul":
        return values
    while len(values) > 1:
        values = [f.join(op, a, b) for a, b in zip(values[::2], values[1::2], strict=True)]
    return values


def _joined(f: Function, op: str, total: Value, values: list[Value]) -> Value:
    for v in values:
        total = f.join(op, total, v if v.ty == total.ty else f.cast("fpext", v, total.ty))
    return total


def _op(how: str) -> str:
    return "add" if how == "mean" else how


def _halves(f: Function, v: Value, half: int) -> list[Value]:
    if element(v.ty) == "double":
        return [v]
    return [f.cast("fpext", f.shuffle(v, v, range(i, i + half)), vec(half, "double"))
            for i in (0, half)]


def _offset(f: Function, r: Value, dims: Sequence[Value], steps: Sequence[Value]) -> Value:
    """Bytes from the start for the linear index `r` over `dims` (C order)."""
    total = f.i64(0)
    for axis in range(len(dims) - 1, 0, -1):
        above = r / dims[axis]
        total = total + (r - above * dims[axis]) * steps[axis]
        r = above
    return total + r * steps[0] if dims else total


def reduction(name: str, params: Sequence[str], exprs: Sequence[Expr], how: Sequence[str], *,
              keyword: Sequence[str] = ()) -> Reduce | None:
    """A function that reduces expressions of arrays over axes, all of them in one pass.

    Args:
        params: names of the operands in the expressions; they broadcast.
        exprs: what is reduced; how: "add", "mean", "mul", "max" or "min" for each.
        keyword: names of scalar attributes.

    Returns:
        `f(*arrays, axis=None, keepdims=False, **attrs)` giving a tuple of arrays in the dtype of
        the operands, or NotImplemented where it does not do the dtypes, the layout or an empty
        array. None where an expression has no generated code.

    >>> from adjoint.kernels.expr import var
    >>> f = reduction("squares", ["x"], [var("x") * var("x"), var("x")], ["add", "max"])
    >>> if f is not None:
    ...     s, m = f(np.array([[1., 2.], [3., 4.]]), axis=1)
    ...     assert s.tolist() == [5., 25.] and m.tolist() == [2., 4.]
    """
    if not llvm.available() or not codegen.can_lower(exprs):
        return None
    return Reduce(name, params, exprs, how, keyword)


_SIZES: dict[float, tuple[Any, str]] = {1.0: (abs_, "add"), 2.0: (lambda x: x * x, "add"),
                                        np.inf: (abs_, "max")}


@functools.cache
def _sizes(p: float) -> Reduce | None:
    f, how = _SIZES[p]
    return reduction("norm", ["x"], [trace(lambda x: f(x))], [how])


def norm(x: Array, p: float, axis: tuple[int, ...], keepdims: bool) -> Any:
    """The p-norm over axes for p of 1, 2 and infinity; NotImplemented for others, and where a sum
    is.

    >>> y = norm(np.array([3.0, 4.0]), 2, (0,), False)
    >>> y is NotImplemented or float(y) == 5.0
    True
    """
    kernel = _sizes(p) if p in _SIZES else None
    got = NotImplemented if kernel is None else kernel(x, axis=axis, keepdims=keepdims, wide=True)
    if got is NotImplemented:
        return got
    return np.asarray(np.sqrt(got[0]) if p == 2 else got[0]).astype(x.dtype)


@functools.cache
def _nonzero() -> Reduce | None:
    return reduction("count_nonzero", ["x"], [var("x").ne(0.0)], ["add"])


def count_nonzero(x: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
    """How many floats are not 0, as int64; NotImplemented where a sum is."""
    kernel = _nonzero()
    got = NotImplemented if kernel is None else kernel(x, axis=axis, keepdims=keepdims, wide=True)
    return got if got is NotImplemented else np.asarray(got[0]).astype(np.int64)


@functools.cache
def _products() -> Reduce | None:
    a, b = var("a"), var("b")
    return reduction("row_products", ["a", "b"], [a * b, a * a, b * b], ["add"] * 3)


def row_products(a: Array, b: Array) -> Any:
    """The sums of a b, a a and b b along the last axis, in one pass."""
    kernel = _products()
    return NotImplemented if kernel is None else kernel(a, b, axis=-1)
