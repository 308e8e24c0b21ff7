"""Learning rate schedulers and model averages beside PyTorch (F96)."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers_nn import close

import adjoint as ad
from adjoint import nn, optim

SWALR = "swa_utils.SWALR"
CASES: list[tuple[str, dict[str, Any]]] = [
    ("LambdaLR", {"lr_lambda": lambda e: 0.9**e}),
    ("LambdaLR", {"lr_lambda": [lambda e: 0.9**e, lambda e: e]}),
    ("MultiplicativeLR", {"lr_lambda": lambda e: 0.9}),
    ("StepLR", {"step_size": 3}), ("MultiStepLR", {"milestones": [2, 5, 5]}),
    ("ConstantLR", {}), ("ConstantLR", {"factor": 0.5, "total_iters": 3}),
    ("LinearLR", {}), ("LinearLR", {"start_factor": 0.1, "end_factor": 0.7, "total_iters": 7}),
    ("ExponentialLR", {"gamma": 0.8}),
    ("PolynomialLR", {}), ("PolynomialLR", {"total_iters": 9, "power": 2}),
    ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}), ("CosineAnnealingLR", {"T_max": 3}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2, "eta_min": 0.01}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 3}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 3, "step_size_down": 2,
                  "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": [0.1, 0.2], "max_lr": 1.0, "step_size_up": 3, "mode": "exp_range",
                  "gamma": 0.9}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 3,
                  "scale_fn": lambda x: 0.5**x, "scale_mode": "iterations"}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 20}),
    ("OneCycleLR", {"max_lr": [1.0, 2.0], "epochs": 4, "steps_per_epoch": 5,
                    "anneal_strategy": "linear", "three_phase": True}),
    (SWALR, {"swa_lr": 0.05}),
    (SWALR, {"swa_lr": [0.05, 0.01], "anneal_epochs": 5, "anneal_strategy": "linear"}),
]


def optimizer(lib: Any, kind: str = "SGD") -> Any:
    p = [lib.nn.Parameter(lib.zeros(1)) for _ in range(2)]
    kw = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(lib.optim, kind)([{"params": [p[0]]}, {"params": [p[1]], "lr": 0.3}], lr=0.1,
                                    **kw)


def scheduler(lib: Any, name: str, opt: Any, kwargs: dict[str, Any]) -> Any:
    if name == SWALR:
        return lib.optim.swa_utils.SWALR(opt, **kwargs)
    return getattr(lib.optim.lr_scheduler, name)(opt, **kwargs)


def settings(opt: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in g.items() if k not in ("params", "lr")} for g in opt.param_groups]


@pytest.mark.parametrize(("name", "kwargs"), CASES)
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_schedules_equal_torch(name: str, kwargs: dict[str, Any], kind: str) -> None:
    torch = pytest.importorskip("torch")
    po, oo = optimizer(torch, kind), optimizer(ad, kind)
    peer, ours = scheduler(torch, name, po, kwargs), scheduler(ad, name, oo, kwargs)
    for i in range(20):
        np.testing.assert_allclose(ours.get_last_lr(), peer.get_last_lr(), rtol=1e-13, atol=1e-16)
        assert settings(oo) == settings(po)
        assert set(ours.state_dict()) == set(peer.state_dict())
        if i == 10:  # goes on from saved state
            state = ours.state_dict()
            ours = scheduler(ad, name, oo, kwargs)
            ours.load_state_dict(state)
            for g, lr in zip(oo.param_groups, peer.get_last_lr(), strict=True):
                g["lr"] = lr
        if i < 19:
            for opt, s in ((po, peer), (oo, ours)):
                opt.step()
                s.step()


@pytest.mark.parametrize(("name", "kwargs"), [c for c in CASES if c[0] not in (
    "CosineAnnealingWarmRestarts", SWALR, "MultiplicativeLR")])
@pytest.mark.filterwarnings("ignore:The epoch parameter", "ignore:.*:UserWarning:torch",
                            "ignore:Detected call of")
def test_jumps_to_an_epoch_equal_torch(name: str, kwargs: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    peer, ours = (scheduler(lib, name, optimizer(lib), kwargs) for lib in (torch, ad))
    for epoch in (2, 3, 7):
        peer.step(epoch)
        ours.step(epoch)
        np.testing.assert_allclose(ours.get_last_lr(), peer.get_last_lr(), rtol=1e-13)


def test_warm_restarts_take_fractions() -> None:
    torch = pytest.importorskip("torch")
    for kwargs in ({"T_0": 2}, {"T_0": 2, "T_mult": 3}):
        peer, ours = (lib.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer(lib), **kwargs)
                      for lib in (torch, ad))
        for epoch in (0.5, 1.75, 2.5, 9.25, 3.0):
            peer.step(epoch)
            ours.step(epoch)
            np.testing.assert_allclose(ours.get_last_lr(), peer.get_last_lr(), rtol=1e-12)


@pytest.mark.parametrize("make", [
    lambda s, o: s.SequentialLR(o, [s.ConstantLR(o), s.ExponentialLR(o, 0.9), s.StepLR(o, 2)],
                                [2, 5]),
    lambda s, o: s.SequentialLR(o, [s.LinearLR(o, total_iters=3), s.CosineAnnealingLR(o, 7)], [3]),
    lambda s, o: s.ChainedScheduler([s.ConstantLR(o), s.ExponentialLR(o, 0.9)])])
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_joined_schedules_equal_torch(make: Any) -> None:
    torch = pytest.importorskip("torch")
    po, oo = optimizer(torch), optimizer(ad)
    peer, ours = make(torch.optim.lr_scheduler, po), make(optim.lr_scheduler, oo)
    for _ in range(12):
        np.testing.assert_allclose(ours.get_last_lr(), peer.get_last_lr(), rtol=1e-13)
        for opt, s in ((po, peer), (oo, ours)):
            opt.step()
            s.step()
    assert set(ours.state_dict()) == set(peer.state_dict())
    fresh = make(optim.lr_scheduler, optimizer(ad))
    fresh.load_state_dict(ours.state_dict())
    assert fresh.get_last_lr() == ours.get_last_lr()


@pytest.mark.parametrize("kwargs", [
    {"patience": 1}, {"mode": "max", "patience": 0, "cooldown": 1, "threshold_mode": "abs"},
    {"factor": 0.5, "patience": 0, "min_lr": [0.05, 0.2]}])
def test_reduce_on_plateau_equals_torch(kwargs: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    po, oo = optimizer(torch), optimizer(ad)
    peer = torch.optim.lr_scheduler.ReduceLROnPlateau(po, **kwargs)
    ours = optim.lr_scheduler.ReduceLROnPlateau(oo, **kwargs)
    for metric in (3, 2, 2, 2, 2, 1, 1, 1, 5, 1, 1, 1, 0):
        peer.step(metric)
        ours.step(ad.tensor(float(metric)))
        assert [g["lr"] for g in oo.param_groups] == [g["lr"] for g in po.param_groups]
        assert ours.state_dict() == peer.state_dict()


@pytest.mark.parametrize(("act", "words"), [
    (lambda s, o: s.LambdaLR(o, [1, 2, 3]), "Expected 2 lr_lambdas, but got 3"),
    (lambda s, o: s.ConstantLR(o, factor=2), "Constant multiplicative factor expected"),
    (lambda s, o: s.LinearLR(o, start_factor=2), "Starting multiplicative factor expected"),
    (lambda s, o: s.LinearLR(o, end_factor=2), "Ending multiplicative factor expected"),
    (lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=0), "positive integer T_0, but got 0"),
    (lambda s, o: s.CosineAnnealingWarmRestarts(o, 1, T_mult=0), "integer T_mult >= 1, but got 0"),
    (lambda s, o: s.OneCycleLR(o, max_lr=1), "You must define either total_steps"),
    (lambda s, o: s.OneCycleLR(o, max_lr=1, total_steps=-1), "Expected positive integer total_st"),
    (lambda s, o: s.OneCycleLR(o, 1, total_steps=2, anneal_strategy="x"), "one of 'cos' or"),
    (lambda s, o: s.CyclicLR(o, 0.1, 1, mode="x"), "mode is invalid and scale_fn is None"),
    (lambda s, o: s.ReduceLROnPlateau(o, factor=1.0), "Factor should be < 1.0"),
    (lambda s, o: s.ReduceLROnPlateau(o, mode="a"), "mode a is unknown!"),
    (lambda s, o: s.ReduceLROnPlateau(o, min_lr=[1]), "expected 2 min_lrs, got 1"),
    (lambda s, o: s.SequentialLR(o, [], []), "expects at least one scheduler"),
    (lambda s, o: s.SequentialLR(o, [s.ConstantLR(o)], [1]), "one more than the number of"),
    (lambda s, o: s.ChainedScheduler([]), "at least one scheduler to be chained"),
])
def test_bad_arguments(act: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        act(optim.lr_scheduler, optimizer(ad))


def test_resuming_without_initial_lr_and_wrong_order() -> None:
    with pytest.raises(KeyError, match="initial_lr"):
        optim.lr_scheduler.StepLR(optimizer(ad), 3, last_epoch=2)
    with pytest.raises(TypeError, match="is not an Optimizer"):
        optim.lr_scheduler.StepLR(3, 3)
    s = optim.lr_scheduler.StepLR(optimizer(ad), 3)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        s.step()
    with pytest.warns(UserWarning, match="get_last_lr"):
        s.get_lr()
    opt = optimizer(ad)
    one = optim.lr_scheduler.OneCycleLR(opt, max_lr=1, total_steps=2)
    opt.step()
    one.step()
    one.step()
    with pytest.raises(ValueError, match="Tried to step 3 times"):
        one.step()


def test_a_tensor_learning_rate_keeps_its_identity() -> None:
    lr = ad.tensor(1.0)
    opt = optim.SGD([nn.Parameter(ad.ones(1))], lr=lr)
    s = optim.lr_scheduler.ExponentialLR(opt, 0.5)
    opt.step()
    s.step()
    assert opt.param_groups[0]["lr"] is lr and lr.item() == 0.5


@pytest.mark.parametrize("kind", ["swa", "ema", "avg_fn", "ema avg_fn", "buffers"])
def test_averaged_model_equals_torch(kind: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    models, averages = [], []
    for lib in (torch, ad):
        u = lib.optim.swa_utils
        kw = {"swa": {}, "ema": {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
              "avg_fn": {"avg_fn": u.get_swa_avg_fn()},
              "ema avg_fn": {"avg_fn": u.get_ema_avg_fn(0.8)}, "buffers": {"use_buffers": True}}
        m = lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.BatchNorm1d(3)).double()
        models.append(m)
        averages.append(u.AveragedModel(m, **kw[kind]))
    for _ in range(4):
        for name, p in models[0].state_dict().items():
            value = np.asarray(rng.uniform(1, 5, tuple(p.shape)))
            if not p.is_floating_point():
                value = value.astype(np.int64)
            p.copy_(torch.tensor(value))
            with ad.no_grad():
                models[1].state_dict()[name].copy_(ad.tensor(value))
        for m, a in zip(models, averages, strict=True):
            a.update_parameters(m)
    peer, ours = (a.state_dict() for a in averages)
    assert list(ours) == list(peer)
    for key in peer:
        close(ours[key], peer[key], 1e-13)


def test_update_bn_recomputes_statistics(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    data = [rng.standard_normal((6, 2)) for _ in range(3)]
    out = []
    for lib in (torch, ad):
        m = lib.nn.Sequential(lib.nn.BatchNorm1d(2), lib.nn.ReLU()).double().eval()
        lib.optim.swa_utils.update_bn([(lib.tensor(x), 0) for x in data], m)
        assert not m.training and m[0].momentum == 0.1
        out.append(m.state_dict())
    for key in out[0]:
        close(out[1][key], out[0][key], 1e-12)


def test_names_and_refusals_of_schedulers() -> None:
    """F96."""
    from adjoint.optim import lr_scheduler
    from adjoint.optim.lr_scheduler import EPOCH_DEPRECATION_WARNING, _LRScheduler

    assert "epoch parameter" in EPOCH_DEPRECATION_WARNING
    opt = optim.SGD([nn.Parameter(ad.zeros(1))], lr=1.0, momentum=0.9)
    scheduler = lr_scheduler.StepLR(opt, 2)
    assert not isinstance(scheduler, _LRScheduler)
    assert issubclass(_LRScheduler, lr_scheduler.LRScheduler)
    with pytest.raises(TypeError, match="lr_lambda should be a function, but got int"):
        lr_scheduler.MultiplicativeLR(opt, [3])
    for make in (lambda: lr_scheduler.CyclicLR(None, 0.1, 1.0),
                 lambda: lr_scheduler.OneCycleLR(3, 1.0, total_steps=2)):
        with pytest.raises(TypeError, match="is not an Optimizer"):
            make()
    joined = lr_scheduler.SequentialLR(opt, [scheduler], [])
    with pytest.raises(TypeError, match="epoch"):
        joined.step(epoch=3)
