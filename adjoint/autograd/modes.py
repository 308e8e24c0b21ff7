"""no_grad, enable_grad, set_grad_enabled, inference_mode: context managers and decorators.

They change the state of the calling thread only. A generator function that is decorated runs
every one of its steps in the mode, and none of its caller's.
"""
from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Generator
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from adjoint.base import provenance
from adjoint.base.dtypes import DType
from adjoint.base.errors import DTypeError
from adjoint.core import modes
from adjoint.core.modes import ASKED, GRAD, INFERENCE, state, warn
from adjoint.core.tensor import Tensor, share_cell

F = TypeVar("F", bound=Callable[..., Any])


class Decorating:
    """Base of contexts that decorate functions too: each call runs within a fresh context, each
    step of a generator within one of its own."""

    def clone(self) -> Any:
        """A fresh context of the same kind: decorated functions may recurse."""
        return type(self)()

    def __call__(self, function: F) -> F:
        if inspect.isclass(function):
            warn("Decorating classes is deprecated and will be disabled in future versions. You "
                 "should only decorate functions or methods: decorate `__init__` and nothing else "
                 f"for what @{type(self).__name__}() does here", FutureWarning)
        if inspect.isgeneratorfunction(function):
            return self._generator(function)  # type: ignore[return-value]  # same signature

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)
        return wrapped  # type: ignore[return-value]  # same signature

    def _generator(self, function: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            generator = function(*args, **kwargs)
            send: Any = None
            throw: BaseException | None = None
            while True:
                try:
                    with self.clone():
                        if throw is not None:
                            error, throw = throw, None
                            item = generator.throw(error)
                        else:
                            item = generator.send(send)
                except StopIteration as stop:
                    return stop.value
                try:
                    send = yield item
                except GeneratorExit:
                    # The collector may close it in the middle of anyone's ContextVar.set, which
                    # up to Python 3.11 reads on in the mapping that a change here would free.
                    copy_context().run(self._close, generator)
                    raise
                except BaseException as error:
                    throw = error
        return wrapped

    def _close(self, generator: Generator[Any, Any, Any]) -> None:
        with self.clone():
            generator.close()


class _Mode(Decorating):
    """Base of the grad modes: enter and leave a change of state; decorate functions."""

    set_bits = 0
    clear_bits = 0

    def __init__(self) -> None:
        self._held: list[Any] = []

    def __enter__(self) -> Any:
        outer = state()
        opener = sys._getframe(1)
        if opener.f_code.co_filename == __file__:       # a decorated function's wrapper
            opener = opener.f_back or opener
        frame = provenance.user_frame(opener)
        place = (frame.f_code, frame.f_lasti) if frame is not None else (None, 0)
        self._held.append((modes.change(self.set_bits, self.clear_bits), outer, _places.get()))
        if self.clear_bits & GRAD:
            _places.set((type(self).__name__, place))
            if frame is opener:         # not where a constructor fills its weights, say
                _latest.set((type(self).__name__, place))
        return None

    def __exit__(self, *exc: object) -> None:
        token, outer, place = self._held.pop()
        modes.restore(token, outer)
        _places.set(place)


_places: ContextVar[Any] = ContextVar("adjoint_no_grad_place", default=None)
_latest: ContextVar[Any] = ContextVar("adjoint_no_grad_latest", default=None)


def opened() -> tuple[str, tuple[Any, int]] | None:
    """(mode, place) that switched gradients off in this thread, now or last; None if none did."""
    return _latest.get() if state() & GRAD else _places.get() or _latest.get()


def opened_at() -> str:
    """`opened`, in words; "" if none did (F50)."""
    held = opened()
    if held is None:
        return ""
    name, place = held
    when = "last switched off" if state() & GRAD else "switched off"
    return f"gradients were {when} by {name} opened at {provenance.locate(*place)}"


class no_grad(_Mode):
    """Record nothing: results do not require a gradient. Context manager and decorator.

    >>> import adjoint as ad
    >>> x = ad.ones(2, requires_grad=True)
    >>> with ad.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    clear_bits = GRAD

    def __new__(cls, function: Any = None) -> Any:
        self = object.__new__(cls)
        if function is None:
            return self
        self.__init__()  # type: ignore[misc]  # decorator used without parentheses
        return self(function)

    def __init__(self, function: Any = None) -> None:
        super().__init__()


class enable_grad(no_grad):
    """Record again inside of `no_grad`. Context manager and decorator."""

    set_bits, clear_bits = GRAD, 0


class set_grad_enabled(_Mode):
    """Switch recording on or off at once; as a context manager, back at its end."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        if mode is not True and mode is not False:
            raise DTypeError("set_grad_enabled(): argument 'enabled' (position 1) must be bool, "
                             f"not {type(mode).__name__}")
        self.mode = mode
        self.set_bits, self.clear_bits = (GRAD, 0) if mode else (0, GRAD)
        outer = state()
        self._first: Any = (modes.change(self.set_bits, self.clear_bits), outer, _places.get())
        if not mode:
            frame = provenance.user_frame(sys._getframe(1))
            place = (frame.f_code, frame.f_lasti) if frame is not None else (None, 0)
            _places.set(("set_grad_enabled", place))
            _latest.set(("set_grad_enabled", place))

    def __repr__(self) -> str:
        return f"{DType.namespace}.autograd.grad_mode.set_grad_enabled(mode={self.mode})"

    def __enter__(self) -> Any:
        if self._first is None:
            return super().__enter__()
        self._held.append(self._first)
        self._first = None
        return None

    def __call__(self, function: F) -> F:
        if self._first is not None:                # a decorator changes nothing where it stands
            token, outer, place = self._first
            modes.restore(token, outer)
            _places.set(place)
            self._first = None
        return super().__call__(function)

    def clone(self) -> Any:
        fresh = set_grad_enabled.__new__(set_grad_enabled)
        _Mode.__init__(fresh)
        fresh.mode, fresh.set_bits, fresh.clear_bits = self.mode, self.set_bits, self.clear_bits
        fresh._first = None
        return fresh


class inference_mode(_Mode):
    """Like `no_grad`, and results carry no version counter: they may never enter a graph."""

    def __new__(cls, mode: Any = True) -> Any:
        self = object.__new__(cls)
        if isinstance(mode, bool):
            return self
        self.__init__(True)  # type: ignore[misc]  # decorator used without parentheses
        return self(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode
        self.set_bits, self.clear_bits = (INFERENCE, GRAD) if mode else (GRAD, INFERENCE)

    def clone(self) -> Any:
        return inference_mode(self.mode)


class set_multithreading_enabled(_Mode):
    """Noted, and changes nothing else: a backward runs in the thread that called it. A function, a
    context manager and a decorator, as `set_grad_enabled` is."""

    setting: ContextVar[bool] = ContextVar("adjoint_multithreading", default=True)

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.mode, self.before = mode, self.setting.get()
        self.setting.set(mode)

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.setting.set(self.before)

    def __call__(self, function: F) -> F:
        self.setting.set(self.before)              # a decorator changes nothing where it stands
        return super().__call__(function)

    def clone(self) -> Any:
        return type(self)(self.mode)


class _force_original_view_tracking(set_multithreading_enabled):
    """Inside, a view whose base was written to is made again by the ops that made it, rather than
    by one that shows its place."""

    setting = modes.VIEW_REPLAY


class enforce_grad_layout_policy(set_multithreading_enabled):
    """Whether the gradient of a leaf that is not in C order is laid out in memory as the leaf
    (default True), which spares optimizers time; else it is in C order. A function, a context
    manager and a decorator.

    >>> import adjoint as ad
    >>> x = ad.ones(2, 3).t().requires_grad_()
    >>> with ad.autograd.enforce_grad_layout_policy(False):
    ...     (x * ad.ones(3, 2)).sum().backward()
    >>> x.stride(), x.grad.stride()
    ((1, 3), (2, 1))
    """

    setting = modes.GRAD_LAYOUT


class _unsafe_preserve_version_counter:
    """What is written to these tensors inside of the block counts as no write."""

    def __init__(self, tensors: Any) -> None:
        self.tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        self.versions = [t._version for t in self.tensors]

    def __enter__(self) -> None:
        """The versions were taken when this object was made, as PyTorch does."""

    def __exit__(self, *_: Any) -> None:
        for t, version in zip(self.tensors, self.versions, strict=True):
            share_cell(t).version = version


def is_grad_enabled() -> bool:
    """True if ops are recorded in this thread now."""
    return bool(state() & (GRAD | ASKED))


def is_inference_mode_enabled() -> bool:
    """True inside of `inference_mode`."""
    return bool(state() & INFERENCE)


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` was last told in this thread; True where nothing was said.

    >>> import adjoint as ad
    >>> with ad.autograd.set_multithreading_enabled(False):
    ...     ad.autograd.is_multithreading_enabled()
    False
    """
    return set_multithreading_enabled.setting.get()


def is_view_replay_enabled() -> bool:
    """What `_force_original_view_tracking` was last told in this thread; False where nothing was
    said.

    >>> import adjoint as ad
    >>> ad.autograd.is_view_replay_enabled()
    False
    """
    return _force_original_view_tracking.setting.get()
