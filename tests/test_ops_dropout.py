"""Dropout: a bit for each element is kept, and nothing else."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint.base.errors import AutogradError
from adjoint.func import grad, vmap
from adjoint.kernels import alloc
from adjoint.ops.generator import fork_rng

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("f", [F.dropout, F.dropout1d, F.dropout2d, F.dropout3d])
@pytest.mark.parametrize("dtype", [ad.float32, ad.float64, ad.float16, ad.bfloat16])
def test_backward_uses_the_mask_of_forward_and_keeps_its_bits(f: Any, dtype: Any) -> None:
    shape = {F.dropout1d: (4, 64, 3), F.dropout2d: (4, 64, 3, 5),
             F.dropout3d: (4, 64, 3, 2, 5)}.get(f, (33, 65))
    x = ad.ones(*shape, dtype=dtype, requires_grad=True)
    y = f(x, 0.5)
    assert y.grad_fn is not None
    drawn = x.numel() if f is F.dropout else shape[0] * shape[1]      # whole channels share one
    assert sum(s.nbytes for s in y.grad_fn.saved or ()) == -(-drawn // 64) * 8
    y.backward(ad.ones_like(y))
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.float().numpy(), y.detach().float().numpy())
    kept = y.detach().float().numpy()
    assert set(np.unique(kept)) == {0.0, 2.0}
    if f is not F.dropout:
        flat = kept.reshape(*shape[:2], -1)
        assert (flat == flat[:, :, :1]).all()


def test_masks_are_drawn_in_the_order_of_memory() -> None:
    """As in PyTorch: a transposed operand gets the transposed mask, one with gaps the plain one."""
    x = ad.randn(70, 130)
    ad.manual_seed(1)
    a = F.dropout(x, 0.3)
    ad.manual_seed(1)
    b = F.dropout(x.t(), 0.3)
    np.testing.assert_array_equal(a.t().numpy(), b.numpy())
    ad.manual_seed(1)
    c = F.dropout(ad.cat([x, x], 1)[:, :130], 0.3)
    np.testing.assert_array_equal(a.numpy(), c.numpy())


def test_masks_follow_the_generator() -> None:
    x = ad.ones(500)
    ad.manual_seed(5)
    with fork_rng():
        a, b = F.dropout(x, 0.5), F.dropout(x, 0.5)
    c = F.dropout(x, 0.5)
    np.testing.assert_array_equal(a.numpy(), c.numpy())
    assert (a != b).any()


def test_both_backends_draw_the_same_bits() -> None:
    """The NumPy reference and the generated kernel agree in separate processes."""
    code = ("import adjoint as ad, hashlib; ad.manual_seed(3); "
            "y = ad.nn.functional.dropout(ad.ones(3, 1001), 0.1); "
            "print(hashlib.sha256(y.numpy().tobytes()).hexdigest())")
    digests = {subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, text=True,
                              capture_output=True, env={**os.environ, "ADJOINT_JIT": jit}).stdout
               for jit in "01"}
    assert len(digests) == 1


@pytest.mark.parametrize("size", [10, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_what_is_dropped_is_multiplied_by_0(dtype: str, size: int) -> None:
    x = ad.full((size,), float("inf"), dtype=getattr(ad, dtype))
    y = F.dropout(x, 0.5, inplace=True)
    assert y is x and bool(y.isnan().any()) and bool(y.isinf().any())
    for f in (F.dropout, F.dropout1d, F.alpha_dropout, F.feature_alpha_dropout):
        z = ad.full((size, 3), float("nan"), dtype=x.dtype, requires_grad=True)
        out = f(z, 0.5, True)
        out.backward(ad.full_like(z, float("nan")))
        assert out.isnan().all() and z.grad.isnan().all()


@pytest.mark.parametrize("f", ["dropout1d", "dropout2d", "feature_alpha_dropout"])
def test_masks_of_channels_are_drawn_in_their_own_order(f: str) -> None:
    torch = pytest.importorskip("torch")
    shape = (4, 5, 1, 1)[:3 if f == "dropout1d" else 4]
    found = []
    for lib in (torch, ad):
        lib.manual_seed(2)
        x = lib.ones(*shape).transpose(0, 1).contiguous().transpose(0, 1)
        found.append(getattr(lib.nn.functional, f)(x, 0.5, True).flatten().tolist())
    assert found[1] == pytest.approx(found[0])


def test_vmap_draws_per_example_or_once() -> None:
    x = ad.ones(3, 200)
    once = vmap(lambda r: F.dropout(r, 0.5), randomness="same")(x).numpy()
    assert (once == once[:1]).all()
    each = vmap(lambda r: F.dropout(r, 0.5), randomness="different")(x).numpy()
    assert (each[0] != each[1]).any() and (each[1] != each[2]).any()
    outer = vmap(lambda r: F.dropout(ad.ones(200), 0.5) + 0 * r, randomness="different")(x).numpy()
    assert (outer[0] != outer[1]).any()
    slopes = vmap(grad(lambda r: F.dropout(r, 0.5).sum()), randomness="different")(x).numpy()
    assert set(np.unique(slopes)) == {0.0, 2.0} and (slopes[0] != slopes[1]).any()
    with pytest.raises(AutogradError, match="randomness"):
        vmap(lambda r: F.dropout(r, 0.5))(x)


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    """Klambauer et al. (2017), section 3: mean 0 and variance 1 stay."""
    ad.manual_seed(0)
    y = F.alpha_dropout(ad.randn(400, 1000), 0.3, training=True).numpy()
    assert abs(y.mean()) < 5 * 400000 ** -0.5 and abs(y.var() - 1) < 0.02


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64, ad.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_alpha_dropout_is_pytorch_s(dtype: ad.dtype, p: float) -> None:
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).standard_normal((30, 17))
    ad.manual_seed(3)
    torch.manual_seed(3)
    x = ad.tensor(values).to(dtype).requires_grad_()
    y = F.alpha_dropout(x, p, training=True)
    assert [(t.dtype, t.nbytes) for t in y.grad_fn.saved_tensors] == [(ad.uint8, 64)]
    y.backward(ad.ones_like(y))
    z = torch.tensor(values).to(getattr(torch, dtype.name)).requires_grad_()
    w = torch.nn.functional.alpha_dropout(z, p, training=True)
    w.backward(torch.ones_like(w))
    assert y.tolist() == w.tolist() and x.grad is not None and x.grad.tolist() == z.grad.tolist()


@pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator and kernels")
def test_alpha_dropout_makes_no_mask_of_numbers() -> None:
    x = ad.randn(1 << 16)
    F.alpha_dropout(x, 0.1, training=True)
    with ad.memory.track(x) as t:
        y = F.alpha_dropout(x, 0.1, training=True)
    assert t.peak - t.before <= y.nbytes + x.numel() // 8 + 1024


def test_statistics_of_the_mask() -> None:
    ad.manual_seed(0)
    n, p = 1 << 20, 0.1
    kept = F.dropout(ad.ones(n), p).numpy() != 0
    assert abs(kept.mean() - (1 - p)) < 5 * (p * (1 - p) / n) ** 0.5
    runs = kept[:-1] & kept[1:]
    assert abs(runs.mean() - (1 - p) ** 2) < 6 * (p / n) ** 0.5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_floats_are_scaled_by_the_half_float_that_the_mask_holds(dtype: str) -> None:
    kept = F.dropout(ad.full((64,), 3.0, dtype=getattr(ad, dtype)), 0.1)
    scale = ad.tensor(1 / 0.9).to(getattr(ad, dtype))
    assert set(kept.tolist()) == {0.0, (scale * 3.0).item()}
    torch = pytest.importorskip("torch")
    torch.manual_seed(3), ad.manual_seed(3)
    x = torch.randn(50)
    theirs = torch.nn.functional.dropout(x.to(getattr(torch, dtype)), 0.3)
    ad.randn(50)
    ours = F.dropout(ad.from_numpy(x.numpy()).to(getattr(ad, dtype)), 0.3)
    assert ours.tolist() == theirs.tolist()
