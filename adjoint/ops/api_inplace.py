"""Sums with a factor and their in-place forms; in-place forms of functions that change a tensor's
shape, and of products.

The factor of a sum is a keyword. Programs of some age give it by position, before the operand that
it belongs to: `m.mul_(beta).add_(1 - beta, grad)`. What is called with more positions than it names
hands them to `older`.
"""
from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray, contiguous_strides, same_places
from adjoint.base.dtypes import F32, is_of, number_for, result_type
from adjoint.base.errors import (
    ArgumentError,
    AutogradError,
    DTypeError,
    NotSupported,
    ShapeError,
    StructureError,
)
from adjoint.core.bind import record
from adjoint.core.inplace import (
    check_writable,
    inplace,
    move_history,
    places,
    refuse_rewriting,
    reshape_level,
    shadow_edge,
)
from adjoint.core.modes import GRAD, INFERENCE, state
from adjoint.core.op import Op
from adjoint.core.tensor import Tensor, alias, bump, edge_of, named, share_cell, wrap
from adjoint.ops import pointwise as p
from adjoint.ops.api_common import box, need_tensors, numel, older, raw
from adjoint.ops.api_index import setitem
from adjoint.ops.api_pointwise import dtype_of
from adjoint.ops.public import FUNCTIONS, METHODS, operands, public, write_out
from adjoint.ops.shape import clone_op


# ------------------------------------------------------------------ sums with a factor
def _whole(alpha: Any, *xs: Any) -> Any:
    """A factor of integers is none with a fraction, and that of booleans alone is a boolean."""
    if type(alpha) is bool and not all(dtype_of(x).kind == "b" for x in xs):
        raise ArgumentError("Boolean alpha only supported for Boolean results.")
    if type(alpha) is float and all(dtype_of(x).kind in "biu" for x in xs):
        raise ArgumentError("For integral input tensors, argument alpha must not be a floating "
                            f"point number, got {alpha}")
    if type(alpha) is complex and not any(dtype_of(x).kind == "c" for x in xs):
        raise ArgumentError("For non-complex input tensors, argument alpha must not be a complex "
                            f"number, got {alpha}")
    return bool(alpha) if all(dtype_of(x).kind == "b" for x in xs) else alpha


@public(quick=True)
def add(input: Any = None, other: Any = None, *more: Any, alpha: Any = 1, out: Any = None,
        **named: Any) -> Any:
    """input + alpha * other, elementwise, with broadcasting.

    >>> import adjoint as ad
    >>> ad.add(ad.tensor([1.0, 2.0]), ad.tensor([1.0, 1.0]), alpha=10)
    tensor([11., 12.])
    """
    if named:
        return add(*operands("add", (input, other), named), alpha=alpha, out=out)
    if more:
        return older(add, ("alpha",), input, other, *more, out=out)
    result = p.add(input, other) if alpha == 1 else p.add_scaled(
        input, other, alpha=_whole(alpha, input, other))
    return result if out is None else write_out(out, result, input, other)


@public(aliases=("subtract",), quick=True)
def sub(input: Any = None, other: Any = None, *more: Any, alpha: Any = 1, out: Any = None,
        **named: Any) -> Any:
    """input - alpha * other, elementwise, with broadcasting."""
    if named:
        return sub(*operands("sub", (input, other), named), alpha=alpha, out=out)
    if more:
        return older(sub, ("alpha",), input, other, *more, out=out)
    if alpha == 1 or all(dtype_of(x).kind == "b" for x in (input, other)):   # which sub refuses
        result = p.sub(input, other)
    else:
        result = p.sub_scaled(input, other, alpha=_whole(alpha, input, other))
    return result if out is None else write_out(out, result, input, other)


@public(quick=True)
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """other - alpha * input, elementwise."""
    need_tensors("rsub", input)
    return sub(other, input, alpha=alpha)


@public(function=False, aliases=("subtract_",), name="sub_", quick=True)
def sub_(self: Tensor, other: Any, *more: Any, alpha: Any = 1) -> Any:
    """self -= alpha * other."""
    if more:
        return older(sub_, ("alpha",), self, other, *more)
    if alpha == 1:
        return inplace(p.sub.op, self, (other,), name="sub_")
    return inplace(p.sub_scaled.op, self, (other,), {"alpha": alpha}, name="sub_")


@public(function=False, name="add_", quick=True)
def add_(self: Tensor, other: Any, *more: Any, alpha: Any = 1) -> Any:
    """self += alpha * other."""
    if more:
        return older(add_, ("alpha",), self, other, *more)
    if alpha == 1:
        return inplace(p.add.op, self, (other,), name="add_")
    return inplace(p.add_scaled.op, self, (other,), {"alpha": _whole(alpha, self, other)},
                   name="add_")


def _factors(name: str, tensor1: Any, tensor2: Any) -> None:
    """Refuse what is no tensor: a number would be the older form's `value`."""
    for i, t in enumerate((tensor1, tensor2)):
        if t is None or isinstance(t, (bool, int, float, complex, str, list, tuple)):
            position = i + 1 + (name[-1] != "_")
            raise DTypeError(f"{name}(): argument 'tensor{i + 1}' (position {position}) must be "
                             f"Tensor, not {type(t).__name__}")


def _no_integers(name: str, tensor1: Any, tensor2: Any) -> None:
    _factors(name, tensor1, tensor2)
    if all([isinstance(t, Tensor) and t.array.dtype.kind in "biu" for t in (tensor1, tensor2)]):
        raise DTypeError(p.NO_INTEGER_DIVISION)


def _value(name: str, value: Any, *operands: Any) -> Any:
    """The factor, in the range of what the operands are computed in: whole for integers."""
    kind = dtype_of(operands[0])
    if type(value) is int or type(value) is float and kind.kind == "f":
        return value
    kind = result_type([raw(x) for x in operands]) if kind.kind != "c" else kind
    return number_for(name, "value", 4, value, F32 if is_of(kind, "h") else kind)


def _with_value(name: str, f: Callable[..., Any], formula: str, check: Any) -> None:
    record = f.op  # type: ignore[attr-defined]  # op functions carry their record
    label = name + "_"

    def function(input: Any, tensor1: Any, tensor2: Any, *more: Any, value: Any = 1,
                 out: Any = None) -> Any:
        if more:
            return older(function, ("value",), input, tensor1, tensor2, *more, out=out)
        check(name, tensor1, tensor2)
        value = _value(name, value, input, tensor1, tensor2)
        result = f(input, tensor1, tensor2, value=value)
        return result if out is None else write_out(out, result, input, tensor1, tensor2)

    def method(self: Tensor, tensor1: Any, tensor2: Any, *more: Any, value: Any = 1) -> Any:
        if more:
            return older(method, ("value",), self, tensor1, tensor2, *more)
        check(label, tensor1, tensor2)
        value = _value(label, value, self, tensor1, tensor2)
        return inplace(record, self, (tensor1, tensor2), {"value": value}, name=label)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{formula}, elementwise."
    method.__name__ = method.__qualname__ = label
    method.__doc__ = f"In-place form of `{name}`."
    public(name, quick=True)(function)
    METHODS[label] = method


_with_value("addcmul", p.addcmul_op, "input + value * tensor1 * tensor2", _factors)
_with_value("addcdiv", p.addcdiv_op, "input + value * tensor1 / tensor2", _no_integers)


# ------------------------------------------------------------------ shapes
def _step_aside(self: Any, kids: list[Any]) -> None:
    """Another object for the same value becomes the root of the views; `self` is one of them."""
    root: Any = wrap(self.array)
    root._cell, root._kids = share_cell(self), [*self._kids, weakref.ref(self)]
    root._rg, root._edge = self._rg, self._edge
    for kid in kids:
        kid._base = root
    self._base, self._steps, self._kids = root, (), None


_RENAMED = {"unsqueeze_": "UnsqueezeBackward1", "t_": "TBackward1",
            "as_strided_": "AsStridedBackward1", "transpose_": "TransposeBackward1",
            "swapaxes_": "TransposeBackward1", "swapdims_": "TransposeBackward1"}


def _squeezed(*dims: Any) -> str:
    """What PyTorch calls the node of `squeeze_`: by what it was given."""
    kind = 3 if not dims else 4 if isinstance(dims[0], int) else 5
    return f"SqueezeBackward{kind}"


def reshaped(self: Any, name: str, view: Any, *args: Any) -> Any:
    """`self` becomes what `view(self)` is: the same memory, another shape, a longer history."""
    base = self._base
    if state() & GRAD and (self._rg or base is not None and base._rg):
        refuse_rewriting(self)
    kids = [kid for ref in self._kids or () if (kid := ref()) is not None]
    if kids and (self.level or self._rg and self.is_leaf):
        raise NotSupported(f"{name}: the tensor has views, whose history refers to its shape; use "
                           f"{name.rstrip('_')} and keep the result")
    if kids:
        _step_aside(self, kids)
    if self.level:
        reshape_level(self, lambda t: view(t, *args))
        return self
    stand_in = wrap(self.array)
    if self._rg:
        stand_in._rg, stand_in._edge = True, edge_of(self)
    made = view(stand_in, *args)
    if self._base is not None:
        self._steps = (*self._steps, *made._steps)
    if self.turn:
        self.moved(places(self.shown, made._steps))
    else:
        self.array = made.array
    if made._edge is not None:
        move_history(self, named(made, _RENAMED.get(name) or _squeezed(
            *args, *getattr(view, "keywords", {}).values()))._edge)
    elif self._rg and self.is_leaf:             # under no_grad it stays the leaf that it was
        edge_of(self).shape = self.array.shape
    bump(self, name)
    return self


def _declare_shapes() -> None:
    def declare(name: str) -> None:
        def f(self: Any, *args: Any, **kwargs: Any) -> Any:
            return reshaped(self, name + "_", functools.partial(FUNCTIONS[name], **kwargs), *args)
        f.__name__ = f.__qualname__ = name + "_"
        f.__doc__ = f"In-place `{name}`: the tensor itself takes the new shape."
        public(name + "_", function=False, quick=True)(f)
    for name in ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims"):
        declare(name)


_declare_shapes()


@public("as_strided_", function=False)
def as_strided_(self: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    """The tensor itself takes other sizes and steps over its memory."""
    return reshaped(self, "as_strided_", FUNCTIONS["as_strided"], size, stride, storage_offset)


def _declare_values() -> None:
    """In-place forms that compute out of place and copy: they are rarely the hot path."""
    def declare(name: str) -> None:
        def f(self: Any, *args: Any, **kwargs: Any) -> Any:
            before = clone_op(self)             # what the rules read must not be overwritten
            setitem(self, Ellipsis, FUNCTIONS[name](before, *args, **kwargs))
            return self
        f.__name__ = f.__qualname__ = name + "_"
        f.__doc__ = f"In-place `{name}`."
        public(name + "_", function=False)(f)
    for name in ("addbmm", "addmv", "addr", "index_reduce", "renorm"):
        declare(name)


_declare_values()


@public("fill_diagonal_", function=False)
def fill_diagonal_(self: Any, fill_value: Any, wrap: bool = False) -> Any:
    """One value on the main diagonal, in place; with `wrap` it starts again below the last column.
    """
    import numpy as np

    from adjoint.ops.index import index_put_op
    shape = tuple(self.shape)
    if len(shape) < 2:
        raise ShapeError("dimensions must larger than 1")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise ShapeError("all dimensions of input must be of equal length")
    if len(shape) == 2 and not (wrap and shape[0] > shape[1]):
        FUNCTIONS["diagonal"](self).fill_(fill_value)
        return self
    step = sum(math.prod(shape[d + 1:]) for d in range(len(shape)))
    count = min(shape)
    if wrap and len(shape) == 2 and shape[0] > shape[1]:
        count = -(-shape[0] * shape[1] // step)
    at = np.arange(count) * step
    if raw(self).flags.c_contiguous:
        flat = FUNCTIONS["as_strided"](self, (math.prod(shape),), (1,))
        inplace(index_put_op.op, flat, (at, fill_value), {"dims": (0,), "accumulate": False},
                name="fill_diagonal_")
        return self
    where = tuple(box(self, i) for i in np.unravel_index(at, shape))
    setitem(self, where, fill_value)
    return self


@public("resize_", function=False)
def resize_(self: Any, *sizes: Any, memory_format: Any = None) -> Any:
    """Another shape in place, over the same memory in its order. Where that is too small it grows,
    with 0 in what is new, and moves, with all tensors that show it."""
    shape = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if self.requires_grad:
        raise ArgumentError("cannot resize variables that require grad")
    if min(shape, default=0) < 0:
        raise ArgumentError(f"resize_: no size may be negative, got {list(shape)}")
    n, old = math.prod(shape), self.array
    if old.shape == shape:                      # it stays where it lies, and is no new version
        return self
    if type(old) is not np.ndarray:
        self.array = type(old)(shape, old.dtype)
        bump(self, "resize_")
        return self
    if n <= old.size and old.flags.c_contiguous:
        flat = functools.partial(FUNCTIONS["as_strided"], size=(n,), stride=(1,))
        return reshaped(self, "resize_", lambda t: flat(t).view(shape))
    start = self.storage_offset() * old.itemsize
    held = self.untyped_storage()._bytes()[start:]
    if n * old.itemsize > held.size:
        self.untyped_storage().resize_(start + n * old.itemsize)
        held = self.untyped_storage()._bytes()[start:]
    kids = [kid for ref in self._kids or () if (kid := ref()) is not None]
    if kids:
        _step_aside(self, kids)
    self._base, self._steps = None, ()
    self.array = held[:n * old.itemsize].view(old.dtype).reshape(shape)
    bump(self, "resize_")
    return self


@public("resize_as_", function=False)
def resize_as_(self: Any, other: Any) -> Any:
    """`resize_` to another tensor's shape."""
    return resize_(self, tuple(other.shape))


# ------------------------------------------------------------------ other memory
@public("set_", function=False)
def set_(self: Any, source: Any = None, storage_offset: int = 0, size: Any = None,
         stride: Any = None) -> Any:
    """The tensor shows the memory of `source` from now on: all of a tensor or a storage, or `size`
    elements of it from `storage_offset` on, `stride` apart (as in C order unless given).

    >>> import adjoint as ad
    >>> ad.empty(0).set_(ad.arange(6.0).untyped_storage(), 1, (2, 2)).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    if type(self.array) not in (np.ndarray, MetaArray):
        return _outlined(self, source, storage_offset, size, stride)
    if source is None:
        shown = FUNCTIONS["empty"](0, dtype=self.dtype)
    elif isinstance(source, Tensor) and size is None:
        shown = alias(source)
    else:
        shown = _placed(self, source, storage_offset, size, stride)
    if shown.dtype != self.dtype:
        raise DTypeError(f"Could not set tensor of type {shown.dtype} to a tensor of type "
                         f"{self.dtype}")
    before = None
    if self.is_inference() and not state() & INFERENCE:
        check_writable(self, (self,), state())
    if self.requires_grad and state() & GRAD:
        refuse_rewriting(self)
        before = shadow_edge(self)
    self.data = shown
    if before is not None:
        made = record(_set, _set.plan(1), (before,), {}, (self.array,), state())
        move_history(self, made._edge)
    return self


def _outlined(self: Any, source: Any, offset: int, size: Any, stride: Any) -> Any:
    """`set_` of a wrapper, which has an outline and no memory."""
    if size is None:
        size, stride, offset = source.shape, source.stride(), source.storage_offset()
    wide, old = self.array.dtype.itemsize, self.array
    steps = contiguous_strides(tuple(size), wide) if stride is None else [n * wide for n in stride]
    self.array = type(old)(tuple(size), old.dtype, None, tuple(steps), offset * wide)
    bump(self, "set_")
    return self


def _no_rule(ct: Any) -> Any:
    raise AutogradError("derivative for set_ is not implemented")


_set = Op("set_", impl=lambda x, /: x, infer=lambda x: x, vjp={"x": _no_rule},
          node="NotImplemented")        # (no op of its own: it has no value to give)


def _placed(self: Any, source: Any, offset: int, size: Any, stride: Any) -> Any:
    """Part of the memory of `source`, a tensor or a storage, as elements of the dtype of `self`."""
    flat = source.untyped_storage() if isinstance(source, Tensor) else source
    kind = (source if isinstance(source, Tensor) else self).array.dtype
    if size is not None and not isinstance(size, int) and offset >= 0 and math.prod(size):
        steps = stride or [math.prod(size[k + 1:]) for k in range(len(size))]
        last = offset + sum([(n - 1) * s for n, s in zip(size, steps, strict=False)])
        if (last + 1) * kind.itemsize > flat.nbytes():
            flat.resize_((last + 1) * kind.itemsize)
    octets = flat._bytes()
    held = wrap(octets[:octets.size - octets.size % kind.itemsize].view(kind))
    if offset < 0:
        raise ShapeError(f"Tensor: invalid storage offset {offset}")
    if size is None:
        size = (numel(held) - offset,)
    if isinstance(size, int):
        raise StructureError("set_(): argument 'size' must be tuple of ints, not int")
    if stride is None:
        stride = [math.prod(size[k + 1:]) for k in range(len(size))]
    return FUNCTIONS["as_strided"](held, tuple(size), tuple(stride), offset)


@public("is_set_to", function=False)
def is_set_to(self: Any, tensor: Any) -> bool:
    """True if both show the same memory in the same way."""
    return same_places(raw(self), raw(tensor))


@public("module_load", function=False)
def module_load(input: Any, other: Any, assign: bool = False) -> Any:
    """What `Module.load_state_dict` exchanges `input`, a parameter or buffer, with, when
    `__future__.set_swap_module_params_on_conversion(True)` holds: `input.copy_(other).detach()`, or
    `other.detach()` with `assign`. A class of tensors may do otherwise; the result has to be a new
    object.

    >>> import adjoint as ad
    >>> ad.zeros(2).module_load(ad.ones(2)).tolist()
    [1.0, 1.0]
    """
    return other.detach() if assign else input.copy_(other).detach()
