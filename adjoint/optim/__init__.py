"""Optimizers and learning rate schedulers, with PyTorch's names and numbers."""
from __future__ import annotations

from adjoint.base.errors import missing as _missing
from adjoint.optim import lr_scheduler, swa_utils
from adjoint.optim._adafactor import Adafactor
from adjoint.optim._muon import Muon
from adjoint.optim.adadelta import Adadelta
from adjoint.optim.adagrad import Adagrad
from adjoint.optim.adam import Adam
from adjoint.optim.adamax import Adamax
from adjoint.optim.adamw import AdamW
from adjoint.optim.asgd import ASGD
from adjoint.optim.lbfgs import LBFGS
from adjoint.optim.nadam import NAdam
from adjoint.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from adjoint.optim.radam import RAdam
from adjoint.optim.rmsprop import RMSprop
from adjoint.optim.rprop import Rprop
from adjoint.optim.sgd import SGD
from adjoint.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam", "lr_scheduler",
    "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook", "swa_utils",
]
__getattr__ = _missing("adjoint.optim")
