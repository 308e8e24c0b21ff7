"""Schedules made of others, and the one that looks at a metric."""
from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.optim._schedule import (
    EPOCH_DEPRECATION_WARNING,
    LRScheduler,
    copied,
    per_group,
    put,
)
from adjoint.optim.optimizer import Optimizer


class SequentialLR(LRScheduler):
    """Runs ``schedulers`` one after the other; number i + 1 takes over at step milestones[i]."""

    def __init__(self, optimizer: Optimizer, schedulers: list[LRScheduler],
                 milestones: list[int], last_epoch: int = -1) -> None:
        if len(schedulers) < 1:
            raise ArgumentError("SequentialLR expects at least one scheduler, but got no "
                                "scheduler.")
        for i, scheduler in enumerate(schedulers):
            _same(type(self).__name__, scheduler, optimizer, i)
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}")
        self._schedulers = list(schedulers)
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:  # undo the first steps that all of them made
            put(group, "lr", group["initial_lr"])
        for scheduler in schedulers:
            scheduler.last_epoch -= 1
        schedulers[0]._initial_step()
        self._last_lr = schedulers[0].get_last_lr()

    def step(self) -> None:  # type: ignore[override]  # no epoch to jump to
        """Advance the scheduler whose turn it is."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._advance(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """State of this and of the schedulers inside."""
        return _joined_out(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        _joined_in(self, state_dict)


class ChainedScheduler(LRScheduler):
    """Steps several schedulers together; their factors multiply."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
                 ) -> None:
        if len(schedulers) < 1:
            raise ArgumentError("ChainedScheduler expects at least one scheduler to be chained, "
                                "but got no scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        for i, scheduler in enumerate(schedulers):
            _same(type(self).__name__, scheduler, optimizer, i)
        self._schedulers = list(schedulers)
        self.optimizer = optimizer
        self._last_lr = [copied(g["lr"]) for g in self._schedulers[-1].optimizer.param_groups]

    def step(self) -> None:  # type: ignore[override]  # no epoch to jump to
        """Advance all of them."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = [copied(g["lr"]) for g in self._schedulers[-1].optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """State of this and of the schedulers inside."""
        return _joined_out(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        _joined_in(self, state_dict)


def _same(who: str, scheduler: Any, optimizer: Optimizer, i: int) -> None:
    if not hasattr(scheduler, "optimizer"):
        raise TypeError(f"{who} at index {i} should have `optimizer` as its attribute.")
    if isinstance(scheduler, ReduceLROnPlateau):
        raise ArgumentError(f"{who} does not support `ReduceLROnPlateau` scheduler as it requires "
                            "additional kwargs to be specified when calling `step`, but got one "
                            f"at index {i} in the given schedulers sequence.")
    if scheduler.optimizer is not optimizer:
        raise ArgumentError(f"{who} expects all schedulers to belong to the same optimizer, but "
                            f"got scheduler {type(scheduler).__name__} at index {i} has another "
                            "one.")


def _joined_out(self: Any) -> dict[str, Any]:
    state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
    state["_schedulers"] = [s.state_dict() for s in self._schedulers]
    return state


def _joined_in(self: Any, state_dict: dict[str, Any]) -> None:
    state = dict(state_dict)
    for scheduler, inner in zip(self._schedulers, state.pop("_schedulers"), strict=True):
        scheduler.load_state_dict(inner)
    self.__dict__.update(state)


class ReduceLROnPlateau(LRScheduler):
    """``lr *= factor`` when a metric has not improved for more than ``patience`` steps.

    Call ``step(metric)``. Better means lower ("min") or higher ("max") than the best so far by
    ``threshold``, relative ("rel") or absolute ("abs"). After a reduction ``cooldown`` steps do
    not count; lr does not go below ``min_lr``, and changes below ``eps`` are not made.

    >>> import adjoint as ad
    >>> opt = ad.optim.SGD([ad.nn.Parameter(ad.zeros(1))], lr=1.0)
    >>> s = ad.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0)
    >>> for loss in (1.0, 1.0): s.step(loss)
    >>> opt.param_groups[0]["lr"]
    0.1
    """

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1,
                 patience: int = 10, threshold: float = 1e-4, threshold_mode: str = "rel",
                 cooldown: int = 0, min_lr: list[float] | float = 0, eps: float = 1e-8) -> None:
        if factor >= 1.0:
            raise ArgumentError(f"Factor should be < 1.0, got {factor}")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if mode not in ("min", "max"):
            raise ArgumentError(f"mode {mode} is unknown! It is 'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            raise ArgumentError(f"threshold mode {threshold_mode} is unknown! It is 'rel' or 'abs'")
        self.factor = factor
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        if isinstance(min_lr, (list, tuple)) and len(min_lr) != groups:
            raise ArgumentError(f"expected {groups} min_lrs, got {len(min_lr)}")
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.min_lrs = per_group(optimizer, min_lr, "min_lr")
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = [copied(g["lr"]) for g in optimizer.param_groups]
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: Any,  # type: ignore[override]  # this scheduler needs a metric
             epoch: int | None = None) -> None:
        """Look at the metric (a number or one-element tensor) and reduce if it is time."""
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn(EPOCH_DEPRECATION_WARNING, stacklevel=2)
        self.last_epoch = epoch
        if self._is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(self.last_epoch)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = [copied(g["lr"]) for g in self.optimizer.param_groups]

    def _reduce_lr(self, epoch: int) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):  # groups were added since
            if self.default_min_lr is None:
                raise ArgumentError(
                    "The number of param groups in the `optimizer` "
                    f"({len(groups)}) differs from when `ReduceLROnPlateau` was "
                    f"initialized ({len(self.min_lrs)}), usually due to a new param group being "
                    "added to the optimizer. Please modify the `min_lrs` field to match the "
                    "length of the `optimizer` param groups.")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, low in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, low)
            if old - new > self.eps:
                put(group, "lr", new)

    @property
    def in_cooldown(self) -> bool:
        """True while steps after a reduction do not count."""
        return self.cooldown_counter > 0

    def _is_better(self, a: float, best: float) -> bool:
        if self.threshold_mode == "rel":
            return (a < best * (1.0 - self.threshold) if self.mode == "min"
                    else a > best * (self.threshold + 1.0))
        return a < best - self.threshold if self.mode == "min" else a > best + self.threshold

    def is_better(self, a: float, best: float) -> bool:
        """True if ``a`` improves on ``best`` by the threshold."""
        return self._is_better(a, best)
