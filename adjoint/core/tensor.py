"""The tensor and what nodes keep of it. No mathematics: methods are added by `tensor.py` from the
public functions, the meaning of a node (`core/node.py`) lives in its op's record.

    Tensor ── _edge ──> Node | Port(node, i) | AccumulateGrad (leaf)
    Node ── edges ──> the same, one per operand;  saved: operands (tensors) and outputs (OutRef)
"""
from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import DType, cpp_type, is_inexact, of_numpy, scalar_type
from adjoint.base.errors import AutogradError, NotSupported, ShapeError
from adjoint.core.modes import GRAD, INFERENCE, WATCH, state, watchers
from adjoint.core.node import AccumulateGrad as AccumulateGrad
from adjoint.core.node import Freed as Freed
from adjoint.core.node import GradientEdge as GradientEdge
from adjoint.core.node import GraphNode as GraphNode
from adjoint.core.node import HookDict as HookDict
from adjoint.core.node import Node as Node
from adjoint.core.node import OpNode as OpNode
from adjoint.core.node import PairNode as PairNode
from adjoint.core.node import Port as Port
from adjoint.core.node import RemovableHandle as RemovableHandle
from adjoint.core.node import WideNode as WideNode
from adjoint.core.node import add_hook as add_hook
from adjoint.core.node import counter as counter
from adjoint.core.node import named as named
from adjoint.core.node import next_sequence as next_sequence
from adjoint.core.node import take_full_path as take_full_path
from adjoint.core.rehearsal import call


class Cell:
    """Version of a storage, shared by all tensors that show it, with the last mutation's place.

    A tensor without a cell has version 0 and its storage to itself.
    """

    # Class-level defaults: most cells are never written to, and an empty one is made quickly.
    version = 0
    touched = False            # has a version, or may be written to unseen: look closer
    what = ""
    code: CodeType | None = None
    lasti = 0
    exposed = False            # a NumPy array or another library may write to the storage unseen
    print: tuple[int, Any] | None = None       # (version, fingerprint of the owner) then
    # Of all cells: a write through .data is a version too (F23). Not so in a program that is served
    # this package as torch: there it goes unseen, and such programs count on it.
    data_counts = True

    def where(self) -> str:
        """The last mutation, in words."""
        if not self.what:
            return "modified outside of this library (through a NumPy array that shares its memory)"
        return f"last modified by {self.what} at {provenance.locate(self.code, self.lasti)}"


INFERENCE_CELL = Cell()


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple of ints that prints as PyTorch's."""

    __slots__ = ()

    def __new__(cls, sizes: Any = ()) -> Size:
        given = tuple(sizes)
        for i, n in enumerate(given):
            if type(n) is not int:
                given = (*given[:i], _extent(n, i), *given[i + 1:])
        return tuple.__new__(cls, given)

    def numel(self) -> int:
        """Number of elements."""
        n = 1
        for s in self:
            n *= s
        return n

    def __repr__(self) -> str:
        return f"{DType.namespace}.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, i: Any) -> Any:
        out = tuple.__getitem__(self, i)
        return Size(out) if type(out) is tuple else out

    def __add__(self, other: Any) -> Size:
        if not isinstance(other, tuple):
            raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size"
                            ": write it as tuple(...)")
        return Size(tuple(self) + other)

    def __radd__(self, other: Any) -> Any:
        return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Size:
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[Any, ...]:
        return (Size, (tuple(self),))


def _extent(n: Any, at: int) -> int:
    """An extent that is no plain int: NumPy's, a tensor of one, or a symbol of a nested tensor."""
    if hasattr(n, "__index__") and not isinstance(n, float) or hasattr(n, "ragged"):
        try:
            return n if hasattr(n, "ragged") else int(n.__index__())
        except TypeError:
            pass
    raise TypeError(f"torch.Size() takes an iterable of 'int' (item {at} is "
                    f"'{type(n).__name__}')")


class _Sizes(dict[tuple[int, ...], Size]):
    """The sizes of the shapes seen last: a look costs less than to make one."""

    def __missing__(self, shape: tuple[int, ...]) -> Size:
        if len(self) >= 4096:
            self.clear()
        made = self[shape] = Size(shape)
        return made


_SIZES = _Sizes()


class OutRef:
    """A saved output: the array and its cell, not the tensor, which owns the node. Made by
    `out_ref`, or in place where every nanosecond counts."""

    __slots__ = ("array", "cell", "index", "version")
    array: Any
    cell: Cell
    index: int
    version: int


def out_ref(array: Any, cell: Cell, index: int, version: int = 0) -> OutRef:
    """A saved output at `index` of its node, whose storage had that version."""
    ref = OutRef()
    ref.array, ref.cell, ref.index, ref.version = array, cell, index, version
    return ref


class Kept:
    """A saved operand whose storage has a cell: the tensor, and the version it had. An operand
    that has its storage to itself is saved as it is, and must still be at version 0."""

    __slots__ = ("tensor", "version", "mark")

    def __init__(self, tensor: Tensor, version: int, mark: Any) -> None:
        self.tensor, self.version, self.mark = tensor, version, mark

    @property
    def array(self) -> Any:
        """The array of the operand."""
        return self.tensor.array


class Packed:
    """A residual that went through a pack hook; `unpack` gives the tensor back."""

    __slots__ = ("value", "hook", "original", "index", "__weakref__")

    def __init__(self, value: Any, hook: Any, original: Any, index: int) -> None:
        self.value, self.hook, self.original, self.index = value, hook, original, index


# The level of tensors of classes with `__torch_dispatch__` (core/dispatch.py): between plain ones
# and the values of transforms.
DISPATCHED = 0.5
# Classes of tensors that are never asked for PyTorch's `__torch_function__` (core/intercept.py).
OWN: set[type] = set()


class _TensorType(type):
    """Lets `Tensor(...)` be PyTorch's legacy constructor while dispatch makes tensors directly."""

    legacy: Any = None
    subclassed: Any = None         # gives the base of classes that are made outside of this package

    def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any],
                own: bool = False) -> Any:
        """`own` classes go as plain tensors, and so do those that derive from them alone; another
        class that names Tensor as its base gets one that keeps the class of results."""
        above = [b for b in bases if isinstance(b, _TensorType)]
        asks = "__torch_function__" in space or any(
            b not in OWN or b is Tensor for b in above)
        if above and not own and asks:
            base = cls.subclassed()
            bases = tuple(base if b is Tensor else b for b in bases)
        made = super().__new__(cls, name, bases, space)
        if own or not asks:
            OWN.add(made)
        return made

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.legacy(*args, **kwargs) if cls is Tensor else type.__call__(cls, *args, **kwargs)


class Tensor(metaclass=_TensorType):
    """An array with a gradient: data plus autograd metadata."""

    __slots__ = ("array", "_rg", "_edge", "_cell", "__weakref__", "__dict__")
    __array_priority__ = 1000
    array: Any                     # np.ndarray, or MetaArray on device meta
    _rg: bool
    _edge: Any                     # Node | Port | AccumulateGrad | None
    _cell: Cell | None
    level = 0                      # > 0: belongs to a transform (func)
    _grad: Any = None
    _born = 0                      # > 0: a variable of a gradient taken inside of that level
    _base: Any = None              # the tensor this one is a view of (a root, never a view)
    _steps: tuple[Any, ...] = ()   # ops that lead from the base to this view
    _kids: Any = None              # weak references to the views of this root
    _creation = ""                 # "no_grad", "multi": views that may not be written to
    _retains = False
    _held: Any = None              # the stored elements of a sparse tensor
    turn = ""                      # "conj", "neg": a view of such values, see `core/mirror.py`
    _masks = False                 # a mask on what its operand's node gave: see `core/bind.remade`

    if TYPE_CHECKING:                # methods come from the registry of public functions
        grad: Any
        data: Any
        trace: Any
        _backward_hooks: Any     # the hooks of `register_hook`

        def __getattr__(self, name: str) -> Any: ...
        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __floordiv__(self, other: Any) -> Any: ...
        def __mod__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __rpow__(self, other: Any) -> Any: ...
        def __matmul__(self, other: Any) -> Any: ...
        def __rmatmul__(self, other: Any) -> Any: ...
        def __and__(self, other: Any) -> Any: ...
        def __or__(self, other: Any) -> Any: ...
        def __xor__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def __abs__(self) -> Any: ...
        def __invert__(self) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __le__(self, other: Any) -> Any: ...
        def __gt__(self, other: Any) -> Any: ...
        def __ge__(self, other: Any) -> Any: ...
        def __eq__(self, other: Any) -> Any: ...
        def __ne__(self, other: Any) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...
        def __len__(self) -> int: ...
        def __float__(self) -> float: ...
        def __int__(self) -> int: ...
        def __index__(self) -> int: ...
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any: ...

    @property
    def requires_grad(self) -> bool:
        """True if gradients are to be computed for this tensor."""
        return self._rg

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self._edge is not None and type(self._edge) is not AccumulateGrad:
            if value:
                return
            raise AutogradError(
                "you can only change requires_grad flags of leaf variables. If you want to use a "
                "computed variable in a subgraph that doesn't require differentiation use "
                "var_no_grad = var.detach().")
        if value is not True and value is not False:
            raise AutogradError(f"requires_grad must be a bool, got {value!r}")
        if value:
            may_require_grad(self.array, "only Tensors of floating point and complex dtype")
        if value and self._cell is INFERENCE_CELL and not state() & INFERENCE:
            raise AutogradError("Setting requires_grad=True on inference tensor outside "
                                "InferenceMode is not allowed.")
        changes, self._rg = self._rg is not value, value
        for ref in self._kids or () if changes else ():      # a view asks its base
            kid = ref()
            if kid is not None and kid.is_leaf and kid._creation != "function":
                kid._rg = value

    @property
    def is_leaf(self) -> bool:
        """True for tensors made by the user, not by a recorded op."""
        e = self._edge
        return e is None or type(e) is AccumulateGrad

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor; None for leaves."""
        e = self._edge
        if e is None or type(e) is AccumulateGrad:
            return None
        return e.node if type(e) is Port else e

    @property
    def output_nr(self) -> int:
        """Which output of `grad_fn` this tensor is."""
        return self._edge.index if type(self._edge) is Port else 0

    @property
    def _version(self) -> int:
        if self._cell is INFERENCE_CELL:
            raise AutogradError("Inference tensors do not track version counter.")
        return 0 if self._cell is None else self._cell.version

    @property
    def shape(self) -> Size:
        """Extent along each axis."""
        return _SIZES[self.array.shape]

    @property
    def dtype(self) -> DType:
        """Element type."""
        return of_numpy(self.array.dtype)

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def __hash__(self) -> int:
        return id(self)


class _ParameterType(_TensorType):
    def __instancecheck__(cls, instance: Any) -> bool:
        """Also a tensor of a user's class that was made a parameter."""
        return type.__instancecheck__(cls, instance) or (
            cls is Parameter and isinstance(instance, Tensor) and "_is_param" in instance.__dict__)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return type.__call__(cls, *args, **kwargs)


class Parameter(Tensor, metaclass=_ParameterType, own=True):
    """A tensor that a Module registers and an optimizer updates; requires a gradient by default.

    Shares memory with `data`.
    """

    __slots__ = ()

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        t: Any = object.__new__(cls)
        if data is None:
            data = wrap(np.empty(0, np.float32))
        if not isinstance(data, Tensor):
            raise AutogradError(f"cannot assign {type(data).__name__} as a parameter: "
                                "Parameter(data) takes a tensor")
        if cls is Parameter and type(data) not in OWN:        # PyTorch keeps the class, too
            t = data.trace.strip(data) if data.level == DISPATCHED else object.__new__(type(data))
            t.__dict__.update({"_is_param": True}, **{
                k: v for k, v in data.__dict__.items() if k not in Tensor.__dict__})
        t.array, t._cell, t._edge, t._rg = data.array, share_cell(data), None, False
        t.requires_grad = requires_grad
        made: Parameter = t
        return made

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        pass


# An empty tensor, without the detour over the legacy constructor: called like this, a type makes an
# instance in two thirds of the time of `object.__new__(Tensor)`.
new_tensor = type.__call__.__get__(Tensor)


def wrap(array: Any, requires_grad: bool = False) -> Tensor:
    """A leaf tensor that shows `array` (an ndarray or MetaArray) without copying it."""
    t: Tensor = new_tensor()
    t.array = array
    t._edge = None
    t._cell = INFERENCE_CELL if state() & INFERENCE else None
    t._rg = False
    if requires_grad:
        may_require_grad(array, "Only Tensors of floating point and complex dtype")
        t.requires_grad = True
    return t


def may_require_grad(array: Any, those: str) -> None:
    """Raise, in PyTorch's words for the place, where there is no gradient for that dtype."""
    if not is_inexact(array.dtype):
        raise AutogradError(f"{those} can require gradients, this one is {of_numpy(array.dtype)}")


def share_cell(t: Tensor) -> Cell:
    """The cell of `t`'s storage, made if there is none yet: call before aliasing it."""
    cell = t._cell
    if cell is None:
        cell = t._cell = Cell()
    return cell


def reflection(*args: Any) -> bool:
    """`core.mirror.reflect`."""
    from adjoint.core import mirror
    return mirror.reflect(*args)


def mirrored(x: Any, turn: str) -> Any:
    """`core.mirror.mirrored`: "conj" or "neg" of `x`, as a view."""
    from adjoint.core import mirror
    return mirror.mirrored(x, turn)


def alias(t: Tensor) -> Tensor:
    """A leaf on the same storage with the same version counter: what `detach()` returns."""
    if t.turn:
        twin: Tensor = t.twin()
        return twin
    out = wrap(t.array)
    out._cell = share_cell(t)
    return out


def cut(t: Tensor) -> Tensor:
    """`alias` as the user asks for it: the observers are told."""
    if t.level:
        if t.level < 1:                           # a class with __torch_dispatch__
            made: Tensor = t.trace.detach(t)
            return made
        raise NotSupported("accessing `data` inside of vmap or jvp is not allowed: a value of a "
                           "transform has no memory; read detach(), and write under no_grad()")
    out = alias(t)
    if state() & WATCH:
        for observer in watchers.observers.get():
            observer.detached(t, out)
    return out


def cut_in_place(t: Tensor) -> Tensor:
    """`detach_()`."""
    if t._base is not None:
        from adjoint.core.views import DETACH
        raise AutogradError(DETACH)
    t._edge, t._rg = None, False
    return t


def data_of(t: Tensor) -> Tensor:
    """The same memory without history. Writes through it are noticed by backward."""
    # (`cut`, at once where it is plain; with a version of its own where such writes do not count)
    if (type(t) is Tensor or type(t) is Parameter) and state() <= GRAD and Cell.data_counts:
        twin: Any = new_tensor()
        twin.array, twin._edge, twin._rg = t.array, None, False
        twin._cell = t._cell or share_cell(t)
        plain: Tensor = twin
        return plain
    out = cut(t)
    if not Cell.data_counts and out._cell is not INFERENCE_CELL:
        out._cell = Cell()
    return out


def bump(t: Tensor, what: str = "an in-place write", frame: Any = None) -> None:
    """Say that the storage of `t` was written to; remembers the user's line for the error
    (`frame`: where it is known already)."""
    cell = t._cell
    if cell is INFERENCE_CELL:
        if t.turn:
            t.store()
        return
    if cell is None:
        cell = t._cell = Cell()
    cell.version += 1
    cell.touched = True
    frame = frame or provenance.user_frame(sys._getframe(1))
    cell.what = what
    if frame is not None:
        cell.code, cell.lasti = frame.f_code, frame.f_lasti
    if t.turn:
        t.store()


def edge_of(t: Tensor) -> Any:
    """Where the gradient of `t` goes: its node or port, or the accumulator of a leaf."""
    e = t._edge
    if e is None:
        e = t._edge = AccumulateGrad(t)
    return e


def expose(t: Tensor) -> None:
    """Note that another library may now write to the storage of `t`: its content is
    fingerprinted, so that a write that no version counter sees is still found (F23)."""
    if not isinstance(t.array, np.ndarray) or t._cell is INFERENCE_CELL:
        return
    cell = share_cell(t)
    cell.exposed = cell.touched = True
    if cell.print is None or cell.print[0] != cell.version:
        cell.print = (cell.version, fingerprint(owner_of(t.array)))


def owner_of(array: Any) -> Any:
    """The array that owns the memory which `array` shows."""
    while array.base is not None:
        # as_strided puts an object of its own between a view and what it shows
        below = array.base if isinstance(array.base, np.ndarray) else getattr(array.base, "base",
                                                                              None)
        if not isinstance(below, np.ndarray):
            break
        array = below
    return array


def fingerprint(array: Any) -> Any:
    """What changes when the content does: the bytes of few, else two strided sums over the raw
    words."""
    if type(array) is MetaArray:
        return call(fingerprint, array, otherwise=lambda: None)
    if array.nbytes <= 1024:
        return array.tobytes()
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    flat = array.reshape(-1).view(np.uint8)
    words = flat[: flat.size // 8 * 8].view(np.uint64)
    rest = flat[flat.size // 8 * 8:]
    return (int(np.add.reduce(words)), int(np.add.reduce(words[::2])), rest.tobytes())


def keep(t: Any, op_name: str = "") -> Any:
    """What a node stores of an operand that `op_name` saves: the tensor itself while nothing
    else shows its storage, else with its version and, for exposed storage, its fingerprint."""
    cell = t._cell if isinstance(t, Tensor) else None
    if isinstance(t, Tensor) and t.level >= 1:    # in-place ops may make `t` show another value
        twin = t.trace.strip(t)
        twin._rg, twin._edge = t._rg, t._edge
        return twin
    if cell is None:
        return t
    if cell is INFERENCE_CELL:
        raise AutogradError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
            "inference mode in computation tracked by autograd. To work around this, you can make "
            "a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` "
            "instead of `torch.inference_mode()`.\n"
            f"  {op_name} at {provenance.here(sys._getframe(1))}")
    return Kept(t, cell.version, fingerprint(t.array) if cell.exposed else None)


def check_grad_shape(t: Tensor, grad: Any) -> None:
    """Raise where `grad` cannot be the gradient of `t`."""
    e = t._edge
    typed = e.typed if type(e) is AccumulateGrad else ""
    want = e.dtype if typed else t.array.dtype
    if grad.array.dtype != want and typed != "any":
        raise AutogradError(
            f"attempting to assign a gradient with dtype '{cpp_type(grad.array.dtype)}' to a tensor"
            f" with grad_dtype '{scalar_type(want)}'. The gradient must match the tensor's "
            "grad_dtype (defaults to the tensor's dtype). You can set the tensor's grad_dtype "
            "attribute with a specific dtype, or None to allow any dtype. Set grad_dtype with "
            "caution. Diverging the dtypes of a tensor and its gradient may break downstream "
            "systems that assume they match.")
    if tuple(grad.array.shape) != tuple(t.array.shape):
        raise ShapeError(
            f"attempting to assign a gradient of size '{list(grad.array.shape)}' to a tensor of "
            f"size '{list(t.array.shape)}'. Please ensure that the gradient and the tensor are the "
            "same size")
    if type(grad.array) is not type(t.array) and grad.device != t.device:
        raise AutogradError(f"attempting to assign a gradient with device type '{grad.device}' to "
                            f"a tensor with device type '{t.device}'. Please ensure that the "
                            "gradient and the tensor are on the same device")
