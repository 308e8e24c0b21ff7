"""Decorators of pipes: names for their functional form, and promises about their order."""
from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from adjoint.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = ["argument_validation", "functional_datapipe", "guaranteed_datapipes_determinism",
           "non_deterministic", "runtime_validation", "runtime_validation_disabled"]


class functional_datapipe:
    """Class decorator: the pipe is also the method `name` of the pipes of its kind.

    >>> from adjoint.utils.data import IterDataPipe
    >>> @functional_datapipe("twice_doc")
    ... class Twice(IterDataPipe):
    ...     def __init__(self, source): self.source = source
    ...     def __iter__(self):
    ...         for item in self.source: yield 2 * item
    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([1, 2]).twice_doc())
    [2, 4]
    """

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name, self.enable_df_api_tracing = name, enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        kind: Any = MapDataPipe
        if not isinstance(cls, type):
            if not isinstance(cls, non_deterministic) and not hasattr(cls, "cls"):
                raise TypeError("`functional_datapipe` can only decorate IterDataPipe")
            kind = IterDataPipe
        elif issubclass(cls, IterDataPipe):
            kind = IterDataPipe
        elif not issubclass(cls, MapDataPipe):
            raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe, "
                            f"got {cls.__name__}")
        kind.register_datapipe_as_function(self.name, cls, self.enable_df_api_tracing)
        return cls


_promised = [False]


class guaranteed_datapipes_determinism:
    """A context in which pipes that are `non_deterministic` are refused."""

    def __init__(self) -> None:
        self.prev = _promised[0]
        _promised[0] = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        _promised[0] = self.prev


class non_deterministic:
    """Decorator of a pipe whose order is not fixed, or of a function that says whether it is not.
    """

    cls: Any = None

    def __init__(self, arg: Any) -> None:
        self.deterministic_fn: Callable[..., bool] = lambda *a, **k: True
        if isinstance(arg, type):
            if not issubclass(arg, IterDataPipe):
                raise TypeError("Only `IterDataPipe` can be decorated with `non_deterministic`"
                                f", but {arg.__name__} is found")
            self.cls = arg
        elif callable(arg):
            self.deterministic_fn = arg
        else:
            raise TypeError(f"{arg} can not be decorated by `non_deterministic`")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.cls is None:
            if len(args) != 1 or not (isinstance(args[0], type)
                                      and issubclass(args[0], IterDataPipe)):
                raise TypeError("Only `IterDataPipe` can be decorated with `non_deterministic`"
                                f", but {getattr(args[0], '__name__', args[0])} is found")
            self.cls = args[0]
            return self.deterministic_wrapper_fn
        return self.deterministic_wrapper_fn(*args, **kwargs)

    def deterministic_wrapper_fn(self, *args: Any, **kwargs: Any) -> Any:
        """Make the pipe, unless determinism was promised and it has none."""
        if _promised[0] and self.deterministic_fn(*args, **kwargs):
            raise TypeError(
                f"{self.cls.__name__} is non-deterministic, but you set "
                "'guaranteed_datapipes_determinism'. You can turn off determinism for this "
                "DataPipe if that is acceptable for your application")
        return self.cls(*args, **kwargs)


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself: annotations of pipes are not checked, as in PyTorch."""
    @wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)
    return call


def runtime_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself: items are not compared with annotations."""
    return f


class runtime_validation_disabled:
    """A context that changes nothing: items are never compared with annotations."""

    prev: ClassVar[bool] = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass


