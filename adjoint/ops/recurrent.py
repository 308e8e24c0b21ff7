"""LSTM and GRU cells, and whole LSTM sequences, as single records.

The cells are expressions (`kernels/cells_numpy.py`); their rules are pointwise ops derived from
the same expressions, so that they differentiate to any order.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.errors import ShapeError
from adjoint.core.op import op
from adjoint.kernels import cells_numpy
from adjoint.kernels import expr as ex
from adjoint.kernels.cells_numpy import Cell, steps_of
from adjoint.ops.api_common import is_recorded, kernel, narrowed, wide
from adjoint.ops.family import derived_op
from adjoint.ops.linalg import matmul_op
from adjoint.ops.pointwise import add
from adjoint.ops.shape import (
    batch_loop,
    cat_op,
    mT,
    narrow_op,
    select_op,
    stack_op,
)

BACKWARD: dict[str, Any] = {}       # name of a record -> the raw computation of its cotangents


def _parts(cell: Cell, operands: Sequence[Any]) -> list[Any]:
    found = []
    for x, parts in zip(operands, cell.operands.values(), strict=True):
        last, width = len(x.shape) - 1, x.shape[-1] // len(parts)
        found += [x] if len(parts) == 1 else [
            narrow_op(x, dim=last, start=k * width, length=width) for k in range(len(parts))]
    return found


def _join(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else cat_op(*parts, dim=len(parts[0].shape) - 1)


@functools.cache
def _pointwise(cell: Cell, what: str) -> list[Any]:
    """The pointwise ops of a cell: its outputs, its cotangents ("pull"), or the tangents of its
    outputs that come through one operand (its name)."""
    if what == "outs":
        return [derived_op(f"{cell.name}_{o}", tuple(cell.parts), (), e)
                for o, e in cell.outs.items()]
    if what == "pull":
        return [derived_op(f"{cell.name}_pull_{p}", tuple(cell.pulled_params), (), e)
                for p, e in zip(cell.parts, cell.pulled, strict=True)]
    moved = cell.operands[what]
    names = (*(f"t_{p}" for p in moved), *cell.parts)
    return [derived_op(f"{cell.name}_push_{o}", names, (), functools.reduce(ex.add, [
        ex.var(f"t_{p}") * ex.diff(e, p) for p in moved])) for o, e in cell.outs.items()]


def cell_pull(cell: Cell, cts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """The cotangent of every operand, in ops."""
    values = [*cts, *_parts(cell, operands)]
    found = iter([f(*values) for f in _pointwise(cell, "pull")])
    return [_join([next(found) for _ in parts]) for parts in cell.operands.values()]


def cell_push(cell: Cell, which: str, t: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The tangents of the outputs that come through operand `which`, in ops."""
    width = len(cell.operands[which])
    own = t.shape[-1] // width
    moved = [t] if width == 1 else [narrow_op(t, dim=len(t.shape) - 1, start=k * own, length=own)
                                    for k in range(width)]
    return tuple(f(*moved, *_parts(cell, operands)) for f in _pointwise(cell, which))


def _check(cell: Cell, operands: Sequence[Aval]) -> None:
    """Every operand holds its parts of one width."""
    first = operands[-1]
    for name, a in zip(cell.operands, operands, strict=True):
        wanted = (*first.shape[:-1], first.shape[-1] * len(cell.operands[name]))
        if a.shape != wanted:
            raise ShapeError(f"{cell.name}: {name}{list(a.shape)} should be {list(wanted)}: "
                             f"{len(cell.operands[name])} parts as wide as the state "
                             f"{list(first.shape)}")


def _cell_record(cell: Cell) -> Any:
    """The record of a cell; its operands are those of the cell."""
    names, outs = tuple(cell.operands), tuple(cell.outs)

    def infer(*avals: Aval) -> Any:
        _check(cell, avals)
        last = avals[-1]
        made = tuple(Aval(last.shape, last.dtype) for _ in outs)
        return made if len(made) > 1 else made[0]

    def impl(*arrays: Any) -> Any:
        found = cell.forward(*map(wide, arrays))
        made = tuple(narrowed(v, arrays[-1].dtype) for v in found)
        return made if len(made) > 1 else made[0]

    def pulled(*arrays: Any) -> Any:
        found = cell.backward([wide(a) for a in arrays[:len(outs)]],
                              *map(wide, arrays[len(outs):]))
        return tuple(narrowed(v, arrays[-1].dtype) for v in found)

    impl.parameters = (names, (), False)  # type: ignore[attr-defined]  # read by Op
    pulled.parameters = (  # type: ignore[attr-defined]  # likewise
        (*(f"ct_{o}" for o in outs), *names), (), False)
    backward = kernel(cell.name + "_backward", pulled, lambda *avals: avals[len(outs):],
                      outs=names, cost=lambda *avals: 30 * avals[-1].size)
    BACKWARD[cell.name] = backward

    def pull(cts: Any, operands: Sequence[Any], wanted: Sequence[bool]) -> Any:
        given = cts if len(outs) > 1 else [cts]
        if is_recorded(*given, *operands):
            full = [_zeros(operands[-1]) if ct is None else ct for ct in given]
            found: Sequence[Any] = cell_pull(cell, full, operands)
        else:
            zero = np.zeros(operands[-1].shape, operands[-1].dtype)
            found = backward(*(zero if ct is None else ct for ct in given), *operands)
        return tuple(f if w else None for f, w in zip(found, wanted, strict=True))

    listed = ", ".join(names)
    scope = {"pull": pull, "push": cell_push, "cell": cell, "np": np, "single": len(outs) == 1}
    rule = eval(f"lambda cts, {listed}, wanted: pull(cts, ({listed},), wanted)", scope)
    jvp = {n: eval(f"lambda t, {listed}: (lambda made: made[0] if single else made)"
                   f"(push(cell, {n!r}, t, ({listed},)))", scope) for n in names}
    return op(cell.name, impl=impl, infer=infer, outs=outs, vjp={names: rule}, jvp=jvp,
              batch=batch_loop, cost=lambda *avals: 20 * avals[-1].size,
              why=dict.fromkeys(names, "the gates are made again from it"),
              domain=lambda: [(tuple(np.random.default_rng(0).standard_normal(
                  (2, 3 * len(parts))) for parts in cell.operands.values()), {})])


def _zeros(like: Any) -> Any:
    return np.broadcast_to(np.zeros((), like.dtype.dtype if hasattr(like.dtype, "dtype")
                                    else like.dtype), tuple(like.shape))


lstm_cell_op: Any = _cell_record(cells_numpy.lstm_cell())
gru_cell_op: Any = _cell_record(cells_numpy.gru_cell())


# -- a whole sequence ------------------------------------------------------------------------
def _lstm_infer(gates: Aval, h: Aval, c: Aval, weight: Aval, *, reverse: bool) -> Any:
    width = c.shape[-1]
    wanted = {"gates": (*gates.shape[:1], c.shape[0], 4 * width), "h": (c.shape[0], width),
              "weight": (4 * width, width)}
    for name, a in (("gates", gates), ("h", h), ("weight", weight)):
        if a.shape != wanted[name]:
            raise ShapeError(f"lstm: {name}{list(a.shape)} should be {list(wanted[name])} beside "
                             f"the state c{list(c.shape)}")
    rows = Aval((*gates.shape[:2], width), gates.dtype)
    return rows, rows, gates


def _lstm_impl(gates: Any, h: Any, c: Any, weight: Any, /, *, reverse: bool) -> Any:
    found = cells_numpy.lstm(*map(wide, (gates, h, c, weight)), reverse=reverse)
    return tuple(narrowed(v, gates.dtype) for v in found)


def _lstm_grad(ct_out: Any, ct_cells: Any, ct_sums: Any, out: Any, cells: Any, sums: Any, h: Any,
               c: Any, weight: Any, /, *, reverse: bool) -> Any:
    cts = [None if ct is None else wide(ct) for ct in (ct_out, ct_cells, ct_sums)]
    found = cells_numpy.lstm_backward(cts, *map(wide, (out, cells, sums, h, c, weight)),
                                      reverse=reverse)
    return tuple(narrowed(v, out.dtype) for v in found)


BACKWARD["lstm"] = kernel(
    "lstm_backward", _lstm_grad, lambda a, b, g, out, cells, sums, h, c, weight, **_: (
        sums, h, c, weight), outs=("gates", "h", "c", "weight"),
    cost=lambda a, b, g, out, cells, sums, *_, **__: 4 * sums.size * out.shape[2])


def _lstm_vjp(cts: Any, h: Any, c: Any, weight: Any, out: Any, cells: Any, sums: Any, wanted: Any,
              *, reverse: bool) -> Any:
    if not is_recorded(*cts, h, c, weight, out, cells, sums):
        found = BACKWARD["lstm"](*cts, out, cells, sums, h, c, weight, reverse=reverse)
    else:
        found = _lstm_composed(cts, h, c, weight, out, cells, sums, reverse)
    return tuple(f if w else None for f, w in zip(found, wanted, strict=True))


def _lstm_composed(cts: Any, h: Any, c: Any, weight: Any, out: Any, cells: Any, sums: Any,
                   reverse: bool) -> Any:
    """Backpropagation through time, in ops."""
    order = list(steps_of(sums.shape[0], reverse))
    pulled: list[Any] = [None] * len(order)
    dh, dc, dw = _zeros(h), _zeros(c), None
    for k in reversed(range(len(order))):
        t = order[k]
        at = [None if ct is None else _at(ct, t) for ct in cts]
        ch, cc = (d if ct is None else add(d, ct) for d, ct in zip((dh, dc), at, strict=False))
        state, before = (_at(out, order[k - 1]), _at(cells, order[k - 1])) if k else (h, c)
        dg, dc = cell_pull(cells_numpy.lstm_cell(), (ch, cc), (_at(sums, t), before))
        pulled[t] = dg = dg if at[2] is None else add(dg, at[2])
        dh = matmul_op(dg, weight)
        part = matmul_op(mT(dg), state)
        dw = part if dw is None else add(dw, part)
    return stack_op(*pulled, dim=0), dh, dc, dw


def _at(x: Any, t: int) -> Any:
    return select_op(x, dim=0, index=t)


def _lstm_jvp(which: str) -> Any:
    def rule(t: Any, h: Any, c: Any, weight: Any, out: Any, cells: Any, sums: Any, *,
             reverse: bool) -> Any:
        order = list(steps_of(sums.shape[0], reverse))
        made: list[Any] = [None] * len(order)
        th, tc = (t if which == name else _zeros(x) for name, x in (("h", h), ("c", c)))
        for k, at in enumerate(order):
            state, before = (_at(out, order[k - 1]), _at(cells, order[k - 1])) if k else (h, c)
            tg = matmul_op(th, mT(weight))
            if which == "gates":
                tg = add(tg, _at(t, at))
            elif which == "weight":
                tg = add(tg, matmul_op(state, mT(t)))
            cell, operands = cells_numpy.lstm_cell(), (_at(sums, at), before)
            th, tc = (add(a, b) for a, b in zip(cell_push(cell, "gates", tg, operands),
                                                cell_push(cell, "c", tc, operands), strict=True))
            made[at] = (th, tc, tg)
        return tuple(stack_op(*column, dim=0) for column in zip(*made, strict=True))
    return rule


def _lstm_domain() -> Any:
    draw = np.random.default_rng(0).standard_normal
    return [((draw((3, 2, 8)), draw((2, 2)), draw((2, 2)), draw((8, 2))), {"reverse": r})
            for r in (False, True)]


lstm_op: Any = op(
    "lstm", impl=_lstm_impl, infer=_lstm_infer, outs=("out", "cells", "sums"),
    vjp={("gates", "h", "c", "weight"): lambda cts, h, c, weight, out, cells, sums, wanted, *,
         reverse: _lstm_vjp(cts, h, c, weight, out, cells, sums, wanted, reverse=reverse)},
    jvp={name: _lstm_jvp(name) for name in ("gates", "h", "c", "weight")}, batch=batch_loop,
    domain=_lstm_domain, cost=lambda gates, h, *_, **__: 2 * math.prod(gates.shape) * h.shape[1],
    why={"sums": "the gates are made again from it", "cells": "c before each step",
         "out": "h before each step, for the weight", "h": "h before the first step",
         "c": "c before the first step", "weight": "dh = ct·weight"})
