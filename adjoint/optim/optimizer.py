"""Optimizer: parameter groups, state, hooks, saving and loading."""
from __future__ import annotations

import functools
import itertools
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from operator import getitem, setitem
from types import MappingProxyType
from typing import Any

import numpy as np

from adjoint.autograd.leaves import zero_gradient
from adjoint.autograd.modes import enable_grad
from adjoint.base import provenance
from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import is_float
from adjoint.base.errors import ArgumentError, AssertedError, DTypeError, NotSupported, ShapeError
from adjoint.base.errors import missing as _missing
from adjoint.core.modes import WATCH, about_to_write, state, watchers
from adjoint.core.rehearsal import call
from adjoint.core.rehearsal import current as rehearsal
from adjoint.core.tensor import Tensor, bump, wrap
from adjoint.nn.modules._handle import HookTable, RemovableHandle, add_hook, typename
from adjoint.ops.family import generated as kernel
from adjoint.optim._rules import Rule, Scratch, run

__all__ = ["Optimizer", "ParamsT", "register_optimizer_step_post_hook",
           "register_optimizer_step_pre_hook", "required"]

ParamsT = Iterable[Any]
Closure = Callable[[], Any]
Work = list[tuple[Tensor, list[Tensor]]]  # parameters, each with the state that its rule updates


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


_NO_HOOKS: MappingProxyType[int, Any] = MappingProxyType({})
GLOBAL_PRE: HookTable = HookTable()
GLOBAL_POST: HookTable = HookTable()
_TABLES = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks",
           "_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks",
           "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks")


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before every step of every optimizer; a returned
    (args, kwargs) replaces them."""
    return add_hook(GLOBAL_PRE, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after every step of every optimizer."""
    return add_hook(GLOBAL_POST, hook)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """``step`` with its hooks around it; applied once to each class that defines a step."""

    @functools.wraps(step)
    def wrapper(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        self._opt_called = True  # what schedulers look at to warn about a wrong order
        if not (self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
                or GLOBAL_PRE or GLOBAL_POST or state() & WATCH):
            return step(self, *args, **kwargs)
        args = (self, *args)          # as PyTorch has it: what hooks see begins with the optimizer
        for hook in (*GLOBAL_PRE.values(), *self._optimizer_step_pre_hooks.values()):
            answer = hook(self, args, kwargs)
            if answer is not None:
                if not (isinstance(answer, tuple) and len(answer) == 2):
                    raise ArgumentError(f"{hook} must return None or a tuple of (new_args, "
                                        f"new_kwargs), but got {answer}.")
                args, kwargs = answer
                args = args if args and args[0] is self else (self, *args)
        if state() & WATCH and any([o.stepping(self) for o in watchers.observers.get()]):
            closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
            return closure() if callable(closure) else None
        before = _written_of(self), list(self.state)
        try:
            out = step(*args, **kwargs)
        except MemoryError:
            _forget(self, *before)
            raise
        for hook in (*self._optimizer_step_post_hooks.values(), *GLOBAL_POST.values()):
            hook(self, args, kwargs)
        if state() & WATCH:
            for observer in watchers.observers.get():
                observer.stepped(self)
        return out

    wrapper.hooked = True  # type: ignore[attr-defined]  # so that it is wrapped once
    return wrapper


def _written_of(optimizer: Optimizer) -> list[int]:
    """How often each parameter was written to."""
    return [p._cell.version if p._cell is not None else 0
            for group in optimizer.param_groups for p in group["params"]]


def _forget(optimizer: Optimizer, written: list[int], known: list[Any]) -> None:
    """After a step that was refused memory: the state that it began to make goes, so that the step
    can be tried again, unless parameters have changed already."""
    if _written_of(optimizer) == written:
        for p in [p for p in optimizer.state if not any([p is k for k in known])]:
            del optimizer.state[p]


class Optimizer:
    """Base of all optimizers: subclass it, pass ``defaults``, and write ``step``.

    ``params`` is an iterable of tensors, of (name, tensor) pairs, or of dictionaries with a key
    "params" and settings that override the defaults for that group. Raises TypeError or
    ArgumentError (a ValueError) for anything else; ``state`` maps parameters to dictionaries.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([1.0]))
    >>> opt = ad.optim.SGD([w], lr=0.5)
    >>> (w * w).sum().backward(); opt.step(); w.tolist()
    [0.0]
    """

    _optimizer_step_pre_hooks: Any = _NO_HOOKS      # a table of its own with the first hook
    _optimizer_step_post_hooks: Any = _NO_HOOKS
    _optimizer_state_dict_pre_hooks: Any = _NO_HOOKS
    _optimizer_state_dict_post_hooks: Any = _NO_HOOKS
    _optimizer_load_state_dict_pre_hooks: Any = _NO_HOOKS
    _optimizer_load_state_dict_post_hooks: Any = _NO_HOOKS
    _opt_called = False
    made_at: tuple[Any, int] = (None, 0)    # (code, instruction) of the user's line that made it

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        frame = provenance.user_frame(sys._getframe(1))
        if frame is not None:
            self.made_at = frame.f_code, frame.f_lasti
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of "
                            f"Tensors or dicts, but got {typename(params)}: pass [tensor]")
        self.defaults = defaults
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._scratch = Scratch()
        groups = list(params)
        if not groups:
            raise ArgumentError("optimizer got an empty parameter list: has the model any "
                                "parameters, and was the generator used up before?")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    profile_hook_step = staticmethod(_with_hooks)    # PyTorch's name, for a step set by hand

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if callable(step) and not getattr(step, "hooked", False):
            cls.step = _with_hooks(step)  # type: ignore[method-assign]  # once per class

    def _patch_step_function(self) -> None:
        """Does nothing: `step` runs hooks from the class on. Wrapping optimizers call it."""

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__.setdefault("_scratch", Scratch())
        for group in self.param_groups:
            for key, value in getattr(self, "defaults", {}).items():
                group.setdefault(key, value)  # settings that are newer than the saved state

    def __repr__(self) -> str:
        text = self.__class__.__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group: {"params": tensors, setting: value, ...}. It becomes the group itself:
        settings left out are added to it. Raises before it or the optimizer changes."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        given = param_group["params"]
        if isinstance(given, Tensor):
            given = [given]
        elif isinstance(given, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, "
                            "but the ordering of tensors in sets will change between runs. Please "
                            "use a list instead.")
        params, names = _split_names(list(given))
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError("optimizer can only optimize Tensors, but one of the params is "
                                + type(p).__name__)
            if not self.defaults.get("differentiable") and not (p.is_leaf or p._retains):
                raise ArgumentError("can't optimize a non-leaf Tensor: pass the parameters that it "
                                    "is computed from, or tensor.detach().requires_grad_()")
        group = {**param_group, "params": params}
        if names is not None:
            group["param_names"] = names
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ArgumentError("parameter group didn't specify a value of required "
                                    f"optimization parameter {name}")
            group.setdefault(name, default)
        if len({id(p) for p in params}) != len(params):
            warnings.warn("optimizer contains a parameter group with duplicate parameters; in "
                          "future, this will cause an error", stacklevel=3)
        taken = {id(p) for g in self.param_groups for p in g["params"]}
        if any(id(p) in taken for p in params):
            raise ArgumentError("some parameters appear in more than one parameter group")
        if self.param_groups and ("param_names" in self.param_groups[0]) != (names is not None):
            raise ArgumentError("all optimizer param groups should be with/without names. cannot "
                                f"add param group {'without' if names is None else 'with'} names "
                                "to the optimizer")
        param_group.update(group)               # the caller's own dictionary, as in PyTorch
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients: set them to None, or fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if p._grad is not None:         # (the property costs a call)
                    if set_to_none:
                        p._grad = None
                    else:
                        zero_gradient(p._grad)

    def step(self, closure: Closure | None = None) -> Any:
        """Update every parameter once. ``closure`` clears gradients, computes the loss and its
        gradients, and returns the loss, which step returns."""
        raise NotSupported(f"{type(self).__name__} does not define step()")

    # -- what subclasses use ------------------------------------------------------------------
    def _loss(self, closure: Closure | None) -> Any:
        if closure is None:
            return None
        with enable_grad():
            return closure()

    _sparse = False     # True for optimizers that take sparse gradients

    def _ready(self, group: dict[str, Any]) -> list[Tensor]:
        """Parameters of the group that have a gradient; raises if one does not fit."""
        out = []
        for p in group["params"]:
            g = p._grad
            if g is None:
                continue
            if g.is_sparse and not self._sparse:
                raise NotSupported(f"{type(self).__name__} does not support sparse gradients, "
                                   "please consider SparseAdam instead, sparse=False in the "
                                   "layer, or grad.to_dense()")
            if g.is_sparse and group.get("fused"):
                raise NotSupported(f"{type(self).__name__}: `fused` does not support sparse "
                                   "gradients")
            if (p.level or g.level) and type(p) is not Tensor:
                raise NotSupported(f"{type(self).__name__}: a {type(p).__name__} has "
                                   "__torch_dispatch__ and no array to update: give the tensors "
                                   "that it holds to the optimizer, or write the step in ops")
            if g.array.shape != p.array.shape:
                raise ShapeError(f"{type(self).__name__}: a parameter of shape {tuple(p.shape)} "
                                 f"has a gradient of shape {tuple(g.shape)}")
            if g.array.dtype != p.array.dtype:
                raise DTypeError(f"{type(self).__name__}: a parameter of {p.dtype} has a gradient "
                                 f"of {g.dtype}")
            out.append(p)
        if group.get("fused") and not all(is_float(p.array.dtype) for p in out):
            raise DTypeError("`fused=True` requires all the params to be floating point Tensors: "
                             f"{type(self).__name__} got {[str(p.dtype) for p in out]}")
        if out and group.get("capturable") and not group.get("fused"):
            xla = "" if group.get("foreach") else ", 'xla'"
            raise AssertedError("If capturable=True, params and state_steps must be on supported "
                                f"devices: ['cuda', 'xpu', 'hpu', 'privateuseone'{xla}], but those "
                                f"of {type(self).__name__} are on the CPU: leave capturable=False")
        if out and group.get("differentiable") and group.get("foreach"):
            raise AssertedError("_foreach ops don't support autograd: "
                                f"{type(self).__name__} takes differentiable=True or foreach=True")
        return out

    def _begin(self, closure: Closure | None) -> tuple[Any, list[tuple[dict[str, Any],
                                                                       list[Tensor]]]]:
        """The closure's loss, and for every group its parameters with gradients; nothing is
        updated unless all of them fit."""
        loss = self._loss(closure)
        ready = [(group, self._ready(group)) for group in self.param_groups]
        if state() & WATCH:
            about_to_write(*[p for _, params in ready for p in params])
        return loss, ready

    def _update(self, rule: Rule, p: Tensor, state: Iterable[Tensor], scratch: int,
                **numbers: Any) -> None:
        """Run an elementwise rule on the arrays of p, its gradient and its state, in place."""
        tensors = list(state)
        if self.defaults.get("differentiable"):
            from adjoint.optim import _recorded
            with enable_grad():
                return _recorded.run(rule, p, tensors, scratch, numbers)
        grad: Any = p.grad
        run(rule, [p.array, grad.array, *(s.array for s in tensors)], self._scratch, scratch,
            numbers)
        self._written([(p, tensors)])

    def _update_rows(self, rule: Rule, p: Tensor, state: Iterable[Tensor], scratch: int,
                     **numbers: Any) -> None:
        """`_update` for a sparse gradient: only the rows that it has, of p and of its state."""
        tensors = list(state)
        grad = p.grad.coalesce()
        at = tuple(grad._indices().array)
        whole = [p.array, *(s.array for s in tensors)]
        parts = [_rows(a, at) for a in whole]
        run(rule, [parts[0], grad._values().detach().array, *parts[1:]], self._scratch, scratch,
            numbers)
        for a, part in zip(whole, parts, strict=True):
            if type(a) is MetaArray:
                call(setitem, a, at, part, otherwise=tuple)
            else:
                a[at] = part
        self._written([(p, tensors)])

    def _together(self, name: str, work: Work, **numbers: Any) -> Work:
        """Update (parameter, state) pairs in one call per dtype of the compiled kernel ``name``;
        returns those that it does not take, unchanged."""
        together = kernel(name)
        if together is None or not work or self.defaults.get("differentiable"):
            return work
        # as a rule one call takes all of them; it changes nothing where it does not
        if together(*_columns(work), **numbers) is not NotImplemented:
            self._written(work)
            return []
        left: Work = []
        buckets: dict[Any, Work] = {}
        for item in work:
            p, held = item
            grad: Any = p.grad
            arrays = [p.array, grad.array, *(s.array for s in held)]
            metas = [type(a) is MetaArray for a in arrays]
            if any(metas) and rehearsal() is None and is_float(p.array.dtype):
                self._written([item])  # takes no memory either
            elif not all(a.contiguous if m else a.flags.carray
                         for a, m in zip(arrays, metas, strict=True)):
                left.append(item)
            else:
                buckets.setdefault(p.array.dtype, []).append(item)
        for items in buckets.values():
            lists = _columns(items)
            done = (together(*lists, **numbers) if type(items[0][0].array) is not MetaArray
                    else call(together, *lists, otherwise=tuple, **numbers))
            if done is NotImplemented:
                left += items
            else:
                self._written(items)
        return left

    def _written(self, work: Work) -> None:
        """Count the writes, so that a backward through an earlier forward is refused."""
        what, frame = f"{type(self).__name__}.step", provenance.user_frame(sys._getframe(1))
        for p, held in work:
            bump(p, what, frame)
            for s in held:
                if s._cell is not None:  # else nobody ever looked at it
                    bump(s, what, frame)

    # -- saving and loading -------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """{"state": per-parameter state by number, "param_groups": settings, with the numbers
        of their parameters under "params"}; tensors are shared, not copied."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {(numbers[id(k)] if isinstance(k, Tensor) else k): v
                 for k, v in self.state.items()}
        out = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            answer = hook(self, out)
            if answer is not None:
                out = answer
        return out

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over state and settings that ``state_dict`` returned.

        State of a floating parameter is cast to its dtype, except "step"; that of others stays as
        it is. Raises ArgumentError, and changes nothing, if groups or their sizes differ.
        """
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            answer = hook(self, state_dict)
            if answer is not None:
                state_dict = answer
        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ArgumentError("loaded state dict has a different number of parameter groups: "
                                f"{len(saved)}, the optimizer has {len(groups)}")
        sizes = [(len(s["params"]), len(g["params"])) for s, g in zip(saved, groups, strict=True)]
        if any(a != b for a, b in sizes):
            raise ArgumentError("loaded state dict contains a parameter group that doesn't match "
                                f"the size of optimizer's group: (loaded, own) sizes are {sizes}")
        params = dict(zip(itertools.chain.from_iterable(s["params"] for s in saved),
                          itertools.chain.from_iterable(g["params"] for g in groups),
                          strict=True))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            p = params.get(key)
            state[key if p is None else p] = value if p is None else _cast(p, value)
        merged = []
        for group, new in zip(groups, saved, strict=True):
            new["params"] = group["params"]
            if "param_names" in group:       # the names that were saved; its own if none were
                new.setdefault("param_names", group["param_names"])
            merged.append(new)
        self.__setstate__({"state": state, "param_groups": merged})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    # -- hooks --------------------------------------------------------------------------------
    def _add(self, table: str, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        hooks = getattr(self, table)
        if hooks is _NO_HOOKS:
            hooks = HookTable()
            setattr(self, table, hooks)
        return add_hook(hooks, hook, prepend=prepend)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; a returned (args, kwargs)
        replaces them."""
        return self._add(_TABLES[0], hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return self._add(_TABLES[1], hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False
                                     ) -> RemovableHandle:
        """Call ``hook(optimizer)`` before state_dict is made."""
        return self._add(_TABLES[2], hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False
                                      ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)``, which may return another dictionary."""
        return self._add(_TABLES[3], hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False
                                          ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before loading; it may return another one."""
        return self._add(_TABLES[4], hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False
                                           ) -> RemovableHandle:
        """Call ``hook(optimizer)`` after loading."""
        return self._add(_TABLES[5], hook, prepend)


def _split_names(given: list[Any]) -> tuple[list[Any], list[str] | None]:
    """Tensors, and their names if they came as (name, tensor) pairs."""
    pairs = [isinstance(p, tuple) for p in given]
    if not any(pairs):
        return given, None
    if not all(pairs):
        raise ArgumentError("all optimizer params should be with/without names. Some param names "
                            "are missing")
    return [p[1] for p in given], [p[0] for p in given]


def _cast(p: Tensor, value: Any, key: str = "") -> Any:
    """Loaded state in the dtype of its parameter: the tensors themselves that have it already."""
    if isinstance(value, dict):
        return {k: _cast(p, v, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(p, v, key) for v in value)
    if not isinstance(value, Tensor) or key == "step" or not is_float(p.array.dtype):
        return value
    return value.to(p.dtype)


def zeros_like(p: Tensor, fill: complex = 0.0) -> Tensor:
    """State of the shape, dtype and layout of ``p``, filled with a number."""
    a = p.array
    if type(a) is MetaArray:
        return wrap(call(_like, a, fill, otherwise=lambda: MetaArray(a.shape, a.dtype)))
    return wrap(_like(a, fill))


def _like(a: Any, fill: complex) -> Any:
    return np.full_like(a, fill) if fill else np.zeros_like(a)


def counter(start: float = 0.0) -> Tensor:
    """A step count as it is saved: a 0-d float32 tensor."""
    return wrap(np.array(start, np.float32))


def advance(count: Tensor) -> float:
    """Add one to a step count; returns it."""
    count.array[...] += 1
    return float(count.array)


def number(x: Any) -> float:
    """A setting as a float: the value of a one-element tensor, or the number."""
    return float(x.item()) if isinstance(x, Tensor) else x


def setting(group: dict[str, Any], name: str) -> Any:
    """A setting of a group as a number; a recorded step takes the tensor that it is."""
    return group[name] if group["differentiable"] else number(group[name])


def check(ok: bool, message: str) -> None:
    """ArgumentError with ``message`` unless ``ok``."""
    if not ok:
        raise ArgumentError(message)


def _rows(a: Any, at: Any) -> Any:
    """Copies of the rows of an array; where it is storage-less, what they would take."""
    if type(a) is not MetaArray:
        return a[at]
    return call(getitem, a, at,
                otherwise=lambda: MetaArray((len(at[0]), *a.shape[len(at):]), a.dtype))


def _columns(work: Work) -> list[list[Any]]:
    """The arrays of the parameters, of their gradients, and of each of the states."""
    first = [p for p, _ in work]
    states = zip(*[held for _, held in work], strict=True)
    grads: list[Any] = [p._grad for p in first]
    return [[p.array for p in first], [g.array for g in grads],
            *[[s.array for s in column] for column in states]]


def one_element(lr: Any) -> None:
    """ArgumentError for a learning rate that is a tensor of several numbers."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ArgumentError("Tensor lr must be 1-element, got shape " + str(tuple(lr.shape)))


def check_common(lr: Any, weight_decay: Any = 0, eps: float = 0.0,
                 betas: tuple[Any, ...] = ()) -> None:
    """The checks that most optimizers share."""
    one_element(lr)
    check(number(lr) >= 0.0, f"Invalid learning rate: {lr}")
    check(eps >= 0.0, f"Invalid epsilon value: {eps}")
    for i, beta in enumerate(betas):
        check(0.0 <= number(beta) < 1.0, f"Invalid beta parameter at index {i}: {beta}")
    check(number(weight_decay) >= 0.0, f"Invalid weight_decay value: {weight_decay}")


def check_modes(foreach: bool | None = None, fused: bool | None = None,
                differentiable: bool = False) -> None:
    """``foreach`` and ``fused`` change nothing here; ``differentiable`` records the step, so that
    one can differentiate through training."""
    if fused and differentiable:
        raise ArgumentError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise ArgumentError("`fused` and `foreach` cannot be `True` together.")


__getattr__ = _missing("adjoint.optim.optimizer", "adjoint.optim._names")
