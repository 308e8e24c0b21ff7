"""Where two trees differ, in JAX's words."""
from __future__ import annotations

import difflib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from adjoint.base.tree import Spec

Split = Callable[[Any], Any]
Keys = Callable[..., Any]
_KEYED = (dict, OrderedDict, defaultdict)


def _kind(node: Any, x: Any) -> type:
    return type(x) if node is None else node[0]


def _sized(kind: type) -> bool:
    return kind in (list, tuple)


def differences(prefix: Any, tree: Any, is_leaf: Any, split: Split, keys: Keys, at: str = ""
                ) -> Iterator[str]:
    """What is wrong at every place where `prefix` is no prefix of `tree`; "{name}" stands for what
    the prefix is called."""
    if is_leaf is not None and is_leaf(prefix):
        return
    node, other = split(prefix), split(tree)
    if node is None:
        return
    words = _at_node(node, other, prefix, tree, at)
    if words is not None:
        yield words
        return
    for k, a, b in zip(keys(prefix, node[0], node[1], len(node[2])), node[2], other[2],
                       strict=True):
        yield from differences(a, b, is_leaf, split, keys, f"{at}{k}")


def _at_node(node: Any, other: Any, prefix: Any, tree: Any, at: str) -> str | None:
    """What is wrong with this very node, or None."""
    here = f"{{name}}{at}"
    here_too = ("\nAt that key path, the prefix pytree {name} has a subtree of type")
    kind, meta, children = node
    if _kind(other, tree) is not kind or other is None:
        return (f"pytree structure error: different types at key path\n    {here}{here_too}\n    "
                f"{kind}\nbut at the same key path the full pytree has a subtree of different type"
                f"\n    {type(tree)}.")
    count = len(other[2])
    if len(children) != count and _sized(kind):
        name = kind.__name__
        return (f"pytree structure error: different lengths of {name} at key path\n    {here}"
                f"{here_too} {name} of length {len(children)}, but the full pytree has a subtree "
                f"of the same type but of length {count}.")
    if len(children) != count:
        words = (f"pytree structure error: different numbers of pytree children at key path\n    "
                 f"{here}{here_too}\n    {kind}\nwith {len(children)} child keys\n    "
                 f"{_listed(prefix, kind)}\nbut at the same key path the full pytree has a subtree "
                 f"of the same type but with {count} child keys\n    {_listed(tree, kind)}")
        if kind in _KEYED:
            words += ("\nso the symmetric difference on key sets is\n    "
                      + " ".join(map(str, sorted(set(prefix) ^ set(tree), key=str))))
        return words
    if meta != other[1]:
        rows = "\n    ".join(difflib.ndiff(str(meta).splitlines(), str(other[1]).splitlines()))
        return (f"pytree structure error: different pytree metadata at key path\n    {here}"
                f"{here_too}\n    {kind}\nwith metadata\n    {meta}\nbut at the same key path the "
                f"full pytree has a subtree of the same type but with metadata\n    {other[1]}\nso "
                f"the diff in the metadata at these pytree nodes is\n    {rows}")
    return None


def _listed(x: Any, kind: type) -> str:
    return " ".join(map(str, sorted(x, key=str) if kind in _KEYED else []))


def structures_differ(a: Spec, b: Spec, at: str = "") -> tuple[str, str, str, str]:
    """(path, what stands there in one, what in the other, what differs) of two structures that
    are not the same."""
    def word(s: Spec) -> str:
        return "a pytree leaf" if s.kind is None else f"a {s.kind}"
    if a.kind is not b.kind:
        return at, word(a), word(b), "their Python types differ"
    sizes = len(a.children), len(b.children)
    if sizes[0] != sizes[1] and _sized(a.kind):
        own, other = (f"a {a.kind.__name__} of length {n}" for n in sizes)
        return at, own, other, "the lengths do not match"
    if sizes[0] != sizes[1]:
        own, other = (f"{word(a)} with {n} children" for n in sizes)
        return at, own, other, "the numbers of children do not match"
    if a.meta != b.meta:
        own, other = (f"{word(s)} with pytree metadata {s.meta}" for s in (a, b))
        return at, own, other, "the pytree node metadata does not match"
    for k, (x, y) in enumerate(zip(a.children, b.children, strict=True)):
        if x != y:
            name = a.meta[k] if isinstance(a.meta, tuple) and len(a.meta) > k else k
            return structures_differ(x, y, f"{at}[{name!r}]")
    return at, word(a), word(b), "they are not equal"


__all__ = ["differences", "structures_differ"]
