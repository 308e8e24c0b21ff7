"""The state of `autocast` as functions, for programs that set it by hand: what a context does when
it is entered, one step at a time, for this thread."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from adjoint.amp.autocast_mode import (
    get_autocast_dtype,
    is_autocast_cache_enabled,
    is_autocast_enabled,
)
from adjoint.base.dtypes import DType, to_numpy
from adjoint.core import autocast as core
from adjoint.core.modes import AUTOCAST, change
from adjoint.ops.device import device

_nesting = 0


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Open or close autocast: `set_autocast_enabled("cpu", True)`, or with the flag alone for
    "cuda", which is not here.

    >>> import adjoint as ad
    >>> ad.set_autocast_enabled("cpu", True)
    >>> (ad.ones(2, 2) @ ad.ones(2, 2)).dtype
    adjoint.bfloat16
    >>> ad.set_autocast_enabled("cpu", False)
    """
    if enabled is None:
        device_type, enabled = "cuda", device_type
    if not isinstance(enabled, bool):
        raise TypeError("set_autocast_enabled(): argument 'enabled' must be bool, not "
                        f"{type(enabled).__name__}")
    if device(device_type).type == "cpu":
        _open(enabled)


def _open(enabled: bool) -> None:
    if enabled:
        held: Any = {} if is_autocast_cache_enabled() else None
        core.active.set(core.Settings(get_autocast_dtype("cpu").dtype, held))
        change(AUTOCAST)
    else:
        core.active.set(None)
        change(0, AUTOCAST)


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """The 16-bit dtype of contexts that name none, and of what is open now."""
    kind = device(device_type).type
    core.defaults[kind] = dtype
    settings = core.active.get()
    if kind == "cpu" and settings is not None:
        core.active.set(core.Settings(to_numpy(dtype), settings.held))


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Whether casts of parameters are kept for their next use."""
    core.keeping.set(enabled)
    settings = core.active.get()
    if settings is not None:
        core.active.set(core.Settings(settings.dtype, (settings.held or {}) if enabled else None))


def clear_autocast_cache() -> None:
    """Forget the casts of parameters that are kept."""
    settings = core.active.get()
    if settings is not None and settings.held is not None:
        settings.held.clear()


def autocast_increment_nesting() -> int:
    """How many contexts were entered by hand, this one counted."""
    global _nesting
    _nesting += 1
    return _nesting


def autocast_decrement_nesting() -> int:
    """How many are left."""
    global _nesting
    _nesting -= 1
    return _nesting


def _older(name: str, kind: str, f: Callable[..., Any], form: str) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        warnings.warn(f"torch.{name}({', '.join(form.split(', ')[1:])}) is deprecated. Please use "
                      f"torch.{f.__name__}('{kind}'{', ' + form.split(', ')[1] if args else ''}) "
                      "instead.", DeprecationWarning, stacklevel=2)
        return f(kind, *args)
    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"`{f.__name__}` of {kind}, under its older name."
    return run


def _all_older() -> dict[str, Callable[..., Any]]:
    made = {}
    for kind, label in (("cpu", "cpu"), ("cuda", "gpu"), ("xla", "xla"), ("ipu", "ipu")):
        rows: list[tuple[str, Callable[..., Any], str]] = [
            (f"get_autocast_{label}_dtype", get_autocast_dtype, ""),
            (f"set_autocast_{label}_dtype", set_autocast_dtype, ", dtype")]
        if label != "gpu":
            rows += [(f"is_autocast_{label}_enabled", is_autocast_enabled, ""),
                     (f"set_autocast_{label}_enabled", set_autocast_enabled, ", enabled")]
        made.update({name: _older(name, kind, f, form) for name, f, form in rows})
    return made


OLDER = _all_older()
globals().update(OLDER)
__all__ = ["OLDER", "autocast_decrement_nesting", "autocast_increment_nesting",
           "clear_autocast_cache", "set_autocast_cache_enabled", "set_autocast_dtype",
           "set_autocast_enabled"]
