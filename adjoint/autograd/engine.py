"""The backward pass: dependency counts, then a ready queue in reverse order of recording.

Iterative, so that a chain of a million nodes works; residuals are dropped node by node. Between
nodes run arrays (`create_graph=False`: rules called on raw arrays record nothing) or tensors
(`create_graph=True`: the same rules called on tensors build the graph of the derivative).
"""
from __future__ import annotations

import heapq
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.autograd import leaves
from adjoint.autograd.fit import fit, fit_tensor
from adjoint.base import provenance
from adjoint.base.errors import AutogradError
from adjoint.core.bind import value_of
from adjoint.core.modes import WATCH, state, watchers
from adjoint.core.tensor import AccumulateGrad, Node, OutRef, Packed, Port, Tensor, wrap

ndarray = np.ndarray
_refs = sys.getrefcount
_current = threading.local()
LARGE = 4096    # bytes from which fan-in is summed into the first buffer


class Backward:
    """One walk of the graph. `run` visits plain nodes inline; whatever has hooks, several
    outputs, is captured or builds a graph of its own goes through `visit`."""

    def __init__(self, keep: bool, create: bool, capture: dict[Any, list[int]] | None,
                 accumulate: bool) -> None:
        self.keep, self.create, self.accumulate = keep, create, accumulate
        self.capture = capture or {}
        self.captured: dict[int, Any] = {}
        self.cts: dict[Any, Any] = {}
        self.deps: dict[Any, int] = {}
        self.heap: list[tuple[int, int, Any]] = []
        self.needed: set[Any] | None = None
        self.stored: list[AccumulateGrad] = []
        self.final: list[Callable[[], None]] = []
        self.special = create or bool(self.capture) or bool(state() & WATCH)

    # -------------------------------------------------------------- preparation
    def count(self, roots: Sequence[Any]) -> None:
        """Count, for every reachable node, the edges that will deliver a cotangent to it."""
        deps = self.deps
        stack = list(dict.fromkeys(roots))
        for r in stack:
            deps[r] = 0
        pop, push = stack.pop, stack.append
        while stack:
            for e in pop().edges:
                if e is None:
                    continue
                if type(e) is Port:
                    e = e.node
                if e in deps:
                    deps[e] += 1
                else:
                    deps[e] = 1
                    push(e)
        if self.capture and not self.accumulate:
            self._restrict()

    def _restrict(self) -> None:
        """With `inputs=`: the nodes from which some input can be reached, and no others."""
        wanted = {k.node if type(k) is Port else k for k in self.capture}
        needed: set[Any] = set(wanted)
        for node in sorted((n for n in self.deps if type(n) is not AccumulateGrad),
                           key=lambda n: n.seq):
            for e in node.edges:
                if e is not None and (e.node if type(e) is Port else e) in needed:
                    needed.add(node)
                    break
        self.needed = needed

    def seed(self, edge: Any, ct: Any) -> None:
        """Give a root its cotangent."""
        self._add(edge, ct)
        node = edge.node if type(edge) is Port else edge
        if self.deps[node] == 0:
            entry = (-node.seq, id(node), node)
            if entry not in self.heap:
                heapq.heappush(self.heap, entry)

    # -------------------------------------------------------------- the walk
    def run(self) -> None:
        """Visit nodes until none is ready."""
        heap, cts, deps, keep = self.heap, self.cts, self.deps, self.keep
        pop, push = heapq.heappop, heapq.heappush
        special, needed = self.special, self.needed
        while heap:
            node = pop(heap)[2]
            plan = None if special or type(node) is AccumulateGrad else node.plan
            if plan is None or plan.fast is None or node._special:
                if needed is None or node in needed:
                    self.visit(node, cts.pop(node, None))
                else:
                    cts.pop(node, None)
                    self._skip(node)
                continue
            ct = cts.pop(node)
            if ct is None:
                self._skip(node)
                continue
            saved = node.saved
            if saved is None:
                if plan.names:
                    raise AutogradError(freed_message(node))
                result = plan.fast(ct)
            else:
                versions = node.versions
                if versions is None:
                    vals = [value_of(s, 0, node) for s in saved]
                else:
                    vals = [value_of(s, v, node) for s, v in zip(saved, versions)]
                result = plan.fast(ct, *vals)
                if not keep and plan.kept:
                    saved = vals = None
                    node.saved = node.versions = None
                    node.freed = self.place
            ct = None
            i = 0
            for edge in node.edges:
                if edge is not None:
                    c = result[i]
                    if type(edge) is Port:
                        self.send(edge, fit(c, edge))
                    else:
                        if c.shape != edge.shape:
                            c = fit(c, edge)
                        if edge in cts:
                            self._add(edge, c)
                        else:
                            cts[edge] = c
                        n = deps[edge] = deps[edge] - 1
                        if not n:
                            push(heap, (-edge.seq, id(edge), edge))
                i += 1
            result = c = None

    place: Any = None

    def visit(self, node: Any, ct: Any) -> None:
        """Run any node: hooks, capture, several outputs, custom functions, graphs of graphs."""
        ct = self._arrived(node, ct)
        if type(node) is AccumulateGrad:
            if self.accumulate and ct is not None:
                leaves.accumulate(node, ct, self)
            return
        if ct is None or (node.ports and all(c is None for c in ct)):
            self._skip(node)
            return
        if self.needed is not None and not any(
                e is not None and (e.node if type(e) is Port else e) in self.needed
                for e in node.edges):
            return
        results = self._call(node, ct)
        results = [None if c is None or e is None else
                   (fit_tensor(c, e) if isinstance(c, Tensor) else fit(c, e))
                   for c, e in zip(results, node.edges, strict=True)]
        if not self.keep and node.saved is not None and (node.plan is None or node.plan.kept):
            node.freed = self.place
            node.saved = node.versions = None
        if state() & WATCH:
            for observer in watchers.observers.get():
                observer.backward(node, ct, results)
        if node._post_hooks:
            results = self._post(node, results, ct)
        del ct
        for i, e in enumerate(node.edges):
            if e is not None:
                c, results[i] = results[i], None
                self.send(e, c)

    def _call(self, node: Any, ct: Any) -> list[Any]:
        if node.plan is None:                  # a custom function
            return node.apply(self, ct)        # type: ignore[no-any-return]  # autograd.function
        if node.saved is None and node.plan.names:
            raise AutogradError(freed_message(node))
        vals: Sequence[Any] = ()
        if node.saved is not None:
            versions = node.versions or (0,) * len(node.saved)
            if self.create:
                vals = [tensor_of(s, v, node) for s, v in zip(node.saved, versions, strict=True)]
            else:
                vals = [value_of(s, v, node) for s, v in zip(node.saved, versions, strict=True)]
        n = len(node.edges)
        if node.plan.fast is not None and not self.create and type(ct) is ndarray:
            return list(node.plan.fast(ct, *vals))
        return node.plan.run(ct, vals, node.attrs, n)  # type: ignore[no-any-return]  # Plan

    def _skip(self, node: Any) -> None:
        """No cotangent reached this node: tell the nodes below, which may wait for it."""
        for e in node.edges:
            if e is not None:
                self.send(e, None)

    def send(self, edge: Any, ct: Any) -> None:
        """Add a cotangent to what waits at `edge`; queue its node when all have arrived."""
        if ct is not None:
            self._add(edge, ct)
        node = edge.node if type(edge) is Port else edge
        n = self.deps[node] = self.deps[node] - 1
        if not n:
            self.cts.setdefault(node, None)
            heapq.heappush(self.heap, (-node.seq, id(node), node))

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
        elif (type(have) is ndarray and have.nbytes >= LARGE and _refs(have) <= 3
                and have.base is None and type(ct) is ndarray):
            np.add(have, ct, out=have)
        else:
            cts[edge] = add(have, ct)

    # -------------------------------------------------------------- hooks and capture
    def _arrived(self, node: Any, ct: Any) -> Any:
        """The complete cotangent of a node after tensor hooks, retain_grad, capture, prehooks."""
        hooks = node._tensor_hooks
        if node.ports:
            ct = list(ct) if ct is not None else [None] * node.ports
            for i in range(node.ports):
                if hooks and i in hooks and ct[i] is not None:
                    ct[i] = self._hooked(hooks[i], ct[i])
        elif hooks and ct is not None:
            ct = self._hooked(hooks[0], ct)
        retained = None if type(node) is AccumulateGrad else node._retain
        if retained:
            for i, ref in retained.items():
                leaves.retain(ref(), ct[i] if node.ports else ct, self)
        if self.capture:
            self._capture(node, ct)
        if node._pre_hooks and ct is not None:
            given = tuple(self.boxed(c) for c in (ct if node.ports else (ct,)))
            for hook in list(node._pre_hooks.values()):
                new = hook(given)
                if new is not None:
                    given = new if isinstance(new, tuple) else (new,)
            back = [self.unboxed(c) for c in given]
            ct = back if node.ports else back[0]
        return ct

    def _capture(self, node: Any, ct: Any) -> None:
        if node.ports:
            for key, places in self.capture.items():
                if type(key) is Port and key.node is node:
                    for p in places:
                        self.captured[p] = ct[key.index]
        else:
            for p in self.capture.get(node, ()):
                self.captured[p] = ct

    def _hooked(self, hooks: dict[int, Any], ct: Any) -> Any:
        given = self.boxed(ct)
        for hook in list(hooks.values()):
            new = hook(given)
            if new is not None:
                if not isinstance(new, Tensor):
                    raise TypeError(f"hook returned {type(new).__name__!r}, expected a Tensor or "
                                    "None")
                if tuple(new.shape) != tuple(given.shape):
                    raise AutogradError("hook '" + getattr(hook, "__name__", "hook") + "' has "
                                        f"changed the size of value (from {list(given.shape)} to "
                                        f"{list(new.shape)})")
                given = new
        return self.unboxed(given)

    def _post(self, node: Any, results: list[Any], ct: Any) -> list[Any]:
        grads = tuple(self.boxed(c) for c in results)
        outer = tuple(self.boxed(c) for c in (ct if node.ports else (ct,)))
        for hook in list(node._post_hooks.values()):
            new = hook(grads, outer)
            if new is not None:
                grads = new if isinstance(new, tuple) else (new,)
                if len(grads) != len(results):
                    raise AutogradError(f"hook of {node.name()} returned an incorrect number of "
                                        f"values (got {len(grads)}, but expected {len(results)})")
        return [self.unboxed(c) for c in grads]

    def boxed(self, ct: Any) -> Any:
        """A cotangent as the tensor that user code sees."""
        if ct is None or isinstance(ct, Tensor):
            return ct
        return wrap(ct if isinstance(ct, ndarray) or hasattr(ct, "base") else np.asarray(ct))

    def unboxed(self, ct: Any) -> Any:
        """What user code returned, as this walk passes it on."""
        if isinstance(ct, Tensor) and not self.create and not ct.level:
            return ct.array
        return ct


def add(a: Any, b: Any) -> Any:
    """Sum of two cotangents, arrays or tensors."""
    if type(a) is ndarray and type(b) is ndarray:
        return np.add(a, b)
    from adjoint.ops.pointwise import add as add_op
    if getattr(a, "is_sparse", False) or getattr(b, "is_sparse", False):
        return a + b
    return add_op(a, b)


def tensor_of(saved: Any, expected: Any, node: Any) -> Any:
    """A residual as a tensor that is connected to the graph, after its version was checked."""
    kind = type(saved)
    if kind is OutRef:
        value_of(saved, expected, node)
        t = wrap(saved.array)
        t._cell = saved.cell
        t._rg = True
        t._edge = Port(node, saved.index, saved.array.shape, saved.array.dtype) \
            if node.ports else node
        if node.ports and saved.index >= node.ports:      # a hidden output has no edge
            t._rg, t._edge = False, None
        return t
    if isinstance(saved, Tensor):
        value_of(saved, expected, node)
        return saved
    if kind is tuple:
        marks = expected if type(expected) is tuple else (expected,) * len(saved)
        return tuple(tensor_of(s, v, node) for s, v in zip(saved, marks, strict=True))
    if kind is Packed:
        t = saved.hook.unpack(saved, node)
        edge = saved.original
        if type(edge) is int:
            edge = Port(node, edge, t.array.shape, t.array.dtype) if node.ports else node
        if edge is not None:
            t = wrap(t.array)
            t._rg, t._edge = True, edge
        return t
    return saved


def freed_message(node: Node) -> str:
    """The text of the second-backward error, with both places."""
    text = ("Trying to backward through the graph a second time (or directly access saved tensors "
            "after they have already been freed). Saved intermediate values of the graph are freed "
            "when you call .backward() or autograd.grad(). Specify retain_graph=True if you need "
            "to backward through the graph a second time or if you need to access saved tensors "
            "after calling backward.\n"
            f"  node: {node.name()} made at {node.where()}")
    if node.freed is not None:
        text += f"\n  freed by the backward at {provenance.locate(*node.freed)}"
    return text + ("\n  fix: run the forward again, sum the losses and call backward once, or pass "
                   "retain_graph=True to every backward but the last")


def walk(roots: Sequence[tuple[Any, Any]], *, keep: bool, create: bool,
         capture: dict[Any, list[int]] | None = None, accumulate: bool = True
         ) -> dict[int, Any]:
    """Run a backward pass from `(edge, cotangent)` pairs; returns what was captured.

    The state of gradients while it runs is `create`, as in PyTorch.
    """
    from adjoint.core.modes import GRAD, change, restore
    frame = provenance.user_frame(sys._getframe(2))
    self = Backward(keep, create, capture, accumulate)
    self.place = (frame.f_code, frame.f_lasti) if frame else None
    outer = state()
    token = change(set_bits=GRAD if create else 0, clear_bits=0 if create else GRAD)
    previous = getattr(_current, "walk", None)
    _current.walk = self
    try:
        with np.errstate(all="ignore"):
            self.count([e.node if type(e) is Port else e for e, _ in roots])
            for edge, ct in roots:
                self.seed(edge, ct)
            self.run()
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
    return self.captured


def queue_callback(callback: Callable[[], None]) -> None:
    """Run `callback` when the backward pass that is running in this thread has finished."""
    running = getattr(_current, "walk", None)
    if running is None:
        raise AutogradError("queue_callback() may only be called while backward is running")
    running.final.append(callback)
