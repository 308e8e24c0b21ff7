"""`jax.tree`: the functions of `tree_util` under short names."""
import dataclasses as _dataclasses
from typing import Any as _Any

from adjoint.jax import tree_util as _t

all = _t.tree_all
broadcast = _t.tree_broadcast
flatten = _t.tree_flatten
flatten_with_path = _t.tree_flatten_with_path
leaves = _t.tree_leaves
leaves_with_path = _t.tree_leaves_with_path
map = _t.tree_map
map_with_path = _t.tree_map_with_path
reduce = _t.tree_reduce
reduce_associative = _t.tree_reduce_associative
structure = _t.tree_structure
transpose = _t.tree_transpose
unflatten = _t.tree_unflatten


def static(**kwargs: _Any) -> _Any:
    """`dataclasses.field` of a field that belongs to the structure, not to the leaves."""
    metadata = {**(kwargs.pop("metadata", None) or {}), "static": True}
    return _dataclasses.field(metadata=metadata, **kwargs)
