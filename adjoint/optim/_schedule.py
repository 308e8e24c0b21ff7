"""LRScheduler, the base of all schedulers."""
from __future__ import annotations

import types
import warnings
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.optim.optimizer import Optimizer

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler.")
ORDER_WARNING = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite "
    "order: `optimizer.step()` before `lr_scheduler.step()`. Otherwise the first value of the "
    "learning rate schedule is skipped.")


def copied(value: Any) -> Any:
    """A value of its own for tensors; numbers as they are."""
    return value.clone() if isinstance(value, Tensor) else value


def put(group: dict[str, Any], key: str, value: Any) -> None:
    """Set ``group[key]``; a tensor keeps its identity and gets the new value."""
    if isinstance(group.get(key), Tensor):
        group[key].fill_(float(value))
    else:
        group[key] = value


def must_be_optimizer(optimizer: Any) -> None:
    """TypeError for anything else."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def per_group(optimizer: Optimizer, value: Any, name: str) -> list[Any]:
    """``value`` for each parameter group; ArgumentError if a list has another length."""
    must_be_optimizer(optimizer)
    n = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * n
    if len(value) != n:
        raise ArgumentError(f"{name} must have the same length as optimizer.param_groups. {name} "
                            f"has {len(value)} values, param_groups has {n}.")
    return list(value)


class LRScheduler:
    """Changes ``group["lr"]`` of every group at each ``step()``; write ``get_lr`` in a subclass.

    ``last_epoch`` is the number of steps made; -1 starts anew and records each group's lr as
    "initial_lr". Raises TypeError for something that is no optimizer, KeyError if a resumed
    group has no "initial_lr".
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        must_be_optimizer(optimizer)
        self.optimizer = optimizer
        if last_epoch == -1:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", copied(group["lr"]))
        else:
            for i, group in enumerate(optimizer.param_groups):
                if "initial_lr" not in group:
                    raise KeyError(
                        f"param 'initial_lr' is not specified in param_groups[{i}] when resuming "
                        "scheduler with last_epoch >= 0.\nLoad the optimizer's state_dict first, "
                        "or start with last_epoch=-1")
        self.base_lrs = [copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        """Step 0: gives the optimizer its first learning rate."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The learning rate of each group, as last set by this scheduler."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The next learning rate of each group."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def step(self, epoch: int | None = None) -> None:
        """Advance by one; call it after ``optimizer.step()``.

        ``epoch`` (deprecated) jumps to that step.
        """
        if self._step_count == 1 and not self._is_initial and not self.optimizer._opt_called:
            warnings.warn(ORDER_WARNING, stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, stacklevel=2)
        self._advance(epoch)

    def _advance(self, epoch: int | None) -> None:
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", None)
                values = self.get_lr() if closed is None else closed()
        finally:
            self._get_lr_called_within_step = False
        self._set(values)

    def _set(self, values: list[Any]) -> None:
        groups = self.optimizer.param_groups
        for group, lr in zip(groups, values, strict=False):
            put(group, "lr", lr)
        self._last_lr: list[Any] = [copied(group["lr"]) for group in groups]

    def _inside(self) -> list[dict[str, Any]]:
        """The groups; warns if get_lr is called from outside of step, where it would apply the
        recursion once more."""
        if not self._get_lr_called_within_step:
            warnings.warn("To get the last learning rate computed by the scheduler, please use "
                          "`get_last_lr()`.", stacklevel=3)
        return self.optimizer.param_groups

    def _current(self) -> list[Any]:
        return [copied(group["lr"]) for group in self.optimizer.param_groups]


class _LRScheduler(LRScheduler):
    """The older name of the base class, for subclasses written for it."""


def functions_out(state: dict[str, Any], functions: list[Any]) -> list[Any]:
    """What is saved of callables: the attributes of objects, None for plain functions."""
    return [None if isinstance(f, types.FunctionType) else f.__dict__.copy() for f in functions]


def functions_in(functions: list[Any], saved: list[Any]) -> None:
    """Give saved attributes back to callable objects."""
    for f, attributes in zip(functions, saved, strict=True):
        if attributes is not None:
            f.__dict__.update(attributes)
