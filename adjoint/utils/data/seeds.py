"""Random order for data: PyTorch's draws, from an `adjoint.Generator` or a NumPy generator."""
from __future__ import annotations

import random
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.ops.generator import Generator, default_generator

_WHOLE = 2**63 - 1


def draw_seed(generator: Any = None) -> int:
    """A new 63-bit seed from an `adjoint.Generator`, a NumPy generator, or the default one.

    >>> 0 <= draw_seed(np.random.default_rng(0)) < 2**63
    True
    """
    if generator is None or isinstance(generator, Generator):
        return int(generator_of(generator).stream.long(1)[0]) & _WHOLE
    if not isinstance(generator, np.random.Generator):
        raise ArgumentError(f"generator is a {type(generator).__name__}; an adjoint.Generator or "
                            f"a numpy.random.Generator is needed")
    return int(generator.integers(_WHOLE))


def generator_of(generator: Any = None) -> Generator:
    """The generator itself, the default one for None; for NumPy's a new one, seeded from it."""
    if generator is None:
        return default_generator
    if isinstance(generator, Generator):
        return generator
    return Generator().manual_seed(draw_seed(generator))


def permutation(n: int, generator: Any = None) -> list[int]:
    """The numbers below `n` in random order.

    >>> sorted(permutation(4, np.random.default_rng(0)))
    [0, 1, 2, 3]
    """
    order: list[int] = generator_of(generator).stream.permutation(n).tolist()
    return order


def seed_worker(base: int, worker: int) -> None:
    """Seed a worker process's generators, the package's, Python's and NumPy's, as PyTorch does."""
    default_generator.manual_seed(base + worker)
    random.seed(base + worker)
    np.random.seed(_generate_state(base, worker))


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four numbers of 32 bits that seed NumPy's generator in a worker.

    >>> _generate_state(3, 1)
    [4010755824, 4093133998, 1799442052, 773627024]
    """
    entropy = [worker_id, base_seed % 2**32, base_seed >> 32, 0]
    numbers: list[int] = np.random.SeedSequence(entropy).generate_state(4).tolist()
    return numbers
