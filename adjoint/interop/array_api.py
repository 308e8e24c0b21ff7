"""The Python array API standard, 2025.12: what `tensor.__array_namespace__()` returns.

Names, argument order and defaults are the standard's (axis, keepdims, correction=0); the functions
are this package's, so that gradients pass. With the extensions `linalg` and `fft`.
Source: https://data-apis.org/array-api/2025.12/
"""
from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.base import dtypes as _d
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor, wrap
from adjoint.interop import array_api_fft as fft  # noqa: F401 - an extension
from adjoint.interop import array_api_linalg as linalg
from adjoint.interop.array_api_linalg import F
from adjoint.interop.array_api_linalg import matmul as matmul
from adjoint.interop.array_api_linalg import matrix_transpose as matrix_transpose
from adjoint.interop.array_api_linalg import tensordot as tensordot
from adjoint.interop.array_api_linalg import vecdot as vecdot
from adjoint.ops.device import device as _device
from adjoint.protocols import from_dlpack as from_dlpack
from adjoint.protocols import sign_or_nan

__array_api_version__ = "2025.12"
e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None
bool, int8, int16, int32, int64 = _d.bool_, _d.int8, _d.int16, _d.int32, _d.int64
uint8, uint16, uint32, uint64 = _d.uint8, _d.uint16, _d.uint32, _d.uint64
float32, float64, complex64, complex128 = _d.float32, _d.float64, _d.complex64, _d.complex128
finfo, iinfo = _d.finfo, _d.iinfo

# ------------------------------------------------------------------ element by element
_ONE = {"abs": "abs", "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh",
        "atan": "atan", "atanh": "atanh", "bitwise_invert": "bitwise_not", "ceil": "ceil",
        "conj": "conj", "cos": "cos", "cosh": "cosh", "exp": "exp", "expm1": "expm1",
        "floor": "floor", "imag": "imag", "isfinite": "isfinite", "isinf": "isinf",
        "isnan": "isnan", "log": "log", "log1p": "log1p", "log2": "log2", "log10": "log10",
        "logical_not": "logical_not", "negative": "neg", "real": "real",
        "reciprocal": "reciprocal", "signbit": "signbit",
        "sin": "sin", "sinh": "sinh", "square": "square", "sqrt": "sqrt", "tan": "tan",
        "tanh": "tanh", "trunc": "trunc"}
_TWO = {"add": "add", "atan2": "atan2", "bitwise_and": "bitwise_and",
        "bitwise_left_shift": "bitwise_left_shift", "bitwise_or": "bitwise_or",
        "bitwise_right_shift": "bitwise_right_shift", "bitwise_xor": "bitwise_xor",
        "copysign": "copysign", "divide": "div", "equal": "eq", "floor_divide": "floor_divide",
        "greater": "gt", "greater_equal": "ge", "hypot": "hypot", "less": "lt",
        "less_equal": "le", "logaddexp": "logaddexp", "logical_and": "logical_and",
        "logical_or": "logical_or", "logical_xor": "logical_xor", "maximum": "maximum",
        "minimum": "minimum", "multiply": "mul", "not_equal": "ne", "pow": "pow",
        "remainder": "remainder", "subtract": "sub"}


def _unary(name: str, ours: str) -> Any:
    def f(x: Any, /) -> Any:
        return F(ours)(x)
    f.__name__, f.__doc__ = name, f"`{ours}` of every element."
    return f


def joint(*operands: Any) -> list[Any]:
    """Operands in the dtype that theirs promote to, whatever their shapes; numbers take the
    arrays' dtype (type promotion of the standard)."""
    dtype = result_type(*operands)
    return [x.to(dtype) if isinstance(x, Tensor) else asarray(x, dtype=dtype) for x in operands]


def _binary(name: str, ours: str) -> Any:
    def f(x1: Any, x2: Any, /) -> Any:
        return F(ours)(*joint(x1, x2))
    f.__name__, f.__doc__ = name, f"`{ours}` of pairs of elements."
    return f


globals().update({n: _unary(n, o) for n, o in _ONE.items()})
globals().update({n: _binary(n, o) for n, o in _TWO.items()})


def nextafter(x1: Any, x2: Any, /) -> Any:
    """The next number after x1 towards x2; without a derivative."""
    return wrap(np.nextafter(*[x.detach().numpy() for x in joint(x1, x2)]))


def sign(x: Any, /) -> Any:
    """-1, 0 or 1, nan of nan; x/|x| of a complex number."""
    return F("sgn")(x) if x.is_complex() else sign_or_nan(x)


def positive(x: Any, /) -> Any:
    """x itself, as a copy."""
    return x.clone()


def round(x: Any, /) -> Any:
    """The nearest whole number, even at a tie; of both parts of a complex one."""
    if x.is_complex():
        return F("complex")(F("round")(x.real), F("round")(x.imag))
    return F("round")(x)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Elements limited to [min, max], in the dtype of x; the bounds broadcast."""
    if min is None and max is None:
        return x.clone()
    low, high = (b if b is None else asarray(b, dtype=x.dtype) for b in (min, max))
    return F("clamp")(x, low, high)


# ------------------------------------------------------------------ creation
def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Tensor:
    """A tensor of numbers, nested sequences, or anything that speaks DLPack or NumPy."""
    if copy is False and not isinstance(obj, (Tensor, np.ndarray)):
        raise ArgumentError(f"asarray: copy=False, but a {type(obj).__name__} must be copied")
    found: Tensor = F("as_tensor")(obj, dtype=dtype, device=device)
    return found.clone() if copy and isinstance(obj, (Tensor, np.ndarray)) else found


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None,
           device: Any = None) -> Any:
    """start, start + step, ... below stop."""
    low, high = (0, start) if stop is None else (start, stop)
    if (high - low) * step <= 0:
        real = any_of(isinstance(v, float) for v in (low, high, step))
        return empty((0,), dtype=dtype or (None if real else int64),
                     device=device)
    return F("arange")(low, high, step, dtype=dtype, device=device)


def linspace(start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None,
             endpoint: Any = True) -> Any:
    """`num` evenly spaced numbers; without `stop` itself unless `endpoint`."""
    steps = num if endpoint else num + 1
    return F("linspace")(start, stop, steps, dtype=dtype, device=device)[:num]


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """A tensor whose elements have any value."""
    return F("empty")(_shape(shape), dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros."""
    return F("zeros")(_shape(shape), dtype=dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Ones."""
    return F("ones")(_shape(shape), dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """One number everywhere."""
    return F("full")(_shape(shape), fill_value, dtype=dtype, device=device)


def _shape(shape: Any) -> Any:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _like(name: str) -> Any:
    def f(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
        return F(name)(x, dtype=dtype, device=device)
    f.__name__, f.__doc__ = name, f"`{name[:-5]}` of the shape of x."
    return f


empty_like, zeros_like, ones_like = map(_like, ("empty_like", "zeros_like", "ones_like"))


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """One number in the shape of x."""
    return F("full_like")(x, fill_value, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: Any = None, /, *, k: int = 0, dtype: Any = None,
        device: Any = None) -> Any:
    """Ones on diagonal k."""
    n = n_rows if n_cols is None else n_cols
    return asarray(np.eye(n_rows, n, k), dtype=dtype or _d.of_numpy(_d.default_dtype()))


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Any]:
    """Coordinate matrices of coordinate vectors."""
    if len(arrays) < 2:
        return [a.clone() for a in arrays]
    return list(F("meshgrid")(*arrays, indexing=indexing))


def tril(x: Any, /, *, k: int = 0) -> Any:
    """The lower triangles."""
    return F("tril")(x, k)


def triu(x: Any, /, *, k: int = 0) -> Any:
    """The upper triangles."""
    return F("triu")(x, k)


# ------------------------------------------------------------------ dtypes
def astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Any:
    """x in another dtype."""
    if x.dtype == dtype:
        return x.clone() if copy else x
    return x.to(dtype)


def can_cast(from_: Any, to: Any, /) -> Any:
    """True if promotion leads from one dtype to the other."""
    source = from_.dtype if isinstance(from_, Tensor) else from_
    kinds = [k for k in ("bool", "integral", ("real floating", "complex floating"))
             if isdtype(source, k)]
    return isdtype(to, kinds[0]) and result_type(source, to) == to


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype of an operation on these; Python numbers take the dtype of the arrays."""
    strong = [a.dtype if isinstance(a, Tensor) else a for a in arrays_and_dtypes
              if isinstance(a, (Tensor, _d.DType))]
    weak = [a for a in arrays_and_dtypes if not isinstance(a, (Tensor, _d.DType))]
    if not strong:
        raise ArgumentError("result_type: at least one array or dtype is needed")
    out = _d.promote_dtypes(*(s.dtype for s in strong))
    for number in weak:
        out = _d.result_type([np.empty(1, out), number])
    return _d.of_numpy(out)


_KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu",
          "real floating": "f", "complex floating": "c", "numeric": "iufc"}


def isdtype(dtype: Any, kind: Any) -> Any:
    """True if a dtype is of a kind ("bool", "integral", "real floating", ...), or one of them."""
    if isinstance(kind, tuple):
        return any_of(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ArgumentError(f"isdtype: unknown kind {kind!r}; known: {', '.join(_KINDS)}")
        return dtype.dtype.kind in _KINDS[kind]
    return dtype == kind


def any_of(flags: Any) -> Any:
    """True if one of them is."""
    return next((True for f in flags if f), False)


class _Info:
    """What this namespace can do, and with what."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing and shapes that depend on data: yes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """The cpu."""
        return _device("cpu")

    def devices(self) -> list[Any]:
        """The cpu alone."""
        return [_device("cpu")]

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """Those of factory functions."""
        real = _d.of_numpy(_d.default_dtype())
        return {"real floating": real, "complex floating": real.to_complex(), "integral": int64,
                "indexing": int64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """By name, of one kind or several."""
        every = {n: globals()[n] for n in (
            "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
            "float32", "float64", "complex64", "complex128")}
        return {n: t for n, t in every.items() if kind is None or isdtype(t, kind)}


def __array_namespace_info__() -> _Info:
    """Devices, dtypes and capabilities."""
    return _Info()


# ------------------------------------------------------------------ indexing, searching, sorting
def take(x: Any, indices: Any, /, *, axis: Any = None) -> Any:
    """Elements (or slices along `axis`) at integer positions."""
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"take: axis is needed for {x.ndim}-d arrays")
    d = (axis or 0) % x.ndim
    return x[(*(slice(None),) * d, indices)]


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """Elements at one position per line along `axis`."""
    return F("take_along_dim")(x, indices, axis)


def argmax(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Where the largest element is."""
    return F("argmax")(x, axis, keepdims)


def argmin(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Where the smallest element is."""
    return F("argmin")(x, axis, keepdims)


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """How many elements are not 0."""
    return sum(x != 0, axis=axis, keepdims=keepdims)


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """Positions of elements that are not 0, one tensor per axis."""
    return tuple(F("nonzero")(x, as_tuple=True))


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """Where the elements of x2 would be inserted into the sorted x1."""
    return F("searchsorted")(x1, x2, side=side, sorter=sorter)


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """x1 where the condition holds, else x2."""
    return F("where")(condition, *joint(x1, x2))


def isin(x1: Any, x2: Any, /, *, invert: Any = False) -> Any:
    """True where an element of x1 is among those of x2."""
    return F("isin")(*joint(x1, x2), invert=invert)


def sort(x: Any, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Any:
    """Sorted along `axis`."""
    return F("sort")(x, axis, descending, stable=stable)[0]


def argsort(x: Any, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Any:
    """The order that sorts along `axis`."""
    return F("argsort")(x, axis, descending, stable=stable)


_All = namedtuple("_All", "values indices inverse_indices counts")
_Counts = namedtuple("_Counts", "values counts")
_Inverse = namedtuple("_Inverse", "values inverse_indices")


def unique_all(x: Any, /) -> Any:
    """Distinct values, where each is first, where each element went, how often each is."""
    found = np.unique(x.detach().numpy(), return_index=True, return_inverse=True,
                      return_counts=True, equal_nan=False)
    values, first, inverse, counts = map(wrap, found)
    return _All(values, first, inverse.reshape(tuple(x.shape)), counts)


def unique_counts(x: Any, /) -> Any:
    """Distinct values and how often each is."""
    found = unique_all(x)
    return _Counts(found.values, found.counts)


def unique_inverse(x: Any, /) -> Any:
    """Distinct values and where each element went."""
    found = unique_all(x)
    return _Inverse(found.values, found.inverse_indices)


def unique_values(x: Any, /) -> Any:
    """Distinct values."""
    return unique_all(x).values


# ------------------------------------------------------------------ shape
def broadcast_arrays(*arrays: Any) -> list[Any]:
    """Arrays of one shape."""
    return list(F("broadcast_tensors")(*arrays))


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that shapes broadcast to."""
    return tuple(F("broadcast_shapes")(*shapes))


def broadcast_to(x: Any, /, shape: Any) -> Any:
    """x repeated to a shape, without memory."""
    return F("broadcast_to")(x, tuple(shape))


def concat(arrays: Sequence[Any], /, *, axis: Any = 0) -> Any:
    """Joined along an axis; flattened first if it is None."""
    dtype = result_type(*arrays)
    parts = [a.to(dtype) for a in arrays]
    return F("cat")([p.reshape(-1) for p in parts], 0) if axis is None else F("cat")(parts, axis)


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """Joined along a new axis."""
    dtype = result_type(*arrays)
    return F("stack")([a.to(dtype) for a in arrays], axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """Slices along an axis."""
    return tuple(F("unbind")(x, axis))


def expand_dims(x: Any, /, *, axis: int = 0) -> Any:
    """With a new axis of size 1."""
    return F("unsqueeze")(x, axis)


def squeeze(x: Any, /, axis: Any) -> Any:
    """Without axes of size 1; raises ValueError for another size."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in axes:
        if x.shape[a] != 1:
            raise ArgumentError(f"squeeze: axis {a} has size {x.shape[a]}, not 1")
    return F("squeeze")(x, axes)


def flip(x: Any, /, *, axis: Any = None) -> Any:
    """Reversed along axes."""
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    return F("flip")(x, tuple(axes))


def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """Axes moved to other places."""
    return F("movedim")(x, source, destination)


def permute_dims(x: Any, /, axes: Any) -> Any:
    """Axes in another order."""
    return F("permute")(x, tuple(axes))


def repeat(x: Any, repeats: Any, /, *, axis: Any = None) -> Any:
    """Every element (or slice) repeated."""
    return F("repeat_interleave")(x, repeats, axis)


def reshape(x: Any, /, shape: Any, *, copy: Any = None) -> Any:
    """The elements in another shape."""
    out = F("reshape")(x, tuple(shape))
    return out.clone() if copy else out


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """Shifted around along axes."""
    return F("roll")(x, shift, axis)


def tile(x: Any, repetitions: Any, /) -> Any:
    """Repeated as a whole."""
    return F("tile")(x, tuple(repetitions))


# ------------------------------------------------------------------ statistics
def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
    """Sum over axes."""
    return _over("sum", x, axis, keepdims, dtype=_wide(x, dtype))


def _wide(x: Any, dtype: Any) -> Any:
    """The dtype of sums and products: integers take 64 bits and keep their kind."""
    return dtype or (uint64 if isdtype(x.dtype, "unsigned integer") else int64
                     if isdtype(x.dtype, ("integral", "bool")) else x.dtype)


def mean(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Mean over axes."""
    return _over("mean", x, axis, keepdims)


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
    """Product over axes."""
    x = x.to(_wide(x, dtype))
    for a in sorted((a % x.ndim for a in _axes(x, axis)), reverse=True):
        x = F("prod")(x, a, keepdims, dtype=x.dtype)
    return x


def max(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Maximum over axes."""
    return _over("amax", x, axis, keepdims)


def min(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Minimum over axes."""
    return _over("amin", x, axis, keepdims)


def var(x: Any, /, *, axis: Any = None, correction: Any = 0.0, keepdims: Any = False) -> Any:
    """Variance over axes, divided by n - correction."""
    return _over("var", x, axis, keepdims, correction=correction)


def std(x: Any, /, *, axis: Any = None, correction: Any = 0.0, keepdims: Any = False) -> Any:
    """Standard deviation over axes."""
    return _over("std", x, axis, keepdims, correction=correction)


def all(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """True where every element is."""
    return _over("all", x.to(_d.bool_), axis, keepdims)


def any(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """True where one element is."""
    return _over("any", x.to(_d.bool_), axis, keepdims)


def _axes(x: Any, axis: Any) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis


def _over(name: str, x: Any, axis: Any, keepdims: Any, **options: Any) -> Any:
    axes = _axes(x, axis)
    if axes or not x.ndim:
        return F(name)(x, dim=axes, keepdim=keepdims, **options)
    return F(name)(x.unsqueeze(-1), dim=(-1,), keepdim=False, **options)    # over no axis at all


def cumulative_sum(x: Any, /, *, axis: Any = None, dtype: Any = None,
                   include_initial: Any = False) -> Any:
    """Running sums; `include_initial` puts a 0 in front."""
    return _running("cumsum", 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: Any = None, dtype: Any = None,
                    include_initial: Any = False) -> Any:
    """Running products; `include_initial` puts a 1 in front."""
    return _running("cumprod", 1, x, axis, dtype, include_initial)


def _running(name: str, start: int, x: Any, axis: Any, dtype: Any, initial: Any) -> Any:
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"{name}: axis is needed for {x.ndim}-d arrays")
    d = (axis or 0) % x.ndim
    out = F(name)(x, d, dtype=_wide(x, dtype))
    if not initial:
        return out
    shape = (*x.shape[:d], 1, *x.shape[d + 1:])
    return F("cat")([full(shape, start, dtype=out.dtype), out], d)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along an axis, n times."""
    return F("diff")(x, n, axis, prepend, append)


__all__ = sorted({*_ONE, *_TWO, *linalg.SHARED, "__array_namespace_info__", "all", "any", "arange",
    "argmax", "argmin", "argsort", "asarray", "astype", "bool", "broadcast_arrays",
    "broadcast_shapes", "broadcast_to", "can_cast", "clip", "complex128", "complex64", "concat",
    "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "e", "empty", "empty_like",
    "expand_dims", "eye", "fft", "finfo", "flip", "float32", "float64", "from_dlpack", "full",
    "full_like", "iinfo", "inf", "int16", "int32", "int64", "int8", "isdtype", "isin", "linalg",
    "linspace", "matmul", "matrix_transpose", "max", "mean", "meshgrid", "min", "moveaxis", "nan",
    "newaxis", "nextafter", "nonzero", "ones", "ones_like", "permute_dims", "pi", "positive",
    "prod", "repeat", "reshape", "result_type", "roll", "round", "searchsorted", "sign",
    "sort", "squeeze", "stack", "std", "sum", "take", "take_along_axis", "tensordot", "tile",
    "tril", "triu", "uint16", "uint32", "uint64", "uint8", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "unstack", "var", "vecdot", "where", "zeros", "zeros_like"})
