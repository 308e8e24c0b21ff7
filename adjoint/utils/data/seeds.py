"""Random order for data: one seed drawn from the package's generator, NumPy for the rest."""
from __future__ import annotations

import random
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.ops.random import Generator, default_generator


def draw_seed(generator: Any = None) -> int:
    """A new 63-bit seed from an `adjoint.Generator`, a NumPy generator, or the default one.

    >>> 0 <= draw_seed(np.random.default_rng(0)) < 2**63
    True
    """
    if generator is None:
        generator = default_generator
    rng = generator.rng if isinstance(generator, Generator) else generator
    if not isinstance(rng, np.random.Generator):
        raise ArgumentError(f"generator is a {type(generator).__name__}; an adjoint.Generator or "
                            f"a numpy.random.Generator is needed")
    return int(rng.integers(2**63 - 1))


def numpy_generator(generator: Any = None) -> np.random.Generator:
    """A NumPy generator seeded by `draw_seed(generator)`."""
    return np.random.Generator(np.random.Philox(draw_seed(generator)))


def permutation(n: int, generator: Any = None) -> list[int]:
    """The numbers below `n` in random order.

    >>> sorted(permutation(4, np.random.default_rng(0)))
    [0, 1, 2, 3]
    """
    order: list[int] = numpy_generator(generator).permutation(n).tolist()
    return order


def seed_everything(seed: int) -> None:
    """Seed this process's generators: the package's, Python's and NumPy's."""
    default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
