"""The base of transforms, and transforms made of others."""
from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

from adjoint.base.errors import ArgumentError, AssertedError, NotSupported
from adjoint.core.tensor import Size
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.utils import sum_rightmost


class Transform:
    """A map from `domain` to `codomain` with `_call`, `_inverse` and `log_abs_det_jacobian(x, y)`.

    `cache_size=1` remembers the last pair (x, y), so that the inverse of what was just computed is
    exact and free.

    >>> import adjoint as ad
    >>> t = ad.distributions.ExpTransform()
    >>> t.inv(t(ad.tensor([0.5])))
    tensor([0.5000])
    """

    bijective: Any = False
    domain: Any = constraints.real
    codomain: Any = constraints.real
    _cache_size: int
    _cached_x_y: tuple[Any, Any]
    _inverse_ref: Any = staticmethod(lambda: None)      # or a weak reference to the inverse

    def __init__(self, cache_size: int = 0) -> None:
        self._remember(cache_size)
        super().__init__()              # of a module, where a transform with parameters is one

    def _remember(self, cache_size: int) -> None:
        if cache_size not in (0, 1):
            raise ArgumentError(f"cache_size must be 0 or 1, got {cache_size}")
        self.__dict__.update(_cache_size=cache_size, _cached_x_y=(None, None))
        self.__dict__.pop("_inverse_ref", None)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_cached_x_y": (None, None)}
        state.pop("_inverse_ref", None)
        return state

    @property
    def event_dim(self) -> int:
        """Event axes, where domain and codomain have the same number."""
        if self.domain.event_dim == self.codomain.event_dim:
            return int(self.domain.event_dim)
        raise ArgumentError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Any:
        """The inverse transform: the same one as long as somebody holds it."""
        found = self._inverse_ref()
        if found is None:
            found = self._made_inverse()
            found._inverse_ref = weakref.ref(self)
            self._inverse_ref = weakref.ref(found)
        return found

    def _made_inverse(self) -> Any:
        return _InverseTransform(self)

    @property
    def sign(self) -> Any:
        """+1 or -1: the direction of a monotone map of one variable."""
        raise NotSupported(f"{type(self).__name__} has no sign: it is not monotone")

    def with_cache(self, cache_size: int = 1) -> Any:
        """The same transform with that cache size."""
        if self._cache_size == cache_size:
            return self
        new = self.__class__.__new__(self.__class__)
        new.__dict__.update(self.__dict__)
        new._remember(cache_size)
        return new

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __call__(self, x: Any) -> Any:
        if self._cache_size and x is self._cached_x_y[0]:
            return self._cached_x_y[1]
        y = self._call(x)
        if self._cache_size:
            self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Any) -> Any:
        if self._cache_size and y is self._cached_x_y[1]:
            return self._cached_x_y[0]
        x = self._inverse(y)
        if self._cache_size:
            self._cached_x_y = x, y
        return x

    def _call(self, x: Any) -> Any:
        raise NotSupported(f"{type(self).__name__} does not define _call()")

    def _inverse(self, y: Any) -> Any:
        raise NotSupported(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log |det dy/dx|, without the event axes."""
        raise NotSupported(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape: Any) -> Any:
        """Shape of the output for an input of `shape`."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """Shape of the input for an output of `shape`."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """A transform read backwards."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv = transform

    bijective = property(lambda self: self._inv.bijective)
    domain = property(lambda self: self._inv.codomain)
    codomain = property(lambda self: self._inv.domain)
    sign = property(lambda self: self._inv.sign)
    inv = property(lambda self: self._inv)

    def with_cache(self, cache_size: int = 1) -> Any:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = Transform.__hash__

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Any) -> Any:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"_InverseTransform({self._inv!r})"


class ComposeTransform(Transform):
    """Transforms applied one after the other, the first first."""

    def __init__(self, parts: Sequence[Any], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [p.with_cache(cache_size) for p in parts] if cache_size else list(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = Transform.__hash__

    @property
    def domain(self) -> Any:
        if not self.parts:
            return constraints.real
        found = self.parts[0].domain
        need = self.parts[-1].codomain.event_dim
        for p in reversed(self.parts):
            need = max(need + p.domain.event_dim - p.codomain.event_dim, p.domain.event_dim)
        lacking = need - found.event_dim
        return constraints.independent(found, lacking) if lacking else found

    @property
    def codomain(self) -> Any:
        if not self.parts:
            return constraints.real
        found = self.parts[-1].codomain
        need = self.parts[0].domain.event_dim
        for p in self.parts:
            need = max(need + p.codomain.event_dim - p.domain.event_dim, p.codomain.event_dim)
        lacking = need - found.event_dim
        return constraints.independent(found, lacking) if lacking else found

    @property
    def bijective(self) -> bool:
        return all(p.bijective for p in self.parts)

    @property
    def sign(self) -> Any:
        out: Any = 1
        for p in self.parts:
            out = out * p.sign
        return out

    def _made_inverse(self) -> Any:
        return ComposeTransform([p.inv for p in reversed(self.parts)], self._cache_size)

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    def __call__(self, x: Any) -> Any:
        for p in self.parts:
            x = p(x)
        return x

    def _inv_call(self, y: Any) -> Any:
        for p in reversed(self.parts):
            y = p._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if not self.parts:
            return F.zeros_like(x)
        values = [x]
        for p in self.parts[:-1]:
            values.append(p(values[-1]))
        values.append(y)
        total: Any = 0.0
        event_dim = self.domain.event_dim
        for p, before, after in zip(self.parts, values[:-1], values[1:], strict=True):
            total = total + sum_rightmost(p.log_abs_det_jacobian(before, after),
                                          event_dim - p.domain.event_dim)
            event_dim += p.codomain.event_dim - p.domain.event_dim
        return total

    def forward_shape(self, shape: Any) -> Any:
        for p in self.parts:
            shape = p.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for p in reversed(self.parts):
            shape = p.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        inner = ",\n    ".join(repr(p) for p in self.parts)
        return f"ComposeTransform(\n    {inner}\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last batch axes count as event axes."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int,
                 cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    domain = property(lambda self: constraints.independent(
        self.base_transform.domain, self.reinterpreted_batch_ndims))
    codomain = property(lambda self: constraints.independent(
        self.base_transform.codomain, self.reinterpreted_batch_ndims))
    bijective = property(lambda self: self.base_transform.bijective)
    sign = property(lambda self: self.base_transform.sign)

    def _call(self, x: Any) -> Any:
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y),
                             self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """The trailing axes `in_shape` as `out_shape`."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ArgumentError(f"in_shape {self.in_shape} and out_shape {self.out_shape} have "
                                "different numbers of elements")

    domain = property(lambda self: constraints.independent(constraints.real, len(self.in_shape)))
    codomain = property(lambda self: constraints.independent(constraints.real,
                                                             len(self.out_shape)))

    def _call(self, x: Any) -> Any:
        return x.reshape(self.forward_shape(tuple(x.shape)))

    def _inverse(self, y: Any) -> Any:
        return y.reshape(self.inverse_shape(tuple(y.shape)))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return F.zeros(tuple(x.shape[:x.dim() - len(self.in_shape)]), dtype=x.dtype)

    def _moved(self, shape: Any, old: Any, new: Any) -> Any:
        cut = len(shape) - len(old)
        if cut < 0:
            raise ArgumentError(f"Too few dimensions on input: {tuple(shape)} has fewer than {old}")
        if tuple(shape[cut:]) != old:
            raise ArgumentError(f"Shape mismatch: expected {tuple(shape[max(cut, 0):])} to be "
                                f"{old}")
        return Size((*shape[:cut], *new))

    def forward_shape(self, shape: Any) -> Any:
        return self._moved(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._moved(shape, self.out_shape, self.in_shape)


class _Pieces(Transform):
    """Pieces along an axis, each through its own transform."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Any = None,
                 cache_size: int = 0) -> None:
        super().__init__(cache_size)
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertedError("All elements of tseq must be Transform instances")
        self.transforms = [t.with_cache(cache_size) for t in tseq]
        self.dim = dim
        self.lengths = lengths

    bijective = property(lambda self: all(t.bijective for t in self.transforms))
    domain = property(lambda self: self._joined([t.domain for t in self.transforms]))
    codomain = property(lambda self: self._joined([t.codomain for t in self.transforms]))

    def _joined(self, parts: list[Any]) -> Any:
        if self.lengths is None:
            return constraints.stack(parts, self.dim)
        return constraints.cat(parts, self.dim, self.lengths)

    def _split(self, x: Any) -> Any:
        return x.unbind(self.dim) if self.lengths is None else x.split(self.lengths, self.dim)

    def _join(self, parts: Any) -> Any:
        return (F.stack if self.lengths is None else F.cat)(parts, self.dim)

    def _call(self, x: Any) -> Any:
        return self._join([t(p) for t, p in zip(self.transforms, self._split(x), strict=True)])

    def _inverse(self, y: Any) -> Any:
        return self._join([t.inv(p) for t, p in zip(self.transforms, self._split(y),
                                                    strict=True)])

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        parts = [t.log_abs_det_jacobian(a, b) for t, a, b in zip(
            self.transforms, self._split(x), self._split(y), strict=True)]
        if any(t.domain.event_dim for t in self.transforms):
            raise NotSupported("log_abs_det_jacobian of pieces that are events themselves: apply "
                               "the transforms one by one")
        return self._join(parts)


class CatTransform(_Pieces):
    """Pieces of the given lengths along an axis, each through its own transform."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Any = None,
                 cache_size: int = 0) -> None:
        super().__init__(tseq, dim, [1] * len(tseq) if lengths is None else list(lengths),
                         cache_size)


class StackTransform(_Pieces):
    """Slices along an axis, each through its own transform."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, None, cache_size)
