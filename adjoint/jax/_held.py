"""What `jax.Array` says of its memory: its device, its shards, deletion, DLPack."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.jax import errors


class Shard:
    """The part of an array on a device: of one device, all of it."""

    replica_id = 0

    def __init__(self, data: Any) -> None:
        self.data, self.device = data, data.device
        self.index = (slice(None),) * data.ndim

    def __repr__(self) -> str:
        return (f"Shard(device={self.device!r}, index={self.index}, replica_id=0, "
                f"data={self.data})")


class Deleted:
    """In the place of a deleted array's tensor: its shape, and RuntimeError for the rest."""

    level, _rg = 0, False

    def __init__(self, tensor: Any, text: str) -> None:
        self.shape, self._text = tensor.shape, text

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"Array has been deleted with shape={self._text}.")


def _refusal(x: Any, name: str, call: bool) -> Exception:
    from adjoint.jax._array import describe
    text = f"traced array with shape {describe(x)}"
    if name in ("block_until_ready", "copy_to_host_async", "sharding"):
        kind = "method" if call else "attribute"
        return AttributeError(f"The '{name}' {kind} is not available on {text}.")
    what = f"The {name}() method was called on" if call else (
        f"The '{name}' attribute is not available on")
    return errors.ConcretizationTypeError("Abstract tracer value encountered where concrete value "
                                          f"is expected: {text}\n{what} {text}.")


def _refusing(f: Callable[..., Any]) -> Callable[..., Any]:
    """The method, refused while a transform follows the array."""
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._traced():
            raise _refusal(self, f.__name__, True)
        return f(self, *args, **kwargs)
    run.__name__, run.__doc__ = f.__name__, f.__doc__
    return run


def _attribute(f: Callable[..., Any]) -> Any:
    """The same for what is read without a call."""
    def run(self: Any) -> Any:
        if self._traced():
            raise _refusal(self, f.__name__, False)
        return f(self)
    return property(run, doc=f.__doc__)


class Held:
    """The part of `jax.Array` that is about memory and devices: there is one, the CPU."""

    __slots__ = ()
    tensor: Any

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        raise NotImplementedError

    def _traced(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name == "sharding":             # (its property raised)
            raise _refusal(self, name, False)
        raise AttributeError(f"'Array' object has no attribute '{name}'")

    def __dir__(self) -> list[str]:
        from adjoint.jax._array import METHOD_NAMES
        return sorted({*object.__dir__(self), *METHOD_NAMES})

    def _host(self, what: str) -> Any:
        raise NotImplementedError

    @property
    def device(self) -> Any:
        """The CPU."""
        if self._traced():
            raise AttributeError("Array has no attribute device while a transform follows it")
        return _cpu()

    @_refusing
    def devices(self) -> set[Any]:
        """The one CPU."""
        return {_cpu()}

    @_attribute
    def sharding(self) -> Any:
        """Where it is: on the CPU."""
        from adjoint.jax.sharding import SingleDeviceSharding
        return SingleDeviceSharding()

    @_attribute
    def is_fully_addressable(self) -> bool:
        """True."""
        return True

    @_attribute
    def is_fully_replicated(self) -> bool:
        """True."""
        return True

    @_attribute
    def committed(self) -> bool:
        """False: no device was asked for."""
        return False

    @_attribute
    def addressable_shards(self) -> list[Shard]:
        """One shard: the array."""
        return [Shard(self)]

    @_attribute
    def global_shards(self) -> list[Shard]:
        """One shard: the array."""
        return [Shard(self)]

    @_refusing
    def addressable_data(self, index: int) -> Any:
        """Itself."""
        return self

    @_refusing
    def platform(self) -> str:
        """ "cpu". """
        return "cpu"

    @_refusing
    def on_device_size_in_bytes(self) -> int:
        """Bytes of all elements."""
        return self.nbytes

    @_refusing
    def unsafe_buffer_pointer(self) -> int:
        """The address of the first element."""
        return int(self._host("unsafe_buffer_pointer").ctypes.data)

    @_refusing
    def block_until_ready(self) -> Any:
        """Itself: every operation is finished when it returns."""
        return self

    @_refusing
    def copy_to_host_async(self) -> None:
        """Nothing: the values are there."""

    def is_ready(self) -> bool:
        """True."""
        return True

    @_refusing
    def is_deleted(self) -> bool:
        """Was `delete` called?"""
        return type(self.tensor) is Deleted

    @_refusing
    def delete(self) -> None:
        """Drop the values: RuntimeError when they are asked for."""
        from adjoint.jax._array import describe
        if type(self.tensor) is not Deleted:
            self.tensor = Deleted(self.tensor, describe(self))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **kwargs: Any) -> Any:
        kwargs.pop("stream", None)
        return self._host("__dlpack__").copy().__dlpack__(**kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
            raise ValueError(f"array API version {api_version!r} is not served")
        from adjoint.jax import numpy
        return numpy


def _cpu() -> Any:
    from adjoint.jax._devices import devices
    return devices()[0]


__all__ = ["Deleted", "Held", "Shard"]
