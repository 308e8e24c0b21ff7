"""`autograd.scipy.special`: special functions of arrays and boxes.

Those that this package has are its own; the rest are SciPy's, with rules.
"""
from __future__ import annotations

from collections.abc import Callable
from importlib import import_module as _import_module
from typing import Any

import numpy as _onp

from adjoint.core.tensor import Tensor as _Tensor
from adjoint.core.tensor import wrap as _wrap
from adjoint.hips import numpy as _np
from adjoint.hips.box import getval as _getval
from adjoint.hips.box import lower as _lower
from adjoint.hips.box import raised as _raised
from adjoint.hips.box import recorded as _recorded
from adjoint.hips.extend import defjvp as _defjvp
from adjoint.hips.extend import defvjp as _defvjp
from adjoint.hips.extend import primitive as _primitive
from adjoint.hips.extend import unruled as _unruled
from adjoint.ops.special import SPECIAL as _SPECIAL

F = Callable[..., Any]


def _operand(x: Any) -> Any:
    x = _lower(_np.array(x) if isinstance(x, (list, tuple)) else x)
    if isinstance(x, _Tensor):
        return x
    a = _onp.asarray(x)
    return _wrap(a if a.dtype.kind in "fc" else a.astype(_onp.float64))


def _own(name: str, ours: str) -> F:
    """This package's function under SciPy's name."""
    def run(*args: Any) -> Any:
        return _raised(_SPECIAL[ours](*map(_operand, args)))
    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"`scipy.special.{name}`."
    return _recorded(run)


erfinv, expit, logit = (_own(n, n) for n in "erfinv expit logit".split())
i0, i1, gammaln = (_own(n, n) for n in "i0 i1 gammaln".split())
i0e, i1e, ndtr, ndtri, log_ndtr = (_own(n, n) for n in "i0e i1e ndtr ndtri log_ndtr".split())
xlogy, xlog1py, entr = (_own(n, n) for n in "xlogy xlog1py entr".split())
j0, j1, y0, y1 = (_own(n, f"bessel_{n}") for n in "j0 j1 y0 y1".split())


@_recorded
def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of psi; n is a whole number."""
    orders = _onp.asarray(_getval(n))
    if orders.ndim == 0:
        return _raised(_SPECIAL["polygamma"](int(orders), _operand(x)))
    return sum(_np.where(orders == k, polygamma(k, x), 0.0) for k in _onp.unique(orders))


@_recorded
def multigammaln(a: Any, d: int) -> Any:
    """Log of the multivariate gamma function of dimension d."""
    return _raised(_SPECIAL["multigammaln"](_operand(a), int(d)))


def logsumexp(a: Any, axis: Any = None, b: Any = 1.0, keepdims: bool = False,
              return_sign: bool = False) -> Any:
    """log sum b exp(a) along the axes, without overflow."""
    at, none = _np.array(_getval(a)), _np.array(_getval(b)) == 0
    top = _onp.amax(_onp.where(none, -_onp.inf, at.real), axis=axis, keepdims=True)
    top = _onp.where(_onp.isfinite(top), top, 0.0)
    a = _np.where(none, top, a) if none.any() else a         # (what b leaves out may overflow)
    total = _np.sum(b * _np.exp(a - top), axis=axis, keepdims=keepdims)
    top = top if keepdims else _onp.squeeze(top, axis=axis)
    if return_sign:
        size = _np.abs(total)
        return _np.log(size) + top, total / _np.where(size == 0, 1.0, size)
    return _np.log(total) + top


def log_softmax(x: Any, axis: Any = None) -> Any:
    """log(softmax(x)), without overflow."""
    return x - logsumexp(x, axis, keepdims=True)


def softmax(x: Any, axis: Any = None) -> Any:
    """exp(x) over its sum along the axes."""
    return _np.exp(log_softmax(x, axis))


# ------------------------------------------------------------------ SciPy's code with rules
def unbroadcast(x: Any, like: Any) -> Any:
    """The sum over the axes along which `like` was repeated."""
    shape = _np.shape(like)
    extra = _np.ndim(x) - len(shape)
    x = _np.sum(x, axis=tuple(range(extra))) if extra > 0 else x
    ones = tuple(i for i, n in enumerate(shape) if n == 1 and _np.shape(x)[i] != 1)
    return _np.sum(x, axis=ones, keepdims=True) if ones else x


def elementwise(name: str, run: F, *slopes: Any) -> Any:
    """A primitive of broadcast operands. `slopes[i](ans, *args)` is the derivative in operand i;
    None where it has none, and then asking for it raises."""
    run.__name__ = run.__qualname__ = name
    made = _primitive(run)
    at = [i for i, s in enumerate(slopes) if s is not None]

    def pull(i: int) -> F:
        return lambda ans, *args: lambda g: unbroadcast(g * slopes[i](ans, *args), args[i])

    def push(i: int) -> F:
        return lambda g, ans, *args: g * slopes[i](ans, *args)
    _defvjp(made, *[pull(i) for i in at], argnums=at)
    _defjvp(made, *[push(i) for i in at], argnums=at)
    return made


def _theirs(name: str, *slopes: Any) -> Any:
    def run(*args: Any) -> Any:
        import scipy.special
        return getattr(scipy.special, name)(*args)
    return elementwise(name, run, *slopes)


def _of_both(name: str, ours: str, slope: F) -> F:
    """This package's function; of complex numbers SciPy's, with that slope."""
    real, theirs = _own(name, ours), _theirs(name, slope)

    def run(x: Any) -> Any:
        return (theirs if _np.iscomplexobj(_getval(x)) else real)(x)
    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"`scipy.special.{name}`."
    return run


_BELL = 2 / _onp.sqrt(_onp.pi)
erf = _of_both("erf", "erf", lambda y, x: _BELL * _np.exp(-x ** 2))
erfc = _of_both("erfc", "erfc", lambda y, x: -_BELL * _np.exp(-x ** 2))
psi, digamma = (_of_both(n, "digamma", lambda y, x: polygamma(1, x)) for n in ("psi", "digamma"))
zeta: Any = _theirs("zeta", None, lambda y, s, q: -s * zeta(s + 1, q))
gamma = _theirs("gamma", lambda y, x: y * psi(x))
rgamma = _theirs("rgamma", lambda y, x: -y * psi(x))
gammasgn = _theirs("gammasgn", lambda y, x: _np.zeros(_np.shape(x)))
erfcinv = _theirs("erfcinv", lambda y, x: -_onp.sqrt(_onp.pi) / 2 * _np.exp(y ** 2))
beta = _theirs("beta", lambda y, a, b: y * (psi(a) - psi(a + b)),
               lambda y, a, b: y * (psi(b) - psi(a + b)))
betaln = _theirs("betaln", lambda y, a, b: psi(a) - psi(a + b), lambda y, a, b: psi(b) - psi(a + b))
betainc = _theirs("betainc", None, None, lambda y, a, b, x: _np.exp(
    (a - 1) * _np.log(x) + (b - 1) * _np.log1p(-x) - betaln(a, b)))
gammainc = _theirs("gammainc", None, lambda y, a, x: _np.exp((a - 1) * _np.log(x) - x - gammaln(a)))
gammaincc = _theirs("gammaincc", None,
                    lambda y, a, x: -_np.exp((a - 1) * _np.log(x) - x - gammaln(a)))
def _flat(*_: Any) -> Any:
    """The derivative in an order: none is known, and the gradient is zero."""
    return 0.0


jv: Any = _theirs("jv", _flat, lambda y, n, x: (jv(n - 1, x) - jv(n + 1, x)) / 2)
jn = jv
yn: Any = _theirs("yn", _flat, lambda y, n, x: (yn(n - 1, x) - yn(n + 1, x)) / 2)
iv: Any = _theirs("iv", _flat, lambda y, n, x: (iv(n - 1, x) + iv(n + 1, x)) / 2)
ive: Any = _theirs("ive", _flat,
                   lambda y, n, x: (ive(n - 1, x) + ive(n + 1, x)) / 2 - y * _np.sign(x))


__getattr__ = _unruled(lambda: _import_module("scipy.special"))


__all__ = ["log_softmax", "logsumexp", "multigammaln", "polygamma", "softmax"]
