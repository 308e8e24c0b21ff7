"""`jax.scipy.special`."""
from __future__ import annotations

from typing import Any

import numpy as _onp

from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import wrap as _wrap
from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._array import has_no_values as _has_no_values
from adjoint.jax._array import inside as _inside
from adjoint.jax._array import is_mapped as _is_mapped
from adjoint.jax._array import joined as _joined
from adjoint.jax._array import make as _make
from adjoint.jax._array import moves
from adjoint.jax._table import T as _T
from adjoint.jax._table import elementwise as _elementwise
from adjoint.jax._table import floating as _floating
from adjoint.jax.nn import log_softmax as _log_softmax
from adjoint.jax.nn import logsumexp
from adjoint.jax.nn import softmax as _softmax
from adjoint.jax.scipy._integrals import (
    bessel_jn,
    expn,
    fresnel,
    hyp1f1,
    hyp2f1,
    owens_t,
    sici,
    sph_harm_y,
    wofz,
)
from adjoint.jax.scipy._values import SINGLES as _SINGLES
from adjoint.jax.scipy._values import real as _real
from adjoint.jax.scipy._values import scipys as _scipys
from adjoint.jax.scipy._values import slope as _slope
from adjoint.jax.scipy._values import theirs as _theirs
from adjoint.ops.special import SPECIAL as _S

_n: Any = _jnp


def _own(name: str, ours: str | None = None) -> Any:
    return _real({"gammaln": "lgamma", "i0": "bessel_i0e", "i1": "bessel_i1e"}.get(name, name),
                 _S[ours or name])


erf, erfc, erfinv, erfcx = (_own(n) for n in ("erf", "erfc", "erfinv", "erfcx"))
expit = _elementwise("expit", _S["expit"], floating=True, module=__name__)
logit = _own("logit")
entr = _real("entr", _S["entr"], "entr does not support complex-valued inputs.")
gammaln = _own("gammaln")
digamma = _real("digamma", lambda x: _T["where"](x == 0, x.new_full((), _onp.nan),
                                                 _S["digamma"](x)))
ndtr = _real("ndtr", _S["ndtr"], kinds=_SINGLES)
ndtri = _real("ndtri", _S["ndtri"], kinds=_SINGLES)
i0, i0e, i1, i1e = (_own(n) for n in ("i0", "i0e", "i1", "i1e"))
xlogy, xlog1py = _own("xlogy"), _own("xlog1py")
loggamma, psi, bessel_j0, bessel_j1 = gammaln, digamma, _own("bessel_j0"), _own("bessel_j1")
_log_ndtr = _real("log_ndtr", _S["log_ndtr"], kinds=_SINGLES)


_zeta = _own("zeta")
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)


def zeta(x: Any, q: Any = None) -> Any:
    """Hurwitz's zeta function, the sum of (q + k) to the power -x; a derivative in x is that of
    Euler and Maclaurin's formula."""
    if q is None:
        raise NotImplementedError("Riemann zeta function not implemented; pass q != None to compute"
                                  " the Hurwitz Zeta function.")
    if not moves(_as_array(x, "zeta").tensor):
        return _zeta(x, q)
    (s, a), weak = _joined("zeta", (x, q), floating=True)
    s, a = (t.to(_onp.dtype(_onp.float64)) for t in _T["broadcast_tensors"](s, a))
    far = a + 12.0
    found = far ** (1 - s) / (s - 1) + 0.5 * far ** -s
    for k in range(12):
        found = found + (a + k) ** -s
    factor, power = s, far ** (-s - 1)
    for j, b in enumerate(_BERNOULLI):
        found = found + b * factor * power
        factor = factor * (s + 2 * j + 1) * (s + 2 * j + 2)
        power = power / (far * far)
    kind = _joined("zeta", (x, q), floating=True)[0][0].array.dtype
    still = _make(_as_array(x, "zeta").tensor.detach(), weak)
    value = _zeta(still, q).tensor.detach()          # exact where the formula does not hold
    found = found.to(kind)
    return _make(_T["where"](_T["isfinite"](found), value + (found - found.detach()), value), weak)


def softmax(x: Any, /, *, axis: Any = None) -> Any:
    """exp(x) over its sum along the axes: over all of them where none is given, as in SciPy."""
    return _softmax(x, axis)


def log_softmax(x: Any, /, *, axis: Any = None) -> Any:
    """The logarithm of `softmax`, along all axes where none is given, as in SciPy."""
    return _log_softmax(x, axis)


def log_ndtr(x: Any, series_order: int = 3) -> Any:
    """The logarithm of the normal distribution function."""
    return _log_ndtr(x)


def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of digamma; n are whole numbers."""
    t, given = _floating(x, "polygamma"), _as_array(n)
    if given.dtype.kind not in "iu":
        raise ValueError("Argument `n` to polygamma must be of integer type. Got dtype "
                         f"{given.dtype.name}.")
    if _is_mapped(given) or _has_no_values(given):
        m = given.tensor.detach().to(t.array.dtype)
        sign = _T["where"](m % 2 == 0, -_T["ones_like"](m), _T["ones_like"](m))
        value = sign * _T["exp"](_T["lgamma"](m + 1)) * _S["zeta"](m + 1, t)
        return _make(_T["where"](m == 0, _T["digamma"](t), value))
    order = _inside(given)
    if order.ndim == 0:
        return _make(_S["polygamma"](int(order), t))
    orders, t = _onp.broadcast_to(order, _onp.broadcast_shapes(order.shape, t.shape)), t
    t = _T["broadcast_to"](t, orders.shape)
    out = t * 0
    for k in _onp.unique(orders):
        out = _T["where"](_wrap(orders == k), _S["polygamma"](int(k), t), out)
    return _make(out)


def multigammaln(a: Any, d: int) -> Any:
    """The logarithm of the multivariate gamma function of dimension d."""
    return _make(_S["multigammaln"](_floating(a, "multigammaln"), int(d)))


def gammasgn(x: Any) -> Any:
    """The sign of the gamma function."""
    a = _make(_floating(x, "gammasgn"))
    if a.dtype.kind == "c":
        raise ValueError("gammasgn does not support complex-valued inputs.")
    whole = _n.floor(a)
    below = _n.where(a == 0, _n.signbit(a), (a < 0) & (whole % 2 != 0))
    none = _n.isnan(a) | (a < 0) & (whole == a)
    return _n.where(none, _n.nan, _n.where(below, -1.0, 1.0)).astype(a.dtype)


def gamma(x: Any) -> Any:
    """The gamma function."""
    return gammasgn(x) * _n.exp(gammaln(x))


def _floats(name: str, *xs: Any) -> list[Any]:
    """Real operands as arrays of their common float; ValueError for complex ones."""
    ts, weak = _joined(name, xs, floating=True)
    if ts[0].is_complex():
        raise ValueError(f"{name} does not support complex-valued inputs.")
    return [_make(t, weak) for t in ts]


def betaln(a: Any, b: Any) -> Any:
    """The logarithm of the beta function."""
    a, b = _floats("betaln", a, b)
    return gammaln(a) + gammaln(b) - gammaln(a + b)


def beta(a: Any, b: Any) -> Any:
    """The beta function."""
    a, b = _floats("beta", a, b)
    sign = gammasgn(a) * gammasgn(b) * gammasgn(a + b)
    return sign * _n.exp(betaln(a, b))


def factorial(n: Any, exact: bool = False) -> Any:
    """n!; 0 below zero."""
    if exact:
        raise NotImplementedError("factorial with exact=True")
    a, = _floats("factorial", n)
    return _n.where(a < 0, 0.0, _n.exp(gammaln(a + 1)))


def comb(N: Any, k: Any, *, repetition: bool = False) -> Any:
    """Binomial coefficients; with repetition those of N + k - 1."""
    n, m = _floats("comb", N, k)
    n = n + m - 1 if repetition else n
    found = _n.exp(gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m + 1))
    return _n.where((m >= 0) & (n >= m), found, 0.0)


def poch(z: Any, m: Any) -> Any:
    """gamma(z + m) / gamma(z)."""
    z, m = _floats("poch", z, m)
    sign = gammasgn(z + m) * gammasgn(z)
    return _n.where(m == 0, 1.0, sign * _n.exp(gammaln(z + m) - gammaln(z)))


def kl_div(p: Any, q: Any) -> Any:
    """p log(p / q) - p + q."""
    p, q = _floats("kl_div", p, q)
    return rel_entr(p, q) - p + q


def rel_entr(p: Any, q: Any) -> Any:
    """p log(p / q)."""
    p, q = _floats("rel_entr", p, q)
    both, none = (p > 0) & (q > 0), (p == 0) & (q >= 0)
    safe_p, safe_q = _n.where(both, p, 1.0), _n.where(both, q, 1.0)
    return _n.where(both, safe_p * _n.log(safe_p / safe_q), _n.where(none, 0.0, _n.inf))


def boxcox(x: Any, lmbda: Any) -> Any:
    """(x^lambda - 1) / lambda; log(x) at 0."""
    x, p = _floats("boxcox", x, lmbda)
    safe = _n.where(p == 0, 1.0, p)
    return _n.where(p == 0, _n.log(x), _n.expm1(safe * _n.log(x)) / safe)


def boxcox1p(x: Any, lmbda: Any) -> Any:
    """`boxcox` of 1 + x."""
    x, p = _floats("boxcox1p", x, lmbda)
    safe = _n.where(p == 0, 1.0, p)
    return _n.where(p == 0, _n.log1p(x), _n.expm1(safe * _n.log1p(x)) / safe)


# ------------------------------------------------------------------ incomplete functions
def _gamma_density(a: Any, x: Any) -> Any:
    return _T["exp"](_S["xlogy"](a - 1, x) - x - _S["gammaln"](a))


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    norm = _S["gammaln"](a) + _S["gammaln"](b) - _S["gammaln"](a + b)
    return _T["exp"](_S["xlogy"](a - 1, x) + _S["xlog1py"](b - 1, -x) - norm)


gammainc = _theirs("gammainc", _slope(_scipys("gammainc"), 0), _gamma_density)
gammaincc = _theirs("gammaincc", _slope(_scipys("gammaincc"), 0),
                    lambda a, x: -_gamma_density(a, x))
betainc = _theirs("betainc", _slope(_scipys("betainc"), 0), _slope(_scipys("betainc"), 1),
                  _beta_density)
expi = _theirs("expi", lambda x: _T["exp"](x) / x)
exp1 = _theirs("exp1", lambda x: -_T["exp"](-x) / x)
spence = _theirs("spence", lambda x: _T["where"](
    x == 1, -x.new_ones(()), _T["log"](x) / (1 - _T["where"](x == 1, x.new_full((), 2.0), x))))
_dawsn: Any = _theirs("dawsn", lambda x: 1 - 2 * x * _dawsn(_make(x)).tensor)
dawsn = _dawsn


def bernoulli(n: int) -> Any:
    """The first n + 1 Bernoulli numbers."""
    import scipy.special
    return _n.asarray(scipy.special.bernoulli(int(n)).astype(_onp.float32))


__all__ = ["bessel_jn", "expn", "fresnel", "hyp1f1", "hyp2f1", "log_softmax", "logsumexp",
           "owens_t", "sici", "softmax", "sph_harm_y", "wofz"]
__getattr__ = _missing("adjoint.jax.scipy.special")
