"""Factory functions: tensors from data, constants."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray, inverse
from adjoint.base.dtypes import (
    default_dtype,
    default_of,
    fitting,
    held,
    is_inexact,
    native,
    number_for,
    of_numpy,
    promote_dtypes,
    scalar_type,
    to_numpy,
)
from adjoint.base.errors import (
    ArgumentError,
    DTypeError,
    NotSupported,
    ShapeError,
)
from adjoint.core.bind import patiently
from adjoint.core.modes import WATCH, state, warn, warn_as_pytorch
from adjoint.core.rehearsal import call, rehearsal
from adjoint.core.tensor import Size, Tensor, alias, bump, cut, owner_of, share_cell, wrap
from adjoint.ops.api_common import finish_made, of_out
from adjoint.ops.device import check, kept_order, preserve_format, room, storage_less, strided
from adjoint.ops.device import device as device_type
from adjoint.ops.public import FUNCTIONS, METHODS, SPARSE, other_names, public
from adjoint.ops.shape import clone_op


def shape_of(args: Sequence[Any]) -> tuple[int, ...]:
    """`f(2, 3)`, `f((2, 3))` and `f(Size)` all mean one shape."""
    given: Sequence[Any] = args[0] if len(args) == 1 and type(args[0]) is tuple else args
    for a in given:
        if type(a) is not int or a < 0:
            break
    else:
        return tuple(given)
    if len(args) == 1 and not isinstance(args[0], (int, np.integer)):
        only = args[0]
        if isinstance(only, (Tensor, np.ndarray)) and not only.shape:
            only = (only,)
        if not isinstance(only, Iterable):
            raise DTypeError("argument 'size' (position 1) must be tuple of ints, not "
                             f"{type(only).__name__}")
        args = only.tolist() if isinstance(only, (Tensor, np.ndarray)) else tuple(only)
    out = []
    for a in args:
        if isinstance(a, (bool, float)) or not hasattr(a, "__index__"):
            raise DTypeError("argument 'size' (position 1) must be tuple of ints, not "
                             f"{type(a).__name__}: {tuple(args)}")
        out.append(int(a.__index__()))
    if any(s < 0 for s in out):
        raise ShapeError(f"Trying to create tensor with negative dimension {min(out)}: {out}")
    return tuple(out)


def make(shape: tuple[int, ...], dtype: np.dtype[Any], fill: Any, device: Any,
         requires_grad: bool = False, order: Sequence[int] | None = None) -> Tensor:
    """A tensor of one value (`fill` None: uninitialised); `order`: its axes from the outermost in
    memory to the innermost, where that is not C order."""
    if order is not None:
        size = tuple([shape[d] for d in order])
        if storage_less(device, shape, dtype):
            return wrap(call(_turned, size, dtype, fill, order, otherwise=lambda: MetaArray(
                shape, dtype)), requires_grad)
        return wrap(_turned(size, dtype, fill, order), requires_grad)
    if storage_less(device, shape, dtype):
        array = call(filled, shape, dtype, fill, otherwise=lambda: MetaArray(shape, dtype))
    else:
        array = (patiently(filled, shape, dtype, fill) if state() & WATCH     # (made often)
                 else filled(shape, dtype, fill))
    return wrap(array, requires_grad)


def _turned(size: tuple[int, ...], dtype: np.dtype[Any], fill: Any, order: Sequence[int]) -> Any:
    """A raw array of one value whose axes `order` have the lengths `size`."""
    return filled(size, dtype, fill).transpose(inverse(order))


def order_like(input: Any, memory_format: Any) -> Sequence[int] | None:
    """In which order the axes of something like `input` lie; None for C order."""
    array = input.array
    if memory_format is not None and memory_format is not preserve_format:
        memory_format.fits(array)
        axes: Sequence[int] | None = memory_format.axes
        return axes
    return kept_order(array) if isinstance(array, (np.ndarray, MetaArray)) else None


def filled(shape: tuple[int, ...], dtype: np.dtype[Any], fill: Any) -> Any:
    """A raw array of one value."""
    try:
        if fill is None:
            return np.empty(shape, dtype)
        if fill == 0:
            return np.zeros(shape, dtype)
        return _filled(shape, dtype, fill)
    except ValueError as error:
        if "too big" not in str(error) and "dimension" not in str(error):
            raise
        raise ShapeError(f"Storage size calculation overflowed with sizes={list(shape)}: {error}"
                         ) from None


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], fill: Any) -> Any:
    if dtype.kind == "f" and type(fill) in (int, float):        # `full` asks more for few elements
        made = np.empty(shape, dtype)
        made.fill(fill)
        return made
    whole = type(fill) is int and dtype.kind in "iu"
    return np.full(shape, fitting(fill, dtype) if whole else fill, dtype)


def _dtype(dtype: Any, fallback: np.dtype[Any]) -> np.dtype[Any]:
    return fallback if dtype is None else to_numpy(dtype)


def _from_data(data: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """A new array of Python data, with PyTorch's inference of the dtype."""
    if isinstance(data, Tensor):
        array = data.array
        return np.array(array, _dtype(dtype, array.dtype))
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
        of_numpy(array.dtype)
        room(array.shape)
        return native(np.array(array, _dtype(dtype, array.dtype.newbyteorder("="))))
    if hasattr(data, "__array__") and not isinstance(data, (list, tuple)):
        return _from_data(np.asarray(data), dtype)
    plain = _plain(data)
    try:
        array = np.array(plain)
    except ValueError as error:
        from adjoint.ops.refused_data import ragged
        raise ragged(plain) from error
    first = _first(plain)
    wide = isinstance(first, int) and array.dtype.kind in "Ou"       # beyond 64 bits, or int64
    if array.dtype.kind in "OUSmM" and not wide:
        from adjoint.ops.refused_data import no_dtype
        raise no_dtype(data, first)
    if dtype is not None:
        return _fitted(plain, array, to_numpy(dtype))
    if wide:
        raise ArgumentError("Overflow when unpacking long long: a number needs more than 64 bits "
                            "with sign; give a floating dtype, or uint64")
    if isinstance(first, (np.generic, np.ndarray)):
        if isinstance(data[0], np.ndarray):
            warn_as_pytorch("Creating a tensor from a list of numpy.ndarrays is extremely slow. "
                            "Please consider converting the list to a single numpy.ndarray with "
                            "numpy.array() before converting to a tensor.", once=True)
        return array.astype(_joint(plain), copy=False)
    if array.dtype.kind == "c":
        return array.astype(default_of("c"))
    if array.dtype.kind == "f" or array.size == 0:
        return array.astype(default_dtype())
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


def _joint(data: Any) -> np.dtype[Any]:
    """The dtype of NumPy's numbers and Python's together: Python's weigh as tensors of them do."""
    kinds = {d.dtype if isinstance(d, (np.generic, np.ndarray)) else
             _joint(d) if isinstance(d, (list, tuple)) else
             default_of(np.dtype(type(d)).kind)
             for d in data}
    return promote_dtypes(*kinds) if kinds else default_dtype()


def _fitted(plain: Any, array: Any, dtype: np.dtype[Any]) -> Any:
    """The numbers in the dtype that was asked for; those that it cannot hold are refused."""
    if not array.size:
        return array.astype(dtype)
    if array.dtype.kind == "c" and dtype.kind in "fiu":
        raise DTypeError("must be real number, not complex" if dtype.kind == "f" else
                         "'complex' object cannot be interpreted as an integer")
    try:
        return np.array(plain, dtype)
    except (OverflowError, ValueError):
        low, high = array.min(), array.max()
        if array.dtype.kind == "i" and dtype.kind == "u":
            limit = int(np.iinfo(dtype).max)
            if -limit <= low and high <= limit:             # a negative number goes round
                return array.astype(dtype)
        raise ArgumentError(f"value cannot be converted to type {of_numpy(dtype).name} without "
                            f"overflow: the numbers go from {low} to {high}") from None


def _plain(data: Any) -> Any:
    """Nested sequences with tensors inside, as nested lists of numbers."""
    if isinstance(data, Tensor):
        if data.array.size != 1:
            words = f": an element has shape {list(data.shape)}; use stack([...])"
            if data.array.dtype.kind in "iu":
                raise DTypeError("only integer tensors of a single element can be converted to an "
                                 f"index{words}")
            raise ArgumentError("only one element tensors can be converted to Python scalars"
                                + words)
        return data.array.reshape(())[()]
    if isinstance(data, (list, tuple)) and any(isinstance(d, (Tensor, list, tuple)) for d in data):
        return [_plain(d) for d in data]
    if isinstance(data, range):
        return list(data)
    return data


def _first(data: Any) -> Any:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return data


@public(method=False)
def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
           pin_memory: bool = False) -> Tensor:
    """A new leaf that copies `data` (numbers, nested sequences, arrays).

    Python floats get the default dtype, ints int64, bools bool; arrays keep theirs.

    >>> import adjoint as ad
    >>> ad.tensor([[1, 2], [3, 4]]).dtype
    adjoint.int64
    """
    if isinstance(data, Tensor):
        warn("To copy construct from a tensor, it is recommended to use x.detach().clone(), with "
             ".requires_grad_(True) for a leaf, rather than tensor(x).")
    return _copied(data, dtype, device, requires_grad)


def _copied(data: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """`tensor` of anything, without a word."""
    if rehearsal.get() is not None and isinstance(data, Tensor) and type(data.array) is MetaArray:
        return wrap(call(np.array, data.array, _dtype(dtype, data.array.dtype), otherwise=tuple),
                    requires_grad)
    array = _from_data(data, dtype)
    if rehearsal.get() is None and check(device) == "meta":
        return wrap(MetaArray(array.shape, array.dtype), requires_grad)
    return wrap(array, requires_grad)      # (rehearsed: values that are written down are known)


@public(method=False)
def as_tensor(data: Any, dtype: Any = None, device: Any = None, *, copy: bool | None = None,
              requires_grad: bool = False) -> Tensor:
    """`data` as a tensor, sharing memory where it is an array or tensor of that dtype."""
    if copy:
        return _copied(data, dtype, device, requires_grad)
    if isinstance(data, Tensor):
        same = dtype is None or data.array.dtype == to_numpy(dtype)
        return data if same else data.to(dtype)
    if isinstance(data, np.ndarray) and (dtype is None or data.dtype == to_numpy(dtype)):
        return from_numpy(data)
    return _copied(data, dtype, device, requires_grad)


def _is_buffer(obj: Any) -> bool:
    """Bytes, a bytearray, an array of Python's: memory without a shape."""
    try:
        return not isinstance(obj, np.generic) and memoryview(obj).ndim <= 1
    except TypeError:
        return False


@public(method=False)
def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None,
            requires_grad: bool | None = None) -> Tensor:
    """`as_tensor`, and without history for requires_grad=False. copy=False refuses what cannot
    share memory: raises ArgumentError.

    >>> import adjoint as ad
    >>> x = ad.ones(2, requires_grad=True)
    >>> ad.asarray(x, requires_grad=False).requires_grad
    False
    """
    shared = isinstance(obj, (Tensor, np.ndarray))
    if not shared and not hasattr(obj, "__array_interface__") and _is_buffer(obj):
        made = FUNCTIONS["frombuffer"](obj, dtype=default_dtype() if dtype is None else dtype)
        return as_tensor(made, copy=copy).requires_grad_(bool(requires_grad))
    if copy is False and not (shared or hasattr(obj, "__array_interface__")):
        raise ArgumentError("asarray: can't alias arbitrary sequence into a tensor: "
                            f"{type(obj).__name__} has no memory to share; leave copy=False out")
    if copy is False and dtype is not None and shared:
        own, wanted = to_numpy(obj.dtype), to_numpy(dtype)
        if own != wanted:
            raise ArgumentError(f"can't alias tensor with dtype '{scalar_type(own)}' into dtype "
                                f"'{scalar_type(wanted)}'.")
    if isinstance(obj, Tensor):
        found = obj.to(dtype if dtype is not None else obj.dtype, copy=bool(copy))
        if requires_grad is False or requires_grad is None and not obj.requires_grad:
            return found.detach() if found.requires_grad else found
        return found if found.requires_grad else found.requires_grad_()
    return as_tensor(obj, dtype, device, copy=copy, requires_grad=bool(requires_grad))


class _Span:
    """Bytes of an array, which it keeps alive."""

    def __init__(self, array: np.ndarray, nbytes: int) -> None:
        at = array.__array_interface__["data"]
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": at}
        self.array = array


def _storage_of_its_own(array: Any) -> Any:
    """A view from NumPy on memory that begins and ends with it, as PyTorch has it: of a piece of a
    large array (a file in memory) only the piece is saved."""
    if not isinstance(array.base, np.ndarray) or not array.size or min(array.strides,
                                                                      default=0) < 0:
        return array
    span = array.itemsize + sum((n - 1) * s for n, s in
                                zip(array.shape, array.strides, strict=True))
    if span == owner_of(array).nbytes:
        return array
    return np.ndarray(array.shape, array.dtype, np.asarray(_Span(array, span)), 0, array.strides)


@public(method=False)
def from_numpy(array: Any) -> Tensor:
    """A tensor on the memory of a NumPy array. Writes through either are seen by both, and a
    write that would corrupt a gradient is found in backward."""
    if not isinstance(array, np.ndarray):
        kind = type(array)
        where = "numpy." if kind.__module__ == "numpy" else ""
        raise TypeError(f"expected np.ndarray (got {where}{kind.__name__})")
    of_numpy(array.dtype)
    if not array.flags.writeable:
        warn("The given NumPy array is not writable, and PyTorch does not support non-writable "
             "tensors: writes to this one go to the array's memory all the same or fail. Copy the "
             "array first where the tensor is written to.")
    if not array.dtype.isnative:
        raise ArgumentError(
            "given numpy array has byte order different from the native byte order. Conversion "
            f"between byte orders is currently not supported. {array.dtype}: use "
            "array.astype(array.dtype.newbyteorder('='))")
    t = wrap(_storage_of_its_own(native(array)))
    cell = share_cell(t)                 # what saves it from here on looks at its content first
    cell.exposed = cell.touched = True
    return t


# ------------------------------------------------------------------ constants
def refuse_filled(name: str, fill: Any, layout: Any) -> None:
    """A sparse tensor has no values where nothing is stored."""
    if fill:
        raise NotSupported(f"{name}(...) is not implemented for sparse layout: got "
                           f"layout={layout}; make it dense and call to_sparse()")


def _laid_out(t: Tensor, layout: Any, name: str, fill: Any) -> Tensor:
    """A constant in another layout than the one in which it was made: without an element."""
    refuse_filled(name, fill, layout)
    sparse: Tensor = METHODS["to_sparse"](make(tuple(t.shape), t.array.dtype, 0, None),
                                          layout=layout)
    return sparse.requires_grad_(t.requires_grad)


@public(method=False)
def zeros(*size: Any, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
          requires_grad: bool = False, pin_memory: bool = False, names: Any = None) -> Tensor:
    """A tensor of zeros of shape `size`."""
    dtype = _dtype(of_out(dtype, out), default_dtype())
    made = make(shape_of(size), dtype, 0, device, requires_grad)
    if layout is not None and layout is not strided:
        return _laid_out(made, layout, "zeros", 0)
    return finish_made(out, made)


@public(method=False)
def ones(*size: Any, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
         requires_grad: bool = False, pin_memory: bool = False, names: Any = None) -> Tensor:
    """A tensor of ones of shape `size`."""
    dtype = _dtype(of_out(dtype, out), default_dtype())
    made = make(shape_of(size), dtype, 1, device, requires_grad)
    if layout is not None and layout is not strided:
        return _laid_out(made, layout, "ones", 1)
    return finish_made(out, made)


@public(method=False)
def empty(*size: Any, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
          requires_grad: bool = False, pin_memory: bool = False,
          memory_format: Any = None) -> Tensor:
    """An uninitialised tensor of shape `size`."""
    dtype = of_out(dtype, out)
    shape, order = shape_of(size), None
    if memory_format is preserve_format:
        raise ArgumentError("unsupported memory format Preserve: there is nothing to preserve")
    if memory_format is not None:
        memory_format.fits(Aval(shape, default_dtype()))
        order = memory_format.axes
    made = make(shape, _dtype(dtype, default_dtype()), None, device, requires_grad, order)
    if layout is not None and layout is not strided:
        return _laid_out(made, layout, "empty", None)
    return finish_made(out, made)


@public(method=False, quick=True)
def full(size: Any, fill_value: Any, *, out: Any = None, dtype: Any = None, layout: Any = None,
         device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A tensor of `fill_value` of shape `size`; its dtype follows the value."""
    if isinstance(size, (int, np.integer)):
        raise DTypeError("full(): argument 'size' (position 1) must be tuple of ints, not int")
    value = fill_value
    if isinstance(value, Tensor) and not value.shape:
        value = value.item()
    elif not isinstance(value, (int, float, complex, np.generic)):
        raise DTypeError("full(): argument 'fill_value' (position 2) must be Number, not "
                         f"{type(value).__name__}")
    follows = default_of({bool: "b", int: "i", complex: "c"}.get(type(value), "f"))
    kind = _dtype(of_out(dtype, out), follows)
    return finish_made(out, make(shape_of((size,)), kind, held(value, kind), device,
                                 requires_grad))


def no_tensor(name: str, x: Any) -> DTypeError:
    """The refusal of an operand that is no tensor."""
    return DTypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not "
                      f"{type(x).__name__}")


def _like(name: str, fill: Any) -> Any:
    def like(input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False,
             memory_format: Any = None) -> Tensor:
        if not isinstance(input, Tensor):
            raise no_tensor(name, input)
        array = input.array
        if type(input) in SPARSE and layout in (None, input.layout):
            refuse_filled(name, fill, input.layout)
            made: Tensor = input._cleared(_dtype(dtype, array.dtype))
            return made.requires_grad_(requires_grad)
        where = device if device is not None else device_name(input)
        dense = make(tuple(array.shape), _dtype(dtype, array.dtype), fill, where, requires_grad,
                     order_like(input, memory_format))
        return dense if layout is None or layout is strided else _laid_out(dense, layout, name,
                                                                           fill)
    like.__name__ = like.__qualname__ = name
    like.__doc__ = f"`{name[:-5]}` of the shape, dtype and device of `input`."
    return public(name, method=False, quick=True)(like)


def device_name(t: Tensor) -> str:
    """'cpu' or 'meta'; what is rehearsed is a run on the cpu."""
    return "meta" if type(t.array) is MetaArray and rehearsal.get() is None else "cpu"


_DEVICES = {"cpu": device_type("cpu"), "meta": device_type("meta")}


def device_of(t: Tensor) -> device_type:
    """Where the data is: one object for all tensors there."""
    return _DEVICES["cpu" if type(t.array) is np.ndarray else device_name(t)]


zeros_like, ones_like, empty_like = (_like(n, f) for n, f in (
    ("zeros_like", 0), ("ones_like", 1), ("empty_like", None)))


@public(method=False)
def full_like(input: Tensor, fill_value: Any, *, dtype: Any = None, layout: Any = None,
              device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
              memory_format: Any = None) -> Tensor:
    """`full` of the shape, dtype and device of `input`."""
    if type(input) in SPARSE and layout is not strided:
        refuse_filled("full_like", True, input.layout)
    kind = _dtype(dtype, input.array.dtype)
    fill_value = number_for("full_like", "fill_value", 2, fill_value, kind)
    return make(tuple(input.array.shape), kind, fill_value,
                device if device is not None else device_name(input), requires_grad,
                order_like(input, memory_format))


def _new(name: str, fill: Any) -> None:
    def method(self: Tensor, *size: Any, dtype: Any = None, device: Any = None,
               requires_grad: bool = False, layout: Any = None,
               pin_memory: bool = False) -> Tensor:
        made = make(shape_of(size), _dtype(dtype, self.array.dtype), fill,
                    device if device is not None else device_name(self), requires_grad)
        if layout is None and type(self) in SPARSE:
            layout = self.layout
        return made if layout is None or layout is strided else _laid_out(made, layout, name, fill)
    method.__name__ = name
    method.__doc__ = f"A tensor of shape `size` with this one's dtype and device ({name[4:]})."
    METHODS[name] = other_names(method)


for _name, _fill in (("new_zeros", 0), ("new_ones", 1), ("new_empty", None)):
    _new(_name, _fill)


@public(function=False)
def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None,
             requires_grad: bool = False, layout: Any = None, pin_memory: bool = False) -> Tensor:
    """`full` with this tensor's dtype and device."""
    kind = _dtype(dtype, self.array.dtype)
    return make(shape_of((size,)), kind, number_for("new_full", "fill_value", 2, fill_value, kind),
                device if device is not None else device_name(self), requires_grad)


@public(function=False)
def new_tensor(self: Tensor, data: Any, *, dtype: Any = None, device: Any = None,
               requires_grad: bool = False, layout: Any = None,
               pin_memory: bool = False) -> Tensor:
    """`tensor(data)` with this tensor's dtype and device."""
    return tensor(data, dtype=_dtype(dtype, self.array.dtype), device=device,
                  requires_grad=requires_grad)


# ------------------------------------------------------------------ copies and constructors
@public(quick=True)
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy with its own memory, connected to the graph; its axes lie in memory as those of
    `input`, or as `memory_format` says."""
    if memory_format is None or memory_format is preserve_format:
        return clone_op(input)
    from adjoint.ops.api_shape import in_format
    return in_format(input, memory_format, copy=True)


@public(quick=True)
def detach(input: Tensor) -> Tensor:
    """The same memory without history: no gradient flows, writes are still noticed."""
    if not isinstance(input, Tensor):
        raise no_tensor("detach", input)
    if input.level:
        return input.trace.detach(input)
    return cut(input) if type(input) not in SPARSE else vars(type(input))["detach"](input)


def legacy(*args: Any, device: Any = None, requires_grad: bool = False,
           dtype: Any = None) -> Tensor:
    """PyTorch's `Tensor(...)`: sizes give an uninitialised tensor, data a copy in the default
    dtype, a tensor the same numbers (of `dtype`, where it is given)."""
    kind = default_dtype() if dtype is None else to_numpy(dtype)
    if device is not None and check(device) == "meta":
        raise ArgumentError("legacy constructor expects device type: cpu but device type: meta was "
                            "passed")
    if not args:
        return wrap(np.empty(0, kind), requires_grad)
    if all(isinstance(a, (int, np.integer)) and not isinstance(a, bool) for a in args):
        return make(shape_of(args), kind, None, device, requires_grad)
    if len(args) == 1 and isinstance(args[0], Size):
        return make(tuple(args[0]), kind, None, device, requires_grad)
    if len(args) == 1 and isinstance(args[0], Tensor):
        if dtype is not None and args[0].array.dtype != kind:
            raise DTypeError(f"expected a tensor of {of_numpy(kind)}, got {args[0].dtype}: convert "
                             "it with .to(dtype)")
        return alias(args[0])
    if len(args) != 1 or isinstance(args[0], (float, bool, str)):
        raise DTypeError(f"new(): data must be a sequence (got {type(args[0]).__name__})")
    return wrap(_from_data(args[0], kind), requires_grad)


Tensor.__class__.legacy = staticmethod(legacy)  # type: ignore[attr-defined]  # metaclass hook


def inexact(t: Tensor) -> bool:
    """True for floating and complex tensors."""
    return is_inexact(t.array.dtype)


__all__ = ["as_tensor", "bump", "clone", "detach", "empty", "from_numpy", "full", "make", "ones",
           "shape_of", "tensor", "zeros"]
