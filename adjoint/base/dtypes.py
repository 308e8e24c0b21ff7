"""Dtypes with PyTorch's names, and PyTorch's promotion.

Source of the promotion rule: PyTorch documentation, "torch.dtype / type promotion": operands
fall into the classes tensor with dimensions, 0-d tensor, Python number; a class only raises
the result when its category (bool < integer < floating < complex) is higher than that of
the classes before it.
"""
from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from adjoint.base.errors import (
    AdjointError,
    ArgumentError,
    DTypeError,
    NoKernel,
    NotSupported,
    NumberTooBig,
    instead_of,
)


class DType:
    """A tensor's element type; compares equal to the NumPy dtype it stands for.

    >>> float32.itemsize, float32.is_floating_point, str(float32)
    (4, True, 'adjoint.float32')
    """

    __slots__ = ("name", "_dtype", "itemsize", "is_floating_point", "is_complex", "is_signed",
                 "_hash")
    namespace = "adjoint"

    def __init__(self, name: str, dtype: Any) -> None:
        self.name = name
        self._dtype: np.dtype[Any] | None = None if dtype is None else np.dtype(dtype)
        kind = "V" if self._dtype is None else self._dtype.kind
        self.itemsize: int = 2 if self._dtype is None else self._dtype.itemsize
        self.is_floating_point: bool = kind in "fV"
        self.is_complex: bool = kind == "c"
        self.is_signed: bool = kind not in "ub"
        self._hash = hash(name if self._dtype is None else self._dtype)   # for life: sets of dtypes

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 comes from ml_dtypes, imported at its first use."""
        if self._dtype is None:
            try:
                import ml_dtypes  # 65 ms: only for those who use bfloat16
            except ImportError:
                raise NotSupported("bfloat16 needs ml_dtypes: pip install 'adjoint[amp]'") from None
            self._dtype = np.dtype(ml_dtypes.bfloat16)
            _OF_NUMPY[self._dtype] = self
        return self._dtype

    def __repr__(self) -> str:
        return f"{DType.namespace}.{self.name}"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, DType):
            return self.name == other.name
        try:
            return self.dtype == np.dtype(other)  # type: ignore[call-overload]  # any spelling
        except TypeError:
            return False

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return (_by_name, (self.name,))

    def to_complex(self) -> DType:
        """The complex dtype of this precision."""
        if not (self.is_floating_point or self.is_complex):
            raise DTypeError(f"Unknown Complex ScalarType for {scalar_type(self)}: a floating "
                             "dtype is needed")
        return complex128 if self.itemsize == 8 or self.name == "complex128" else complex64

    def to_real(self) -> DType:
        """The real dtype of this precision."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)


def is_float(dtype: np.dtype[Any]) -> bool:
    """True for real floating dtypes, bfloat16 included (NumPy files it under kind 'V')."""
    return dtype.kind == "f" or is_bfloat16(dtype)


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """True for ml_dtypes' bfloat16, without importing it."""
    return dtype.kind == "V" and dtype.name == "bfloat16"


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """True for floating and complex dtypes: those that can carry a derivative."""
    return dtype.kind in "fc" or is_bfloat16(dtype)


float64 = DType("float64", np.float64)
float32 = DType("float32", np.float32)
float16 = DType("float16", np.float16)
complex64 = DType("complex64", np.complex64)
complex128 = DType("complex128", np.complex128)
int64 = DType("int64", np.int64)
int32 = DType("int32", np.int32)
int16 = DType("int16", np.int16)
int8 = DType("int8", np.int8)
uint8 = DType("uint8", np.uint8)
uint16 = DType("uint16", np.uint16)
uint32 = DType("uint32", np.uint32)
uint64 = DType("uint64", np.uint64)
bool_ = DType("bool", np.bool_)
_ALL = [float64, float32, float16, complex64, complex128, int64, int32, int16, int8, uint8,
        uint16, uint32, uint64, bool_]
_OF_NUMPY = {d.dtype: d for d in _ALL}
bfloat16 = DType("bfloat16", None)
_ALL.append(bfloat16)
_OF_NAME = {d.name: d for d in _ALL}
F32, F64 = float32.dtype, float64.dtype
BOOL, I64 = bool_.dtype, int64.dtype


def _by_name(name: str) -> DType:
    return _OF_NAME[name]


def of_numpy(dtype: np.dtype[Any]) -> DType:
    """The DType that stands for a NumPy dtype."""
    try:
        return _OF_NUMPY[dtype]
    except KeyError:
        if is_bfloat16(dtype):
            return bfloat16
        ordered = dtype.newbyteorder("=")
        if ordered in _OF_NUMPY:
            return _OF_NUMPY[ordered]
        kind = dtype.type
        raise DTypeError(f"can't convert np.ndarray of type {kind.__module__}.{kind.__name__}. The "
                         f"only supported types are: {', '.join(_OF_NAME)}") from None


def native(array: Any) -> Any:
    """The array, shown under NumPy's own dtype object if it comes with another of the same meaning,
    as what was pickled does. Machine code compares dtypes by identity, and results inherit them.

    >>> import pickle
    >>> native(pickle.loads(pickle.dumps(np.zeros(2)))).dtype is np.dtype(float)
    True
    """
    own = of_numpy(array.dtype).dtype
    return array if array.dtype is own or array.dtype != own else array.view(own)


_SCALAR_TYPES = {"float32": "Float", "float64": "Double", "float16": "Half", "int64": "Long",
                 "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool",
                 "complex64": "ComplexFloat", "complex128": "ComplexDouble",
                 "bfloat16": "BFloat16"}


_CPP_TYPES = {"float32": "float", "float64": "double", "float16": "c10::Half", "int64": "long int",
              "int32": "int", "int16": "short int", "int8": "signed char",
              "uint8": "unsigned char", "bool": "bool", "complex64": "c10::complex<float>",
              "complex128": "c10::complex<double>", "bfloat16": "c10::BFloat16"}


_FIXED_TYPES = {"int64": "int64_t", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t",
                "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t"}


def fixed_type(dtype: Any) -> str:
    """PyTorch's name of a dtype where its messages speak of a number that does not fit.

    >>> fixed_type(I64)
    'int64_t'
    """
    return _FIXED_TYPES.get(of_numpy(dtype).name) or cpp_type(dtype)


def cpp_type(dtype: Any) -> str:
    """PyTorch's name of a dtype where its messages have the type of C++.

    >>> cpp_type(I64)
    'long int'
    """
    name = of_numpy(dtype).name
    return _CPP_TYPES.get(name, name)


def scalar_type(dtype: Any) -> str:
    """PyTorch's name of a dtype in its error messages: Float, Double, Long.

    >>> scalar_type(I64)
    'Long'
    """
    name = of_numpy(dtype).name
    return _SCALAR_TYPES.get(name, name)


def to_numpy(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype of a DType, a NumPy dtype, a Python type (float is float64) or a name."""
    if type(dtype) is DType:
        return dtype.dtype
    if isinstance(dtype, str) and dtype in _OF_NAME:
        return _OF_NAME[dtype].dtype
    try:
        return of_numpy(np.dtype(dtype)).dtype
    except (TypeError, ValueError) as error:
        if isinstance(error, AdjointError):
            raise
        raise DTypeError(f"argument 'dtype' must be torch.dtype, not {type(dtype).__name__}: "
                         f"{error}") from None


_default = [F32]


def default_dtype() -> np.dtype[Any]:
    """The floating dtype given to Python floats: float32 unless set otherwise."""
    return _default[0]


def set_default(dtype: Any) -> None:
    """Set the floating dtype given to Python floats; must be floating."""
    new = to_numpy(dtype)
    if not is_float(new):
        raise DTypeError(f"only floating-point types are supported as the default type, got {new}")
    _default[0] = new


def fits_a_word(number: Any) -> None:
    """Refuse an integer that has no place in 64 bits, with a sign or without."""
    if type(number) is int and not -2**63 <= number < 2**64:
        raise NumberTooBig("int too big to convert" if number > 0 else
                           "can't convert negative int to unsigned: a number has 64 bits at most")


def wrapped(number: Any, dtype: np.dtype[Any]) -> Any:
    """A number as a 0-d array of `dtype`; an integer that does not fit goes round, as in C and
    PyTorch: -1 is 255 in uint8."""
    fits_a_word(number)
    try:
        return np.asarray(number, dtype)
    except OverflowError:
        low, size = int(np.iinfo(dtype).min), 1 << 8 * dtype.itemsize
        return np.asarray((int(number) - low) % size + low, dtype)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"expected a number as an operand, got {type(number).__name__}: "
                         f"{error}") from None


def default_of(category: str) -> np.dtype[Any]:
    """Default dtype of a category: 'b'ool, 'i'nteger, 'f'loat, 'c'omplex."""
    if category == "b":
        return BOOL
    if category == "i":
        return I64
    base = _default[0]
    if category == "f":
        return base
    return complex128.dtype if base == F64 else complex64.dtype


def category(dtype: np.dtype[Any]) -> int:
    """0 bool, 1 integer, 2 floating, 3 complex."""
    kind = dtype.kind
    if kind == "b":
        return 0
    if kind in "iu":
        return 1
    return 3 if kind == "c" else 2


def _join(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """Promotion of two dtypes within one class of operands."""
    if a == b:
        return a
    ca, cb = category(a), category(b)
    if ca != cb and max(ca, cb) >= 2 and min(ca, cb) <= 1:
        return a if ca > cb else b
    if is_bfloat16(a) or is_bfloat16(b):
        other = b if is_bfloat16(a) else a
        if other.kind == "c":
            return other
        return F32 if other == np.float16 else other
    if ca == 3 or cb == 3:
        real = {np.dtype(np.complex64): F32, np.dtype(np.complex128): F64}
        wide = F64 in (real.get(a, a), real.get(b, b))
        return complex128.dtype if wide else complex64.dtype
    return np.promote_types(a, b)


def promote_dtypes(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """`torch.promote_types` over any number of dtypes.

    >>> promote_dtypes(np.dtype("int64"), np.dtype("float32"))
    dtype('float32')
    """
    out = dtypes[0]
    for d in dtypes[1:]:
        out = _join(out, d)
    return out


_WEAK = {bool: "b", int: "i", float: "f", complex: "c"}


def result_type(operands: Iterable[Any]) -> np.dtype[Any]:
    """`torch.result_type` over arrays, 0-d arrays and Python numbers.

    >>> result_type([np.ones(2, np.float32), 2.5])
    dtype('float32')
    >>> result_type([np.ones(2, np.int64), np.array(1.5, np.float64)])
    dtype('float64')
    """
    classes: list[np.dtype[Any] | None] = [None, None, None]
    for x in operands:
        weak = _WEAK.get(type(x))
        if weak is not None:
            rank, dtype = 2, default_of(weak)
        else:
            try:
                rank, dtype = (0 if x.shape else 1), x.dtype
            except AttributeError:
                raise DTypeError("expected a Tensor or a number as an operand, got "
                                 f"{type(x).__name__}; {instead_of(x)}") from None
        have = classes[rank]
        classes[rank] = dtype if have is None else _join(have, dtype)
    out: np.dtype[Any] | None = None
    for c in classes:
        if c is None:
            continue
        if out is None:
            out = c
        elif category(c) > category(out):
            if category(c) == 3 and category(out) == 2:     # as wide as the floats it meets
                c = complex128.dtype if out == F64 else complex64.dtype
            out = c
    if out is None:
        raise DTypeError("result_type needs at least one operand")
    return out


@functools.cache
def _limits(d: np.dtype[Any]) -> dict[str, Any]:
    if is_bfloat16(d):
        import ml_dtypes
        limits: Any = ml_dtypes.finfo
        info: Any = limits(d)
    else:
        real = {"c": {8: F32, 16: F64}}.get(d.kind, {}).get(d.itemsize, d)
        if real.kind != "f":
            raise DTypeError("torch.finfo() requires a floating point input type. Use "
                             f"torch.iinfo to handle '{of_numpy(d)}'")
        info, d = np.finfo(real), real
    least = float(info.smallest_normal)
    return {"bits": int(info.bits), "eps": float(info.eps), "max": float(info.max),
            "min": float(info.min), "tiny": least, "smallest_normal": least,
            "smallest_subnormal": float(info.smallest_subnormal),
            "resolution": float(f"1e-{info.precision}"), "dtype": of_numpy(d).name}


class finfo:
    """Numerical limits of a floating dtype (`torch.finfo`).

    >>> finfo(float32).max > 3e38
    True
    """

    bits: int
    eps: float
    max: float
    min: float
    tiny: float
    smallest_normal: float
    smallest_subnormal: float
    resolution: float
    dtype: str

    def __init__(self, dtype: Any = None) -> None:
        self.__dict__.update(_limits(default_dtype() if dtype is None else to_numpy(dtype)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, finfo) and other.dtype == self.dtype

    __hash__: Any = None

    def __repr__(self) -> str:
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
                f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, "
                f"tiny={self.tiny:g}, dtype={self.dtype})")


class iinfo:
    """Numerical limits of an integer dtype (`torch.iinfo`)."""

    def __init__(self, dtype: Any) -> None:
        d = to_numpy(dtype)
        if d.kind == "b":
            raise DTypeError("torch.bool is not supported by torch.iinfo: it has no range")
        if d.kind not in "iu":
            raise DTypeError("torch.iinfo() requires an integer input type. Use torch.finfo to "
                             f"handle '{of_numpy(d)}'")
        info = np.iinfo(d)
        self.bits, self.max, self.min = info.bits, int(info.max), int(info.min)
        self.dtype = of_numpy(d).name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, iinfo) and other.dtype == self.dtype

    __hash__: Any = None

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def lacking(words: str, dtype: np.dtype[Any]) -> NoKernel:
    """The refusal of a dtype: PyTorch's sentence, the dtype in the place of {}, or the name of its
    kernel in `words`."""
    named = words if " " in words else f"\"{words}\" not implemented for '{{}}'"
    return NoKernel(f"{named.replace('{}', scalar_type(dtype))}; the operand has dtype "
                    f"{of_numpy(dtype).name}")


def within(low: int, high: int, dtype: np.dtype[Any]) -> None:
    """Refuse integers [low, high) that an integer dtype does not have."""
    for name, bound in (("from", low), ("to - 1", high - 1)) if dtype.kind in "iu" else ():
        info = np.iinfo(dtype)
        if not info.min <= bound <= info.max:
            raise ArgumentError(f"{name} is out of bounds for {cpp_type(dtype)}: {bound} does not "
                                f"lie between {info.min} and {info.max}")


def fitting(number: int, dtype: np.dtype[Any]) -> int:
    """A Python integer as an integer dtype holds it: below 0 an unsigned one counts from its end,
    as in PyTorch; beyond its ends it is refused."""
    info = np.iinfo(dtype)
    if info.min <= number <= info.max:
        return number
    if dtype.kind == "u" and -info.max <= number < 0:
        return number + int(info.max) + 1
    raise ArgumentError(f"value cannot be converted to type {fixed_type(dtype)} without overflow: "
                        f"{number} does not lie between {info.min} and {info.max}")


def held(number: Any, dtype: np.dtype[Any]) -> Any:
    """A Python number as a tensor of the dtype holds it: a fraction is cut off, and what does not
    fit is refused, as in PyTorch's writes of one number.

    >>> held(2.9, I64), held(-1, np.dtype(np.uint8))
    (2, 255)
    """
    kind = dtype.kind
    if kind in "bc" or not isinstance(number, (int, float, complex)):
        return number
    finite = number - number == 0
    if isinstance(number, complex):
        fits, number = number.imag == 0, number.real
    elif kind in "iu":
        fits = finite
    else:                                   # (inf and nan have a place in every float)
        fits = (not finite or abs(number) < 3e38 and dtype.itemsize > 2
                or abs(number) <= float(finfo(dtype).max))
    if not fits:
        raise ArgumentError(f"value cannot be converted to type {fixed_type(dtype)} without "
                            f"overflow: {number} has no place in it")
    return fitting(int(number), dtype) if kind in "iu" else number


def number_for(name: str, word: str, position: int, value: Any, dtype: np.dtype[Any]) -> Any:
    """A number as an argument of that dtype; a tensor with axes is none, one without is read."""
    if hasattr(value, "shape") and not isinstance(value, np.generic):
        if len(value.shape):
            raise DTypeError(f"{name}(): argument '{word}' (position {position}) must be Number, "
                             f"not {type(value).__name__}")
        value = value if getattr(value, "level", 0) else value.item()
    return held(value, dtype)


def is_of(dtype: np.dtype[Any], kinds: str) -> bool:
    """Whether a dtype is of one of these kinds: those of NumPy (b, i, u, f, c), h for floats of 16
    bits, s for signed integers of fewer than 64."""
    kind = dtype.kind
    return kind in kinds or ("h" in kinds and dtype.itemsize == 2 and kind in "fV") or (
        "s" in kinds and dtype.itemsize < 8 and kind == "i")
