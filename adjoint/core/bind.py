"""Dispatch: what happens when an op is called, decided by the types of its operands.

all raw arrays           -> the kernel, nothing else
plain tensors            -> the kernel on their data, then a Node if a gradient is wanted
a tensor of a transform  -> that transform's rule, which calls ops one level down

No global mode is consulted on the way. `core/callers.py` has the same steps unrolled for pointwise
ops of one and two operands.
"""
from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import Aval, MetaArray, aval_of, laid_out
from adjoint.base.dtypes import lacking, of_numpy, result_type
from adjoint.base.errors import AdjointError, AutogradError, DTypeError, ShapeError
from adjoint.core.autocast import operands as autocast_operands
from adjoint.core.modes import (
    AUTOCAST,
    GRAD,
    INFERENCE,
    TOLD,
    WATCH,
    change,
    restore,
    state,
    watchers,
)
from adjoint.core.op import Op, Plan
from adjoint.core.rehearsal import current as rehearsal
from adjoint.core.residuals import pack_all, pack_made, packed, tensor_of, value_of, watch
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
    new_tensor,
    next_sequence,
    out_ref,
    wrap,
)
from adjoint.core.versions import make_views

ndarray = np.ndarray
generic = np.generic
_getframe = sys._getframe


# What NumPy raises about operands that it cannot take. All else goes through: memory that was
# refused, warnings that were made errors, what a signal's handler raises to stop the program.
REFUSALS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, AssertionError,
            NotImplementedError)
machine: Any = None      # `bind` in machine code; None from it: not its business
unstored: Any = None     # what an op that failed does on sparse operands; None: none is sparse


def bind(op: Op, args: Sequence[Any], attrs: Mapping[str, Any], quick: bool = True) -> Any:
    """Run `op`: the general path, for any number and type of operands; `quick`: by machine code
    where that can."""
    if quick and machine is not None:
        made = machine(op, args, attrs)
        if made is not None:
            return made
    level = needs = 0
    tensors = scalars = False
    top: Any = None
    arrays: list[Any] = []
    mode = state()
    if mode & AUTOCAST and op.autocast:
        args = autocast_operands(op.autocast, args)
    for i, a in enumerate(args):
        if type(a) is Tensor:
            tensors = True
            arrays.append(a.array)
        elif isinstance(a, Tensor):
            tensors = True
            if not a.level:
                arrays.append(a.array)
            elif a.level > level:
                level, top = a.level, a
        else:
            arrays.append(a)
            if isinstance(a, generic):
                scalars = True
            continue
        if a._rg:
            needs |= 1 << i
    if scalars and tensors:
        plain = [plain_number(a) if isinstance(a, generic) else a for a in args]
        return bind(op, plain, attrs, quick)
    if level:
        return _bind_level(op, args, attrs, needs, top.trace)
    if mode & WATCH and tensors:
        return _bind_watched(op, args, attrs, arrays, needs, mode, quick)
    try:
        outs = compute(op, arrays, attrs, tensors or bool(mode & WATCH))
    except AdjointError:
        if (made := unstored(op, args, attrs)) is None:
            raise
        return made
    if not tensors:
        return outs[0] if not op.multi else outs[: _visible(op, outs)]
    if not (needs and mode & GRAD):
        return unrecorded(op, args, outs, mode, attrs)
    plan = op.plan(needs)
    if not plan.wanted:
        return unrecorded(op, args, outs, mode, attrs)
    return record(op, plan, args, attrs, outs, mode)


def plain_number(x: Any) -> Any:
    """A NumPy scalar as PyTorch takes it beside a tensor: a Python number, whose dtype is weak."""
    number = x.item()
    return np.asarray(number) if isinstance(number, generic) else number


def _bind_watched(op: Op, args: Sequence[Any], attrs: Mapping[str, Any], arrays: list[Any],
                  needs: int, mode: int, quick: bool) -> Any:
    """The rest of `bind`, told to the observers."""
    if watchers.modes.get():
        return watchers.route(op, args, attrs, needs, mode)
    observers = watchers.observers.get()
    hooks = watchers.hooks.get()
    afterwards = not (any([o.inside for o in observers]) or any([type(a) is MetaArray
                                                                 for a in arrays])
                      or hooks and (not mode & TOLD or op.thrift is not None))
    for observer in observers if not afterwards else [o for o in observers if o.ran is None]:
        observer.before(op, args, attrs)
    if afterwards:
        arrays.clear()
        return bind_told(op, args, attrs, mode, quick, True)
    plan = op.plan(needs) if needs and mode & GRAD else None
    called = None
    if op.own is not None and not mode & AUTOCAST:     # (there the callers hand over to `bind`)
        called = op.own.plan_as_called(args, needs)
    settled = args
    if called is not None:            # the same memory and bits as when nobody watches
        settled = called[0]
        arrays[:] = [a.array if isinstance(a, Tensor) else a for a in settled]
        plan = plan and called[1]
    if plan is not None and plan.wanted and hooks:
        _hand_over(op, plan, settled)
    outs: Any = None
    for observer in observers:
        supplied = observer.supply(op, args, attrs)
        outs = outs or supplied
    outs = outs or retried(observers, compute, op, arrays, attrs)
    arrays.clear()
    for observer in observers:
        observer.computed(op, args, attrs, outs)
    if plan is None or not plan.wanted:
        result = unrecorded(op, settled, outs, mode, attrs)
    else:
        result = record(op, plan, settled, attrs, outs, mode)
    del outs, settled, called
    if observers:
        made = result if op.multi else (result,)
        edge = made[0]._edge if made else None
        for observer in observers:
            observer.after(op, args, attrs, made, edge.node if type(edge) is Port else edge)
    return result


def bind_told(op: Op, args: Sequence[Any], attrs: Mapping[str, Any], mode: int, quick: bool,
              begun: bool) -> Any:
    """An op that runs as when nobody watches, and is told of afterwards."""
    token = change(clear_bits=WATCH | TOLD)
    try:
        result = (bind(op, args, attrs, quick or op.thrift is None) if op.own is None
                  else op.own.function(*args))
    finally:
        restore(token, mode)
    told(op, args, attrs, result, begun)
    return result


def told(op: Op, args: Sequence[Any], attrs: Mapping[str, Any], result: Any, begun: bool = False
         ) -> None:
    """What machine code calls when it has run an op, where observers are content with that."""
    observers = watchers.observers.get()
    if not observers:
        return pack_made(result if op.multi else (result,))
    if len(observers) == 1 and (ran := observers[0].ran) and ran(op, args, attrs, result):
        return
    for observer in observers:
        if observer.ran is not None or not begun:
            observer.before(op, args, attrs)
    made = result if op.multi else (result,)
    first = node = made[0]._edge if made else None
    if op.multi:
        node = next((t._edge for t in made if t._edge is not None), None)
    if type(node) is Port:
        node, first = node.node, first and first.node
    for observer in observers:
        if node is not None:
            observer.forward(node, args, made)
        observer.after(op, args, attrs, made, first)


def retried(observers: Sequence[Any], body: Callable[..., Any], *args: Any) -> Any:
    """`body(*args)`, again for as long as memory is refused and an observer can free some."""
    while True:
        try:
            return body(*args)
        except MemoryError as error:
            if observers:
                error.__traceback__ = None        # its frames hold what was computed so far
            if not any([o.refused(error) for o in observers]):
                raise


def patiently(body: Callable[..., Any], *args: Any) -> Any:
    """`body(*args)`, which is pure and no op, again where memory is refused as for an op."""
    return retried(watchers.observers.get(), body, *args) if state() & WATCH else body(*args)


def _bind_level(op: Op, args: Sequence[Any], attrs: Mapping[str, Any], needs: int,
                trace: Any) -> Any:
    """An op on values of a transform: its rule, and a node over those values if one wants a
    gradient. Views are tied to their base, so that in-place ops reach it."""
    if not trace.alive:
        trace.check(next(a for a in args if isinstance(a, Tensor) and a.level == trace.level))
        return bind(op, args, attrs)
    mode = state()
    plan = op.plan(needs) if needs and mode & GRAD else None
    if plan is None or not plan.wanted:
        outs = trace.process(op, args, attrs)
        made = outs if op.multi else (outs,)
    else:
        full = op.exposed
        short = full.unrolled and len(args) == 2 and not attrs
        found = trace.pair(full, *args) if short else trace.process(full, args, attrs)
        every = tuple(found) if full.multi else (found,)
        made = record_level(op, plan, args, attrs, every, mode)
    if op.view and args and isinstance(args[0], Tensor):
        for i, t in enumerate(made):
            _tie(t, args[0], op, attrs, i if op.multi else -1)
    return tuple(made) if op.multi else made[0]


def record_level(op: Op, plan: Plan, args: Sequence[Any], attrs: Mapping[str, Any],
                 outs: tuple[Any, ...], mode: int) -> list[Any]:
    node: Any = op.node_type()
    node.plan = plan.variant(fast=None) if plan.fast is not None else plan
    if attrs or op.wide:
        node.attrs = attrs
    node.edges = tuple([edge_of(a) if plan.needs >> i & 1 and isinstance(a, Tensor) else None
                        for i, a in enumerate(args)])
    node.seq = next_sequence()
    frame = provenance.user_frame(_getframe(3))
    node.code, node.lasti = (frame.f_code, frame.f_lasti) if frame else (None, 0)
    outs = tuple([o.trace.strip(o) if isinstance(o, Tensor) and o._rg and o.level else o
                  for o in outs])
    many = op.multi
    _save(node, plan, args, tuple([_lower(o) for o in outs]) if plan.keeps_out or many else outs)
    if mode & WATCH:
        pack_all(node)
    visible = outs[: len(op.outs)] if not op.variadic_out else outs
    avals = [aval_of_operand(o) for o in visible]
    node.shape = tuple(a.shape for a in avals) if many else avals[0].shape
    node.dtype = tuple(a.dtype for a in avals) if many else avals[0].dtype
    if many:
        node.ports = len(visible)
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
    t: Any = new_tensor()
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
    if op.thrift is not None:
        def thrifty(*args: Any, **attrs: Any) -> Any:
            for a in args:
                if type(a) is Tensor and type(a._edge) not in _LEAVES and _large(a):
                    return bind(op, args, attrs, False)
            made = None if machine is None else machine(op, args, attrs)
            return bind(op, args, attrs, False) if made is None else made
        return thrifty

    def call(*args: Any, **attrs: Any) -> Any:
        if machine is not None:
            made = machine(op, args, attrs)
            if made is not None:
                return made
        return bind(op, args, attrs, False)
    return call


def compute(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any],
            wrapped: bool = True) -> tuple[Any, ...]:
    """The raw results, as a tuple of arrays, hidden ones last."""
    for a in arrays:
        kind = type(a)
        if kind is ndarray:
            if a.dtype.hasobject:       # generated code counts no references
                of_numpy(a.dtype)       # (it refuses)
        elif kind is MetaArray:
            return _compute_meta(op, arrays, attrs, wrapped)
    if op.prepare is not None:
        arrays = op.prepare(arrays)
    try:
        out = op.run(*arrays, **attrs)
    except AdjointError:
        raise
    except REFUSALS as error:
        raise _refusal(op, arrays, attrs, error) from error
    if type(out) is not tuple:
        return (out if type(out) is ndarray or not wrapped else np.asarray(out),)
    return tuple(o if type(o) is ndarray else np.asarray(o) for o in out)


def _refusal(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any], error: Exception
             ) -> AdjointError:
    """The error to raise where computing raised `error`: what the shape rule says, if it minds."""
    try:
        op.infer(*(None if a is None else aval_of(a) for a in arrays), **attrs)
    except AdjointError as told:
        return told
    except Exception:               # the rule could not even be asked
        pass
    if isinstance(error, TypeError) and str(error).startswith("ufunc"):     # no loop for the dtype
        present = [a for a in arrays if a is not None]
        return lacking(f"{op.name}_cpu", result_type(present))
    kind = DTypeError if isinstance(error, TypeError) else ShapeError
    shapes = ", ".join("None" if a is None else repr(aval_of(a)) for a in arrays)
    return kind(f"{op.name}({shapes}): {error}")


def _compute_meta(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any],
                  wrapped: bool) -> tuple[Any, ...]:
    running = rehearsal()
    if running is not None:
        found: tuple[Any, ...] = running.compute(op, arrays, attrs, wrapped)
        return found
    if op.prepare is not None:
        arrays = op.prepare(arrays)
    outs = inferred(op, arrays, attrs)
    seen = arrays[0] if op.view else None
    return tuple(laid_out(op, seen, attrs, outs)) if isinstance(seen, MetaArray) else outs


def inferred(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Storage-less results by the record's shape rule; prepared operands."""
    result = op.infer(*(None if a is None else aval_of(a) for a in arrays), **attrs)
    many = result if type(result) in (tuple, list) else (result,)
    base = arrays[0] if op.view and isinstance(arrays[0], MetaArray) else None
    if base is not None and base.base is not None:
        base = base.base
    return tuple(MetaArray(a.shape, a.dtype, base) for a in many)


def unrecorded(op: Op, args: Sequence[Any], outs: tuple[Any, ...], mode: int,
               attrs: Mapping[str, Any]) -> Any:
    """Tensors without history for the visible outputs."""
    made = []
    for array in outs[: _visible(op, outs)]:
        t: Any = new_tensor()
        t.array, t._edge, t._rg = array, None, False
        t._cell = INFERENCE_CELL if mode & INFERENCE else None
        made.append(t)
    if op.view and args and isinstance(args[0], Tensor):
        make_views(made, args[0], op, attrs, mode)
    return tuple(made) if op.multi else made[0]


def record(op: Op, plan: Plan, args: Sequence[Any], attrs: Mapping[str, Any],
           outs: tuple[Any, ...], mode: int) -> Any:
    """Tensors with history: one node, its residuals, and an edge per wanted operand."""
    node: Any = op.node_type()
    node.plan = plan
    if attrs or op.wide:
        node.attrs = attrs
    needs = plan.needs
    node.edges = tuple([edge_of(a) if needs >> i & 1 and isinstance(a, Tensor) else None
                        for i, a in enumerate(args)])
    node.seq = next_sequence()
    frame = provenance.user_frame(_getframe(2))
    node.code, node.lasti = (frame.f_code, frame.f_lasti) if frame else (None, 0)
    cells = _save(node, plan, args, outs, op.thrift)
    made = _outputs(node, op, outs, cells)
    if op.view:
        make_views(made, args[0], op, attrs, mode)
    if mode & WATCH:
        watch(node, args, made)
    return tuple(made) if op.multi else made[0]


def _hand_over(op: Op, plan: Plan, args: Sequence[Any]) -> None:
    """Give a hook that needs nothing beyond this op's operands those, before the op is computed:
    it ends the program there (the recomputation of a checkpoint)."""
    hook = watchers.hooks.get()[-1]
    if not hook.ends(len(plan.sources)) or any([kind not in ("in", "aval")
                                                for kind, _ in plan.sources]):
        return
    node: Any = op.node_type()
    node.plan = plan
    frame = provenance.user_frame(_getframe(3))
    node.code, node.lasti = (frame.f_code, frame.f_lasti) if frame else (None, 0)
    _save(node, plan, args, (), op.thrift)
    if hook.ends(len([s for s in node.saved if isinstance(s, (Tensor, Kept))])):
        pack_all(node)


def _save(node: Node, plan: Plan, args: Sequence[Any], outs: tuple[Any, ...],
          thrift: Callable[[Any], Any] | None = None) -> dict[int, Cell]:
    """Keep the residuals the plan names; returns the cells made for saved outputs."""
    cells: dict[int, Cell] = {}
    node.saved = None
    if not plan.names:
        return cells
    name = plan.op.name
    saved: list[Any] = []
    for kind, i in plan.sources:
        if kind == "in":
            saved.append(thrift and thrift(args[i]) or keep(args[i], name))
        elif kind == "out":
            saved.append(out_ref(outs[i], cells.setdefault(i, Cell()), i))
        elif kind == "aval":
            saved.append(None if args[i] is None else aval_of_operand(args[i]))
        elif kind == "xs":
            saved.append(tuple([keep(a, name) for a in args]))
        elif kind == "avals":
            saved.append(tuple([aval_of_operand(a) for a in args]))
        else:
            saved.append(tuple([out_ref(o, cells.setdefault(k, Cell()), k)
                                for k, o in enumerate(outs)]))
    node.saved = tuple(saved)
    return cells


def aval_of_operand(a: Any) -> Aval:
    if type(a) is Tensor:
        return aval_of(a.array)
    if isinstance(a, Tensor) and a.level:
        return Aval(*a.trace.aval(a))            # (without the array that stands for its values)
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
        t: Any = new_tensor()
        t.array, t._cell = array, cells.get(i)
        if op.carries(i):
            t._rg = True
            t._edge = Port(node, i, array.shape, array.dtype) if op.multi else node
        else:
            t._rg, t._edge = False, None
        made.append(t)
    return made


# ---------------------------------------------------------------------- residuals made again
# A matrix product reads, for the gradient of its weight, the result of the activation before it.
# The activation keeps its own operand in any case, so its result costs nothing but a pass over
# memory to have back, while keeping it costs as much as the operand. A record names `remade` as its
# `thrift` to say so. Only large results of pointwise ops whose node keeps all of its operands
# qualify, and of dropout on such a result, or on one that its own node keeps. Only where generated
# kernels make a pass over memory of the op, and only while no saved-tensor hook wants to see
# residuals; the value has the same bits.
class Remaking:
    """When residuals are made again, and how: it stands where a saved-tensor hook would."""
    least_bytes = 1 << 20      # below, the call costs more than the memory is worth
    quick = False              # set where kernels are put behind the records

    def unpack(self, packed: Packed, node: Any) -> Tensor:
        """The value; an operand that was written to since is refused as the activation would."""
        made, operands = packed.value
        arrays = [value_of(s, made) for s in operands]
        return wrap(compute(made.plan.op, arrays, made.attrs)[0])


remaking = Remaking()


_LEAVES = AccumulateGrad, type(None)


def _large(a: Any) -> bool:
    return isinstance(a, Tensor) and not a.level and a.array.nbytes >= remaking.least_bytes


def remade(t: Any) -> Packed | None:
    """What to keep of the operand `t` in place of its memory; None to keep it as it is.

    >>> import adjoint as ad
    >>> h, w = ad.ones(512, 1024, requires_grad=True), ad.ones(8, 1024, requires_grad=True)
    >>> y = ad.nn.functional.linear(ad.nn.functional.gelu(h), w)
    >>> y.grad_fn.saved_tensors[1].shape                 # made when asked for
    adjoint.Size([512, 1024])
    """
    if type(t) is not Tensor or not t._rg or not remaking.quick or not _large(t):
        return None
    if t._base is not None or _written(t._cell) or state() & WATCH and watchers.hooks.get():
        return None
    return _again(t._edge, t._masks)


def masking(t: Any, made: Any) -> None:
    """Note that `made` is a mask on `t` as the node of `t` has given it, if it is."""
    if _large(t) and type(t) is Tensor is type(made) and t._base is None and not _written(t._cell):
        made._masks = made._rg


def _written(cell: Cell | None) -> bool:
    """Whether it was written to since it was made, or by whom nobody sees."""
    return cell is not None and bool(cell.version or cell.exposed)


def _again(node: Any, masks: bool) -> Packed | None:
    """How to make the result of a node again of what the graph holds anyway; None where it cannot.
    `masks`: operand 0 is what its own node gave."""
    if type(node) is Port or getattr(node, "plan", None) is None:
        return None
    plan, saved = node.plan, node.saved
    if type(saved) is not tuple or plan.op.scalar is None and not masks:
        return None
    held = {i: s for (kind, i), s in zip(plan.sources, saved, strict=True) if kind == "in"}
    operands = [held.get(i) for i in range(len(plan.op.operands))]
    if masks:
        operands[0] = _result(node.edges[0])
        if operands[0] is None:
            return None
    elif any([type(s) is not Tensor and type(s) is not Kept for s in operands]):
        return None
    return Packed((node, operands), remaking, node, -1)


def _result(node: Any) -> OutRef | Packed | None:
    """The result of a node as it keeps it, or how to make it."""
    plan = getattr(node, "plan", None)
    if plan is not None and ("out", 0) in plan.sources and type(node.saved) is tuple:
        kept = node.saved[plan.sources.index(("out", 0))]
        return kept if type(kept) is OutRef and not _written(kept.cell) else None
    return _again(node, False)


def release(node: Any) -> None:
    """Free the residuals of a node."""
    node.saved = None


__all__ = ["AccumulateGrad", "AutogradError", "bind", "bind_told", "compute", "function_of",
           "masking", "packed", "patiently", "record", "record_level", "release", "remade",
           "retried", "tensor_of", "told", "unrecorded", "value_of", "watch"]
