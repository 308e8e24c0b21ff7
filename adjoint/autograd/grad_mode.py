"""PyTorch's module name for `autograd.modes`."""
from adjoint.autograd.modes import _force_original_view_tracking as _force_original_view_tracking
from adjoint.autograd.modes import (
    _unsafe_preserve_version_counter as _unsafe_preserve_version_counter,
)
from adjoint.autograd.modes import enable_grad as enable_grad
from adjoint.autograd.modes import enforce_grad_layout_policy as enforce_grad_layout_policy
from adjoint.autograd.modes import inference_mode as inference_mode
from adjoint.autograd.modes import no_grad as no_grad
from adjoint.autograd.modes import set_grad_enabled as set_grad_enabled
from adjoint.autograd.modes import set_multithreading_enabled as set_multithreading_enabled
