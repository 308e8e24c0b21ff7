"""More training programs without a mistake, from several fields: see `helpers_healthy`."""
from __future__ import annotations

import copy
from typing import Any

import numpy as np
from helpers_healthy import PROGRAMS, mlp, program

import adjoint as ad
from adjoint import nn
from adjoint.autograd import grad
from adjoint.nn import functional as F
from adjoint.nn.utils import clip_grad_norm_
from adjoint.utils.checkpoint import checkpoint

__all__ = ["PROGRAMS"]


@program
def vae_with_summed_loss() -> None:
    enc, dec = nn.Linear(16, 8), nn.Linear(4, 16)
    optimizer = ad.optim.Adam([*enc.parameters(), *dec.parameters()], lr=1e-3)
    for _ in range(6):
        x = ad.rand(32, 16)
        mean, log = enc(x).chunk(2, dim=1)
        z = mean + ad.exp(0.5 * log) * ad.randn_like(mean)
        rebuilt = F.binary_cross_entropy_with_logits(dec(z), x, reduction="sum")
        kl = -0.5 * (1 + log - mean**2 - log.exp()).sum()
        optimizer.zero_grad()
        (rebuilt + kl).backward()
        optimizer.step()


@program
def reinforce() -> None:
    policy = mlp(4, 16, 2, act=nn.Tanh)
    optimizer = ad.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(4):
        logs, rewards = [], []
        for _ in range(10):
            x = ad.randn(4)
            log_p = F.log_softmax(policy(x), dim=-1)
            action = int(ad.multinomial(log_p.exp().detach(), 1).item())
            logs.append(log_p[action])
            rewards.append(float(x[0] > 0) * action)
        loss = -(ad.stack(logs) * (ad.tensor(rewards) - 0.5)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def dqn() -> None:
    online = mlp(4, 32, 2)
    target = copy.deepcopy(online)
    optimizer = ad.optim.RMSprop(online.parameters(), lr=1e-3)
    for step in range(8):
        s, n, r = ad.randn(16, 4), ad.randn(16, 4), ad.randn(16)
        a = ad.randint(0, 2, (16, 1))
        with ad.no_grad():
            goal = r + 0.99 * target(n).max(1).values
        q = online(s).gather(1, a).squeeze(1)
        optimizer.zero_grad()
        F.smooth_l1_loss(q, goal).backward()
        optimizer.step()
        if step % 4 == 3:
            target.load_state_dict(online.state_dict())


@program
def autoencoder_with_tied_weights() -> None:
    w = nn.Parameter(ad.randn(16, 4) * 0.1)
    optimizer = ad.optim.SGD([w], lr=0.05)
    for _ in range(6):
        x = ad.randn(32, 16)
        optimizer.zero_grad()
        F.mse_loss(ad.sigmoid(x @ w) @ w.t(), x).backward()
        optimizer.step()


@program
def checkpointed_blocks() -> None:
    blocks = nn.ModuleList([mlp(16, 32, 16) for _ in range(4)])
    optimizer = ad.optim.Adam(blocks.parameters(), lr=1e-3)
    for _ in range(5):
        x = h = ad.randn(8, 16)
        for block in blocks:
            h = h + checkpoint(block, h, use_reentrant=False)
        optimizer.zero_grad()
        F.mse_loss(h, x).backward()
        optimizer.step()


@program
def contrastive() -> None:
    encoder = mlp(16, 32, 8)
    optimizer = ad.optim.Adam(encoder.parameters(), lr=1e-3)
    for _ in range(6):
        x = ad.randn(16, 16)
        a = F.normalize(encoder(x + 0.1 * ad.randn(16, 16)), dim=1)
        b = F.normalize(encoder(x + 0.1 * ad.randn(16, 16)), dim=1)
        optimizer.zero_grad()
        F.cross_entropy(a @ b.t() / 0.1, ad.arange(16)).backward()
        optimizer.step()


@program
def straight_through_quantization() -> None:
    model = mlp(8, 16, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        x = ad.randn(16, 8)
        h = model[0](x)
        h = h + (ad.round(h * 4) / 4 - h).detach()
        optimizer.zero_grad()
        F.mse_loss(model[2](F.relu(h)), x[:, :1]).backward()
        optimizer.step()


@program
def adversarial_examples() -> None:
    model = mlp(8, 32, 3)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05)
    y = ad.arange(24) % 3
    for _ in range(6):
        x = ad.randn(24, 8).requires_grad_()
        (g,) = grad(F.cross_entropy(model(x), y), x)
        optimizer.zero_grad()
        F.cross_entropy(model((x + 0.1 * g.sign()).detach()), y).backward()
        optimizer.step()


@program
def input_optimization() -> None:
    model = mlp(8, 16, 3)
    for p in model.parameters():
        p.requires_grad_(False)
    image = ad.zeros(1, 8, requires_grad=True)
    optimizer = ad.optim.Adam([image], lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        (-model(image)[0, 1] + 0.01 * (image**2).sum()).backward()
        optimizer.step()


@program
def physics_informed() -> None:
    model = mlp(1, 16, 16, 1, act=nn.Tanh)
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(5):
        t = ad.rand(16, 1).requires_grad_()
        u = model(t)
        (du,) = grad(u.sum(), t, create_graph=True)
        start = model(ad.zeros(1, 1)) - 1
        optimizer.zero_grad()
        (((du + u) ** 2).mean() + (start**2).sum()).backward()
        optimizer.step()


@program
def transforms_only() -> None:
    w = ad.randn(5)
    x = ad.randn(16, 5)

    def loss(w: Any) -> Any:
        return ((x @ w - 1) ** 2).mean()

    for _ in range(5):
        w = w - 0.1 * ad.func.grad(loss)(w)


@program
def masked_attention_encoder() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    head = nn.Linear(16, 16)
    optimizer = ad.optim.AdamW([*layer.parameters(), *head.parameters()], lr=1e-3)
    mask = ad.full((6, 6), float("-inf")).triu(1)
    for _ in range(5):
        x = ad.randn(4, 6, 16)
        optimizer.zero_grad()
        F.mse_loss(head(layer(x, src_mask=mask)), x).backward()
        optimizer.step()


@program
def embeddings_with_padding() -> None:
    table, head = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 2)
    optimizer = ad.optim.Adam([*table.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(6):
        tokens = ad.randint(0, 20, (16, 5))
        optimizer.zero_grad()
        F.cross_entropy(head(table(tokens).mean(1)), tokens[:, 0] % 2).backward()
        optimizer.step()


@program
def lora() -> None:
    base = nn.Linear(16, 16)
    for p in base.parameters():
        p.requires_grad_(False)
    a, b = nn.Parameter(ad.randn(4, 16) * 0.1), nn.Parameter(ad.zeros(16, 4))
    optimizer = ad.optim.AdamW([a, b], lr=1e-2)
    for _ in range(6):
        x = ad.randn(16, 16)
        optimizer.zero_grad()
        F.mse_loss(base(x) + x @ a.t() @ b.t(), x).backward()
        optimizer.step()


@program
def learning_rate_schedule_and_averaging() -> None:
    model = mlp(8, 16, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = ad.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    average = ad.optim.swa_utils.AveragedModel(model)
    for _ in range(8):
        x = ad.randn(16, 8)
        optimizer.zero_grad()
        F.mse_loss(model(x), x[:, :1]).backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(model)
    average.eval()
    with ad.no_grad():
        average(ad.randn(4, 8))


@program
def early_stopping_with_best_loss() -> None:
    model = mlp(8, 16, 1)
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-2)
    best, kept = float("inf"), None
    for _ in range(6):
        x = ad.randn(16, 8)
        loss = F.mse_loss(model(x), x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < best:
            best, kept = loss.item(), copy.deepcopy(model.state_dict())
    assert kept is not None
    model.load_state_dict(kept)


@program
def logistic_regression_to_convergence() -> None:
    model = nn.Linear(2, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=1.0)
    x = ad.randn(64, 2)
    y = (x[:, :1] > 0).float()
    for _ in range(60):
        p = ad.sigmoid(model(x))
        optimizer.zero_grad()
        F.binary_cross_entropy(p, y).backward()
        optimizer.step()


@program
def scalar_engine_style() -> None:
    values = [ad.tensor(v, requires_grad=True) for v in (0.5, -0.3, 0.8)]
    for _ in range(4):
        total: Any = ad.tensor(0.0)
        for x in np.linspace(-1, 1, 12):
            y = ad.tanh(values[0] * float(x) + values[1]) * values[2]
            total = total + (y - float(x)) ** 2
        total.backward()
        with ad.no_grad():
            for v in values:
                v -= 0.01 * v.grad
                v.grad = None


@program
def custom_function() -> None:
    class Clip(ad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * (x.abs() <= 2).float()

    w = nn.Parameter(ad.randn(8, 4))
    optimizer = ad.optim.SGD([w], lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (Clip.apply(ad.randn(16, 8) @ w) ** 2).mean().backward()
        optimizer.step()


@program
def normal_likelihood() -> None:
    mean, log_scale = nn.Parameter(ad.zeros(())), nn.Parameter(ad.zeros(()))
    optimizer = ad.optim.Adam([mean, log_scale], lr=0.05)
    data = ad.randn(100) * 2 + 3
    for _ in range(20):
        z = (data - mean) / log_scale.exp()
        optimizer.zero_grad()
        (log_scale + 0.5 * z**2).mean().backward()
        optimizer.step()


@program
def deep_residual() -> None:
    blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(),
                                          nn.Linear(32, 32)) for _ in range(12)])
    head = nn.Linear(32, 4)
    optimizer = ad.optim.AdamW([*blocks.parameters(), *head.parameters()], lr=1e-3)
    y = ad.arange(32) % 4
    for _ in range(5):
        h = ad.randn(32, 32)
        for block in blocks:
            h = h + block(h)
        optimizer.zero_grad()
        F.cross_entropy(head(h), y).backward()
        clip_grad_norm_([*blocks.parameters(), *head.parameters()], 1.0)
        optimizer.step()


@program
def sigmoid_outputs_fitted_to_convergence() -> None:
    y = ad.arange(128) % 4
    x = ad.randn(4, 8)[y] * 3 + ad.randn(128, 8)
    target = F.one_hot(y, 4).float()
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4), nn.Sigmoid())
    optimizer = ad.optim.Adam(model.parameters(), lr=5e-2)
    for _ in range(120):
        optimizer.zero_grad()
        ((model(x) - target) ** 2).mean().backward()
        optimizer.step()


@program
def encoder_and_decoder() -> None:
    model = nn.Transformer(16, 2, 1, 1, 32, dropout=0.1, batch_first=True)
    head = nn.Linear(16, 5)
    optimizer = ad.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(5):
        out = head(model(ad.randn(4, 6, 16), ad.randn(4, 5, 16)))
        optimizer.zero_grad()
        F.cross_entropy(out.reshape(-1, 5), ad.arange(20) % 5).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@program
def wasserstein_with_clipped_weights() -> None:
    g, d = mlp(4, 16, 2), mlp(2, 16, 1, act=nn.LeakyReLU)
    og = ad.optim.RMSprop(g.parameters(), lr=5e-4)
    od = ad.optim.RMSprop(d.parameters(), lr=5e-4)
    for _ in range(6):
        for _ in range(2):
            od.zero_grad()
            (d(g(ad.randn(16, 4)).detach()).mean() - d(ad.randn(16, 2) + 3).mean()).backward()
            od.step()
            for p in d.parameters():
                p.data.clamp_(-0.01, 0.01)
        og.zero_grad()
        (-d(g(ad.randn(16, 4))).mean()).backward()
        og.step()


@program
def convolutional_autoencoder() -> None:
    model = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1),
                          nn.Sigmoid())
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-2)
    x = (ad.rand(8, 1, 12, 12) > 0.5).float()
    for _ in range(10):
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        optimizer.step()


@program
def hundreds_of_losses_then_one_backward() -> None:
    model = nn.Linear(4, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        losses = []
        for _ in range(150):
            losses.append(F.mse_loss(model(ad.randn(2, 4)), ad.zeros(2, 1)))
        optimizer.zero_grad()
        ad.stack(losses).mean().backward()
        optimizer.step()
