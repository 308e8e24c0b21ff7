"""Invertible maps with the log determinant of their Jacobians."""
from __future__ import annotations

import math
from typing import Any

from adjoint.base.dtypes import finfo
from adjoint.base.errors import ArgumentError
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions._transform_base import (
    CatTransform,
    ComposeTransform,
    IndependentTransform,
    ReshapeTransform,
    StackTransform,
    Transform,
    identity_transform,
)
from adjoint.distributions._transform_base import (
    _InverseTransform as _InverseTransform,
)
from adjoint.distributions.utils import broadcast_all, sum_rightmost

__all__ = ["AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform",
           "CorrCholeskyTransform", "CumulativeDistributionTransform", "ExpTransform",
           "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform",
           "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
           "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform",
           "Transform", "identity_transform"]


class ExpTransform(Transform):
    """y = exp(x)."""

    domain = constraints.real
    codomain: Any = constraints.positive
    bijective = True
    sign = 1

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class PowerTransform(Transform):
    """y = x^exponent for x > 0."""

    domain = codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent, = broadcast_all(exponent)

    @property
    def sign(self) -> Any:
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool((self.exponent == other.exponent).all())

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return F.broadcast_shapes(tuple(shape), tuple(self.exponent.shape))

    inverse_shape = forward_shape


class SigmoidTransform(ExpTransform):
    """y = 1/(1 + exp(-x))."""

    codomain = constraints.unit_interval

    def _call(self, x: Any) -> Any:
        return x.sigmoid()

    def _inverse(self, y: Any) -> Any:
        kind = finfo(y.dtype)           # rounded draws lie on the edge, where the log is infinite
        y = y.clamp(min=kind.tiny, max=1 - kind.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return F.logsigmoid(x) + F.logsigmoid(-x)


class SoftplusTransform(ExpTransform):
    """y = log(1 + exp(x))."""

    def _call(self, x: Any) -> Any:
        return F.softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -F.softplus(-x)


class TanhTransform(ExpTransform):
    """y = tanh(x)."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class AbsTransform(Transform):
    """y = |x|; not invertible, `inv` gives the positive one."""

    domain, codomain = constraints.real, constraints.positive

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbsTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class AffineTransform(Transform):
    """y = loc + scale·x; `event_dim` axes are one event."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def domain(self) -> Any:
        n = self._event_dim
        return constraints.independent(constraints.real, n) if n else constraints.real

    codomain = domain

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, (int, float)):
            return (self.scale > 0) - (self.scale < 0)
        return self.scale.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and all(
            bool(F.as_tensor(a == b).all()) for a, b in ((self.loc, other.loc),
                                                         (self.scale, other.scale)))

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if isinstance(self.scale, (int, float)):
            out = F.full_like(x, math.log(abs(self.scale)))
        else:
            out = self.scale.abs().log().expand(F.broadcast_shapes(
                tuple(x.shape), tuple(self.scale.shape)))
        return sum_rightmost(out, self._event_dim)

    def forward_shape(self, shape: Any) -> Any:
        return F.broadcast_shapes(tuple(shape), *(tuple(getattr(v, "shape", ()))
                                                  for v in (self.loc, self.scale)))

    inverse_shape = forward_shape


class SoftmaxTransform(Transform):
    """Unconstrained vectors to the simplex; not bijective: shifts are lost."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftmaxTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return x.softmax(-1)

    def _inverse(self, y: Any) -> Any:
        return y.log()


class StickBreakingTransform(Transform):
    """K-1 free numbers to K probabilities: each takes its share of what is left of a stick."""

    domain, codomain = constraints.real_vector, constraints.simplex
    bijective = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StickBreakingTransform)

    __hash__ = Transform.__hash__

    def _offset(self, k: int, like: Any) -> Any:
        return F.arange(k, 0, -1, dtype=like.dtype).log()

    def _call(self, x: Any) -> Any:
        share = (x - self._offset(x.shape[-1], x)).sigmoid()
        left = (1 - share).cumprod(-1)
        one = F.ones_like(x[..., :1])
        return F.cat([share, one], -1) * F.cat([one, left], -1)

    def _inverse(self, y: Any) -> Any:
        head = y[..., :-1]
        left = (1 - head.cumsum(-1)).clamp(min=1e-38)
        return head.log() - left.log() + self._offset(head.shape[-1], head)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        z = x - self._offset(x.shape[-1], x)
        return (F.logsigmoid(z) - z + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _few(shape, 1)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        _few(shape, 1)
        return (*shape[:-1], shape[-1] - 1)


def _few(shape: Any, axes: int) -> None:
    if len(shape) < axes:
        raise ArgumentError(f"Too few dimensions on input: {tuple(shape)} has fewer than {axes}")


class LowerCholeskyTransform(Transform):
    """Matrices to lower triangles with a positive diagonal: exp of the diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain: Any = constraints.lower_cholesky

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LowerCholeskyTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + F.diag_embed(x.diagonal(0, -2, -1).exp())

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + F.diag_embed(y.diagonal(0, -2, -1).log())


class PositiveDefiniteTransform(LowerCholeskyTransform):
    """Matrices to positive definite ones: L·Lᵀ of the lower Cholesky transform."""

    codomain: Any = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        root = super()._call(x)
        return root @ root.mT

    def _inverse(self, y: Any) -> Any:
        return super()._inverse(F.cholesky(y))


class CorrCholeskyTransform(Transform):
    """n(n-1)/2 free numbers to the lower Cholesky factor of a correlation matrix: tanh gives
    partial correlations, rows have norm 1."""

    domain, codomain = constraints.real_vector, constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        r = _lower(x.tanh())
        rest = (1 - r.square() + 1e-38).sqrt().cumprod(-1)
        shifted = F.cat([F.ones_like(rest[..., :1]), rest[..., :-1]], -1)
        eye = F.eye(r.shape[-1], dtype=x.dtype)
        return (r + eye) * shifted

    def _inverse(self, y: Any) -> Any:
        left = (1 - y.square().cumsum(-1)).clamp(min=1e-38)
        shifted = F.cat([F.ones_like(left[..., :1]), left[..., :-1]], -1)
        partial = y.tril(-1) / shifted.sqrt()
        n = y.shape[-1]
        at = [i * n + j for i in range(n) for j in range(i)]
        return partial.flatten(-2)[..., F.tensor(at)].atanh()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        left = 1 - y.square().cumsum(-1)
        n = y.shape[-1]
        at = [i * n + j for i in range(n) for j in range(i - 1)]
        rows = 0.5 * left.flatten(-2)[..., F.tensor(at)].log().sum(-1) if at else 0.0
        return rows - 2 * (x + F.softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _few(shape, 1)
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ArgumentError(f"Input is not a flattened lower-diagonal number: {shape[-1]}")
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Any) -> Any:
        _few(shape, 2)
        if shape[-2] != shape[-1]:
            raise ArgumentError(f"Input is not square: {tuple(shape)}")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


def _lower(v: Any) -> Any:
    """A vector as the strictly lower triangle of a matrix, row by row."""
    n = round((0.25 + 2 * v.shape[-1]) ** 0.5 + 0.5)
    table = [[i * (i - 1) // 2 + j if j < i else v.shape[-1] for j in range(n)] for i in range(n)]
    padded = F.cat([v, F.zeros_like(v[..., :1])], -1)
    return padded[..., F.tensor(table).reshape(-1)].reshape((*v.shape[:-1], n, n))


class CumulativeDistributionTransform(Transform):
    """y = cdf(x) of a distribution of one variable."""

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support)

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)
