"""The memory under a tensor, as programs ask for it: its address, its bytes, its elements."""
from __future__ import annotations

import importlib
import io
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import of_numpy, to_numpy, uint8
from adjoint.base.errors import ArgumentError, AutogradError, StructureError
from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import Cell, Tensor, bump, owner_of, share_cell, wrap
from adjoint.ops.convert import LEGACY as CONSTRUCTORS
from adjoint.ops.public import FUNCTIONS

__all__ = ["TypedStorage", "UntypedStorage"]


def _of_buffer(buffer: Any, kind: Any, byte_order: str | None, count: int, offset: int) -> Any:
    """A copy of what an object with the buffer interface holds, as elements of a dtype."""
    raw = memoryview(buffer).cast("B")
    if byte_order is None and kind.itemsize > 1:
        raise ArgumentError("function missing required argument 'byte_order' (pos 2)")
    if byte_order not in (None, *_ORDERS):
        raise ArgumentError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or "
                            "'native')")
    if not 0 <= offset <= len(raw):
        raise ArgumentError(f"offset must be non-negative and no greater than buffer length "
                            f"({len(raw)}), but got {offset}")
    rest = len(raw) - offset
    if count < 0 and rest % kind.itemsize:
        raise ArgumentError(f"buffer size ({rest}) must be a multiple of element size "
                            f"({kind.itemsize})")
    if count * kind.itemsize > rest:
        raise ArgumentError(f"buffer has only {rest // kind.itemsize} elements after offset "
                            f"{offset}, but specified a size of {count}")
    if not rest:
        return np.empty(0, kind)
    order = _ORDERS[byte_order or "native"]
    return np.frombuffer(raw, kind.newbyteorder(order), count, offset).astype(kind)


class UntypedStorage:
    """The bytes that a tensor and its views share, or that many new ones.

    >>> import adjoint as ad
    >>> x = ad.zeros(2, 3)
    >>> x[0].untyped_storage().nbytes(), x.data_ptr() == x[0].untyped_storage().data_ptr()
    (24, True)
    """

    def __init__(self, tensor: Tensor | int | Sequence[Any] = 0, *, dtype: Any = None,
                 device: Any = None) -> None:
        make = FUNCTIONS["empty" if isinstance(tensor, int) else "tensor"]
        self.tensor: Tensor = tensor if isinstance(tensor, Tensor) else make(
            tensor, dtype=self._element(dtype), device=device)
        share_cell(self.tensor)              # others may write, and need not say so
        array = self.tensor.array
        self._owner = array if isinstance(array, MetaArray) else owner_of(array)

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first bytes of a file, as `from_file` has them."""
        return cls(FUNCTIONS["from_file"](filename, shared, nbytes, dtype=uint8))

    def _element(self, dtype: Any) -> Any:
        """Type of an element of new memory."""
        if dtype is not None:
            raise ArgumentError("UntypedStorage has no dtype: its size is in bytes; use "
                                "TypedStorage(size, dtype=...)")
        return uint8

    def untyped(self) -> UntypedStorage:
        """The same memory, counted in bytes."""
        return self

    def nbytes(self) -> int:
        """Bytes of the whole memory."""
        return int(self._owner.nbytes)

    def size(self) -> int:
        """Bytes of the whole memory."""
        return self.nbytes()

    def data_ptr(self) -> int:
        """Address of its first byte; 0 on device meta."""
        return 0 if isinstance(self._owner, MetaArray) else int(
            self._owner.__array_interface__["data"][0])

    @property
    def device(self) -> Any:
        """Where it is."""
        return self.tensor.device

    def _bytes(self) -> Any:
        owner: Any = self._owner
        return owner.reshape(-1, order="A").view(np.uint8)

    def tolist(self) -> list[int]:
        """The bytes as ints."""
        found: list[int] = self._bytes().tolist()
        return found

    is_cuda = is_sparse = is_hpu = False

    def get_device(self) -> None:
        """None: memory here belongs to no numbered device."""

    def element_size(self) -> int:
        """Bytes per element: 1."""
        return 1

    def type(self, dtype: Any = None) -> Any:
        """The name of the class."""
        if dtype is not None:
            raise ArgumentError(f"UntypedStorage has no elements to turn into {dtype}: "
                                "TypedStorage does")
        return "torch.storage.UntypedStorage"

    def _flat(self) -> Tensor:
        """All elements, as a tensor on this memory."""
        return wrap(self._elements())

    def clone(self) -> Self:
        """A copy."""
        return type(self)(self._flat().clone())

    def new(self) -> Self:
        """Another one, empty."""
        return type(self)(self._flat()[:0].clone())

    def fill_(self, value: Any) -> Self:
        """Set every element."""
        self[:] = value
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> Self:
        """Take the elements of another storage of as many, cast."""
        if not isinstance(source, UntypedStorage):
            raise StructureError("copy_(): argument 'src' (position 1) must be torch.Storage, not "
                                 f"{type(source).__name__}")
        if len(source) != len(self):
            raise ArgumentError(f"storages of {len(self)} and {len(source)} elements; sizes must "
                                "be equal to copy")
        self[:] = source._flat()
        return self

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str | None = None, count: int = -1,
                    offset: int = 0, dtype: Any = None) -> Any:
        """A copy of `count` elements (-1: all) of `dtype`, from byte `offset` on, of an object with
        the buffer interface; `byte_order` is 'native', 'big' or 'little', needless for bytes.

        >>> import adjoint as ad
        >>> ad.UntypedStorage.from_buffer(bytes([0, 1, 0, 2]), "big", dtype=ad.int16).tolist()
        [1, 0, 2, 0]
        """
        if dtype is None:
            raise ArgumentError("argument 'dtype' cannot be None: give the dtype of the elements")
        return cls(wrap(_of_buffer(buffer, to_numpy(dtype), byte_order, count, offset)))

    def cpu(self) -> Self:
        """The storage itself."""
        return self

    def byteswap(self, dtype: Any) -> None:
        """Turn around the bytes of every element of `dtype`, in place; of a complex one, those of
        either part."""
        kind = to_numpy(dtype)
        width = kind.itemsize // 2 if kind.kind == "c" else kind.itemsize
        words = self._bytes().view(f"u{width}")
        self._written()
        words.byteswap(inplace=True)

    def _written(self) -> None:
        """Let backward find the write, where writes through `.data` count too."""
        if Cell.data_counts:
            bump(self.tensor, "a write to its storage")

    def share_memory_(self) -> Self:
        """Move the memory to where other processes can see it, as `Tensor.share_memory_` does."""
        self.tensor.share_memory_()
        array = self.tensor.array
        self._owner = array if isinstance(array, MetaArray) else owner_of(array)
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """False: there is no other device to copy to."""
        return False

    def resizable(self) -> bool:
        """False for memory that NumPy or another library may show too."""
        cell = self.tensor._cell
        return not (cell is not None and cell.exposed) and not self.is_shared()

    def resize_(self, size: int) -> Self:
        """Take another size, in bytes (a TypedStorage: in elements), with 0 in what is new. The
        memory moves, and all tensors that show it with it; refused where one shows more.

        >>> import adjoint as ad
        >>> x = ad.arange(3.0)
        >>> _ = x.untyped_storage().resize_(16)
        >>> x.as_strided((4,), (1,))
        tensor([0., 1., 2., 0.])
        """
        nbytes = size * self.element_size()
        if size < 0:
            raise ArgumentError(f"resize_: a size may not be negative, got {size}")
        if not self.resizable():
            raise AutogradError("Trying to resize storage that is not resizable: NumPy, another "
                                "library or another process shows it too; clone() it first")
        if isinstance(self._owner, MetaArray) or nbytes == self.nbytes():
            return self
        from adjoint.core.regrow import regrow  # rarely asked for
        self._owner = regrow(self._owner, nbytes)
        return self

    @property
    def filename(self) -> Any:
        """Path of the file that is mapped here; None for other memory."""
        path = getattr(self._owner, "filename", None)
        return None if path is None else str(path)

    @property
    def _cdata(self) -> int:
        """A number that two storages share only if they are the same memory."""
        return self.data_ptr() or id(self._owner)

    def _as_typed(self) -> TypedStorage:
        return TypedStorage(wrap(self._bytes()))

    def is_shared(self) -> bool:
        """True after `Tensor.share_memory_`: other processes may write to it as well."""
        return bool(self.tensor.is_shared())

    def __len__(self) -> int:
        return self.size()

    def _elements(self) -> Any:
        return self._bytes()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and type(self) is UntypedStorage:
            part = self._bytes()[index]
            made = UntypedStorage(wrap(part))
            made._owner = part          # not the whole memory, which the others show
            return made
        if not isinstance(index, (int, slice)):
            raise TypeError(f"can't index a {self.type()} with {type(index).__name__}")
        if isinstance(index, int) and not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range for storage of size {len(self)}")
        return self.tolist()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._written()
        wrap(self._elements())[index] = value

    def __repr__(self) -> str:
        rows = "" if isinstance(self._owner, MetaArray) else "".join(
            f" {x}\n" for x in self.tolist())
        return f"{rows}[{self._kind()} of size {self.size()}]"

    def _kind(self) -> str:
        return f"torch.storage.UntypedStorage(device={self.device})"

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and other.data_ptr() == self.data_ptr()

    def __hash__(self) -> int:
        return self.data_ptr()


class TypedStorage(UntypedStorage):
    """The memory of a tensor, counted and read in elements of its dtype; or new memory of `size`
    elements, TypedStorage(size, dtype=...)."""

    def __init__(self, tensor: Tensor | int | Sequence[Any] = 0, *, dtype: Any = None,
                 device: Any = None, wrap_storage: Any = None) -> None:
        if wrap_storage is None:
            super().__init__(tensor, dtype=dtype, device=device)
            return
        if type(wrap_storage) is not UntypedStorage:
            raise StructureError("TypedStorage: wrap_storage has to be an UntypedStorage, got a "
                                 f"{type(wrap_storage).__name__}")
        if dtype is None or device is not None or not isinstance(tensor, int) or tensor:
            raise ArgumentError("TypedStorage.__init__ received an invalid combination of arguments"
                                ": beside wrap_storage there has to be dtype, and no size, data or "
                                "device")
        shown, kind = wrap_storage.tensor, to_numpy(dtype)
        self._owner = wrap_storage._owner
        whole = wrap(wrap_storage._bytes()[: self.nbytes() // kind.itemsize * kind.itemsize]
                     .view(kind))
        whole._cell = share_cell(shown)
        self.tensor = whole

    def _element(self, dtype: Any) -> Any:
        return dtype

    @property
    def dtype(self) -> Any:
        """Type of an element."""
        return self.tensor.dtype

    def size(self) -> int:
        """Number of elements."""
        return self.nbytes() // self.tensor.array.dtype.itemsize

    def element_size(self) -> int:
        """Bytes per element."""
        return int(self.tensor.array.dtype.itemsize)

    def tolist(self) -> list[Any]:
        """The elements in the order of memory."""
        found: list[Any] = wrap(self._elements()).tolist()
        return found

    def _elements(self) -> Any:
        return self._bytes().view(self.tensor.array.dtype)

    def untyped(self) -> UntypedStorage:
        """The same memory, counted in bytes."""
        return UntypedStorage(self.tensor)

    def _kind(self) -> str:
        return f"torch.storage.TypedStorage(dtype={self.dtype}, device={self.device})"

    def type(self, dtype: Any = None) -> Any:
        """The name of the class of such storages; with `dtype` (a dtype, or a class of storages) a
        copy of that type."""
        if dtype is None:
            return f"torch.{self.pickle_storage_type()}"
        return self._as(getattr(dtype, "dtype", dtype))

    def pickle_storage_type(self) -> str:
        """The name of the class of such storages in checkpoints."""
        return next(name for name, kind in LEGACY.items() if to_numpy(kind) == self.dtype.dtype)

    def _as(self, dtype: Any) -> TypedStorage:
        return self if dtype == self.dtype else TypedStorage(self._flat().to(dtype))

    def _as_typed(self) -> TypedStorage:
        return self


for _method, _kind in (("double", "float64"), ("float", "float32"), ("half", "float16"),
                       ("long", "int64"), ("int", "int32"), ("short", "int16"), ("char", "int8"),
                       ("byte", "uint8"), ("bool", "bool"), ("bfloat16", "bfloat16")):
    def _cast(self: UntypedStorage, _kind: str = _kind) -> TypedStorage:
        """A copy in another dtype; the storage itself where it has it."""
        return self._as_typed()._as(of_numpy(to_numpy(_kind)))
    setattr(UntypedStorage, _method, _cast)


_ORDERS: dict[str, Any] = {"native": "=", "big": ">", "little": "<"}


class _Named(type):
    """The class of `FloatStorage` and its like: calling it makes a storage of one dtype, from a
    number of elements or from the elements; the storages of that dtype are its instances.

    >>> import adjoint as ad
    >>> isinstance(ad.FloatStorage([1, 2]), ad.FloatStorage), ad.LongStorage([1, 2]).tolist()
    (True, [1, 2])
    """

    element: str

    @property
    def dtype(cls) -> Any:
        """The dtype of its storages."""
        return of_numpy(to_numpy(cls.element))

    def from_buffer(cls, buffer: Any, byte_order: str | None = None, count: int = -1,
                    offset: int = 0) -> Any:
        """A copy of `count` elements (-1: all) of an object with the buffer interface, from byte
        `offset` on; `byte_order` is 'native', 'big' or 'little', needless for single bytes.

        >>> import adjoint as ad
        >>> ad.ShortStorage.from_buffer(bytes([0, 1, 0, 2]), "big").tolist()
        [1, 2]
        """
        kind = to_numpy(cls.element)
        return TypedStorage(wrap(_of_buffer(buffer, kind, byte_order, count, offset)))

    def from_file(cls, filename: Any, shared: bool, size: int) -> Any:
        """`size` elements on the memory of a file, as `from_file` has them."""
        return TypedStorage(FUNCTIONS["from_file"](filename, shared, size, dtype=cls.dtype))

    def __call__(cls, *args: Any, wrap_storage: Any = None) -> Any:
        if wrap_storage is not None:
            return TypedStorage(*args, dtype=cls.dtype, wrap_storage=wrap_storage)
        if len(args) > 1:
            raise ArgumentError(f"Too many positional arguments: {cls.__name__} takes a size or a "
                                f"sequence, got {len(args)} arguments")
        if args and not isinstance(args[0], int):
            return TypedStorage(FUNCTIONS["tensor"](list(args[0]), dtype=cls.dtype))
        return TypedStorage(*args or (0,), dtype=cls.dtype)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, TypedStorage) and x.dtype == cls.dtype

    def __repr__(cls) -> str:
        return f"<class 'torch.{cls.__name__}'>"


LEGACY = {name.replace("Tensor", "Storage"): kind for name, kind in CONSTRUCTORS.items()}
NAMED = {name: _Named(name, (), {"element": kind, "__module__": "adjoint",
                                 "__doc__": f"Storages of {kind}: of a size, or of elements."})
         for name, kind in LEGACY.items()}
globals().update({**NAMED, "Storage": NAMED["FloatStorage"]})


def _load_from_bytes(b: bytes) -> Any:
    """A storage from the bytes that PyTorch's plain pickles have for it: a small file of `save`."""
    return importlib.import_module("adjoint.io").load(io.BytesIO(b), weights_only=False)


__getattr__ = _missing("adjoint.storage")
