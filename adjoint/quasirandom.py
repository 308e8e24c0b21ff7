"""`torch.quasirandom`: Sobol sequences, which fill a cube more evenly than random points do."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.dtypes import default_dtype
from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.core.tensor import Tensor
from adjoint.ops.create import from_numpy
from adjoint.ops.generator import default_generator

__all__ = ["SobolEngine"]


class SobolEngine:
    """Draws the points of a Sobol sequence in [0, 1) of `dimension` axes. Needs SciPy.

    scramble    other points with the same evenness, by `seed`; without one they follow
                `manual_seed`. The numbers are SciPy's, not PyTorch's.

    Source: Joe and Kuo, 2008 (directions); Owen, 1998 (scrambling).

    >>> SobolEngine(2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ArgumentError(f"Supported range of dimensionality for SobolEngine is "
                                f"[1, {self.MAXDIM}], got {dimension}")
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        if scramble and seed is None:
            seed = int(default_generator.stream.integers((), 0, 2**31))
        self._points = _qmc().Sobol(dimension, scramble=scramble, bits=self.MAXBIT, rng=seed)

    @property
    def num_generated(self) -> int:
        """How many points were drawn or skipped."""
        return int(self._points.num_generated)

    def draw(self, n: int = 1, out: Any = None, dtype: Any = None) -> Any:
        """The next n points, (n, dimension)."""
        if self.num_generated + n > 2 ** self.MAXBIT:
            raise ArgumentError(f"SobolEngine: at most 2**{self.MAXBIT} points can be drawn, "
                                f"{self.num_generated} were, asked for {n} more")
        points: Tensor = from_numpy(_drawn(self._points, n))
        points = points.to(default_dtype() if dtype is None else dtype)
        if out is None:
            return points
        return out.resize_(points.shape).copy_(points)

    def draw_base2(self, m: int, out: Any = None, dtype: Any = None) -> Any:
        """The next 2**m points: the sizes at which the sequence is balanced."""
        n, total = 2 ** m, self.num_generated + 2 ** m
        if total & (total - 1):
            raise ArgumentError(f"The balance properties of Sobol' points require n to be a power "
                                f"of 2. {self.num_generated} points have been previously generated,"
                                f" then: n={total - n}+2**{m}={total}. If you still want to do "
                                "this, please use 'SobolEngine.draw()' instead.")
        return self.draw(n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begin again with the first point."""
        self._points.reset()
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out n points."""
        self._points.fast_forward(n)
        return self

    def __repr__(self) -> str:
        shown = [f"dimension={self.dimension}"]
        if self.scramble:
            shown.append("scramble=True")
        if self.seed is not None:
            shown.append(f"seed={self.seed}")
        return f"SobolEngine({', '.join(shown)})"


def _drawn(points: Any, n: int) -> np.ndarray[Any, Any]:
    """SciPy warns where a draw is not balanced, which PyTorch does not: the first point alone."""
    if points.num_generated == 0 and n & (n - 1):
        first = 1 << (n.bit_length() - 1)
        return np.concatenate([points.random(first), points.random(n - first)])
    return np.asarray(points.random(n))


def _qmc() -> Any:
    try:
        from scipy.stats import qmc
    except ImportError:
        raise NotSupported("SobolEngine needs SciPy: pip install scipy") from None
    return qmc
