"""Memory: predict it, account for it, plan it, and keep it under a budget."""
from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

import numpy.random as _random  # noqa: F401  # its import makes arrays: not in a watched step

from adjoint.memory.allocator import empty_cache as empty_cache
from adjoint.memory.allocator import max_memory_allocated as max_memory_allocated
from adjoint.memory.allocator import memory_allocated as memory_allocated
from adjoint.memory.allocator import memory_reserved as memory_reserved
from adjoint.memory.allocator import memory_stats as memory_stats
from adjoint.memory.allocator import reset_peak_memory_stats as reset_peak_memory_stats
from adjoint.memory.predict import fits as fits
from adjoint.memory.predict import largest_batch as largest_batch
from adjoint.memory.predict import predict as predict
from adjoint.memory.report import Report as Report
from adjoint.memory.retained import Retained as Retained
from adjoint.memory.retained import leaks as leaks
from adjoint.memory.retained import retained as retained
from adjoint.memory.track import memory_snapshot as memory_snapshot
from adjoint.memory.track import memory_summary as memory_summary
from adjoint.memory.track import track as track

_LAZY = {"BudgetError": "planner", "BudgetReport": "budgeting", "SpillError": "spill",
         "auto": "chain_run", "budget": "budgeting", "checkpoint_chain": "chain_run",
         "compressed": "compression", "lean": "leaning",
         "saved_on_cpu": "offload", "saved_on_disk": "offload"}


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        return getattr(_importlib.import_module(f"adjoint.memory.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'adjoint.memory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
