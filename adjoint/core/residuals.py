"""What a node has saved: handed to saved-tensor hooks when it is made, read when its rule runs."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjoint.core.modes import watchers
from adjoint.core.tensor import Kept, OutRef, Packed, Port, Tensor, wrap
from adjoint.core.versions import verify


def watch(node: Any, args: Sequence[Any], made: Sequence[Any]) -> None:
    """The full path: saved-tensor hooks pack the residuals, observers see the node."""
    pack_all(node)
    for observer in watchers.observers.get():
        observer.forward(node, args, made)


def pack_all(node: Any) -> None:
    """Hand the residuals to the innermost hooks."""
    hooks = watchers.hooks.get()
    if hooks and node.saved is not None:
        node.saved = hooks[-1].packs(node)


def pack_made(made: Sequence[Any]) -> None:
    """`pack_all` for the node of an op's results that machine code has recorded, if it has."""
    for t in made:
        node = t._edge.node if type(t._edge) is Port else t._edge
        if node is not None:
            if node.saved is not None:
                node.saved = watchers.hooks.get()[-1].packs(node)
            return


def unpack(node: Any) -> bool:
    """Bring back what hooks have packed of a node that is about to run, and whose residuals are
    released then. False if nothing was packed."""
    saved = node.saved if node.plan is not None else None
    if type(saved) is not tuple or not any([type(s) is Packed for s in saved]):
        return False
    node.saved = tuple([_as_made(s.hook.unpack(s, node)) if type(s) is Packed else s
                        for s in saved])
    return True


def _as_made(t: Any) -> Any:
    """What a hook gave back, as a node keeps it: nobody else writes to it."""
    return t if t.level or t._cell is None and t._edge is None else wrap(t.array)


def pack_each(hook: Any, node: Any) -> tuple[Any, ...]:
    """The residuals, packed one by one. Values of transforms go to hooks that were entered inside
    of those (up to level `levels`): no other may hold on to them."""
    held: dict[int, Packed] = {}
    found: list[Any] = []
    for i, s in enumerate(node.saved):
        if type(s) is tuple:
            found.append(tuple([_pack(x, node, hook, i, held) for x in s]))
        else:
            found.append(_pack(s, node, hook, i, held))
    return tuple(found)


def _pack(s: Any, node: Any, hook: Any, i: int, held: dict[int, Packed]) -> Any:
    """Residual `i`, or one of several there; `held` has those that were packed."""
    if not isinstance(s, (Tensor, OutRef, Kept)) or level_of(s) > hook.levels:
        return s
    if not hook.once:
        return packed(s, node, hook, i)
    key = id(s.tensor if type(s) is Kept else s)
    same = held.get(key)
    if same is None:
        same = held[key] = packed(s, node, hook, i)
    return same if same.index == i else Packed(same.value, hook, same.original, i)


def packed(saved: Any, node: Any, hook: Any, index: int) -> Packed:
    """Residual `index` of a node, packed by that hook."""
    return Packed(hook.pack(saved, node), hook, light(saved), index)


def level_of(saved: Any) -> int:
    """The level of a residual; 0 for a plain one."""
    value = saved.array if type(saved) is OutRef else saved
    return value.level if isinstance(value, Tensor) else 0


def light(saved: Any) -> Any:
    """What stays of a packed residual: for its gradient edge, not for its data."""
    if isinstance(saved, OutRef):
        return saved.index
    t = saved.tensor if type(saved) is Kept else saved
    return t._edge if t._rg else None


def value_of(saved: Any, node: Any) -> Any:
    """The array of a residual after its version was checked; numbers and avals pass through."""
    kind = type(saved)
    if kind is OutRef:
        if saved.cell.touched:
            verify(saved, node)
        return saved.array
    if kind is Kept:
        cell = saved.tensor._cell
        if cell.exposed or cell.version != saved.version:
            verify(saved, node)
        t = saved.tensor
        return t.array if not t.level else t.trace.strip(t)
    if isinstance(saved, Tensor):
        if saved._cell is not None and saved._cell.touched:
            verify(saved, node)
        return saved.array if not saved.level else saved.trace.strip(saved)
    if kind is tuple:
        return tuple([value_of(s, node) for s in saved])
    if kind is Packed:
        t = saved.hook.unpack(saved, node)
        return t if t.level else t.array
    return saved


def tensor_of(saved: Any, node: Any) -> Any:
    """A residual as a tensor that is connected to the graph, after its version was checked."""
    kind = type(saved)
    if kind is OutRef:
        value_of(saved, node)
        if isinstance(saved.array, Tensor):
            t = saved.array.trace.strip(saved.array)
        else:
            t = wrap(saved.array)
        t._cell = saved.cell
        t._rg = True
        t._edge = Port(node, saved.index, saved.array.shape, saved.array.dtype) \
            if node.ports else node
        if node.ports and saved.index >= node.ports:      # a hidden output has no edge
            t._rg, t._edge = False, None
        return t
    if isinstance(saved, Tensor) or kind is Kept:
        value_of(saved, node)
        return saved.tensor if kind is Kept else saved
    if kind is tuple:
        return tuple([tensor_of(s, node) for s in saved])
    if kind is Packed:
        t = saved.hook.unpack(saved, node)
        edge = saved.original
        if type(edge) is int:
            edge = Port(node, edge, t.array.shape, t.array.dtype) if node.ports else node
        if edge is not None:
            t = t.trace.strip(t) if t.level else wrap(t.array)
            t._rg, t._edge = True, edge
        return t
    return saved


__all__ = ["level_of", "light", "pack_all", "pack_each", "pack_made", "packed", "tensor_of",
           "unpack", "value_of", "watch"]
