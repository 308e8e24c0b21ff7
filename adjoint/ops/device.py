"""Devices: `cpu` holds arrays, `meta` holds shapes; the default is per thread. Layouts: names that
programs pass around. Memory formats: the order in which the axes of an array lie."""
from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any, Self

import numpy as np

from adjoint.base.aval import MetaArray, inverse, order_by
from adjoint.base.dtypes import DType
from adjoint.base.errors import (
    AdjointError,
    ArgumentError,
    FixedValue,
    ShapeError,
    StructureError,
)
from adjoint.core.rehearsal import call, keeps_value
from adjoint.core.rehearsal import current as rehearsal

_LARGE = 1 << 18                    # elements of an array for which the compiler is loaded
_ready = False                      # whether there was one
_default: ContextVar[str] = ContextVar("adjoint_device", default="cpu")
# what `with device(...)` goes back to: not in the device, which tensors share
_entered: ContextVar[tuple[Token[str], ...]] = ContextVar("adjoint_entered", default=())
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

    __slots__ = ("type", "index")
    type: str
    index: int | None

    def __init__(self, type: Any, index: int | None = None) -> None:
        try:
            plain = index is None and type in _PLAIN
        except TypeError:               # what has no hash is no name
            plain = False
        name, number = (type, None) if plain else _parsed(type, index)
        object.__setattr__(self, "type", name)
        object.__setattr__(self, "index", number)

    def __setattr__(self, name: str, value: Any) -> None:
        known = name in device.__slots__
        raise FixedValue(f"attribute '{name}' of 'adjoint.device' objects is not writable: tensors "
                         "share them" if known else
                         f"'adjoint.device' object has no attribute '{name}'")

    def __enter__(self) -> device:
        _entered.set((*_entered.get(), _default.set(check(self))))
        return self

    def __exit__(self, *exc: object) -> None:
        *outer, last = _entered.get()
        _default.reset(last)
        _entered.set(tuple(outer))

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


def is_cpu(d: Any) -> bool:
    """Whether this is the name, or the object, of the device that tensors are on here."""
    return d == "cpu" if type(d) is str else type(d) is device and d.type == "cpu"


def check(d: Any) -> str:
    """The name of a device that exists here; None: the default of this thread."""
    if d is None:
        return _default.get()
    if type(d) is str and d in _PLAIN:
        return d
    name = d.type if type(d) is device else device(d).type
    if name in _ABSENT:
        said = (f"Torch not compiled with {name.upper()} enabled" if name in ("cuda", "xpu") else
                f"PyTorch is not linked with support for {name} devices")
        raise NoDevice(f"{said}: device '{d}' was asked for, but this build computes on 'cpu' only "
                       f"({name}.is_available() is False): use device('cpu')")
    return name


def storage_less(d: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    """True where a new tensor gets no storage: on device meta, and while a run is rehearsed."""
    meta = (_default.get() if d is None else check(d)) == "meta"
    if rehearsal() is not None:
        return not keeps_value(shape, dtype)
    if not (meta or _ready):
        room(shape)
    return meta


def room(shape: tuple[int, ...]) -> None:
    """Ahead of the first large array: have it come from the package's allocator, which would else
    begin with the first kernel. Its arrays begin on cache lines and lie in large pages: layer norm
    of an operand that did not, forward and backward, took 1.3x of the time."""
    global _ready
    if not _ready and math.prod(shape) >= _LARGE:
        _ready = True
        from adjoint.ops.family import generated  # (which needs this module)
        generated("allocator")


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
    """The order of axes in memory.

    >>> import adjoint as ad
    >>> ad.zeros(2, 3, 4, 5).contiguous(memory_format=ad.channels_last).stride()
    (60, 1, 15, 3)
    """

    @property
    def axes(self) -> tuple[int, ...] | None:
        """The axes from the outermost to the innermost; None where that is their own order."""
        return _LAST.get(self.name)

    def fits(self, array: Any) -> None:
        """Refuse arrays of another number of axes."""
        if self.axes is not None and array.ndim != len(self.axes):
            raise ShapeError(f"required rank {len(self.axes)} tensor to use {self.name} format, "
                             f"got one of {array.ndim} axes: {list(array.shape)}")

    def holds(self, array: Any) -> bool:
        """Does an array lie in memory so? With channels last: the second axis innermost."""
        axes = self.axes
        return in_order(array, axes) if axes is None or array.ndim == len(axes) else False


_LAST = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}


def in_order(array: Any, axes: tuple[int, ...] | None = None) -> bool:
    """Whether the elements lie without gaps, with `axes` from the outermost to the innermost (None:
    in C order). Axes of length 1 lie anywhere."""
    if type(array) is np.ndarray:
        laid: bool = (array if axes is None else array.transpose(axes)).flags.c_contiguous
        return laid
    if axes is None or not hasattr(array, "strides"):       # storage-less
        return bool(getattr(array, "contiguous", True))
    step = array.dtype.itemsize
    for d in reversed(axes):
        if array.shape[d] != 1 and array.strides[d] != step:
            return array.size == 0
        step *= array.shape[d]
    return True


def memory_order(array: Any) -> tuple[int, ...] | None:
    """The axes from the outermost in memory, of an array without gaps, with storage or without;
    None if it has some, or is in C order."""
    if in_order(array):
        return None
    axes = tuple(sorted(range(array.ndim), key=lambda d: -array.strides[d]))
    return axes if in_order(array, axes) else None


def kept_order(array: Any) -> tuple[int, ...] | None:
    """The axes from the outermost in memory to the innermost, of a copy of an array with storage
    or without: its gaps are closed, expanded axes lie where they stand. None for C order."""
    if in_order(array) and 1 not in array.shape:
        return None
    return order_by(array.shape, (array.strides,))


def copied(array: Any) -> Any:
    """A copy whose axes lie in memory as the array's, without its gaps."""
    axes = kept_order(array) if 0 in array.strides or 1 in array.shape else None
    return np.array(array, order="C" if 0 in array.strides else "K") if axes is None else relaid(
        array, axes)


def channels_last_of(array: Any) -> memory_format | None:
    """The channels-last format of an array, with or without gaps, that is not in C order: the one
    that results of convolutions and their kind take over. None for every other order, and for one
    example that was unsqueezed, whose first axis has no step."""
    if array.ndim not in (4, 5):
        return None
    shape, steps, least = array.shape, array.strides, 0
    for d in (1, *range(array.ndim - 1, 1, -1), 0):
        if shape[d] == 1 and (d > 1 or not d and steps[0]):
            continue
        if steps[d] < least or not shape[d]:
            return None
        least = steps[d] * shape[d]
    if max(shape[2:]) == 1:
        return None
    return channels_last if array.ndim == 4 else channels_last_3d


def relaid(array: Any, axes: tuple[int, ...]) -> Any:
    """A copy with `axes` from the outermost in memory to the innermost."""
    from adjoint.ops.accelerate import packed_copy
    return packed_copy(array.transpose(axes)).transpose(inverse(axes))


def laid_as(array: Any, ct: Any) -> Any:
    """A copy of `ct` whose axes lie in memory as those of `array`, the values of a leaf that are
    not in C order; in C order where those have gaps. Optimizers then read both in one order."""
    if not (isinstance(array, np.ndarray) and isinstance(ct, np.ndarray)):
        return call(laid_as, array, ct, otherwise=lambda: MetaArray(ct.shape, ct.dtype))
    axes = memory_order(array)
    return np.array(ct, order="C") if axes is None else relaid(ct, axes)


def following(*places: int, ranks: tuple[int, ...] = (4, 5)) -> Callable[..., Any]:
    """Lay the first result (and others of its shape) in the channels-last format of an operand at
    one of `places`, where it has `ranks` axes: for computations that give C order.

    Operands in C order, which is to say nearly all, cost a look at a flag.
    """
    def around(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)           # the record reads its operands off the signature
        def laid(*arrays: Any, **attrs: Any) -> Any:
            out = run(*arrays, **attrs)
            for i in places:
                a = arrays[i]
                if not a.flags.c_contiguous and a.ndim in ranks and out is not NotImplemented:
                    form = channels_last_of(a)
                    if form is not None:
                        return in_format(out, form)
            return out
        return laid
    return around


def in_rows(run: Callable[..., Any]) -> Callable[..., Any]:
    """Lay the results in C order, whatever order NumPy took over from the operands."""
    @functools.wraps(run)               # the record reads its operands off the signature
    def laid(*arrays: Any, **attrs: Any) -> Any:
        out = run(*arrays, **attrs)
        if type(out) is tuple:
            return tuple([o if o.flags.c_contiguous else np.ascontiguousarray(o) for o in out])
        return out if out is NotImplemented or out.flags.c_contiguous else np.ascontiguousarray(out)
    return laid


def as_first(run: Callable[..., Any]) -> Callable[..., Any]:
    """Lay results of the first operand's shape in the order of its memory, without its gaps."""
    @functools.wraps(run)
    def laid(*arrays: Any, **attrs: Any) -> Any:
        out, x = run(*arrays, **attrs), arrays[0]
        if x.flags.c_contiguous or out is NotImplemented:
            return out
        several = out if type(out) is tuple else (out,)
        moved = []
        for o in several:
            to = np.empty_like(x, o.dtype) if o.shape == x.shape else o
            if to is not o:
                np.copyto(to, o)
            moved.append(to)
        return tuple(moved) if several is out else moved[0]
    return laid


def in_format(out: Any, form: memory_format) -> Any:
    """An array (or the first of several, and those of its shape) in a format, where it has as many
    axes as that."""
    first = out[0] if type(out) is tuple else out
    axes = form.axes
    if axes is None or first.ndim != len(axes):
        return out
    if type(out) is not tuple:
        return out if in_order(out, axes) else relaid(out, axes)
    return tuple([o if o is None or o.shape != first.shape or in_order(o, axes)
                  else relaid(o, axes) for o in out])


strided, sparse_coo = layout("strided"), layout("sparse_coo")
sparse_csr, sparse_csc = layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc = layout("sparse_bsr"), layout("sparse_bsc")
jagged = layout("jagged")
contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format(
    "preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")
legacy_contiguous_format = contiguous_format
