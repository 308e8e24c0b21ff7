"""`autograd.Function`: operations whose forward and backward the user writes.

The context object is the node itself: what `forward` stores on `ctx` lives exactly as long as the
graph does, and `output.grad_fn` shows it.
"""
from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.autograd.engine import tensor_of
from adjoint.autograd.fit import fit, fit_tensor
from adjoint.base import provenance
from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import AutogradError, NotSupported, ShapeError
from adjoint.core import bind as dispatch
from adjoint.core import modes
from adjoint.core.inplace import rebase
from adjoint.core.modes import GRAD, WATCH, state
from adjoint.core.tensor import (
    Cell,
    Node,
    OutRef,
    Port,
    Tensor,
    alias,
    bump,
    edge_of,
    next_sequence,
    saved_version,
    share_cell,
    wrap,
)


class FunctionCtx(Node):
    """The context of one call: `save_for_backward`, `mark_*`, `needs_input_grad`, user attributes.
    """

    __slots__ = ("_to_save", "_dirty", "_nondiff", "_materialize", "needs_input_grad", "_inputs",
                 "_shapes", "_for_forward")
    function: Any = None
    op: Any = None

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for backward; versions are checked when they are read."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError("save_for_backward can only save variables, but argument "
                                f"{tensors.index(t)} is of type {type(t).__name__}")
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors for a `jvp` staticmethod."""
        self._for_forward = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs forward has written to; they must be returned."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs carry no gradient."""
        self._nondiff = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """False: outputs that got no gradient give None to backward, not zeros."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept."""
        if self.saved is None:
            if getattr(self, "_to_save", None) and self.freed is None:
                return self._to_save  # still inside of forward
            if self.freed is not None:
                from adjoint.autograd.engine import freed_message
                raise AutogradError(freed_message(self))
            return ()
        versions = self.versions or (0,) * len(self.saved)
        return tuple(tensor_of(s, v, self) for s, v in zip(self.saved, versions, strict=True))

    saved_variables = saved_tensors

    def apply(self, walk: Any, ct: Any) -> list[Any]:
        """Run the user's backward (called by the engine)."""
        if self.saved is None and self.freed is not None:
            from adjoint.autograd.engine import freed_message
            raise AutogradError(freed_message(self))
        given = ct if self.ports else [ct]
        grads = [self._incoming(walk, c, i) for i, c in enumerate(given)]
        results = self.function._pull(self, *grads)
        results = results if isinstance(results, tuple) else (results,)
        return self._checked(walk, list(results))

    def _incoming(self, walk: Any, ct: Any, i: int) -> Any:
        if ct is not None:
            return walk.boxed(ct)
        shape, dtype = self._shapes[i]
        if not self._materialize or shape is None:
            return None
        return wrap(np.zeros(shape, dtype))

    def _checked(self, walk: Any, results: list[Any]) -> list[Any]:
        n = len(self.edges)
        if len(results) > n and all(r is None for r in results[n:]):
            results = results[:n]
        if len(results) != n:
            raise AutogradError(f"function {self.name()} returned an incorrect number of gradients "
                                f"(expected {n}, got {len(results)})")
        out: list[Any] = []
        for i, (r, e) in enumerate(zip(results, self.edges, strict=True)):
            if r is None or e is None:
                out.append(None)
                continue
            if not isinstance(r, Tensor):
                raise TypeError(f"function {self.name()} returned a gradient of type "
                                f"{type(r).__name__} at index {i}, expected a Tensor or None")
            try:
                out.append(fit_tensor(r, e) if walk.create else fit(walk.unboxed(r), e))
            except ShapeError:
                raise ShapeError(
                    f"Function {self.name()} returned an invalid gradient at index {i} - got "
                    f"{list(r.shape)} but expected shape compatible with "
                    f"{list(e.shape)}\n  made at {self.where()}") from None
        return out


class _FunctionMeta(type):
    """Gives every Function its node class, named `<Name>Backward`."""

    node_type: type[FunctionCtx]

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> None:
        super().__init__(name, bases, body)
        cls.node_type = type(f"{name}Backward", (FunctionCtx,), {"__slots__": (), "function": cls})


class Function(metaclass=_FunctionMeta):
    """Base of user-defined differentiable functions; subclass it and call `apply`.

    >>> import adjoint as ad
    >>> class Cube(ad.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x ** 3
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return 3 * x ** 2 * g
    >>> x = ad.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward(); x.grad
    tensor(12.)
    """

    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise AutogradError(f"{type(self).__name__} should not be instantiated. Methods on autograd"
                            " functions are all static, so you should invoke them on the class "
                            "itself: call .apply()")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The computation: `forward(ctx, *args)`, or `forward(*args)` with `setup_context`."""
        raise NotSupported("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save for backward, apart from forward."""
        raise NotSupported("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Cotangents of the outputs -> cotangents of the inputs, one per argument of forward."""
        raise NotSupported("You must implement either the backward or vjp method for your custom "
                           "autograd.Function to use it with backward mode AD.")

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Tangents of the inputs -> tangents of the outputs."""
        raise NotSupported("You must implement the jvp function for custom autograd.Function to use"
                           " it with forward mode AD.")

    @classmethod
    def _pull(cls, ctx: Any, *grads: Any) -> Any:
        if cls.backward is not Function.backward:
            return cls.backward(ctx, *grads)
        return cls.vjp(ctx, *grads)

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward on tensors and record a node that will run backward."""
        separate = cls.setup_context is not Function.setup_context
        if kwargs:
            args = _positional(cls.forward, args, kwargs, 0 if separate else 1)
        level = max((a.level for a in args if isinstance(a, Tensor)), default=0)
        if level:
            top = next(a for a in args if isinstance(a, Tensor) and a.level == level)
            return top.trace.custom(cls, args)  # type: ignore[attr-defined]  # func.Trace
        return _apply(cls, args, separate)


def _positional(forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
                skip: int) -> tuple[Any, ...]:
    """Keyword arguments put in the order of forward's parameters."""
    bound = inspect.signature(forward).bind(*(None,) * skip, *args, **kwargs)
    bound.apply_defaults()
    return tuple(bound.args[skip:])


def _apply(cls: Any, args: tuple[Any, ...], separate: bool) -> Any:
    ctx: Any = object.__new__(cls.node_type)
    ctx._to_save, ctx._dirty, ctx._nondiff = (), (), ()
    ctx._materialize, ctx._for_forward = True, ()
    ctx.saved = ctx.versions = ctx.plan = None
    ctx.attrs = {}
    frame = provenance.user_frame(sys._getframe(2))
    ctx.code, ctx.lasti = (frame.f_code, frame.f_lasti) if frame else (None, 0)
    mode = state()
    wants = tuple(isinstance(a, Tensor) and a._rg for a in args)
    ctx.needs_input_grad = wants
    recording = bool(mode & GRAD) and any(wants)
    if not recording:
        ctx.needs_input_grad = wants if mode & GRAD else wants
    ctx.edges = tuple(edge_of(a) if w else None for a, w in zip(args, wants, strict=True))
    ctx.seq = next_sequence()
    token = modes.change(clear_bits=GRAD)
    try:
        output = cls.forward(*args) if separate else cls.forward(ctx, *args)
        if separate:
            cls.setup_context(ctx, args, output)
    finally:
        modes.restore(token, mode)
    return _finish(cls, ctx, args, output, recording, mode)


def _finish(cls: Any, ctx: Any, args: tuple[Any, ...], output: Any, recording: bool,
            mode: int) -> Any:
    many = isinstance(output, (tuple, list))
    outs = list(output) if many else [output]
    inputs = {id(a): a for a in args if isinstance(a, Tensor)}
    dirty = {id(t) for t in ctx._dirty}
    for t in ctx._dirty:
        if id(t) not in {id(o) for o in outs}:
            raise AutogradError("A tensor that was marked dirty (mark_dirty) in "
                                f"{cls.__name__}.forward must be returned by it")
        bump(t, f"{cls.__name__}.forward")
        if recording and t._rg and t.is_leaf and t._base is None:
            raise AutogradError("a leaf Variable that requires grad is being used in an in-place "
                                f"operation. ({cls.__name__}.forward marks it dirty)")
    ctx.ports = len(outs) if many else 0
    if not many and not isinstance(output, Tensor):
        return output
    ctx._shapes = [(o.array.shape, o.array.dtype) if isinstance(o, Tensor) else (None, None)
                   for o in outs]
    ctx.shape, ctx.dtype = ((tuple(s for s, _ in ctx._shapes), tuple(d for _, d in ctx._shapes))
                            if many else ctx._shapes[0])
    original = list(outs)
    for i, o in enumerate(outs):
        if isinstance(o, Tensor):
            outs[i] = _output(ctx, o, i, id(o) in inputs, id(o) in dirty, recording)
    if recording:
        _keep(ctx, args, original, outs)
        if mode & WATCH:
            dispatch.watch(ctx, args, [o for o in outs if isinstance(o, Tensor)])
    return type(output)(outs) if many and type(output) in (tuple, list) else (
        tuple(outs) if many else outs[0])


def _output(ctx: Any, o: Any, i: int, is_input: bool, is_dirty: bool, recording: bool) -> Any:
    nondiff = any(o is t for t in ctx._nondiff) or not is_inexact(o.array.dtype)
    if is_input and not is_dirty:
        o = alias(o)                    # an input returned as it is becomes a view of itself
    if not recording or nondiff:
        if nondiff and not is_input:
            o._edge, o._rg = None, False
        return o
    edge = Port(ctx, i, o.array.shape, o.array.dtype) if ctx.ports else ctx
    if is_dirty and is_input:
        made = wrap(o.array)
        made._edge, made._rg = edge, True
        rebase(o, made)
        return o
    if o._base is not None or o._edge is not None:
        o = alias(o)
    o._edge, o._rg = edge, True
    return o


def _keep(ctx: Any, args: tuple[Any, ...], original: list[Any], outs: list[Any]) -> None:
    """Turn `save_for_backward`'s tensors into residuals: outputs without the node they own."""
    saved: list[Any] = []
    versions: list[Any] = []
    for t in ctx._to_save:
        index = next((i for i, (o, r) in enumerate(zip(original, outs, strict=True))
                      if (o is t or r is t) and isinstance(r, Tensor)
                      and not any(a is t for a in args)), None)
        dirty = next((i for i, o in enumerate(original) if o is t
                      and any(t is d for d in ctx._dirty)), None)
        index = index if dirty is None else dirty
        if t is None:
            saved.append(None)
            versions.append(0)
        elif index is not None and outs[index]._rg:
            cell: Cell = share_cell(outs[index])
            saved.append(OutRef(t.array, cell, index))
            versions.append(cell.version)
        else:
            saved.append(t)
            versions.append(saved_version(t))
    ctx._to_save = ()
    if saved:
        ctx.saved, ctx.versions = tuple(saved), tuple(versions)
    elif ctx.saved is None:
        ctx.saved = ()


class _Refuse(Node):
    """A node that explains why it cannot be run."""

    __slots__ = ("text",)

    def apply(self, walk: Any, ct: Any) -> list[Any]:
        raise AutogradError(self.text)


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of `backward`: it runs without recording, and a second derivative through it
    raises instead of being silently wrong."""
    @functools.wraps(backward)
    def wrapped(ctx: Any, *grads: Any) -> Any:
        recording = bool(state() & GRAD)
        token, outer = modes.change(clear_bits=GRAD), state()
        try:
            results = backward(ctx, *grads)
        finally:
            modes.restore(token, outer | (GRAD if recording else 0))
        if not recording:
            return results
        wants = [g for g in grads if isinstance(g, Tensor) and g._rg]
        saved = any(isinstance(t, Tensor) and t._rg for t in ctx.saved_tensors)
        if not wants and not saved:
            return results
        many = results if isinstance(results, tuple) else (results,)
        return tuple(_refusing(r, ctx) if isinstance(r, Tensor) else r for r in many)
    return wrapped


def _refusing(t: Tensor, ctx: Any) -> Tensor:
    node: Any = object.__new__(_Refuse)
    node.plan = node.saved = node.versions = None
    node.edges, node.attrs = (), {}
    node.shape, node.dtype = t.array.shape, t.array.dtype
    node.seq, node.code, node.lasti = next_sequence(), ctx.code, ctx.lasti
    node.text = ("trying to differentiate twice a function that was marked with "
                 f"@once_differentiable ({ctx.name()}, made at {ctx.where()})")
    out = alias(t)
    out._edge, out._rg = node, True
    return out


def is_meta(t: Any) -> bool:
    """True for storage-less tensors."""
    return isinstance(t, Tensor) and type(t.array) is MetaArray
