"""What the names in a PyTorch checkpoint mean here: storages, dtypes, rebuild functions."""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import adjoint.base.dtypes as dtypes
from adjoint.base.dtypes import DType
from adjoint.base.errors import NotSupported
from adjoint.core.tensor import Size, Tensor, mirrored, share_cell
from adjoint.io.arrays import Parameter, as_tensor, device
from adjoint.io.errors import FileFormatError, UnsafePickleError
from adjoint.io.nested import later as nested_later
from adjoint.io.nested import names as nested_names
from adjoint.io.nested import rebuilt_jagged
from adjoint.io.pickle_in import Callable_, Inner
from adjoint.nn.parameter import Buffer
from adjoint.ops.device import (
    layout,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from adjoint.ops.sparse import sparse_compressed_tensor, sparse_coo_tensor
from adjoint.ops.sparse_tensor import SparseTensor
from adjoint.storage import TypedStorage, UntypedStorage

STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
LAYOUTS = {f"torch.{kind.name}": kind for kind in (
    strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc)}
STORAGE_OF = {dtype: storage for storage, dtype in STORAGES.items()}
DTYPES: dict[str, DType] = {
    name: getattr(dtypes, "bool_" if name == "bool" else name)
    for name in (*STORAGES.values(), "uint16", "uint32", "uint64")}


_HELD = "_of_file"          # where a public storage keeps the storage of the file that it came from


class StorageType(NamedTuple):
    """A typed storage class of a file: only its dtype matters. None: untyped bytes."""

    dtype: DType | None


class Storage:
    """The bytes of one storage of a file, viewed as often as tensors ask."""

    __slots__ = ("raw", "dtype", "device", "_first", "_public", "_kinds")

    def __init__(self, raw: np.ndarray, dtype: DType | None, device: str = "cpu") -> None:
        self.raw, self.dtype, self.device = raw, dtype, device
        self._first: Tensor | None = None
        self._public: UntypedStorage | None = None
        self._kinds: dict[DType | None, Storage] = {dtype: self}

    def of(self, dtype: DType | None) -> Storage:
        """The same bytes as elements of another dtype, for a file that refers to them as both."""
        if dtype not in self._kinds:
            other = self._kinds[dtype] = Storage(self.raw, dtype, self.device)
            other._kinds = self._kinds
        return self._kinds[dtype]

    def public(self) -> UntypedStorage:
        """The storage as a program sees it, where the file holds it by itself."""
        if self._public is None:
            dtype = DTYPES["uint8"] if self.dtype is None else self.dtype
            whole = self.view(dtype, 0, (self.raw.nbytes // dtype.itemsize,), (1,))
            kind = UntypedStorage if self.dtype is None else TypedStorage
            self._public = kind(self.adopt(as_tensor(whole, False, self.device)))
            setattr(self._public, _HELD, self)
        return self._public

    def forget(self) -> None:
        """Make the public storage anew when it is asked for: its device was not known yet."""
        self._public = self._first = None

    def adopt(self, tensor: Tensor) -> Tensor:
        """Give the tensor the version counter of the others on this storage."""
        owner = next(iter(self._kinds.values()))
        if owner._first is None:
            owner._first = tensor
        else:
            tensor._cell = share_cell(owner._first)
        return tensor

    def view(self, dtype: DType, offset: int, size: Sequence[int], stride: Sequence[int]
             ) -> np.ndarray:
        """A strided view; FileFormatError when it would reach outside of the storage."""
        size, stride = tuple(size), tuple(stride)
        numbers = (offset, *size, *stride)
        if len(size) != len(stride) or not all(type(n) is int and n >= 0 for n in numbers):
            raise FileFormatError(f"a tensor in it has size {size}, stride {stride}, offset "
                                  f"{offset}; non-negative integers are needed")
        itemsize = dtype.itemsize
        end = offset if 0 in size else 1 + offset + sum((n - 1) * s for n, s in zip(
            size, stride, strict=True))
        if end * itemsize > self.raw.nbytes:
            raise FileFormatError(f"a tensor in it (size {size}, stride {stride}, offset "
                                  f"{offset}) needs {end} elements of {dtype.name}; its storage "
                                  f"has {self.raw.nbytes // itemsize}")
        if not self.raw.nbytes:
            return np.lib.stride_tricks.as_strided(np.empty(0, dtype.dtype), size,
                                                   [s * itemsize for s in stride])
        return np.ndarray(size, dtype.dtype, self.raw, offset * itemsize,  # its base: shared
                          tuple(s * itemsize for s in stride))


def in_order(raw: np.ndarray, dtype: DType | None, order: str) -> np.ndarray:
    """The bytes of a storage that was written in byte order ``order``, in this machine's."""
    if order == sys.byteorder:
        return raw
    if dtype is None:
        raise NotSupported("load: untyped storages of another byte order")
    width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    return raw.view(np.dtype(f"u{width}")).byteswap().view(np.uint8)


def held(storage: Any) -> Storage:
    """The storage of the file that a reference in it was resolved to."""
    found = getattr(storage, _HELD, None)
    if not isinstance(found, Storage):
        raise FileFormatError("a tensor in it has no storage")
    return found


def _tensor(storage: Any, offset: int, size: Sequence[int], stride: Sequence[int],
            requires_grad: bool = False, hooks: Any = None, metadata: Any = None,
            dtype: DType | None = None) -> Tensor:
    kept = held(storage)
    chosen = dtype or kept.dtype
    if chosen is None:
        raise FileFormatError("a tensor in it has a storage without a dtype")
    array = kept.view(chosen, offset, size, stride)
    made = kept.adopt(as_tensor(array, requires_grad is True, kept.device))
    for turn in ("conj", "neg"):
        if metadata and metadata.get(turn):
            made = _shown(made, turn)
    return made


def _shown(made: Tensor, turn: str) -> Tensor:
    """A leaf that shows the memory of another, conjugated or negated; of both, the copy of one."""
    wanted = made.requires_grad
    out = mirrored(made.detach(), turn).detach()
    return out.requires_grad_(wanted) if wanted else out


def _tensor_v3(storage: Any, offset: int, size: Sequence[int], stride: Sequence[int],
               requires_grad: bool, hooks: Any, dtype: DType, metadata: Any = None) -> Tensor:
    return _tensor(storage, offset, size, stride, requires_grad, hooks, metadata, dtype)


def _parameter(data: Tensor, requires_grad: bool = True, hooks: Any = None,
               state: Any = None) -> Parameter:
    made = Parameter(data, requires_grad is True)
    set_attributes(made, state)
    return made


# notes of a running program, and what conjugate views and sparse tensors are made of
_PASSING = {"_lent", "_without_gradient", "shown", "held", *SparseTensor.__annotations__}


def set_attributes(tensor: Tensor, state: Any) -> None:
    """What a program had attached to a tensor; never the tensor's own parts."""
    for part in state if isinstance(state, tuple) else (state,):
        for name, value in (part or {}).items():
            if not hasattr(Tensor, name):
                tensor.__dict__[name] = value


def attributes(tensor: Tensor) -> dict[str, Any]:
    """What a program has attached to a tensor, for `set_attributes`."""
    return {k: v for k, v in tensor.__dict__.items()
            if k not in _PASSING and not hasattr(Tensor, k)}


def _later(kind: Any, parts: Any) -> None:
    """A sparse tensor in the first of two passes, where its indices are not read yet."""


def _of_class(function: Any, kind: Any, args: Any, state: Any) -> Any:
    """A tensor of a class of the program, or one with attributes."""
    known = function.function if isinstance(function, Callable_) else function
    if known not in _REBUILD or not (isinstance(kind, type) and issubclass(kind, Tensor)):
        raise UnsafePickleError(f"the pickle in it rebuilds a tensor as {kind!r} by {known!r}")
    made: Any = known(*args)
    if made is None or made._held is not None:
        return made
    if isinstance(state, dict) and state.get("_is_buffer") is True:
        return Buffer(made, persistent=state.get("persistent") is not False)
    if type(made) is not kind:
        made = made.as_subclass(kind)
    if getattr(kind, "__setstate__", None) is not getattr(Tensor, "__setstate__", None):
        kind.__setstate__(made, state)
    else:
        set_attributes(made, state)
    return made


def _meta_tensor(dtype: DType, size: Sequence[int], stride: Sequence[int],
                 requires_grad: bool) -> Tensor:
    blank = np.broadcast_to(np.zeros((), dtype.dtype), tuple(size))
    return as_tensor(blank, requires_grad is True, "meta")


def _sparse(kind: layout, parts: Sequence[Any]) -> Tensor:
    if kind is sparse_coo:
        indices, values, size, *coalesced = parts
        out = sparse_coo_tensor(indices, values, size)
        return out.coalesce() if coalesced and coalesced[0] is True else out
    if kind is strided:
        raise FileFormatError("a sparse tensor in it is laid out as a dense one")
    return sparse_compressed_tensor(*parts, layout=kind)


def _refuse(what: str) -> Callable[..., Any]:
    def refused(*args: Any) -> Any:
        raise NotSupported(f"load: the file holds {what}, which has no tensor type here; "
                           f"convert it to a dense tensor before saving")
    return refused


_REBUILD = (_tensor, _tensor_v3, _parameter, _meta_tensor, _sparse, _later, rebuilt_jagged,
            nested_later)
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta_tensor,
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._utils._rebuild_qtensor": _refuse("a quantized tensor"),
    "torch._utils._rebuild_wrapper_subclass": _refuse("a tensor subclass"),
    "torch._tensor._rebuild_from_type_v2": _of_class,
    "torch.serialization._get_layout": lambda name: LAYOUTS[name],
    "torch.Size": lambda dims: Size(dims),
    "torch.device": lambda kind, *index: device("meta" if kind == "meta" else "cpu"),
}


def torch_names(filled: bool = True) -> dict[str, Any]:
    """Every name of PyTorch that a checkpoint may use, with its meaning here; where storages are
    not ``filled`` yet, nothing is made whose values are checked."""
    names: dict[str, Any] = {k: (Inner if f in _REBUILD else Callable_)(f)
                             for k, f in _FUNCTIONS.items()}
    if not filled:
        names["torch._utils._rebuild_sparse_tensor"] = Inner(_later)
    for prefix in ("torch", "torch.cuda"):
        for storage, dtype in STORAGES.items():
            names[f"{prefix}.{storage}"] = StorageType(DTYPES[dtype])
    names["torch.storage.UntypedStorage"] = names["torch.UntypedStorage"] = StorageType(None)
    names |= nested_names(filled)
    names["torch.Tensor"], names["torch.nn.parameter.Parameter"] = Tensor, Parameter
    names |= {f"torch.{name}": dtype for name, dtype in DTYPES.items()}
    return names
