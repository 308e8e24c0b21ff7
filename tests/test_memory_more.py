"""Steps of further kinds, thirty of them beside those of `test_memory_kinds` and
`test_memory_recipes`: predicted bytes are the measured ones at every event; where the code asks for
values, the error names the line (F62)."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers_memory import agree

import adjoint as ad
from adjoint import nn
from adjoint.base.errors import MetaError
from adjoint.kernels import alloc
from adjoint.utils.checkpoint import (
    checkpoint,
    checkpoint_chain,
    create_selective_checkpoint_contexts,
)

pytestmark = pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
F = nn.functional
Step = Callable[[], Any]
STEPS: dict[str, Callable[[], Step]] = {}


def kind(build: Callable[[], Step]) -> Callable[[], Step]:
    STEPS[build.__name__] = build
    return build


def net(*sizes: int) -> Any:
    return nn.Sequential(*[m for a, b in zip(sizes, sizes[1:], strict=False)
                           for m in (nn.Linear(a, b), nn.Tanh())])


def fit(params: Any, loss: Callable[[], Any], rule: Any = None) -> Step:
    """A step of AdamW."""
    params = list(params)
    rule = rule or ad.optim.AdamW(params, 1e-3)

    def step() -> None:
        rule.zero_grad()
        loss().backward()
        rule.step()
    return step


def blocks(dropout: float = 0.1, n: int = 3) -> tuple[Any, Any]:
    """Layers, and a batch that wants a gradient."""
    made = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(dropout),
                                       nn.Linear(64, 32)) for _ in range(n))
    return made, ad.randn(64, 32, requires_grad=True)


@kind
def regions_reentrant() -> Step:
    layers, x = blocks()
    return fit(layers.parameters(), lambda: functools.reduce(
        lambda h, f: checkpoint(f, h, use_reentrant=True), layers, x).square().mean())


@kind
def regions_selective() -> Step:
    layers, x = blocks()
    keep = functools.partial(create_selective_checkpoint_contexts, ["matmul", "linear"])
    return fit(layers.parameters(), lambda: functools.reduce(
        lambda h, f: checkpoint(f, h, use_reentrant=False, context_fn=keep),
        layers, x).square().mean())


@kind
def regions_of_a_chain() -> Step:
    layers, x = blocks(n=8)
    return fit(layers.parameters(), lambda: (
        checkpoint_chain(list(layers), x)
        + checkpoint_chain(list(layers), x, segments="log")).square().mean())


@kind
def regions_with_words() -> Step:
    w, x = ad.randn(32, 32, requires_grad=True), ad.randn(16, 32)

    def region(d: Any, *, k: float) -> Any:
        return {"a": (d["x"] @ w).tanh() * k, "b": [d["x"].sin() + w.sum()]}

    def loss() -> Any:
        found = checkpoint(region, {"x": x}, k=2.0, use_reentrant=False)
        return found["a"].sum() + found["b"][0].sum()
    return fit([w], loss)


@kind
def regions_in_bfloat16() -> Step:
    layers, x = blocks()

    def loss() -> Any:
        with ad.autocast("cpu", dtype=ad.bfloat16):
            h = functools.reduce(lambda h, f: checkpoint(f, h, use_reentrant=False), layers, x)
        return h.float().square().mean()
    return fit(layers.parameters(), loss)


@kind
def two_batches_in_float16() -> Step:
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                           nn.Linear(8 * 36, 5))
    x, y = ad.randn(8, 3, 8, 8), ad.randint(0, 5, (8,))
    rule = ad.optim.SGD(layers.parameters(), 0.1, momentum=0.9)
    scaler = ad.amp.GradScaler("cpu")

    def step() -> None:
        for _ in range(2):
            with ad.autocast("cpu", dtype=ad.float16):
                loss = F.cross_entropy(layers(x), y) / 2
            scaler.scale(loss).backward()
        scaler.unscale_(rule)
        nn.utils.clip_grad_value_(layers.parameters(), 1.0)
        scaler.step(rule)
        scaler.update()
        rule.zero_grad()
    return step


@kind
def tangents_of_mapped() -> Step:
    model, x = net(8, 32, 4), ad.randn(16, 8)

    def loss(w: Any, a: Any) -> Any:
        return ad.func.functional_call(model, w, (a,)).square().sum()

    def step() -> Any:
        w = {k: v.detach() for k, v in model.named_parameters()}
        each = ad.func.vmap(loss, (None, 0))
        return (ad.func.jvp(lambda w: each(w, x), (w,), (w,)),
                ad.func.vmap(ad.func.grad(loss), (None, 0))(w, x))
    return step


@kind
def jacobians() -> Step:
    model, x, func = net(6, 16, 4), ad.randn(6), ad.func
    return lambda: (func.jacrev(model)(x), func.jacfwd(model)(x), func.vjp(model, x)[1](x[:4]),
                    func.jacrev(model, chunk_size=2)(x), func.linearize(model, x)[1](x),
                    func.hessian(lambda x: model(x).sum())(x),
                    func.vmap(model, chunk_size=3)(ad.randn(7, 6)))


@kind
def an_ensemble() -> Step:
    models, x = [net(6, 16, 4) for _ in range(4)], ad.randn(10, 6)
    params, buffers = ad.func.stack_module_state(models)

    def one(p: Any, b: Any, x: Any) -> Any:
        return ad.func.functional_call(models[0], (p, b), (x,))
    return fit(params.values(), lambda: ad.func.vmap(one, (0, 0, None))(
        params, buffers, x).square().mean())


@kind
def sparse_rows() -> Step:
    table, bag = nn.Embedding(100, 16, sparse=True, padding_idx=0), nn.EmbeddingBag(
        100, 16, sparse=True, mode="mean")
    x, starts = ad.randint(0, 100, (30,)), ad.tensor([0, 5, 5, 20])
    rules = (ad.optim.SGD(table.parameters(), 0.1), ad.optim.Adagrad(bag.parameters(), 0.1))

    def step() -> None:
        (table(x).square().sum() + bag(x, starts).square().sum()).backward()
        for rule in rules:
            rule.step()
            rule.zero_grad()
    return step


@kind
def packed_with_projections() -> Step:
    both = nn.ModuleList([nn.LSTM(8, 16, 2, bidirectional=True, proj_size=4, dropout=0.1),
                          nn.RNN(8, 16, nonlinearity="relu")])
    x, rnn = ad.randn(9, 4, 8), nn.utils.rnn

    def loss() -> Any:
        out, (h, c) = both[0](rnn.pack_padded_sequence(x, ad.tensor([3, 9, 5, 1]),
                                                       enforce_sorted=False))
        lists = rnn.pack_sequence([x[:5, 0], x[:3, 1], x[:2, 2]])
        return (rnn.pad_packed_sequence(out)[0].square().mean() + h.sum() + c.sum()
                + rnn.unpack_sequence(both[1](lists)[0])[0].sum())
    return fit(both.parameters(), loss)


@kind
def truncated_in_time() -> Step:
    """The state lives on from step to step, cut off from its graph."""
    cell, x = nn.LSTMCell(8, 16), ad.randn(12, 4, 8)
    rule, state = ad.optim.Adam(cell.parameters()), [ad.zeros(4, 16), ad.zeros(4, 16)]

    def step() -> None:
        h, c = state
        for k in range(3):
            total: Any = 0
            for i in range(4):
                h, c = cell(x[4 * k + i], (h, c))
                total = total + h.square().mean()
            rule.zero_grad()
            total.backward()
            rule.step()
            h, c = h.detach(), c.detach()
        state[:] = h, c
    return step


@kind
def transposed_with_groups() -> Step:
    model = nn.Sequential(nn.ConvTranspose2d(4, 8, 3, 2, 1, 1, groups=2, dilation=2),
                          nn.BatchNorm2d(8), nn.LeakyReLU(0.1),
                          nn.Conv2d(8, 2, (3, 1), padding="same", padding_mode="reflect"))
    x = ad.randn(2, 4, 6, 6)
    return fit(model.parameters(), lambda: model(x).square().mean())


@kind
def channels_last() -> Step:
    model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
                          nn.ConvTranspose2d(8, 3, 2, 2)).to(memory_format=ad.channels_last)
    x = ad.randn(2, 4, 8, 8).to(memory_format=ad.channels_last)
    return fit(model.parameters(), lambda: model(x).square().mean())


@kind
def averaged_by_hand() -> Step:
    model, x = net(8, 32, 8), ad.randn(16, 8)
    mean, inner = copy.deepcopy(model), fit(model.parameters(), lambda: model(x).square().mean())

    def step() -> None:
        inner()
        with ad.no_grad():
            for a, b in zip(mean.parameters(), model.parameters(), strict=True):
                a.lerp_(b, 0.1)
            ad._foreach_mul_(list(mean.parameters()), 0.99)
    return step


@kind
def batches_of_other_sizes() -> Step:
    model, xs = net(8, 32, 8), [ad.randn(k, 8) for k in (16, 8, 3)]
    rule = ad.optim.Adam(model.parameters())

    def step() -> None:
        rule.zero_grad()
        for x in xs:
            (model(x).square().mean() / 3).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        rule.step()
    return step


@kind
def generators() -> Step:
    model = net(8, 32, 8)
    rule = ad.optim.Adam(model.parameters())

    def losses() -> Iterator[Any]:
        for x in (ad.randn(4 + k, 8) for k in range(3)):
            rule.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            rule.step()
            yield loss.detach()
    return lambda: ad.stack(list(losses())).mean()


@kind
def branches_on_shapes() -> Step:
    model, x = net(8, 32, 8), ad.randn(4, 8)

    def loss() -> Any:
        h = model(x)
        if h.shape[0] > 2 and h.requires_grad:
            h = h * 2
        try:
            h = h.view(3, 3)
        except RuntimeError:
            h = h.reshape(8, 4)
        return sum(h[i].square().mean() if i % 2 else h[i].abs().sum() for i in range(8))
    return fit(model.parameters(), loss)


@kind
def hooks_everywhere() -> Step:
    model, x = net(8, 32, 8), ad.randn(4, 8)
    model[0].register_forward_hook(lambda m, i, o: o * 1.5)
    model[2].register_full_backward_hook(lambda m, gi, go: None)
    rules = {p: ad.optim.AdamW([p]) for p in model.parameters()}

    def update(p: Any) -> None:
        rules[p].step()
        rules[p].zero_grad()
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)

    def step() -> None:
        h = model(x)
        h.register_hook(lambda g: g * 2)
        h.square().mean().backward()
    return step


@kind
def kinds_of_attention() -> Step:
    heads, x = nn.Linear(32, 96), ad.randn(2, 16, 32)
    mask = ad.ones(16, 16).tril().bool()

    def loss() -> Any:
        q, k, v = heads(x).view(2, 16, 3, 4, 8).permute(2, 0, 3, 1, 4)
        whole = (q @ k.mT).masked_fill(~mask, -1e9).softmax(-1) @ v
        few = k[:, :2].repeat_interleave(2, 1)
        return (F.scaled_dot_product_attention(q, k, v, attn_mask=mask) + whole
                + F.scaled_dot_product_attention(q, few, v)).square().mean()
    return fit(heads.parameters(), loss)


@kind
def writes_to_views() -> Step:
    w = ad.randn(32, 32, requires_grad=True)

    def loss() -> Any:
        y = w.clone()
        y[:, :4].mul_(2)
        y.view(-1)[::3].add_(1)
        y.t()[2].zero_()
        return y.exp().unfold(0, 4, 2).sum() + y.roll(1, 0).cumsum(0).mean()
    return fit([w], loss)


@kind
def decompositions() -> Step:
    a, b, linalg = ad.randn(12, 12, requires_grad=True), ad.randn(12, 3), ad.linalg

    def loss() -> Any:
        s = a @ a.T + 12 * ad.eye(12)
        low = linalg.cholesky(s)
        return (linalg.solve(s, b).sum() + linalg.svd(a, full_matrices=False)[1].sum()
                + linalg.eigh(s)[0].sum() + linalg.inv(s).sum() + linalg.qr(a)[1].abs().sum()
                + ad.logdet(s) + ad.cholesky_solve(b, low).sum() + linalg.lstsq(a, b)[0].sum())
    return fit([a], loss)


@kind
def distributions() -> Step:
    model, x, d = net(8, 16, 4), ad.randn(10, 8), ad.distributions

    def loss() -> Any:
        mean, scale = model(x).chunk(2, -1)
        q = d.Normal(mean, F.softplus(scale))
        z = q.rsample()
        return (d.kl_divergence(q, d.Normal(0.0, 1.0)).sum() - q.log_prob(z.detach()).sum()
                - d.Categorical(logits=model(x)).log_prob(ad.zeros(10, dtype=ad.int64)).sum())
    return fit(model.parameters(), loss)


@kind
def groups_and_a_schedule() -> Step:
    a, b, x = net(8, 16), net(16, 4), ad.randn(10, 8)
    rule = ad.optim.SGD([{"params": a.parameters(), "lr": 0.1},
                         {"params": b.parameters(), "weight_decay": 0.1}], lr=0.01, momentum=0.9)
    rates = ad.optim.lr_scheduler.OneCycleLR(rule, 0.1, total_steps=100)
    inner = fit([], lambda: b(a(x)).square().mean(), rule)

    def step() -> None:
        inner()
        rates.step()
    return step


@kind
def a_frozen_half() -> Step:
    a, b, x = net(8, 16).requires_grad_(False), net(16, 4), ad.randn(10, 8)

    def loss() -> Any:
        with ad.no_grad():
            h = a(x)
        with ad.inference_mode():
            a(x)
        return b(h.clone()).square().mean()
    return fit(b.parameters(), loss)


@kind
def alignments() -> Step:
    model, x = net(8, 16, 12), ad.randn(20, 3, 8)

    def loss() -> Any:
        scores = model(x).log_softmax(-1)
        return F.ctc_loss(scores, ad.ones(3, 5, dtype=ad.int64), ad.tensor([20, 18, 15]),
                          ad.tensor([5, 4, 3])) + F.kl_div(
                              scores, scores.detach().exp(), reduction="batchmean")
    return fit(model.parameters(), loss)


@kind
def picked_by_order() -> Step:
    model, x = net(8, 16, 12), ad.randn(20, 8)

    def loss() -> Any:
        h = model(x)
        most, at = h.max(1)
        return (most + h.topk(3, 1)[0].sum(1) + h.sort(1)[0][:, 0] + h.logsumexp(1) + h.var(1)
                + h.cummax(1)[0][:, 1] + h.gather(1, at[:, None])[:, 0]).sum()
    return fit(model.parameters(), loss)


@pytest.mark.row("F62")
@pytest.mark.parametrize("name", sorted(STEPS))
def test_predicted_is_measured(name: str) -> None:
    """Twice without the optimizer's state being the same: before it is made, and with it."""
    ad.manual_seed(0)
    step = STEPS[name]()
    for _ in range(2):
        predicted, measured = agree(step)
        assert predicted.exact and predicted.roles == measured.roles


@pytest.mark.parametrize("name, options", [
    ("Adam", {"amsgrad": True}), ("Adam", {"foreach": True}), ("Adam", {"lr": "tensor"}),
    ("AdamW", {"maximize": True}), ("NAdam", {"decoupled_weight_decay": True}), ("RAdam", {}),
    ("Adamax", {}), ("ASGD", {}), ("Rprop", {}), ("Adadelta", {}), ("Adafactor", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9}), ("Adagrad", {"lr_decay": 0.1}),
    ("SGD", {"nesterov": True, "momentum": 0.9, "weight_decay": 0.01})])
def test_update_rules(name: str, options: dict[str, Any]) -> None:
    model, x = net(16, 64, 8), ad.randn(32, 16)
    given = options | ({"lr": ad.tensor(1e-3)} if "lr" in options else {})
    step = fit(model.parameters(), lambda: model(x).square().mean(),
               getattr(ad.optim, name)(model.parameters(), **given))
    for _ in range(2):
        predicted, measured = agree(step)
        assert predicted.exact and predicted.roles == measured.roles


ASKED: dict[str, Callable[[Any], Any]] = {
    "item": lambda h: h.sum().item() > 0, "bool": lambda h: bool(h.sum() > 0),
    "int": lambda h: [0][int(h.argmax())], "tolist": lambda h: h.tolist(),
    "numpy": lambda h: h.detach().numpy().sum(), "mask": lambda h: h[h > 0],
    "while": lambda h: [h := h / 2 for _ in iter(lambda: bool(h.norm() > 1), False)],
    "allclose": lambda h: ad.allclose(h, h), "equal": lambda h: ad.equal(h, h),
    "unique": lambda h: h.unique(), "order": lambda h: sorted(h.flatten()),
    "format": lambda h: f"{h.mean():.3f}", "histogram": lambda h: ad.histc(h)}


@pytest.mark.parametrize("name", ASKED)
def test_values_that_are_asked_for_name_the_line(name: str) -> None:
    model, x = net(8, 16, 4), ad.randn(10, 8)
    with pytest.raises(MetaError, match=r"test_memory_more\.py:\d+ in <lambda>"):
        ad.memory.predict(lambda: ASKED[name](model(x)))
