"""Other forms of the mistakes than those of the labs, and programs of odd kinds."""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.base.errors import AutogradError
from adjoint.nn import functional as F

MISTAKES: list[tuple[str, Callable[[], None]]] = []


def mistake(code: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def enter(f: Callable[[], None]) -> Callable[[], None]:
        MISTAKES.append((code, f))
        return f
    return enter


def sgd(*modules: Any, lr: float = 0.01) -> Any:
    return ad.optim.SGD([p for m in modules for p in m.parameters()], lr=lr)


def doctor_of(program: Callable[[], None]) -> Any:
    doctor = ad.doctor(quiet=True)
    try:
        with doctor:
            program()
    except AutogradError:
        pass
    return doctor


@mistake("AD001")
def updates_by_hand_without_clearing() -> None:
    w = ad.ones(3, requires_grad=True)
    for _ in range(4):
        (w * w).sum().backward()
        with ad.no_grad():
            w -= 0.1 * w.grad


@mistake("AD001")
def zero_grad_of_another_optimizer() -> None:
    a, b = nn.Linear(4, 1), nn.Linear(4, 1)
    first, second = sgd(a), sgd(b)
    x = ad.randn(8, 4)
    for _ in range(4):
        first.zero_grad()
        (a(x) + b(x)).square().mean().backward()
        first.step()
        second.step()


@mistake("AD002")
def losses_kept_after_backward() -> None:
    model = nn.Linear(4, 1)
    optimizer, losses = sgd(model), []
    for _ in range(8):
        optimizer.zero_grad()
        loss = F.mse_loss(model(ad.randn(8, 4)), ad.zeros(8, 1))
        loss.backward()
        optimizer.step()
        losses.append(loss)


@mistake("AD004")
def steps_without_a_backward_under_no_grad() -> None:
    model = nn.Linear(4, 1)
    optimizer = sgd(model)
    for _ in range(3):
        with ad.no_grad():
            loss = F.mse_loss(model(ad.randn(8, 4)), ad.zeros(8, 1))
        if loss.requires_grad:
            loss.backward()
        optimizer.step()


@mistake("AD004")
def inference_mode_around_the_loss() -> None:
    model = nn.Linear(4, 1)
    with ad.inference_mode():
        loss = model(ad.randn(8, 4)).sum()
    loss.backward()


@mistake("AD005")
def overwritten_through_numpy() -> None:
    w = ad.randn(4, requires_grad=True)
    y = w.exp()
    y.detach().numpy()[0] = 3.0
    (y * y).sum().backward()


@mistake("AD005")
def overwritten_in_place() -> None:
    w = ad.randn(4, requires_grad=True)
    y = w.exp()
    y.add_(1.0)
    y.sum().backward()


@mistake("AD010")
def saturated_tanh() -> None:
    first, last = nn.Linear(8, 16), nn.Linear(16, 1)
    optimizer = sgd(first, last)
    for _ in range(5):
        optimizer.zero_grad()
        h = ad.tanh(first(ad.randn(16, 8) * 500))
        F.mse_loss(last(h), ad.ones(16, 1)).backward()
        optimizer.step()


@mistake("AD012")
def a_jump_of_the_gradient() -> None:
    model = nn.Linear(4, 1)
    optimizer = sgd(model, lr=1e-9)
    for i in range(12):
        x = ad.randn(8, 4) * (1e4 if i == 9 else 1.0)
        optimizer.zero_grad()
        F.mse_loss(model(x), ad.zeros(8, 1)).backward()
        optimizer.step()


@mistake("AD014")
def nan_in_the_data() -> None:
    model = nn.Linear(4, 1)
    optimizer = sgd(model)
    for i in range(4):
        x = ad.randn(8, 4)
        if i == 2:
            x[0, 0] = float("nan")
        optimizer.zero_grad()
        F.mse_loss(model(x), ad.zeros(8, 1)).backward()
        optimizer.step()


@mistake("AD014")
def overflow_of_exp() -> None:
    w = ad.full((3,), 90.0, requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        w.exp().sum().backward()
        optimizer.step()


@mistake("AD014")
def nan_in_inference() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=1))
    with ad.no_grad():
        model[0].weight.fill_(float("inf"))
        model(ad.randn(2, 4))


@mistake("AD015")
def norm_by_hand_at_zero() -> None:
    w = ad.zeros(3, requires_grad=True)
    for _ in range(3):
        loss = (w * w).sum().sqrt()
        loss.backward()
        with ad.no_grad():
            w -= 0.1 * w.grad
            w.grad = None


@mistake("AD017")
def sigmoid_before_bce_with_logits() -> None:
    model = nn.Linear(4, 1)
    p = ad.sigmoid(model(ad.randn(8, 4)))
    F.binary_cross_entropy_with_logits(p, ad.ones(8, 1)).backward()


@mistake("AD017")
def log_softmax_before_cross_entropy() -> None:
    model = nn.Linear(4, 3)
    F.cross_entropy(F.log_softmax(model(ad.randn(8, 4)), 1), ad.arange(8) % 3).backward()


@mistake("AD020")
def train_is_forgotten_after_validation() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 1))
    optimizer = sgd(model)
    for _ in range(3):
        for _ in range(3):
            x = ad.randn(8, 8)
            optimizer.zero_grad()
            F.mse_loss(model(x), x[:, :1]).backward()
            optimizer.step()
        model.eval()
        with ad.no_grad():
            model(ad.randn(8, 8))


@mistake("AD021")
def summed_before_backward() -> None:
    model = nn.Linear(4, 1)
    optimizer = sgd(model)
    total: Any = 0.0
    for _ in range(8):
        loss = F.mse_loss(model(ad.randn(8, 4)), ad.zeros(8, 1))
        total += loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@mistake("AD021")
def validation_summed_with_its_graphs() -> None:
    model = nn.Linear(4, 1)
    total: Any = 0.0
    for _ in range(20):
        total = total + F.mse_loss(model(ad.randn(8, 4)), ad.zeros(8, 1))


@mistake("AD022")
def state_carried_with_retain_graph() -> None:
    cell = nn.RNNCell(2, 4)
    h = ad.zeros(1, 4)
    for _ in range(5):
        h = cell(ad.randn(1, 2), h)
        h.sum().backward(retain_graph=True)


@mistake("AD024")
def loss_of_detached_values() -> None:
    model = nn.Linear(4, 1)
    out = model(ad.randn(8, 4)).detach()
    (out * out).mean().backward()


@pytest.mark.parametrize(("code", "program"), MISTAKES, ids=lambda x: getattr(x, "__name__", x))
def test_is_found(code: str, program: Callable[[], None]) -> None:
    doctor = doctor_of(program)
    found = [f.code for f in doctor.findings]
    assert code in found, doctor.report()
    finding = next(f for f in doctor.findings if f.code == code)
    assert finding.file == __file__ and finding.line, finding


def test_meta_tensors() -> None:
    def program() -> None:
        with ad.device("meta"):
            model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Tanh(), nn.Linear(8, 2))
            optimizer = ad.optim.AdamW(model.parameters())
            for _ in range(4):
                x = ad.randn(4, 8)
                optimizer.zero_grad()
                F.mse_loss(model(x), x[:, :2], reduction="sum").backward()
                optimizer.step()
    assert doctor_of(program).findings == []


def test_dtypes_shapes_and_transforms() -> None:
    def program() -> None:
        w = ad.randn(3, dtype=ad.complex64, requires_grad=True)
        (w.abs() ** 2).sum().backward()
        layer = nn.Linear(4, 2)
        for _ in range(4):
            layer.zero_grad()
            F.relu(layer(ad.zeros(0, 4, requires_grad=True))).sum().backward()
        s = ad.tensor(2.0, requires_grad=True)
        (ad.tanh(s) * ad.sigmoid(s)).backward()
        nn.Linear(4, 2).to(ad.bfloat16)(ad.randn(3, 4).to(ad.bfloat16)).sum().backward()
        ad.func.vmap(ad.func.grad(lambda v: (v * v).sum()))(ad.randn(2, 3))
        ad.func.hessian(lambda v: ad.sin(v).sum())(ad.randn(3))
        ad.func.jvp(ad.sin, (ad.ones(2),), (ad.ones(2),))
        ad.autograd.functional.jacobian(lambda v: v**2, ad.randn(3))
        ad.autograd.gradcheck(ad.sin, (ad.randn(3, dtype=ad.float64, requires_grad=True),))
    assert doctor_of(program).findings == []


def test_other_threads_are_not_watched() -> None:
    def work() -> None:
        w = ad.randn(3, requires_grad=True)
        optimizer = ad.optim.SGD([w], lr=0.1)
        for _ in range(4):
            (w**2).sum().backward()
            optimizer.step()

    def program() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    doctor = doctor_of(program)
    assert doctor.findings == [] and doctor.case.steps == 0


def test_two_doctors_at_once() -> None:
    w = ad.ones(2, requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=0.1)
    with ad.doctor(quiet=True) as outer, ad.doctor(quiet=True) as inner:
        for _ in range(3):
            (w * w).sum().backward()
            optimizer.step()
    assert [f.code for f in outer.findings] == [f.code for f in inner.findings] == ["AD001"]


def test_what_it_keeps_is_bounded() -> None:
    """Ten thousand scalars and sums leave no list of that length behind."""
    w = ad.ones(1, requires_grad=True)
    with ad.doctor(quiet=True) as doctor:
        total: Any = w * 0.0
        for i in range(10_500):
            total = total + w * float(i)
            if i % 500 == 499:
                total.sum().backward()
                total = w * 0.0
    kept = {type(c).__name__: c for c in doctor.checks}
    assert len(kept["SumOfTensors"].chain) <= 10_000
    assert sum(map(len, kept["LossesKept"].made.values())) <= 64 * 8
    assert len(kept["LossesKept"].open) <= 64 * 8
    assert len(doctor._scalars) <= 64
