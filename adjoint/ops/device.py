"""Devices: `cpu` holds arrays, `meta` holds shapes; the default is per thread. Layouts and memory
formats: names that programs pass around."""
from __future__ import annotations

import re
from contextvars import ContextVar, Token
from typing import Any, Self

import numpy as np

from adjoint.base.dtypes import DType
from adjoint.base.errors import AdjointError, ArgumentError, StructureError
from adjoint.core.rehearsal import current as rehearsal
from adjoint.core.rehearsal import keeps_value

_default: ContextVar[str] = ContextVar("adjoint_device", default="cpu")
_ABSENT = ("cuda", "mps", "xpu", "xla", "hpu", "mtia", "ipu", "vulkan")
_KNOWN = ("cpu", "meta", *_ABSENT)
_TEXT = re.compile(r"([a-z]+)(?::(0|[1-9]\d*))?", re.ASCII)


class device:
    """`device("cpu")`, `device("meta")`; as a context manager, where new tensors are made.

    >>> import adjoint as ad
    >>> with ad.device("meta"):
    ...     ad.zeros(1000, 1000).device
    device(type='meta')
    """

    __slots__ = ("type", "index", "_held")
    type: str
    index: int | None

    def __init__(self, type: Any, index: int | None = None) -> None:
        self.type, self.index = (type, None) if index is None and type in _PLAIN else _parsed(
            type, index)
        self._held: list[Token[str]] = []

    def __enter__(self) -> device:
        self._held.append(_default.set(check(self)))
        return self

    def __exit__(self, *exc: object) -> None:
        _default.reset(self._held.pop())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, device):
            return NotImplemented
        return (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (self.type, self.index)


_PLAIN = {"cpu", "meta"}


def _parsed(name: Any, index: Any) -> tuple[str, int | None]:
    """Type and index of a device in any of its spellings."""
    if isinstance(name, device):
        return name.type, name.index if index is None else index
    if isinstance(name, int) and not isinstance(name, bool) and index is None:
        name, index = "cuda", name
    if not isinstance(name, str):
        raise StructureError(f"device() received an invalid combination of arguments - got "
                             f"({type(name).__name__}): a name such as 'cpu' is needed")
    if index is not None and (isinstance(index, bool) or not hasattr(index, "__index__")):
        raise StructureError("device(): argument 'index' (position 2) must be int, not "
                             f"{type(index).__name__}")
    if index is not None and index < 0:
        raise ArgumentError(f"Device index must not be negative, got {index}")
    if name.partition(":")[0] not in _KNOWN:
        raise ArgumentError(f"Expected one of cpu, meta device type at start of device string: "
                            f"{name}")
    found = _TEXT.fullmatch(name)
    if found is None:
        raise ArgumentError(f"Invalid device string: '{name}': write a type, or one with a number "
                            "such as 'cpu:0'")
    if found[2] is not None and index is not None:
        raise ArgumentError(f"type (string) must not include an index because index was passed "
                            f"explicitly: {name}")
    return found[1], int(found[2]) if found[2] is not None else index


def check(d: Any) -> str:
    """The name of a device that exists here; None: the default of this thread."""
    if d is None:
        return _default.get()
    name = device(d).type
    if name in _ABSENT:
        raise NoDevice(f"device '{d}' was asked for, but this build computes on 'cpu' only ("
                       f"{name}.is_available() is False): use device('cpu')")
    return name


def storage_less(d: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    """True where a new tensor gets no storage: on device meta, and while a run is rehearsed."""
    meta = check(d) == "meta"
    return meta if rehearsal() is None else not keeps_value(shape, dtype)


class NoDevice(AdjointError, RuntimeError, AssertionError):
    """A device that this package does not have was asked for."""


def set_default_device(d: Any) -> None:
    """Where factory functions make tensors from now on in this thread."""
    _default.set("cpu" if d is None else check(d))


def get_default_device() -> device:
    """The device that factory functions use here."""
    return device(_default.get())


class layout:
    """How the elements of a tensor lie in memory, `strided` for dense ones. One object a name."""

    name: str
    _made: dict[tuple[type, str], Any] = {}

    def __new__(cls, name: str) -> Self:
        made: Self | None = cls._made.get((cls, name))
        if made is None:
            made = cls._made[cls, name] = object.__new__(cls)
            made.name = name
        return made

    def __repr__(self) -> str:
        return f"{DType.namespace}.{self.name}"

    def __reduce__(self) -> tuple[type[layout], tuple[str]]:
        return type(self), (self.name,)


class memory_format(layout):
    """The order of axes in memory. Accepted wherever PyTorch takes one: results are equal
    numbers, in C order unless the operand says otherwise."""

    def holds(self, array: Any) -> bool:
        """Does an array lie in memory so? With channels last: the second axis innermost."""
        if self in (contiguous_format, preserve_format):
            return bool(array.flags.c_contiguous)
        wanted = 5 if self is channels_last_3d else 4
        return array.ndim == wanted and bool(np.moveaxis(array, 1, -1).flags.c_contiguous)


strided, sparse_coo = layout("strided"), layout("sparse_coo")
sparse_csr, sparse_csc = layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc = layout("sparse_bsr"), layout("sparse_bsc")
jagged = layout("jagged")
contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format(
    "preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")
legacy_contiguous_format = contiguous_format
