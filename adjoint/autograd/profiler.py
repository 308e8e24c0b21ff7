"""`torch.autograd.profiler`: the profiler under its older name and with its older switches."""
from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from adjoint import profiler as _profiler
from adjoint.base.errors import AutogradError, NotSupported
from adjoint.core.modes import warn_as_pytorch
from adjoint.profiler import kineto_available as kineto_available
from adjoint.profiler import record_function as record_function
from adjoint.profiler.events import EventList as EventList
from adjoint.profiler.events import FunctionEvent as FunctionEvent
from adjoint.profiler.events import FunctionEventAvg


class profile(_profiler.profile):
    """`adjoint.profiler.profile`, which nothing but `enabled` switches off. It can be entered
    once.

    `use_cuda` and `use_device` ask for devices that are not here, and `use_kineto` for another way
    of measuring; they are accepted and change nothing.

    >>> import adjoint as ad
    >>> with profile(enabled=False) as off:
    ...     y = ad.ones(2).exp()
    >>> len(off.key_averages())
    0
    >>> with profile() as prof:
    ...     y = ad.ones(2).exp()
    >>> [event.name for event in prof.function_events]
    ['aten::exp']
    """

    def __init__(self, enabled: bool = True, *, use_cuda: bool = False, use_device: Any = None,
                 record_shapes: bool = False, with_flops: bool = False,
                 profile_memory: bool = False, with_stack: bool = False,
                 with_modules: bool = False, use_kineto: bool = False, use_cpu: bool = True,
                 **ignored: Any) -> None:
        super().__init__(record_shapes=record_shapes, profile_memory=profile_memory,
                         with_stack=with_stack, with_flops=with_flops, with_modules=with_modules)
        self.enabled = enabled
        if use_cuda:
            warn_as_pytorch("The attribute `use_cuda` will be deprecated soon, please use "
                            "``use_device = 'cuda'`` instead.", FutureWarning)
        if use_cuda or use_device == "cuda":
            warn_as_pytorch("CUDA is not available, disabling CUDA profiling")

    def __enter__(self) -> profile:
        if self._began:
            raise AutogradError("Profiler context manager is not reentrant: make another profile() "
                                "for the second recording")
        if self.enabled:
            super().__enter__()
        self._began = True
        return self

    def __exit__(self, *exc: object) -> None:
        if self.enabled:
            super().__exit__(*exc)

    @property
    def function_events(self) -> EventList:
        """`events()`."""
        return self.events()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events."""
        return self.key_averages().self_cpu_time_total

    def total_average(self) -> FunctionEventAvg:
        """All events as one."""
        return self.key_averages().total_average()

    def table(self, **options: Any) -> str:
        """The averages as text (see `EventList.table`)."""
        return self.key_averages().table(**options)

    def __repr__(self) -> str:
        return self.table() if self._began else "<unfinished torch.autograd.profile>"

    __str__ = __repr__


class emit_nvtx(nullcontext[None]):
    """Marks for the profiler of CUDA devices, which are not here: making one raises, unless it is
    switched off (`enabled=False`)."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        super().__init__()
        if enabled:
            raise NotSupported(
                f"profiler.{type(self).__name__}: there is no such profiler here; profile() "
                "measures on the cpu")


class emit_itt(emit_nvtx):
    """Marks for the profiler of another vendor, which is not here either."""


__all__ = ["profile", "record_function"]
