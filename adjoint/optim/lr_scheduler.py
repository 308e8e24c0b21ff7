"""Learning rate schedulers: objects that change an optimizer's learning rates as training goes.

Call ``scheduler.step()`` after ``optimizer.step()``.
"""
from __future__ import annotations

from adjoint.base.errors import missing as _missing
from adjoint.optim._schedule import EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING
from adjoint.optim._schedule import LRScheduler
from adjoint.optim._schedule import _LRScheduler as _LRScheduler
from adjoint.optim._schedules_cycle import (
    CosineAnnealingWarmRestarts,
    CyclicLR,
    OneCycleLR,
)
from adjoint.optim._schedules_joined import (
    ChainedScheduler,
    ReduceLROnPlateau,
    SequentialLR,
)
from adjoint.optim._schedules_simple import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR",
    "StepLR",
]
__getattr__ = _missing("adjoint.optim.lr_scheduler")
