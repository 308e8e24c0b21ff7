"""Conversions of dtype and device: `to` in all its forms, `float()`, `cpu()`, `type()`."""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import F32, F64, DType, default_dtype, held, of_numpy, to_numpy, wrapped
from adjoint.base.errors import ArgumentError, DTypeError, MetaError
from adjoint.core import inplace as writes
from adjoint.core.inplace import inplace, zeros_of
from adjoint.core.modes import GRAD, state, warn
from adjoint.core.op import op
from adjoint.core.rehearsal import rehearsal
from adjoint.core.tensor import OWN, Tensor, bump, named, share_cell, wrap
from adjoint.ops.api_common import cast_to, raw
from adjoint.ops.create import device_name, legacy
from adjoint.ops.device import channels_last_of, check, is_cpu, preserve_format
from adjoint.ops.pointwise import cast
from adjoint.ops.public import METHODS, planned, public
from adjoint.ops.shape import clone_op, expand_op, reshape

LEGACY = {"FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16",
          "BFloat16Tensor": "bfloat16", "LongTensor": "int64", "IntTensor": "int32",
          "ShortTensor": "int16", "CharTensor": "int8", "ByteTensor": "uint8",
          "BoolTensor": "bool", "ComplexFloatTensor": "complex64",
          "ComplexDoubleTensor": "complex128"}


def _move(t: Tensor, where: str) -> Tensor:
    if t.level or device_name(t) == where:
        return t
    if where == "meta":
        return to_meta(t)
    raise MetaError("Cannot copy out of meta tensor; no data! A meta tensor has no values to "
                    "bring to the cpu: use torch.empty_like(t, device='cpu') and fill it")


def to_meta(t: Tensor) -> Tensor:
    """The same tensor without storage; parameters stay parameters."""
    array = MetaArray(t.array.shape, t.array.dtype)
    if type(t) is Tensor:
        return wrap(array, t._rg)
    return type(t)(wrap(array), t._rg)  # type: ignore[call-arg]  # Parameter(data, requires_grad)


_TYPES = (float, int, bool, complex)


def is_dtype(x: Any) -> bool:
    """True for what names a dtype."""
    return isinstance(x, (DType, np.dtype)) or isinstance(x, type) and x in _TYPES


@public(function=False, quick=True)
def to(self: Tensor, *args: Any, dtype: Any = None, device: Any = None, copy: bool = False,
       non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """`to(dtype)`, `to(device)`, `to(device, dtype)`, `to(other)`; itself where nothing changes.
    Axes lie in memory as before, or as `memory_format` says."""
    if len(args) == 1 and dtype is device is memory_format is None and not copy \
            and is_cpu(args[0]) and not self.level and type(self.array) is np.ndarray:
        return self                                  # what most of these calls are
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
        dtype, device = other.dtype, device_name(other)
    elif rest and is_dtype(rest[0]):
        dtype = rest.pop(0)
        if rest and not isinstance(rest[0], bool):
            raise DTypeError("to() received an invalid combination of arguments - got "
                             f"({', '.join(type(a).__name__ for a in args)}): the device comes "
                             "first, to(device, dtype)")
    elif rest and rest[0] is not None:
        device = rest.pop(0)
        if rest and (is_dtype(rest[0]) or rest[0] is None):
            dtype = rest.pop(0) or dtype
    elif rest:
        rest.pop(0)
        if rest and is_dtype(rest[0]):
            dtype = rest.pop(0)
    if len(rest) > 1:
        copy = bool(rest[1])
    t = self if device is None else _move(self, check(device))
    if dtype is not None and t.dtype.dtype != to_numpy(dtype):
        t = cast_to(t, dtype)
    copy = copy and t is self
    if memory_format is not None and memory_format is not preserve_format:
        from adjoint.ops.api_shape import in_format
        last = getattr(memory_format, "axes", None) is not None
        return in_format(t, memory_format, copy or last and t is self and (
            channels_last_of(raw(t)) is not memory_format))
    return clone_op(t) if copy else t


def _to_dtype(name: str, dtype: str) -> None:
    def method(self: Tensor, *, memory_format: Any = None) -> Tensor:
        return to(self, to_numpy(dtype), memory_format=memory_format)
    method.__name__ = name
    method.__doc__ = f"This tensor in {dtype}."
    METHODS[name] = planned(method)


for _n, _d in (("float", "float32"), ("double", "float64"), ("half", "float16"),
               ("bfloat16", "bfloat16"), ("long", "int64"), ("int", "int32"),
               ("short", "int16"), ("char", "int8"), ("byte", "uint8"), ("bool", "bool"),
               ("cfloat", "complex64"), ("cdouble", "complex128")):
    _to_dtype(_n, _d)


@public(function=False)
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in the dtype of `other`."""
    return to(self, other.dtype)


@public(function=False, name="type", quick=True)
def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Without argument the legacy type name; else this tensor in that dtype or type name."""
    if dtype is None:
        name = next(k for k, v in LEGACY.items() if v == self.dtype.name)
        return f"{DType.namespace if DType.namespace == 'torch' else 'torch'}.{name}"
    kind = f"{dtype.__module__}.{dtype.__name__}" if isinstance(dtype, type) else dtype
    if isinstance(kind, str) and "cuda." in kind:
        check("cuda")
    if isinstance(dtype, str):
        name = dtype.rpartition(".")[2]
        if name not in LEGACY:
            raise ArgumentError(f"invalid type: {dtype!r}: give a dtype, or a name such as "
                                "'torch.FloatTensor'")
        dtype = LEGACY[name]
    elif hasattr(dtype, "__name__") and dtype.__name__ in LEGACY:
        dtype = LEGACY[dtype.__name__]
    return to(self, to_numpy(dtype))


@public(function=False, quick=True)
def new(self: Tensor, *args: Any, device: Any = None) -> Tensor:
    """An uninitialised tensor of given sizes, or of given data, with this one's dtype."""
    return legacy(*args, device=device, dtype=self.dtype)


@public(function=False, quick=True)
def cpu(self: Tensor, *, memory_format: Any = None) -> Tensor:
    """This tensor on the cpu: itself, for it is there."""
    return _move(self, "cpu")


@public(function=False)
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    """Raises: there is no CUDA device here."""
    check("cuda")
    return self


@public(function=False)
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """The tensor itself: page-locked memory only serves a GPU."""
    return self


def _copy_impl(x: Any, src: Any, /) -> Any:
    return np.broadcast_to(_real(src, x.dtype), x.shape).astype(x.dtype)


def _real(src: Any, dtype: np.dtype[Any]) -> Any:
    """The real part of what goes to a real tensor, as PyTorch copies it."""
    return src.real if src.dtype.kind == "c" and dtype.kind not in "cb" else src


def _copy_inplace(out: Any, x: Any, src: Any, /) -> None:
    if src.dtype is out.dtype and src.ndim <= out.ndim:     # twice as quick for few elements
        out[...] = src
    else:
        np.copyto(out, _real(src, out.dtype), casting="unsafe")


copy_op = op(
    "copy", show="{src}", impl=_copy_impl, infer=lambda x, src: x, inplace=_copy_inplace,
    apart={"src": False},
    vjp={"x": lambda ct, x_aval: zeros_of(x_aval), "src": lambda ct: ct},
    jvp={"x": lambda t, x_aval: zeros_of(x_aval), "src": lambda t, x_aval: _copied(t, x_aval)},
    node="CopyBackwards",
    batch=lambda op_, args, batched, attrs: _batch_copy(args, batched))


def _copied(t: Any, x: Any) -> Any:
    """The tangent of a broadcast and converted source."""
    wide = t if tuple(t.shape) == x.shape else expand_op(t, shape=x.shape)
    return cast(wide, dtype=x.dtype)


def _batch_copy(args: Any, batched: Any) -> Any:
    x, src = args
    logical = tuple(x.shape[1:]) if batched[0] else tuple(x.shape)
    size = x.shape[0] if batched[0] else src.shape[0]
    if batched[1]:
        own = tuple(src.shape[1:])
        src = reshape(src, (src.shape[0], *(1,) * (len(logical) - len(own)), *own))
    dtype = x.dtype.dtype if isinstance(x.dtype, DType) else x.dtype
    return cast(expand_op(src, shape=(size, *logical)), dtype=dtype)


def _numbers(src: Any) -> Any:
    """What is no tensor as an array of numbers."""
    try:
        array = np.asarray(src)
        if array.dtype.kind not in "OSUMm":
            return array
    except ValueError:                      # lists of unequal lengths
        pass
    raise DTypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not "
                     f"{type(src).__name__}")


@public(function=False, name="copy_", quick=True)
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Overwrite with `src`, broadcast and converted; the gradient goes to `src`."""
    if not isinstance(src, Tensor):
        src = wrap(_numbers(src))
    mine, its = self.array, src.array
    if (type(its) is np.ndarray and its.dtype is mine.dtype and its.shape == mine.shape
            and type(src) in OWN and not (src._rg and state() & GRAD)
            and (src._cell is None or src._cell is not self._cell)
            and writes.touch(self, "copy_") is not None):
        np.copyto(mine, its)
        return self
    if type(its) is MetaArray and isinstance(mine, np.ndarray) and rehearsal.get() is None:
        _move(src, "cpu")
    if its.dtype.kind == "c" and mine.dtype.kind not in "cb":
        warn("Casting complex values to real discards the imaginary part; take .real or .abs() "
             "where that is meant.")
    return inplace(copy_op.op, self, (src,), name="copy_")


@public(function=False, name="fill_", quick=True)
def fill_(self: Tensor, value: Any) -> Tensor:
    """Overwrite every element with a number or 0-d tensor."""
    if writes.storable(value) and (
            self.array.dtype is F32 or self.array.dtype is F64) and (
            writes.touch(self, "copy_") is not None):
        self.array.fill(value)
        return self
    if isinstance(value, Tensor) and value.array.ndim:
        raise ArgumentError("fill_ only supports 0-dimension value tensor but got tensor with "
                            f"{value.array.ndim} dimensions.")
    given = isinstance(value, Tensor)
    value = value if given else held(value, self.array.dtype)
    if 0 in self.array.strides and type(self.array) is np.ndarray and not (
            state() & GRAD and (self._rg or given and value._rg)):
        number = value.array if given else value        # the same everywhere: once or often
        self.array[...] = number
        bump(self, "fill_")
        return self
    if given and value._cell is not None and value._cell is self._cell:
        value = clone_op(value)                         # (an element of it)
    elif not given:
        value = wrap(wrapped(value, self.array.dtype))
    return filled(inplace(copy_op.op, self, (value,), name="copy_"), f"FillBackward{2 + given}")


def filled(x: Tensor, node: str) -> Tensor:
    """`x`, just overwritten with what has no gradient, by a node that prints as `node`."""
    return named(x, node) if x._rg and getattr(x._edge, "op", None) is copy_op.op else x


@public(function=False, name="zero_", quick=True)
def zero_(self: Tensor) -> Tensor:
    """Overwrite every element with 0."""
    x = fill_(self, 0)
    return filled(x, "ZeroBackward0") if x._rg else x


@public(function=False)
def dtype_name(self: Tensor) -> str:
    """The name of the dtype."""
    return of_numpy(self.array.dtype).name



def _absent_device(name: str) -> None:
    def method(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
        check(name)
        return self
    method.__name__ = name
    method.__doc__ = f"Raises: there is no {name} device here."
    METHODS[name] = planned(method)


for _n in ("xpu", "ipu", "mtia", "hpu"):
    _absent_device(_n)


@public(method=False)
def from_file(filename: str, shared: bool | None = None, size: int = 0, *, dtype: Any = None,
              layout: Any = None, device: Any = None, requires_grad: bool = False,
              pin_memory: bool = False) -> Tensor:
    """A vector of `size` elements on the memory of a file. With `shared`, writes go to the file,
    which is made or lengthened where needed; else they stay in memory. The numbers lie in the file
    as in memory, without a header.

    Raises ArgumentError for a file that is too short.

    >>> import os, tempfile, adjoint as ad
    >>> name = os.path.join(tempfile.mkdtemp(), "numbers")
    >>> ad.from_file(name, shared=True, size=2).copy_(ad.tensor([1.0, 2.0]))
    tensor([1., 2.])
    >>> ad.from_file(name, size=2)
    tensor([1., 2.])
    """
    kind, name = to_numpy(default_dtype() if dtype is None else dtype), os.fspath(filename)
    bytes_ = int(size) * kind.itemsize
    if shared:
        with open(name, "ab") as file:
            if file.tell() < bytes_:
                file.truncate(bytes_)
    have = os.path.getsize(name)
    if have < bytes_:
        raise ArgumentError(f"from_file: {name} has {have} bytes, and {size} elements of "
                            f"{of_numpy(kind)} take {bytes_}; shared=True lengthens it")
    if not size:
        return wrap(np.zeros(0, kind), requires_grad)
    mapped = np.memmap(name, np.uint8, "r+" if shared else "c", shape=(bytes_,))
    t = wrap(np.asarray(mapped).view(kind))
    share_cell(t).exposed = True
    return t.requires_grad_() if requires_grad else t
