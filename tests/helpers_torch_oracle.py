"""A pytest plugin that puts PyTorch in the place of adjoint, to check the tests themselves.

Use: `PYTHONPATH=tests python -m pytest -p helpers_torch_oracle tests/test_engine_backward.py`.
Every `import adjoint` of the test files then yields `torch`, `adjoint.nn` yields `torch.nn`, and so
on. A test that fails here expects something that PyTorch does not do; it must either be mended or
be marked `only_ours`.
"""

from __future__ import annotations

import sys
import types

import pytest

try:
    import torch
    import torch.utils.checkpoint  # noqa: F401  (so that the submodule is loaded and gets its alias)
except ModuleNotFoundError:  # collected as an ordinary module where PyTorch is not installed
    torch = None  # type: ignore[assignment]


def pytest_configure(config: pytest.Config) -> None:
    """Install the aliases before any test module is imported."""
    if torch is None:
        raise RuntimeError("helpers_torch_oracle needs PyTorch")
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and (name == "torch" or name.startswith("torch.")):
            sys.modules["adjoint" + name[len("torch") :]] = module
    for warning in (
        "__array_",
        ".torch.jit.script",
        "Using backward",
        "None of the inputs have requires_grad",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{warning}")  # PyTorch's own, not ours
