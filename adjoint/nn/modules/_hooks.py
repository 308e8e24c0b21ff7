"""Calling a module: forward hooks, backward hooks, and the order in which they run.

Order of one call: global forward pre-hooks, own forward pre-hooks, the identity node that later
yields ``grad_input``, ``forward``, global forward hooks, own forward hooks, the identity node
that later yields ``grad_output``. A module without hooks pays one test for all of this.
"""
from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from adjoint.autograd.function import Function
from adjoint.base.errors import ArgumentError, AutogradError, ShapeError
from adjoint.core.modes import WATCH, state, warn, watchers
from adjoint.core.tensor import Tensor
from adjoint.nn._core import is_grad_enabled, zeros
from adjoint.nn.modules._handle import HookTable, RemovableHandle, add_hook

FORWARD_PRE: HookTable = OrderedDict()
FORWARD: HookTable = OrderedDict()
FORWARD_ALWAYS: HookTable = OrderedDict()
FORWARD_KWARGS: HookTable = OrderedDict()
BACKWARD_PRE: HookTable = OrderedDict()
BACKWARD: HookTable = OrderedDict()
_full: list[bool | None] = [None]     # which kind of backward hooks BACKWARD holds


class BackwardHookFunction(Function):
    """Identity on a module's inputs or outputs; its backward is `turn` of one of the two."""

    @staticmethod
    def forward(ctx: Any, turn: Callable[..., Any], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.turn = turn
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *cts: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *ctx.turn(cts)


class _BackwardCall:
    """The backward hooks of one call of one module, between its two boundaries."""

    def __init__(self, module: Any, hooks: list[Any], pre_hooks: list[Any]) -> None:
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.grad_outputs: tuple[Tensor | None, ...] = ()
        self.input_at: list[int] = []
        self.n_inputs = 0
        self.tensors: list[Any] = []     # place, shape and dtype of each tensor among them
        self.output_at: list[int] = []
        self.n_outputs = 0

    def mark_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.n_inputs = len(args)
        self.tensors = [(i, a.shape, a.dtype) for i, a in enumerate(args) if isinstance(a, Tensor)]
        self.input_at = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
        if not self.input_at or not is_grad_enabled():
            self.input_at = []
            return args
        return _through(self.on_inputs, args, self.input_at)

    def mark_outputs(self, result: Any) -> Any:
        single = isinstance(result, Tensor)
        if not single and not isinstance(result, tuple):
            if self.hooks:
                warn("For backward hooks to be called, module output should be a Tensor or a tuple "
                     f"of Tensors but received {type(result)}")
            return result  # dictionaries and objects have no place for a boundary
        outs = (result,) if single else tuple(result)
        self.n_outputs = len(outs)
        self.output_at = [i for i, a in enumerate(outs)
                          if isinstance(a, Tensor) and a.requires_grad]
        if not self.output_at or not is_grad_enabled():
            return result
        marked = _through(self.on_outputs, outs, self.output_at)
        if single:
            return marked[0]
        return type(result)(*marked) if hasattr(result, "_fields") else marked

    def on_outputs(self, cts: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        grads = _spread(cts, self.output_at, self.n_outputs)
        for hook in self.pre_hooks:
            answer = hook(self.module, grads)
            if answer is not None:
                grads = _checked(answer, grads, "Backward pre hook", "grad_output")
        self.grad_outputs = grads
        if not self.input_at:  # no input will ever get a gradient: this is the last moment
            if self.hooks:
                warn("Full backward hook is firing when gradients are computed with respect to "
                     "module outputs since no inputs require gradients. See https://docs.pytorch."
                     "org/docs/main/generated/torch.nn.Module.html#torch.nn.Module."
                     "register_full_backward_hook for more details.")
            nothing: tuple[Tensor | None, ...] = (None,) * self.n_inputs
            for hook in self.hooks:
                answer = hook(self.module, nothing, grads)
                if answer is not None and not (isinstance(answer, tuple)
                                               and all(a is None for a in answer)):
                    raise AutogradError(
                        "Backward hook for Modules where no input requires gradient should "
                        f"always return None or None for all gradients; the hook of "
                        f"{self.module._get_name()} returned {type(answer).__name__}.")
        return tuple(grads[i] for i in self.output_at)

    def on_inputs(self, cts: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        if not self.grad_outputs:
            return cts                     # nothing came through the outputs
        full = list(_spread(cts, self.input_at, self.n_inputs))
        for i, shape, dtype in self.tensors:
            if full[i] is None:            # the module did not use it
                full[i] = zeros(shape, dtype=dtype)
        grads = tuple(full)
        for hook in self.hooks:
            answer = hook(self.module, grads, self.grad_outputs)
            if answer is not None:
                grads = _checked(answer, grads, "Backward hook", "grad_input")
        return tuple(grads[i] for i in self.input_at)


def _through(turn: Callable[..., Any], values: tuple[Any, ...], where: list[int]
             ) -> tuple[Any, ...]:
    marked = BackwardHookFunction.apply(turn, *(values[i] for i in where))
    marked = marked if isinstance(marked, tuple) else (marked,)
    out = list(values)
    for i, value in zip(where, marked, strict=True):
        out[i] = value
    return tuple(out)


def _spread(cts: tuple[Tensor | None, ...], where: list[int], n: int) -> tuple[Tensor | None, ...]:
    full: list[Tensor | None] = [None] * n
    for i, ct in zip(where, cts, strict=True):
        full[i] = ct
    return tuple(full)


def _checked(answer: Any, had: tuple[Any, ...], who: str, what: str) -> tuple[Tensor | None, ...]:
    grads = answer if isinstance(answer, tuple) else (answer,)
    if len(grads) != len(had):
        raise AutogradError(
            f"{who} returned an invalid number of {what}, got {len(grads)}, but expected "
            f"{len(had)}: return one gradient (or None) for each, in order")
    for old, new in zip(had, grads, strict=True):
        if isinstance(old, Tensor) and isinstance(new, Tensor) and old.shape != new.shape:
            raise ShapeError(f"hook 'hook' has changed the size of value: {who} returned a "
                             f"{what} of {list(new.shape)} in place of {list(old.shape)}")
    return grads


def _at_last_node(module: Any, hooks: list[Callable[..., Any]], args: tuple[Any, ...],
                  result: Any) -> None:
    """Put the older kind of backward hooks on the node that made the (first) result."""
    whole = result
    while not isinstance(result, Tensor):
        if not isinstance(result, (dict, tuple, list)) or not result:
            return
        result = next((v for v in result.values() if isinstance(v, Tensor)), None) if isinstance(
            result, dict) else result[0]
    node = result.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(partial(hook, module))
    if not isinstance(whole, Tensor):
        if not isinstance(whole, tuple) or not all(isinstance(v, Tensor) for v in whole):
            _deprecated("Using non-full backward hooks on a Module that does not return a single "
                        "Tensor or a tuple of Tensors", "some of the grad_output")
            return
        if len({v.grad_fn for v in whole}) > 1:
            _deprecated("Using a non-full backward hook when outputs are generated by different "
                        "autograd Nodes", "some grad_output")
            return
    known = {a.grad_fn for a in args if isinstance(a, Tensor) and a.grad_fn is not None}
    leaves = {id(a) for a in args if isinstance(a, Tensor)}
    if any(f is not None and f not in known and id(getattr(f, "variable", None)) not in leaves
           for f, _ in node.next_functions):
        _deprecated("Using a non-full backward hook when the forward contains multiple autograd "
                    "Nodes", "some grad_input")


def _deprecated(what: str, missing: str) -> None:
    """What a hook of the older kind does not see, said at the call of the module."""
    warn(f"{what} is deprecated and will be removed in future versions. This hook will be missing "
         f"{missing}. Please use register_full_backward_hook to get the documented behavior.",
         FutureWarning)


# a module's identity -> a weak reference to it, and its name as it was seen last from a module
# above it, in parts and whole
_names: dict[int, tuple[Any, list[str], str]] = {}


def _path(module: Any, stack: tuple[tuple[str, Any], ...]) -> str:
    """The name of `module` seen from the outermost module that is being called; its class where
    it is that module, or belongs to none of those above it."""
    known = _names.get(id(module))
    for path, parent in reversed(stack):
        if known is not None:
            at = parent
            for part in known[1]:
                at = at._modules.get(part)
                if at is None:
                    break
            if at is module:
                return f"{path}.{known[2]}" if path else known[2]
        name = _below(parent, module)
        if name is not None:
            return f"{path}.{name}" if path and name else path or name
    return "" if not stack else type(module).__name__


def _below(parent: Any, module: Any) -> str | None:
    """The name of `module` seen from `parent`; None where it is not below."""
    for name, child in (*parent._modules.items(), *parent.named_modules()):
        if child is module:
            key = id(module)
            if name:
                gone = weakref.ref(module, partial(_names.pop, key))
                _names[key] = gone, name.split("."), name
            return name
    return None


class ModuleHooks:
    """Hook tables of a module and its ``__call__`` (see Module)."""

    _forward_pre_hooks: HookTable
    _forward_pre_hooks_with_kwargs: HookTable
    _forward_hooks: HookTable
    _forward_hooks_with_kwargs: HookTable
    _forward_hooks_always_called: HookTable
    _backward_pre_hooks: HookTable
    _backward_hooks: HookTable
    _is_full_backward_hook: bool | None = None
    forward: Callable[..., Any]

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                                  with_kwargs: bool = False) -> RemovableHandle:
        """Call ``hook(module, args)`` before every forward; what it returns replaces the args.

        With ``with_kwargs``: ``hook(module, args, kwargs)``, returning None or (args, kwargs).
        ``prepend`` puts it before the hooks that are there. Returns a handle to remove it.

        >>> import adjoint as ad
        >>> m = ad.nn.Identity()
        >>> h = m.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        >>> m(ad.tensor(3.0)).item()
        6.0
        """
        handle = add_hook(self._forward_pre_hooks, hook, prepend=prepend,
                          extra=(self._forward_pre_hooks_with_kwargs,))
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        return handle

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                              with_kwargs: bool = False, always_call: bool = False
                              ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after every forward; its value replaces the output.

        With ``with_kwargs``: ``hook(module, args, kwargs, output)``. With ``always_call`` it is
        called (with output None) even when forward raised. Returns a handle to remove it.
        """
        handle = add_hook(self._forward_hooks, hook, prepend=prepend,
                          extra=(self._forward_hooks_with_kwargs,
                                 self._forward_hooks_always_called))
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False
                                        ) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` when the gradients of the outputs are known.

        A returned tuple replaces ``grad_output`` for the rest of the backward pass.
        """
        return add_hook(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False
                                    ) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when the input gradients are known.

        ``grad_input`` has one entry per positional argument, None for those without a
        gradient; a returned tuple replaces it. Works for modules whose output is a tensor or a
        tuple of tensors.
        """
        self._one_kind(True)
        return add_hook(self._backward_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` at the last node of the forward alone.

        The older kind: ``grad_input`` is what that node sends on, parameters' gradients
        included. ``register_full_backward_hook`` gives the gradients of the module's inputs.
        """
        self._one_kind(False)
        return add_hook(self._backward_hooks, hook)

    def _one_kind(self, full: bool) -> None:
        if self._is_full_backward_hook is (not full):
            raise AutogradError("Cannot use both regular backward hooks and full backward hooks on "
                                f"a single Module. Please use only one of them "
                                f"({type(self).__name__}).")
        self._is_full_backward_hook = full

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` and every hook that is registered."""
        hooked = (self._forward_hooks or self._forward_pre_hooks or self._backward_hooks
                  or self._backward_pre_hooks or FORWARD or FORWARD_PRE or BACKWARD or BACKWARD_PRE)
        if not (hooked or state() & WATCH):
            return self.forward(*args, **kwargs)
        run = self._call_with_hooks if hooked else self.forward
        observers = watchers.observers.get()
        if not observers:
            return run(*args, **kwargs)
        stack = watchers.modules.get()
        path = _path(self, stack)
        token = watchers.modules.set((*stack, (path, self)))
        for observer in observers:
            observer.enter_module(path, self)
        try:
            return run(*args, **kwargs)
        finally:
            watchers.modules.reset(token)
            for observer in observers:
                observer.leave_module(path, self)

    def _call_with_hooks(self, /, *args: Any, **kwargs: Any) -> Any:
        called: set[int] = set()
        try:
            args, kwargs = self._run_pre_hooks(args, kwargs)
            backward = self._backward_call()
            if backward is not None:
                args = backward.mark_inputs(args)
            result = self.forward(*args, **kwargs)
            result = self._run_forward_hooks(args, kwargs, result, called)
            if older := self._older_backward_hooks():
                _at_last_node(self, older, args, result)
            return result if backward is None else backward.mark_outputs(result)
        except Exception:
            self._run_always_called(args, kwargs, called)
            raise

    def _run_pre_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]
                       ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        for key, hook in (*FORWARD_PRE.items(), *self._forward_pre_hooks.items()):
            if key in self._forward_pre_hooks_with_kwargs:
                answer = hook(self, args, kwargs)
                if answer is None:
                    continue
                if not (isinstance(answer, tuple) and len(answer) == 2):
                    raise ArgumentError("forward pre-hook must return None or a tuple of "
                                        f"(new_args, new_kwargs), but got {answer}.")
                args, kwargs = answer
            else:
                answer = hook(self, args)
                if answer is not None:
                    args = answer if isinstance(answer, tuple) else (answer,)
        return args, kwargs

    def _run_forward_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any,
                           called: set[int]) -> Any:
        for key, hook in (*FORWARD.items(), *self._forward_hooks.items()):
            called.add(key)
            if key in self._forward_hooks_with_kwargs or key in FORWARD_KWARGS:
                answer = hook(self, args, kwargs, result)
            else:
                answer = hook(self, args, result)
            if answer is not None:
                result = answer
        return result

    def _run_always_called(self, args: tuple[Any, ...], kwargs: dict[str, Any],
                           called: set[int]) -> None:
        """After an exception: the always-called hooks that have not run; their own errors
        become warnings, so that the first error is the one that is seen."""
        for key, hook in (*FORWARD.items(), *self._forward_hooks.items()):
            if key in called or not (key in self._forward_hooks_always_called
                                     or key in FORWARD_ALWAYS):
                continue
            try:
                if key in self._forward_hooks_with_kwargs or key in FORWARD_KWARGS:
                    hook(self, args, kwargs, None)
                else:
                    hook(self, args, None)
            except Exception as error:
                warnings.warn("forward hook with ``always_call=True`` raised an exception that "
                              f"was silenced as another error was raised in forward: {error}",
                              stacklevel=3)

    def _backward_call(self) -> _BackwardCall | None:
        own = self._backward_hooks if self._is_full_backward_hook is not False else {}
        hooks = [*(BACKWARD.values() if _full[0] else ()), *own.values()]
        pre_hooks = [*BACKWARD_PRE.values(), *self._backward_pre_hooks.values()]
        return _BackwardCall(self, hooks, pre_hooks) if hooks or pre_hooks else None

    def _older_backward_hooks(self) -> list[Callable[..., Any]]:
        own = self._backward_hooks if self._is_full_backward_hook is False else {}
        return [*(() if _full[0] else BACKWARD.values()), *own.values()]


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, args)`` before the forward of every module."""
    return add_hook(FORWARD_PRE, hook)


def register_module_forward_hook(hook: Callable[..., Any], *, with_kwargs: bool = False,
                                 always_call: bool = False) -> RemovableHandle:
    """Call ``hook(module, args, output)`` after the forward of every module."""
    handle = add_hook(FORWARD, hook, extra=(FORWARD_ALWAYS, FORWARD_KWARGS))
    if always_call:
        FORWARD_ALWAYS[handle.id] = True
    if with_kwargs:
        FORWARD_KWARGS[handle.id] = True
    return handle


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_output)`` in the backward pass of every module."""
    return add_hook(BACKWARD_PRE, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` in the backward pass of every module."""
    return _add_backward(hook, full=True)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` at the last node of every module's forward.

    The older kind, see ``Module.register_backward_hook``; refused beside hooks of the other.
    """
    return _add_backward(hook, full=False)


def _add_backward(hook: Callable[..., Any], *, full: bool) -> RemovableHandle:
    if BACKWARD and _full[0] is not full:
        raise AutogradError("Cannot use both regular backward hooks and full backward hooks as a "
                            "global Module hook. Please use only one of them.")
    _full[0] = full
    return add_hook(BACKWARD, hook)
