"""The base of all distributions: shapes, validation, and what follows from other methods."""
from __future__ import annotations

import warnings
from typing import Any

from adjoint.autograd.api import grad
from adjoint.autograd.modes import enable_grad, no_grad
from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.core.tensor import Size, Tensor
from adjoint.distributions import constraints
from adjoint.distributions.utils import lazy_property, sum_rightmost


class Distribution:
    """A probability distribution over events of shape `event_shape`, `batch_shape` of them.

    Samples have the shape sample_shape + batch_shape + event_shape. `rsample` is differentiable in
    the parameters, where `has_rsample`. `validate_args` (on by default) checks parameters and
    values; a wrong one raises ValueError with the constraint and the numbers.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args: bool = __debug__
    arg_constraints: Any = {}
    support: Any = None

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Switch validation on or off for distributions made from now on."""
        if value not in (True, False):
            raise ArgumentError(f"set_default_validate_args expects a bool, got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = (), event_shape: Any = (),
                 validate_args: bool | None = None) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        if self.arg_constraints is Distribution.arg_constraints:
            warnings.warn(f"{type(self)} does not define `arg_constraints`. Please set "
                          "`arg_constraints = {}` or initialize the distribution with "
                          "`validate_args=False` to turn off validation.", stacklevel=3)
        for name, constraint in type(self).arg_constraints.items():
            if constraints.is_dependent(constraint) or (
                    name not in self.__dict__
                    and isinstance(getattr(type(self), name, None), lazy_property)):
                continue        # not known before the others, or made of another parameter
            value = getattr(self, name)
            if constraints.refuted(constraint.check(value)):
                raise ArgumentError(
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{constraint!r}, but found invalid values:\n{value}")

    # -- shapes -------------------------------------------------------------------------------
    @property
    def batch_shape(self) -> Size:
        """Shape of the parameters: how many distributions there are."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """Shape of one draw."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distributions, repeated to `batch_shape` without memory."""
        new = self._new(_instance)
        batch_shape = Size(batch_shape)
        for name, constraint in type(self).arg_constraints.items():
            if name in self.__dict__:
                self._expand_parameter(new, name, constraint.event_dim, batch_shape)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _expand_parameter(self, new: Any, name: str, event_dim: int, batch_shape: Any) -> None:
        value = self.__dict__[name]
        tail = value.shape[value.dim() - event_dim:] if event_dim else ()
        new.__dict__[name] = value.expand((*batch_shape, *tail))

    def _new(self, instance: Any = None) -> Any:
        """An instance of this class without parameters, to be filled by `expand`."""
        return type(self).__new__(type(self)) if instance is None else instance

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """`_new`, as `expand` of a program's own class calls it with the class that it stands in:
        a class derived from that one with other arguments has to have an `expand` of its own."""
        init = "__init__"
        if _instance is None and getattr(type(self), init) is not getattr(cls, init):
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method.")
        return self._new(_instance)

    # -- what subclasses define ---------------------------------------------------------------
    def _absent(self, what: str) -> Any:
        raise NotSupported(f"{type(self)} does not implement {what}")

    @property
    def mean(self) -> Any:
        """The expected value."""
        return self._absent("mean")

    @property
    def mode(self) -> Any:
        """The most probable value."""
        return self._absent("mode")

    @property
    def variance(self) -> Any:
        """The expected squared distance from the mean."""
        return self._absent("variance")

    @property
    def stddev(self) -> Any:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Any:
        """A draw, as a constant."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """A draw that is differentiable in the parameters."""
        return self._absent("rsample: its draws do not depend on its parameters smoothly")

    def sample_n(self, n: int) -> Any:
        """`sample((n,))`, deprecated in PyTorch."""
        warnings.warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.",
                      FutureWarning, stacklevel=2)
        return self.sample((n,))

    def log_prob(self, value: Any) -> Any:
        """log of the density (or probability) at `value`, of the broadcast batch shape."""
        return self._absent("log_prob")

    def cdf(self, value: Any) -> Any:
        """The probability of a draw that is not above `value`."""
        return self._absent("cdf")

    def icdf(self, value: Any) -> Any:
        """The quantile: the inverse of `cdf`."""
        return self._absent("icdf")

    def enumerate_support(self, expand: bool = True) -> Any:
        """Every value of a finite support, along a new leading axis."""
        return self._absent("enumerate_support")

    def entropy(self) -> Any:
        """-E log p."""
        return self._absent("entropy")

    def perplexity(self) -> Any:
        """exp(entropy)."""
        return self.entropy().exp()

    # -- validation and printing --------------------------------------------------------------
    def _validate_sample(self, value: Any) -> None:
        if not isinstance(value, Tensor):
            raise ArgumentError("The value argument to log_prob must be a Tensor, got "
                                f"{type(value).__name__}")
        start = value.dim() - len(self._event_shape)
        if start < 0 or tuple(value.shape[start:]) != tuple(self._event_shape):
            raise ArgumentError("The right-most size of value must match event_shape: "
                                f"{value.shape} vs {self._event_shape}.")
        expected = (*self._batch_shape, *self._event_shape)
        for i, j in zip(reversed(tuple(value.shape)), reversed(expected), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ArgumentError("Value is not broadcastable with batch_shape+event_shape: "
                                    f"{value.shape} vs {Size(expected)}.")
        try:
            support = self.support
        except NotImplementedError:
            support = None
        if support is None or constraints.is_dependent(support):
            return
        if constraints.refuted(support.check(value)):
            raise ArgumentError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, but found "
                f"invalid values:\n{value}")

    def __repr__(self) -> str:
        parts = []
        for name in self.arg_constraints:
            if name in self.__dict__:
                v = self.__dict__[name]
                parts.append(f"{name}: {v if v.numel() == 1 else v.shape}")
        return f"{type(self).__name__}({', '.join(parts)})"


class ExponentialFamily(Distribution):
    """Base of the distributions p(x) = exp(<t(x), theta> - F(theta) + k(x)).

    A subclass gives theta as the tuple `_natural_params`, F as `_log_normalizer` of them and the
    mean of k as `_mean_carrier_measure`; entropy and the divergence of two members of a family
    follow from derivatives of F. F. Nielsen, R. Nock, "Entropies and cross-entropies of
    exponential families" (2010).

    >>> import adjoint as ad
    >>> n = ad.distributions.Normal(1.0, 2.0)
    >>> bool(ExponentialFamily.entropy(n).isclose(n.entropy()))
    True
    """

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self._absent("natural parameters")
        return found

    def _log_normalizer(self, *natural_params: Any) -> Any:
        return self._absent("log normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        return self._absent("mean carrier measure")

    def _normalizer_slopes(self) -> tuple[tuple[Any, ...], Any, tuple[Any, ...]]:
        """(theta, F(theta), the derivatives of F)."""
        params = tuple([p.view_as(p) if p.requires_grad else p.detach().requires_grad_()
                        for p in self._natural_params])     # (one tensor may be two of them)
        with enable_grad():
            value = self._log_normalizer(*params)
            slopes = grad(value.sum(), params, create_graph=True)
        return params, value, tuple(slopes)

    def entropy(self) -> Any:
        """-E log p = F - <theta, F'(theta)> - E k."""
        carrier = self._mean_carrier_measure
        params, found, slopes = self._normalizer_slopes()
        for p, s in zip(params, slopes, strict=True):
            found = found - sum_rightmost(p * s, len(self._event_shape))
        return found - carrier


__all__ = ["Distribution", "ExponentialFamily", "lazy_property"]
