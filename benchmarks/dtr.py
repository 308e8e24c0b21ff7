"""Our planner against Dynamic Tensor Rematerialization on traces of the published kinds.

    python -m benchmarks.dtr                     # all kinds, table of extra time by budget
    python -m benchmarks.dtr --trace lstm --ratios 0.5 0.3
    python -m benchmarks.dtr --log resnet.log    # a log in the format of the DTR simulator

`run_dtr` is the online baseline: eager eviction on release, heuristic h_DTR with evicted
neighbourhoods as equivalence classes, cost / (size * staleness) (Kirisame et al., ICLR 2021,
arXiv 2006.09616, sections 3 and 4.1). The published logs are not shipped; the traces here are
generated from the layer structure, with times from a roofline of 10 TFLOP/s and 600 GB/s.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from adjoint.memory.planner import BudgetError, Planner
from adjoint.memory.traces import Trace, TraceOp, read_log

FLOPS, BANDWIDTH, LAUNCH = 10e12, 600e9, 2e-6


class Tape:
    """Records forward operations and derives the backward ones, as a framework would.

    `op(..., saves=...)` says what the backward operation reads besides the cotangent: "in" the
    inputs, "out" the output, "both", or "none".
    """

    def __init__(self) -> None:
        self.ops: list[TraceOp] = []
        self.nbytes: list[int] = []
        self.records: list[tuple[int, list[int], int, str, float]] = []
        self.constants: set[int] = set()

    def new(self, nbytes: float) -> int:
        self.nbytes.append(max(1, round(nbytes)))
        return len(self.nbytes) - 1

    def constant(self, nbytes: float) -> int:
        """A parameter or the data: always resident."""
        t = self.new(nbytes)
        self.constants.add(t)
        return t

    def emit(self, name: str, inputs: Iterable[int], outputs: list[int], flops: float) -> None:
        reads = tuple(dict.fromkeys(inputs))
        moved = sum(self.nbytes[t] for t in (*reads, *outputs))
        seconds = LAUNCH + max(flops / FLOPS, moved / BANDWIDTH)
        self.ops.append(TraceOp(name, reads, tuple(outputs), seconds))

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        nbytes: float,
        flops: float = 0.0,
        saves: str = "in",
    ) -> int:
        """One differentiable operation with one output of `nbytes`."""
        out = self.new(nbytes)
        self.emit(name, inputs, [out], flops)
        self.records.append((len(self.ops) - 1, list(inputs), out, saves, flops))
        return out

    def backward(self, loss: int, name: str, wanted: set[int] | None = None) -> Trace:
        """Append the backward pass from `loss` and close the trace: gradients are kept."""
        grads: dict[int, int] = {loss: self.new(4)}
        self.emit("ones", [], [grads[loss]], 0.0)
        for index, inputs, out, saves, flops in reversed(self.records):
            if out not in grads:
                continue
            ct = grads.pop(out)
            reads = [ct]
            reads += inputs if saves in ("in", "both") else []
            reads += [out] if saves in ("out", "both") else []
            targets = [
                x
                for x in dict.fromkeys(inputs)
                if wanted is None or x in wanted or x not in self.constants
            ]
            fresh = [self.new(self.nbytes[x]) for x in targets]
            self.emit(f"{self.ops[index].name}_backward", reads, fresh, 2 * flops)
            for x, g in zip(targets, fresh, strict=True):
                if x in grads:
                    total = self.new(self.nbytes[x])
                    self.emit("accumulate", [grads[x], g], [total], 0.0)
                    g = total
                grads[x] = g
        keep = {g for x, g in grads.items() if x in self.constants}
        return Trace(tuple(self.ops), tuple(self.nbytes), keep, name)


def _conv(t: Tape, x: int, c_in: int, c_out: int, side: int, batch: int, k: int = 3) -> int:
    w = t.constant(4 * c_in * c_out * k * k)
    size = batch * c_out * side * side
    return t.op("conv2d", [x, w], 4 * size, 2.0 * size * c_in * k * k)


def _bn_relu(t: Tape, x: int) -> int:
    y = t.op("batch_norm", [x, t.constant(512)], t.nbytes[x])
    return t.op("relu", [y], t.nbytes[x], saves="out")


def _loss(t: Tape, x: int) -> int:
    return t.op("mean", [x], 4, saves="none")


def _residual_net(name: str, stages: Sequence[tuple[int, int]], side: int, batch: int) -> Trace:
    """Basic residual blocks; `stages` lists (blocks, channels), each stage halving the side."""
    t = Tape()
    width = stages[0][1]
    data = t.constant(4 * batch * 3 * side * side)
    x = _bn_relu(t, _conv(t, data, 3, width, side, batch))
    for n, (blocks, c) in enumerate(stages):
        side //= 2 if n else 1
        for b in range(blocks):
            short = _conv(t, x, width, c, side, batch, 1) if n and b == 0 else x
            y = _conv(t, _bn_relu(t, _conv(t, x, width, c, side, batch)), c, c, side, batch)
            y = t.op("batch_norm", [y, t.constant(512)], t.nbytes[y])
            y = t.op("add", [y, short], t.nbytes[y], saves="none")
            x, width = t.op("relu", [y], t.nbytes[y], saves="out"), c
    return t.backward(_loss(t, x), name, t.constants - {data})


def resnet(batch: int = 56) -> Trace:
    """The residual stages of ResNet-34 for 224x224 pictures."""
    return _residual_net("resnet", [(3, 64), (4, 128), (6, 256), (3, 512)], 56, batch)


def resnet_cifar(batch: int = 56) -> Trace:
    """ResNet-32 for 32x32 pictures: so narrow that all operations cost much the same a byte."""
    return _residual_net("resnet_cifar", [(5, 16), (5, 32), (5, 64)], 32, batch)


def densenet(layers: int = 24, growth: int = 32, batch: int = 32) -> Trace:
    """Two dense blocks: each layer reads the concatenation of all before it."""
    t = Tape()
    x = _conv(t, t.constant(4 * batch * 3 * 56 * 56), 3, 64, 56, batch)
    width, side = 64, 56
    for _ in range(2):
        parts = [x]
        for _ in range(layers // 2):
            joined = t.op("cat", parts, 4 * batch * width * side * side, saves="none")
            y = _conv(t, _bn_relu(t, joined), width, 4 * growth, side, batch, 1)
            parts.append(_conv(t, _bn_relu(t, y), 4 * growth, growth, side, batch))
            width += growth
        joined = t.op("cat", parts, 4 * batch * width * side * side, saves="none")
        x = _conv(t, _bn_relu(t, joined), width, width // 2, side, batch, 1)
        width, side = width // 2, side // 2
        x = t.op("avg_pool", [x], 4 * batch * width * side * side, saves="none")
    return t.backward(_loss(t, x), "densenet", set(t.constants) - {0})


def unet(depth: int = 4, batch: int = 6, side: int = 256, width: int = 32) -> Trace:
    """U-Net: skips from the way down to the way up."""
    t = Tape()
    x, c_in, skips = t.constant(4 * batch * 3 * side * side), 3, []
    for level in range(depth + 1):
        c, s = width << level, side >> level
        if level:
            x = t.op("max_pool", [x], 4 * batch * c_in * s * s)
        for _ in range(2):
            x, c_in = _bn_relu(t, _conv(t, x, c_in, c, s, batch)), c
        skips.append(x)
    for level in reversed(range(depth)):
        c, s = width << level, side >> level
        x = _conv(t, x, c_in, c, s, batch, 2)
        x = t.op("cat", [skips[level], x], 8 * batch * c * s * s, saves="none")
        c_in = 2 * c
        for _ in range(2):
            x, c_in = _bn_relu(t, _conv(t, x, c_in, c, s, batch)), c
    return t.backward(_loss(t, x), "unet", set(t.constants) - {0})


def _linear(t: Tape, x: int, rows: int, n: int, m: int) -> int:
    return t.op("linear", [x, t.constant(4 * n * m)], 4 * rows * m, 2.0 * rows * n * m)


def transformer(layers: int = 12, d: int = 512, s: int = 512, b: int = 10, a: int = 8) -> Trace:
    """Pre-norm transformer blocks with dense attention."""
    t = Tape()
    x = t.op("embedding", [t.constant(4 * 10000 * d)], 4 * s * b * d, saves="none")
    for _ in range(layers):
        y = t.op("layer_norm", [x, t.constant(8 * d)], 4 * s * b * d)
        q, k, v = (_linear(t, y, s * b, d, d) for _ in range(3))
        scores = t.op("matmul", [q, k], 4 * a * s * s * b, 2.0 * s * s * b * d)
        p = t.op("softmax", [scores], 4 * a * s * s * b, saves="out")
        o = t.op("matmul", [p, v], 4 * s * b * d, 2.0 * s * s * b * d)
        x = t.op("add", [x, _linear(t, o, s * b, d, d)], 4 * s * b * d, saves="none")
        y = t.op("layer_norm", [x, t.constant(8 * d)], 4 * s * b * d)
        h = t.op("gelu", [_linear(t, y, s * b, d, 4 * d)], 16 * s * b * d)
        x = t.op("add", [x, _linear(t, h, s * b, 4 * d, d)], 4 * s * b * d, saves="none")
    return t.backward(_loss(t, x), "transformer", set(t.constants) - {0})


def _gates(t: Tape, pre: int, cells: list[int], size: float) -> tuple[int, int]:
    """The pointwise part of an LSTM cell: (h, c) from pre-activations and the cells below."""
    i, o, g = (t.op(n, [pre], size, saves="out") for n in ("sigmoid", "sigmoid", "tanh"))
    c = t.op("mul", [i, g], size)
    for below in cells:
        f = t.op("sigmoid", [pre], size, saves="out")
        c = t.op("add", [c, t.op("mul", [f, below], size)], size, saves="none")
    return t.op("mul", [o, t.op("tanh", [c], size, saves="out")], size), c


def lstm(steps: int = 32, d: int = 512, b: int = 1024) -> Trace:
    """An LSTM unrolled in time, a loss at every step."""
    t = Tape()
    wx, wh, wo = (t.constant(16 * d * d) for _ in range(3))
    h, c = t.constant(4 * b * d), t.constant(4 * b * d)
    fixed, total = {h, c}, -1
    for _ in range(steps):
        x = t.constant(4 * b * d)
        fixed.add(x)
        pre = t.op(
            "add",
            [
                t.op("linear", [x, wx], 16 * b * d, 8.0 * b * d * d),
                t.op("linear", [h, wh], 16 * b * d, 8.0 * b * d * d),
            ],
            16 * b * d,
            saves="none",
        )
        h, c = _gates(t, pre, [c], 4 * b * d)
        y = t.op(
            "softmax",
            [t.op("linear", [h, wo], 16 * b * d, 8.0 * b * d * d)],
            16 * b * d,
            saves="out",
        )
        step = _loss(t, y)
        total = step if total < 0 else t.op("add", [total, step], 4, saves="none")
    return t.backward(total, "lstm", t.constants - fixed)


def treelstm(depth: int = 5, d: int = 256, b: int = 256) -> Trace:
    """A binary tree-LSTM: every inner node reads both children."""
    t = Tape()
    w = t.constant(20 * d * d)
    fixed: set[int] = set()

    def node(level: int) -> tuple[int, int]:
        if level == 0:
            x = t.constant(4 * b * d)
            fixed.add(x)
            return _gates(t, t.op("linear", [x, w], 20 * b * d, 10.0 * b * d * d), [], 4 * b * d)
        (h1, c1), (h2, c2) = node(level - 1), node(level - 1)
        h = t.op("add", [h1, h2], 4 * b * d, saves="none")
        pre = t.op("linear", [h, w], 20 * b * d, 10.0 * b * d * d)
        return _gates(t, pre, [c1, c2], 4 * b * d)

    return t.backward(_loss(t, node(depth)[0]), "treelstm", t.constants - fixed)


def unrolled_gan(unroll: int = 6, layers: int = 3, d: int = 256, b: int = 1024) -> Trace:
    """A generator's loss through `unroll` differentiated gradient steps of the discriminator."""
    t = Tape()
    z = t.constant(4 * b * d)
    x = z
    for _ in range(layers):
        x = t.op("relu", [_linear(t, x, b, d, d)], 4 * b * d, saves="out")
    weights = [t.constant(4 * d * d) for _ in range(layers)]
    flops = 2.0 * b * d * d
    for turn in range(unroll + 1):
        acts, h = [x], x
        for w in weights:
            h = t.op("tanh", [t.op("matmul", [h, w], 4 * b * d, flops)], 4 * b * d, saves="out")
            acts.append(h)
        if turn == unroll:
            break
        ct = t.op("loss_slope", [h], 4 * b * d)
        for k in reversed(range(layers)):
            ct = t.op("tanh_slope", [ct, acts[k + 1]], 4 * b * d)
            step = t.op("matmul", [acts[k], ct], 4 * d * d, flops)
            if k:
                ct = t.op("matmul", [ct, weights[k]], 4 * b * d, flops)
            weights[k] = t.op("sub", [weights[k], step], 4 * d * d, saves="none")
    return t.backward(_loss(t, h), "unrolled_gan", t.constants - {z})


KINDS: dict[str, Callable[[], Trace]] = {
    f.__name__: f
    for f in (resnet, resnet_cifar, densenet, unet, transformer, lstm, treelstm, unrolled_gan)
}

# Other sizes and depths: what the planner's settings were never looked at on.
VARIED: dict[str, Callable[[], Trace]] = {
    "transformer, 6 long": partial(transformer, layers=6, d=256, s=1024, b=4, a=4),
    "transformer, 20 wide": partial(transformer, layers=20, d=768, s=256, b=8, a=12),
    "lstm, 20 steps": partial(lstm, 20, 256, 256),
    "treelstm, 16 leaves": partial(treelstm, 4, 512, 64),
    "gan, 4 deep steps": partial(unrolled_gan, 4, 4, 512, 256),
    "densenet, 16 layers": partial(densenet, 16, 24, 16),
    "unet, 3 levels": partial(unet, 3, 4, 128, 48),
    "resnet_cifar, batch 17": partial(resnet_cifar, 17),
}


# ---------------------------------------------------------------------------------------------
# The baseline


class OutOfMemory(Exception):
    """Nothing is left to evict, or the time limit of the baseline is passed."""


class _Classes:
    """Union-find over evicted storages with the summed cost of each class."""

    def __init__(self, size: int) -> None:
        self.parent = list(range(size))
        self.cost = [0.0] * size
        self.of: list[int] = [-1] * size

    def root(self, c: int) -> int:
        while self.parent[c] != c:
            self.parent[c] = self.parent[self.parent[c]]
            c = self.parent[c]
        return c

    def make(self, storage: int, cost: float) -> None:
        self.parent.append(len(self.parent))
        self.cost.append(cost)
        self.of[storage] = len(self.parent) - 1

    def union(self, a: int, b: int) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self.parent[b] = a
            self.cost[a] += self.cost[b]


class Dtr:
    """The runtime of the paper: a clock, a budget, a pool of evictable storages."""

    def __init__(self, trace: Trace, budget: int, slowest: float = 4.0) -> None:
        self.trace, self.budget = trace, budget
        self.limit = slowest * trace.seconds
        n = len(trace.nbytes)
        self.live = [p < 0 for p in trace.producer]
        self.locks = [int(p < 0) for p in trace.producer]
        self.access = [0.0] * n
        self.local = [trace.ops[p].seconds if p >= 0 else 0.0 for p in trace.producer]
        self.near: list[set[int]] = [set() for _ in range(n)]
        self.used, self.clock, self.peak = trace.resident, 0.0, trace.resident
        self.pool: set[int] = set()
        self.classes = _Classes(n)

    def run(self) -> float:
        """Seconds of the step; raises `OutOfMemory`."""
        last = self.trace.last_use()
        for i, op in enumerate(self.trace.ops):
            for x in op.inputs:
                self.near[x].update(op.outputs)
            for y in op.outputs:
                self.near[y].update(x for x in op.inputs if self.trace.producer[x] >= 0)
            self.materialize(i)
            for x in dict.fromkeys((*op.inputs, *op.outputs)):
                if last[x] == i and self.live[x] and self.trace.producer[x] >= 0:
                    self.evict(x)
        for x in sorted(self.trace.keep):
            if not self.live[x]:
                self.materialize(self.trace.producer[x])
            self.lock(x)
        return self.clock

    def lock(self, x: int) -> None:
        self.locks[x] += 1
        self.pool.discard(x)

    def unlock(self, x: int) -> None:
        self.locks[x] -= 1
        if self.locks[x] == 0:
            self.pool.add(x)

    def evict(self, x: int) -> None:
        self.live[x] = False
        self.used -= self.trace.nbytes[x]
        self.pool.discard(x)
        self.classes.make(x, self.local[x])
        for y in self.near[x]:
            if not self.live[y] and self.classes.of[y] >= 0:
                self.classes.union(self.classes.of[y], self.classes.of[x])

    def score(self, x: int) -> float:
        c = self.classes
        roots = {c.root(c.of[y]) for y in self.near[x] if not self.live[y] and c.of[y] >= 0}
        stale = self.clock - self.access[x]
        size = self.trace.nbytes[x] * stale
        return (self.local[x] + sum(c.cost[r] for r in roots)) / size if size else float("inf")

    def free(self, nbytes: int) -> None:
        while self.used + nbytes > self.budget:
            if not self.pool:
                raise OutOfMemory(f"{self.used + nbytes} bytes wanted, nothing left to evict")
            self.evict(min(sorted(self.pool), key=self.score))

    def materialize(self, i: int) -> None:
        op = self.trace.ops[i]
        for x in op.inputs:
            self.access[x] = self.clock
        for x in [x for x in op.inputs if self.live[x]]:
            self.lock(x)
        for x in [x for x in op.inputs if self.locks[x] == 0 or not self.live[x]]:
            if not self.live[x]:
                self.materialize(self.trace.producer[x])
            self.lock(x)
        size = sum(self.trace.nbytes[y] for y in op.outputs)
        self.free(size + op.workspace)
        self.clock += op.seconds
        if self.clock > self.limit:
            raise OutOfMemory(f"more than {self.limit:.3g} seconds: thrashing")
        self.peak = max(self.peak, self.used + size + op.workspace)
        for y in op.outputs:
            if not self.live[y]:
                self.live[y] = True
                self.used += self.trace.nbytes[y]
                if self.classes.of[y] >= 0:
                    self.classes.cost[self.classes.root(self.classes.of[y])] -= self.local[y]
                    self.classes.of[y] = -1
                if self.locks[y] == 0:
                    self.pool.add(y)
            self.access[y] = self.clock
        for x in op.inputs:
            self.unlock(x)


def run_dtr(trace: Trace, budget: int, slowest: float = 4.0) -> float:
    """Overhead (time with the budget / time without) of the DTR heuristic; inf if it fails."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 10 * len(trace.ops) + 1000))
    try:
        return Dtr(trace, budget, slowest).run() / trace.seconds
    except OutOfMemory:
        return float("inf")
    finally:
        sys.setrecursionlimit(limit)


def thrash_point(overhead: Callable[[int], float], peak: int, step: float = 0.01) -> float:
    """The smallest budget ratio, going down by `step`, up to which the overhead stays below 2."""
    ratio = 1.0
    while ratio > step and overhead(int(peak * (ratio - step))) < 2.0:
        ratio -= step
    return round(ratio, 4)


def least_overhead(trace: Trace, budget: int) -> float:
    """No plan is cheaper than this: a bound from what has to be absent at one operation.

    While an operation runs first, all that later ones read and that does not fit is absent, and
    is made again: at least its producer runs once more, and so do those that make the producer's
    own inputs, where nothing else reads them and keeping them takes as much memory. What is
    cheapest per byte goes first, fractions allowed.
    """
    last, made_by, best = trace.last_use(), trace.producer, 0.0
    readers = [0] * len(made_by)
    for op in trace.ops:
        for x in {*op.inputs}:
            readers[x] += 1

    def price(x: int, t: int) -> float:
        op = trace.ops[made_by[x]]
        return op.seconds + sum(
            price(y, t) for y in op.inputs if made_by[y] >= 0 and last[y] < t
            and readers[y] == 1 and trace.nbytes[y] >= trace.nbytes[x])

    for t, op in enumerate(trace.ops):
        own = {*op.inputs, *op.outputs}
        live = [x for x, p in enumerate(made_by) if 0 <= p < t < last[x] and x not in own]
        over = trace.resident + op.workspace - budget + sum(
            trace.nbytes[x] for x in (*live, *own) if made_by[x] >= 0)
        seconds = 0.0
        for x in sorted(live, key=lambda x: price(x, t) / max(trace.nbytes[x], 1)):
            if over <= 0:
                break
            part = min(over, trace.nbytes[x])
            seconds += price(x, t) * part / max(trace.nbytes[x], 1)
            over -= part
        best = max(best, seconds if over <= 0 else float("inf"))
    return 1 + best / trace.seconds


def planned(planner: Planner, budget: int) -> float:
    """Overhead of our plan; inf if there is none."""
    try:
        return planner.plan(budget).overhead
    except BudgetError:
        return float("inf")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table: extra time of DTR and of the planner by budget ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", choices=[*KINDS], action="append")
    parser.add_argument("--varied", action="store_true", help="other sizes of the same networks")
    parser.add_argument("--log", action="append", default=[], help="a DTR simulator log")
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.8, 0.6, 0.5, 0.4, 0.3, 0.2])
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--no-thrash", action="store_true", help="skip the thrash points")
    args = parser.parse_args(argv)
    kinds = VARIED if args.varied else KINDS
    traces = [kinds[k]() for k in args.trace or ([] if args.log else kinds)]
    traces += [read_log(path) for path in args.log]
    for trace in traces:
        peak = trace.peak()
        start = time.perf_counter()
        planner = Planner(trace, effort=args.effort)
        took = time.perf_counter() - start
        print(
            f"{trace.name}: {len(trace.ops)} ops, peak {peak / 1e6:.1f} MB, floor "
            f"{trace.floor() / peak:.3f}, all budgets planned in {took:.1f} s"
        )
        for ratio in args.ratios:
            a, b = run_dtr(trace, int(peak * ratio)), planned(planner, int(peak * ratio))
            share = (b - 1) / (a - 1) if 1 < a < float("inf") else float("nan")
            print(
                f"  {ratio:5.2f}  DTR {a:7.4f}  planner {b:7.4f}  extra time {share:5.2f} of it; "
                f"no plan below {least_overhead(trace, int(peak * ratio)):7.4f}"
            )
        if not args.no_thrash:
            theirs = thrash_point(partial(run_dtr, trace), peak)
            ours = thrash_point(partial(planned, planner), peak)
            print(
                f"  thrash point (overhead < 2): DTR {theirs:.2f}, planner {ours:.2f}", flush=True
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
