"""Starting generated kernels from Python, by builtins instead of ctypes prototypes.

`entry(...)` is what `codegen.build` returns. A `Table` goes further: it remembers layouts of
operands together with the kernel that does them, and its `call` checks the operands, makes the
arrays of the results and runs the kernel without any Python in between; operands that it does not
know go to a Python function, which works out the plan and adds it.
"""
from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import builtin, threads
from adjoint.kernels import launch_ir as ir

Array = NDArray[Any]
Entry = Callable[..., None]
_MOST = 8              # plans in a table unless said; then the oldest goes


class Machine(NamedTuple):
    """Addresses: of the generated functions, and of NumPy's function that makes an array."""

    kernel: int
    plan: int
    attempt: int
    new: int


@functools.cache
def machine() -> Machine | None:
    """The generated code; None where builtins cannot be made."""
    made = builtin.generated("launch", ir.text)
    if made is None:
        return None
    module, new = made
    return Machine(module.address("kernel_call"), module.address("plan_call"),
                   module.address("plan_try"), new)


def entry(name: str, body: int, arrays: int, integers: int, reals: int) -> Entry:
    """The kernel at address `body` as a function of its operands, see `codegen.build`.

    It gives the GIL back while threads share the work, or where there is much of it.
    """
    here = machine()
    if here is None or 1 + arrays + integers + reals > ir.MAX_SLOTS:
        return functools.partial(_start, body, arrays, integers)
    words = words_of([arrays, integers, reals, body, id(np.ndarray)])
    return builtin.make(name, here.kernel, bytes(words))


def _start(body: int, arrays: int, integers: int, run: int, geometry: int,
           *operands: Any) -> None:
    """What the builtin does, by ctypes."""
    whole = [geometry, *[a.ctypes.data for a in operands[:arrays]],
             *operands[arrays:arrays + integers]]
    words = struct.pack(f"{len(whole)}q{len(operands) - len(whole) + 1}d", *whole,
                        *operands[len(whole) - 1:])
    slots = ctypes.create_string_buffer(words, len(words))
    threads.parallel(body, ctypes.addressof(slots), ctypes.c_int64.from_address(geometry).value)


def words_of(values: Sequence[int]) -> Any:
    """Words in memory that is not NumPy's, where it would count as the user's."""
    return (ctypes.c_int64 * len(values))(*values)


class Table:
    """Layouts of operands that a pointwise function knows, and how it computes them.

    `call(*operands)` takes arrays; what it has no plan for goes to `otherwise`. Where no builtin
    can be made, `call` is `otherwise`.
    """

    def __init__(self, name: str, otherwise: Callable[..., Any], most: int = _MOST) -> None:
        self._most = most
        self._words = words_of([0] * (1 + most))
        self._plans: list[tuple[Any, ...]] = []
        self.call = self.before(name, otherwise)

    def before(self, name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """A `call` that gives what the table has no plan for to another function."""
        here = machine()
        own = (ctypes.addressof(self._words), otherwise, self)
        return otherwise if here is None else builtin.make(name, here.plan, own)

    def clear(self) -> None:
        """Forget all layouts."""
        self._words[0] = 0
        self._plans.clear()

    def add(self, operands: Sequence[Array | None], shape: tuple[int, ...],
            dtypes: Sequence[np.dtype[Any]], returns: Sequence[int] | None, geometry: int,
            body: int, keep: Any) -> None:
        """Compute operands with the shapes, strides and dtypes of these by the kernel `body`.

        Args:
            operands: arrays (or None, whose slot is 0), all that a call gets.
            shape, dtypes: of the C-contiguous arrays that the kernel fills.
            returns: what a call returns: numbers of results, -1 for None; where it is None, the
                only result itself (None where there is no result).
            geometry: the address of the words of the kernel, which must say one chunk.
            keep: what has to live as long as the layout is known: the words of `geometry`.
        """
        here = machine()
        if here is None or 1 + len(operands) + len(dtypes) > ir.MAX_SLOTS:
            return
        words = [len(operands), len(dtypes), len(returns or ()), geometry, body,
                 int(returns is not None), id(np.ndarray), here.new, 0]
        for a in operands:
            words += [-1, 0] if a is None else [a.ndim, id(a.dtype), *a.shape, *a.strides]
        for dtype in dtypes:
            words += [len(shape), id(dtype), *shape]
        plan = words_of([*words, *(returns or ())])
        owner = (plan, keep, tuple(dtypes), [a.dtype for a in operands if a is not None])
        plan[ir.OWNER] = id(owner)
        self._plans.append(owner)
        del self._plans[:-self._most]
        addresses = [ctypes.addressof(p[0]) for p in reversed(self._plans)]
        self._words[:1 + len(addresses)] = [len(addresses), *addresses]    # the GIL is ours


def table_of(f: Any) -> Any:
    """The `self` that `plan_try` takes of the call of a table; None for any other function."""
    own = getattr(f, "__self__", None)
    return own if type(own) is tuple and len(own) == 3 and type(own[2]) is Table else None
