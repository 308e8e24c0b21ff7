"""Small training programs over wide parts of the surface, written once, run by both libraries from
equal weights: the losses of all steps agree (F15, F33, F37, F123).

The programs take the library and yield losses. Weights and data come from NumPy, in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad

Program = Callable[[Any], Iterator[Any]]
PROGRAMS: dict[str, Program] = {}


def program(f: Program) -> Program:
    """Enter a program into the table."""
    PROGRAMS[f.__name__] = f
    return f


def data(lib: Any, *shape: int, seed: int = 0) -> Any:
    """The same numbers in either library."""
    return lib.from_numpy(np.random.default_rng((seed, *shape)).standard_normal(shape))


def labels(lib: Any, high: int, *shape: int) -> Any:
    """The same labels in either library."""
    return lib.from_numpy(np.random.default_rng((high, *shape)).integers(0, high, shape))


def equal_weights(module: Any, seed: int = 0) -> Any:
    """Parameters from NumPy, scaled as usual; norms keep their ones and zeros."""
    rng = np.random.default_rng(seed)
    module.double()
    for name, p in sorted(module.named_parameters()):
        if p.ndim > 1 or "bias" in name and "norm" not in name:
            scale = 0.5 / np.sqrt(max(np.prod(p.shape[1:]), 1.0))
            values = scale * rng.standard_normal(tuple(p.shape))
            p.data.copy_((ad if type(p).__module__.startswith("adjoint") else torch_of(p))
                         .from_numpy(values))
    return module


def torch_of(_: Any) -> Any:
    import torch

    return torch


def steps(t: Any, module: Any, optimizer: Any, loss: Callable[[], Any], n: int = 6,
          clip: float | None = None) -> Iterator[Any]:
    """The usual loop."""
    for _ in range(n):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        if clip is not None:
            yield t.nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
        yield value


@program
def vision_transformer(t: Any) -> Iterator[Any]:
    """Patches by a convolution, a class token, pre-norm encoder layers, label smoothing."""
    nn = t.nn

    class ViT(nn.Module):  # type: ignore[name-defined,misc]  # of either library
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 16, kernel_size=4, stride=4)
            self.cls_token = nn.Parameter(t.zeros(1, 1, 16))
            self.pos = nn.Parameter(t.zeros(1, 5, 16))
            layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu",
                                               batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16),
                                                 enable_nested_tensor=False)
            self.head = nn.Linear(16, 5)

        def forward(self, x: Any) -> Any:
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = t.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos
            return self.head(self.encoder(x)[:, 0])

    net = equal_weights(ViT())
    optimizer = t.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.05, amsgrad=True)
    x, y = data(t, 6, 3, 8, 8), labels(t, 5, 6)
    schedule = t.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 1 / (e + 1))

    def loss() -> Any:
        schedule.step()
        return nn.functional.cross_entropy(net(x), y, label_smoothing=0.1)

    yield from steps(t, net, optimizer, loss, clip=0.7)


@program
def unet(t: Any) -> Iterator[Any]:
    """Down, up, skips, group norm, dice and weighted cross entropy."""
    nn = t.nn

    def block(a: int, b: int) -> Any:
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(2, b), nn.SiLU(),
                             nn.Conv2d(b, b, 3, padding="same", groups=2, dilation=2), nn.Mish())

    class UNet(nn.Module):  # type: ignore[name-defined,misc]  # of either library
        def __init__(self) -> None:
            super().__init__()
            self.down, self.mid, self.pool = block(1, 4), block(4, 8), nn.MaxPool2d(2)
            self.up, self.end = nn.ConvTranspose2d(8, 4, 2, stride=2), block(8, 4)
            self.smooth = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.out = nn.Conv2d(12, 3, 1)

        def forward(self, x: Any) -> Any:
            a = self.down(x)
            b = self.mid(self.pool(a))
            c = self.end(t.cat([a, self.up(b)], 1))
            return self.out(t.cat([c, self.smooth(b)], dim=1))

    net = equal_weights(UNet())
    optimizer = t.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9, centered=True)
    x, y = data(t, 2, 1, 8, 8), labels(t, 3, 2, 8, 8)
    weight = t.tensor([0.2, 0.5, 0.3], dtype=t.float64)

    def loss() -> Any:
        logits = net(x)
        p, hot = logits.softmax(1), nn.functional.one_hot(y, 3).permute(0, 3, 1, 2).double()
        dice = 1 - (2 * (p * hot).sum((0, 2, 3)) + 1) / ((p + hot).sum((0, 2, 3)) + 1)
        return nn.functional.cross_entropy(logits, y, weight=weight) + dice.mean()

    yield from steps(t, net, optimizer, loss)


@program
def packed_text(t: Any) -> Iterator[Any]:
    """Sequences of several lengths packed through a bidirectional GRU, attention over words."""
    nn, rnn = t.nn, t.nn.utils.rnn

    class Classifier(nn.Module):  # type: ignore[name-defined,misc]  # of either library
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 6, padding_idx=0, scale_grad_by_freq=True)
            self.gru = nn.GRU(6, 5, num_layers=2, bidirectional=True, batch_first=True)
            self.score, self.out = nn.Linear(10, 1), nn.Linear(10, 3)

        def forward(self, words: Any, lengths: Any) -> Any:
            packed = rnn.pack_padded_sequence(self.embed(words), lengths, batch_first=True,
                                              enforce_sorted=False)
            out, _ = rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)
            mask = t.arange(out.size(1))[None] < lengths[:, None]
            share = self.score(out).squeeze(-1).masked_fill(~mask, float("-inf")).softmax(-1)
            return self.out(t.einsum("bt,bth->bh", share, out))

    net = equal_weights(Classifier())
    lengths = t.tensor([3, 5, 2, 4])
    words = labels(t, 19, 4, 5) + 1
    words = words.masked_fill(t.arange(5)[None] >= lengths[:, None], 0)
    optimizer = t.optim.Adagrad(net.parameters(), lr=0.1, lr_decay=0.01)
    y = labels(t, 3, 4)
    yield from steps(t, net, optimizer, lambda: nn.NLLLoss()(
        net(words, lengths).log_softmax(-1), y), clip=1.0)


@program
def deep_q(t: Any) -> Iterator[Any]:
    """A target network, gather, detach, Huber loss, clipped values, soft updates."""
    nn = t.nn
    net, target = (nn.Sequential(nn.Linear(4, 16), nn.ReLU6(), nn.Linear(16, 2)) for _ in "ab")
    equal_weights(net)
    target.double().load_state_dict(net.state_dict())
    optimizer = t.optim.RAdam(net.parameters(), lr=1e-2)
    state, action, after = data(t, 8, 4), labels(t, 2, 8), data(t, 8, 4, seed=1)
    reward, done = data(t, 8), labels(t, 2, 8).bool()
    for _ in range(6):
        q = net(state).gather(1, action.unsqueeze(1)).squeeze(1)
        with t.no_grad():
            best = target(after).max(1).values
            best[done] = 0.0
        loss = nn.SmoothL1Loss(beta=0.5)(q, reward + 0.9 * best)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        t.nn.utils.clip_grad_value_(net.parameters(), 0.05)
        optimizer.step()
        held, new = target.state_dict(), net.state_dict()
        for key in new:
            held[key] = new[key] * 0.1 + held[key] * 0.9
        target.load_state_dict(held)
        yield loss
    yield from target.parameters()


@program
def critic_with_penalty(t: Any) -> Iterator[Any]:
    """A critic's gradient penalty through conv, instance norm and leaky relu; then a generator."""
    nn = t.nn
    critic = equal_weights(nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.LeakyReLU(0.2),
        nn.InstanceNorm2d(4, affine=True), nn.Conv2d(4, 4, 3, padding=1), nn.Softplus(),
        nn.Flatten(), nn.Linear(64, 1)), 1)
    made = equal_weights(nn.Sequential(
        nn.Linear(3, 16), nn.Unflatten(1, (4, 2, 2)), nn.ReflectionPad2d(1), nn.PixelShuffle(2),
        nn.Tanh()), 2)
    opt_c = t.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    opt_g = t.optim.NAdam(made.parameters(), lr=1e-3)
    real, noise, mix = data(t, 4, 1, 8, 8), data(t, 4, 3), data(t, 4, 1, 1, 1).sigmoid()
    for _ in range(4):
        fake = made(noise).detach()
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (g,) = t.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (g.flatten(1).norm(2, dim=1) - 1).square().mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        opt_c.zero_grad()
        loss.backward()
        opt_c.step()
        yield from (loss, penalty)
        opt_g.zero_grad()
        score = -critic(made(noise)).mean()
        score.backward()
        opt_g.step()
        yield score


@program
def embeddings(t: Any) -> Iterator[Any]:
    """Bags of words, negative samples, cosine and triplet losses, sparse targets."""
    nn, f = t.nn, t.nn.functional
    bag = nn.EmbeddingBag(12, 4, mode="mean", padding_idx=0)
    net = equal_weights(nn.ModuleDict({
        "bag": bag, "word": nn.Embedding(12, 4, max_norm=None), "mix": nn.Bilinear(4, 4, 2)}))
    words, offsets = labels(t, 12, 10), t.tensor([0, 3, 3, 7])
    optimizer = t.optim.Adadelta(net.parameters(), lr=1.0)

    def loss() -> Any:
        a, b = net["bag"](words, offsets), net["word"](words[:4])
        away = net["word"](words[4:8])
        sign = t.tensor([1.0, -1.0, 1.0, -1.0], dtype=t.float64)
        return (f.cosine_embedding_loss(a, b, sign, margin=0.1)
                + f.triplet_margin_loss(a, b, away, swap=True)
                - f.logsigmoid((b * away).sum(1)).mean()
                + f.multi_margin_loss(net["mix"](a, b), labels(t, 2, 4))
                + f.pdist(a + 0.1 * t.arange(4)[:, None]).mean())

    yield from steps(t, net, optimizer, loss)


@program
def mixture_of_experts(t: Any) -> Iterator[Any]:
    """Top-k routing, scatter, index_add, a load-balancing term."""
    nn, f = t.nn, t.nn.functional

    class MoE(nn.Module):  # type: ignore[name-defined,misc]  # of either library
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(6, 4, bias=False)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(6, 8), nn.GELU(approximate="tanh"), nn.Linear(8, 6))
                for _ in range(4))

        def forward(self, x: Any) -> Any:
            p = self.gate(x).softmax(-1)
            top, which = p.topk(2, dim=-1)
            top = top / top.sum(-1, keepdim=True)
            out = t.zeros_like(x)
            for i, expert in enumerate(self.experts):
                rows, slot = (which == i).nonzero(as_tuple=True)
                if rows.numel():
                    out = out.index_add(0, rows, expert(x[rows]) * top[rows, slot, None])
            load = t.zeros_like(p).scatter_(1, which, 1.0).mean(0)
            return out, (load * p.mean(0)).sum() * 4

    net = equal_weights(MoE())
    x, y = data(t, 10, 6), data(t, 10, 6, seed=1)
    optimizer = t.optim.SGD([{"params": net.gate.parameters(), "lr": 0.05},
                             {"params": net.experts.parameters()}], lr=0.1, momentum=0.9,
                            nesterov=True, weight_decay=1e-3)

    def loss() -> Any:
        out, balance = net(x)
        return f.huber_loss(out, y) + 0.01 * balance

    yield from steps(t, net, optimizer, loss)


@program
def graph_attention(t: Any) -> Iterator[Any]:
    """Edges as index lists: scatter_reduce for softmax over neighbours, index_add of messages."""
    nn, f = t.nn, t.nn.functional
    rng = np.random.default_rng(3)
    source, sink = (t.from_numpy(rng.integers(0, 7, 25)) for _ in range(2))
    x, y = data(t, 7, 5), labels(t, 3, 7)
    net = equal_weights(nn.ParameterDict({"w": nn.Parameter(t.zeros(5, 3)),
                                          "a": nn.Parameter(t.zeros(6, 1))}))
    optimizer = t.optim.Adamax(net.parameters(), lr=0.05)

    def loss() -> Any:
        h = x @ net["w"]
        e = f.leaky_relu(t.cat([h[source], h[sink]], -1) @ net["a"], 0.2).squeeze(-1)
        top = t.full((7,), -1e9, dtype=t.float64).scatter_reduce(0, sink, e, "amax")
        share = (e - top.detach()[sink]).exp()
        total = t.zeros(7, dtype=t.float64).index_add_(0, sink, share)
        out = t.zeros(7, 3, dtype=t.float64)
        out = out.index_add(0, sink, h[source] * (share / total[sink]).unsqueeze(-1))
        return f.cross_entropy(f.elu(out), y)

    yield from steps(t, net, optimizer, loss)


@program
def sound(t: Any) -> Iterator[Any]:
    """1-d convolutions with weight norm, gated units, dilations, a spectral loss, CTC."""
    nn, f = t.nn, t.nn.functional
    from_norm = t.nn.utils.parametrizations.weight_norm
    first, gate = nn.Conv1d(1, 8, 5, padding=2), nn.Conv1d(4, 8, 3, padding=2, dilation=2)
    last = nn.Conv1d(4, 5, 1)
    net = equal_weights(nn.ModuleList([first, gate, last]))
    from_norm(gate)
    x = data(t, 2, 1, 24)
    optimizer = t.optim.ASGD(net.parameters(), lr=0.01)

    def loss() -> Any:
        h = f.glu(gate(f.glu(first(x), 1)), 1)
        logits = last(h)
        spectrum = t.stft(logits[:, 0], 8, 4, window=t.hann_window(8, dtype=t.float64),
                          return_complex=True).abs().log1p().mean()
        steps_first = logits.permute(2, 0, 1).log_softmax(2)
        targets = t.tensor([[1, 2, 2], [3, 1, 0]])
        ctc = f.ctc_loss(steps_first, targets, t.tensor([24, 20]), t.tensor([3, 2]))
        return spectrum + 0.1 * ctc

    yield from steps(t, net, optimizer, loss)


@program
def layerwise_schedules(t: Any) -> Iterator[Any]:
    """Frozen layers, groups added later, chained schedules, averaged weights, batch norm."""
    nn, sched = t.nn, t.optim.lr_scheduler
    net = equal_weights(nn.Sequential(
        nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8, bias=False),
        nn.BatchNorm1d(8, momentum=None), nn.Hardswish(), nn.Linear(8, 2)))
    x, y = data(t, 12, 6), data(t, 12, 2, seed=1)
    for p in net[:2].parameters():
        p.requires_grad_(False)
    optimizer = t.optim.Adam(net[6].parameters(), lr=0.01)
    optimizer.add_param_group({"params": list(net[3:5].parameters()), "lr": 0.02})
    schedule = sched.SequentialLR(optimizer, [
        sched.LinearLR(optimizer, 0.1, total_iters=3), sched.ExponentialLR(optimizer, 0.8)], [3])
    average = t.optim.swa_utils.AveragedModel(net)
    for epoch in range(6):
        if epoch == 3:
            net[:2].requires_grad_(True)
            optimizer.add_param_group({"params": list(net[:2].parameters()), "lr": 0.005})
            schedule = sched.CosineAnnealingWarmRestarts(optimizer, 2, T_mult=2)
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(net)
        yield loss
        yield t.tensor([g["lr"] for g in optimizer.param_groups], dtype=t.float64)
    yield from (b.double() for _, b in sorted(net.named_buffers()))
    average.eval()
    yield average(x)


@program
def decoder_with_experts(t: Any) -> Iterator[Any]:
    """Rotary positions as complex numbers, grouped queries, a mixture of experts, a cache."""
    nn, fn = t.nn, t.nn.functional

    class Attention(nn.Module):  # type: ignore[name-defined,misc]  # of either library
        def __init__(self) -> None:
            super().__init__()
            self.query, self.out = (nn.Linear(16, 16, bias=False) for _ in range(2))
            self.key, self.value = (nn.Linear(16, 8, bias=False) for _ in range(2))
            self.register_buffer("keys", t.zeros(3, 8, 2, 4), persistent=False)
            self.register_buffer("values", t.zeros_like(self.keys), persistent=False)

        def forward(self, x: Any, turns: Any, at: int | None) -> Any:
            b, s, _ = x.shape
            q = turned(self.query(x).view(b, s, 4, 4), turns)
            k, v = turned(self.key(x).view(b, s, 2, 4), turns), self.value(x).view(b, s, 2, 4)
            if at is not None:
                self.keys[:b, at:at + s], self.values[:b, at:at + s] = k, v
                k, v = self.keys[:b, :at + s], self.values[:b, :at + s]
            k, v = (u[:, :, :, None].expand(-1, -1, -1, 2, -1).flatten(2, 3) for u in (k, v))
            q, k, v = (u.transpose(1, 2) for u in (q, k, v))
            scores = q @ k.transpose(2, 3) / 2.0
            seen = t.ones(s, k.shape[2], dtype=t.bool).tril(k.shape[2] - s)
            scores = scores.masked_fill(~seen, float("-inf")).softmax(-1)
            return self.out((scores @ v).transpose(1, 2).reshape(b, s, 16))

    class Experts(nn.Module):  # type: ignore[name-defined,misc]  # of either library
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(16, 3, bias=False)
            self.experts = nn.ModuleList([nn.ModuleDict({
                "up": nn.Linear(16, 8), "gate": nn.Linear(16, 8), "down": nn.Linear(8, 16)})
                for _ in range(3)])

        def forward(self, x: Any) -> Any:
            flat = x.reshape(-1, 16)
            weight, chosen = t.topk(self.gate(flat), 2)
            weight, out = fn.softmax(weight, dim=1, dtype=x.dtype), t.zeros_like(flat)
            for i, e in enumerate(self.experts):
                rows, nth = t.where(chosen == i)
                some = e["down"](fn.silu(e["gate"](flat[rows])) * e["up"](flat[rows]))
                out[rows] += weight[rows, nth, None] * some
            return out.view_as(x)

    def turned(x: Any, turns: Any) -> Any:
        pairs = t.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return t.view_as_real(pairs * turns[None, :, None]).flatten(3)

    angles = t.outer(t.arange(8.0, dtype=t.float64), t.tensor([1.0, 0.01], dtype=t.float64))
    turns = t.polar(t.ones_like(angles), angles)
    net = equal_weights(nn.ModuleDict({
        "embed": nn.Embedding(11, 16), "norm": nn.RMSNorm(16, eps=1e-6), "attn": Attention(),
        "experts": Experts(), "head": nn.Linear(16, 11, bias=False)}))
    net["head"].weight = net["embed"].weight

    def logits(ids: Any, at: int | None = None) -> Any:
        begin = at or 0
        h = net["embed"](ids)
        h = h + net["attn"](net["norm"](h), turns[begin:begin + ids.shape[1]], at)
        return net["head"](net["norm"](h + net["experts"](h)))

    ids = labels(t, 11, 3, 8)
    optimizer = t.optim.AdamW(net.parameters(), lr=3e-3)
    yield from steps(t, net, optimizer, lambda: fn.cross_entropy(
        logits(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()), clip=1.0)
    with t.no_grad():
        yield logits(ids)
        for first, last in ((0, 5), (5, 6), (6, 8)):
            yield logits(ids[:, first:last], first)


@program
def tagger_with_transitions(t: Any) -> Iterator[Any]:
    """A bidirectional LSTM under a conditional random field: forward scores, Viterbi's path."""
    nn, tags = t.nn, 5

    class Tagger(nn.Module):  # type: ignore[name-defined,misc]  # of either library
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lstm = nn.Embedding(9, 6), nn.LSTM(6, 4, bidirectional=True)
            self.emit = nn.Linear(8, tags)
            self.moves = nn.Parameter(t.zeros(tags, tags))

        def forward(self, words: Any) -> Any:
            hidden, _ = self.lstm(self.embed(words).view(len(words), 1, -1))
            return self.emit(hidden.view(len(words), -1))

    net = equal_weights(Tagger())
    with t.no_grad():
        net.moves.data[0, :] = -100.0               # nothing goes to the beginning
    sentences = [(labels(t, 9, n), labels(t, 4, n) + 1) for n in (4, 6, 1)]

    def loss() -> Any:
        total = t.zeros(1, dtype=t.float64)
        for words, gold in sentences:
            score, path = t.full((1, tags), -100.0, dtype=t.float64), t.tensor([0])
            score[0][0] = 0.0
            right = 0
            for emitted, tag in zip(net(words), gold, strict=True):
                score = (score + net.moves + emitted[:, None]).logsumexp(1).view(1, -1)
                right = right + net.moves[tag, path[-1]] + emitted[tag]
                path = t.cat([path, tag[None]])
            total = total + score.logsumexp(1) - right
        return total.squeeze()

    yield from steps(t, net, t.optim.SGD(net.parameters(), lr=0.05, weight_decay=1e-3), loss)
    with t.no_grad():
        best, back = net(sentences[1][0])[0], []
        for emitted in net(sentences[1][0])[1:]:
            best, from_ = (best + net.moves).max(1)
            best = best + emitted
            back.append(from_)
        path = [best.argmax().item()]
        for from_ in reversed(back):
            path.append(from_[path[-1]].item())
        yield t.tensor(path)
        yield best


@pytest.mark.row("F123")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:`torch.jit", "ignore::FutureWarning")
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_same_losses(name: str) -> None:
    """All steps agree to 1e-7 of the largest value: rounding, amplified by a few steps."""
    torch = pytest.importorskip("torch")
    want = [v.detach().numpy() for v in PROGRAMS[name](torch)]
    got = [v.detach().numpy() for v in PROGRAMS[name](ad)]
    assert len(got) == len(want) > 3
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype, f"value {i}"
        scale = max(1.0, np.abs(b).max(initial=0.0))
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7 * scale, err_msg=f"value {i}")
