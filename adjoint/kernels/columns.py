"""A backward rule that sums its cotangent down the columns in the pass that computes it.

Where rows got one and the same row added before a pointwise function (a bias), the row's cotangent
is the sum of the function's. Summed on its own, a large cotangent is read from memory once more.
The sums have the bits of `reduce`, whose kernel this is, with a store.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import alloc, codegen, launch, llvm, threads
from adjoint.kernels.expr import Expr
from adjoint.kernels.gemm_plan import address, release, workspace
from adjoint.kernels.loops import geometry
from adjoint.kernels.reduce import Job, form_of, words_of

Array = NDArray[Any]
_MAX_PLANS = 4096
_LONG = 512             # columns from which on rows go one after the other: eight at once are eight
#                         places to write, 0.8x to 0.95x of the time, but shorter rows gain nothing


class _Plan(NamedTuple):
    entry: launch.Entry
    words: Any
    where: int
    segments: int
    around: bool            # the cotangent is written around the cache


class Columns:
    """`rule(ct, *residuals, over=False)` gives the cotangent (in the memory of `ct` where `over`)
    and its sum over all axes but the last; NotImplemented where the operands are not alike, not
    in C order, or rows are no whole vectors.

    >>> from adjoint.kernels.expr import var
    >>> ct = np.ones((4, 64), np.float32)
    >>> found = Columns("twice", ["ct"], var("ct") + var("ct"))(ct)
    >>> found is NotImplemented or (float(found[0].sum()), float(found[1][0])) == (512.0, 8.0)
    True
    """

    def __init__(self, name: str, params: Sequence[str], expr: Expr) -> None:
        self.name, self.params, self.expr = name, tuple(params), expr
        self._plans: dict[Any, _Plan | None] = {}

    def __call__(self, *operands: Any, over: bool = False) -> Any:
        ct = operands[0]
        key = (over, *[(a.shape, a.strides, a.dtype) if type(a) is np.ndarray else None
                       for a in operands])
        if key not in self._plans:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[key] = self._make(operands, over)
        plan = self._plans[key]
        if plan is None or over and not ct.flags.writeable:
            return NotImplemented
        made = ct if over else np.empty(ct.shape, ct.dtype)
        if plan.around and address(made) % 64:
            return NotImplemented
        columns = ct.shape[-1]
        buffer = workspace(8 * plan.segments * columns)     # (memory that is not counted as theirs)
        sums = buffer[:8 * plan.segments * columns].view(np.float64).reshape(plan.segments, columns)
        plan.entry(threads.entry(), plan.where, *operands, made, sums)
        total = sums[0] if plan.segments == 1 else np.add.reduce(sums, axis=0)
        total = total.astype(ct.dtype)
        release(buffer)
        return made, total

    @llvm.generating
    def _make(self, operands: Sequence[Any], over: bool) -> _Plan | None:
        ct = operands[0]
        if not codegen.can_lower([self.expr]) or any(
                type(a) is not np.ndarray or a.shape != ct.shape or a.dtype != ct.dtype
                or not a.flags.c_contiguous or not a.flags.aligned for a in operands):
            return None
        kinds = codegen.storage(ct.dtype)
        if kinds is None or kinds[0] != kinds[1] or ct.ndim < 2 or not ct.dtype.isnative:
            return None
        if ct.shape[-1] % codegen.width(kinds[1]) or ct.shape[-1] == ct.size:
            return None
        form = form_of(ct.shape, frozenset(range(ct.ndim - 1)), [ct.strides] * (len(operands) + 1))
        if form is None or form.by_row:
            return None
        alloc.install()
        around = not over and codegen.streams(ct.nbytes)
        stored = [kinds[0]] * (len(operands) + 1)
        job = Job((self.expr,), ("add",), self.params, (), stored, "c" * len(stored),
                  len(form.kept), len(form.reduced), False, kinds[1],
                  "around" if around else "cached", ct.shape[-1] >= _LONG)
        entry = codegen.build(f"columns.{self.name}",
                              (codegen.text_of((self.expr,)), repr(job[1:])), job.emit,
                              arrays=len(stored) + 1)
        words, where = geometry(words_of(form))
        return _Plan(entry, words, where, int(words[1]), around)
