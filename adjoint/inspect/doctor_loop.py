"""Checks of the training loop: what is cleared, kept, summed and carried from step to step."""
from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from adjoint.base.text import format_bytes
from adjoint.core.tensor import AccumulateGrad
from adjoint.inspect.doctor_case import (
    NOWHERE,
    Case,
    Check,
    Finding,
    Place,
    check,
    leaves_of,
    node_place,
    norm,
    parents,
    place_of,
    several,
    upstream,
)


class _Track:
    """A gradient after a backward: which tensor, at which version of its parameter."""

    __slots__ = ("leaf", "grad", "version", "dirty", "place")

    def __init__(self, leaf: Any, place: Place) -> None:
        self.leaf: Any = weakref.ref(leaf)
        self.grad: Any = weakref.ref(leaf._grad)
        self.version, self.dirty, self.place = leaf._version, False, place

    def same(self, leaf: Any) -> bool:
        """Is the gradient still the tensor it was, with something in it?"""
        g = leaf._grad
        return (g is not None and self.leaf() is leaf and self.grad() is g
                and isinstance(g.array, np.ndarray) and bool(g.array.any()))


@check
class MissingZeroGrad(Check):
    """A gradient is stale when its parameter was updated after it was accumulated. Accumulating
    onto a stale gradient and then updating again is the mistake; a discriminator that collects
    gradients of the generator's loss and is cleared before its own step is not."""

    code = "AD001"
    title = "gradients are not cleared between steps"
    cause = "zero_grad() is missing: each backward adds to the gradients of the steps before"
    fix = "call optimizer.zero_grad() (or set .grad = None) once before each backward of a step"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.tracks: dict[int, _Track] = {}
        self.bad: dict[int, str] = {}               # id -> name
        self.place = self.walking = NOWHERE
        self.onto: set[int] = set()                 # leaves whose stale gradient this walk meets
        self.stale: list[tuple[Any, Any]] = []      # gradients before this walk: (leaf, copy)
        self.history: list[tuple[float, float]] = []    # |grad|, |this step's share|

    def begin_walk(self, walk: Any) -> None:
        if walk.levels or not walk.accumulate:
            return
        self.stale = []
        self.onto.clear()
        self.walking = place_of(walk)
        for leaf in leaves_of(walk):
            track = self.tracks.get(id(leaf))
            if track is None or not track.same(leaf):
                self.tracks.pop(id(leaf), None)
                continue
            if leaf._version == track.version:
                continue
            if track.dirty:
                self._consumed(leaf, track)
            self.onto.add(id(leaf))
            if len(self.history) < 12:
                self.stale.append((leaf, leaf._grad.array.copy()))

    def accumulated(self, leaf: Any) -> None:
        if leaf._grad is None:
            return
        track = self.tracks.get(id(leaf))
        if track is None or track.leaf() is not leaf:
            self.tracks[id(leaf)] = _Track(leaf, self.walking)
        else:
            track.grad, track.version = weakref.ref(leaf._grad), leaf._version
            track.dirty = track.dirty or id(leaf) in self.onto
            track.place = self.walking

    def _consumed(self, leaf: Any, track: _Track) -> None:
        """An update has read a gradient that has older ones in it. The backward to name is the
        one before that update; others may pass through the same leaves for another's sake."""
        self.bad[id(leaf)] = self.case.name(leaf)
        self.place = track.place

    def end_walk(self, walk: Any) -> None:
        if self.stale and not walk.levels:
            total = norm(leaf._grad.array for leaf, _ in self.stale if leaf._grad is not None)
            own = norm(leaf._grad.array - old for leaf, old in self.stale
                       if leaf._grad is not None)
            self.history.append((total, own))
            self.stale = []

    def findings(self) -> Iterable[Finding]:
        for track in self.tracks.values():
            leaf = track.leaf()
            if leaf is not None and track.dirty and track.same(leaf):
                if leaf._version != track.version:          # updated with it
                    self._consumed(leaf, track)
        bad = self.bad
        if bad and self.history:
            total, own = self.history[-1]
            left = f"|grad| = {total:.3g}, of which {own:.3g} belongs to the latest step"
            n = len(self.history) + 1
            law = (f"{n} gradients are summed; at a fixed point the sum is {n} times one of them, "
                   "and plain SGD on it is momentum 1: it oscillates, and diverges once lr times "
                   "the curvature exceeds 4")
            yield self.found(self.place, f"{len(bad)} tensors ({several(sorted(bad.values()))}) "
                             f"were updated with gradients of earlier steps: {left}; {law}")


class _Scalar:
    """A result of one element: who has read it, and which backward has passed it."""

    __slots__ = ("tensor", "seq", "read", "walked", "root")

    def __init__(self, t: Any, seq: int) -> None:
        self.tensor, self.seq = weakref.ref(t), seq
        self.read = self.walked = self.root = False

    def idle(self) -> bool:
        """Nothing was made from it, and no backward is to come through it."""
        return not self.read and (self.root or not self.walked)


@check
class LossesKept(Check):
    """Scalars of one line that are alive together, several steps long, each with its graph, and
    that no other op reads."""

    code = "AD002"
    title = "losses are kept with their graphs"
    cause = "a list or attribute holds loss tensors: each keeps its graph, and what backward has "\
            "not freed yet, alive"
    fix = "keep numbers: losses.append(loss.item()), or loss.detach()"
    few, many = 4, 64            # alive at once: what is told, what is looked at

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.made: dict[Place, deque[_Scalar]] = {}
        self.open: dict[int, _Scalar] = {}
        self.held: dict[Place, tuple[list[_Scalar], int, int]] = {}   # at most: nodes, bytes

    def forward(self, node: Any, args: Any, made: Any) -> None:
        for p in parents(node):
            if p.seq in self.open:
                self.open[p.seq].read = True
        t = made[0]
        if (len(made) != 1 or t.array.size != 1 or t.array.dtype.kind != "f"
                or node.plan is not None and node.plan.op.view):
            return
        have = self.made.setdefault(node_place(node), deque())
        if have and (have[0].tensor() is None or len(have) == self.many):
            for s in [s for s in have if s.tensor() is None]:
                have.remove(s)
                del self.open[s.seq]
        if len(have) >= self.few:
            self._count(node_place(node), have)
        if len(have) < self.many:
            have.append(_Scalar(t, node.seq))
            self.open[node.seq] = have[-1]

    def _count(self, place: Place, have: deque[_Scalar]) -> None:
        idle = [s for s in have if s.tensor() is not None and s.idle()]
        before, nodes, kept = self.held.get(place, ([], 0, 0))
        if len(idle) < self.few or len(idle) <= len(before):
            return
        if len(idle) >= 2 * len(before) or len(idle) < 8:     # a walk through all their graphs
            alive = [t for s in idle if (t := s.tensor()) is not None]
            found = [upstream(t.grad_fn) for t in alive]
            nodes, kept = sum(f[0] for f in found), sum(f[1] for f in found)
        self.held[place] = idle, nodes, kept

    def begin_walk(self, walk: Any) -> None:
        for i, n in enumerate(walk.order):
            s = self.open.get(n.seq)
            if s is not None:
                s.walked = True
                s.root = s.root or not i and not walk.levels

    def findings(self) -> Iterable[Finding]:
        for place, (scalars, nodes, kept) in self.held.items():
            if sum(s.idle() for s in scalars) >= self.few:
                memory = (f"and {format_bytes(kept)} of values for a backward that never came"
                          if kept else "whose values backward has freed, the nodes not")
                yield self.found(place, f"{len(scalars)} losses of this line were alive at once; "
                                 f"they hold {nodes} or more graph nodes {memory}")


@check
class RetainGraph(Check):
    """`retain_graph=True` whose second backward never comes."""

    code = "AD003"
    title = "retain_graph=True without a second backward"
    cause = "the values kept for backward stay until the loss dies, for nothing"
    fix = "drop retain_graph=True; keep it only on a backward that another one follows"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.pending: list[tuple[Place, frozenset[int]]] = []
        self.counts: dict[Place, int] = {}
        self.used: set[Place] = set()
        self.bytes: dict[Place, int] = {}

    def begin_walk(self, walk: Any) -> None:
        if walk.levels or not walk.order:
            return
        seqs = frozenset(n.seq for n in walk.order)
        left = []
        for place, nodes in self.pending:
            if not nodes.isdisjoint(seqs):
                self.used.add(place)
            else:
                left.append((place, nodes))
        self.pending = left[-8:]
        for place, _ in left[:-1]:
            self.counts[place] = self.counts.get(place, 0) + 1
        self.pending = left[-1:]
        if walk.keep and not walk.create and walk.accumulate:
            place = place_of(walk)
            self.pending.append((place, seqs))
            self.bytes.setdefault(place, upstream(walk.order[0])[1])

    def findings(self) -> Iterable[Finding]:
        for place, n in self.counts.items():
            n += sum(p == place for p, _ in self.pending)
            if n >= 2 and place not in self.used:
                yield self.found(place, f"{n} backward passes kept their graph "
                                 f"({format_bytes(self.bytes[place])} each); none was walked again")


@check
class CarriedState(Check):
    """Each backward walks further back than the one before it: a carried state grows linearly."""

    code = "AD022"
    title = "state is carried across steps with its graph"
    cause = "a hidden state (or a running value) connects this step to all earlier ones"
    fix = "detach what is carried: hidden = hidden.detach() before the next step"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.sizes: dict[Place, list[int]] = {}
        self.latest: dict[Place, frozenset[int]] = {}

    def begin_walk(self, walk: Any) -> None:
        if walk.levels or not walk.order or not walk.accumulate:
            return
        place = place_of(walk)
        seqs = frozenset(n.seq for n in walk.order)
        shared = len(seqs & self.latest.get(place, frozenset()))
        sizes = self.sizes.setdefault(place, [])
        if not sizes or 2 * shared < len(self.latest[place]):
            sizes.clear()
        if sizes and len(seqs) <= sizes[-1]:
            sizes.clear()
        sizes.append(len(seqs))
        self.latest[place] = seqs

    def findings(self) -> Iterable[Finding]:
        for place, sizes in self.sizes.items():
            if len(sizes) >= 3:
                yield self.found(place, f"nodes walked by successive backward passes: "
                                 f"{', '.join(map(str, sizes[:6]))}: time and memory grow by "
                                 f"{sizes[-1] - sizes[-2]} nodes a step")

    def error(self, error: Any, place: Place) -> Iterable[Finding]:
        if error.reason == "freed":
            node = error.about
            yield self.found(place, f"{node.name()} of {node.where()} was walked by an earlier "
                             "backward already; its values are freed",
                             "detach what is carried from step to step; or sum the losses and call "
                             "backward once")


_SCALES = frozenset({"mul", "div", "neg", "to_dtype", "view", "alias"})


def _scaled(node: Any) -> Iterable[Any]:
    """A node, and what it is a multiple of: `loss * len(batch)` holds the loss like itself."""
    for _ in range(3):
        if type(node) is AccumulateGrad:
            return
        yield node
        above = list(parents(node))
        if len(above) != 1 or node.plan is None or node.plan.op.name not in _SCALES:
            return
        node = above[0]


@check
class SumOfTensors(Check):
    """`total += loss`: a chain of scalar additions over graphs that are done with."""

    code = "AD021"
    title = "tensors are accumulated in a Python sum"
    cause = "the running total is a tensor: it holds the graphs of all the losses in it"
    fix = "add numbers: total += loss.item()"
    ops = frozenset({"add"})

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.chain: dict[int, tuple[Place, tuple[int, ...], int, int]] = {}
        self.walked: set[int] = set()
        self.done: dict[Place, int] = {}
        self.open: dict[Place, tuple[int, set[int], int]] = {}
        self.bytes: dict[Place, int] = {}
        self.roots: set[int] = set()

    def forward(self, node: Any, args: Any, made: Any) -> None:
        if made[0].array.size != 1:
            return
        place = node_place(node)
        operands = tuple([n.seq for p in parents(node) for n in _scaled(p)])
        length, dead = 1, 0
        for seq in operands:
            link = self.chain.get(seq)
            if link is not None and self._line(link[0]) == self._line(place):
                length = max(length, link[2] + 1)
                dead = max(dead, link[3] + any(s in self.roots for s in link[1]))
        self.chain[node.seq] = place, operands, length, dead
        dead += any(s in self.roots for s in operands)
        if dead >= 3 and dead > self.done.get(place, 0):
            self.done[place] = dead
            self.bytes[place] = upstream(node)[0]
        elif length >= 8:
            seqs = self.open.setdefault(place, (0, set(), 0))[1]
            seqs.add(node.seq)
            if length & (length - 1) == 0:
                self.open[place] = length, seqs, upstream(node)[1]
            else:
                self.open[place] = length, seqs, self.open[place][2]
        if len(self.chain) > 10_000:
            for seq in list(self.chain)[:5_000]:
                del self.chain[seq]

    @staticmethod
    def _line(place: Place) -> tuple[Any, int]:
        code = place[0]
        return (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)

    def begin_walk(self, walk: Any) -> None:
        if walk.order:
            if not walk.keep and not walk.levels:
                self.roots.add(walk.order[0].seq)
            for _, seqs, _kept in self.open.values():
                self.walked |= seqs.intersection(n.seq for n in walk.order)

    def findings(self) -> Iterable[Finding]:
        for place, n in self.done.items():
            yield self.found(place, f"the sum holds {n} or more losses whose backward is over, "
                             f"{self.bytes[place]} graph nodes in all")
        for place, (length, seqs, kept) in self.open.items():
            if place not in self.done and not seqs & self.walked:
                yield self.found(place, f"{length} losses were summed as tensors and never walked "
                                 f"back; their graphs hold {format_bytes(kept)}")
