"""`torch.futures`: values that arrive later, set by another thread."""
from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from types import GenericAlias
from typing import Any

from adjoint.base.errors import ArgumentError, AssertedError, AutogradError

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A value that another thread sets once.

    >>> f = Future()
    >>> doubled = f.then(lambda done: done.value() * 2)
    >>> f.set_result(4)
    >>> doubled.wait()
    8
    """

    __class_getitem__: Any = classmethod(GenericAlias)        # Future[int], in annotations

    def __init__(self, *, devices: Any = None) -> None:
        if devices:
            raise ArgumentError("Future: PyTorch is not linked with support for cuda devices: "
                                "there are none but the cpu")
        self._held: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def done(self) -> bool:
        """True once there is a value or an error."""
        return self._held.done()

    def wait(self) -> Any:
        """The value, when it is there; raises the error that was set."""
        return self._held.result()

    def value(self) -> Any:
        """The value, which must be there."""
        if not self.done():
            raise RuntimeError("Future.value: there is no value yet; wait() waits for it")
        return self._held.result()

    def set_result(self, result: Any) -> None:
        """Give the value, once; what waits goes on."""
        self._finish(self._held.set_result, result)

    def _finish(self, give: Callable[[Any], None], result: Any) -> None:
        try:
            give(result)
        except concurrent.futures.InvalidStateError:
            raise AutogradError("Attempting to mark a completed Future as complete again. Note "
                                "that a Future can only be marked completed once.") from None

    def set_exception(self, result: BaseException) -> None:
        """Give an error in place of the value."""
        if not isinstance(result, BaseException):
            raise AssertedError(f"{result} is of type {type(result)}, not an Exception.")
        self._finish(self._held.set_exception, result)

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call `callback(self)` when it is done, at once if it is."""
        _callable("add_done_callback", callback)
        self._held.add_done_callback(lambda _: callback(self))

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """The future of `callback(self)`, called when this one is done."""
        _callable("then", callback)
        after = Future()

        def run(done: Future) -> None:
            try:
                after.set_result(callback(done))
            except Exception as error:
                words = f"{type(error).__name__}: {error}"
                after.set_exception(_callback_error(type(error))(
                    f"Got the following error when running the callback: {words}"))
        self.add_done_callback(run)
        return after


def _callable(name: str, callback: Any) -> None:
    if not callable(callback):
        raise TypeError(f"{name}(): incompatible function arguments: a function of the future is "
                        f"needed, got {callback!r}")


def _callback_error(kind: type[Exception]) -> Any:
    """A RuntimeError that is of the callback's own class too, where both go together."""
    try:
        return type(kind.__name__, (AutogradError, kind), {"__module__": kind.__module__})
    except TypeError:
        return AutogradError


def collect_all(futures: Sequence[Future]) -> Future:
    """The future of the list of all of them, once all are done."""
    if not isinstance(futures, Sequence):
        raise TypeError("_collect_all(): incompatible function arguments: a sequence of futures "
                        f"is needed, got {futures!r}")
    every, left = Future(), [len(futures)]
    if not futures:
        every.set_result([])
    lock = threading.Lock()

    def count(_: Future) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            every.set_result(list(futures))
    for future in futures:
        future.add_done_callback(count)
    return every


def wait_all(futures: Sequence[Future]) -> list[Any]:
    """The values of all of them; raises the first error."""
    return [future.wait() for future in collect_all(futures).wait()]
