"""What the public functions share: arguments as PyTorch takes them, as the records want them."""
from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import (
    F32,
    F64,
    DType,
    category,
    cpp_type,
    default_dtype,
    is_bfloat16,
    is_inexact,
    is_of,
    lacking,
    of_numpy,
    result_type,
    scalar_type,
    to_numpy,
)
from adjoint.base.errors import (
    ArgumentError,
    AutogradError,
    DTypeError,
    MetaError,
    ShapeError,
    instead_of,
)
from adjoint.core.bind import function_of, record
from adjoint.core.modes import GRAD, as_pytorch, state, warn_once
from adjoint.core.op import Op
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.family import generated
from adjoint.ops.pointwise import add, cast, cast_whole, mul
from adjoint.ops.public import write_out
from adjoint.ops.shape import integer, normalize_dim, normalize_dims

_CONVERTED = 4096        # elements from which the call of a kernel pays for a conversion

Shape = tuple[int, ...]


def raw(x: Any) -> Any:
    """The array of a tensor; anything else as it is."""
    return x.array if isinstance(x, Tensor) else x


def dtype_of(x: Any) -> np.dtype[Any]:
    """The NumPy dtype of a tensor or an array."""
    if type(x) is Tensor:
        return x.array.dtype
    if isinstance(x, Tensor):
        return np.dtype(x.dtype.dtype)
    if not hasattr(x, "dtype"):
        raise DTypeError(f"expected a Tensor, got {type(x).__name__}; {instead_of(x)}")
    return np.dtype(x.dtype)


def flag(name: str, given: Any) -> bool:
    """`given` where it is true or false."""
    if isinstance(given, (bool, int, np.bool_)):
        return bool(given)
    raise DTypeError(f"{name}(): argument 'inplace' must be bool, not {type(given).__name__}")


def need(name: str, *xs: Any, argument: str = "input") -> None:
    """Refuse what is not a tensor (or a raw array)."""
    for x in xs:
        if type(x) is not Tensor and not isinstance(x, (Tensor, np.ndarray, MetaArray)):
            raise DTypeError(f"{name}(): argument '{argument}' must be Tensor, not "
                             f"{type(x).__name__}; {instead_of(x)}")


def need_tensors(name: str, *operands: Any, numbers: bool = False) -> None:
    """Refuse operands of a pointwise function that are no tensors; with `numbers`, these may be."""
    for position, x in enumerate(operands, 1):
        if not isinstance(x, (Tensor, np.ndarray, np.generic, MetaArray)) and not (
                numbers and isinstance(x, (bool, int, float, complex))):
            what = "input" if position == 1 else "other"
            raise DTypeError(f"{name}(): argument '{what}' (position {position}) must be Tensor, "
                             f"not {type(x).__name__}; {instead_of(x)}")


# Kernels that PyTorch does not reach where an operand has no elements.
UNREAD = frozenset(
    "softmax_lastdim_kernel_impl log_softmax_lastdim_kernel_impl softmax_kernel_impl"
    " log_softmax_kernel_impl adaptive_avg_pool2d batch_norm addmm_impl_cpu_ bmm"
    " searchsorted_out_cpu cumsum_out_cpu cumprod_out_cpu".split())


def need_kernel(words: str, kinds: str, *xs: Any) -> None:
    """Refuse operands whose common dtype is of these kinds (`base.dtypes.is_of`), for which PyTorch
    has no kernel, with the words of `base.dtypes.lacking`."""
    for x in xs:
        if type(x) is not Tensor or (x.array.dtype is not F32 and x.array.dtype is not F64):
            break
    else:
        return                          # (no kernel lacks these)
    if len(xs) == 1 and type(xs[0]) is Tensor:
        dtype = xs[0].array.dtype
    elif len(xs) == 1 or any(getattr(x, "level", 0) for x in xs):
        dtype = dtype_of(next((x for x in xs if isinstance(x, Tensor)), xs[0]))
    else:
        dtype = result_type([raw(x) for x in xs])
    if dtype is not F32 and dtype is not F64 and is_of(dtype, kinds) and not (
            words in UNREAD and any(0 in x.shape for x in xs)):
        raise lacking(words, dtype)


def apart(out: Any, *operands: Any) -> None:
    """Refuse an `out=` in whose memory several of its elements lie, or elements of an operand."""
    for o in out if isinstance(out, (tuple, list)) else (out,):
        to = raw(o)
        if not isinstance(to, np.ndarray):
            continue
        if to.size and any(n > 1 and not s for n, s in zip(to.shape, to.strides, strict=True)):
            raise ArgumentError("unsupported operation: more than one element of the written-to "
                                "tensor refers to a single memory location. Please clone() the "
                                "tensor before performing the operation.")
        if any(o is x or isinstance(raw(x), np.ndarray) and np.may_share_memory(to, raw(x))
               for x in operands):
            raise ArgumentError("unsupported operation: some elements of the input tensor and the "
                                "written-to tensor refer to a single memory location. Please "
                                "clone() the tensor before performing the operation.")


def need_rank(name: str, *wanted: tuple[Any, int]) -> None:
    """Refuse operands whose number of axes is not the wanted one: pairs (operand, number)."""
    for i, (x, rank) in enumerate(wanted):
        if len(x.shape) != rank:
            found = dict.fromkeys(f"{n}D" for _, n in wanted)
            ranks = " and ".join(found)
            have = [len(y.shape) for y, _ in wanted]
            said = (f"1D tensors expected, but got {have[0]}D and {have[-1]}D tensors"
                    if name in ("dot", "vdot") else
                    f"vector + matrix @ vector expected, got 1, {have[0]}, {have[-1]}"
                    if name == "mv" else _RANKS[name][i].format(have[i]) if name in _RANKS else
                    f"{ranks} tensors expected")
            raise ShapeError(f"{said}: {name} takes {ranks}, operand {i} has {have[i]} axes: "
                             f"{list(x.shape)}")


_RANKS = {"mm": ("self must be a matrix", "mat2 must be a matrix"),
          "addmm": ("mat1 must be a matrix, got {}-D tensor",
                    "mat2 must be a matrix, got {}-D tensor"),
          "bmm": ("batch1 must be a 3D tensor", "batch2 must be a 3D tensor")}


def no_zeros(name: str, divisor: Any, dividend: Any = 1) -> None:
    """Refuse a division of integers by 0, which has no value to give."""
    a, d = (x.array if isinstance(x, Tensor) else x for x in (dividend, divisor))
    if any(getattr(x, "dtype", np.dtype(type(x))).kind not in "iub" for x in (a, d)):
        return
    if isinstance(a, np.ndarray) and not a.size:
        return
    if d == 0 if isinstance(d, int) else isinstance(d, np.ndarray) and not np.all(d):
        raise ArgumentError(f"ZeroDivisionError: {name} of integers by 0; divide floats where inf "
                            "and nan are wanted")


def is_recorded(*xs: Any) -> bool:
    """True where a rule runs on tensors, so that what it does must itself be differentiable."""
    return any(isinstance(x, Tensor) for x in xs)


def numel(x: Any) -> int:
    """Number of elements."""
    return math.prod(x.shape)


def sizes(args: Sequence[Any], what: str) -> Shape:
    """A shape given as `f(2, 3)` or `f((2, 3))`; `what` is its argument in messages."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    return tuple([a if type(a) is int else integer(a, what) for a in args])


def given(args: tuple[Any, ...], keyword: Any) -> tuple[Any, ...]:
    """Positional sizes, or the same by keyword."""
    return args if keyword is None else (keyword,)


def one_dim(x: Any, dim: Any) -> int:
    """`dim` in [0, ndim)."""
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise DTypeError(f"dim must be an int, not {type(dim).__name__}")
    return normalize_dim(dim if type(dim) is int else integer(dim, "dim"), len(x.shape))


def many_dims(x: Any, dim: Any) -> Shape:
    """None, an int or several ints as a tuple of axes; an empty list means all, as in PyTorch."""
    if isinstance(dim, (tuple, list)) and not dim:
        dim = None
    return normalize_dims(dim, len(x.shape))


def cast_to(x: Any, dtype: Any) -> Any:
    """`x` in `dtype` (None: as it is)."""
    if dtype is None:
        return x
    wanted = dtype if isinstance(dtype, np.dtype) else to_numpy(dtype)
    if dtype_of(x) == wanted:
        return x
    whole = getattr(x, "_rg", False) and not is_inexact(wanted)
    return (cast_whole if whole else cast)(x, dtype=wanted)


def floating(x: Any) -> Any:
    """`x`, in the default float dtype where it holds integers or truth values."""
    return x if is_inexact(dtype_of(x)) else cast_to(x, default_dtype())


def need_float(name: str, x: Any, said: str = "") -> None:
    """Refuse integers where PyTorch does, by its words `said`."""
    if not is_inexact(dtype_of(x)):
        if name.startswith("linalg."):
            said = f"{name}: Expected a floating point or complex tensor as input. Got {{}}"
        if said:
            raise DTypeError(f"{said.format(scalar_type(dtype_of(x)))}: {name}() takes a floating "
                             "point or complex dtype; call .float() on the input first")
        raise DTypeError(f"{name}(): input must have a floating point or complex dtype, got "
                         f"{of_numpy(dtype_of(x)).name}; call .float() on it first")


_DTYPES = {"addmm": "self and mat2 must have the same dtype, but got {} and {}",
           "addbmm": "self and mat2 must have the same dtype, but got {} and {}",
           "tensordot": "both inputs should have same dtype",
           "linalg.solve": "linalg.solve: Expected A and B to have the same dtype, but found A of "
                           "type {} and B of type {} instead"}


def same_dtype(name: str, *xs: Any) -> None:
    """Refuse operands of different dtypes, which PyTorch does not promote here."""
    dtypes = [dtype_of(x) for x in xs if x is not None]
    for d in dtypes[1:]:
        if d != dtypes[0]:
            names = ", ".join(of_numpy(e).name for e in dtypes)
            pair = scalar_type(dtypes[0]), scalar_type(d)
            said = _DTYPES.get(name, "expected scalar type {} but found {}").format(*pair)
            raise DTypeError(f"{said}: {name}(): expected operands to have the same dtype, but got"
                             f": {names}; cast one of them with .to(dtype)")


def put_dtype(x: Any, v: Any) -> None:
    """Refuse values of another dtype than the tensor whose positions they are written to."""
    if isinstance(v, Tensor) and dtype_of(v) != dtype_of(x):
        raise DTypeError("Index put requires the source and destination dtypes match, got "
                         f"{of_numpy(dtype_of(x)).name} for the destination and "
                         f"{of_numpy(dtype_of(v)).name} for the source: cast it with .to(dtype)")


def value(x: Any, what: str) -> np.ndarray[Any, Any]:
    """The data of an operand whose values decide the result's shape."""
    if isinstance(x, Tensor) and x.level:
        return np.asarray(x.trace.value(x, what))
    x = raw(x)
    if isinstance(x, MetaArray):
        raise MetaError(f"{what} needs the values of its operand, and a meta tensor has none\n"
                        f"  at {provenance.here(sys._getframe(1))}")
    return np.asarray(x)


def box(like: Any, array: Any) -> Any:
    """`array` as a tensor where `like` is one."""
    return wrap(array) if isinstance(like, Tensor) else array


def _shown(self: Any) -> str:
    fields = ",\n".join(f"{n}={v!r}" for n, v in zip(self._fields, self, strict=True))
    return f"{DType.namespace}.return_types.{type(self).__name__}(\n{fields})"


def _new(cls: Any, *values: Any, **named: Any) -> Any:
    if not named and len(values) == len(cls._fields):
        return tuple.__new__(cls, values)
    if not named and len(values) == 1:              # all of them in one sequence
        given = values[0]
        if not isinstance(given, (tuple, list)):
            raise TypeError("constructor requires a sequence")
        if len(given) != len(cls._fields):
            raise TypeError(f"torch.return_types.{cls.__name__}() takes a {len(cls._fields)}-"
                            f"sequence ({len(given)}-sequence given)")
        return tuple.__new__(cls, given)
    rest = cls._fields[len(values):]
    if named.keys() != set(rest) or len(values) > len(cls._fields):
        raise ArgumentError(f"{cls.__name__}({', '.join(cls._fields)}) got {len(values)} values"
                            + "".join(f", {n}=" for n in named))
    return tuple.__new__(cls, (*values, *[named[n] for n in rest]))


def _replaced(self: Any, **values: Any) -> Any:
    fields = dict(zip(self._fields, self, strict=True))
    return type(self)(**{**fields, **values})


# What `namedtuple` compiles for each kind anew is the same for all of these.
_SHARED: dict[str, Any] = {
    "__module__": "adjoint.return_types", "__slots__": (), "__new__": _new, "__repr__": _shown,
    "__getnewargs__": lambda self: tuple(self), "_make": classmethod(tuple.__new__),
    "_asdict": lambda self: dict(zip(self._fields, self, strict=True)), "_replace": _replaced,
    "_field_defaults": {}}


def result(name: str, fields: str, doc: str = "") -> Any:
    """A named tuple like those of `torch.return_types`."""
    names = tuple(fields.replace(",", " ").split())
    kind = type(name, (tuple,), {
        **_SHARED, "_fields": names, "__match_args__": names, "n_fields": len(names),
        "n_sequence_fields": len(names), "n_unnamed_fields": 0,
        "__doc__": doc or f"Result of `{name}`: fields {fields}.",
        **{n: property(itemgetter(i)) for i, n in enumerate(names)}})
    RETURN_TYPES[name] = kind
    return kind


RETURN_TYPES: dict[str, Any] = {}


def finish(out: Any, answer: Any, *read: Any) -> Any:
    """The answer, or `out` with the answer in it; `read` as in `write_out`."""
    if out is None:
        return answer
    if isinstance(answer, tuple):
        if not isinstance(out, (tuple, list)) or len(out) != len(answer):
            raise DTypeError(f"argument 'out' must be tuple of {len(answer)} Tensors, not "
                             f"{type(out).__name__}")
        written = [finish(o, a) for o, a in zip(out, answer, strict=True)]
        return type(answer)(*written) if hasattr(answer, "_fields") else tuple(written)
    return write_out(out, answer, *read)


def exactly(words: str) -> Callable[..., Any]:
    """`finish` of a function whose kernel writes into `out` itself, so that `out` has the dtype of
    the answer; `words` say so, with `{want}` and `{have}`, or `{cwant}` and `{chave}` in C++.

    >>> import adjoint as ad
    >>> ad.diag(ad.ones(2), out=ad.empty(2, 2, dtype=ad.float64))
    Traceback (most recent call last):
    adjoint.base.errors.DTypeError: Expected out tensor to have dtype float, but got double instead
    """
    def finish_exactly(out: Any, answer: Any, *read: Any) -> Any:
        if out is None:
            return answer
        pairs: Any = ((out, answer),)
        if isinstance(answer, tuple):           # (`finish` refuses what is no tuple of as many)
            pairs = zip(out, answer, strict=False) if isinstance(out, (tuple, list)) else ()
        for o, a in pairs:
            if isinstance(o, Tensor) and o.dtype != a.dtype:
                raise DTypeError(words.format(
                    want=scalar_type(a.dtype.dtype), have=scalar_type(o.dtype.dtype),
                    cwant=cpp_type(a.dtype.dtype), chave=cpp_type(o.dtype.dtype)))
        return finish(out, answer, *read)
    return finish_exactly


def safely(name: str, *what: str, rows: str = "none") -> Callable[..., Any]:
    """`finish` of a function that converts into `out` where nothing is lost by kind; its answers
    are called `what` ("result" unless given). `rows` says which `out` that is too small comes out
    in C order: "all", "none", or "filled", which had other elements before.

    >>> import adjoint as ad
    >>> ad.linalg.pinv(ad.ones(2, 2), out=ad.empty(2, 2, dtype=ad.int64))
    Traceback (most recent call last):
    adjoint.base.errors.DTypeError: linalg.pinv: Expected result to be safely castable from ...
    """
    def finish_safely(out: Any, answer: Any) -> Any:
        if out is None:
            return answer
        several = isinstance(answer, tuple) and isinstance(out, (tuple, list))
        for o, a, word in zip(out if several else (out,), answer if several else (answer,),
                              what or ("result",), strict=False):
            if isinstance(o, Tensor) and category(dtype_of(o)) < category(dtype_of(a)):
                raise DTypeError(
                    f"{name}: Expected {word} to be safely castable from {scalar_type(dtype_of(a))}"
                    f" dtype, but got {word} with dtype {scalar_type(dtype_of(o))}")
        filled = rows == "filled" and any(o.numel() for o in (out if several else (out,)))
        return finish(out, in_rows(answer) if filled or rows == "all" else answer)
    return finish_safely


def in_rows(answer: Any) -> Any:
    """An answer for an `out` that is in C order where it grows, however the answer lies."""
    if isinstance(answer, tuple):
        parts = map(in_rows, answer)
        return type(answer)(*parts) if hasattr(answer, "_fields") else tuple(parts)
    return answer.contiguous() if isinstance(answer, Tensor) else answer


finish_same = exactly("Expected out tensor to have dtype {cwant}, but got {chave} instead")
finish_kept = exactly("Found dtype {have} but expected {want}")
_made = exactly("dtype {want} does not match dtype of out parameter ({have})")
finish_typed = exactly("Expected object of scalar type {want} but got scalar type {have} for "
                       "argument 'out'")
finish_kind = exactly("expected scalar type {want} but found {have}")


def resized(out: Any, answer: Any) -> Any:
    """`out`, as large as the answer: where a tensor is made in it, no word is lost about that."""
    array = out.array if isinstance(out, Tensor) and not out._rg else None
    if isinstance(array, np.ndarray) and array.shape != answer.array.shape:
        out.array = np.empty(answer.array.shape, array.dtype)
    return out


def finish_made(out: Any, answer: Any) -> Any:
    """`finish` of a function that makes a tensor of no other: `out` is resized without a word."""
    if out is None:
        return answer
    if isinstance(out, Tensor) and out.array.dtype == answer.array.dtype:
        resized(out, answer)
    return _made(out, answer)


def choice(name: str, argument: str, given: Any, allowed: Sequence[Any]) -> Any:
    """`given` if it is one of `allowed`."""
    if given not in allowed:
        raise ArgumentError(f"{name}(): {given!r} is not a valid value for {argument}; use one of "
                            f"{', '.join(map(repr, allowed))}")
    return given


def kernel(name: str, impl: Callable[..., Any], infer: Callable[..., Any],
           **fields: Any) -> Callable[..., Any]:
    """A fused raw computation for use inside of rules: it runs on arrays and on meta arrays and has
    no derivative of its own (rules that are differentiated take their composed form instead)."""
    record = Op(name, impl, infer, **fields)
    call = function_of(record)
    call.op = record
    record.call = call
    return call


def _converted(a: Any, dtype: Any) -> Any:
    """A raw array in another float dtype: NumPy converts 16-bit floats one by one."""
    kernel = generated("to_dtype") if type(a) is np.ndarray and a.size >= _CONVERTED else None
    made = NotImplemented if kernel is None else kernel(a, dtype)
    return a.astype(dtype) if made is NotImplemented else made


def wide(a: Any) -> Any:
    """A 16-bit float array in float32, in which it is computed; others as they are."""
    half = a.dtype.itemsize == 2 and (a.dtype.kind == "f" or is_bfloat16(a.dtype))
    return _converted(a, F32) if half else a


def narrowed(a: Any, dtype: Any) -> Any:
    """`a` in the dtype that it is stored in."""
    return a if a.dtype == dtype else _converted(a, dtype)


def fill_like(aval: Any, number: float = 0.0) -> Any:
    """A raw read-only array full of one number, without memory."""
    return np.broadcast_to(np.array(number, aval.dtype), aval.shape)


BLOCK = 1 << 18     # bytes of a block of rows that stay in the second-level cache
def few(x: Any) -> bool:
    """Whether an array is one of few floats, in order."""
    return ((x.dtype is F32 or x.dtype is F64) and 0 < x.nbytes <= FEW and x.ndim > 0
            and bool(x.flags.c_contiguous))


FEW = 1 << 14       # bytes up to which NumPy's calls, not the memory, take the time


def row_blocks(rows: int, row_bytes: int) -> list[slice]:
    """Slices of rows small enough that several passes over one find it in the cache."""
    step = max(1, BLOCK // max(1, row_bytes))
    return [slice(i, min(i + step, rows)) for i in range(0, rows, step)]


def older(f: Callable[..., Any], factors: tuple[str, ...], *args: Any, out: Any = None) -> Any:
    """`f` of operands among which the factors stand by position, as PyTorch's signatures once had
    it: `x.add_(2, y)` is `x.add_(y, alpha=2)`; `addmm(1, c, 2, a, b)` and `c.addmm(1, 2, a, b)` are
    `addmm(c, a, b, beta=1, alpha=2)`. Warns as PyTorch does; TypeError for another order."""
    numbers = [a for a in args if not isinstance(a, Tensor)]
    tensors = [a for a in args if isinstance(a, Tensor)]
    named = len(args) - len(numbers)
    if not 0 < len(numbers) <= len(factors) or named < 2 or args[-1] is not tensors[-1] \
            or len(factors) == 1 and args[1] is not numbers[0]:
        raise TypeError(f"{f.__name__}() takes {len(args) - 1} positional arguments but "
                        f"{len(args)} were given: give {' and '.join(factors)} by keyword")
    warn_once(f"This overload of {f.__name__} is deprecated:\n  give {' and '.join(factors)} by "
              "keyword, behind the tensors")
    given = dict(zip(factors, numbers, strict=False))
    return f(*tensors, **given) if out is None else f(*tensors, **given, out=out)


def summed(dtype: Any, out: Any) -> tuple[Any, Callable[..., Any]]:
    """What sums and products are computed in, and what writes them: `out` decides where no other
    dtype is asked for, and is of that one where it is."""
    return of_out(dtype, out), finish if dtype is None else finish_same


def of_out(dtype: Any, out: Any) -> Any:
    """The dtype of a tensor that is made in `out`: its own, unless another one is asked for."""
    return out.dtype if dtype is None and out is not None and isinstance(out, Tensor) else dtype


def sinc_near_zero(x: Any) -> Any:
    """The polynomial with the derivatives of sin(pi x) / (pi x) at 0, of up to the seventh."""
    square = mul(x, x)
    first, *others = [(-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + 1)
                      for k in (3, 2, 1, 0)]
    found: Any = first
    for factor in others:
        found = add(mul(found, square), factor)
    return found


def _refused(ct: Any, *, words: str) -> Any:
    raise AutogradError(words)


_NO_RULE = Op("undifferentiated", impl=lambda a, b, /, *, words: a,
              infer=lambda a, b, *, words: a, vjp={"a": _refused, "b": _refused},
              node="NotImplemented")    # (no op of its own: results are made without it)


def undifferentiated(name: str, result: Any, a: Any, b: Any = None, *, always: bool = False
                     ) -> Any:
    """The result of a function that PyTorch has no derivative of. In a program that runs as
    `torch` (or `always`) it hangs on operands that require gradients, and a backward that reaches
    it is refused; elsewhere it is what it is here: a step function, with gradients of zero."""
    if not (as_pytorch[0] or always) or not state() & GRAD:
        return result
    tensors = [x for x in (a, b, result) if isinstance(x, Tensor)]
    needs = sum(1 << i for i, x in enumerate((a, b)) if isinstance(x, Tensor) and x._rg)
    if not needs or not isinstance(result, Tensor) or any(x.level for x in tensors):
        return result
    words = (f"derivative for aten::{name} is not implemented" if " " not in name else name)
    return record(_NO_RULE, _NO_RULE.plan(needs), (a, b), {"words": words}, (result.array,),
                  state())
