"""Mixed precision: autocast, GradScaler, underflow in numbers (F74, F98-F102)."""
import copy
import pickle
import threading
import warnings

import numpy as np
import pytest

import adjoint as ad
from adjoint import amp
from adjoint.base.errors import DTypeError
from adjoint.nn import functional as F
from adjoint.utils.checkpoint import checkpoint

pytest.importorskip("ml_dtypes")
BF16, F16 = ad.bfloat16, ad.float16


def make(*shape, seed=0):
    return ad.tensor(np.random.default_rng(seed + sum(shape)).random(shape, np.float32))


IDX = [1, 0, 2]
CALLS = {
    "linear": lambda t, F, x: F.linear(x(3, 4), x(5, 4), x(5)),
    "matmul": lambda t, F, x: x(3, 4) @ x(4, 3),
    "bmm": lambda t, F, x: t.bmm(x(2, 3, 4), x(2, 4, 3)),
    "matvec": lambda t, F, x: x(3, 4) @ x(4),
    "mv": lambda t, F, x: t.mv(x(3, 4), x(4)),
    "dot": lambda t, F, x: t.dot(x(4), x(4)),
    "inner": lambda t, F, x: t.inner(x(4), x(4)),
    "outer": lambda t, F, x: t.outer(x(4), x(4)),
    "addmm": lambda t, F, x: t.addmm(x(3, 3), x(3, 4), x(4, 3)),
    "addmv": lambda t, F, x: t.addmv(x(3), x(3, 4), x(4)),
    "baddbmm": lambda t, F, x: t.baddbmm(x(2, 3, 3), x(2, 3, 4), x(2, 4, 3)),
    "einsum": lambda t, F, x: t.einsum("ij,jk->ik", x(3, 4), x(4, 3)),
    "bilinear": lambda t, F, x: F.bilinear(x(3, 4), x(3, 5), x(2, 4, 5)),
    "conv1d": lambda t, F, x: F.conv1d(x(1, 2, 5), x(2, 2, 3)),
    "conv2d": lambda t, F, x: F.conv2d(x(1, 2, 5, 5), x(2, 2, 3, 3), x(2)),
    "conv_transpose2d": lambda t, F, x: F.conv_transpose2d(x(1, 2, 5, 5), x(2, 2, 3, 3)),
    "attention": lambda t, F, x: F.scaled_dot_product_attention(*[x(1, 2, 3, 4)] * 3),
    "softmax": lambda t, F, x: F.softmax(x(3, 4), -1),
    "layer_norm": lambda t, F, x: F.layer_norm(x(3, 4), (4,)),
    "rms_norm": lambda t, F, x: F.rms_norm(x(3, 4), (4,)),
    "batch_norm": lambda t, F, x: F.batch_norm(x(3, 4), None, None, training=True),
    "sum": lambda t, F, x: x(3, 4).sum(),
    "prod": lambda t, F, x: x(3, 4).prod(),
    "norm": lambda t, F, x: x(3, 4).norm(),
    "exp": lambda t, F, x: x(3).exp(),
    "pow": lambda t, F, x: x(3) ** 2,
    "gelu": lambda t, F, x: F.gelu(x(3)),
    "mse_loss": lambda t, F, x: F.mse_loss(x(3, 4), x(3, 4)),
    "huber_loss": lambda t, F, x: F.huber_loss(x(3, 4), x(3, 4)),
    "cross_entropy": lambda t, F, x: F.cross_entropy(x(3, 4), t.tensor(IDX)),
    "nll_loss": lambda t, F, x: F.nll_loss(x(3, 4), t.tensor(IDX)),
    "bce_logits": lambda t, F, x: F.binary_cross_entropy_with_logits(x(3, 4), x(3, 4)),
    "kl_div": lambda t, F, x: F.kl_div(x(3, 4), x(3, 4), reduction="sum"),
    "triplet": lambda t, F, x: F.triplet_margin_loss(x(3, 4), x(3, 4), x(3, 4)),
    "gaussian_nll": lambda t, F, x: F.gaussian_nll_loss(x(3, 4), x(3, 4), x(3, 4)),
    "cosine_similarity": lambda t, F, x: F.cosine_similarity(x(3, 4), x(3, 4)),
    "cdist": lambda t, F, x: t.cdist(x(3, 4), x(5, 4)),
    "trace": lambda t, F, x: x(3, 3).trace(),
    "inverse": lambda t, F, x: t.inverse(x(3, 3)),
    "cholesky": lambda t, F, x: t.linalg.cholesky(x(3, 3) * 0 + t.eye(3)),
    "qr": lambda t, F, x: t.linalg.qr(x(3, 3))[0],
    "lstsq": lambda t, F, x: t.linalg.lstsq(x(3, 3), x(3, 3))[0],
    "vecdot": lambda t, F, x: t.linalg.vecdot(x(3), x(3)),
    "rfft": lambda t, F, x: t.fft.rfft(x(4)),
    "quantile": lambda t, F, x: t.quantile(x(9), 0.3),
    "avg_pool2d": lambda t, F, x: F.avg_pool2d(x(1, 2, 4, 4), 2),
    "avg_pool3d": lambda t, F, x: F.avg_pool3d(x(1, 2, 4, 4, 4), 2),
    "max_pool3d": lambda t, F, x: F.max_pool3d(x(1, 2, 4, 4, 4), 2),
    "grid_sample": lambda t, F, x: F.grid_sample(x(1, 2, 4, 4), x(1, 2, 2, 2),
                                                 align_corners=False),
    "interpolate": lambda t, F, x: F.interpolate(x(1, 2, 4, 4), scale_factor=2, mode="bilinear"),
    "embedding": lambda t, F, x: F.embedding(t.tensor(IDX), x(3, 4)),
    "cat": lambda t, F, x: t.cat([x(3, 4), t.ones(3, 4)]),
    "index_copy": lambda t, F, x: t.index_copy(t.ones(3, 4), 0, t.tensor(IDX), x(3, 4)),
    "add": lambda t, F, x: x(3) + t.ones(3),
    "reflect": lambda t, F, x: F.pad(x(1, 2, 4, 4), (1, 1, 1, 1), mode="reflect"),
    "prelu": lambda t, F, x: F.prelu(x(3), x(1)),
    "logsumexp": lambda t, F, x: x(3).logsumexp(0),
}


@pytest.mark.row("F74")
@pytest.mark.parametrize("name", CALLS)
def test_dtypes_of_results_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    for kind in ("float32", "bfloat16"):
        def ours(*s, kind=kind):
            return make(*s).to(getattr(ad, kind))

        def theirs(*s, kind=kind):
            return torch.tensor(make(*s).numpy()).to(getattr(torch, kind))
        with ad.autocast("cpu", dtype=BF16), torch.autocast("cpu", dtype=torch.bfloat16):
            a = CALLS[name](ad, F, ours)
            b = CALLS[name](torch, torch.nn.functional, theirs)
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1], kind
        x, y = a.to(ad.complex64).numpy(), b.to(torch.complex64).numpy()
        np.testing.assert_allclose(x, y, rtol=2 ** -6, atol=2 ** -6 * max(1e-3, np.abs(y).max()))


@pytest.mark.row("F74")
def test_training_under_autocast_halves_saved_activations_and_keeps_float32_weights():
    layer = ad.nn.Linear(64, 64)
    x = make(32, 64)

    def kept(on):
        seen = []
        hooks = ad.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t)
        with ad.autocast("cpu", dtype=BF16, enabled=on), hooks:
            out = ad.nn.Linear(64, 64)(ad.nn.functional.relu(layer(x)))
            ((out * out).sum()).backward()
        return {t.dtype for t in seen if t.shape == (32, 64)}, out.dtype

    assert kept(False) == ({ad.float32}, ad.float32)
    assert kept(True) == ({BF16}, BF16)
    assert layer.weight.dtype == layer.weight.grad.dtype == ad.float32


def test_gradients_equal_float32_to_the_precision_of_bfloat16():
    model = ad.nn.Sequential(ad.nn.Linear(6, 16), ad.nn.GELU(), ad.nn.LayerNorm(16),
                             ad.nn.Linear(16, 3))
    x, y = make(20, 6), ad.tensor([0, 1, 2, 0, 1] * 4)
    grads = []
    for on in (False, True):
        model.zero_grad()
        with ad.autocast("cpu", dtype=BF16, enabled=on):
            out = model(x)
            loss = F.cross_entropy(out, y)
        assert loss.dtype == ad.float32 and out.dtype == (BF16 if on else ad.float32)
        loss.backward()
        grads.append([p.grad.numpy().copy() for p in model.parameters()])
    for a, b in zip(*grads, strict=True):
        assert np.abs(a - b).max() <= 0.05 * np.abs(a).max() and not np.array_equal(a, b)


def test_parameters_are_cast_once_per_context_and_again_after_an_update():
    w = ad.nn.Parameter(make(4, 4))
    x = make(2, 4)
    with ad.autocast("cpu", dtype=BF16):
        assert w.matmul(w).grad_fn.next_functions[0][0] is w.matmul(w).grad_fn.next_functions[1][0]
        first = (x @ w).grad_fn.next_functions[1][0]
        with ad.no_grad():
            assert (x @ w).requires_grad is False
            w.add_(1.0)
        assert (x @ w).grad_fn.next_functions[1][0] is not first
        np.testing.assert_allclose((x @ w).float().detach().numpy(), (x @ w.float()).float()
                                   .detach().numpy())
    with ad.autocast("cpu", dtype=BF16, cache_enabled=False):
        assert not amp.is_autocast_cache_enabled()
        assert (x @ w).grad_fn.next_functions[1][0] is not (x @ w).grad_fn.next_functions[1][0]
    with ad.autocast("cpu"), ad.no_grad():
        x @ w                       # a cast made here has no history and must not be used below
        with ad.enable_grad():
            (x @ w).sum().backward()
    assert w.grad is not None


def test_two_backward_passes_through_one_cached_cast():
    w = ad.nn.Parameter(ad.eye(2))
    with ad.autocast("cpu"):
        for _ in range(2):
            (ad.ones(1, 2) @ w).sum().backward()
    assert w.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_nesting_threads_decorator_and_state():
    assert not ad.is_autocast_enabled() and ad.get_autocast_dtype("cpu") == BF16
    x = make(2, 2)
    seen = []
    with ad.autocast("cpu", dtype=F16):
        assert ad.is_autocast_enabled("cpu") and ad.get_autocast_dtype() == F16
        thread = threading.Thread(target=lambda: seen.append(ad.is_autocast_enabled()))
        thread.start()
        thread.join()
        with ad.autocast("cpu", enabled=False):
            assert (x @ x).dtype == ad.float32 and not ad.is_autocast_enabled()
            with ad.autocast("cpu", dtype=BF16):
                assert (x @ x).dtype == BF16
        assert (x @ x).dtype == F16
        assert (x.double() @ x.double()).dtype == ad.float64
    assert seen == [False] and (x @ x).dtype == ad.float32

    @ad.autocast("cpu", dtype=F16)
    def f(a, depth=0):
        return f(a, depth + 1) if depth < 2 else a @ a
    assert f(x).dtype == F16 and not ad.is_autocast_enabled()
    with pytest.raises(RuntimeError, match="boom"), ad.autocast("cpu"):
        raise RuntimeError("boom")
    assert not ad.is_autocast_enabled()


def test_what_is_not_supported_warns_and_changes_nothing():
    for kwargs in ({"device_type": "cuda"}, {"device_type": "cpu", "dtype": ad.float64}):
        with pytest.warns(UserWarning, match="Disabling"):
            context = ad.autocast(**kwargs)
        with context:
            assert (make(2, 2) @ make(2, 2)).dtype == ad.float32
    with pytest.raises(ValueError, match="device_type"):
        ad.autocast(3)
    with pytest.raises(ValueError, match="generator"):
        ad.autocast("cpu")(lambda: (yield))
    assert amp.is_autocast_available("cpu") and not amp.is_autocast_available("cuda")


def test_checkpoint_recomputes_with_the_autocast_of_its_forward():
    w = ad.nn.Parameter(make(4, 4))
    x = make(3, 4)

    def run(wrap):
        w.grad = None
        with ad.autocast("cpu", dtype=BF16):
            f = lambda t: (t @ w).relu() @ w  # noqa: E731 - two of them, wrapped or not
            out = checkpoint(f, x, use_reentrant=False) if wrap else f(x)
        out.float().sum().backward()
        return w.grad.numpy().copy()
    np.testing.assert_array_equal(run(True), run(False))


@pytest.mark.parametrize("layer", [ad.nn.Conv2d, ad.nn.ConvTranspose2d])
def test_a_convolution_reads_what_another_made(layer):
    """16 bits from the first, float32 weights in the second, as in PyTorch."""
    first, second = layer(3, 4, 3), layer(4, 2, 3)
    x = ad.randn(2, 3, 8, 8)
    with ad.autocast("cpu", dtype=ad.bfloat16):
        y = second(first(x))
    assert y.dtype == ad.bfloat16
    y.float().sum().backward()
    assert second.weight.grad.dtype == first.weight.grad.dtype == ad.float32
    with pytest.raises(DTypeError, match="should be the same"):
        second(first(x).bfloat16())


def test_transforms_see_autocast():
    w, x = make(3, 3), make(5, 3)
    with ad.autocast("cpu", dtype=BF16):
        assert ad.func.vmap(lambda r: r @ w)(x).dtype == BF16
        g = ad.func.grad(lambda m: (x @ m).float().sum())(w)
        second = ad.func.grad(lambda m: ad.func.grad(lambda k: (x @ k).float().pow(2).sum())(m)
                              .sum())(w)
    assert g.dtype == ad.float32 and second.dtype == ad.float32
    np.testing.assert_allclose(g.numpy(), np.repeat(x.numpy().sum(0)[:, None], 3, 1), rtol=2e-2)


def test_custom_functions_choose_their_dtype():
    class Half(ad.autograd.Function):
        @staticmethod
        @amp.custom_fwd(device_type="cpu")
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @amp.custom_bwd(device_type="cpu")
        def backward(ctx, ct):
            a, b = ctx.saved_tensors
            grads.append((ct.float() @ b.T).dtype)
            return (ct @ b.to(ct.dtype).T).to(a.dtype), (a.to(ct.dtype).T @ ct).to(b.dtype)

    class Full(ad.autograd.Function):
        @staticmethod
        @amp.custom_fwd(device_type="cpu", cast_inputs=ad.float32)
        def forward(ctx, a):
            seen.append((a.dtype, ad.is_autocast_enabled()))
            return a.exp()

        @staticmethod
        @amp.custom_bwd(device_type="cpu")
        def backward(ctx, ct):
            return ct

    grads, seen = [], []
    x = make(2, 2).requires_grad_()
    with ad.autocast("cpu", dtype=BF16):
        out = Half.apply(x, x)
        Full.apply(x.to(BF16))
    assert out.dtype == BF16 and seen == [(ad.float32, False)]
    out.sum().backward()
    assert grads == [BF16] and x.grad.dtype == ad.float32


# ------------------------------------------------------------------ numbers of 16 bits
@pytest.mark.row("F98")
def test_smallest_numbers_and_the_underflow_report():
    assert ad.finfo(F16).smallest_subnormal == 2.0 ** -24 == 5.960464477539063e-08
    assert ad.tensor(2.0 ** -24).half().item() == 2.0 ** -24
    assert ad.tensor(2.0 ** -26).half().item() == 0.0
    model = ad.nn.Sequential(ad.nn.Linear(3, 2), ad.nn.Linear(2, 1))
    out = (model(make(4, 3)) * 1e-9).sum()
    out.backward()
    lost = amp.underflow_report(model)
    assert [r.name for r in lost.rows] == [n for n, _ in model.named_parameters()]
    assert lost.zero == lost.total == sum(p.numel() for p in model.parameters())
    assert amp.underflow_report(model, scale=2.0 ** 16).zero < lost.zero
    assert amp.underflow_report(model, BF16).zero == 0
    over = amp.underflow_report({"g": ad.tensor([1.0, 1e-6, 7e4, 0.0])})
    assert (over.rows[0].total, over.rows[0].zero, over.rows[0].subnormal,
            over.rows[0].infinite) == (3, 0, 1, 1)
    assert "33.3%" in str(over) and "65504" in str(over)
    for bad in (3, [1, 2]):
        with pytest.raises(ValueError, match="underflow_report: expected"):
            amp.underflow_report(bad)
    with pytest.raises(ValueError, match="float16 or bfloat16"):
        amp.underflow_report(model, ad.float32)


@pytest.mark.row("F99")
def test_scaling_recovers_gradients_that_float16_would_lose():
    w = ad.nn.Parameter(ad.tensor([1.0, -2.0]))
    opt, scaler = ad.optim.SGD([w], lr=1.0), amp.GradScaler()
    assert scaler.get_scale() == 65536.0

    def loss():
        with ad.autocast("cpu", dtype=F16):
            return (w.half() * 1e-4).float().sum() * 1e-5
    loss().backward()
    assert w.grad.tolist() == [0.0, 0.0]
    opt.zero_grad()
    scaler.scale(loss()).backward()
    scaler.unscale_(opt)
    np.testing.assert_allclose(w.grad.numpy(), [1e-9, 1e-9], rtol=2 ** -10)


def scaler_story(t, make_scaler):
    """A run with overflow, growth, clipping and two optimizers; what a user can see of it."""
    a = t.nn.Parameter(t.tensor([1.0, 2.0]))
    b = t.nn.Parameter(t.tensor([3.0]))
    first, second = t.optim.SGD([a], lr=0.1, momentum=0.9), t.optim.Adam([b], lr=0.1)
    scaler = make_scaler(init_scale=1024.0, growth_interval=2)
    log = []
    for step in range(8):
        first.zero_grad()
        second.zero_grad()
        factor = float("inf") if step in (2, 5) else 1.0
        losses = [(a * a).sum() * factor, (b * b).sum()]
        for part in scaler.scale(losses):
            part.backward()
        if step % 2:
            scaler.unscale_(first)
            t.nn.utils.clip_grad_norm_([a], 1.0)
        answers = [scaler.step(first), scaler.step(second)]
        scaler.update(512.0 if step == 6 else None)
        log.append((scaler.get_scale(), scaler.state_dict(), a.tolist(), b.tolist(),
                    [r is None for r in answers]))
    return log


@pytest.mark.row("F100")
def test_scaler_goes_through_the_same_states_as_torch():
    torch = pytest.importorskip("torch")
    ours = scaler_story(ad, lambda **k: amp.GradScaler("cpu", **k))
    theirs = scaler_story(torch, lambda **k: torch.amp.GradScaler("cpu", **k))
    for x, y in zip(ours, theirs, strict=True):
        assert x[:2] == y[:2] and x[4] == y[4]
        np.testing.assert_allclose(x[2], y[2], rtol=1e-5)
        np.testing.assert_allclose(x[3], y[3], rtol=1e-5)


@pytest.mark.row("F100")
def test_scaler_defaults_growth_backoff_and_skipping():
    w = ad.nn.Parameter(ad.tensor([1.0]))
    opt, s = ad.optim.SGD([w], lr=0.1), amp.GradScaler()
    assert s.state_dict() == {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5,
                              "growth_interval": 2000, "_growth_tracker": 0}
    s.scale(w.sum() * float("nan")).backward()
    s.step(opt)
    s.update()
    assert w.item() == 1.0 and s.get_scale() == 32768.0
    s.set_growth_interval(1)
    s.set_growth_factor(4.0)
    opt.zero_grad()
    s.scale(w.sum()).backward()
    s.step(opt)
    s.update()
    assert w.item() == pytest.approx(0.9) and s.get_scale() == 131072.0
    s.load_state_dict({**s.state_dict(), "scale": 3e38})
    opt.zero_grad()
    w.grad = ad.tensor([0.0])
    s.step(opt)
    s.update()
    assert s.get_scale() == np.float32(3e38)       # growth that would overflow is left out


def test_scaler_refuses_a_wrong_order_in_words():
    w = ad.nn.Parameter(ad.tensor([1.0]))
    opt, s = ad.optim.SGD([w], lr=0.1), amp.GradScaler()
    for call in (lambda: s.unscale_(opt), lambda: s.step(opt), s.update):
        with pytest.raises(AssertionError, match="_scale is None"):
            call()
    s.scale(w.sum()).backward()
    with pytest.raises(AssertionError, match="No inf checks were recorded"):
        s.update()
    s.unscale_(opt)
    with pytest.raises(RuntimeError, match="already been called on this optimizer"):
        s.unscale_(opt)
    with pytest.raises(AssertionError, match="pickled at the beginning"):
        pickle.dumps(s)
    with pytest.raises(RuntimeError, match="Closure use"):
        s.step(opt, lambda: None)
    s.step(opt)
    with pytest.raises(RuntimeError, match="after step"):
        s.unscale_(opt)
    with pytest.raises(RuntimeError, match="already been called since the last update"):
        s.step(opt)
    s.update()
    assert pickle.loads(pickle.dumps(s)).state_dict() == copy.deepcopy(s).state_dict()
    with pytest.raises(AssertionError, match="growth factor"):
        amp.GradScaler(growth_factor=1.0)
    with pytest.raises(AssertionError, match="backoff factor"):
        amp.GradScaler(backoff_factor=1.0)
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        s.load_state_dict({})
    with pytest.raises(ValueError, match="iterable of Tensors"):
        s.scale(3)
    half = ad.nn.Parameter(ad.tensor([1.0]).half())
    opt = ad.optim.SGD([half], lr=0.1)
    s.scale(half.float().sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        s.step(opt)


def test_a_disabled_scaler_is_transparent():
    w = ad.nn.Parameter(ad.tensor([1.0]))
    opt = ad.optim.SGD([w], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        s = amp.GradScaler("cpu", enabled=False)
    with pytest.warns(UserWarning, match="not available"):
        assert not amp.GradScaler("cuda").is_enabled()
    loss = w.sum()
    assert s.scale(loss) is loss and s.get_scale() == 1.0 and s.state_dict() == {}
    loss.backward()
    s.unscale_(opt)
    s.step(opt)
    s.update()
    s.load_state_dict({})
    assert w.item() == pytest.approx(0.9)


@pytest.mark.row("F101")
def test_bfloat16_has_the_range_of_float32_and_needs_no_scaling():
    assert ad.finfo(BF16).max > 3e38 and ad.finfo(BF16).smallest_normal == ad.finfo(
        ad.float32).smallest_normal
    w = ad.nn.Parameter(ad.ones(3))
    opt = ad.optim.AdamW([w], lr=1e-4)
    with ad.autocast("cpu", dtype=BF16):
        loss = F.mse_loss(w @ ad.ones(3), ad.tensor(0.0)) * 1e-20
    loss.backward()
    assert loss.dtype == w.grad.dtype == ad.float32 and (w.grad != 0).all()
    opt.step()
    assert all(v.dtype == ad.float32 for v in opt.state[w].values())
    assert 0 < 1 - w[0].item() < 2 ** -8            # an update that bfloat16 weights would lose


@pytest.mark.row("F102")
def test_exp_overflows_float32_above_88_and_log_sum_exp_does_not():
    assert ad.tensor(88.7).exp().item() == pytest.approx(3.33e38, rel=1e-2)
    assert ad.tensor(88.8).exp().item() == float("inf")
    assert ad.tensor(11.1).half().exp().item() == float("inf")
    x = ad.tensor([1000.0, 1000.0], requires_grad=True)
    out = ad.logsumexp(x, 0)
    out.backward()
    assert out.item() == pytest.approx(1000 + np.log(2)) and x.grad.tolist() == pytest.approx(
        [0.5, 0.5], abs=2 ** -14)               # half a unit in the last place of 1000


@pytest.mark.filterwarnings("ignore:`torch.cuda.amp:FutureWarning")
def test_cuda_forms_warn_and_do_nothing():
    from adjoint.cuda.amp import GradScaler, autocast
    x = make(2, 2)
    with pytest.warns(UserWarning, match="CUDA is not available"):
        context = autocast()
    with context:
        assert (x @ x).dtype == ad.float32
    with pytest.warns(UserWarning, match="not available"):
        assert ad.cuda.amp.GradScaler is GradScaler and not GradScaler().is_enabled()


def test_attention_casts_operands_that_differ() -> None:
    """PyTorch's list has it: float32 queries and keys beside bfloat16 values, float masks too."""
    q = ad.randn(1, 2, 4, 8)
    mask = ad.zeros(4, 4)
    attend = ad.nn.functional.scaled_dot_product_attention
    with ad.autocast("cpu", dtype=ad.bfloat16):
        out = attend(q, q, q.bfloat16(), attn_mask=mask)
    assert out.dtype == ad.bfloat16
    assert (out.float() - attend(q, q, q)).abs().max() < 0.05
    with pytest.raises(DTypeError, match="query, key, and value to have the same dtype"):
        attend(q, q, q.bfloat16())


@pytest.mark.filterwarnings("ignore:In CPU autocast")
def test_a_context_that_is_off_says_its_dtype() -> None:
    for dtype, enabled in ((ad.float16, False), (ad.float32, True), (ad.bfloat16, True)):
        with ad.autocast("cpu", dtype=dtype, enabled=enabled):
            assert ad.get_autocast_dtype("cpu") == dtype
            assert ad.is_autocast_enabled("cpu") == (dtype == ad.bfloat16)
            assert (ad.ones(2, 2) @ ad.ones(2, 2)).dtype == (
                dtype if dtype == ad.bfloat16 else ad.float32)
    assert ad.get_autocast_dtype("cpu") == ad.bfloat16


def test_what_a_scaler_has_seen() -> None:
    w = ad.nn.Parameter(ad.ones(2))
    rule, scaler = ad.optim.SGD([w], lr=0.1), ad.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(w.sum()).backward()
    assert scaler._found_inf_per_device(rule) == {}
    scaler.unscale_(rule)
    assert [v.item() for v in scaler._found_inf_per_device(rule).values()] == [0.0]
    w.grad[0] = float("inf")
    assert [v.item() for v in scaler._check_inf_per_device(rule).values()] == [1.0]
    scaler.step(rule)
    scaler.update()
    assert w.tolist() == [1.0, 1.0] and scaler.get_scale() == 2.0


@pytest.mark.parametrize("decorate", [ad.amp.custom_fwd, ad.amp.custom_bwd])
def test_a_device_is_named_by_a_string(decorate: object) -> None:
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        decorate(device_type=3)
