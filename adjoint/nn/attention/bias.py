"""`torch.nn.attention.bias`: causal masks that are known by their kind, not by their elements.

    >>> import adjoint as ad
    >>> causal_lower_right(2, 4)
    tensor([[ True,  True,  True, False],
            [ True,  True,  True,  True]])
"""
from __future__ import annotations

import enum
import warnings
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, AssertedError, missing
from adjoint.core.intercept import make_subclass
from adjoint.core.tensor import Tensor, wrap
from adjoint.nn.functional import scaled_dot_product_attention

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Which corner the triangle starts from, where there are more keys than queries."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """The mask of `scaled_dot_product_attention` under which query i sees keys up to i (UPPER_LEFT)
    or up to i + seq_len_kv - seq_len_q (LOWER_RIGHT). Attention of the first kind, or of as many
    keys as queries, makes no mask; other functions get the (seq_len_q, seq_len_kv) mask."""

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    @staticmethod
    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Any:
        if not isinstance(variant, CausalVariant):
            raise AssertedError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        shape = np.broadcast_to(np.False_, (seq_len_q, seq_len_kv))      # holds one element
        made: Any = make_subclass(cls, wrap(shape))
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        if variant == CausalVariant.LOWER_RIGHT and seq_len_q > seq_len_kv:
            warnings.warn("Lower right causal bias will produce NaNs in the output when "
                          "seq_len_q > seq_len_kv!", stacklevel=3)
        return made

    def __init__(self, *_: Any) -> None:
        """All is done in `__new__`."""

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask itself."""
        later = (self.seq_len_kv - self.seq_len_q
                 if self.variant == CausalVariant.LOWER_RIGHT else 0)
        return wrap(np.tri(self.seq_len_q, self.seq_len_kv, later, np.bool_))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self._materialize())

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            return _attend(*args, **kwargs)
        if getattr(func, "__name__", "") == "__set__":
            given: Any = super()              # set when the class is made
            return given.__torch_function__(func, types, args, kwargs)

        def plain(x: Any) -> Any:
            return x._materialize() if isinstance(x, cls) else type(x)(map(plain, x)) if type(
                x) in (list, tuple) else x
        return func(*plain(args), **{k: plain(v) for k, v in kwargs.items()})


def _attend(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
            is_causal: bool = False, scale: Any = None, enable_gqa: bool = False) -> Any:
    if is_causal:
        raise ArgumentError("CausalBias should not be used with causal=True")
    mask: Any = attn_mask
    if mask.seq_len_q == mask.seq_len_kv or mask.variant == CausalVariant.UPPER_LEFT:
        return scaled_dot_product_attention(query, key, value, None, dropout_p, True, scale,
                                            enable_gqa)
    return scaled_dot_product_attention(query, key, value, mask._materialize(), dropout_p, False,
                                        scale, enable_gqa)


def causal_upper_left(*size: int) -> CausalBias:
    """The mask of two lengths whose triangle starts at the first query and the first key.

    >>> causal_upper_left(2, 3)
    tensor([[ True, False, False],
            [ True,  True, False]])
    """
    return CausalBias(CausalVariant.UPPER_LEFT, *_two("causal_upper_left", size))


def causal_lower_right(*size: int) -> CausalBias:
    """The mask of two lengths whose triangle ends at the last query and the last key."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *_two("causal_lower_right", size))


def _two(name: str, size: tuple[int, ...]) -> tuple[int, int]:
    if len(size) != 2:
        raise AssertedError(f"{name} only supports 2D tensors")
    return size[0], size[1]


__getattr__ = missing("adjoint.nn.attention.bias")
