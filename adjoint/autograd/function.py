"""`autograd.Function`: operations whose forward and backward the user writes.

The node owns the context: what `forward` stores on `ctx` lives exactly as long as the graph does,
and `output.grad_fn` shows it.
"""
from __future__ import annotations

import contextvars
import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from adjoint.autograd.fit import fit, fit_tensor
from adjoint.autograd.graph import freed_message
from adjoint.autograd.late import leaf_dtypes
from adjoint.base import provenance
from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import AutogradError, DTypeError, NotSupported, ShapeError
from adjoint.core import bind as dispatch
from adjoint.core import modes
from adjoint.core.bind import tensor_of
from adjoint.core.inplace import rebase, refuse_rewriting
from adjoint.core.modes import GRAD, WATCH, as_pytorch, state, warn
from adjoint.core.tensor import (
    Cell,
    Port,
    Tensor,
    WideNode,
    alias,
    bump,
    edge_of,
    keep,
    next_sequence,
    out_ref,
    share_cell,
    wrap,
)

DEEP = 20            # backward passes inside of one another that the stack of a thread bears


class _Nested(threading.local):
    """How many backwards of Functions are running in this thread."""

    depth = 0


_nested = _Nested()


def _elsewhere(walk: Any, call: Callable[[], Any]) -> Any:
    """What `call()` gives in a thread of its own, in this one's modes and inside of `walk`."""
    from adjoint.autograd import engine  # above this module: its walks run Functions
    answer: list[Any] = []
    context = contextvars.copy_context()

    def run() -> None:
        engine._current.walk = walk
        try:
            answer.append(context.run(call))
        except BaseException as error:
            answer.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(answer[0], BaseException):
        raise answer[0]
    return answer[0]


class FunctionCtx:
    """The context of one call: `save_for_backward`, `mark_*`, `needs_input_grad`, and any attribute
    that the user sets. Its node refers to it; it refers back weakly, so that no cycle arises."""

    def __init__(self) -> None:
        self._to_save: tuple[Any, ...] = ()
        self._dirty: tuple[Any, ...] = ()
        self._nondiff: tuple[Any, ...] = ()
        self._for_forward: tuple[Any, ...] = ()
        self._materialize = True
        self._node: Any = None
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for backward; versions are checked when they are read."""
        _only_tensors([t for t in tensors if t is not None], "save_for_backward can only save "
                      "variables, but argument {i} is of type {kind}")
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors for a `jvp` staticmethod."""
        self._for_forward = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs forward has written to; they must be returned."""
        _only_tensors(tensors, "mark_dirty can only accept variables, but argument {i} is of type "
                               "{kind}")
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs carry no gradient."""
        _only_tensors(tensors, "mark_non_differentiable only accepts variable arguments, but got "
                               "{kind}")
        self._nondiff = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """False: outputs that got no gradient give None to backward, not zeros."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept."""
        node = self._node() if self._node is not None else None
        return self._to_save if node is None or node.saved is None else node.saved_tensors

    to_save = property(attrgetter("_to_save"))
    dirty_tensors = property(attrgetter("_dirty"))
    non_differentiable = property(attrgetter("_nondiff"))

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The old name of `saved_tensors`."""
        warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning)
        return self.saved_tensors

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes that its gradients go to."""
        node = self._node() if self._node is not None else None
        found: tuple[tuple[Any, int], ...] = () if node is None else node.next_functions
        return found

    def name(self) -> str:
        """The node's name, as printed."""
        node = self._node() if self._node is not None else None
        return type(self).__name__ if node is None else node.name()


def _only_tensors(given: Sequence[Any], text: str) -> None:
    for i, t in enumerate(given):
        if not isinstance(t, Tensor):
            raise DTypeError(text.format(i=i, kind=type(t).__name__))


class FunctionNode(WideNode):
    """The node of a user's Function; attributes of its context are visible through it."""

    __slots__ = ("ctx", "shapes", "tensors")
    function: Any = None
    op: Any = None
    unfed = True

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """As of other nodes, of the arguments that are tensors."""
        return tuple([f for f, t in zip(super().next_functions, self.tensors, strict=True) if t])

    def __getattr__(self, name: str) -> Any:
        if name in ("ctx", "saved", "plan"):
            raise AttributeError(name)
        return getattr(self.ctx, name)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept."""
        if self.freed is not None:
            raise AutogradError(freed_message(self))
        return tuple([tensor_of(s, self) for s in self.saved or ()])

    def apply(self, walk: Any, ct: Any) -> list[Any]:
        """Run the user's backward (called by the engine)."""
        if self.freed is not None:
            raise AutogradError(freed_message(self))
        given = (ct or [None] * self.ports) if self.ports else [ct]
        grads = [self._incoming(walk, c, i) for i, c in enumerate(given)]
        results = self._run(walk, grads)
        results = results if isinstance(results, tuple) else (results,)
        return self._checked(walk, list(results))

    def _run(self, walk: Any, grads: list[Any]) -> Any:
        """The user's backward. It may call backward itself, to a depth that Python's stack has not:
        every so many of them go on in a thread of their own, which this one waits for."""
        if _nested.depth >= DEEP:
            return _elsewhere(walk, lambda: self.function._pull(self.ctx, *grads))
        _nested.depth += 1
        try:
            return self.function._pull(self.ctx, *grads)
        finally:
            _nested.depth -= 1

    def _incoming(self, walk: Any, ct: Any, i: int) -> Any:
        if ct is not None:
            return walk.boxed(ct)
        shape, dtype = self.shapes[i]
        if not self.ctx._materialize or shape is None:
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
                if r is not None and not self.tensors[i]:
                    raise AutogradError(
                        f"function {self.name()} returned a gradient different than None at "
                        f"position {i + 1}, but the corresponding forward input was not a Variable")
                out.append(None)
                continue
            if not isinstance(r, Tensor):
                raise DTypeError(f"expected Variable or None (got {type(r).__name__}) from "
                                 f"function {self.name()}, as its gradient at index {i}")
            try:
                fits = leaf_dtypes().taken if walk.typed else fit_tensor if walk.create else fit
                out.append(fits(r if walk.create else walk.unboxed(r), e))
            except ShapeError:
                raise ShapeError(
                    f"Function {self.name()} returned an invalid gradient at index {i} - got "
                    f"{list(r.shape)} but expected shape compatible with "
                    f"{list(e.shape)}\n  made at {self.where()}") from None
        return out


class _FunctionMeta(type):
    """Gives every Function its node class, named `<Name>Backward`."""

    node_type: type[FunctionNode]

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> None:
        super().__init__(name, bases, body)
        cls.node_type = type(f"{name}Backward", (FunctionNode,), {"__slots__": (), "function": cls})


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
        warn(f"{type(self)} should not be instantiated. Methods on autograd functions are all "
             "static, so you should invoke them on the class itself. Instantiating an autograd "
             "function will raise an error in a future version of PyTorch: call .apply()",
             DeprecationWarning)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AutogradError("Legacy autograd function with non-static forward method is deprecated."
                            " Please use new-style autograd function with static forward method. "
                            "(Example: https://pytorch.org/docs/stable/autograd.html#torch.autograd"
                            f".Function): call {type(self).__name__}.apply(...)")

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
            if cls.vjp is not Function.vjp:
                raise AutogradError("Implementing both 'backward' and 'vjp' for a custom Function "
                                    "is not allowed. You should only implement one of them.")
            return cls.backward(ctx, *grads)
        return cls.vjp(ctx, *grads)

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward on tensors and record a node that will run backward."""
        separate = cls.setup_context is not Function.setup_context
        if kwargs or separate and _has_defaults(cls.forward):
            args = _positional(cls.forward, args, kwargs, 0 if separate else 1)
        level = max((a.level for a in args if isinstance(a, Tensor)), default=0)
        if level >= 1:
            top = next(a for a in args if isinstance(a, Tensor) and a.level == level)
            _refuse_as_pytorch(top.trace, cls)
            return top.trace.custom(cls, args)
        return _apply(cls, args, separate)


MORE = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"


def _refuse_as_pytorch(trace: Any, cls: Any) -> None:
    """Raise where PyTorch asks for more than is needed here, for programs that run in its place:
    `setup_context`, and a word of the class that vmap may run its code."""
    if not as_pytorch[0] or getattr(trace, "dual", False):
        return
    if not has_setup(cls):
        raise AutogradError("In order to use an autograd.Function with functorch transforms (vmap, "
                            "grad, jvp, jacrev, ...), it must override the setup_context "
                            f"staticmethod. {MORE}")
    if hasattr(trace, "randomness") and not (cls.generate_vmap_rule or hasattr(cls, "vmap")):
        raise AutogradError(f"You tried to vmap over {cls.__name__}, but it does not have vmap "
                            "support. Please override and implement the vmap staticmethod or set "
                            f"generate_vmap_rule=True. {MORE}")


def run_function(cls: Any, args: tuple[Any, ...],
                 body: Callable[[tuple[Any, ...]], Any] | None = None) -> Any:
    """Record a call of `cls` on values of any level. `body(args)` computes the outputs in place of
    its forward (a transform's rule); without one, forward runs on the values as they are."""
    return _apply(cls, args, has_setup(cls), body)


def has_setup(cls: Any) -> bool:
    """True for a Function whose forward takes no ctx."""
    return cls.setup_context is not Function.setup_context


def _has_defaults(forward: Any) -> bool:
    """May forward take fewer arguments than it has? Then `setup_context` is shown all of them."""
    return bool(getattr(forward, "__defaults__", None)) or hasattr(forward, "__wrapped__")


def _positional(forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
                skip: int) -> tuple[Any, ...]:
    """Keyword arguments and defaults put in the order of forward's parameters."""
    bound = inspect.signature(forward).bind(*(None,) * skip, *args, **kwargs)
    bound.apply_defaults()
    return tuple(bound.args[skip:])


def _apply(cls: Any, args: tuple[Any, ...], separate: bool,
           body: Callable[[tuple[Any, ...]], Any] | None = None) -> Any:
    node: Any = object.__new__(cls.node_type)
    ctx = node.ctx = FunctionCtx()
    ctx._node = weakref.ref(node)
    node.saved = node.plan = None
    frame = provenance.user_frame(sys._getframe(2))
    node.code, node.lasti = (frame.f_code, frame.f_lasti) if frame else (None, 0)
    mode = state()
    node.tensors = tuple([isinstance(a, Tensor) for a in args])
    wants = tuple([t and a._rg for a, t in zip(args, node.tensors, strict=True)])
    ctx.needs_input_grad = wants
    node.edges = tuple(edge_of(a) if w else None for a, w in zip(args, wants, strict=True))
    node.seq = next_sequence()
    output = body(tuple(_twin(a) if isinstance(a, Tensor) and a.level else a for a in args)) \
        if body is not None else None
    token = modes.change(clear_bits=GRAD)
    try:
        if body is None:
            output = cls.forward(*args) if separate else cls.forward(ctx, *args)
        if separate:
            cls.setup_context(ctx, args, output)
    finally:
        modes.restore(token, mode)
    return _finish(cls, node, args, output, bool(mode & GRAD) and any(wants), mode)


def _finish(cls: Any, node: Any, args: tuple[Any, ...], output: Any, recording: bool,
            mode: int) -> Any:
    ctx = node.ctx
    many = isinstance(output, tuple)     # (a list is no tensor: it is handed back as it is)
    outs = list(output) if many else [output]
    inputs = {id(a): a for a in args if isinstance(a, Tensor)}
    dirty = {id(t) for t in ctx._dirty}
    for t in ctx._dirty:
        if id(t) not in {id(o) for o in outs}:
            raise AutogradError("Some elements marked as dirty during the forward method were not "
                                "returned as output. The inputs that are modified inplace must all "
                                f"be outputs of the Function (mark_dirty in {cls.__name__})")
        bump(t, f"{cls.__name__}.forward")
        if recording and t._rg and t.is_leaf and t._base is None:
            raise AutogradError("a leaf Variable that requires grad has been used in an in-place "
                                f"operation. ({cls.__name__}.forward marks it dirty)")
        if recording:
            refuse_rewriting(t)
        if id(t) not in inputs:
            warn("ctx.mark_dirty() received a tensor that was not an input. Only input Tensors "
                 "that have been mutated should be passed to ctx.mark_dirty().")
    node.ports = len(outs) if many else 0
    if not many and not isinstance(output, Tensor):
        return output
    node.shapes = [(o.array.shape, o.array.dtype) if isinstance(o, Tensor) else (None, None)
                   for o in outs]
    node.shape, node.dtype = ((tuple(s for s, _ in node.shapes),
                               tuple(d for _, d in node.shapes)) if many else node.shapes[0])
    original = list(outs)
    for i, o in enumerate(outs):
        if isinstance(o, Tensor):
            outs[i] = _output(node, o, i, id(o) in inputs, id(o) in dirty, recording)
    if recording:
        _keep(node, args, original, outs)
        if mode & WATCH:
            dispatch.watch(node, args, [o for o in outs if isinstance(o, Tensor)])
    return tuple(outs) if many else outs[0]


def _output(node: Any, o: Any, i: int, is_input: bool, is_dirty: bool, recording: bool) -> Any:
    nondiff = any(o is t for t in node.ctx._nondiff) or not is_inexact(o.array.dtype)
    if is_input and not is_dirty:
        o = _view_of(o, o, "function") if recording else _twin(o)     # no second name of an input
    if not recording or nondiff:
        if nondiff and not is_input:
            o._edge, o._rg = None, False
        return o
    edge = Port(node, i, o.array.shape, o.array.dtype) if node.ports else node
    if is_dirty and is_input:
        made = wrap(o.array)
        made._edge, made._rg = edge, True
        rebase(o, made)
        return o
    if o._base is not None:
        o = _view_of(o, o._base, "multi" if node.ports > 1 else "function")
    elif o._edge is not None:
        o = _twin(o)
    o._edge, o._rg = edge, True
    return o


def _view_of(t: Any, base: Any, creation: str) -> Any:
    """A twin of `t` that counts as a view made by a custom Function: not to be written to."""
    twin = _twin(t)
    if not t.level:
        twin._base = root = base if base._base is None else base._base
        twin._creation = creation
        root._kids = [*(root._kids or ()), weakref.ref(twin)]
    return twin


def _twin(t: Any) -> Any:
    """A second object for a value, without its place in the tape."""
    return t.trace.strip(t) if t.level else alias(t)


def _keep(node: Any, args: tuple[Any, ...], original: list[Any], outs: list[Any]) -> None:
    """Turn `save_for_backward`'s tensors into residuals: outputs without the node they own."""
    saved: list[Any] = []
    ctx = node.ctx
    for t in ctx._to_save:
        index = next((i for i, (o, r) in enumerate(zip(original, outs, strict=True))
                      if (o is t or r is t) and isinstance(r, Tensor)
                      and not any(a is t for a in args)), None)
        dirty = next((i for i, o in enumerate(original) if o is t
                      and any(t is d for d in ctx._dirty)), None)
        index = index if dirty is None else dirty
        if t is None:
            saved.append(None)
        elif index is not None and outs[index]._rg:
            out = outs[index]
            cell: Cell = share_cell(out)
            saved.append(out_ref(_twin(out) if out.level else t.array, cell, index, cell.version))
        else:
            saved.append(keep(t, node.name()))
    ctx._to_save = ()
    if saved:
        node.saved = tuple(saved)


class InplaceFunction(Function):
    """A Function with a flag that says whether it writes into its operand (torchvision's old ones
    derive from it)."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace


FunctionMeta, BackwardCFunction = _FunctionMeta, FunctionNode       # PyTorch's names


class Error(WideNode):
    """A node that explains why it cannot be run."""

    __slots__ = ("text",)
    text: str

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
    node: Any = object.__new__(Error)
    node.plan = node.saved = None
    node.edges = ()
    node.shape, node.dtype = t.array.shape, t.array.dtype
    source = ctx._node()
    node.seq, node.code, node.lasti = next_sequence(), source.code, source.lasti
    node.text = ("trying to differentiate twice a function that was marked with "
                 f"@once_differentiable ({source.name()}, made at {source.where()})")
    out = alias(t)
    out._edge, out._rg = node, True
    return out


def is_meta(t: Any) -> bool:
    """True for storage-less tensors."""
    return isinstance(t, Tensor) and type(t.array) is MetaArray
