"""Small arrays without the cost of a ufunc call.

`function(program(params, exprs, dtype, single), otherwise)` is a builtin that computes what
`expr.compile_numpy` would, bit for bit, by calling the very loops of NumPy's ufuncs one after the
other: no argument parsing, no type resolution, no error state, temporaries in scratch memory. One
multiplication of eight numbers costs a quarter of `numpy.multiply`, a rule of several operations
little more than one. What does not qualify (another dtype or layout, broadcasting other than of
0-d operands, of a row and of a number for each row, large arrays) goes to `otherwise`, which takes
the same arguments.

The builtin is one generated function (`direct_ir`) for all expressions; each carries its own
program. Where the layout of CPython's or NumPy's objects is not the one known, or nothing can be
generated, `program` returns None.
"""
from __future__ import annotations

import ctypes
import functools
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adjoint.kernels import builtin
from adjoint.kernels import direct_ir as at
from adjoint.kernels.expr import FUNCTIONS, Expr, schedule

FLOATS = {np.dtype(np.float32): "f", np.dtype(np.float64): "d"}
WORD = np.dtype(np.int64)
# What may be in an expression of whole numbers: functions that give such, or truth values.
WHOLE = {"var", "const", "add", "sub", "mul", "neg", "min", "max", "minimum", "maximum", "lt", "le",
         "gt", "ge", "eq", "ne", "mod", "floordiv"}
_BOOL = np.dtype(np.bool_)
_LARGEST = 8192         # elements; above, the cost of a ufunc call does not matter


class Program(NamedTuple):
    """A list of loops as `direct_ir` reads it."""

    words: tuple[int, ...]
    results: int            # arrays that a call makes
    limit: int              # the largest number of elements


class Machine(NamedTuple):
    """Addresses: of the generated functions, and of NumPy's function that makes an array."""

    run: int
    attempt: int
    where4: int
    where8: int
    new: int


class _Ufunc(ctypes.Structure):
    """The head of NumPy's public `PyUFuncObject`."""

    _fields_ = [("head", ctypes.c_char * object.__basicsize__), ("nin", ctypes.c_int),
                ("nout", ctypes.c_int), ("nargs", ctypes.c_int), ("identity", ctypes.c_int),
                ("functions", ctypes.POINTER(ctypes.c_void_p)),
                ("data", ctypes.POINTER(ctypes.c_void_p)), ("ntypes", ctypes.c_int),
                ("reserved", ctypes.c_int), ("name", ctypes.c_char_p),
                ("types", ctypes.POINTER(ctypes.c_ubyte))]


@functools.cache
def machine() -> Machine | None:
    """The generated code; None where any of it is not to be had."""
    made = builtin.generated("direct", at.text)
    if made is None:
        return None
    module, new = made
    return Machine(module.address("direct_run"), module.address("direct_try"),
                   module.address("where4"), module.address("where8"), new)


@functools.cache
def loop_of(f: Any, kinds: str) -> tuple[int, int, str] | None:
    """(address, its data, kind of the result) of a ufunc's loop for these kinds of operands."""
    if not isinstance(f, np.ufunc) or f.nout != 1 or f.nin != len(kinds):
        return None
    head = _Ufunc.from_address(id(f))
    if (head.nin, head.nout, head.ntypes) != (f.nin, 1, f.ntypes) \
            or head.name != f.__name__.encode():
        return None
    for i, known in enumerate(f.types):
        operands, result = known.split("->")
        if operands == kinds:
            codes = bytes(head.types[i * head.nargs + k] for k in range(head.nargs))
            address = head.functions[i]
            if not address or codes != bytes(np.dtype(c).num for c in operands + result):
                return None
            return address, head.data[i] or 0, result
    return None


class _Recorder(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for an array of a dtype while a function made of ufuncs is run to see which."""

    def __init__(self, dtype: np.dtype[Any], made: tuple[Any, tuple[Any, ...]] | None) -> None:
        self.dtype, self.made = dtype, made

    def __array_ufunc__(self, f: Any, method: str, *operands: Any, **options: Any) -> Any:
        if method != "__call__" or options or not all(
                isinstance(o, (_Recorder, int, float)) for o in operands):
            return NotImplemented
        return _Recorder(self.dtype, (f, operands))


def _taken_apart(f: Any, dtype: np.dtype[Any]) -> _Recorder | None:
    """The ufunc calls that `f` of one array is made of; None where it is more than that."""
    if not getattr(f, "__module__", "").startswith(__package__):
        return None
    try:
        made = f(_Recorder(dtype, None))
    except (TypeError, AttributeError, ValueError):
        return None
    return made if isinstance(made, _Recorder) else None


# ---------------------------------------------------------------- programs
class _Assembler:
    """From expressions to a program; `words()` is None where something does not qualify."""

    def __init__(self, params: Sequence[str], exprs: Sequence[Expr | None],
                 dtype: np.dtype[Any]) -> None:
        self.exprs, self.dtype = exprs, dtype
        self.kind = FLOATS.get(dtype, dtype.char)
        self.slots: list[tuple[int, int, int]] = []
        self.where: dict[Expr, int] = {}
        self.kinds: dict[Expr, str] = {}
        self.steps: list[int] = []
        self.count = 0
        self.scratch = 0                       # bytes per element of all temporaries
        self.free: list[int] = []              # temporaries that are not needed any more
        self.names = {p: i for i, p in enumerate(params)}
        for _ in params:
            self._slot(at.OPERAND, dtype.itemsize, id(dtype))

    def _slot(self, kind: int, size: int, what: int) -> int:
        self.slots.append((kind, size, what))
        return len(self.slots) - 1

    def _constant(self, value: Any) -> tuple[int, str]:
        truth = isinstance(value, bool)
        bits = np.array(value, _BOOL if truth else self.dtype).tobytes()
        place = self._slot(at.CONSTANT, 0, int.from_bytes(bits.ljust(8, b"\0"), "little",
                                                          signed=True))
        return place, "?" if truth else self.kind

    def _temporary(self, size: int) -> int:
        for place in self.free:
            if self.slots[place][1] == size:
                self.free.remove(place)
                return place
        self.scratch += self.dtype.itemsize    # a whole element: every temporary stays aligned
        return self._slot(at.TEMPORARY, size, self.scratch - self.dtype.itemsize)

    def _function(self, e: Expr, result: bool) -> bool:
        """Add the step that computes `e`; False where it does not qualify."""
        kinds = "".join(self.kinds[a] for a in e.args)
        operands = [self.where[a] for a in e.args]
        f = FUNCTIONS[e.fn].numpy
        if e.fn == "where" and kinds == "?" + 2 * self.kind:
            here = machine()
            loop = None if here is None else (
                here.where4 if self.dtype.itemsize == 4 else here.where8, 0, self.kind)
            made = self._step(loop, operands, result)
        elif isinstance(f, np.ufunc):
            made = self._step(loop_of(f, kinds), operands, result)
        else:
            parts = _taken_apart(f, self.dtype) if kinds == self.kind else None
            made = None if parts is None else self._parts(parts, operands[0], result)
        if not made:
            return False
        self.where[e], self.kinds[e] = made
        return True

    def _step(self, loop: tuple[int, int, str] | None, operands: list[int], result: bool
              ) -> tuple[int, str] | None:
        """One loop; (slot, kind) of what it makes."""
        if loop is None:
            return None
        truth = loop[2] == "?"
        size = 1 if truth else self.dtype.itemsize
        place = self._slot(at.OUTPUT, size, id(_BOOL if truth else self.dtype)) if result \
            else self._temporary(size)
        self.steps += [*loop[:2], len(operands) + 1, *(operands + [place] + [0, 0])[:4]]
        self.count += 1
        return place, loop[2]

    def _parts(self, whole: _Recorder, x: int, result: bool) -> tuple[int, str] | None:
        """The loops of a function of one operand, in slot `x`, that is made of ufuncs."""
        if whole.made is None:
            return None
        f, given = whole.made
        places, kinds = [], ""
        for o in given:
            found: tuple[int, str] | None
            if isinstance(o, _Recorder):
                found = self._parts(o, x, False) if o.made else (x, self.kind)
            else:
                found = self._constant(o)
            if found is None:
                return None
            places.append(found[0])
            kinds += found[1]
        return self._step(loop_of(f, kinds), places, result)

    def program(self, single: bool) -> Program | None:
        """The whole; None where something does not qualify."""
        wanted = [e for e in self.exprs if e is not None]
        results = {e for e in wanted if e.fn != "var"}
        if len(results) < sum(e.fn != "var" for e in wanted) or not results:
            return None                        # one array twice, or nothing to compute
        order = schedule(wanted)
        last = {a: i for i, e in enumerate(order) for a in e.args}
        reads: dict[Expr, int] = {}               # operands that it is computed from, as bits
        for e in order:
            reads[e] = 1 << self.names[e.value] if e.fn == "var" else functools.reduce(
                operator.or_, [reads[a] for a in e.args], 0)
        every = functools.reduce(operator.and_, [reads[e] for e in results])
        for i, e in enumerate(order):
            if e.fn == "var":
                self.where[e], self.kinds[e] = self.names[e.value], self.kind
            elif e.fn == "const":
                if e in results:
                    return None
                self.where[e], self.kinds[e] = self._constant(e.value)
            elif not self._function(e, e in results):
                return None
            for a in dict.fromkeys(e.args):
                if last[a] == i and self.slots[self.where[a]][0] == at.TEMPORARY:
                    self.free.append(self.where[a])
        return self._assembled(single, len(results), every)

    def _assembled(self, single: bool, made: int, every: int) -> Program | None:
        here = machine()
        if len(self.slots) > at.MAX_SLOTS or here is None:
            return None
        limit = _LARGEST if not self.scratch else at.SCRATCH_BYTES // self.scratch & -16
        places = [-1 if e is None else self.where[e] for e in self.exprs]
        head = [len(self.names), len(self.slots), self.count, len(places), limit, int(not single),
                id(np.ndarray), here.new, every]
        slots = [w for slot in self.slots for w in slot]
        return Program((*head, *slots, *self.steps, *places), made, limit)


def _whole(exprs: Sequence[Expr | None]) -> bool:
    """Whether expressions are what they say for whole numbers, too."""
    order = schedule([e for e in exprs if e is not None])
    return all(e.fn in WHOLE and (e.fn != "const" or type(e.value) is int) for e in order)


def program(params: Sequence[str], exprs: Sequence[Expr | None], dtype: np.dtype[Any],
            single: bool) -> Program | None:
    """The program that computes `exprs` for operands of `dtype`; None where there is none.

    >>> from adjoint.kernels.expr import var
    >>> p = program(["a", "b"], [var("a") * var("b")], np.dtype(np.float32), True)
    >>> p is None or p.results == 1
    True
    """
    if dtype not in FLOATS and not (dtype == WORD and _whole(exprs)) or len(params) > 8 \
            or machine() is None:
        return None
    return _Assembler(params, exprs, dtype).program(single)


def function(found: Program, otherwise: Callable[..., Any], limit: int = _LARGEST
             ) -> Callable[..., Any]:
    """The builtin that runs a program on arrays of at most `limit` elements (the program's own
    limit holds too), and `otherwise` on everything else.

    >>> from adjoint.kernels.expr import var
    >>> p = program(["a", "b"], [var("a") * var("b")], np.dtype(np.float32), True)
    >>> f = function(p, np.multiply) if p else np.multiply
    >>> f(np.float32([2, 3]), np.float32([4, 5])).tolist(), float(f(2, 3))
    ([8.0, 15.0], 6.0)
    """
    here = machine()
    if here is None:
        return otherwise
    words = list(found.words)
    words[at.LIMIT] = min(found.limit, limit)
    own = (struct.pack(f"{len(words)}q", *words), otherwise, found)
    return builtin.make("direct", here.run, own)


def program_of(f: Any) -> Program | None:
    """The program of a builtin that `function` made; None for any other function."""
    own = getattr(f, "__self__", None)
    return own[2] if type(own) is tuple and len(own) == 3 and type(own[2]) is Program else None
