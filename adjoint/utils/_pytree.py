"""Trees of containers, as PyTorch's helpers of these names see them: None is a leaf, a dataclass is
one until it is registered. Lists, tuples, named tuples, dicts, ordered and default dicts, deques
and registered classes are nodes; their walk is that of `base.tree`.

    >>> leaves, spec = tree_flatten({"b": [1, None], "a": 2})
    >>> leaves, spec.num_nodes
    ([1, None, 2], 5)
    >>> tree_unflatten([x and 2 * x for x in leaves], spec)
    {'b': [2, None], 'a': 4}
"""
from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from adjoint.base import tree
from adjoint.base.errors import missing
from adjoint.utils._pytree_keys import GetAttrKey, MappingKey, SequenceKey

PyTree = Any
Context = Any
Leaf = Callable[[Any], bool] | None


class NodeDef(NamedTuple):
    """How nodes of a type are taken apart and put together."""

    type: Any
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten_fn: Callable[[Any, Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[Iterable[Any], Any]] | None


def _sequence(kind: Any) -> NodeDef:
    return NodeDef(kind, lambda x: (list(x), None), lambda c, _: kind(c),
                   lambda x: ([(SequenceKey(i), v) for i, v in enumerate(x)], None))


def _mapping(kind: Any) -> NodeDef:
    return NodeDef(kind, lambda x: (list(x.values()), list(x)),
                   lambda c, keys: kind(zip(keys, c, strict=True)),
                   lambda x: ([(MappingKey(k), v) for k, v in x.items()], list(x)))


_NAMED = NodeDef(
    "namedtuple", lambda x: (list(x), type(x)), lambda c, kind: kind(*c),
    lambda x: ([(GetAttrKey(n), v) for n, v in zip(x._fields, x, strict=True)], type(x)))
SUPPORTED_NODES: dict[Any, NodeDef] = {
    list: _sequence(list), tuple: _sequence(tuple), dict: _mapping(dict),
    OrderedDict: _mapping(OrderedDict), namedtuple: _NAMED,
    deque: NodeDef(deque, lambda x: (list(x), x.maxlen), deque, _sequence(deque)[3]),
    defaultdict: NodeDef(
        defaultdict, lambda x: (list(x.values()), [x.default_factory, list(x)]),
        lambda c, m: defaultdict(m[0], zip(m[1], c, strict=True)),
        lambda x: ([(MappingKey(k), v) for k, v in x.items()], [x.default_factory, list(x)]))}
# Containers of one's own that are a dict or a list inside are registered with these.
_, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys = SUPPORTED_NODES[dict]
_, _list_flatten, _list_unflatten, _list_flatten_with_keys = SUPPORTED_NODES[list]
_, _tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys = SUPPORTED_NODES[tuple]


def register_pytree_node(cls: type, flatten_fn: Any, unflatten_fn: Any, *,
                         serialized_type_name: str | None = None, to_dumpable_context: Any = None,
                         from_dumpable_context: Any = None,
                         flatten_with_keys_fn: Any = None) -> None:
    """Make objects of a class nodes: `flatten_fn(x) -> (children, context)` and
    `unflatten_fn(children, context) -> x`. ValueError for a class that is registered."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be "
                         "None or registered.")
    if serialized_type_name is not None:
        _WRITTEN[cls] = Written(serialized_type_name, to_dumpable_context or json.dumps,
                                from_dumpable_context or json.loads)
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


def register_constant(cls: type) -> None:
    """Make objects of a class nodes without leaves: they are part of the structure, and compared
    with `==` as such."""
    for name in ("__eq__", "__hash__"):
        if getattr(cls, name) in (getattr(object, name), None):
            raise TypeError("register_constant(cls) expects `cls` to have a non-default "
                            f"`{name}` implementation.")
    register_pytree_node(cls, lambda x: ([], x), lambda _, x: x,
                         flatten_with_keys_fn=lambda x: ([], x))
    CONSTANT_NODES.add(cls)


CONSTANT_NODES: set[type] = set()


def is_constant_class(cls: type) -> bool:
    """Whether a class was given to `register_constant`."""
    return isinstance(cls, type) and cls in CONSTANT_NODES


def register_dataclass(cls: Any, *, field_names: Sequence[str] | None = None,
                       drop_field_names: Sequence[str] | None = None,
                       serialized_type_name: str | None = None) -> None:
    """Make objects of a dataclass nodes: their fields that are no None are the children."""
    names = [f.name for f in dataclasses.fields(cls)] if field_names is None else list(field_names)
    names = [n for n in names if n not in (drop_field_names or ())]

    def split(x: Any) -> Any:
        there = [n for n in names if getattr(x, n) is not None]
        return [getattr(x, n) for n in there], [there, [n for n in names if n not in there]]

    def keyed(x: Any) -> Any:
        values, context = split(x)
        return list(zip(map(GetAttrKey, context[0]), values, strict=True)), context

    register_pytree_node(
        cls, split, lambda c, m: cls(**dict(zip(m[0], c, strict=True)), **dict.fromkeys(m[1])),
        flatten_with_keys_fn=keyed, serialized_type_name=serialized_type_name)


class Written(NamedTuple):
    """How a type of node is written down: its name, its context as what JSON takes, and back."""

    name: str
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


def _factory_written(context: Any) -> dict[str, Any]:
    return {"default_factory_module": context[0].__module__,
            "default_factory_name": context[0].__qualname__, "dict_context": context[1]}


def _factory_read(said: Any) -> list[Any]:
    home = import_module(said["default_factory_module"])
    return [getattr(home, said["default_factory_name"]), said["dict_context"]]


def _tuple_class_written(cls: Any) -> str:
    if cls not in _TUPLE_CLASSES:
        raise NotImplementedError(f"Can't serialize TreeSpec of namedtuple class {cls} because we "
                                  "didn't register a serializated_type_name. Please register using "
                                  "`_register_namedtuple`.")
    return _TUPLE_CLASSES[cls]


def _tuple_class_read(name: str) -> Any:
    for cls, said in _TUPLE_CLASSES.items():
        if said == name:
            return cls
    raise NotImplementedError(f"Can't deserialize TreeSpec of namedtuple class {name} because we "
                              "couldn't find a serializated name.")


def _register_namedtuple(cls: Any, *, serialized_type_name: str) -> None:
    """Let structures with a class that `namedtuple` made be written, under a name."""
    _TUPLE_CLASSES[cls] = serialized_type_name


_TUPLE_CLASSES: dict[Any, str] = {}
_WRITTEN: dict[Any, Written] = {
    **{t: Written(f"builtins.{t.__name__}", json.dumps, json.loads) for t in (list, tuple, dict)},
    **{t: Written(f"collections.{t.__name__}", json.dumps, json.loads)
       for t in (OrderedDict, deque)},
    defaultdict: Written("collections.defaultdict", _factory_written, _factory_read),
    namedtuple: Written("collections.namedtuple", _tuple_class_written, _tuple_class_read)}
_PROTOCOL = 1                   # of PyTorch's files: what is written here is read there


class _Build:
    """The kind of a node in `base.tree`: makes the node of its children."""

    def __init__(self, node: NodeDef, context: Any) -> None:
        self.node, self.context = node, context

    def __call__(self, *children: Any) -> Any:
        return self.node.unflatten_fn(list(children), self.context)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Build) and (self.node.type, self.context) == (
            other.node.type, other.context)

    def __hash__(self) -> int:
        return hash(self.node.type)


def _node_of(x: Any) -> NodeDef | None:
    found = SUPPORTED_NODES.get(type(x))
    if found is None and is_namedtuple_instance(x):
        return _NAMED
    return found


def _get_node_type(tree: Any) -> Any:
    """The class under which `SUPPORTED_NODES` has an object: namedtuple's for all of its kind."""
    return namedtuple if is_namedtuple_instance(tree) else type(tree)


def is_structseq_instance(obj: Any) -> bool:
    """True for results of several parts (`torch.return_types`) and the like of `os.stat()`."""
    return is_structseq_class(type(obj))


def is_structseq_class(cls: Any) -> bool:
    """True for classes of such results."""
    return (isinstance(cls, type) and tuple in cls.__bases__
            and isinstance(getattr(cls, "n_sequence_fields", None), int))


def is_namedtuple_class(cls: Any) -> bool:
    """True for a class that `namedtuple` made, and not for a subclass of it."""
    return (isinstance(cls, type) and cls.__bases__ == (tuple,)
            and isinstance(getattr(cls, "_fields", None), tuple))


def is_namedtuple_instance(obj: Any) -> bool:
    """True for objects of such a class."""
    return is_namedtuple_class(type(obj))


def _parts(x: Any) -> Any:
    node = _node_of(x)
    if node is None:
        return None
    children, context = node.flatten_fn(x)
    return _Build(node, context), None, tuple(children)


class TreeSpec:
    """The structure of a tree."""

    _spec: tree.Spec

    def __init__(self, type: Any, context: Any = None,  # noqa: A002  # PyTorch's name
                 children_specs: Iterable[TreeSpec] = ()) -> None:
        self._spec = tree.LEAF if type is None else tree.Spec(
            _Build(SUPPORTED_NODES[type], context), None, tuple(c._spec for c in children_specs))

    @classmethod
    def _of(cls, spec: tree.Spec) -> TreeSpec:
        made = cls.__new__(cls)
        made._spec = spec
        return made

    @property
    def type(self) -> Any:
        """The node's type; None for a leaf. Of a named tuple `collections.namedtuple`."""
        return None if self.is_leaf() else self._spec.kind.node.type

    @property
    def context(self) -> Any:
        """What the node's class adds: the keys of a dict."""
        return None if self.is_leaf() else self._spec.kind.context

    @property
    def num_leaves(self) -> int:
        """Leaves below."""
        return self._spec.leaves

    @property
    def num_children(self) -> int:
        """Children of the node."""
        return len(self._spec.children)

    @property
    def num_nodes(self) -> int:
        """Nodes below, itself and the leaves included."""
        return 1 + sum(c.num_nodes for c in self.children())

    def children(self) -> list[TreeSpec]:
        """The structures of the children."""
        return [TreeSpec._of(c) for c in self._spec.children]

    children_specs = property(children)

    def child(self, index: int) -> TreeSpec:
        """The structure of one child."""
        return TreeSpec._of(self._spec.children[index])

    def is_leaf(self) -> bool:
        """True for a leaf."""
        return self._spec.kind is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves; ValueError where there are too many or too few."""
        given = list(leaves)
        if len(given) != self.num_leaves:
            raise ValueError(f"treespec.unflatten(leaves): `leaves` has length {len(given)} but "
                             f"the spec refers to a pytree that holds {self.num_leaves} items "
                             f"({self}).")
        return tree.unflatten(given, self._spec)

    def flatten_up_to(self, tree_: Any) -> list[Any]:
        """The parts of a tree of this structure that stand where leaves are; ValueError where the
        structures differ above them."""
        if self.is_leaf():
            return [tree_]
        parts = _parts(tree_)
        if parts is None or parts[0].node.type != self.type:
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got "
                             f"{type(tree_)!r}.")
        if len(parts[2]) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got "
                             f"{len(parts[2])}.")
        children = parts[2]
        if parts[0].context != self.context:
            if self.type not in (dict, OrderedDict, defaultdict) or set(tree_) != set(self._keys()):
                raise ValueError(f"Node context mismatch for {self.type!r}: expected "
                                 f"{self.context!r}, but got {parts[0].context!r}.")
            children = [tree_[k] for k in self._keys()]
        return [leaf for s, c in zip(self.children(), children, strict=True)
                for leaf in s.flatten_up_to(c)]

    def _keys(self) -> list[Any]:
        keys: list[Any] = self.context[1] if self.type is defaultdict else self.context
        return keys

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and self._spec == other._spec

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves))

    def __repr__(self) -> str:
        if self.is_leaf():
            return "*"
        inner = (",\n".join(map(repr, self.children()))).replace("\n", "\n  ")
        name = getattr(self.type, "__name__", self.type)
        return f"TreeSpec({name}, {self.context}, [{inner}])"


PyTreeSpec = TreeSpec


def LeafSpec() -> TreeSpec:
    """The structure of a leaf."""
    return TreeSpec._of(tree.LEAF)


treespec_leaf = LeafSpec


def _written(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    how = _WRITTEN.get(namedtuple if spec.type == "namedtuple" else spec.type)
    if how is None:
        raise NotImplementedError(f"No registered serialization name for {spec.type} found. Please "
                                  "update your _register_pytree_node call with a "
                                  "`serialized_type_name` kwarg.")
    return {"type": how.name, "context": how.dump(spec.context),
            "children_spec": [_written(c) for c in spec.children()]}


def _read(said: dict[str, Any]) -> TreeSpec:
    if said["type"] is None:
        return LeafSpec()
    for kind, how in _WRITTEN.items():
        if how.name == said["type"]:
            return TreeSpec(kind, how.load(said["context"]), map(_read, said["children_spec"]))
    raise NotImplementedError(f"Deserializing {said['type']} in pytree is not registered.")


def _known_protocol(protocol: Any) -> None:
    if protocol != _PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A structure as JSON, in PyTorch's form."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError("Expected `treespec` to be an instance of PyTreeSpec but got item of type "
                        f"{type(treespec)}.")
    _known_protocol(_PROTOCOL if protocol is None else protocol)
    return json.dumps([_PROTOCOL, _written(treespec)])


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that `treespec_dumps` wrote."""
    protocol, said = json.loads(serialized)
    _known_protocol(protocol)
    return _read(said)


def treespec_pprint(treespec: TreeSpec) -> str:
    """The tree with stars for leaves."""
    star = type("_Star", (), {"__repr__": lambda self: "*"})()
    return repr(tree_unflatten([star] * treespec.num_leaves, treespec))


def treespec_tuple(iterable: Iterable[TreeSpec] = ()) -> TreeSpec:
    """The structure of a tuple of these."""
    return TreeSpec(tuple, None, iterable)


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The structure of a dict of these."""
    given = dict(mapping, **kwargs)
    return TreeSpec(dict, list(given), given.values())


def tree_flatten(tree_: Any, is_leaf: Leaf = None) -> tuple[list[Any], TreeSpec]:
    """Leaves in order, and the structure; what `is_leaf` says is one is not taken apart."""
    leaves, spec = tree.flatten(tree_, is_leaf, _parts)
    return leaves, TreeSpec._of(spec)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of a structure and its leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError("tree_unflatten(leaves, treespec): Expected `treespec` to be instance of "
                        f"PyTreeSpec but got item of type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_map(func: Callable[..., Any], tree_: Any, *rests: Any, is_leaf: Leaf = None) -> Any:
    """`func` at every leaf, of several trees: the others may go on below the first's leaves.

    >>> tree_map(lambda a, b: (a, b), [1, 2], [3, [4, 5]])
    [(1, 3), (2, [4, 5])]
    """
    leaves, spec = tree_flatten(tree_, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(*xs) for xs in zip(leaves, *others, strict=True)])


def tree_map_(func: Callable[..., Any], tree_: Any, *rests: Any, is_leaf: Leaf = None) -> Any:
    """`func` on every leaf for what it does; the tree is returned as it is."""
    tree_map(func, tree_, *rests, is_leaf=is_leaf)
    return tree_


def map_only(kinds: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Decorator: a function that leaves values of other types (or, given a predicate, those it
    says no to) as they are."""
    fits = kinds if callable(kinds) and not isinstance(kinds, type) else (
        lambda x: isinstance(x, kinds))

    def decorate(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: func(x) if fits(x) else x
    return decorate


def tree_map_only(kinds: Any, func: Callable[[Any], Any], tree_: Any, is_leaf: Leaf = None) -> Any:
    """`func` on leaves of the given type(s); others stay."""
    return tree_map(map_only(kinds)(func), tree_, is_leaf=is_leaf)


def tree_map_only_(kinds: Any, func: Callable[[Any], Any], tree_: Any, is_leaf: Leaf = None) -> Any:
    """`func` on leaves of the given type(s) for what it does; the tree is returned as it is."""
    return tree_map_(map_only(kinds)(func), tree_, is_leaf=is_leaf)


def tree_leaves(tree_: Any, is_leaf: Leaf = None) -> list[Any]:
    """All leaves."""
    return tree_flatten(tree_, is_leaf)[0]


def tree_iter(tree_: Any, is_leaf: Leaf = None) -> Iterator[Any]:
    """The leaves, one after the other."""
    return iter(tree_leaves(tree_, is_leaf))


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """All leaves of the arguments of a call."""
    return tree_leaves((args, kwargs))


def tree_structure(tree_: Any, is_leaf: Leaf = None) -> TreeSpec:
    """The structure."""
    return tree_flatten(tree_, is_leaf)[1]


def tree_is_leaf(tree_: Any, is_leaf: Leaf = None) -> bool:
    """True if the object itself is a leaf."""
    return is_leaf is not None and is_leaf(tree_) or _node_of(tree_) is None


def tree_all(pred: Callable[[Any], bool], tree_: Any, is_leaf: Leaf = None) -> bool:
    """True if `pred` holds for every leaf."""
    return all(map(pred, tree_leaves(tree_, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree_: Any, is_leaf: Leaf = None) -> bool:
    """True if `pred` holds for some leaf."""
    return any(map(pred, tree_leaves(tree_, is_leaf)))


def tree_all_only(kinds: Any, pred: Callable[[Any], bool], tree_: Any, is_leaf: Leaf = None
                  ) -> bool:
    """True if `pred` holds for every leaf of the given type(s)."""
    return all(pred(x) for x in tree_leaves(tree_, is_leaf) if isinstance(x, kinds))


def tree_any_only(kinds: Any, pred: Callable[[Any], bool], tree_: Any, is_leaf: Leaf = None
                  ) -> bool:
    """True if `pred` holds for some leaf of the given type(s)."""
    return any(pred(x) for x in tree_leaves(tree_, is_leaf) if isinstance(x, kinds))


def _paths(x: Any, path: tuple[Any, ...], is_leaf: Leaf) -> Iterator[tuple[Any, Any]]:
    node = _node_of(x)
    if node is None or is_leaf is not None and is_leaf(x):
        yield path, x
        return
    if node.flatten_with_keys_fn is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {type(x)}. Please pass a "
                         "flatten_with_keys_fn argument to register_pytree_node.")
    for key, child in node.flatten_with_keys_fn(x)[0]:
        yield from _paths(child, (*path, key), is_leaf)


def tree_flatten_with_path(tree_: Any, is_leaf: Leaf = None) -> tuple[list[Any], TreeSpec]:
    """[(path, leaf), ...] and the structure.

    >>> keystr(tree_flatten_with_path({"a": [1, 2]})[0][1][0])
    "['a'][1]"
    """
    return list(_paths(tree_, (), is_leaf)), tree_structure(tree_, is_leaf)


def tree_leaves_with_path(tree_: Any, is_leaf: Leaf = None) -> list[Any]:
    """[(path, leaf), ...]."""
    return list(_paths(tree_, (), is_leaf))


def tree_map_with_path(func: Callable[..., Any], tree_: Any, *rests: Any,
                       is_leaf: Leaf = None) -> Any:
    """`func(path, leaf, ...)` at every leaf."""
    paths = [path for path, _ in _paths(tree_, (), is_leaf)]
    leaves, spec = tree_flatten(tree_, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(*xs) for xs in zip(paths, leaves, *others, strict=True)])


def keystr(kp: Iterable[Any]) -> str:
    """A path as it is written in Python."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: Iterable[Any]) -> Any:
    """What stands at a path of a tree."""
    for key in kp:
        obj = key.get(obj)
    return obj


def _broadcast_to_and_flatten(tree_: Any, treespec: TreeSpec, is_leaf: Leaf = None) -> Any:
    """A leaf of `tree_` for each leaf of the structure, repeated where the structure goes on below
    it; None where that cannot be."""
    if tree_is_leaf(tree_, is_leaf):
        return [tree_] * treespec.num_leaves
    parts = _parts(tree_)
    if treespec.is_leaf() or parts[0] != treespec._spec.kind or \
            len(parts[2]) != treespec.num_children:
        return None
    out: list[Any] = []
    for child, spec in zip(parts[2], treespec.children(), strict=True):
        found = _broadcast_to_and_flatten(child, spec, is_leaf)
        if found is None:
            return None
        out += found
    return out


__all__ = [n for n in dir() if n.startswith(("tree_", "register_", "treespec_"))] + [
    "GetAttrKey", "LeafSpec", "MappingKey", "NodeDef", "PyTree", "SequenceKey", "TreeSpec",
    "arg_tree_leaves", "key_get", "keystr"]
_is_leaf = tree_is_leaf
_register_pytree_node = register_pytree_node
__getattr__ = missing("adjoint.utils._pytree")
