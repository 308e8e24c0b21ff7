"""PyTorch's older constructors: `FloatTensor(2, 3)`, `LongTensor([1])`."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.dtypes import DType, of_numpy, set_default, to_numpy
from adjoint.base.errors import ArgumentError
from adjoint.core.modes import warn
from adjoint.core.tensor import Tensor
from adjoint.ops.convert import LEGACY
from adjoint.ops.create import legacy
from adjoint.ops.device import sparse_coo
from adjoint.ops.sparse import sparse_coo_tensor
from adjoint.ops.sparse_tensor import SparseTensor


class TypedTensor(type):
    """The class of `FloatTensor` and its like: calling it makes a tensor of one dtype, and the
    tensors of that dtype are its instances.

    >>> import adjoint as ad
    >>> isinstance(ad.LongTensor([1, 2]), ad.LongTensor), ad.FloatTensor(2, 3).shape
    (True, adjoint.Size([2, 3]))
    """

    element: str

    @property
    def dtype(cls) -> DType:
        """The dtype of its tensors."""
        return of_numpy(to_numpy(cls.element))

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        return legacy(*args, device=device, dtype=cls.dtype)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor) and x.dtype == cls.dtype

    def __repr__(cls) -> str:
        return f"<class 'torch.{cls.__name__}'>"


class SparseTyped(TypedTensor):
    """The class of `sparse.FloatTensor` and its like, as older graph programs make their matrix:
    of indices, values and a shape, or of a shape alone."""

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        given = "indices, values, shape" if len(args) == 3 else "indices, values"
        data = len(args) > 1 and isinstance(args[0], Tensor)
        warn(f"torch.sparse.SparseTensor({given if data else 'shape'}, *, device=) is deprecated.  "
             f"Please use torch.sparse_coo_tensor({given if data else 'shape'}, dtype=, device=).")
        if data:
            return sparse_coo_tensor(*args, dtype=cls.dtype, device=device, check_invariants=False)
        shape = tuple(args[0]) if args and not isinstance(args[0], int) else args
        return sparse_coo_tensor(shape or (0,), dtype=cls.dtype, device=device)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, SparseTensor) and x.layout is sparse_coo and x.dtype == cls.dtype

    def __repr__(cls) -> str:
        return f"<class 'torch.sparse.{cls.__name__}'>"


class CudaTyped(TypedTensor):
    """The class of `cuda.FloatTensor` and its like: nothing is an instance, making one raises."""

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        raise TypeError(f"type torch.cuda.{cls.__name__} not available. Torch not compiled with "
                        "CUDA enabled: use FloatTensor, or tensor(..., device='cpu')")

    def __instancecheck__(cls, x: object) -> bool:
        return False

    def __repr__(cls) -> str:
        return f"<class 'torch.cuda.{cls.__name__}'>"


def _of_kind(kind: type[TypedTensor], module: str, what: str) -> dict[str, Any]:
    return {name: kind(name, (), {
        "element": dtype, "__module__": module,
        "__doc__": f"PyTorch's older constructor of {what}{dtype} tensors: sizes or data."})
        for name, dtype in LEGACY.items()}


SPARSE = _of_kind(SparseTyped, "adjoint.sparse", "sparse ")
CUDA = _of_kind(CudaTyped, "adjoint.cuda", "CUDA ")
globals().update(_of_kind(TypedTensor, "adjoint", ""))
__all__ = [*LEGACY, "set_default_tensor_type", "typename"]


def typename(obj: Any) -> str:
    """The name of a tensor's older type, or the qualified name of another object's class.

    >>> import adjoint as ad
    >>> ad.typename(ad.ones(1))
    'torch.FloatTensor'
    """
    if isinstance(obj, Tensor):
        return str(obj.type())
    kind = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(kind, "__module__", "")
    return kind.__qualname__ if module in ("", "builtins") else f"{module}.{kind.__qualname__}"


def set_default_tensor_type(t: Any) -> None:
    """`set_default_dtype` by the older type's name: `set_default_tensor_type(DoubleTensor)`."""
    warn("torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
         "torch.set_default_dtype() and torch.set_default_device() as alternatives.")
    name = t if isinstance(t, str) else typename(t)
    short = name.rpartition(".")[2]
    if short not in LEGACY:
        raise ArgumentError(f"invalid type name {name!r}; use set_default_dtype(float64)")
    if "cuda." in name:
        CUDA[short]()                   # says why it is not there
    set_default(np.dtype(to_numpy(LEGACY[short])))
