"""The chi-squared distribution."""
from __future__ import annotations

from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.gamma import Gamma
from adjoint.distributions.utils import broadcast_all


class Chi2(Gamma):
    """Sum of `df` squared standard normal variables."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        df, = broadcast_all(df)
        super().__init__(0.5 * df, F.full_like(df, 0.5), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._new(_instance)
        new.concentration = self.concentration.expand(batch_shape)
        new.rate = self.rate.expand(batch_shape)
        return super().expand(batch_shape, new)

    @property
    def df(self) -> Any:
        """Degrees of freedom."""
        return self.concentration * 2


__all__ = ["Chi2"]
