"""`jax.tree_util`: trees as JAX sees them. Dicts are walked in the order of their sorted keys, and
a dataclass is a leaf until it is registered.

>>> leaves, treedef = tree_flatten({"b": 1, "a": (2, None)})
>>> leaves, treedef
([2, 1], PyTreeDef({'a': (*, None), 'b': *}))
"""
from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from adjoint.base import tree as _base
from adjoint.base.errors import ArgumentError
from adjoint.jax import _mismatch

F = Callable[..., Any]
_PLAIN = (type(None), tuple, list, dict, defaultdict, OrderedDict)


def split(x: Any) -> tuple[Any, Any, Sequence[Any]] | None:
    """(kind, meta, children) of a node in JAX's order; None for a leaf."""
    kind = type(x)
    if kind is dict:
        try:
            keys = tuple(sorted(x))
        except TypeError:
            raise ValueError("Comparator raised exception while sorting pytree dictionary keys."
                             ) from None
        return dict, keys, [x[k] for k in keys]
    if kind is defaultdict:
        keys = tuple(sorted(x))
        return kind, (x.default_factory, keys), [x[k] for k in keys]
    if dataclasses.is_dataclass(x) and not _base.is_registered(kind):
        return None
    return _base.split(x)


def flat(tree: Any, is_leaf: F | None = None) -> tuple[list[Any], _base.Spec]:
    """(leaves, structure) in JAX's order."""
    return _base.flatten(tree, is_leaf, split)


class PyTreeDef:
    """The structure of a tree."""

    __slots__ = ("spec",)

    def __init__(self, spec: _base.Spec) -> None:
        self.spec = spec

    @property
    def num_leaves(self) -> int:
        """Number of leaves."""
        return self.spec.leaves

    @property
    def num_nodes(self) -> int:
        """Number of nodes, leaves among them."""
        return 1 + sum(PyTreeDef(c).num_nodes for c in self.spec.children)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves."""
        return tree_unflatten(self, leaves)

    def children(self) -> list[PyTreeDef]:
        """The structures below."""
        return [PyTreeDef(c) for c in self.spec.children]

    def node_data(self) -> Any:
        """(type, metadata) of the root; None for a leaf."""
        kind, meta, _ = self.spec
        return None if kind is None else (kind, list(meta) if kind is dict else meta)

    def walk(self, node: F, leaf: F | None, leaves: Iterable[Any]) -> Any:
        """The leaves folded up the tree: `leaf(x)` at every one (None: itself), and at every node
        `node(children, metadata)`."""
        rest = iter(leaves)

        def at(s: _base.Spec) -> Any:
            if s.kind is None:
                x = next(rest)
                return x if leaf is None else leaf(x)
            meta = list(s.meta) if s.kind is dict else s.meta
            return node(tuple([at(c) for c in s.children]), meta)
        return at(self.spec)

    def compose(self, inner: PyTreeDef) -> PyTreeDef:
        """This structure with `inner` in the place of every leaf."""
        return PyTreeDef(_graft(self.spec, inner.spec))

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of `tree` that stand where this structure has leaves."""
        out: list[Any] = []
        _up_to(self.spec, tree, out, "")
        return out

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PyTreeDef) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"PyTreeDef({_show(self.spec)})"


def _graft(spec: _base.Spec, inner: _base.Spec) -> _base.Spec:
    if spec.kind is None:
        return inner
    return spec._replace(children=tuple([_graft(c, inner) for c in spec.children]))


def _show(s: _base.Spec) -> str:
    inner = [_show(c) for c in s.children]
    if s.kind is None:
        return "*"
    if s.kind is type(None):
        return "None"
    if s.kind is tuple:
        return f"({inner[0]},)" if len(inner) == 1 else f"({', '.join(inner)})"
    if s.kind is list:
        return f"[{', '.join(inner)}]"
    if s.kind is dict:
        return "{" + ", ".join(f"{k!r}: {v}" for k, v in zip(s.meta, inner, strict=True)) + "}"
    if issubclass(s.kind, tuple):
        return f"CustomNode(namedtuple[{s.kind.__name__}], [{', '.join(inner)}])"
    return f"CustomNode({s.kind.__name__}[{s.meta}], [{', '.join(inner)}])"


def _up_to(spec: _base.Spec, x: Any, out: list[Any], where: str) -> None:
    if spec.kind is None:
        out.append(x)
        return
    node = split(x)
    if node is None or node[0] is not spec.kind:
        raise ValueError(f"Expected {spec.kind.__name__}, got {x!r:.200}.{where}")
    kind, meta, children = node
    if len(children) != len(spec.children):
        names = {list: "List", tuple: "Tuple"}
        raise ValueError(f"{names.get(kind, kind.__name__)} arity mismatch: {len(children)} != "
                         f"{len(spec.children)}; {kind.__name__}: {x!r:.200}.{where}")
    if meta != spec.meta and kind is dict:
        raise ValueError(f"Dict key mismatch; expected keys: {list(spec.meta)}; present keys: "
                         f"{list(meta)}.{where}")
    if meta != spec.meta:
        raise ValueError(f"Custom node mismatch; expected "
                         f"{spec.meta}, got {meta}; value: {x!r:.200}.{where}")
    for s, c in zip(spec.children, children, strict=True):
        _up_to(s, c, out, where)


# ------------------------------------------------------------------ functions
def tree_flatten(tree: Any, is_leaf: F | None = None) -> tuple[list[Any], PyTreeDef]:
    """(leaves, structure)."""
    leaves, spec = flat(tree, is_leaf)
    return leaves, PyTreeDef(spec)


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The tree of a structure with these leaves."""
    found = list(leaves)
    if len(found) != treedef.num_leaves:
        word = "few" if len(found) < treedef.num_leaves else "many"
        got = f", got {len(found)}" if word == "few" else "."
        raise ValueError(f"Too {word} leaves for PyTreeDef; expected {treedef.num_leaves}{got}")
    return _base.unflatten(found, treedef.spec)


def tree_leaves(tree: Any, is_leaf: F | None = None) -> list[Any]:
    """The leaves in order."""
    return flat(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: F | None = None) -> PyTreeDef:
    """The structure."""
    return PyTreeDef(flat(tree, is_leaf)[1])


def tree_map(f: F, tree: Any, *rest: Any, is_leaf: F | None = None) -> Any:
    """`f` at every leaf; the other trees may go on where the first one has a leaf.

    >>> tree_map(lambda x, y: x + y, {"a": 1, "b": 2}, {"a": 3, "b": 4})
    {'a': 4, 'b': 6}
    """
    leaves, treedef = tree_flatten(tree, is_leaf)
    try:
        others = [treedef.flatten_up_to(r) for r in rest]
    except ValueError as error:
        found = [told("tree_map tree") for r in rest for told in prefix_errors(tree, r, is_leaf)]
        raise (found or [error])[0] from None
    return tree_unflatten(treedef, [f(*xs) for xs in zip(leaves, *others, strict=True)])


tree_multimap = tree_map


def tree_reduce(function: F, tree: Any, initializer: Any = tree_map, is_leaf: F | None = None
                ) -> Any:
    """`functools.reduce` over the leaves."""
    start = () if initializer is tree_map else (initializer,)
    return functools.reduce(function, tree_leaves(tree, is_leaf), *start)


def tree_reduce_associative(operation: F, tree: Any, *, identity: Any = tree_map,
                            is_leaf: F | None = None) -> Any:
    """The leaves folded by an associative operation, pairs of neighbours at a time.

    >>> tree_reduce_associative(lambda a, b: a + b, {"a": 1, "b": [2, 3]})
    6
    """
    row = tree_leaves(tree, is_leaf)
    if not row:
        if identity is tree_map:
            raise ValueError("Must specify identity for parallel reduction of empty sequence.")
        return identity
    while len(row) > 1:
        pairs = [operation(a, b) for a, b in zip(row[::2], row[1::2], strict=False)]
        row = [*pairs, *row[len(pairs) * 2:]]
    return row[0]


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: F | None = None) -> Any:
    """The structure of a tree with the leaves of a prefix of it, each as often as it has leaves
    below; ValueError where it is no prefix."""
    leaves = prefix_leaves(prefix_tree, full_tree, is_leaf)
    return tree_unflatten(tree_structure(full_tree, is_leaf), leaves)


def is_tree_node(typ: type) -> bool:
    """True for a type whose values are nodes of trees."""
    return typ in _PLAIN or _base.is_registered(typ)


def flatten_one_level(tree: Any) -> tuple[Any, Any]:
    """(children, what else there is) of a node; ValueError for a leaf."""
    found = split(tree)
    if found is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}")
    kind, meta, children = found
    if kind is list or kind is tuple:
        return children, None
    return tuple(children), meta


def flatten_one_level_with_keys(tree: Any) -> tuple[Any, Any]:
    """The same, each child after its key."""
    children, meta = flatten_one_level(tree)
    found = split(tree)
    assert found is not None
    keys = _keys(tree, found[0], found[1], len(children))
    return tuple(zip(keys, children, strict=True)), meta


def tree_all(tree: Any, *, is_leaf: F | None = None) -> bool:
    """`all` of the leaves."""
    return all(tree_leaves(tree, is_leaf))


def tree_transpose(outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose:
                   Any) -> Any:
    """A tree of trees with the two structures exchanged."""
    rows = outer_treedef.flatten_up_to(pytree_to_transpose)
    inner = tree_structure(rows[0]) if inner_treedef is None else inner_treedef
    found, wanted = tree_structure(pytree_to_transpose), outer_treedef.compose(inner)
    if inner_treedef is not None and found != wanted:
        raise TypeError(f"Mismatch\n{found}\n != \n{wanted}")
    columns = zip(*[inner.flatten_up_to(r) for r in rows], strict=True)
    return inner.unflatten([outer_treedef.unflatten(c) for c in columns])


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """True for the structure of a single leaf."""
    return treedef.num_nodes == 1 and treedef.spec.kind is None


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees."""
    return PyTreeDef(_base.Spec(tuple, None, tuple([t.spec for t in treedefs])))


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures below the root."""
    return treedef.children()


def all_leaves(iterable: Iterable[Any], is_leaf: F | None = None) -> bool:
    """True if every entry is a leaf."""
    return all(split(x) is None or (is_leaf is not None and is_leaf(x)) for x in iterable)


def structures_differ(a: _base.Spec, b: _base.Spec) -> tuple[str, str]:
    """(path, what differs there) of two structures that are not the same."""
    where, own, other, what = _mismatch.structures_differ(a, b)
    return where, f"{own} and {other}, so {what}"


def prefix_leaves(prefix: Any, tree: Any, is_leaf: F | None = None) -> list[Any]:
    """One entry of `prefix` per leaf of `tree`; ValueError where it is no prefix of it."""
    entries, treedef = tree_flatten(prefix, is_leaf)
    parts = treedef.flatten_up_to(tree)
    return [e for e, p in zip(entries, parts, strict=True) for _ in tree_leaves(p)]


# ------------------------------------------------------------------ paths to leaves
KeyPath = tuple[Any, ...]                  # of the keys below


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """A place in a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"


@dataclasses.dataclass(frozen=True)
class DictKey:
    """A key of a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """A field of a namedtuple or a registered class."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclasses.dataclass(frozen=True)
class FlattenedIndexKey:
    """A child of a node that says no more of it than its number."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


_KEYS: dict[type, Callable[[Any], Sequence[Any]]] = {}      # type -> keys of the children


def _keys(x: Any, kind: Any, meta: Any, n: int) -> Sequence[Any]:
    if kind in _KEYS:
        return _KEYS[kind](x)
    if kind in (list, tuple):
        return [SequenceKey(i) for i in range(n)]
    if kind in (dict, OrderedDict):
        return [DictKey(k) for k in meta]
    if kind is defaultdict:
        return [DictKey(k) for k in meta[1]]
    if hasattr(kind, "_fields"):
        return [GetAttrKey(name) for name in kind._fields]
    return [FlattenedIndexKey(i) for i in range(n)]


def _paths(x: Any, at: tuple[Any, ...], is_leaf: F, out: list[Any]) -> None:
    node = None if is_leaf(at, x) else split(x)
    if node is None:
        out.append((at, x))
        return
    kind, meta, children = node
    for key, child in zip(_keys(x, kind, meta, len(children)), children, strict=True):
        _paths(child, (*at, key), is_leaf, out)


def tree_leaves_with_path(tree: Any, is_leaf: F | None = None,
                          is_leaf_takes_path: bool = False) -> list[Any]:
    """[(path, leaf), ...]. `is_leaf` takes a node, or with `is_leaf_takes_path` path and node."""
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def tree_flatten_with_path(tree: Any, is_leaf: F | None = None,
                           is_leaf_takes_path: bool = False) -> tuple[Any, PyTreeDef]:
    """([(path, leaf), ...], structure)."""
    out, said = list[Any](), list[bool]()    # said of every node in turn: the structure is theirs

    def asked(*node: Any) -> bool:
        said.append(is_leaf is not None and bool(is_leaf(*node[0 if is_leaf_takes_path else 1:])))
        return said[-1]
    _paths(tree, (), asked, out)
    again = iter(said)
    return out, tree_structure(tree, lambda _: next(again))


def tree_map_with_path(f: F, tree: Any, *rest: Any, is_leaf: F | None = None,
                       is_leaf_takes_path: bool = False) -> Any:
    """`f(path, leaf, ...)` at every leaf."""
    found, treedef = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    others = [treedef.flatten_up_to(r) for r in rest]
    return treedef.unflatten([f(p, x, *more) for (p, x), *more in zip(found, *others,
                                                                       strict=True)])


def keystr(keys: Sequence[Any], *, simple: bool = False, separator: str = "") -> str:
    """A path as it is written in Python.

    >>> keystr((DictKey("a"), SequenceKey(0)))
    "['a'][0]"
    """
    if not simple:
        return separator.join(map(str, keys))
    return separator.join(str(next(iter(vars(k).values()))) for k in keys)


# ------------------------------------------------------------------ registration
def register_pytree_node(nodetype: type, flatten_func: F, unflatten_func: F,
                         flatten_with_keys_func: F | None = None) -> None:
    """Make a class a node: `flatten_func(x) -> (children, aux)`, `unflatten_func(aux, children)`.
    ValueError where it is one already."""
    try:
        if nodetype in _PLAIN:
            raise ArgumentError(nodetype)
        _base.register_node(nodetype, flatten_func, unflatten_func)
    except ArgumentError:
        raise ValueError(f"Duplicate custom PyTreeDef type registration for {nodetype}.") from None
    if flatten_with_keys_func is not None:
        of = flatten_with_keys_func
        _KEYS[nodetype] = lambda x: [k for k, _ in of(x)[0]]


def register_pytree_with_keys(nodetype: type, flatten_with_keys: F, unflatten_func: F,
                              flatten_func: F | None = None) -> None:
    """`register_pytree_node` with the children as (key, child) pairs."""
    def plain(x: Any) -> Any:
        pairs, aux = flatten_with_keys(x)
        return tuple(c for _, c in pairs), aux
    register_pytree_node(nodetype, flatten_func or plain, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: Any) -> Any:
    """Class decorator: the class has `tree_flatten` and the classmethod `tree_unflatten`."""
    register_pytree_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)
    return cls


def register_pytree_with_keys_class(cls: Any) -> Any:
    """Class decorator: the class has `tree_flatten_with_keys` and `tree_unflatten`."""
    register_pytree_with_keys(cls, lambda x: x.tree_flatten_with_keys(), cls.tree_unflatten)
    return cls


def register_dataclass(nodetype: Any, data_fields: Sequence[str] | None = None,
                       meta_fields: Sequence[str] | None = None, drop_fields: Sequence[str] = ()
                       ) -> Any:
    """Make a dataclass a node: `data_fields` are children, `meta_fields` belong to the structure
    (default: fields whose metadata says `static=True`)."""
    if data_fields is None or meta_fields is None:
        if not dataclasses.is_dataclass(nodetype):
            raise TypeError("register_dataclass: data_fields and meta_fields are required when "
                            f"nodetype is not a dataclass. Got nodetype={nodetype}.")
        own = [f for f in dataclasses.fields(nodetype) if f.init and f.name not in drop_fields]
        meta_fields = [f.name for f in own if f.metadata.get("static", False)]
        data_fields = [f.name for f in own if f.name not in meta_fields]
    elif dataclasses.is_dataclass(nodetype):
        init = {f.name for f in dataclasses.fields(nodetype) if f.init} - set(drop_fields)
        given = {*data_fields, *meta_fields}
        if given != init:
            gap = f"Missing fields: {init - given}. Add them to drop_fields to suppress this error."
            raise ValueError("data_fields and meta_fields must include all dataclass fields with "
                             "``init=True`` and only them. " + (gap if init - given else
                             f"Unexpected fields: {given - init}."))
    data, meta = tuple(data_fields), tuple(meta_fields)

    def taken(x: Any) -> Any:
        return tuple(getattr(x, n) for n in data), tuple(getattr(x, n) for n in meta)

    def made(aux: Any, children: Any) -> Any:
        return nodetype(**dict(zip(meta, aux, strict=True)), **dict(zip(data, children,
                                                                        strict=True)))
    register_pytree_node(nodetype, taken, made, lambda x: (
        [(GetAttrKey(n), getattr(x, n)) for n in data], None))
    return nodetype


def register_static(cls: Any) -> Any:
    """Class decorator: instances are structure without leaves; they must hash and compare."""
    register_pytree_node(cls, lambda x: ((), x), lambda aux, _: aux)
    return cls


class Partial(functools.partial[Any]):
    """`functools.partial` as a node: its arguments are children, its function is structure."""


def _partial_parts(p: Any) -> Any:
    return (p.args, p.keywords), p.func


register_pytree_node(Partial, _partial_parts, lambda func, xs: Partial(func, *xs[0], **xs[1]))


# ------------------------------------------------------------------ what JAX's own modules ask
class _Registry:
    """The table of node types, as an object."""

    def flatten(self, tree: Any, is_leaf: F | None = None) -> tuple[list[Any], PyTreeDef]:
        """(leaves, structure)."""
        return tree_flatten(tree, is_leaf)

    def flatten_one_level(self, x: Any) -> tuple[Any, Any] | None:
        """(children, metadata) of a node; None for a leaf."""
        return None if split(x) is None else flatten_one_level(x)

    def __contains__(self, kind: Any) -> bool:
        return kind in (list, tuple, dict, OrderedDict, defaultdict, type(None)) or (
            _base.is_registered(kind))

    def get(self, kind: Any, default: Any = None) -> Any:
        """What knows how nodes of that type are taken apart; `default` for leaves."""
        return self[kind] if kind in self else default

    def __getitem__(self, kind: Any) -> Any:
        if kind not in self:
            raise KeyError(kind)
        return _Entry(flatten_one_level, lambda meta, xs: _base.unflatten(
            list(xs), _base.Spec(kind, meta, (_base.LEAF,) * len(tuple(xs)))))


@dataclasses.dataclass(frozen=True)
class _Entry:
    """How nodes of one type are taken apart and made."""

    to_iter: F
    from_iter: F


KeyEntry = Any
default_registry = _registry = _Registry()


def broadcast_prefix(prefix_tree: Any, full_tree: Any, is_leaf: F | None = None) -> list[Any]:
    """The leaves of a prefix, each as often as the tree has leaves below it."""
    return prefix_leaves(prefix_tree, full_tree, is_leaf)


def prefix_errors(prefix_tree: Any, full_tree: Any, is_leaf: F | None = None) -> list[F]:
    """Where a tree is no prefix of another one: functions from the name of the prefix to the
    error in words.

    >>> print(prefix_errors((1, 2), (1, 2, 3))[0]("in_axes"))
    pytree structure error: different lengths of tuple at key path
        in_axes
    At that key path, the prefix pytree in_axes has a subtree of type tuple of length 2, but the \
full pytree has a subtree of the same type but of length 3.
    """
    return [lambda name, words=words: ValueError(words.replace("{name}", name)) for words in
            _mismatch.differences(prefix_tree, full_tree, is_leaf, split, _keys)]
