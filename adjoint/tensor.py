"""Tensor's surface: metadata, conversions, operators, hooks, protocols.

`core/tensor.py` holds what the engine touches. Here the class gets what a user sees: the public
functions of the registry as methods, and what is defined below with `@member`. No mathematics.
"""
from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from adjoint.autograd import api
from adjoint.autograd.late import duals, leaf_dtypes
from adjoint.base import provenance
from adjoint.base.aval import MetaArray, address
from adjoint.base.dtypes import is_inexact, native, of_numpy
from adjoint.base.errors import (
    AutogradError,
    DTypeError,
    IndexOutOfRange,
    MetaError,
    MissingName,
    ShapeError,
)
from adjoint.core import tensor as core
from adjoint.core.inplace import inplace
from adjoint.core.modes import GRAD, state
from adjoint.core.rehearsal import rehearsal
from adjoint.core.tensor import (
    AccumulateGrad,
    Port,
    RemovableHandle,
    Size,
    Tensor,
    add_hook,
    edge_of,
    wrap,
)
from adjoint.ops import api_pointwise as pw
from adjoint.ops import arrange
from adjoint.ops import pointwise as p
from adjoint.ops.create import device_name, device_of
from adjoint.ops.public import METHODS
from adjoint.ops.shape import integer
from adjoint.printing import tensor_repr

F = TypeVar("F", bound=Callable[..., Any])


def member(f: F) -> F:
    """Make a function a method of Tensor."""
    setattr(Tensor, f.__name__, f)
    return f


def getter(f: Callable[[Tensor], Any]) -> property:
    """Make a function a read-only property of Tensor."""
    prop = property(f)
    setattr(Tensor, f.__name__, prop)
    return prop


# ------------------------------------------------------------------ data and gradient
def _get_grad(self: Tensor) -> Any:
    """The accumulated gradient; None until a backward reached this tensor."""
    if self._grad is None and not self.is_leaf and not self._retains and self._rg:
        import warnings
        warnings.warn("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed."
                      " Its .grad attribute won't be populated during autograd.backward(). If you "
                      "indeed want the .grad field to be populated for a non-leaf Tensor, use "
                      ".retain_grad() on the non-leaf Tensor.", UserWarning, stacklevel=2)
    return self._grad


def _set_grad(self: Tensor, grad: Any) -> None:
    if grad is not None:
        if not isinstance(grad, Tensor):
            raise TypeError("assigned grad expected to be a Tensor or None but got grad of type "
                            f"{type(grad).__name__}")
        if grad is self:
            raise AutogradError("can't assign Variable as its own grad")
        core.check_grad_shape(self, grad)
    self._grad = grad


def _del_grad(self: Tensor) -> None:
    self._grad = None


def _set_data(self: Tensor, new: Tensor) -> None:
    if not isinstance(new, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(new).__name__}")
    if self._rg and not is_inexact(new.array.dtype):
        raise AutogradError("data set to a tensor that requires gradients must be floating point "
                            f"or complex dtype, got {new.dtype}")
    had = self._cell.version if self._cell is not None else 0
    self.array = new.array
    # where writes through .data do not count, both go on with counters of their own
    self._cell = core.share_cell(new) if core.Cell.data_counts else self._cell or core.Cell()
    if core.Cell.data_counts and had >= self._cell.version:
        self._cell.version = had + 1
        self._cell.touched = True
        self._cell.what = "assignment to .data"
    if type(self._edge) is AccumulateGrad:
        self._edge.follow(self.array)


def _del_data(self: Tensor) -> None:
    raise AutogradError("Deleting tensor data is not allowed. Delete tensor instead!")


Tensor.grad = property(_get_grad, _set_grad, _del_grad)
Tensor.data = property(core.data_of, _set_data, _del_data)


@member
def detach_(self: Tensor) -> Tensor:
    """Cut this tensor from its graph, in place."""
    return core.cut_in_place(self)


@member
def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Set `requires_grad` in place; returns the tensor."""
    if type(requires_grad) is not bool:
        raise DTypeError("requires_grad_(): argument 'requires_grad' (position 1) must be bool, "
                         f"not {type(requires_grad).__name__}")
    if requires_grad:
        core.may_require_grad(self.array, "only Tensors of floating point dtype")
    self.requires_grad = requires_grad
    return self


@member
def backward(self: Tensor, gradient: Any = None, retain_graph: bool | None = None,
             create_graph: bool = False, inputs: Any = None) -> None:
    """Accumulate the gradient of this tensor into the leaves (see `autograd.backward`)."""
    if self.level >= 1:
        primal = duals().primals(self, gradient)
        if primal is not None:
            api.backward([primal[0]], [primal[1]], retain_graph, create_graph, inputs=inputs)
            return
        raise AutogradError("backward() called inside a functorch transform. This is not "
                            "supported, please use func.grad, func.vjp or autograd.grad on the "
                            "result")
    api.backward([self], [gradient], retain_graph, create_graph, inputs=inputs)


@member
def retain_grad(self: Tensor) -> None:
    """Keep the gradient of this non-leaf in `.grad` when backward passes it."""
    if not self._rg:
        raise AutogradError("can't retain_grad on Tensor that has requires_grad=False")
    if self.is_leaf or self._retains:
        return
    self._retains = True
    node: Any = self.grad_fn
    if node._retain is None:
        node._retain = {}
        core.take_full_path(node)
    node._retain[self.output_nr] = weakref.ref(self)


@getter
def retains_grad(self: Tensor) -> bool:
    """True for a non-leaf whose gradient will be kept."""
    return self._retains


@member
def register_hook(self: Tensor, hook: Callable[[Tensor], Any]) -> RemovableHandle:
    """`hook(grad) -> new grad or None`, when the gradient of this tensor is complete."""
    if not self._rg:
        raise AutogradError("cannot register a hook on a tensor that doesn't require gradient")
    if not callable(hook):
        raise TypeError(f"a hook must be callable, got {type(hook).__name__}")
    node, index = _node_of(self)
    if node._tensor_hooks is None:
        node._tensor_hooks = {}
        core.take_full_path(node)
    hooks = node._tensor_hooks.setdefault(index, core.HookDict())
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def _node_of(t: Tensor) -> tuple[Any, int]:
    edge = edge_of(t)
    return (edge.node, edge.index) if type(edge) is Port else (edge, 0)


def _hooks_of(self: Tensor) -> Any:
    """The hooks of `register_hook`, None where there are none."""
    if self._edge is None:
        return None
    node, index = _node_of(self)
    return (node._tensor_hooks or {}).get(index) or None


def _set_hooks(self: Tensor, hooks: Any) -> None:
    if hooks or self._backward_hooks:
        node, index = _node_of(self)
        node._tensor_hooks = {**(node._tensor_hooks or {}), index: core.HookDict(hooks or {})}
        core.take_full_path(node)


Tensor._backward_hooks = property(_hooks_of, _set_hooks)


@member
def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]
                                       ) -> RemovableHandle:
    """`hook(leaf)` after its `.grad` was accumulated: an optimizer step inside of backward."""
    if not self._rg:
        raise AutogradError("cannot register a hook on a tensor that doesn't require gradient")
    if not self.is_leaf:
        raise AutogradError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return add_hook(edge_of(self), "_accumulated", hook)


# ------------------------------------------------------------------ metadata
@member
def dim(self: Tensor) -> int:
    """Number of axes."""
    return len(self.array.shape if type(self) is Tensor else self.shape)


@member
def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or the extent of one axis."""
    shape = self.shape
    if dim is None:
        return shape
    n = len(shape)
    if type(dim) is not int:
        dim = integer(dim, "size(): argument 'dim'")
    if not -n <= dim < n:
        raise IndexOutOfRange(f"Dimension out of range (expected to be in range of [{-max(n, 1)}, "
                              f"{max(n, 1) - 1}], but got {dim})")
    return tuple.__getitem__(shape, dim)


@member
def numel(self: Tensor) -> int:
    """Number of elements."""
    return self.array.size if type(self) is Tensor else self.shape.numel()


@member
def stride(self: Tensor, dim: int | None = None) -> Any:
    """Steps in elements along each axis; those of C order for a value of a transform."""
    array, steps, step = self.array, [], 1
    size, at = array.dtype.itemsize, array.strides
    if 0 not in at and (dim is None or type(dim) is int and -len(at) <= dim < len(at)):
        return tuple([s // size for s in at]) if dim is None else at[dim] // size
    for n, s in zip(reversed(array.shape), reversed(array.strides), strict=True):
        # where no step is ever taken NumPy has 0, PyTorch the step of C order
        if s or n > 1 and array.size:
            step = s // size
        steps.append(step)
        step *= max(n, 1)
    out = tuple(reversed(steps))
    if dim is not None:
        self.size(dim)                      # refuses what is no axis
    return out if dim is None else out[dim]


@member
def storage_offset(self: Tensor) -> int:
    """Position of the first element in its storage, in elements."""
    if isinstance(self.array, MetaArray):
        return int(self.array.offset // self.array.dtype.itemsize)
    start = address(self.array) - address(core.owner_of(self.array))
    return int(start // self.array.itemsize)


@member
def data_ptr(self: Tensor) -> int:
    """Address of the first element."""
    if not isinstance(self.array, np.ndarray):
        return 0
    core.share_cell(self)                # from now on others may know the memory
    return address(self.array)


@member
def element_size(self: Tensor) -> int:
    """Bytes per element."""
    return int(self.array.dtype.itemsize)


_NEVER = ("cuda", "sparse", "quantized", "mps", "xpu", "nested", "mkldnn", "sparse_csr", "ipu",
          "xla", "vulkan", "maia", "mtia")
for _name, _value in (*((f"is_{n}", False) for n in _NEVER), ("is_cpu", True), ("names", None),
                      ("name", None), ("volatile", False)):
    setattr(Tensor, _name, _value)
def get_device(self: Tensor) -> int:
    """-1: the data is on the cpu."""
    return -1


def is_inference(self: Tensor) -> bool:
    """True for tensors made in inference_mode."""
    return self._cell is core.INFERENCE_CELL


def is_signed(self: Tensor) -> bool:
    """True for signed dtypes."""
    return self.dtype.is_signed


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """False: page-locked memory serves a GPU."""
    return False


def _shared(name: str) -> Any:
    return getattr(importlib.import_module("adjoint.shared"), name)


def share_memory_(self: Tensor) -> Tensor:
    """Move the data to memory that processes share; returns the tensor."""
    moved: Tensor = _shared("share")(self)
    return moved


def is_shared(self: Tensor) -> bool:
    """Whether `share_memory_` has moved the data."""
    return _shared("block_of")(self.array) is not None


_SURFACE: dict[str, Any] = {
    "is_meta": property(lambda self: device_name(self) == "meta", doc="Without storage or not."),
    "device": property(device_of, doc="Where the data is."),
    "ndim": property(dim, doc="Number of axes."),
    "itemsize": property(element_size, doc="Bytes per element."),
    "nbytes": property(lambda self: numel(self) * element_size(self), doc="Bytes of the elements."),
    "ndimension": dim, "nelement": numel,
    "real": property(arrange.real, lambda self, v: self.real.copy_(v),
                     doc="The real part: a view."),
    "imag": property(arrange.imag, lambda self, v: self.imag.copy_(v),
                     doc="The imaginary part of a complex tensor: a view."),
    "get_device": get_device, "is_inference": is_inference, "is_signed": is_signed,
    "is_pinned": is_pinned, "share_memory_": share_memory_, "is_shared": is_shared,
    "grad_dtype": property(lambda self: leaf_dtypes().of(self), lambda self, dtype: leaf_dtypes(
        ).choose(self, dtype), doc="Dtype of the gradient of this leaf; None: any."),
    "_is_view": lambda self: self._base is not None,
    "_post_accumulate_grad_hooks": property(
        lambda self: getattr(self._edge, "_accumulated", None), doc="They, by number, or None."),
}


# ------------------------------------------------------------------ to Python and NumPy
def values_of(self: Tensor, what: str) -> Any:
    if self.level:
        return self.trace.value(self, what)
    if type(self.array) is MetaArray:
        raise MetaError(f"{what}: the tensor {list(self.array.shape)} is on device meta and has no "
                        "values; run this line on real data, or branch on shapes instead\n"
                        f"  at {provenance.here(sys._getframe(1))}")
    return self.array


@member
def item(self: Tensor) -> Any:
    """The one element as a Python number."""
    array = self.array
    if type(array) is not np.ndarray or self.level:
        array = values_of(self, "item()")
    if array.size != 1:
        raise ShapeError(f"a Tensor with {array.size} elements cannot be converted to Scalar "
                         f"(shape {list(array.shape)}); reduce it first")
    return float(array.reshape(-1)[0]) if array.dtype.kind == "V" else array.item()


@member
def tolist(self: Tensor) -> Any:
    """Nested lists of Python numbers (a number for a 0-d tensor)."""
    array = values_of(self, "tolist()")
    return (array.astype(np.float32) if array.dtype.kind == "V" else array).tolist()


@member
def numpy(self: Tensor, *, force: bool = False) -> Any:
    """A NumPy array on the same memory; a write to it that would corrupt a gradient is found
    in backward. A tensor that requires grad is refused, except under `no_grad`."""
    array = values_of(self, "numpy()")
    if self._rg and not force and state() & GRAD:
        raise AutogradError("Can't call numpy() on Tensor that requires grad. Use "
                            "tensor.detach().numpy() instead.")
    core.expose(self)
    return array.view()


@member
def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    array = values_of(self, "__array__()")
    if self._rg and state() & GRAD:
        raise AutogradError("Can't call numpy() on Tensor that requires grad. Use "
                            "tensor.detach().numpy() instead.")
    if dtype is not None and np.dtype(dtype) != array.dtype:
        return array.astype(dtype)
    if copy:
        return array.copy()
    core.expose(self)
    return array.view()


@member
def __bool__(self: Tensor) -> bool:
    array = values_of(self, "bool()")
    if array.size != 1:
        kind = "no values" if array.size == 0 else "more than one value"
        raise ShapeError(f"Boolean value of Tensor with {kind} is ambiguous (shape "
                         f"{list(array.shape)}); use .any() or .all()")
    return bool(array.reshape(-1)[0])


@member
def __index__(self: Tensor) -> int:
    array = values_of(self, "index")
    if array.size != 1 or array.dtype.kind not in "iub":
        raise DTypeError("only integer tensors of a single element can be converted to an index, "
                         f"this one is {self.dtype} {list(array.shape)}")
    return int(array.reshape(-1)[0])


@member
def __len__(self: Tensor) -> int:
    if not self.shape:
        raise DTypeError("len() of a 0-d tensor")
    return tuple.__getitem__(self.shape, 0)


@member
def __iter__(self: Tensor) -> Iterator[Tensor]:
    if not self.shape:
        raise DTypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


@member
def __contains__(self: Tensor, element: Any) -> bool:
    if not isinstance(element, (Tensor, np.generic, bool, int, float, complex)):
        raise DTypeError("Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
                         f"{type(element)}.")
    return bool((values_of(self, "in") == (element.array if isinstance(element, Tensor)
                                         else element)).any())


@member
def __reversed__(self: Tensor) -> Tensor:
    return METHODS["flip"](self, (0,)) if len(self.shape) else self


@member
def __repr__(self: Tensor, *, tensor_contents: Any = None) -> str:
    return tensor_repr(self)


@member
def __format__(self: Tensor, spec: str) -> str:
    if self.shape != () or (not spec if self.level else isinstance(self.array, MetaArray) and (
            not spec or rehearsal.get() is None)):
        return object.__format__(self, spec)
    return format(item(self), spec)


@member
def __dir__(self: Tensor) -> list[str]:
    return sorted(n for n in {*dir(type(self)), *self.__dict__} if not n.startswith("_t_"))


# ------------------------------------------------------------------ copies
def _copies() -> Any:
    return importlib.import_module("adjoint.core.copies")


@member
def __copy__(self: Tensor) -> Tensor:
    made: Tensor = _copies().shallow(self)
    return made


@member
def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> Tensor:
    made: Tensor = _copies().deep(self, memo)
    return made


def rebuild(kind: type[Tensor], array: Any, requires_grad: bool, extra: dict[str, Any]) -> Tensor:
    """What unpickling calls."""
    t: Tensor = object.__new__(kind)
    t.array = native(array) if type(array) is np.ndarray else array
    t._edge = t._cell = None
    t._rg = requires_grad
    t.__dict__.update(extra)
    return t


@member
def __reduce_ex__(self: Tensor, protocol: Any) -> Any:
    if self._backward_hooks and not isinstance(self, core.Parameter):
        _copies().warn_if_has_hooks(self)
    array: Any = self.array
    if type(array) is not MetaArray and not array.flags.f_contiguous:
        array = np.ascontiguousarray(array)
    return rebuild, (type(self), array, self._rg, _copies().attributes(self))


# ------------------------------------------------------------------ operators
def _reflected(f: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, other: Any) -> Any:
        return f(other, self)
    return method


def _operator(name: str, f: Callable[..., Any], inplace_op: Any = None) -> None:
    accepted = (Tensor, np.ndarray, np.generic, bool, int, float, complex)

    def forward(self: Any, other: Any) -> Any:
        return f(self, other) if isinstance(other, accepted) else NotImplemented

    def backward_(self: Any, other: Any) -> Any:
        return f(other, self) if isinstance(other, accepted) else NotImplemented

    direct = f if getattr(f, "op", None) is not None and name in ("add", "sub", "mul") else forward
    setattr(Tensor, f"__{name}__", direct)
    setattr(Tensor, f"__r{name}__", backward_)
    if inplace_op is not None:
        setattr(Tensor, f"__i{name}__", inplace_op)


def _subtract(a: Any, b: Any) -> Any:
    return METHODS["sub"](a, b)


_operator("add", p.add, METHODS["add_"])
_operator("sub", p.sub, METHODS["sub_"])
_operator("mul", p.mul, METHODS["mul_"])
_operator("truediv", p.div, METHODS["div_"])
_SURFACE["__rdiv__"] = Tensor.__rtruediv__
_operator("floordiv", pw.floor_divide, lambda self, o: METHODS["div_"](
    self, o, rounding_mode="floor"))
_operator("mod", pw.remainder, METHODS["remainder_"])
_operator("pow", pw.pow, METHODS["pow_"])
_operator("and", p.bitwise_and, METHODS["bitwise_and_"])
_operator("or", p.bitwise_or, METHODS["bitwise_or_"])
_operator("xor", p.bitwise_xor, METHODS["bitwise_xor_"])
_operator("lshift", p.left_shift, METHODS["bitwise_left_shift_"])
_operator("rshift", p.right_shift, METHODS["bitwise_right_shift_"])


def _comparison(name: str, f: Callable[..., Any], otherwise: Any) -> None:
    accepted = (Tensor, np.ndarray, np.generic, bool, int, float, complex)

    def compare(self: Tensor, other: Any) -> Any:
        return f(self, other) if isinstance(other, accepted) else otherwise
    setattr(Tensor, name, compare)


def _inverted(self: Tensor) -> Any:
    if self.array.dtype.kind not in "biu":
        raise DTypeError("~ (operator.invert) is only implemented on integer and Boolean-type "
                         f"tensors, this one is {self.dtype}")
    return p.bitwise_not(self)


def _kept(self: Tensor, index: Any) -> None:
    raise TypeError("Tensor does not support deleting items")


for _name, _f, _other in (("__lt__", p.lt, NotImplemented), ("__le__", p.le, NotImplemented),
                          ("__gt__", p.gt, NotImplemented), ("__ge__", p.ge, NotImplemented),
                          ("__eq__", p.eq, NotImplemented), ("__ne__", p.ne, NotImplemented)):
    _comparison(_name, _f, _other)
_SURFACE.update(__neg__=p.neg, __pos__=METHODS["positive"], __abs__=p.abs_op,
                __invert__=_inverted, __delitem__=_kept, __hash__=lambda self: id(self))


def _absent(self: Tensor, name: str) -> Any:
    """What Python asks last: the name is not there."""
    raise MissingName(f"'{type(self).__name__}' object", name, lambda: dir(type(self)))


def attach_registry() -> None:
    """Make every public function with a method name a method of Tensor."""
    _SURFACE["__getattr__"] = _absent
    for name, f in {**METHODS, **_SURFACE}.items():
        setattr(Tensor, name, f)


__all__ = ["AccumulateGrad", "Size", "attach_registry", "getter", "inplace", "is_inexact",
           "member", "of_numpy", "wrap"]
