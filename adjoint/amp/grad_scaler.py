"""`GradScaler`: the loss is scaled so that small gradients survive 16 bits, and unscaled before the
step; the scale grows while all gradients are finite and falls when one is not.

Micikevicius et al., "Mixed precision training" (arXiv:1710.03740), section 3.2.
"""
from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.errors import AdjointError, ArgumentError, AutogradError
from adjoint.core.modes import as_pytorch, warn
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Tensor, bump, wrap
from adjoint.ops.device import device as device_of


class OptState(Enum):
    """What happened to an optimizer's gradients since the last `update()`."""

    READY, UNSCALED, STEPPED = 0, 1, 2


class ScalerError(AdjointError, AssertionError, RuntimeError):
    """A method of the scaler was called in the wrong order."""


class _OfOptimizer:
    """What one optimizer went through since the last `update()`."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer       # keeps its id taken
        self.stage = OptState.READY
        self.found_inf: bool | None = None


class GradScaler:
    """Scale losses, skip steps with infinite gradients, adapt the scale.

    init_scale       65536: float16's smallest number is 6e-8, so gradients from 1e-12 on survive
    growth_factor    the scale is multiplied by it after `growth_interval` steps without overflow
    backoff_factor   and by this one after a step with an infinite or nan gradient, which is skipped
    enabled          False: `scale` returns its argument, `step` steps, `update` does nothing

    A device that is not here ("cuda") is accepted with a warning and disables the scaler.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([1.0]))
    >>> opt, scaler = ad.optim.SGD([w], lr=0.5), ad.amp.GradScaler("cpu")
    >>> scaler.scale((w * w).sum()).backward()
    >>> w.grad
    tensor([131072.])
    >>> scaler.step(opt); scaler.update(); w.tolist(), scaler.get_scale()
    ([0.0], 65536.0)
    """

    def __init__(self, device: str | None = None, init_scale: float = 2.0 ** 16,
                 growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        if device is None:              # PyTorch's default is CUDA: a scaler that does nothing
            device = "cuda" if as_pytorch[0] else "cpu"
        self._device = str(device)
        if enabled and device_of(device).type != "cpu":
            kind = device_of(device).type
            warn(f"torch.{kind}.amp.GradScaler is enabled, but {kind.upper()} is not available.  "
                 "Disabling.")
            enabled = False
        self._enabled = bool(enabled)
        if enabled and not growth_factor > 1.0:
            raise ScalerError(f"The growth factor must be > 1.0, got {growth_factor}")
        if enabled and not backoff_factor < 1.0:
            raise ScalerError(f"The backoff factor must be < 1.0, got {backoff_factor}")
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._scale = wrap(np.array(init_scale, np.float32))
        self._growth_tracker = 0
        self._used = False               # scale() was called, so there is something to unscale
        self._of: dict[int, _OfOptimizer] = {}

    # -- a step of training -------------------------------------------------------------------
    def scale(self, outputs: Any) -> Any:
        """A tensor times the scale; of a list, tuple or iterable of tensors, each."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            self._used = True
            return outputs * wrap(self._scale.array.copy())
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(o) for o in outputs)
        if isinstance(outputs, Iterable) and not isinstance(outputs, str):
            return map(self.scale, outputs)
        raise ArgumentError("outputs must be a Tensor or an iterable of Tensors, got "
                            f"{type(outputs).__name__}")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, in place: call it before
        clipping. Once per optimizer and step; `step` does it where it was not done."""
        if not self._enabled:
            return
        self._need_scaled("unscale_")
        held = self._held(optimizer)
        if held.stage == OptState.UNSCALED:
            raise AutogradError("unscale_() has already been called on this optimizer since the "
                                "last update().")
        if held.stage == OptState.STEPPED:
            raise AutogradError("unscale_() is being called after step().")
        held.found_inf = _unscale(optimizer, np.float32(1.0 / float(self._scale.array)))
        held.stage = OptState.UNSCALED

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        """What `unscale_` has seen: 1 where a gradient is infinite or nan, by device."""
        held = self._of.get(id(optimizer))
        if held is None or held.found_inf is None:
            return {}
        return {device_of("cpu"): wrap(np.float32(held.found_inf).reshape(()))}

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        """Look for infinite and nan gradients, which are left as they are."""
        self._held(optimizer).found_inf = not all(
            finite((p.grad._values() if p.grad.is_sparse else p.grad).array)
            for group in optimizer.param_groups for p in group["params"] if p.grad is not None)
        return self._found_inf_per_device(optimizer)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)` on unscaled gradients; skipped, and None returned, if
        one of them is infinite or nan. A closure is refused: it would compute new gradients."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or any(callable(a) for a in args):
            raise AutogradError("Closure use is not currently supported if GradScaler is enabled.")
        self._need_scaled("step")
        held = self._held(optimizer)
        if held.stage == OptState.STEPPED:
            raise AutogradError("step() has already been called since the last update().")
        if held.stage == OptState.READY:
            self.unscale_(optimizer)
        if held.found_inf is None:
            raise ScalerError("No inf checks were recorded for this optimizer.")
        answer = None if held.found_inf else optimizer.step(*args, **kwargs)
        held.stage = OptState.STEPPED
        return answer

    def update(self, new_scale: Any = None) -> None:
        """Adapt the scale to what the steps since the last call met, or set it to `new_scale`."""
        if not self._enabled:
            return
        self._need_scaled("update")
        if new_scale is not None:
            value = new_scale.item() if isinstance(new_scale, Tensor) else new_scale
            self._scale.array[...] = value
        else:
            found = [h.found_inf for h in self._of.values() if h.found_inf is not None]
            if not found:
                raise ScalerError("No inf checks were recorded prior to update.")
            self._adapt(any(found))
        self._of = {}

    def _adapt(self, overflow: bool) -> None:
        scale = self._scale.array
        if overflow:
            scale *= np.float32(self._backoff_factor)
            self._growth_tracker = 0
            return
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            grown = np.float32(float(scale) * self._growth_factor)
            if np.isfinite(grown):
                scale[...] = grown
            self._growth_tracker = 0

    def _need_scaled(self, what: str) -> None:
        if not self._used:
            raise ScalerError(f"Attempted {what} but _scale is None.  This may indicate your "
                              "script did not use scaler.scale(loss or outputs) earlier in the "
                              "iteration.")

    def _held(self, optimizer: Any) -> _OfOptimizer:
        return self._of.setdefault(id(optimizer), _OfOptimizer(optimizer))

    # -- settings -----------------------------------------------------------------------------
    def is_enabled(self) -> bool:
        """True unless it was made with enabled=False or for a device that is not here."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale as a float; 1.0 where scaling is off."""
        return float(self._scale.array) if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by after `growth_interval` good steps."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Change the growth factor."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by after an overflow."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Change the backoff factor."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Steps without overflow until the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Change the growth interval."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        return self._growth_tracker if self._enabled else 0

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors, interval and the count of good steps; {} where scaling is off. Take it
        after `update()`."""
        if not self._enabled:
            return {}
        return {"scale": self.get_scale(), "growth_factor": self._growth_factor,
                "backoff_factor": self._backoff_factor, "growth_interval": self._growth_interval,
                "_growth_tracker": self._growth_tracker}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned; nothing happens where scaling is off."""
        if not self._enabled:
            return
        if not state_dict:
            raise AutogradError("The source state dict is empty, possibly because it was saved "
                                "from a disabled instance of GradScaler.")
        scale, growth, backoff, interval, tracker = (state_dict[k] for k in (
            "scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"))
        self._scale.array[...] = scale
        self._growth_factor, self._backoff_factor = growth, backoff
        self._growth_interval, self._growth_tracker = interval, tracker

    def __getstate__(self) -> dict[str, Any]:
        if self._of:
            raise ScalerError("A GradScaler instance may only be pickled at the beginning of an "
                              "iteration, or at the end after scaler.update().")
        return self.__dict__.copy()


def _unscale(optimizer: Any, factor: Any) -> bool:
    """Multiply every gradient by `factor`; True if one of them was infinite or nan."""
    grads = []
    for group in optimizer.param_groups:
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.array.dtype == np.float16:
                raise ArgumentError("Attempting to unscale FP16 gradients: keep the parameters in "
                                    "float32 and let autocast cast them (their gradients are then "
                                    f"float32); this parameter is {tuple(p.shape)}")
            grads.append(g)
    overflow = False
    for g in grads:
        array = (g._values() if g.is_sparse else g).array
        if type(array) is MetaArray:         # foretold is a step that is taken
            call(finite, array, otherwise=tuple)
            call(_scaled, array, factor, otherwise=tuple)
            continue
        overflow = overflow or not finite(array)
        _scaled(array, factor)
        bump(g, "GradScaler.unscale_")
    return overflow


def _scaled(array: Any, factor: Any) -> None:
    np.multiply(array, factor.astype(array.dtype), out=array)


def finite(array: Any) -> bool:
    """True if no element is infinite or nan; no temporary of the size of the array.

    The sum of squares is finite only then, or it overflows, which the second look tells apart.
    """
    flat = array.reshape(-1)
    if array.dtype.itemsize >= 4 and array.dtype.kind == "f" and np.isfinite(np.dot(flat, flat)):
        return True
    return bool(np.isfinite(array).all())


__all__ = ["GradScaler", "ScalerError"]
