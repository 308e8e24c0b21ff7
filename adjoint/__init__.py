"""Adjoint: automatic differentiation for Python, with PyTorch's names and JAX's transforms."""
from __future__ import annotations

import warnings as _warnings

from adjoint import autograd as autograd
from adjoint import ops as ops
from adjoint import tensor as _surface
from adjoint.autograd.modes import (
    enable_grad as enable_grad,
)
from adjoint.autograd.modes import (
    inference_mode as inference_mode,
)
from adjoint.autograd.modes import (
    is_grad_enabled as is_grad_enabled,
)
from adjoint.autograd.modes import (
    is_inference_mode_enabled as is_inference_mode_enabled,
)
from adjoint.autograd.modes import (
    no_grad as no_grad,
)
from adjoint.autograd.modes import (
    set_grad_enabled as set_grad_enabled,
)
from adjoint.base.dtypes import DType as dtype
from adjoint.base.dtypes import (
    bfloat16 as bfloat16,
)
from adjoint.core.tensor import Parameter as Parameter
from adjoint.core.tensor import Size as Size
from adjoint.core.tensor import Tensor as Tensor
from adjoint.ops import public as _public
from adjoint.ops.device import device as device
from adjoint.ops.random import Generator as Generator
from adjoint.ops.random import fork_rng as fork_rng

__version__ = "0.1.0"

# NumPy warns where IEEE arithmetic overflows or divides by zero; a framework's users look at
# the values instead. Only warnings raised from this package's own frames are silenced.
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"adjoint(\.|$)")

_surface.attach_registry()
globals().update(_public.FUNCTIONS)
