"""`autograd.graph`: saved-tensor hooks, gradient edges, hooks on several tensors."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from adjoint.base.errors import AutogradError
from adjoint.core.modes import watchers
from adjoint.core.tensor import (
    Kept,
    OutRef,
    Port,
    RemovableHandle,
    Tensor,
    alias,
    bump,
    edge_of,
    wrap,
)
from adjoint.core.tensor import Node as Node


class saved_tensors_hooks:
    """While active, what ops save goes through `pack_hook(tensor) -> anything` and comes back
    through `unpack_hook(that) -> tensor`. The innermost pair counts.

    >>> import adjoint as ad
    >>> x = ad.tensor([1.0, 2.0], requires_grad=True)
    >>> with ad.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), ad.from_numpy):
    ...     y = (x.exp() * 2).sum()
    >>> y.backward()
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any],
                 unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook
        self._held: list[Any] = []

    def __enter__(self) -> None:
        if _disabled:
            raise AutogradError(_disabled[-1])
        self._held.append(watchers.push(watchers.hooks, self))

    def __exit__(self, *exc: object) -> None:
        watchers.pop(self._held.pop())

    def pack(self, saved: Any, node: Any) -> Any:
        """Called by dispatch for every residual that is a tensor."""
        if isinstance(saved, OutRef):
            t = wrap(saved.array)
            t._cell = saved.cell
        else:
            t = saved.tensor if type(saved) is Kept else saved
            t = t if t.is_leaf else alias(t)
        before = t._cell.version if t._cell is not None else 0
        packed = self.pack_hook(t)
        if t._cell is not None and t._cell.version != before:
            raise AutogradError("A saved tensor pack hook is modifying its input in place. Tensors "
                                "provided as input to pack hook can not be modified by in-place "
                                "operations as this can lead to unexpected side-effects.")
        return packed

    def unpack(self, packed: Any, node: Any) -> Tensor:
        """Called by the engine when a residual is read."""
        t = self.unpack_hook(packed.value)
        if not isinstance(t, Tensor):
            raise TypeError("Output of saved tensor unpack_hook expected to be a Tensor but got "
                            f"result of type {type(t).__name__}")
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

    def __init__(self, pin_memory: bool = False, device_type: str = "cpu") -> None:
        super().__init__(lambda t: t.detach().clone(),
                         lambda t: t)


class GradientEdge(NamedTuple):
    """A place in the graph: a node and one of its outputs."""

    node: Any
    output_nr: int


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The place that the gradient of `tensor` flows to."""
    if not tensor._rg:
        raise AutogradError("It is not possible to get the gradient edge for a Tensor that does not"
                            " require gradients")
    e = edge_of(tensor)
    return GradientEdge(e.node, e.index) if type(e) is Port else GradientEdge(e, 0)


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *,
                             mode: str = "all") -> RemovableHandle:
    """Call `fn` once per backward: with the gradients of all `tensors` (mode "all"), or with the
    first one to arrive ("any")."""
    if mode not in ("all", "any"):
        raise AutogradError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    seen: dict[int, Any] = {}
    fired = [False]

    def reset() -> None:
        seen.clear()
        fired[0] = False

    def hook_for(i: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            from adjoint.autograd.engine import queue_callback
            if not seen and not fired[0]:
                queue_callback(reset)
            if mode == "any":
                if not fired[0]:
                    fired[0] = True
                    fn(grad)
                return
            seen[i] = grad
            if len(seen) == len(tensors):
                fn([seen[k] for k in range(len(tensors))])
        return hook

    handles = [t.register_hook(hook_for(i))
               for i, t in enumerate(tensors)]

    class Handles(RemovableHandle):
        """Removes the hook from every tensor."""

        def __init__(self) -> None:
            super().__init__({})

        def remove(self) -> None:
            for h in handles:
                h.remove()
    return Handles()


def increment_version(tensor: Any) -> None:
    """Say that `tensor` (or each of several) was written to by foreign code."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        bump(t, "increment_version")
