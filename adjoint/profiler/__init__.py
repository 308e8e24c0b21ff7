"""Where time, operations and bytes go: by op, source line and module; with PyTorch's names.

    with ad.profiler.profile(with_modules=True) as prof:
        step()
    print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    prof.export_chrome_trace("trace.json")      # ui.perfetto.dev or chrome://tracing
"""
from __future__ import annotations

from adjoint.profiler.events import DeviceType as DeviceType
from adjoint.profiler.events import EventList as EventList
from adjoint.profiler.events import FunctionEvent as FunctionEvent
from adjoint.profiler.events import FunctionEventAvg as FunctionEventAvg
from adjoint.profiler.recorder import record_function as record_function
from adjoint.profiler.session import ProfilerAction as ProfilerAction
from adjoint.profiler.session import ProfilerActivity as ProfilerActivity
from adjoint.profiler.session import profile as profile
from adjoint.profiler.session import schedule as schedule
from adjoint.profiler.session import supported_activities as supported_activities
from adjoint.profiler.session import tensorboard_trace_handler as tensorboard_trace_handler

__all__ = ["DeviceType", "EventList", "FunctionEvent", "FunctionEventAvg", "ProfilerAction",
           "ProfilerActivity", "profile", "record_function", "schedule", "supported_activities",
           "tensorboard_trace_handler"]


def kineto_available() -> bool:
    """False: PyTorch's native profiler is not here; this one measures by itself."""
    return False
