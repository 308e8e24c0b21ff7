"""Averages of models over training: stochastic weight averaging and exponential moving averages."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from itertools import chain
from typing import Any

import numpy as np

from adjoint.autograd.modes import no_grad
from adjoint.base.dtypes import I64, is_inexact
from adjoint.base.errors import ArgumentError, AssertedError
from adjoint.core.tensor import Tensor, wrap
from adjoint.nn.modules.batchnorm import _BatchNorm
from adjoint.nn.modules.module import Module
from adjoint.optim._schedule import LRScheduler, per_group
from adjoint.optim.optimizer import Optimizer

__all__ = ["SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
           "get_swa_multi_avg_fn", "update_bn"]


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """In place: ``ema = decay ema + (1 - decay) p`` for lists of tensors.

    Raises ArgumentError unless 0 <= decay <= 1.
    """
    _check_decay(decay)

    def ema_update(ema_params: list[Tensor], current_params: list[Tensor], _: Any) -> None:
        with no_grad():
            for ema, p in zip(ema_params, current_params, strict=True):
                if is_inexact(ema.array.dtype):
                    ema.lerp_(p, 1 - decay)
                else:
                    ema.copy_(ema * decay + p * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """In place: the running mean ``avg += (p - avg) / (n + 1)`` for lists of tensors."""

    def swa_update(averaged: list[Tensor], current: list[Tensor], num_averaged: Any) -> None:
        with no_grad():
            for avg, p in zip(averaged, current, strict=True):
                if is_inexact(avg.array.dtype):
                    avg.lerp_(p, 1.0 / (float(num_averaged) + 1))
                else:
                    avg.add_(((p - avg) / (float(num_averaged) + 1)).to(avg.dtype))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Tensor]:
    """A function (ema, p, n) -> ``decay ema + (1 - decay) p``."""
    _check_decay(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[..., Tensor]:
    """A function (avg, p, n) -> ``avg + (p - avg) / (n + 1)``."""

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            return averaged_param + (current_param - averaged_param) / (float(num_averaged) + 1)

    return swa_update


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ArgumentError(f"Invalid decay value {decay} provided. Please provide a value in "
                            "[0,1] range.")


class AveragedModel(Module):
    """A copy of ``model`` whose parameters are an average over the updates it is told of.

    The equal average (Izmailov et al. 2018) unless ``avg_fn(avg, p, n)`` or
    ``multi_avg_fn(avgs, ps, n)`` says otherwise. Buffers are averaged if ``use_buffers``, else
    copied at each update.

    >>> import adjoint as ad
    >>> m = ad.nn.Linear(1, 1)
    >>> avg = ad.optim.swa_utils.AveragedModel(m)
    >>> avg.update_parameters(m); int(avg.n_averaged)
    1
    """

    n_averaged: Tensor

    def __init__(self, model: Module, device: Any = None,
                 avg_fn: Callable[..., Tensor] | None = None,
                 multi_avg_fn: Callable[..., None] | None = None, use_buffers: bool = False
                 ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertedError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", wrap(np.array(0, I64)))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _tensors(self, model: Module) -> Iterator[Tensor]:
        return chain(model.parameters(), model.buffers()) if self.use_buffers else iter(
            model.parameters())

    def update_parameters(self, model: Module) -> None:
        """Take the parameters of ``model`` into the average."""
        averaged = [t.detach() for t in self._tensors(self.module)]
        current = [t.detach() for t in self._tensors(model)]
        if len(averaged) != len(current):
            raise ArgumentError(f"AveragedModel: the model has {len(current)} tensors, the "
                                f"averaged copy {len(averaged)}")
        with no_grad():
            if int(self.n_averaged) == 0:
                for avg, p in zip(averaged, current, strict=True):
                    avg.copy_(p)
            elif self.avg_fn is not None:
                for avg, p in zip(averaged, current, strict=True):
                    avg.copy_(self.avg_fn(avg, p, self.n_averaged))
            else:
                update = self.multi_avg_fn or get_swa_multi_avg_fn()
                update(averaged, current, self.n_averaged)
            if not self.use_buffers:
                for own, new in zip(self.module.buffers(), model.buffers(), strict=True):
                    own.copy_(new.detach())
            self.n_averaged.add_(1)


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recompute the running statistics of all BatchNorm layers of ``model`` over ``loader``.

    Batches may be tensors or lists and tuples that begin with the input. The model's mode is
    restored.
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    was_training = model.training
    for m in norms:
        m.reset_running_stats()
        m.momentum = None  # cumulative average
    model.train()
    try:
        with no_grad():
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        for m, momentum in zip(norms, momenta, strict=True):
            m.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """Anneals each group's lr to ``swa_lr`` over ``anneal_epochs`` steps ("cos" or "linear") and
    keeps it there (Izmailov et al. 2018)."""

    def __init__(self, optimizer: Optimizer, swa_lr: float | list[float], anneal_epochs: int = 10,
                 anneal_strategy: str = "cos", last_epoch: int = -1) -> None:
        for group, lr in zip(optimizer.param_groups, per_group(optimizer, swa_lr, "swa_lr"),
                             strict=True):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError("anneal_strategy must be one of 'cos' or 'linear', instead got "
                                f"{anneal_strategy}")
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ArgumentError("anneal_epochs must be equal or greater than 0, got "
                                f"{anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _alpha(self, step: int) -> float:
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self) -> list[Any]:
        groups = self._inside()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._alpha(step - 1), self._alpha(step)
        out = []
        for group in groups:
            target = group["swa_lr"]
            start = target if before == 1 else (group["lr"] - before * target) / (1 - before)
            out.append(target * now + start * (1 - now))
        return out
