"""What the names in a PyTorch checkpoint mean here: storages, dtypes, rebuild functions."""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import adjoint.base.dtypes as dtypes
from adjoint.base.dtypes import DType
from adjoint.base.errors import NotSupported
from adjoint.core.tensor import Size, Tensor, share_cell
from adjoint.io.arrays import Parameter, as_tensor, device
from adjoint.io.errors import FileFormatError
from adjoint.io.pickle_in import Callable_
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


class StorageType(NamedTuple):
    """A typed storage class of a file: only its dtype matters. None: untyped bytes."""

    dtype: DType | None


class Storage:
    """The bytes of one storage of a file, viewed as often as tensors ask."""

    __slots__ = ("raw", "dtype", "device", "_first")

    def __init__(self, raw: np.ndarray, dtype: DType | None, device: str) -> None:
        self.raw, self.dtype, self.device = raw, dtype, device
        self._first: Tensor | None = None

    def adopt(self, tensor: Tensor) -> Tensor:
        """Give the tensor the version counter of the others on this storage."""
        if self._first is None:
            self._first = tensor
        else:
            tensor._cell = share_cell(self._first)
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
        empty = 0 in size
        end = 0 if empty else 1 + offset + sum((n - 1) * s for n, s in zip(size, stride,
                                                                         strict=True))
        if end * itemsize > self.raw.nbytes:
            raise FileFormatError(f"a tensor in it (size {size}, stride {stride}, offset "
                                  f"{offset}) needs {end} elements of {dtype.name}; its storage "
                                  f"has {self.raw.nbytes // itemsize}")
        if empty:
            return np.empty(size, dtype.dtype)
        return np.ndarray(size, dtype.dtype, self.raw.data, offset * itemsize,
                          tuple(s * itemsize for s in stride))


def in_order(raw: np.ndarray, dtype: DType | None, order: str) -> np.ndarray:
    """The bytes of a storage that was written in byte order ``order``, in this machine's."""
    if order == sys.byteorder:
        return raw
    if dtype is None:
        raise NotSupported("load: untyped storages of another byte order")
    width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    return raw.view(np.dtype(f"u{width}")).byteswap().view(np.uint8)


def _tensor(storage: Storage, offset: int, size: Sequence[int], stride: Sequence[int],
            requires_grad: bool = False, hooks: Any = None, metadata: Any = None,
            dtype: DType | None = None) -> Tensor:
    chosen = dtype or storage.dtype
    if not isinstance(storage, Storage) or chosen is None:
        raise FileFormatError("a tensor in it has no storage")
    array = storage.view(chosen, offset, size, stride)
    if metadata:
        array = _with_bits(array, metadata)
    return storage.adopt(as_tensor(array, requires_grad is True, storage.device))


def _with_bits(array: np.ndarray, metadata: Any) -> np.ndarray:
    """PyTorch's lazy conjugation and negation, carried out."""
    if metadata.get("conj"):
        array = np.conj(array)
    return np.negative(array) if metadata.get("neg") else array


def _tensor_v3(storage: Storage, offset: int, size: Sequence[int], stride: Sequence[int],
               requires_grad: bool, hooks: Any, dtype: DType, metadata: Any = None) -> Tensor:
    return _tensor(storage, offset, size, stride, requires_grad, hooks, metadata, dtype)


def _parameter(data: Tensor, requires_grad: bool = True, hooks: Any = None,
               state: Any = None) -> Parameter:
    return Parameter(data, requires_grad is True)


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


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta_tensor,
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._utils._rebuild_qtensor": _refuse("a quantized tensor"),
    "torch._utils._rebuild_nested_tensor": _refuse("a nested tensor"),
    "torch._utils._rebuild_wrapper_subclass": _refuse("a tensor subclass"),
    "torch._tensor._rebuild_from_type_v2": _refuse("a tensor subclass"),
    "torch.serialization._get_layout": lambda name: LAYOUTS[name],
    "torch.Size": lambda dims: Size(dims),
    "torch.device": lambda kind, *index: device("meta" if kind == "meta" else "cpu"),
}


def torch_names(filled: bool = True) -> dict[str, Any]:
    """Every name of PyTorch that a checkpoint may use, with its meaning here; where storages are
    not ``filled`` yet, nothing is made whose values are checked."""
    names: dict[str, Any] = {k: Callable_(f) for k, f in _FUNCTIONS.items()}
    if not filled:
        names["torch._utils._rebuild_sparse_tensor"] = Callable_(lambda kind, parts: None)
    for prefix in ("torch", "torch.cuda"):
        for storage, dtype in STORAGES.items():
            names[f"{prefix}.{storage}"] = StorageType(DTYPES[dtype])
    names["torch.storage.UntypedStorage"] = names["torch.UntypedStorage"] = StorageType(None)
    names |= {f"torch.{name}": dtype for name, dtype in DTYPES.items()}
    return names
