"""The backward pass: the reachable nodes in reverse order of recording, each visited once.

Iterative, so that a chain of a million nodes works; residuals are dropped node by node. Between
nodes run arrays (`create_graph=False`: rules called on raw arrays record nothing) or tensors
(`create_graph=True`: the same rules called on tensors build the graph of the derivative).
"""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from adjoint.autograd import graph, leaves
from adjoint.autograd.fit import fit
from adjoint.autograd.late import adding, choices, drawing, machine
from adjoint.base import provenance
from adjoint.base.aval import SCALAR, MetaArray
from adjoint.base.errors import AutogradError, Quiet
from adjoint.core.bind import retried, tensor_of, value_of
from adjoint.core.held import ALONE
from adjoint.core.held import refs as _refs
from adjoint.core.modes import AUTOCAST, GRAD, TOLD, WATCH, change, restore, state, watchers
from adjoint.core.rehearsal import call, rehearsal
from adjoint.core.residuals import unpack
from adjoint.core.tensor import AccumulateGrad, Freed, Port, Tensor, wrap
from adjoint.ops.accelerate import plus
from adjoint.ops.pointwise import add as add_op

ndarray = np.ndarray
_current = threading.local()
_sequence = attrgetter("seq")
LARGE = 16384    # elements from which fan-in is summed into the first buffer
WHOLE = 1 << 17  # elements from which a cotangent that nobody else holds gives its memory on


class Backward:
    """One walk of the graph. `run` visits plain nodes inline; whatever has hooks, several
    outputs, is captured or builds a graph of its own goes through `visit`."""

    mark: Any = None             # stands for the residuals that this walk releases
    ends: Any = frozenset()      # captured nodes below which nothing is asked for
    masks: Any = None              # of branches that a choice did not take, once there is a choice
    typed = False                # a leaf's gradient has another dtype than the leaf
    targets: Any = frozenset()   # what `reaches` has looked up
    waiting: Any = ()            # gradients of leaves that are stored when nobody else holds them

    def __init__(self, keep: bool, create: bool, capture: dict[Any, list[int]] | None,
                 accumulate: bool, levels: bool = False, into: bool = False) -> None:
        self.levels = levels     # values of a transform: tensors, though no graph is built
        self.into = into         # captured leaves also accumulate: backward(inputs=...)
        self.keep, self.create, self.accumulate = keep, create, accumulate
        self.capture = capture or {}
        self.captured: dict[int, Any] = {}
        self.cts: dict[Any, Any] = {}
        self.order: list[Any] = []
        self.last: dict[Any, list[AccumulateGrad]] = {}
        self.stored: list[AccumulateGrad] = []
        self.final: list[Callable[[], None]] = []
        self.inner = any([type(k) is not AccumulateGrad for k in self.capture])
        self.told = bool(state() & TOLD and watchers.observers.get())    # who are told of nodes
        self.watched = create or levels or self.inner or state() & (WATCH | TOLD) == WATCH
        self.special = self.watched          # whether no node is visited inline

    # -------------------------------------------------------------- preparation
    def arrange(self, roots: Sequence[Any]) -> None:
        """Put the reachable nodes in reverse order of recording, which is a topological order:
        an edge always leads to something recorded earlier. A leaf comes right after the last
        node that feeds it: `last` maps that node to its leaves."""
        order: list[Any] = []
        ends: dict[Any, Any] = {r: None for r in roots if type(r) is AccumulateGrad}
        _, arrange = machine(0, LARGE, WHOLE)
        (arrange or _reached)(order, ends, [r for r in dict.fromkeys(roots) if r not in ends])
        self.order, last = order, self.last
        if AccumulateGrad.some_typed and any([leaf.typed for leaf in ends]):
            self.special = self.typed = True
        for leaf, node in ends.items():          # (a leaf that is a root only: None)
            last.setdefault(node, []).append(leaf)
        for node, several in last.items():
            if len(several) > 1 and node is not None:      # as the edges have them
                last[node] = [e for e in dict.fromkeys(node.edges) if ends.get(e) is node]
        if self.capture and not self.accumulate and ends.keys() != self.capture.keys():
            self._restrict()             # (else every leaf is asked for, and nothing else)

    def _restrict(self) -> None:
        """With `inputs=`: keep the nodes from which some input can be reached, and no others."""
        inputs: set[Any] = {k.node if type(k) is Port else k for k in self.capture}
        leads: set[Any] = set()
        for node in reversed(self.order):
            for e in node.edges:
                target = e.node if type(e) is Port else e
                if target is not None and (target in inputs or target in leads):
                    leads.add(node)
                    break
        self.order = [n for n in self.order if n in leads or n in inputs]
        self.ends = inputs - leads

    def reaches(self, edge: Any) -> bool:
        """True if this walk brings a gradient to that node, port or leaf."""
        if not self.targets:
            self.targets = {*self.order, *(leaf for ends in self.last.values() for leaf in ends)}
        return (edge.node if type(edge) is Port else edge) in self.targets

    # -------------------------------------------------------------- the walk
    def run(self) -> None:
        """Visit the nodes in order."""
        cts, keep, last, mark = self.cts, self.keep, self.last, self.mark
        take = cts.pop
        if None in last:
            self._leaves(None)
        if (self.create or self.levels) and not (self.inner or state() & WATCH):
            return drawing().run(self)
        plain, _ = machine(len(self.order), LARGE, WHOLE)
        for node in self.order if self.special or plain is None else self._rest(plain):
            ct = take(node, None)
            if ct is None and not node.unfed:
                if node in last:
                    self._leaves(node)
                continue
            plan = node.plan
            if self.special or self.told or not plan or not plan.fast or ct.size >= plan.limit:
                cts[node] = ct
                ct = None                            # `visit` alone holds it
                self.visit(node)
                if node in last:
                    self._leaves(node)
                continue
            size, fast, s = ct.size, plan.fast, node.s0
            if s is None:
                result = fast(ct)
            elif type(s) is Freed:
                raise AutogradError(graph.freed_message(node), reason="freed", about=node)
            else:
                n = len(plan.names)
                if n > 2:
                    result = fast(ct, *[value_of(s, node) for s in node.saved])
                else:
                    a = s.array if type(s) is Tensor and s._cell is None else value_of(s, node)
                    if n == 1:
                        result = fast(ct, a)
                    else:
                        s = node.s1
                        result = fast(ct, a, s.array if type(s) is Tensor and s._cell is None
                                      else value_of(s, node))
                if not keep:
                    node.s0, node.s1 = mark, None
                s = a = None
            ct = None
            edge, c = node.e0, result[0]
            second = plan.pair
            while True:                              # for e0, then for e1
                if edge is not None:
                    if c.shape != edge.shape:        # broadcast, or a port
                        c = fit(c, edge)
                    if type(edge) is Port or size >= LARGE and edge in cts:
                        self._add(edge, c)
                    else:
                        cts[edge] = cts[edge] + c if edge in cts else c
                if not second:
                    break
                second = False
                edge, c = node.e1, result[1]
            result = c = None
            if node in last:
                self._leaves(node)

    def _pull(self, node: Any, plan: Any) -> None:
        """`visit` for a node of an op that nobody looks at."""
        ct, edges = self.cts.pop(node), node.edges
        if node.ports and all([c is None for c in ct]):
            return
        results = [*plan.pull(ct, self._values(node, value_of, True), node.attrs,
                              len(edges), adding().begun(self, node) if plan.grows else None), ct]
        del ct
        self._fit(edges, results)

    def _fit(self, edges: Sequence[Any], results: list[Any]) -> None:
        """Fit what rules gave to the edges and add it; their cotangent, the last, goes first."""
        results[:] = [c if c is None or e is None or c.shape == e.shape
                      and c.dtype is (e.dtype or e.plan.dtype) else fit(c, e)
                      for c, e in zip(results, edges, strict=False)]
        self._spread(edges, results)

    def _spread(self, edges: Sequence[Any], results: list[Any]) -> None:
        for i, e in enumerate(edges):
            if e is not None and results[i] is not None:
                c, results[i] = results[i], None
                self._add(e, c)

    def _rest(self, walk: Callable[..., int]) -> Iterator[Any]:
        """The nodes that are not plain; the machine code `walk` visits those in between."""
        order, at, end = self.order, 0, len(self.order)
        mark = None if self.keep else self.mark
        while at < end:
            if not self.special:              # a choice met on the way may make every node special
                at = walk(order, at, self.cts, self.last, mark, self._deliver, self._leaves,
                          self._fit, adding().teller(self) if self.told else None)
                if at == end:
                    return
                if not (self.keep or self.told) and order[at] in self.cts and unpack(order[at]):
                    continue
            yield order[at]
            at += 1

    def _deliver(self, edge: Any, ct: Any) -> None:
        """Bring a cotangent into the edge's shape and add it; a rule may have none (`zeta`)."""
        if ct is not None:
            self._add(edge, fit(ct, edge) if ct.shape != edge.shape else ct)

    def _leaves(self, node: Any) -> None:
        """Finish the leaves that got their last contribution from `node`."""
        for leaf in self.last[node]:
            ct = self.cts.pop(leaf, None)
            if ct is not None:
                if leaf._tensor_hooks or leaf._pre_hooks:
                    ct = self._arrived(leaf, ct)
                elif self.capture:
                    self._capture(leaf, ct)
                if ct is not None and (self.accumulate or self.into and leaf in self.capture):
                    leaves.accumulate(leaf, ct, self)
                    if (self.special or self.told) and (v := leaf.variable) is not None:
                        for observer in watchers.observers.get() if state() & WATCH else ():
                            observer.accumulated(v)

    def visit(self, node: Any) -> None:
        """Run any node: hooks, capture, several outputs, custom functions, graphs of graphs."""
        plan = node.plan
        if not (self.special or self.told or plan is None or plan.fast is not None or node.hooked
                or plan.op.chooses and choices().leads_on(node)):
            return self._pull(node, plan)
        ct = self.cts.pop(node)
        if node.ports or self.inner or node._retain or node._tensor_hooks or node._pre_hooks:
            ct = self._arrived(node, ct)
        if node in self.ends or not node.unfed and (
                ct is None or node.ports and all([c is None for c in ct])):
            return
        observers = watchers.observers.get() if state() & WATCH and ct is not None else ()
        for observer in observers:
            observer.before_backward(node, ct)
        if plan is None:                       # a custom function
            results = node.apply(self, ct)
        else:
            free = (type(ct) in (ndarray, MetaArray) and ct.size >= WHOLE and _refs(ct) <= ALONE
                    and plan.fast is not None and adding().free(self, node, ct))
            results = retried(observers, self._call, node, ct, free, [], []) if any([
                o.inside for o in observers]) else self._call(node, ct, free, [], None)
        if plan is not None and (self.masks is not None or plan.op.chooses):
            read = tensor_of if self.create else value_of
            results = choices().screened(self, node, results, read, observers)
        if not self.keep and node.saved is not None and (node.plan is None or node.plan.kept):
            node.saved = self.mark
        edges = node.edges
        if plan is not None:                   # (a custom function fits what it returns)
            results = [None if c is None or e is None else fit(c, e)
                       for c, e in zip(results, edges, strict=True)]
        for observer in observers:
            observer.backward(node, ct, results)
        if node._post_hooks:
            results = graph.after_node(self, node, results, ct)
        del ct
        self._spread(edges, results)

    def _values(self, node: Any, read: Callable[[Any, Any], Any], last: bool = False
                ) -> list[Any]:
        """The residuals; the node lets go of them, so that each can go after the last rule that
        reads it (where `last`, nothing else does)."""
        plan, saved = node.plan, node.saved
        if type(saved) is Freed:
            raise AutogradError(graph.freed_message(node), reason="freed", about=node)
        vals = [read(s, node) for s in saved or ()]
        if plan.kept and vals and not self.keep and (
                last or self.masks is None and not plan.op.chooses):
            node.saved = self.mark
        return vals

    def _call(self, node: Any, ct: Any, free: bool, vals: list[Any], made: list[Any] | None
              ) -> list[Any]:
        """What the rules give, in the memory of `ct` where that is `free`. `vals` takes the
        residuals and `made` (if not None) what was given so far, for another try."""
        plan, n = node.plan, len(node.edges)
        if not vals and not made:
            vals += self._values(node, tensor_of if self.create else value_of)
        if plan.fast is not None and not self.create and not self.levels:
            fast = plan.fast
            if ct.size >= plan.limit:
                found = adding().placed(self, node, ct, vals, free)
                if found is not None:
                    return found
                fast = plan.large
            if type(ct) is ndarray:
                return list(fast(ct, *vals))
            if rehearsal.get() is not None and ct.base is not SCALAR:  # (numbers: below)
                return list(call(fast, ct, *vals, otherwise=lambda: plan.run(
                    ct, vals, node.attrs, n)))
        sums = adding().begun(self, node) if plan.grows else None
        return plan.pull(ct, vals, node.attrs, n, sums) if made is None else plan.run(
            ct, vals, node.attrs, n, sums, made)

    def _add(self, edge: Any, ct: Any) -> None:
        cts = self.cts
        if type(edge) is Port:
            buffer = cts.get(edge.node)
            if buffer is None:
                buffer = cts[edge.node] = [None] * edge.node.ports
            have = buffer[edge.index]
            buffer[edge.index] = ct if have is None else add(have, ct)
            return
        have = cts.get(edge)
        if have is None:
            cts[edge] = ct
        elif (type(have) is type(ct) and type(ct) in (ndarray, MetaArray) and have.size >= LARGE
                and _refs(have) <= ALONE + 1 and have.base is None):
            if type(have) is ndarray:
                plus(have, ct, out=have)
            else:
                call(plus, have, ct, out=have, otherwise=tuple)
        else:
            cts[edge] = add(have, ct)

    # -------------------------------------------------------------- hooks and capture
    def _arrived(self, node: Any, ct: Any) -> Any:
        """The complete cotangent of a node after tensor hooks, retain_grad, capture, prehooks."""
        own = node._tensor_hooks
        if node.ports:
            ct = list(ct) if ct is not None else [None] * node.ports
            for i in range(node.ports):
                if own and i in own and ct[i] is not None:
                    ct[i] = graph.on_tensor(self, own[i], ct[i])
        elif own and ct is not None:
            ct = graph.on_tensor(self, own[0], ct)
        if type(node) is not AccumulateGrad and node._retain:
            for i, ref in node._retain.items():
                adding().retain(ref(), ct[i] if node.ports else ct, self)
        if self.capture:
            self._capture(node, ct)
        if node._pre_hooks and ct is not None and node not in self.ends:
            ct = graph.before_node(self, node, ct)
        return ct

    def _capture(self, node: Any, ct: Any) -> None:
        if node.ports:
            for key, places in self.capture.items():
                if type(key) is Port and key.node is node:
                    self.captured.update(dict.fromkeys(places, ct[key.index]))
        else:
            self.captured.update(dict.fromkeys(self.capture.get(node, ()), ct))

    def boxed(self, ct: Any) -> Any:
        """A cotangent as the tensor that user code sees."""
        if self.waiting:
            adding().settle(self)
        if ct is None or isinstance(ct, Tensor):
            return ct
        return wrap(ct if isinstance(ct, ndarray) or hasattr(ct, "base") else np.asarray(ct))

    def unboxed(self, ct: Any) -> Any:
        """What user code returned, as this walk passes it on."""
        if isinstance(ct, Tensor) and not self.create and not self.levels:
            return ct.array
        return ct


def _reached(order: list[Any], ends: dict[Any, Any], roots: list[Any]) -> None:
    """Add to `order` every node that the roots lead to, the newest first, and to `ends` each leaf
    with the node recorded first that feeds it. (`kernels.arrange_ir`: the same in machine code.)"""
    order += roots
    seen = set(order)
    append, note = order.append, seen.add
    for node in order:                           # it grows meanwhile
        plan = node.plan
        slow = plan is None or plan.fast is None
        for e in node.edges if slow else (node.e0, node.e1) if plan.pair else (node.e0,):
            if type(e) is AccumulateGrad:
                feeder = ends.get(e)
                if feeder is None or node.seq < feeder.seq:
                    ends[e] = node
            elif e is not None:
                e = e.node if type(e) is Port else e
                if e not in seen:
                    note(e)
                    append(e)
    order.sort(key=_sequence, reverse=True)


def add(a: Any, b: Any) -> Any:
    """Sum of two cotangents, arrays or tensors."""
    if not isinstance(a, (Tensor, MetaArray)) and not isinstance(b, (Tensor, MetaArray)):
        return retried(watchers.observers.get(), plus, a, b) if state() & WATCH else plus(a, b)
    if isinstance(a, MetaArray) and isinstance(b, MetaArray):
        return call(plus, a, b, otherwise=lambda: MetaArray(a.shape, a.dtype))
    if getattr(a, "is_sparse", False) or getattr(b, "is_sparse", False):
        return a + b
    return add_op(a, b)


def walk(roots: Sequence[tuple[Any, Any]], *, keep: bool, create: bool,
         capture: dict[Any, list[int]] | None = None, accumulate: bool = True,
         levels: bool = False, into: bool = False) -> dict[int, Any]:
    """Run a backward pass from `(edge, cotangent)` pairs; returns what was captured.

    The state of gradients while it runs is `create`, as in PyTorch; an open `autocast` rests:
    rules run in the dtypes that the forward chose.
    """
    frame = provenance.user_frame(sys._getframe(2))
    self = Backward(keep, create, capture, accumulate, levels, into)
    self.mark = Freed(frame.f_code, frame.f_lasti) if frame else Freed(None, 0)
    outer = state()
    record = create or levels
    token = change(GRAD if record else 0, AUTOCAST if record else GRAD | AUTOCAST)
    previous = getattr(_current, "walk", None)
    _current.walk = self
    observers = watchers.observers.get() if outer & WATCH else ()
    try:
        with Quiet():
            self.arrange([e.node if type(e) is Port else e for e, _ in roots])
            for observer in observers:
                observer.begin_walk(self)
            for edge, ct in roots:
                self._add(edge, fit(ct, edge) if self.typed else ct)
            self.run()
            if self.waiting:
                adding().settle(self)
        for callback in self.final:
            callback()
    except BaseException as error:
        if self.stored:
            error.add_note(f"backward stopped part-way: .grad of {len(self.stored)} leaf tensor(s) "
                           "had already been accumulated; call zero_grad() before the next try")
        raise
    finally:
        _current.walk = previous
        restore(token, outer)
        for observer in observers:
            observer.end_walk(self)
    return self.captured


def running_walk() -> Backward | None:
    """The backward pass that is running in this thread."""
    return getattr(_current, "walk", None)


def queue_callback(callback: Callable[[], None]) -> None:
    """Run `callback` when the backward pass that is running in this thread has finished."""
    running = running_walk()
    if running is None:
        raise AutogradError("Final callbacks can only be installed during backward pass.")
    running.final.append(callback)
