"""`torch.jit`, as far as it means something here: there is no TorchScript.

Decorators that only mark code for a compiler return it unchanged, and say so. What would have to
produce or read a compiled program raises one line. Programs run as Python.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from adjoint.base.errors import NotSupported

T = TypeVar("T")


def _absent(name: str, instead: str) -> NoReturn:
    raise NotSupported(f"jit.{name}: there is no TorchScript here; {instead}")


def script(obj: T, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None,
           example_inputs: Any = None) -> T:
    """`obj` itself: it is run as the Python that it is. Nothing is compiled or checked.

    >>> script(abs) is abs
    True
    """
    return obj


def unused(fn: T) -> T:
    """`fn` itself: a mark for TorchScript's compiler."""
    return fn


def export(fn: T) -> T:
    """`fn` itself: a mark for TorchScript's compiler."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The decorated function itself: a mark for TorchScript's compiler."""
    if callable(drop):
        return drop

    def mark(fn: Callable[..., Any]) -> Callable[..., Any]:
        return fn
    return mark


def script_if_tracing(fn: T) -> T:
    """`fn` itself."""
    return fn


def is_scripting() -> bool:
    """False: nothing is ever compiled by TorchScript."""
    return False


def is_tracing() -> bool:
    """False: nothing is ever traced by TorchScript."""
    return False


def annotate(the_type: Any, the_value: T) -> T:
    """`the_value`: the type is for TorchScript's compiler."""
    return the_value


def trace(func: Any, example_inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Raises: a traced program would be another object than the model, and there is none."""
    _absent("trace", "call the model itself")


def trace_module(mod: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Raises, as `trace`."""
    _absent("trace_module", "call the model itself")


def freeze(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """Raises: there is no compiled module to freeze."""
    _absent("freeze", "call model.eval() and use inference_mode()")


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Raises: save the weights with `save(model.state_dict(), f)`."""
    _absent("save", "save the weights: save(model.state_dict(), f)")


def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Raises: a TorchScript archive holds compiled code."""
    _absent("load", "load weights into a model of your own: load(f), load_state_dict")


__all__ = ["Final", "annotate", "export", "freeze", "ignore", "is_scripting", "is_tracing", "load",
           "save", "script", "script_if_tracing", "trace", "trace_module", "unused"]
