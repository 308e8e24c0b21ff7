"""Trees of containers, under the names and argument orders of PyTorch's helpers."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adjoint.base import tree

TreeSpec = tree.Spec
PyTree = Any
tree_flatten = tree.flatten
tree_map = tree.tree_map


def tree_unflatten(leaves: Sequence[Any], treespec: TreeSpec) -> Any:
    """The tree of a structure and its leaves."""
    return tree.unflatten(list(leaves), treespec)


def tree_map_(func: Callable[..., Any], tree_: Any, *rests: Any) -> Any:
    """`func` on every leaf for what it does; the tree is returned as it is."""
    tree_map(func, tree_, *rests)
    return tree_


def tree_map_only(kinds: Any, func: Callable[[Any], Any], tree_: Any) -> Any:
    """`func` on leaves of the given type(s); others stay."""
    return tree_map(lambda x: func(x) if isinstance(x, kinds) else x, tree_)


def tree_leaves(tree_: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """All leaves."""
    return tree.flatten(tree_, is_leaf)[0]


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """All leaves of the arguments of a call."""
    return tree_leaves((args, kwargs))


def tree_map_only_(kinds: Any, func: Callable[[Any], Any], tree_: Any) -> Any:
    """`func` on leaves of the given type(s) for what it does; the tree is returned as it is."""
    tree_map_only(kinds, func, tree_)
    return tree_


def tree_all_only(kinds: Any, pred: Callable[[Any], bool], tree_: Any) -> bool:
    """True if `pred` holds for every leaf of the given type(s)."""
    return all(pred(x) for x in tree_leaves(tree_) if isinstance(x, kinds))


def tree_any_only(kinds: Any, pred: Callable[[Any], bool], tree_: Any) -> bool:
    """True if `pred` holds for some leaf of the given type(s)."""
    return any(pred(x) for x in tree_leaves(tree_) if isinstance(x, kinds))


def tree_structure(tree_: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The structure."""
    return tree.flatten(tree_, is_leaf)[1]


def tree_all(pred: Callable[[Any], bool], tree_: Any) -> bool:
    """True if `pred` holds for every leaf."""
    return all(map(pred, tree_leaves(tree_)))


def tree_any(pred: Callable[[Any], bool], tree_: Any) -> bool:
    """True if `pred` holds for some leaf."""
    return any(map(pred, tree_leaves(tree_)))
