"""`autocast`: matrix products in 16 bits, losses and linear algebra in float32, the rest as it is.

Micikevicius et al., "Mixed precision training" (arXiv:1710.03740). Which function is of which kind
follows PyTorch's documented lists for cpu: matmul, linear, convolutions, attention and prelu run in
`dtype`; losses, prod, trace, cdist, quantile, fft, stft, grid_sample, 3-d pooling and linear
algebra run in float32; what takes several tensors promotes to the widest.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from adjoint.base.dtypes import DType, bfloat16, float16, of_numpy, to_numpy
from adjoint.base.errors import ArgumentError
from adjoint.core import autocast as core
from adjoint.core.modes import AUTOCAST, change, restore, state, warn
from adjoint.ops.device import device

F = TypeVar("F", bound=Callable[..., Any])


class autocast:
    """Run what profits from it in 16 bits. Context manager and decorator.

    device_type    "cpu"; another device is not here, so the context warns and does nothing
    dtype          bfloat16 (the default on cpu) or float16; another one warns and does nothing
    enabled        False switches an outer autocast off inside of this one
    cache_enabled  cast each parameter once per outermost context instead of once per use

    Parameters stay float32 and so do their gradients; only operands are cast. Backward runs outside
    of it: each rule in the dtypes of its forward. A float64 operand is never cast.

    >>> import adjoint as ad
    >>> layer = ad.nn.Linear(3, 2)
    >>> with ad.autocast("cpu", dtype=ad.float16):
    ...     out = layer(ad.ones(1, 3))
    >>> out.dtype, layer.weight.dtype
    (adjoint.float16, adjoint.float32)
    """

    def __init__(self, device_type: str = "cpu", dtype: Any = None, enabled: bool = True,
                 cache_enabled: bool | None = None) -> None:
        _named(device_type)
        self.device = device(device_type).type
        self.fast_dtype = _dtype(dtype) if dtype is not None else get_autocast_dtype(self.device)
        self.cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        if enabled and self.device != "cpu":
            warn("CUDA is not available or torch_xla is imported. Disabling autocast."
                 if self.device == "cuda" else f"User provided device_type of '{self.device}', but "
                 f"{self.device.upper()} is not available. Disabling")
            enabled = False
        if enabled and self.fast_dtype not in (float16, bfloat16):
            warn("In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                 f"CPU Autocast only supports dtype of {bfloat16}, {float16} currently; got "
                 f"{self.fast_dtype}")
            enabled = False
        self._enabled = bool(enabled)
        self._held: list[Any] = []

    def __enter__(self) -> autocast:
        outer, before = state(), core.active.get()
        if self.device == "cpu":
            open_cache = before.held if before is not None and outer & AUTOCAST else None
            held = (open_cache if open_cache is not None else {}) if self.cache_enabled else None
            made: core.Settings | None = core.Settings(self.fast_dtype.dtype, held)
            token = change(AUTOCAST if self._enabled else 0, 0 if self._enabled else AUTOCAST)
        else:
            made, token = before, change()
        self._held.append((token, outer, before))
        core.active.set(made)
        return self

    def __exit__(self, *exc: object) -> None:
        token, outer, before = self._held.pop()
        core.active.set(before)
        restore(token, outer)

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            raise ArgumentError(f"autocast cannot decorate the generator {function.__name__}: open "
                                "the context inside of it")

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)
        return run  # type: ignore[return-value]  # same signature

    def __repr__(self) -> str:
        return (f"autocast(device_type={self.device!r}, dtype={self.fast_dtype}, "
                f"enabled={self._enabled})")


def _dtype(d: Any) -> DType:
    return d if isinstance(d, DType) else of_numpy(to_numpy(d))


def is_autocast_available(device_type: str) -> bool:
    """True for "cpu", the one device that is here."""
    return device(device_type).type == "cpu"


def is_autocast_enabled(device_type: str = "cpu") -> bool:
    """True inside of an `autocast` of this thread.

    >>> with autocast("cpu"):
    ...     is_autocast_enabled()
    True
    """
    return device(device_type).type == "cpu" and bool(state() & AUTOCAST)


def get_autocast_dtype(device_type: str = "cpu") -> DType:
    """The 16-bit dtype of the innermost `autocast`; outside of one, that of the next."""
    kind = device(device_type).type
    settings = core.active.get()
    if kind == "cpu" and settings is not None:
        return of_numpy(settings.dtype)
    return core.defaults.get(kind, float16)


def is_autocast_cache_enabled() -> bool:
    """True if casts of parameters are kept until the outermost `autocast` is left."""
    settings = core.active.get()
    return core.keeping.get() if settings is None else settings.held is not None


def _named(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ArgumentError("Expected `device_type` of type `str`, got: "
                            f"`{type(device_type)}`")


def custom_fwd(fwd: Any = None, *, device_type: str = "cpu", cast_inputs: Any = None) -> Any:
    """Decorate `forward` of an `autograd.Function` so that `custom_bwd` can use its autocast state.

    With `cast_inputs`, floating tensors are cast to that dtype and `forward` runs with autocast
    off; outside of autocast it has no effect.
    """
    _named(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def run(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        on = is_autocast_enabled(device_type)
        ctx._autocast = (on and cast_inputs is None, get_autocast_dtype(device_type), device_type)
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        target = to_numpy(cast_inputs)
        with autocast(device_type, enabled=False):
            return fwd(*(core.cast_to(a, target) for a in args),
                       **{k: core.cast_to(v, target) for k, v in kwargs.items()})
    return run


def custom_bwd(bwd: Any = None, *, device_type: str = "cpu") -> Any:
    """Decorate `backward` of an `autograd.Function`: it runs with the autocast of its forward."""
    _named(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def run(*args: Any, **kwargs: Any) -> Any:
        on, dtype, where = getattr(args[0], "_autocast", (False, None, device_type))
        with autocast(where, dtype=dtype, enabled=on):
            return bwd(*args, **kwargs)
    return run


__all__ = ["autocast", "custom_bwd", "custom_fwd", "get_autocast_dtype",
           "is_autocast_available", "is_autocast_cache_enabled", "is_autocast_enabled"]
