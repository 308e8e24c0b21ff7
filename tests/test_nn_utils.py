"""nn.utils: clipping, parameter vectors, weight and spectral norm, parametrizations,
functional_call, fusion (F96)."""
from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from helpers_nn import both, close, grads_close, total

import adjoint as ad
from adjoint import nn
from adjoint.nn import utils
from adjoint.nn.utils import parametrizations, parametrize, stateless


def graded(lib: Any, arrays: list[np.ndarray], make: Any) -> list[Any]:
    params = []
    for a in arrays:
        p = lib.nn.Parameter(make(np.zeros_like(a)))
        p.grad = make(a)
        params.append(p)
    return [*params, lib.nn.Parameter(make(np.zeros(2)))]  # one without a gradient


@pytest.mark.parametrize("norm", [2.0, 1.0, 3.0, math.inf, 0.0])
@pytest.mark.parametrize("limit", [0.5, 1e6])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "complex128"])
def test_clip_grad_norm_equals_torch(norm: float, limit: float, dtype: str,
                                     rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    if norm == 0 and dtype == "complex128":
        pytest.skip("PyTorch warns there")
    arrays = [rng.standard_normal(s).astype(dtype) for s in ((3, 4), (5,), ())]
    arrays[0] = np.ascontiguousarray(arrays[0].T).T  # strides of a transpose
    p, q = graded(torch, arrays, torch.tensor), graded(ad, arrays, ad.tensor)
    expected = torch.nn.utils.clip_grad_norm_(p, limit, norm)
    got = utils.clip_grad_norm_(iter(q), limit, norm)
    tol = {"float16": 4e-3, "float32": 1e-6}.get(dtype, 1e-12)
    close(got, expected, tol)
    for a, b in zip(p, q, strict=True):
        close(b.grad, a.grad, tol)


def test_clip_refuses_what_is_not_finite_if_asked_to() -> None:
    w = nn.Parameter(ad.zeros(2))
    w.grad = ad.tensor([math.nan, 1.0])
    with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
        utils.clip_grad_norm_(w, 1.0, error_if_nonfinite=True)
    assert w.grad[1].item() == 1.0
    assert math.isnan(utils.clip_grad_norm_(w, 1.0).item()) and math.isnan(w.grad[1].item())
    w.grad = ad.tensor([3.0, -4.0])
    utils.clip_grad_value_([w], 3.5)
    assert w.grad.tolist() == [3.0, -3.5]
    assert utils.clip_grad_norm_([nn.Parameter(ad.ones(1))], 1.0).item() == 0.0
    with pytest.warns(UserWarning, match="empty generator"):
        utils.clip_grad_norm_((p for p in ()), 1.0)


def test_parameter_vectors_go_back_and_forth() -> None:
    m = nn.Linear(2, 3)
    vec = utils.parameters_to_vector(m.parameters())
    assert vec.shape == (9,) and vec.requires_grad
    utils.vector_to_parameters(ad.arange(9.0), m.parameters())
    assert m.weight.tolist() == [[0, 1], [2, 3], [4, 5]] and m.bias.tolist() == [6, 7, 8]
    with pytest.raises(ValueError, match="9 elements, the vector has shape"):
        utils.vector_to_parameters(ad.arange(8.0), m.parameters())
    with pytest.raises(TypeError, match="expected a Tensor"):
        utils.vector_to_parameters([1.0], m.parameters())


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weight_norm_equals_torch(dim: int | None, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    p, q = both(torch, rng.standard_normal((5, 4)))
    for wrap in (lambda lib: lib.nn.utils.weight_norm,
                 lambda lib: lib.nn.utils.parametrizations.weight_norm):
        peer = wrap(torch)(torch.nn.Linear(4, 3).double(), dim=dim)
        ours = wrap(ad)(nn.Linear(4, 3).double(), dim=dim)
        assert list(ours.state_dict()) == list(peer.state_dict())
        ours.load_state_dict({k: v.numpy() for k, v in peer.state_dict().items()})
        out, got = peer(p), ours(q)
        close(got, out)
        total(out).backward()
        total(got).backward()
        grads_close(peer, ours)
    close(q.grad, p.grad, 1e-11)
    plain = utils.remove_weight_norm(utils.weight_norm(nn.Linear(2, 2)))
    assert sorted(n for n, _ in plain.named_parameters()) == ["bias", "weight"]
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
        utils.remove_weight_norm(plain)
    with pytest.raises(RuntimeError, match="two weight_norm hooks"):
        utils.weight_norm(utils.weight_norm(nn.Linear(2, 2)))


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_weight_norm_parametrization_loads_state_of_the_older_one() -> None:
    old = utils.weight_norm(nn.Linear(2, 3))
    new = parametrizations.weight_norm(nn.Linear(2, 3))
    new.load_state_dict(old.state_dict())
    x = ad.randn(4, 2)
    assert ad.allclose(new(x), old(x))


@pytest.mark.filterwarnings("ignore:.*spectral_norm.*:FutureWarning")
def test_spectral_norm_equals_torch(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    p, q = both(torch, rng.standard_normal((5, 4)))
    for wrap in (lambda lib: lib.nn.utils.spectral_norm,
                 lambda lib: lib.nn.utils.parametrizations.spectral_norm):
        peer = wrap(torch)(torch.nn.Linear(4, 3).double())
        ours = wrap(ad)(nn.Linear(4, 3).double())
        assert list(ours.state_dict()) == list(peer.state_dict())
        ours.load_state_dict({k: v.numpy() for k, v in peer.state_dict().items()})
        for _ in range(3):
            out, got = peer(p), ours(q)
            close(got, out, 1e-11)
        total(out).backward()
        total(got).backward()
        grads_close(peer, ours)
        for (_, a), (_, b) in zip(peer.named_buffers(), ours.named_buffers(), strict=True):
            close(b, a, 1e-11)
        close(ours.eval()(q), peer.eval()(p), 1e-11)
    plain = utils.remove_spectral_norm(utils.spectral_norm(nn.Linear(2, 2)))
    assert sorted(plain.state_dict()) == ["bias", "weight"]


def programs(lib: Any) -> list[Any]:
    """Parametrizations of every kind, in one program; returns what can be compared."""
    pz = lib.nn.utils.parametrize

    class Symmetric(lib.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, a: Any) -> Any:
            return a.triu()

    class Twice(lib.nn.Module):
        def forward(self, x: Any) -> Any:
            return 2 * x

        def right_inverse(self, x: Any) -> Any:
            return x / 2

    class Product(lib.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a @ b

        def right_inverse(self, w: Any) -> Any:
            return w.clone(), lib.eye(w.shape[1])

    m = lib.nn.Linear(3, 3)
    with lib.no_grad():
        m.weight.copy_(lib.arange(9.0).reshape(3, 3))
        m.bias.fill_(0)
    log = [pz.is_parametrized(m)]
    pz.register_parametrization(m, "weight", Symmetric())
    log += [m.weight.tolist(), list(m.state_dict()), type(m).__name__, repr(m),
            pz.is_parametrized(m), pz.is_parametrized(m, "bias"),
            pz.type_before_parametrizations(m) is lib.nn.Linear]
    pz.register_parametrization(m, "weight", Twice())
    pz.register_parametrization(m, "bias", Twice())
    log += [m.weight.tolist(), list(m.state_dict()), repr(m)]
    m.weight = lib.ones(3, 3)
    log += [m.weight.tolist(), m.parametrizations.weight.original.tolist()]
    with pz.cached():
        log.append(m.weight is m.weight)
    log.append(m.weight is m.weight)
    m(lib.ones(1, 3)).sum().backward()
    log.append(m.parametrizations.weight.original.grad.tolist())
    made = copy.deepcopy(m)
    made.weight = lib.zeros(3, 3)
    log += [m.weight.tolist(), made.weight.tolist()]
    pz.remove_parametrizations(m, "weight")
    log += [m.weight.tolist(), list(m.state_dict()), type(m).__name__]
    pz.remove_parametrizations(m, "bias", leave_parametrized=False)
    log += [m.bias.tolist(), list(m.state_dict()), type(m).__name__, pz.is_parametrized(m)]
    pz.register_parametrization(m, "weight", Product())
    log += [m.weight.tolist(), list(m.state_dict())]
    other = lib.nn.Linear(3, 3)
    pz.transfer_parametrizations_and_params(m, other)
    log += [other.weight.tolist(), list(other.state_dict())]
    return log


@pytest.mark.filterwarnings("ignore:.*:FutureWarning:torch")
def test_parametrizations_equal_torch() -> None:
    torch = pytest.importorskip("torch")
    for ours, peer in zip(programs(ad), programs(torch), strict=True):
        assert ours == peer


def test_parametrization_errors() -> None:
    class Wider(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.repeat(1, 2)

    m = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(m, "weight", Wider())
    assert isinstance(m.weight, nn.Parameter) and not parametrize.is_parametrized(m)
    with pytest.raises(ValueError, match="does not have a parameter, a buffer"):
        parametrize.register_parametrization(m, "weights", Wider())
    with pytest.raises(ValueError, match="does not have a parametrization on weight"):
        parametrize.remove_parametrizations(m, "weight")
    parametrize.register_parametrization(m, "weight", Wider(), unsafe=True)
    assert m.weight.shape == (2, 4)
    with pytest.raises(RuntimeError, match="does not implement right_inverse"):
        m.weight = ad.ones(2, 4)
    with pytest.raises(RuntimeError, match="state_dict"):
        pickle.dumps(m)


def test_functional_call_swaps_and_restores() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(ad.ones(1))
            self.b = self.a
            self.register_buffer("c", ad.zeros(1))

        def forward(self, x: Any, scale: float = 1.0) -> Any:
            self.c = self.c + 1
            return (x * self.a + self.b) * scale

    m = Tied()
    x, new = ad.ones(1), ad.tensor([3.0], requires_grad=True)
    assert stateless.functional_call(m, {"a": new}, x).item() == 6.0
    assert stateless.functional_call(m, {"a": new}, (x,), tie_weights=False).item() == 4.0
    assert stateless.functional_call(m, [{"a": new}, {"c": x}], (x,), {"scale": 2.0}).item() == 12
    assert m.a.item() == 1.0 and m.a is m.b
    stateless.functional_call(m, {"a": new}, x).backward()
    assert new.grad.item() == 2.0 and m.a.grad is None
    assert stateless.functional_call(m, {"zz": x}, x).item() == 2.0 and not hasattr(m, "zz")
    with pytest.raises(AttributeError, match="has no attribute `zz`"):
        stateless.functional_call(m, {"zz.a": x}, x)
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\): 'zz'.\s+Missing key\(s\): 'a'"):
        stateless.functional_call(m, {"zz": x}, x, strict=True)
    with pytest.raises(TypeError, match=r"^3 is not an instance of torch.Tensor"):
        stateless.functional_call(m, {"a": 3}, x)
    with pytest.raises(RuntimeError, match="Missing key"):
        stateless.functional_call(m, {"a": x}, x, strict=True)
    with pytest.raises(ValueError, match="multiple dictionaries"):
        stateless.functional_call(m, [{"a": x}, {"a": x}], x)
    with pytest.raises(ValueError, match="multiple values for keys"):
        stateless.functional_call(m, {"a": x, "b": new}, x)
    with pytest.raises(TypeError):
        stateless.functional_call(m, {"a": new}, "no tensor", {"bad": 1})
    assert m.a.item() == 1.0


def test_fusion_of_convolution_and_batch_norm(rng: np.random.Generator) -> None:
    for conv, bn, shape, transpose in (
            (nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), (2, 2, 4, 4), False),
            (nn.Conv1d(2, 3, 2, bias=False), nn.BatchNorm1d(3), (2, 2, 4), False),
            (nn.ConvTranspose1d(2, 3, 2), nn.BatchNorm1d(3), (2, 2, 4), True)):
        x = ad.tensor(rng.standard_normal(shape)).float()
        bn(conv(x))
        conv.eval(), bn.eval()
        fused = utils.fuse_conv_bn_eval(conv, bn, transpose)
        assert ad.allclose(fused(x), bn(conv(x)), atol=1e-5)
    linear, bn = nn.Linear(2, 3), nn.BatchNorm1d(3)
    with pytest.raises(RuntimeError, match="Fusion only for eval"):
        utils.fuse_linear_bn_eval(linear, bn)
    x = ad.tensor(rng.standard_normal((4, 2))).float()
    assert ad.allclose(utils.fuse_linear_bn_eval(linear.eval(), bn.eval())(x), bn(linear(x)),
                       atol=1e-5)


def test_skip_init_leaves_storage_and_names() -> None:
    m = utils.skip_init(nn.Linear, 3, 2)
    assert m.weight.shape == (2, 3) and m.weight.device.type == "cpu"
    with pytest.raises(RuntimeError, match="must support a 'device' arg"):
        utils.skip_init(nn.ReLU)


def orthonormal(q: Any) -> bool:
    q = q.mT if q.shape[-2] < q.shape[-1] else q
    return bool(ad.allclose(q.mH @ q, ad.eye(q.shape[-1], dtype=q.dtype), atol=1e-5))


@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (2, 5), (2, 4, 3)])
@pytest.mark.parametrize("trivialization", [True, False])
def test_orthogonal_stays_orthogonal_under_training(kind: str, shape: tuple[int, ...],
                                                    trivialization: bool) -> None:
    """F96: the parametrized matrix is orthogonal before and after a step, whatever it starts as."""
    module = nn.Module()
    module.w = nn.Parameter(ad.randn(shape))
    parametrizations.orthogonal(module, "w", kind, use_trivialization=trivialization)
    if kind == "householder" or trivialization:
        assert orthonormal(module.w)
    target = ad.linalg.qr(ad.randn(shape) if shape[-2] >= shape[-1] else ad.randn(shape).mT).Q
    target = target if shape[-2] >= shape[-1] else target.mT
    optimizer = ad.optim.SGD(module.parameters(), lr=0.1)
    (module.w - target).square().sum().backward()
    assert float(module.parametrizations.w.original.grad.abs().sum()) > 0
    optimizer.step()
    assert orthonormal(module.w)
    if trivialization or kind == "householder":
        module.w = target
        ad.testing.assert_close(module.w, target, atol=1e-5, rtol=1e-5)
    else:
        with pytest.raises(NotImplementedError, match="not possible to assign"):
            module.w = target


def test_orthogonal_refuses() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="orthogonal_map has to be one of"):
        parametrizations.orthogonal(layer, "weight", "qr")
    with pytest.raises(ValueError, match="matrix or batch of matrices"):
        parametrizations.orthogonal(layer, "bias")
    parametrizations.orthogonal(layer)
    with pytest.raises(ValueError, match=r"Expected a matrix or batch of matrices of shape"):
        layer.weight = ad.ones(3, 3)
