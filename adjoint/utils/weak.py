"""`torch.utils.weak`: references and dictionaries that do not keep their tensors alive.

Keys are told apart by which object they are: `==` of tensors compares their elements.

    >>> import adjoint as ad
    >>> a = ad.ones(2)
    >>> seen = WeakIdKeyDictionary({a: "a"})
    >>> seen[a], ad.ones(2) in seen
    ('a', False)
    >>> del a
    >>> len(seen)
    0
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from typing import Any
from weakref import ref

from adjoint.base.errors import AssertedError, missing
from adjoint.core.tensor import Tensor

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakRef(ref[Any]):
    """A weak reference; two are equal if they are of the same object."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Callable[[Any], Any] | None = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]  # the stub has `__new__` alone
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine = self()
        if mine is not None and isinstance(other, ref):
            return mine is other()
        return self is other


class WeakIdRef(WeakRef):
    """What the dictionary holds of a key."""

    __slots__ = ()


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dictionary of objects by which object they are; an entry goes when its key does."""

    def __init__(self, dict: Any = None, ref_type: Any = WeakIdRef) -> None:
        self.data: Any = {}
        self.ref_type = ref_type
        data = self.data

        def forget(key: Any) -> None:         # the table alone: not the dictionary that holds it
            data.pop(key, None)
        self._forget = forget
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._forget)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:                     # a number, a string: nothing refers to it weakly
            return False

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        for held in list(self.data):
            key = held()
            if key is not None:
                yield key

    def popitem(self) -> tuple[Any, Any]:
        """Take out the newest entry: (key, value)."""
        while True:
            held, value = self.data.popitem()
            key = held()
            if key is not None:
                return key, value

    def keyrefs(self) -> list[Any]:
        """The references to the keys; call one for its key, or None."""
        return list(self.data)

    def copy(self) -> WeakIdKeyDictionary:
        """Another dictionary of the same keys and values."""
        return type(self)(self, self.ref_type)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> WeakIdKeyDictionary:
        """Of the same keys, with copies of the values."""
        made = type(self)(None, self.ref_type)
        for key, value in self.items():
            made[key] = deepcopy(value, memo)
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {id(k): v for k, v in self.items()} == {id(k): v for k, v in other.items()}

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __or__(self, other: Mapping[Any, Any]) -> WeakIdKeyDictionary:
        made = self.copy()
        made.update(other)
        return made

    def __ior__(self, other: Mapping[Any, Any] | Iterable[Any]) -> WeakIdKeyDictionary:
        self.update(other)
        return self


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A reference to a tensor that does not keep it alive: calling it gives the tensor, or None.

    >>> import adjoint as ad
    >>> t = ad.ones(1)
    >>> held = TensorWeakRef(t)
    >>> held() is t
    True
    """

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise AssertedError(f"expected torch.Tensor, got {type(tensor)}.")
        self.ref = WeakIdRef(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()


__getattr__ = missing("adjoint.utils.weak")
