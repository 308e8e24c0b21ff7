"""Vision Transformer: patches of an image as the words of an encoder."""
from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from adjoint import nn
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.nn import init
from adjoint.ops.api_join import cat
from adjoint.ops.create import empty, zeros
from adjoint.vision.layers import MLP
from adjoint.vision.models.weights import no_weights

Norm = Callable[..., nn.Module]
_NORM: Norm = partial(nn.LayerNorm, eps=1e-6)


class MLPBlock(MLP):
    """Two linear layers with GELU between them, and dropout."""

    def __init__(self, in_dim: int, mlp_dim: int, dropout: float) -> None:
        super().__init__(in_dim, [mlp_dim, in_dim], activation_layer=nn.GELU, inplace=None,
                         dropout=dropout)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                init.xavier_uniform_(m.weight)
                if m.bias is not None:
                    init.normal_(m.bias, std=1e-6)


class EncoderBlock(nn.Module):
    """Attention, then two linear layers, each after a norm and around a shortcut."""

    def __init__(self, num_heads: int, hidden_dim: int, mlp_dim: int, dropout: float,
                 attention_dropout: float, norm_layer: Norm = _NORM) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.ln_1 = norm_layer(hidden_dim)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads,
                                                    dropout=attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = norm_layer(hidden_dim)
        self.mlp = MLPBlock(hidden_dim, mlp_dim, dropout)

    def forward(self, input: Tensor) -> Tensor:
        x = self.ln_1(input)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + input
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class Encoder(nn.Module):
    """Positions are added, then the blocks, then a norm: (N, L, C) to (N, L, C)."""

    def __init__(self, seq_length: int, num_layers: int, num_heads: int, hidden_dim: int,
                 mlp_dim: int, dropout: float, attention_dropout: float,
                 norm_layer: Norm = _NORM) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(empty(1, seq_length, hidden_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(OrderedDict(
            (f"encoder_layer_{i}", EncoderBlock(num_heads, hidden_dim, mlp_dim, dropout,
                                                attention_dropout, norm_layer))
            for i in range(num_layers)))
        self.ln = norm_layer(hidden_dim)

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = self.ln(self.layers(self.dropout(input + self.pos_embedding)))
        return out


class VisionTransformer(nn.Module):
    """Dosovitskiy et al. (2020), arXiv:2010.11929. Images (N, 3, image_size, image_size).

    `representation_size` puts a linear layer and tanh before the classifier. The classifier begins
    at zero.
    """

    def __init__(self, image_size: int, patch_size: int, num_layers: int, num_heads: int,
                 hidden_dim: int, mlp_dim: int, dropout: float = 0.0,
                 attention_dropout: float = 0.0, num_classes: int = 1000,
                 representation_size: int | None = None, norm_layer: Norm = _NORM) -> None:
        super().__init__()
        if image_size % patch_size:
            raise ArgumentError(f"Input shape indivisible by patch size: {image_size} pixels, "
                                f"patches of {patch_size}")
        self.image_size, self.patch_size, self.hidden_dim = image_size, patch_size, hidden_dim
        self.mlp_dim, self.num_classes = mlp_dim, num_classes
        self.conv_proj = nn.Conv2d(3, hidden_dim, patch_size, patch_size)
        self.class_token = nn.Parameter(zeros(1, 1, hidden_dim))
        self.seq_length = (image_size // patch_size) ** 2 + 1
        self.encoder = Encoder(self.seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout,
                               attention_dropout, norm_layer)
        heads: OrderedDict[str, nn.Module] = OrderedDict()
        width = hidden_dim if representation_size is None else representation_size
        if representation_size is not None:
            heads["pre_logits"] = nn.Linear(hidden_dim, width)
            heads["act"] = nn.Tanh()
        heads["head"] = nn.Linear(width, num_classes)
        self.heads = nn.Sequential(heads)
        self._start()

    def _start(self) -> None:
        """Weights of the first and last layers; the encoder has its own."""
        fan_in = 3 * self.patch_size ** 2
        init.trunc_normal_(self.conv_proj.weight, std=math.sqrt(1 / fan_in))
        if self.conv_proj.bias is not None:
            init.zeros_(self.conv_proj.bias)
        if hasattr(self.heads, "pre_logits"):
            init.trunc_normal_(self.heads.pre_logits.weight,
                               std=math.sqrt(1 / self.heads.pre_logits.in_features))
            init.zeros_(self.heads.pre_logits.bias)
        init.zeros_(self.heads.head.weight)
        init.zeros_(self.heads.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[-2:]) != (self.image_size, self.image_size):
            raise ArgumentError(f"VisionTransformer: images of {self.image_size} x "
                                f"{self.image_size} pixels expected, got {tuple(x.shape)}")
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        first = self.class_token.expand(x.shape[0], -1, -1)
        out: Tensor = self.heads(self.encoder(cat([first, patches], 1))[:, 0])
        return out


def _maker(name: str, patch: int, layers: int, heads: int, hidden: int, mlp: int) -> Any:
    def make(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> VisionTransformer:
        no_weights(name, weights, kwargs.pop("pretrained", False))
        return VisionTransformer(kwargs.pop("image_size", 224), patch, layers, heads, hidden, mlp,
                                 **kwargs)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{layers} layers of {hidden} over patches of {patch} pixels, random weights."
    return make


vit_b_16 = _maker("vit_b_16", 16, 12, 12, 768, 3072)
vit_b_32 = _maker("vit_b_32", 32, 12, 12, 768, 3072)
vit_l_16 = _maker("vit_l_16", 16, 24, 16, 1024, 4096)
vit_l_32 = _maker("vit_l_32", 32, 24, 16, 1024, 4096)
vit_h_14 = _maker("vit_h_14", 14, 32, 16, 1280, 5120)
__all__ = ["EncoderBlock", "VisionTransformer", "vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16",
           "vit_l_32"]
