"""`torch.monitor`: events and statistics of a running program, told to handlers.

>>> told = []
>>> handle = register_event_handler(lambda event: told.append(event.name))
>>> log_event(Event("epoch", datetime.now(), {"loss": 0.5}))
>>> unregister_event_handler(handle)
>>> told
['epoch']
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from adjoint.base.errors import missing as _missing

__all__ = ["Aggregation", "Event", "EventHandlerHandle", "STAT_EVENT", "Stat",
           "TensorboardEventHandler", "data_value_t", "log_event", "register_event_handler",
           "unregister_event_handler"]
STAT_EVENT = "torch.monitor.Stat"


class data_value_t:
    """What an event holds: text, whole and broken numbers, truth values; for annotations."""


class Aggregation(Enum):
    """What a `Stat` tells of the numbers that it was given."""

    VALUE = 1
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6


VALUE, MEAN, COUNT = Aggregation.VALUE, Aggregation.MEAN, Aggregation.COUNT
SUM, MAX, MIN = Aggregation.SUM, Aggregation.MAX, Aggregation.MIN


class Event:
    """Something that happened: a name that all events of its kind have, when, and numbers or text.
    """

    def __init__(self, name: str, timestamp: datetime, data: Mapping[str, Any]) -> None:
        if not isinstance(name, str) or not isinstance(timestamp, datetime) or not isinstance(
                data, Mapping):
            raise TypeError("__init__(): incompatible constructor arguments: Event(name: str, "
                            "timestamp: datetime.datetime, data: Mapping[str, data_value_t]), got "
                            f"{name!r}, {timestamp!r}, {data!r}")
        for key, value in data.items():
            if not isinstance(key, str) or not isinstance(value, (str, float, int)):
                raise TypeError(f"Event: data[{key!r}] is a {type(value).__name__}; str, float, "
                                "int and bool can be logged")
        self.name, self.timestamp, self.data = name, timestamp, dict(data)


class EventHandlerHandle:
    """What `register_event_handler` gives, for `unregister_event_handler`."""

    def __init__(self, handler: Callable[[Event], Any]) -> None:
        self._handler = handler


_handlers: list[EventHandlerHandle] = []


def register_event_handler(callback: Callable[[Event], Any]) -> EventHandlerHandle:
    """Call `callback(event)` for every event from now on."""
    handle = EventHandlerHandle(callback)
    _handlers.append(handle)
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """Call it no more."""
    if handler in _handlers:
        _handlers.remove(handler)


def log_event(event: Event) -> None:
    """Tell all handlers of an event."""
    for handle in tuple(_handlers):
        handle._handler(event)


class Stat:
    """Sums up the numbers given to `add` over windows of time, and logs each window as an event.

    name          of the statistic; the event's data are "name.mean", "name.count", ...
    aggregations  which of them
    window_size   a timedelta: how long a window is
    max_samples   numbers of a window after which it is logged; later ones are left out

    >>> stat = Stat("loss", (Aggregation.MEAN, Aggregation.COUNT), timedelta(hours=1), 2)
    >>> stat.add(1), stat.add(3)
    (None, None)
    >>> stat.get()[Aggregation.MEAN], stat.count
    (2.0, 0)
    """

    def __init__(self, name: str, aggregations: Sequence[Aggregation], window_size: timedelta,
                 max_samples: int | None = None) -> None:
        self.name, self._kinds = name, sorted(set(aggregations), key=lambda a: -a.value)
        self._window, self._most = window_size.total_seconds(), max_samples
        self._lock = threading.Lock()
        self._samples: list[float] = []
        self._full = False               # max_samples came: what else this window has is left out
        self._told = self._values()
        self._number = self._now()

    def _now(self) -> int:
        """The number of the window of time that it is."""
        return int(time.time() / self._window) if self._window > 0 else time.time_ns()

    @property
    def count(self) -> int:
        """How many numbers this window has."""
        with self._lock:
            self._check()
            return len(self._samples)

    def _values(self) -> dict[Aggregation, float]:
        have = self._samples
        found = {VALUE: have[-1], COUNT: len(have), SUM: sum(have), MAX: max(have),
                 MIN: min(have), MEAN: sum(have) / len(have)} if have else {}
        return {kind: float(found.get(kind, 0.0)) for kind in self._kinds}

    def _close(self) -> None:
        """End the window: log it, and begin the next."""
        self._told = self._values()
        self._samples = []
        log_event(Event(STAT_EVENT, datetime.now(), {
            f"{self.name}.{kind.name.lower()}": value for kind, value in self._told.items()}))

    def _check(self) -> None:
        number = self._now()
        if number != self._number:
            self._number, self._full = number, False
            if self._samples:
                self._close()

    def add(self, v: float) -> None:
        """One number more; `max_samples` of them end the window."""
        with self._lock:
            self._check()
            if self._full:
                return
            self._samples.append(float(v))
            if self._most is not None and len(self._samples) >= self._most:
                self._full = True
                self._close()

    def get(self) -> dict[Aggregation, float]:
        """What the last finished window came to; zeros before there is one."""
        with self._lock:
            self._check()
            return dict(self._told)

    def __del__(self) -> None:
        if self.__dict__.get("_samples"):
            self._close()


class TensorboardEventHandler:
    """A handler that writes statistics as scalars to a `SummaryWriter`."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        if event.name == STAT_EVENT:
            for key, value in event.data.items():
                self._writer.add_scalar(key, value, walltime=event.timestamp.timestamp())


class _WaitCounter:
    """Counts nothing: a name for how long programs wait there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def guard(self) -> Any:
        """A context that changes nothing."""
        import contextlib

        return contextlib.nullcontext()


__getattr__ = _missing("adjoint.monitor")
