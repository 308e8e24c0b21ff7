"""Special functions: records, and the functions of `torch.special`.

Accuracy against exact values is a few units in the last place of float64, relative, except near
zeros of the oscillating ones, where it is absolute; narrower operands are computed in float64.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, AutogradError, DTypeError
from adjoint.core.inplace import check_fit
from adjoint.core.tensor import Tensor
from adjoint.kernels.expr import Expr, call, log1p_, log_, where_
from adjoint.ops.api_common import (
    dtype_of,
    finish,
    need,
    need_kernel,
    need_tensors,
    raw,
    undifferentiated,
)
from adjoint.ops.api_small import sinc
from adjoint.ops.family import NUMBER, pointwise
from adjoint.ops.pointwise import add, div, eq, isinf, lgamma, mul, sub, where_op
from adjoint.ops.public import FUNCTIONS, known_as, public
from adjoint.ops.shape import clone_op

SPECIAL: dict[str, Callable[..., Any]] = {}


def _between(low: float, high: float, n: int = 1) -> Any:
    """Sample operands for the law table."""
    def samples() -> Any:
        rng = np.random.default_rng(11)
        first = tuple(rng.uniform(low, high, (2, 3)) for _ in range(n))
        last = tuple(rng.uniform(low, high, s) for s in ((2, 1), (3,))[:n])
        return [(first, {}), (last, {}), (tuple(np.zeros((0, 3)) + low for _ in range(n)), {})]
    return samples


def _one(name: str, low: float, high: float, node: str = "", kernel: str = "",
         refused: str = "ch") -> Any:
    return pointwise(name, lambda x: call(name, x), kind="float", node=node,
                     domain=_between(low, high), refuses={refused: kernel or f"{name}_cpu"})


erfcx = _one("erfcx", -2.0, 3.0, "SpecialErfcxBackward0")
ndtr = _one("ndtr", -2.0, 2.0, kernel="erf_vml_cpu", refused="c")
log_ndtr = _one("log_ndtr", -4.0, 2.0, "SpecialLogNdtrBackward0")
ndtri = _one("ndtri", 0.05, 0.95, "SpecialNdtriBackward0")
i0 = _one("i0", 0.2, 3.0, kernel="i0_vml_cpu", refused="c")
i1, i0e, i1e = (_one(n.lower(), 0.2, 3.0, f"Special{n}Backward0", refused="c")
                for n in ("I1", "I0E", "I1E"))
k0, k1, k0e, k1e = (_one(n, 0.4, 3.0, kernel=f"{'scaled_' * ('e' in n[7:])}modified_{n[:9]}_cpu")
                    for n in ("bessel_k0", "bessel_k1", "bessel_k0e", "bessel_k1e"))
j0, j1, y0, y1 = (_one(n, 0.4, 9.0) for n in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"))
airy = _one("airy_ai", -6.0, 3.0)
entr = pointwise("entr", lambda x: where_(x.eq(0), 0.0, where_(x < 0, -math.inf, -x * log_(x))),
                 kind="float", slope={"x": lambda x: -log_(x) - 1.0}, domain=_between(0.1, 2.0),
                 node="SpecialEntrBackward0", refuses={"c": "entr_cpu"})


def _xlog1py(x: Expr, y: Expr) -> Expr:
    return where_(x.eq(0) & ~call("isnan", y), 0.0, x * log1p_(y))


xlog1py = pointwise("xlog1py", _xlog1py, kind="float", domain=_between(0.1, 2.0, 2), slope={
    "x": lambda x, y: where_(x.eq(0) & (y <= -1), 0.0, log1p_(y)),
    "y": lambda x, y: x / (1.0 + y)}, node="SpecialXlog1PyBackward0", refuses={"c": "xlog1py_cpu"})
zeta = pointwise("zeta", lambda s, q: call("zeta", s, q), kind="float",
                 domain=_between(1.5, 4.0, 2), slope={"s": None}, node="SpecialZetaBackward0",
                 refuses={"ch": "zeta_cpu"})
gammainc = pointwise("gammainc", lambda a, x: call("gammainc", a, x), kind="float",
                     domain=_between(0.3, 3.0, 2), refuses={"biuc": "igamma_cpu"})
gammaincc = pointwise("gammaincc", lambda a, x: call("gammaincc", a, x), kind="float",
                      domain=_between(0.3, 3.0, 2), refuses={"biuc": "igammac_cpu"})


# ------------------------------------------------------------------ public
def _enter(name: str, f: Callable[..., Any], doc: str, own: str = "", two: bool = False) -> None:
    """`special.<name>`, and `<own>` with its method and in-place form if PyTorch has one."""
    if two:
        def function(input: Any, other: Any, *, out: Any = None) -> Any:
            if type(input) is not Tensor or type(other) is not Tensor:
                need_tensors(own or name, input, other, numbers=not own)
                if isinstance(input, NUMBER) and isinstance(other, NUMBER):
                    raise DTypeError(f"{name}(): expected at least one tensor, got two numbers")
            return finish(out, f(input, other), input, other)
    else:
        def function(input: Any, *, out: Any = None) -> Any:  # type: ignore[misc]  # one operand
            need(name, input)
            return finish(out, f(input), input)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    SPECIAL[name] = function
    if own:
        public(own)(function)

        def write(self: Tensor, *args: Any) -> Tensor:
            made = f(clone_op(self), *args)
            check_fit(raw(self), raw(made), f"{own}_")
            out: Tensor = self.copy_(made)
            return out
        write.__name__ = write.__qualname__ = own + "_"
        write.__doc__ = f"In-place form of `{own}`."
        public(own + "_", function=False)(write)


def _modified(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` under another name, which takes fewer dtypes."""
    def function(x: Any) -> Any:
        need_kernel(f"{name}_cpu", "ch", x)
        return f(x)
    return function


for _name, _f, _doc in (
        ("erfcx", erfcx, "exp(x²)·erfc(x): the scaled complementary error function."),
        ("ndtr", ndtr, "The distribution function of the normal distribution."),
        ("log_ndtr", log_ndtr, "log(ndtr(x)), also where ndtr(x) underflows."),
        ("ndtri", ndtri, "The quantile of the normal distribution, x in [0, 1]."),
        ("entr", entr, "-x·log x for x > 0, 0 at 0, -inf below."),
        ("i0e", i0e, "exp(-|x|)·I0(x)."), ("i1", i1, "The modified Bessel function I1."),
        ("i1e", i1e, "exp(-|x|)·I1(x)."),
        ("airy_ai", airy, "Airy's function Ai; differentiable, to any order."),
        ("bessel_j0", j0, "The Bessel function J0."), ("bessel_j1", j1, "The Bessel function J1."),
        ("bessel_y0", y0, "The Bessel function Y0, x > 0."),
        ("bessel_y1", y1, "The Bessel function Y1, x > 0."),
        ("modified_bessel_i0", _modified("modified_bessel_i0", i0),
         "The modified Bessel function I0."),
        ("modified_bessel_i1", _modified("modified_bessel_i1", i1),
         "The modified Bessel function I1."),
        ("modified_bessel_k0", k0, "The modified Bessel function K0, x > 0."),
        ("modified_bessel_k1", k1, "The modified Bessel function K1, x > 0."),
        ("scaled_modified_bessel_k0", k0e, "exp(x)·K0(x), x > 0."),
        ("scaled_modified_bessel_k1", k1e, "exp(x)·K1(x), x > 0.")):
    _enter(_name, _f, _doc)
_enter("i0", i0, "The modified Bessel function I0.", "i0")
_enter("xlog1py", xlog1py, "input·log1p(other), 0 where input is 0.", two=True)


_NO_SLOPE = "the derivative for 'zeta' is not implemented."


def _zeta(s: Any, q: Any) -> Any:
    if not isinstance(s, Tensor):
        return zeta(s, q)
    inner: Any = s
    while inner.level:                  # under a transform it is refused at once
        if inner._rg or getattr(inner, "tangent", None) is not None:
            raise AutogradError(_NO_SLOPE)
        inner = inner.value
    if not s._rg:
        return zeta(s, q)
    if isinstance(q, Tensor) and q.level:
        raise AutogradError(_NO_SLOPE)
    return undifferentiated(_NO_SLOPE, zeta(s.detach(), q), s, q, always=True)


_enter("zeta", _zeta, "Hurwitz' zeta function Σ (k + other)^-input, input > 1; no derivative in "
       "`input`.", two=True)
_enter("gammainc", gammainc, "P(input, other): the regularized lower incomplete gamma function; "
       "differentiable in both.", "igamma", two=True)
_enter("gammaincc", gammaincc, "Q = 1 - P: the regularized upper incomplete gamma function; "
       "differentiable in both.", "igammac", two=True)


def spherical_bessel_j0(input: Any, *, out: Any = None) -> Any:
    """sin(x)/x, 1 at 0."""
    need("spherical_bessel_j0", input)
    need_kernel("spherical_bessel_j0_cpu", "ch", input)
    far = isinf(input)                      # (where sin has no value)
    return finish(out, where_op(far, 0.0, sinc(div(where_op(far, 0.0, input), math.pi))))


@public()
@known_as("MvlgammaBackward0")
def mvlgamma(input: Any, p: int, *, out: Any = None) -> Any:
    """log of the multivariate gamma function of dimension p >= 1, for input > (p - 1)/2."""
    need("mvlgamma", input)
    if p < 1:
        raise ArgumentError(f"mvlgamma: p has to be greater than or equal to 1, got {p}")
    total = lgamma(input)
    for j in range(1, p):
        total = add(total, lgamma(sub(input, j / 2)))
    return finish(out, add(total, p * (p - 1) / 4 * math.log(math.pi)))


@public("mvlgamma_", function=False)
def mvlgamma_(self: Tensor, p: int) -> Tensor:
    """In-place form of `mvlgamma`."""
    out: Tensor = self.copy_(mvlgamma(clone_op(self), p))
    return out


# ------------------------------------------------------------------ orthogonal polynomials
def _polynomial(name: str, first: Callable[[Any], Any], step: Callable[..., Any],
                shifted: bool = False) -> None:
    """P_0 = 1, P_1 = first(x), P_{k+1} = step(k, x, P_k, P_{k-1}); 0 for negative degrees."""
    def polynomial(input: Any, n: Any, *, out: Any = None) -> Any:
        if isinstance(n, (int, float, np.number)):
            need(name, input)
            degrees: Any = int(n)
            top = degrees
            if top >= 2**63:
                raise OverflowError(f"{name}(): int too big to convert: degree {n}")
        else:
            if isinstance(input, NUMBER):
                input = add(mul(n.detach(), 0.0), input)
            degrees = n.detach() if dtype_of(n).kind in "biu" else n.detach().trunc()
            top = _highest(degrees)
        if dtype_of(n if isinstance(input, NUMBER) else input).kind != "c":
            need_kernel(f"{name}_cpu", "h", n if isinstance(input, NUMBER) else input)
        x = sub(mul(input, 2.0), 1.0) if shifted else mul(input, 1.0)
        last, now = mul(x, 0.0), add(mul(x, 0.0), 1.0)
        found = now if degrees is not n and isinstance(degrees, int) and top >= 0 else mul(now, 0.0)
        for k in range(top + 1):
            if isinstance(degrees, int):
                found = now
            else:
                found = where_op(eq(degrees, k), now, found)
            last, now = now, first(x) if k == 0 else step(k, x, now, last)
        return finish(out, found)
    polynomial.__name__ = polynomial.__qualname__ = name
    polynomial.__doc__ = (f"The polynomial {name} of degree n (a number or a tensor of degrees) at "
                          "x, by its recurrence; differentiable in x.")
    SPECIAL[name] = polynomial


def _highest(degrees: Any) -> int:
    """The largest degree, that of any example under a transform: so far goes the recurrence."""
    while degrees.level:
        degrees = degrees.value
    return int(degrees.max().item()) if degrees.numel() else 0


def _cheb(k: int, x: Any, now: Any, last: Any) -> Any:
    return sub(mul(mul(x, now), 2.0), last)


for _kind, _first in (("t", lambda x: x), ("u", lambda x: mul(x, 2.0)),
                      ("v", lambda x: sub(mul(x, 2.0), 1.0)),
                      ("w", lambda x: add(mul(x, 2.0), 1.0))):
    _polynomial(f"chebyshev_polynomial_{_kind}", _first, _cheb)
    _polynomial(f"shifted_chebyshev_polynomial_{_kind}", _first, _cheb, shifted=True)
_polynomial("hermite_polynomial_h", lambda x: mul(x, 2.0), lambda k, x, now, last: sub(
    mul(mul(x, now), 2.0), mul(last, 2.0 * k)))
_polynomial("hermite_polynomial_he", lambda x: x, lambda k, x, now, last: sub(
    mul(x, now), mul(last, float(k))))
_polynomial("laguerre_polynomial_l", lambda x: sub(1.0, x), lambda k, x, now, last: div(sub(
    mul(sub(2.0 * k + 1, x), now), mul(last, float(k))), k + 1.0))
_polynomial("legendre_polynomial_p", lambda x: x, lambda k, x, now, last: div(sub(
    mul(mul(x, now), 2.0 * k + 1), mul(last, float(k))), k + 1.0))

SPECIAL |= {"spherical_bessel_j0": spherical_bessel_j0, "multigammaln": mvlgamma}
SPECIAL |= {name: FUNCTIONS[ours] for name, ours in (
    ("digamma", "digamma"), ("psi", "digamma"), ("polygamma", "polygamma"), ("erf", "erf"),
    ("erfc", "erfc"), ("erfinv", "erfinv"), ("exp2", "exp2"), ("expm1", "expm1"),
    ("log1p", "log1p"), ("expit", "sigmoid"), ("logit", "logit"), ("gammaln", "lgamma"),
    ("log_softmax", "log_softmax"), ("softmax", "softmax"), ("logsumexp", "logsumexp"),
    ("round", "round"), ("sinc", "sinc"), ("xlogy", "xlogy"))}
