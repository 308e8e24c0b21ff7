"""Public pointwise functions, operators and in-place methods, with PyTorch's signatures."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.dtypes import (
    BOOL,
    F64,
    category,
    cpp_type,
    held,
    is_float,
    is_of,
    lacking,
    result_type,
    scalar_type,
    to_numpy,
)
from adjoint.base.errors import ArgumentError, DTypeError, instead_of
from adjoint.core.inplace import check_fit, inplace
from adjoint.core.tensor import Tensor
from adjoint.ops import pointwise as p
from adjoint.ops.api_common import (
    cast_to,
    exactly,
    finish,
    finish_kept,
    finish_typed,
    need_kernel,
    need_tensors,
    no_zeros,
    undifferentiated,
    value,
)
from adjoint.ops.public import METHODS, known_as, known_by, operands, planned, public, write_out
from adjoint.ops.shape import clone_op, expand_op, stack_op

NUMBER = (bool, int, float, complex)


def dtype_of(x: Any) -> np.dtype[Any]:
    """The NumPy dtype of a tensor, array or number (by PyTorch's defaults)."""
    if isinstance(x, Tensor):
        return np.dtype(x.dtype.dtype)
    return result_type([x]) if isinstance(x, NUMBER) else np.asarray(x).dtype


def is_complex_like(x: Any) -> bool:
    """True for complex tensors, arrays and numbers."""
    return dtype_of(x).kind == "c"


def _document(f: Any, what: str) -> None:
    """A docstring for a generated function; its formula is in the record (`ad.explain`), which is
    traced only when it is used."""
    f.__doc__ = (f"{what}, elementwise.\n\n    Shapes broadcast; integers are promoted as PyTorch "
                 "promotes them; `out` takes the result.\n    ")


def _need_tensor(name: str, x: Any) -> None:
    if not isinstance(x, (Tensor, np.ndarray, np.generic)):
        raise DTypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not "
                         f"{type(x).__name__}; {instead_of(x)}")


# whose kernels write the dtype of the operand and convert nothing
_KEPT = ("abs", "bitwise_not", "ceil", "frac", "floor", "neg", "sign", "sgn", "trunc")


def _unary(name: str, f: Callable[..., Any], aliases: tuple[str, ...] = (),
           inplace_too: bool = True) -> None:
    into = finish_kept if name in _KEPT else exactly(
        f"{name} does not support non-boolean outputs.") if name == "signbit" else finish

    def function(input: Any, *, out: Any = None) -> Any:
        _need_tensor(name, input)
        result = f(input)
        return result if out is None else into(out, result, input)
    function.__name__ = function.__qualname__ = name
    _document(function, name)
    public(name, aliases=aliases, method=bool(aliases), quick=True)(function)
    if not aliases:
        METHODS[name] = f
    for n in (name, *aliases):
        if inplace_too:
            _inplace(n + "_", f, _real if name == "abs" else None)


def _real(label: str, x: Any) -> None:
    if dtype_of(x).kind == "c":
        raise DTypeError("In-place abs is not supported for complex tensors: their absolute values "
                         f"are real ({label})")


def _inplace(label: str, f: Callable[..., Any],
             check: Callable[..., None] | None = None) -> None:
    record = f.op  # type: ignore[attr-defined]  # op functions carry their record

    def method(self: Tensor, *others: Any, **named: Any) -> Tensor:
        others += (named.pop("other"),) if "other" in named else ()
        if named:
            raise TypeError(f"{label}() got an unexpected keyword argument {[*named][0]!r}")
        if check is not None:
            check(label, *others, self)
        return inplace(record, self, others, name=label)
    method.__name__ = method.__qualname__ = label
    method.__doc__ = f"In-place form of `{label[:-1]}`."
    METHODS[label] = method
    if label in ("relu_", "exp_", "sqrt_", "sigmoid_", "tanh_", "sin_", "cos_", "neg_", "abs_",
                 "floor_", "ceil_", "round_", "trunc_", "log_", "reciprocal_", "rsqrt_", "square_"):
        public(label, method=False, quick=True)(method)


def square_of(x: Any) -> Any:
    """x * x."""
    return p.square(p.cast(x, dtype=np.dtype(np.int64)) if dtype_of(x).kind == "b" else x)

square_of.op = p.square.op  # type: ignore[attr-defined]  # what an in-place form runs
for _name, _f, _aliases in (
        ("neg", p.neg, ("negative",)), ("square", square_of, ()), ("exp", p.exp, ()),
        ("exp2", p.exp2, ()), ("expm1", p.expm1, ()), ("log", p.log, ()), ("log2", p.log2, ()),
        ("log10", p.log10, ()), ("log1p", p.log1p, ()), ("sqrt", p.sqrt, ()),
        ("rsqrt", p.rsqrt, ()), ("reciprocal", p.reciprocal, ()), ("sin", p.sin, ()),
        ("cos", p.cos, ()), ("tan", p.tan, ()), ("asin", p.asin, ("arcsin",)),
        ("acos", p.acos, ("arccos",)), ("atan", p.atan, ("arctan",)), ("sinh", p.sinh, ()),
        ("cosh", p.cosh, ()), ("tanh", p.tanh, ()), ("asinh", p.asinh, ("arcsinh",)),
        ("acosh", p.acosh, ("arccosh",)), ("atanh", p.atanh, ("arctanh",)), ("erf", p.erf, ()),
        ("erfc", p.erfc, ()), ("erfinv", p.erfinv, ()), ("lgamma", p.lgamma, ()),
        ("digamma", p.digamma, ()), ("sign", p.sign, ()), ("sgn", p.sgn, ()),
        ("floor", p.floor, ()), ("ceil", p.ceil, ()), ("trunc", p.trunc, ("fix",)),
        ("frac", p.frac, ()), ("relu", p.relu, ()), ("sigmoid", p.sigmoid, ()),
        ("logical_not", p.logical_not, ()), ("bitwise_not", p.bitwise_not, ())):
    _unary(_name, _f, _aliases)
_unary("abs", p.abs_op, ("absolute",))
for _name, _f in (("isnan", p.isnan), ("isinf", p.isinf), ("isfinite", p.isfinite),
                  ("signbit", p.signbit), ("angle", p.angle_op)):
    _unary(_name, _f, inplace_too=False)


# ------------------------------------------------------------------ arithmetic
@public(aliases=("multiply",), quick=True)
def mul(input: Any = None, other: Any = None, *, out: Any = None, **named: Any) -> Any:
    """input * other, elementwise, with broadcasting."""
    if named:
        return mul(*operands("mul", (input, other), named), out=out)
    result = p.mul(input, other)
    return result if out is None else write_out(out, result, input, other)


@public(aliases=("divide",), quick=True)
def div(input: Any = None, other: Any = None, *, rounding_mode: str | None = None, out: Any = None,
        **named: Any) -> Any:
    """input / other, elementwise; `rounding_mode` None (true division), "trunc" or "floor"."""
    if named:
        return div(*operands("div", (input, other), named), rounding_mode=rounding_mode, out=out)
    if rounding_mode is None:
        result = p.div(input, other)
    elif rounding_mode in ("floor", "trunc"):
        result = _rounded(input, other, rounding_mode)
    else:
        raise ArgumentError("div expected rounding_mode to be one of None, 'trunc', or 'floor' but "
                            f"found {rounding_mode!r}")
    return result if out is None else write_out(out, result, input, other)


@public(quick=True)
def true_divide(input: Any, other: Any, *, out: Any = None) -> Any:
    """input / other, elementwise, never rounded."""
    return div(input, other, out=out)


def _rounded(a: Any, b: Any, mode: str) -> Any:
    joint = category(result_type([_raw(a), _raw(b)]))
    if not joint:
        raise lacking(f"div_{mode}_cpu", BOOL)
    if joint <= 1:
        no_zeros("div", b, a)
    if joint <= 2 and mode == "floor":
        return p.floor_divide_op(a, b)
    if joint > 1:
        return p.trunc(p.div(a, b))
    return p.floor_divide_op(p.sub(a, p.fmod(a, b)), b)         # (exact for integers of any size)


def _raw(x: Any) -> Any:
    return x.array if isinstance(x, Tensor) else x


@public()
def floor_divide(input: Any, other: Any, *, out: Any = None) -> Any:
    """floor(input / other), elementwise."""
    found = div(input, other, rounding_mode="floor", out=out)
    return undifferentiated("floor_divide", found, input, other) if out is None else found


@public()
def remainder(input: Any, other: Any, *, out: Any = None) -> Any:
    """input modulo other with the sign of `other` (Python's %)."""
    if isinstance(other, NUMBER):
        need_tensors("remainder", input)
    need_kernel("remainder_cpu", "b", input, other)
    no_zeros("remainder", other, input)
    return finish(out, p.remainder_op(input, other), input, other)


@public()
@known_by("Fmod")
def fmod(input: Any, other: Any, *, out: Any = None) -> Any:
    """The remainder of division with the sign of `input` (C's fmod)."""
    need_tensors("fmod", input)
    need_kernel("fmod_cpu", "b", input, other)
    no_zeros("fmod", other, input)
    return finish(out, p.fmod(input, other), input, other)


@public()
def pow(input: Any, exponent: Any, *, out: Any = None) -> Any:
    """input ** exponent, elementwise; one of the two may be a number."""
    if isinstance(input, NUMBER) and isinstance(exponent, NUMBER):
        need_tensors("pow", input)
    result = _pow(input, exponent)
    return result if out is None else write_out(out, result, input, exponent)


def _pow(a: Any, b: Any) -> Any:
    if isinstance(b, bool) and dtype_of(a).kind == "b":
        return clone_op(a) if b else p.bitwise_or(a, True)
    if isinstance(b, NUMBER) and not isinstance(b, bool) and isinstance(a, Tensor):
        kind = a.dtype.dtype.kind
        if b == 2 and (kind not in "biu" or isinstance(b, int)):
            return square_of(a)
        b = _exponent(a.array.dtype, b)
    if dtype_of(a).kind in "biu" and isinstance(b, Tensor) and dtype_of(b).kind == "i":
        if dtype_of(a).kind == "b":
            a = p.cast(a, dtype=dtype_of(b)) if isinstance(a, Tensor) else int(a)
        return _integer_pow(a, b)
    return p.pow_op(a, b)


def _exponent(base: np.dtype[Any], b: Any) -> Any:
    """A number as the exponent of a tensor of that dtype."""
    if base.kind in "iu" and isinstance(b, int):
        if b < 0:
            raise ArgumentError("Integers to negative integer powers are not allowed.")
        return held(b, base)
    return held(b, base) if is_of(base, "h") and not isinstance(b, complex) else b


def _integer_pow(a: Any, b: Any) -> Any:
    """a ** b of integers, where a negative exponent leaves 1, -1 or 0, as in PyTorch."""
    below = p.lt(b, 0)
    power = p.pow_op(a, p.clamp_min(b, low=0))
    odd = p.sub(1, p.mul(p.bitwise_and(b, 1), 2))
    unit = p.where_op(p.eq(a, 1), 1, p.where_op(p.eq(a, -1), odd, 0))
    return p.where_op(below, p.cast(unit, dtype=dtype_of(power)), power)


_power_out = exactly("the output given to float_power has dtype {have} but the operation's result "
                     "requires dtype {want}")


@public()
def float_power(input: Any, exponent: Any, *, out: Any = None) -> Any:
    """input ** exponent in float64 (complex128 for complex operands)."""
    if isinstance(input, NUMBER) and isinstance(exponent, NUMBER):
        need_tensors("float_power", input)
    wide = np.dtype(np.complex128) if is_complex_like(input) or is_complex_like(exponent) else F64
    a, b = (p.cast(x, dtype=wide) if isinstance(x, Tensor) else x for x in (input, exponent))
    return _power_out(out, p.pow_op(a, b))


def _need_others(label: str, *operands: Any) -> None:
    need_tensors(label, *operands)


# whose first operand may be a number where the second is a tensor
_EITHER = ("xlogy", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift",
           "bitwise_right_shift")


def _binary(name: str, f: Callable[..., Any], aliases: tuple[str, ...] = (),
            inplace_too: bool = False, numbers: bool = True) -> None:
    first = name not in _EITHER

    def function(input: Any, other: Any, *, out: Any = None) -> Any:
        if type(input) is not Tensor or type(other) is not Tensor:
            need_tensors(name, input, other, numbers=numbers)
            if isinstance(input, NUMBER) and (first or isinstance(other, NUMBER)):
                need_tensors(name, input)
        result = f(input, other)
        return result if out is None else write_out(out, result, input, other)
    function.__name__ = function.__qualname__ = name
    _document(function, name)
    public(name, aliases=aliases, quick=True)(function)
    if inplace_too:
        for n in (name, *aliases):
            _inplace(n + "_", f, check=None if numbers else _need_others)


for _name, _f, _aliases in (
        ("atan2", p.atan2, ("arctan2",)), ("hypot", p.hypot, ()), ("copysign", p.copysign_op, ()),
        ("xlogy", p.xlogy_op, ()), ("logical_and", p.logical_and, ()),
        ("logical_or", p.logical_or, ()), ("logical_xor", p.logical_xor, ()),
        ("bitwise_and", p.bitwise_and, ()), ("bitwise_or", p.bitwise_or, ()),
        ("bitwise_xor", p.bitwise_xor, ()), ("bitwise_left_shift", p.left_shift, ()),
        ("bitwise_right_shift", p.right_shift, ()), ("gcd", p.gcd_op, ()), ("lcm", p.lcm_op, ()),
        ("lt", p.lt, ("less",)), ("le", p.le, ("less_equal",)), ("gt", p.gt, ("greater",)),
        ("ge", p.ge, ("greater_equal",)), ("eq", p.eq, ()), ("ne", p.ne, ("not_equal",))):
    _binary(_name, _f, _aliases, inplace_too=True, numbers=_name not in (
        "atan2", "hypot", "logical_and", "logical_or", "logical_xor", "gcd", "lcm"))
for _name, _f in (("minimum", p.minimum), ("maximum", p.maximum), ("fmin", p.fmin),
                  ("fmax", p.fmax)):
    _binary(_name, _f, numbers=False)
for _name, _f in (("mul_", p.mul), ("multiply_", p.mul), ("true_divide_", p.div)):
    _inplace(_name, _f)


@public(function=False, name="pow_")
def pow_(self: Tensor, exponent: Any) -> Tensor:
    """self **= exponent."""
    kind = dtype_of(self).kind
    two = type(exponent) in (int, float) and exponent == 2 and kind in "fcV"
    if kind in "iu" and isinstance(exponent, Tensor) or kind == "b":    # by the cases of `_pow`
        made = pow(self, exponent)
        check_fit(self.array, made.array, "pow_")
        return METHODS["copy_"](self, made)
    if isinstance(exponent, NUMBER) and not isinstance(exponent, bool) and kind in "iufV":
        exponent = _exponent(self.array.dtype, exponent)
    return inplace((p.square if two else p.pow_op).op, self, (exponent,)[two:], name="pow_")


for _name, _f in (("fmod_", p.fmod), ("remainder_", p.remainder_op),
                  ("floor_divide_", p.floor_divide_op)):
    _inplace(_name, _f, check=no_zeros)


@public(function=False, name="div_", aliases=("divide_",))
def div_(self: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """self /= other."""
    if rounding_mode is None:
        return inplace(p.div.op, self, (other,), name="div_")
    made = div(clone_op(self), other, rounding_mode=rounding_mode)
    check_fit(self.array, made.array, "div_")
    return self.copy_(made)


def _like_input(input: Any, end: Any, weight: Any) -> None:
    """Refuse tensors that are not of the dtype of `input`; a weight without axes is a number."""
    if not isinstance(input, Tensor):
        return
    if type(weight) is complex:
        held(weight, dtype_of(input))
    for name, x in (("end", end), ("weight", weight)):
        if isinstance(x, Tensor) and x.array.dtype != input.array.dtype and (
                x is end or x.array.shape):
            raise DTypeError(f"expected dtype {cpp_type(input.array.dtype)} for `{name}` but got "
                             f"dtype {cpp_type(x.array.dtype)}: convert it")


@public(quick=True)
def lerp(input: Any, end: Any, weight: Any, *, out: Any = None) -> Any:
    """input + weight * (end - input), elementwise."""
    need_kernel("lerp_kernel_scalar", "biu", input, end)
    _like_input(input, end, weight)
    result = p.lerp_op(input, end, weight)
    if out is None:
        return result
    into = finish_kept if isinstance(weight, Tensor) else write_out
    return into(out, result, input, end, weight)


@public(function=False, name="lerp_", quick=True)
def lerp_(self: Tensor, end: Any, weight: Any) -> Tensor:
    """In-place form of `lerp`."""
    need_kernel("lerp_kernel_scalar", "biu", self)
    _like_input(self, end, weight)
    return inplace(p.lerp_op.op, self, (end, weight), name="lerp_")


# ------------------------------------------------------------------ clamping, rounding, choice
def _bounds(name: str, low: Any, high: Any) -> tuple[Any, Any]:
    """The bounds of a clamp, NumPy's numbers as Python's."""
    if type(low) is float and (high is None or type(high) is float):
        return low, high
    if low is None and high is None:
        raise ArgumentError("torch.clamp: At least one of 'min' or 'max' must not be None: "
                            f"{name}() got neither")
    low, high = _bound(low), _bound(high)
    if len({isinstance(b, Tensor) for b in (low, high) if b is not None}) == 2:
        raise DTypeError(
            f"{name}() received an invalid combination of arguments - got (Tensor, "
            f"{type(low).__name__}, {type(high).__name__}); min and max are both tensors or both "
            "numbers: write torch.tensor(...) around the number")
    return low, high


def _bound(x: Any) -> Any:
    if isinstance(x, np.ndarray) and x.size != 1:
        raise DTypeError(f"min and max are tensors or numbers, not an array {list(x.shape)}; write "
                         "torch.from_numpy(...) around it")
    return x.item() if isinstance(x, (np.ndarray, np.generic)) else x


@public(aliases=("clip",))
@planned
def clamp(input: Any, min: Any = None, max: Any = None, *, out: Any = None) -> Any:
    """input, limited to [min, max]; bounds are numbers or tensors. The slope at a bound is 1."""
    low, high = _bounds("clamp", min, max)
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        result = (p.clamp_most(input, high) if low is None else p.clamp_least(input, low)
                  if high is None else p.clamp_between(input, low, high))
    elif high is None:
        result = p.clamp_min(_floating(input, low), low=low)
    elif low is None:
        result = p.clamp_max(_floating(input, high, name="max"), high=high)
    else:
        result = p.clamp_op(_floating(input, low, high), low=low, high=high)
    return result if out is None else write_out(out, result, input, min, max)


def _floating(x: Any, *bounds: Any, name: str = "min") -> Any:
    """Integer operands are promoted by float bounds; those of 16 bits hold the bounds."""
    dtype = result_type([_raw(x), *bounds]) if not getattr(x, "level", 0) else dtype_of(x)
    if is_of(dtype, "h"):
        for bound in bounds:
            held(bound, dtype)
    if dtype.kind == "b":
        raise lacking("clamp_scalar_cpu" if len(bounds) > 1 else f"clamp_{name}_scalar_cpu", dtype)
    return p.cast(x, dtype=dtype) if isinstance(x, Tensor) and dtype != dtype_of(x) else x


@public(name="clamp_", function=False, aliases=("clip_",), quick=True)
def clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """In-place form of `clamp`."""
    low, high = _bounds("clamp_", min, max)
    kind = dtype_of(self)
    if is_of(kind, "h") or kind.kind != "c" and complex in (type(low), type(high)):
        low, high = held(low, kind), held(high, kind)
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        if low is None:
            return inplace(p.clamp_most.op, self, (high,), name="clamp_")
        if high is None:
            return inplace(p.clamp_least.op, self, (low,), name="clamp_")
        return inplace(p.clamp_between.op, self, (low, high), name="clamp_")
    if low is not None and high is not None:
        return inplace(p.clamp_op.op, self, (), {"low": low, "high": high}, name="clamp_")
    if low is not None:
        return inplace(p.clamp_min.op, self, (), {"low": low}, name="clamp_")
    return inplace(p.clamp_max.op, self, (), {"high": high}, name="clamp_")


@public(name="clamp_min", quick=True)
@known_by("ClampMin", "min")
def clamp_min(input: Any, min: Any, *, out: Any = None) -> Any:
    """max(input, min), elementwise."""
    if isinstance(input, NUMBER):
        need_tensors("clamp_min", input)
    return clamp(input, min=min, out=out)


@public(name="clamp_max", quick=True)
@known_by("ClampMax", "max")
def clamp_max(input: Any, max: Any, *, out: Any = None) -> Any:
    """min(input, max), elementwise."""
    if isinstance(input, NUMBER):
        need_tensors("clamp_max", input)
    return clamp(input, max=max, out=out)


@public(name="clamp_min_", function=False, quick=True)
def clamp_min_(self: Tensor, min: Any) -> Tensor:
    """In-place form of `clamp_min`."""
    return clamp_(self, min=min)


@public(name="clamp_max_", function=False, quick=True)
def clamp_max_(self: Tensor, max: Any) -> Tensor:
    """In-place form of `clamp_max`."""
    return clamp_(self, max=max)


@public(name="round")
def round_(input: Any, *, decimals: int = 0, out: Any = None) -> Any:
    """Round to `decimals` places, ties to even; the derivative is 0."""
    if decimals == 0:
        result = p.round_op(input)
    else:                                        # by whole powers of ten, which are exact
        need_kernel("round_cpu", "biu", input)
        scale = 10.0 ** abs(decimals)
        there, back = (p.mul, p.div) if decimals > 0 else (p.div, p.mul)
        result = back(p.round_op(there(input, scale)), scale)
    return result if out is None else finish_kept(out, result, input)


@public(name="round_", function=False)
def round_inplace(self: Tensor, *, decimals: int = 0) -> Tensor:
    """In-place form of `round`."""
    if decimals:
        out: Tensor = self.copy_(round_(self, decimals=decimals))
        return out
    return inplace(p.round_op.op, self, name="round_")


@public(aliases=("special_logit",))
def logit(input: Any, eps: float | None = None, *, out: Any = None) -> Any:
    """log(x / (1 - x)), x clamped to [eps, 1 - eps] if `eps` is given."""
    result = p.logit_op(input if eps is None else clamp(input, eps, 1 - eps))
    return result if out is None else write_out(out, result, input)


@public()
def polygamma(n: Any, input: Any = None, *, out: Any = None) -> Any:
    """The n-th derivative of digamma."""
    if isinstance(n, Tensor) and not (isinstance(input, Tensor) and not len(n.shape)):
        n, input = input, n
    if n < 0:
        raise ArgumentError(f"polygamma(n, x) does not support negative n. (n is {n})")
    return finish(out, p.polygamma_op(input, n=int(n)), input)


@public()
def logaddexp(input: Any, other: Any, *, out: Any = None) -> Any:
    """log(exp(input) + exp(other)) without overflow. The angle of complex numbers goes on from that
    of the one with the larger real part, as PyTorch's does."""
    need_tensors("logaddexp", input, other)
    need_kernel("logaddexp_cpu", "biu", input, other)
    if not is_complex_like(input) and not is_complex_like(other):
        return finish(out, p.logaddexp_op(input, other), input, other)
    a, b = (p.real_part(x) if is_complex_like(x) else x for x in (input, other))
    top = p.where_op(p.ge(a, b), input, other)
    infinite = p.isinf(p.maximum(a, b))
    low = p.where_op(p.ge(a, b), other, input)
    safe = p.where_op(infinite, 0.0, top.detach())
    rest = p.add(p.expm1(p.sub(top, safe)), p.exp(p.sub(low, safe)))    # the sum, less 1
    empty = p.eq(rest, -1.0)                     # both operands are -inf, and stay so
    result = p.add(p.where_op(empty, -math.inf, p.log1p(p.where_op(empty, 0.0, rest))), safe)
    return result if out is None else write_out(out, result, input, other)


@public()
def logaddexp2(input: Any, other: Any, *, out: Any = None) -> Any:
    """log2(2^input + 2^other) without overflow."""
    need_tensors("logaddexp2", input, other)
    need_kernel("logaddexp2_cpu", "biuc", input, other)
    return finish(out, p.logaddexp2_op(input, other), input, other)


@public()
def equal(input: Any, other: Any) -> bool:
    """True if shapes and all elements are equal."""
    need_tensors("equal", input, other)
    return np.array_equal(value(input, "equal"), value(other, "equal"))


# ------------------------------------------------------------------ complex numbers
@public(name="complex", method=False)
@known_as("ComplexBackward0")
@planned
def complex_(real: Any, imag: Any, *, out: Any = None) -> Any:
    """real + i * imag: two tensors of one floating dtype."""
    kinds = dtype_of(real), dtype_of(imag)
    if kinds[0].kind == kinds[1].kind == "f" and kinds[0] != kinds[1]:
        raise DTypeError(f"Expected object of scalar type {scalar_type(kinds[0])} but got scalar "
                         f"type {scalar_type(kinds[1])} for second argument")
    if kinds[0] != kinds[1] or kinds[0].kind != "f":
        raise DTypeError("Expected both inputs to be Half, Float or Double tensors but got "
                         f"{scalar_type(kinds[0])} and {scalar_type(kinds[1])}")
    from adjoint.ops.arrange import view_as_complex_op
    wanted = np.float32 if kinds[0].itemsize == 2 else kinds[0]     # half has no complex dtype
    shape = np.broadcast_shapes(tuple(real.shape), tuple(imag.shape))
    parts = [cast_to(x, np.dtype(wanted)) for x in (real, imag)]
    parts = [x if x.shape == shape else expand_op(x, shape=shape) for x in parts]
    return finish_typed(out, view_as_complex_op(stack_op(*parts, dim=len(shape))))


@public(method=False, quick=True)
def is_tensor(obj: Any) -> bool:
    """True for tensors."""
    return isinstance(obj, Tensor)


@public(quick=True)
def is_floating_point(input: Any) -> bool:
    """True for floating tensors."""
    return is_float(input.array.dtype if type(input) is Tensor else dtype_of(input))


@public(quick=True)
def is_complex(input: Any) -> bool:
    """True for complex tensors."""
    return is_complex_like(input)


__all__ = ["clamp", "div", "dtype_of", "mul", "pow", "to_numpy"]
