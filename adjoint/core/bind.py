"""Dispatch: what happens when an op is called, decided by the types of its operands.

all raw arrays           -> the kernel, nothing else
plain tensors            -> the kernel on their data, then a Node if a gradient is wanted
a tensor of a transform  -> that transform's rule, which calls ops one level down

`type(a) is Tensor` is the only test on the plain path. `unary` and `binary` make the functions
of pointwise ops: the same steps as `bind`, unrolled for one and two operands of one float
dtype, because a call costs as much as a small kernel.
"""
from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import Aval, MetaArray, aval_of
from adjoint.base.dtypes import F32, F64
from adjoint.base.errors import AdjointError, AutogradError, ShapeError
from adjoint.core.modes import GRAD, INFERENCE, WATCH, state, watchers
from adjoint.core.op import Op, Plan
from adjoint.core.tensor import (
    INFERENCE_CELL,
    AccumulateGrad,
    Cell,
    Kept,
    Node,
    OutRef,
    Packed,
    Port,
    Tensor,
    edge_of,
    keep,
    next_sequence,
    share_cell,
)

from adjoint.core.versions import verify

ndarray = np.ndarray
_new = object.__new__
_getframe = sys._getframe
_asarray = np.asarray
_inside = provenance.inside


def bind(op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Run `op`: the general path, for any number and type of operands."""
    level = needs = 0
    bit = 1
    tensors = False
    arrays: list[Any] = []
    for a in args:
        if isinstance(a, Tensor):
            tensors = True
            if a.level > level:
                level = a.level
            arrays.append(a.array if not a.level else None)
            if a._rg:
                needs |= bit
        else:
            arrays.append(a)
        bit <<= 1
    if level:
        top = next(a for a in args if isinstance(a, Tensor) and a.level == level)
        return _bind_level(op, args, attrs, needs, top.trace)  # type: ignore[attr-defined]
    mode = state()
    outs = compute(op, arrays, attrs, tensors)
    if not tensors:
        return outs[0] if not op.multi else outs[: _visible(op, outs)]
    if not (needs and mode & GRAD):
        return _plain(op, args, outs, mode, attrs)
    plan = op.plan(needs)
    if not plan.wanted:
        return _plain(op, args, outs, mode, attrs)
    return record(op, plan, args, attrs, outs, mode)


def _bind_level(op: Op, args: Sequence[Any], attrs: Mapping[str, Any], needs: int,
                trace: Any) -> Any:
    """An op on values of a transform: its rule, and a node over those values if one wants a
    gradient. Views are tied to their base, so that in-place ops reach it."""
    if not trace.alive:
        trace.check(next(a for a in args if isinstance(a, Tensor) and a.level == trace.level))
    mode = state()
    plan = op.plan(needs) if needs and mode & GRAD else None
    if plan is None or not plan.wanted:
        outs = trace.process(op, args, attrs)
        made = outs if op.multi else (outs,)
    else:
        full = op.exposed
        found = trace.process(full, args, attrs)
        every = tuple(found) if full.multi else (found,)
        made = _record_level(op, plan, args, attrs, every, trace)
    if op.view and args and isinstance(args[0], Tensor):
        for i, t in enumerate(made):
            _tie(t, args[0], op, attrs, i if op.multi else -1)
    return tuple(made) if op.multi else made[0]


def _record_level(op: Op, plan: Plan, args: Sequence[Any], attrs: Mapping[str, Any],
                  outs: tuple[Any, ...], trace: Any) -> list[Any]:
    node: Any = _new(op.node_type)
    node.plan = plan.general() if plan.fast is not None else plan
    if attrs:
        node.attrs = attrs
    node.edges = tuple([edge_of(a) if plan.needs >> i & 1 and isinstance(a, Tensor) else None
                        for i, a in enumerate(args)])
    node.seq = next_sequence()
    frame = provenance.user_frame(_getframe(3))
    node.code, node.lasti = (frame.f_code, frame.f_lasti) if frame else (None, 0)
    outs = tuple([trace.strip(o) if isinstance(o, Tensor) and o._rg and o.level else o
                  for o in outs])
    _save(node, plan, args, tuple(_lower(o) for o in outs))
    visible = outs[: len(op.outs)] if not op.variadic_out else outs
    many = op.multi
    avals = [_aval(o) for o in visible]
    node.shape = tuple(a.shape for a in avals) if many else avals[0].shape
    node.dtype = tuple(a.dtype for a in avals) if many else avals[0].dtype
    node.ports = len(visible) if many else 0
    made = []
    for i, (o, a) in enumerate(zip(visible, avals, strict=True)):
        if op.carries(i):
            o = _own(o)
            o._rg = True
            o._edge = Port(node, i, a.shape, a.dtype) if many else node
        made.append(o)
    return made


def _lower(o: Any) -> Any:
    """A value of a transform as a residual: without the node that will own it."""
    return o.trace.strip(o) if isinstance(o, Tensor) and o.level else (
        o.array if isinstance(o, Tensor) and not o._rg else o)


def _own(o: Any) -> Any:
    """A tensor object whose place in the tape may be set."""
    if o.level:
        return o.trace.strip(o)
    t: Any = _new(Tensor)
    t.array, t._cell, t._rg, t._edge = o.array, o._cell, False, None
    return t


def _tie(t: Any, parent: Any, op: Op, attrs: Mapping[str, Any], index: int) -> None:
    """Remember which view of which base a value of a transform is."""
    root = parent if parent._base is None else parent._base
    t._base = root
    t._steps = (*parent._steps, (op, attrs, index))
    if root._kids is None:
        root._kids = []
    root._kids.append(weakref.ref(t))


def _visible(op: Op, outs: Sequence[Any]) -> int:
    return len(outs) - len(op.hidden)


def function_of(op: Op) -> Any:
    """The general caller of an op: operands positional, attributes by keyword."""
    def call(*args: Any, **attrs: Any) -> Any:
        return bind(op, args, attrs)
    return call


def compute(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any],
            wrapped: bool = True) -> tuple[Any, ...]:
    """The raw results, as a tuple of arrays, hidden ones last."""
    if op.prepare is not None:
        arrays = op.prepare(arrays)
    for a in arrays:
        if type(a) is MetaArray:
            return _compute_meta(op, arrays, attrs)
    try:
        out = op.impl(*arrays, **attrs)
    except AdjointError:
        raise
    except Exception as error:
        op.infer(*(None if a is None else aval_of(a) for a in arrays), **attrs)
        shapes = ", ".join("None" if a is None else repr(aval_of(a)) for a in arrays)
        raise ShapeError(f"{op.name}({shapes}): {error}") from error
    if type(out) is not tuple:
        return (out if type(out) is ndarray or not wrapped else np.asarray(out),)
    return tuple(o if type(o) is ndarray else np.asarray(o) for o in out)


def _compute_meta(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    result = op.infer(*(None if a is None else aval_of(a) for a in arrays), **attrs)
    many = result if type(result) in (tuple, list) else (result,)
    base = arrays[0] if op.view and isinstance(arrays[0], MetaArray) else None
    if base is not None and base.base is not None:
        base = base.base
    return tuple(MetaArray(a.shape, a.dtype, base) for a in many)


def _plain(op: Op, args: Sequence[Any], outs: tuple[Any, ...], mode: int,
           attrs: Mapping[str, Any]) -> Any:
    """Tensors without history for the visible outputs."""
    made = []
    for array in outs[: _visible(op, outs)]:
        t: Any = _new(Tensor)
        t.array, t._edge, t._rg = array, None, False
        t._cell = INFERENCE_CELL if mode & INFERENCE else None
        made.append(t)
    if op.view and args and isinstance(args[0], Tensor):
        for i, t in enumerate(made):
            _make_view(t, args[0], op, attrs, i if op.multi else -1, mode)
    return tuple(made) if op.multi else made[0]


def record(op: Op, plan: Plan, args: Sequence[Any], attrs: Mapping[str, Any],
           outs: tuple[Any, ...], mode: int) -> Any:
    """Tensors with history: one node, its residuals, and an edge per wanted operand."""
    node: Any = _new(op.node_type)
    node.plan = plan
    if attrs:
        node.attrs = attrs
    needs = plan.needs
    node.edges = tuple([edge_of(a) if needs >> i & 1 and isinstance(a, Tensor) else None
                        for i, a in enumerate(args)])
    node.seq = next_sequence()
    frame = provenance.user_frame(_getframe(2))
    node.code, node.lasti = (frame.f_code, frame.f_lasti) if frame else (None, 0)
    cells = _save(node, plan, args, outs)
    made = _outputs(node, op, outs, cells)
    if op.view:
        for i, t in enumerate(made):
            _make_view(t, args[0], op, attrs, i if op.multi else -1, mode)
    if mode & WATCH:
        watch(node, args, made)
    return tuple(made) if op.multi else made[0]


def _save(node: Node, plan: Plan, args: Sequence[Any], outs: tuple[Any, ...]) -> dict[int, Cell]:
    """Keep the residuals the plan names; returns the cells made for saved outputs."""
    cells: dict[int, Cell] = {}
    node.saved = None
    if not plan.names:
        return cells
    name = plan.op.name
    saved: list[Any] = []
    for kind, i in plan.sources:
        if kind == "in":
            saved.append(keep(args[i], name))
        elif kind == "out":
            saved.append(OutRef(outs[i], cells.setdefault(i, Cell()), i))
        elif kind == "aval":
            saved.append(None if args[i] is None else _aval(args[i]))
        elif kind == "xs":
            saved.append(tuple([keep(a, name) for a in args]))
        elif kind == "avals":
            saved.append(tuple([_aval(a) for a in args]))
        else:
            saved.append(tuple([OutRef(o, cells.setdefault(k, Cell()), k)
                                for k, o in enumerate(outs)]))
    node.saved = tuple(saved)
    return cells


def _aval(a: Any) -> Aval:
    return aval_of(a.array if isinstance(a, Tensor) else a)


def _outputs(node: Any, op: Op, outs: tuple[Any, ...], cells: dict[int, Cell]) -> list[Any]:
    visible = outs[: _visible(op, outs)]
    made = []
    if not op.multi:
        node.shape, node.dtype = visible[0].shape, visible[0].dtype
    else:
        node.shape = tuple(o.shape for o in visible)
        node.dtype = tuple(o.dtype for o in visible)
        node.ports = len(visible)
    for i, array in enumerate(visible):
        t: Any = _new(Tensor)
        t.array, t._cell = array, cells.get(i)
        if op.carries(i):
            t._rg = True
            t._edge = Port(node, i, array.shape, array.dtype) if op.multi else node
        else:
            t._rg, t._edge = False, None
        made.append(t)
    return made


def _make_view(t: Any, parent: Any, op: Op, attrs: Mapping[str, Any], index: int,
               mode: int) -> None:
    """Tie a view to the root of its family, where it really shares the parent's memory."""
    if type(t.array) is ndarray and t.array.base is None:
        return                                     # the op had to copy
    if not isinstance(parent, Tensor):
        return
    if type(t.array) is ndarray and not np.may_share_memory(t.array, parent.array):
        return
    if parent._cell is INFERENCE_CELL:
        t._cell = INFERENCE_CELL
        return
    root = parent if parent._base is None else parent._base
    t._cell = share_cell(parent)
    t._base = root
    t._steps = (*parent._steps, (op, attrs, index))
    t._creation = ("no_grad" if not mode & GRAD else "multi" if index >= 0
                   else parent._creation)
    kids = root._kids
    if kids is None:
        kids = root._kids = []
    elif len(kids) > 16 and not len(kids) & (len(kids) - 1):
        kids[:] = [k for k in kids if k() is not None]
    kids.append(weakref.ref(t))


def watch(node: Any, args: Sequence[Any], made: Sequence[Any]) -> None:
    """The full path: saved-tensor hooks pack the residuals, observers see the node."""
    hooks = watchers.hooks.get()
    if hooks and node.saved is not None:
        held: dict[int, Any] = {}

        def pack(s: Any, i: int) -> Any:
            if not isinstance(s, (Tensor, OutRef, Kept)):
                return s
            key = id(s.tensor if type(s) is Kept else s)
            if key not in held:                   # an operand saved twice is packed once
                held[key] = hooks[-1].pack(s, node)
            return Packed(held[key], hooks[-1], _light(s), i)

        node.saved = tuple(tuple(pack(x, i) for x in s) if type(s) is tuple else pack(s, i)
                           for i, s in enumerate(node.saved))
    for observer in watchers.observers.get():
        observer.forward(node, args, made)


def _light(saved: Any) -> Any:
    """What stays of a packed residual: for its gradient edge, not for its data."""
    if isinstance(saved, OutRef):
        return saved.index
    t = saved.tensor if type(saved) is Kept else saved
    return t._edge if t._rg else None


def unary(op: Op, build: Callable[[], tuple[Any, ...]]) -> Callable[..., Any]:
    """The caller of a pointwise op of one operand. `build` gives, at the first call, the raw
    functions and the plans for float32 and float64."""
    node_type = op.node_type
    plan32: Any = None
    plan64: Any = None
    large32: Any = None
    large64: Any = None
    limit = 1 << 62
    keeps_out = keeps_in = differentiable = False

    def prepare() -> None:
        nonlocal raw32, raw64, large32, large64, limit, plan32, plan64
        nonlocal keeps_out, keeps_in, differentiable
        (raw32, large32, limit), (raw64, large64, _), plan32, plan64 = build()
        keeps_out = "out" in plan32.names
        keeps_in = op.operands[0] in plan32.names
        differentiable = bool(plan32.wanted)

    def raw32(x: Any) -> Any:
        prepare()
        return raw32(x)

    def raw64(x: Any) -> Any:
        prepare()
        return raw64(x)

    def call(x: Any) -> Any:
        if type(x) is not Tensor:
            if type(x) is ndarray and (x.dtype is F32 or x.dtype is F64):
                if x.size >= limit:
                    return (large32 if x.dtype is F32 else large64)(x)
                return (raw32 if x.dtype is F32 else raw64)(x)
            return bind(op, (x,), {})
        a = x.array
        dtype = a.dtype
        mode = state()
        if mode > GRAD or (dtype is not F32 and dtype is not F64):
            return bind(op, (x,), {})
        try:
            if a.size < limit:
                od = raw32(a) if dtype is F32 else raw64(a)
            else:
                od = large32(a) if dtype is F32 else large64(a)
        except TypeError:
            return bind(op, (x,), {})
        t = _new(Tensor)
        t.array = od if type(od) is ndarray else _asarray(od)
        t._cell = None
        if not (x._rg and mode and differentiable):
            t._rg = False
            t._edge = None
            return t
        node: Any = _new(node_type)
        node.plan = plan32 if dtype is F32 else plan64
        e = x._edge
        node.edges = (e if e is not None else edge_of(x),)
        if keeps_out:
            t._cell = cell = Cell()
            ref = OutRef(od, cell, 0)
            if keeps_in:
                node.saved = _order(node.plan, x if x._cell is None else keep(x, op.name), ref)
            else:
                node.saved = (ref,)
        elif keeps_in:
            node.saved = (x if x._cell is None else keep(x, op.name),)
        else:
            node.saved = None
        node.shape = od.shape
        node.seq = next_sequence()
        f: Any = _getframe(1)
        code = f.f_code
        while code.co_filename in _inside:
            f = f.f_back
            code = f.f_code
        node.code = code
        node.lasti = f.f_lasti
        t._rg = True
        t._edge = node
        return t
    return call


class _Scalars(dict[Any, Any]):
    """Python number -> 0-d array: NumPy converts a number anew at every call, which costs as
    much as the operation on a small array. Zeros are not kept: -0.0 and 0.0 are one key."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype

    def __missing__(self, number: Any) -> Any:
        array = np.array(number, self.dtype)
        if number:
            if len(self) > 4096:
                self.clear()
            self[number] = array
        return array


SCALARS32, SCALARS64 = _Scalars(F32), _Scalars(F64)


def _order(plan: Plan, x: Any, ref: OutRef) -> tuple[Any, Any]:
    return (x, ref) if plan.sources[0][0] == "in" else (ref, x)


def binary(op: Op, build: Callable[[], tuple[Any, ...]]) -> Callable[..., Any]:
    """The caller of a pointwise op of two operands. Plans are indexed by the wanted operands;
    `plan.pick(a, b, ref)` gathers what to save, `ref` being None where no output is kept."""
    node_type = op.node_type
    plans32: Any = None
    plans64: Any = None
    large32: Any = None
    large64: Any = None
    limit = 1 << 62

    def prepare() -> None:
        nonlocal raw32, raw64, large32, large64, limit, plans32, plans64
        (raw32, large32, limit), (raw64, large64, _), plans32, plans64 = build()

    def raw32(a: Any, b: Any) -> Any:
        prepare()
        return raw32(a, b)

    def raw64(a: Any, b: Any) -> Any:
        prepare()
        return raw64(a, b)

    def call(a: Any, b: Any) -> Any:
        mode = state()
        if mode > GRAD:
            return bind(op, (a, b), {})
        if type(a) is Tensor:
            ad = a.array
            dtype = ad.dtype
            if type(b) is Tensor:
                bd = b.array
                if bd.dtype is not dtype:
                    return bind(op, (a, b), {})
                needs = a._rg + 2 * b._rg if mode else 0
            elif (type(b) is float or type(b) is int) and (dtype is F32 or dtype is F64):
                b = bd = SCALARS32[b] if dtype is F32 else SCALARS64[b]
                needs = mode if a._rg else 0
            else:
                return bind(op, (a, b), {})
        elif type(b) is Tensor and (type(a) is float or type(a) is int):
            bd = b.array
            dtype = bd.dtype
            if dtype is not F32 and dtype is not F64:
                return bind(op, (a, b), {})
            a = ad = SCALARS32[a] if dtype is F32 else SCALARS64[a]
            needs = 2 * mode if b._rg else 0
        elif type(a) is ndarray and type(b) is ndarray and a.dtype is b.dtype:
            if a.dtype is F32:
                return (raw32 if a.size < limit else large32)(a, b)
            return raw64(a, b) if a.dtype is F64 else bind(op, (a, b), {})
        else:
            return bind(op, (a, b), {})
        try:
            if dtype is F32:
                od = raw32(ad, bd) if ad.size < limit else large32(ad, bd)
                plans = plans32
            elif dtype is F64:
                od = raw64(ad, bd) if ad.size < limit else large64(ad, bd)
                plans = plans64
            else:
                return bind(op, (a, b), {})
        except (TypeError, ValueError):
            return bind(op, (a, b), {})
        t = _new(Tensor)
        t.array = od if type(od) is ndarray else _asarray(od)
        t._cell = None
        if not needs or plans[needs] is None:
            t._rg = False
            t._edge = None
            return t
        node: Any = _new(node_type)
        plan = node.plan = plans[needs]
        if needs == 3:
            ea, eb = a._edge, b._edge
            node.edges = (ea if ea is not None else edge_of(a),
                          eb if eb is not None else edge_of(b))
        elif needs == 1:
            node.edges = (a._edge or edge_of(a), None)
        else:
            node.edges = (None, b._edge or edge_of(b))
        if plan.pick is None:
            node.saved = None
        else:
            ref = None
            if plan.keeps_out:
                t._cell = cell = Cell()
                ref = OutRef(od, cell, 0)
            if type(a) is Tensor and a._cell is not None and plan.keeps_a:
                a = keep(a, op.name)
            if type(b) is Tensor and b._cell is not None and plan.keeps_b:
                b = keep(b, op.name)
            node.saved = plan.pick(a, b, ref)
        node.shape = od.shape
        node.seq = next_sequence()
        f: Any = _getframe(1)
        code = f.f_code
        while code.co_filename in _inside:
            f = f.f_back
            code = f.f_code
        node.code = code
        node.lasti = f.f_lasti
        t._rg = True
        t._edge = node
        return t
    return call


def value_of(saved: Any, node: Any) -> Any:
    """The array of a residual after its version was checked; numbers and avals pass through."""
    kind = type(saved)
    if kind is OutRef:
        if saved.cell.touched:
            verify(saved, node)
        return saved.array
    if kind is Kept:
        cell = saved.tensor._cell
        if cell.exposed or cell.version != saved.version:
            verify(saved, node)
        return saved.tensor.array
    if isinstance(saved, Tensor):
        if saved._cell is not None and saved._cell.touched:
            verify(saved, node)
        return saved.array if not saved.level else saved.trace.strip(saved)
    if kind is tuple:
        return tuple([value_of(s, node) for s in saved])
    if kind is Packed:
        return saved.hook.unpack(saved, node).array
    return saved


def level_value(saved: Any, node: Any) -> Any:
    """A residual for a walk over values of a transform: plain tensors stay tensors, for an outer
    tape may want them; values of the level lose their place in the tape that is walked."""
    kind = type(saved)
    if kind is OutRef:
        return value_of(saved, node)
    if isinstance(saved, Tensor) or kind is Kept:
        value_of(saved, node)
        t = saved.tensor if kind is Kept else saved
        return t.trace.strip(t) if t.level else t
    if kind is tuple:
        return tuple([level_value(s, node) for s in saved])
    return value_of(saved, node)


def release(node: Any) -> None:
    """Free the residuals of a node."""
    node.saved = None


__all__ = ["AccumulateGrad", "AutogradError", "binary", "bind", "compute", "function_of",
           "record", "release", "unary", "value_of", "watch"]
