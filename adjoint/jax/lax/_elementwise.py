"""Elementwise functions of `jax.lax`: operands must have one dtype already."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.core.tensor import wrap
from adjoint.jax._array import as_array, checked, make, pair_of, to_tensor
from adjoint.jax._dtypes import as_dtype
from adjoint.jax._table import T, broadcast, named
from adjoint.jax.numpy._elementwise import NAMES as _J
from adjoint.jax.numpy._elementwise import integer_power, whole_parts
from adjoint.ops.special import SPECIAL
from adjoint.ops.threefry import bitcast as _bitcast

NAMES: dict[str, Any] = {}


def strict(name: str, xs: Any, broadcasts: bool = True) -> tuple[list[Any], bool]:
    """Operands as tensors; TypeError where their dtypes differ."""
    xs = checked(name, xs)
    pairs: list[Any] = [pair_of(x) for x in xs]
    if len({d for d, _ in pairs}) > 1:
        raise TypeError(f"lax.{name} requires arguments to have the same dtypes, got "
                        f"{', '.join(d.name for d, _ in pairs)}. (Tip: jnp.{name} is a similar "
                        "function that does automatic type promotion on inputs).")
    ts = [to_tensor(x, d) for x, (d, _) in zip(xs, pairs, strict=True)]
    if broadcasts:
        broadcast(name, ts)
    return ts, all(w for _, w in pairs)


def enter(name: str, run: Any, kind: str = "any", truth: bool = False) -> None:
    """Enter a function of tensors. kind "float": TypeError for integers."""
    def call(*args: Any, **_: Any) -> Any:
        ts, weak = strict(name, args)
        if kind == "float" and not is_inexact(ts[0].array.dtype):
            raise TypeError(f"{name} does not accept dtype {ts[0].array.dtype.name}. Accepted "
                            "dtypes are subtypes of floating, complexfloating.")
        return make(run(*ts), weak and not truth)
    NAMES[name] = named(call, name, "adjoint.jax.lax")


for _name in ("sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log "
              "log1p sqrt rsqrt digamma lgamma erf erfc").split():
    enter(_name, T[_name], "float")
enter("logistic", T["sigmoid"], "float")
enter("cbrt", lambda x: T["sign"](x) * T["pow"](abs(x), 1 / 3), "float")
enter("erf_inv", T["erfinv"], "float")
enter("bessel_i0e", SPECIAL["i0e"], "float")
enter("bessel_i1e", SPECIAL["i1e"], "float")
enter("is_finite", T["isfinite"], "float", True)
for _name, _jnp in (("abs", "absolute"), ("neg", "negative"), ("sign", "sign"), ("floor", "floor"),
                    ("ceil", "ceil"), ("real", "real"), ("imag", "imag"), ("conj", "conj"),
                    ("square", "square")):
    NAMES[_name] = _J[_jnp]
enter("add", lambda x, y: x + y)
enter("sub", lambda x, y: x - y)
enter("mul", lambda x, y: x * y)
enter("max", T["maximum"])
enter("min", T["minimum"])
enter("atan2", T["atan2"], "float")
enter("nextafter", T["nextafter"], "float")
enter("igamma", T["igamma"], "float")
enter("igammac", T["igammac"], "float")
enter("zeta", SPECIAL["zeta"], "float")
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    enter(_name, T[_name], truth=True)
for _name, _op in (("bitwise_and", "bitwise_and"), ("bitwise_or", "bitwise_or"),
                   ("bitwise_xor", "bitwise_xor"), ("bitwise_not", "bitwise_not")):
    enter(_name, T[_op])


def _quotient(x: Any, y: Any) -> Any:
    return x / y if is_inexact(x.array.dtype) else whole_parts(x, y)[0]


def _rest(x: Any, y: Any) -> Any:
    return T["fmod"](x, y) if is_inexact(x.array.dtype) else whole_parts(x, y)[1]


enter("div", _quotient)
enter("rem", _rest)
enter("complex", lambda x, y: T["complex"](*T["broadcast_tensors"](x, y)), "float")
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
    value = np.ascontiguousarray(np.asarray(x))
    if old > new:
        return make(wrap(value.view(to).reshape(*x.shape, old // new)))
    return make(wrap(value.view(to).reshape(x.shape[:-1])))


def pow(x: Any, y: Any) -> Any:
    """`jax.lax.pow`."""                                     # JAX's name
    if pair_of(y) is not None and as_array(y).dtype.kind in "iu" and isinstance(y, int):
        return NAMES["integer_power"](x, y)
    ts, weak = strict("pow", (x, y)) if as_array(y).dtype.kind not in "iu" else (
        [as_array(x).tensor, as_array(y).tensor], False)
    return make(T["pow"](*ts), weak)


def integer_pow(x: Any, y: int) -> Any:
    """`jax.lax.integer_pow`."""
    a = as_array(x)
    return make(integer_power(a.tensor, int(y)), a.weak_type)


def round(x: Any, rounding_method: Any = 0) -> Any:                 # JAX's name
    """Nearest whole numbers: halves away from zero (0), or to even (1)."""
    a = as_array(x)
    t = a.tensor
    if int(getattr(rounding_method, "value", rounding_method)) == 1:
        return make(T["round"](t), a.weak_type)
    return make(T["sign"](t) * T["floor"](abs(t) + 0.5), a.weak_type)


def clamp(min: Any, x: Any, max: Any) -> Any:                       # JAX's names
    """x within bounds; at and past a bound the gradient is zero."""
    (low, t, high), weak = strict("clamp", (min, x, max))
    inside = T["where"]((t > low) & (t < high), t, t.detach())
    out = T["where"](t < low, low, T["where"](t > high, high, inside))
    return make(out, weak)


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """The array in another dtype."""
    return _J["astype"](as_array(operand), new_dtype)


def population_count(x: Any) -> Any:
    """The number of set bits."""
    a = as_array(x)
    t, total = a.tensor, a.tensor * 0
    for i in range(a.dtype.itemsize * 8):
        total = total + (T["bitwise_right_shift"](t, i) & 1)
    return make(total.to(a.dtype))


def clz(x: Any) -> Any:
    """The number of leading zero bits."""
    a = as_array(x)
    value = np.asarray(a)
    bits = a.dtype.itemsize * 8
    wide = value.view(f"uint{bits}").astype(np.float64)
    lead = np.where(value == 0, bits, bits - 1 - np.floor(np.log2(np.maximum(wide, 1))))
    return make(wrap(lead.astype(a.dtype)))


def reciprocal(x: Any) -> Any:
    """`jax.lax.reciprocal`."""
    return _J["reciprocal"](x)


def random_gamma_grad(a: Any, x: Any) -> Any:
    """The derivative of a gamma variate in its shape parameter."""
    from adjoint.jax.random import gamma_slope
    return gamma_slope(a, x)


NAMES.update(bitcast_convert_type=bitcast_convert_type, pow=pow, integer_pow=integer_pow,
             integer_power=integer_pow, round=round, clamp=clamp,
             convert_element_type=convert_element_type, population_count=population_count, clz=clz,
             reciprocal=reciprocal, logical_and=_J["logical_and"],
             add_any=NAMES["add"])


def betainc(a: Any, b: Any, x: Any) -> Any:
    """`jax.lax.betainc`."""
    from adjoint.jax.scipy.special import betainc as run
    return run(a, b, x)


def polygamma(m: Any, x: Any) -> Any:
    """`jax.lax.polygamma`."""
    from adjoint.jax.scipy.special import polygamma as run
    return run(m, x)


NAMES.update(betainc=betainc, polygamma=polygamma, regularized_incomplete_beta=betainc)
