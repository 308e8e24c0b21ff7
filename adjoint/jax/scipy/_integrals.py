"""`jax.scipy.special`: integrals without a closed form, hypergeometric and Bessel functions,
spherical harmonics. SciPy has the values, the derivatives are formulas."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array, concrete, joined, make
from adjoint.jax._table import T, floating
from adjoint.jax.scipy._values import real, ruled, scipys, slope
from adjoint.ops.special import SPECIAL

_n: Any = _jnp


def _expn_slope(n: Any, x: Any) -> Any:
    below = _expn(T["clamp"](n - 1, min=0), x)
    return -T["where"](n == 0, T["exp"](-x) * (1 + x) / (x * x), below)


_expn = ruled(scipys("expn"), None, _expn_slope)
expn = real("expn", _expn, "expn does not support complex-valued inputs.")


def _of(name: str, place: int) -> Any:
    """One of the outputs of a function of SciPy's; the cosine integral is that of |x|."""
    code = scipys(name)
    return lambda x: code(abs(x) if (name, place) == ("sici", 1) else x)[place]


_sine = ruled(_of("sici", 0), lambda x: T["sinc"](x / np.pi))
_cosine = ruled(_of("sici", 1), lambda x: T["cos"](x) / x)
_fresnel = (ruled(_of("fresnel", 0), lambda x: T["sin"](x * x * (np.pi / 2))),
            ruled(_of("fresnel", 1), lambda x: T["cos"](x * x * (np.pi / 2))))


def sici(x: Any) -> tuple[Any, Any]:
    """The sine and the cosine integral."""
    (t,), _ = joined("sici", (x,), floating=True)
    if t.is_complex():
        raise ValueError("Argument `x` to sici must be real-valued. Got dtype "
                         f"{t.array.dtype.name}.")
    return make(_sine(t)), make(_cosine(t))


def fresnel(x: Any) -> tuple[Any, Any]:
    """Fresnel's integrals: those of the sine and the cosine of pi t^2 / 2 from 0 to x."""
    (t,), _ = joined("fresnel", (x,), floating=True)
    if t.is_complex():
        raise NotImplementedError("Support for complex-valued inputs is not implemented yet.")
    return make(_fresnel[0](t)), make(_fresnel[1](t))


# ------------------------------------------------------------------ hypergeometric functions
def _confluent(a: Any, b: Any, x: Any) -> Any:
    found = scipys("hyp1f1")(a, b, x)
    return np.where((a == b) & (a == 0), 1.0, found)      # (as in JAX, for all x)


def _above(f: Any, *at: Any) -> Any:
    """The derivative in the last operand: the function of parameters that are larger by 1."""
    top, x = at[:-2], at[-1]
    scale = top[0] / at[-2] if len(top) == 1 else top[0] * top[1] / at[-2]
    return scale * f(*[v + 1 for v in at[:-1]], x)


_hyp1f1: Any = ruled(_confluent, slope(_confluent, 0), slope(_confluent, 1),
                     lambda *at: _above(_hyp1f1, *at))
_hyp2f1: Any = ruled(scipys("hyp2f1"), *[slope(scipys("hyp2f1"), i) for i in range(3)],
                     lambda *at: _above(_hyp2f1, *at))
hyp1f1 = real("hyp1f1", _hyp1f1, "hyp1f1 does not support complex-valued inputs.")
hyp2f1 = real("hyp2f1", _hyp2f1)


# ------------------------------------------------------------------ Bessel functions and others
def _bessel(k: int) -> Any:
    """J_k of a tensor."""
    def below(x: Any) -> Any:
        return -_bessel(1)(x) if k == 0 else (_bessel(k - 1)(x) - _bessel(k + 1)(x)) / 2
    return ruled(lambda x: scipys("jv")(k, x), below)


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Any:
    """Bessel functions of the first kind of the orders 0 to v, along a new first axis.

    n_iter  JAX's number of steps; the values here do not depend on it
    """
    t, order = floating(z, "bessel_jn"), operator.index(v)
    if t.is_complex():
        raise ValueError("complex input not supported.")
    if order < 0:
        return make(t.new_zeros((0, *t.shape)))
    return make(T["stack"]([_bessel(k)(t) for k in range(order + 1)]))


def _owens_in_h(h: Any, a: Any) -> Any:
    return -T["exp"](h * h / -2) * SPECIAL["erf"](a * h / np.sqrt(2)) / np.sqrt(8 * np.pi)


def _owens_in_a(h: Any, a: Any) -> Any:
    return T["exp"](h * h * (1 + a * a) / -2) / (2 * np.pi * (1 + a * a))


owens_t = real("owens_t", ruled(scipys("owens_t"), _owens_in_h, _owens_in_a))
_wofz: Any = ruled(scipys("wofz"), lambda z: 2j / np.sqrt(np.pi) - 2 * z * _wofz(z))


def wofz(z: Any) -> Any:
    """Faddeeva's function exp(-z^2) erfc(-i z), complex."""
    a = as_array(z, "wofz")
    kind = np.complex128 if a.dtype.itemsize > 4 and a.dtype.name != "complex64" else np.complex64
    return make(_wofz(_n.asarray(a, kind).tensor), a.weak_type)


def _harmonic(n: Any, m: Any, theta: Any, phi: Any) -> Any:
    """Spherical harmonics of arrays of degrees, orders and angles; 0 for orders above n."""
    import scipy.special as sp
    order = abs(m)
    inside = order <= n
    norm = np.exp((sp.gammaln(np.where(inside, n - order, 0) + 1) - sp.gammaln(n + order + 1)) / 2)
    legendre = sp.lpmv(order, n, np.cos(theta))
    sign = np.where((m < 0) & (order % 2 == 1), -1.0, 1.0)
    value = sign * np.sqrt((2 * n + 1) / (4 * np.pi)) * norm * legendre * np.exp(1j * m * phi)
    return np.where(inside, value, 0)


def _in_theta(n: Any, m: Any, theta: Any, phi: Any) -> Any:
    turn = T["exp"](T["complex"](phi * 0, -phi))
    next_up = T["sqrt"](T["clamp"]((n - m) * (n + m + 1), min=0)) * turn
    return (m / T["tan"](theta)) * _sph(n, m, theta, phi) + next_up * _sph(n, m + 1, theta, phi)


_sph: Any = ruled(_harmonic, None, None, _in_theta,
                  lambda n, m, theta, phi: T["complex"](m * 0, m) * _sph(n, m, theta, phi))


def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, diff_n: int | None = None,
               n_max: int | None = None) -> Any:
    """Spherical harmonics of degrees n, orders m, polar angles theta and azimuths phi, in vectors.

    n_max  the largest degree; degrees above it count as it
    """
    if diff_n is not None:
        raise NotImplementedError("The 'diff_n' argument to jax.scipy.special.sph_harm_y is not "
                                  "supported.")
    degree, order = as_array(n, "sph_harm_y"), as_array(m, "sph_harm_y")
    len(degree)                                # (JAX's error for what is no vector)
    if n_max is None:
        n_max = int(concrete(_n.max(degree), "The `n_max` argument of `jnp.scipy.special.sph_harm`"
                             " must be statically specified to use `sph_harm` within JAX "
                             "transformations."))
    (angle, turn), _ = joined("sph_harm_y", (theta, phi), floating=True)
    degree = _n.minimum(degree, n_max)
    kind = angle.array.dtype
    ts = T["broadcast_tensors"](degree.tensor.to(kind), order.tensor.to(kind), angle, turn)
    return make(_sph(*ts))


__all__ = ["bessel_jn", "expn", "fresnel", "hyp1f1", "hyp2f1", "owens_t", "sici", "sph_harm_y",
           "wofz"]
