"""Training programs without a mistake, of many kinds: the doctor must stay silent on each."""
from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import adjoint as ad
from adjoint import nn
from adjoint.autograd import grad
from adjoint.models.gpt import GPT, GPTConfig
from adjoint.nn import functional as F
from adjoint.nn.utils import clip_grad_norm_

PROGRAMS: list[Callable[[], None]] = []


def program(f: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS.append(f)
    return f


def mlp(*sizes: int, act: Any = nn.ReLU) -> Any:
    layers: list[Any] = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def fit(model: Any, loss_of: Callable[[], Any], optimizer: Any, steps: int = 6) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()


@program
def linear_regression() -> None:
    model = nn.Linear(10, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(100):
        x = ad.randn(32, 10)
        loss = F.mse_loss(model(x), x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 0:
            norm = sum(p.grad.norm().item() ** 2 for p in model.parameters()) ** 0.5
            assert norm >= 0


@program
def classifier() -> None:
    model = mlp(20, 64, 64, 10)
    x, y = ad.randn(256, 20), ad.arange(256) % 10
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for i in range(0, 256, 64):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[i:i + 64]), y[i:i + 64])
            loss.backward()
            optimizer.step()
        with ad.no_grad():
            p = F.softmax(model(x), dim=1)
            assert float(p.sum()) > 0, epoch


@program
def cnn_with_batch_norm_and_dropout() -> None:
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2),
                          nn.Linear(8 * 9, 5))
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    y = ad.arange(16) % 5
    for _ in range(2):
        model.train()
        for _ in range(3):
            x = ad.randn(16, 1, 12, 12)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        with ad.no_grad():
            model(ad.randn(4, 1, 12, 12)).argmax(1)


@program
def gpt() -> None:
    model = GPT(GPTConfig(vocabulary=256, context=16, layers=4, heads=2, dim=32, dropout=0.1))
    optimizer = ad.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(6):
        tokens = ad.randint(0, 256, (4, 17))
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    model.generate(b"ab", 3)
    model.train()


@program
def lstm_truncated() -> None:
    model, head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 4)
    optimizer = ad.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-2)
    state = None
    for _ in range(6):
        x = ad.randn(3, 5, 4)
        out, state = model(x, state)
        state = tuple(s.detach() for s in state)
        optimizer.zero_grad()
        F.mse_loss(head(out), x).backward()
        optimizer.step()


@program
def rnn_with_summed_step_losses() -> None:
    cell, head = nn.GRUCell(4, 8), nn.Linear(8, 4)
    optimizer = ad.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.05)
    for _ in range(4):
        h = ad.zeros(2, 8)
        total: Any = 0.0
        for _ in range(12):
            x = ad.randn(2, 4)
            h = cell(x, h)
            total = total + F.mse_loss(head(h), x)
        optimizer.zero_grad()
        (total / 12).backward()
        optimizer.step()


@program
def gan() -> None:
    g = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    d = mlp(2, 16, 1, act=nn.Tanh)
    og = ad.optim.Adam(g.parameters(), lr=1e-3)
    od = ad.optim.Adam(d.parameters(), lr=1e-3)
    for _ in range(6):
        real, z = ad.randn(16, 2) + 2, ad.randn(16, 4)
        od.zero_grad()
        loss = (F.binary_cross_entropy_with_logits(d(real), ad.ones(16, 1))
                + F.binary_cross_entropy_with_logits(d(g(z).detach()), ad.zeros(16, 1)))
        loss.backward()
        od.step()
        og.zero_grad()
        F.binary_cross_entropy_with_logits(d(g(z)), ad.ones(16, 1)).backward()
        og.step()


@program
def wgan_with_penalty() -> None:
    g, d = mlp(4, 16, 2), mlp(2, 16, 1, act=nn.Tanh)
    og, od = ad.optim.Adam(g.parameters(), lr=1e-3), ad.optim.Adam(d.parameters(), lr=1e-3)
    for step in range(6):
        real = ad.randn(8, 2)
        with ad.no_grad():
            fake = g(ad.randn(8, 4))
        mixed = (real * 0.3 + fake * 0.7).requires_grad_()
        (slope,) = grad(d(mixed).sum(), mixed, create_graph=True)
        penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
        od.zero_grad()
        (d(fake).mean() - d(real).mean() + 10 * penalty).backward()
        od.step()
        if step % 2:
            og.zero_grad()
            (-d(g(ad.randn(8, 4))).mean()).backward()
            og.step()


@program
def gradient_accumulation() -> None:
    model = mlp(8, 16, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    for i in range(16):
        x = ad.randn(8, 8)
        (F.mse_loss(model(x), x[:, :1]) / 4).backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


@program
def gradients_zeroed_in_place() -> None:
    model = mlp(8, 16, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(6):
        x = ad.randn(8, 8)
        optimizer.zero_grad(set_to_none=False)
        F.mse_loss(model(x), x[:, :1]).backward()
        optimizer.step()


@program
def manual_update() -> None:
    w, b = ad.randn(5, 1, requires_grad=True), ad.zeros(1, requires_grad=True)
    for _ in range(8):
        x = ad.randn(16, 5)
        ((x @ w + b - x[:, :1]) ** 2).mean().backward()
        with ad.no_grad():
            for p in (w, b):
                p -= 0.1 * p.grad
                p.grad = None


@program
def functional_update() -> None:
    w = ad.randn(5, requires_grad=True)
    for _ in range(6):
        x = ad.randn(16, 5)
        (g,) = grad(((x @ w) ** 2).mean(), w)
        w = (w - 0.1 * g).detach().requires_grad_()


@program
def teacher_and_student() -> None:
    teacher, student = mlp(8, 32, 4), mlp(8, 8, 4)
    teacher.eval()
    optimizer = ad.optim.Adam(student.parameters(), lr=1e-2)
    for _ in range(6):
        x = ad.randn(32, 8)
        with ad.no_grad():
            target = F.softmax(teacher(x) / 2, dim=1)
        loss = F.kl_div(F.log_softmax(student(x) / 2, dim=1), target, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def mean_teacher() -> None:
    student = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.requires_grad_(False)
    optimizer = ad.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(6):
        x = ad.randn(32, 8)
        with ad.no_grad():
            target = teacher(x)
        optimizer.zero_grad()
        F.mse_loss(student(x), target).backward()
        optimizer.step()
        with ad.no_grad():
            for a, b in zip(teacher.parameters(), student.parameters(), strict=True):
                a.mul_(0.99).add_(b, alpha=0.01)


@program
def frozen_backbone() -> None:
    backbone = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
    for p in backbone.parameters():
        p.requires_grad_(False)
    backbone.eval()
    head = nn.Linear(16, 1)
    optimizer = ad.optim.Adam(head.parameters(), lr=1e-2)
    for _ in range(6):
        x = ad.randn(16, 8)
        optimizer.zero_grad()
        F.mse_loss(head(backbone(x)), x[:, :1]).backward()
        optimizer.step()


@program
def gradual_unfreezing() -> None:
    model = mlp(8, 16, 16, 1)
    for p in model[0].parameters():
        p.requires_grad_(False)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05)
    for step in range(8):
        if step == 4:
            for p in model[0].parameters():
                p.requires_grad_(True)
        x = ad.randn(16, 8)
        optimizer.zero_grad()
        F.mse_loss(model(x), x[:, :1]).backward()
        optimizer.step()


@program
def multi_task() -> None:
    trunk, a, b = mlp(8, 16, 16), nn.Linear(16, 1), nn.Linear(16, 3)
    params = [p for m in (trunk, a, b) for p in m.parameters()]
    optimizer = ad.optim.Adam(params, lr=1e-2)
    y = ad.arange(32) % 3
    for _ in range(6):
        x = ad.randn(32, 8)
        h = F.relu(trunk(x))
        optimizer.zero_grad()
        (F.mse_loss(a(h), x[:, :1]) + 0.5 * F.cross_entropy(b(h), y)).backward()
        optimizer.step()


@program
def two_backwards_through_one_trunk() -> None:
    trunk, a, b = mlp(8, 16), nn.Linear(16, 1), nn.Linear(16, 1)
    optimizer = ad.optim.SGD([p for m in (trunk, a, b) for p in m.parameters()], lr=0.05)
    for _ in range(6):
        x = ad.randn(16, 8)
        h = ad.tanh(trunk(x))
        optimizer.zero_grad()
        F.mse_loss(a(h), x[:, :1]).backward(retain_graph=True)
        F.mse_loss(b(h), x[:, 1:2]).backward()
        optimizer.step()


@program
def loss_scaling() -> None:
    w = nn.Parameter(ad.randn(32, 8))
    optimizer = ad.optim.SGD([w], lr=0.1)
    scale = 2.0**16
    for _ in range(6):
        x = ad.randn(16, 32).half()
        loss = ((x @ w.half()).float() ** 2).mean()
        optimizer.zero_grad()
        (loss * scale).backward()
        w.grad /= scale
        if bool(ad.isfinite(w.grad).all()):
            optimizer.step()
        else:
            scale /= 2


@program
def lbfgs() -> None:
    model = nn.Linear(4, 1)
    x = ad.randn(32, 4)
    y = x.sum(1, keepdim=True)
    optimizer = ad.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)


@program
def maml() -> None:
    model = mlp(1, 16, 1, act=nn.Tanh)
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-3)
    names = [n for n, _ in model.named_parameters()]
    for _ in range(4):
        optimizer.zero_grad()
        for _ in range(2):
            x = ad.randn(8, 1)
            y = ad.sin(x * 3)
            inner = F.mse_loss(model(x), y)
            grads = grad(inner, list(model.parameters()), create_graph=True)
            fast = {n: p - 0.1 * g for n, p, g in
                    zip(names, model.parameters(), grads, strict=True)}
            F.mse_loss(ad.func.functional_call(model, fast, (x,)), y).backward()
        optimizer.step()
