"""`autograd.graph`: saved-tensor hooks, gradient edges, hooks; and how the engine runs hooks."""
from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from adjoint.base import provenance
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import (
    ArgumentError,
    AssertedAutogradError,
    AutogradError,
    DTypeError,
    NotSupported,
    TransformError,
)
from adjoint.core.modes import GRAD, Observer, change, restore, state, watchers
from adjoint.core.residuals import pack_each
from adjoint.core.tensor import (
    GradientEdge,
    GraphNode,
    Kept,
    OutRef,
    Port,
    RemovableHandle,
    Tensor,
    alias,
    bump,
    edge_of,
    owner_of,
    wrap,
)

Node = GraphNode               # what `isinstance(t.grad_fn, autograd.graph.Node)` asks for


class saved_tensors_hooks:
    """While active, what ops save goes through `pack_hook(tensor) -> anything` and comes back
    through `unpack_hook(that) -> tensor`. The innermost pair counts. Leaves are given as they are,
    computed tensors with their `grad_fn`; an operand that is saved twice is packed twice.
    `pack_hook` runs with gradients off.

    >>> import adjoint as ad
    >>> x = ad.tensor([1.0, 2.0], requires_grad=True)
    >>> pack, unpack = (lambda t: t.detach().numpy()), ad.from_numpy
    >>> with ad.autograd.graph.saved_tensors_hooks(pack, unpack):
    ...     y = (x.exp() * 2).sum()
    >>> y.backward()
    """

    once = False             # an operand that a node saves twice is packed once
    levels = 0               # values of transforms up to that level are packed too
    regions = False          # looks after what checkpointed regions make again, too
    told = True              # content to be told of a node once machine code has made it

    def __init__(self, pack_hook: Callable[[Tensor], Any],
                 unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook
        self._held: list[Any] = []

    def __enter__(self) -> None:
        if _disabled:
            raise AutogradError(_disabled[-1])
        if not (callable(self.pack_hook) and callable(self.unpack_hook)):
            raise TypeError("saved_tensors_hooks(): incompatible function arguments: it takes two "
                            f"functions, got {type(self.pack_hook).__name__} and "
                            f"{type(self.unpack_hook).__name__}")
        self._held.append(watchers.push(watchers.hooks, self))

    def __exit__(self, *exc: object) -> None:
        watchers.pop(self._held.pop())

    def ends(self, more: int) -> bool:
        """Whether `more` residuals are all that is wanted: `pack` raises at the last of them."""
        return False

    def packs(self, node: Any) -> tuple[Any, ...]:
        """What a node keeps in place of what it has saved; called by dispatch."""
        return pack_each(self, node)

    def pack(self, saved: Any, node: Any) -> Any:
        """Called for every residual that is a tensor."""
        if isinstance(saved, OutRef):
            t = _output(saved.array, saved.index, node)
            t._cell = saved.cell
        else:
            t = saved.tensor if type(saved) is Kept else saved
            if not t.is_leaf:              # an in-place op may give `t` another place in the graph
                edge, t = t._edge, alias(t)
                t._edge, t._rg = edge, True
        before = t._cell.version if t._cell is not None else 0
        outer, token = state(), change(clear_bits=GRAD)
        try:
            packed = self.pack_hook(t)
        finally:
            restore(token, outer)
        if t._cell is not None and t._cell.version != before:
            raise AutogradError("A saved tensor pack hook is modifying its input in place. Tensors "
                                "provided as input to pack hook cannot be modified by in-place "
                                "operations as this can lead to unexpected side-effects. Write to "
                                "a clone() of it.")
        if packed is t and isinstance(saved, OutRef):
            return _Own(alias(t), saved.index)         # with its place, it would own its owner
        return packed

    def unpack(self, packed: Any, node: Any) -> Tensor:
        """Called by the engine when a residual is read."""
        value = packed.value
        t = self.unpack_hook(_output(value.tensor.array, value.place, node)
                             if type(value) is _Own else value)
        if not isinstance(t, Tensor):
            raise TypeError("Output of saved tensor unpack_hook expected to be a Tensor but got "
                            f"result of type {type(t).__name__}")
        return t


class _Own(NamedTuple):
    """An output that its pack hook returned as it was, without its place in the graph."""

    tensor: Tensor
    place: int


def _output(array: Any, index: int, node: Any) -> Tensor:
    """The tensor that a node made as output `index`."""
    t = wrap(array)
    if index < max(node.ports, 1) and is_inexact(array.dtype):    # a hidden output has no edge
        t._rg = True
        t._edge = Port(node, index, array.shape, array.dtype) if node.ports else node
    return t


_disabled: list[str] = []


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Make the use of saved-tensor hooks an error inside of the block."""
    if watchers.hooks.get():
        raise AutogradError(error_message)
    _disabled.append(error_message)
    try:
        yield
    finally:
        _disabled.pop()


class save_on_cpu(saved_tensors_hooks):
    """Keep residuals in main memory, where they already are on a cpu: copies, so that the
    originals may be overwritten."""

    once = True

    def __init__(self, pin_memory: bool = False, device_type: str = "cpu") -> None:
        super().__init__(lambda t: t.detach().clone(),
                         lambda t: t)


class _Original:
    """What a node keeps while writes are allowed: the tensor itself, until it is written to."""

    __slots__ = ("tensor", "version", "__weakref__")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = alias(tensor)
        self.version = self.tensor._cell.version  # type: ignore[union-attr]  # alias shares one


class allow_mutation_on_saved_tensors(saved_tensors_hooks, Observer):
    """While active, tensors that were saved for backward may be written to: the first write to
    one copies its old content, which backward reads. Backward has to run inside of the block.

    Entering gives this object; its `original` (handle -> tensor) and `cloned` (handle -> copy)
    show what graphs of the block keep. RuntimeError where two such blocks nest, and in a backward
    after something wrote to a kept tensor past the operations of this library.

    >>> import adjoint as ad
    >>> a = ad.ones(3, requires_grad=True)
    >>> with ad.autograd.graph.allow_mutation_on_saved_tensors():
    ...     b = a.clone()
    ...     loss = (b ** 2).sum()
    ...     _ = b.sin_()
    ...     loss.backward()
    >>> a.grad
    tensor([2., 2., 2.])
    """

    once = True

    def __init__(self) -> None:
        super().__init__(self._keep, self._read)
        self._watching: Any = None
        self.clear()

    def clear(self) -> None:
        """Forget what is kept; leaving the block does it."""
        self.original: weakref.WeakKeyDictionary[_Original, Tensor] = weakref.WeakKeyDictionary()
        self.cloned: weakref.WeakKeyDictionary[_Original, Tensor] = weakref.WeakKeyDictionary()
        self._of_memory: dict[int, weakref.WeakSet[_Original]] = {}

    def __enter__(self) -> Any:
        if any(isinstance(o, allow_mutation_on_saved_tensors) for o in watchers.observers.get()):
            raise AutogradError("allow_mutation_on_saved_tensors contexts cannot be nested")
        super().__enter__()
        self._watching = watchers.push(watchers.observers, self)
        return self

    def __exit__(self, *exc: object) -> None:
        watchers.pop(self._watching)
        super().__exit__(*exc)
        self.clear()

    def _keep(self, tensor: Tensor) -> _Original:
        held = _Original(tensor)
        self.original[held] = held.tensor
        self._of_memory.setdefault(id(owner_of(held.tensor.array)), weakref.WeakSet()).add(held)
        return held

    def _read(self, held: _Original) -> Tensor:
        if held in self.cloned:
            return self.cloned[held]
        if held not in self.original:
            raise AssertedAutogradError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in "
                "which the graph was originally recorded.")
        cell: Any = held.tensor._cell
        if cell.version != held.version:
            raise AutogradError("a tensor that was saved for backward was written to in a way that "
                                "allow_mutation_on_saved_tensors does not see: "
                                f"{cell.where()}", reason="overwritten", about=cell)
        return held.tensor

    def before_write(self, target: Any) -> None:
        """Copy what graphs keep of the memory of `target`."""
        for held in self._of_memory.pop(id(owner_of(target.array)), ()):
            self.original.pop(held, None)
            self.cloned[held] = wrap(held.tensor.array.copy())
            held.tensor = self.cloned[held]


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The place that the gradient of `tensor` flows to."""
    if not tensor._rg:
        raise AutogradError("It is not possible to get the gradient edge for a Tensor that does not"
                            " require gradients")
    e = edge_of(tensor)
    return GradientEdge(e.node, e.index) if type(e) is Port else GradientEdge(e, 0)


def _get_grad_fn_or_grad_acc(t: Tensor | GradientEdge) -> Any:
    """The node that a tensor is of; of a leaf, the one that accumulates its gradient."""
    return t.node if isinstance(t, GradientEdge) else get_gradient_edge(t).node


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *,
                             mode: str = "all") -> RemovableHandle:
    """Call `fn` once per backward that reaches one of `tensors`: with a list of their gradients,
    None for those that it does not reach (mode "all"), or with the first to arrive ("any").

    >>> import adjoint as ad
    >>> x, y = (ad.ones(2, requires_grad=True) for _ in range(2))
    >>> h = ad.autograd.graph.register_multi_grad_hook([x, y], lambda gs: print(gs))
    >>> (x * 3).sum().backward()
    [tensor([3., 3.]), None]
    """
    if mode not in ("all", "any"):
        raise ArgumentError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    seen: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()
    lock = threading.Lock()

    def hook_for(i: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            from adjoint.autograd.engine import running_walk
            walk = running_walk()
            with lock:
                mine = seen.setdefault(walk, {})
                mine[i] = grad
                arrived = len(mine)
            if mode == "any":
                if arrived == 1:
                    fn(grad)
            elif walk is not None and arrived == sum(map(walk.reaches, edges)):
                fn([mine.get(k) for k in range(len(edges))])
        return hook

    for i, t in enumerate(tensors):
        if not t._rg:
            raise AssertedAutogradError("Expected gradient function to be set: tensor "
                                        f"{i} of register_multi_grad_hook does not require grad")
    handles = [t.register_hook(hook_for(i)) for i, t in enumerate(tensors)]
    edges = [edge_of(t) for t in tensors]

    return _MultiHandle(tuple(handles))


class _MultiHandle(RemovableHandle):
    """Removes a hook from every tensor that it was put on."""

    def __init__(self, handles: tuple[RemovableHandle, ...]) -> None:
        super().__init__({})
        self.handles = handles

    def remove(self) -> None:
        for h in self.handles:
            h.remove()


def region_activation_memory_budget(budget: float) -> Any:
    """Raises: it speaks to PyTorch's compiler; `memory.budget` holds an eager program to a peak."""
    raise NotSupported("autograd.graph.region_activation_memory_budget can only be used inside a "
                       "torch.compile region; nothing is compiled here: memory.budget(bytes) keeps "
                       "the peak of what runs inside of it")


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Noted only: gradients are accumulated in the order of the program, there are no streams."""


def set_override_stale_capture_stream(enabled: bool) -> None:
    """Noted only: there are no streams to capture."""


def increment_version(tensor: Any) -> None:
    """Say that `tensor` (or each of several) was written to by foreign code."""
    several = (tensor,) if isinstance(tensor, Tensor) else tensor
    try:
        written = list(several)
    except TypeError:
        written = [None]
    if not all(isinstance(t, Tensor) for t in written):
        raise DTypeError("increment_version expect a Iterable[Tensor] as input or a Tensor, "
                                f"got {type(tensor).__name__}")
    for t in written:
        bump(t, "increment_version")


# ------------------------------------------- what hooks get during a backward pass, and may return
def on_tensor(walk: Any, hooks: dict[int, Any], ct: Any) -> Any:
    """The cotangent of a tensor after its hooks."""
    given = walk.boxed(ct)
    for hook in list(hooks.values()):
        new = hook(given)
        if new is not None:
            given = _replacing(given, new, hook)
    return walk.unboxed(given)


def before_node(walk: Any, node: Any, ct: Any) -> Any:
    """The cotangents of a node's outputs after its prehooks."""
    given = tuple([walk.boxed(c) for c in (ct if node.ports else (ct,))])
    for hook in list(node._pre_hooks.values()):
        new = hook(given)
        if new is not None:
            given = _checked(new, given, hook)
    back = [walk.unboxed(c) for c in given]
    return back if node.ports else back[0]


def after_node(walk: Any, node: Any, results: list[Any], ct: Any) -> list[Any]:
    """The cotangents of a node's operands after its hooks."""
    grads = tuple([walk.boxed(c) for c in results])
    outer = tuple([walk.boxed(c) for c in (ct if node.ports else (ct,))])
    for hook in list(node._post_hooks.values()):
        new = hook(grads, outer)
        if new is not None:
            grads = _checked(new, grads, hook)
    return [walk.unboxed(c) for c in grads]


def after_leaf(walk: Any, node: Any, leaf: Tensor, ct: Any) -> None:
    """The hooks of a leaf, once its gradient was accumulated."""
    for hook in list((node._accumulated or {}).values()):
        answer = hook(leaf)
        if answer is None or answer is leaf:              # (as `p.add_(p.grad)` gives it)
            continue
        if isinstance(answer, Tensor):
            raise AutogradError("Tensor post accumulate grad hooks should return None.")
        raise TypeError(f"expected Variable, but hook returned {type(answer).__name__!r}; a hook "
                        "that runs after the gradient was accumulated returns None")
    for hook in list((node._post_hooks or {}).values()):
        hook((), (walk.boxed(ct),))


def _name(hook: Any) -> str:
    return getattr(hook, "__name__", "hook")


def _replacing(old: Any, new: Any, hook: Any) -> Any:
    """What a hook returned in place of a gradient: one of its size and type."""
    if not isinstance(new, Tensor):
        raise TypeError(f"expected Variable, but hook returned {type(new).__name__!r}; it "
                        "returns a Tensor or None")
    if tuple(new.shape) != tuple(old.shape):
        raise AutogradError(f"hook '{_name(hook)}' has changed the size of value (from "
                            f"{list(old.shape)} to {list(new.shape)})")
    if new.dtype != old.dtype:
        raise AutogradError(f"hook '{_name(hook)}' has changed the type of value (was "
                            f"{old.type()} got {new.type()})")
    return new


def _checked(new: Any, old: tuple[Any, ...], hook: Any) -> tuple[Any, ...]:
    """What a hook of a node returned in place of the gradients `old`."""
    n = len(old)
    if not isinstance(new, tuple):
        raise TypeError(f"expected tuple, but hook returned {type(new).__name__!r}; it returns a "
                        f"tuple of {n} or None")
    if len(new) != n:
        raise AutogradError(f"hook '{_name(hook)}' has returned an incorrect number of values "
                            f"(got {len(new)}, but expected {n})")
    return tuple([new_ if old_ is None or new_ is None else _replacing(old_, new_, hook)
                  for old_, new_ in zip(old, new, strict=True)])


def gone(walk: Any, node: Any) -> None:
    """A leaf that nobody holds got its cotangent: nothing to do, unless all leaves are variables
    of transforms that have ended. What a transform returns goes on to leaves of its caller."""
    if node.ended is not None and all([
            leaf.ended is not None for ends in walk.last.values() for leaf in ends]):
        raise TransformError(
            "backward() ends at the variable of a transform (grad) called at "
            f"{provenance.locate(node.ended.code, node.ended.lasti)}, which has returned: a value "
            "made inside of it has no derivative outside. Return it from the function (has_aux="
            "True) instead of storing it, or take the derivative with respect to a tensor of "
            "your own")


def freed_message(node: Any) -> str:
    """The text of the second-backward error, with both places."""
    text = ("Trying to backward through the graph a second time (or directly access saved tensors "
            "after they have already been freed). Saved intermediate values of the graph are freed "
            "when you call .backward() or autograd.grad(). Specify retain_graph=True if you need "
            "to backward through the graph a second time or if you need to access saved tensors "
            "after calling backward.\n"
            f"  node: {node.name()} made at {node.where()}")
    if node.freed is not None:
        place = provenance.locate(node.freed.code, node.freed.lasti)
        text += f"\n  freed by the backward at {place}"
    return text + ("\n  fix: run the forward again, sum the losses and call backward once, or pass "
                   "retain_graph=True to every backward but the last")
