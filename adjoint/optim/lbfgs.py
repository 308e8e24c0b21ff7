"""L-BFGS with an optional strong Wolfe line search."""
from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import MetaArray
from adjoint.base.errors import ArgumentError, MetaError, StructureError
from adjoint.core.tensor import Tensor, bump, wrap
from adjoint.optim._line_search import strong_wolfe
from adjoint.optim.optimizer import Closure, Optimizer, ParamsT, check_common, number

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """Limited-memory BFGS (Liu and Nocedal 1989): a quasi-Newton step from the last
    ``history_size`` changes of parameters and gradients.

    Needs ``step(closure)``; the closure clears the gradients, computes the loss and calls
    backward. One step makes up to ``max_iter`` iterations and ``max_eval`` (None: 1.25 max_iter)
    evaluations; a line search that has begun makes one more. It stops when the largest gradient
    entry is <= ``tolerance_grad`` or the change is <= ``tolerance_change``.
    ``line_search_fn="strong_wolfe"`` searches the step length, else it is ``lr`` (for the first
    iteration at most 1 / |g|_1). One parameter group only.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([3.0, -4.0]))
    >>> opt = ad.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     opt.zero_grad(); loss = ((w - 1) ** 2).sum(); loss.backward(); return loss
    >>> _ = opt.step(closure)
    >>> bool((w - 1).abs().max() < 1e-5)
    True
    """

    def __init__(self, params: ParamsT, lr: float | Tensor = 1, max_iter: int = 20,
                 max_eval: int | None = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100,
                 line_search_fn: str | None = None) -> None:
        check_common(lr)
        if line_search_fn not in (None, "strong_wolfe"):
            raise ArgumentError("only 'strong_wolfe' is supported as line_search_fn, got "
                                f"{line_search_fn!r}")
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn})
        if len(self.param_groups) != 1:
            raise ArgumentError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params: list[Tensor] = self.param_groups[0]["params"]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    # -- parameters as one vector -------------------------------------------------------------
    def _gather(self) -> Any:
        """All gradients as one real vector."""
        parts = []
        for p in self._params:
            a = np.zeros_like(p.array) if p.grad is None else p.grad.array
            parts.append(_real(np.ravel(a)))
        return np.concatenate(parts)

    def _move(self, start: list[Any], direction: Any, t: float) -> None:
        """Set every parameter to its ``start`` plus ``t`` times its part of ``direction``."""
        at = 0
        for p, a in zip(self._params, start, strict=True):
            n = a.size * (2 if a.dtype.kind == "c" else 1)
            part = (t * direction[at:at + n]).astype(direction.dtype, copy=False)
            if a.dtype.kind == "c":
                part = part.view(a.dtype)
            np.add(a, part.reshape(a.shape), out=p.array)
            bump(p, "LBFGS.step")
            at += n

    def _evaluate(self, closure: Callable[[], Any], start: list[Any], t: float, d: Any
                  ) -> tuple[float, Any]:
        self._move(start, d, t)
        loss = number(closure())
        grad = self._gather()
        self._move(start, d, 0.0)
        return loss, grad

    # -- the step -----------------------------------------------------------------------------
    def step(self, closure: Closure | None = None) -> Any:
        """Up to ``max_iter`` iterations; returns the loss of the first evaluation."""
        if closure is None:
            raise StructureError("LBFGS.step() missing 1 required positional argument: 'closure': "
                                 "LBFGS.step() needs a closure that reevaluates the model and "
                                "returns the loss")
        if any(type(p.array) is MetaArray for p in self._params):
            raise MetaError("LBFGS.step(): how often it evaluates depends on values, which "
                            "storage-less tensors do not have; predict the closure alone\n  at "
                            f"{provenance.here(sys._getframe(1))}")
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = self._loss(closure)
        state["func_evals"] += 1
        grad = self._gather()
        if _largest(grad) <= group["tolerance_grad"]:
            return first
        run = _Run(state, number(first), grad)
        evaluations, n = 1, 0
        while n < group["max_iter"]:
            n += 1
            state["n_iter"] += 1
            run.direction(group["history_size"])
            slope = float(run.grad @ run.d)
            run.prev_grad, run.prev_loss = run.grad.copy(), run.loss
            run.t = (min(1.0, 1.0 / float(np.abs(run.grad).sum())) * number(group["lr"])
                     if state["n_iter"] == 1 else number(group["lr"]))
            if slope > -group["tolerance_change"]:
                break
            used = self._search(closure, run, group, slope, n == group["max_iter"],
                                group["max_eval"] - evaluations)
            evaluations += used
            state["func_evals"] += used
            if run.done(group) or evaluations >= group["max_eval"]:
                break
        run.save(state, group["history_size"], group["lr"])
        return first

    def _search(self, closure: Closure, run: _Run, group: dict[str, Any], slope: float,
                last: bool, left: int) -> int:
        """Move along ``run.d``; sets loss, gradient and t there; returns the evaluations used.
        A line search makes one, and after it at most the ``left`` ones."""
        start = [p.array.copy() for p in self._params]
        if group["line_search_fn"] == "strong_wolfe":
            run.loss, run.grad, run.t, used = strong_wolfe(
                lambda t: self._evaluate(lambda: self._loss(closure), start, t, run.d),
                run.t, run.d, run.loss, run.grad, slope, max_ls=min(25, left))
            self._move(start, run.d, run.t)
            return used
        self._move(start, run.d, run.t)
        if last:  # nobody would look at the gradient of the last point
            return 0
        run.loss = number(self._loss(closure))
        run.grad = self._gather()
        return 1


class _Run:
    """The vectors of one step; kept between steps as tensors in the optimizer's state."""

    def __init__(self, state: dict[str, Any], loss: float, grad: Any) -> None:
        self.loss, self.grad, self.n_iter = loss, grad, state["n_iter"]
        self.d: Any = None if state.get("d") is None else state["d"].array
        self.t: float = number(state.get("t") or 0.0)
        self.dirs = [x.array for x in state.get("old_dirs") or []]
        self.steps = [x.array for x in state.get("old_stps") or []]
        self.ro: list[float] = [float(x) for x in state.get("ro") or []]
        self.weights: list[float] | None = None     # of the last direction
        self.h_diag = float(state.get("H_diag") or 1.0)
        prev = state.get("prev_flat_grad")
        self.prev_grad = None if prev is None else prev.array
        self.prev_loss = state.get("prev_loss")

    def direction(self, history: int) -> None:
        """The next direction: two-loop recursion over the history (Nocedal, Wright, alg. 7.4)."""
        self.n_iter += 1
        if self.n_iter == 1 or self.d is None or self.prev_grad is None:
            self.d, self.h_diag = -self.grad, 1.0
            self.dirs, self.steps, self.ro = [], [], []
            return
        y, s = self.grad - self.prev_grad, self.d * np.asarray(self.t, self.d.dtype)
        ys = float(y @ s)
        if ys > 1e-10:  # keep only changes of positive curvature
            if len(self.dirs) == history:
                self.dirs.pop(0)
                self.steps.pop(0)
                self.ro.pop(0)
            self.dirs.append(y)
            self.steps.append(s)
            self.ro.append(1.0 / ys)
            self.h_diag = ys / float(y @ y)
        q = -self.grad
        weights = [0.0] * len(self.dirs)
        for i in reversed(range(len(self.dirs))):
            weights[i] = float(self.steps[i] @ q) * self.ro[i]
            q = q - self.dirs[i] * np.asarray(weights[i], q.dtype)
        self.weights = weights
        self.d = q * np.asarray(self.h_diag, q.dtype)
        for i in range(len(self.dirs)):
            back = float(self.dirs[i] @ self.d) * self.ro[i]
            self.d = self.d + self.steps[i] * np.asarray(weights[i] - back, q.dtype)

    def done(self, group: dict[str, Any]) -> bool:
        """True if gradient, step or change of the loss is within its tolerance."""
        change = group["tolerance_change"]
        return (_largest(self.grad) <= group["tolerance_grad"]
                or float(np.abs(self.d * self.t).max(initial=0.0)) <= change
                or (self.prev_loss is not None and not math.isnan(self.loss)
                    and abs(self.loss - self.prev_loss) < change))

    def save(self, state: dict[str, Any], history: int, lr: float | Tensor) -> None:
        """Put the vectors back into the optimizer's state; the step length is a tensor if the
        learning rate is one."""
        def one(x: float) -> Tensor:
            return wrap(np.asarray(x, self.d.dtype))
        if self.weights is not None:
            state["al"] = ([one(x) for x in self.weights]
                           + [None] * (history - len(self.weights)))
        state.update(
            d=wrap(self.d),
            t=wrap(np.asarray(self.t, lr.array.dtype)) if isinstance(lr, Tensor) else self.t,
            old_dirs=[wrap(x) for x in self.dirs],
            old_stps=[wrap(x) for x in self.steps], ro=[one(x) for x in self.ro],
            H_diag=one(self.h_diag) if self.ro else 1,
            prev_flat_grad=wrap(self.prev_grad), prev_loss=self.prev_loss)


def _real(a: Any) -> Any:
    return np.ascontiguousarray(a).view(a.real.dtype) if a.dtype.kind == "c" else a


def _largest(a: Any) -> float:
    return float(np.abs(a).max(initial=0.0))
