"""Small public functions: questions about tensors, bits of floats, copies, older in-place forms."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray, inverse
from adjoint.base.dtypes import (
    BOOL,
    default_dtype,
    finfo,
    held,
    is_float,
    is_inexact,
    of_numpy,
    scalar_type,
    to_numpy,
)
from adjoint.base.errors import (
    ArgumentError,
    AssertedError,
    DTypeError,
    IndexOutOfRange,
    NotSupported,
    ShapeError,
)
from adjoint.core.autocast import in_float32
from adjoint.core.inplace import check_fit
from adjoint.core.modes import warn, warn_as_pytorch
from adjoint.core.op import op
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.api_common import (
    cast_to,
    dtype_of,
    exactly,
    finish,
    finish_same,
    finish_typed,
    need,
    need_kernel,
    need_tensors,
    numel,
    raw,
    result,
    sinc_near_zero,
    undifferentiated,
    value,
)
from adjoint.ops.device import check, memory_format
from adjoint.ops.family import batch_broadcast, broadcast_shapes, promote
from adjoint.ops.pointwise import (
    abs_op,
    add,
    cast,
    cos,
    div,
    eq,
    exp2,
    floor,
    gt,
    isfinite,
    ldexp_op,
    le,
    logical_and,
    logical_or,
    mul,
    nan_to_num_op,
    ne,
    pow_op,
    sin,
    sub,
    where_op,
)
from adjoint.ops.public import FUNCTIONS, METHODS, known_as, planned, public, typed
from adjoint.ops.shape import clone_op, reshape


# ------------------------------------------------------------------ questions
def _question(name: str, answer: Any, doc: str) -> None:
    into = exactly(f"{name} does not support non-boolean outputs.") if "inf" in name and (
        name != "isinf") else finish

    def ask(input: Any, *, out: Any = None) -> Any:
        need(name, input)
        return into(out, answer(input))
    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = doc
    public(name, quick=True)(ask)


_question("is_conj", lambda x: getattr(x, "turn", "") == "conj", "True for views by `conj`.")
_question("is_neg", lambda x: getattr(x, "turn", "") == "neg",
          "True for views of a negative, as the imaginary part of a conjugate is one.")
_question("is_distributed", lambda x: False, "False.")
_question("is_signed", lambda x: of_numpy(dtype_of(x)).is_signed, "True for signed dtypes.")
_question("is_inference", lambda x: x.is_inference(), "True for tensors made in inference_mode.")


def _infinite(name: str, sign: float) -> Any:
    def answer(x: Any) -> Any:
        need_kernel(f"{name} does not support complex inputs.", "c", x)
        return eq(x, sign) if is_inexact(dtype_of(x)) else FUNCTIONS["isinf"](x)
    return answer


_question("isposinf", _infinite("isposinf", math.inf), "Where elements are +inf.")
_question("isneginf", _infinite("isneginf", -math.inf), "Where elements are -inf.")
_question("isreal", lambda x: eq(FUNCTIONS["imag"](x), 0.0) if dtype_of(x).kind == "c"
          else FUNCTIONS["ones_like"](x, dtype=BOOL), "Where the imaginary part is 0.")
public(method=False)(numel)


@public()
def is_nonzero(input: Any) -> bool:
    """True if the one element is not 0."""
    if numel(input) != 1:
        raise ShapeError(f"Boolean value of Tensor with {numel(input)} values is ambiguous; use "
                         ".any() or .all()")
    return bool(value(input, "is_nonzero").reshape(-1)[0] != 0)


@public("_assert_async", method=False)
def assert_async(input: Any, assert_msg: str = "Expected Tensor with single nonzero value, but got "
                 "zero") -> None:
    """Raises RuntimeError with the message if the one element is 0; at once, as on any CPU."""
    if not is_nonzero(input):
        raise RuntimeError(assert_msg)


@public()
def is_same_size(input: Any, other: Any) -> bool:
    """True if the shapes are equal."""
    return tuple(input.shape) == tuple(other.shape)


@public(method=False)
def get_device(input: Any) -> int:
    """-1: the data is on the cpu."""
    return -1


@public(method=False)
def is_storage(obj: Any) -> bool:
    """True for what `Tensor.untyped_storage()` gives."""
    return type(obj).__name__ in ("UntypedStorage", "TypedStorage")


@public("_assert", method=False)
def assert_(condition: Any, message: str) -> None:
    """Raise AssertionError with that message unless the condition holds; a traced program checks it
    whenever it runs.

    >>> import adjoint as ad
    >>> ad._assert(ad.ones(1).item() == 1, "not one")
    """
    if not condition:
        raise AssertedError(message)


@public()
@planned
def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08,
            equal_nan: bool = False) -> Any:
    """|input - other| <= atol + rtol |other|, elementwise."""
    if dtype_of(input) != dtype_of(other):
        raise DTypeError(f"{scalar_type(dtype_of(input))} did not match "
                         f"{scalar_type(dtype_of(other))}: isclose() takes one dtype")
    for name, given in (("rtol", rtol), ("atol", atol)):
        if given < 0:
            raise ArgumentError(f"isclose(): {name} must be greater than or equal to zero, but got "
                                f"{given}")
    a, b = (x.detach() if isinstance(x, Tensor) else x for x in (input, other))
    equal = eq(a, b)
    if equal_nan and is_inexact(dtype_of(a)):
        equal = logical_or(equal, logical_and(ne(a, a), ne(b, b)))
    if not is_inexact(dtype_of(a)):
        a, b = cast(a, dtype=np.dtype(np.float64)), cast(b, dtype=np.dtype(np.float64))
    near = le(abs_op(sub(a, b)), add(mul(abs_op(b), rtol), atol))
    return logical_or(equal, logical_and(isfinite(abs_op(sub(a, b))), near))


@public()
def allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08,
             equal_nan: bool = False) -> bool:
    """True if every element is close (see `isclose`)."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@public()
@known_as("SincBackward0")
def sinc(input: Any, *, out: Any = None) -> Any:
    """sin(pi x) / (pi x), 1 at 0."""
    need("sinc", input)
    kind = dtype_of(input)
    if kind.itemsize == 2 and is_inexact(kind):         # (the sine of pi·x rounded is another)
        return finish(out, cast_to(sinc(cast_to(input, np.float32)), kind), input)
    at_zero = eq(input, 0)
    safe = mul(where_op(at_zero, 1.0, input), math.pi)
    near = sinc_near_zero(where_op(at_zero, input, 0.0))
    return finish(out, where_op(at_zero, near, div(sin(safe), safe)), input)


@public()
@known_as("Deg2RadBackward0")
@planned
def deg2rad(input: Any, *, out: Any = None) -> Any:
    """Degrees to radians."""
    need_kernel("deg2rad is not supported for complex tensors.", "c", input)
    return finish(out, mul(input, math.pi / 180), input)


@public()
@known_as("Rad2DegBackward0")
@planned
def rad2deg(input: Any, *, out: Any = None) -> Any:
    """Radians to degrees."""
    need_kernel("rad2deg is not supported for complex tensors.", "c", input)
    return finish(out, mul(input, 180 / math.pi), input)


_finite_out = exactly("nan_to_num: dtype of out: {have} should be same as input: {want}")


@public()
@planned
def nan_to_num(input: Any, nan: float | None = 0.0, posinf: float | None = None,
               neginf: float | None = None, *, out: Any = None) -> Any:
    """NaN and infinities replaced by finite numbers; the gradient there is 0."""
    need("nan_to_num", input)
    if dtype_of(input).kind == "c":
        parts = nan_to_num(FUNCTIONS["view_as_real"](input), nan, posinf, neginf)
        return _finite_out(out, FUNCTIONS["view_as_complex"](parts))
    info = finfo(dtype_of(input)) if is_float(dtype_of(input)) else None
    if info is None:
        return _finite_out(out, clone_op(input))
    top = float(info.max if posinf is None else posinf)
    low = float(info.min if neginf is None else neginf)
    return _finite_out(out, nan_to_num_op(input, nan=float(nan or 0.0), high=top, low=low))


_step_out = exactly("heaviside is not yet implemented for tensors with different dtypes.")


@public()
@typed
def heaviside(input: Any, values: Any, *, out: Any = None) -> Any:
    """0 below 0, 1 above, `values` at 0."""
    need_tensors("heaviside", input, values)
    kinds = [dtype_of(x) for x in (input, values)]
    if any(k.kind == "c" for k in kinds):
        raise NotSupported("heaviside is not yet implemented for complex tensors.")
    if kinds[0] != kinds[1]:
        raise DTypeError("heaviside is not yet implemented for tensors with different dtypes: "
                         f"{of_numpy(kinds[0])} and {of_numpy(kinds[1])}")
    one = where_op(gt(input, 0), 1.0, 0.0)
    found = where_op(eq(input, 0), values, cast(one, dtype=dtype_of(input)))
    return _step_out(out, undifferentiated("heaviside", found, input, values))


# ------------------------------------------------------------------ bits of floats
nextafter_op = op("nextafter", impl=lambda a, b, /: np.nextafter(a, b),
                  infer=lambda a, b: Aval(broadcast_shapes("nextafter", a, b), a.dtype),
                  vjp={"a": lambda ct, a, b: mul(ct, ne(a, b)),
                       "b": lambda ct: mul(ct, 0.0)},
                  jvp={"a": lambda t, a, b: mul(t, ne(a, b)), "b": lambda t: mul(t, 0.0)},
                  batch=batch_broadcast, prepare=promote, cost=lambda a, b: a.size,
                  domain=lambda: [((np.array([1.0, -2.0]), np.array([3.0, 4.0])), {})],
                  why={"a": "equal operands do not move", "b": "equal operands do not move"})


@public()
def nextafter(input: Any, other: Any, *, out: Any = None) -> Any:
    """The next float after `input` towards `other`; it moves with `input`."""
    need_tensors("nextafter", input, other)
    need_kernel("nextafter_cpu", "biuc", input, other)
    return finish(out, nextafter_op(input, other), input, other)


Frexp = result("frexp", "mantissa exponent", "Result of `frexp`: mantissas and exponents.")


def _exponents(x: Any, /) -> Any:
    return np.frexp(x)[1]


exponent_op = op("frexp_exponent", impl=_exponents, batch=batch_broadcast,
                 infer=lambda x: Aval(x.shape, np.dtype(np.int32)), cost=lambda x: x.size,
                 domain=lambda: [((np.array([1.5, -20.0]),), {})])


@public()
def frexp(input: Any, *, out: Any = None) -> Any:
    """input = mantissa · 2^exponent with 1/2 <= |mantissa| < 1; (mantissa, int32 exponent).

    >>> import adjoint as ad
    >>> ad.frexp(ad.tensor([6.0])).mantissa
    tensor([0.7500])
    """
    need("frexp", input)
    if dtype_of(input).kind == "c" or not is_inexact(dtype_of(input)):
        raise DTypeError("torch.frexp() only supports floating-point dtypes, got "
                         f"{of_numpy(dtype_of(input)).name}")
    exponent = exponent_op(input)
    whole = FUNCTIONS["where"](FUNCTIONS["isfinite"](input), exponent, 0)
    down = mul(cast(whole, dtype=dtype_of(input)), -1.0)      # subnormal numbers: in two steps
    half = floor(mul(down, 0.5))
    return finish_same(out, Frexp(mul(mul(input, exp2(half)), exp2(sub(down, half))), exponent))


@public()
@known_as("LdexpBackward0")
def ldexp(input: Any, other: Any, *, out: Any = None) -> Any:
    """input · 2^other; whole exponents leave the dtype of a floating `input` as it is."""
    need_tensors("ldexp", input, other)
    kind = dtype_of(other).kind
    if is_inexact(dtype_of(input)) and dtype_of(input).kind != "c" and kind in "biu":
        need_kernel("ldexp_cpu_exp", "b", other)
        return finish(out, ldexp_op(input, other), input, other)
    return finish(out, mul(input, pow_op(2.0, other)), input, other)


@public(method=False)
@known_as("PolarBackward0")
@planned
@in_float32
@typed
def polar(abs: Any, angle: Any, *, out: Any = None) -> Any:
    """abs * exp(i * angle)."""
    kinds = dtype_of(abs), dtype_of(angle)
    if not is_float(kinds[0]) or not is_float(kinds[1]):
        raise DTypeError("Expected both inputs to be Half, Float or Double tensors but got "
                         f"{scalar_type(kinds[0])} and {scalar_type(kinds[1])}")
    if kinds[0] != kinds[1]:
        raise DTypeError(f"Expected object of scalar type {scalar_type(kinds[0])} but got scalar "
                         f"type {scalar_type(kinds[1])} for second argument")
    need_kernel("polar_cpu", "h", abs)
    return finish_typed(out, FUNCTIONS["complex"](mul(abs, cos(angle)), mul(abs, sin(angle))))


# ------------------------------------------------------------------ making
@public(method=False)
def scalar_tensor(s: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                  requires_grad: bool = False, pin_memory: bool = False) -> Any:
    """A 0-d tensor of one number in the default (or given) dtype."""
    kind = default_dtype() if dtype is None else to_numpy(dtype)
    if isinstance(s, complex) and kind.kind != "c":
        s = held(s, kind)
    return FUNCTIONS["tensor"](s, dtype=kind, device=device, requires_grad=requires_grad)


@public(method=False)
@typed
def empty_permuted(size: Any, physical_layout: Any, **kwargs: Any) -> Any:
    """An uninitialised tensor whose axes lie in memory in the given order, outermost first."""
    if sorted(physical_layout) != list(range(len(size))):
        if len(physical_layout) != len(size):
            raise ArgumentError("Number of dimensions in size does not match the length of the "
                                f"physical_layout; i.e. len(size) = {len(size)} is not equal to "
                                f"len(physical_layout) = {len(physical_layout)}")
        for d in physical_layout:
            if not 0 <= d < len(size):
                raise IndexOutOfRange(f"Dimension out of range (expected to be in range of [0, "
                                      f"{len(size) - 1}], but got {d})")
        raise ArgumentError(f"Duplicate dim not allowed: physical_layout {physical_layout} is not a"
                            f" permutation of {len(size)} axes")
    made = FUNCTIONS["empty"](*[size[d] for d in physical_layout], **kwargs)
    return wrap(made.array.transpose(inverse(physical_layout)), made._rg)


@public(method=False)
@typed
def empty_strided(size: Any, stride: Any, *, dtype: Any = None, layout: Any = None,
                  device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Any:
    """An uninitialised tensor with given steps (in elements) along its axes."""
    kind = default_dtype() if dtype is None else to_numpy(dtype)
    size, stride = tuple(size), tuple(stride)
    if len(size) != len(stride):
        raise ArgumentError(f"dimensionality of sizes ({len(size)}) must match dimensionality of "
                            f"strides ({len(stride)})")
    if min(size + stride, default=0) < 0:
        raise ArgumentError(f"Storage size calculation overflowed with sizes={list(size)} and "
                            f"strides={list(stride)}: none may be negative")
    room = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else 0
    steps = tuple([s * kind.itemsize for s in stride])
    if check(device) == "meta":
        return wrap(MetaArray(size, kind, None, steps), requires_grad)
    return wrap(np.lib.stride_tricks.as_strided(np.empty(room, kind), size, steps), requires_grad)


@public("new_empty_strided", function=False)
def new_empty_strided(self: Any, size: Any, stride: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """`empty_strided` with this tensor's dtype."""
    return empty_strided(size, stride, dtype=self.dtype if dtype is None else dtype, **kwargs)


@public(method=False)
def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0,
               requires_grad: bool = False) -> Any:
    """A 1-d tensor on the memory of a Python buffer (bytes, bytearray, mmap).

    >>> import adjoint as ad
    >>> ad.frombuffer(bytearray(b"abc"), dtype=ad.uint8)
    tensor([97, 98, 99], dtype=adjoint.uint8)
    """
    kind, size = to_numpy(dtype), memoryview(buffer).nbytes
    if not size or not count:
        raise ArgumentError(f"both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise ArgumentError(f"offset ({offset} bytes) must be non-negative and no greater than "
                            f"buffer length ({size} bytes) minus 1")
    if count < 0 and (size - offset) % kind.itemsize:
        raise ArgumentError(f"buffer length ({size - offset} bytes) after offset ({offset} bytes) "
                            f"must be a multiple of element size ({kind.itemsize})")
    if count > 0 and offset + count * kind.itemsize > size:
        raise ArgumentError(f"requested buffer length ({count} * {kind.itemsize} bytes) after "
                            f"offset ({offset} bytes) must not be greater than actual buffer "
                            f"length ({size} bytes)")
    found = np.frombuffer(buffer, kind, count, offset)
    if not found.flags.writeable:
        warn_as_pytorch("The given buffer is not writable, and PyTorch does not support "
                        "non-writable tensors: writes to this one fail. Copy the buffer first "
                        "where the tensor is written to.", once=True)
    return wrap(found, requires_grad)


@public(method=False)
def fill(input: Any, value: Any) -> Any:
    """A tensor of the shape and dtype of `input`, full of one value, which may carry a gradient."""
    if isinstance(value, Tensor) and value.shape:
        raise ShapeError("fill only supports 0-dimension value tensor but got tensor with "
                         f"{len(value.shape)} dimensions.")
    one = value if isinstance(value, Tensor) else wrap(np.asarray(value, dtype_of(input)))
    return METHODS["copy_"](clone_op(input), one)


# ------------------------------------------------------------------ copies
@public(method=False)
def detach_copy(input: Any) -> Any:
    """A copy without history."""
    return clone_op(input.detach())


@public()
@typed
def nonzero_static(input: Any, *, size: int, fill_value: int = -1, out: Any = None) -> Any:
    """`nonzero` cut or filled up to `size` rows."""
    if size < 0:
        raise ArgumentError(f"nonzero_static: 'size' must be an non-negative integer, got {size}")
    found = np.argwhere(value(input, "nonzero_static"))[:size]
    rows = np.full((size, len(input.shape)), fill_value, np.int64)
    rows[:len(found)] = found
    return finish(out, wrap(rows))


# ------------------------------------------------------------------ older in-place methods
def _power_in_double(base: Any, exponent: Any) -> Any:
    """`float_power`, of a base that has the dtype of the result."""
    made = FUNCTIONS["float_power"](base, exponent)
    if dtype_of(made) != dtype_of(base):
        raise DTypeError("the base given to float_power_ has dtype "
                         f"{scalar_type(dtype_of(base))} but the operation's result requires dtype "
                         f"{scalar_type(dtype_of(made))}")
    return made


def _declare_values() -> None:
    """In-place forms that compute out of place and copy: they are rarely the hot path."""
    def declare(name: str, f: Any) -> None:
        def write(self: Any, *args: Any, **kwargs: Any) -> Any:
            made = f(clone_op(self), *args, **kwargs)
            check_fit(raw(self), raw(made), name + "_")
            return METHODS["copy_"](self, made)
        write.__name__ = write.__qualname__ = name + "_"
        write.__doc__ = f"In-place `{name}`."
        public(name + "_", function=False)(write)
    for name in ("deg2rad", "rad2deg", "sinc", "logit", "nan_to_num", "heaviside", "nextafter",
                 "ldexp"):
        declare(name, FUNCTIONS[name])
    declare("conj_physical", FUNCTIONS["conj_physical"])
    declare("float_power", _power_in_double)
    declare("polygamma", lambda x, n: FUNCTIONS["polygamma"](n, x))


_declare_values()


@public("apply_", function=False)
def apply_(self: Any, callable: Any) -> Any:
    """Replace every element by `callable(element)`: slow, for tensors without gradient."""
    return _mapped(self, callable)


@public("map_", function=False)
def map_(self: Any, tensor: Any, callable: Any) -> Any:
    """Replace every element x by `callable(x, y)`, y from `tensor`."""
    return _mapped(self, callable, tensor)


@public("map2_", function=False)
def map2_(self: Any, x: Any, y: Any, callable: Any) -> Any:
    """Replace every element by `callable` of it and those of two further tensors."""
    return _mapped(self, callable, x, y)


def _mapped(self: Any, f: Any, *others: Any) -> Any:
    if self.requires_grad or any(o.requires_grad for o in others):
        raise DTypeError("apply_/map_: the function has no derivative here; use detach() first")
    arrays = [np.broadcast_to(value(o, "map_"), self.shape).reshape(-1) for o in (self, *others)]
    made = np.array([f(*(a.item() for a in row)) for row in zip(*arrays, strict=True)])
    return self.copy_(wrap(made.reshape(self.shape).astype(dtype_of(self))))


@public("resize", function=False)
def resize(self: Any, *sizes: Any) -> Any:
    """This tensor with another shape of as many elements; `resize_` changes the tensor itself."""
    warn("non-inplace resize is deprecated")
    return _resized(self, tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int)
                    else sizes)


def _resized(self: Any, shape: Any) -> Any:
    if math.prod(shape) != numel(self):
        raise ShapeError(f"requested resize to {list(shape)} ({math.prod(shape)} elements in total)"
                         f", but the given tensor has a size of {list(self.shape)} "
                         f"({numel(self)} elements). autograd's resize can only change the shape of"
                         " a given tensor, while preserving the number of elements.")
    return reshape(self, shape)


@public("resize_as", function=False)
def resize_as(self: Any, tensor: Any) -> Any:
    """`resize` to the shape of another tensor."""
    warn("non-inplace resize_as is deprecated")
    return _resized(self, tuple(tensor.shape))


def _one_order(x: Any, check: Any) -> None:
    """Refuse where the extents fit several orders, or several of the given memory formats."""
    if check is not True and not (isinstance(check, (list, tuple)) and all(
            isinstance(f, memory_format) for f in check)):
        raise DTypeError("The ambiguity_check argument must be a bool or a list of memory formats, "
                         f"got {check!r}")
    if check is True:
        held = sorted(s for s, n in zip(x.stride(), x.shape, strict=True))
        several = len(set(held)) < len(held) or any(n < 2 for n in x.shape)
    else:
        several = sum(bool(x.is_contiguous(memory_format=f)) for f in check) > 1
    if several:
        raise ArgumentError("The tensor does not have unique dim order, or cannot map to exact one "
                            "of the given memory formats.")


@public("dim_order", function=False)
def dim_order(self: Any, ambiguity_check: bool | list[Any] = False) -> tuple[int, ...]:
    """The axes from the outermost in memory to the innermost."""
    steps = self.stride()
    if ambiguity_check is not False:
        _one_order(self, ambiguity_check)
    return tuple(sorted(range(len(steps)), key=lambda d: (-steps[d], d)))


@public("reinforce", function=False)
def reinforce(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Raises: stochastic nodes left PyTorch in version 0.4."""
    raise NotImplementedError("reinforce() was removed; take -log_prob(action) * reward as the "
                              "loss (distributions.Categorical)")


# ------------------------------------------------------------------ histograms and segments
Histogramdd = result("histogramdd", "hist bin_edges", "Result of `histogramdd`.")


@public(method=False)
@typed
def histogramdd(input: Any, bins: Any, *, range: Any = None, weight: Any = None,
                density: bool = False) -> Any:
    """Counts of points (rows of the last axis) in a grid of bins; (hist, bin_edges)."""
    given_edges = not isinstance(bins, int) and not any(isinstance(b, int) for b in bins)
    need_kernel("histogramdd", "biuc" if given_edges else "biuch", input)
    points = value(input, "histogramdd")
    if points.ndim < 2:
        raise ShapeError("histogramdd: input tensor should have at least 2 dimensions, got shape "
                         f"{list(points.shape)}")
    n = points.shape[-1]
    rows = points.reshape(-1, n)
    if not isinstance(bins, int) and len(bins) != n:
        raise ShapeError("histogramdd: The size of bins must be equal to the innermost dimension of"
                         f" the input. That is {n}, got {len(bins)} bins")
    given: Any = [b if isinstance(b, int) else value(b, "bins") for b in
             ([bins] * n if isinstance(bins, int) else bins)]
    for b in given:
        if not isinstance(b, int) and (np.diff(b) < 0).any():
            raise ArgumentError(f"histogramdd: bin edges must increase, sort them: {b.tolist()}")
    limits: Any = None if range is None else list(np.asarray(range, float).reshape(n, 2))
    weights = None if weight is None else value(weight, "weight").reshape(-1)
    hist, edges = np.histogramdd(rows, given, limits, density, weights)
    kind = dtype_of(input)
    return Histogramdd(wrap(hist.astype(kind)), tuple(wrap(e.astype(kind)) for e in edges))
