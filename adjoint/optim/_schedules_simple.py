"""Schedules that follow from the step number alone."""
from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.optim._schedule import LRScheduler, functions_in, functions_out
from adjoint.optim.optimizer import Optimizer

Factor = Callable[[int], float]


class _Lambdas(LRScheduler):
    """Holds one function per group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | list[Factor],
                 last_epoch: int = -1) -> None:
        n = len(optimizer.param_groups) if isinstance(optimizer, Optimizer) else 1
        if isinstance(lr_lambda, (list, tuple)):
            if len(lr_lambda) != n:
                raise ArgumentError(f"Expected {n} lr_lambdas, but got {len(lr_lambda)}")
            self.lr_lambdas = list(lr_lambda)
        else:
            self.lr_lambdas = [lr_lambda] * n
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; of functions only the attributes of callable objects."""
        state = {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}
        state["lr_lambdas"] = functions_out(state, self.lr_lambdas)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned; functions stay this scheduler's."""
        state = dict(state_dict)
        functions_in(self.lr_lambdas, state.pop("lr_lambdas"))
        self.__dict__.update(state)


class LambdaLR(_Lambdas):
    """``lr = initial lr * lr_lambda(step)``; one function, or a list with one per group.

    >>> import adjoint as ad
    >>> opt = ad.optim.SGD([ad.nn.Parameter(ad.zeros(1))], lr=1.0)
    >>> s = ad.optim.lr_scheduler.LambdaLR(opt, lambda step: 0.5 ** step)
    >>> opt.step(); s.step(); s.get_last_lr()
    [0.5]
    """

    def get_lr(self) -> list[Any]:
        self._inside()
        return [base * f(self.last_epoch)
                for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_Lambdas):
    """``lr *= lr_lambda(step)`` at every step after the first."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | list[Factor],
                 last_epoch: int = -1) -> None:
        for f in lr_lambda if isinstance(lr_lambda, (list, tuple)) else [lr_lambda]:
            if not callable(f):
                raise TypeError(f"lr_lambda should be a function, but got {type(f).__name__}")
        super().__init__(optimizer, lr_lambda, last_epoch)

    def get_lr(self) -> list[Any]:
        groups = self._inside()
        if self._is_initial:
            return self._current()
        return [g["lr"] * f(self.last_epoch)
                for f, g in zip(self.lr_lambdas, groups, strict=True)]


class StepLR(LRScheduler):
    """``lr *= gamma`` every ``step_size`` steps.

    >>> import adjoint as ad
    >>> opt = ad.optim.SGD([ad.nn.Parameter(ad.zeros(1))], lr=1.0)
    >>> s = ad.optim.lr_scheduler.StepLR(opt, step_size=2, gamma=0.5)
    >>> for _ in range(2): opt.step(); s.step()
    >>> s.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1,
                 last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        groups = self._inside()
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._current()
        return [g["lr"] * self.gamma for g in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        return [b * self.gamma ** (self.last_epoch // self.step_size) for b in self.base_lrs]


class MultiStepLR(LRScheduler):
    """``lr *= gamma`` at each of the steps in ``milestones`` (twice if it is there twice)."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1,
                 last_epoch: int = -1) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        groups = self._inside()
        if self.last_epoch not in self.milestones:
            return self._current()
        return [g["lr"] * self.gamma ** self.milestones[self.last_epoch] for g in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [b * self.gamma ** passed for b in self.base_lrs]


class ConstantLR(LRScheduler):
    """``lr`` times ``factor`` for the first ``total_iters`` steps, then the full one."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5,
                 last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1.0:
            raise ArgumentError("Constant multiplicative factor expected to be between 0 and 1, "
                                f"got {factor}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        groups = self._inside()
        if self.last_epoch == 0:
            return [g["lr"] * self.factor for g in groups]
        if self.last_epoch != self.total_iters:
            return self._current()
        return [g["lr"] * (1.0 / self.factor) for g in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        late = self.last_epoch >= self.total_iters
        return [b * (self.factor + late * (1 - self.factor)) for b in self.base_lrs]


class LinearLR(LRScheduler):
    """``lr`` times a factor that goes from ``start_factor`` to ``end_factor`` in a straight line
    over ``total_iters`` steps."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1.0 / 3,
                 end_factor: float = 1.0, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 < start_factor <= 1.0:
            raise ArgumentError("Starting multiplicative factor expected to be greater than 0 and "
                                f"less or equal to 1, got {start_factor}")
        if not 0 <= end_factor <= 1.0:
            raise ArgumentError("Ending multiplicative factor expected to be between 0 and 1, got "
                                f"{end_factor}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        groups = self._inside()
        if self.last_epoch == 0:
            return [g["lr"] * self.start_factor for g in groups]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        rise = self.end_factor - self.start_factor
        return [g["lr"] * (1.0 + rise / (self.total_iters * self.start_factor
                                         + (self.last_epoch - 1) * rise)) for g in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return [b * (self.start_factor + (self.end_factor - self.start_factor) * done)
                for b in self.base_lrs]


class ExponentialLR(LRScheduler):
    """``lr *= gamma`` at every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        groups = self._inside()
        if self._is_initial:
            return self._current()
        return [g["lr"] * self.gamma for g in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        return [b * self.gamma ** self.last_epoch for b in self.base_lrs]


class PolynomialLR(LRScheduler):
    """``lr`` times ``(1 - step / total_iters)^power``, 0 after that."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0,
                 last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        groups = self._inside()
        n, t = self.total_iters, self.last_epoch
        if self._is_initial or t > n:
            return self._current()
        decay = ((1.0 - t / n) / (1.0 - (t - 1) / n)) ** self.power
        return [g["lr"] * decay for g in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [b * left ** self.power for b in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """``eta_min + (lr - eta_min)(1 + cos(pi step / T_max)) / 2`` (Loshchilov and Hutter 2017).

    After T_max steps it goes up again, with period 2 T_max.

    >>> import adjoint as ad
    >>> opt = ad.optim.SGD([ad.nn.Parameter(ad.zeros(1))], lr=1.0)
    >>> s = ad.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=2)
    >>> opt.step(); s.step(); round(s.get_last_lr()[0], 6)
    0.5
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0,
                 last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        groups = self._inside()
        t, period, low = self.last_epoch, self.T_max, self.eta_min
        if self._is_initial:
            return self._current()
        if self._step_count == 1 and t > 0:  # resumed in the middle
            return [low + (b - low) * (1 + math.cos(t * math.pi / period)) / 2
                    for b in self.base_lrs]
        if (t - 1 - period) % (2 * period) == 0:  # the recursion would divide by zero
            return [g["lr"] + (b - low) * (1 - math.cos(math.pi / period)) / 2
                    for b, g in zip(self.base_lrs, groups, strict=True)]
        ratio = (1 + math.cos(math.pi * t / period)) / (1 + math.cos(math.pi * (t - 1) / period))
        return [ratio * (g["lr"] - low) + low for g in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        wave = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (b - self.eta_min) * wave for b in self.base_lrs]
