"""The steps of a path to a leaf of a tree."""
from __future__ import annotations

from typing import Any, NamedTuple


class MappingKey(NamedTuple):
    """The step to a value of a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, node: Any) -> Any:
        """The value there."""
        return node[self.key]


class SequenceKey(NamedTuple):
    """The step to an element of a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, node: Any) -> Any:
        """The element there."""
        return node[self.idx]


class GetAttrKey(NamedTuple):
    """The step to a field of a named tuple or dataclass."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, node: Any) -> Any:
        """The field."""
        return getattr(node, self.name)
