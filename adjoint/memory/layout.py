"""The exact live profile of a plan, computed fast: the inner loop of the planner.

A plan is a sorted array of keys `stage * width + index`: `index` numbers the loads (one per
tensor that may be spilled) and then the operations, so sorting keys gives the order of execution.
`Layout` derives from it, with a dozen NumPy calls, when each value is live and how many bytes are
live at each position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from adjoint.memory.traces import Step, Trace

Keys = NDArray[np.int64]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def _table(rows: list[list[int]]) -> tuple[Ints, Ints, Ints]:
    """Ragged rows as counts, offsets and one flat array."""
    count = np.array([len(r) for r in rows], np.int64)
    flat = np.array([x for r in rows for x in r], np.int64)
    return count, np.cumsum(count) - count, flat


def _gather(which: Ints, table: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints]:
    """For each position its row of the table: (position repeated, entries)."""
    count, offset, flat = table
    c = count[which]
    position = np.repeat(np.arange(len(which)), c)
    entry = np.arange(len(position)) + np.repeat(offset[which] - np.cumsum(c) + c, c)
    return position, flat[entry]


class Graph:
    """A trace compiled to arrays. `bandwidth` (bytes per second) makes tensors spillable; every
    transfer takes `latency` seconds besides."""

    def __init__(self, trace: Trace, bandwidth: float | None = None, latency: float = 0.0) -> None:
        self.trace, self.n = trace, len(trace.ops)
        made = trace.producer
        values = [x for x, p in enumerate(made) if p >= 0 and trace.nbytes[x] > 0]
        self.spillable = values if bandwidth else []
        self.loads = len(self.spillable)
        self.width = self.n + self.loads
        self.load_of = {x: k for k, x in enumerate(self.spillable)}
        self.inputs = [[x for x in dict.fromkeys(op.inputs) if made[x] >= 0] for op in trace.ops]
        outputs = [list(dict.fromkeys(op.outputs)) for op in trace.ops]
        self.reads = _table([[]] * self.loads + self.inputs)
        self.makes = _table([[x] for x in self.spillable] + outputs)
        self.nbytes = np.array(trace.nbytes, np.float64)
        self.loading: Floats = 2 * (self.nbytes / (bandwidth or np.inf) + latency)
        self.scratch = np.array([0] * self.loads + [op.workspace for op in trace.ops], np.float64)
        seconds = [self.load_seconds(x) for x in self.spillable]
        self.seconds = np.array(seconds + [op.seconds for op in trace.ops], np.float64)
        self.again = np.array([op.recomputable and bool(op.outputs) for op in trace.ops], bool)
        self.producer = np.array(made, np.int64)
        self.keep = np.array(sorted(x for x in trace.keep if made[x] >= 0), np.int64)
        self.base: Keys = np.arange(self.n, dtype=np.int64) * (self.width + 1) + self.loads

    def load_seconds(self, tensor: int) -> float:
        """Seconds to write `tensor` out and read it back."""
        return float(self.loading[tensor])

    def cost(self, keys: Keys) -> float:
        """Seconds of a plan."""
        return float(self.seconds[keys % self.width].sum())

    def pack(
        self, runs: Iterable[tuple[int, int]], loads: Iterable[tuple[int, int]] = ()
    ) -> Keys:
        """Keys of a plan given as (stage, operation) and (stage, tensor) pairs."""
        extra = [t * self.width + self.loads + i for t, i in runs]
        extra += [t * self.width + self.load_of[x] for t, x in loads]
        return np.unique(np.concatenate((self.base, np.array(extra, np.int64))))

    def unpack(self, keys: Keys) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """(stage, operation) and (stage, tensor) pairs beyond the first run of each operation."""
        runs, loads = [], []
        for key in np.setdiff1d(keys, self.base).tolist():
            stage, index = divmod(key, self.width)
            if index < self.loads:
                loads.append((stage, self.spillable[index]))
            else:
                runs.append((stage, index - self.loads))
        return runs, loads

    # ------------------------------------------------------------------ segments

    def forward_end(self) -> int:
        """Index after the last operation of the forward part: where the live peak is."""
        return int(np.argmax(Layout(self, self.base).profile[: self.n])) + 1

    def crossing(self, forward: int) -> Floats:
        """Bytes that the forward part itself needs to carry past each of its operations."""
        level = np.zeros(forward + 1)
        last = {x: i for i in range(forward) for x in self.inputs[i]}
        for x, end in last.items():
            level[self.producer[x]] += self.nbytes[x]
            level[end] -= self.nbytes[x]
        return np.asarray(np.cumsum(level)[:forward])

    def segment_keys(self, forward: int, cuts: list[int]) -> Keys:
        """Keep what crosses a cut and the last segment; run the rest again on first demand."""
        last = {x: i for i in range(forward) for x in self.inputs[i]}
        cut = np.array(cuts, np.int64)
        held = np.zeros(len(self.nbytes), bool)
        for x, made in enumerate(self.producer.tolist()):
            crosses = np.searchsorted(cut, made) < np.searchsorted(cut, last.get(x, made))
            held[x] = crosses or made > cuts[-1] or made < 0 or not self.again[made]
        runs = []
        for stage in range(forward, self.n):
            waiting = [x for x in self.inputs[stage] if not held[x]]
            while waiting:
                i = int(self.producer[waiting.pop()])
                if held[self.trace.ops[i].outputs[0]]:
                    continue
                held[list(self.trace.ops[i].outputs)] = True
                runs.append((stage, i))
                waiting += [x for x in self.inputs[i] if not held[x]]
        return self.pack(runs)


class Layout:
    """When each value of a plan is live; `profile[p]` bytes at position `p` of its execution.

    Events are creations and uses sorted by (tensor, position): `tensor`, `at`, `creates`.
    """

    __slots__ = ("at", "code", "cost", "creates", "graph", "keys", "m", "peak", "profile", "tensor")

    def __init__(self, graph: Graph, keys: Keys) -> None:
        self.graph, self.keys, self.m = graph, keys, len(keys)
        which = keys % graph.width
        made_at, made = _gather(which, graph.makes)
        read_at, read = _gather(which, graph.reads)
        end = np.full(len(graph.keep), self.m, np.int64)
        tensor = np.concatenate((made, read, graph.keep))
        at = np.concatenate((made_at, read_at, end))
        code = tensor * (self.m + 1) + at
        order = np.argsort(code)
        self.code, self.tensor, self.at = code[order], tensor[order], at[order]
        self.creates = order < len(made)
        first, last = self.lives()
        size = graph.nbytes[self.tensor[first]]
        change: Floats = np.bincount(self.at[first], size, self.m + 2).astype(np.float64)
        change -= np.bincount(self.at[last] + 1, size, self.m + 2)
        self.profile: Floats = graph.trace.resident + np.cumsum(change)[: self.m + 1]
        self.profile[: self.m] += graph.scratch[which]
        self.peak = int(self.profile.max())
        self.cost = float(graph.seconds[which].sum())

    def lives(self) -> tuple[Ints, Ints]:
        """Indices of the first and last event of each live stretch."""
        first = np.flatnonzero(self.creates)
        return first, np.append(first[1:], len(self.creates)) - 1

    def excess(self, budget: int) -> float:
        """Bytes above the budget, summed over positions."""
        return float(np.maximum(self.profile - budget, 0.0).sum())

    def candidates(
        self, budget: int, count: int, rng: np.random.Generator, noise: float
    ) -> Iterator[tuple[int, int]]:
        """Gaps between uses worth emptying: (tensor, position of the use that ends the gap)."""
        g, above = self.graph, np.maximum(self.profile - budget, 0.0)
        places, bytes_ = np.cumsum(above > 0), np.cumsum(above)
        gap = np.flatnonzero(~self.creates[1:])
        start, x = self.at[gap], self.tensor[gap]
        end = np.maximum(self.at[gap + 1] - 1, start)
        gain = np.minimum(
            (places[end] - places[start]) * g.nbytes[x], bytes_[end] - bytes_[start]
        )
        usable = (gain > 0) & (g.again[g.producer[x]] | bool(g.loads))
        gap, gain = gap[usable], gain[usable]
        score = gain / (self._price(gap) + 1e-12 * (self.cost + 1e-300))
        if noise:
            score = score * np.exp(noise * rng.standard_normal(len(score)))
        if len(score) > count:
            top = np.argpartition(-score, count)[:count]
            gap = gap[top[np.argsort(-score[top], kind="stable")]]
        for k in gap.tolist():
            yield int(self.tensor[k]), int(self.at[k + 1])

    def _price(self, gap: Ints) -> Floats:
        """Seconds to have each tensor back at the end of its gap, its own inputs included."""
        g, x, use = self.graph, self.tensor[gap], self.at[gap + 1]
        stage = np.append(self.keys // g.width, g.n)[use]
        run = g.loads + g.producer[x]
        price = g.seconds[run].copy()
        place = np.searchsorted(self.keys, stage * g.width + run)
        which, y = _gather(run, g.reads)
        e = np.searchsorted(self.code, y * (self.m + 1) + place[which])
        e = np.minimum(e, len(self.code) - 1)
        gone = (self.tensor[e] != y) | self.creates[e]
        price += np.bincount(
            which[gone], g.seconds[g.loads + g.producer[y[gone]]], minlength=len(gap)
        )
        if g.loads:
            price = np.where(g.again[g.producer[x]], np.minimum(price, g.loading[x]),
                             g.loading[x])
        return price

    def evictions(self, tensor: int, at: int, budget: int) -> Iterator[Keys]:
        """Plans in which `tensor` is not live up to its use at position `at`.

        Its producer runs again in that use's stage, with inputs extended or run again too, and
        the next later run of the same operations dropped or not; or the tensor is loaded.
        """
        g = self.graph
        stage = int(self.keys[at]) // g.width if at < self.m else g.n
        producer = int(g.producer[tensor])
        seen: set[frozenset[int]] = set()
        if tensor in g.load_of:
            yield np.sort(np.append(self.keys, stage * g.width + g.load_of[tensor]))
        if not g.again[producer]:
            return
        for mode in ("room", "extend", "rerun"):
            new = frozenset(self._closure(producer, stage, budget, mode))
            if not new or new in seen:
                continue
            seen.add(new)
            added = np.array(sorted(new), np.int64)
            yield np.sort(np.concatenate((self.keys, added)))
            later = self._later(added)
            if len(later):
                kept = np.delete(self.keys, later)
                yield np.sort(np.concatenate((kept, added)))

    def _closure(self, producer: int, stage: int, budget: int, mode: str) -> set[int]:
        """Keys to add so that `producer` can run in `stage`; `mode` says when inputs rerun."""
        g, new, waiting = self.graph, set[int](), [producer]
        while waiting:
            i = waiting.pop()
            key = stage * g.width + g.loads + i
            place = int(np.searchsorted(self.keys, key))
            if key in new or not g.again[i] or (place < self.m and self.keys[place] == key):
                continue
            new.add(key)
            if mode == "extend":
                continue
            for x in g.inputs[i]:
                e = int(np.searchsorted(self.code, x * (self.m + 1) + place))
                if e < len(self.code) and self.tensor[e] == x and not self.creates[e]:
                    continue
                since = int(self.at[e - 1]) + 1
                fits = since >= place or (
                    self.profile[since:place].max() + g.nbytes[x] <= budget
                )
                if mode == "rerun" or not fits:
                    waiting.append(int(g.producer[x]))
        return new

    def _later(self, added: Keys) -> Ints:
        """Positions of the next run, after the added ones, of the same operations."""
        which = self.keys % self.graph.width
        later = []
        for key in added.tolist():
            same = np.flatnonzero(which == key % self.graph.width)
            after = same[self.keys[same] > key]
            if len(after):
                later.append(int(after[0]))
        return np.array(later, np.int64)

    def added(self) -> list[int]:
        """Keys beyond the first run of each operation, the dearest first."""
        extra = np.setdiff1d(self.keys, self.graph.base)
        price = self.graph.seconds[extra % self.graph.width]
        found: list[int] = extra[np.argsort(-price, kind="stable")].tolist()
        return found

    def without(self, keys: Iterable[int]) -> Layout:
        """The plan with some runs removed."""
        return Layout(self.graph, np.setdiff1d(self.keys, np.array(list(keys), np.int64)))

    def may_remove(self, key: int, budget: int) -> bool:
        """Quick test: is there room to keep the outputs live up to the run that `key` is?

        The live bytes there also hold what only that run needs, so a no can be wrong; it is
        right often enough to be worth the time it saves on long plans.
        """
        g = self.graph
        if self.m < 400:
            return True
        place = int(np.searchsorted(self.keys, key))
        count, offset, flat = g.makes
        k = key % g.width
        for x in flat[offset[k] : offset[k] + count[k]].tolist():
            e = int(np.searchsorted(self.code, x * (self.m + 1) + place))
            since = int(self.at[e - 1]) + 1
            if since < place and self.profile[since:place].max() + g.nbytes[x] > budget:
                return False
        return True

    def ruin(self, rng: np.random.Generator, most: int = 12) -> Layout | None:
        """Remove up to `most` runs: at random, near one in time, or near one in the forward part.

        None if nothing was run again.
        """
        width = self.graph.width
        extra = np.setdiff1d(self.keys, self.graph.base)
        if not len(extra):
            return None
        kind, pick = int(rng.integers(3)), int(extra[rng.integers(len(extra))])
        count = int(rng.integers(1, most))
        stage = np.abs(extra // width - pick // width)
        index = np.abs(extra % width - pick % width)
        order = (
            rng.permutation(len(extra)),
            np.argsort(stage * width + index, kind="stable"),
            np.argsort(index * (self.graph.n + 1) + stage, kind="stable"),
        )[kind]
        return self.without(extra[order[:count]].tolist())

    def steps(self) -> list[Step]:
        """The plan as a schedule for `traces.replay`."""
        g = self.graph
        first, last = self.lives()
        ends: list[list[Step]] = [[] for _ in range(self.m + 1)]
        loaded: set[int] = set()
        for k, (a, z) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            x, end = int(self.tensor[a]), int(self.at[z])
            if end == self.m:
                continue
            kind = "drop"
            if k + 1 < len(first) and self.tensor[first[k + 1]] == x and x not in loaded:
                if int(self.keys[self.at[first[k + 1]]]) % g.width < g.loads:
                    kind = "spill"
                    loaded.add(x)
            ends[end].append((kind, x))
        steps: list[Step] = []
        for p, index in enumerate((self.keys % g.width).tolist()):
            if index < g.loads:
                steps.append(("load", g.spillable[index]))
            else:
                steps.append(("run", index - g.loads))
            steps += ends[p]
        return steps

