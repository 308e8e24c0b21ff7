"""Small helpers that PyTorch keeps in files of their own (`torch.utils._ordered_set`, `._thunk`,
`.file_baton`, ...): programs import them from there."""
from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
import time
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, MutableSet
from types import ModuleType
from typing import Any, Generic, TypeVar

from adjoint.base import dtypes as _dtypes

T = TypeVar("T")


class OrderedSet(MutableSet[T]):
    """A set that keeps the order in which its elements came.

    >>> s = OrderedSet([3, 1, 3])
    >>> s | {2}, s.pop(), s
    (OrderedSet([3, 1, 2]), 1, OrderedSet([3]))
    """

    __slots__ = ("_there",)

    def __init__(self, iterable: Iterable[T] | None = None) -> None:
        self._there: dict[T, None] = dict.fromkeys(iterable or ())

    def __contains__(self, elem: object) -> bool:
        return elem in self._there

    def __iter__(self) -> Iterator[T]:
        return iter(self._there)

    def __reversed__(self) -> Iterator[T]:
        return reversed(self._there)

    def __len__(self) -> int:
        return len(self._there)

    def __repr__(self) -> str:
        return f"OrderedSet({list(self._there)})"

    def __getstate__(self) -> list[T]:
        return list(self._there)

    def __setstate__(self, state: Iterable[T]) -> None:
        self.__init__(state)  # type: ignore[misc]  # unpickled objects were not initialized

    def add(self, elem: T) -> None:
        """Put an element behind the others, if it is not there."""
        self._there[elem] = None

    def discard(self, elem: T) -> None:
        """Take an element out, if it is there."""
        self._there.pop(elem, None)

    def pop(self) -> T:
        """Take the last element out."""
        if not self._there:
            raise KeyError("pop from an empty set")
        return self._there.popitem()[0]

    def copy(self) -> OrderedSet[T]:
        """Another set of the same elements."""
        return OrderedSet(self._there)

    def update(self, *others: Iterable[T]) -> None:
        """Put the elements of others behind these."""
        for other in others:
            self._there.update(dict.fromkeys(other))

    def union(self, *others: Iterable[T]) -> OrderedSet[T]:
        """These elements, then those of others."""
        found = self.copy()
        found.update(*others)
        return found

    def intersection(self, *others: Iterable[T]) -> OrderedSet[T]:
        """The elements that all others have too."""
        kept = [set(other) for other in others]
        return OrderedSet(e for e in self if all(e in other for other in kept))

    def difference(self, *others: Iterable[T]) -> OrderedSet[T]:
        """The elements that no other has."""
        gone = {e for other in others for e in other}
        return OrderedSet(e for e in self if e not in gone)

    def symmetric_difference(self, other: Iterable[T]) -> OrderedSet[T]:
        """What one of the two has alone."""
        theirs = OrderedSet(other)
        return self.difference(theirs).union(theirs.difference(self))

    def difference_update(self, *others: Iterable[T]) -> None:
        """Become `difference`."""
        self._there = self.difference(*others)._there

    def intersection_update(self, *others: Iterable[T]) -> None:
        """Become `intersection`."""
        self._there = self.intersection(*others)._there

    def symmetric_difference_update(self, other: Iterable[T]) -> None:
        """Become `symmetric_difference`."""
        self._there = self.symmetric_difference(other)._there

    def issubset(self, other: Iterable[T]) -> bool:
        """Whether the other has every element."""
        return set(self) <= set(other)

    def issuperset(self, other: Iterable[T]) -> bool:
        """Whether every element of the other is here."""
        return all(e in self for e in other)


class Thunk(Generic[T]):
    """A value that is computed when it is first asked for.

    >>> Thunk(lambda: 3).force()
    3
    """

    __slots__ = ("f", "r")

    def __init__(self, f: Callable[[], T]) -> None:
        self.f: Callable[[], T] | None = f
        self.r: Any = None

    def force(self) -> T:
        """The value."""
        if self.f is not None:
            self.r, self.f = self.f(), None
        return self.r


class FileBaton:
    """Of several processes, the one that makes a file goes first; the others wait until it is
    gone."""

    def __init__(self, lock_file_path: str, wait_seconds: float = 0.1,
                 warn_after_seconds: float | None = None) -> None:
        self.lock_file_path, self.wait_seconds = lock_file_path, wait_seconds
        self.warn_after_seconds, self.fd = warn_after_seconds, None

    def try_acquire(self) -> bool:
        """Make the file; whether it was not there."""
        try:
            os.close(os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def wait(self) -> None:
        """Return when the file is gone."""
        began, told = time.monotonic(), self.warn_after_seconds is None
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
            if not told and time.monotonic() - began > (self.warn_after_seconds or 0):
                told = True
                warnings.warn(f'Waited on lock file "{self.lock_file_path}" for '
                              f"{self.warn_after_seconds} seconds.", stacklevel=2)

    def release(self) -> None:
        """Take the file away."""
        os.remove(self.lock_file_path)


def not_none(obj: T | None) -> T:
    """What it is given; TypeError for None."""
    if obj is None:
        raise TypeError("Invariant encountered: value was None when it should not be")
    return obj


def _as_it_is(source: Any) -> Callable[[T], T]:
    """A decorator for type checkers, which leaves the function as it is."""
    return lambda f: f


copy_func_params = copy_method_params = copy_func_sig = copy_method_sig = _as_it_is


def exposed_in(module: str) -> Callable[[T], T]:
    """A decorator: what it is given says that it is of that module."""
    def told(f: T) -> T:
        f.__module__ = module
        return f
    return told


def cache_method(f: Callable[..., T]) -> Callable[..., T]:
    """A method that computes its result for some arguments once; an object keeps its own."""
    name = f"_cache_method_{f.__name__}"

    @functools.wraps(f)
    def found(self: Any, *args: Any, **kwargs: Any) -> T:
        known = self.__dict__.setdefault(name, {})
        key = (args, tuple(sorted(kwargs.items())))
        if key not in known:
            known[key] = f(self, *args, **kwargs)
        return known[key]
    return found


simple_call_counter: OrderedDict[str, int] = OrderedDict()


def count_label(label: str) -> None:
    """Count a call under a name."""
    simple_call_counter[label] = simple_call_counter.setdefault(label, 0) + 1


def count(fn: Callable[..., T]) -> Callable[..., T]:
    """A function whose calls are counted, under its qualified name."""
    @functools.wraps(fn)
    def counted(*args: Any, **kwargs: Any) -> T:
        count_label(fn.__qualname__)
        return fn(*args, **kwargs)
    return counted


def dill_available() -> bool:
    """Whether the package dill is installed."""
    return importlib.util.find_spec("dill") is not None


def import_dill() -> ModuleType | None:
    """The package dill, if it is installed."""
    return importlib.import_module("dill") if dill_available() else None


def _absent() -> bool:
    """False: what is generated here is for the CPU."""
    return False


has_triton = has_triton_package = has_triton_tma = has_triton_tma_device = _absent
has_triton_experimental_host_tma = has_triton_tensor_descriptor_host_tma = _absent
has_triton_stable_tma_api = has_datacenter_blackwell_tma_device = _absent


def get_triton_version(fallback: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """The fallback."""
    return fallback


def get_cpp_backtrace(frames_to_skip: int = 0, maximum_number_of_frames: int = 64) -> str:
    """The Python functions of this thread, the innermost first: what calls them in C++ is not here.
    """
    frames = traceback.extract_stack(sys._getframe(1 + frames_to_skip))[::-1]
    return "".join(f"frame #{i}: {f.name} ({f.filename}:{f.lineno})\n"
                   for i, f in enumerate(frames[:maximum_number_of_frames]))


def worker_init_fn(worker_id: int) -> None:
    """Nothing: data pipes are sharded by the loader itself."""
    warnings.warn("Usage of backward_compatibility.worker_init_fn is deprecated as DataLoader "
                  "automatically applies sharding in every worker", stacklevel=2)


dtype_abbrs = {d: ("bf" if d.name == "bfloat16" else d.dtype.kind) + str(8 * d.itemsize)
               for d in _dtypes._ALL}
