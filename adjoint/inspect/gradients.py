"""Gradients in words: which are there, which are zero, which never came, and why."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoint.autograd import api
from adjoint.autograd import modes as grad_modes
from adjoint.base import provenance
from adjoint.base.errors import ArgumentError
from adjoint.core.modes import GRAD, Observer, state, watchers
from adjoint.core.tensor import AccumulateGrad, Freed, Port, Tensor
from adjoint.inspect.doctor_case import Place, node_place, norm, parents, user_place

__all__ = ["GradReport", "Reason", "grad_report", "why_none", "why_zero"]


@dataclass(frozen=True)
class GradReport:
    """The state of every gradient: None (no backward reached it), 0.0, or its norm."""

    rows: tuple[tuple[str, float | None], ...]

    @property
    def norm(self) -> float:
        """The 2-norm over all gradients together."""
        return float(np.sqrt(sum(v * v for _, v in self.rows if v is not None)))

    @property
    def missing(self) -> list[str]:
        """Names of those without a gradient."""
        return [name for name, value in self.rows if value is None]

    @property
    def zero(self) -> list[str]:
        """Names of those whose gradient is exactly zero."""
        return [name for name, value in self.rows if value == 0.0]

    def line(self, step: int, loss: Any) -> str:
        """The line of a log: ``Step  10: loss=0.9873, grad_norm=0.2914``."""
        return f"Step {step:3d}: loss={float(loss):.4f}, grad_norm={self.norm:.4f}"

    def __str__(self) -> str:
        wide = max((len(name) for name, _ in self.rows), default=0)
        return "\n".join(f"{name:{wide}}  {_state(value)}" for name, value in self.rows)

    __repr__ = __str__


def _state(value: float | None) -> str:
    if value is None:
        return "NO GRAD"
    return "zero" if value == 0.0 else f"{value:.6g}"


def grad_report(model: Any) -> GradReport:
    """The norm of each parameter's gradient; `model` is a module, or (name, tensor) pairs.

    >>> import adjoint as ad
    >>> model = ad.nn.Linear(2, 1, bias=False)
    >>> grad_report(model)
    weight  NO GRAD
    >>> model(ad.tensor([[3.0, 4.0]])).sum().backward()
    >>> grad_report(model)
    weight  5
    >>> grad_report(model).line(10, 0.98731)
    'Step  10: loss=0.9873, grad_norm=5.0000'
    """
    pairs: Iterable[Any] = model.named_parameters() if hasattr(model, "named_parameters") else model
    rows = []
    for i, item in enumerate(pairs):
        name, p = item if isinstance(item, tuple) else (str(i), item)
        if not isinstance(p, Tensor):
            raise ArgumentError(f"grad_report: expected a module or tensors, got "
                                f"{type(p).__name__}")
        rows.append((name, None if p._grad is None else norm([p._grad.array])))
    return GradReport(tuple(rows))


@dataclass(frozen=True)
class Reason:
    """Why a gradient is None or zero: the cause in a few words, the line, the fix."""

    cause: str
    where: str
    evidence: str
    fix: str

    def __str__(self) -> str:
        at = f"\n  at {self.where}" if self.where else ""
        return f"{self.cause}: {self.evidence}{at}\n  fix: {self.fix}"


def _reason(cause: str, place: Place | None, evidence: str, fix: str) -> Reason:
    where = ""
    if place is not None and place[0] is not None:
        line = provenance.source_line(*place)
        where = provenance.locate(*place) + (f": {line}" if line else "")
    return Reason(cause, where, evidence, fix)


def _ancestry(node: Any) -> set[Any]:
    """Every node and leaf accumulator that `node` leads to."""
    seen = {node}
    stack = [node]
    while stack:
        n = stack.pop()
        for p in () if type(n) is AccumulateGrad else parents(n):
            if p not in seen:
                seen.add(p)
                stack.append(p)
    return seen


def _reaches(loss: Tensor, param: Tensor) -> bool:
    return loss._rg and any(type(n) is AccumulateGrad and n.variable is param
                            for n in _ancestry(_node_of(loss)))


def _node_of(t: Tensor) -> Any:
    e = t._edge
    return e.node if type(e) is Port else e


class _Flow(Observer):
    """Follows what depends on one tensor through a forward pass, to where it loses its history."""

    def __init__(self, param: Tensor) -> None:
        self.family: list[Tensor] = [param]          # kept, so that no id is used again
        self.ids = {id(param)}
        self.cut: tuple[str, Place | None] | None = None
        self.uses = 0

    def detached(self, tensor: Any, made: Any) -> None:
        if id(tensor) in self.ids:
            self._join(made)
            if self.cut is None and tensor._rg:
                self.cut = "detached", user_place(2)

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        if not any(id(a) in self.ids for a in args):
            return
        self.uses += 1
        for t in made:
            self._join(t)
        if node is None and self.cut is None:
            if not state() & GRAD:
                held = grad_modes.opened()
                self.cut = (held[0] if held else "no_grad"), held[1] if held else None
            elif any(isinstance(a, Tensor) and a._rg and id(a) in self.ids for a in args):
                self.cut = f"{op.name} has no derivative", user_place(2)

    def _join(self, t: Any) -> None:
        self.family.append(t)
        self.ids.add(id(t))


def _tensor(name: str, param: Any) -> None:
    if not isinstance(param, Tensor):
        raise TypeError(f"{name}: param is a {type(param).__name__}, expected a tensor, such as "
                        "model.weight; grad_report(model) looks at a whole module")


def why_none(param: Tensor, loss: Tensor | Callable[[], Tensor] | None = None) -> Reason | None:
    """Why `param.grad` is None; None where it is not.

    loss  the loss, or better a function that computes it: it is run once, and what depends on
          the parameter is followed to the line where its history ends

    Causes: "requires_grad is False", "no_grad", "inference_mode", "detached" (detach, .data; also
    on the way to .numpy()), "not used", "no backward", "cleared", "not part of the loss",
    "not a leaf".

    >>> import adjoint as ad
    >>> w = ad.ones(2, requires_grad=True)
    >>> why_none(w, lambda: (w.detach() * 2).sum()).cause
    'detached'
    """
    _tensor("why_none", param)
    if param._grad is not None:
        return None
    if not param._rg:
        return _reason("requires_grad is False", None, f"a tensor of shape {list(param.shape)} "
                       "that no op records", "param.requires_grad_() before the forward pass")
    maker = param.grad_fn
    if maker is not None and not param._retains:
        return _reason("not a leaf", node_place(maker), "it was computed by "
                       f"{maker.name()}; only leaves keep their gradient",
                       "call retain_grad() on it before backward")
    if callable(loss) and not isinstance(loss, Tensor):
        return _followed(param, loss)
    if param._edge is None:
        held = grad_modes.opened()
        if held is not None:
            return _reason("not used", held[1], "no op that was recorded ever read it; gradients "
                           f"were last off under {held[0]}", "compute the loss from this "
                           "parameter, and outside of that block")
        return _reason("not used", None, "no op that was recorded ever read it",
                       "use it in the computation of the loss")
    if loss is None:
        return _reason("no backward", None, "it was read by a recorded op; no backward has reached "
                       "it since its gradient was last cleared",
                       "call loss.backward(), or pass the loss to why_none to look at its graph")
    if _reaches(loss, param):
        return _reason("no backward", None, "the loss depends on it; backward has not run, or "
                       "zero_grad() came after", "call loss.backward() and read .grad before "
                       "zero_grad()")
    return _reason("not part of the loss", None, "it was read by recorded ops, and none of them "
                   "leads to this loss", "pass a function that computes the loss: why_none(param, "
                   "lambda: loss_fn()) finds the line")


def _followed(param: Tensor, run: Callable[[], Tensor]) -> Reason:
    flow = _Flow(param)
    held = watchers.push(watchers.observers, flow)
    try:
        loss = run()
    finally:
        watchers.pop(held)
    if not isinstance(loss, Tensor):
        raise ArgumentError(f"why_none: the function returned {type(loss).__name__}, expected the "
                            "loss tensor")
    if _reaches(loss, param):
        return _reason("no backward", None, "the loss depends on it", "call loss.backward(), and "
                       "zero_grad() only before it")
    if flow.cut is not None:
        cause, place = flow.cut
        return _reason(cause, place, "what depends on it loses its history here",
                       "use the tensor itself where its gradient is wanted")
    if flow.uses:
        return _reason("not part of the loss", None, f"{flow.uses} ops depend on it, the loss is "
                       "none of them", "add the result to the loss")
    return _reason("not used", None, "no op of the forward pass read it",
                   "use it in the computation of the loss")


class _Norms(Observer):
    """Per node of one backward pass: is what comes in zero, is what goes out zero?"""

    cotangents = True

    def __init__(self) -> None:
        self.rows: dict[Any, tuple[bool, list[bool]]] = {}
        self.coming: dict[Any, bool] = {}

    def before_backward(self, node: Any, ct: Any) -> None:
        self.coming[node] = any(_some(c) for c in (ct if isinstance(ct, (list, tuple)) else [ct]))

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        self.rows[node] = self.coming.get(node, False), [_some(r) for r in results]


def _some(x: Any) -> bool:
    array = x.array if isinstance(x, Tensor) else x
    return isinstance(array, np.ndarray) and bool(array.any())


_STEPS = {"round", "floor", "ceil", "trunc", "sign", "heaviside", "sgn"}
_KINKS = {"relu", "relu6", "clamp_min", "threshold", "leaky_relu"}
_FLAT = {"sigmoid", "tanh", "hardtanh", "hardsigmoid", "softmax", "log_softmax", "erf"}
_CHOICES = {"where", "masked_fill", "clamp", "clamp_max", "maximum", "minimum", "max_all", "amax",
            "dropout", "max_pool"}
_SUM = "it was summed over exactly, so a constant gradient is no gradient"


def why_zero(param: Tensor, loss: Tensor | Callable[[], Tensor] | None = None) -> Reason | None:
    """Why the gradient of `loss` for `param` is zero; None where it is not.

    loss  a function that computes the loss, or a loss whose graph has not been freed. A backward
          pass runs (no `.grad` changes) and is watched: the node that got a gradient and passed
          on none is the cause. Without it, `param.grad` is looked at, which tells None and
          other than zero; raises ArgumentError (a ValueError) where it is zero.

    Causes: "dead relu", "saturated", "zero weights", "step function", "not selected",
    "constant output", "underflow", "zero cotangent", or what `why_none` says.

    >>> import adjoint as ad
    >>> b = ad.full((3,), -10.0, requires_grad=True)
    >>> why_zero(b, lambda: ad.relu(b).sum()).cause
    'dead relu'
    """
    _tensor("why_zero", param)
    if loss is None:
        if param._grad is None:
            return why_none(param)
        if param._grad.array.any():
            return None
        raise ArgumentError("why_zero(param): its gradient is zero, and the graph that says which "
                            "op made it so is gone; pass the loss before backward(), or a function "
                            "that computes it: why_zero(param, lambda: loss_fn())")
    value = loss if isinstance(loss, Tensor) else loss()
    if not param._rg or not _reaches(value, param):
        if param._grad is not None or not param._rg:
            return _reason("requires_grad is False" if not param._rg else "not part of the loss",
                           None, "this loss does not depend on it", "use it in the loss")
        return why_none(param, loss)
    if any(type(getattr(n, "saved", None)) is Freed for n in _ancestry(_node_of(value))):
        raise ArgumentError("why_zero: the graph of this loss was freed by backward(); pass a "
                            "function that computes it: why_zero(param, lambda: loss_fn())")
    watch = _Norms()
    held = watchers.push(watchers.observers, watch)
    try:
        seed = None if value.array.size == 1 else value.detach() * 0 + 1
        (gradient,) = api.grad(value, param, seed, retain_graph=True)
    finally:
        watchers.pop(held)
    if gradient.array.any():
        return None
    return _culprit(param, _node_of(value), watch)


def _culprit(param: Tensor, root: Any, watch: _Norms) -> Reason:
    leads = {n for n in _ancestry(root) if type(n) is AccumulateGrad and n.variable is param}
    order = sorted((n for n in _ancestry(root) if type(n) is not AccumulateGrad),
                   key=lambda n: n.seq)
    for n in order:
        if any(p in leads for p in parents(n)):
            leads.add(n)
    for n in reversed(order):
        coming, going = watch.rows.get(n, (False, []))
        if n not in leads or not coming:
            continue
        towards = [some for some, e in zip(going, n.edges, strict=True)
                   if e is not None and (e.node if type(e) is Port else e) in leads]
        if not any(towards):
            return _stopped(n)
    return _reason("zero cotangent", node_place(root), "the gradient is zero from the loss on, or "
                   "contributions cancel", "look at the loss: is it constant?")


def _stopped(node: Any) -> Reason:
    """The cause, by what kind of node passed on nothing."""
    name = node.plan.op.name if node.plan is not None else node.name()
    place, at = node_place(node), f"{node.name()} got a gradient and passed on none"
    if name in _KINKS:
        return _reason("dead relu", place, f"{at}: every input is on the flat side",
                       "a smaller learning rate, a bias that is not so negative, leaky_relu")
    if name in _STEPS:
        return _reason("step function", place, f"{at}: its slope is 0 almost everywhere",
                       "a straight-through estimator: x + (step(x) - x).detach()")
    if name in ("softmax", "log_softmax"):
        return _reason("constant output", place, f"{at}: the outputs sum to a constant, and "
                       + _SUM, "compare the outputs with targets instead of summing them")
    if name in _FLAT:
        return _reason("saturated", place, f"{at}: every input is where it is flat",
                       "smaller weights, normalized inputs")
    if name in _CHOICES:
        return _reason("not selected", place, f"{at}: the branch or element was not chosen",
                       "look at the condition, the bounds or the mask")
    if np.dtype(np.float16) in (node.dtype, getattr(node.plan, "dtype", None)):
        return _reason("underflow", place, f"{at} in float16", "scale the loss")
    if name in ("linear", "matmul", "mm", "mm_left", "mm_right", "mul", "bmm", "addmm",
                "convolution", "embedding"):
        return _reason("zero weights", place, f"{at}: what it multiplies with is zero",
                       "initialize at random; look at the other operand of this line")
    return _reason("zero slope", place, at, "look at the operands of this line")
