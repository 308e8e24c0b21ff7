"""Switches of back-ends that are not here: they can be set, and change nothing.

Each is a module, as programs import them: `import adjoint.backends.cudnn as cudnn`.
"""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any


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

    def version(self) -> None:
        """None: there is no library whose version could be told."""

    @contextlib.contextmanager
    def flags(self, **settings: Any) -> Iterator[None]:
        """Settings for the length of a `with`."""
        before = {key: getattr(self, key) for key in settings}
        self.__dict__.update(settings)
        try:
            yield
        finally:
            self.__dict__.update(before)


class _Attention(Switches):
    """The switches of attention kernels. There is one kernel, so that none of them chooses."""

    def enable_flash_sdp(self, enabled: bool) -> None:
        """Noted by nobody."""

    enable_math_sdp = enable_mem_efficient_sdp = enable_cudnn_sdp = enable_flash_sdp

    def flash_sdp_enabled(self) -> bool:
        """True: attention is always computed in tiles."""
        return True

    math_sdp_enabled = mem_efficient_sdp_enabled = cudnn_sdp_enabled = flash_sdp_enabled

    @contextlib.contextmanager
    def sdp_kernel(self, enable_flash: bool = True, enable_math: bool = True,
                   enable_mem_efficient: bool = True, enable_cudnn: bool = True) -> Iterator[None]:
        """A `with` that changes nothing."""
        yield


cudnn = Switches(f"{__name__}.cudnn", benchmark=False, deterministic=False, enabled=False,
                 allow_tf32=False, benchmark_limit=10, fp32_precision="none")
cuda = _Attention(f"{__name__}.cuda",
                  matmul=Switches(f"{__name__}.cuda.matmul", allow_tf32=False))
cpu = Switches(f"{__name__}.cpu")
mps = Switches(f"{__name__}.mps")
mkldnn = Switches(f"{__name__}.mkldnn", enabled=False)
mkl = Switches(f"{__name__}.mkl")
openmp = Switches(f"{__name__}.openmp")
opt_einsum = Switches(f"{__name__}.opt_einsum", enabled=False, strategy=None)
quantized = Switches(f"{__name__}.quantized", engine="none", supported_engines=["none"])
xnnpack = Switches(f"{__name__}.xnnpack", enabled=False)
