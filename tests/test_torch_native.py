"""Names of the top level that lie under `nn.functional`, and small ones, like PyTorch."""
from typing import Any

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)


def f4(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def arrays(t: Any, f: Any, *given: np.ndarray) -> list[np.ndarray]:
    """What `f(library, *tensors)` gives, and the gradients of its floating operands."""
    xs = [t.tensor(a) for a in given]
    for x in xs:
        if x.dtype.is_floating_point:
            x.requires_grad_()
    out = f(t, *xs)
    out = list(out) if isinstance(out, tuple) else [out]
    if out[0].requires_grad:
        out[0].sum().backward()
    return [np.asarray(o.detach().numpy()) for o in (
        *out, *(x.grad for x in xs if x.grad is not None))]


def same(f: Any, *given: np.ndarray) -> None:
    ours, theirs = arrays(ad, f, *given), arrays(torch, f, *given)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("mode, gates", [("lstm", 4), ("gru", 3), ("rnn_tanh", 1),
                                         ("rnn_relu", 1)])
@pytest.mark.parametrize("directions, bias, layers", [(1, True, 1), (2, False, 2), (2, True, 1)])
@pytest.mark.parametrize("proj", [0, 2])
def test_recurrent(mode: str, gates: int, directions: int, bias: bool, layers: int,
                   proj: int) -> None:
    if proj and mode != "lstm":
        return
    wide = proj or 5
    params = []
    for layer in range(layers):
        for _ in range(directions):
            params += [f4(5 * gates, 3 if layer == 0 else wide * directions), f4(5 * gates, wide)]
            params += [f4(5 * gates), f4(5 * gates)] * bias + [f4(proj, 5)] * bool(proj)
    n = layers * directions

    def padded(t: Any, x: Any, h: Any, c: Any, *ps: Any) -> Any:
        state = (h, c) if mode == "lstm" else h
        return getattr(t, mode)(x, state, ps, bias, layers, 0.0, False, directions == 2, False)

    def packed(t: Any, x: Any, h: Any, c: Any, *ps: Any) -> Any:
        state = (h, c) if mode == "lstm" else h
        parts = t.nn.utils.rnn.pack_padded_sequence(x, t.tensor([4, 2]))
        return getattr(t, mode)(parts.data, parts.batch_sizes, state, ps, bias, layers, 0.0, False,
                                directions == 2)
    same(padded, f4(4, 2, 3), f4(n, 2, wide), f4(n, 2, 5), *params)
    same(packed, f4(4, 2, 3), f4(n, 2, wide), f4(n, 2, 5), *params)


@pytest.mark.parametrize("mode, gates", [("lstm_cell", 4), ("gru_cell", 3), ("rnn_tanh_cell", 1),
                                         ("rnn_relu_cell", 1)])
def test_cells(mode: str, gates: int) -> None:
    given = f4(2, 3), f4(2, 5), f4(2, 5), f4(5 * gates, 3), f4(5 * gates, 5), f4(5 * gates), f4(
        5 * gates)
    same(lambda t, x, h, c, *ps: getattr(t, mode)(x, (h, c) if gates == 4 else h, *ps), *given)
    with pytest.raises(RuntimeError, match="input has inconsistent input_size: got 2 expected 3"):
        getattr(ad, mode)(ad.ones(2, 2), [ad.ones(2, 5)] * 2 if gates == 4 else ad.ones(2, 5),
                          *map(ad.tensor, given[3:]))


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [None, 4, -1])
def test_embedding_bag(mode: int, padding: int | None) -> None:
    same(lambda t, w, i, o: t.embedding_bag(w, i, o, False, mode, False, None, False, padding),
         f4(10, 2), np.array([1, 2, 4, 5, 4, 3, 2, 9]), np.array([0, 4, 4]))


def test_convolutions() -> None:
    same(lambda t, x, w: t.convolution(x, w, None, [1], [0], [1], False, [0], 1), f4(2, 3, 8),
         f4(4, 3, 3))
    same(lambda t, x, w: t.convolution(x, w, None, [2, 1], [1, 1], [1, 1], True, [1, 0], 1),
         f4(2, 3, 8, 8), f4(3, 4, 3, 3))
    same(lambda t, x, w, b: t.conv_tbc(x, w, b, 1), f4(8, 2, 3), f4(3, 3, 5), f4(5))
    same(lambda t, x: t.embedding_renorm_(x.detach(), t.tensor([0, 2]), 1.0, 2.0), f4(5, 3))


def test_dropout_forms() -> None:
    x = ad.ones(2, 30, 4, requires_grad=True)
    y = ad.feature_dropout(x, 0.5, True)
    assert set(y.flatten().tolist()) == {0.0, 2.0} and (y == y[:, :, :1]).all()
    y.sum().backward()
    assert (x.grad == y).all()
    x = ad.ones(100, requires_grad=True)
    assert [t.nbytes for t in ad.native_dropout(x, 0.5, True)[0].grad_fn.saved_tensors] == [16]
    out, kept = ad.native_dropout(ad.ones(100), 0.5, True)
    assert kept.dtype == ad.bool and ((out == 2) == kept).all()
    for name in ("dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_"):
        z = ad.ones(4, 8)
        assert getattr(ad, name)(z, 0.5, True) is z and not (z == 1).all()
    assert (ad.dropout_(ad.ones(3), 0.5, False) == 1).all()
    with pytest.raises(RuntimeError, match="^Feature dropout requires at least 2 dimensions"):
        ad.feature_dropout(ad.ones(3), 0.5, True)
    assert not ad.detach_(x * 2).requires_grad


def test_fake_quantize() -> None:
    """F121: the straight-through gradient of rounding to a grid."""
    x = f4(6, 6) * 4
    for kind in ("f4", "f8"):
        same(lambda t, x: t.fake_quantize_per_tensor_affine(x, 0.37, -3, -8, 7), x.astype(kind))
        same(lambda t, x: t.fake_quantize_per_channel_affine(
            x, t.arange(1.0, 7.0) / 9, t.arange(6, dtype=t.int32), 1, -8, 7), x.astype(kind))
    same(lambda t, x: t.fake_quantize_per_tensor_affine(x, t.tensor(0.3), t.tensor(2), -8, 7), x)
    y = ad.fake_quantize_per_tensor_affine(ad.tensor(x).requires_grad_(), 0.1, 0, 0, 255)
    assert type(y.grad_fn).__name__ == "FakeQuantizePerTensorAffineCachemaskBackward0"
    with pytest.raises(RuntimeError, match="^`zero_point` must be between `quant_min` and `quant"):
        ad.fake_quantize_per_tensor_affine(ad.ones(2), 0.1, 300, 0, 255)
    with pytest.raises(RuntimeError, match="^Zero-point must be Int32, Float or Half, found Long"):
        ad.fake_quantize_per_channel_affine(ad.ones(2), ad.ones(2), ad.arange(2), 0, 0, 255)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_observed_fake_quantize(rows: bool, symmetric: bool) -> None:
    def steps(t: Any, x: Any, y: Any) -> Any:
        on, inf = t.tensor([1]), float("inf")
        low, high = (t.zeros(0), t.zeros(0)) if rows else (t.tensor([inf]), t.tensor([-inf]))
        scale, zero = t.tensor([1.0]), t.tensor([0], dtype=t.int32)
        first = t.fused_moving_avg_obs_fake_quant(x, on, on, low, high, scale, zero, 0.1, -128, 127,
                                                  0, rows, symmetric)
        second = t.fused_moving_avg_obs_fake_quant(y.detach(), on, on, low, high, scale, zero, 0.1,
                                                   -128, 127, 0, rows, symmetric)
        return first, second, low, high, scale, zero
    same(steps, f4(3, 5), 2 * f4(3, 5))
    same(steps, np.abs(f4(3, 5)), -np.abs(f4(3, 5)))


def test_branches_and_loops() -> None:
    x = ad.arange(6.0).reshape(3, 2)
    assert ad.cond(x.sum() > 3, lambda a: a + 1, lambda a: a - 1, (x,)).tolist()[0] == [1.0, 2.0]
    with pytest.raises(RuntimeError, match="^Expected pred to be bool or single-element tensor"):
        ad.cond(x, lambda: x, lambda: x)
    last = ad.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (ad.tensor(0), x))
    assert last[0].item() == 3 and (last[1] == 8 * x).all()
    from adjoint import _higher_order_ops as h
    carry, ys = h.scan(lambda c, y: (c + y, c * y), ad.zeros(3), x, dim=1, reverse=True)
    assert carry.tolist() == [1, 5, 9] and ys.tolist() == [[0, 0], [6, 0], [20, 0]]
    summed = h.associative_scan(lambda a, b: a + b, x, 1, reverse=True)
    assert summed.tolist() == [[1, 1], [5, 3], [9, 5]]
    assert (h.map(lambda a, b: a + b, x, ad.ones(2)) == x + 1).all()


def test_numbers_of_sizes() -> None:
    for call in ("sym_int(-3.7)", "sym_float(2)", "sym_max(3, 2.0)", "sym_min(2, 3.0)",
                 "sym_not(1)", "sym_sqrt(4)", "sym_sum([1, 2, 3])", "sym_ite(True, 1, 2)"):
        ours, theirs = eval(f"ad.{call}"), eval(f"torch.{call}")
        assert ours == theirs and type(ours) is type(theirs), call
    with pytest.raises(AssertionError, match="^expected SymBool or bool, got"):
        ad.sym_ite(1, 1, 2)
    with pytest.raises(RuntimeError, match="^Invalid value range for 3 between"):
        ad.sym_constrain_range(3, min=5)


def test_autocast_by_hand() -> None:
    assert ad.get_autocast_dtype("cpu") == ad.bfloat16
    try:
        ad.set_autocast_dtype("cpu", ad.float16)
        ad.set_autocast_enabled("cpu", True)
        assert (ad.ones(2, 2) @ ad.ones(2, 2)).dtype == ad.float16
        with ad.autocast("cpu", dtype=ad.bfloat16):
            assert ad.get_autocast_dtype("cpu") == ad.bfloat16
        ad.set_autocast_cache_enabled(False)
        assert not ad.is_autocast_cache_enabled()
        ad.clear_autocast_cache()
    finally:
        ad.set_autocast_cache_enabled(True)
        ad.set_autocast_enabled("cpu", False)
        ad.set_autocast_dtype("cpu", ad.bfloat16)
    assert not ad.is_autocast_enabled() and (ad.ones(2, 2) @ ad.ones(2, 2)).dtype == ad.float32
    assert ad.autocast_increment_nesting() == 1 and ad.autocast_decrement_nesting() == 0
    with pytest.warns(DeprecationWarning, match=r"torch.get_autocast_cpu_dtype\(\) is deprecated"):
        assert ad.get_autocast_cpu_dtype() == ad.bfloat16
    with pytest.warns(DeprecationWarning, match=r"set_autocast_cpu_enabled\(enabled\) is deprec"):
        ad.set_autocast_cpu_enabled(False)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_named_storages() -> None:
    s = ad.FloatStorage([1, 2, 3])
    assert isinstance(s, ad.FloatStorage) and not isinstance(s, ad.LongStorage)
    assert ad.Storage is ad.FloatStorage and s.type() == "torch.FloatStorage"
    assert isinstance(ad.ones(3).storage(), ad.FloatStorage) and len(ad.LongStorage(4)) == 4
    assert s.double().dtype == ad.float64 and s.float() is s
    assert s.copy_(ad.FloatStorage([4, 5, 6])).tolist() == [4, 5, 6]
    assert s.clone().fill_(0).tolist() == [0, 0, 0] and s.tolist() == [4, 5, 6]
    assert repr(s).replace("adjoint.", "torch.") == repr(torch.FloatStorage([4, 5, 6]))
    assert ad.BFloat16Storage([1, 2]).tolist() == [1, 2]
    with pytest.raises(ValueError, match="^Too many positional arguments"):
        ad.FloatStorage(1, 2)


def test_functionalize_and_debug_unwrap() -> None:
    from adjoint.func import debug_unwrap, functionalize, grad, vmap
    x = ad.ones(2)
    assert functionalize(lambda a: a.add_(1))(x).tolist() == [2, 2] == x.tolist()
    with pytest.raises(RuntimeError, match="received invalid argument for remove=x"):
        functionalize(lambda a: a, remove="x")
    seen = []
    vmap(lambda a: (seen.append(debug_unwrap(a)), a)[1])(ad.ones(3))
    grad(lambda a: (seen.append(debug_unwrap(a)), a.sum())[1])(ad.ones(3))
    assert [type(s) is ad.Tensor and s.tolist() for s in seen] == [[1, 1, 1]] * 2
    with pytest.raises(TypeError):
        debug_unwrap(3)  # type: ignore[arg-type]  # refused


def test_cpp_extension_imports_and_refuses() -> None:
    from adjoint.utils import cpp_extension
    assert not cpp_extension.is_ninja_available()
    for call in (cpp_extension.load, cpp_extension.load_inline, cpp_extension.BuildExtension):
        with pytest.raises(NotImplementedError, match="library.custom_op"):
            call(name="x", sources=[])


def test_histogram_has_a_hundred_bins() -> None:
    x = f4(50)
    ours, theirs = ad.histogram(ad.tensor(x)), torch.histogram(torch.tensor(x))
    assert ours.hist.tolist() == theirs.hist.tolist() and len(ours.bin_edges) == 101
