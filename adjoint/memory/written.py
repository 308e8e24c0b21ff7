"""What writes down a ledger's events in machine code (`kernels/events_ir.py`)."""
from __future__ import annotations

import functools
import struct
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import Aval
from adjoint.core.modes import watchers
from adjoint.core.node import WRITTEN_OUT
from adjoint.core.op import OPS, Plan
from adjoint.core.tensor import (
    AccumulateGrad,
    Freed,
    Kept,
    OpNode,
    OutRef,
    PairNode,
    Parameter,
    Port,
    Tensor,
    wrap,
)
from adjoint.kernels import alloc, builtin, calls, events_ir, ledger_ir, llvm
from adjoint.memory.ledger import FOREVER, Entry, Saver
from adjoint.memory.meters import Meter, most_alive

Writers = tuple[Callable[..., bool], ...]


@functools.cache
def _module() -> llvm.Module | None:
    """The code; None where it cannot be had."""
    array = np.ndarray(0, buffer=b"")                    # no memory that counts
    known = wrap(array)
    called: list[Any] = []
    ends = called.append
    note, other = Entry(array, ends), Entry(array, ends)
    if not _as_expected(array, note, other, ends):
        return None
    pair, wide = PairNode(), OpNode()
    slots: dict[str, tuple[Any, str]] = {n: (known, n) for n in ("array", "_edge")}
    slots |= {n: (pair, n) for n in ("plan", "code", "lasti", "s0", "s1")}
    slots |= {"saved": (wide, "saved"), "plan.names": (Plan(OPS["add"], 1), "names"),
              "kept.tensor": (Kept(known, 0, None), "tensor"), "ref.array": (OutRef(), "array"),
              "port.node": (Port(pair, 0, (), None), "node")}
    slots |= {"entry." + n: (note, n) for n in Entry.__slots__}
    slots |= {"saver." + n: (Saver(pair), n) for n in Saver.__slots__}
    names = {"name": "name", "nbytes": "nbytes", "op_name": "op", "class_name": "__name__",
             "_grad": "_grad", "empty": "", "temporary": "temporary", "gradient": "gradient",
             "accumulated": "AccumulateGrad", "grad_of": ".grad of "}
    module = calls.link("ledger", events_ir.text, ledger_ir.ENV, {
        "tensor": Tensor, "parameter": Parameter, "none_type": type(None), "bool": bool,
        "list": list, "getframe": sys._getframe, "is_inside": provenance.is_own_code,
        "port": Port, "ref": OutRef, "kept": Kept, "freed": Freed, "aval_type": Aval,
        "pair_node": PairNode, "op_node": OpNode, "entry": Entry, "saver": Saver,
        "accumulate": AccumulateGrad, "modules": watchers.modules, "clock": time.perf_counter,
        "forever": FOREVER, "written_out": WRITTEN_OUT,
        **{n: sys.intern(s) for n, s in names.items()}}, slots)
    for kind, example in (("entry", Entry(array, ends)), ("saver", Saver(wide, ends))):
        made: Any = type(example)
        if module is not None and (
                made.__basicsize__ == weakref.ref.__basicsize__ + 8 * len(made.__slots__)):
            builtin.allocator(made, module.address(kind + "_alloc"), module.address(kind + "_free"))
            builtin.follow(made, module.address("follow"), example, [ends])
    return module


def _as_expected(array: Any, note: Any, other: Any, ends: Any) -> bool:
    """Whether the words of two weak references to an array are where `events_ir.text` has them."""
    words = [builtin.words_of(r, 7) for r in (note, other)]
    first = builtin.words_of(array, np.ndarray.__weakrefoffset__ // 8 + 1)[-1]
    nexts = {id(r): w[6] for r, w in zip((note, other), words, strict=True)}
    return (all(w[2:4] == [id(array), id(ends)] for w in words)
            and nexts.pop(first, None) in nexts and [*nexts.values()] == [0])


def writers(meter: Any, books: Sequence[Any], walking: Any) -> Writers | None:
    """What `events_ir.WRITERS` names, of a ledger; None where it has no such allocator to ask, or
    there is no generated code. `books`: its dict of entries, its log, what appends to that, its
    dicts of nodes and of their modules; `walking`: how many backward passes run."""
    if not isinstance(meter, Meter) or not alloc.installed():
        return None
    module = _module()
    if module is None:
        return None
    cells = meter.cells, most_alive, walking
    own = (*books, struct.pack("5Q", *alloc.addresses(), *[c.buffer_info()[0] for c in cells]),
           *cells)
    return tuple([builtin.make(n, module.address(n), own) for n in events_ir.WRITERS])


__all__ = ["writers"]
