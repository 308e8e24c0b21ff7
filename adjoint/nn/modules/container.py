"""Containers: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""
from __future__ import annotations

import operator
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Self

from adjoint.base.errors import ArgumentError, IndexOutOfRange
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn.modules.module import Module, _addindent

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def _at(owner: object, size: int, index: Any) -> int:
    """``index`` as a number in [0, size); negative ones count from the end."""
    i = operator.index(index)
    if not -size <= i < size:
        raise IndexOutOfRange(f"index {i} is out of range: {type(owner).__name__} has {size} "
                              f"entries, accepted are {-size} to {size - 1}")
    return i % size


class Container(Module):
    """Holds modules given by keyword; kept for old programs, use Module instead."""

    def __init__(self, **kwargs: Any) -> None:
        warnings.warn("`nn.Container` is deprecated. nn.Module does all that it did: subclass that",
                      FutureWarning, stacklevel=2)
        super().__init__()
        for key, value in kwargs.items():
            self.add_module(key, value)


class Sequential(Module):
    """Calls its modules one after the other, each on the output of the one before.

    Takes modules, or one ordered dictionary of named modules.

    >>> import adjoint as ad
    >>> net = ad.nn.Sequential(ad.nn.Linear(4, 8), ad.nn.ReLU(), ad.nn.Linear(8, 1))
    >>> tuple(net(ad.zeros(2, 4)).shape)
    (2, 1)
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for key, module in args[0].items():
                self.add_module(key, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return self.__class__(OrderedDict(list(self._modules.items())[idx]))
        return list(self._modules.values())[_at(self, len(self), idx)]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, list(self._modules)[_at(self, len(self), idx)], module)

    def __delitem__(self, idx: int | slice) -> None:
        keys = list(self._modules)
        for key in keys[idx] if isinstance(idx, slice) else [keys[_at(self, len(self), idx)]]:
            del self._modules[key]
        self._renumber()

    def _renumber(self) -> None:
        self._modules = {str(i): m for i, m in enumerate(self._modules.values())}

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __add__(self, other: Any) -> Sequential:
        return Sequential(*self, *_sequential(other, "+"))

    def __iadd__(self, other: Any) -> Self:
        for module in list(_sequential(other, "+=")):
            self.append(module)
        return self

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*(m for _ in range(_times(other)) for m in self))

    def __rmul__(self, other: int) -> Sequential:
        return self.__mul__(other)

    def __imul__(self, other: int) -> Self:
        own = list(self)
        for _ in range(_times(other) - 1):
            self.extend(own)
        return self

    def pop(self, key: int | slice) -> Any:
        """Remove and return the module at ``key``."""
        value = self[key]
        del self[key]
        return value

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Put a module before position ``index``."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexOutOfRange(f"Index out of range: {index}: Sequential has {len(self)} "
                                  "modules")
        items = list(self)
        items.insert(index, module)
        self._modules = {str(i): m for i, m in enumerate(items)}
        return self

    def extend(self, sequential: Iterable[Module]) -> Self:
        """Add every module of an iterable at the end."""
        for module in list(sequential):
            self.append(module)
        return self


def _sequential(other: Any, sign: str) -> Sequential:
    if not isinstance(other, Sequential):
        said = "add" if sign == "+" else sign
        raise ArgumentError(f"{said} operator supports only objects of Sequential class, but "
                            f"{type(other)} is given")
    return other


def _times(n: Any) -> int:
    if not isinstance(n, int):
        raise TypeError(f"unsupported operand type(s) for *: Sequential and {type(n)}")
    if n <= 0:
        raise ArgumentError(f"Non-positive multiplication factor {n} for Sequential: must be >= 1")
    return n


class ModuleList(Module):
    """A list whose modules are registered; it has no forward of its own.

    >>> import adjoint as ad
    >>> layers = ad.nn.ModuleList(ad.nn.Linear(2, 2) for _ in range(3))
    >>> len(layers), len(list(layers.parameters()))
    (3, 6)
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self += modules

    def _keep(self, modules: list[Any]) -> None:
        self._modules = {str(i): m for i, m in enumerate(modules)}

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return self.__class__(list(self._modules.values())[idx])
        return self._modules[str(_at(self, len(self), idx))]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, str(_at(self, len(self), idx)), module)

    def __delitem__(self, idx: int | slice) -> None:
        modules = list(self)
        del modules[idx if isinstance(idx, slice) else _at(self, len(self), idx)]
        self._keep(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def insert(self, index: int, module: Module) -> None:
        """Put a module before position ``index``."""
        modules = list(self)
        modules.insert(index, module)
        self._keep(modules)

    def append(self, module: Module | None) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: int | slice) -> Any:
        """Remove and return the module at ``key``."""
        value = self[key]
        del self[key]
        return value

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add every module of an iterable at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError("ModuleList.extend should be called with an iterable, but got "
                            + type(modules).__name__)
        for module in list(modules):
            self.append(module)
        return self

    def __repr__(self) -> str:
        """Like Module's, with runs of equal entries written once: ``(0-5): 6 x Layer``."""
        if not len(self):
            return self._get_name() + "()"
        runs: list[tuple[int, int, str]] = []
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], i, text)
            else:
                runs.append((i, i, text))
        lines = [f"({a}): {_addindent(text, 2)}" if a == b
                 else f"({a}-{b}): {b - a + 1} x {_addindent(text, 2)}" for a, b, text in runs]
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dictionary of registered modules, in order of insertion; no forward of its own.

    >>> import adjoint as ad
    >>> acts = ad.nn.ModuleDict({"relu": ad.nn.ReLU(), "tanh": ad.nn.Tanh()})
    >>> acts["relu"](ad.tensor(-1.0)).item()
    0.0
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove every module."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Remove ``key`` and return its module."""
        return self._modules.pop(key)

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """(name, module) pairs."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add or replace modules from a mapping or an iterable of (name, module) pairs."""
        for key, module in _pairs(self, modules):
            self[key] = module


def _pairs(owner: Module, given: Any) -> list[tuple[str, Any]]:
    """``given`` as (name, value) pairs; TypeError or ArgumentError says what is wrong with it."""
    name = type(owner).__name__
    if not isinstance(given, Iterable):
        raise TypeError(f"{name}.update should be called with an iterable of key/value pairs, "
                        f"but got {type(given).__name__}")
    if hasattr(given, "items"):
        return list(given.items())
    pairs = []
    for j, pair in enumerate(given):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{name} update sequence element #{j} should be Iterable; is "
                            + type(pair).__name__)
        entry = tuple(pair)
        if len(entry) != 2:
            raise ArgumentError(f"{name} update sequence element #{j} has length {len(entry)}; "
                                "2 is required")
        pairs.append(entry)
    return pairs


def _as_parameter(value: Any) -> Any:
    """Tensors become parameters; parameters and other objects stay as they are."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


def _describe(key: object, value: Any, names: Mapping[str, str]) -> str:
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    space, _, name = str(value.dtype).rpartition(".")
    size = "x".join(str(n) for n in value.shape)
    return f"  ({key}): {kind} containing: [{space}.{names.get(name, name)} of size {size}]"


_TYPE_NAMES = {
    "float32": "FloatTensor", "float64": "DoubleTensor", "float16": "HalfTensor",
    "bfloat16": "BFloat16Tensor", "int64": "LongTensor", "int32": "IntTensor",
    "int16": "ShortTensor", "int8": "CharTensor", "uint8": "ByteTensor", "bool": "BoolTensor",
    "complex64": "ComplexFloatTensor", "complex128": "ComplexDoubleTensor",
}


class ParameterList(Module):
    """A list whose tensors are parameters; other values are kept as they are.

    >>> import adjoint as ad
    >>> ws = ad.nn.ParameterList([ad.zeros(2), ad.ones(3)])
    >>> [name for name, _ in ws.named_parameters()]
    ['0', '1']
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(self[i] for i in range(*idx.indices(len(self))))
        return getattr(self, str(_at(self, len(self), idx)))

    def __setitem__(self, idx: int, param: Any) -> None:
        setattr(self, str(_at(self, len(self), idx)), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __iadd__(self, parameters: Iterable[Any]) -> Self:
        return self.extend(parameters)

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def append(self, value: Any) -> Self:
        """Add a value at the end; a tensor becomes a Parameter."""
        index = self._size
        self._size += 1
        self[index] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add every value of an iterable at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError("ParameterList.extend should be called with an iterable, but got "
                            + type(values).__name__)
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_describe(k, v, {}) for k, v in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ArgumentError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary whose tensors are parameters; other values are kept as they are.

    >>> import adjoint as ad
    >>> ws = ad.nn.ParameterDict({"left": ad.zeros(2)})
    >>> ws["right"] = ad.ones(2)
    >>> [name for name, _ in ws.named_parameters()]
    ['left', 'right']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _attr(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError("Index given to ParameterDict cannot be used as a key as it is not a "
                            f"string (type is '{type(key).__name__}'): use str(key)")
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._attr(key))

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, self._attr(key), _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._attr(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: ParameterDict) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        joined = other.copy()
        joined.update(self)
        return joined

    def __ior__(self, other: ParameterDict) -> Self:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """A new dictionary with the same parameters."""
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value at ``key``, which is set to ``default`` if it is new."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove every entry."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Remove ``key`` and return its value."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the newest (name, value)."""
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value at ``key``, or ``default``."""
        return self[key] if key in self else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new dictionary with ``default`` at every key."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> Any:
        """The names, in order of insertion."""
        return self._keys.keys()

    def items(self) -> Iterator[tuple[str, Any]]:
        """(name, value) pairs."""
        return ((k, self[k]) for k in self._keys)

    def values(self) -> Iterator[Any]:
        """The values."""
        return (self[k] for k in self._keys)

    def update(self, parameters: Any) -> None:
        """Add or replace entries from a mapping or an iterable of (name, value) pairs.

        Entries of a plain mapping are taken in order of their sorted names, those of an
        OrderedDict, a ParameterDict or an iterable in the order given.
        """
        pairs = _pairs(self, parameters)
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            pairs.sort(key=lambda pair: pair[0])
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_describe(k, v, _TYPE_NAMES) for k, v in self.items())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ArgumentError("ParameterDict should not be called.")
