"""`memory.predict`: what it reaches, what it leaves as it was, what it refuses."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from helpers_loading import load
from helpers_memory import agree

import adjoint as ad
from adjoint import nn
from adjoint.base.errors import MetaError
from adjoint.kernels import alloc
from adjoint.memory import fits, largest_batch, predict
from adjoint.memory.reach import Reach
from adjoint.ops.accelerate import ON

needs_allocator = pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
F = ad.nn.functional
SCALE = ad.ones(300)
HISTORY: list[Any] = []


class Carrying(nn.Module):
    """Keeps its hidden state, a count, and everything it returned."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(300, 300)
        self.state = ad.zeros(5, 300)
        self.calls = 0
        self.kept: list[Any] = []

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.state = (self.lin(x) * SCALE + self.state).tanh().detach()
        self.kept.append(self.state)
        return self.state


@needs_allocator
def test_everything_is_put_back() -> None:
    model = Carrying()
    opt = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = ad.ones(5, 300)

    def step() -> Any:
        y = F.dropout(model.lin(model(x)), 0.5)
        HISTORY.append(y.sum())
        y.sum().backward()
        opt.step()
        model.lin.weight.data.mul_(2)

    step()
    weight, values = model.lin.weight.array, model.lin.weight.array.copy()
    grad, state, kept = model.lin.weight.grad, model.state, list(model.kept)
    buffers = {k: dict(v) for k, v in opt.state.items()}
    rng, version = ad.get_rng_state(), model.lin.weight._version
    np_draw = np.random.get_state()[1].copy()
    predict(step)
    assert model.lin.weight.array is weight and (weight == values).all()
    assert model.lin.weight.grad is grad and model.state is state and model.calls == 1
    assert len(model.kept) == 1 and model.kept[0] is kept[0] and len(HISTORY) == 1
    assert {k: dict(v) for k, v in opt.state.items()} == buffers
    assert model.lin.weight._version == version
    assert bool((ad.get_rng_state() == rng).all())
    assert (np.random.get_state()[1] == np_draw).all()
    HISTORY.clear()


@needs_allocator
def test_put_back_after_an_exception() -> None:
    w = ad.ones(3, requires_grad=True)
    array = w.array

    def step() -> None:
        (w * w).sum().backward()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        predict(step)
    assert w.array is array and w.grad is None
    assert predict(lambda: w * 2).live == 12 + 12 - 12


@needs_allocator
@pytest.mark.parametrize(
    "how", ["closure", "global", "attribute", "partial", "argument", "default"])
def test_reaches(how: str) -> None:
    model = Carrying()
    x = ad.ones(5, 300)
    steps: dict[str, Any] = {
        "closure": lambda: (lambda: model(x)),
        "global": lambda: (lambda: SCALE * 2),
        "attribute": lambda: functools.partial(Carrying.forward, model, x),
        "partial": lambda: functools.partial(model, x),
        "argument": lambda: (lambda m=model: m(x)),
        "default": lambda: model.forward,
    }
    args = (x,) if how == "default" else ()
    predicted, measured = agree(steps[how](), *args)
    assert predicted.before >= 1200
    assert all(type(t.array) is np.ndarray for t in (SCALE, x, model.state, *model.parameters()))


@needs_allocator
def test_state_that_is_replaced_frees_the_old_one() -> None:
    model = Carrying()
    model.kept = None                                      # type: ignore[assignment]
    x = ad.ones(5, 300)

    def step() -> None:
        model.state = (model.lin(x) + model.state).tanh().detach()

    predicted, _ = agree(step)
    assert predicted.live == predicted.before


@needs_allocator
def test_zero_grad_frees_gradients_that_were_there() -> None:
    model = nn.Linear(100, 100)
    x = ad.ones(2, 100)

    def step() -> None:
        model.zero_grad()
        model(x).sum().backward()

    first, _ = agree(step)
    second, _ = agree(step)
    assert first.live == second.live == second.before == first.before + 40400
    assert second.roles["gradient"] == 40400 or second.peak_event < len(second.events) - 2


@needs_allocator
def test_views_in_place_and_layouts() -> None:
    x, w = ad.ones(40, 60), ad.ones(60, 40, requires_grad=True)

    def step() -> None:
        y = (x.t() * w).reshape(-1)                         # a transposed product: reshape copies
        z = x.t().reshape(-1)                               # copies too
        v = x.clone()[3:7]
        v += 1
        u = ad.zeros(40, 60)
        u[:, 5] = 2
        u.add_(x).clamp_(0, 3)
        (y * z * u.view(-1)).sum().backward()

    agree(step)


@needs_allocator
@pytest.mark.parametrize("kind", ["float64", "float16", "bfloat16", "complex64"])
def test_dtypes(kind: str) -> None:
    if kind == "bfloat16":
        pytest.importorskip("ml_dtypes")
    x = ad.ones(30, 50, dtype=getattr(ad, kind), requires_grad=True)

    def step() -> None:
        y = (x * x + x).reshape(50, 30) @ x
        (y.abs() if kind == "complex64" else y).sum().backward()

    agree(step)


@needs_allocator
def test_odd_sizes() -> None:
    empty, scalar = ad.ones(0, 3, requires_grad=True), ad.tensor(2.0, requires_grad=True)

    def step() -> None:
        ((empty * scalar).sum() + scalar.exp() * scalar).backward()

    agree(step)


@needs_allocator
@pytest.mark.parametrize("optimizer", [ad.optim.SGD, ad.optim.Adam, ad.optim.Adagrad])
@pytest.mark.parametrize("shape", [(3, 5), (300, 200), (3, 50_000)])
def test_complex_and_transposed_parameters(optimizer: Any, shape: tuple[int, int]) -> None:
    """Updated as two real problems, and piece by piece; strided ones in rows."""
    complexes = nn.Parameter(ad.ones(*shape, dtype=ad.complex64))
    across = nn.Parameter(ad.ones(*shape).t())
    opt = optimizer([complexes, across], lr=0.1, weight_decay=0.1)

    def step() -> None:
        opt.zero_grad()
        ((complexes * complexes.conj()).real.sum() + across.square().sum()).backward()
        opt.step()
    for _ in range(2):
        agree(step)


@needs_allocator
def test_a_scaled_step_and_checked_distributions() -> None:
    """A step of the scaler is foretold as taken; parameters without values pass the checks."""
    net = nn.Linear(6, 3)
    opt, scaler = ad.optim.SGD(net.parameters(), lr=0.1), ad.amp.GradScaler("cpu")
    states, taken, advantage = ad.randn(20, 6), ad.randint(0, 3, (20,)), ad.randn(20)

    def step() -> None:
        opt.zero_grad()
        with ad.autocast("cpu", dtype=ad.bfloat16):
            logits = net(states)
        policy = ad.distributions.Categorical(logits=logits.float())
        spread = ad.distributions.Normal(advantage, logits.float().exp()[:, 0])
        loss = -(policy.log_prob(taken) * advantage).mean() - spread.entropy().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
    for _ in range(2):
        agree(step)
    assert scaler.get_scale() == 65536 and scaler.state_dict()["_growth_tracker"] == 2


def test_what_lbfgs_needs_is_said() -> None:
    w = nn.Parameter(ad.ones(3))
    opt = ad.optim.LBFGS([w])

    def closure() -> Any:
        opt.zero_grad()
        loss = w.square().sum()
        loss.backward()
        return loss
    with pytest.raises(MetaError, match=r"LBFGS.step\(\): how often.*\n  at .*test_memory_pred"):
        predict(lambda: opt.step(closure))
    assert predict(closure).peak > 0
    with pytest.raises(MetaError, match=r"\n  at .*test_memory_predict\.py"):
        predict(lambda: np.ravel(w.detach().array))


@needs_allocator
def test_what_was_predicted_stays_true_after_many_calls() -> None:
    """An op that gets a function of its own when it is called often has it from the rehearsal on.
    In a process of its own: here the op may have been called before."""
    program = """
import gc
import adjoint as ad
gc.disable()
x = ad.zeros(20, 30, requires_grad=True)
def step():
    ad.nn.functional.leaky_relu(x, 0.3).sum().backward()
step()
predicted = ad.memory.predict(step)
for _ in range(80):
    step()
with ad.memory.track(step) as measured:
    step()
assert predicted.tops == measured.tops, (predicted.tops, measured.tops)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=100)
    assert done.returncode == 0, done.stderr


@needs_allocator
def test_what_is_built_for_a_run_on_shapes_alone_is_not_the_steps() -> None:
    """The branch that is not taken runs on shapes; its ops may be met there for the first time. In
    a process of its own."""
    program = """
import numpy as np
import adjoint as ad
from adjoint.jax import lax, numpy as jnp
x = jnp.asarray(np.ones((100, 100), np.float32))
step = lambda: lax.switch(1, [lambda x: jnp.sin(x), lambda x: jnp.cos(x)], x).sum()
first = ad.memory.predict(step)
with ad.memory.track(step) as measured:
    step()
assert first.peak - first.before == measured.peak - measured.before, (first.tops, measured.tops)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=100)
    assert done.returncode == 0, done.stderr


def test_values_that_are_not_known_raise_with_the_line() -> None:
    x = ad.ones(3)

    def step() -> None:
        if (x * 2).sum().item() > 3:                        # the line that is named
            x.mul(2)

    with pytest.raises(ad.MetaError if hasattr(ad, "MetaError") else RuntimeError,
                       match=r"item\(\)(.|\n)*test_memory_predict.py:\d+ in step"):
        predict(step)
    assert type(x.array) is np.ndarray
    with pytest.raises(RuntimeError, match=r"test_memory_predict.py:\d+ in <lambda>"):
        predict(lambda: float(x.sum()))
    with pytest.raises(RuntimeError, match=r"test_memory_predict.py:\d+ in <lambda>"):
        predict(lambda: f"{x.sum():.3f}")


def test_values_that_are_known() -> None:
    labels, rate = ad.tensor([2, 0, 1]), ad.tensor(0.5)

    def step() -> None:
        assert labels.tolist() == [2, 0, 1] and int(labels.max()) == 2
        assert rate.item() == 0.5 and ad.tensor([1.5])[0].item() == 1.5
        labels[0] = 7

    predict(step)
    assert labels.tolist() == [2, 0, 1]


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="pass the function that runs one step"):
        predict(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="inside of predict"):
        predict(lambda: predict(lambda: None))
    with pytest.raises(ValueError, match="nothing to measure"):
        predict(lambda: ad.memory.track().__enter__())
    with pytest.raises(ValueError, match="not known"):
        fits(lambda: None, device="Q100")
    with pytest.raises(ValueError, match="one of role"):
        predict(lambda: None).rows("shape")


@needs_allocator
@pytest.mark.row("F79")
def test_fits_and_largest_batch() -> None:
    model = nn.Sequential(nn.Linear(50, 200), nn.ReLU(), nn.Linear(200, 1))

    def step(n: int) -> None:
        model.zero_grad()
        model(ad.zeros(n, 50)).sum().backward()

    room = 300_000
    n = largest_batch(step, room)
    assert fits(step, n, device=room) and not fits(step, n + 1, device=room)
    assert n > 10
    assert fits(step, 8, device="H100-80GB") and predict(step, 8).fits("1MB")
    assert largest_batch(step, 10) == 0
    assert largest_batch(step, "1TB", most=37) == 37


def test_sizes_that_make_no_sense_are_refused() -> None:
    """One reader of sizes for budgets, devices and the command line."""
    for wrong in ("-1GB", "", "much", "1e400GB"):
        with pytest.raises(ValueError):
            largest_batch(lambda n: None, wrong)
        with pytest.raises(ValueError, match="bytes"):
            ad.memory.budget(wrong)
    assert largest_batch(lambda n: ad.zeros(n, 1000).sum(), "1 MiB", most=300) == 262


@pytest.mark.row("F79")
def test_seventy_billion_parameters_in_seconds() -> None:
    d, wide, layers, vocabulary, tokens = 8192, 28672, 80, 128256, 2048

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
            self.q, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
            self.kv = nn.Linear(d, 2048, bias=False)
            self.gate, self.up = (nn.Linear(d, wide, bias=False) for _ in range(2))
            self.down = nn.Linear(wide, d, bias=False)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            n = self.n1(x)
            q = self.q(n).view(b, t, 64, 128).transpose(1, 2)
            k, v = self.kv(n).view(b, t, 16, 128).transpose(1, 2).chunk(2, 1)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
            n = self.n2(x)
            return x + self.down(F.silu(self.gate(n)) * self.up(n))

    begin = time.process_time()
    with ad.device("meta"):
        table, head = nn.Embedding(vocabulary, d), nn.Linear(d, vocabulary, bias=False)
        blocks = nn.ModuleList([Block() for _ in range(layers)])
    model = nn.ModuleList([table, blocks, head])
    opt = ad.optim.AdamW(model.parameters())
    text = ad.zeros(1, tokens, dtype=ad.int64)

    def step() -> None:
        x = table(text)
        for block in blocks:
            x = block(x)
        F.cross_entropy(head(x)[0], text[0]).backward()
        opt.step()

    held, idle = alloc.stats().held, alloc.stats().idle
    report = predict(step)
    parameters = sum(p.nbytes for p in model.parameters())
    assert parameters > 4 * 70e9
    assert report.before == parameters + text.nbytes
    assert report.live >= 4 * parameters                    # weights, gradients, two moments
    assert report.peak < 4.01 * parameters
    assert report.roles["optimizer state"] >= 2 * parameters
    assert alloc.stats().held - held < 1 << 20
    assert alloc.stats().idle - idle < 64 << 20             # scratch that was given back
    assert time.process_time() - begin < 60                 # seconds of the processor


@needs_allocator
def test_trace_and_tables(tmp_path: Any) -> None:
    model = nn.Sequential(nn.Linear(30, 40), nn.Tanh())
    x = ad.ones(7, 30)
    with ad.memory.track(model, x) as t:
        model(x).sum().backward()
    path = tmp_path / "trace.json"
    for report in (t, predict(lambda: model(x).sum().backward())):
        report.trace(path)
        events = json.loads(path.read_text())["traceEvents"]
        counters = [e["args"]["bytes"] for e in events if e["ph"] == "C"]
        assert max(counters) == report.peak and counters[-1] == report.live
        assert {"linear", "tanh"} <= {e["name"] for e in events if e["ph"] == "X"}
        assert all({"ts", "pid"} <= e.keys() for e in events if e["ph"] != "M")
        begun = [e["id"] for e in events if e["ph"] == "b"]
        assert sorted(begun) == sorted(e["id"] for e in events if e["ph"] == "e")
    for by in ("role", "op", "module", "line", "holder", "storage"):
        assert sum(r.bytes for r in t.rows(by)) == t.peak, by
        assert t.table(by).startswith("measured peak")
    assert "0.weight" in t.table("holder") and "test_memory_predict.py" in t.table("line")
    assert "0" in {e.module for e in t.entries}
    rows = {r.what: r.bytes for r in t.rows("module")}
    assert rows["0"] >= sum(4 * p.numel() for p in model.parameters())
    walked = dict(zip(t.report.events, t.report.modules, strict=True))
    assert walked["AddmmBackward0"] == "0" and walked["TanhBackward0"] == "1"


@needs_allocator
@pytest.mark.row("F77")
def test_numbers_of_the_process() -> None:
    alloc.install()
    ad.memory.reset_peak_memory_stats()
    before = ad.memory.memory_allocated()
    x = ad.zeros(1000, 1000)
    assert ad.memory.memory_allocated() - before == 4_000_000
    del x
    assert ad.memory.memory_allocated() == before
    assert ad.memory.max_memory_allocated() == before + 4_000_000
    with ad.memory.track():
        ad.zeros(2000, 1000)
        ad.ones(1)
    assert ad.memory.max_memory_allocated() >= before + 8_000_000   # the ledger hides no peak
    ad.memory.reset_peak_memory_stats()
    assert ad.memory.max_memory_allocated() == ad.memory.memory_allocated()
    text = ad.memory.memory_summary()
    assert "alive now" in text and "largest storages" in text
    assert "largest" not in ad.memory.memory_summary(abbreviated=True)
    assert ad.cuda.memory_allocated() == 0


@needs_allocator
@pytest.mark.row("F78")
def test_the_peak_of_a_chain_is_where_backward_begins() -> None:
    w = ad.ones(1000, requires_grad=True)

    def step() -> None:
        y = w
        for _ in range(10):
            y = y.exp()
        y.sum().backward()

    report = predict(step)
    at = report.events.index("sum_all")
    assert at <= report.peak_event <= at + 3
    assert report.saved == 10 * 4000


@needs_allocator
@pytest.mark.row("F74")
def test_half_the_width_saves_half_the_bytes() -> None:
    def saved(dtype: Any) -> int:
        w = ad.ones(64, 64, dtype=dtype, requires_grad=True)
        return int(predict(lambda: (w @ w).tanh().sum().backward()).saved)

    assert 2 * saved(ad.float16) == saved(ad.float32)


@needs_allocator
@pytest.mark.row("F125")
def test_without_backward_nothing_is_kept() -> None:
    """The laboratory in examples/: activations are the price of computing gradients."""
    lab = load("examples/gradients_only.py")
    lab.with_backward()                                     # the kernels' tables are made once
    computed, given = lab.with_backward(), lab.with_given_gradients()
    each = lab.BATCH * lab.WIDTH * 4
    kept = lab.DEPTH + 1 if ON else 2 * lab.DEPTH    # GELU's results but the last are made again
    assert computed.saved == kept * each and given.saved == 0
    assert computed.live == given.live                      # the same parameters and state after
    assert computed.peak > 5 * given.peak
    assert "saved residual" in computed.table()


@needs_allocator
@pytest.mark.parametrize("shape, k", [((64, 1000), 5), ((2, 5000), 20), ((3, 640), 10)])
def test_largest_of_long_rows(shape: tuple[int, ...], k: int) -> None:
    """What it takes is to depend on the shape alone: ties and few rows included."""
    for x in (ad.randn(*shape), ad.zeros(*shape), (ad.randn(*shape) * 4).round()):
        agree(lambda x: (x * 1.0).topk(k, 1)[1], x)


def test_what_a_test_runner_puts_into_code_is_not_the_steps() -> None:
    """pytest's `assert` leads to its session and all that was collected: that is not searched."""
    x = ad.ones(3)

    def step() -> None:
        assert (x * 2).shape == (3,)
    assert "@pytest_ar" in step.__code__.co_names
    assert len(Reach(step).tensors) == 1
    assert not [d for d, _, _ in Reach(step)._globals if d.get("__name__", "") != __name__]
