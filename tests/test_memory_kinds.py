"""Programs of kinds that other files do not have: predicted bytes are the measured ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_memory import agree

import adjoint as ad
import adjoint.jax as jax
from adjoint import nn
from adjoint.base.errors import MetaError
from adjoint.hips import grad as hips_grad
from adjoint.hips import numpy as hips_numpy
from adjoint.kernels import alloc
from adjoint.nn.utils import parametrizations, prune
from adjoint.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
from adjoint.utils.checkpoint import checkpoint_sequential

pytestmark = pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
F, jnp, lax = nn.functional, jax.numpy, jax.lax
Step = Callable[[], Any]
KINDS: dict[str, Callable[[], Step]] = {}


def kind(build: Callable[[], Step]) -> Callable[[], Step]:
    KINDS[build.__name__] = build
    return build


def fit(loss: Callable[[], Any], *layers: Any) -> Step:
    """A step of AdamW on layers or leaves."""
    params = [p for m in layers for p in (m.parameters() if isinstance(m, nn.Module) else [m])]
    rule = ad.optim.AdamW(params, 1e-3)

    def step() -> None:
        rule.zero_grad()
        loss().backward()
        rule.step()
    return step


@kind
def cached_keys() -> Step:
    d, h = 32, 4
    qkv, words, out = nn.Linear(d, 3 * d), nn.Embedding(50, d), nn.Linear(d, 50)
    prompt, slots = ad.randint(0, 50, (2, 8)), ad.zeros(2, h, 16, d // h)

    @ad.no_grad()
    def step() -> None:
        k = v = None
        x = words(prompt)
        for i in range(4):
            b, t, _ = x.shape
            q, new, v_new = qkv(x).view(b, t, 3, h, d // h).permute(2, 0, 3, 1, 4)
            k = new if k is None else ad.cat([k, new], 2)
            v = v_new if v is None else ad.cat([v, v_new], 2)
            slots[:, :, i:i + 1] = new[:, :, -1:]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=i == 0)
            out(y.transpose(1, 2).reshape(b, t, d)[:, -1])
            x = words(ad.full((b, 1), i))
    return step


@kind
def beams() -> Step:
    words, cell, out = nn.Embedding(50, 16), nn.GRUCell(16, 32), nn.Linear(32, 50)

    @ad.no_grad()
    def step() -> Any:
        state, score = ad.zeros(4, 32), ad.zeros(4)
        token, past = ad.zeros(4, dtype=ad.int64), []
        for _ in range(3):
            state = cell(words(token), state)
            both = out(state).log_softmax(-1) + score[:, None]
            score, best = both.view(-1).topk(4)
            rows, token = best // 50, best % 50
            state, past = state[rows], [*[p[rows] for p in past], token]
        return ad.stack(past)
    return step


@kind
def spectra() -> Step:
    w, layer, x = ad.randn(8, 17, 2, requires_grad=True), nn.Linear(32, 32), ad.randn(4, 8, 32)

    def loss() -> Any:
        y = ad.fft.irfft(ad.fft.rfft(x) * ad.view_as_complex(w), n=32)
        return ad.fft.fft2(layer(y)).abs().mean() + ad.fft.ifft(y).real.square().mean()
    return fit(loss, w, layer)


@kind
def volumes() -> Step:
    a, n = nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4)
    b = nn.ConvTranspose3d(4, 2, 3, stride=2, output_padding=1, padding=1)
    x = ad.randn(2, 2, 4, 6, 6)
    return fit(lambda: b(F.elu(n(a(x)))).square().mean(), a, n, b)


@kind
def warped() -> Step:
    net, to = nn.Conv2d(3, 12, 3, padding=1), nn.Linear(3 * 64, 6)
    x, up, down = ad.randn(2, 3, 8, 8), nn.PixelShuffle(2), nn.PixelUnshuffle(2)

    def loss() -> Any:
        grid = F.affine_grid(to(x.flatten(1)).view(2, 2, 3), [2, 3, 8, 8], align_corners=False)
        y = sum(F.grid_sample(x, grid, mode=m, padding_mode=p, align_corners=False) for m, p in (
            ("bilinear", "zeros"), ("bicubic", "border"), ("nearest", "reflection")))
        return y.square().mean() + down(up(net(x))).abs().mean()
    return fit(loss, net, to)


@kind
def reparametrized() -> Step:
    a = parametrizations.weight_norm(nn.Linear(8, 16))
    b, c = parametrizations.spectral_norm(nn.Linear(16, 16)), nn.Linear(16, 16)
    prune.l1_unstructured(c, "weight", 0.5)
    x = ad.randn(4, 8)

    def loss() -> Any:
        with nn.utils.parametrize.cached():
            y = b(a(x))
            return (y + b(y) + c(y)).square().mean()
    return fit(loss, a, b, c)


@kind
def averages() -> Step:
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    plain, moving = AveragedModel(net), AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    x = ad.randn(16, 8)
    inner = fit(lambda: net(x).square().mean(), net)

    def step() -> None:
        inner()
        plain.update_parameters(net)
        moving.update_parameters(net)
        update_bn([x, x], plain)
    return step


class Scaled(ad.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, k: float, mode: str, options: dict[str, int]) -> Any:
        ctx.save_for_backward(x)
        ctx.k = k
        return x * k if mode == "mul" else x + options["by"]

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * ctx.k * (x > 0), None, None, None


@kind
def own_functions() -> Step:
    w, x = ad.randn(8, 8, requires_grad=True), ad.randn(4, 8)
    return fit(lambda: Scaled.apply(x @ w, 3.0, "mul", {"by": 1}).exp().sum(), w)


@kind
def segments() -> Step:
    layers = [m for _ in range(6) for m in (nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1))]
    net, x = nn.Sequential(*layers), ad.randn(8, 16, requires_grad=True)
    return fit(lambda: checkpoint_sequential(net, 3, x, use_reentrant=False).square().mean(), net)


@kind
def kept_by_name() -> Step:
    names, named = ad.func.checkpoint_policies, ad.func.checkpoint_name
    a, b, x = (ad.randn(16, 16, requires_grad=True) for _ in range(3))
    policy = names.save_and_offload_only_these_names(
        names_which_can_be_saved=["a"], names_which_can_be_offloaded=["b"], offload_src="device",
        offload_dst="pinned_host")
    f = ad.func.checkpoint(lambda x, a, b: named(named(x @ a, "a").tanh() @ b, "b").sin().sum(),
                           policy=policy)
    return fit(lambda: f(x, a, b), a, b)


@kind
def data_of_numpy() -> Step:
    net = nn.Linear(8, 2)
    rule = ad.optim.SGD(net.parameters(), 0.1)

    def step() -> None:
        draw = np.random.default_rng(0)
        for _ in range(3):
            x = ad.from_numpy(draw.standard_normal((16, 8)).astype(np.float32))
            y = ad.tensor(draw.integers(0, 2, 16))
            rule.zero_grad()
            F.cross_entropy(net(x), y).backward()
            rule.step()
    return step


@kind
def put_at_places() -> Step:
    w, i, m = ad.randn(10, 4, requires_grad=True), ad.tensor([1, 3, 3, 7]), ad.rand(10, 4) > 0.5

    def loss() -> Any:
        y = w * 1
        y[i] = y[i] * 2
        y.index_put_((i,), ad.ones(4, 4), accumulate=True)
        y[m] = 0.5
        y[2:5, ::2] += 1
        z = ad.zeros(10, 4).index_add(0, i, w[i]).masked_scatter(m, w)
        return (y * z).relu_().sum() + w[m].sum() + w.masked_select(m).square().sum()
    return fit(loss, w)


@kind
def conjugate_gradients() -> Step:
    w, x, y = ad.randn(32, requires_grad=True), ad.randn(64, 32), ad.randn(64)

    def step() -> None:
        (g,) = ad.autograd.grad(((x @ w).tanh() - y).square().mean(), w, create_graph=True)
        d, r = ad.zeros(32), g.detach().clone()
        p = r.clone()
        for _ in range(2):
            (hp,) = ad.autograd.grad(g, w, p, retain_graph=True)
            a = (r @ r) / (p @ hp)
            d, new = d + a * p, r - a * hp
            p, r = new + ((new @ new) / (r @ r)) * p, new
        with ad.no_grad():
            w.sub_(d)
    return step


def transforms() -> dict[str, Step]:
    x, z, big = ad.randn(8, 8), ad.randn(8, 8), ad.randn(512, 512)
    ones = np.ones((8, 8), np.float32)
    leaf, wide = ad.randn(8, 8, requires_grad=True), ad.randn(512, 512, requires_grad=True)
    seed = ad.from_numpy(np.ones((512, 512), np.float32))
    X = jnp.ones((8, 8))
    return {
        "grad": lambda: ad.func.grad(lambda a: (x @ a).tanh().sum())(z),
        "grad of a view": lambda: ad.func.grad(lambda a: a.sum())(x),
        "grad, unused": lambda: ad.func.grad(lambda a, b: (a * a).sum(), argnums=(0, 1))(x, z),
        "grad, large": lambda: ad.func.grad(lambda a: (a.tanh() * a + a.exp()).sum())(big),
        "vjp of NumPy's": lambda: ad.func.vjp(lambda a: a.tanh().exp(), x)[1](ad.from_numpy(ones)),
        "large gradient of NumPy's": lambda: (wide.tanh() * wide + wide.exp()).backward(seed),
        "backward of NumPy's": lambda: (x @ leaf).tanh().backward(ad.from_numpy(ones)),
        "jvp": lambda: ad.func.jvp(ad.func.grad(lambda a: a.sin().sum()), (x,), (z,)),
        "jax, scan": lambda: jax.grad(lambda w: lax.scan(
            lambda c, a: (jnp.tanh(c @ w + a),) * 2, X[:4], jnp.ones((5, 4, 8)))[1].sum())(X),
        "jax, jit": lambda: jax.jit(jax.value_and_grad(
            lambda w: jnp.mean(jax.nn.relu(X @ w) ** 2)))(X),
        "jax, loop": lambda: jax.grad(lambda a: lax.fori_loop(
            0, 3, lambda i, v: jnp.sin(v) @ a, a).sum())(X),
        "jax, cond": lambda: jax.grad(lambda a: lax.cond(
            True, lambda b: b * 2, lambda b: b.sum() * b, a).sum())(X),
        "jax, prefixes": lambda: jax.grad(lambda a: lax.associative_scan(jnp.add, a).sum())(X),
        "jax, second order": lambda: (jax.hessian(lambda v: jnp.sum(jnp.sin(v) ** 3))(X[0]),
                                      jax.vmap(jax.grad(lambda v: v.sum()))(X)),
        "hips": lambda: hips_grad(lambda a: hips_numpy.sum(hips_numpy.tanh(a) ** 2))(ones)}


@pytest.mark.row("F79")
@pytest.mark.parametrize("name", KINDS)
def test_predicted_is_measured(name: str) -> None:
    ad.manual_seed(0)
    step = KINDS[name]()
    for _ in range(2):
        assert agree(step)[0].exact


@pytest.mark.parametrize("name", transforms())
def test_of_transforms(name: str) -> None:
    step = transforms()[name]
    step()                       # (the first call of a process fills caches of the package)
    assert agree(step)[0].exact


def test_how_often_lbfgs_evaluates_is_not_known() -> None:
    w = ad.randn(4, requires_grad=True)
    rule = ad.optim.LBFGS([w])
    with pytest.raises(MetaError, match=r"LBFGS.*\n?.*test_memory_kinds\.py:\d+"):
        ad.memory.predict(lambda: rule.step(lambda: w.square().sum()))


@pytest.mark.parametrize("flags", [
    {}, {"foreach": True}, {"foreach": False}, {"fused": True}, {"maximize": True},
    {"amsgrad": True}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "centered": True},
    {"weight_decay": 0.1}], ids=str)
def test_optimizers(flags: dict[str, Any]) -> None:
    """Each kind that takes the flags, in its first steps."""
    done = 0
    for name in ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax",
                 "Adadelta", "ASGD", "Rprop", "Adafactor"):
        leaves = [ad.randn(*shape, requires_grad=True) for shape in ((16, 8), (16,), (3, 4, 2))]
        try:
            rule = getattr(ad.optim, name)(leaves, **flags)
        except (TypeError, RuntimeError):        # it has no such flag
            continue

        def step(rule: Any = rule, leaves: Any = leaves) -> None:
            rule.zero_grad()
            sum([(p * p).sum() for p in leaves]).backward()
            rule.step()
        for _ in range(2):
            assert agree(step)[0].exact, name
        done += 1
    assert done >= (1 if flags else 12)
