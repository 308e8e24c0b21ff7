"""Elementwise functions of `jax.numpy`: tables of names over the ops, and the operators."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.core.tensor import wrap
from adjoint.jax._array import Array, as_array, checked, convert, describe, joined, make
from adjoint.jax._dtypes import as_dtype, config, default_dtype
from adjoint.jax._table import (
    T,
    broadcast,
    elementwise,
    floating,
    is_weak,
    named,
    no_out,
    not_taken,
    ordered,
    same_ranks,
)
from adjoint.jax._trace import RUN
from adjoint.jax._words import placing, taking
from adjoint.jax.numpy._create import NAMES as _C
from adjoint.protocols import sign_or_nan

NAMES: dict[str, Any] = {}           # the functions of this module, by their public names


def enter(run: Any, names: str, **how: Any) -> Any:
    """Enter a function of tensors under its names in `jax.numpy`."""
    for name in names.split():
        NAMES[name] = elementwise(name, run, **how)
    return NAMES[name]


def _of_kinds(name: str, kinds: str, text: str, error: Any = ValueError) -> Any:
    """The function of tensors, with an error for operands of other kinds than these."""
    def run(*xs: Any) -> Any:
        for x in xs:
            if x.array.dtype.kind not in kinds:
                raise error(text.format(dtype=x.array.dtype.name))
        return T[name](*xs)
    return run


def arctan2(y: Any, x: Any) -> Any:
    """The angle of (x, y); of complex numbers by its logarithm."""
    if not y.is_complex():
        return T["arctan2"](y, x)
    return -1j * T["log"]((x + 1j * y) / T["sqrt"](x * x + y * y))


def cube_root(x: Any) -> Any:
    """The real cube root, refined by a step of Newton's method where the power is inexact."""
    y = T["sign"](x) * T["pow"](abs(x), 1 / 3)
    cube = (y * y * y - x) / (3 * y * y)
    return T["where"](T["isfinite"](cube) & T["isfinite"](x), y - cube.detach(), y)


def _zeros(x: Any) -> Any:
    return T["zeros_like"](x)


def _sign(x: Any) -> Any:
    if x.array.dtype.kind == "b":
        raise TypeError("sign does not accept dtype bool. Accepted dtypes are subtypes of integer, "
                        "floating, complexfloating.")
    if x.array.dtype.kind == "u":
        return (x != 0).to(x.array.dtype)
    return T["sgn"](x) if x.is_complex() else sign_or_nan(x)


def _power(x: Any, y: Any) -> Any:
    if x.array.dtype.kind in "iu":         # six bits of an exponent count, those of -1 are 63
        return T["pow"](x, T["bitwise_and"](y, 63))
    if x.is_complex():                     # of 0 to what is not real, as of its logarithm
        found = T["pow"](x, y)
        return T["where"]((x == 0) & (y.imag != 0), found * math.nan, found)
    return T["pow"](x, y)


def whole_parts(x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient and rest of integers, towards zero; of a division by 0 they are -1 and x."""
    zero = y == 0
    safe = T["where"](zero, y.new_ones(()), y)
    kind = x.array.dtype
    quotient = T["div"](x, safe, rounding_mode="trunc").to(kind)
    return (T["where"](zero, T["bitwise_not"](y.new_zeros(())), quotient),
            T["where"](zero, x, T["fmod"](x, safe).to(kind)))


def divided(x: Any, y: Any) -> tuple[Any, Any]:
    """`whole_parts` of a division, told to who asks (`RUN.divisor`)."""
    if RUN.divisor is not None:
        RUN.divisor(y)
    return whole_parts(x, y)


def _remainder(x: Any, y: Any) -> Any:
    if is_inexact(x.array.dtype):
        return T["remainder"](x, y)
    rest = _fmod(x, y)
    return T["where"](((rest < 0) != (y < 0)) & (rest != 0), rest + y, rest)


def _fmod(x: Any, y: Any) -> Any:
    if is_inexact(x.array.dtype):
        return T["fmod"](x, y)
    return T["where"](y == 0, y, whole_parts(x, y)[1])         # (by 0: 0)


def _floor_divide(x: Any, y: Any) -> Any:
    if is_inexact(x.array.dtype):
        return T["floor_divide"](x, y)
    quotient, rest = divided(x, y)
    return T["where"]((_sign(x) != _sign(y)) & (rest != 0), quotient - 1, quotient)


def _real(name: str, x: Any) -> Any:
    """A tensor; TypeError for complex numbers."""
    if x.is_complex():
        raise TypeError(f"{name} does not accept dtype {x.array.dtype.name}. Accepted dtypes are "
                        "subtypes of floating.")
    return x


def _heaviside(x: Any, y: Any) -> Any:
    _real("lt", x)
    nan = x.new_full((), float("nan"))
    step = T["where"](x > 0, T["ones_like"](x), _zeros(x))
    found = T["where"](x == 0, y, step)
    return T["where"](T["isnan"](x), nan, found)


# ------------------------------------------------------------------ floats of everything
for _names in ("sin", "cos", "tan", "arcsin asin", "arccos acos", "arctan atan", "sinh", "cosh",
               "tanh", "arcsinh asinh", "arccosh acosh", "arctanh atanh", "exp", "exp2", "expm1",
               "log", "log1p", "sqrt", "sinc"):
    enter(T[_names.split()[0]], _names, floating=True)
enter(lambda x: x * (math.pi / 180), "deg2rad radians", floating=True)
enter(lambda x: x * (180 / math.pi), "rad2deg degrees", floating=True)
for _name in ("log2", "log10"):
    enter(T[_name], _name, floating=True, kind="strong")
enter(lambda x: cube_root(_real("cbrt", x)), "cbrt", floating=True)
enter(T["logaddexp"], "logaddexp", floating=True)
enter(T["nextafter"], "nextafter", floating=True, takes="nextafter f")
enter(_of_kinds("copysign", "fV", "copysign does not support complex-valued inputs", TypeError),
      "copysign", floating=True)
enter(_of_kinds("hypot", "fV", "jnp.hypot is not well defined for complex-valued inputs. Please "
                "convert to real values first, such as by using jnp.real or jnp.abs."), "hypot",
      floating=True, kind="all")
enter(T["logaddexp2"], "logaddexp2", floating=True, kind="all")
enter(arctan2, "arctan2 atan2", floating=True)
enter(lambda x, y: x / y, "true_divide divide", floating=True)
enter(_heaviside, "heaviside", floating=True)
enter(_power, "float_power", floating=True)

# ------------------------------------------------------------------ the type stays
enter(lambda x: x, "positive")
enter(T["neg"], "negative", takes="neg iufc")
enter(lambda x: x if x.array.dtype.kind in "ub" else T["abs"](x), "absolute abs")
enter(lambda x: T["abs"](_real("fabs", x)), "fabs", floating=True)
enter(_sign, "sign")
enter(lambda x: x * x, "square", numeric=True)
enter(T["reciprocal"], "reciprocal", floating=True)
enter(lambda x, y: x + y if x.array.dtype.kind != "b" else T["logical_or"](x, y), "add")
enter(lambda x, y: x - y, "subtract", takes="sub iufc")
enter(lambda x, y: x * y if x.array.dtype.kind != "b" else T["logical_and"](x, y), "multiply")
enter(_floor_divide, "floor_divide", numeric=True)
enter(_remainder, "remainder mod", numeric=True, takes="rem iuf")
enter(_fmod, "fmod", numeric=True, takes="rem iuf")
for _name in ("maximum", "minimum", "fmax", "fmin"):
    enter(ordered(_name), _name)
for _name in ("gcd", "lcm"):
    enter(_of_kinds(_name, "iu", f"Arguments to jax.numpy.{_name} must be integers."), _name,
          kind="all")
enter(_of_kinds("i0", "fV", "Unsupported input type to jax.numpy.i0: {dtype}"), "i0",
      floating=True)
for _name in ("and", "or", "xor"):
    enter(T[f"bitwise_{_name}"], f"bitwise_{_name}", takes=f"{_name} iub")
enter(T["bitwise_not"], "bitwise_not invert bitwise_invert", takes="not iub")
enter(T["bitwise_left_shift"], "left_shift bitwise_left_shift", numeric=True,
      takes="shift_left iu")
enter(T["bitwise_right_shift"], "right_shift bitwise_right_shift", numeric=True,
      takes="shift_right_arithmetic iu")

# ------------------------------------------------------------------ truth values
for _names in ("eq:equal", "ne:not_equal", "lt:less", "le:less_equal", "gt:greater",
               "ge:greater_equal"):
    _op, _name = _names.split(":")
    enter(ordered(_op), _name)
for _name in "logical_and logical_or logical_xor".split():
    enter(T[_name], _name, kind="all")
enter(T["logical_not"], "logical_not")
for _name in "isnan isinf".split():
    enter(T[_name], _name, floating=True, kind="strong" if _name == "isinf" else "same")
for _name in "isposinf isneginf".split():
    enter(_of_kinds(_name, "fV", "isposinf/isneginf are not well defined for complex types"), _name,
          floating=True, kind="strong")
enter(_of_kinds("signbit", "biufV", "jax.numpy.signbit is not well defined for {dtype}"), "signbit",
      kind="strong")
enter(lambda x: T["isreal"](x), "isreal")
enter(lambda x: ~T["isreal"](x), "iscomplex")


# ------------------------------------------------------------------ parts of complex numbers
enter(lambda x: T["real"](x) if x.is_complex() else x, "real")
enter(lambda x: T["imag"](x) if x.is_complex() else _zeros(x), "imag")
enter(lambda x: T["conj"](x) if x.is_complex() else x, "conj conjugate")


def _floats(x: Any, name: str) -> Any:
    """One operand as a tensor of floats: whole numbers as Python's floats, of whatever width."""
    kept = is_inexact(as_array(x, name).dtype)
    return floating(x, name) if kept else as_array(x).tensor.to(default_dtype("float"))


def angle(z: Any, deg: bool = False) -> Any:
    x = _floats(z, "angle")
    y = T["angle"](x) if x.is_complex() else T["arctan2"](_zeros(x), x)     # (of -0: pi)
    return make(T["rad2deg"](y) if deg else y, x.is_complex() and is_weak(z))


# ------------------------------------------------------------------ with arguments of their own
def power(x1: Any, x2: Any, /) -> Any:
    """`jax.numpy.power`; integers may not have negative exponents that are numbers."""
    x1, x2 = checked("power", (x1, x2))
    if isinstance(x2, (int, np.integer)) and not isinstance(x2, bool):
        base, x2 = as_array(x1, "power"), int(x2)
        if is_inexact(base.dtype):
            return make(integer_power(base.tensor, x2), base.weak_type)
        if x2 < 0:
            raise TypeError("Integers cannot be raised to negative powers, got "
                            f"integer_pow({describe(base)}, {x2})")
        (t,), weak = joined("power", (base,), True)
        return make(integer_power(t, x2).to(t.array.dtype), weak)
    ts, weak = joined("power", (x1, x2), True)
    if weak and is_inexact(ts[0].array.dtype):     # whole exponents are not converted
        weak = is_weak(x1) or as_array(x2).dtype.kind not in "iu"
        weak = weak and (is_weak(x2) or as_array(x2).dtype.kind not in "iu")
    if config.watched:
        same_ranks("power", ts)
    broadcast("pow", ts)
    return make(_power(*ts), weak)


def integer_power(x: Any, n: int) -> Any:
    """x to a whole power, whose slope at 0 is that of the polynomial."""
    if n == 0:
        return x * 0 + 1
    return x if n == 1 else T["pow"](x, n)


def _rounder(name: str) -> Any:
    def run(x: Any) -> Any:
        a = as_array(x, name)
        if a.dtype.kind == "c":
            not_taken(*(("lt", "iuf", [a.tensor, a.tensor]) if name in ("trunc", "fix") else
                        (name, "f", [a.tensor])))
        return a if a.dtype.kind in "iu" else make(T[_ROUND[name]](a.tensor) if is_inexact(
            a.dtype) else a.tensor, a.weak_type)
    return named(taking("x" if name == "trunc" else "x, /", run), name, "adjoint.jax.numpy")


_ROUND = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "fix": "trunc"}
for _name in _ROUND:
    NAMES[_name] = _rounder(_name)


def rint(x: Any, /) -> Any:
    if as_array(x, "rint").dtype.kind == "c":
        return round(x)
    return make(T["round"](_floats(x, "rint")), _weak_float(x))


def isfinite(x: Any, /) -> Any:
    return make(T["isfinite"](floating(x, "isfinite")), _weak_float(x))


def _weak_float(x: Any) -> bool:
    """True for what is of a weak type and no whole number."""
    return is_weak(x) and is_inexact(as_array(x).dtype)


def round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    no_out("round", out)
    x = as_array(a, "round")
    if not is_inexact(x.dtype):
        if decimals < 0:
            raise NotImplementedError("integer np.round not implemented for decimals < 0")
        return x
    if x.dtype.kind == "c":
        from adjoint.jax.lax._elementwise import complex_
        return complex_(round(x.real, decimals), round(x.imag, decimals))
    if decimals == 0:
        return make(T["round"](x.tensor), x.weak_type)
    scale = 10.0 ** decimals
    return make(T["round"](x.tensor * scale) / scale, x.weak_type)


def clip(arr: Any = None, /, min: Any = None, max: Any = None) -> Any:
    """`jax.numpy.clip`: at a bound the gradient is shared, as that of minimum and maximum."""
    if arr is None:
        raise ValueError("At most one of a and arr may be specified: clip takes an array")
    x = arr
    if any(v is not None and as_array(v, "clip").dtype.kind == "c" for v in (x, min, max)):
        raise ValueError("Clip received a complex value either through the input or the min/max "
                         "keywords. Complex values have no ordering and cannot be clipped.")
    for bound, name in ((min, "maximum"), (max, "minimum")):
        if bound is not None:
            x = NAMES[name](bound, x)
    return as_array(x, "clip")


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
               ) -> Any:
    a = as_array(x, "nan_to_num")
    if not is_inexact(a.dtype):
        return a
    if a.tensor.is_complex():
        from adjoint.jax.lax._elementwise import complex_
        return complex_(nan_to_num(a.real, copy, nan, posinf, neginf),
                        nan_to_num(a.imag, copy, nan, posinf, neginf))
    return make(T["nan_to_num"](a.tensor, float(nan), posinf, neginf))


def divmod(x1: Any, x2: Any, /) -> Any:
    rest = NAMES["remainder"](x1, x2)
    return NAMES["floor_divide"](x1, x2), rest


def modf(x: Any, /, out: Any = None) -> Any:
    no_out("modf", out)
    t = floating(x, "modf")
    if t.is_complex():
        not_taken("ge", "iuf", [t, t])
    whole = T["trunc"](t)
    return make(t - whole, is_weak(x)), make(whole, is_weak(x))


def frexp(x: Any, /) -> Any:
    t = floating(x, "frexp")
    if t.is_complex():
        raise TypeError("frexp does not support complex-valued inputs")
    m, e = T["frexp"](t)
    return make(m), make(e.to(np.dtype(np.int32)))


def ldexp(x1: Any, x2: Any, /) -> Any:
    t, power = floating(x1, "ldexp"), as_array(x2, "ldexp")
    if t.is_complex() or power.dtype.kind not in "biu":
        raise ValueError(f"ldexp not supported for input types {(t.array.dtype, power.dtype)}")
    return make(T["ldexp"](t, power.tensor))


def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
            ) -> Any:
    ts, _ = joined("isclose", (a, b), floating=True)
    x, y = T["broadcast_tensors"](*[t.detach() for t in ts])
    return make(T["isclose"](x, y, rtol=float(rtol), atol=float(atol), equal_nan=equal_nan))


def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
             ) -> Any:
    return make(T["all"](isclose(a, b, rtol, atol, equal_nan).tensor))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = _C["array"](a1), _C["array"](a2)
    if x.shape != y.shape:
        return make(wrap(np.array(False)))
    same = NAMES["equal"](x, y).tensor
    if equal_nan:
        same = same | (NAMES["isnan"](x) & NAMES["isnan"](y)).tensor
    return make(T["all"](same))


def array_equiv(a1: Any, a2: Any) -> Any:
    x, y = _C["array"](a1), _C["array"](a2)
    try:
        return make(T["all"](NAMES["equal"](x, y).tensor))
    except (TypeError, ValueError):
        return make(wrap(np.array(False)))


@placing("device")
def astype(x: Any, dtype: Any, /, *, copy: bool = False) -> Any:
    """The array in another dtype; a derivative flows between floating ones."""
    a = as_array(x, "astype")
    to = default_dtype("float") if dtype is None else as_dtype(dtype)
    if to.kind == "b" and a.dtype.kind != "b":
        return NAMES["not_equal"](a, 0)
    return make(a.tensor if a.dtype == to else convert(a.tensor, to))


# ------------------------------------------------------------------ operators
_BINARY = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide",
           "floordiv": "floor_divide", "mod": "remainder", "and": "bitwise_and",
           "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift",
           "rshift": "right_shift"}
_COMPARE = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
            "ge": "greater_equal"}
_FAST = frozenset({"add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge"})
_REFUSED = (list, tuple, dict, str, type(None), set)


def _operator(dunder: str, f: Any, flipped: bool = False) -> None:
    quick = getattr(__import__("operator"), dunder) if dunder in _FAST else None

    def run(a: Any, b: Any) -> Any:
        if quick is not None and type(b) is Array:
            s, t = a.tensor, b.tensor
            if s.array.dtype == t.array.dtype and a.weak_type == b.weak_type and (
                    s.array.dtype.kind == "f" and s.shape == t.shape):
                return make(quick(s, t), a.weak_type)
        if isinstance(b, _REFUSED):
            return NotImplemented
        return f(b, a) if flipped else f(a, b)
    setattr(Array, f"__{'r' * flipped}{dunder}__", run)


def fill_operators(matmul: Any) -> None:
    """Give arrays their operators."""
    for dunder, name in {**_BINARY, **_COMPARE}.items():
        _operator(dunder, NAMES[name])
    for dunder, name in _BINARY.items():
        if dunder not in _FAST:
            _operator(dunder, NAMES[name], True)
        else:
            setattr(Array, f"__r{dunder}__", lambda a, b, _f=NAMES[name]: NotImplemented
                    if isinstance(b, _REFUSED) else _f(b, a))
    _operator("pow", power)
    own: Any = Array
    own.__rpow__ = lambda a, b: power(b, a)
    _operator("matmul", matmul)
    _operator("matmul", matmul, True)
    _operator("divmod", divmod)
    for dunder, name in (("neg", "negative"), ("pos", "positive"), ("abs", "absolute"),
                         ("invert", "bitwise_not"), ("floor", "floor"), ("ceil", "ceil"),
                         ("trunc", "trunc")):
        setattr(Array, f"__{dunder}__", lambda a, _f=NAMES[name]: _f(a))
    own.__round__ = lambda a, n=None: round(a, n or 0) if n is not None or not is_inexact(
        a.dtype) else round(a).astype(default_dtype("int"))


NAMES.update({f.__name__: f for f in (
    angle, power, rint, isfinite, round, clip, nan_to_num, divmod, modf, frexp, ldexp, isclose,
    allclose, array_equal, array_equiv, astype)})
NAMES["around"], NAMES["pow"] = round, power
__all__ = ["NAMES", "arctan2", "cube_root", "divided", "fill_operators", "integer_power",
           "whole_parts"]
