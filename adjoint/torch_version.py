"""`torch.torch_version`: a version that is text, and compares as numbers."""
from __future__ import annotations

import re
from typing import Any

from adjoint.base.errors import missing


def _key(version: Any) -> tuple[Any, ...] | None:
    """What a version is ordered by: numbers, whether it is final, what stands behind a plus; None:
    it is no version."""
    if isinstance(version, (tuple, list)):
        version = ".".join(map(str, version))
    found = re.match(r"v?(\d+(?:\.\d+)*)\.?(a|b|rc|dev)?(\d*)(?:\+(.*))?",
                     str(version).strip())
    if found is None:
        return None
    numbers = [int(n) for n in found[1].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    order = ["dev", "a", "b", "rc", None]
    return tuple(numbers), order.index(found[2]), int(found[3] or 0), found[4] or ""


class TorchVersion(str):
    """The text of a version that compares, by numbers, with texts and tuples of versions.

    >>> TorchVersion("2.13.0") > "2.9", TorchVersion("2.13.0") >= (2, 0)
    (True, True)
    """

    __slots__ = ()

    def _order(self, other: Any) -> tuple[Any, Any]:
        mine, theirs = _key(self), _key(other)
        return (mine, theirs) if mine and theirs else (str(self), str(other))

    def __eq__(self, other: object) -> bool:
        mine, theirs = self._order(other)
        return bool(mine == theirs)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        mine, theirs = self._order(other)
        return bool(mine < theirs)

    def __le__(self, other: Any) -> bool:
        mine, theirs = self._order(other)
        return bool(mine <= theirs)

    def __gt__(self, other: Any) -> bool:
        mine, theirs = self._order(other)
        return bool(mine > theirs)

    def __ge__(self, other: Any) -> bool:
        mine, theirs = self._order(other)
        return bool(mine >= theirs)

    __hash__ = str.__hash__


__all__ = ["TorchVersion"]
__getattr__ = missing("adjoint.torch_version")
