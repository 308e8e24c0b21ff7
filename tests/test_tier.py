"""Small operations get machine code once there were enough of them; nothing else changes by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adjoint.base import tier
from adjoint.kernels import direct

ROOT = Path(__file__).resolve().parent.parent
needs_code = pytest.mark.skipif(direct.machine() is None, reason="no generated code here")

STEPS = """
import json, sys
import adjoint as ad
from adjoint.base import tier
from adjoint.kernels import llvm
if sys.argv[1] == "at once":
    tier.at_once()

def loaded():
    return sorted({m.name for m in llvm.loaded()} & {"op1", "op2", "bind", "walk"})

ad.manual_seed(0)
w = ad.randn(6, 6, requires_grad=True)
x = ad.linspace(-1.0, 1.0, 6)
seen, values = [], []
for i in range(400):
    y = x
    for _ in range(3):
        y = (w @ y + 0.1 * y).tanh() / 1.5 - y
    loss = (y * y).sum()
    loss.backward()
    with ad.no_grad():
        w -= 0.01 * w.grad
    w.grad = None
    seen.append(loaded())
    values.append(loss.item().hex())
print(json.dumps([seen[0], seen[20], seen[-1], values]))
"""

EXACT = """
import gc
import adjoint as ad
from adjoint import nn
from adjoint.base import tier
from adjoint.kernels import llvm

model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
x = ad.ones(4, 5)

def step():
    for _ in range(3):
        loss = (model(x) * 2.0 - 1.0).pow(2).mean()
        loss.backward()
    model.zero_grad()

step()
gc.collect()
gc.disable()
predicted = ad.memory.predict(step)
tier._seen = tier.ENOUGH - 12
before = {m.name for m in llvm.loaded()} & {"op1", "op2", "bind", "walk"}
with ad.memory.track(step) as measured:
    step()
after = {m.name for m in llvm.loaded()} & {"op1", "op2", "bind", "walk"}
assert not before and after, (before, after)
assert predicted.timeline == measured.timeline
assert predicted.peak == measured.peak > 0
print("exact")
"""


def run(text: str, *args: str) -> str:
    """What a process of its own prints."""
    done = subprocess.run([sys.executable, "-c", text, *args], capture_output=True, text=True,
                          timeout=300, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_code
def test_machine_code_comes_when_it_pays_and_changes_no_bit() -> None:
    first, early, last, values = json.loads(run(STEPS, "when it pays"))
    assert first == early == []
    assert last == ["bind", "op1", "op2", "walk"]
    soon: list[Any] = json.loads(run(STEPS, "at once"))
    assert soon[0] == last
    assert soon[3] == values


@needs_code
def test_memory_is_exact_where_machine_code_comes_in_the_middle() -> None:
    assert run(EXACT).strip() == "exact"


def test_operations_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "_seen", 0)
    assert not tier.pays(tier.ENOUGH - 1)
    assert tier.pays()
    assert tier.pays(0)


@needs_code
def test_no_module_of_small_operations_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What compiles at once: LLVM takes time with the instructions of a module."""
    from adjoint.autograd import engine, plain
    from adjoint.kernels import calls, llvm
    from adjoint.ops import family
    lines: dict[str, int] = {}
    compiled = llvm.compile_spec

    def counted(spec: Any, make: Any, **rest: Any) -> Any:
        lines[rest["name"]] = make().count("\n")
        return compiled(spec, make, **rest)
    monkeypatch.setattr(llvm, "compile_spec", counted)
    assert plain.walker(engine.LARGE, engine.WHOLE) is not None
    for make in (calls._general, calls._plans):
        assert make.__wrapped__(family._wide) is not None
    for arity in (1, 2):
        assert calls._ops.__wrapped__(family._pair, arity) is not None
    assert calls._writes.__wrapped__(family._pair) is not None
    most = {"walk": 1400, "arrange": 450, "bind": 2000, "planned": 900, "op1": 850, "op2": 1200,
            "writes": 1350}
    assert lines.keys() >= most.keys()
    assert not {name: lines[name] for name in most if not 0 < lines[name] < most[name]}
