"""The functions of pointwise ops of one and two operands: `bind`, unrolled.

A call costs as much as a small kernel, so the steps of `core/bind.py` stand here in one piece: look
at the operands, compute, make the tensor, make its node. The two templates below are copied per
op; what differs between ops is what they close over. Where there is generated code, small
plain operands take the same steps in machine code (`kernels/calls.py`), and only the rest comes
here.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from math import copysign
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.dtypes import F32, F64, I64, fits_a_word, wrapped
from adjoint.base.errors import MetaError
from adjoint.base.tier import pays
from adjoint.core.bind import bind, bind_told
from adjoint.core.modes import GRAD, INFERENCE, TOLD, WATCH, state
from adjoint.core.op import BOTH, FIRST, NOTHING, OUTPUT, SECOND, SWAPPED, Op
from adjoint.core.rehearsal import build
from adjoint.core.tensor import (
    INFERENCE_CELL,
    Cell,
    OutRef,
    Parameter,
    Tensor,
    counter,
    edge_of,
    keep,
    new_tensor,
    out_ref,
)
from adjoint.core.trace import LevelTensor

ndarray = np.ndarray
_getframe: Any = sys._getframe
_asarray = np.asarray
_inside = provenance.inside
PLAIN = {Tensor, Parameter}      # what the templates and the machine code take for tensors
FAR = 1 << 18                    # elements from which what comes next may be computed as well


class _Scalars(dict[Any, Any]):
    """Python number -> 0-d array: NumPy converts a number anew at every call, which costs as
    much as the operation on a small array. 0 is under "zero": 0.0 and -0.0 would be one key. They
    lie in bytes objects: what the package keeps is not counted as the user's memory."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype

    def __missing__(self, number: Any) -> Any:
        if number == "zero" or not number and copysign(1.0, number) > 0:
            number, key = 0, "zero"
            if key in self:
                return self[key]
        else:
            fits_a_word(number)
            key = number
        array = ndarray((), self.dtype, self.dtype.type(number).tobytes())
        if key:
            if len(self) > 4096:
                self.clear()
            self[key] = array
        return array


SCALARS32, SCALARS64, WHOLE = _Scalars(F32), _Scalars(F64), _Scalars(I64)


def known_number(number: Any, dtype: Any) -> Any:
    """A number as a 0-d array: whole ones as machine code has them, in memory of the package."""
    if dtype is I64 and type(number) is int and -2**63 <= number < 2**63:
        return WHOLE[number]
    return wrapped(number, dtype)


def _one(raw: Any) -> Any:
    """`raw` for single elements: of 0-d operands NumPy makes a scalar object, which would have to
    be made an array again, unless it is told to make an array (since 2.3)."""
    raw = getattr(raw, "__wrapped__", raw)        # (one element lies in one way)
    told = isinstance(raw, np.ufunc) and np.lib.NumpyVersion(np.__version__) >= "2.3.0"
    return partial(raw, out=...) if told else raw


def elements(a: Any, b: Any, limit: int) -> int:
    """How many elements the result of two operands has, at least where that decides about `limit`:
    two small ones may make a large one."""
    n, m = a.size, b.size
    most = n if n > m else m
    if most < limit <= n * m and a.shape != b.shape:
        return int(np.broadcast(a, b).size)
    return int(most) if n and m else 0


class Own:
    """What one op brings to its template: raw functions per dtype, plans by wanted operands. Built
    at the first call. `ends*` are the functions for one element, and from `limit` elements on."""

    __slots__ = ("op", "build", "node_type", "raw32", "raw64", "ends32", "ends64", "limit",
                 "plans32", "plans64", "function", "python", "machine", "write", "make")

    def __init__(self, op: Op, build: Callable[[], tuple[Any, ...]]) -> None:
        self.op, self.build = op, build
        self.raw32 = self.raw64 = self._first
        self.ends32 = self.ends64 = (self._first, self._first)
        self.limit = 1 << 62
        self.plans32: Any = None
        self.plans64: Any = None
        self.function: Any = None
        self.python: Any = None         # the same without machine code
        self.machine: Any = None        # the same steps in machine code, for small plain operands
        self.write: Any = self._write   # its in-place form: (operands, name) -> True, or None
        self.make: Any = None           # what makes the two

    def _first(self, *arrays: Any) -> Any:
        """Stands in for the raw functions until they exist."""
        (self.raw32, large32, self.limit), (self.raw64, large64, _), self.plans32, self.plans64, \
            self.make = self.build()
        self.node_type = self.op.node_type
        single = self.limit > 1
        self.ends32 = (_one(self.raw32) if single else large32, large32)
        self.ends64 = (_one(self.raw64) if single else large64, large64)
        if self.make is not None:
            self.machine = self._wait
            self._swap(_machine_first)
        return self.run(arrays[0].dtype, *arrays)

    def _wait(self, *args: Any) -> Any:
        """In the place of machine code until it pays."""
        if not pays():
            return None
        self.machine = self.make(self)
        if self.machine is None:
            self._swap(_python_only)
            return None
        return self.machine(*args)

    def _swap(self, table: dict[Any, Any]) -> None:
        """Give the function its other code; another thread may have done so."""
        code = self.function.__code__
        self.function.__code__ = table.get(code, code)

    def _write(self, *args: Any) -> Any:
        """In the place of the in-place form until the op runs in machine code."""
        if type(self.machine) is not BuiltinFunctionType:
            return None
        self.write = self.make(self, True) or (lambda *args: None)
        return self.write(*args)

    def _try(self, count: int, dtype: Any) -> None:
        with np.errstate(all="ignore"):
            self._first(*[np.ones((), dtype) for _ in range(count)])

    def met(self, dtype: Any, number: Any = None) -> Op:
        """The op, for `bind`; where whole numbers were met, machine code is made ready for the
        next, and for a number beside them, once that pays."""
        if dtype is I64:
            if type(number) is int and -2**63 <= number < 2**63:
                WHOLE[number]
            if self.plans32 is None and pays():
                build(self._try, len(self.op.operands), F32)
        return self.op

    def run(self, dtype: Any, *arrays: Any) -> Any:
        """Compute on raw arrays of one dtype."""
        n = arrays[0].size if len(arrays) == 1 else elements(arrays[0], arrays[1], self.limit)
        if 1 < n < self.limit:
            return (self.raw32 if dtype is F32 else self.raw64)(*arrays)
        return (self.ends32 if dtype is F32 else self.ends64)[n > 1](*arrays)

    def operands(self, a: Any, b: Any, mode: int) -> Any:
        """The pairs that are not two exact tensors, or are under `inference_mode`: (a, b, arrays,
        dtype, needs) for tensors, parameters and numbers, the raw result for two arrays, None for
        what `bind` has to sort out."""
        if mode > GRAD:
            if mode != INFERENCE:
                return told_of(self.op, (a, b), mode) if mode & TOLD else None
            mode = 0
            if isinstance(a, LevelTensor) or isinstance(b, LevelTensor):
                return None
        if type(a) in PLAIN and type(b) in PLAIN:
            dtype, needs = a.array.dtype, mode and (1 if a._rg else 0) | (2 if b._rg else 0)
            return (a, b, a.array, b.array, dtype, needs) if dtype is b.array.dtype else None
        if type(a) in PLAIN and type(b) in (float, int):
            dtype = a.array.dtype
            if dtype is F32 or dtype is F64:
                b = SCALARS32[b] if dtype is F32 else SCALARS64[b]
                return a, b, a.array, b, dtype, mode if a._rg else 0
            self.met(dtype, b)
        elif type(b) in PLAIN and type(a) in (float, int):
            dtype = b.array.dtype
            if dtype is F32 or dtype is F64:
                a = SCALARS32[a] if dtype is F32 else SCALARS64[a]
                return a, b, a, b.array, dtype, 2 * mode if b._rg else 0
            self.met(dtype, a)
        elif type(a) is ndarray and type(b) is ndarray:
            dtype = a.dtype
            if dtype is b.dtype and (dtype is F32 or dtype is F64):
                return self.run(dtype, a, b)
        elif isinstance(a, LevelTensor) or isinstance(b, LevelTensor):
            return self.level(a, b, mode)
        elif type(a) is ndarray and type(b) in (float, int):
            dtype = a.dtype
            if dtype is F32 or dtype is F64:
                return self.run(dtype, a, (SCALARS32 if dtype is F32 else SCALARS64)[b])
        return None

    def level(self, a: Any, b: Any, mode: int) -> Any:
        """Two operands of which one is a value of a transform: its trace's short way, or None."""
        first = b if not isinstance(a, LevelTensor) or (
            isinstance(b, LevelTensor) and b.level > a.level) else a
        trace = first.trace
        if not trace.alive or mode and (getattr(a, "_rg", False) or getattr(b, "_rg", False)):
            return None
        return trace.pair(self.op, a, b)

    def plan_as_called(self, args: Sequence[Any], needs: int) -> tuple[Sequence[Any], Any] | None:
        """(operands, plan) that the template would take, for a caller that goes another way;
        None where the template would hand over to `bind`."""
        a, b = args[0], args[-1]
        tensor = a if isinstance(a, Tensor) else b
        dtype = tensor.array.dtype
        if dtype is not F32 and dtype is not F64:
            return None
        scalars = SCALARS32 if dtype is F32 else SCALARS64
        settled = []
        for x in args:
            if type(x) in PLAIN and x.array.dtype is dtype:
                settled.append(x)
            elif type(x) in (float, int):
                settled.append(scalars[x])
            else:
                return None
        if self.plans32 is None:
            build(self._try, len(args), dtype)
        plans = self.plans32 if dtype is F32 else self.plans64
        return settled, plans[needs] if len(args) > 1 else plans


def told_of(op: Op, args: tuple[Any, ...], mode: int) -> Any:
    """The op on small change: exact tensors and numbers, where all who watch are content to be told
    afterwards, and nothing else is open. None for anything else."""
    if mode | GRAD != GRAD | WATCH | TOLD or not all([
            type(a.array) is ndarray if type(a) in PLAIN else type(a) in (float, int)
            for a in args]) or not any([type(a) in PLAIN for a in args]):
        return None
    return bind_told(op, args, {}, mode, True, False)


@cache
def _foresight() -> Any:
    from adjoint.core import foresight  # loaded by the first large op
    return foresight


# Template of ops of one operand.
def _unary(own: Any) -> Any:
    def call(x: Any) -> Any:
        mode = state()
        if (type(x) is not Tensor and type(x) is not Parameter
                or mode > GRAD and mode != INFERENCE):
            if type(x) is ndarray and (x.dtype is F32 or x.dtype is F64):
                return own.run(x.dtype, x)
            if mode <= GRAD and isinstance(x, LevelTensor) and x.trace.alive and not (
                    mode and x._rg):
                return x.trace.single(own.op, x)
            if mode & TOLD and (made := told_of(own.op, (x,), mode)) is not None:
                return made
            return bind(own.op, (x,), {}, not isinstance(x, LevelTensor))
        a = x.array
        dtype, n = a.dtype, a.size
        try:
            if dtype is F32:
                od = ((own.raw32 if 1 < n < own.limit else own.ends32[n > 1])(a) if n < FAR
                      else _foresight().followed(own, own.ends32[1], x))
                plan = own.plans32
            elif dtype is F64:
                od = ((own.raw64 if 1 < n < own.limit else own.ends64[n > 1])(a) if n < FAR
                      else _foresight().followed(own, own.ends64[1], x))
                plan = own.plans64
            else:
                return bind(own.met(dtype), (x,), {})
        except (TypeError, MetaError):
            return bind(own.op, (x,), {})
        t = new_tensor()
        t.array = od if type(od) is ndarray else _asarray(od)
        t._cell = None if mode <= GRAD else INFERENCE_CELL
        if not (x._rg and mode == GRAD and plan.wanted):
            t._rg = False
            t._edge = None
            return t
        node: Any = own.node_type()
        node.plan = plan
        e = x._edge
        node.e0 = e if e is not None else edge_of(x)
        layout = plan.layout
        if layout == NOTHING:
            node.s0 = None
        elif layout == FIRST:
            node.s0 = x if x._cell is None else keep(x, own.op.name)
        elif layout == OUTPUT:
            t._cell = cell = Cell()
            ref = node.s0 = OutRef()
            ref.array, ref.cell, ref.index, ref.version = t.array, cell, 0, 0
        else:
            node.saved = _residuals(plan, x, None, t, own)
        node.shape, node.seq = od.shape, next(counter)
        code = (f := _getframe(1)).f_code
        while _inside[code.co_filename]:
            f = f.f_back
            code = f.f_code
        node.code, node.lasti = code, f.f_lasti
        t._rg = True
        t._edge = node
        return t
    return call


# Template of ops of two operands.
def _binary(own: Any) -> Any:
    def call(a: Any, b: Any) -> Any:
        mode = state()
        if type(a) is Tensor and type(b) is Tensor and mode <= GRAD:
            ad, bd = a.array, b.array
            if (dtype := ad.dtype) is not bd.dtype:
                return bind(own.op, (a, b), {})
            needs = (3 if b._rg else 1) if a._rg else 2 if b._rg else 0
        else:
            found = own.operands(a, b, mode)
            if type(found) is not tuple:
                return _strangers(own.op, a, b) if found is None else found
            a, b, ad, bd, dtype, needs = found
        try:
            n = ad.size
            if n != bd.size or n < own.limit <= n * n:
                n = elements(ad, bd, own.limit)
            if dtype is F32:
                raw, ends = own.raw32, own.ends32
            elif dtype is F64:
                raw, ends = own.raw64, own.ends64
            else:
                return bind(own.met(dtype), (a, b), {})
            od = ((raw if 1 < n < own.limit else ends[n > 1])(ad, bd) if n < FAR
                  else _foresight().added(own, ends[1], ad, bd, needs and mode))
            plans = own.plans32 if dtype is F32 else own.plans64
        except (TypeError, ValueError, MetaError):
            return bind(own.op, (a, b), {})
        t = new_tensor()
        t.array = od if type(od) is ndarray else _asarray(od)
        t._cell = None if mode <= GRAD else INFERENCE_CELL
        if not needs or not mode or (plan := plans[needs]) is None:
            t._rg, t._edge = False, None
            return t
        node: Any = own.node_type()
        node.plan = plan
        if needs == 3:
            node.e0 = a._edge if a._edge is not None else edge_of(a)
            node.e1 = b._edge if b._edge is not None else edge_of(b)
        else:
            node.e0, node.e1 = (edge_of(a), None) if needs == 1 else (None, edge_of(b))
        layout = plan.layout
        if layout == NOTHING:
            node.s0 = None
        elif layout == SECOND or layout == FIRST:
            s = b if layout == SECOND else a
            node.s0 = s if type(s) is ndarray or s._cell is None else keep(s, own.op.name)
        elif layout in (SWAPPED, BOTH) and needs == 3 and a._cell is None is b._cell:
            node.s0, node.s1 = (b, a) if layout == SWAPPED else (a, b)
        else:
            node.saved = _residuals(plan, a, b, t, own)
        node.shape, node.seq = od.shape, next(counter)
        code = (f := _getframe(1)).f_code
        while _inside[code.co_filename]:
            f = f.f_back
            code = f.f_code
        node.code, node.lasti = code, f.f_lasti
        t._rg, t._edge = True, node
        return t
    return call


_KNOWN = (Tensor, ndarray, np.generic, bool, int, float, complex)
_REFLECTED = {"add": "__radd__", "sub": "__rsub__", "mul": "__rmul__"}


def _strangers(op: Any, a: Any, b: Any) -> Any:
    """Operands that are not both tensors or numbers. `+`, `-` and `*` are these functions and not
    methods that could return NotImplemented, so the other class is asked here, as Python would."""
    if not isinstance(b, _KNOWN) and isinstance(a, Tensor):
        reflected = getattr(type(b), _REFLECTED.get(op.name, ""), None)
        if reflected is not None and (answer := reflected(b, a)) is not NotImplemented:
            return answer
    return bind(op, (a, b), {}, False)


def _unary_first(own: Any) -> Any:
    """Template of ops of one operand that machine code does where it can."""
    def call(x: Any) -> Any:
        made = own.machine(x)
        return made if made is not None else own.python(x)
    return call


def _binary_first(own: Any) -> Any:
    """Template of ops of two operands that machine code does where it can."""
    def call(a: Any, b: Any) -> Any:
        made = own.machine(a, b)
        return made if made is not None else own.python(a, b)
    return call


_machine_first = {_unary(None).__code__: _unary_first(None).__code__,
                  _binary(None).__code__: _binary_first(None).__code__}
_python_only = {first: only for only, first in _machine_first.items()}


def _residuals(plan: Any, a: Any, b: Any, t: Any, own: Any) -> Any:
    """What a node keeps, its output among it, as a tuple."""
    if plan.keeps_a:
        a = keep(a, own.op.name)
    if plan.keeps_b:
        b = keep(b, own.op.name)
    if not plan.keeps_out:
        return plan.pick(a, b, None)
    t._cell = cell = Cell()
    return plan.pick(a, b, out_ref(t.array, cell, 0))


def caller(op: Op, build: Callable[[], tuple[Any, ...]]) -> tuple[Own, Callable[..., Any]]:
    """What is an op's own, and the function that runs it, for one or two operands. `build()` gives
    (small, large, limit) for float32 and for float64, then the plans for the two dtypes (one plan
    for one operand, a list indexed by the wanted operands' bits for two), then what makes the
    op's machine code of an `Own`, or None."""
    template = _unary if len(op.operands) == 1 else _binary
    own = Own(op, build)
    own.function, own.python = template(own), template(own)
    return own, own.function
