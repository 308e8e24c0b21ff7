"""PyTorch's `__torch_dispatch__`: modes and classes that take over ops below the tape.

    op on tensors ─> the tape: a node, its residuals, edges
                   └> the values: mode.__torch_dispatch__(func, types, args, kwargs), mode set aside
                                  class.__torch_dispatch__(func, types, args, kwargs)
                                  else the kernel

A class with `__torch_dispatch__` is a transform that is always on: its tensors have a level, below
those of the transforms of `func`, and its trace asks the class in the place of a rule. So the tape,
`vmap` and `jvp` work on such tensors as on others. Modes are met on the watched path of `bind`.

While an answer is being computed gradients are off: what it does lies below the tape. `func` is the
record of the op, which can be called; hidden results (a layer norm's mean) are results to it.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import default_dtype, to_numpy
from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.core import bind as binding
from adjoint.core import inplace as writing
from adjoint.core.modes import GRAD, change, modes_open, restore, state, watchers
from adjoint.core.op import LAYOUTS, OPS, OTHER, Op, Plan, _source
from adjoint.core.tensor import DISPATCHED, Cell, Port, Tensor, bump, edge_of, wrap
from adjoint.core.trace import Trace

NAME = "__torch_dispatch__"
# record -> how it is to be answered in terms of other ops, as PyTorch does
DECOMPOSED: dict[str, Callable[..., Any]] = {}
# record -> how handlers see its calls: (record, operands, attributes) -> (func, args, kwargs)
SHOWN: dict[str, Callable[..., tuple[Any, ...]]] = {}
# record -> (residuals that are shown, what shows its rules as the operator of PyTorch's backward:
# (cotangent, residuals by name, attributes, wanted operands) -> (func, args), a list of such, one
# per operand, or None: rule by rule)
PULLED: dict[str, tuple[Sequence[str], Callable[..., Any]]] = {}
_asked: dict[Plan, Plan] = {}
unasked: ContextVar[bool] = ContextVar("adjoint_dispatch_unasked", default=False)  # no class is
OVERLOAD_OF: dict[str, str] = {}            # record -> the overload of its in-place form
_in_place: dict[tuple[str, str], Any] = {}  # each form is one object, as operators are
# Of an object that a handler gave, what is of its place in a tape and not of its value.
_PLACE = ("_grad", "_base", "_steps", "_kids", "_creation", "_retains", "_born",
          "_is_param")


class ShownArray(MetaArray):
    """The `array` of a wrapper: shape and dtype of the value; what holds it, its class knows."""

    __slots__ = ()


def asks(t: Any) -> bool:
    """True for a tensor whose class has an answer for ops."""
    return isinstance(t, Tensor) and t.level == DISPATCHED


def _seen(x: Any) -> Any:
    """An operand as user code gets it."""
    if isinstance(x, np.generic):
        return x.item()
    return wrap(x) if isinstance(x, (np.ndarray, MetaArray)) else x


def _tensors(args: Sequence[Any]) -> list[Any]:
    return [t for a in args for t in (a if isinstance(a, (list, tuple)) else (a,))
            if isinstance(t, Tensor)]


def answer(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the innermost mode, else the classes of the operands, make of `func(*args, **kwargs)`;
    TypeError where all return NotImplemented."""
    owners: list[type] = []
    for t in _tensors(args):
        if asks(t) and type(t) not in owners:
            owners.append(type(t))
    types = tuple(owners)
    mode, stack = state(), watchers.modes.get()
    token = change(clear_bits=GRAD)
    try:
        if stack:
            held = watchers.modes.set(stack[:-1])
            try:
                result = stack[-1].__torch_dispatch__(func, types, tuple(args), dict(kwargs))
            finally:
                watchers.modes.reset(held)
            if result is not NotImplemented:
                return result
        for owner in owners:
            ask: Any = getattr(owner, NAME)
            result = ask(func, types, tuple(args), dict(kwargs))
            if result is not NotImplemented:
                return result
    finally:
        restore(token, mode)
    who = [f"{o.__module__}.{o.__qualname__}" for o in owners]
    by = f", nor by mode {type(stack[-1]).__name__}" if stack else ""
    raise TypeError(f"Multiple dispatch failed for '{func}'; all {NAME} handlers returned "
                    f"NotImplemented: {who}{by}")


def quietly(f: Callable[..., Any], *args: Any) -> Any:
    """What `f` gives; no mode is asked about what it does."""
    held = watchers.modes.set(())
    try:
        return f(*args)
    finally:
        watchers.modes.reset(held)


def results_of(op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Every result of an op, hidden ones last, by those that are asked."""
    record = OPS.get(op.name, op)
    seen = [_seen(a) for a in args]
    split = DECOMPOSED.get(record.name)
    if split is not None:
        mode = state()
        token = change(clear_bits=GRAD)
        try:
            result = split(*seen, **attrs)
        finally:
            restore(token, mode)
    else:
        given: Sequence[Any] = (seen,) if record.variadic else seen
        show = SHOWN.get(record.name)
        shown = (record, given, attrs) if show is None else show(record, given, attrs)
        result = answer(*shown[:3])
        if len(shown) == 4:                     # (what makes the record's results of PyTorch's)
            result = quietly(shown[3], *result)
    outs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if not record.variadic_out and len(outs) < len(op.outs):
        raise ArgumentError(f"{NAME} of {record.name} returned {len(outs)} results, expected "
                            f"{len(op.outs)}: {', '.join(op.outs)}")
    return tuple([o if isinstance(o, Tensor) else wrap(np.asarray(o)) for o in outs])


def route(op: Op, args: Sequence[Any], attrs: Mapping[str, Any], needs: int, mode: int) -> Any:
    """`bind` while a mode is open."""
    plan = op.plan(needs) if needs and mode & GRAD else None
    if plan is not None and not plan.wanted:
        plan = None
    outs = results_of(op if plan is None else op.exposed, args, attrs)
    if plan is not None and op.name in PULLED:
        plan = _asking(plan)
    if any([o.level for o in outs]):
        return _recorded(op, plan, args, attrs, outs, mode)
    if plan is not None:
        return binding.record(op, plan, args, attrs, tuple([o.array for o in outs]), mode)
    if op.view:
        return binding.unrecorded(op, args, tuple([o.array for o in outs]), mode, attrs)
    return outs[: len(outs) if op.variadic_out else len(op.outs)] if op.multi else outs[0]


def _asking(plan: Plan) -> Plan:
    """The plan of a node whose backward is one operator to those who are asked then."""
    made = _asked.get(plan)
    if made is None:
        wanted, show = PULLED[plan.op.name]
        names = (*plan.names, *[n for n in wanted if n not in plan.names])
        sources = tuple([_source(plan.op, n) for n in names])
        mask = tuple([bool(plan.needs >> i & 1) for i in range(len(plan.op.operands))])

        def rules(ct: Any, vals: list[Any], attrs: Mapping[str, Any], sums: Any = None) -> Any:
            held = [_seen(v) for v in vals]
            cts = tuple([_seen(c) for c in ct]) if isinstance(ct, (tuple, list)) else _seen(ct)
            if _one_operator(_tensors([cts, *held])):
                shown = show(cts, dict(zip(names, held, strict=True)), attrs, mask)
                if shown is not None:
                    return _pulled(shown, mask)
            return plan.run(ct, vals, attrs, len(mask), sums)
        made = _asked[plan] = plan.variant(
            names=names, kept=tuple([n for n in names if not n.endswith("_aval")]),
            sources=sources, layout=LAYOUTS.get(sources, OTHER), keeps_a=("in", 0) in sources,
            keeps_b=("in", 1) in sources, keeps_out=any([k == "out" for k, _ in sources]),
            rules=rules, fast=None, large=None, into=None, over=None, down=None, pick=None)
    return made


def _one_operator(tensors: Sequence[Any]) -> bool:
    """Somebody is asked, and the backward is not recorded itself."""
    return (modes_open() or any([asks(t) for t in tensors])) and not any([t._rg for t in tensors])


def _pulled(shown: Any, mask: Sequence[bool]) -> list[Any]:
    """The cotangents that operators give, per operand."""
    if isinstance(shown, list):
        return [None if s is None else answer(s[0], s[1], {}) for s in shown]
    found = answer(shown[0], shown[1], {})
    found = list(found) if isinstance(found, (tuple, list)) else [found]
    found += [None] * (len(mask) - len(found))
    return [f if wanted else None for f, wanted in zip(found, mask, strict=False)]


def _recorded(op: Op, plan: Plan | None, args: Sequence[Any], attrs: Mapping[str, Any],
              outs: tuple[Any, ...], mode: int) -> Any:
    made = list(outs) if plan is None else binding.record_level(op, plan, args, attrs, outs, mode)
    return tuple(made) if op.multi else made[0]


def _names(slots: Any) -> Sequence[str]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


class Dispatch(Trace):
    """The transform that a class with `__torch_dispatch__` is."""

    name = NAME

    def __init__(self, kind: type) -> None:
        self.kind, self.level, self.alive = kind, DISPATCHED, True  # type: ignore[assignment]
        # (levels of calls are whole numbers; this one lies between)
        self.enclosing, self.shared, self.written = None, (), {}
        self.code, self.lasti = None, 0
        own = kind.__mro__[: kind.__mro__.index(Tensor)]
        self.slots = [n for k in own for n in _names(k.__dict__.get("__slots__", ()))]

    def process(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        if unasked.get():
            return op.call(*[_outline(a) for a in args], **attrs)
        outs = results_of(op, args, attrs)
        return outs[: len(outs) if op.variadic_out else len(op.outs)] if op.multi else outs[0]

    def strip(self, t: Any) -> Any:
        out: Any = object.__new__(type(t))
        out.array, out._cell, out._edge, out._rg = t.array, t._cell, None, False
        out.__dict__.update({k: v for k, v in t.__dict__.items() if k not in _PLACE})
        for name in self.slots:
            if hasattr(t, name):
                setattr(out, name, getattr(t, name))
        return out

    def aval(self, t: Any) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype."""
        return tuple(t.array.shape), t.array.dtype

    def held(self, t: Any) -> tuple[Any, ...]:
        return (self.strip(t),)

    def detach(self, t: Any) -> Any:
        made = answer(OPS["alias"], (t,), {})
        return made.trace.strip(made) if made.level else made

    def ones(self, t: Any) -> Any:
        """The cotangent that a backward from `t` starts with."""
        return answer(Named("ones_like", _ones), (t,), {})

    def value(self, t: Any, what: str) -> Any:
        if t.array.size == 1:
            return np.asarray(answer(Named("_local_scalar_dense", _number), (t,), {}))
        if isinstance(t.array, np.ndarray):
            return t.array
        raise NotSupported(f".{what} is not supported for tensor subclasses: {self.kind.__name__} "
                           f"has {NAME}; read the tensors that it holds")

    def describe(self, t: Any) -> str:
        return f"{self.kind.__name__}(...)"


def _outline(x: Any) -> Any:
    """A wrapper as what it shows of itself: a plain tensor without storage, a view of it."""
    if isinstance(x, (list, tuple)):
        return type(x)(map(_outline, x))
    if not asks(x) or not isinstance(x.array, MetaArray):
        return x
    a = x.array
    return wrap(MetaArray(a.shape, a.dtype, a, a.steps, a.offset))


def _ones(t: Any) -> Any:
    return wrap(np.ones(t.array.shape, t.array.dtype))


def _number(t: Any) -> Any:
    return t.item()


class Named:
    """A function that is no record, as handlers get it: `aten.NAME.overload`."""

    namespace = "aten"
    __module__ = "torch._ops.aten"         # printed before the name

    def __init__(self, name: str, function: Callable[..., Any], overload: str = "default") -> None:
        self.packet, self.overload, self.function = name, overload, function
        self.__name__ = f"{name}.{overload}"

    def __deepcopy__(self, memo: Any) -> Named:
        return self                         # an operator is one thing, wherever it is named

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def in_place(op: Op, overload: str = "") -> Named:
    """The in-place form of a record; the same object each time."""
    overload = overload or OVERLOAD_OF.get(op.name, "default")
    shared = OPS.get(op.name) is op             # not a record of one call
    if shared and (op.name, overload) in _in_place:
        made: Named = _in_place[op.name, overload]
        return made

    def run(target: Any, *others: Any, **attrs: Any) -> Any:
        return writing.inplace(op, target, others, attrs)
    made = Named(f"{op.name}_", run, overload)
    if shared:
        _in_place[op.name, overload] = made
    return made


def write(op: Op, target: Any, args: list[Any], attrs: Mapping[str, Any], label: str) -> Any:
    """`inplace` where somebody is asked: they write, the history is made here."""
    mode = state()
    recording = writing.check_writable(target, args, mode)
    if recording and target.level and (target._base is not None or target._kids):
        raise NotSupported(f"{label}: {type(target).__name__} has {NAME}; an in-place op with a "
                           "gradient on one of its views, or beside them, is not supported: write "
                           "the op out of place")
    plan = op.plan(sum(1 << i for i, a in enumerate(args) if isinstance(a, Tensor) and a._rg))
    before = list(args)
    for kind, i in plan.sources if recording else ():
        a = before[i] if kind == "in" else None
        if isinstance(a, Tensor) and (a is target or a._cell is not None
                                      and a._cell is target._cell):
            before[i] = _shadow(a)
    version = (target._cell or Cell).version
    answer(in_place(op), [_seen(a) for a in args], attrs)
    if (target._cell or Cell).version == version:
        bump(target, label)
    if not recording:
        return target
    if not plan.wanted:
        target._edge, target._rg = None, False
        return target
    if target.level:
        made = binding.record_level(op, plan, before, attrs, (target.trace.strip(target),), mode)[0]
        target._edge, target._rg = made._edge, True
        return target
    made = binding.record(op, plan, before, attrs, (target.array,), mode)
    made = made[0] if isinstance(made, tuple) else made
    node = made._edge.node if type(made._edge) is Port else made._edge
    writing.share_output_cell(node, target)
    writing.rebase(target, made)
    return target


def _shadow(a: Any) -> Any:
    """A copy of the present value of `a`, at its place in the graph."""
    if not a.level:
        return writing.shadow(a)
    made = a.trace.strip(answer(OPS["clone"], (a,), {}))
    made._edge, made._rg = (edge_of(a) if a._rg else None), a._rg
    return made


def take_over(kind: Any) -> None:
    """Make a class that defines `__torch_dispatch__` answer for ops on its tensors."""
    kind.level, kind.trace = DISPATCHED, Dispatch(kind)


def make_wrapper(cls: type[Any], size: Sequence[int], strides: Any = None,
                 storage_offset: Any = None, memory_format: Any = None, dtype: Any = None,
                 layout: Any = None, device: Any = None, pin_memory: bool = False,
                 requires_grad: bool = False, **_: Any) -> Any:
    """`Tensor._make_wrapper_subclass`: a tensor of the class that has shape, strides (C order, if
    not given) and dtype; what stands for its values are attributes that the class sets.

    >>> import adjoint as ad
    >>> class Pair(ad.Tensor):
    ...     @staticmethod
    ...     def __new__(cls, a, b):
    ...         return ad.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)
    ...     def __init__(self, a, b):
    ...         self.both = a, b
    ...     @classmethod
    ...     def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
    ...         part = lambda i: [x.both[i] if isinstance(x, Pair) else x for x in args]
    ...         return Pair(func(*part(0), **kwargs), func(*part(1), **kwargs))
    >>> (2 * Pair(ad.ones(2), ad.zeros(2)).exp()).both
    (tensor([5.4366, 5.4366]), tensor([2., 2.]))
    """
    if getattr(cls, "level", 0) != DISPATCHED:
        raise ArgumentError(f"_make_wrapper_subclass: {cls.__name__} must define {NAME}, for its "
                            "tensors have no data of their own")
    kind = default_dtype() if dtype is None else to_numpy(dtype)
    made: Any = object.__new__(cls)
    steps = None if strides is None else tuple(int(n) * kind.itemsize for n in strides)
    made.array = ShownArray(tuple(int(n) for n in size), kind, None, steps,
                            int(storage_offset or 0) * kind.itemsize)
    made._cell, made._edge, made._rg = Cell(), None, False
    made.requires_grad = requires_grad
    return made


watchers.route, watchers.write = route, write
__all__ = ["DECOMPOSED", "NAME", "OVERLOAD_OF", "PULLED", "SHOWN", "Dispatch", "Named", "answer",
           "asks", "in_place", "make_wrapper", "quietly",
           "results_of", "take_over", "unasked"]
