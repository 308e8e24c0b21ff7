"""`torch.futures`: values that arrive later, set by another thread."""
from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from types import GenericAlias
from typing import Any

from adjoint.base.errors import ArgumentError

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
            raise ArgumentError("Future: there are no devices but the cpu")
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
        self._held.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Give an error in place of the value."""
        if not isinstance(result, BaseException):
            raise TypeError(f"{result} is of type {type(result)}, not an Exception.")
        self._held.set_exception(result)

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call `callback(self)` when it is done, at once if it is."""
        self._held.add_done_callback(lambda _: callback(self))

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """The future of `callback(self)`, called when this one is done."""
        after = Future()

        def run(done: Future) -> None:
            try:
                after.set_result(callback(done))
            except Exception as error:
                after.set_exception(error)
        self.add_done_callback(run)
        return after


def collect_all(futures: Sequence[Future]) -> Future:
    """The future of the list of all of them, once all are done."""
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
