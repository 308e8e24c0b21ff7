"""Helpers around training: data (`adjoint.utils.data`), checkpointing, plots."""
import importlib
from typing import Any

from adjoint.base.errors import MissingName
from adjoint.core.swap import swap_tensors as swap_tensors

_PARTS = ("_contextlib", "_python_dispatch", "_pytree", "backend_registration", "benchmark",
          "checkpoint", "collect_env", "cpp_extension", "data", "dlpack", "flop_counter",
          "hooks", "model_zoo", "module_tracker", "plot", "serialization", "tensorboard",
          "weak")


def __getattr__(name: str) -> Any:
    """The parts load when they are first used."""
    if name in _PARTS:
        try:
            return importlib.import_module(f"adjoint.utils.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"adjoint.utils.{name}":
                raise
    raise MissingName("module 'adjoint.utils'", name, lambda: _PARTS)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PARTS})
