"""Training steps of many kinds: predicted bytes are the measured ones at every event, and under
budgets the parameters after some steps are those without one, at a peak within it."""
from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from helpers_memory import agree

import adjoint as ad
from adjoint import nn
from adjoint.base.errors import MetaError
from adjoint.kernels import alloc
from adjoint.utils.checkpoint import checkpoint
from adjoint.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
F = nn.functional
Step = tuple[Callable[[], Any], list[Any]]
RECIPES: dict[str, Callable[[], Step]] = {}


def recipe(f: Callable[[], Step]) -> Callable[[], Step]:
    RECIPES[f.__name__] = f
    return f


def fit(model: Any, loss: Callable[[], Any], optimizer: Any = None) -> Step:
    """A step of AdamW, and what it changes."""
    rule = optimizer or ad.optim.AdamW(model.parameters(), 1e-3)

    def step() -> None:
        rule.zero_grad()
        loss().backward()
        rule.step()
    return step, [*model.parameters(), *model.buffers()]


@recipe
def experts() -> Step:
    """A mixture of experts whose choice is known before the step."""
    chosen, x = ad.randint(0, 4, (256,)), ad.randn(256, 32)
    layers = nn.ModuleList(nn.Sequential(nn.Linear(32, 128), nn.SiLU(), nn.Linear(128, 32))
                           for _ in range(4))

    def loss() -> Any:
        y = ad.zeros(256, 32)
        for e, layer in enumerate(layers):
            rows = (chosen == e).nonzero(as_tuple=True)[0]
            y = y.index_copy(0, rows, layer(x[rows]))
        return (y - x).square().mean()
    return fit(layers, loss)


@recipe
def unet() -> Step:
    def block(i: int, o: int) -> Any:
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.SiLU())
    parts = nn.ModuleList([block(1, 8), block(8, 16), nn.ConvTranspose2d(16, 8, 2, 2),
                           block(16, 8), nn.Conv2d(8, 1, 1)])
    x = ad.randn(2, 1, 32, 32)

    def loss() -> Any:
        down, middle, up, join, last = parts
        a = down(x)
        return F.mse_loss(last(join(ad.cat([up(middle(F.max_pool2d(a, 2))), a], 1))), x)
    return fit(parts, loss)


@recipe
def packed() -> Step:
    both = nn.ModuleList([nn.GRU(16, 32, 2, bidirectional=True, batch_first=True, dropout=0.2),
                          nn.Linear(64, 4)])
    x, lengths = ad.randn(5, 20, 16), ad.tensor([20, 17, 9, 9, 3])
    rnn = nn.utils.rnn

    def loss() -> Any:
        out, _ = both[0](rnn.pack_padded_sequence(x, lengths, batch_first=True))
        return both[1](rnn.pad_packed_sequence(out, batch_first=True)[0]).square().mean()
    return fit(both, loss)


@recipe
def adversaries() -> Step:
    """Two optimizers, a penalty on gradients."""
    make = nn.Sequential(nn.Linear(16, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64))
    judge = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Dropout(0.3),
                          nn.Linear(128, 1))
    first, second = ad.optim.Adam(make.parameters(), 2e-4), ad.optim.RMSprop(judge.parameters())
    real = ad.randn(128, 64)

    def step() -> None:
        fake = make(ad.randn(128, 16))
        second.zero_grad()
        given = real.clone().requires_grad_()
        slope, = ad.autograd.grad(judge(given).sum(), given, create_graph=True)
        (F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
         + slope.square().sum(1).mean()).backward()
        second.step()
        first.zero_grad()
        F.softplus(-judge(fake)).mean().backward()
        first.step()
    return step, [*make.parameters(), *judge.parameters(), *make.buffers()]


@recipe
def learned_start() -> Step:
    """MAML of second order."""
    net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
    xs = [ad.randn(64, 8) for _ in range(2)]

    def error(w: Any, x: Any) -> Any:
        return (ad.func.functional_call(net, w, (x,)) - x.sum(1, keepdim=True).sin()
                ).square().mean()

    def loss() -> Any:
        total: Any = 0
        for x in xs:
            w = dict(net.named_parameters())
            for _ in range(2):
                slopes = ad.autograd.grad(error(w, x), list(w.values()), create_graph=True)
                w = {k: v - 0.1 * g for (k, v), g in zip(w.items(), slopes, strict=True)}
            total = total + error(w, x + 0.1)
        return total
    return fit(net, loss)


@recipe
def scaled() -> Step:
    """bfloat16 under a scaler, clipped."""
    net = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 8))
    rule, scaler = ad.optim.AdamW(net.parameters()), ad.amp.GradScaler("cpu")
    x, y = ad.randn(128, 64), ad.randint(0, 8, (128,))

    def step() -> None:
        rule.zero_grad()
        with ad.autocast("cpu", dtype=ad.bfloat16):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(rule)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(rule)
        scaler.update()
    return step, list(net.parameters())


@recipe
def averaged() -> Step:
    """A moving average of the weights, a schedule, four batches to a step."""
    net = nn.Sequential(nn.Conv1d(4, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU(),
                        nn.Conv1d(16, 4, 5, padding=2))
    swa = ad.optim.swa_utils
    mean = swa.AveragedModel(net, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))
    rule = ad.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    rates = ad.optim.lr_scheduler.CosineAnnealingLR(rule, 10)
    batches = ad.randn(4, 16, 4, 50)

    def step() -> None:
        rule.zero_grad()
        for x in batches:
            (net(x) - x).square().mean().backward()
        rule.step()
        rates.step()
        mean.update_parameters(net)
    return step, [*net.parameters(), *mean.parameters()]


@recipe
def nested() -> Step:
    """Checkpoints within checkpoints, dropout in them."""
    layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1),
                                         nn.Linear(128, 64)) for _ in range(4))
    x = ad.randn(64, 64)

    def inner(i: int, h: Any) -> Any:
        return h + layers[i](h)

    def outer(i: int, h: Any) -> Any:
        h = checkpoint(inner, i, h, use_reentrant=False)
        return checkpoint(inner, i + 1, h, use_reentrant=False).tanh()

    def loss() -> Any:
        h = checkpoint(outer, 0, x, use_reentrant=False)
        return checkpoint(outer, 2, h, use_reentrant=False).square().mean()
    return fit(layers, loss)


@recipe
def per_sample() -> Step:
    net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4))
    x, y, rule = ad.randn(32, 16), ad.randint(0, 4, (32,)), ad.optim.SGD(net.parameters(), 0.1)

    def loss(w: Any, a: Any, b: Any) -> Any:
        return F.cross_entropy(ad.func.functional_call(net, w, (a[None],)), b[None])

    def step() -> None:
        w = {k: v.detach() for k, v in net.named_parameters()}
        found = ad.func.vmap(ad.func.grad(loss), (None, 0, 0))(w, x, y)
        for name, p in net.named_parameters():
            size = found[name].flatten(1).norm(dim=1).clamp(min=1.0)
            p.grad = (found[name] / size.reshape(-1, *[1] * p.ndim)).mean(0)
        rule.step()
        rule.zero_grad()
    return step, list(net.parameters())


@recipe
def two_losses() -> Step:
    """`autograd.grad` of one loss, `backward` of another of the same graph."""
    net = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 2))
    x, rule = ad.randn(128, 32), ad.optim.Adagrad(net.parameters())

    def step() -> None:
        out = net(x)
        a, b = out[:, 0].square().mean(), out[:, 1].exp().mean()
        first = ad.autograd.grad(a, net.parameters(), retain_graph=True)
        b.backward()
        for p, g in zip(net.parameters(), first, strict=True):
            p.grad.add_(g)
        rule.step()
        rule.zero_grad()
    return step, list(net.parameters())


@recipe
def dropouts() -> Step:
    net = nn.Sequential(nn.Dropout(0.1), nn.Linear(32, 128), nn.ELU(), nn.AlphaDropout(0.2),
                        nn.Linear(128, 64), nn.SELU(), nn.FeatureAlphaDropout(0.1),
                        nn.Linear(64, 8))
    x = ad.randn(128, 32)
    return fit(net, lambda: net(x).square().mean())


@recipe
def tied() -> Step:
    both = nn.ModuleList([nn.Embedding(200, 32), nn.TransformerEncoderLayer(
        32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)])
    x, mask = ad.randint(0, 200, (4, 24)), nn.Transformer.generate_square_subsequent_mask(24)

    def loss() -> Any:
        table, layer = both
        scores = layer(table(x), src_mask=mask, is_causal=True) @ table.weight.T
        return F.cross_entropy(scores.flatten(0, 1), x.flatten())
    return fit(both, loss)


@recipe
def spectral() -> Step:
    w = nn.Parameter(0.1 * ad.randn(8, 8, 17, dtype=ad.complex64))
    x = ad.randn(4, 8, 64)

    def loss() -> Any:
        waves = ad.fft.rfft(x, dim=-1)
        out = ad.zeros(4, 8, 33, dtype=ad.complex64)
        out[..., :17] = ad.einsum("bif,iof->bof", waves[..., :17], w)
        return ad.fft.irfft(out, n=64).tanh().square().mean()
    return fit(nn.ParameterList([w]), loss)


@recipe
def sparse_tables() -> Step:
    table, bag = nn.Embedding(500, 32, sparse=True), nn.EmbeddingBag(500, 32, mode="sum",
                                                                     sparse=True)
    head = nn.Linear(64, 4)
    rules = (ad.optim.SparseAdam([table.weight, bag.weight], 1e-2),
             ad.optim.Adam(head.parameters()))
    x, y = ad.randint(0, 500, (64, 5)), ad.randint(0, 4, (64,))

    def step() -> None:
        for rule in rules:
            rule.zero_grad()
        F.cross_entropy(head(ad.cat([table(x).mean(1), bag(x)], 1)), y).backward()
        for rule in rules:
            rule.step()
    return step, [table.weight, bag.weight, *head.parameters()]


@recipe
def laplacian() -> Step:
    """Second derivatives with respect to the input inside of the loss."""
    net, x = nn.Sequential(nn.Linear(8, 48), nn.Softplus(), nn.Linear(48, 1)), ad.randn(64, 8)

    def loss() -> Any:
        q = x.clone().requires_grad_()
        u = net(q)
        slope, = ad.autograd.grad(u.sum(), q, create_graph=True)
        total = sum(ad.autograd.grad(slope[:, i].sum(), q, create_graph=True)[0][:, i]
                    for i in range(8))
        return (total + u[:, 0]).square().mean()
    return fit(net, loss)


@recipe
def noise() -> Step:
    net = nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.InstanceNorm2d(16, affine=True),
                        nn.Mish(), nn.Conv2d(16, 1, 3, padding=1))
    x = ad.randn(4, 1, 16, 16)

    def loss() -> Any:
        t, z = ad.rand(4, 1, 1, 1), ad.randn_like(x)
        mixed = t.sqrt() * x + (1 - t).sqrt() * z
        return F.mse_loss(net(ad.cat([mixed, t.expand(4, 1, 16, 16)], 1)), z)
    return fit(net, loss)


@recipe
def written() -> Step:
    """Residual sums and activations in place."""
    layers, x = nn.ModuleList(nn.Linear(64, 64) for _ in range(5)), ad.randn(128, 64)

    def loss() -> Any:
        h = x.clone()
        for layer in layers:
            h = h + layer(h).relu_()
            h.mul_(0.5)
            h[:, :8] += 1
        return h.exp().mean()
    return fit(layers, loss)


@pytest.mark.row("F62")
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_predicted_is_measured(name: str) -> None:
    """Before the optimizer has a state, and with it."""
    ad.manual_seed(0)
    step, _ = RECIPES[name]()
    for _ in range(2):
        predicted, measured = agree(step)
        assert predicted.exact and predicted.roles == measured.roles


def steps(name: str, room: int, n: int = 3) -> tuple[int, list[Any]]:
    """(most bytes over those before, what `n` steps make of the parameters), with so many bytes
    allowed over those before."""
    gc.collect()
    ad.manual_seed(0)
    step, state = RECIPES[name]()
    step()
    limit, most = alloc.live() + room, 0
    with ad.memory.budget(limit) as held:
        for _ in range(n):
            alloc.reset_peak()
            step()
            most = max(most, alloc.stats().peak)
    assert most <= limit and held.report().peak <= limit
    return most - limit + room, [t.detach().clone() for t in state]


@pytest.mark.parametrize("name", ["experts", "unet", "adversaries", "learned_start", "written",
                                  "laplacian"])
def test_budgets_change_no_bit(name: str) -> None:
    alloc.install()
    most, want = steps(name, 1 << 40)
    for share in (0.8, 0.6):
        got = steps(name, int(most * share))[1]
        assert all(ad.equal(a, b) for a, b in zip(got, want, strict=True))


def test_a_loop_over_batches() -> None:
    """What a loader stacks has the bytes of real batches; its order is drawn."""
    data = TensorDataset(ad.randn(100, 32), ad.randint(0, 5, (100,)))
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 5))
    rule = ad.optim.Adam(net.parameters())

    def step() -> None:
        for x, y in DataLoader(data, batch_size=32, shuffle=True):
            rule.zero_grad()
            F.cross_entropy(net(x), y).backward()
            rule.step()
    step()
    for _ in range(2):
        assert agree(step)[0].exact


def test_a_shape_that_hangs_on_values_names_its_line() -> None:
    gate, x = nn.Linear(8, 4), ad.randn(16, 8)
    with pytest.raises(MetaError, match=r"nonzero(.|\n)*test_memory_recipes\.py:\d+"):
        ad.memory.predict(lambda: (gate(x).topk(2).indices == 1).nonzero())


def test_a_refusal_outside_of_ops_names_a_budget_that_gets_past_it() -> None:
    """Encoding residuals is NumPy's own work, which is not tried again."""
    gc.collect()
    net, x = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)), ad.randn(128, 64)
    limit = alloc.live() + 400_000 if alloc.install() else 0
    for _ in range(6):
        try:
            with ad.memory.budget(limit, spill=False):
                with ad.memory.compressed("int8"):
                    loss = net(x).square().mean()
                loss.backward()
        except ad.memory.BudgetError as error:
            assert error.least > limit
            limit = error.least
        else:
            return
    raise AssertionError("six budgets were named, and none was enough")
