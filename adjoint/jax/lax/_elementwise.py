"""Elementwise functions of `jax.lax`: operands must have one dtype already."""
from __future__ import annotations

import enum
import inspect
from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.jax._array import as_array, checked, describe, make, moves, pair_of, to_tensor
from adjoint.jax._dtypes import as_dtype, issubdtype
from adjoint.jax._host import computed
from adjoint.jax._table import (
    T,
    broadcast,
    named,
    ordered,
)
from adjoint.jax._words import accurate, form, taking
from adjoint.jax.numpy._elementwise import NAMES as _J
from adjoint.jax.numpy._elementwise import (
    arctan2,
    cube_root,
    divided,
    integer_power,
    whole_parts,
)
from adjoint.ops.special import SPECIAL
from adjoint.ops.threefry import bitcast as _bitcast

NAMES: dict[str, Any] = {}


class RoundingMethod(enum.IntEnum):
    """Where halves go."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def strict(name: str, xs: Any, broadcasts: bool = True) -> tuple[list[Any], bool]:
    """Operands as tensors; TypeError where their dtypes differ."""
    xs = checked(name, xs)
    pairs: list[Any] = [pair_of(x) for x in xs]
    if len({d for d, _ in pairs}) > 1:
        raise TypeError(f"lax.{name} requires arguments to have the same dtypes, got "
                        f"{', '.join(d.name for d, _ in pairs)}.{_tip(name)}")
    ts = [to_tensor(x, d) for x, (d, _) in zip(xs, pairs, strict=True)]
    if broadcasts:
        ranks = {t.ndim for t in ts if t.ndim}
        if len(ranks) > 1:
            raise TypeError(f"{name}: arrays must have the same number of dimensions, got {ranks}")
        broadcast(name, ts)
    return ts, all(w for _, w in pairs)


_LIKE = {"select": "where", "rem": "remainder", "shift_left": "left_shift", "clamp": ""}


def _tip(name: str) -> str:
    """The function of `jax.numpy` that promotes, where there is one."""
    like = _LIKE.get(name, name)
    return like and (f" (Tip: jnp.{like} is a similar function that does automatic type promotion "
                     "on inputs).")


# ------------------------------------------------------------------ the dtypes of operands
_FLOATS, _INEXACT = ("floating",), ("floating", "complexfloating")
_NUMBERS, _BITS = ("integer", *_INEXACT), ("integer", "bool")
_ACCEPTS: dict[tuple[str, ...], str] = {
    _NUMBERS: "neg sign square add sub mul div",
    _FLOATS: "floor ceil round is_finite cbrt lgamma digamma erf erfc erf_inv bessel_i0e "
             "bessel_i1e nextafter igamma igammac zeta polygamma betainc",
    _INEXACT: "exp exp2 expm1 log log1p tanh logistic sin cos sqrt rsqrt tan asin acos atan asinh "
              "acosh atanh sinh cosh atan2 pow",
    ("complexfloating",): "real imag", ("float32", "float64"): "complex",
    ("float32", "complexfloating", "float64"): "conj",
    ("floating", "complexfloating", "signedinteger"): "abs",
    _BITS: "bitwise_and bitwise_or bitwise_xor bitwise_not",
    ("integer",): "population_count clz mulhi shift_left shift_right_logical "
                  "shift_right_arithmetic",
    ("integer", "floating"): "rem", ("integer", "floating", "bool"): "lt le gt ge"}
_PRIMITIVE = {"betainc": "regularized_incomplete_beta"}


def accepting(name: str, kinds: tuple[str, ...], run: Any) -> Any:
    """A function that raises TypeError for an operand of a dtype it does not take."""
    theirs = _PRIMITIVE.get(name, name.removeprefix("bitwise_"))

    def call(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else next(iter(kwargs.values()), None)
        pair = None if first is None else pair_of(first)
        if pair is not None and not any(pair[0] == k if k[-1] in "24l" else issubdtype(
                pair[0], getattr(np, k)) for k in kinds):
            several = len(args) > 1 and name != "round"
            at = " at position 0" if several else ""
            raise TypeError(f"{theirs} does not accept dtype {pair[0].name}{at}. Accepted dtypes"
                            f"{at} are subtypes of {', '.join(kinds)}.")
        return run(*args, **kwargs)
    call.__signature__ = inspect.signature(run)      # type: ignore[attr-defined]  # of the function
    return named(call, name, "adjoint.jax.lax")


def enter(name: str, run: Any) -> None:
    """Enter a function of tensors."""
    def call(*args: Any, accuracy: Any = None) -> Any:
        accurate(accuracy)
        ts, weak = strict(name, args)
        return make(run(*ts), weak)
    enter_call(name, call)


def enter_call(name: str, call: Any) -> None:
    """Enter a function of arrays, with the parameters of JAX's."""
    NAMES[name] = named(taking(form("adjoint.jax.lax", name), call), name, "adjoint.jax.lax")


for _name in ("sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log "
              "log1p sqrt rsqrt digamma lgamma erf erfc").split():
    enter(_name, T[_name])
enter("logistic", T["sigmoid"])
enter("cbrt", cube_root)
enter("erf_inv", T["erfinv"])
enter("bessel_i0e", SPECIAL["i0e"])
enter("bessel_i1e", SPECIAL["i1e"])
enter("is_finite", T["isfinite"])
for _name, _jnp in (("abs", "absolute"), ("neg", "negative"), ("sign", "sign"), ("floor", "floor"),
                    ("ceil", "ceil"), ("real", "real"), ("imag", "imag"),
                    ("square", "square")):
    enter_call(_name, _J[_jnp])
enter("conj", lambda x: (x if x.is_complex() else T["complex"](x, x * 0)).conj())
enter("add", lambda x, y: x + y)
enter("sub", lambda x, y: x - y)


def _multiplied(x: Any, y: Any, out_dtype: Any = None) -> Any:
    (s, t), weak = strict("mul", (x, y))
    to = s.array.dtype if out_dtype is None else as_dtype(out_dtype)
    return make(s.to(to) * t.to(to), weak)


enter_call("mul", _multiplied)
enter("max", ordered("maximum"))
enter("min", ordered("minimum"))
enter("atan2", arctan2)
enter("nextafter", T["nextafter"])
enter("igamma", T["igamma"])
enter("igammac", T["igammac"])
enter("zeta", lambda x, q: SPECIAL["zeta"](x, q) if x.array.dtype.itemsize > 2 else SPECIAL["zeta"](
    x.to(np.dtype(np.float32)), q.to(np.dtype(np.float32))).to(x.array.dtype))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    enter(_name, ordered(_name) if _name[0] in "lg" else T[_name])
for _name, _op in (("bitwise_and", "bitwise_and"), ("bitwise_or", "bitwise_or"),
                   ("bitwise_xor", "bitwise_xor"), ("bitwise_not", "bitwise_not")):
    enter(_name, T[_op])


def _quotient(x: Any, y: Any) -> Any:
    return x / y if is_inexact(x.array.dtype) else divided(x, y)[0]


def _rest(x: Any, y: Any) -> Any:
    return T["fmod"](x, y) if is_inexact(x.array.dtype) else whole_parts(x, y)[1]


enter("div", _quotient)
enter("rem", _rest)
enter("complex", lambda x, y: T["view_as_complex"](T["stack"](
    T["broadcast_tensors"](x, y), -1)))
complex_ = NAMES["complex"]


def _shift(name: str, op: str, logical: bool) -> None:
    def run(x: Any, y: Any) -> Any:
        bits = x.array.dtype.itemsize * 8
        kind = x.array.dtype
        if logical and kind.kind == "i":
            x = bitcast(x, np.dtype(f"uint{bits}"))
        inside = (y >= 0) & (y < bits)
        found = T[op](x, T["where"](inside, y, y.new_zeros(())).to(x.array.dtype))
        if op == "bitwise_right_shift" and not logical:
            far = T[op](x, x.new_full((), bits - 1))
        else:
            far = x.new_zeros(())
        found = T["where"](inside, found, far)
        return bitcast(found, kind) if found.array.dtype != kind else found
    enter(name, run)


_shift("shift_left", "bitwise_left_shift", False)
_shift("shift_right_logical", "bitwise_right_shift", True)
_shift("shift_right_arithmetic", "bitwise_right_shift", False)


def bitcast(t: Any, dtype: Any) -> Any:
    """The bytes of a tensor as another dtype of the same size."""
    return _bitcast(t, dtype=np.dtype(dtype))


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Any:
    """The bytes of an array as another dtype; a change of size changes the last axis."""
    x, to = as_array(operand), as_dtype(new_dtype)
    old, new = x.dtype.itemsize, to.itemsize
    if old == new:
        return make(bitcast(x.tensor, to))
    shape = (*x.shape, old // new) if old > new else x.shape[:-1]
    return make(*computed(lambda v: [np.ascontiguousarray(v).view(to).reshape(shape)], x.tensor))


def pow(x: Any, y: Any) -> Any:
    """`jax.lax.pow`."""                                     # JAX's name
    if isinstance(y, int) and not isinstance(y, bool):
        return integer_pow(x, y)
    ts, weak = strict("pow", (x, y)) if as_array(y).dtype.kind not in "iu" else (
        [as_array(x).tensor, as_array(y).tensor], False)
    return make(T["pow"](*ts), weak)


def integer_pow(x: Any, y: int) -> Any:
    """`jax.lax.integer_pow`."""
    a = as_array(x)
    if y < 0 and not is_inexact(a.dtype):
        raise TypeError("Integers cannot be raised to negative powers, got "
                        f"integer_pow({describe(a)}, {y})")
    return make(integer_power(a.tensor, int(y)), a.weak_type)


def round(x: Any, rounding_method: Any = RoundingMethod.AWAY_FROM_ZERO) -> Any:    # JAX's name
    """Nearest whole numbers: halves away from zero (0), or to even (1)."""
    a = as_array(x)
    t, how = a.tensor, int(getattr(rounding_method, "value", rounding_method))
    if how not in (0, 1):
        raise ValueError(f"{rounding_method} is not a valid RoundingMethod")
    if how == 1:
        return make(T["round"](t), a.weak_type)
    whole = T["trunc"](t)                               # (a sum with 1/2 would be rounded)
    return make(T["where"](abs(t - whole) < 0.5, whole, whole + T["sign"](t)), a.weak_type)


def clamp(min: Any, x: Any, max: Any) -> Any:                       # JAX's names
    """x within bounds; at and past a bound the gradient is zero."""
    (low, t, high), weak = strict("clamp", (min, x, max), False)
    for bound, what in ((low, "min"), (high, "max")):
        if bound.ndim and tuple(bound.shape) != tuple(t.shape):
            raise TypeError(f"clamp requires {what}.shape == operand.shape or {what}.shape == (), "
                            f"got {what}.shape={tuple(bound.shape)}, operand.shape="
                            f"{tuple(t.shape)}.")
    inside = T["where"]((t > low) & (t < high), t, t.detach())
    out = T["where"](t < low, low, inside)
    out = T["where"](out > high, high, out)            # (the upper bound wins)
    return make(out, weak)


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """The array in another dtype."""
    if new_dtype is None:
        raise ValueError("dtype must be specified.")
    return _J["astype"](as_array(operand), new_dtype)


def population_count(x: Any) -> Any:
    """The number of set bits."""
    a = as_array(x)
    t, total = a.tensor, a.tensor * 0
    for i in range(a.dtype.itemsize * 8):
        total = total + (T["bitwise_right_shift"](t, i) & 1)
    return make(total.to(a.dtype), a.weak_type)


def clz(x: Any) -> Any:
    """The number of leading zero bits."""
    a = as_array(x)
    bits = a.dtype.itemsize * 8

    def run(value: Any) -> Any:
        rest = np.asarray(value).astype(f"uint{bits}")
        lead = np.full(value.shape, bits, a.dtype)
        for _ in range(bits):
            lead = lead - (rest != 0)
            rest = rest >> np.asarray(1, rest.dtype)
        return [lead.astype(a.dtype)]
    return make(computed(run, a.tensor)[0], a.weak_type)


def reciprocal(x: Any) -> Any:
    """`jax.lax.reciprocal`."""
    integer_pow(x, -1)
    return _J["reciprocal"](x)


def random_gamma_grad(a: Any, x: Any) -> Any:
    """The derivative of a gamma variate in its shape parameter."""
    from adjoint.jax.random import gamma_slope
    return gamma_slope(a, x)


NAMES.update(bitcast_convert_type=bitcast_convert_type, pow=pow, integer_pow=integer_pow,
             round=round, clamp=clamp,
             convert_element_type=convert_element_type, population_count=population_count, clz=clz,
             reciprocal=reciprocal, logical_and=_J["logical_and"],
             random_gamma_grad=random_gamma_grad, add_any=NAMES["add"])


def betainc(a: Any, b: Any, x: Any) -> Any:
    """`jax.lax.betainc`."""
    from adjoint.jax.scipy.special import betainc as run
    return run(a, b, x)


def _polygamma(m: Any, x: Any) -> Any:
    """The derivative of digamma of an order that is a float: NaN where it is not whole."""
    if moves(m):
        raise ValueError("polygamma gradient with respect to m is not supported")
    where, whole = T["where"], (m >= 0) & (m == T["floor"](m))
    order = where(whole, m, m * 0 + 1)
    sign = where(order % 2 == 0, order * 0 - 1, order * 0 + 1)
    value = sign * T["exp"](T["lgamma"](order + 1)) * SPECIAL["zeta"](order + 1, x)
    value = where(order == 0, T["digamma"](x), value)
    return where(whole, value, value.new_full((), float("nan")))


def polygamma(m: Any, x: Any) -> Any:
    """`jax.lax.polygamma`."""
    (order, t), weak = strict("polygamma", (m, x))
    return make(_polygamma(order, t), weak)


NAMES.update(betainc=betainc, polygamma=polygamma, regularized_incomplete_beta=betainc)


def mulhi(x: Any, y: Any, /) -> Any:
    """The upper half of the bits of a product."""
    (s, t), weak = strict("mulhi", (x, y))
    bits = s.array.dtype.itemsize * 8
    if bits < 64:
        wide = np.dtype(f"{'u' if s.array.dtype.kind == 'u' else ''}int{2 * bits}")
        return make(T["bitwise_right_shift"](s.to(wide) * t.to(wide), bits).to(s.array.dtype), weak)
    return make(computed(lambda a, b: [np.asarray(
        a.astype(object) * b.astype(object) >> bits).astype(a.dtype)], s, t)[0], weak)


NAMES["mulhi"] = mulhi
for _kinds, _names in _ACCEPTS.items():
    for _name in _names.split():
        NAMES[_name] = accepting(_name, _kinds, NAMES[_name])
