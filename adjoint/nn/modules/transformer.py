"""Transformer encoder and decoder (Vaswani et al. 2017)."""
from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import adjoint.nn.functional as F
from adjoint.base.aval import MetaArray
from adjoint.base.errors import ArgumentError, MetaError, ShapeError
from adjoint.base.errors import missing as _missing
from adjoint.core.modes import AUTOCAST, GRAD, state, warn
from adjoint.core.rehearsal import answer, call, tell
from adjoint.core.rehearsal import current as rehearsal
from adjoint.core.tensor import Tensor
from adjoint.nn import _core
from adjoint.nn.init import xavier_uniform_
from adjoint.nn.modules.activation import GELU, ReLU
from adjoint.nn.modules.attention import MultiheadAttention
from adjoint.nn.modules.container import ModuleList
from adjoint.nn.modules.dropout import Dropout
from adjoint.nn.modules.linear import Linear
from adjoint.nn.modules.module import Module
from adjoint.nn.modules.normalization import LayerNorm

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
           "TransformerEncoderLayer"]

Activation = str | Callable[[Tensor], Tensor]


def _get_clones(module: Module, N: int) -> ModuleList:
    """N copies of a layer; own encoders of programs import it."""
    return ModuleList([copy.deepcopy(module) for _ in range(N)])


def _activation(given: Activation) -> Callable[[Tensor], Tensor]:
    if given == "relu":
        return F.relu
    if given == "gelu":
        return F.gelu
    if isinstance(given, str):
        raise ArgumentError(f"activation should be relu/gelu, not {given}")
    return given


def causal_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
    """(size, size) with minus infinity above the diagonal and 0 elsewhere."""
    full: Tensor = _core.full((size, size), -math.inf, device=device, dtype=dtype).triu(1)
    tell(full, partial(_causal, size))
    return full


def _causal(size: int) -> Any:
    """The causal mask as an array of float32."""
    return np.triu(np.full((size, size), -math.inf, np.float32), 1)


def _matches(mask: Any) -> bool:
    """Whether a square array is the causal mask."""
    wanted = _causal(len(mask))
    return bool(((mask == wanted) if mask.dtype.kind != "b" else (mask == (wanted != 0))).all())


def _is_causal(mask: Tensor | None, given: bool | None) -> bool:
    """``given`` if it is not None, else whether ``mask`` is the causal one."""
    if given is not None or mask is None:
        return bool(given)
    array = mask.array
    if mask.ndim != 2 or array.shape[0] != array.shape[1]:
        return False
    if type(array) is not MetaArray:
        return isinstance(array, np.ndarray) and _matches(array)
    if rehearsal() is None:                    # device meta: nothing to compare
        return False
    call(_matches, array, otherwise=bool)      # (what comparing takes)
    found = answer(_matches, mask)
    if found is None:
        raise MetaError(
            f"predict(): whether the mask {list(array.shape)} is the causal one follows from "
            "numbers that are not known here, and decides what attention keeps; pass is_causal= "
            "(tgt_is_causal=), or make the mask before the step or by "
            "Transformer.generate_square_subsequent_mask")
    return found


class TransformerEncoderLayer(Module):
    """Self-attention, then a two-layer network; a residual and a LayerNorm around each.

    ``forward(src (S, N, d_model), src_mask=None, src_key_padding_mask=None, is_causal=False)``;
    N comes first with ``batch_first``. ``norm_first`` normalizes before instead of after.

    >>> import adjoint as ad
    >>> layer = ad.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> tuple(layer(ad.zeros(5, 3, 8)).shape)
    (5, 3, 8)
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048,
                 dropout: float = 0.1, activation: Activation = F.relu,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias,
                                            batch_first=batch_first, **made)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **made)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)
        kind = self.activation                   # PyTorch reads this number in whole modules
        self.activation_relu_or_gelu = (1 if kind is F.relu or isinstance(kind, ReLU) else
                                        2 if kind is F.gelu or isinstance(kind, GELU) else 0)

    def forward(self, src: Tensor, src_mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        args = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = src + self._sa_block(self.norm1(src), *args)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(src + self._sa_block(src, *args))
        out: Tensor = self.norm2(x + self._ff_block(x))
        return out

    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
                  is_causal: bool = False) -> Tensor:
        out = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
                             need_weights=False, is_causal=is_causal)[0]
        return self.dropout1(out)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(Module):
    """Self-attention, attention to the encoder's output, then a two-layer network.

    ``forward(tgt (T, N, d_model), memory (S, N, d_model), tgt_mask=None, memory_mask=None,
    tgt_key_padding_mask=None, memory_key_padding_mask=None, tgt_is_causal=False,
    memory_is_causal=False)``.

    >>> import adjoint as ad
    >>> layer = ad.nn.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> tuple(layer(ad.zeros(4, 3, 8), ad.zeros(5, 3, 8)).shape)
    (4, 3, 8)
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048,
                 dropout: float = 0.1, activation: Activation = F.relu,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout,
                                            batch_first=batch_first, bias=bias, **made)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout=dropout,
                                                 batch_first=batch_first, bias=bias, **made)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **made)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
                memory_is_causal: bool = False) -> Tensor:
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = tgt + self._sa_block(self.norm1(tgt), *own)
            x = x + self._mha_block(self.norm2(x), memory, *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(tgt + self._sa_block(tgt, *own))
        x = self.norm2(x + self._mha_block(x, memory, *other))
        out: Tensor = self.norm3(x + self._ff_block(x))
        return out

    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
                  is_causal: bool = False) -> Tensor:
        out = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
                             is_causal=is_causal, need_weights=False)[0]
        return self.dropout1(out)

    def _mha_block(self, x: Tensor, mem: Tensor, attn_mask: Tensor | None,
                   key_padding_mask: Tensor | None, is_causal: bool = False) -> Tensor:
        out = self.multihead_attn(x, mem, mem, attn_mask=attn_mask,
                                  key_padding_mask=key_padding_mask, is_causal=is_causal,
                                  need_weights=False)[0]
        return self.dropout2(out)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


def _not_nested(layer: Module) -> str:
    """Why PyTorch would not take its path of nested tensors for this layer; "" where it would."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    attention = layer.self_attn
    for told, why in (
            (layer.norm_first, "norm_first was True"),
            (not attention.batch_first, "self_attn.batch_first was not True(use batch_first for "
                                        "better inference performance)"),
            (attention.in_proj_bias is None, "self_attn was passed bias=False"),
            (not attention._qkv_same_embed_dim, "self_attn._qkv_same_embed_dim was not True"),
            (layer.activation not in (F.relu, F.gelu) and not isinstance(
                layer.activation, ReLU | GELU), "activation_relu_or_gelu was not True"),
            (attention.num_heads % 2, "self_attn.num_heads is odd")):
        if told:
            return "encoder_layer." + why
    return ""


class TransformerEncoder(Module):
    """``num_layers`` copies of ``encoder_layer``, then ``norm`` if given.

    With ``enable_nested_tensor``, in evaluation without gradients and with no other mask, the
    output is 0 where ``src_key_padding_mask`` is True; ``mask_check`` leaves alone masks that are
    True elsewhere than at the ends of sequences. A nested tensor of layout strided is taken, too.

    >>> import adjoint as ad
    >>> layer = ad.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> tuple(ad.nn.TransformerEncoder(layer, 2)(ad.zeros(3, 5, 8)).shape)
    (3, 5, 8)
    """

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int,
                 norm: Module | None = None, enable_nested_tensor: bool = True,
                 mask_check: bool = True) -> None:
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        why = _not_nested(encoder_layer) if enable_nested_tensor else ""
        if why:
            warn("enable_nested_tensor is True, but self.use_nested_tensor is False because " + why)
        self.use_nested_tensor = enable_nested_tensor and not why       # (read by programs)
        self.mask_check = mask_check

    def forward(self, src: Tensor, mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None, is_causal: bool | None = None
                ) -> Tensor:
        causal = _is_causal(mask, is_causal)
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask,
                        is_causal=causal)
        if src_key_padding_mask is not None and mask is None and self.use_nested_tensor and (
                self._zeros_at(src, src_key_padding_mask)):
            src = src.masked_fill(src_key_padding_mask.bool().unsqueeze(-1), 0.0)
        return src if self.norm is None else self.norm(src)

    def _zeros_at(self, src: Tensor, padding: Tensor) -> bool:
        """Whether PyTorch would leave out the positions of the mask, whose results are then 0."""
        first: Any = self.layers[0]
        if first.training or src.dim() != 3 or first.norm1.eps != first.norm2.eps or (
                state() & AUTOCAST):
            return False
        if state() & GRAD and (src.requires_grad or any([
                p.requires_grad for p in first.parameters()])):
            return False
        array = padding.array
        if not self.mask_check or not isinstance(array, np.ndarray) or padding.level:
            return not padding.level
        left_out = array != 0
        return bool((left_out[:, 1:] >= left_out[:, :-1]).all())


class TransformerDecoder(Module):
    """``num_layers`` copies of ``decoder_layer``, then ``norm`` if given.

    >>> import adjoint as ad
    >>> layer = ad.nn.TransformerDecoderLayer(8, 2, 16)
    >>> tuple(ad.nn.TransformerDecoder(layer, 2)(ad.zeros(4, 3, 8), ad.zeros(5, 3, 8)).shape)
    (4, 3, 8)
    """

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int,
                 norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        causal = _is_causal(tgt_mask, tgt_is_causal)
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                        tgt_key_padding_mask=tgt_key_padding_mask,
                        memory_key_padding_mask=memory_key_padding_mask,
                        tgt_is_causal=causal, memory_is_causal=memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder and decoder: ``forward(src (S, N, E), tgt (T, N, E), masks...)`` -> (T, N, E).

    All weights of more than one axis start from xavier_uniform_. ``custom_encoder`` and
    ``custom_decoder`` take the place of the built ones. Raises ShapeError if the batch or
    feature sizes differ.

    >>> import adjoint as ad
    >>> m = ad.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> tuple(m(ad.zeros(3, 5, 8), ad.zeros(3, 4, 8)).shape)
    (3, 4, 8)
    """

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
                 num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Activation = F.relu, custom_encoder: Any = None,
                 custom_decoder: Any = None, layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        layer: tuple[Any, ...] = (d_model, nhead, dim_feedforward, dropout, activation,
                                  layer_norm_eps, batch_first, norm_first, bias)
        super().__init__()
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            self.encoder = TransformerEncoder(
                TransformerEncoderLayer(*layer, **made), num_encoder_layers,
                LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made))
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            self.decoder = TransformerDecoder(
                TransformerDecoderLayer(*layer, **made), num_decoder_layers,
                LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made))
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.ndim > 1:
                xavier_uniform_(p)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
                tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None,
                src_is_causal: bool | None = None, tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> Tensor:
        batch = 0 if self.batch_first else 1
        shapes = f"src is {tuple(src.shape)}, tgt is {tuple(tgt.shape)}"
        if src.ndim == 3 and tgt.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise ShapeError(f"the batch number of src and tgt must be equal: {shapes}, "
                             f"batch_first={self.batch_first}")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ShapeError("the feature number of src and tgt must be equal to d_model = "
                             f"{self.d_model}: {shapes}")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask,
                              is_causal=src_is_causal)
        out: Tensor = self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal)
        return out

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask (sz, sz): minus infinity above the diagonal, 0 elsewhere.

        >>> import adjoint as ad
        >>> ad.nn.Transformer.generate_square_subsequent_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
        """
        return causal_mask(sz, device, dtype)


__getattr__ = _missing("adjoint.nn.modules.transformer", "adjoint.nn._names")
