"""Chains of functions under an optimal checkpoint schedule (see `memory.chains` for the theory).

A schedule is a nesting of checkpointed regions: a stage is either run and saved, or belongs to a
segment that runs without saving and runs again, by a schedule of its own, when backward gets there.
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from adjoint.autograd.checkpoint import region
from adjoint.autograd.graph import saved_tensors_hooks
from adjoint.base.errors import ArgumentError
from adjoint.base.tree import flatten, tree_leaves, tree_map, unflatten
from adjoint.core.modes import GRAD, state
from adjoint.core.node import next_sequence
from adjoint.core.tensor import Tensor, owner_of
from adjoint.func.segments import passing, segment, trial, unseen
from adjoint.kernels import alloc
from adjoint.memory import meters
from adjoint.memory.chains import (
    ChainStep,
    Stage,
    least_chain_budget,
    log_chain,
    optimal_chain,
    revolve,
    sqrt_chain,
)
from adjoint.memory.planner import BudgetError
from adjoint.memory.sizes import parse_bytes

# A stage that is saved (its number), or a segment with the schedule of its second run.
Item = int | tuple[int, int, "Schedule"]
Schedule = list[Item]


def nest(steps: Sequence[ChainStep]) -> Schedule:
    """A flat schedule (as `memory.chains` gives them) as nested regions.

    >>> nest(log_chain(4))
    [(0, 2, [(0, 1, [0]), 1]), (2, 3, [2]), 3]
    """
    place = 0

    def region() -> Schedule:
        nonlocal place
        items: list[tuple[int, int, bool]] = []
        while steps[place][0] != "back":
            kind, first = steps[place]
            place += 1
            end = first
            while kind == "keep" and steps[place] == ("none", end + 1):
                place, end = place + 1, end + 1
            items.append((first - 1, end, kind == "all"))
        done: Schedule = []
        for first, end, saved in reversed(items):
            if saved:
                place += 1
                done.append(first)
            else:
                done.append((first, end, region()))
        return done[::-1]
    return region()


def run(fns: Sequence[Callable[[Any], Any]], x: Any, schedule: Schedule, nodes: bool = True,
        **options: Any) -> Any:
    """The chain `fns` on `x`, keeping for backward what `schedule` says.

    A segment of one tensor without segments in it is one node of the graph where nobody has a say
    in what is saved: it runs again as if nobody watched. Else it is a checkpointed call, which
    stops before the work whose result is there, at every level. So it is without `nodes`, too: a
    node holds the cotangent that it was given until all of its segment is walked back."""
    plain = nodes and all([isinstance(j, int) for i in schedule if not isinstance(i, int)
                           for j in i[2]])
    for item in schedule:
        if isinstance(item, int):
            x = fns[item](x)
            continue
        call = functools.partial(run, fns, schedule=item[2], nodes=nodes, **options)
        x = _alone(call, x, **options) if plain and type(x) is Tensor and unseen() else \
            region(call, (x,), {}, chained=True, **options)
    return x


def _alone(call: Callable[[Any], Any], x: Tensor, **options: Any) -> Any:
    """`call(x)` as one node; its result can be any tree."""
    shape: Any = None

    def leaves(x: Any) -> list[Any]:
        nonlocal shape
        found, shape = flatten(call(x))
        return found
    values = segment(leaves, x, who="checkpoint_chain", **options)
    return unflatten(list(values), shape)


def checkpoint_chain(functions: Any, input: Any, *, segments: int | str | None = None,
                     slots: int | None = None, checkpoints: int | None = None,
                     budget: int | float | str | None = None,
                     preserve_rng_state: bool = True) -> Any:
    """functions[-1](... functions[0](input)), keeping for backward only what a schedule keeps.

    Exactly one of
    segments     how many; "sqrt" (the default): 2 sqrt(n) to 4 sqrt(n) arrays at the peak (the
                 rule is `sqrt_slots`'s), each segment run again once
                 (Chen et al., arXiv 1604.06174); "log": halves of halves, about log2(n) inputs
                 held, about log2(n) / 2 extra forward passes
    slots        the same with so many arrays at the peak, three or so that the running stage
                 needs left out: more of them, and fewer stages run again. At least sqrt(2 n)
    checkpoints  at most so many held inputs, the fewest extra runs (Griewank and Walther's
                 revolve, ACM TOMS 799), for stages of equal cost
    budget       bytes for the chain ("2GB"): the least time that fits, for unequal stages (the
                 dynamic program of Beaumont et al., arXiv 1911.13214). Counted is all that the
                 call and its backward add to the given input, that included: inputs, residuals,
                 results and cotangents of stages, what their operations hold while they run,
                 gradients of parameters (made anew), the chain's result, which the caller may
                 hold. The caller's own work on that comes on top (`memory.budget` counts all).
                 Each stage is measured first, by running it forward twice and backward once

    `functions` is a sequence of callables of one argument, or a Sequential. Gradients are those of
    the plain chain. BudgetError states the least budget.

    >>> import adjoint as ad
    >>> x = ad.ones(3, requires_grad=True)
    >>> checkpoint_chain([ad.sin, ad.exp, ad.tanh, ad.cos], x, segments=2).sum().backward()
    """
    fns = list(functions.children()) if hasattr(functions, "children") else list(functions)
    given = [v for v in (segments, slots, checkpoints, budget) if v is not None]
    if len(given) > 1:
        raise ArgumentError("checkpoint_chain: give one of segments, slots, checkpoints and budget")
    if not fns or not state() & GRAD:
        return functools.reduce(lambda v, f: f(v), fns, input)
    if budget is not None:
        return auto(fns, budget=budget, preserve_rng_state=preserve_rng_state)(input)
    steps = sqrt_chain(len(fns), slots=slots) if slots is not None else \
        _steps(len(fns), segments, checkpoints)
    return run(fns, input, nest(steps), preserve_rng_state=preserve_rng_state)


def _steps(n: int, segments: int | str | None, checkpoints: int | None) -> list[ChainStep]:
    if checkpoints is not None:
        return revolve(n, checkpoints)
    if segments in (None, "sqrt"):
        return sqrt_chain(n)
    if segments == "log":
        return log_chain(n)
    if not isinstance(segments, int) or not 1 <= segments <= n:
        raise ArgumentError(f"checkpoint_chain: segments={segments!r}; it is 'sqrt', 'log' or a "
                            f"number from 1 to {n}, the length of the chain")
    return sqrt_chain(n, segments)


class auto:
    """A chain that measures its stages at its first call and then keeps within `budget` bytes
    (see `checkpoint_chain` for what counts).

    Calls with the same input shape follow the same schedule, computed once.

    >>> import adjoint as ad
    >>> net = ad.nn.Sequential(*[ad.nn.Linear(8, 8) for _ in range(6)])
    >>> step = auto(net, budget="100KB")
    >>> step(ad.ones(2, 8)).sum().backward()
    """

    def __init__(self, functions: Any, *, budget: int | float | str,
                 preserve_rng_state: bool = True) -> None:
        self.functions = functions
        self.budget = parse_bytes(budget)
        self.preserve_rng_state = preserve_rng_state
        self.schedules: dict[Any, tuple[Schedule, bool]] = {}
        self.stages: list[Stage] = []

    def __call__(self, input: Any) -> Any:
        fns = list(self.functions.children()) if hasattr(self.functions, "children") \
            else list(self.functions)
        if not state() & GRAD:
            return functools.reduce(lambda v, f: f(v), fns, input)
        key = tuple((tuple(t.shape), t.dtype) for t in _tensors(input))
        if key not in self.schedules:
            self.schedules[key] = self._plan(fns, input)
        schedule, nodes = self.schedules[key]
        return run(fns, input, schedule, nodes, preserve_rng_state=self.preserve_rng_state)

    def _plan(self, fns: list[Any], input: Any) -> tuple[Schedule, bool]:
        self.stages = measure(fns, input, self.preserve_rng_state)
        size, result = sum(t.array.nbytes for t in _tensors(input)), self.stages[-1].output
        options = {"input_bytes": size, "units": _units(len(fns))}
        room = self.budget - result
        try:
            plan = optimal_chain(self.stages, room, **options)
        except ArgumentError:
            least = least_chain_budget(self.stages, **options)
            if least > room:
                raise BudgetError(
                    f"checkpoint_chain: no schedule of these {len(fns)} stages fits "
                    f"{self.budget:,} bytes; the least budget that works is {least + result:,} "
                    "bytes", least + result) from None
            plan = optimal_chain(self.stages, least, **options)     # (units are rounded up)
        held = max([self.stages[i - 1].output for kind, i in plan.steps
                    if kind in ("keep", "none")], default=0)
        return nest(plan.steps), plan.peak + held <= room


def _units(n: int) -> int:
    """How finely memory is counted: long chains take cubic time."""
    return 500 if n <= 30 else 200 if n <= 80 else 100


def _tensors(value: Any) -> list[Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, Tensor)]


class _Counted(saved_tensors_hooks):
    """Adds up the distinct memory that ops save, parameters and the given input left out."""

    once = True

    def __init__(self, without: list[Tensor]) -> None:
        super().__init__(lambda t: t, lambda t: t)
        self.seen: dict[int, int] = {id(owner_of(t.array)): 0 for t in without}
        self.alive: list[Any] = []

    def pack(self, saved: Any, node: Any) -> Any:
        t = getattr(saved, "tensor", saved)
        leaf = isinstance(t, Tensor) and t.is_leaf and t.requires_grad
        if not leaf:
            owner = owner_of(saved.array)
            if id(owner) not in self.seen:
                self.alive.append(owner)
            self.seen.setdefault(id(owner), owner.nbytes)
        return super().pack(saved, node)

    def with_results(self, outs: list[Tensor]) -> int:
        """Bytes of all of it, and of the results."""
        owners = {id(owner_of(t.array)): t.array.nbytes for t in outs}
        return sum((self.seen | owners).values())


def measure(functions: Sequence[Callable[[Any], Any]], input: Any,
            preserve_rng_state: bool = True) -> list[Stage]:
    """Seconds and bytes of each function of a chain, from a forward run of each that saves nothing
    and one that does, with its backward, one after the other (never more than one stage in
    memory). Random numbers and buffers of modules are put back; hooks of parameters hear nothing.
    Without the counting allocator (`kernels.alloc`) scratch is not known, and 0."""
    from adjoint.ops.generator import default_generator
    alloc.install()
    held = default_generator.stream.hold() if preserve_rng_state else None
    stages: list[Stage] = []
    left: list[dict[Any, int]] = []
    for f in functions:
        with _buffers_put_back(f):
            stage, gradients, input = _measured(f, input)
        stages.append(stage)
        left.append(gradients)
    if held is not None:
        default_generator.stream.back_to(held)
    later: set[Any] = set()                    # a shared parameter's gradient is there already
    for i in reversed(range(len(stages))):
        stages[i] = dataclasses.replace(stages[i], gradients=sum(
            n for e, n in left[i].items() if e not in later))
        later |= left[i].keys()
    return stages


def _measured(f: Callable[[Any], Any], input: Any) -> tuple[Stage, dict[Any, int], Any]:
    """A stage, the bytes of the gradients that it leaves, and its result."""
    x, since = _fresh(input), next_sequence()
    counted = _Counted(_tensors(x))
    before, most = meters.from_here()
    with counted:
        y = f(x)
    saved = max(counted.with_results(_tensors(y)), alloc.live() - before)
    saving = most() - before - saved
    outs = [t for t in _tensors(y) if t.requires_grad]
    beside = saved + sum(t.array.nbytes for t in (*outs, *_tensors(x)))
    del y, counted
    gradients: dict[Any, int] = {}
    begun = time.perf_counter()
    _, most = meters.from_here()
    if outs:
        gradients = trial(outs, [t for t in _tensors(x) if t.is_leaf], since)
    backward = time.perf_counter() - begun
    extra = most() - before - beside
    before, most = meters.from_here()
    begun = time.perf_counter()
    with passing():
        y = f(x)
    forward = time.perf_counter() - begun
    size = sum(t.array.nbytes for t in _tensors(y))
    scratch = most() - before - size
    return (Stage(forward, max(backward, forward), saved, size, max(scratch, 0), max(extra, 0),
                  max(saving, 0)), gradients, _fresh(y))


@contextlib.contextmanager
def _buffers_put_back(f: Any) -> Iterator[None]:
    """Running statistics of a module are those of before."""
    buffers = f.buffers() if hasattr(f, "buffers") else ()
    held = [(b, b.array.copy()) for b in buffers if type(b.array) is np.ndarray]
    try:
        yield
    finally:
        for b, value in held:
            b.array[...] = value


def _fresh(value: Any) -> Any:
    """The same values without history."""
    def leaf(t: Any) -> Any:
        if not isinstance(t, Tensor):
            return t
        fresh = t.detach()
        if fresh.dtype.is_floating_point:
            fresh.requires_grad_()
        return fresh
    return tree_map(leaf, value)
