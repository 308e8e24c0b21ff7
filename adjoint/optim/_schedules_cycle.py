"""Schedules in cycles: warm restarts, cyclic, one cycle."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.optim._schedule import LRScheduler, functions_in, functions_out, per_group, put
from adjoint.optim.optimizer import Optimizer


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that starts over after T_0 steps, then T_0 T_mult, T_0 T_mult^2, ...
    (Loshchilov and Hutter 2017).

    ``step(epoch)`` takes fractions: ``step(epoch + i / batches)`` after each batch.
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0,
                 last_epoch: int = -1) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ArgumentError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ArgumentError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ArgumentError("Expected float or int eta_min, but got "
                                f"{eta_min} of type {type(eta_min)}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._inside()
        wave = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * wave for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Advance by one, or jump to the (fractional) ``epoch``."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ArgumentError(f"Expected non-negative epoch, but got {epoch}")
        elif epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n
        self.last_epoch = math.floor(epoch)
        self._get_lr_called_within_step = True
        try:
            self._set(self.get_lr())
        finally:
            self._get_lr_called_within_step = False


class CyclicLR(LRScheduler):
    """Goes from ``base_lr`` up to ``max_lr`` in ``step_size_up`` steps and back (Smith 2017).

    Modes: "triangular"; "triangular2", where each cycle is half as high; "exp_range", where the
    height decays as ``gamma^step``; or your own ``scale_fn`` of the cycle or, with
    ``scale_mode="iterations"``, of the step. Momentum goes the other way if ``cycle_momentum``.
    """

    def __init__(self, optimizer: Optimizer, base_lr: float | list[float],
                 max_lr: float | list[float], step_size_up: int = 2000,
                 step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
                 scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle",
                 cycle_momentum: bool = True, base_momentum: float = 0.8,
                 max_momentum: float = 0.9, last_epoch: int = -1) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ArgumentError(f"mode is invalid and scale_fn is None: {mode!r} is none of "
                                "triangular, triangular2, exp_range")
        base_lrs = per_group(optimizer, base_lr, "base_lr")
        self.max_lrs = per_group(optimizer, max_lr, "max_lr")
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = (scale_mode if scale_fn is not None
                           else "iterations" if mode == "exp_range" else "cycle")
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups, strict=True):
                put(group, "lr", lr)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _start_momentum(self, optimizer: Optimizer, base: Any, top: Any, last_epoch: int) -> None:
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ArgumentError("optimizer must support momentum or beta1 with `cycle_momentum` "
                                "option enabled")
        self.use_beta1 = "betas" in optimizer.defaults
        self.base_momentums = per_group(optimizer, base, "base_momentum")
        self.max_momentums = per_group(optimizer, top, "max_momentum")
        if last_epoch == -1:
            for value, low, group in zip(self.max_momentums, self.base_momentums,
                                         optimizer.param_groups, strict=True):
                set_momentum(group, value, self.use_beta1)
                group["max_momentum"], group["base_momentum"] = value, low

    def scale_fn(self, x: float) -> float:
        """Height of cycle (or step) number ``x``, as a fraction."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / (2.0 ** (x - 1)) if self.mode == "triangular2" else self.gamma**x

    def get_lr(self) -> list[Any]:
        self._inside()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        up = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for low, top, group in zip(self.base_momentums, self.max_momentums,
                                       self.optimizer.param_groups, strict=True):
                set_momentum(group, top - (top - low) * up * scale, self.use_beta1)
        return [low + (top - low) * up * scale
                for low, top in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; of a scale function only an object's attributes."""
        state = super().state_dict()
        custom = state.pop("_scale_fn_custom")
        state["_scale_fn_custom"] = (None if custom is None
                                     else functions_out(state, [custom])[0])
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned; the scale function stays this scheduler's."""
        state = dict(state_dict)
        attributes = state.pop("_scale_fn_custom")
        if attributes is not None:
            functions_in([self._scale_fn_custom], [attributes])
        super().load_state_dict(state)


def set_momentum(group: dict[str, Any], value: float, use_beta1: bool) -> None:
    """Set the momentum of a group: its first beta, or "momentum"."""
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class OneCycleLR(LRScheduler):
    """One cycle over the whole training (Smith and Topin 2019): up from max_lr / div_factor to
    max_lr, then down to that / final_div_factor; momentum the other way.

    Give ``total_steps``, or ``epochs`` and ``steps_per_epoch``; step after every batch. The first
    ``pct_start`` of the steps go up; ``three_phase`` comes down as fast and then anneals.
    """

    def __init__(self, optimizer: Optimizer, max_lr: float | list[float],
                 total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3,
                 anneal_strategy: str = "cos", cycle_momentum: bool = True,
                 base_momentum: float | list[float] = 0.85,
                 max_momentum: float | list[float] = 0.95, div_factor: float = 25.0,
                 final_div_factor: float = 1e4, three_phase: bool = False,
                 last_epoch: int = -1) -> None:
        self.total_steps = _count_steps(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) and pct_start not in (0, 1) or not 0 <= pct_start <= 1:
            raise ArgumentError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError("anneal_strategy must be one of 'cos' or 'linear', instead got "
                                f"{anneal_strategy}")
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        self._anneal_func_type = anneal_strategy
        max_lrs = per_group(optimizer, max_lr, "max_lr")
        self.cycle_momentum = cycle_momentum
        if cycle_momentum and not {"momentum", "betas"} & set(optimizer.defaults):
            raise ArgumentError("optimizer must support momentum or beta1 with `cycle_momentum` "
                                "option enabled")
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, max_lrs, strict=True):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self.use_beta1 = "betas" in optimizer.defaults
            tops = per_group(optimizer, max_momentum, "max_momentum")
            lows = per_group(optimizer, base_momentum, "base_momentum")
            if last_epoch == -1:
                for top, low, group in zip(tops, lows, optimizer.param_groups, strict=True):
                    set_momentum(group, top, self.use_beta1)
                    group["max_momentum"], group["base_momentum"] = top, low
        super().__init__(optimizer, last_epoch)

    def _anneal(self, start: float, end: float, done: float) -> float:
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * done) + 1)
        return (end - start) * done + start

    def get_lr(self) -> list[Any]:
        groups = self._inside()
        now = self.last_epoch
        if now > self.total_steps:
            raise ArgumentError(f"Tried to step {now} times. The specified number of total steps "
                                f"is {self.total_steps}")
        begin: float = 0
        for phase in self._schedule_phases:
            if now <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            begin = phase["end_step"]
        done = (now - begin) / (phase["end_step"] - begin)
        out = []
        for group in groups:
            out.append(self._anneal(group[phase["start_lr"]], group[phase["end_lr"]], done))
            if self.cycle_momentum:
                set_momentum(group, self._anneal(group[phase["start_momentum"]],
                                                 group[phase["end_momentum"]], done),
                             self.use_beta1)
        return out


def _count_steps(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total_steps is not None:
        given = {"total_steps": total_steps}
    elif epochs is not None and steps_per_epoch is not None:
        given = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    else:
        raise ArgumentError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    for name, value in given.items():
        if not isinstance(value, int) or value <= 0:
            raise ArgumentError(f"Expected positive integer {name}, but got {value}")
    return math.prod(given.values())


def _phases(total: int, pct_start: float, three_phase: bool) -> list[dict[str, Any]]:
    """(end of phase, which values it goes between) for learning rate and momentum."""
    def phase(end: float, lr: tuple[str, str], momentum: tuple[str, str]) -> dict[str, Any]:
        return {"end_step": end, "start_lr": lr[0], "end_lr": lr[1],
                "start_momentum": momentum[0], "end_momentum": momentum[1]}

    low, top = "base_momentum", "max_momentum"
    up = float(pct_start * total) - 1
    first = phase(up, ("initial_lr", "max_lr"), (top, low))
    if not three_phase:
        return [first, phase(total - 1, ("max_lr", "min_lr"), (low, top))]
    return [first, phase(float(2 * pct_start * total) - 2, ("max_lr", "initial_lr"), (low, top)),
            phase(total - 1, ("initial_lr", "min_lr"), (top, top))]
