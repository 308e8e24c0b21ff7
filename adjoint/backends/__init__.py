"""Switches of back-ends that are not here: they can be set, and change nothing.

Each is a module, as programs import them: `import adjoint.backends.cudnn as cudnn`.
"""
from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from adjoint.core.modes import warn_as_pytorch
from adjoint.kernels.choose import report


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


class _CPU(Switches):
    def get_cpu_capability(self) -> str:
        """The vectors that kernels are compiled for: "AVX512", "AVX2" or "DEFAULT"."""
        return {512: "AVX512", 256: "AVX2"}.get(report()["vector_bits"], "DEFAULT")


class _OpenMP(Switches):
    def is_available(self) -> bool:
        """True: `set_num_threads` has an effect, whatever the threads are called."""
        return True


class _Verbose(Switches):
    """A library whose calls could be printed."""

    VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2

    def verbose(self, enable: int) -> AbstractContextManager[None]:
        """A `with` that changes nothing: no call of the library is made."""
        return nullcontext()


class _Fast(Switches):
    def get_fastpath_enabled(self) -> bool:
        """Whether attention layers may take a faster path in evaluation: noted, as there is one."""
        return bool(self.__dict__.get("fastpath", True))

    def set_fastpath_enabled(self, value: bool) -> None:
        """Note it."""
        self.__dict__["fastpath"] = value


class SDPAParams(NamedTuple):
    """What attention would be called with, for `backends.cuda.can_use_flash_attention`."""

    query: Any
    key: Any
    value: Any
    attn_mask: Any
    dropout: float
    is_causal: bool
    enable_gqa: bool


class _Attention(Switches):
    """The switches of attention kernels. There is one kernel, so that none of them chooses."""

    SDPAParams = SDPAParams

    def can_use_flash_attention(self, params: Any, debug: bool = False) -> bool:
        """False: there is no GPU."""
        return False

    can_use_efficient_attention = can_use_cudnn_attention = can_use_flash_attention

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name, **known)
        self._kernels = dict.fromkeys(("flash", "math", "mem_efficient", "cudnn"), True)
        for kernel in self._kernels:
            vars(self)[f"enable_{kernel}_sdp"] = partial(self._kernels.__setitem__, kernel)
            vars(self)[f"{kernel}_sdp_enabled"] = partial(self._kernels.__getitem__, kernel)

    @contextmanager
    def only(self, **kernels: bool) -> Iterator[None]:
        """Kernels that may be chosen within the context: noted, as there is one."""
        before = dict(self._kernels)
        self._kernels.update(kernels)
        try:
            yield
        finally:
            self._kernels.update(before)

    def sdp_kernel(self, enable_flash: bool = True, enable_math: bool = True,
                   enable_mem_efficient: bool = True, enable_cudnn: bool = True
                   ) -> AbstractContextManager[None]:
        """A `with` that notes what it is given, deprecated: `nn.attention.sdpa_kernel`."""
        warn_as_pytorch("`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this "
                        "context manager will be removed. Please see `torch.nn.attention."
                        "sdpa_kernel()` for the new context manager.", FutureWarning)
        return self.only(flash=enable_flash, math=enable_math,
                         mem_efficient=enable_mem_efficient, cudnn=enable_cudnn)


fp32_precision = "none"                 # noted, as the switches of each back-end


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
cpu, openmp = _CPU(f"{__name__}.cpu"), _OpenMP(f"{__name__}.openmp")
mha, mkl = _Fast(f"{__name__}.mha"), _Verbose(f"{__name__}.mkl")
mps, nnpack, miopen, kleidiai = (_switches(n) for n in ("mps", "nnpack", "miopen", "kleidiai"))
mkldnn = _Verbose(f"{__name__}.mkldnn", enabled=False,
                   matmul=_switches("mkldnn.matmul", fp32_precision="none"),
                   conv=_switches("mkldnn.conv", fp32_precision="none"),
                   rnn=_switches("mkldnn.rnn", fp32_precision="none"))
opt_einsum = _switches("opt_einsum", enabled=False, strategy=None)
quantized = _switches("quantized", engine="none", supported_engines=["none"])
xnnpack = _switches("xnnpack", enabled=False)
cusparselt = _switches("cusparselt")
