"""`autograd.builtins`: containers, and types that see through boxes.

Lists, tuples and dicts with boxes in them are the builtins themselves; in graphs of nodes
(`hips.graph`) they are in boxes of their own.
"""
from __future__ import annotations

import builtins
from builtins import dict, list, tuple  # noqa: UP029 - given on under these names
from collections.abc import Iterable
from typing import Any

from adjoint.hips.box import Box
from adjoint.hips.graph import (
    DictBox,
    SequenceBox,
    container_take,
    sequence_extend_left,
    sequence_extend_right,
)
from adjoint.hips.space import (
    ContainerVSpace,
    DictVSpace,
    ListVSpace,
    NamedTupleVSpace,
    SequenceVSpace,
    SparseObject,
    TupleVSpace,
    VSpace,
)

ListMeta = TupleMeta = DictMeta = builtins.type
isinstance_, type_ = builtins.isinstance, builtins.type
dict_, list_, tuple_ = dict, list, tuple


def isinstance(x: Any, kind: Any) -> bool:
    """The builtin, where a box is of the type of its value as well."""
    return builtins.isinstance(x, kind) or (
        builtins.isinstance(x, Box) and builtins.isinstance(x._value, kind))


def type(x: Any) -> Any:
    """The builtin; of a box the type of its value."""
    return builtins.type(x._value if builtins.isinstance(x, Box) else x)


def make_sequence(seq_type: Any, *args: Any) -> Any:
    """The list, tuple or named tuple of some values.

    >>> make_sequence(tuple, 1.0, 2.0)
    (1.0, 2.0)
    """
    return seq_type(*args) if hasattr(seq_type, "_fields") else seq_type(args)


def container_untake(x: Any, idx: Any, vs: VSpace) -> SparseObject:
    """The cotangent of a container for that of one of its values."""
    def mut_add(total: Any) -> Any:
        parts = dict(total) if builtins.isinstance(total, dict) else list(total)
        parts[idx] = [a + b for a, b in zip(total[idx], x, strict=True)] if builtins.isinstance(
            idx, slice) else total[idx] + x
        return parts if builtins.isinstance(total, dict) else make_sequence(
            builtins.type(total), *parts)
    return SparseObject(vs, mut_add)


def _make_dict(keys: Iterable[Any], vals: Iterable[Any]) -> dict[Any, Any]:
    return dict(zip(keys, vals, strict=True))


__all__ = ["ContainerVSpace", "DictBox", "DictMeta", "DictVSpace", "ListMeta", "ListVSpace",
           "NamedTupleVSpace", "SequenceBox", "SequenceVSpace", "SparseObject", "TupleMeta",
           "TupleVSpace", "VSpace", "container_take", "container_untake", "dict", "dict_",
           "isinstance", "isinstance_", "list", "list_", "make_sequence", "sequence_extend_left",
           "sequence_extend_right", "tuple", "tuple_", "type", "type_"]
