"""DataParallel for programs that use it: one device, so the batch is not split."""
from __future__ import annotations

from typing import Any

from adjoint.nn.modules.module import Module

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """Calls ``module`` on the whole batch: there is one device to spread it over.

    Its state_dict names begin with ``module.``, as programs expect.

    >>> import adjoint as ad
    >>> list(ad.nn.DataParallel(ad.nn.Linear(1, 1)).state_dict())
    ['module.weight', 'module.bias']
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None,
                 dim: int = 0) -> None:
        super().__init__()
        self.module = module
        self.device_ids: list[Any] = []
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None,
                  dim: int = 0, module_kwargs: dict[str, Any] | None = None) -> Any:
    """``module(*inputs, **module_kwargs)``: there is one device."""
    args = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*args, **(module_kwargs or {}))
