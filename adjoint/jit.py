"""`torch.jit`, as far as it means something here: there is no TorchScript.

Decorators that only mark code for a compiler return it unchanged, and say so; `trace` runs the
program on its examples and returns it. What would have to write or read a compiled program raises
one line. Programs run as Python.
"""
from __future__ import annotations

import builtins
import copy
import importlib
import warnings
from collections.abc import Callable
from types import UnionType
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, Union, get_args, get_origin

import numpy as np

from adjoint.base import tree
from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import complex128
from adjoint.base.errors import ArgumentError, AutogradError, NotSupported
from adjoint.base.errors import missing as _missing_in
from adjoint.core.tensor import Tensor
from adjoint.futures import Future

T = TypeVar("T")
__path__: list[str] = []               # a package, as there: `jit.annotations` is imported from it
_missing = _missing_in("adjoint.jit")


class TracerWarning(Warning):
    """PyTorch's category for what a recorded program would miss; filters of programs name it."""


class Error(RuntimeError):
    """PyTorch's error of a compiled program; nothing here raises it."""


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether `obj` is of a type that may say what its items are: `list[int]`, `dict[str, T]`,
    `tuple[A, B]`, `Optional[T]`; all items are looked at.

    >>> isinstance([1, 2], list[int]), isinstance([1, "a"], list[int])
    (True, False)
    """
    if builtins.isinstance(target_type, tuple):
        return any(isinstance(obj, t) for t in target_type)
    origin, items = get_origin(target_type), get_args(target_type)
    if origin is None:
        return builtins.isinstance(obj, type(None) if target_type is None else target_type)
    if origin in (Union, UnionType):
        return any(isinstance(obj, t) for t in items)
    if not builtins.isinstance(obj, origin):
        return False
    if origin is dict:
        return all(isinstance(k, items[0]) and isinstance(v, items[1]) for k, v in obj.items())
    if origin is tuple:
        return len(obj) == len(items) and all(map(isinstance, obj, items))
    return all(isinstance(x, items[0]) for x in obj)


def optimize_for_inference(mod: T, other_methods: Any = None) -> T:
    """`mod` itself: no program is recorded that could be rewritten."""
    return mod


def _absent(name: str, instead: str) -> NoReturn:
    raise NotSupported(f"jit.{name}: there is no TorchScript here; {instead}")


def _get_trace_graph(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotSupported: counters of operations that read such a graph import it."""
    _absent("_get_trace_graph", "utils.flop_counter.FlopCounterMode counts the operations of a run")


def script(obj: T, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None,
           example_inputs: Any = None) -> T:
    """`obj` itself: it is run as the Python that it is. Nothing is compiled or checked.

    >>> script(abs) is abs
    True
    """
    return obj


def _overload(fn: T) -> T:
    """`fn` itself: declares one of the types that a function takes, for TorchScript's compiler."""
    return fn


_overload_method = _overload


def interface(obj: T) -> T:
    """`obj` itself: the class declares methods for TorchScript's compiler."""
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


def script_method(fn: T) -> T:
    """`fn` itself: a mark for TorchScript's compiler."""
    return fn


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


def trace(func: Any, example_inputs: Any = None, optimize: Any = None, check_trace: bool = True,
          check_inputs: Any = None, check_tolerance: float = 1e-5, strict: bool = True,
          *args: Any, example_kwarg_inputs: Any = None, **kwargs: Any) -> Any:
    """`func` itself, after it ran on the examples: nothing is recorded, it stays the program that
    it is, with all its branches.

    example_inputs        a tuple of operands, or one tensor; example_kwarg_inputs by keyword
    check_trace           run it twice, and warn if the results differ by more than
                          `check_tolerance` (relative): a recorded program would then be wrong
    check_inputs          further tuples of operands to run it on

    Raises what `func` raises on the examples. `jit.save` of the result is refused: save the
    weights.

    >>> import adjoint as ad
    >>> layer = ad.nn.Linear(2, 3)
    >>> trace(layer, ad.ones(1, 2)) is layer
    True
    """
    named = dict(example_kwarg_inputs or {})
    if example_inputs is None and not named:
        raise ArgumentError("jit.trace: example_inputs or example_kwarg_inputs must be given")
    for operands in (example_inputs, *(check_inputs or ())):
        operands = (() if operands is None else operands if builtins.isinstance(operands, tuple)
                    else tuple(operands) if builtins.isinstance(operands, list) else (operands,))
        first = func(*operands, **named)
        if check_trace and not _alike(first, func(*operands, **named), check_tolerance):
            warnings.warn("jit.trace: two runs on the same example gave different results; is the "
                          "model in training mode (dropout, random numbers)? Call model.eval()",
                          UserWarning, stacklevel=2)
    return func


def _alike(a: Any, b: Any, tolerance: float) -> bool:
    pairs = list(zip(tree.tree_leaves(a), tree.tree_leaves(b), strict=True))
    arrays = [(x.detach().to(complex128).array, y.detach().to(complex128).array)
              for x, y in pairs if builtins.isinstance(x, Tensor)]
    return all(type(x) is MetaArray or np.allclose(x, y, tolerance, tolerance, equal_nan=True)
               for x, y in arrays)


def trace_module(mod: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """`mod` itself, after each of its methods named in `inputs` ran on its example, as `trace`."""
    for name, operands in inputs.items():
        trace(mod if name == "forward" else getattr(mod, name), operands, *args, **kwargs)
    return mod


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True,
           preserve_parameters: bool = False) -> Any:
    """A copy of a module in eval mode whose parameters, in the same memory, are constants: nothing
    is differentiated by them. The program is the module's own, so that all attributes stay."""
    if mod.training:
        raise AutogradError("Freezing is currently only implemented for modules in eval mode. "
                            "Please call .eval() on your module before freezing.")
    kept = {id(p): p if preserve_parameters else type(p)(p.detach(), requires_grad=False)
            for p in mod.parameters()}
    return copy.deepcopy(mod, kept)


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A Future that holds what `func` gives: it has run when this returns, as in PyTorch outside
    of compiled programs."""
    future = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Any) -> Any:
    """What a `fork` gave."""
    return future.wait()


class Attribute(NamedTuple):
    """A value and the type that PyTorch's compiler would take it for; both are kept."""

    value: Any
    type: Any


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Raises: save the weights with `save(model.state_dict(), f)`."""
    _absent("save", "save the weights: save(model.state_dict(), f)")


def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Raises: a TorchScript archive holds compiled code."""
    _absent("load", "load weights into a model of your own: load(f), load_state_dict")


def __getattr__(name: str) -> Any:
    """The classes of script modules, which are modules and so lie above this one."""
    if name in ("ScriptModule", "RecursiveScriptModule"):
        return getattr(importlib.import_module("adjoint.nn.modules.script"), name)
    return _missing(name)


__all__ = ["Attribute", "Error", "Final", "TracerWarning", "annotate", "export", "fork", "freeze",
           "ignore",
           "interface", "is_scripting", "is_tracing", "isinstance", "load",
           "optimize_for_inference", "save", "script", "script_if_tracing", "script_method",
           "trace", "trace_module", "unused", "wait"]
