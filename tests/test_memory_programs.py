"""Programs beside the models of `test_memory_exact`: predicted bytes are the measured ones, at
every event, however often their ops have run before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from helpers_memory import agree

import adjoint as ad
from adjoint import nn
from adjoint.kernels import alloc
from adjoint.memory import meters

pytestmark = pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
F = nn.functional


@pytest.mark.parametrize("name", ["Muon", "Adafactor"])
@pytest.mark.parametrize("shape", [(20, 40), (40, 20)])
def test_what_an_update_rule_holds_on_the_way(name: str, shape: tuple[int, int]) -> None:
    w = nn.Parameter(ad.ones(shape))
    optimizer = getattr(ad.optim, name)([w], lr=1e-2)

    def step() -> None:
        w.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    for _ in range(3):
        predicted, measured = agree(step)
        assert predicted.exact
        assert predicted.roles == measured.roles
        most = predicted.events.index(f"{name}.step")
        assert predicted.tops[most] - predicted.lives[most] > w.array.nbytes


def test_a_mask_of_keys_and_dropout() -> None:
    layer, x = nn.MultiheadAttention(16, 2, 0.1, batch_first=True), ad.randn(3, 9, 16)
    padding = ad.zeros(3, 9, dtype=ad.bool)
    padding[:, 7:] = True

    def step() -> None:
        out, _ = layer(x, x, x, key_padding_mask=padding, need_weights=False)
        out.sum().backward()
        layer.zero_grad()
    for _ in range(2):
        assert agree(step)[0].exact


def test_an_in_place_op_that_is_called_many_times() -> None:
    """An op of several operands becomes another function after fifty calls."""
    averages, fresh = [ad.zeros(3, 5) for _ in range(70)], ad.ones(3, 5)

    def step() -> None:
        for a in averages:
            a.lerp_(fresh, 0.01)
    for _ in range(2):
        agree(step)


def _scaled(w: Any, x: Any) -> Any:
    return w * (x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt())


def _weighed(w: Any, x: Any) -> Any:
    return x * w.exp() - w


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("layer", [_scaled, _weighed])
def test_a_parameter_in_a_pointwise_op(layer: Callable[..., Any], autocast: bool) -> None:
    """Broadcast, in Python's steps and, from some calls on, in machine code."""
    weights = [nn.Parameter(ad.ones(48)) for _ in range(7)]
    x = ad.randn(3, 17, 48)

    def step() -> None:
        with ad.autocast("cpu", enabled=autocast):
            y = x
            for w in weights:
                y = y + layer(w, y).tanh()
        y.sum().backward()
        for w in weights:
            w.grad = None
    for _ in range(8):
        agree(step)


def test_a_decoder_with_rotated_keys_under_autocast() -> None:
    """Queries and keys that were rotated are float32, values bfloat16: attention casts them."""
    d, heads = 24, 2
    maps = nn.ModuleList([nn.Linear(d, d, bias=False) for _ in range(3)])
    angle = ad.outer(ad.arange(7.0), ad.arange(d // heads).float())
    x = ad.randn(2, 7, d)

    def rotated(t: Any) -> Any:
        a, b = t.chunk(2, -1)
        return t * angle.cos() + ad.cat((-b, a), -1) * angle.sin()

    def step() -> None:
        with ad.autocast("cpu", dtype=ad.bfloat16):
            q, k, v = (m(x).view(2, 7, heads, d // heads).transpose(1, 2) for m in maps)
            out = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        assert out.dtype == ad.bfloat16
        out.float().square().mean().backward()
        maps.zero_grad()
    for _ in range(3):
        agree(step)


def _decoder() -> tuple[Any, Any]:
    layer = nn.TransformerDecoderLayer(16, 2, 32, 0.1, batch_first=True)
    return nn.TransformerDecoder(layer, 2), ad.randn(2, 5, 16)


@pytest.mark.parametrize("made", ["before", "bool", "band", "in the step"])
def test_whether_a_mask_is_the_causal_one(made: str) -> None:
    """Numbers decide what attention keeps; those of masks are known where a step changes none."""
    net, x = _decoder()
    masks = {"before": ad.full((5, 5), -float("inf")).triu(1), "bool": ad.ones(5, 5).triu(1) > 0,
             "band": ad.full((5, 5), -float("inf")).triu(2), "in the step": None}
    mask = masks[made]

    def step() -> None:
        used = nn.Transformer.generate_square_subsequent_mask(5) if mask is None else mask
        net(x, x, tgt_mask=used).sum().backward()
        net.zero_grad()
    for _ in range(2):
        predicted, _ = agree(step)
        assert predicted.exact


def test_a_mask_whose_numbers_are_not_known_is_refused() -> None:
    net, x = _decoder()
    mask = ad.zeros(5, 5)

    def step() -> None:
        mask.fill_(-float("inf")).triu_(1)
        net(x, x, tgt_mask=mask).sum().backward()
    with pytest.raises(NotImplementedError, match=r"the mask \[5, 5\] is the causal one.*"
                                                  r"pass is_causal="):
        ad.memory.predict(step)
    assert mask.tolist() == [[0.0] * 5] * 5
    ad.memory.predict(lambda: net(x, x, tgt_mask=mask.triu(1), tgt_is_causal=True))


def test_branches_that_a_choice_did_not_take_are_looked_at() -> None:
    """Their cotangents are summed once, to see whether there is anything to drop."""
    x, target = ad.randn(9, 6, requires_grad=True), ad.ones(9, 6)

    def step() -> None:
        F.hinge_embedding_loss(x, target).backward()
        x.grad = None
    for _ in range(2):
        assert agree(step)[0].exact


@pytest.mark.parametrize("make", [
    lambda p: ad.optim.SparseAdam(p), lambda p: ad.optim.Adagrad(p),
    lambda p: ad.optim.SGD(p, lr=0.1), lambda p: ad.optim.SGD(p, lr=0.1, momentum=0.9)],
    ids=["SparseAdam", "Adagrad", "SGD", "momentum"])
def test_sparse_gradients(make: Callable[..., Any]) -> None:
    """Of a table with padding, read twice in a step: two gradients are added."""
    table = nn.Embedding(200, 16, padding_idx=0, sparse=True)
    index = ad.tensor([[1, 5], [0, 3]])
    optimizer = make(list(table.parameters()))

    def step() -> None:
        optimizer.zero_grad()
        table(index).square().sum().backward()
        table(index[:, 0]).exp().sum().backward()
        optimizer.step()
    for _ in range(3):
        predicted, measured = agree(step)
        assert predicted.exact
        assert predicted.roles == measured.roles
    assert table.weight.grad.is_sparse


def test_a_sparse_matrix_that_was_there_before() -> None:
    at = ad.tensor([[0, 1, 1, 2], [2, 0, 2, 1]])
    matrix = ad.sparse_coo_tensor(at, ad.ones(4), (3, 3)).coalesce()
    w = nn.Parameter(ad.randn(3, 5))

    def step() -> None:
        w.grad = None
        (matrix @ w).tanh().sum().backward()
    for _ in range(2):
        assert agree(step)[0].exact


LIKE: dict[str, Callable[[Any], Any]] = {
    **{n: getattr(ad, n) for n in ("ones_like", "zeros_like", "empty_like", "rand_like",
                                   "randn_like")},
    "full_like": lambda t: ad.full_like(t, 2.0), "randint_like": lambda t: ad.randint_like(t, 5),
    "clone": ad.clone, "to": lambda t: t.to(ad.float64),
    "new_zeros": lambda t: t.new_zeros(t.shape)}


@pytest.mark.parametrize("name", sorted(LIKE))
def test_the_order_in_memory_that_results_take_over(name: str) -> None:
    """Strides as the step sees them, and what a product of two orders holds on its way."""
    column = ad.randn(6, 4).t()
    last = ad.randn(2, 3, 4, 5).contiguous(memory_format=ad.channels_last)
    for x in (column, last):
        want = x.stride(), LIKE[name](x).stride()

        def step(x: Any = x, want: Any = want) -> None:
            like = LIKE[name](x)
            assert (x.stride(), like.stride()) == want
            (like * x).sum()
        assert agree(step)[0].exact


def test_what_hangs_on_values_is_not_said_to_be_exact() -> None:
    """NumPy looks elements up in a table or sorts them, by their range."""
    x, few = ad.randn(64, 64), ad.randn(100)
    assert not ad.memory.predict(lambda: ad.isin(x, few)).exact
    assert ad.memory.predict(lambda: x.sort()).exact


@pytest.mark.parametrize("draw", ["ad.randperm(20)", "ad.empty(()).random_()", "ad.randn(7)"])
def test_the_first_draw_of_a_process(draw: str) -> None:
    """Machine code is made at the first call: what that takes is not the step's."""
    program = ("import gc; import adjoint as ad; gc.collect(); gc.disable()\n"
               f"step = lambda: {draw}\n"
               "predicted = ad.memory.predict(step)\n"
               "with ad.memory.track(step) as measured: step()\n"
               "assert predicted.tops == measured.tops, (predicted.tops, measured.tops)\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr


DRAWS: dict[str, Callable[[], Any]] = {
    "channels": lambda: F.dropout2d(ad.ones(5, 6, 3, 3), 0.3),
    "channels_last": lambda: F.dropout2d(
        ad.ones(5, 6, 3, 3).contiguous(memory_format=ad.channels_last), 0.3),
    "slopes": lambda: F.rrelu(ad.linspace(-1, 1, 40), training=True),
    "windows": lambda: F.fractional_max_pool2d(ad.ones(1, 1, 9, 9), 2, output_size=3),
    "long": lambda: ad.rand(5000, dtype=ad.float64),
    "gamma": lambda: ad.distributions.Gamma(ad.ones(9), 2.0).rsample(),
    "dirichlet": lambda: ad.distributions.Dirichlet(ad.ones(4)).sample((3,)),
    "poisson": lambda: ad.poisson(ad.full((50,), 3.0)),
    "binomial": lambda: ad.binomial(ad.full((50,), 9.0), ad.full((50,), 0.3)),
    "multinomial": lambda: ad.multinomial(ad.full((4, 30), 0.1), 6),
    "categories": lambda: ad.multinomial(ad.full((4, 30), 0.1), 60, replacement=True),
    "normal": lambda: ad.normal(ad.zeros(40), ad.ones(40)),
    "laplace": lambda: ad.distributions.Laplace(0.0, 1.0).rsample((9,))}


@pytest.mark.parametrize("name", sorted(DRAWS))
def test_what_a_draw_takes_hangs_on_no_values(name: str) -> None:
    """Nor on how much was drawn before: which numbers come, and where a block of them ends."""
    for _ in range(4):
        assert agree(DRAWS[name])[0].exact
        ad.rand(101)


_INDEX = [[1, 2, 2, 7], [0, 1, 1, 1]]
RULES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gamma": (lambda a, b: ad.distributions.Gamma(a, b).rsample(), ((50, 40), (50, 40))),
    "beta": (lambda a, b: ad.distributions.Beta(a, b).rsample(), ((5, 40), (5, 40))),
    "dirichlet": (lambda a: ad.distributions.Dirichlet(a).rsample(), ((50, 40),)),
    "student": (lambda a: ad.distributions.StudentT(20 * a).rsample(), ((5, 40),)),
    "gammainc": (lambda a, x: ad.special.gammainc(200 * a, 200 * x), ((50, 40), (50, 40))),
    "gammaincc": (lambda a, x: ad.special.gammaincc(a.detach(), x), ((700,), (700,))),
    "polygamma": (lambda a: ad.special.polygamma(1, a - 0.5), ((50, 40),)),
    "hard": (lambda a: F.gumbel_softmax(a, hard=True), ((50, 40),)),
    "probabilities": (lambda a, b: F.cross_entropy(a, b.softmax(1)), ((50, 40), (50, 40))),
    "trace": (lambda a: a.trace(), ((40, 40),)),
    "nuclear": (lambda a: ad.linalg.norm(a, "nuc"), ((6, 7),)),
    "condition": (lambda a: ad.linalg.cond(a), ((6, 6),)),
    "frequency": (lambda w: F.embedding(ad.tensor(_INDEX), w, scale_grad_by_freq=True), ((9, 4),)),
    "longest": (lambda w: F.embedding(ad.tensor(_INDEX), w.clone().detach(), max_norm=0.5) * w[0],
                ((9, 4),)),
    "mean": (lambda a: (a - 1).mean(), ((50, 40),))}


@pytest.mark.row("F79")
@pytest.mark.parametrize("name", sorted(RULES))
def test_what_a_rule_takes_hangs_on_no_values(name: str) -> None:
    """Whatever numbers come, and where a loss or its cotangent is one number."""
    f, shapes = RULES[name]
    operands = [(ad.rand(shape) + 0.1).requires_grad_() for shape in shapes]

    def step() -> None:
        y = f(*operands)
        (y * y).sum().backward()
        for x in operands:
            x.grad = None
    for _ in range(3):
        assert agree(step)[0].exact
        for x in operands:
            x.detach().copy_(ad.rand(x.shape) + 0.1)
    predicted = ad.memory.predict(step)
    live = alloc.live_and_peak()[0]
    meters.restart()
    step()
    assert alloc.live_and_peak()[1] - live == predicted.peak - predicted.before
