"""`jax.monitoring`: events by name, told to the functions that listen."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.base.errors import missing as _missing

F = Callable[..., Any]
_LISTENERS: dict[str, list[F]] = {"event": [], "duration": [], "span": [], "scalar": []}


def _told(kind: str, *args: Any, **kwargs: Any) -> None:
    for f in tuple(_LISTENERS[kind]):
        f(*args, **kwargs)


def record_event(event: str, **kwargs: str | int) -> None:
    """Tell the listeners of an event.

    >>> from adjoint.jax import monitoring
    >>> monitoring.register_event_listener(lambda name, **how: print(name, how))
    >>> monitoring.record_event("/step", at=3)
    /step {'at': 3}
    >>> monitoring.clear_event_listeners()
    """
    _told("event", event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Tell of an event that took so many seconds."""
    _told("duration", event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float,
                           **kwargs: str | int) -> None:
    """Tell of an event that lasted from one time to another."""
    _told("span", event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """Tell of a number."""
    _told("scalar", event, value, **kwargs)


def _of(kind: str, name: str) -> tuple[F, F]:
    def register(callback: F) -> None:
        """Call the function at every such event."""
        _LISTENERS[kind].append(callback)

    def unregister(callback: F) -> None:
        """Call it no more; AssertionError for one that does not listen."""
        assert callback in _LISTENERS[kind], f"{callback!r} is not registered"
        _LISTENERS[kind].remove(callback)
    register.__name__, unregister.__name__ = f"register_{name}", f"unregister_{name}"
    return register, unregister


register_event_listener, unregister_event_listener = _of("event", "event_listener")
register_event_duration_secs_listener, unregister_event_duration_listener = _of(
    "duration", "event_duration_secs_listener")
register_event_time_span_listener, unregister_event_time_span_listener = _of(
    "span", "event_time_span_listener")
register_scalar_listener, unregister_scalar_listener = _of("scalar", "scalar_listener")


def clear_event_listeners() -> None:
    """Forget all listeners."""
    for listeners in _LISTENERS.values():
        listeners.clear()


__all__ = ["clear_event_listeners", "record_event", "record_event_duration_secs",
           "record_event_time_span", "record_scalar", "register_event_duration_secs_listener",
           "register_event_listener", "register_event_time_span_listener",
           "register_scalar_listener", "unregister_event_duration_listener",
           "unregister_event_listener", "unregister_event_time_span_listener",
           "unregister_scalar_listener"]
__getattr__ = _missing("adjoint.jax.monitoring")
