"""Functions of the rows of small arrays, without the cost of their NumPy calls.

`function(body, forms, results, dtype, otherwise)` takes a NumPy function of a matrix's rows apart
into the ufuncs that it calls, elementwise or as a sum or maximum along the last axis, and returns
a builtin that runs the very loops of those ufuncs, row by row: bit for bit what `body` gives. A
softmax of 32 numbers takes 0.5 us in place of 4. What does not qualify goes to `otherwise`, which
takes the same arrays.
"""
from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.kernels import builtin, direct
from adjoint.kernels import rowwise_ir as at
from adjoint.kernels.direct import FLOATS

FULL, KEPT = at.FULL, at.KEPT
_FORMS = {"matrix": FULL, "vector": at.VECTOR, "kept": KEPT, "lead": at.LEAD, "flat": at.FLAT}
_ADDS = {np.add: 0.0, np.multiply: 1.0}       # what their reductions begin with


class _Rows(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for a matrix, or for one number per row, while a function is taken apart."""

    def __init__(self, steps: list[Any], form: int, place: int) -> None:
        self.steps, self.form, self.place = steps, form, place

    def __array_ufunc__(self, f: Any, method: str, *operands: Any, out: Any = (None,),
                        **options: Any) -> Any:
        if method == "reduce" and options.pop("axis", 0) == -1 and options.pop("keepdims", False) \
                and options.pop("dtype", None) is None:
            how, form = (at.JOIN if f in _ADDS else at.JOIN_FIRST), KEPT
        elif method == "__call__":
            full = any(o.form in (FULL, at.VECTOR) for o in operands if isinstance(o, _Rows))
            how, form = (at.EACH, FULL) if full else (at.ONCE, KEPT)
        else:
            return NotImplemented
        if options:
            return NotImplemented
        given = [_Rows(self.steps, o.form, o.place) if type(o) is _Rows else o for o in operands]
        self.steps.append((f, how, form, given))
        to = out[0] if out[0] is not None else _Rows(self.steps, form, 0)
        to.form, to.place = form, ~(len(self.steps) - 1)
        return to


class _Width(_Rows):
    """Stands for the number of columns."""


def _traced(body: Callable[..., Any], names: Sequence[str]) -> tuple[list[Any], Any]:
    """The ufunc calls of `body`, and what it returns."""
    steps: list[Any] = []
    place = iter(range(len(names)))
    return steps, body(*[None if name == "none" else _Rows(steps, _FORMS[name], next(place))
                         for name in names], _Width(steps, KEPT, 0))


class _Assembler:
    """From the calls to a program."""

    def __init__(self, forms: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.dtype, self.kind = dtype, FLOATS[dtype]
        self.slots = [(at.OPERAND, dtype.itemsize, id(dtype), form) for form in forms]
        self.temporaries = 0

    def slot(self, kind: int, what: int, form: int) -> int:
        self.slots.append((kind, self.dtype.itemsize, what, form))
        return len(self.slots) - 1

    def bits(self, number: Any) -> int:
        text = np.array(number, self.dtype).tobytes()
        return int.from_bytes(text.ljust(8, b"\0"), "little", signed=True)

    def program(self, steps: Sequence[Any], wanted: Sequence[_Rows], results: Sequence[int],
                several: bool) -> bytes | None:
        """The words; None where a loop is missing, or there are too many slots."""
        forms = {~w.place: form for w, form in zip(wanted, results, strict=True)}
        places: list[int] = []
        words: list[int] = []
        for i, (f, how, form, operands) in enumerate(steps):
            given = [self._operand(o, places) for o in operands]
            if i in forms:
                place = self.slot(at.OUTPUT, id(self.dtype), forms[i])
            else:
                place = self.slot(at.TEMPORARY, self.temporaries if form == FULL else 0, form)
                self.temporaries += form == FULL
            joins = how in (at.JOIN, at.JOIN_FIRST)
            slots = [place, *given, place] if joins else [*given, place]
            loop = direct.loop_of(f, self.kind * (len(slots) - 1))
            if loop is None or loop[2] != self.kind:
                return None
            words += [*loop[:2], len(slots), *(slots + [0] * 4)[:4], how,
                      self.bits(_ADDS.get(f, 0.0))]
            places.append(place)
        if len(self.slots) > at.MAX_SLOTS:
            return None
        room = at.SCRATCH_BYTES // (max(self.temporaries, 1) * self.dtype.itemsize) & -16
        head = [sum(s[0] == at.OPERAND for s in self.slots), len(self.slots), len(steps),
                len(wanted), min(room, at.MOST), int(several), id(np.ndarray), _machine()[1]]
        every = [*head, *(w for slot in self.slots for w in slot), *words,
                 *(places[~w.place] for w in wanted)]
        return struct.pack(f"{len(every)}q", *every)

    def _operand(self, o: Any, places: Sequence[int]) -> int:
        if type(o) is _Width:
            return self.slot(at.WIDTH, 0, KEPT)
        if isinstance(o, _Rows):
            return o.place if o.place >= 0 else places[~o.place]
        return self.slot(at.CONSTANT, self.bits(o), KEPT)


@functools.cache
def _machine() -> tuple[int, int]:
    """The addresses of the generated function and of NumPy's that makes an array; 0 where there are
    none."""
    made = builtin.generated("rowwise", at.text)
    return (0, 0) if made is None else (made[0].address("rows_run"), made[1])


def function(body: Callable[..., Any], operands: str, results: str, dtype: np.dtype[Any],
             otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """The builtin that runs `body(*operands, width)` on arrays of `dtype`.

    `operands` says what they are, the first of them a "matrix": others are alike, or one row for
    all ("vector"), or have a number for each row ("kept"). Results are alike ("matrix"), or have a
    number for each row: as a last axis of 1 ("kept"), without it ("lead"), as a vector ("flat"). An
    operand "none" is passed as None, and is no operand of the builtin. The body may be called on
    stand-ins: it uses ufuncs, operators, and reductions with axis -1 and keepdims, and writes to
    nothing but what it made; `width` is the number of columns.

    >>> def shares(x, width):
    ...     return x / np.add.reduce(x, -1, None, None, True)
    >>> f = function(shares, "matrix", "matrix", np.dtype(np.float32), lambda x: shares(x, None))
    >>> f(np.float32([[1, 3], [2, 2]])).tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    address = _machine()[0] if dtype in FLOATS else 0
    if not address:
        return otherwise
    steps, made = _traced(body, operands.split())
    several = type(made) is tuple
    wanted = made if several else (made,)
    forms = [_FORMS[name] for name in operands.split() if name != "none"]
    text = _Assembler(forms, dtype).program(steps, wanted, [_FORMS[r] for r in results.split()],
                                            several)
    return otherwise if text is None else builtin.make("rows", address, (text, otherwise, body))
