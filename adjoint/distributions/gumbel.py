"""The Gumbel distribution."""
from __future__ import annotations

import math
from typing import Any

from adjoint.base.dtypes import finfo
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.transformed_distribution import Pushed
from adjoint.distributions.transforms import AffineTransform, ExpTransform
from adjoint.distributions.uniform import Uniform
from adjoint.distributions.utils import EULER, broadcast_all


class Gumbel(Pushed):
    """The largest of many draws: loc - scale·log(-log U)."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mean = property(lambda self: self.loc + self.scale * EULER)
    mode = property(lambda self: self.loc)
    stddev = property(lambda self: math.pi / math.sqrt(6) * self.scale)
    variance = property(lambda self: self.stddev.square())

    def _pushed(self) -> Any:
        kind = finfo(self.loc.dtype)
        base = Uniform(F.full_like(self.loc, kind.tiny), F.full_like(self.loc, 1 - kind.eps))
        flip = AffineTransform(0, -F.ones_like(self.scale))
        return base, [ExpTransform().inv, flip, ExpTransform().inv,
                      AffineTransform(self.loc, -self.scale)]

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        kind = finfo(self.loc.dtype)
        u = kind.tiny + F.rand(shape, dtype=self.loc.dtype) * (1 - kind.eps - kind.tiny)
        return self.loc - self.scale * (-u.log()).log()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        z = (self.loc - value) / self.scale
        return z - z.exp() - self.scale.log()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return (-((self.loc - value) / self.scale).exp()).exp()

    def icdf(self, value: Any) -> Any:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Any:
        return self.scale.log() + (1 + EULER)


__all__ = ["Gumbel"]
