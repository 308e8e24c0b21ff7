"""What a step would have needed that does not fit into its budget (see docs/design/0009-budget.md).

It runs on beyond the limit, holding as little as it can, and is measured: until the block ends, an
optimizer is about to step, or a backward ends that is like one before. No optimizer steps in that
time: where there is one whose parameters no backward has reached yet (a GAN's second network),
those before it are passed over. Two things come after that: an optimizer makes its state, which
then lies beside every later step, and the gradients of one step lie beside the next one's forward
where they are reset after it. Both are added, so that the number is enough for them too. Gradients
that are never freed (`zero_grad(set_to_none=False)`) lie beside the next backward as well: what
that takes more is told, and not added.
"""
from __future__ import annotations

import contextvars
import gc
import weakref
from collections.abc import Iterable
from typing import Any

from adjoint.memory.predict import predict

MARGIN = 1 << 18     # bytes left free below a budget, for what is too small to be refused
MOST = 8             # backwards that are run beyond the limit
STAYS = ("what stays: parameters, gradients, what the program itself holds, and what the op that "
         "runs reads and makes\n  fix: a larger budget, a smaller batch, or fewer values held by "
         "the program")


def margin(limit: int) -> int:
    """Bytes below a budget of `limit` that stay free."""
    return min(MARGIN, limit // 64)


def with_margin(most: int) -> int:
    """The budget under which `most` bytes may be alive."""
    return most + min(MARGIN, most // 63 + 1)


def told_at_once(limit: int, asked: int, most: int, disk: str, least: int) -> str:
    """The words of an error where the step does not run on: `asked` bytes more make `most`."""
    return (f"budget: {limit:,} bytes do not suffice: {asked:,} more are asked for where "
            f"{most - asked:,} are in use and nothing is left to drop or spill{disk}; a budget of "
            f"{least:,} bytes gets past this place\n  {STAYS}")


class Shortage:
    """A step that runs on beyond its limit. `words`: how and where it did not fit."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.forward = 0                          # the peak before its first backward
        self._worked = 0                          # the most beside optimizers that were passed over
        self._leaves: dict[int, Any] = {}
        self._ended: list[Any] = []

    def begins(self, peak: int) -> None:
        """A backward begins; `peak` was the most so far."""
        self.forward = self.forward or peak

    def accumulated(self, leaf: Any) -> None:
        """A leaf has its gradient."""
        self._leaves[id(leaf)] = leaf

    def passes_over(self, optimizer: Any, live: int) -> bool:
        """An optimizer is about to step, with `live` bytes there; whether another is to come."""
        reached = set(self._leaves)
        gc.collect()                              # (optimizers that are gone are not to come)
        if not any(reached.isdisjoint([id(p) for p in _parameters(o)]) for o in _optimizers()):
            return False
        self._worked = max(self._worked, live + _step(optimizer)[1])
        return True

    def ends(self, step: Any) -> bool:
        """A backward has ended, of a step like `step`; whether that is enough to know."""
        known = any(step is before for before in self._ended)
        self._ended.append(step)
        return known or len(self._ended) >= MOST

    def told(self, where: str, needed: int, remark: str, least: int) -> str:
        """The error's words, at the end of `where`."""
        return (f"{self.words}; run to the end of {where} holding as little as it can, the step "
                f"needed {needed:,}{remark}: a budget of {least:,} bytes is enough for it\n"
                f"  {STAYS}")

    def needed(self, peak: int, live: int) -> tuple[int, str]:
        """(Bytes, a remark on them): what it takes, of which `peak` were measured, with `live` at
        the end; an upper bound where something is added to what was measured."""
        leaves = list(self._leaves.values())
        gradients = sum(x.grad.nbytes for x in leaves if x.grad is not None)
        state, work, names = _of_optimizers(leaves)
        found = max(peak, self.forward + gradients, live + work, self._worked) + state
        told = f" ({state:,} of it for the state that {names} will make)" if state else ""
        more = max(peak + gradients + state - found, 0)
        if more:
            told += f" (and {more:,} more where gradients stay from step to step)"
        return found, told


def _of_optimizers(leaves: Iterable[Any]) -> tuple[int, int, str]:
    """(Bytes of state to come, the most beside it while they step, their names), of all optimizers
    that look after one of these parameters."""
    ids = {id(x) for x in leaves}
    state = work = 0
    names = []
    for o in _optimizers() if ids else ():
        if ids.isdisjoint([id(p) for p in _parameters(o)]):
            continue
        more, beside = _step(o)
        state += more
        work = max(work, beside)
        if more:
            names.append(type(o).__name__)
    return state, work, " and ".join(names)


def _optimizers() -> list[Any]:
    return [o for o in gc.get_objects()
            if hasattr(type(o), "step") and "param_groups" in getattr(o, "__dict__", ())]


def _parameters(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _step(optimizer: Any) -> tuple[int, int]:
    """(Bytes of state that its next step makes, the most beside them); nothing where it cannot be
    foretold."""
    try:                                         # apart from whoever watches the program
        report = contextvars.Context().run(predict, type(optimizer).step, optimizer)
    except Exception:  # one that needs a closure, or the values of gradients
        return 0, 0
    more = max(report.live - report.before, 0)
    return more, report.peak - report.before - more


_makes_none: weakref.WeakSet[Any] = weakref.WeakSet()     # optimizers without state


def first_step(optimizer: Any) -> int:
    """Bytes that an optimizer is about to ask for because it has no state yet; 0 if it has."""
    if optimizer in _makes_none or not any([p.grad is not None and p not in optimizer.state
                                            for g in optimizer.param_groups for p in g["params"]]):
        return 0
    more, work = _step(optimizer)
    if work and not more:                        # (neither where it was not to be had)
        _makes_none.add(optimizer)
    return more + work if more else 0
