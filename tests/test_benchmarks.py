"""Benchmarks whose figures are promises: what they compare agrees, and what they say adds up."""
from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import adjoint as ad
from adjoint.kernels import alloc, llvm
from adjoint.ops import accelerate

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.append(str(FOLDER))
import contexts  # noqa: E402  (the benchmarks are not part of the package)
import fusion  # noqa: E402
import recording  # noqa: E402
import small_programs  # noqa: E402


@pytest.mark.row("F49", "F122")
def test_contexts_give_the_same_answers() -> None:
    """Each context is timed on its own model; only the default records."""
    case = contexts.Case((16, 32, 4), 3, 2)
    found = contexts.measure({"adjoint": ad}, case, rounds=3)
    assert list(found["adjoint"]) == ["default", "no_grad", "inference_mode"]
    for times in found["adjoint"].values():
        assert len(times) == 3 and times == sorted(times) and times[0] > 0
    answer, _ = contexts.server(ad, case, "inference_mode")
    assert answer().is_inference() and not answer().requires_grad
    assert tuple(answer().shape) == (3, 4)


@pytest.mark.row("F49", "F122")
def test_savings_are_said_with_their_base() -> None:
    """The often quoted 34% of inference_mode over no_grad is its saving over the default: with the
    same times, 1.823 s and 1.607 s where the default takes 2.450 s, it is 11.8% of no_grad."""
    lines = contexts.table({"adjoint": {"default": [2.450], "no_grad": [1.823],
                                        "inference_mode": [1.607]}})
    assert lines[1].split() == ["adjoint", "default", "2450000", "us", "2450000", "us", "0"]
    assert lines[2].endswith("25.6% of default")
    assert lines[3].endswith("34.4% of default, 11.8% of no_grad")
    ordered = [float(v) for v in range(1, 101)]
    assert contexts.quantile(ordered, 0.5) == 51 and contexts.quantile(ordered, 0.99) == 100


@pytest.mark.row("F122")
def test_serving_prints_a_rate_and_a_tail(capsys: pytest.CaptureFixture[str],
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """One line for each context: median, 99 of 100, requests per second."""
    monkeypatch.setattr(contexts._peers, "load", lambda: {"adjoint": ad})
    assert contexts.main(["--cases", "net", "--rounds", "3"]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.split()[:1] == ["adjoint"]]
    assert [r[1] for r in rows] == list(contexts.CONTEXTS)
    for r in rows:
        median, rate = float(r[2]), float(r[6].replace(",", ""))
        assert rate == pytest.approx(1e6 / median, rel=0.05)


@pytest.mark.row("F117")
@pytest.mark.parametrize("name", fusion.PROGRAMS)
def test_a_fused_program_is_one_operation(name: str) -> None:
    """The same values and gradients as op by op; one node; and no value in between is kept."""
    ways = fusion.ways(name, 8, {"adjoint": ad})
    fusion.agree(ways)
    f = fusion.PROGRAMS[name]
    x, y = (ad.randn(64, 64, requires_grad=True) for _ in range(2))
    node = ad.fuse(lambda x, y: f(ad, x, y))(x, y).grad_fn
    assert node.name() == "FusedBackward0"
    assert [e[0].name() for e in node.next_functions] == [
        "torch::autograd::AccumulateGrad"] * 2
    kept = {}
    for way in ("fused", "plain"):
        g = ad.fuse(lambda x, y: f(ad, x, y)) if way == "fused" else lambda x, y: f(ad, x, y)
        kept[way] = ad.memory.predict(lambda g=g: g(x, y).sum().backward()).saved
    assert kept["fused"] == 0 < kept["plain"]        # its operands alone, which exist anyway
    assert [s.nbytes for s in node.saved_tensors] == [x.nbytes, y.nbytes]


@pytest.mark.row("F117")
@pytest.mark.skipif(not accelerate.ON or not llvm.available(), reason="needs generated kernels")
def test_fusing_is_faster() -> None:
    """A fifth of the op-by-op time on large arrays; half would still pass."""
    times = {}
    for way, run in fusion.ways("gate", 1024, {"adjoint": ad}).items():
        run()
        best = float("inf")
        for _ in range(7):
            start = time.process_time()
            run()
            best = min(best, time.process_time() - start)
        times[way] = best
    assert times["one ad.fuse"] < 0.6 * times["op by op"], times


def test_a_step_of_tiny_ops_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    """The walk is of that step, and the ratio is that of the printed times."""
    step: Any = recording.tiny(ad)
    ratio, walk = recording.compare(ad, "tiny", step, rounds=3)
    kinds = [e.kind for e in walk.events]
    assert kinds.count("op") > 60 and kinds.count("grad") == 16
    words = capsys.readouterr().out.split()
    plain, more = float(words[words.index("plain") + 1]), float(words[words.index("recorded") + 1])
    assert ratio == pytest.approx(more / plain, rel=0.05)


GPT = "--width 32 --heads 2 --context 16 --batch 2 --rounds 1"
SHORT = {  # script -> options with which it takes seconds
    "anomaly": f"--layers 1 {GPT}", "arrays": "--only sum --rounds 1",
    "block": "--batch 1 --positions 128 --rounds 1",
    "budget": "--layers 2 --width 64 --context 64 --batch 4 --rounds 1 --shares 0.8",
    "checkpoint": "--layers 1 --batch 2 --width 32 --rounds 1", "contexts": "--rounds 2",
    "dtr": "--trace lstm --ratios 0.5 --effort 0.1 --no-thrash", "dtr_bound": "--ratios 0.9",
    "fusion": "--rows 64 --rounds 1", "gpt_step": f"--layers 1 {GPT}",
    "import_time": "--rounds 1", "layers": "--only relu --rounds 1", "ledger": "--rounds 1",
    "memory_models": "", "monitoring": "--steps 12 --layers 1 --dim 16",
    "overhead": "--rounds 1 --long 2000",
    "planner": "--chains-only --time-limit 2 --ratios 0.7", "products": "--rounds 1",
    "recording": f"--layers 1 {GPT}", "saved_bytes": "", "small_ops": "--only add --rounds 1",
    "small_programs": "--rounds 1",
    "stepping": "--events 300 --steps 5", "transforms": "--only hess --rounds 1",
}
EVERY = sorted(p.stem for p in FOLDER.glob("[!_]*.py"))


@pytest.mark.parametrize("name", [
    n if n == "monitoring" else pytest.param(n, marks=pytest.mark.slow) for n in EVERY])
def test_every_script_runs(name: str) -> None:
    """To its last line."""
    words = [sys.executable, str(FOLDER / f"{name}.py"), *SHORT[name].split()]
    if name == "budget" and not alloc.available():
        pytest.skip("the counting allocator needs llvmlite")
    env = os.environ | {"PYTHONPATH": str(FOLDER.parent)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, env=env)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.row("F122")
@pytest.mark.parametrize("name", small_programs.PROGRAMS)
def test_small_programs_learn(name: str) -> None:
    """Each step is one of training: the loss of the same data goes down."""
    step = small_programs.PROGRAMS[name](ad)
    losses = [float(step()) for _ in range(12)]
    assert losses[-1] < losses[0]
