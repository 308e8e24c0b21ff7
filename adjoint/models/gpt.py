"""A decoder-only transformer: the model of `adjoint train`.

Sources: A. Radford et al., "Language models are unsupervised multitask learners" (2019) for the
shape (pre-norm blocks, learned positions, GELU, four-fold feed-forward, residual projections
initialized smaller by the square root of the number of residual additions).
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoint import nn
from adjoint.autograd.modes import no_grad
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.nn import functional as F


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a `GPT`: vocabulary, context (tokens), layers, heads, width, dropout rate.

    >>> GPTConfig(dim=10, heads=4)
    Traceback (most recent call last):
    adjoint.base.errors.ArgumentError: dim 10 is not divisible by 4 heads; choose dim as a ...
    """

    vocabulary: int = 256
    context: int = 128
    layers: int = 4
    heads: int = 4
    dim: int = 128
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("vocabulary", "context", "layers", "heads", "dim"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.dim % self.heads:
            raise ArgumentError(f"dim {self.dim} is not divisible by {self.heads} heads; choose "
                                f"dim as a multiple of heads")
        if not 0 <= self.dropout < 1:
            raise ArgumentError(f"dropout must lie in [0, 1), got {self.dropout}")


class Attention(nn.Module):
    """Causal self-attention with one projection for queries, keys and values."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.proj = nn.Linear(config.dim, config.dim)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, dim) -> the same shape."""
        b, t, d = x.shape
        qkv = self.qkv(x).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        rate = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], dropout_p=rate, is_causal=True)
        out: Tensor = self.proj(y.transpose(1, 2).reshape(b, t, d))
        return out


class Block(nn.Module):
    """Attention and feed-forward, each normed before and added to its input."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(config.dim), nn.LayerNorm(config.dim)
        self.attention = Attention(config)
        self.up = nn.Linear(config.dim, 4 * config.dim)
        self.down = nn.Linear(4 * config.dim, config.dim)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, dim) -> the same shape."""
        x = x + self.drop(self.attention(self.norm1(x)))
        out: Tensor = x + self.drop(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))
        return out


class GPT(nn.Module):
    """Predicts the next token: (batch, time) integers -> (batch, time, vocabulary) logits.

    >>> import adjoint as ad
    >>> model = GPT(GPTConfig(vocabulary=8, context=4, layers=1, heads=2, dim=6))
    >>> model(ad.zeros(2, 4, dtype=ad.int64)).shape
    adjoint.Size([2, 4, 8])
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.dim)
        self.positions = nn.Embedding(config.context, config.dim)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.dim)
        self.head = nn.Linear(config.dim, config.vocabulary, bias=False)
        self._initialize()

    def _initialize(self) -> None:
        # GPT-2's 0.02 at width 768, kept in proportion to 1 / sqrt(width) for small models.
        wide = 0.7 / math.sqrt(self.config.dim)
        small = wide / math.sqrt(2 * self.config.layers)
        for name, p in self.named_parameters():
            if p.ndim >= 2:
                last = name.endswith(("proj.weight", "down.weight", "head.weight"))
                nn.init.normal_(p, 0.0, small if last else wide)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits for the token after each position; ShapeError beyond the context."""
        time = tokens.shape[-1]
        if time > self.config.context:
            raise ShapeError(f"GPT: {time} tokens do not fit the context of "
                             f"{self.config.context}; pass the last {self.config.context}")
        places = wrap(np.arange(time))
        x = self.drop(self.tokens(tokens) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy in nats of predicting `targets` (batch, time) from `tokens`."""
        logits = self(tokens)
        out: Tensor = F.cross_entropy(logits.reshape(-1, self.config.vocabulary),
                                      targets.reshape(-1))
        return out

    def generate(self, prompt: bytes, count: int, temperature: float = 0.8,
                 draw: Any = None) -> bytes:
        """`prompt` continued by `count` bytes, sampled with a NumPy generator `draw`."""
        draw = draw or np.random.default_rng(0)
        text = bytearray(prompt)
        with no_grad():
            for _ in range(count):
                window = np.frombuffer(bytes(text[-self.config.context:]), np.uint8)
                logits = self(wrap(window.astype(np.int64)[None])).array[0, -1]
                scaled = logits.astype(np.float64) / temperature
                p = np.exp(scaled - scaled.max())
                text.append(int(draw.choice(p.size, p=p / p.sum())))
        return bytes(text)
