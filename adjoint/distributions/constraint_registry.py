"""Transforms from unconstrained space onto a constraint: `biject_to(c)`, `transform_to(c)`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.distributions import constraints
from adjoint.distributions import transforms as t


class ConstraintRegistry:
    """Finds the transform whose codomain is a constraint."""

    def __init__(self) -> None:
        self._registry: dict[Any, Callable[[Any], Any]] = {}

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Enter factory(constraint) -> Transform for a constraint, its class, or its kind."""
        if factory is None:
            return lambda f: self.register(constraint, f)
        if not isinstance(constraint, constraints.Constraint) and not (
                isinstance(constraint, type) and issubclass(constraint, constraints.Constraint)):
            raise ArgumentError("Expected constraint to be either a Constraint subclass or "
                                f"instance, but got {constraint}")
        self._registry[_key(constraint)] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        factory = self._registry.get(_key(constraint))
        if factory is None:
            raise NotSupported(f"Cannot transform {_key(constraint).__name__} constraints")
        return factory(constraint)


def _key(constraint: Any) -> Any:
    """Constraints of one kind, whatever their bounds."""
    return constraint if isinstance(constraint, type) else type(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _between(c: Any) -> Any:
    if isinstance(c.lower_bound, (int, float)) and (c.lower_bound, c.upper_bound) == (0, 1):
        return t.SigmoidTransform()
    scale = c.upper_bound - c.lower_bound
    return t.ComposeTransform([t.SigmoidTransform(), t.AffineTransform(c.lower_bound, scale)])


def _above(c: Any) -> Any:
    if isinstance(c.lower_bound, (int, float)) and c.lower_bound == 0:
        return t.ExpTransform()
    return t.ComposeTransform([t.ExpTransform(), t.AffineTransform(c.lower_bound, 1)])


def _below(c: Any) -> Any:
    return t.ComposeTransform([t.ExpTransform(), t.AffineTransform(c.upper_bound, -1)])


for _registry in (biject_to, transform_to):
    _registry.register(constraints.real, lambda c: t.identity_transform)
    _registry.register(constraints.positive, _above)
    _registry.register(constraints.nonnegative, _above)
    _registry.register(constraints.less_than(0.0), _below)
    _registry.register(constraints.unit_interval, _between)
    _registry.register(constraints.half_open_interval(0.0, 1.0), _between)
    _registry.register(constraints.corr_cholesky, lambda c: t.CorrCholeskyTransform())
biject_to.register(constraints.simplex, lambda c: t.StickBreakingTransform())
transform_to.register(constraints.lower_cholesky, lambda c: t.LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda c: t.PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite,
                      lambda c: t.PositiveDefiniteTransform())
transform_to.register(constraints.simplex, lambda c: t.SoftmaxTransform())


def _independent(registry: ConstraintRegistry) -> Callable[[Any], Any]:
    def factory(c: Any) -> Any:
        inner = registry(c.base_constraint)
        return t.IndependentTransform(inner, c.reinterpreted_batch_ndims)
    return factory


def _cat(registry: ConstraintRegistry) -> Callable[[Any], Any]:
    return lambda c: t.CatTransform([registry(part) for part in c.cseq], c.dim, c.lengths)


def _stack(registry: ConstraintRegistry) -> Callable[[Any], Any]:
    return lambda c: t.StackTransform([registry(part) for part in c.cseq], c.dim)


for _registry in (biject_to, transform_to):
    _registry.register(constraints.real_vector, _independent(_registry))
    _registry.register(constraints.cat, _cat(_registry))
    _registry.register(constraints.stack, _stack(_registry))
__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]
