"""Pointwise records: one line each, from a scalar expression. Policies at kinks and ties are
those of docs/subgradients.md."""
from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, aval_of
from adjoint.base.dtypes import BOOL, F32, F64, lacking
from adjoint.base.errors import DTypeError
from adjoint.core.modes import warn
from adjoint.core.op import op
from adjoint.kernels import expr as ex
from adjoint.kernels import special
from adjoint.kernels.expr import (
    abs_,
    atan2_,
    ceil_,
    copysign_,
    exp_,
    expm1_,
    floor_,
    fmod_,
    hypot_,
    log1p_,
    log_,
    maximum_,
    minimum_,
    mod_,
    rsqrt_,
    sigmoid_,
    sign_,
    sqrt_,
    tanh_,
    trunc_,
    where_,
)
from adjoint.ops.family import (
    DERIVED,
    NUMBER,
    batch_broadcast,
    broadcast_shapes,
    is_complex,
    pointwise,
    preparing,
    promote,
    raw_functions,
)

# ------------------------------------------------------------------ arithmetic
add = pointwise("add", lambda a, b: a + b)
TWO_BOOLEANS = ("Subtraction, the `-` operator, with two bool tensors is not supported. Use the "
                "`^` or `logical_xor()` operator instead.")
sub = pointwise("sub", lambda a, b: a - b, no_booleans=TWO_BOOLEANS)
mul = pointwise("mul", lambda a, b: a * b, why={"a": "db = ct·a", "b": "da = ct·b"})
div = pointwise("div", lambda a, b: a / b, kind="float",
                slope={"b": lambda a, b: -(a / b) / b},   # not from out: it may be written to
                why={"b": "da = ct/b and db = -ct·a/b²", "a": "db = -ct·a/b²"})


def _by_numbers(record: Any) -> None:
    """Let a product or quotient of 16 bit elements and one number take the number in float32, as
    PyTorch does: in float16, 1e5 is inf and 1e-7 is a fifth too large."""
    usual, shaped = record.prepare, record.infer

    def prepare(arrays: Any) -> Any:
        made = usual(arrays)
        if made[0].dtype.itemsize != 2 or made[0].dtype.kind not in "fV":
            return made
        made = list(made)
        for i, a in enumerate(arrays):
            wide = i and isinstance(a, np.ndarray) and not a.ndim and a.dtype.kind in "fiu" \
                and a.dtype.itemsize > 2 and not isinstance(arrays[0], NUMBER)
            if isinstance(a, (int, float)) or wide:
                made[i] = np.asarray(a, F32)
        return made

    def infer(*avals: Any, **attrs: Any) -> Aval:
        kinds = [aval_of(a).dtype for a in avals]
        narrow = next((k for k in kinds if k.itemsize == 2 and k.kind in "fV"), kinds[0])
        found = shaped(*avals, **attrs)
        return found if found.dtype == narrow else Aval(found.shape, narrow)
    record.prepare, record.infer = prepare, infer


_by_numbers(mul.op)
_by_numbers(div.op)
DERIVED.update({f"{name}_backward_{o}": _by_numbers for name in ("mul", "div") for o in "ab"})
neg = pointwise("neg", lambda x: -x, no_booleans=(
    "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
    "mask, use the `~` or `logical_not()` operator instead."))
pow_op = pointwise("pow", lambda a, b: a ** b,
                   why={"a": "da = ct·b·a^(b-1)", "b": "both slopes need the exponent",
                        "out": "db = ct·out·log(a)"}, refuses={"b": "pow"})
fmod = pointwise("fmod", lambda a, b: fmod_(a, b), refuses={"b": "fmod_cpu"})
remainder_op = pointwise("remainder", lambda a, b: mod_(a, b), refuses={"b": "remainder_cpu"})


def _remainders(a: Any, b: Any) -> Any:
    """The remainders of many: NumPy divides integers by one number several at a time, but does not
    so take remainders."""
    if a.dtype.kind in "iu" and getattr(b, "ndim", 0) == 0:
        with np.errstate(over="ignore"):            # of the least number divided by -1
            out = np.floor_divide(a, b)
            return np.subtract(a, np.multiply(out, b, out=out), out=out)
    return np.mod(a, b)


_record: Any = remainder_op.op
_record.many = _remainders
floor_divide_op = pointwise("floor_divide", lambda a, b: ex.floordiv_(a, b), node="DivBackward2",
                            refuses={"b": "div_floor_cpu"})
square = pointwise("square", lambda x: x * x, node="PowBackward0")
lerp_op = pointwise("lerp", lambda a, b, w: where_(     # from the nearer end: b itself where w is 1
                    ex.abs_(w) < 0.5, a + w * (b - a), b - (b - a) * (1 - w)),
                    slope={"a": lambda w: 1 - w, "b": lambda w: w, "w": lambda a, b: b - a},
                    node="LerpBackward1", refuses={"biu": "lerp_kernel_scalar"})
addcmul_op = pointwise("addcmul", lambda x, a, b, *, value: x + value * a * b,
                       refuses={"b": "addcmul_cpu_out"})
NO_INTEGER_DIVISION = (
    "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will "
    "perform a true division of tensor1 and tensor2. Convert to floats.")
addcdiv_op = pointwise(
    "addcdiv", lambda x, a, b, *, value: x + value * (a / b), kind="float",
    refuses={"biu": NO_INTEGER_DIVISION})
add_scaled = pointwise("add_scaled", lambda a, b, *, alpha: a + alpha * b, node="AddBackward0")
sub_scaled = pointwise("sub_scaled", lambda a, b, *, alpha: a - alpha * b, node="SubBackward0")
ONE_BOOLEAN = ("Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
               "trying to invert a mask, use the `~` or `logical_not()` operator instead.")


def _no_boolean(arrays: Any) -> Any:
    """Operands of a difference: 1 - mask is refused in words, as ~mask was meant."""
    found = [type(a) is bool or getattr(a, "dtype", None) is BOOL for a in arrays]
    if True in found and not all(found):            # two of them: refused by the shape rule
        raise DTypeError(ONE_BOOLEAN)
    return promote(arrays)


sub.op.prepare = sub_scaled.op.prepare = _no_boolean

# ------------------------------------------------------------------ exponentials, roots, trig
exp = pointwise("exp", lambda x: exp_(x), kind="float", why={"out": "d exp(x) = exp(x) = out"})
exp_below = pointwise(          # exp(x - top), 0 where both are -inf
    "exp_below", lambda x, top: exp_(x - where_(top.eq(-math.inf), 0, top)), kind="float",
    slope={"x": lambda out: out, "top": lambda out: -out}, why={"out": "d exp(x - top) = ±out"})
exp2 = pointwise("exp2", lambda x: ex.exp2_(x), kind="float")
expm1 = pointwise("expm1", lambda x: expm1_(x), kind="float")
log = pointwise("log", lambda x: log_(x), kind="float", why={"x": "dx = ct/x"})
log2 = pointwise("log2", lambda x: ex.log2_(x), kind="float")
log10 = pointwise("log10", lambda x: ex.log10_(x), kind="float")
log1p = pointwise("log1p", lambda x: log1p_(x), kind="float", node="Log1PBackward0")
sqrt = pointwise("sqrt", lambda x: sqrt_(x), kind="float", why={"out": "dx = ct/(2·out)"})
rsqrt = pointwise("rsqrt", lambda x: rsqrt_(x), kind="float")
reciprocal = pointwise("reciprocal", lambda x: ex.reciprocal_(x), kind="float")
sin = pointwise("sin", lambda x: ex.sin_(x), kind="float")
cos = pointwise("cos", lambda x: ex.cos_(x), kind="float")
tan = pointwise("tan", lambda x: ex.tan_(x), kind="float")
asin = pointwise("asin", lambda x: ex.asin_(x), kind="float")
acos = pointwise("acos", lambda x: ex.acos_(x), kind="float")
atan = pointwise("atan", lambda x: ex.atan_(x), kind="float")
sinh = pointwise("sinh", lambda x: ex.sinh_(x), kind="float")
cosh = pointwise("cosh", lambda x: ex.cosh_(x), kind="float")
tanh = pointwise("tanh", lambda x: tanh_(x), kind="float",
                 slope={"x": lambda out: 1 - out * out}, why={"out": "tanh' = 1 - out²"})
asinh = pointwise("asinh", lambda x: ex.asinh_(x), kind="float")
acosh = pointwise("acosh", lambda x: ex.acosh_(x), kind="float")
atanh = pointwise("atanh", lambda x: ex.atanh_(x), kind="float")
atan2 = pointwise("atan2", lambda a, b: atan2_(a, b), kind="float")
hypot = pointwise("hypot", lambda a, b: hypot_(a, b), kind="float", refuses={"biu": "hypot_cpu"})


def _log_of_sum(a: Any, b: Any, base: float) -> Any:
    """log of base^a + base^b in that base, which infinities of one sign leave as they are."""
    top, low = maximum_(a, b), minimum_(a, b)
    infinite = abs_(top).eq(math.inf)
    apart = (where_(infinite, 0.0, low) - where_(infinite, 0.0, top)) * math.log(base)
    return top + log1p_(exp_(apart)) / math.log(base)


def _share_of(a: Any, b: Any, base: float) -> Any:
    """Of a in that sum; of two that are -inf, which have none, 0."""
    return where_(a.eq(-math.inf), 0.0, sigmoid_((a - b) * math.log(base)))


logaddexp_op = pointwise("logaddexp", lambda a, b: _log_of_sum(a, b, math.e), kind="float",
                         slope={"a": lambda a, b: _share_of(a, b, math.e),
                                "b": lambda a, b: _share_of(b, a, math.e)})
logaddexp2_op = pointwise("logaddexp2", lambda a, b: _log_of_sum(a, b, 2.0), kind="float",
                          slope={"a": lambda a, b: _share_of(a, b, 2.0),
                                 "b": lambda a, b: _share_of(b, a, 2.0)})
sigmoid = pointwise("sigmoid", lambda x: sigmoid_(x), kind="float",
                    slope={"x": lambda out: out * (1 - out)}, why={"out": "σ' = out·(1-out)"})
logit_op = pointwise("logit", lambda x: log_(x / (1 - x)), kind="float",
                     slope={"x": lambda x: 1 / (x * (1 - x))}, refuses={"c": "logit_cpu"})

# ------------------------------------------------------------------ special functions
erf = pointwise("erf", lambda x: ex.erf_(x), kind="float", refuses={"c": "erf_vml_cpu"})
erfc = pointwise("erfc", lambda x: ex.erfc_(x), kind="float", refuses={"c": "erfc_vml_cpu"})
erfinv = pointwise("erfinv", lambda x: ex.erfinv_(x), kind="float", refuses={"c": "erfinv_vml_cpu"})
lgamma = pointwise("lgamma", lambda x: ex.lgamma_(x), kind="float", refuses={"c": "lgamma_vml_cpu"})
digamma = pointwise("digamma", lambda x: ex.digamma_(x), kind="float", refuses={"c": "digamma"})


_polygammas = ex.ordering(special.polygamma)
_xlogy = ex.ordering(special.xlogy)
_where = ex.ordering(np.where)


def _polygamma_infer(x: Aval, *, n: int) -> Aval:
    return x


def _polygamma(x: Any, /, *, n: int) -> Any:
    if n == 1 and x.dtype in (F32, F64):           # the slope of digamma has a kernel
        small, large, limit, _ = _trigamma()
        return (large if x.size >= limit else small)(x)
    return _polygammas(n, x)


@cache
def _trigamma() -> Any:
    return raw_functions("trigamma", ("x",), [ex.call("trigamma", ex.var("x"))], None)


polygamma_op = op(
    "polygamma", impl=_polygamma, infer=_polygamma_infer,
    vjp={"x": lambda ct, x, *, n: mul(ct, polygamma_op(x, n=n + 1))},
    jvp={"x": lambda t, x, *, n: mul(t, polygamma_op(x, n=n + 1))},
    batch=batch_broadcast, prepare=preparing("float", {"c": "polygamma"}),
    cost=lambda x, **_: 60 * x.size, why={"x": "the next derivative of ψ at x"})
xlogy_op = op(
    "xlogy", impl=lambda a, b, /: _xlogy(a, b),
    infer=lambda a, b: Aval(broadcast_shapes("xlogy", a, b), a.dtype),
    vjp={"a": lambda ct, a, b: mul(ct, where_op(both_zero(a, b), 0.0, log(b))),
         "b": lambda ct, a, b: mul(ct, div(a, b))},
    jvp={"a": lambda t, a, b: mul(t, where_op(both_zero(a, b), 0.0, log(b))),
         "b": lambda t, a, b: mul(t, div(a, b))},
    batch=batch_broadcast, prepare=preparing("float", {"c": "xlogy_cpu"}),
    cost=lambda a, b: 10 * a.size, elementwise=True,
    why={"a": "db = ct·a/b", "b": "da = ct·log b"})
both_zero = pointwise("both_zero", lambda a, b: a.eq(0) & (b <= 0), kind="bool")
tied = pointwise("tied", lambda a, b: a.eq(b) | (ex.isnan_(a) & ex.isnan_(b)), kind="bool")

# ------------------------------------------------------------------ rounding and signs
def _absolute(x: Any) -> Any:
    if x.dtype is BOOL:
        raise lacking("abs_cpu", BOOL)
    return np.absolute(x)


abs_op = op(
    "abs", impl=lambda x, /: _absolute(x),
    infer=lambda x: Aval(x.shape, _real(x.dtype)),
    vjp={"x": lambda ct, x: mul(ct, sgn(x))},
    jvp={"x": lambda t, x: real_part(mul(t, conj_op(sgn(x))))},
    batch=batch_broadcast, cost=lambda x: x.size, elementwise=True,
    why={"x": "|x|' = sign(x), 0 at 0"})
sign = pointwise("sign", lambda x: sign_(x), refuses={
    "c": "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use "
         "torch.sgn instead."})
sgn = op(
    "sgn", impl=lambda x, /: special.absolute_sign(x), infer=lambda x: x,
    vjp={"x": lambda ct, x: _sgn_rule(ct, x)}, jvp={"x": lambda t, x: _sgn_rule(t, x)},
    batch=batch_broadcast, cost=lambda x: x.size, elementwise=True,
    why={"x": "the phase turns with x"})
floor = pointwise("floor", lambda x: floor_(x), refuses={
    "b": "floor_vml_cpu", "c": "floor is not supported for complex inputs"})
ceil = pointwise("ceil", lambda x: ceil_(x), refuses={
    "b": "ceil_vml_cpu", "c": "ceil is not supported for complex inputs"})
trunc = pointwise("trunc", lambda x: trunc_(x), refuses={
    "b": "trunc_vml_cpu", "c": "trunc is not supported for complex inputs"})
round_op = pointwise("round", lambda x: ex.round_(x), refuses={"bc": "round_vml_cpu"})
frac = pointwise("frac", lambda x: x - trunc_(x), slope={"x": lambda: 1.0},
                 refuses={"biuc": "frac_cpu"})
copysign_op = pointwise("copysign", lambda a, b: copysign_(a, b), kind="float")


def _ldexp(x: Any, n: Any, /) -> Any:
    wide = x if x.dtype in (F32, F64) else x.astype(F32)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(wide, np.clip(n, -4096, 4096).astype(np.int32)).astype(x.dtype)


ldexp_op: Any = op(
    "ldexp", impl=_ldexp, infer=lambda x, n: Aval(broadcast_shapes("ldexp", x, n), x.dtype),
    vjp={"x": lambda ct, n: ldexp_op(ct, n)}, jvp={"x": lambda t, n: ldexp_op(t, n)},
    batch=batch_broadcast, cost=lambda x, n: max(x.size, n.size), elementwise=True,
    node="LdexpBackward0",
    why={"n": "dx = ct·2^n"}, domain=lambda: [
        ((np.array([1.5, -2.0, 0.0]), np.array([3, -1, 2])), {})])

# ------------------------------------------------------------------ choice and comparison
_NO_CLAMP = {"c": "clamp is not supported for complex types"}
minimum = pointwise("minimum", lambda a, b: minimum_(a, b),
                    refuses={"c": "minimum not implemented for complex tensors."})
maximum = pointwise("maximum", lambda a, b: maximum_(a, b),
                    refuses={"c": "maximum not implemented for complex tensors."})
fmax = pointwise("fmax", lambda a, b: where_(ex.isnan_(b), a, where_(a >= b, a, b)),
                 slope={"a": lambda a, b: where_((a >= b) | ex.isnan_(b), 1.0, 0.0),
                        "b": lambda a, b: where_((a >= b) | ex.isnan_(b), 0.0, 1.0)},
                 refuses={"c": "fmax not implemented for complex tensors."})
fmin = pointwise("fmin", lambda a, b: where_(ex.isnan_(b), a, where_(a <= b, a, b)),
                 slope={"a": lambda a, b: where_((a <= b) | ex.isnan_(b), 1.0, 0.0),
                        "b": lambda a, b: where_((a <= b) | ex.isnan_(b), 0.0, 1.0)},
                 refuses={"c": "fmin not implemented for complex tensors."})
nan_to_num_op = pointwise(
    "nan_to_num", lambda x, *, nan, high, low: where_(ex.isnan_(x), nan, where_(
        x.eq(math.inf), high, where_(x.eq(-math.inf), low, x))),
    domain=lambda: [((np.array([1.5, -2.0, 0.5]),), {"nan": 0.0, "high": 9.0, "low": -9.0})])
clamp_min = pointwise("clamp_min", lambda x, *, low: maximum_(x, low), node="ClampBackward1",
                      refuses=_NO_CLAMP,
                      slope={"x": lambda x, *, low: where_(x >= low, 1.0, 0.0)})
clamp_max = pointwise("clamp_max", lambda x, *, high: minimum_(x, high), node="ClampBackward1",
                      refuses=_NO_CLAMP,
                      slope={"x": lambda x, *, high: where_(x <= high, 1.0, 0.0)})
clamp_op = pointwise("clamp", lambda x, *, low, high: minimum_(maximum_(x, low), high),
                     node="ClampBackward1", refuses=_NO_CLAMP,
                     slope={"x": lambda x, *, low, high: where_((x >= low) & (x <= high),
                                                                1.0, 0.0)})
# Bounds that are tensors: a bound takes the cotangent where it won, an empty interval is `high`.
clamp_least = pointwise(
    "clamp_least", lambda x, low: maximum_(x, low), node="ClampBackward0",
    refuses=_NO_CLAMP,
    slope={"x": lambda x, low: where_(x >= low, 1.0, 0.0),
           "low": lambda x, low: where_(x < low, 1.0, 0.0)})
clamp_most = pointwise(
    "clamp_most", lambda x, high: minimum_(x, high), node="ClampBackward0",
    refuses=_NO_CLAMP,
    slope={"x": lambda x, high: where_(x <= high, 1.0, 0.0),
           "high": lambda x, high: where_(x > high, 1.0, 0.0)})
clamp_between = pointwise(
    "clamp_between", lambda x, low, high: minimum_(maximum_(x, low), high), node="ClampBackward0",
    refuses={**_NO_CLAMP, "b": "clamp_cpu"},
    slope={"x": lambda x, low, high: where_((x >= low) & (x <= high), 1.0, 0.0),
           "low": lambda x, low, high: where_((low < high) & (x < low), 1.0, 0.0),
           "high": lambda x, low, high: where_((low > high) | (x > high), 1.0, 0.0)})
lt = pointwise("lt", lambda a, b: a < b, kind="bool", refuses={"c": "lt_cpu"})
le = pointwise("le", lambda a, b: a <= b, kind="bool", refuses={"c": "le_cpu"})
gt = pointwise("gt", lambda a, b: a > b, kind="bool", refuses={"c": "gt_cpu"})
ge = pointwise("ge", lambda a, b: a >= b, kind="bool", refuses={"c": "ge_cpu"})
eq = pointwise("eq", lambda a, b: a.eq(b), kind="bool")
ne = pointwise("ne", lambda a, b: a.ne(b), kind="bool")
logical_and = pointwise("logical_and", lambda a, b: a & b, kind="bool")
logical_or = pointwise("logical_or", lambda a, b: a | b, kind="bool")
logical_not = pointwise("logical_not", lambda x: ~x, kind="bool")
isnan = pointwise("isnan", lambda x: ex.isnan_(x), kind="bool")


def _where_prepare(arrays: Any) -> Any:
    return [arrays[0], *promote(arrays[1:])]


where_op = op(
    "where", impl=lambda c, a, b, /: _where(c, a, b),
    infer=lambda c, a, b: Aval(broadcast_shapes("where", c, a, b), a.dtype),
    vjp={"a": lambda ct, c: where_op(c, ct, 0.0), "b": lambda ct, c: where_op(c, 0.0, ct)},
    jvp={"a": lambda t, c: where_op(c, t, 0.0), "b": lambda t, c: where_op(c, 0.0, t)},
    batch=batch_broadcast, prepare=_where_prepare, node="WhereBackward0", elementwise=True,
    chooses=("c", {1: True, 2: False}),
    cost=lambda c, a, b: c.size, why={"c": "the gradient goes where the value came from"})

# ------------------------------------------------------------------ activations
relu = pointwise("relu", lambda x: maximum_(x, 0),
                 slope={"x": lambda out: where_(out <= 0, 0.0, 1.0)},
                 refuses={"b": "Boolean inputs not supported for relu", **_NO_CLAMP},
                 why={"out": "out <= 0 exactly where x <= 0, so x itself may be freed"})
SQRT1_2, GELU_C = math.sqrt(0.5), math.sqrt(2 / math.pi)
gelu_erf = pointwise("gelu", lambda x: 0.5 * x * (1 + ex.erf_(x * SQRT1_2)), kind="float",
                     why={"x": "Φ(x) + x·φ(x) needs x"}, refuses={"c": "GeluKernelImpl"})
_GELU_X, _GELU_X3 = 2 * GELU_C, 2 * GELU_C * 0.044715


def _gelu_tanh_slope(x: Any) -> Any:
    s = sigmoid_(x * (_GELU_X + _GELU_X3 * (x * x)))
    return s + s * (1 - s) * x * (_GELU_X + 3 * _GELU_X3 * (x * x))


# x/2 (1 + tanh u) = x sigmoid(2 u), which keeps the left tail and takes fewer operations
gelu_tanh = pointwise("gelu_tanh", lambda x: x * sigmoid_(x * (_GELU_X + _GELU_X3 * (x * x))),
                      slope={"x": _gelu_tanh_slope}, kind="float", node="GeluBackward0",
                      why={"x": "the slope is a function of x"}, refuses={"c": "GeluKernelImpl"})
silu = pointwise("silu", lambda x: x * sigmoid_(x), kind="float",
                 slope={"x": lambda x: sigmoid_(x) * (1 + x * (1 - sigmoid_(x)))},
                 refuses={"biu": "silu_cpu"})
softplus_op = pointwise(
    "softplus", lambda x, *, beta, threshold: where_(
        x * beta > threshold, x, log1p_(exp_(minimum_(x * beta, threshold))) / beta),
    slope={"x": lambda x, *, beta, threshold: where_(x * beta > threshold, 1.0,
                                                     sigmoid_(x * beta))}, kind="float",
    refuses={"biuc": "softplus_cpu"})
elu_op = pointwise(
    "elu", lambda x, *, alpha, scale, input_scale: where_(
        x > 0, scale * x, (scale * alpha) * expm1_(minimum_(input_scale * x, 0.0))),
    slope={"x": lambda x, *, alpha, scale, input_scale: where_(
        x <= 0, (scale * alpha * input_scale) * exp_(minimum_(input_scale * x, 0.0)), scale)},
    kind="float", refuses={"biuc": "elu_cpu"})
leaky_relu_op = pointwise("leaky_relu", lambda x, *, negative_slope: where_(
    x > 0, x, negative_slope * x), refuses={"biuc": "leaky_relu_cpu"})
logsigmoid = pointwise("logsigmoid", lambda x: ex.logsigmoid_(x), kind="float",
                       node="LogSigmoidBackward0", slope={"x": lambda x: sigmoid_(-x)},
                       refuses={"biuc": "log_sigmoid_cpu"})
hardtanh_op = pointwise("hardtanh", lambda x, *, low, high: minimum_(maximum_(x, low), high),
                        refuses=_NO_CLAMP,
                        slope={"x": lambda x, *, low, high: where_(x <= low, 0.0, where_(
                            x >= high, 0.0, 1.0))})
hardswish = pointwise(
    "hardswish", lambda x: x * minimum_(maximum_(x + 3.0, 0.0), 6.0) / 6.0,
    slope={"x": lambda x: where_(x <= -3.0, 0.0, where_(x < 3.0, x / 3.0 + 0.5, 1.0))},
    refuses={"biuc": "hardswish_cpu"})
hardsigmoid = pointwise(
    "hardsigmoid", lambda x: minimum_(maximum_(x + 3.0, 0.0), 6.0) / 6.0,
    slope={"x": lambda x: where_((x > -3.0) & (x < 3.0), 1 / 6, 0.0)},
    refuses={"biuc": "hardsigmoid_cpu"})


def _mish_slope(x: Any) -> Any:
    inner = tanh_(maximum_(x, 0.0) + log1p_(exp_(-abs_(x))))
    return inner + x * sigmoid_(x) * (1 - inner * inner)


mish = pointwise("mish", lambda x: x * tanh_(maximum_(x, 0.0) + log1p_(exp_(-abs_(x)))),
                 kind="float", slope={"x": lambda x: _mish_slope(x)}, refuses={"biuc": "mish_cpu"})
softsign_op = pointwise(
    "softsign", lambda x: x / (abs_(x) + 1.0), kind="float", node="DivBackward0",
    slope={"x": lambda x: 1.0 / ((abs_(x) + 1.0) * (abs_(x) + 1.0))})
tanhshrink_op = pointwise("tanhshrink", lambda x: x - tanh_(x), kind="float", node="SubBackward0",
                          slope={"x": lambda x: tanh_(x) * tanh_(x)})
softshrink_op = pointwise("softshrink", lambda x, *, lambd: where_(
    (x <= lambd) & (x >= -lambd), 0.0, where_(x > lambd, x - lambd, x + lambd)),
    slope={"x": lambda x, *, lambd: where_((x <= lambd) & (x >= -lambd), 0.0, 1.0)},
    refuses={"biuc": "softshrink_check"})
hardshrink_op = pointwise("hardshrink", lambda x, *, lambd: where_(
    (x >= -lambd) & (x <= lambd), 0.0, x), refuses={"biuc": "hardshrink_cpu"})
threshold_op = pointwise("threshold", lambda x, *, threshold, value: where_(
    x <= threshold, value, x), refuses={"bc": "threshold_cpu"})
prelu_op = pointwise("prelu", lambda x, w: where_(x > 0, x, w * x), autocast="lower",
                     node="PreluKernelBackward0", refuses={"c": "prelu_cpu"},
                     slope={"x": lambda x, w: where_(x > 0, 1.0, w),
                            "w": lambda x, w: where_(x > 0, 0.0, x)})


# ------------------------------------------------------------------ complex numbers
def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def _complex(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype("c16") if dtype.itemsize == 8 else np.dtype("c8")


def _sgn_rule(g: Any, x: Any) -> Any:
    """d sgn(z) = (g - s·conj(g)·s)/(2|z|) with s = sgn z; 0 for real operands."""
    if not is_complex(x):
        return mul(g, 0.0)
    s, size = sgn(x), abs_op(x)
    turned = sub(g, mul(mul(s, s), conj_op(g)))
    return where_op(eq(size, 0.0), 0.0, div(turned, mul(size, 2.0)))


conj_op = op("conj", impl=lambda x, /: np.conjugate(x), infer=lambda x: x,
             vjp={"x": lambda ct: conj_op(ct)}, jvp={"x": None}, batch=batch_broadcast,
             cost=lambda x: 0, node="ConjBackward0")
real_part = op("real", impl=lambda x, /: np.real(x).copy(),
               infer=lambda x: Aval(x.shape, _real(x.dtype)),
               vjp={"x": lambda ct: to_complex(ct)}, jvp={"x": None}, batch=batch_broadcast,
               cost=lambda x: 0, node="RealBackward0")
imag_part = op("imag", impl=lambda x, /: np.imag(x).copy(),
               infer=lambda x: Aval(x.shape, _real(x.dtype)),
               vjp={"x": lambda ct: mul(to_complex(ct), 1j)}, jvp={"x": None},
               batch=batch_broadcast, cost=lambda x: 0, node="ImagBackward0")
to_complex = op("to_complex",
                impl=lambda x, /: x if x.dtype.kind == "c" else x.astype(_complex(x.dtype)),
                infer=lambda x: Aval(x.shape, _complex(x.dtype)),
                vjp={"x": lambda ct: real_part(ct)}, jvp={"x": None}, batch=batch_broadcast,
                cost=lambda x: 0)
angle_op = op("angle", impl=lambda x, /: np.angle(x if x.dtype.kind == "c" else x + 0).astype(
                  _real(x.dtype)),              # (a real -0 has the angle 0)
              infer=lambda x: Aval(x.shape, _real(x.dtype)),
              vjp={"x": lambda ct, x: _angle_rule(ct, x)},
              jvp={"x": lambda t, x: real_part(mul(t, conj_op(_angle_rule(1.0, x))))
                   if is_complex(x) else mul(t, 0.0)},
              prepare=lambda arrays: promote(arrays, floating=True),
              batch=batch_broadcast, cost=lambda x: 14 * x.size,
              why={"x": "d arg(z) = i·z/|z|²"})


def _angle_rule(ct: Any, x: Any) -> Any:
    if not is_complex(x):
        return mul(ct, 0.0)
    size = abs_op(x)
    return where_op(eq(size, 0.0), 0.0, mul(div(mul(x, 1j), mul(size, size)), ct))


def _cast_vjp(ct: Any, *, dtype: np.dtype[Any]) -> Any:
    return ct


def _cast_impl(x: Any, /, *, dtype: np.dtype[Any]) -> Any:
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        warn("Casting complex values to real discards the imaginary part; take .real or .abs() "
             "where that is meant.")
        x = x.real
    return x.astype(dtype)


cast = op("to_dtype", show="{x}", elementwise=True, impl=_cast_impl,
          infer=lambda x, *, dtype: Aval(x.shape, dtype),
          vjp={"x": _cast_vjp}, jvp={"x": None}, batch=batch_broadcast, cost=lambda x, **_: 0,
          node="ToCopyBackward0")

# The same to a dtype that has no gradient.
cast_whole = op("to_whole", show="{x}", elementwise=True, impl=_cast_impl,
                infer=lambda x, *, dtype: Aval(x.shape, dtype), batch=batch_broadcast)


# ------------------------------------------------------------------ integers
def _bitwise(name: str, f: Any, refuses: Any = None) -> Any:
    return op(name, impl=f, infer=lambda a, b: Aval(broadcast_shapes(name, a, b), a.dtype),
              batch=batch_broadcast, prepare=preparing("promote", refuses),
              cost=lambda a, b: a.size)


bitwise_and = _bitwise("bitwise_and", lambda a, b, /: np.bitwise_and(a, b))
bitwise_or = _bitwise("bitwise_or", lambda a, b, /: np.bitwise_or(a, b))
bitwise_xor = _bitwise("bitwise_xor", lambda a, b, /: np.bitwise_xor(a, b))
left_shift = _bitwise("bitwise_left_shift", lambda a, b, /: np.left_shift(a, b),
                      {"bfhcV": "lshift_cpu"})
right_shift = _bitwise("bitwise_right_shift", lambda a, b, /: np.right_shift(a, b),
                       {"bfhcV": "rshift_cpu"})
gcd_op = _bitwise("gcd", lambda a, b, /: np.gcd(a, b))
lcm_op = _bitwise("lcm", lambda a, b, /: np.lcm(a, b))
bitwise_not = op("bitwise_not", impl=lambda x, /: np.invert(x), infer=lambda x: x,
                 batch=batch_broadcast, cost=lambda x: x.size)


def _logical(name: str, f: Any) -> Any:
    return op(name, impl=f, infer=lambda x: Aval(x.shape, BOOL), batch=batch_broadcast,
              cost=lambda x: x.size)


isinf = _logical("isinf", lambda x, /: np.isinf(x))
isfinite = _logical("isfinite", lambda x, /: np.isfinite(x))
signbit = _logical("signbit", lambda x, /: np.signbit(x))
logical_xor = op("logical_xor", impl=lambda a, b, /: np.logical_xor(a, b),
                 infer=lambda a, b: Aval(broadcast_shapes("logical_xor", a, b), BOOL),
                 batch=batch_broadcast, cost=lambda a, b: a.size)
