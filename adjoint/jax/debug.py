"""`jax.debug`: looking at values inside of transformed functions."""
from __future__ import annotations

import string
from collections.abc import Callable
from functools import partial as _partial
from typing import Any

from adjoint.base.tree import unflatten as _unflatten
from adjoint.func.batch import BatchTensor as _BatchTensor
from adjoint.jax._absent import lacking as _lacking
from adjoint.jax._api import quiet as _quiet
from adjoint.jax._array import constant as _constant
from adjoint.jax._array import make as _make
from adjoint.jax._array import value_of as _value_of
from adjoint.jax._flat import is_key as _is_key
from adjoint.jax._flat import leaf as _leaf
from adjoint.jax._trace import in_the_open as _in_the_open
from adjoint.jax.tree_util import flat as _flat


def _examples(arrays: list[Any]) -> Any:
    """The plain arrays of each example in turn; of one where no vmap maps them."""
    tops = [a.tensor for a in arrays if not _is_key(a)]
    while tops and max(t.level for t in tops):
        level = max(t.level for t in tops)
        trace = next(t for t in tops if t.level == level).trace
        if any(isinstance(t, _BatchTensor) and t.trace is trace for t in tops):
            for i in range(trace.size):
                yield from _examples([a if _is_key(a) or a.tensor.level != level else
                                      _make(a.tensor.value[i], a.weak_type) for a in arrays])
            return
        arrays = [a if _is_key(a) or a.tensor.level != level else _make(
            a.tensor.value, a.weak_type) for a in arrays]
        tops = [a.tensor for a in arrays if not _is_key(a)]
    yield [a if _is_key(a) else _constant(a.tensor.detach(), a.weak_type) for a in arrays]


def callback(callback: Callable[..., Any] | None = None, *args: Any, ordered: bool = False,
             partitioned: bool = False, **kwargs: Any) -> Any:
    """Call a function with the values, once per example of a vmap; its output is dropped. Without
    a function: a decorator of one."""
    if callback is None:
        return lambda f: lambda *a, **k: _callback(f, *a, **k)
    if not callable(callback):
        raise TypeError("first argument to jax.debug.callback must be callable, but got an object "
                        f"of type {type(callback)}")
    if _quiet():
        return
    leaves, spec = _flat((args, kwargs))
    plain = [x for x in leaves if isinstance(x, str)]
    arrays = [_leaf(x) for x in leaves if not isinstance(x, str)]
    for found in _examples(arrays):
        texts, values = iter(plain), iter(found)
        filled = [next(texts) if isinstance(x, str) else next(values) for x in leaves]
        given, named = _unflatten(filled, spec)
        with _in_the_open():
            callback(*given, **named)


def print(fmt: str | None = None, *args: Any, ordered: bool = False, partitioned: bool = False,
          skip_format_check: bool = False, _use_logging: bool = False, **kwargs: Any) -> Any:
    """Print values inside of transformed functions: `jax.debug.print("x = {x}", x=x)`. Without a
    text: a function of one.

    skip_format_check  take a text whose places and arguments do not match
    _use_logging       to the log, at level INFO, in place of the output
    """
    if fmt is None:
        return _partial(print, ordered=ordered, partitioned=partitioned,
                        skip_format_check=skip_format_check, _use_logging=_use_logging)
    if not skip_format_check:
        _placed(fmt, args, kwargs)
    import builtins
    import logging
    out = logging.getLogger("adjoint.jax.debug").info if _use_logging else builtins.print
    callback(lambda *a, **k: out(fmt.format(*map(_host, a), **{
        n: _host(v) for n, v in k.items()})), *args, ordered=ordered, **kwargs)
    return None


_callback = callback


class _Places(string.Formatter):
    """What a format string uses, without formatting it."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        spare = [a for i, a in enumerate(args) if i not in used_args]
        if spare:
            raise ValueError(f"Unused positional arguments to `jax.debug.print`: {spare}")
        named = [k for k in kwargs if k not in used_args]
        if named:
            raise ValueError(f"Unused keyword arguments to `jax.debug.print`: {named}. You may be "
                             "passing an f-string (i.e, `f\"{x}\"`) into `jax.debug.print` and "
                             "instead should pass in a regular string.")


def _placed(fmt: Any, args: Any, kwargs: Any) -> None:
    """Check a format string and its arguments: IndexError or KeyError for what is not given,
    ValueError for what is not used."""
    if not isinstance(fmt, str):
        raise TypeError(f"expected str, got {type(fmt).__name__}")
    _Places().vformat(fmt, args, kwargs)


def _host(x: Any) -> Any:
    return _value_of(x)[()] if hasattr(x, "tensor") else x


def breakpoint(*, backend: str | None = None, filter_frames: bool = True,
               num_frames: int | None = None, ordered: bool = False, token: Any = None,
               **kwargs: Any) -> None:
    """Python's debugger, where the program is; the words are about JAX's own, `kwargs` are for
    another one."""
    import pdb
    pdb.set_trace()


def inspect_array_sharding(value: Any, *, callback: Callable[[Any], Any]) -> None:
    """Call a function with where an array lies: on the one device."""
    from adjoint.jax.sharding import SingleDeviceSharding
    _leaf(value)
    callback(SingleDeviceSharding())


__getattr__ = _lacking("debug")
