"""`adjoint bench` and `adjoint doctor env`."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.cli import bench, bench_cases, doctor_env

ROOT = Path(__file__).resolve().parents[1]


def test_every_workload_is_a_whole_step() -> None:
    """The cheap ones run; every one has a bound to be measured against, or is all overhead."""
    for name in ("small op, chain of 1000", "matmul 256", "MLP step, AdamW"):
        case = bench_cases.CASES[name](ad)
        case.step()
        assert np.isfinite(case.check()) and case.check() > 0


def agree(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = (bench_cases.CASES[name](m) for m in (ad, torch))
    ours.step()
    theirs.step()
    assert ours.check() == pytest.approx(theirs.check(), rel=bench._AGREE)


def test_workloads_agree_with_pytorch() -> None:
    agree("MLP step, SGD")


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in bench_cases.CASES if "dropout" not in n])
def test_all_workloads_agree_with_pytorch(name: str) -> None:
    agree(name)


def test_table_of_one_workload(monkeypatch: Any, capfd: Any) -> None:
    """The ratio to an installed peer and the share of the roof stand beside the time."""
    peers = [p for p in bench.installed() if p == "torch"]
    monkeypatch.setattr(bench, "roofs", lambda: (2e11, 2e10))
    code = bench.run(["matmul 256", "--peers", ",".join(peers), "--rounds", "1", "--seconds",
                      "0.05"])
    text = capfd.readouterr().out
    assert code == 0 and "roof" in text
    assert re.search(r"matmul 256 +[\d.]+ ms +[\d.]+ GFLOP/s +\d+%", text), text
    if peers:
        assert re.search(r"torch +[\d.]+x\n", text), text


@pytest.mark.parametrize("wrong", [["nothing"], ["--peers", "fortran"], ["--rounds", "0"]])
def test_bad_arguments_are_refused(wrong: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as stop:
        bench.run(wrong)
    assert stop.value.code == 2 and "adjoint bench" in capsys.readouterr().err


def test_a_failing_peer_is_named_and_the_others_go_on(monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setattr(bench, "installed", lambda: ["torch"])
    monkeypatch.setattr(bench, "PEERS", ("torch",))
    monkeypatch.setattr(bench, "roofs", lambda: (1e9, 1e9))
    monkeypatch.setattr(bench._Process, "_read", lambda self, read=bench._Process._read: (
        {"error": "no such peer"} if self.peer == "torch" else read(self)))
    assert bench.run(["matmul 256", "--peers", "torch", "--rounds", "1", "--seconds", "0.01"]) == 0
    assert "torch failed: no such peer" in capfd.readouterr().out


def test_an_interrupt_ends_the_processes(monkeypatch: Any) -> None:
    begun: list[Any] = []

    def interrupted(self: Any, seconds: float) -> None:
        begun.append(self.process)
        raise KeyboardInterrupt
    monkeypatch.setattr(bench._Process, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.measure("matmul 256", (), 1, 0.01, 1)
    (process,) = begun
    assert process.returncode == 0 and process.stdout.closed and process.stderr.closed


def test_roofs_of_this_machine() -> None:
    flops, nbytes = bench.roofs()
    assert 1e8 < flops < 1e15 and 1e7 < nbytes < 1e13


def test_environment_report(capsys: Any) -> None:
    assert doctor_env.run([]) == 0
    text = capsys.readouterr().out
    for word in ("kernels", "threads", "OpenBLAS", "allocator", ad.__version__, np.__version__):
        assert word in text
    assert doctor_env.run(["--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["kernels"]["threads"] == ad.get_num_threads()
    if facts["kernels"]["kernels"] != "NumPy":
        assert "loaded; kernels are placed in memory by" in text
        assert facts["kernels"]["llvm"].partition(", ")[2] in ("loaded", "not loaded")
    assert doctor_env.run(["--what"]) == 2


def test_environment_report_says_why_there_are_no_kernels() -> None:
    done = subprocess.run([sys.executable, "-c", "from adjoint.cli import doctor_env as d; "
                           "print(d.report())"], cwd=ROOT, text=True, capture_output=True,
                          check=True, env={**os.environ, "ADJOINT_JIT": "0"})
    assert "NumPy (ADJOINT_JIT is 0)" in done.stdout
