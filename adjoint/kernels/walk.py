"""A backward pass in machine code: the plain part of the walk (see `walk_ir` for what it visits),
and before it the order of the nodes (`arrange_ir`)."""
from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adjoint.kernels import arrange_ir, builtin, direct, rules_ir, walk_ir
from adjoint.kernels.calls import Slots, link
from adjoint.kernels.expr import var


def walker(objects: Mapping[str, Any], slots: Slots
           ) -> tuple[Callable[..., int], Callable[..., None]] | None:
    """`walk(order, first, cts, last, mark, deliver, leaves, fitted, tell) -> index` and
    `arrange(order, ends, roots)`; None where there is no generated code. The arguments
    say what nodes and tensors look like: see `calls.link`."""
    names = {n: sys.intern(n) for n in ("hooked", "ports", "edges")}
    objects = {"plus": _plus(), "refs": sys.getrefcount, "bool": bool, "list": list, **names,
               **objects}
    # two modules, because both functions in one take longer to compile than a kernel may
    made = []
    for name, text in (("walk", walk_ir.text), ("arrange", arrange_ir.text)):
        module = link(name, text, rules_ir.ENV, objects, slots)
        if module is None:
            return None
        made.append(builtin.make(name, module.address(name), ()))
    walk, arrange = made
    return walk, arrange


def _plus() -> Callable[..., Any]:
    """The sum of two cotangents, both small arrays of one dtype as a rule."""
    f: Callable[..., Any] = operator.add
    for dtype in (np.float64, np.float32):
        found = direct.program(["a", "b"], [var("a") + var("b")], np.dtype(dtype), True)
        f = f if found is None else direct.function(found, f)
    return f
