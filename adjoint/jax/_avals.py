"""Shapes and dtypes without values."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.jax._dtypes import as_dtype


class ShapeDtypeStruct:
    """A shape and a dtype without values: what `eval_shape` gives and takes."""

    def __init__(self, shape: Any, dtype: Any, *, weak_type: bool = False,
                 sharding: Any = None, manual_axis_type: Any = None, is_ref: bool = False) -> None:
        if is_ref or manual_axis_type is not None:
            raise NotImplementedError("ShapeDtypeStruct: is_ref= and manual_axis_type= are about "
                                      "references and meshes in compiled programs")
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        self.shape = tuple(shape)
        self.dtype = dtype if getattr(dtype, "name", "").startswith("key<") else as_dtype(dtype)
        self.weak_type = weak_type
        self.sharding = sharding

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return int(self.shape[0])

    def __bool__(self) -> bool:
        return True

    def update(self, **fields: Any) -> Any:
        """The same with other fields: `shape`, `dtype`, `weak_type`, `sharding`."""
        return type(self)(**{"shape": self.shape, "dtype": self.dtype, "weak_type": self.weak_type,
                             "sharding": self.sharding, **fields})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (
            self.shape, self.dtype, self.weak_type) == (other.shape, other.dtype, other.weak_type)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{weak})"

    def str_short(self) -> str:
        """`float32[3]`."""
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


class ShapedArray(ShapeDtypeStruct):
    """`x.aval`."""

    def __init__(self, shape: Any, dtype: Any, weak_type: bool = False, *, sharding: Any = None,
                 manual_axis_type: Any = None, memory_space: Any = None) -> None:
        super().__init__(shape, dtype, weak_type=weak_type, sharding=sharding)

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short()}{weak})"

    def __str__(self) -> str:
        return ("~" if self.weak_type else "") + self.str_short()


__all__ = ["ShapeDtypeStruct", "ShapedArray"]
