"""In-place ops and views, with PyTorch's semantics.

An in-place op writes into the tensor's memory, bumps the version of its storage and gives the
tensor a new node. Where the tensor is a view, its base is given the history

    base' = scatter_into(base, op(view(base), ...))        (node: CopySlices)

and every live view of that base is re-derived from it, so that base and views agree.
"""
from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import Aval, MetaArray, aval_of
from adjoint.base.dtypes import F32, category, is_inexact, scalar_type
from adjoint.base.errors import AdjointError, AutogradError, DTypeError, NotSupported, ShapeError
from adjoint.core import bind as general
from adjoint.core import modes
from adjoint.core.bind import bind, compute, record
from adjoint.core.callers import SCALARS32, SCALARS64
from adjoint.core.modes import GRAD, INFERENCE, WATCH, state, watchers
from adjoint.core.op import OPS, Op, op
from adjoint.core.rehearsal import call
from adjoint.core.tensor import (
    INFERENCE_CELL,
    OutRef,
    Parameter,
    Port,
    Tensor,
    bump,
    edge_of,
    named,
    take_full_path,
    wrap,
)
from adjoint.core.trace import become, entered, refuse_captured, top_level


def inplace(op_: Op, target: Tensor, others: Sequence[Any] = (),
            attrs: Mapping[str, Any] | None = None, *, name: str = "", position: int = 0) -> Tensor:
    """target <- op(target, *others), in target's memory; `position` is target's operand index."""
    attrs = attrs or {}
    args = (*others[:position], target, *others[position:]) if position else (target, *others)
    label = name or op_.name + "_"
    if len(args) != len(op_.operands):
        raise DTypeError(f"{label}() takes {len(op_.operands) - 1} arguments beside the tensor, "
                         f"got {len(others)}")
    if op_.own is not None and op_.own.write(*args, label) is not None:
        return target
    cell = target._cell if type(target) is Tensor else INFERENCE_CELL
    for a in others if cell is not None and cell is not INFERENCE_CELL else ():
        if type(a) is Tensor and a._cell is cell:
            from adjoint.core import views
            views.refuse_shared(op_, target, others, position)
            break
    if _copied(op_, target, args, attrs, label) \
            or _quickly(op_, target, args, attrs, label):
        return target
    mode = state()
    if not isinstance(target, Tensor):
        raise DTypeError(f"{label}(): argument 'input' (position 1) must be Tensor, not "
                         f"{type(target).__name__}")
    level = max([a.level for a in args if isinstance(a, Tensor)])
    if level >= 1:
        trace = top_level(args)
        if not trace.alive:
            trace.check(next(a for a in args if getattr(a, "trace", None) is trace))
            return inplace(op_, target, others, attrs, name=name, position=position)
        return _inplace_level(op_, target, args, attrs)
    if level or mode & WATCH and watchers.modes.get():
        written: Tensor = watchers.write(op_, target, args, attrs, label)
        return written
    recording = check_writable(target, args, mode, attrs.get("index") or ())
    observers = watchers.observers.get() if mode & WATCH else ()
    for observer in observers:
        observer.before_write(target)
        observer.before(op_, args, attrs)
    try:
        _write_recorded(op_, target, args, attrs, label, mode, recording)
    except NotSupported:
        if target._held is not None or not [o for o in others if strided(o) is not o]:
            raise
        return inplace(op_, target, [strided(o) for o in others], attrs, name=name,
                       position=position)
    for observer in observers:
        observer.after(op_, args, attrs, (target,), target.grad_fn if recording else None)
    return target


def _by_python(*_: Any) -> None:
    """In the place of machine code where there is none."""


# Counts a write that is about to be made to a plain tensor of which no gradient is wanted, by
# machine code: (target, name) -> True; None, with nothing done, for everything else.
touch: Callable[..., Any] = _by_python
_PLAIN = {Tensor, Parameter}
strided: Any = None      # a sparse operand as a dense one
LARGE = 32768           # elements from which on a result is not made beside its target


def storable(number: Any) -> bool:
    """Whether any float array takes a number without overflow (inf is one)."""
    return type(number) in (int, float) and (-3e38 < number < 3e38 or number - number != 0)


def _copied(op_: Op, target: Tensor, args: tuple[Any, ...], attrs: Mapping[str, Any],
            label: str) -> bool:
    """The same for an op of several operands or attributes, which machine code binds: what it made
    is what the target holds from now on. False, with nothing done, for everything else."""
    if (op_.own is not None or op_.inplace is not None or general.machine is None
            or (mode := state()) > GRAD or type(target) not in _PLAIN or mode and target._rg
            or target.array.size >= LARGE):
        return False
    made = general.machine(op_, args, attrs)
    if type(made) is not Tensor or made._rg:
        return False
    array, out = target.array, made.array
    if array.dtype is out.dtype and array.shape == out.shape and touch(target, label) is not None:
        array[...] = out
        return True
    return False


def _quickly(op_: Op, target: Tensor, args: tuple[Any, ...], attrs: Mapping[str, Any],
             label: str) -> bool:
    """What most writes are: to a plain tensor that lies in order, where no gradient is wanted and
    nobody watches. False, with nothing done, for everything else."""
    mode = state()
    if mode > GRAD or type(target) not in _PLAIN or target._cell is INFERENCE_CELL:
        return False
    array, base, own = target.array, target._base, op_.own
    if type(array) is not np.ndarray or not array.flags.carray or (
            mode and base is not None and base._rg):
        return False
    dtype = array.dtype
    for a in args:
        kind = type(a)
        if kind is Tensor or kind is Parameter:
            there = a.array
            if mode and a._rg or type(there) is not np.ndarray:
                return False
        elif kind is float or kind is int:
            if own is not None:                         # machine code knows numbers seen before
                (SCALARS32 if dtype is F32 else SCALARS64)[a]
        elif kind is not np.ndarray:
            return False
    made = None
    if own is not None and array.size < LARGE:
        made = own.machine(*args) if own.machine is not None else None
    elif op_.inplace is None and array.size < LARGE:
        made = bind(op_, args, attrs)
    out = made.array if type(made) is Tensor else None
    if out is not None and out.shape == array.shape and out.dtype is dtype:
        array[...] = out
    else:
        _written(op_, array, [a.array if isinstance(a, Tensor) else a for a in args], attrs, label)
    if touch(target, label) is None:
        bump(target, label)
    return True


def _write_recorded(op_: Op, target: Tensor, args: Sequence[Any], attrs: Mapping[str, Any],
                    label: str, mode: int, recording: bool) -> None:
    """Write into the target and, where a gradient is wanted, give it its new history."""
    arrays = [a.array if isinstance(a, Tensor) else a for a in args]
    if not recording:
        write(op_, target, arrays, attrs, label)
        bump(target, label)
        return
    if not target._rg:
        entered(target, op_.name)
    plan = op_.plan(sum(1 << i for i, a in enumerate(args) if isinstance(a, Tensor) and a._rg))
    before = list(args)
    if target._base is not None and target._rg:   # hooks of what it was are not asked, as PyTorch's
        from adjoint.core import views
        views.unhooked(target, before)
    for kind, i in plan.sources:                  # a rule reads the value that is overwritten
        a = before[i] if kind == "in" else None
        if isinstance(a, Tensor) and (a is target or a._cell is not None
                                      and a._cell is target._cell):
            before[i] = shadow(a)
    outs = write(op_, target, arrays, attrs, label)
    bump(target, label)
    if not plan.wanted:                           # the new value depends on nothing that counts
        if not target._rg:
            return
        made = named(record(OPS["copy"], OPS["copy"].plan(1), (target, target.array), {}, outs[:1],
                            mode), op_.node)
    else:
        made = record(op_, plan, before, attrs, outs, mode)
        made = made[0] if isinstance(made, tuple) else made
    node = made._edge.node if type(made._edge) is Port else made._edge
    share_output_cell(node, target)
    rebase(target, made)


def _inplace_level(op_: Op, target: Tensor, args: Sequence[Any],
                   attrs: Mapping[str, Any]) -> Tensor:
    """In-place ops on values of a transform: the new value is computed beside the old one, and
    the target, its base and the base's views are made to show it."""
    _check_level(target, args)
    _unlent(target, args)
    # (a tape of a lower level keeps the old value, not the object that is about to change)
    made = bind(op_, args if target.level else [shadow_edge(a) if a is target else a
                                                for a in args], attrs)
    made = made[0] if isinstance(made, tuple) else made
    root = target._base if target._base is not None else target
    if made.level > target.level and any(root is s for s in made.trace.shared):
        raise AutogradError(
            f"vmap: {op_.name}_ would write one value per example into a tensor of shape "
            f"{list(root.shape)} that all examples share (its in_dims is None), at "
            f"{provenance.here(sys._getframe(1))}; map it too, or compute a new value")
    if made.level and not root.level:
        refuse_captured(target, op_.name, made.trace.name == "vmap")
    made = _fitting(op_, target, made)
    _show_level(root, made if root is target else bind(
        scatter_into.op, (root, made), {"steps": target._steps}))
    return target


def _show_level(root: Any, made: Any) -> None:
    """`root` and its views show a new value."""
    become(root, made)
    for ref in list(root._kids or ()):
        kid = ref()
        if kid is not None:
            become(kid, replay(shadow_level(root), kid._steps))


def _fitting(op_: Op, target: Tensor, made: Any) -> Any:
    """The new value in the dtype of the target; an in-place op changes neither it nor the shape."""
    if tuple(made.shape) != tuple(target.shape):
        raise ShapeError(f"output with shape {list(target.shape)} doesn't match the broadcast shape"
                         f" {list(made.shape)} ({op_.name}_ inside of a transform)")
    want, have = target.array.dtype, made.array.dtype
    if have == want:
        return made
    if category(have) > category(want):
        raise DTypeError(f"result type {scalar_type(have)} can't be cast to the desired output "
                         f"type {scalar_type(want)} ({op_.name}_ inside of a transform)")
    return bind(OPS["to_dtype"], (made,), {"dtype": want})


# ---------------------------------------------------------------- arguments of transforms
def lend(t: Any, *sources: Any) -> Any:
    """`t`, a value of a transform, stands for tensors of the level below: what in-place ops make
    of it is written into them when the transform ends, by `settle`."""
    t.__dict__["_lent"] = (t.trace, sources)
    return t


def settle(trace: Any) -> None:
    """Write into the arguments of a transform what in-place ops made of them."""
    mode = state()
    written, trace.written = trace.written, {}
    for t, recorded in written.values():
        token = modes.change(set_bits=GRAD if recorded else 0, clear_bits=0 if recorded else GRAD)
        try:
            for source, value in zip(t.__dict__["_lent"][1], trace.held(t), strict=True):
                inplace(OPS["copy"], source, (value,))
        finally:
            modes.restore(token, mode)


def _unlent(target: Any, args: Sequence[Any]) -> None:
    """Before an argument is written to for the first time: where a tape may keep its old value,
    go on with a copy, for the argument itself will be overwritten."""
    root = target if target._base is None else target._base
    if "_lent" in root.__dict__ and root.level and state() & GRAD:
        trace, sources = root.__dict__["_lent"]
        if root.trace is trace and root.value is sources[0] and any(map(_recorded, args)):
            _show_level(root, bind(OPS["clone"], (root,), {}))


def _recorded(a: Any) -> bool:
    """True for a tensor that a tape follows, at its level or one below."""
    return isinstance(a, Tensor) and (a._rg or bool(a.level) and any(
        _recorded(a.__dict__.get(part)) for part in ("value", "tangent")))


def _check_level(target: Any, args: Sequence[Any]) -> None:
    """Refuse what may not be written to, at this level or below, and note an argument for
    `settle`."""
    mode = state()
    check_writable(target, args, mode)
    while True:
        root = target if target._base is None else target._base
        lent = root.__dict__.get("_lent")
        if lent is None:
            return
        trace, sources = lent
        before = trace.written.get(id(root))
        trace.written[id(root)] = (root, mode & GRAD or before is not None and before[1])
        target = sources[0]
        check_writable(target, (target,), mode)


def reshape_level(target: Any, view: Callable[[Any], Any]) -> None:
    """`target`, a value of a transform, becomes what `view(target)` is: a view of a second object
    for its value, through which later writes reach an argument."""
    root = target._base
    if root is None:
        root = shadow_level(target)
        if "_lent" in target.__dict__:
            root.__dict__["_lent"] = target.__dict__.pop("_lent")
    made = view(root if target._base is None else target)
    become(target, made)
    target._base, target._steps = root, made._steps
    root._kids = [*(root._kids or ()), weakref.ref(target)]


def shadow_level(root: Any) -> Any:
    """A second object for the value of `root`, so that views of it register elsewhere."""
    if not root.level:
        return shadow_edge(root)
    twin = root.trace.strip(root)
    twin._rg, twin._edge = root._rg, root._edge
    return twin


def shadow(t: Tensor) -> Tensor:
    """A copy of `t`'s present value with `t`'s present place in the graph."""
    copy = wrap(t.array.copy() if isinstance(t.array, np.ndarray) else
                call(np.ndarray.copy, t.array,
                     otherwise=lambda: MetaArray(t.array.shape, t.array.dtype)))
    copy._edge, copy._rg = (edge_of(t) if t._rg else None), t._rg
    return copy


def share_output_cell(node: Any, target: Tensor) -> None:
    """A saved output of an in-place op lives in the target's storage: watch that one's version.
    Whoever was told of the output looks there too."""
    cell = target._cell
    if cell is None or node.saved is None:
        return
    for s in node.saved:
        if type(s) is OutRef and s.index == 0:
            s.array, s.cell, s.version = target.array, cell, cell.version


def reaches(array: Any) -> list[tuple[int, int]]:
    """(bytes between neighbours, how many there are) of each axis with several, the least first."""
    return sorted([(abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1])


def overlaps(array: Any, twice: bool = True) -> bool:
    """Whether elements of the array are one place in memory: those of an expanded one, and, with
    `twice`, those of windows that overlap."""
    if not isinstance(array, np.ndarray) or not array.size or array.flags.c_contiguous:
        return False
    reach = array.itemsize
    for stride, n in reaches(array):
        if stride == 0 or stride < reach and twice:
            return True
        reach += stride * (n - 1)
    return False


def refuse_inner(target: Tensor, recording: bool, index: Any = ()) -> None:
    """Raise where two elements that are written (of the target, or its part at `index`) are one
    place in memory: in expanded tensors; in windows where a gradient would count it twice."""
    array, twice = target.array, recording and target._base is not None
    if overlaps(array, twice) and not (index and not overlaps(array[(*index, ...)], twice)):
        raise AutogradError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the "
            f"operation. (shape {list(array.shape)}, byte strides {array.strides})")


def check_writable(target: Tensor, args: Sequence[Any], mode: int, index: Any = ()) -> bool:
    """Raise where an in-place op may not be applied (at `index`); True to record its history."""
    refuse_inner(target, bool(mode & GRAD), index)
    if target._cell is INFERENCE_CELL and not mode & INFERENCE:
        raise AutogradError(
            "Inplace update to inference tensor outside InferenceMode is not allowed.You can "
            "make a clone to get a normal tensor before doing inplace update.See "
            "https://github.com/pytorch/rfcs/pull/17 for more details.")
    if not mode & GRAD or not is_inexact(target.array.dtype):
        return False
    base = target._base
    wants = any([isinstance(a, Tensor) and a._rg for a in args])
    if not wants and not (base is not None and base._rg):
        return False
    refuse_rewriting(target, bool(index))
    return True


def refuse_rewriting(target: Tensor, part: bool = False) -> None:
    """Raise where the history of `target`, or of a part of it, may not be replaced, under grad
    mode."""
    base = target._base
    if base is None:
        if target._rg and target.is_leaf:
            raise AutogradError(
                f"{'a view of ' * part}a leaf Variable that requires grad is being used in an "
                "in-place operation.\n"
                f"  at {provenance.here(sys._getframe(2))}\n  fix: update parameters under "
                "`with no_grad():`, or write out of place (w = w - g)")
        return
    if target._creation:
        from adjoint.core.views import forbidden
        raise AutogradError(forbidden(target, "is being modified inplace"))
    if base.is_leaf and (base._rg or target._rg) or target._rg and target.is_leaf:
        raise AutogradError(
            "a view of a leaf Variable that requires grad is being used in an in-place "
            f"operation.\n  at {provenance.here(sys._getframe(2))}\n"
            "  fix: clone the leaf first, or update it under `with no_grad():`")


def write(op_: Op, target: Tensor, arrays: Sequence[Any], attrs: Mapping[str, Any],
          label: str) -> tuple[Any, ...]:
    """Compute and store; the outputs as seen by the rules, the target's own array first."""
    array = target.array
    if type(array) is MetaArray or any([type(a) is MetaArray for a in arrays]):
        return call(_written, op_, array, arrays, attrs, label,
                    otherwise=lambda: _unwritten(op_, array, arrays, attrs, label))
    if not array.flags.writeable:
        raise AutogradError(f"{label}: the tensor shares memory with a read-only NumPy array; "
                            "clone() it first")
    return _written(op_, array, arrays, attrs, label)


def _unwritten(op_: Op, array: Any, arrays: Sequence[Any], attrs: Mapping[str, Any],
               label: str) -> tuple[Any, ...]:
    """What `write` gives where there is nothing to write to."""
    outs = compute(op_, arrays, attrs)
    check_fit(array, outs[0], label)
    return (array, *outs[1:])


def _written(op_: Op, array: Any, arrays: Sequence[Any], attrs: Mapping[str, Any],
             label: str) -> tuple[Any, ...]:
    if op_.inplace is not None:
        try:
            op_.inplace(array, *arrays, **attrs)
        except ValueError as error:
            if isinstance(error, AdjointError):
                raise
            raise ShapeError(f"{label}: {error}") from error
        return (array,)
    if array.size >= LARGE and op_.stored(array, arrays, attrs):
        return (array,)
    ufunc = op_.impl if isinstance(op_.impl, np.ufunc) else None
    if (ufunc is not None and not attrs and all(
            isinstance(a, np.ndarray) and a.dtype == array.dtype for a in arrays)
            and np.broadcast_shapes(*(a.shape for a in arrays)) == array.shape):
        ufunc(*arrays, out=array)
        return (array,)
    outs = compute(op_, arrays, attrs)
    check_fit(array, outs[0], label)
    np.copyto(array, outs[0], casting="unsafe")
    return (array, *outs[1:])


def check_fit(array: Any, out: Any, label: str) -> None:
    if out.shape != array.shape:
        raise ShapeError(f"output with shape {list(array.shape)} doesn't match the broadcast shape "
                         f"{list(out.shape)} ({label}: an in-place op cannot grow its tensor)")
    if out.dtype.kind in "OSUMm":
        raise DTypeError(f"{label}: an array of {out.dtype} is no operand: it holds no numbers")
    if category(out.dtype) > category(array.dtype):
        raise DTypeError(f"result type {scalar_type(out.dtype)} can't be cast to the desired "
                         f"output type {scalar_type(array.dtype)} ({label})")


# ---------------------------------------------------------------------- history of views
def replay(base: Any, steps: Sequence[Any]) -> Any:
    """Apply the recorded view ops to `base` (a tensor or a raw array)."""
    for op_, attrs, index in steps:
        out = bind(op_, (base,), attrs)
        base = out if index < 0 else out[index]
    return base


def places(array: Any, steps: Sequence[Any]) -> Any:
    """The raw view of an array, which lies where it lies: signs are not turned."""
    for op_, attrs, index in steps:
        if op_.name in TURNS:
            continue
        out = op_.impl(array, **attrs)
        array = out if index < 0 else out[index]
    return array


TURNS: dict[str, Any] = {"conj": np.conjugate, "neg": np.negative}


def turning(x: Any, steps: Sequence[Any], ops: Mapping[str, Any] = TURNS) -> Any:
    """`x` conjugated and negated as the steps do it."""
    for name, f in ops.items():
        if sum([op_.name == name for op_, _, _ in steps]) % 2:
            x = f(x)
    return x


def _scatter(base: Any, src: Any, /, *, steps: Any) -> Any:
    out = np.array(base, order="C")
    places(out, steps)[...] = turning(src, steps)
    return out


scatter_into = op(
    "scatter_into", impl=_scatter, infer=lambda base, src, *, steps: Aval(base.shape, base.dtype),
    vjp={"base": lambda ct, src_aval, *, steps: scatter_into(ct, zeros_of(src_aval), steps=steps),
         "src": lambda ct, *, steps: replay(ct, steps)},
    jvp={"base": lambda t, src_aval, *, steps: scatter_into(t, zeros_of(src_aval), steps=steps),
         "src": lambda t, base_aval, *, steps: scatter_into(zeros_of(base_aval), t, steps=steps)},
    cost=lambda base, src, **_: 0, node="CopySlices")


def _shown_aval(base: Any, /, *, steps: Any) -> Any:
    for op_, attrs, index in steps:
        out = op_.infer(base, **attrs)
        base = out if index < 0 else out[index]
    return base


# What a view is once its base was written to: one node, as PyTorch has it, whatever led there.
shown = op(
    "shown", impl=lambda base, /, *, steps: turning(places(base, steps), steps), infer=_shown_aval,
    vjp={"base": lambda ct, base_aval, *, steps: scatter_into(zeros_of(base_aval), ct,
                                                              steps=steps)},
    jvp={"base": None}, cost=lambda base, **_: 0, node="AsStridedBackward0")


def zeros_of(aval: Aval) -> Any:
    """A raw array of zeros of that aval (read-only, no memory to speak of)."""
    return np.broadcast_to(np.zeros((), aval.dtype), aval.shape)


def rebase(target: Tensor, made: Tensor) -> None:
    """`target` now is what `made` is: move the history over, and tell base and views."""
    root = target._base
    if root is None:
        move_history(target, made._edge)
        refresh_views(target, None)
        return
    old = shadow_edge(root)
    src = wrap(made.array)
    src._edge, src._rg = made._edge, made._rg
    plan = scatter_into.op.plan((1 if old._rg else 0) | 2)
    grown = record(scatter_into.op, plan, (old, src),
                   {"steps": target._steps}, (root.array,), state() & ~WATCH)
    move_history(root, grown._edge)
    refresh_views(root, None)


def move_history(t: Tensor, edge: Any) -> None:
    """Give `t` a new place in the graph; `retain_grad` goes with it, hooks stay behind."""
    if t._retains and t._edge is not None:
        old = t._edge.node if type(t._edge) is Port else t._edge
        old._retain.pop(t.output_nr, None)
        new = edge.node if type(edge) is Port else edge
        new._retain = {**(new._retain or {}), edge.index if type(edge) is Port else 0:
                       weakref.ref(t)}
        take_full_path(new)
    t._edge, t._rg = edge, True


def shadow_edge(t: Tensor) -> Tensor:
    """A stand-in for `t` with its place in the graph and its array (no copy)."""
    s = wrap(t.array)
    s._rg = t._rg
    s._edge = edge_of(t) if t._rg else None
    return s


def refresh_views(root: Tensor, skip: Tensor | None) -> None:
    """Derive the history of every live view of `root` anew."""
    if root._kids:
        from adjoint.core import views
        views.refresh(root, skip)


def refuse_overlap(target: Any, *operands: Any, whole: bool = False) -> None:
    """Raise where the target is written to while parts of it are read; see `core/views.py`."""
    from adjoint.core import views
    views.refuse_overlap(target, *operands, whole=whole)


def inplace_method(function: Callable[..., Any], label: str) -> Callable[..., Any]:
    """`x.name_(*args)` of an op function: the in-place form of a pointwise op."""
    record_ = function.op  # type: ignore[attr-defined]  # every op function carries its record

    def method(self: Tensor, *others: Any) -> Tensor:
        return inplace(record_, self, others, name=label)
    method.__name__ = method.__qualname__ = label
    return method


__all__ = ["Aval", "aval_of", "check_fit", "check_writable", "inplace",
           "inplace_method", "lend", "move_history", "rebase", "refresh_views", "refuse_rewriting",
           "replay", "scatter_into", "settle", "shown"]
