"""Nodes of large pointwise ops one after the other, as one pass over memory.

A chain of additions and products is bound by memory: each node reads a cotangent that the node
before it has just written, and sums are read and written once for each node that adds to them. A
run is a node and those that its cotangent reaches next and nothing else does; their rules are put
into each other and computed at once, each sum read and written once. Only where the arithmetic
rounds alike wherever it is compiled (+ - * / and choices), so that the bits are those of the nodes
one by one; and only where it needs no more memory: what nodes before the last keep for themselves
is held longer than it would be, which has to be made up for by cotangents that are never made.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adjoint.core.held import ALONE, refs
from adjoint.core.residuals import value_of
from adjoint.core.tensor import AccumulateGrad, Kept, OutRef, Port, Tensor
from adjoint.kernels import codegen, loops
from adjoint.kernels.codegen import put
from adjoint.kernels.expr import Expr, var

_NODES, _ARRAYS = 8, 10
_exact: dict[Any, bool] = {}         # plan -> whether its rule rounds alike everywhere
_met: dict[Any, Any] = {}            # what runs look like -> None the first time, then `_Kernel`


class _Kernel(NamedTuple):
    """`targets` of the run by number, and for each the kernel's result, -1 for the cotangent that
    came in."""

    run: Any
    results: list[int]


class _Run:
    """What a run reads and where its cotangents go."""

    def __init__(self, ct: Any) -> None:
        self.nodes: list[Any] = []
        self.arrays: list[Any] = [ct]            # each once
        self.own: list[list[Any]] = []           # per node, the large ones that it keeps
        self.targets: list[Any] = []             # edges that lead out, in order of arrival
        self.words: list[Any] = []               # what determines the kernel, but for the sums
        self.strides = ct.strides if ct.base is None else None       # of everything else

    def take(self, node: Any, inside: Any, values: Any) -> bool:
        """Add a node; `inside` is the edge that goes on within the run, or None, `values` its
        residuals if they are at hand. False where the node does not qualify."""
        ct = self.arrays[0]
        if values is None:
            saved = node.saved if node.plan.names else ()
            if type(saved) is not tuple or any([
                    type(s) not in (Tensor, OutRef, Kept, np.ndarray) for s in saved]):
                return False
            values = [value_of(s, node) for s in saved]
        places = []
        for v in values:
            if type(v) is not np.ndarray or v.dtype != ct.dtype or v.ndim and not self.fits(v):
                return False
            at = next((i for i, a in enumerate(self.arrays) if a is v), len(self.arrays))
            if at == len(self.arrays):
                self.arrays.append(v)
            places.append(at)
        self.own.append([v for v in values if v.ndim])
        ends = []
        for e in node.edges:
            if e is None or e is inside:
                ends.append(None if e is None else -1)
                continue
            if e not in self.targets:
                self.targets.append(e)
            ends.append(self.targets.index(e))
        self.nodes.append(node)
        self.words.append((node.plan, *places, None, *ends))
        return True

    def fits(self, x: Any) -> bool:
        """Whether an array is laid out like the others (the cotangent of a sum is not)."""
        self.strides = self.strides or x.strides
        ct = self.arrays[0]
        return x.shape == ct.shape and x.dtype == ct.dtype and x.strides == self.strides

    def held_longer(self) -> int:
        """How many arrays of nodes before the last, which nobody else is known to hold, the run
        holds while its results are made."""
        held = {id(a) for a in self.own[-1]}
        held.update(id(e.variable.array) for e in self.targets
                    if type(e) is AccumulateGrad and e.variable is not None)
        return len({id(a) for own in self.own[:-1] for a in own} - held)


def through(walk: Any, node: Any, ct: Any, vals: list[Any], free: bool) -> bool:
    """Take the cotangent of `node`, whose residuals are `vals`, through the run that it begins;
    False (and nothing done) where there is none. `free`: its memory may be written over."""
    nodes = _nodes(walk, node, ct)
    if len(nodes) < 2:
        return False
    run = _run(nodes, ct, vals, not free)
    if run is not None and len(run.nodes) < len(nodes):
        run = _run(run.nodes, ct, vals, not free)          # now the last of these ends it
    if run is None:
        return False
    sums = [None if type(e) is Port else walk.cts.get(e) for e in run.targets]
    if any([s is not None and (type(s) is not np.ndarray or not run.fits(s)) for s in sums]):
        return False
    key = (*run.words, *[s is not None for s in sums])
    if key not in _met:              # compiled for what comes again
        if len(_met) > 256:
            _met.clear()
        _met[key] = None
        return False
    kernel = _met[key] = _met[key] or _compiled(run, sums)
    return kernel.run is not None and _done(walk, run, sums, kernel, free)


def _run(nodes: list[Any], ct: Any, vals: list[Any], more: int) -> _Run | None:
    """The longest run of these nodes that holds at most `more` arrays for longer; None for one."""
    run, best = _Run(ct), 0
    for n, after in zip(nodes, [*nodes[1:], None], strict=True):
        if len(run.arrays) + len(run.targets) > _ARRAYS or not run.take(
                n, after, None if run.nodes else vals):
            break
        if run.held_longer() <= more:
            best = len(run.nodes)
    del run.nodes[best:]
    return run if best > 1 else None


def _nodes(walk: Any, node: Any, ct: Any) -> list[Any]:
    """The nodes of the run that begins with `node`."""
    found = [node]
    while len(found) < _NODES and _plain(found[-1], ct):
        last = found[-1]
        after = next((e for e in last.edges if e is not None and type(e) not in (
            Port, AccumulateGrad) and e.seq + 1 == last.seq), None)
        if (after is None or after.plan is None or after.plan.fast is None or after.hooked
                or after.ports or after in walk.cts or after in walk.ends
                or not _plain(after, ct)):
            break
        found.append(after)
    return found if _plain(node, ct) else []


def _plain(node: Any, ct: Any) -> bool:
    """Whether the node's rule can be put into others, and its cotangents have the shape of `ct`."""
    plan = node.plan
    if plan.into is None or plan.dtype != ct.dtype or plan.op.chooses or any([
            e is not None and (tuple(e.shape) != ct.shape
                               or (e.dtype or e.plan.dtype) != ct.dtype) for e in node.edges]):
        return False
    known = _exact.get(plan)
    if known is None:
        if len(_exact) > 1024:
            _exact.clear()
        known = _exact[plan] = codegen.exact([e for e in plan.into.exprs if e is not None])
    return known


def _compiled(run: _Run, sums: list[Any]) -> _Kernel:
    """The rules put into each other: what arrives at each target, in the order of the nodes."""
    totals: list[Any] = [None if s is None else var(f"sum{i}") for i, s in enumerate(sums)]
    ct: Any = var("a0")
    for node, (_, *word) in zip(run.nodes, run.words, strict=True):
        cut = word.index(None)
        rule, places, after = node.plan.into, word[:cut], None
        env = {var(rule.params[0]): ct}
        env.update((var(p), var(f"a{at}"))
                   for p, at in zip(rule.params[1:], places, strict=True))
        for e, end in zip(rule.exprs, word[cut + 1:], strict=True):
            if end is None or e is None:
                continue
            c = put(e, env)
            if end < 0:
                after = c if after is None else Expr("add", (after, c))
            else:
                totals[end] = c if totals[end] is None else Expr("add", (totals[end], c))
        ct = after
    wanted = list(dict.fromkeys(t for t in totals if t is not var("a0")))
    params = [f"a{i}" for i in range(len(run.arrays))]
    params += [f"sum{i}" for i, s in enumerate(sums) if s is not None]
    made = loops.pointwise("run_backward", params, wanted, single=False) if wanted else None
    return _Kernel(made, [-1 if t is var("a0") else wanted.index(t) for t in totals])


def _done(walk: Any, run: _Run, sums: list[Any], kernel: _Kernel, free: bool) -> bool:
    """Compute, and bring the cotangents where they go; False where the kernel refuses."""
    ct, results = run.arrays[0], kernel.results
    out: list[Any] = [None] * (1 + max(results))
    for i in range(len(sums)):       # (held here and in `sums`, beside the walk)
        s = sums[i]
        if s is not None and refs(s) <= ALONE + 2 and s.base is None:
            out[results[i]] = s
    if free and -1 not in results:
        i = next((i for i, o in enumerate(out) if o is None), -1)
        if i >= 0:
            out[i] = ct
    made = kernel.run(*run.arrays, *[s for s in sums if s is not None], out=out)
    if made is NotImplemented:
        return False
    for node in run.nodes[1:]:
        if not walk.keep and node.plan.kept:
            node.saved = walk.mark
    for e, s, at in zip(run.targets, sums, kernel.results, strict=True):
        value = ct if at < 0 else made[at]
        if s is None:
            walk._add(e, value)
        elif value is not s:
            walk.cts[e] = value
    return True
