"""Predicted bytes are the measured bytes for models drawn at random from the layers of `nn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.kernels import alloc
from adjoint.memory import meters
from adjoint.nn import functional as F
from adjoint.utils.checkpoint import checkpoint

pytestmark = [
    pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator"),
    pytest.mark.usefixtures("no_collector"),
]
Draw = np.random.Generator


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return x + self.inner(x)


class Attention(nn.Module):
    """Self-attention by the module, or by one product for q, k, v."""

    def __init__(self, d: int, heads: int, whole: bool) -> None:
        super().__init__()
        self.heads = heads
        self.mha = nn.MultiheadAttention(d, heads, batch_first=True) if whole else None
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: Any) -> Any:
        if self.mha is not None:
            return self.mha(x, x, x, need_weights=False)[0]
        b, t, d = x.shape
        q, k, v = (u.view(b, t, self.heads, d // self.heads).transpose(1, 2)
                   for u in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Recurrent(nn.Module):
    """An LSTM, GRU or RNN over the sequence."""

    def __init__(self, kind: Any, d: int, layers: int) -> None:
        super().__init__()
        self.net = kind(d, d, layers, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.net(x)[0]


class Looped(nn.Module):
    """One layer used several times: its weight's gradient grows in place."""

    def __init__(self, d: int, times: int) -> None:
        super().__init__()
        self.layer, self.times = nn.Linear(d, d), times

    def forward(self, x: Any) -> Any:
        for _ in range(self.times):
            x = ad.tanh(self.layer(x))
        return x


def activation(draw: Draw) -> Any:
    kinds = [nn.ReLU(), nn.GELU(), nn.GELU(approximate="tanh"), nn.SiLU(), nn.Tanh(),
             nn.LeakyReLU(0.1), nn.Softplus(), nn.ReLU(inplace=True)]
    return kinds[draw.integers(len(kinds))]


def sequence_layer(draw: Draw, d: int) -> Any:
    """A layer of (batch, time, d) to the same shape."""
    wide = d * int(draw.integers(1, 5))
    mlp = nn.Sequential(nn.Linear(d, wide), activation(draw), nn.Dropout(0.1),
                        nn.Linear(wide, d, bias=bool(draw.integers(2))))
    norm = [nn.LayerNorm(d), nn.RMSNorm(d)][draw.integers(2)]
    heads = int(draw.choice([1, 2, 4]))
    kind = [nn.LSTM, nn.GRU, nn.RNN][draw.integers(3)]
    return [lambda: mlp, lambda: Residual(nn.Sequential(norm, mlp)),
            lambda: Residual(nn.Sequential(norm, Attention(d, heads, bool(draw.integers(2))))),
            lambda: Recurrent(kind, d, int(draw.integers(1, 3))),
            lambda: Looped(d, int(draw.integers(2, 5))),
            lambda: nn.Sequential(norm, activation(draw))][draw.integers(6)]()


def image_layer(draw: Draw, c: int) -> Any:
    """A layer of (batch, c, side, side) to the same shape."""
    k = int(draw.choice([1, 3, 5]))
    groups = int(draw.choice([1, 2, c]))
    conv = nn.Conv2d(c, c, k, padding=k // 2, groups=groups, bias=bool(draw.integers(2)))
    norm = [nn.BatchNorm2d(c), nn.GroupNorm(2, c), nn.InstanceNorm2d(c)][draw.integers(3)]
    block = nn.Sequential(conv, norm, activation(draw))
    return [block, Residual(block), nn.Sequential(nn.MaxPool2d(3, 1, 1), conv),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), activation(draw))][draw.integers(4)]


def optimizer(draw: Draw, parameters: Any) -> Any:
    made: list[Callable[[], Any]] = [
        lambda: ad.optim.SGD(parameters, lr=1e-3),
        lambda: ad.optim.SGD(parameters, lr=1e-3, momentum=0.9, nesterov=True),
        lambda: ad.optim.Adam(parameters, lr=1e-3),
        lambda: ad.optim.AdamW(parameters, lr=1e-3, amsgrad=True),
        lambda: ad.optim.RMSprop(parameters, lr=1e-3),
        lambda: ad.optim.Adagrad(parameters, lr=1e-3)]
    return made[draw.integers(len(made))]()


def drawn(seed: int) -> tuple[Callable[[], Any], tuple[Any, ...]]:
    """A training step of a model drawn with `seed`, and what has to stay alive for it."""
    draw = np.random.default_rng(seed)
    ad.manual_seed(seed)
    batch, classes, depth = int(draw.integers(2, 9)), 7, int(draw.integers(1, 5))
    x: Any
    if seed % 3 == 2:
        c, side = 4 * int(draw.integers(1, 5)), int(draw.integers(6, 17))
        first: Any = nn.Conv2d(3, c, 3, padding=1)
        layers = [image_layer(draw, c) for _ in range(depth)]
        last: Any = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, classes))
        x = ad.randn(batch, 3, side, side)
    else:
        d, time = 16 * int(draw.integers(1, 9)), int(draw.integers(3, 65))
        first = nn.Embedding(50, d)
        layers = [sequence_layer(draw, d) for _ in range(depth)]
        last = nn.Linear(d, classes)
        x = ad.tensor(draw.integers(0, 50, (batch, time)))
    model = nn.ModuleList([first, *layers, last])
    opt = optimizer(draw, model.parameters())
    with_checkpoint, clip = bool(draw.integers(2)), bool(draw.integers(2))
    half = [None, ad.bfloat16, ad.float16][draw.choice(3, p=[0.6, 0.2, 0.2])]
    y = ad.tensor(draw.integers(0, classes, batch if seed % 3 == 2 else batch * time))

    def loss() -> Any:
        h = first(x)
        for f in layers:
            h = checkpoint(f, h, use_reentrant=False) if with_checkpoint else f(h)
        return F.cross_entropy(last(h).reshape(-1, classes).float(), y)

    def step() -> None:
        opt.zero_grad()
        with ad.autocast("cpu", dtype=half or ad.bfloat16, enabled=half is not None):
            found = loss()
        found.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()

    return step, (model, opt, x, y)


@pytest.mark.row("F62")
@pytest.mark.row("F79")
@pytest.mark.parametrize("seed", range(30))
def test_predicted_is_measured(seed: int) -> None:
    """Before and after the optimizer has state: every event watched, the peak unwatched."""
    step, held = drawn(seed)
    for _ in range(2):
        predicted = ad.memory.predict(step)
        with ad.memory.track(step) as measured:
            step()
        assert predicted.events == measured.events
        assert predicted.timeline == measured.timeline
        assert predicted.tops == measured.tops
        assert predicted.roles == measured.roles
    step()                                   # (kernels keep a table per layout they meet)
    predicted = ad.memory.predict(step)
    live = alloc.live_and_peak()[0]
    meters.restart()
    step()
    assert alloc.live_and_peak()[1] - live == predicted.peak - predicted.before
    assert alloc.live_and_peak()[0] - live == predicted.live - predicted.before
    assert held
