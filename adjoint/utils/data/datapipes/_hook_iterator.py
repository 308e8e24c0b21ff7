"""What surrounds the `__iter__` of a pipe: `reset`, one valid iterator, and errors that say where.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from adjoint.base.errors import AutogradError


def _value(value: Any) -> str:
    named = getattr(value, "__name__", None) if callable(value) else None
    return str(named) if isinstance(named, str) else repr(value)


def description(pipe: Any) -> str:
    """A pipe and the arguments that it keeps under their own names."""
    names = sorted(n for n in inspect.signature(type(pipe).__init__).parameters
                   if n in pipe.__dict__)
    return f"{type(pipe).__name__}({', '.join(f'{n}={_value(pipe.__dict__[n])}' for n in names)})"


def _check(pipe: Any, number: int) -> None:
    if number != pipe._valid_iterator_id:
        raise AutogradError(
            "This iterator has been invalidated because another iterator has been created from "
            f"the same IterDataPipe: {description(pipe)}\nThis may be caused by multiple "
            "references to the same IterDataPipe. We recommend using `.fork()` if that is "
            "necessary.")


def _tell(error: Exception, pipe: Any) -> None:
    """Say in the error's text which pipe it left."""
    words = f"This exception is thrown by __iter__ of {description(pipe)}"
    first = error.args[0] if error.args else ""
    if words not in str(first):
        text = f"{first}\n{words}" if isinstance(first, str) and first else (
            words if not error.args else f"\n{words}")
        error.args = (text, *error.args[1:])


def _begin(pipe: Any) -> int:
    pipe._valid_iterator_id += 1
    pipe._number_of_samples_yielded = 0
    pipe.reset()
    return int(pipe._valid_iterator_id)


class IteratorDecorator:
    """The iterator that an `__iter__` without `yield` gave, while it is the valid one."""

    def __init__(self, iterator: Any, pipe: Any, number: int) -> None:
        self.iterator, self.source_dp, self.iterator_id = iterator, pipe, number

    def __iter__(self) -> IteratorDecorator:
        return self

    def __next__(self) -> Any:
        _check(self.source_dp, self.iterator_id)
        found = next(self.iterator)
        self.source_dp._number_of_samples_yielded += 1
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.iterator, name)


def hooked(function: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """The `__iter__` of a pipe, with all that around it."""
    if not inspect.isgeneratorfunction(function):
        @wraps(function)
        def begin(self: Any) -> Any:
            number = _begin(self)
            return IteratorDecorator(function(self), self, number)
        return begin

    @wraps(function)
    def run(self: Any) -> Iterator[Any]:
        number = _begin(self)
        source = function(self)
        try:
            for item in source:
                self._number_of_samples_yielded += 1
                yield item
                _check(self, number)
        except Exception as error:
            if number == self._valid_iterator_id:
                _tell(error, self)
            raise
        finally:
            source.close()
    return run
