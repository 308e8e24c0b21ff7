"""Devices that models are trained on, and how long moving bytes to and from them takes.

Capacities are the makers' nominal figures in decimal gigabytes; rates are peak rates from the data
sheets (dense, without sparsity), so times computed from them are lower bounds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from adjoint.base.errors import ArgumentError

GB = 10**9


@dataclass(frozen=True)
class Device:
    """A device, or `count` equal ones together.

    `memory` in bytes; `bandwidth` of that memory, `host` (PCIe, one direction) and `disk` (one
    NVMe drive, writing) in bytes per second; `flops16` and `flops32` per second in 16 and 32 bit.
    """

    name: str
    memory: int
    bandwidth: float
    flops16: float
    flops32: float
    host: float
    disk: float = 5e9
    count: int = 1

    @property
    def total_memory(self) -> int:
        """Bytes of all `count` devices."""
        return self.memory * self.count


_PCIE3, _PCIE4, _PCIE5 = 15.75e9, 31.5e9, 63e9

DEVICES = {
    d.name: d
    for d in (
        Device("V100-16GB", 16 * GB, 0.9e12, 125e12, 15.7e12, _PCIE3),
        Device("V100-32GB", 32 * GB, 0.9e12, 125e12, 15.7e12, _PCIE3),
        Device("T4-16GB", 16 * GB, 0.32e12, 65e12, 8.1e12, _PCIE3),
        Device("L4-24GB", 24 * GB, 0.3e12, 121e12, 30.3e12, _PCIE4),
        Device("L40S-48GB", 48 * GB, 0.864e12, 362e12, 91.6e12, _PCIE4),
        Device("RTX-3090-24GB", 24 * GB, 0.936e12, 71e12, 35.6e12, _PCIE4),
        Device("RTX-4090-24GB", 24 * GB, 1.008e12, 165e12, 82.6e12, _PCIE4),
        Device("RTX-5090-32GB", 32 * GB, 1.792e12, 209e12, 104.8e12, _PCIE5),
        Device("RTX-A6000-48GB", 48 * GB, 0.768e12, 154.8e12, 38.7e12, _PCIE4),
        Device("A100-40GB", 40 * GB, 1.555e12, 312e12, 19.5e12, _PCIE4),
        Device("A100-80GB", 80 * GB, 2.039e12, 312e12, 19.5e12, _PCIE4),
        Device("H100-80GB", 80 * GB, 3.35e12, 989e12, 67e12, _PCIE5),
        Device("H200-141GB", 141 * GB, 4.8e12, 989e12, 67e12, _PCIE5),
        Device("B200-192GB", 192 * GB, 8e12, 2250e12, 75e12, _PCIE5),
        Device("MI300X-192GB", 192 * GB, 5.3e12, 1307e12, 163.4e12, _PCIE5),
        Device("CPU-16GB", 16 * GB, 0.05e12, 1e12, 1e12, float("inf")),
        Device("CPU-64GB", 64 * GB, 0.08e12, 2e12, 2e12, float("inf")),
        Device("CPU-512GB", 512 * GB, 0.3e12, 5e12, 5e12, float("inf")),
    )
}


def device(name: str) -> Device:
    """Look up a device by name; `8xH100-80GB` is eight of them.

    Case and separators do not matter, and a name without a size means the largest such device.
    Raises `ArgumentError` listing the known names.

    >>> device("h100").memory, device("8xA100-80GB").total_memory
    (80000000000, 640000000000)
    """
    match = re.fullmatch(r"(?:(\d+)\s*[x*])?\s*(.+)", name.strip(), re.IGNORECASE)
    count, wanted = (int(match[1] or 1), _plain(match[2])) if match else (1, "")
    exact = [d for n, d in DEVICES.items() if _plain(n) == wanted]
    close = [d for n, d in DEVICES.items() if _plain(n).startswith(wanted)] if wanted else []
    if not (exact or close) or count < 1:
        raise ArgumentError(
            f"device: {name!r} is not known; the names are {', '.join(DEVICES)} "
            "(optionally with a count: 8xH100-80GB)"
        )
    return replace(max(exact or close, key=lambda d: d.memory), count=count)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


@dataclass(frozen=True)
class Transfer:
    """Time to move `nbytes` out and back, and how much of it computation cannot hide."""

    nbytes: float
    seconds_out: float
    seconds_back: float
    exposed: float

    @property
    def hidden(self) -> bool:
        """True when both directions fit under the computation that runs meanwhile."""
        return self.exposed == 0.0


def offload(
    nbytes: float,
    on: Device,
    *,
    to: str = "host",
    forward_seconds: float = 0.0,
    backward_seconds: float = 0.0,
) -> Transfer:
    """Time to move activations off `on` during forward and back during backward.

    The copy out overlaps with `forward_seconds` of computation, the copy back with
    `backward_seconds`; what is left over is exposed. `to` is "host" or "disk"; a disk is behind
    the host link, so the slower of both counts.

    >>> t = offload(63e9, device("H100"), forward_seconds=0.5, backward_seconds=2.0)
    >>> t.seconds_out, t.exposed
    (1.0, 0.5)
    """
    if to not in ("host", "disk"):
        raise ArgumentError(f"offload: to={to!r}; it is 'host' or 'disk'")
    if nbytes < 0:
        raise ArgumentError(f"offload: nbytes={nbytes}; it cannot be negative")
    rate = on.host if to == "host" else min(on.host, on.disk)
    seconds = nbytes / rate
    exposed = max(0.0, seconds - forward_seconds) + max(0.0, seconds - backward_seconds)
    return Transfer(nbytes, seconds, seconds, exposed)


def compute_seconds(flops: float, on: Device, element_bytes: int = 2) -> float:
    """Seconds for `flops` at the peak rate of `on` for 16- or 32-bit elements.

    >>> compute_seconds(989e12, device("H100"))
    1.0
    """
    rate = on.flops16 if element_bytes <= 2 else on.flops32
    return flops / (rate * on.count)
