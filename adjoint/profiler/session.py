"""`profile`: when to record, what comes out of it, and the trace file."""
from __future__ import annotations

import enum
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from adjoint.base.errors import AssertedError, NotSupported
from adjoint.core.modes import warn_as_pytorch
from adjoint.profiler.events import EventList, FunctionEvent, averages
from adjoint.profiler.recorder import Recorder, record_function
from adjoint.profiler.trace import write_trace


class ProfilerActivity(enum.Enum):
    """What a profile can watch; here the CPU."""

    CPU = 0
    XPU = 1
    CUDA = 2


class ProfilerAction(enum.Enum):
    """What happens at a step of a schedule."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The activities that can be asked for.

    >>> supported_activities()
    {<ProfilerActivity.CPU: 0>}
    """
    return {ProfilerActivity.CPU}


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """Step number -> action: skip `skip_first` steps, then cycles of wait, warm-up and recording;
    `repeat` cycles, 0 for no end. The first cycle has no wait where `skip_first_wait` is not 0.

    >>> f = schedule(wait=1, warmup=1, active=2)
    >>> [f(i).name for i in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertedError(f"Invalid profiler schedule arguments: wait={wait}, warmup={warmup}, "
                            f"repeat={repeat} and skip_first={skip_first} must be 0 or more, "
                            f"active={active} at least 1")
    if warmup == 0:
        warn_as_pytorch("Profiler won't be using warmup, this can skew profiler results")
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first - (wait if skip_first_wait and step >= skip_first else 0)
        if step < 0 or repeat and step // cycle >= repeat:
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == cycle - 1 else ProfilerAction.RECORD
    return action


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None,
                              use_gzip: bool = False) -> Callable[[Any], None]:
    """An `on_trace_ready` that writes each recording to `dir_name`, where TensorBoard's profile
    page and Perfetto read it."""
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def handler(prof: Any) -> None:
        os.makedirs(dir_name, exist_ok=True)
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        prof.export_chrome_trace(os.path.join(dir_name, name))
    return handler


class profile:
    """Record ops, backward nodes, optimizer steps and spans of the calling thread.

    activities      accepted for PyTorch's sake: only the CPU is watched
    schedule        step number -> action (see `schedule`); call `step()` after each step
    on_trace_ready  called with this object at the end of each recording
    record_shapes   keep the shapes of operands; key_averages can group by them
    profile_memory  bytes allocated less bytes freed by each event, temporaries included
    with_stack      the source line of forward ops, for `by_line` (backward has it always)
    with_flops      FLOPs are always counted
    with_modules    an event for every module call
    acc_events      `events` and `key_averages` span all recordings of a schedule, not the last

    The other arguments of PyTorch's choose among its ways of measuring; they change nothing.
    Ops have PyTorch's names (``aten::mm``), backward nodes those of their `grad_fn`.

    Times are wall-clock microseconds. The counted bytes are operands read and results written,
    once each. A backward node's FLOPs follow from its forward (see `recorder`).

    >>> import adjoint as ad
    >>> a = ad.randn(64, 64, requires_grad=True)
    >>> with profile() as prof:
    ...     (a @ a).sum().backward()
    >>> row = next(r for r in prof.key_averages() if r.key == "aten::mm")
    >>> row.count, row.flops == 2 * 64**3
    (1, True)
    """

    def __init__(self, *, activities: Iterable[ProfilerActivity] | None = None,
                 schedule: Callable[[int], ProfilerAction] | None = None,
                 on_trace_ready: Callable[[profile], Any] | None = None,
                 record_shapes: bool = False, profile_memory: bool = False,
                 with_stack: bool = False, with_flops: bool = True, with_modules: bool = False,
                 experimental_config: Any = None, execution_trace_observer: Any = None,
                 acc_events: bool = False, use_cuda: bool | None = None,
                 custom_trace_id_callback: Callable[[], str] | None = None) -> None:
        if use_cuda is not None:
            warn_as_pytorch("`use_cuda` is deprecated, use `activities` argument instead",
                            FutureWarning)
        asked = set(activities) if activities is not None else supported_activities()
        if not asked & supported_activities():
            raise NotSupported(f"profile: activities {sorted(a.name for a in asked)} cannot be "
                               "recorded here; use ProfilerActivity.CPU")
        if activities is not None and ProfilerActivity.CUDA in asked:
            warn_as_pytorch("CUDA is not available, disabling CUDA profiling")
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_modules = with_stack, with_modules
        self.step_num = 0
        self._began = False
        self.metadata: dict[str, Any] = {}
        self._recorder: Recorder | None = None
        self._warm: Recorder | None = None
        self._last: Recorder = self._new()
        self._span: record_function | None = None
        self.acc_events = acc_events
        self._kept: list[FunctionEvent] = []    # of earlier recordings, with `acc_events`

    def _new(self) -> Recorder:
        return Recorder(self.record_shapes, self.profile_memory, self.with_stack,
                        self.with_modules)

    def _action(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)

    # -- when ----------------------------------------------------------------------------------
    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, as the schedule says for step 0."""
        self._began = True
        self._switch(self._action())

    def stop(self) -> None:
        """End; what is being recorded is complete."""
        self._close_span()
        if self._recorder is not None:
            self._finish()
        if self._warm is not None:
            self._warm.stop()
            self._warm = None

    def step(self) -> None:
        """A training step has ended: go on as the schedule says."""
        before = self._action()
        self._close_span()
        self.step_num += 1                  # before the handler: it names its files by the number
        if before is ProfilerAction.RECORD_AND_SAVE and self._recorder is not None:
            self._finish()
        self._switch(self._action())

    def _switch(self, action: ProfilerAction) -> None:
        recording = action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if self._warm is not None and action is not ProfilerAction.WARMUP:
            self._warm.stop()
            self._warm = None
        if action is ProfilerAction.WARMUP and self._warm is None:
            self._warm = self._new()
            self._warm.start()
        if recording and self._recorder is None:
            self._recorder = self._new()
            self._recorder.start()
        elif not recording and self._recorder is not None:
            self._finish()
        if recording and self.schedule is not None:
            self._span = record_function(f"ProfilerStep#{self.step_num}")
            self._span.__enter__()

    def _close_span(self) -> None:
        if self._span is not None:
            self._span.__exit__()
            self._span = None

    def _finish(self) -> None:
        recorder, self._recorder = self._recorder, None
        assert recorder is not None
        recorder.stop()
        self._last = recorder
        if self.acc_events:
            self._kept += recorder.events
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    # -- what ----------------------------------------------------------------------------------
    def events(self) -> EventList:
        """Every event of the last recording (with `acc_events`: of all), in order of its beginning.
        Raises `AssertionError` where nothing was started."""
        if not self._began:
            raise AssertedError("Profiler must be initialized before accessing events: enter it, "
                                "or call start()")
        current = (self._recorder or self._last).events
        if self.acc_events:
            current = self._kept + (self._recorder.events if self._recorder else [])
        return EventList(current, memory=self.profile_memory)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """Events by name (and by the shapes of operands, and by source line where
        `group_by_stack_n` is not 0; an op's overloads are one record here)."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write microseconds by source line, for programs that draw flame graphs (see
        `EventList.export_stacks`); needs with_stack=True."""
        if not self.with_stack:
            raise AssertedError("export_stacks() requires with_stack=True")
        self.events().export_stacks(path, metric)

    def by_line(self) -> EventList:
        """Ops and backward nodes by the line of the user's program that called them (forward ops
        need with_stack=True)."""
        return self._grouped(lambda e: e.line or None)

    def by_module(self) -> EventList:
        """Ops and backward nodes by the module that called them; "" for those outside of one."""
        return self._grouped(lambda e: e.module or "(no module)")

    def _grouped(self, key: Callable[[FunctionEvent], Any]) -> EventList:
        work = [e for e in self.events() if e.kind in ("op", "backward")]
        return averages(work, key, memory=self.profile_memory, shapes=False)

    def memory_timeline(self) -> list[tuple[float, int]]:
        """(microseconds, live bytes of arrays) after each event; needs profile_memory=True and
        the compiled allocator."""
        return (self._recorder or self._last).timeline

    def add_metadata(self, key: str, value: str) -> None:
        """A text that the trace file carries."""
        self.metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """A JSON text whose value the trace file carries."""
        self.metadata[key] = json.loads(value)

    def export_chrome_trace(self, path: str) -> None:
        """Write the trace as JSON for Perfetto and chrome://tracing; gzip for a name in .gz.

        Arrows lead from each op to its backward; live bytes are a counter track.
        """
        write_trace(path, self.events(), self.memory_timeline(), self.metadata)
