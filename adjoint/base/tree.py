"""Trees of containers: dicts, lists, tuples, namedtuples, dataclasses, None, user-registered types.

`flatten(tree)` gives the leaves in order and a `Spec` that puts them back. Dicts are walked in
their own order, None is a tree without leaves.
"""
from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from adjoint.base.errors import ArgumentError


class Spec(NamedTuple):
    """The structure of a tree: node type, what rebuilds it, its children. A leaf has kind None."""

    kind: Any
    meta: Any
    children: tuple[Spec, ...]

    @property
    def leaves(self) -> int:
        """Number of leaves below."""
        return 1 if self.kind is None else sum(c.leaves for c in self.children)

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The tree with these leaves."""
        return unflatten(list(leaves), self)


class _Star:
    def __repr__(self) -> str:
        return "*"


LEAF, _STAR = Spec(None, None, ()), _Star()
_REGISTRY: dict[type, tuple[Callable[[Any], tuple[Sequence[Any], Any]],
                            Callable[[Any, Sequence[Any]], Any]]] = {}


def register_node(kind: type, flatten_node: Callable[[Any], tuple[Sequence[Any], Any]],
                  unflatten_node: Callable[[Any, Sequence[Any]], Any]) -> None:
    """Make instances of `kind` trees: `flatten_node(x) -> (children, meta)` and
    `unflatten_node(meta, children) -> x`.

    >>> class Pair:
    ...     def __init__(self, a, b): self.a, self.b = a, b
    >>> register_node(Pair, lambda p: ((p.a, p.b), None), lambda _, c: Pair(*c))
    >>> flatten(Pair(1, 2))[0]
    [1, 2]
    """
    if kind in _REGISTRY:
        raise ArgumentError(f"{kind.__name__} is already registered as a tree node")
    _REGISTRY[kind] = (flatten_node, unflatten_node)


Split = Callable[[Any], tuple[Any, Any, Sequence[Any]] | None]


def is_registered(kind: type) -> bool:
    """True for types that `register_node` was called for."""
    return kind in _REGISTRY


def split(x: Any) -> tuple[Any, Any, Sequence[Any]] | None:
    """(kind, meta, children) of an inner node; None for a leaf."""
    kind = type(x)
    if x is None:
        return type(None), None, ()
    if kind in (list, tuple):
        return kind, None, x
    if kind in (dict, OrderedDict):
        return kind, tuple(x), tuple(x.values())
    if kind is defaultdict:
        return kind, (x.default_factory, tuple(x)), tuple(x.values())
    if kind in _REGISTRY:
        children, meta = _REGISTRY[kind][0](x)
        return kind, meta, tuple(children)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return kind, None, x
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        names = tuple(f.name for f in dataclasses.fields(x))
        return kind, names, tuple(getattr(x, n) for n in names)
    return None


def _join(kind: Any, meta: Any, children: Sequence[Any]) -> Any:
    if kind is type(None):
        return None
    if kind in (list, tuple):
        return kind(children)
    if kind in (dict, OrderedDict):
        return kind(zip(meta, children, strict=True))
    if kind is defaultdict:
        return kind(meta[0], zip(meta[1], children, strict=True))
    if kind in _REGISTRY:
        return _REGISTRY[kind][1](meta, children)
    if meta is None:
        return kind(*children)
    made = object.__new__(kind)
    for name, value in zip(meta, children, strict=True):
        object.__setattr__(made, name, value)
    return made


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None, parts: Split = split
            ) -> tuple[list[Any], Spec]:
    """Leaves in order, and the structure.

    parts  how nodes are taken apart, where not as `split` does (`adjoint.jax` sorts the keys)

    >>> flatten({"a": 1, "b": (2, None)})[0]
    [1, 2]
    """
    leaves: list[Any] = []
    return leaves, _walk(tree, leaves, is_leaf, parts)


def _walk(x: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None, parts: Split) -> Spec:
    node = None if is_leaf is not None and is_leaf(x) else parts(x)
    if node is None:
        leaves.append(x)
        return LEAF
    kind, meta, children = node
    return Spec(kind, meta, tuple([_walk(c, leaves, is_leaf, parts) for c in children]))


def _rebuild(s: Spec, rest: Iterator[Any]) -> Any:
    if s.kind is None:
        return next(rest)
    return _join(s.kind, s.meta, [_rebuild(c, rest) for c in s.children])


def unflatten(leaves: Sequence[Any], spec: Spec) -> Any:
    """The tree of structure `spec` with these leaves."""
    if len(leaves) != spec.leaves:
        raise ArgumentError(f"unflatten: the structure has {spec.leaves} leaves, got "
                            f"{len(leaves)}")
    return _rebuild(spec, iter(leaves))


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any,
             is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """`f` at every leaf, of several trees of one structure."""
    leaves, spec = flatten(tree, is_leaf)
    others = []
    for r in rest:
        other, other_spec = flatten(r, is_leaf)
        if other_spec != spec:
            raise ArgumentError(f"tree_map: structures differ: {spec} and {other_spec}")
        others.append(other)
    return unflatten([f(*xs) for xs in zip(leaves, *others, strict=True)], spec)


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves in order."""
    return flatten(tree)[0]


def beside(tree: Any, spec: Spec, parts: Split = split) -> list[Any] | None:
    """What `tree` has for each leaf of `spec`: None for all leaves below a place where it has None
    (no derivative there), and as the answer where it has another structure. Dicts go by key.

    >>> beside({"b": 3, "a": None}, flatten({"a": (1, 2), "b": 3, "c": None})[1]) is None
    True
    >>> beside({"b": 3, "a": None, "c": None}, flatten({"a": (1, 2), "b": 3, "c": None})[1])
    [None, None, 3]
    """
    out: list[Any] = []
    return out if _match(tree, spec, out, parts) else None


def _match(x: Any, s: Spec, out: list[Any], parts: Split) -> bool:
    """Add what `x` has per leaf of `s`; False where the structures differ."""
    if x is None or s.kind is None:
        out.extend([x] * s.leaves)
        return x is None or parts(x) is None
    found = parts(x)
    children = () if found is None else found[2]
    if isinstance(x, dict) and s.kind in (dict, OrderedDict, defaultdict):
        keys = s.meta[1] if s.kind is defaultdict else s.meta
        if set(keys) != set(x):
            return False
        children = [x[k] for k in keys]
    return found is not None and len(children) == len(s.children) and all(
        [_match(c, child, out, parts) for c, child in zip(children, s.children, strict=True)])


def outline(spec: Spec) -> str:
    """The structure of a tree with a star for each leaf."""
    return repr(unflatten([_STAR] * spec.leaves, spec))


def broadcast_prefix(prefix: Any, spec: Spec, what: str, name: str, of: str) -> list[Any]:
    """One entry of `prefix` per leaf of `spec`: `prefix` may stop where the tree goes on (as
    `in_dims=0` for a whole tuple). An error begins with `what`, and calls the prefix `name` and
    what it goes with `of`."""
    out: list[Any] = []
    if not _spread(prefix, spec, out):
        raise ArgumentError(f"{what}: {name} is not compatible with the structure of `{of}`. "
                            f"{name} has structure {outline(flatten(prefix)[1])} but {of} has "
                            f"structure {outline(spec)}.")
    return out


def _spread(p: Any, s: Spec, out: list[Any]) -> bool:
    """Add one entry per leaf; False where the structures differ."""
    parts = None if p is None or isinstance(p, int) else split(p)
    if s.kind is None or parts is None:
        out.extend([p] * s.leaves)
        return parts is None
    kind, _, children = parts
    same = kind is s.kind or {kind, s.kind} <= {list, tuple}
    return same and len(children) == len(s.children) and all(
        [_spread(c, child, out) for c, child in zip(children, s.children, strict=True)])
