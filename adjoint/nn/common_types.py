"""`torch.nn.common_types`: names for what a size argument may be, as annotations use them."""
from __future__ import annotations

from adjoint.core.tensor import Tensor as Tensor

_scalar_or_tuple_1_t = int | tuple[int]
_scalar_or_tuple_2_t = int | tuple[int, int]
_scalar_or_tuple_3_t = int | tuple[int, int, int]
_scalar_or_tuple_4_t = int | tuple[int, int, int, int]
_scalar_or_tuple_5_t = int | tuple[int, int, int, int, int]
_scalar_or_tuple_6_t = int | tuple[int, int, int, int, int, int]
_scalar_or_tuple_any_t = int | tuple[int, ...]
_size_1_t, _size_2_t, _size_3_t = _scalar_or_tuple_1_t, _scalar_or_tuple_2_t, _scalar_or_tuple_3_t
_size_4_t, _size_5_t, _size_6_t = _scalar_or_tuple_4_t, _scalar_or_tuple_5_t, _scalar_or_tuple_6_t
_size_any_t = _scalar_or_tuple_any_t
_maybe_indices_t = Tensor | tuple[Tensor, Tensor]
