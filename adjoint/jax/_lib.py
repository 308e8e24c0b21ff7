"""`jax._src.lib` and `jax._src.xla_bridge`: what programs ask of the version and the devices."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.jax._devices import (
    default_backend,
    device_count,
    devices,
    local_devices,
    process_count,
)

version, version_str, jaxlib_extension_version, ifrt_version = (0, 10, 2), "0.10.2", 0, 0
cuda_versions = None


def device_under_test() -> str:
    """The kind of device that the tests run on: "cpu"."""
    return default_backend()


def get_backend(platform: Any = None) -> Any:
    """What has `.platform` and `.devices()`."""
    return devices(platform)[0]


__all__ = ["default_backend", "device_count", "device_under_test", "devices", "get_backend",
           "local_devices", "process_count", "version", "version_str"]
__getattr__ = _missing("adjoint.jax._lib")
