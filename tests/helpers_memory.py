"""The models that predictions are checked on, over `torch`'s names, so that PyTorch runs them too.

Each builder takes the namespace (adjoint or torch) and whether to checkpoint, and returns a step
without arguments and what it holds.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import adjoint as ad

Build = Callable[..., tuple[Callable[[], Any], tuple[Any, ...]]]


def _wrapped(torch: Any, f: Any, on: bool) -> Any:
    from importlib import import_module

    checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    return (lambda *a: checkpoint(f, *a, use_reentrant=False)) if on else f


def gpt(torch: Any, ck: bool = False, scale: int = 1) -> Any:
    """Pre-norm decoder with one projection for q, k, v; AdamW and clipping."""
    nn, F = torch.nn, torch.nn.functional
    d, heads, vocabulary, context = 32 * scale, 2 * scale, 64 * scale, 32 * scale

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
            self.drop = nn.Dropout(0.1)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            qkv = self.qkv(self.n1(x)).reshape(b, t, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
            x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, d)))
            return x + self.drop(self.down(F.gelu(self.up(self.n2(x)), approximate="tanh")))

    tokens, places = nn.Embedding(vocabulary, d), nn.Embedding(context, d)
    blocks, norm = nn.ModuleList([Block() for _ in range(2)]), nn.LayerNorm(d)
    head = nn.Linear(d, vocabulary, bias=False)
    model = nn.ModuleList([tokens, places, blocks, norm, head])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.zeros(4, context, dtype=torch.int64)
    runs = [_wrapped(torch, b, ck) for b in blocks]

    def step() -> None:
        opt.zero_grad()
        h = tokens(x) + places(torch.arange(context))
        for run in runs:
            h = run(h)
        loss = F.cross_entropy(head(norm(h)).reshape(-1, vocabulary), x.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        opt.step()

    return step, (model, opt, x)


def resnet(torch: Any, ck: bool = False, scale: int = 1) -> Any:
    """Two residual blocks of 3x3 convolutions with batch norm; SGD with momentum."""
    nn, F = torch.nn, torch.nn.functional
    c = 16 * scale

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c1 = nn.Conv2d(c, c, 3, padding=1, bias=False)
            self.c2 = nn.Conv2d(c, c, 3, padding=1, bias=False)
            self.b1, self.b2 = nn.BatchNorm2d(c), nn.BatchNorm2d(c)

        def forward(self, x: Any) -> Any:
            return F.relu(x + self.b2(self.c2(F.relu(self.b1(self.c1(x))))))

    stem = nn.Sequential(nn.Conv2d(3, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU(),
                         nn.MaxPool2d(2))
    blocks, head = nn.ModuleList([Block(), Block()]), nn.Linear(c, 10)
    model = nn.ModuleList([stem, blocks, head])
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.ones(8, 3, 32, 32), torch.zeros(8, dtype=torch.int64)
    runs = [_wrapped(torch, b, ck) for b in blocks]

    def step() -> None:
        opt.zero_grad()
        h = stem(x)
        for run in runs:
            h = run(h)
        F.cross_entropy(head(F.adaptive_avg_pool2d(h, 1).flatten(1)), y).backward()
        opt.step()

    return step, (model, opt, x, y)


def lstm(torch: Any, ck: bool = False, scale: int = 1) -> Any:
    """A two-layer language model; Adam."""
    nn, F = torch.nn, torch.nn.functional
    d = 32 * scale
    table, net, head = nn.Embedding(50, d), nn.LSTM(d, 2 * d, num_layers=2, batch_first=True), \
        nn.Linear(2 * d, 50)
    model = nn.ModuleList([table, net, head])
    opt = torch.optim.Adam(model.parameters())
    x = torch.zeros(4, 12, dtype=torch.int64)
    run = _wrapped(torch, lambda z: net(z)[0], ck)

    def step() -> None:
        opt.zero_grad()
        F.cross_entropy(head(run(table(x))).reshape(-1, 50), x.reshape(-1)).backward()
        opt.step()

    return step, (model, opt, x)


def transformer(torch: Any, ck: bool = False, scale: int = 1) -> Any:
    """The post-norm encoder block with MultiheadAttention that checkpointing guides show."""
    nn, F = torch.nn, torch.nn.functional
    d = 64 * scale

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(d, 8, batch_first=True)
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
            self.drop = nn.Dropout(0.1)

        def forward(self, x: Any) -> Any:
            x = self.n1(x + self.drop(self.attention(x, x, x)[0]))
            return self.n2(x + self.drop(self.mlp(x)))

    table, blocks = nn.Embedding(100, d), nn.ModuleList([Block(), Block()])
    head = nn.Linear(d, 100)
    model = nn.ModuleList([table, blocks, head])
    opt = torch.optim.AdamW(model.parameters())
    x = torch.zeros(4, 64, dtype=torch.int64)
    runs = [_wrapped(torch, b, ck) for b in blocks]

    def step() -> None:
        opt.zero_grad()
        h = table(x)
        for run in runs:
            h = run(h)
        F.cross_entropy(head(h).reshape(-1, 100), x.reshape(-1)).backward()
        opt.step()

    return step, (model, opt, x)


def gan(torch: Any, ck: bool = False, scale: int = 1) -> Any:
    """A generator and a discriminator with their own optimizers, each updated once."""
    nn, F = torch.nn, torch.nn.functional
    h = 64 * scale
    g = nn.Sequential(nn.Linear(16, h), nn.ReLU(), nn.Linear(h, 784), nn.Tanh())
    d = nn.Sequential(nn.Linear(784, h), nn.LeakyReLU(0.2), nn.Linear(h, 1))
    for_g = torch.optim.Adam(g.parameters(), betas=(0.5, 0.999))
    for_d = torch.optim.Adam(d.parameters(), betas=(0.5, 0.999))
    real = torch.ones(32, 784)
    judge, bce = _wrapped(torch, d, ck), F.binary_cross_entropy_with_logits

    def step() -> None:
        fake = g(torch.randn(32, 16))
        for_d.zero_grad()
        loss = bce(judge(real), torch.ones(32, 1)) + bce(judge(fake.detach()), torch.zeros(32, 1))
        loss.backward()
        for_d.step()
        for_g.zero_grad()
        bce(judge(fake), torch.ones(32, 1)).backward()
        for_g.step()

    return step, (g, d, for_g, for_d, real)


def maml(torch: Any, ck: bool = False, scale: int = 1) -> Any:
    """Three tasks, two inner steps each, gradients through the inner steps."""
    nn, F = torch.nn, torch.nn.functional
    h = 40 * scale
    ws = [nn.Parameter(torch.randn(*s) * 0.1) for s in ((h, 1), (h,), (1, h), (1,))]
    opt = torch.optim.Adam(ws)
    x, y = torch.ones(10, 1), torch.ones(10, 1)
    net = _wrapped(torch, lambda x, a, b, c, d: F.linear(F.relu(F.linear(x, a, b)), c, d), ck)

    def step() -> None:
        opt.zero_grad()
        total: Any = 0
        for _ in range(3):
            fast: Any = list(ws)
            for _ in range(2):
                grads = torch.autograd.grad(F.mse_loss(net(x, *fast), y), fast, create_graph=True)
                fast = [w - 0.01 * g for w, g in zip(fast, grads, strict=True)]
            total = total + F.mse_loss(net(x, *fast), y)
        total.backward()
        opt.step()

    return step, (ws, opt, x, y)


MODELS: dict[str, Build] = {f.__name__: f for f in (gpt, resnet, lstm, transformer, gan, maml)}


def agree(step: Any, *args: Any) -> tuple[Any, Any]:
    """Predict, then run under the ledger; all bytes must be equal."""
    gc.collect()
    gc.disable()
    try:
        predicted = ad.memory.predict(step, *args)
        with ad.memory.track(step, *args) as measured:
            step(*args)
        assert predicted.timeline == measured.timeline
        assert predicted.tops == measured.tops
        assert predicted.before == measured.before
        return predicted, measured
    finally:
        gc.enable()
