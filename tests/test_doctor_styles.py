"""Mistakes in programs written in other styles than the labs: closures, classes, GANs, meters,
replaced heads. Each is the only finding, on its line; the twins beside them have none."""
from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.base.errors import AutogradError
from adjoint.nn import functional as F

Program = Callable[[], None]
MISTAKES: list[Program] = []
HEALTHY: list[Program] = []


def mistake(f: Program) -> Program:
    MISTAKES.append(f)
    return f


def healthy(f: Program) -> Program:
    HEALTHY.append(f)
    return f


def sgd(*modules: Any, lr: float = 0.01) -> Any:
    return ad.optim.SGD([p for m in modules for p in m.parameters()], lr=lr)


def classes(n: int = 8, of: int = 2) -> Any:
    return ad.randint(0, of, (n,))


@mistake
def the_discriminator_is_never_cleared() -> None:
    g, d = nn.Linear(2, 4), nn.Linear(4, 1)
    og, od = sgd(g), sgd(d)
    for _ in range(5):
        fake = g(ad.randn(16, 2))
        loss = F.softplus(-d(ad.randn(16, 4))).mean() + F.softplus(d(fake.detach())).mean()
        loss.backward()  # AD001
        od.step()
        og.zero_grad()
        F.softplus(-d(fake)).mean().backward()
        og.step()


@mistake
def accumulation_is_never_cleared() -> None:
    model = nn.Linear(5, 1)
    optimizer = sgd(model)
    for i in range(16):
        x = ad.randn(4, 5)
        (F.mse_loss(model(x), x[:, :1]) / 4).backward()  # AD001
        if i % 4 == 3:
            optimizer.step()


@mistake
def a_step_between_two_backwards() -> None:
    a, b = nn.Linear(4, 4), nn.Linear(4, 1)
    optimizer = sgd(a, b)
    out = b(a(ad.randn(3, 4)))
    out.mean().backward(retain_graph=True)
    optimizer.step()  # AD005
    out.square().mean().backward()


@mistake
def an_auxiliary_head_without_a_loss() -> None:
    class Net(nn.Module):
        def __init__(this) -> None:
            super().__init__()
            this.body = nn.Linear(4, 8)
            this.heads = nn.ModuleDict({"main": nn.Linear(8, 2), "aux": nn.Linear(8, 2)})  # AD007

        def forward(this, x: Any) -> Any:
            h = this.body(x).relu()
            return this.heads["main"](h), this.heads["aux"](h)

    model = Net()
    optimizer = sgd(model)
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(model(ad.randn(8, 4))[0], classes()).backward()
        optimizer.step()


@mistake
def an_unused_layer_entered_by_name() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:  # AD007
            super().__init__()
            for i in range(3):
                self.add_module(f"layer{i}", nn.Linear(4, 4))

        def forward(self, x: Any) -> Any:
            return self.layer1(self.layer0(x).tanh())

    model = Net()
    optimizer = sgd(model)
    for _ in range(4):
        optimizer.zero_grad()
        model(ad.randn(8, 4)).square().mean().backward()
        optimizer.step()


@mistake
def layers_in_a_plain_list() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 8)
            self.hidden = [nn.Linear(8, 8), nn.Linear(8, 8)]

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            for layer in self.hidden:
                x = layer(x.relu())
            return x

    model = Net()
    optimizer = ad.optim.Adam(model.parameters())  # AD008
    for _ in range(4):
        optimizer.zero_grad()
        model(ad.randn(8, 4)).square().mean().backward()
        optimizer.step()


@mistake
def a_head_replaced_after_the_optimizer_was_made() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.body(x).relu())

    model = Net()
    optimizer = ad.optim.SGD(model.parameters(), lr=0.01)  # AD008
    model.head = nn.Linear(8, 3)
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(model(ad.randn(8, 4)), classes(of=3)).backward()
        optimizer.step()


@mistake
def sigmoid_in_the_model_and_weighted_logits_in_the_loss() -> None:
    model = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid(), nn.Flatten(0))
    criterion = nn.BCEWithLogitsLoss(pos_weight=ad.tensor(2.0))
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        loss = criterion(model(ad.randn(8, 4)), ad.ones(8))  # AD017
        loss.backward()
        optimizer.step()


@mistake
def validation_in_training_mode_inside_a_closure() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = ad.optim.Adam(model.parameters())

    def evaluate() -> float:
        with ad.inference_mode():
            return float((model(ad.randn(8, 4)).argmax(1) == 0).float().mean())  # AD020

    for _ in range(3):
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model(ad.randn(8, 4)), classes()).backward()
            optimizer.step()
        evaluate()


@mistake
def the_running_loss_weighted_by_the_batch() -> None:
    model = nn.Linear(4, 2)
    optimizer = sgd(model)
    running: Any = 0.0
    for _ in range(6):
        x = ad.randn(8, 4)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), classes())
        loss.backward()
        optimizer.step()
        running += loss * len(x)  # AD021


@mistake
def a_loss_made_anew_from_its_value() -> None:
    model = nn.Linear(3, 1)
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        value = F.mse_loss(model(ad.randn(4, 3)), ad.zeros(4, 1)).item()
        ad.tensor(value, requires_grad=True).backward()  # AD024
        optimizer.step()


@mistake
def a_loss_of_the_chosen_class() -> None:
    model = nn.Linear(3, 4)
    chosen = model(ad.randn(8, 3)).argmax(1)  # AD024
    (chosen.float() - ad.ones(8)).square().mean().backward()


@mistake
def a_hidden_state_through_numpy() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 1)

        def forward(self, x: Any) -> Any:
            h = self.a(x)
            h = ad.from_numpy(np.maximum(h.detach().numpy(), 0))  # AD024
            return self.b(h)

    model = Net()
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        model(ad.randn(4, 3)).mean().backward()
        optimizer.step()


@healthy
def a_discriminator_cleared_before_its_own_step() -> None:
    g, d = nn.Linear(2, 4), nn.Linear(4, 1)
    og, od = sgd(g), sgd(d)
    for _ in range(5):
        fake = g(ad.randn(16, 2))
        od.zero_grad()
        (F.softplus(-d(ad.randn(16, 4))) + F.softplus(d(fake.detach()))).mean().backward()
        od.step()
        og.zero_grad()
        F.softplus(-d(fake)).mean().backward()
        og.step()


@healthy
def a_teacher_hidden_from_the_parameters() -> None:
    class Student(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 2)
            self.teacher = (nn.Linear(4, 2),)          # on purpose: not trained, not saved

        def forward(self, x: Any) -> Any:
            with ad.no_grad():
                want = self.teacher[0](x)
            return F.mse_loss(self.net(x), want)

    model = Student()
    optimizer = sgd(model)
    for _ in range(5):
        optimizer.zero_grad()
        model(ad.randn(8, 4)).backward()
        optimizer.step()


@healthy
def a_module_of_another_optimizer() -> None:
    encoder = nn.Linear(4, 4)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.encoder = nn.Linear(4, 1), [encoder]

        def forward(self, x: Any) -> Any:
            return self.head(self.encoder[0](x).relu())

    model = Net()
    both = sgd(encoder), ad.optim.Adam(model.parameters())
    for _ in range(5):
        for o in both:
            o.zero_grad()
        model(ad.randn(8, 4)).square().mean().backward()
        for o in both:
            o.step()


@healthy
def numbers_and_detached_values_are_summed() -> None:
    model = nn.Linear(4, 2)
    optimizer = sgd(model)
    total, mean, running = 0.0, ad.zeros(()), ad.zeros(())
    for _ in range(10):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ad.randn(8, 4)), classes())
        loss.backward()
        optimizer.step()
        total += loss.item() * 8
        running += loss.detach() * 8
        with ad.no_grad():
            mean = 0.9 * mean + 0.1 * loss


@healthy
def choices_that_steer_but_carry_no_gradient() -> None:
    cell, head = nn.GRUCell(3, 6), nn.Linear(6, 3)
    optimizer = sgd(cell, head)
    for _ in range(4):
        h, x, loss = ad.zeros(4, 6), ad.zeros(4, 3), ad.zeros(())
        for _ in range(5):
            h = cell(x, h)
            y = head(h)
            loss = loss + F.cross_entropy(y, classes(4, 3))
            x = F.one_hot(y.argmax(1), 3).float()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@healthy
def an_average_that_is_no_copy_of_the_mode() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.1), nn.Linear(4, 1))
    average = copy.deepcopy(model)
    optimizer = ad.optim.Adam(model.parameters())
    for _ in range(6):
        x = ad.randn(8, 5)
        optimizer.zero_grad()
        with ad.no_grad():
            want = average(x)
        F.mse_loss(model(x), want).backward()
        optimizer.step()
        for a, b in zip(average.parameters(), model.parameters(), strict=True):
            a.data.mul_(0.9).add_(b.data, alpha=0.1)


@healthy
def a_step_before_the_first_backward() -> None:
    model = nn.Linear(4, 1)
    optimizer = sgd(model)
    schedule = ad.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(3):                                  # a warm-up of the schedule alone
        optimizer.step()
        schedule.step()
    for _ in range(4):
        optimizer.zero_grad()
        model(ad.randn(8, 4)).square().mean().backward()
        optimizer.step()
        schedule.step()


def found(program: Program) -> Any:
    doctor = ad.doctor(quiet=True)
    try:
        with doctor:
            program()
    except AutogradError:
        assert program in MISTAKES
    return doctor.findings


@pytest.mark.parametrize("program", MISTAKES, ids=lambda f: f.__name__)
def test_the_mistake_is_found_on_its_line(program: Program) -> None:
    lines, start = inspect.getsourcelines(program)
    marked = [(text.rpartition("# ")[2].strip(), start + i) for i, text in enumerate(lines)
              if "  # AD" in text]
    assert [(f.code, f.line) for f in found(program)] == marked


@pytest.mark.parametrize("program", HEALTHY, ids=lambda f: f.__name__)
def test_nothing_is_found(program: Program) -> None:
    assert [f.one_line() for f in found(program)] == []


def test_what_is_missing_from_the_modules_is_said() -> None:
    finding, = found(layers_in_a_plain_list)
    assert "Net calls the layer of Linear.weight without having it among its modules" in \
        finding.evidence
    assert "nn.ModuleList" in finding.fix
