"""A budget inside of another one of the same thread.

The outer one stays in charge: it knows every residual of both, so that what either block saved can
be given up in either. For the length of the inner block it holds the lower of the two limits.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from adjoint.core.modes import watchers

if TYPE_CHECKING:
    from adjoint.memory.budgeting import budget


class BudgetReport(NamedTuple):
    """What a budget did so far: bytes and seconds.

    peak: most live bytes while it was entered; dropped, spilled: bytes given up, to be computed
    again or on disk; recomputed: seconds spent computing again, writing and reading; runs: ops run
    again (a count); planned: steps that followed a plan (a count).
    """

    peak: int
    dropped: int
    spilled: int
    recomputed: float
    runs: int
    planned: int

    def since(self, before: BudgetReport) -> BudgetReport:
        """What was done after `before`; the peak is of then alone, if it was reset."""
        return BudgetReport(
            self.peak, self.dropped - before.dropped, self.spilled - before.spilled,
            self.recomputed - before.recomputed, self.runs - before.runs,
            self.planned - before.planned)

    def followed_by(self, later: BudgetReport) -> BudgetReport:
        """Both together."""
        return BudgetReport(
            max(self.peak, later.peak), self.dropped + later.dropped, self.spilled + later.spilled,
            self.recomputed + later.recomputed, self.runs + later.runs,
            self.planned + later.planned)


class Inside:
    """The block of `inner` in one of `outer`."""

    def __init__(self, outer: budget, inner: budget) -> None:
        self.outer, self.inner = outer, inner
        self.hooked = watchers.hooks.get()[-1:] == (outer,)     # else other hooks lie between
        if not self.hooked:
            outer._hook()
        self.before = outer.report()
        self.held = outer.limit, outer._spill, outer._repeats, outer._peak
        outer._peak = outer._mark()
        outer._spill = outer._spill and inner._spill
        if inner.limit < outer.limit:
            outer._repeats = inner._repeats                   # its plans are for that limit
            outer._hold(inner.limit)

    def report(self) -> BudgetReport:
        """What was done in this block; steps that followed a plan of its own are known to it."""
        done = self.outer.report().since(self.before)
        return done if self.outer._repeats is self.held[2] else done._replace(planned=0)

    def leave(self, error: object) -> None:
        """The block has ended. What did not fit into it is told here where the limit was its own,
        else where the outer block ends."""
        outer, (limit, spill, repeats, peak) = self.outer, self.held
        for done in reports([self]) if not any(self.inner._inside) else ():
            self.inner._done = self.inner._done.followed_by(done)
        try:
            if outer.limit < limit:
                outer._explain(error)
        finally:
            outer._peak = max(outer._peak, peak)
            outer._spill = spill if not outer._disk else False    # (a full disk stays full)
            outer._repeats = repeats
            outer._hold(limit)
            if not self.hooked:
                outer._unhook()


def reports(blocks: Sequence[Inside | None]) -> list[BudgetReport]:
    """What was done so far in the blocks of one budget that are open, as far as another one did it:
    the first of them holds the others."""
    return [x.report() for x in blocks if x is not None and x.outer is not x.inner][:1]
