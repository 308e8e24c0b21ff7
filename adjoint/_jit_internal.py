"""`torch._jit_internal`: what modules that were written with TorchScript in mind import from there.
Nothing is compiled, so marks leave a function as it is.

    >>> is_optional(Optional[int]), is_tuple(Tuple[int, str]), is_list(Dict[str, int])
    (True, True, False)
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import UnionType
from typing import (  # noqa: UP035  # names that are imported from here
    Any,
    Dict,
    Final,
    List,
    Optional,
    Tuple,
    Union,
    get_args,
    get_origin,
)

from adjoint.base.errors import ArgumentError, missing
from adjoint.futures import Future
from adjoint.jit import _overload, export, ignore, is_scripting, unused

__all__ = ["BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "BroadcastingList4",
           "BroadcastingList5", "BroadcastingList6", "BroadcastingListCls", "Dict", "Final",
           "Future", "List", "Optional", "Tuple", "Union", "boolean_dispatch", "export", "ignore",
           "is_dict", "is_final", "is_future", "is_ignored_fn", "is_list", "is_optional",
           "is_scripting", "is_tuple", "is_union", "unused"]


class BroadcastingListCls:
    """An annotation: a list, or one value that stands for all of its elements."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingListCls()
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = BroadcastingList1


def boolean_dispatch(arg_name: str, arg_index: int, default: bool, if_true: Callable[..., Any],
                     if_false: Callable[..., Any], module_name: str, func_name: str
                     ) -> Callable[..., Any]:
    """A function that is `if_true` or `if_false` by the argument of a name, also given as argument
    number `arg_index`.

    >>> f = boolean_dispatch("up", 1, False, lambda x, up: x + 1, lambda x, up=False: x, "m", "f")
    >>> f(1), f(1, True)
    (1, 2)
    """
    @functools.wraps(if_true if if_true.__doc__ else if_false)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        at = args[arg_index] if arg_index < len(args) else kwargs.get(arg_name, default)
        return (if_true if at else if_false)(*args, **kwargs)
    chosen.__name__, chosen.__module__ = func_name, module_name
    return chosen


def _kind(ann: Any, *kinds: Any) -> bool:
    return ann in kinds or get_origin(ann) in kinds


def is_tuple(ann: Any) -> bool:
    """True for `Tuple[...]` and `tuple`."""
    return _kind(ann, tuple)


def is_list(ann: Any) -> bool:
    """True for `List[...]` and `list`."""
    return _kind(ann, list)


def is_dict(ann: Any) -> bool:
    """True for `Dict[...]` and `dict`."""
    return _kind(ann, dict)


def is_union(ann: Any) -> bool:
    """True for `Union[...]` and `a | b`."""
    return _kind(ann, Union, UnionType)


def is_optional(ann: Any) -> bool:
    """True for a union of two that has None."""
    return ann is Optional or is_union(ann) and (
        len(get_args(ann)) == 2 and type(None) in get_args(ann))


def is_future(ann: Any) -> bool:
    """True for `Future` and `Future[...]`."""
    return _kind(ann, Future)


def is_final(ann: Any) -> bool:
    """True for `Final[...]`."""
    return _kind(ann, Final)


def is_ignored_fn(fn: Any) -> bool:
    """False: no function is left out of a program that is not compiled."""
    return False


def _copy_to_script_wrapper(fn: Any) -> Any:
    return fn


def _overload_method(func: Any) -> Any:
    """A declaration of one of a method's signatures: nothing reads it."""
    return _overload(func)


def _qualified_name(obj: Any, mangle_name: bool = True) -> str:
    """`__torch__.` and the dotted path of a class or function; of a script, its name alone."""
    if not (inspect.isclass(obj) or inspect.isroutine(obj)):
        raise ArgumentError(f"_qualified_name: a class or a function, got {type(obj).__name__}")
    module = "" if obj.__module__ == "__main__" else f"{obj.__module__}."
    if not mangle_name:
        return f"{module}{obj.__name__}"
    return f"__torch__.{module}{obj.__name__}"


def get_torchscript_modifier(fn: Any) -> str:
    """The mark of a function: `FunctionModifiers.DEFAULT`, for none is kept."""
    return FunctionModifiers.DEFAULT


class FunctionModifiers:
    """The marks that PyTorch's decorators leave."""

    UNUSED = "unused (ignored and replaced with raising of an exception)"
    IGNORE = "ignore (leave as a call to Python, cannot be torch.jit.save'd)"
    EXPORT = "export (compile this function even if nothing calls it)"
    DEFAULT = "default (compile if called from an exported function / forward)"
    COPY_TO_SCRIPT_WRAPPER = "copy this member to the wrapper of the compiled module"


__getattr__ = missing("adjoint._jit_internal")
