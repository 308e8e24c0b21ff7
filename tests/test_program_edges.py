"""Small things that ordinary training programs lean on: dtypes of NumPy scalars beside tensors,
masks of one truth value, the last bit of linspace, what prints, what imports."""
from __future__ import annotations

import itertools
import operator
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.base.errors import ShapeError
from adjoint.core.bind import compute
from adjoint.io.errors import EmptyFileError

SCALARS = [np.float64(2), np.float32(2), np.float16(2), np.int64(2), np.int32(2), np.uint8(2),
           np.complex128(2j), 2, 2.0, 2j]


def operands(t: Any) -> list[Any]:
    """Tensors of several kinds, with axes and without."""
    return [t.ones([]), t.ones(3), t.ones(3, dtype=t.int32), t.tensor(True),
            t.ones(2, dtype=t.bfloat16), t.ones([], dtype=t.int64),
            t.ones([], dtype=t.complex64)]


@pytest.mark.row("F15")
@pytest.mark.parametrize("f", [operator.mul, operator.add, operator.truediv, operator.pow,
                               lambda a, b: b * a, lambda a, b: b - a, lambda a, b: b ** a],
                         ids=["mul", "add", "div", "pow", "rmul", "rsub", "rpow"])
def test_numpy_scalars_are_numbers_beside_tensors(f: Any) -> None:
    torch = pytest.importorskip("torch")
    for i, scalar in itertools.product(range(len(operands(ad))), SCALARS):
        theirs, ours = operands(torch)[i], operands(ad)[i]
        try:
            want = f(theirs, scalar)
        except RuntimeError:                    # a bool tensor is not subtracted there
            continue
        got = f(ours, scalar)
        assert str(got.dtype).partition(".")[2] == str(want.dtype).partition(".")[2], (
            ours, scalar)
        np.testing.assert_allclose(got.to(ad.complex64).numpy(),
                                   want.to(torch.complex64).numpy(), rtol=1e-2)


def test_the_temperature_of_contrastive_models_stays_single() -> None:
    """`ones([]) * np.log(1 / 0.07)`: a NumPy scalar does not widen a 0-d tensor."""
    scale = ad.nn.Parameter(ad.ones([]) * np.log(1 / 0.07))
    assert scale.dtype == ad.float32
    assert (np.float64(2) * scale).dtype == ad.float32
    assert ad.vmap(lambda x: x * np.float64(2))(ad.ones(3)).dtype == ad.float32


def test_integers_to_a_fractional_power_are_floats() -> None:
    assert (ad.tensor([4, 9]) ** 2.0).dtype == ad.float32
    assert (ad.tensor([4, 9]) ** 2).tolist() == [16, 81]
    assert (ad.tensor([True]) ** 2).dtype == ad.int64


@pytest.mark.parametrize("b", [True, False])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_one_truth_value_is_an_index(b: bool, shape: tuple[int, ...]) -> None:
    """A 0-d mask adds an axis of length 1 or 0, as a Python bool does (and as NumPy has it)."""
    raw = np.arange(float(np.prod(shape, dtype=int))).reshape(shape)
    x, mask = ad.tensor(raw), ad.tensor(b)
    for index in ((mask,), (mask, ...), (..., mask), (None, mask), (mask, None)):
        plain = tuple(b if i is mask else i for i in index)
        got = x[index]
        assert got.shape == raw[plain].shape and np.array_equal(got.numpy(), raw[plain])
    y = x.clone().requires_grad_()
    (y[mask] * 2).sum().backward()
    assert y.grad.tolist() == np.full(shape, 2.0 * b).tolist()
    z = x.clone()
    z[mask] = z[mask] + 1
    assert np.array_equal(z.numpy(), raw + b)


def test_bytes_are_a_mask() -> None:
    """uint8 indices are truth values, with PyTorch's warning."""
    mask = ad.tensor([1, 0, 1], dtype=ad.uint8)
    with pytest.warns(UserWarning, match="indexing with dtype torch.uint8 is now deprecated"):
        assert ad.arange(3.0)[mask].tolist() == [0.0, 2.0]
    x = ad.zeros(3)
    with pytest.warns(UserWarning, match="torch.uint8"):
        x[mask] = 7.0
    assert x.tolist() == [7.0, 0.0, 7.0]


@pytest.mark.row("F123")
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_linspace_to_the_last_bit(kind: str) -> None:
    torch = pytest.importorskip("torch")
    for start, end in ((-1, 1), (1e-4, 0.02), (0, 10.5), (3, -7.25)):
        for n in (0, 1, 2, 3, 7, 28, 100, 1000):
            want = torch.linspace(start, end, n, dtype=getattr(torch, kind)).numpy()
            assert np.array_equal(ad.linspace(start, end, n, dtype=getattr(ad, kind)).numpy(),
                                  want), (start, end, n)


def test_a_range_around_zero_mirrors_itself() -> None:
    for n in range(2, 200):
        x = ad.linspace(-1, 1, n)
        assert (x == -x.flip(0))[:n // 2].all()


@pytest.mark.row("F123")
@pytest.mark.parametrize("align", [True, False])
def test_the_identity_meets_the_pixels(align: bool) -> None:
    """Spatial transformers begin at the identity, where grid_sample has its kinks."""
    torch = pytest.importorskip("torch")
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    for n in (5, 16, 28):
        want = torch.nn.functional.affine_grid(torch.tensor(theta), (1, 1, n, n), align)
        got = ad.nn.functional.affine_grid(ad.tensor(theta), (1, 1, n, n), align)
        assert np.array_equal(got.numpy(), want.numpy())


def test_layers_and_distributions_print_as_in_pytorch() -> None:
    nn, d = ad.nn, ad.distributions
    assert repr(nn.Hardswish(inplace=True)) == "Hardswish()"
    assert repr(nn.Hardsigmoid(True)) == "Hardsigmoid()"
    assert repr(nn.ReLU6(inplace=True)) == "ReLU6(inplace=True)"
    assert repr(d.Bernoulli(ad.tensor([0.5]))) == "Bernoulli(probs: tensor([0.5000]))"
    assert repr(d.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"


def test_names_off_a_wrapper() -> None:
    """The state dict of a DataParallel loads into the module itself."""
    from adjoint.nn.modules.utils import consume_prefix_in_state_dict_if_present

    wrapped = ad.nn.DataParallel(ad.nn.Sequential(ad.nn.Linear(1, 1)))
    state = wrapped.state_dict()
    consume_prefix_in_state_dict_if_present(state, "module.")
    assert list(state) == ["0.weight", "0.bias"] and set(state._metadata) == {"", "0"}
    assert not wrapped.module.load_state_dict(state).missing_keys
    plain = {"module": 1, "module.a": 2, "b": 3}
    consume_prefix_in_state_dict_if_present(plain, "module.")
    assert plain == {"module": 1, "b": 3, "a": 2}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_maps_of_classes_are_rows(reduction: str, smoothing: float) -> None:
    """Segmentation: (N, C, H, W) takes the kernel of rows, forward and backward, to the bit."""
    rng = np.random.default_rng(0)
    x = ad.tensor(rng.standard_normal((3, 5, 16, 12)), dtype=ad.float32, requires_grad=True)
    classes = ad.tensor(np.where(rng.random((3, 16, 12)) < 0.1, -100,
                                 rng.integers(0, 5, (3, 16, 12))))
    weight = ad.tensor(rng.random(5), dtype=ad.float32)
    rows = x.detach().permute(0, 2, 3, 1).reshape(-1, 5).requires_grad_()
    losses = [ad.nn.functional.cross_entropy(a, b, weight, reduction=reduction,
                                             label_smoothing=smoothing)
              for a, b in ((x, classes), (rows, classes.flatten()))]
    assert losses[0].shape == (classes.shape if reduction == "none" else ())
    assert ad.equal(losses[0].flatten(), losses[1].flatten())
    for loss in losses:
        (loss * 1.5).sum().backward()
    assert ad.equal(x.grad.permute(0, 2, 3, 1).reshape(-1, 5), rows.grad)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_large_maps_of_classes_are_read_as_they_lie(smoothing: float) -> None:
    rng = np.random.default_rng(0)
    x = ad.tensor(rng.standard_normal((2, 5, 19, 31)), dtype=ad.float32, requires_grad=True)
    classes = ad.tensor(np.where(rng.random((2, 19, 31)) < 0.1, -100,
                                 rng.integers(0, 5, (2, 19, 31))))
    rows = x.detach().permute(0, 2, 3, 1).reshape(-1, 5).requires_grad_()
    losses = [ad.nn.functional.cross_entropy(a, b, reduction="none", label_smoothing=smoothing)
              for a, b in ((x, classes), (rows, classes.flatten()))]
    assert losses[0].shape == classes.shape
    assert ad.allclose(losses[0].flatten(), losses[1].flatten(), rtol=1e-6, atol=1e-6)
    for loss in losses:
        loss.mean().backward()
    assert x.grad.shape == x.shape
    assert ad.allclose(x.grad.permute(0, 2, 3, 1).reshape(-1, 5), rows.grad, rtol=1e-5, atol=1e-9)


def test_one_stride_in_a_list_stands_for_all() -> None:
    conv = ad.nn.Conv2d(1, 2, 3, stride=[2], padding=(1,))
    assert conv.stride == (2, 2) and conv(ad.ones(1, 1, 8, 8)).shape == (1, 2, 4, 4)
    with pytest.raises(ValueError, match="one integer or 2 of them"):
        ad.nn.Conv2d(1, 2, 3, stride=[1, 2, 3])


def test_errors_that_programs_catch(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        ad.randperm(-1)
    (tmp_path / "empty.pt").touch()
    with pytest.raises(EOFError, match="is empty") as caught:
        ad.load(tmp_path / "empty.pt")
    assert isinstance(caught.value, EmptyFileError)


def test_vectors_and_triangles() -> None:
    from adjoint.distributions import utils
    square = ad.arange(18.0).reshape(2, 3, 3)
    for diag in (-1, 0, 1):
        vector = utils.tril_matrix_to_vec(square, diag)
        assert ad.equal(utils.vec_to_tril_matrix(vector, diag), square.tril(diag))
    with pytest.raises(ValueError, match="outside"):
        utils.tril_matrix_to_vec(square, 3)
    with pytest.raises(ValueError, match="last dimension is 4"):
        utils.vec_to_tril_matrix(ad.ones(4))


def test_switches_of_absent_backends() -> None:
    backends = ad.backends
    assert backends.cudnn.version() is None and not backends.mps.is_built()
    backends.mkldnn.chatty, backends.cudnn.benchmark = 3, False
    assert backends.mkldnn.chatty == 3 and backends.mkldnn.unset is False
    with pytest.raises(AttributeError):
        backends.cudnn.__wrapped__  # noqa: B018  # asked for, as inspect does
    with backends.cudnn.flags(benchmark=True):
        assert backends.cudnn.benchmark
    assert not backends.cudnn.benchmark
    assert backends.cpu.get_cpu_capability() in ("AVX512", "AVX2", "DEFAULT")
    assert backends.openmp.is_available() and not backends.mkl.is_available()
    with backends.mkl.verbose(backends.mkl.VERBOSE_ON):
        assert not backends.nnpack.is_available()
    backends.mha.set_fastpath_enabled(False)
    assert not backends.mha.get_fastpath_enabled()
    backends.mha.set_fastpath_enabled(True)
    q = ad.ones(1, 1, 2, 4)
    asked = backends.cuda.SDPAParams(q, q, q, None, 0.0, False, False)
    assert not backends.cuda.can_use_flash_attention(asked)
    assert backends.fp32_precision == "none"


def test_what_programs_set_is_what_they_read() -> None:
    """Kernels of attention that were switched off, modes of `compile`, marks that are off."""
    cuda: Any = ad.backends.cuda
    attention: Any = ad.nn.attention

    def enabled() -> list[bool]:
        return [cuda.flash_sdp_enabled(), cuda.math_sdp_enabled(),
                cuda.mem_efficient_sdp_enabled(), cuda.cudnn_sdp_enabled()]
    with attention.sdpa_kernel(attention.SDPBackend.MATH):
        assert enabled() == [False, True, False, False]
    cuda.enable_flash_sdp(False)
    assert enabled() == [False, True, True, True]
    cuda.enable_flash_sdp(True)
    with cuda.sdp_kernel(enable_math=False):
        assert enabled() == [True, False, True, True]
    assert all(enabled())
    with pytest.raises(RuntimeError, match="Either mode or options"):
        ad.compile(len, mode="default", options={"a": 1})
    with ad.autograd.profiler.emit_nvtx(enabled=False):
        assert ad._dynamo.graph_break() is None
    assert ad._dynamo.optimize("eager", nopython=True)(len)([1]) == 1


def test_shared_memory_keeps_values_gradients_and_copies() -> None:
    model = ad.nn.Sequential(ad.nn.Linear(2, 3), ad.nn.BatchNorm1d(3))
    want = [t.clone() for t in model.state_dict().values()]
    model(ad.ones(4, 2)).sum().backward()
    assert model.share_memory() is model
    held = list(model.state_dict().values())
    assert all(t.is_shared() for t in (*model.parameters(), *held))
    assert all(p.grad.is_shared() for p in model.parameters())
    assert all(ad.equal(a, b) for a, b in zip(want[:2], held[:2], strict=True))
    import copy
    assert not copy.deepcopy(model)[0].weight.is_shared()
    view = held[0][1]
    assert view.is_shared() and not ad.zeros(1).is_shared()
    assert ad.zeros(0).share_memory_().is_shared()
    assert ad.empty(2, device="meta").share_memory_().is_meta
    ad.optim.SGD(model.parameters(), 0.1).step()
    assert model[0].weight.is_shared()


def test_the_older_profiler_has_pytorchs_names() -> None:
    """What is here of PyTorch's events is under PyTorch's names, in its order."""
    torch = pytest.importorskip("torch")

    def events(t: Any) -> list[str]:
        x = t.ones(3, requires_grad=True)
        with t.autograd.profiler.profile() as prof:
            (x.exp() * x).sum().backward()
        assert {r.key for r in prof.key_averages()} == {e.name for e in prof.function_events}
        assert prof.total_average().count == len(prof.function_events)
        assert "aten::exp" in prof.table(row_limit=-1) and "aten::exp" in str(prof)
        return [e.name for e in prof.function_events]
    ours = [n for n in events(ad) if n != "backward"]
    assert ours == ["aten::exp", "aten::mul", "aten::sum", "SumBackward0", "MulBackward0",
                    "ExpBackward0"]
    theirs = iter(events(torch))
    assert all(name in theirs for name in ours)


def test_the_older_profiler_can_be_off() -> None:
    with ad.autograd.profiler.profile(enabled=False) as off:
        ad.ones(2).exp()
    with ad.autograd.profiler.profile(use_cuda=True, record_shapes=True) as on:
        ad.ones(2).exp()
    assert not off.key_averages() and "aten::exp" in [e.key for e in on.key_averages()]


def test_no_warning_where_pytorch_has_none() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ad.arange(3)[ad.tensor([True, False, True])].tolist() == [0, 2]


class Late(Exception):
    """What a signal's handler may raise wherever the program is."""


@pytest.mark.parametrize("error", [Late, TimeoutError, RuntimeWarning])
def test_what_is_no_refusal_of_operands_goes_through(error: type[Exception]) -> None:
    def impl(*_: Any) -> Any:
        raise error("stop")
    op: Any = SimpleNamespace(name="slow", prepare=None, run=impl, infer=lambda *a: None)
    with pytest.raises(error, match="^stop$"):
        compute(op, [np.ones(2)], {})
    op.run = lambda *_: np.ones(2) + np.ones(3)
    with pytest.raises(ShapeError, match="slow"):
        compute(op, [np.ones(2)], {})
