"""`jax.Array`: an immutable array over a tensor, with JAX's dtypes.

An array holds the tensor that the engine works on, at whatever level of a transform, and whether
its type is weak. Functions lower their operands to tensors of the dtype that JAX's promotion gives,
call an op, and raise the result again.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adjoint.autograd.forward import ForwardTensor
from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import is_inexact
from adjoint.core.tensor import Tensor, wrap
from adjoint.func.batch import BatchTensor
from adjoint.jax import errors
from adjoint.jax._avals import ShapedArray, ShapeDtypeStruct
from adjoint.jax._dtypes import (
    Pair,
    ScalarType,
    canonical,
    config,
    default_dtype,
    inexact,
    lattice,
)
from adjoint.jax._held import Deleted, Held
from adjoint.jax._trace import RUN, Trace
from adjoint.ops.public import FUNCTIONS

F = Callable[..., Any]
_NUMBERS = {bool: "bool", int: "int", float: "float", complex: "complex"}
METHODS: dict[str, F] = {}        # functions of `jax.numpy` that are methods too; filled by it


class _ArrayType(type(Held)):  # type: ignore[misc] # the metaclass of what it is derived from
    """Arrays of keys are arrays to `isinstance`, as in JAX."""

    def __instancecheck__(cls, x: Any) -> bool:
        return type.__instancecheck__(cls, x) or hasattr(type(x), "holds_keys")


class Array(Held, metaclass=_ArrayType):
    """An array of JAX's: immutable, with `.at` for changed copies.

    _trace  the run that hides its values from Python; None where they can be seen
    """

    __slots__ = ("tensor", "weak_type", "_trace", "__weakref__")
    __array_priority__ = 100
    __hash__: Any = None
    tensor: Tensor
    weak_type: bool
    _trace: Trace | None

    def __new__(cls, *_: Any, **__: Any) -> Any:
        raise TypeError("jax.Array cannot be made directly; use jax.numpy.array or asarray")

    # ---------------------------------------------------------------- what it is
    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of the elements."""
        found: np.dtype[Any] = self.tensor.array.dtype
        return found

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.tensor.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def aval(self) -> Any:
        """Shape, dtype and weakness."""
        return ShapedArray(self.shape, self.dtype, weak_type=self.weak_type)

    @property
    def T(self) -> Any:
        """The axes the other way round."""
        return METHODS["transpose"](self)

    @property
    def mT(self) -> Any:
        """The last two axes exchanged."""
        return METHODS["matrix_transpose"](self)

    @property
    def real(self) -> Any:
        """The real part."""
        return METHODS["real"](self)

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        return METHODS["imag"](self)

    @property
    def at(self) -> Any:
        """Changed copies: `x.at[i].set(v)`."""
        return METHODS["at"](self)

    @property
    def flat(self) -> Iterator[Any]:
        """The elements one by one."""
        return iter(self.reshape(-1))

    # ---------------------------------------------------------------- values
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if is_traced(self):
            raise errors.TracerArrayConversionError(
                "The numpy.ndarray conversion method __array__() was called on traced array with "
                f"shape {describe(self)}; use the function of jax.numpy in the place of NumPy's")
        value = value_of(self)
        return value if dtype is None else value.astype(dtype)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError("The truth value of an array with more than one element is ambiguous. "
                             "Use a.any() or a.all()" if self.size else "The truth value of an "
                             "empty array is ambiguous. Use `array.size > 0` to check that an "
                             "array is not empty.")
        if is_hidden(self):
            raise errors.TracerBoolConversionError(
                f"Attempted boolean conversion of traced array with shape {describe(self)}. jit, "
                "vmap, loops and branches hide values from Python; use jnp.where or lax.cond, or "
                "mark an argument of jit as static (static_argnums, static_argnames)")
        return bool(value_of(self))

    def _number(self, kind: Any) -> Any:
        if self.ndim:
            raise TypeError("Only scalar arrays can be converted to Python scalars; got arr.ndim="
                            f"{self.ndim}")
        if is_traced(self):
            raise errors.ConcretizationTypeError(
                "Abstract tracer value encountered where concrete value is expected: traced array "
                f"with shape {describe(self)}. The problem arose with the `{kind.__name__}` "
                f"function; to change the type, use `x.astype({kind.__name__})`")
        return kind(value_of(self)[()])

    def __float__(self) -> float:
        return float(self._number(float))

    def __int__(self) -> int:
        return int(self._number(int))

    def __complex__(self) -> complex:
        return complex(self._number(complex))

    def __index__(self) -> int:
        if self.ndim or self.dtype.kind not in "iu":
            raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
        if is_hidden(self):
            raise errors.TracerIntegerConversionError(
                "The __index__() method was called on traced array with shape "
                f"{describe(self)}; index a jax.numpy array, not a Python list, or mark an "
                "argument of jit as static")
        return int(value_of(self)[()])

    def item(self, *args: int) -> Any:
        """The one element as a Python number."""
        return self._host("item").item(*args)

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self._host("tolist").tolist()

    def tobytes(self, order: str = "C") -> bytes:
        """The bytes of the elements."""
        return self._host("tobytes").tobytes(order)

    def _traced(self) -> bool:
        return is_traced(self)

    def _host(self, what: str) -> Any:
        if is_hidden(self) if what == "item" else is_traced(self):
            raise errors.ConcretizationTypeError(
                "Abstract tracer value encountered where concrete value is expected: traced array "
                f"with shape {describe(self)}\nThe {what}() method was called on it")
        return value_of(self)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return iter([self[i] for i in range(self.shape[0])])

    def __reversed__(self) -> Iterator[Any]:
        return iter([self[i] for i in reversed(range(len(self)))])

    def __contains__(self, x: Any) -> bool:
        if self.ndim != 1:
            raise ValueError("Array.__contains__: search array must be one-dimensional, got "
                             f"arr.shape={self.shape}.")
        return bool(METHODS["any"](self == x))

    def __getitem__(self, at: Any) -> Any:
        return METHODS["__getitem__"](self, at)

    def __setitem__(self, at: Any, value: Any) -> None:
        raise TypeError("JAX arrays are immutable and do not support in-place item assignment. "
                        "Instead of x[idx] = y, use x = x.at[idx].set(y) or another .at[] method")

    # ---------------------------------------------------------------- copies, text
    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> Any:
        return _remade, (np.asarray(self), self.weak_type)

    def __repr__(self) -> str:
        if is_traced(self) or has_no_values(self):
            return f"{tracer_kind(self)}({'~' if self.weak_type else ''}{describe(self)})"
        value = value_of(self)
        prefix, width = "Array(", np.get_printoptions()["linewidth"]
        text = (f"[], shape={self.shape}" if value.size == 0 else np.array2string(
            value, prefix=prefix, suffix=",", separator=", ", max_line_width=width))
        weak = ", weak_type=True" if self.weak_type else ""
        kind = f"dtype={self.dtype.name}{weak})"
        last = len(text) - text.rfind("\n") + 1
        gap = " " * len(prefix) if last + len(kind) + 1 > width else " "
        return f"{prefix}{text},{gap}{kind}"

    def __str__(self) -> str:
        return repr(self) if is_traced(self) or has_no_values(self) else str(value_of(self))

    def __format__(self, spec: str) -> str:
        if is_traced(self) or self.ndim:
            if spec:
                raise TypeError(f"unsupported format string passed to {type(self).__name__}"
                                ".__format__: it has no one value")
            return str(self)
        return format(value_of(self)[()], spec)

    # methods of `jax.numpy`'s functions are found by name
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in METHOD_NAMES:
            return Held.__getattr__(self, name)
        f = METHODS[name]
        return lambda *args, **kwargs: f(self, *args, **kwargs)


METHOD_NAMES = frozenset(
    "all any argmax argmin argpartition argsort astype choose clip compress conj conjugate copy "
    "cumprod cumsum diagonal dot flatten max mean min nonzero prod ptp ravel repeat reshape round "
    "searchsorted sort squeeze std sum swapaxes take trace transpose var view to_device".split())
_new = object.__new__


def make(tensor: Any, weak: bool = False) -> Any:
    """The array over a tensor; 64-bit results are narrowed where they are switched off."""
    out = _new(Array)
    dtype = tensor.array.dtype
    to = canonical(dtype)
    out.tensor = tensor if to is dtype or to == dtype else tensor.to(to)
    out.weak_type = weak
    out._trace = RUN.trace
    return out


def constant(tensor: Any, weak: bool = False) -> Any:
    """The array over a tensor of values that stand in the program: no trace hides them."""
    out = make(tensor, weak)
    out._trace = None
    return out


def _remade(value: Any, weak: bool) -> Any:
    return make(wrap(value), weak)


def of_value(x: Any, dtype: Any = None, weak: bool = False) -> Any:
    """An array of anything that NumPy takes."""
    return make(wrap(np.array(x, dtype)), weak)


def _cast(x: Any, dtype: Any) -> Any:
    return METHODS["asarray"](x, dtype)


ScalarType.make = staticmethod(_cast)


# ------------------------------------------------------------------ levels
def base_of(x: Array) -> Any:
    """The plain tensor below all levels."""
    t: Any = x.tensor
    while t.level:
        t = t.value
    return t


def value_of(x: Array) -> Any:
    """The values as a NumPy array. The arrays of a program cannot be written to."""
    value = np.asarray(base_of(x).array).view()
    value.flags.writeable = False
    return value


def is_mapped(x: Array) -> bool:
    """True where every example of a vmap has its own value."""
    t: Any = x.tensor
    while t.level:
        if isinstance(t, BatchTensor):
            return True
        t = t.value
    return False


def is_followed(x: Array) -> bool:
    """True while a derivative or vmap follows the values."""
    t: Any = x.tensor
    return bool(t.level or t._rg) or type(t) is not Deleted and has_no_values(x)


def is_traced(x: Array) -> bool:
    """True while they are followed or hidden."""
    return is_followed(x) or x._trace is not None


def is_hidden(x: Array) -> bool:
    """True where Python code must not see the values: a derivative alone shows them."""
    return x._trace is not None or has_no_values(x) or is_mapped(x)


def concrete(x: Any, why: str) -> Any:
    """The values where a shape or the program's course depends on them; ConcretizationTypeError
    where they are hidden, with what would make them needless."""
    if type(x) is not Array:
        return np.asarray(x)
    if is_hidden(x):
        raise errors.ConcretizationTypeError(
            "Abstract tracer value encountered where concrete value is expected: traced array "
            f"with shape {describe(x)}\n{why}")
    return value_of(x)


def inside(x: Any) -> Any:
    """The values, seen through `jit`, for what does not show them; one per example has none."""
    return concrete(constant(x.tensor) if type(x) is Array else x,
                    "vmap gives every example a value of its own")


def moves(t: Any) -> bool:
    """True for a tensor that a derivative is taken of, at whatever level."""
    while t.level:
        if t._rg or isinstance(t, ForwardTensor):
            return True
        t = t.value
    return bool(t._rg)


def has_no_values(x: Array) -> bool:
    """True while a function runs on shapes alone."""
    return isinstance(base_of(x).array, MetaArray)


def tracer_kind(x: Array) -> str:
    """JAX's name for what stands for an array in a transform."""
    if isinstance(x.tensor, BatchTensor):
        return "VmapTracer"
    if x._trace is not None or has_no_values(x):
        return "JitTracer"
    return "JVPTracer" if x.tensor.level else "GradTracer"


def describe(x: Any) -> str:
    """`float32[3]`."""
    return f"{x.dtype.name}[{','.join(map(str, x.shape))}]"


# ------------------------------------------------------------------ operands
def pair_of(x: Any) -> Pair | None:
    """(dtype, weak) of an operand; None for what is none."""
    if type(x) is Array:
        return x.tensor.array.dtype, x.weak_type
    kind = _NUMBERS.get(type(x))
    if kind is not None:
        return default_dtype(kind), kind != "bool"
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "biufcV":
        return canonical(x.dtype), False
    return None


def escaped(x: Array) -> None:
    """UnexpectedTracerError: an array outlived the run that hides its values."""
    raise errors.UnexpectedTracerError(
        "Encountered an unexpected tracer. A function had a side effect that let an intermediate "
        f"value, a traced array with shape {describe(x)}, escape the transform, loop or branch "
        "that made it: return it, in place of storing it outside")


def outlived(x: Array) -> bool:
    """True for a value of a run or a transform that is over."""
    if RUN.pulls:
        return False
    if x._trace is not None and x._trace.closed:
        return True
    t: Any = x.tensor
    return not t.trace.alive if t.level else bool(t._rg) and not RUN.tapes


class KeyOperand(TypeError):
    """A PRNG key among the operands of a function of numbers."""


def checked(name: str, xs: Any) -> list[Any]:
    """Operands that are arrays or numbers; TypeError for the rest."""
    out = []
    for i, x in enumerate(xs):
        if type(x) is Array:
            if (x._trace is not None or x.tensor._rg or x.tensor.level) and outlived(x):
                escaped(x)
        elif pair_of(x) is None:
            if hasattr(x, "__jax_array__"):
                x = x.__jax_array__()
            elif isinstance(x, (int, float, complex)):          # subclasses, as IntEnum
                kinds: tuple[Any, ...] = (bool, int, float, complex)
                x = next(k(x) for k in kinds if isinstance(x, k))
            else:
                kind = KeyOperand if hasattr(type(x), "holds_keys") else TypeError
                raise kind(f"{name} requires ndarray or scalar arguments, got {type(x)} at "
                           f"position {i}.")
        out.append(x)
    return out


def to_tensor(x: Any, dtype: np.dtype[Any]) -> Any:
    """An operand as a tensor of that dtype."""
    if type(x) is Array:
        t = x.tensor
        return t if t.array.dtype == dtype else convert(t, dtype)
    if isinstance(x, int) and dtype.kind in "iu" and not isinstance(x, bool):
        return wrap(np.array(x).astype(dtype) if -2**63 <= x < 2**64 else np.array(x, dtype))
    return wrap(np.asarray(x).astype(dtype))


def convert(t: Any, dtype: np.dtype[Any]) -> Any:
    """A tensor in another dtype; complex values lose their imaginary part."""
    if t.array.dtype.kind == "c" and dtype.kind not in "cb":
        t = t.real
    if dtype.kind in "iu" and is_inexact(t.array.dtype) and RUN.recording is None:
        return _whole(t, dtype)
    return t.to(dtype)


def _whole(t: Any, dtype: np.dtype[Any]) -> Any:
    """Floats as integers: those that are too large are the largest, NaN is 0."""
    wide, ends = t.detach().to(np.dtype(np.float64)), np.iinfo(dtype)
    over = wide >= float(ends.max)
    found = FUNCTIONS["where"](over | (wide != wide), wide.new_zeros(()), wide)
    found = FUNCTIONS["clamp"](found, min=float(ends.min)).to(dtype)
    return FUNCTIONS["where"](over, found.new_full((), ends.max), found)


def joined(name: str, xs: Any, numeric: bool = False, floating: bool = False
           ) -> tuple[list[Any], bool]:
    """Operands as tensors of their common dtype, and whether that is weak.

    numeric   truth values count as integers
    floating  and integers as floats
    """
    xs = checked(name, xs)
    pairs = frozenset([pair_of(x) for x in xs])
    found: Pair = lattice(pairs)
    if floating:
        found = inexact(found)
    elif numeric and found[0].kind == "b":
        found = np.dtype(np.int32), False
    return [to_tensor(x, found[0]) for x in xs], found[1]


def tensor_of(x: Any, name: str = "asarray") -> Any:
    """One operand as a tensor of its own dtype."""
    if type(x) is Array:
        if (x._trace is not None or x.tensor._rg or x.tensor.level) and outlived(x):
            escaped(x)
        return x.tensor
    x, = checked(name, (x,))
    pair = pair_of(x)
    assert pair is not None
    return to_tensor(x, pair[0])


def as_array(x: Any, name: str = "asarray") -> Any:
    """One operand as an array; Python's numbers are weak."""
    if type(x) is Array:
        if (x._trace is not None or x.tensor._rg or x.tensor.level) and outlived(x):
            escaped(x)
        return x
    x, = checked(name, (x,))
    pair = pair_of(x)
    if pair is None:                       # (what __jax_array__ gave)
        raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(x)}")
    return x if type(x) is Array else constant(to_tensor(x, pair[0]), pair[1])


def is_array_like(x: Any) -> bool:
    """True for what can be an operand."""
    return pair_of(x) is not None or hasattr(x, "__jax_array__")


def carries(x: Any) -> bool:
    """True for operands that a derivative may flow through."""
    pair = pair_of(x)
    return pair is not None and is_inexact(pair[0])


__all__ = ["Array", "ShapeDtypeStruct", "ShapedArray", "config"]
