"""What classes say of where they come from, in a process where this package is `torch`.

`print(type(layer))` is `<class 'torch.nn.modules.linear.Linear'>` there, and a pickle of a whole
module names the class so, which PyTorch can read. So every class takes PyTorch's module as its own
when the module that defines it is loaded. `adjoint.a.b` becomes `torch.a.b`; listed are the modules
whose classes are elsewhere in PyTorch, and single classes.
"""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import FunctionType, ModuleType
from typing import Any

# What stands in no module of PyTorch keeps its name, so that errors and helpers are found here.
OURS = ("adjoint.base", "adjoint.cli", "adjoint.core", "adjoint.hips", "adjoint.inspect",
        "adjoint.io", "adjoint.jax", "adjoint.kernels", "adjoint.memory", "adjoint.models",
        "adjoint.numpy", "adjoint.ops", "adjoint.interop", "adjoint.testing")

# Their public classes; helpers (`_Lambdas`) stay where they are.
MODULES = {
    "adjoint.autograd.modes": "torch.autograd.grad_mode",
    "adjoint.distributed.collectives": "torch.distributed.distributed_c10d",
    "adjoint.distributed.group": "torch.distributed.distributed_c10d",
    "adjoint.distributions._transform_base": "torch.distributions.transforms",
    "adjoint.futures": "torch.jit",
    "adjoint.fx.rewriter": "torch.fx.subgraph_rewriter",
    "adjoint.nn.modules.attention": "torch.nn.modules.activation",
    "adjoint.nn.modules.script": "torch",
    "adjoint.ops.device": "torch",
    "adjoint.optim._adafactor": "torch.optim",
    "adjoint.optim._muon": "torch.optim",
    "adjoint.optim._schedule": "torch.optim.lr_scheduler",
    "adjoint.optim._schedules_cycle": "torch.optim.lr_scheduler",
    "adjoint.optim._schedules_joined": "torch.optim.lr_scheduler",
    "adjoint.optim._schedules_simple": "torch.optim.lr_scheduler",
    "adjoint.profiler.events": "torch.autograd.profiler_util",
    "adjoint.profiler.session": "torch.profiler.profiler",
    "adjoint.utils.tensorboard": "torch.utils.tensorboard.writer",
}

CLASSES = {
    **{f"adjoint.base.dtypes.{name}": "torch" for name in ("DType", "finfo", "iinfo")},
    **{f"adjoint.compiler.{name}": "torch" for name in ("SymBool", "SymFloat", "SymInt")},
    "adjoint.core.tensor.Size": "torch",
    "adjoint.core.tensor.Tensor": "torch",
    "adjoint.core.tensor.Parameter": "torch.nn.parameter",
    "adjoint.core.node.GraphNode": "torch.autograd.graph",
    "adjoint.core.node.GradientEdge": "torch.autograd.graph",
    "adjoint.core.node.RemovableHandle": "torch.utils.hooks",
    "adjoint.autograd.anomaly.detect_anomaly": "torch.autograd.anomaly_mode",
    "adjoint.autograd.anomaly.set_detect_anomaly": "torch.autograd.anomaly_mode",
    "adjoint.autograd.modes.Decorating": "torch.utils._contextlib",
    "adjoint.autograd.checkpoint.CheckpointError": "torch.utils.checkpoint",
    "adjoint.autograd.selective.CheckpointPolicy": "torch.utils.checkpoint",
    "adjoint.autograd.selective.SelectiveCheckpointContext": "torch.utils.checkpoint",
    "adjoint.distributions.distribution.ExponentialFamily": "torch.distributions.exp_family",
    "adjoint.io.options.LoadEndianness": "torch.serialization",
    "adjoint.io.options.set_default_mmap_options": "torch.serialization",
    "adjoint.io.options.skip_data": "torch.serialization",
    **{f"adjoint.utils.data.datapipes.iter.files.{name}IterDataPipe":
       f"torch.utils.data.datapipes.iter.{name.lower()}"
       for name in ("FileLister", "FileOpener", "RoutedDecoder", "StreamReader")},
    **{f"adjoint.utils.data.datapipes.map.{name}": f"torch.utils.data.datapipes.map.{home}"
       for name, home in (("MapperMapDataPipe", "callable"), ("BatcherMapDataPipe", "grouping"),
                          ("ShufflerIterDataPipe", "combinatorics"),
                          ("ConcaterMapDataPipe", "combining"), ("ZipperMapDataPipe", "combining"),
                          ("SequenceWrapperMapDataPipe", "utils"))},
    "adjoint.nn.modules._state._IncompatibleKeys": "torch.nn.modules.module",
    "adjoint.ops.generator.Generator": "torch._C",
    "adjoint.profiler.recorder.record_function": "torch.autograd.profiler",
}

# Public functions are written in many files; these modules show them, as PyTorch's do.
FUNCTIONS = ("adjoint.nn.functional", "adjoint.nn.init", "adjoint.nn.utils", "adjoint.func",
             "adjoint.autograd", "adjoint.linalg", "adjoint.fft", "adjoint.serialization",
             "adjoint")


def home(module: str, name: str) -> str:
    """The module that a class of this package says it is of, in PyTorch's terms.

    >>> home("adjoint.nn.modules.linear", "Linear")
    'torch.nn.modules.linear'
    """
    public = "" if name.startswith("_") else MODULES.get(module)
    found = CLASSES.get(f"{module}.{name}") or public
    if found or any(module == m or module.startswith(m + ".") for m in OURS):
        return found or module
    top = "adjoint.vision" if (module + ".").startswith("adjoint.vision.") else "adjoint"
    return ("torchvision" if top.endswith("vision") else "torch") + module.removeprefix(top)


def _rename(module: ModuleType) -> None:
    if module.__name__ in FUNCTIONS:
        for name, value in vars(module).items():
            if (isinstance(value, FunctionType) and value.__name__ == name
                    and value.__module__.startswith("adjoint.")):
                value.__module__ = "torch" + module.__name__.removeprefix("adjoint")
    for value in [v for v in vars(module).values() if isinstance(v, type)]:
        if value.__module__.partition(".")[0] == "adjoint":
            value.__module__ = home(value.__module__, value.__qualname__)


class _Renaming(importlib.machinery.SourceFileLoader):
    """Loads a module of this package; its classes then say where they are in PyTorch."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _rename(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds this package's modules where they are, and loads them so."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("adjoint."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _Renaming(spec.loader.name, spec.loader.path)
        return spec


def move_in() -> None:
    """From now on in this process, for the modules that are loaded and those to come."""
    if any(isinstance(f, _Finder) for f in sys.meta_path):
        return
    for name in (*FUNCTIONS, *sys.modules):
        module = sys.modules.get(name) if name.partition(".")[0] == "adjoint" else None
        if module is not None and getattr(module, "__name__", None) == name:
            _rename(module)
    sys.meta_path.insert(0, _Finder())
