"""`torch.utils._python_dispatch`: modes that take over ops below the tape.

    >>> import adjoint as ad
    >>> class Log(TorchDispatchMode):
    ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    ...         print(func)
    ...         return func(*args, **(kwargs or {}))
    >>> x = ad.ones(2, 2, requires_grad=True)
    >>> with Log():
    ...     y = (x @ x).sum()
    aten.mm.default
    aten.sum.default
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

from adjoint import overrides
from adjoint.base.errors import missing
from adjoint.core.dispatch import Named, answer, asks
from adjoint.core.intercept import MODES
from adjoint.core.modes import TOLD, WATCH, change, restore, state, watchers
from adjoint.core.tensor import Tensor
from adjoint.nn import init
from adjoint.ops import aten
from adjoint.ops.public import METHODS

# Functions that make or draw tensors: no op runs, and modes are told of them all the same.
_FACTORIES = frozenset("""bernoulli multinomial poisson uniform_ normal_ random_ exponential_
geometric_ cauchy_ log_normal_ bernoulli_ zeros ones empty full rand randn randint randperm arange
eye linspace logspace zeros_like ones_like empty_like full_like rand_like randn_like randint_like
new_zeros new_ones new_empty new_full tril_indices triu_indices scalar_tensor""".split())

_SIZED = ("zeros", "ones", "empty", "rand", "randn", "new_zeros", "new_ones", "new_empty")
# (name, number of arguments, 0 for any other) -> PyTorch's overload
_FORMS = {("empty", 0): "memory_format", ("randint", 3): "low", ("arange", 2): "start",
          ("arange", 3): "start_step", ("bernoulli", 2): "p", ("bernoulli_", 0): "float",
          ("random_", 2): "to", ("random_", 3): "from"}

_DRAWN: dict[Any, Any] = {
    init.uniform_: lambda tensor, a, b, generator: (
        METHODS["uniform_"], (tensor, a, b), {"generator": generator} if generator else {}),
    init.normal_: lambda tensor, mean, std, generator: (
        METHODS["normal_"], (tensor, mean, std), {"generator": generator} if generator else {})}
_entered: ContextVar[int] = ContextVar("adjoint_dispatch_modes_entered", default=0)


class _Factories(overrides.TorchFunctionMode):
    """Hands the functions that make tensors to the open modes; others run as they are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if func in _DRAWN and watchers.modes.get():      # `nn.init`: told by name
            func, args, kwargs = _DRAWN[func](**(kwargs or {}))
        if name in _FACTORIES and watchers.modes.get():
            at = name.startswith("new_")
            if name in _SIZED and len(args) > at and all(isinstance(n, int) for n in args[at:]):
                args = (*args[:at], list(args[at:]))
            overload = _FORMS.get((name, len(args))) or _FORMS.get((name, 0), "default")
            made = getattr(aten.packet(name), overload)
            made = made if isinstance(made, Named) else Named(name, func, overload)
            return answer(made, args, kwargs or {})
        return func(*args, **(kwargs or {}))


class TorchDispatchMode:
    """A context in which every op on tensors is passed to `__torch_dispatch__(func, types, args,
    kwargs)`, below the tape: override that method. While it runs the mode is set aside and
    gradients are off, so that it can call `func` and other ops itself; what it returns stands for
    the op's result. Modes nest; the innermost is asked first.

    `func` is the record of an op (`ops.aten.mm.default`), which can be called; it prints PyTorch's
    name. Arguments come in the order of PyTorch's schema for the ops of `ops.aten_calls`; of others
    attributes come as keywords, under the record's names. A fused function that PyTorch splits into
    several ops may be one here, and the other way round.
    """

    def __init__(self, _dispatch_key: Any = None) -> None:
        self._held: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __torch_dispatch__")

    def __enter__(self) -> Self:
        if "_held" not in self.__dict__:          # a subclass that does not call our __init__
            self._held = []
        held = watchers.push(watchers.modes, self)
        factories = MODES.set((*MODES.get(), _Factories()))
        self._held.append((held, factories))
        _entered.set(_entered.get() + 1)
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None,
                 traceback: TracebackType | None) -> None:
        _entered.set(_entered.get() - 1)
        held, factories = self._held.pop()
        MODES.reset(factories)
        watchers.pop(held)

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """A mode of the class; use `with`."""
        return cls(*args, **kwargs)


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that calls the ops as they are."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """No mode is asked within; gives those that were open."""
    modes, outer = list(watchers.modes.get()), state()
    token = watchers.modes.set(())
    watched = watchers.observers.get() or watchers.hooks.get()
    mode = change(clear_bits=0 if watched else WATCH | TOLD)
    try:
        yield modes
    finally:
        restore(mode, outer)
        watchers.modes.reset(token)


def _get_current_dispatch_mode() -> Any:
    """The innermost mode; None outside of all."""
    modes = watchers.modes.get()
    return modes[-1] if modes else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    """The open modes, the innermost last."""
    return list(watchers.modes.get())


def _len_torch_dispatch_stack() -> int:
    """How many modes would be asked about an op now."""
    return len(watchers.modes.get())


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """True within a mode, and while the outermost answers."""
    return _entered.get() > 0


def _push_mode(mode: TorchDispatchMode) -> None:
    """Open a mode until `_pop_mode`."""
    mode.__enter__()


def _pop_mode() -> Any:
    """Close the innermost mode; gives it."""
    mode = watchers.modes.get()[-1]
    mode.__exit__(None, None, None)
    return mode


@contextmanager
def _pop_mode_temporarily() -> Iterator[Any]:
    """The innermost mode is not asked within; gives it."""
    mode = _pop_mode()
    try:
        yield mode
    finally:
        _push_mode(mode)


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """True for a tensor that says which tensors it holds: its class has `__tensor_flatten__` and
    `__tensor_unflatten__`.

    >>> is_traceable_wrapper_subclass(3)
    False
    """
    return isinstance(t, Tensor) and hasattr(t, "__tensor_flatten__") and hasattr(
        t, "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t: Any) -> bool:
    """`is_traceable_wrapper_subclass`, of a class."""
    return issubclass(t, Tensor) and hasattr(t, "__tensor_flatten__") and hasattr(
        t, "__tensor_unflatten__")


def transform_subclass(t: Any, callback: Callable[[str, Any], Any], outer_size: Any = None,
                       outer_stride: Any = None) -> Any:
    """A wrapper like `t` around `callback(name, tensor)` for each tensor that it holds."""
    names, context = t.__tensor_flatten__()
    inner = {name: callback(name, getattr(t, name)) for name in names}
    return type(t).__tensor_unflatten__(inner, context,
                                        t.size() if outer_size is None else outer_size,
                                        t.stride() if outer_stride is None else outer_stride)


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """`out` as `__torch_dispatch__` of a wrapper returns it: of an in-place op its target. What a
    view shows is noted by the tape here, so there is nothing else to correct."""
    target = args[0] if args else None
    return target if func._schema.is_mutable and asks(target) else out


__all__ = ["BaseTorchDispatchMode", "TorchDispatchMode", "is_in_torch_dispatch_mode",
           "is_traceable_wrapper_subclass", "is_traceable_wrapper_subclass_type",
           "return_and_correct_aliasing", "transform_subclass"]
__getattr__ = missing("adjoint.utils._python_dispatch")
