"""Checks of train() and eval(): dropout and batch normalization in the wrong mode."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from adjoint.core.modes import GRAD, state
from adjoint.core.tensor import Tensor
from adjoint.inspect.doctor_case import (
    Case,
    Check,
    Finding,
    Place,
    check,
    user_place,
)
from adjoint.inspect.doctor_graph import taint_of
from adjoint.nn.modules.batchnorm import _BatchNorm
from adjoint.nn.modules.dropout import _DropoutNd


def _active(module: Any) -> bool:
    """Does this layer act otherwise in training than in evaluation?"""
    if isinstance(module, _DropoutNd):
        return module.p > 0
    return isinstance(module, _BatchNorm) and module.momentum is not None


@check
class FrozenBatchNorm(Check):
    """Frozen weights, moving statistics."""

    code = "AD016"
    title = "a frozen batch norm still moves"
    cause = "requires_grad=False freezes weight and bias; the running statistics follow the data "\
            "as long as the layer is in training mode"
    fix = "call .eval() on the frozen layers after model.train()"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.layers: dict[int, list[Any]] = {}
        self.trainable: set[int] = set()

    def enter_module(self, path: str, module: Any) -> None:
        if not isinstance(module, _BatchNorm) or module.weight is None:
            return
        if module.weight.requires_grad:
            self.trainable.add(id(module))
        elif module.training and state() & GRAD and module.running_mean is not None:
            row = self.layers.get(id(module))
            if row is None:
                row = self.layers[id(module)] = [module, path, user_place(2), 0,
                                                 module.running_mean.array.copy()]
            row[3] += 1

    def findings(self) -> Iterable[Finding]:
        rows = [r for k, r in self.layers.items() if k not in self.trainable and r[3] >= 2]
        if rows and self.case.steps:
            module, path, place, calls, start = rows[0]
            moved = float(np.abs(module.running_mean.array - start).max())
            yield self.found(place, f"{len(rows)} frozen layers, first {path or 'BatchNorm'}: "
                             f"its running mean moved by up to {moved:.3g} in {calls} calls")


@check
class WrongMode(Check):
    """Training in evaluation mode after it had begun in training mode, or validation in training
    mode: outputs under no_grad that no later training used."""

    code = "AD020"
    title = "train() or eval() is forgotten"
    cause = "dropout and batch normalization follow the mode of the model, not no_grad()"
    fix = "model.train() before training, model.eval() before validation"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.stack: list[Any] = []                   # [module, active layers in train / in eval]
        self.trained: set[int] = set()               # models with a step in training mode
        self.pending: tuple[int, bool, Place] | None = None
        self.eval_steps: dict[Place, int] = {}
        self.silent: dict[int, tuple[int, Place, int]] = {}   # call -> (model, place, input)
        self.inputs: dict[int, list[int]] = {}
        self.walked: tuple[int, bool, Place] | None = None

    def enter_module(self, path: str, module: Any) -> None:
        if not path:
            self.stack.append([module, 0, 0, user_place(2)])
        if self.stack and _active(module):
            self.stack[-1][1 if module.training else 2] += 1

    def leave_module(self, path: str, module: Any) -> None:
        if path or not self.stack:
            return
        root, train, evaluation, place = self.stack.pop()
        if state() & GRAD:
            if train or evaluation:
                self.pending = id(root), not train and not root.training, place
        elif train and root.training and id(root) in self.trained:
            self.silent[self.case.calls] = id(root), place, 0

    def before(self, op: Any, args: Any, attrs: Any) -> None:
        if not state() & GRAD or not self.silent or not any(
                isinstance(a, Tensor) and a._rg for a in args):
            return
        for a in args:                               # a silent output that training uses
            mark = taint_of(a)
            if mark is not None:
                self.silent.pop(mark[2], None)

    def end_walk(self, walk: Any) -> None:
        if self.pending is not None and not walk.levels and walk.accumulate:
            self.walked, self.pending = self.pending, None

    def after_step(self, optimizer: Any, place: Place) -> None:
        if self.walked is None:
            return
        model, evaluating, at = self.walked
        self.walked = None
        if not evaluating:
            self.trained.add(model)
        elif model in self.trained:
            self.eval_steps[at] = self.eval_steps.get(at, 0) + 1

    def findings(self) -> Iterable[Finding]:
        for place, n in self.eval_steps.items():
            if n >= 2:
                yield self.found(place, f"{n} steps were taken in evaluation mode after training "
                                 "had begun: dropout was off and statistics stood still",
                                 "call model.train() again after validation")
        groups: dict[Any, int] = {}
        for _, place, _n in self.silent.values():
            groups[place] = groups.get(place, 0) + 1
        for place, n in groups.items():
            yield self.found(place, f"{n} calls under no_grad in training mode: dropout drew and "
                             "batch statistics moved", "call model.eval() before validation")


