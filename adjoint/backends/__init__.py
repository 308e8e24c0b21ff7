"""Switches of back-ends that are not here: they can be set, and change nothing.

Each is a module, as programs import them: `import adjoint.backends.cudnn as cudnn`.
"""
from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

from adjoint.core.modes import warn_as_pytorch


class Switches(ModuleType):
    """The module `name`, whose attributes may be set freely; what is not set is False."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name, Switches.__doc__)
        self.__dict__.update(known)
        sys.modules[self.__name__] = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return False

    def is_available(self) -> bool:
        """False: the back-end is not part of this package."""
        return False

    def is_built(self) -> bool:
        """False."""
        return False

    def is_acceptable(self, tensor: Any) -> bool:
        """False: no tensor is computed by it."""
        return False

    def version(self) -> None:
        """None: there is no library whose version could be told."""

    @contextmanager
    def flags(self, **switches: Any) -> Iterator[None]:
        """The switches as given within the context, and as they were behind it."""
        before = dict(self.__dict__)
        self.__dict__.update({k: v for k, v in switches.items() if v is not None})
        try:
            yield
        finally:
            for name in switches:
                self.__dict__.pop(name, None)
            self.__dict__.update({k: before[k] for k in switches if k in before})


class _Attention(Switches):
    """The switches of attention kernels. There is one kernel, so that none of them chooses."""

    def enable_flash_sdp(self, enabled: bool) -> None:
        """Noted by nobody."""

    enable_math_sdp = enable_mem_efficient_sdp = enable_cudnn_sdp = enable_flash_sdp

    def flash_sdp_enabled(self) -> bool:
        """True: attention is always computed in tiles."""
        return True

    math_sdp_enabled = mem_efficient_sdp_enabled = cudnn_sdp_enabled = flash_sdp_enabled

    def sdp_kernel(self, enable_flash: bool = True, enable_math: bool = True,
                   enable_mem_efficient: bool = True, enable_cudnn: bool = True
                   ) -> AbstractContextManager[None]:
        """A `with` that changes nothing, deprecated: `nn.attention.sdpa_kernel`."""
        warn_as_pytorch("`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this "
                        "context manager will be removed. Please see `torch.nn.attention."
                        "sdpa_kernel()` for the new context manager.", FutureWarning)
        return nullcontext()


def disable_global_flags() -> None:
    """Nothing to protect: the switches change nothing."""


def __allow_nonbracketed_mutation() -> AbstractContextManager[None]:
    """A `with` that changes nothing: the switches may be set at any time."""
    return nullcontext()


def _switches(name: str, **known: Any) -> Switches:
    return Switches(f"{__name__}.{name}", **known)


cudnn = _switches("cudnn", benchmark=False, deterministic=False, enabled=False, allow_tf32=False,
                  benchmark_limit=10, fp32_precision="none",
                  conv=_switches("cudnn.conv", fp32_precision="none"),
                  rnn=_switches("cudnn.rnn", fp32_precision="none"))
cuda = _Attention(f"{__name__}.cuda", matmul=_switches("cuda.matmul", allow_tf32=False,
                                                       fp32_precision="none"))
cpu, mps, mkl, openmp = (_switches(name) for name in ("cpu", "mps", "mkl", "openmp"))
mkldnn = _switches("mkldnn", enabled=False,
                   matmul=_switches("mkldnn.matmul", fp32_precision="none"),
                   conv=_switches("mkldnn.conv", fp32_precision="none"),
                   rnn=_switches("mkldnn.rnn", fp32_precision="none"))
opt_einsum = _switches("opt_einsum", enabled=False, strategy=None)
quantized = _switches("quantized", engine="none", supported_engines=["none"])
xnnpack = _switches("xnnpack", enabled=False)
cusparselt = _switches("cusparselt")
