"""The doctor: watches a program run and names its mistakes, with line, numbers and fix.

    with ad.doctor() as d:
        train()
    d.findings        # [Finding(code="AD001", file=..., line=..., evidence=..., fix=...), ...]

The codes are in docs/doctor.md. Nothing is guessed from source text: every finding is about
values, graphs and calls that were seen.
"""
from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.errors import ArgumentError, AutogradError
from adjoint.base.text import say
from adjoint.core.modes import Observer, watchers
from adjoint.inspect import (
    doctor_graph,
    doctor_loop,
    doctor_modes,
    doctor_symptoms,
    doctor_values,
)
from adjoint.inspect.doctor_case import (
    CHECKS,
    NOWHERE,
    Case,
    Check,
    Finding,
    Place,
    norm,
    user_place,
)
from adjoint.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

__all__ = ["Finding", "codes", "doctor"]

_MODULES = (doctor_loop, doctor_graph, doctor_values, doctor_modes)   # they enter their checks
_PLAIN = ("detached", "begin_walk", "accumulated", "end_walk", "enter_module", "leave_module",
          "before_backward", "backward", "before_step", "after_step")
_BY_OP = ("before", "after", "forward")


def codes() -> list[type[Check]]:
    """The checks in the order of their codes; each has `code`, `title`, `cause` and `fix`.

    >>> codes()[0].code, codes()[0].title
    ('AD001', 'gradients are not cleared between steps')
    """
    return sorted(CHECKS, key=lambda c: c.code)


class doctor(Observer):
    """Look for mistakes in what runs inside of the context.

    ignore     codes that are not looked for
    quiet      do not print the report at the end (it goes to standard error)

    It may be entered again: what was seen is kept. A program that fails inside is explained too;
    its exception is not held back.

    >>> import adjoint as ad
    >>> w = ad.zeros(2, requires_grad=True)
    >>> opt = ad.optim.SGD([w], lr=0.1)
    >>> with ad.doctor(quiet=True) as d:
    ...     for _ in range(3):
    ...         ((w - 1) ** 2).sum().backward()
    ...         opt.step()
    >>> [f.code for f in d.findings]
    ['AD001']
    """

    cotangents = True

    def __init__(self, *, ignore: Sequence[str] = (), quiet: bool = False) -> None:
        unknown = set(ignore) - {c.code for c in CHECKS}
        if unknown:
            raise ArgumentError(f"doctor: unknown codes {sorted(unknown)}; known are "
                                f"{codes()[0].code} to {codes()[-1].code}")
        self.case = Case()
        self.quiet = quiet
        self.checks = [c(self.case) for c in codes() if c.code not in ignore
                       or c.code == "AD007"]                 # AD008 and AD024 read it
        self.ignore = frozenset(ignore)
        self.symptoms = doctor_symptoms.Symptoms(self.case)
        self._events: dict[str, list[Any]] = {
            event: [getattr(c, event) for c in sorted(self.checks, key=lambda c: c.turn)
                    if _overrides(c, event)]
            for event in _PLAIN}
        self._ops: dict[str, dict[str, list[Any]]] = {event: {} for event in _BY_OP}
        self._scalars: dict[int, float] = {}
        self._explained: list[Finding] = []
        self._held: list[Any] = []
        self._depth = 0
        self._place: Place = NOWHERE

    # -- the context ---------------------------------------------------------------------------
    def __enter__(self) -> doctor:
        hooks = (register_optimizer_step_pre_hook(self._before_step),
                 register_optimizer_step_post_hook(self._after_step))
        self._held.append((watchers.push(watchers.observers, self), hooks))
        self.symptoms.entered()
        return self

    def __exit__(self, kind: Any, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        held, hooks = self._held.pop()
        watchers.pop(held)
        for hook in hooks:
            hook.remove()
        if isinstance(error, AutogradError):
            place = _user_end(trace)
            self._explained += [f for c in self.checks for f in c.error(error, place)]
        if not self.quiet and not self._held:
            say(self.report(), sys.stderr)

    # -- what it has found ---------------------------------------------------------------------
    @property
    def findings(self) -> list[Finding]:
        """What was found until now, one finding per code and line, in the order of codes."""
        found: dict[tuple[str, str, int], Finding] = {}
        for f in [*self._explained, *(f for c in self.checks for f in c.findings())]:
            if f.code not in self.ignore:
                found.setdefault((f.code, f.file, f.line), f)
        return sorted(found.values(), key=lambda f: (f.code, f.file, f.line))

    def report(self) -> str:
        """All findings in full, then the table of symptoms."""
        findings = self.findings
        case = self.case
        head = (f"doctor: {len(findings) or 'no'} finding{'s' * (len(findings) != 1)} "
                f"({case.steps} steps, {case.walks} backward passes, "
                f"{len(case.parameters)} parameters)")
        if not findings:
            return head
        return "\n".join([head, *map(_full, findings), "", self.symptoms.table()])

    def table(self) -> str:
        """One line per finding: code, place, title.

        The evidence and the fix are in `report()`.
        """
        rows = [(f.code, f.where or "-", f.title) for f in self.findings]
        if not rows:
            return "no findings"
        wide = max(len(r[1]) for r in rows)
        return "\n".join(f"{code}  {where:{wide}}  {title}" for code, where, title in rows)

    def activations(self) -> list[tuple[str, str, str, float]]:
        """(kind, module, ``file:line``, share) of every layer that was measured: "dead" units
        that never fired (relu and its kin), "saturated" outputs at a bound (sigmoid, tanh), and
        "underflow", float16 gradient values that are subnormal or lost (with the node's name).

        >>> import adjoint as ad
        >>> x = ad.tensor([[1.0, -1.0, -2.0, -3.0]], requires_grad=True)
        >>> with ad.doctor(quiet=True) as d:
        ...     y = ad.relu(x)
        >>> [(kind, share) for kind, _, _, share in d.activations()]
        [('dead', 0.75)]
        """
        return [row for c in self.checks for row in c.shares()]

    def to_json(self) -> str:
        """Findings, counts and symptoms as a JSON text."""
        case = self.case
        return json.dumps({
            "findings": [f.to_json() for f in self.findings], "steps": case.steps,
            "backward_passes": case.walks, "parameters": len(case.parameters),
            "symptoms": self.symptoms.rows(), "activations": self.activations()}, indent=2)

    # -- events --------------------------------------------------------------------------------
    def _tell(self, event: str, *args: Any) -> None:
        for method in self._events[event]:
            method(*args)

    def _tell_op(self, event: str, name: str, *args: Any) -> None:
        table = self._ops[event]
        methods = table.get(name)
        if methods is None:
            methods = table[name] = [getattr(c, event) for c in self.checks
                                     if _overrides(c, event) and (c.ops is None or name in c.ops)]
        for method in methods:
            method(*args)

    def before(self, op: Any, args: Any, attrs: Any) -> None:
        self._tell_op("before", op.name, op, args, attrs)

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        self._tell_op("after", op.name, op, args, attrs, made, node)

    def forward(self, node: Any, args: Any, made: Any) -> None:
        if not made:
            return
        array = made[0].array
        if isinstance(array, np.ndarray) and array.size == 1 and array.dtype.kind == "f":
            self._note(node.seq, array)
        self._tell_op("forward", node.plan.op.name if node.plan is not None else "", node, args,
                      made)

    def _note(self, seq: int, array: Any) -> None:
        self._scalars[seq] = float(array.item())
        if len(self._scalars) > 64:
            for old in list(self._scalars)[:32]:
                del self._scalars[old]

    def detached(self, tensor: Any, made: Any) -> None:
        self._tell("detached", tensor, made)

    def begin_walk(self, walk: Any) -> None:
        self._tell("begin_walk", walk)
        if walk.order and walk.order[0].seq in self._scalars and not walk.levels:
            self.case.losses.append(self._scalars[walk.order[0].seq])
        self.symptoms.begin_walk()

    def before_backward(self, node: Any, ct: Any) -> None:
        self.symptoms.before_node()

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        self.symptoms.after_node(node)
        self._tell("backward", node, ct, results)

    def accumulated(self, leaf: Any) -> None:
        self._tell("accumulated", leaf)

    def end_walk(self, walk: Any) -> None:
        self.symptoms.end_walk()
        if not walk.levels:
            self._tell("end_walk", walk)
            self.case.walks += 1

    def enter_module(self, path: str, module: Any) -> None:
        if not path:
            self.case.calls += 1
        self._tell("enter_module", path, module)

    def leave_module(self, path: str, module: Any) -> None:
        if not path:
            self.case.meet(module)
        else:
            self.case.inside(module)
        self._tell("leave_module", path, module)

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self not in watchers.observers.get():        # another thread's optimizer
            return
        self._place = user_place(2)
        case = self.case
        case.optimizers[id(optimizer)] = optimizer
        case.norms.append(norm(p._grad.array for g in optimizer.param_groups
                               for p in g["params"] if p._grad is not None))
        self.symptoms.before_step(optimizer)
        self._tell("before_step", optimizer, self._place)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self not in watchers.observers.get():
            return
        self.case.steps += 1
        self.symptoms.after_step(optimizer)
        self._tell("after_step", optimizer, self._place)


def _overrides(c: Check, event: str) -> bool:
    return getattr(type(c), event) is not getattr(Check, event)


def _user_end(trace: TracebackType | None) -> Place:
    """The user's innermost line of a traceback."""
    place = NOWHERE
    while trace is not None:
        code = trace.tb_frame.f_code
        if not provenance.inside[code.co_filename]:
            place = code, trace.tb_lasti
        trace = trace.tb_next
    return place


def _full(f: Finding) -> str:
    lines = ["", f"{f.code}  {f.title}"]
    if f.line:
        lines.append(f"  {f.where} in {f.function}")
        if f.source:
            lines.append(f"      {f.source}")
    return "\n".join([*lines, f"  seen: {f.evidence}", f"  fix:  {f.fix}"])
