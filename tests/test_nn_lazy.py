"""Lazy modules: shapes from the first input (F42)."""
from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from helpers_nn import plain

import adjoint as ad
from adjoint import nn, optim

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("LazyLinear", (3,), {}, (2, 5)), ("LazyLinear", (3,), {"bias": False}, (5,)),
    ("LazyConv1d", (4, 3), {}, (2, 3, 7)), ("LazyConv2d", (4, 3), {"groups": 2}, (2, 5, 5)),
    ("LazyConv3d", (4, 2), {"bias": False}, (1, 2, 4, 4, 4)),
    ("LazyConvTranspose1d", (4, 3), {}, (2, 3, 7)),
    ("LazyConvTranspose2d", (4, 3), {"stride": 2, "output_padding": 1}, (1, 2, 5, 5)),
    ("LazyConvTranspose3d", (4, 2), {"groups": 2}, (1, 2, 4, 4, 4)),
    ("LazyBatchNorm1d", (), {}, (4, 3)), ("LazyBatchNorm2d", (), {"bias": False}, (2, 3, 2, 2)),
    ("LazyBatchNorm3d", (), {"affine": False}, (2, 3, 2, 2, 2)),
    ("LazyInstanceNorm1d", (), {}, (2, 3, 4)), ("LazyInstanceNorm2d", (), {}, (2, 3, 2, 2)),
    ("LazyInstanceNorm3d", (), {"track_running_stats": False}, (2, 3, 2, 2, 2)),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), CASES)
@pytest.mark.filterwarnings("ignore:.*:UserWarning:torch")
def test_first_call_equals_torch(name: str, args: Any, kwargs: Any, shape: tuple[int, ...],
                                 rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    x = rng.standard_normal(shape).astype(np.float32)
    peer, ours = getattr(torch.nn, name)(*args, **kwargs), getattr(nn, name)(*args, **kwargs)
    assert plain(repr(ours)) == plain(repr(peer))
    assert list(ours.state_dict()) == list(peer.state_dict())
    params = list(ours.parameters())
    expected, got = peer(torch.tensor(x)), ours(ad.tensor(x))
    assert got.shape == tuple(expected.shape)
    assert type(ours).__name__ == type(peer).__name__ == name.removeprefix("Lazy")
    assert plain(repr(ours)) == plain(repr(peer))
    shapes = {k: tuple(v.shape) for k, v in peer.state_dict().items()}
    assert {k: tuple(v.shape) for k, v in ours.state_dict().items()} == shapes
    assert all(a is b for a, b in zip(params, ours.parameters(), strict=True))
    assert all(type(p) is nn.Parameter for p in params)
    ours.load_state_dict({k: v.numpy() for k, v in peer.state_dict().items()})
    np.testing.assert_allclose(ours.eval()(ad.tensor(x)).detach().numpy(),
                               peer.eval()(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_loading_gives_shapes_and_conversions_wait() -> None:
    m = nn.LazyLinear(4).double()
    m.load_state_dict(nn.Linear(3, 4).state_dict())
    assert m.weight.shape == (4, 3) and m.weight.dtype == ad.float64
    loaded = m.weight.tolist()
    m(ad.ones(1, 3, dtype=ad.float64))
    assert type(m) is nn.Linear and m.in_features == 3 and m.weight.tolist() == loaded
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized"):
        nn.Linear(3, 4).load_state_dict(nn.LazyLinear(4).state_dict())


def test_uninitialized_parameters_refuse_use_and_can_be_copied() -> None:
    m = nn.LazyLinear(2)
    for act in (lambda: m.weight.shape, lambda: m.weight + 1, lambda: m.weight.sum()):
        with pytest.raises(ValueError, match="Call `forward` to initialize the parameters"):
            act()
    assert repr(m.weight) == "<UninitializedParameter>" and m.has_uninitialized_params()
    made = copy.deepcopy(m)
    made(ad.ones(1, 3))
    assert type(made) is nn.Linear and type(m) is nn.LazyLinear
    back = pickle.loads(pickle.dumps(m))
    assert back(ad.ones(1, 7)).shape == (1, 2)


def test_training_from_an_optimizer_made_before_the_first_call() -> None:
    net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1))
    opt = optim.SGD(net.parameters(), lr=0.1)
    loss = (net(ad.ones(2, 3)) ** 2).sum()
    loss.backward()
    before = net[0].bias.tolist(), net[2].bias.tolist()
    opt.step()
    assert (net[0].bias.tolist(), net[2].bias.tolist()) != before


def test_bad_first_input_leaves_the_module_lazy() -> None:
    m = nn.LazyConv2d(4, 3, groups=2)
    with pytest.raises(ValueError, match="divisible by groups"):
        m(ad.ones(1, 3, 5, 5))
    with pytest.raises(ValueError, match="expected 3D or 4D input"):
        m(ad.ones(3))
    assert m.has_uninitialized_params() and m.in_channels == 0
    assert m(ad.ones(1, 2, 5, 5)).shape == (1, 4, 3, 3)


def test_an_uninitialized_parameter_tells_the_dtype_to_come() -> None:
    layer = nn.LazyLinear(2)
    assert isinstance(layer.weight, nn.parameter.UninitializedTensorMixin)
    assert layer.weight.dtype == ad.float32
    assert layer.double().weight.dtype == ad.float64
    assert layer(ad.zeros(1, 3, dtype=ad.float64)).dtype == ad.float64
    assert not isinstance(layer.weight, nn.parameter.UninitializedTensorMixin)
