"""Data pipes: streams and maps that are joined by calls, `source.map(f).batch(3)`.

A class that `functional_datapipe("name")` decorates becomes the method `name` of every pipe of its
kind. Pipes hold their sources as attributes, so that `utils.data.graph` finds them.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial, update_wrapper
from typing import Any, ClassVar, TypeVar

from adjoint.base.errors import AutogradError
from adjoint.utils.data.datapipes._hook_iterator import hooked
from adjoint.utils.data.dataset import Dataset, IterableDataset

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe"]
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class _Pipe:
    """What both kinds share: functions by name, hooks for pickling, a short text."""

    functions: ClassVar[dict[str, Callable[..., Any]]]
    reduce_ex_hook: ClassVar[Callable[[Any], Any] | None] = None
    getstate_hook: ClassVar[Callable[[Any], Any] | None] = None
    str_hook: ClassVar[Callable[[Any], str] | None] = None
    repr_hook: ClassVar[Callable[[Any], str] | None] = None

    def __getattr__(self, name: str) -> Any:
        made = type(self).functions.get(name)
        if made is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        call = partial(made, self)
        update_wrapper(call, made, assigned=("__doc__",), updated=())
        return call

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Make `function(pipe, ...)` the method `function_name` of all pipes of this kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: Any,
                                      enable_df_api_tracing: bool = False) -> None:
        """Make `cls_to_register(pipe, ...)` the method `function_name`; a name that is taken
        raises."""
        if function_name in cls.functions:
            raise NameTaken(f"Unable to add DataPipe function name {function_name} as it is "
                            "already taken")

        def make(source: Any, *args: Any, **kwargs: Any) -> Any:
            return cls_to_register(source, *args, **kwargs)
        make.__doc__ = cls_to_register.__doc__
        cls.functions[function_name] = make

    def __getstate__(self) -> Any:
        hook = type(self).getstate_hook
        return self.__dict__ if hook is None else hook(self.__dict__)

    def __reduce_ex__(self, protocol: Any) -> Any:
        hook = type(self).reduce_ex_hook
        if hook is not None:
            try:
                return hook(self)
            except NotImplementedError:
                pass
        return super().__reduce_ex__(protocol)

    @classmethod
    def set_getstate_hook(cls, hook_fn: Callable[[Any], Any] | None) -> None:
        """Let `hook_fn(state)` answer for `__getstate__`; None removes it."""
        if _Pipe.getstate_hook is not None and hook_fn is not None:
            raise AutogradError("Attempt to override existing getstate_hook")
        _Pipe.getstate_hook = hook_fn and staticmethod(hook_fn)

    @classmethod
    def set_reduce_ex_hook(cls, hook_fn: Callable[[Any], Any] | None) -> None:
        """Let `hook_fn(pipe)` answer for `__reduce_ex__`; None removes it."""
        if _Pipe.reduce_ex_hook is not None and hook_fn is not None:
            raise AutogradError("Attempt to override existing reduce_ex_hook")
        _Pipe.reduce_ex_hook = hook_fn and staticmethod(hook_fn)

    def __repr__(self) -> str:
        hook = type(self).repr_hook
        return type(self).__qualname__ if hook is None else hook(self)

    def __str__(self) -> str:
        hook = type(self).str_hook
        return type(self).__qualname__ if hook is None else hook(self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *type(self).functions]


class NameTaken(Exception):
    """A method's name that another pipe has."""


class IterDataPipe(_Pipe, IterableDataset[T_co]):
    """A stream of items: subclasses define `__iter__`, and `reset`, which runs before it.

    One iterator is valid at a time: the next one that is begun ends the one before.

    >>> class Count(IterDataPipe):
    ...     def __iter__(self): yield from range(4)
    >>> from adjoint.utils.data.datapipes import iter
    >>> list(Count().map(str).batch(3))
    [['0', '1', '2'], ['3']]
    """

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}
    _valid_iterator_id = 0
    _number_of_samples_yielded = 0
    _own_rules = False         # True: its __iter__ says itself which iterator is valid

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__iter__" in cls.__dict__ and not cls._own_rules:
            setattr(cls, "__iter__", hooked(cls.__dict__["__iter__"]))  # noqa: B010  # a method

    def __iter__(self) -> Iterator[T_co]:
        return self

    def reset(self) -> None:
        """Begin anew; runs before every iteration. Does nothing unless overridden."""


class DFIterDataPipe(IterDataPipe[Any]):
    """The base of pipes of data frames: for isinstance, none is here."""


class MapDataPipe(_Pipe, Dataset[T_co]):
    """Items by key: subclasses define `__getitem__`, and usually `__len__`.

    >>> from adjoint.utils.data.datapipes.map import SequenceWrapper
    >>> list(SequenceWrapper([1, 2, 3]).map(str).batch(2))
    [['1', '2'], ['3']]
    """

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class DataChunk(list[T]):
    """The items of one batch.

    >>> list(DataChunk([DataChunk([1]), 2]).raw_iterator())
    [[1], 2]
    """

    def __init__(self, items: Iterable[T]) -> None:
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        """The items in brackets, after `indent`."""
        return f"{indent}[{', '.join(str(item) for item in iter(self))}]"

    def raw_iterator(self) -> Iterator[T]:
        """Its items, as they are held."""
        return iter(self.items)


