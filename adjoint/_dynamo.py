"""`torch._dynamo` and `torch._inductor`: what programs set before they call `compile`.

Programs run operation by operation, so that the settings are noted and nothing reads them; what
`compile` makes of a module is an `OptimizedModule`, whose names in `state_dict` are PyTorch's.
"""
from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

from adjoint.backends import Switches
from adjoint.compiler import allow_in_graph as allow_in_graph
from adjoint.compiler import assume_constant_result as assume_constant_result
from adjoint.compiler import disable as disable
from adjoint.compiler import is_compiling as is_compiling
from adjoint.compiler import list_backends as list_backends
from adjoint.compiler import reset as reset
from adjoint.nn.modules.compiled import OptimizedModule as OptimizedModule

eval_frame = sys.modules[__name__]     # where PyTorch defines OptimizedModule
config = Switches(f"{__name__}.config", suppress_errors=False, cache_size_limit=8)
__path__: list[str] = []               # a package, so that `import adjoint._dynamo.config` is one


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Nothing: a hint to PyTorch's compiler about a tensor."""


def mark_dynamic(t: Any, index: Any, **hints: Any) -> None:
    """Nothing: a hint to PyTorch's compiler about sizes of a tensor."""


mark_static = maybe_mark_dynamic = mark_dynamic


class TransformGetItemToIndex(nullcontext[None]):
    """Within it, PyTorch's compiler takes numbers of a `vmap` for indices. They are, everywhere."""
