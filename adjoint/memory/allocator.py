"""What the allocator under the arrays holds: counters under PyTorch's names, and `empty_cache`.

Counters are exact and in bytes: what NumPy asked for in threads that use the allocator, temporaries
included. They are 0 where there is no generated code (no llvmlite, `ADJOINT_JIT=0`), or
`ADJOINT_ALLOC=0`.
"""
from __future__ import annotations

from adjoint.kernels import alloc, gemm_plan
from adjoint.memory import meters

__all__ = ["empty_cache", "max_memory_allocated", "memory_allocated", "memory_reserved",
           "memory_stats", "reset_peak_memory_stats"]


def empty_cache() -> int:
    """Give memory that is kept for reuse back to the system; returns how many bytes that were.

    >>> import adjoint as ad
    >>> ad.memory.empty_cache() >= 0
    True
    """
    return alloc.empty_cache() + gemm_plan.trim()


def memory_stats() -> dict[str, int]:
    """Every counter: bytes live, their peak, kept for reuse (idle) and held; allocations and how
    many of them got a warm block.

    >>> import adjoint as ad
    >>> sorted(ad.memory.memory_stats())
    ['calls', 'held', 'idle', 'live', 'peak', 'reused']
    """
    return dict(alloc.stats()._asdict())


def memory_allocated() -> int:
    """Bytes of arrays that are alive.

    >>> import adjoint as ad
    >>> ad.memory.memory_allocated() <= ad.memory.max_memory_allocated()
    True
    """
    return alloc.stats().live


def max_memory_allocated() -> int:
    """The most bytes that were alive at once since the start or `reset_peak_memory_stats`."""
    return meters.most()


def memory_reserved() -> int:
    """Bytes taken from the system: of live arrays, in size classes, and kept for reuse."""
    stats = alloc.stats()
    return stats.held + stats.idle


def reset_peak_memory_stats() -> None:
    """Let `max_memory_allocated` start again from what is alive now."""
    meters.forget()
