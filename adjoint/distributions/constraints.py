"""Where a parameter or a value may lie: `constraint.check(value)` is a tensor of truth values."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adjoint.base.aval import MetaArray
from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.distributions._ops import F
from adjoint.ops.api_decompose import LINALG
from adjoint.ops.singular import LinAlgError


def refuted(ok: Any) -> bool:
    """True if some truth value of `ok` is false; storage-less ones are taken to be true."""
    held = ok.all()
    return type(held.array) is not MetaArray and not held


class Constraint:
    """A region of values. `event_dim` trailing axes are judged together; `is_discrete` says that
    the region is a set of separate points."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Any) -> Any:
        """True for every event of `value` that lies in the region."""
        raise NotSupported(f"{type(self).__name__} does not define check()")

    def __repr__(self) -> str:
        return self.__class__.__name__[1:] + "()"


class _Dependent(Constraint):
    """Depends on other parameters, so that it cannot be checked alone. Whether it is discrete, and
    how many axes an event has, is known where it was said."""

    def __init__(self, *, is_discrete: bool | None = None, event_dim: int | None = None) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]  # of others it is an attribute
        """Whether the values are whole numbers."""
        if self._is_discrete is None:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return self._is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]  # the same
        """How many axes are judged together."""
        if self._event_dim is None:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return self._event_dim

    def __call__(self, *, is_discrete: bool | None = None, event_dim: int | None = None) -> Any:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is None else is_discrete,
            event_dim=self._event_dim if event_dim is None else event_dim)

    def check(self, value: Any) -> Any:
        raise ArgumentError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """True for constraints that depend on other parameters."""
    return isinstance(constraint, _Dependent)


class dependent_property(property, _Dependent):
    """A property of a distribution that gives a constraint: its support, usually."""

    def __init__(self, fn: Callable[..., Any] | None = None, *, is_discrete: bool | None = None,
                 event_dim: int | None = None) -> None:
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[..., Any]) -> Any:  # type: ignore[override]  # decorator
        return dependent_property(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """A constraint whose last axes are judged together."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Any) -> Any:
        ok = self.base_constraint.check(value)
        if ok.dim() < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        shape = ok.shape[:ok.dim() - self.reinterpreted_batch_ndims]
        return ok.reshape((*shape, -1)).all(-1)

    def __repr__(self) -> str:
        return (f"IndependentConstraint({self.base_constraint!r}, "
                f"{self.reinterpreted_batch_ndims})")


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value == 0) | (value == 1)


class _Real(Constraint):
    def check(self, value: Any) -> Any:
        return value == value           # nan alone is not equal to itself


class _Bounds(Constraint):
    """Between bounds, either of which may be absent; `strict` says which of them are left out."""

    strict = (False, False)

    def check(self, value: Any) -> Any:
        ok = value % 1 == 0 if self.is_discrete else None
        lower, upper = self.__dict__.get("lower_bound"), self.__dict__.get("upper_bound")
        if lower is not None:
            above = value > lower if self.strict[0] else value >= lower
            ok = above if ok is None else ok & above
        if upper is not None:
            below = value < upper if self.strict[1] else value <= upper
            ok = below if ok is None else ok & below
        return ok

    def __repr__(self) -> str:
        given = [f"{n}={getattr(self, n)}" for n in ("lower_bound", "upper_bound")
                 if n in self.__dict__]
        return f"{self.__class__.__name__[1:]}({', '.join(given)})"


class _Above(_Bounds):
    """From a lower bound on."""

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _Below(_Bounds):
    """Up to an upper bound."""

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class _Between(_Bounds):
    """From a lower bound to an upper one."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _GreaterThan(_Above):
    strict = (True, False)


class _GreaterThanEq(_Above):
    pass


class _IntegerGreaterThan(_Above):
    is_discrete = True


class _LessThan(_Below):
    strict = (False, True)


class _Interval(_Between):
    pass


class _HalfOpenInterval(_Between):
    strict = (False, True)


class _IntegerInterval(_Between):
    is_discrete = True


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Any:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Counts that sum to at most `upper_bound`."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        flat = (value.tril() == value).flatten(-2).all(-1)
        return flat & (value.diagonal(0, -2, -1) > 0).all(-1)


class _CorrCholesky(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        eps = 1e-5 * value.shape[-1]
        unit = ((value.square().sum(-1) - 1).abs() < eps).all(-1)
        return lower_cholesky.check(value) & unit


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        return F.full(tuple(value.shape[:-2]), value.shape[-1] == value.shape[-2])


class _Symmetric(_Square):
    def check(self, value: Any) -> Any:
        square = super().check(value)
        if refuted(square):
            return square
        return F.isclose(value, value.mT, atol=1e-6).flatten(-2).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        if refuted(symmetric):
            return symmetric
        lead = tuple(value.shape[:-2])
        flat = value.detach().reshape(-1, *value.shape[-2:])
        return F.tensor([_has_root(m) for m in flat.unbind(0)]).reshape(lead)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        if refuted(symmetric):
            return symmetric
        return (LINALG["eigvalsh"](value) >= 0).all(-1)


def _has_root(matrix: Any) -> bool:
    try:
        F.cholesky(matrix)
    except LinAlgError:
        return False
    return True


class _Cat(Constraint):
    """Pieces of the given lengths along an axis (default: of length 1), each under its own
    constraint."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Any = None) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        self.event_dim = max(c.event_dim for c in self.cseq)

    def check(self, value: Any) -> Any:
        parts = value.split(self.lengths, self.dim)
        return F.cat([c.check(p) for c, p in zip(self.cseq, parts, strict=True)], self.dim)


class _Stack(Constraint):
    """Slices along an axis, each under its own constraint."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        inner = max(c.event_dim for c in self.cseq)
        self.event_dim = inner + (dim + inner < 0)      # the stacked axis is the event's, or before

    def check(self, value: Any) -> Any:
        parts = value.unbind(self.dim)
        return F.stack([c.check(p) for c, p in zip(self.cseq, parts, strict=True)], self.dim)


class MixtureSameFamilyConstraint(Constraint):
    """The region of a mixture whose components lie along the last batch axis of
    ``base_constraint``: values in the region of all of them."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim

    def check(self, value: Any) -> Any:
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return self.base_constraint.check(value.unsqueeze(-1 - self.event_dim)).all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


independent = _IndependentConstraint
cat, stack = _Cat, _Stack
multinomial = _Multinomial
dependent = _Dependent()
boolean = _Boolean()
one_hot = _OneHot()
greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
real = _Real()
real_vector = independent(real, 1)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_definite = _PositiveDefinite()
positive_semidefinite = _PositiveSemidefinite()
__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent",
    "dependent_property", "greater_than", "greater_than_eq", "half_open_interval", "independent",
    "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
    "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive",
    "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector",
    "simplex", "square", "stack", "symmetric", "unit_interval"]
