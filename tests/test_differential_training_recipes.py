"""Recipes of published training code, run by both libraries from one seed: the same draws, the same
weights and, in float64, the same losses to rounding (F15, F17, F33, F37, F123).
"""
from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
RECIPES: dict[str, Callable[[Any], Iterator[Any]]] = {}


def recipe(f: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    RECIPES[f.__name__] = f
    return f


def run(t: Any, name: str) -> list[float]:
    t.set_default_dtype(t.float64)
    try:
        t.manual_seed(0)
        return [float(x.item() if hasattr(x, "item") else x) for x in RECIPES[name](t)]
    finally:
        t.set_default_dtype(t.float32)


@recipe
def mixture_of_experts(t: Any) -> Iterator[Any]:
    """Noisy top-k gating, rows sent to experts by index and gathered with index_add."""
    nn, F = t.nn, t.nn.functional
    gate, noise = (nn.Parameter(t.randn(6, 4) * 0.1) for _ in range(2))
    experts = nn.ModuleList([nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6))
                             for _ in range(4)])
    optimizer = t.optim.Adam([gate, noise, *experts.parameters()], 1e-2)
    for _ in range(4):
        x = t.randn(10, 6)
        spread = F.softplus(x @ noise) + 1e-2
        logits = x @ gate + t.randn(10, 4) * spread
        top, at = logits.topk(2, dim=1)
        gates = t.zeros_like(logits).scatter(1, at, F.softmax(top, 1))
        load = (gates > 0).sum(0)
        order = t.nonzero(gates.t())
        parts = t.split(x[order[:, 1]], load.tolist())
        out = t.cat([e(p) for e, p in zip(experts, parts, strict=True)])
        out = out * gates[order[:, 1], order[:, 0]].unsqueeze(1)
        y = t.zeros_like(x).index_add(0, order[:, 1], out)
        importance = gates.sum(0)
        loss = F.mse_loss(y, x.roll(1, 1)) + importance.var() / importance.mean() ** 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss
    yield from load


@recipe
def momentum_contrast(t: Any) -> Iterator[Any]:
    """A queue in a buffer, a key encoder that follows, shuffled batches, InfoNCE."""
    nn, F = t.nn, t.nn.functional

    def encoder() -> Any:
        return nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6),
                             nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(),
                             nn.Linear(6, 8))

    class MoCo(nn.Module):  # type: ignore[name-defined,misc]  # of either library
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = encoder(), encoder()
            self.k.load_state_dict(self.q.state_dict())
            self.k.requires_grad_(False)
            self.register_buffer("queue", F.normalize(t.randn(8, 16), dim=0))
            self.register_buffer("at", t.zeros(1, dtype=t.long))

        def forward(self, a: Any, b: Any) -> Any:
            q = F.normalize(self.q(a), dim=1)
            with t.no_grad():
                for p, follows in zip(self.q.parameters(), self.k.parameters(), strict=True):
                    follows.data = follows.data * 0.9 + p.data * 0.1
                order = t.randperm(b.shape[0])
                k = F.normalize(self.k(b[order]), dim=1)[t.argsort(order)]
            near = t.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
            logits = t.cat([near, t.einsum("nc,ck->nk", [q, self.queue.clone().detach()])], dim=1)
            logits /= 0.07
            at = int(self.at)
            self.queue[:, at:at + len(k)] = k.T
            self.at[0] = (at + len(k)) % 16
            return F.cross_entropy(logits, t.zeros(len(q), dtype=t.long))

    net = MoCo()
    optimizer = t.optim.SGD(net.parameters(), 0.03, momentum=0.9, weight_decay=1e-4)
    x = t.randn(8, 3, 8, 8)
    for _ in range(4):
        views = [t.flip(v, (-1,)) if t.rand(()) < 0.5 else v
                 for v in (x + 0.1 * t.randn_like(x) for _ in range(2))]
        loss = net(*views)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss
    yield from (net.at, net.queue.norm(), net.k[1].running_mean.sum())


@recipe
def radiance_field(t: Any) -> Iterator[Any]:
    """Rays, stratified and importance samples, alpha compositing."""
    nn, F = t.nn, t.nn.functional
    net = nn.Sequential(nn.Linear(15, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = t.optim.Adam(net.parameters(), lr=5e-3)
    way, target = F.normalize(t.randn(12, 3), dim=-1), t.rand(12, 3)

    def embed(x: Any) -> Any:
        return t.cat([x, *(f(x * w) for w in 2.0 ** t.arange(2) for f in (t.sin, t.cos))], -1)

    def render(z: Any) -> tuple[Any, Any]:
        raw = net(embed(way[:, None] * z[..., None]))
        gaps = t.cat([z[..., 1:] - z[..., :-1], t.full_like(z[..., :1], 1e10)], -1)
        alpha = 1 - t.exp(-F.relu(raw[..., 3]) * gaps)
        clear = t.cumprod(t.cat([t.ones(len(z), 1), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        weight = alpha * clear
        return (weight[..., None] * t.sigmoid(raw[..., :3])).sum(-2), weight

    def resample(bins: Any, weight: Any, n: int) -> Any:
        pdf = (weight + 1e-5) / (weight + 1e-5).sum(-1, keepdim=True)
        cdf = F.pad(pdf.cumsum(-1), (1, 0))
        u = t.rand(len(bins), n)
        above = t.searchsorted(cdf, u, right=True).clamp(max=cdf.shape[-1] - 1)
        below = (above - 1).clamp(min=0)
        c0, c1, b0, b1 = (v.gather(1, i) for v in (cdf, bins) for i in (below, above))
        step = t.where(c1 - c0 < 1e-5, t.ones_like(c0), c1 - c0)
        return b0 + (u - c0) / step * (b1 - b0)

    for _ in range(3):
        z = 2 + 4 * (t.linspace(0, 7 / 8, 8) + t.rand(12, 8) / 8)
        coarse, weight = render(z)
        middle = 0.5 * (z[..., 1:] + z[..., :-1])
        fine = resample(middle, weight[..., 1:-1], 4).detach()
        colour, _ = render(t.sort(t.cat([z, fine], -1), -1)[0])
        loss = F.mse_loss(colour, target) + F.mse_loss(coarse, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@recipe
def rotary_decoder_with_a_cache(t: Any) -> Iterator[Any]:
    """Rotation by complex numbers, grouped keys, a cache written in place, nucleus sampling."""
    nn, F = t.nn, t.nn.functional
    table, qkv, out = nn.Embedding(20, 16), nn.Linear(16, 32, bias=False), nn.Linear(16, 20)
    angles = t.outer(t.arange(16.0), 1 / 100 ** (t.arange(0, 4, 2) / 4))
    turns = t.polar(t.ones_like(angles), angles)
    cache = t.zeros(2, 2, 16, 2, 4)

    def rotated(x: Any, start: int) -> Any:
        pairs = t.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return t.view_as_real(pairs * turns[None, start:start + x.shape[1], None]).flatten(3)

    def forward(tokens: Any, start: int = 0, keep: bool = False) -> Any:
        b, n = tokens.shape
        q, k, v = qkv(table(tokens)).split([16, 8, 8], -1)
        q, k, v = (x.view(b, n, -1, 4) for x in (q, k, v))
        q, k = rotated(q, start), rotated(k, start)
        if keep:
            cache[0, :b, start:start + n], cache[1, :b, start:start + n] = k, v
            k, v = cache[0, :b, :start + n], cache[1, :b, :start + n]
        mask = t.full((n, start + n), float("-inf")).triu(start + 1) if n > 1 else None
        y = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), mask,
                                           enable_gqa=True)
        return out(y.transpose(1, 2).reshape(b, n, 16))

    params = [*table.parameters(), *qkv.parameters(), *out.parameters()]
    optimizer = t.optim.AdamW(params, 1e-2, betas=(0.9, 0.95))
    schedule = t.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=4)
    for _ in range(3):
        tokens = t.randint(0, 20, (2, 9))
        loss = F.cross_entropy(forward(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(), schedule.step()
        yield loss
    with t.inference_mode():
        at, tokens = 0, t.tensor([[1, 5], [3, 4]])
        while tokens.shape[1] < 8:
            logits = forward(tokens[:, at:], at, keep=True)
            yield (logits[:, -1] - forward(tokens)[:, -1]).abs().max() < 1e-12
            chance, place = t.softmax(logits[:, -1] / 0.6, -1).sort(-1, descending=True)
            chance[chance.cumsum(-1) - chance > 0.9] = 0
            drawn = t.multinomial(chance.div_(chance.sum(-1, keepdim=True)), 1)
            at, tokens = tokens.shape[1], t.cat([tokens, place.gather(-1, drawn)], 1)
    yield from tokens.flatten()


@recipe
def denoising_diffusion(t: Any) -> Iterator[Any]:
    """Schedules gathered by time, scale and shift from it, EMA weights, steps without noise."""
    nn, F = t.nn, t.nn.functional

    class Net(nn.Module):  # type: ignore[name-defined,misc]  # of either library
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 1, 3, padding=1)
            self.norm, self.time = nn.GroupNorm(2, 6), nn.Sequential(nn.SiLU(), nn.Linear(8, 12))

        def forward(self, x: Any, when: Any) -> Any:
            rates = t.exp(t.arange(4, device=x.device) * -math.log(1e4) / 3)
            e = when[:, None] * rates[None]
            scale, shift = self.time(t.cat((e.sin(), e.cos()), -1))[..., None, None].chunk(2, 1)
            return self.last(F.silu(self.norm(self.first(x)) * (scale + 1) + shift))

    net = Net()
    mean = copy.deepcopy(net).eval().requires_grad_(False)
    optimizer = t.optim.Adam(net.parameters(), 2e-3, betas=(0.9, 0.99))
    x = t.linspace(0, 10, 11)
    bars = t.cos((x / 10 + 0.008) / 1.008 * math.pi * 0.5) ** 2
    kept = t.cumprod(1 - t.clip(1 - bars[1:] / bars[:-1], 1e-4, 0.999), 0)
    for _ in range(4):
        clean, when = t.rand(4, 1, 8, 8) * 2 - 1, t.randint(0, 10, (4,))
        noise = t.randn_like(clean)
        a = kept.gather(-1, when).reshape(-1, 1, 1, 1)
        loss = F.mse_loss(net(a.sqrt() * clean + (1 - a).sqrt() * noise, when), noise)
        loss.backward()
        yield nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step(), optimizer.zero_grad()
        with t.no_grad():
            for p, q in zip(mean.parameters(), net.parameters(), strict=True):
                p.lerp_(q, 0.1)
        yield loss
    image = t.randn(2, 1, 8, 8)
    for now, then in ((9, 6), (6, 3), (3, 0)):
        with t.inference_mode():
            e = mean(image, t.full((2,), now))
            start = ((image - (1 - kept[now]).sqrt() * e) / kept[now].sqrt()).clamp_(-1, 1)
            image = kept[then].sqrt() * start + (1 - kept[then]).sqrt() * e
    yield from (image.mean(), image.std())


@recipe
def layerwise_adaptive_steps(t: Any) -> Iterator[Any]:
    """An optimizer of the user's own, over groups, saved and loaded half way."""
    nn, F = t.nn, t.nn.functional

    class Lamb(t.optim.Optimizer):  # type: ignore[name-defined,misc]  # of either library
        def __init__(self, params: Any, lr: float = 1e-2, betas: Any = (0.9, 0.99)) -> None:
            super().__init__(params, {"lr": lr, "betas": betas, "decay": 0.01})

        @t.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in filter(lambda p: p.grad is not None, group["params"]):
                    state = self.state[p]
                    if len(state) == 0:
                        state["m"], state["v"] = t.zeros_like(p), t.zeros_like(p)
                    a, b = group["betas"]
                    m = state["m"].mul_(a).add_(p.grad, alpha=1 - a)
                    v = state["v"].mul_(b).addcmul_(p.grad, p.grad, value=1 - b)
                    way = (m / v.sqrt().add_(1e-6)).add_(p, alpha=group["decay"])
                    size, length = p.norm().clamp(0, 10), way.norm()
                    trust = size / length if size > 0 and length > 0 else 1.0
                    p.add_(way, alpha=-group["lr"] * float(trust))

    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2),
                        nn.Linear(8, 3))
    groups = [{"params": [p for p in net.parameters() if p.ndim > 1]},
              {"params": [p for p in net.parameters() if p.ndim < 2], "decay": 0.0}]
    optimizer, x, y = Lamb(groups), t.randn(16, 6), t.randint(0, 3, (16,))
    for k in range(6):
        if k == 3:
            held = copy.deepcopy(optimizer.state_dict())
            optimizer = Lamb([dict(group) for group in groups], lr=1.0)
            optimizer.load_state_dict(held)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * 0.5 * (1 + math.cos(math.pi * k / 6))
        loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@pytest.mark.parametrize("name", RECIPES)
def test_recipe(name: str) -> None:
    ours, theirs = run(ad, name), run(torch, name)
    assert len(ours) > 2 and ours == pytest.approx(theirs, rel=1e-8, abs=1e-10)
