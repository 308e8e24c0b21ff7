"""The table symptom, cause, command, filled with what was measured while the doctor watched."""
from __future__ import annotations

import math
import os
import statistics
import time
from typing import Any

import numpy as np

from adjoint.base.text import format_bytes
from adjoint.inspect.doctor_case import Case, norm


def resident_bytes() -> int:
    """The memory that this process holds now; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0


class Symptoms:
    """What a user would see going wrong, in numbers."""

    looks = 3       # steps whose change of the weights is measured

    def __init__(self, case: Case) -> None:
        self.case = case
        self.memory: list[int] = []
        self.zero = self.none = self.total = 0
        self.change: list[float] = []
        self.before: list[tuple[Any, Any]] = []
        self.began = self.node_began = 0.0
        self.finished = time.perf_counter()
        self.forward: list[float] = []
        self.backward: list[float] = []
        self.ops: dict[str, float] = {}

    def entered(self) -> None:
        """What ran while nobody watched is no step's time."""
        self.finished = time.perf_counter()

    def begin_walk(self) -> None:
        """Time since the last backward is forward, optimizer and the user's own code."""
        self.began = time.perf_counter()
        self.forward.append(self.began - self.finished)

    def before_node(self) -> None:
        """A node's rules are about to run."""
        self.node_began = time.perf_counter()

    def after_node(self, node: Any) -> None:
        """They have."""
        name = node.name()
        self.ops[name] = self.ops.get(name, 0.0) + time.perf_counter() - self.node_began

    def end_walk(self) -> None:
        """A backward pass has ended."""
        self.finished = time.perf_counter()
        self.backward.append(self.finished - self.began)

    def before_step(self, optimizer: Any) -> None:
        """Count gradients; copy the weights of the first steps."""
        params = [p for g in optimizer.param_groups for p in g["params"]]
        grads = [p._grad for p in params]
        self.total = len(params)
        self.none = sum(g is None for g in grads)
        self.zero = sum(g is not None and not norm([g.array]) for g in grads)
        if len(self.change) < self.looks:
            self.before = [(p, p.array.copy()) for p in params
                           if isinstance(p.array, np.ndarray)]

    def after_step(self, optimizer: Any) -> None:
        """How far the weights went."""
        if self.before:
            size = norm(old for _, old in self.before)
            moved = norm(p.array - old for p, old in self.before)
            self.change.append(moved / size if size else math.inf if moved else 0.0)
            self.before = []
        self.memory.append(resident_bytes())
        if len(self.memory) > 1000:
            del self.memory[1:-1:2]

    # -- the table ------------------------------------------------------------------------------
    def rows(self) -> list[dict[str, str]]:
        """symptom, seen, causes (codes), command; a row each."""
        case = self.case
        bad = sum(not math.isfinite(v) for v in case.losses)
        last = f"{case.losses[-1]:.4g}" if case.losses else "none seen"
        training = sum(case.training.values())
        slowest = max(self.ops.items(), key=lambda i: i[1], default=("", 0.0))
        share = slowest[1] / (sum(self.ops.values()) or 1)
        change = (f"a step changes them by {statistics.median(self.change):.2e} of their norm"
                  if self.change else "no optimizer made a step")
        ratio = (f"{sum(self.backward) / (sum(self.forward) or 1):.2f} of the rest of a step"
                 if self.backward else "no backward")
        return [
            _row("the loss is NaN", f"last loss {last}, {bad} of {len(case.losses)} not finite",
                 "AD014 AD015 AD012", "with ad.autograd.detect_anomaly(check_inf=True):"),
            _row("memory grows", self._growth(), "AD002 AD003 AD021 AD022",
                 "losses.append(loss.item())"),
            _row("all gradients are zero", f"at the last step {self.zero} zero, {self.none} None "
                 f"of {self.total}", "AD009 AD010 AD023 AD024 AD025",
                 "ad.why_zero(param, loss); ad.why_none(param)"),
            _row("accuracy collapses though the loss falls", f"{training} of "
                 f"{len(case.training)} models in training mode at their last call",
                 "AD016 AD020 AD019", "model.eval()"),
            _row("the weights do not change", change,
                 "AD004 AD008 AD023", "ad.grad_report(model)"),
            _row("backward is slow", f"{ratio}; most in {slowest[0] or 'no node'} ({share:.0%})",
                 "AD003 AD022", "with ad.profiler.profile() as p: ...; p.key_averages()"),
        ]

    def _growth(self) -> str:
        if len(self.memory) < 2 or not self.memory[0]:
            return "fewer than two steps"
        warm = self.memory[min(2, len(self.memory) - 2)]     # buffers exist after the first steps
        rise = self.memory[-1] - warm
        sign = "+" if rise >= 0 else "-"
        return (f"{format_bytes(self.memory[-1])} resident, {sign}{format_bytes(abs(rise))} since "
                f"step {min(3, len(self.memory) - 1)}")

    def table(self) -> str:
        """The rows as text."""
        lines = ["symptom                                   seen"]
        for row in self.rows():
            lines.append(f"{row['symptom']:41} {row['seen']}")
            lines.append(f"{'':41} look at {row['causes']}; {row['command']}")
        return "\n".join(lines)


def _row(symptom: str, seen: str, causes: str, command: str) -> dict[str, str]:
    return {"symptom": symptom, "seen": seen, "causes": causes, "command": command}
