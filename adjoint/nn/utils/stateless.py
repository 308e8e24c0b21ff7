"""functional_call under its older path."""
from __future__ import annotations

from typing import Any

from adjoint.core.modes import warn_as_pytorch
from adjoint.func import modules


def functional_call(*args: Any, **kwargs: Any) -> Any:
    """`func.functional_call`, which takes the same arguments."""
    warn_as_pytorch("`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and"
                    " will be removed in a future version of PyTorch. Please use "
                    "`torch.func.functional_call` instead which is a drop-in replacement.",
                    FutureWarning)
    return modules.functional_call(*args, **kwargs)


__all__ = ["functional_call"]
