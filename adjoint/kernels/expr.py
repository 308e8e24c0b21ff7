"""Scalar expressions: the one text from which a pointwise op gets everything.

`trace(lambda x: 0.5 * x * (1 + erf_(x * C)))` builds an expression graph. It is differentiated
symbolically (`diff`), lowered to a NumPy function (`compile_numpy`), to an LLVM loop body
(`kernels/codegen`), counted (`flops`) and printed (`formula`). Nodes are hash-consed: equal
expressions are one object, so common subexpressions are computed once.
"""
from __future__ import annotations

import functools
import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from adjoint.base.errors import NotSupported
from adjoint.kernels import special

Number = bool | int | float | complex


class Expr:
    """A node: a variable (`fn` is "var"), a constant ("const") or a call."""

    __slots__ = ("fn", "args", "value")
    _table: dict[tuple[Any, ...], Expr] = {}
    fn: str
    args: tuple[Expr, ...]
    value: Any

    def __new__(cls, fn: str, args: tuple[Expr, ...] = (), value: Any = None) -> Expr:
        key = (fn, args, value, type(value), math.copysign(1, value) if value == 0 else 0)
        found = cls._table.get(key)
        if found is None:
            found = object.__new__(cls)
            found.fn, found.args, found.value = fn, args, value
            cls._table[key] = found
        return found

    def __add__(self, o: Any) -> Expr: return add(self, o)
    def __radd__(self, o: Any) -> Expr: return add(o, self)
    def __sub__(self, o: Any) -> Expr: return sub(self, o)
    def __rsub__(self, o: Any) -> Expr: return sub(o, self)
    def __mul__(self, o: Any) -> Expr: return mul(self, o)
    def __rmul__(self, o: Any) -> Expr: return mul(o, self)
    def __truediv__(self, o: Any) -> Expr: return div(self, o)
    def __rtruediv__(self, o: Any) -> Expr: return div(o, self)
    def __pow__(self, o: Any) -> Expr: return pow_(self, o)
    def __rpow__(self, o: Any) -> Expr: return pow_(o, self)
    def __neg__(self) -> Expr: return neg(self)
    def __lt__(self, o: Any) -> Expr: return call("lt", self, o)
    def __le__(self, o: Any) -> Expr: return call("le", self, o)
    def __gt__(self, o: Any) -> Expr: return call("gt", self, o)
    def __ge__(self, o: Any) -> Expr: return call("ge", self, o)
    def __and__(self, o: Any) -> Expr: return call("and", self, o)
    def __or__(self, o: Any) -> Expr: return call("or", self, o)
    def __invert__(self) -> Expr: return call("not", self)
    def eq(self, o: Any) -> Expr: return call("eq", self, o)
    def ne(self, o: Any) -> Expr: return call("ne", self, o)

    def __bool__(self) -> bool:
        raise TypeError("a scalar expression has no truth value; use where_(condition, a, b)")

    def __repr__(self) -> str:
        return formula(self)


def as_expr(x: Any) -> Expr:
    """An Expr of a number or of an Expr."""
    return x if isinstance(x, Expr) else Expr("const", (), x)


def var(name: str) -> Expr:
    """The variable of that name."""
    return Expr("var", (), name)


class Fn(NamedTuple):
    """What is known of a scalar function: its NumPy form, its partial slopes, its cost."""

    numpy: Any
    slopes: tuple[Callable[..., Any] | None, ...]  # (args..., out) -> slope; None = no derivative
    flops: int
    show: str                                      # format string of the printed formula


def call(fn: str, *args: Any) -> Expr:
    """Apply a scalar function, folding constants."""
    exprs = tuple(as_expr(a) for a in args)
    if all(e.fn == "const" for e in exprs) and fn in _FOLD:
        return as_expr(_FOLD[fn](*(e.value for e in exprs)))
    return Expr(fn, exprs)


def _const(e: Expr, value: Number) -> bool:
    return e.fn == "const" and type(e.value) is not bool and e.value == value


def add(a: Any, b: Any) -> Expr:
    a, b = as_expr(a), as_expr(b)
    if _const(a, 0):
        return b
    if _const(b, 0):
        return a
    if b.fn == "neg":
        return sub(a, b.args[0])
    if a.fn == "neg":
        return sub(b, a.args[0])
    return call("add", a, b)


def sub(a: Any, b: Any) -> Expr:
    a, b = as_expr(a), as_expr(b)
    if _const(b, 0):
        return a
    if _const(a, 0):
        return neg(b)
    if b.fn == "neg":
        return add(a, b.args[0])
    return call("sub", a, b)


def neg(a: Any) -> Expr:
    a = as_expr(a)
    return a.args[0] if a.fn == "neg" else call("neg", a)


def mul(a: Any, b: Any) -> Expr:
    a, b = as_expr(a), as_expr(b)
    for x, y in ((a, b), (b, a)):
        if _const(x, 0):
            return as_expr(0)
        if _const(x, 1):
            return y
        if _const(x, -1):
            return neg(y)
    if a.fn == "neg" and b.fn == "neg":
        return mul(a.args[0], b.args[0])
    if a.fn == "neg":
        return neg(mul(a.args[0], b))
    if b.fn == "neg":
        return neg(mul(a, b.args[0]))
    if a.fn == "const" and b.fn == "mul" and b.args[0].fn == "const":
        return mul(a.value * b.args[0].value, b.args[1])
    return call("mul", a, b)


def div(a: Any, b: Any) -> Expr:
    a, b = as_expr(a), as_expr(b)
    if _const(b, 1):
        return a
    if _const(a, 0):
        return as_expr(0)
    return call("div", a, b)


def pow_(a: Any, b: Any) -> Expr:
    a, b = as_expr(a), as_expr(b)
    if b.fn == "const":
        simple: Any = {1: lambda: a, 2: lambda: mul(a, a), 0.5: lambda: call("sqrt", a),
                  -1: lambda: call("reciprocal", a)}.get(b.value)
        if simple is not None:
            return simple()
    return call("pow", a, b)


def where_(condition: Any, a: Any, b: Any) -> Expr:
    a, b = as_expr(a), as_expr(b)
    return a if a is b else call("where", condition, a, b)


def _fn1(name: str) -> Callable[[Any], Expr]:
    def apply(x: Any) -> Expr:
        return call(name, x)
    apply.__name__ = name + "_"
    return apply


exp_, expm1_, log_, log1p_, sqrt_, rsqrt_ = map(_fn1, "exp expm1 log log1p sqrt rsqrt".split())
sin_, cos_, tan_, tanh_, sinh_, cosh_ = map(_fn1, "sin cos tan tanh sinh cosh".split())
asin_, acos_, atan_, asinh_, acosh_, atanh_ = map(
    _fn1, "asin acos atan asinh acosh atanh".split())
erf_, erfc_, sigmoid_, abs_, sign_, floor_ = map(
    _fn1, "erf erfc sigmoid abs sign floor".split())
reciprocal_, log2_, log10_, exp2_, conj_, lgamma_, digamma_, erfinv_ = map(
    _fn1, "reciprocal log2 log10 exp2 conj lgamma digamma erfinv".split())
trunc_, ceil_, round_, isnan_, logsigmoid_ = map(
    _fn1, "trunc ceil round isnan logsigmoid".split())


def minimum_(a: Any, b: Any) -> Expr: return call("minimum", a, b)
def maximum_(a: Any, b: Any) -> Expr: return call("maximum", a, b)
def atan2_(a: Any, b: Any) -> Expr: return call("atan2", a, b)
def fmod_(a: Any, b: Any) -> Expr: return call("fmod", a, b)
def mod_(a: Any, b: Any) -> Expr: return call("mod", a, b)
def floordiv_(a: Any, b: Any) -> Expr: return call("floordiv", a, b)
def hypot_(a: Any, b: Any) -> Expr: return call("hypot", a, b)
def copysign_(a: Any, b: Any) -> Expr: return call("copysign", a, b)


def _half_tie(lost: Callable[[Any, Any], Expr]) -> Callable[[Any, Any, Any], Expr]:
    """Slope of max/min in its first operand: 0 where it lost, 1/2 on a tie (docs/subgradients), 1
    where it won or an operand is nan, which the result then is."""
    return lambda a, b, out: where_(lost(a, b), 0.0, where_(a.eq(b), 0.5, 1.0))


def _over_square(x: Expr, a: Expr, b: Expr) -> Expr:
    """x / (a² + b²), 0 at the origin."""
    r = a * a + b * b
    return where_(r.eq(0), 0.0, x / where_(r.eq(0), 1.0, r))


def _over_length(x: Expr, length: Expr) -> Expr:
    """x / length, 0 at the origin, which is the minimum."""
    return where_(length.eq(0), 0.0, x / where_(length.eq(0), 1.0, length))


def _late(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that few programs need, imported at its first call."""
    def run(*arrays: Any) -> Any:
        return getattr(importlib.import_module(f"adjoint.kernels.{module}"), name)(*arrays)
    return run


def _gamma_density(a: Expr, x: Expr) -> Expr:
    """x^(a-1) exp(-x) / Gamma(a)."""
    return exp_((a - 1.0) * log_(x) - x - lgamma_(a))


def _no_second(*_: Any) -> Any:
    raise NotSupported("the second derivative of the incomplete gamma function in its order (and "
                       "of a gamma or Dirichlet variate in its concentration) is not available: "
                       "differentiate once, or detach() the order")


def _over(x: Expr, a: Expr) -> Expr:
    """a / x, 1/2 where x is 0: what I1(x)/x and J1(x)/x tend to."""
    return where_(x.eq(0), 0.5, a / where_(x.eq(0), 1.0, x))


def _bessel(name: str, slope: Callable[[Expr, Expr], Any], raw: str = "") -> Fn:
    return Fn(_late("bessel", raw or name), (slope,), 120, name + "({})")


_LN2, _LN10, _2_SQRTPI = math.log(2), math.log(10), 2 / math.sqrt(math.pi)
_PHI0 = 1 / math.sqrt(2 * math.pi)
FUNCTIONS: dict[str, Fn] = {
    "add": Fn(np.add, (lambda a, b, o: 1.0, lambda a, b, o: 1.0), 1, "{} + {}"),
    "sub": Fn(np.subtract, (lambda a, b, o: 1.0, lambda a, b, o: -1.0), 1, "{} - {}"),
    "mul": Fn(np.multiply, (lambda a, b, o: b, lambda a, b, o: a), 1, "{}·{}"),
    "div": Fn(np.true_divide, (lambda a, b, o: 1.0 / b, lambda a, b, o: -(a / b) / b), 1, "{}/{}"),
    "neg": Fn(np.negative, (lambda x, o: -1.0,), 1, "-{}"),
    "pow": Fn(np.power, (
        # the inner exponent keeps the slope of this slope finite at a = b = 0
        lambda a, b, o: where_(b.eq(0), 0.0, b * call("pow", a, where_(b.eq(0), 1.0, b) - 1)),
        lambda a, b, o: where_(a.eq(0) & (b >= 0), 0.0, o * log_(a))), 10, "{}^{}"),
    "exp": Fn(np.exp, (lambda x, o: o,), 8, "exp({})"),
    "exp2": Fn(np.exp2, (lambda x, o: o * _LN2,), 8, "2^{}"),
    "expm1": Fn(np.expm1, (lambda x, o: o + 1.0,), 10, "expm1({})"),
    "log": Fn(np.log, (lambda x, o: 1.0 / x,), 8, "log({})"),
    "log2": Fn(np.log2, (lambda x, o: 1.0 / (x * _LN2),), 8, "log2({})"),
    "log10": Fn(special.log10, (lambda x, o: 1.0 / (x * _LN10),), 8, "log10({})"),
    "log1p": Fn(np.log1p, (lambda x, o: 1.0 / (1.0 + x),), 10, "log1p({})"),
    "sqrt": Fn(np.sqrt, (lambda x, o: 0.5 / o,), 1, "√{}"),
    "rsqrt": Fn(special.rsqrt, (lambda x, o: -0.5 * (o * o * o),), 2, "1/√{}"),
    "reciprocal": Fn(np.reciprocal, (lambda x, o: -(o * o),), 1, "1/{}"),
    "sin": Fn(np.sin, (lambda x, o: cos_(x),), 8, "sin({})"),
    "cos": Fn(np.cos, (lambda x, o: -sin_(x),), 8, "cos({})"),
    "tan": Fn(np.tan, (lambda x, o: 1.0 + o * o,), 12, "tan({})"),
    "asin": Fn(np.arcsin, (lambda x, o: rsqrt_(1.0 - x * x),), 12, "asin({})"),
    "acos": Fn(np.arccos, (lambda x, o: -rsqrt_(1.0 - x * x),), 12, "acos({})"),
    "atan": Fn(np.arctan, (lambda x, o: 1.0 / (1.0 + x * x),), 12, "atan({})"),
    "sinh": Fn(np.sinh, (lambda x, o: cosh_(x),), 12, "sinh({})"),
    "cosh": Fn(np.cosh, (lambda x, o: sinh_(x),), 12, "cosh({})"),
    "tanh": Fn(np.tanh, (lambda x, o: 1.0 - o * o,), 12, "tanh({})"),
    "asinh": Fn(np.arcsinh, (lambda x, o: rsqrt_(1.0 + x * x),), 14, "asinh({})"),
    "acosh": Fn(np.arccosh, (lambda x, o: rsqrt_(x - 1.0) * rsqrt_(x + 1.0),), 14, "acosh({})"),
    "atanh": Fn(np.arctanh, (lambda x, o: 1.0 / (1.0 - x * x),), 14, "atanh({})"),
    "erf": Fn(special.erf, (lambda x, o: _2_SQRTPI * exp_(-(x * x)),), 20, "erf({})"),
    "erfc": Fn(special.erfc, (lambda x, o: -_2_SQRTPI * exp_(-(x * x)),), 20, "erfc({})"),
    "erfinv": Fn(special.erfinv, (lambda x, o: (1 / _2_SQRTPI) * exp_(o * o),), 40, "erfinv({})"),
    "lgamma": Fn(special.lgamma, (lambda x, o: digamma_(x),), 40, "lgamma({})"),
    "digamma": Fn(special.digamma, (lambda x, o: call("trigamma", x),), 40, "digamma({})"),
    "trigamma": Fn(special.trigamma, (lambda x, o: call("polygamma", 2, x),), 60, "ψ^(1)({})"),
    "polygamma": Fn(lambda n, x: special.polygamma(int(n), x),
                    (None, lambda n, x, o: call("polygamma", n + 1, x)), 60, "ψ^({})({})"),
    "erfcx": Fn(special.erfcx, (lambda x, o: 2.0 * x * o - _2_SQRTPI,), 30, "erfcx({})"),
    "ndtr": Fn(special.ndtr, (lambda x, o: _PHI0 * exp_(-0.5 * x * x),), 25, "Φ({})"),
    "log_ndtr": Fn(special.log_ndtr, (
        lambda x, o: 2 * _PHI0 / call("erfcx", -math.sqrt(0.5) * x),), 40, "logΦ({})"),
    "ndtri": Fn(special.ndtri, (lambda x, o: exp_(0.5 * o * o) / _PHI0,), 40, "Φ⁻¹({})"),
    "zeta": Fn(_late("gamma", "zeta"), (None, lambda s, q, o: -s * call("zeta", s + 1.0, q)), 90,
               "ζ({}, {})"),
    "gammainc": Fn(_late("gamma", "gammainc"), (
        lambda a, x, o: -_gamma_density(a, x) * x * call("log_gamma_slope", a, log_(x)),
        lambda a, x, o: _gamma_density(a, x)), 150, "P({}, {})"),
    "gammaincc": Fn(_late("gamma", "gammaincc"), (
        lambda a, x, o: _gamma_density(a, x) * x * call("log_gamma_slope", a, log_(x)),
        lambda a, x, o: -_gamma_density(a, x)), 150, "Q({}, {})"),
    "log_gamma_slope": Fn(_late("gamma", "log_gamma_slope"), (
        lambda a, t, o: call("no_second", a, t), lambda a, t, o: call("no_second", a, t)), 400,
        "∂log x/∂a({}, {})"),
    "dirichlet_slope": Fn(_late("dirichlet", "dirichlet_slope"), (
        lambda x, a, n, o: call("no_second", x, a),) * 3, 4000, "∂x/∂a({}, {}, {})"),
    "no_second": Fn(_no_second, (None, None), 0, "no_second({}, {})"),
    "i0": _bessel("i0", lambda x, o: call("i1", x)),
    "i1": _bessel("i1", lambda x, o: call("i0", x) - _over(x, o)),
    "i0e": _bessel("i0e", lambda x, o: call("i1e", x) - sign_(x) * o),
    "i1e": _bessel("i1e", lambda x, o: call("i0e", x) - sign_(x) * o - _over(x, o)),
    "bessel_k0": _bessel("bessel_k0", lambda x, o: -call("bessel_k1", x), "k0"),
    "bessel_k1": _bessel("bessel_k1", lambda x, o: -call("bessel_k0", x) - o / x, "k1"),
    "bessel_k0e": _bessel("bessel_k0e", lambda x, o: o - call("bessel_k1e", x), "k0e"),
    "bessel_k1e": _bessel("bessel_k1e", lambda x, o: o - call("bessel_k0e", x) - o / x, "k1e"),
    "bessel_j0": _bessel("bessel_j0", lambda x, o: -call("bessel_j1", x), "j0"),
    "bessel_j1": _bessel("bessel_j1", lambda x, o: call("bessel_j0", x) - _over(x, o), "j1"),
    "bessel_y0": _bessel("bessel_y0", lambda x, o: -call("bessel_y1", x), "y0"),
    "bessel_y1": _bessel("bessel_y1", lambda x, o: call("bessel_y0", x) - o / x, "y1"),
    "airy_ai": _bessel("airy_ai", lambda x, o: call("airy_ai_slope", x)),
    "airy_ai_slope": _bessel("airy_ai_slope", lambda x, o: x * call("airy_ai", x)),
    "sigmoid": Fn(special.sigmoid, (lambda x, o: o * (1.0 - o),), 10, "σ({})"),
    "logsigmoid": Fn(special.logsigmoid, (lambda x, o: sigmoid_(-x),), 20, "logσ({})"),
    "abs": Fn(np.absolute, (lambda x, o: sign_(x),), 1, "|{}|"),
    "sign": Fn(special.absolute_sign, (lambda x, o: 0.0,), 1, "sign({})"),
    "floor": Fn(np.floor, (lambda x, o: 0.0,), 1, "floor({})"),
    "ceil": Fn(np.ceil, (lambda x, o: 0.0,), 1, "ceil({})"),
    "trunc": Fn(np.trunc, (lambda x, o: 0.0,), 1, "trunc({})"),
    "round": Fn(special.round_half_even, (lambda x, o: 0.0,), 1, "round({})"),
    "minimum": Fn(np.minimum, (_half_tie(lambda a, b: a > b),
                               lambda a, b, o: _half_tie(lambda p, q: p > q)(b, a, o)),
                  1, "min({}, {})"),
    "maximum": Fn(np.maximum, (_half_tie(lambda a, b: a < b),
                               lambda a, b, o: _half_tie(lambda p, q: p < q)(b, a, o)),
                  1, "max({}, {})"),
    "atan2": Fn(np.arctan2, (lambda a, b, o: _over_square(b, a, b),
                             lambda a, b, o: -_over_square(a, a, b)), 14, "atan2({}, {})"),
    "hypot": Fn(np.hypot, (lambda a, b, o: _over_length(a, o), lambda a, b, o: _over_length(b, o)),
                4, "hypot({}, {})"),
    "fmod": Fn(np.fmod, (lambda a, b, o: 1.0, lambda a, b, o: -trunc_(a / b)), 4, "fmod({}, {})"),
    "mod": Fn(np.mod, (lambda a, b, o: 1.0, lambda a, b, o: -floordiv_(a, b)), 4, "{} mod {}"),
    "floordiv": Fn(np.floor_divide, (lambda a, b, o: 0.0, lambda a, b, o: 0.0), 5, "{}//{}"),
    "copysign": Fn(np.copysign, (
        lambda a, b, o: where_(a.eq(0), 0.0, where_(isnan_(a), a, sign_(a) * sign_(o))),
        lambda a, b, o: 0.0), 1, "copysign({}, {})"),
    "where": Fn(np.where, (None, lambda c, a, b, o: where_(c, 1.0, 0.0),
                           lambda c, a, b, o: where_(c, 0.0, 1.0)), 1, "({} ? {} : {})"),
    "lt": Fn(np.less, (None, None), 1, "{} < {}"),
    "le": Fn(np.less_equal, (None, None), 1, "{} ≤ {}"),
    "gt": Fn(np.greater, (None, None), 1, "{} > {}"),
    "ge": Fn(np.greater_equal, (None, None), 1, "{} ≥ {}"),
    "eq": Fn(np.equal, (None, None), 1, "{} = {}"),
    "ne": Fn(np.not_equal, (None, None), 1, "{} ≠ {}"),
    "and": Fn(np.logical_and, (None, None), 1, "{} ∧ {}"),
    "or": Fn(np.logical_or, (None, None), 1, "{} ∨ {}"),
    "not": Fn(np.logical_not, (None,), 1, "¬{}"),
    "isnan": Fn(np.isnan, (None,), 1, "isnan({})"),
    "conj": Fn(np.conjugate, (None,), 0, "conj({})"),
}
_FOLD: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b if b else math.copysign(math.inf, a), "neg": lambda a: -a,
    "lt": lambda a, b: a < b, "gt": lambda a, b: a > b, "eq": lambda a, b: a == b,
}


_NO_SLOPE = {"conj"}


def trace(f: Callable[..., Any], names: Iterable[str] | None = None) -> Expr:
    """The expression that `f` builds when it is called on variables named as its parameters."""
    params = inspect.signature(f).parameters.values()
    positional = [var(p.name) for p in params if p.kind is not p.KEYWORD_ONLY]
    keyword = {p.name: var(p.name) for p in params if p.kind is p.KEYWORD_ONLY}
    return as_expr(f(*positional, **keyword))


def variables(*exprs: Expr) -> tuple[str, ...]:
    """Names of the variables that the expressions read, in order of first use."""
    return tuple(dict.fromkeys(e.value for e in schedule(exprs) if e.fn == "var"))


def schedule(exprs: Sequence[Expr]) -> list[Expr]:
    """All nodes below `exprs`, operands before users, each once."""
    order: dict[Expr, None] = {}
    stack = [(e, False) for e in reversed(exprs)]
    while stack:
        e, ready = stack.pop()
        if e in order:
            continue
        if ready:
            order[e] = None
        else:
            stack.append((e, True))
            stack.extend((a, False) for a in reversed(e.args) if a not in order)
    return list(order)


def substitute(e: Expr, env: dict[Expr, Expr]) -> Expr:
    """`e` with nodes replaced, constants folded again."""
    done: dict[Expr, Expr] = dict(env)
    rebuild: dict[str, Callable[..., Expr]] = {
        "add": add, "sub": sub, "mul": mul, "div": div, "neg": neg, "pow": pow_, "where": where_}
    for n in schedule([e]):
        if n in done:
            continue
        args = tuple(done[a] for a in n.args)
        if args == n.args:
            done[n] = n
        else:
            done[n] = rebuild[n.fn](*args) if n.fn in rebuild else call(n.fn, *args)
    return done[e]


def diff(e: Expr, name: str, out: Expr | None = None) -> Expr:
    """d e / d name, by the chain rule over the graph (forward accumulation).

    Where `out` is given, the whole of `e` appears in the result as the variable `out`, so that
    a slope can read the saved output in place of the operand.
    """
    slopes: dict[Expr, Expr] = {}
    zero = as_expr(0)
    for n in schedule([e]):
        if n.fn == "var":
            slopes[n] = as_expr(1) if n.value == name else zero
            continue
        total = zero
        for i, a in enumerate(n.args):
            d = slopes.get(a, zero)
            if d is zero:
                continue
            rule = FUNCTIONS[n.fn].slopes[i]
            if rule is None:
                if n.fn in _NO_SLOPE:
                    raise TypeError(f"{n.fn} has no derivative in its operand {i}")
                continue                     # comparisons are constant almost everywhere
            total = add(total, mul(d, as_expr(rule(*n.args, n))))
        slopes[n] = total
    result = slopes[e]
    return result if out is None else substitute(result, {e: out})


def flops(*exprs: Expr) -> int:
    """Floating operations per element, common subexpressions counted once."""
    return sum(FUNCTIONS[e.fn].flops for e in schedule(exprs) if e.fn in FUNCTIONS)


_ATOMIC = ("var", "const")


def slope_of(e: Expr, operand: str, given: Mapping[str, Any]) -> Expr:
    """d e / d operand, in the form that keeps least."""
    if operand in given:
        return trace(given[operand])
    forms = [diff(e, operand), diff(e, operand, var("out"))]
    return min(forms, key=lambda s: (len(set(variables(s))), flops(s)))


def gated(ct: Expr, slope: Expr) -> Expr:
    """ct * slope, and 0 where a choice in the slope says 0, even for a ct of inf or nan, whose
    product with 0 is nan: the gradient of sqrt(relu(x)) at 0 is then 0, as in PyTorch."""
    if not _gated(slope):
        return ct if slope.fn == "const" and slope.value == 1 else ct * slope
    condition, a, b = slope.args
    return where_(condition, *(as_expr(0.0) if _zero(s) else gated(ct, s) for s in (a, b)))


def _zero(e: Expr) -> bool:
    return e.fn == "const" and e.value == 0


def _gated(slope: Expr) -> bool:
    return slope.fn == "where" and any(_zero(s) or _gated(s) for s in slope.args[1:])


def fresh(name: str, taken: set[str]) -> str:
    """`name`, or `name2`, `name3`, ... where it is taken."""
    n, candidate = 1, name
    while candidate in taken:
        n += 1
        candidate = f"{name}{n}"
    return candidate


def formula(e: Expr, marks: frozenset[str] = frozenset(), mark: str = "[{}]") -> str:
    """The expression as text; variables named in `marks` are wrapped by `mark`."""
    texts: dict[Expr, str] = {}
    for n in schedule([e]):
        if n.fn == "var":
            texts[n] = mark.format(n.value) if n.value in marks else n.value
        elif n.fn == "const":
            texts[n] = f"{n.value:.6g}" if isinstance(n.value, float) else str(n.value)
        else:
            show = FUNCTIONS[n.fn].show
            bare = "(" in show or show.startswith("|")
            parts = [texts[a] if bare or a.fn in _ATOMIC or "(" in FUNCTIONS[a.fn].show
                     else f"({texts[a]})" for a in n.args]
            texts[n] = show.format(*parts)
    return texts[e]


def _constant(value: Any, dtype: np.dtype[Any] | None) -> Any:
    """A constant for generated code: a 0-d array where the dtype is fixed (NumPy converts a
    Python number anew at every call, which costs more than the operation on small arrays)."""
    if dtype is None or isinstance(value, bool):
        return value
    # in memory of Python's: what the package keeps is not counted as the user's
    return np.ndarray((), dtype, dtype.type(value).tobytes())


def _pick(condition: Any, a: Any, b: Any, *operands: Any) -> Any:
    """`where` of two numbers, in the dtype of the operands: NumPy's own would be float64."""
    found = [x.dtype for x in operands if isinstance(x, np.ndarray) and x.dtype.kind in "fc"]
    kind = found[0].type if found else float
    return np.where(condition, kind(a), kind(b))


def _emit(exprs: Sequence[Expr | None], dtype: np.dtype[Any] | None, params: Sequence[str],
          keyword: Sequence[str]) -> tuple[list[str], list[str], dict[str, Any]]:
    """Lines of Python, names of the results, and the namespace for `compile_numpy`."""
    order = schedule([e for e in exprs if e is not None])
    last: dict[Expr, int] = {a: i for i, n in enumerate(order) for a in n.args}
    names: dict[Expr, str] = {}
    scope: dict[str, Any] = {}
    lines: list[str] = []
    free: list[str] = []
    results = set(exprs)
    for i, n in enumerate(order):
        if n.fn == "var":
            names[n] = n.value
        elif n.fn == "const":
            names[n] = f"_c{len(scope)}"
            scope[names[n]] = _constant(n.value, dtype)
        else:
            used = [names[a] for a in n.args]
            for a in dict.fromkeys(n.args):
                if a.fn not in _ATOMIC and last[a] == i and a not in results:
                    free.append(names[a])
            target = free.pop() if free else f"_t{i}"
            names[n] = target
            called = "f_" + n.fn
            scope[called] = FUNCTIONS[n.fn].numpy
            if n.fn == "where" and dtype is None and all(
                    a.fn == "const" or a.value in keyword for a in n.args[1:]):
                scope["pick"], called, used = _pick, "pick", [*used, *params]
            lines.append(f"    {target} = {called}({', '.join(used)})")
    return lines, ["None" if e is None else names[e] for e in exprs], scope


@functools.cache
def _settle() -> Callable[..., Any]:
    """What lays a result as its operands lie; few programs come to it."""
    from adjoint.kernels.order import ordered
    return ordered


def ordering(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, a function of arrays element by element, with results that lie as its operands do."""
    def run(*args: Any, **attrs: Any) -> Any:
        out = f(*args, **attrs)
        for a in args:
            if type(a) is np.ndarray and not a.flags.c_contiguous:
                return _settle()(out, args)
        return out
    run.__wrapped__ = f  # type: ignore[attr-defined]  # a function takes attributes
    return run


def compile_numpy(name: str, params: Sequence[str], exprs: Sequence[Expr | None], *,
                  keyword: Sequence[str] = (), dtype: np.dtype[Any] | None = None,
                  single: bool = True) -> Callable[..., Any]:
    """A Python function of arrays that evaluates `exprs` with NumPy calls.

    A lone ufunc of one parameter is returned itself, without a frame around it; a result of several
    lies in memory as the operands say (`kernels/order.py`), gradients (`single` is false) as NumPy
    lays them: they are made far more often than operands of mixed orders meet.
    """
    lines, results, scope = _emit(exprs, dtype, params, keyword)
    if single and not keyword and len(lines) == 1:
        e: Any = exprs[0]
        raw = FUNCTIONS[e.fn].numpy
        if isinstance(raw, np.ufunc) and [a.value for a in e.args] == list(params):
            return raw if len(params) == 1 else ordering(raw)
    head = ", ".join([*params, *(["*", *keyword] if keyword else [])])
    tail = results[0] if single else f"({', '.join(results)},)"
    text = "\n".join([f"def {name}({head}):", *lines, f"    return {tail}"])
    scope["__name__"] = __name__           # the package's filter of warnings goes by it
    exec(compile(text, f"<adjoint expr {name}>", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return ordering(function) if params and single else function
