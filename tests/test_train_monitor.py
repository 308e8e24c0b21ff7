"""What a training run watches: spikes, numbers that are not finite, findings; the report."""
from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.cli import train_report
from adjoint.cli.train_loop import Diverged, Run
from adjoint.cli.train_monitor import FIRST, Monitor, where_it_began
from adjoint.cli.train_options import TrainConfig
from adjoint.cli.train_text import Corpus, load_corpus

SMALL = TrainConfig(steps=8, batch=2, context=16, layers=2, heads=2, dim=16)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    file = tmp_path / "text.txt"
    file.write_text("the quick brown fox jumps over the lazy dog. " * 100)
    return load_corpus(str(file), 1.0, 16)


@pytest.fixture
def run(corpus: Corpus, tmp_path: Path) -> Run:
    return Run(SMALL, corpus, tmp_path / "run")


@pytest.mark.row("F88", "F131")
def test_spikes_are_said_at_once() -> None:
    said: list[str] = []
    monitor = Monitor(said.append)
    rng = np.random.default_rng(0)
    for step in range(60):
        monitor.seen(step, 1.0 + 0.2 * rng.random())
    assert said == []
    monitor.seen(60, 40.0)
    monitor.seen(61, 1.1)
    assert len(said) == 1 and said[0].startswith("Step 60: gradient norm 40, 3")
    assert "times the median of the last 50 steps" in said[0]
    assert [s for s, _, _ in monitor.spikes] == [60]


def test_a_falling_norm_is_no_spike() -> None:
    said: list[str] = []
    monitor = Monitor(said.append)
    for step in range(200):
        monitor.seen(step, 10.0 * 0.97**step + 0.01)
    for step in range(200, 260):
        monitor.seen(step, 0.05)
    assert said == []


@pytest.mark.row("F90")
def test_numbers_that_are_not_finite_end_the_run_and_name_the_op(run: Run) -> None:
    run.train_step()
    with ad.no_grad():
        run.model.blocks[1].up.weight.fill_(float("nan"))
    with pytest.raises(Diverged) as caught:
        run.train_step()
    text = str(caught.value)
    assert "the loss is nan, the gradient norm nan at step 2" in text
    assert "forward of AddmmBackward0 returned nan" in text or "linear" in text
    assert re.search(r"first bad index \(", text)
    assert run.step == 1


def test_infinite_gradients_are_refused_before_the_update(run: Run,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    run.train_step()
    before = {n: p.array.copy() for n, p in run.model.named_parameters()}
    monkeypatch.setattr("adjoint.cli.train_loop.clip_grad_norm_",
                        lambda *a: ad.tensor(float("inf")))
    with pytest.raises(Diverged, match="gradient norm inf"):
        run.train_step()
    for name, p in run.model.named_parameters():
        np.testing.assert_array_equal(p.array, before[name])


@pytest.mark.row("F90")
def test_a_validation_loss_that_is_nan_is_said(run: Run) -> None:
    said: list[str] = []
    run.monitor.say = said.append
    run.validate()
    assert said == []
    with ad.no_grad():
        run.model.head.weight.fill_(float("nan"))
    run.validate()
    assert len(said) == 1 and "validation loss is nan" in said[0]


def test_where_it_began() -> None:
    x = ad.tensor([0.0, 1.0], requires_grad=True)
    assert where_it_began(lambda: (x * 2).sum().backward()) == ""
    assert "LogBackward0 returned inf" in where_it_began(lambda: x.log().sum().backward())


def test_watching_changes_no_bit(corpus: Corpus, tmp_path: Path) -> None:
    watched, blind = Run(SMALL, corpus, tmp_path / "a"), Run(SMALL, corpus, tmp_path / "b")
    blind.monitor._steps = FIRST + 1               # past the steps that are watched
    for _ in range(6):
        watched.train_step()
        blind.train_step()
    assert watched.losses == blind.losses
    for (_, p), (_, q) in zip(watched.model.named_parameters(), blind.model.named_parameters(),
                              strict=True):
        assert p.array.tobytes() == q.array.tobytes()


def test_the_doctors_findings_are_said_once(run: Run) -> None:
    said: list[str] = []
    run.monitor.say = said.append
    run.optimizer.zero_grad = lambda *a: None       # type: ignore[method-assign]  # the mistake
    for _ in range(3):
        run.train_step()
    assert len(said) == 1 and said[0].startswith("doctor: AD001") and "\n" not in said[0]
    assert [f.code for f in run.monitor.findings()] == ["AD001"]


def test_the_report_is_one_file(run: Run) -> None:
    for _ in range(8):
        run.train_step()
    run.validate()
    text = train_report.report(run, [("steps", "8")])
    assert text.startswith("<!doctype html>")
    for word in ("Curves", "Findings", "Symptoms", "Time of one step", "Graph of the loss",
                 "AddmmBackward0", "No findings"):
        assert word in text, word
    assert text.count("data:image/svg+xml;base64,") >= 4
    assert "background:#fff" not in text           # the pictures are dark where the page is
    assert not re.search(r"""(src|href)=["'](?!data:)""", text) and "<script" not in text
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)


def test_nothing_from_the_user_becomes_html() -> None:
    evil = "<script>alert(1)</script>&\"'"
    finding = SimpleNamespace(code="AD001", title=evil, where=evil, source=evil, evidence=evil,
                              fix=evil)
    html = train_report.page(evil, [(evil, evil)], [
        (evil, train_report.findings([finding], [(1, 2.0, 1.0)] * 30)),
        ("t", train_report.symptoms([{"symptom": evil, "seen": evil, "causes": evil,
                                      "command": evil}])),
        ("p", train_report.picture("<svg/>", evil))])
    assert "<script" not in html and html.count("&lt;script&gt;") >= 12
    assert "and 10 more spikes" in html


def test_long_runs_keep_a_bounded_memory_line() -> None:
    monitor: Any = Monitor(lambda line: None)
    monitor._steps = 0
    for step in range(3000):
        monitor._steps = 10 * step
        monitor.seen(step, 1.0)
    assert len(monitor.memory) <= 2000 and monitor.memory[0][0] == 0
