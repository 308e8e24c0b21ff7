"""Nodes of the graph, what links them, and hooks.

    Node ── edges ──> Node | Port(node, i) | AccumulateGrad (leaf), one per operand
"""
from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from operator import attrgetter
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from adjoint.base import provenance
from adjoint.base.aval import Aval
from adjoint.base.errors import AutogradError

if TYPE_CHECKING:
    from adjoint.core.tensor import Tensor

counter = count()
next_sequence = counter.__next__


class Port:
    """Output `index` of a node that has several."""

    __slots__ = ("node", "index", "shape", "dtype")

    def __init__(self, node: Node, index: int, shape: Sequence[int], dtype: Any) -> None:
        self.node, self.index, self.dtype = node, index, dtype
        self.shape = list(shape)    # a list: never equal to an array's shape, so that the engine's
        # one comparison per edge also finds ports


class GradientEdge(NamedTuple):
    """A place in the graph, as `autograd.graph` shows it: a node and one of its outputs."""

    node: Any
    output_nr: int
    ownership_token: Any = None        # PyTorch's; a node is held by the edge itself here

    def inside(self) -> Any:
        """The same place as edges have it: a node, a leaf's accumulator or a Port."""
        node, i, _ = self
        return Port(node, i, node.shape[i], node.dtype[i]) if node.ports else node

    @property
    def aval(self) -> Aval:
        """Shape and dtype of the value there."""
        inside = self.inside()
        return Aval(tuple(inside.shape), inside.dtype or inside.plan.dtype)


class Freed:
    """What stands in the place of residuals that a backward has released: where that was."""

    __slots__ = ("code", "lasti")

    def __init__(self, code: CodeType | None, lasti: int) -> None:
        self.code, self.lasti = code, lasti


class HookDict(dict[int, Any]):
    """Hooks in order of registration (a dict that a handle can refer to weakly)."""

    __slots__ = ("__weakref__",)


def _seen(hooks: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(hooks)
    except TypeError:                       # a plain dict
        return lambda: hooks


class RemovableHandle:
    """Returned by every `register_*hook`; `remove()` takes the hook off again.

    Holding it keeps neither the owner nor the hook alive; as a context manager it removes the hook
    at the end of the block. `extra_dict`: a dict, or several, with entries of the same id.

    >>> hooks = HookDict()
    >>> handle = RemovableHandle(hooks)
    >>> hooks[handle.id] = print
    >>> handle.remove(); len(hooks)
    0
    """

    __slots__ = ("extra_dict_ref", "hooks_dict_ref", "id", "__weakref__")

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = ()) -> None:
        self.hooks_dict_ref = _seen(hooks_dict)
        extra = () if extra_dict is None else extra_dict
        self.extra_dict_ref = tuple([_seen(d) for d in (
            extra if isinstance(extra, (list, tuple)) else (extra,))])
        self.id = next_sequence()

    def remove(self) -> None:
        """Take the hook off; a second call does nothing."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def __getstate__(self) -> tuple[Any, ...]:
        return self.hooks_dict_ref(), self.id, tuple([ref() for ref in self.extra_dict_ref])

    def __setstate__(self, saved: tuple[Any, ...]) -> None:
        hooks, self.id, extra = saved
        self.hooks_dict_ref, *rest = [_seen(HookDict() if d is None else d)
                                      for d in (hooks, *extra)]
        self.extra_dict_ref = tuple(rest)


def add_hook(owner: Any, name: str, hook: Any) -> RemovableHandle:
    """Add `hook` to the dict `owner.<name>`, making it at its first use."""
    if not callable(hook):
        raise AutogradError(f"a hook must be callable, got {type(hook).__name__}")
    hooks = getattr(owner, name)
    if hooks is None:
        hooks = HookDict()
        setattr(owner, name, hooks)
        take_full_path(owner)
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def take_full_path(node: Any) -> None:
    """Make the engine look at this node's hooks: its plan loses the inlined backward."""
    node.hooked = True
    plan = node.plan
    if plan is not None and plan.fast is not None:
        node.dtype = plan.dtype
        node.plan = plan.variant(fast=None)


# nodes that no op's name stands for
WRITTEN_OUT = {"AccumulateGrad", "CopyBackwards", "CopySlices", "Error", "NotImplemented"}


class GraphNode:
    """What every node of the graph answers: an op's `Node`, a leaf's `AccumulateGrad`."""

    __slots__ = ()
    seq: int
    unfed = False                  # runs in a backward that brings it no gradient, too
    born: Any = None               # the number that `core.trace.born` has found out; None: not yet
    _metadata: Any = None
    requires_grad = True

    def name(self) -> str:
        """The node's name, as PyTorch has it in its messages."""
        name = type(self).__name__
        return f"torch::autograd::{name}" if name in WRITTEN_OUT else name

    @property
    def forward_name(self) -> str:
        """The name of the function that the node is the backward of: Split, for SplitBackward0."""
        return self.name().rstrip("0123456789").removesuffix("Backward")

    @property
    def metadata(self) -> dict[str, Any]:
        """A dict for the user's own notes about this node."""
        node: Any = self
        if node._metadata is None:
            node._metadata = {}
        found: dict[str, Any] = node._metadata
        return found

    def _sequence_nr(self) -> int:
        return self.seq

    def register_hook(self, hook: Any) -> RemovableHandle:
        """`hook(grad_inputs, grad_outputs) -> new grad_inputs or None`, after this node ran
        (at a leaf: after the gradient was accumulated)."""
        return add_hook(self, "_post_hooks", hook)

    def register_prehook(self, hook: Any) -> RemovableHandle:
        """`hook(grad_outputs) -> new grad_outputs or None`, before this node runs."""
        return add_hook(self, "_pre_hooks", hook)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {hex(id(self))}>"


class Node(GraphNode):
    """One recorded op. `grad_fn` of its outputs; a subclass per op carries the printed name.

    Slots are written by dispatch; for what only some nodes have (attributes, hooks, metadata) there
    are class-level defaults, so that a plain node costs few stores. Where that, edges and residuals
    lie is the subclass's: in an instance dict and in tuples (`WideNode`), or in a plan of the
    node's own and in slots (`PairNode`).
    """

    __slots__ = ("plan", "shape", "seq", "code", "lasti", "__weakref__")
    op: Any = None                 # the record; None for custom functions
    plan: Any                      # core.op.Plan: rules and residual names for the wanted operands
    edges: Any                     # a tuple, one per operand; None where no gradient is wanted
    saved: Any                     # a tuple; None: nothing saved; Freed: released by a backward
    attrs: dict[str, Any] = {}
    shape: Any                     # of the output; a tuple of shapes where there are several
    dtype: Any = None              # of the output; None: the dtype of the (fast) plan
    seq: int
    code: CodeType | None          # with `lasti`: the user's line
    lasti: int
    ports: int = 0                 # number of outputs where there are several
    hooked = False                 # one of these was set
    _post_hooks: HookDict | None = None
    _pre_hooks: HookDict | None = None
    _tensor_hooks: Any = None      # output index -> HookDict (hooks on the tensor itself)
    _retain: Any = None            # output index -> weakref of the tensor that retains its grad

    @property
    def freed(self) -> Freed | None:
        """The backward that released the residuals; None while they are there."""
        return self.saved if type(self.saved) is Freed else None

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """((node, output index), ...) for every operand that can have a gradient; (None, 0) where
        none flows."""
        edges = self.edges
        followed = self.op.followed if self.op is not None else None
        if followed is not None and len(followed) == len(edges):
            edges = [e for e, f in zip(edges, followed, strict=True) if f]
        return tuple([(e.node, e.index) if type(e) is Port else (e, 0) for e in edges])

    def where(self) -> str:
        """``file:line in function`` of the call that made this node."""
        return provenance.locate(self.code, self.lasti)


class WideNode(Node):
    """A node with any number of edges and residuals."""

    __slots__ = ("edges", "saved", "__dict__")
    said: Any = None               # the numbers of the call, where several records do its work


def _of_plan(name: str) -> Any:
    """An attribute that lies in the node's plan: setting it makes that a plan of the node's own."""
    def write(node: PairNode, value: Any) -> None:
        node.plan = node.plan.alone()
        setattr(node.plan, name, value)
    return property(attrgetter("plan." + name), write)


class OpNode(WideNode):
    """A node of an op that is recorded as `bind` does it. What every such node has sits in slots:
    an instance dict costs as much to make as the rest."""

    __slots__ = ("dtype", "attrs")


class PairNode(Node):
    """A node of a pointwise op of one or two operands: edges `e0`, `e1` and residuals `s0`, `s1`
    without tuples, which cost as much to make, and to look through for the garbage collector, as
    the node itself. `s0` is None where nothing is saved, a Freed after release, a tuple where
    there are more than two. There is no instance dict: graphs consist of such nodes, and in a long
    one each byte of them is read again and again by the collector. What one node alone has lies in
    a plan of its own (`Plan.alone`)."""

    __slots__ = ("e0", "e1", "s0", "s1")
    _post_hooks, _pre_hooks = _of_plan("_post_hooks"), _of_plan("_pre_hooks")
    _tensor_hooks, _retain = _of_plan("_tensor_hooks"), _of_plan("_retain")
    _metadata, hooked = _of_plan("_metadata"), _of_plan("hooked")

    @property
    def dtype(self) -> Any:
        """Of the output."""
        return self.plan.dtype

    @dtype.setter
    def dtype(self, value: Any) -> None:
        if value is not self.plan.dtype:
            self.plan = self.plan.variant(dtype=value)

    @property
    def born(self) -> Any:
        """What `core.trace.born` has found out of the node."""
        return self.plan.born

    @born.setter
    def born(self, value: Any) -> None:
        self.plan = self.plan.variant(born=value)

    @property
    def edges(self) -> Any:
        """One per operand."""
        return (self.e0, self.e1) if len(self.op.operands) == 2 else (self.e0,)

    @edges.setter
    def edges(self, value: Any) -> None:
        self.e0 = value[0]
        self.e1 = value[1] if len(value) == 2 else None

    @property
    def saved(self) -> Any:
        """The residuals as a tuple; None; or what marks them as released."""
        s = self.s0
        if s is None or type(s) is Freed or type(s) is tuple:
            return s
        return (s,) if len(self.plan.names) == 1 else (s, self.s1)

    @saved.setter
    def saved(self, value: Any) -> None:
        self.s1 = None
        if type(value) is tuple and len(value) <= 2:
            self.s0 = value[0]
            if len(value) == 2:
                self.s1 = value[1]
        else:
            self.s0 = value


_NAMED: dict[tuple[type, str], type] = {}


def named(t: Any, name: str, since: int = 0) -> Any:
    """`t`, a fresh result, whose node prints as `name` from now on: the function that was called is
    one in PyTorch where several records, or one that others share, do its work here. A node older
    than `since` keeps its name."""
    port = t._edge if type(t._edge) is Port else None
    node: Any = t._edge if port is None else port.node
    if not isinstance(node, Node) or node.seq < since or node.op is None \
            or type(node).__name__ == "CopySlices":
        return t
    pair = isinstance(node, PairNode)    # (their memory has functions of its own in machine code)
    if pair and port is not None:
        return t
    kind = _NAMED.get((type(node), name))
    if kind is None:
        kind = _NAMED[type(node), name] = type(name, (OpNode if pair else type(node),), {
            "__slots__": (), "op": node.op, "__module__": "builtins"})
    if not pair:
        node.__class__ = kind
        return t
    t._edge = twin = kind()
    for part in ("shape", "seq", "code", "lasti", "dtype", "edges", "saved", "attrs"):
        setattr(twin, part, getattr(node, part))
    twin.plan = node.plan.variant(fast=None)
    return t


def _nobody() -> None:
    """A reference to what is not there."""


class AccumulateGrad(GraphNode):
    """The end of the graph at a leaf: adds what arrives to `leaf.grad`."""

    __slots__ = ("_leaf", "shape", "dtype", "__dict__", "__weakref__")
    edges: tuple[Any, ...] = ()
    next_functions: tuple[Any, ...] = ()
    seq = sys.maxsize
    ports = 0
    plan = saved = None
    _post_hooks: HookDict | None = None
    _pre_hooks: HookDict | None = None
    _tensor_hooks: Any = None
    _accumulated: HookDict | None = None
    typed = ""                     # `Tensor.grad_dtype` was set: "own", or "any" for None
    some_typed = False             # of the class: there was such a leaf
    ended: Freed | None = None     # where the transform was called that made the leaf and is over

    def __init__(self, leaf: Tensor) -> None:
        self._leaf: Callable[[], Tensor | None] = weakref.ref(leaf)
        self.follow(leaf.array)

    def _sequence_nr(self) -> int:
        return 2 * self.seq + 1             # PyTorch's: all bits of a word set, it runs first

    def follow(self, array: Any) -> None:
        """The leaf shows `array` now."""
        self.shape = array.shape
        if self.typed != "own":
            self.dtype = array.dtype

    @property
    def variable(self) -> Tensor | None:
        """The leaf; None when nobody holds it any more."""
        return self._leaf()

    def end(self, where: Freed) -> None:
        """The transform called there, whose variable the leaf is, is over: the leaf is nobody's."""
        self.ended, self._leaf = where, _nobody
