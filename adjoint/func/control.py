"""Loops and branches as functions: `scan`, `while_loop`, `cond` (JAX's names).

They run as Python loops over ops, so every transform goes through them. Under vmap, where examples
disagree about a condition, both branches run and `where` picks; a loop goes on until the last
example is done.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.autograd.checkpoint import checkpoint
from adjoint.base.errors import ArgumentError, AutogradError
from adjoint.base.tree import Spec, flatten, unflatten
from adjoint.core.tensor import Tensor
from adjoint.func.batch import BatchTensor
from adjoint.ops.api_pointwise import where
from adjoint.ops.create import tensor
from adjoint.ops.shape import stack_op


def _decide(condition: Any) -> tuple[bool, bool, bool]:
    """(true for some example, true for all, do examples have their own)."""
    mapped = False
    while isinstance(condition, Tensor) and condition.level:
        mapped = mapped or isinstance(condition, BatchTensor)
        condition = condition.value
    value = condition.array if isinstance(condition, Tensor) else np.asarray(condition)
    if not mapped and value.size != 1:
        raise ArgumentError("a condition must be a single truth value, got shape "
                            f"{list(value.shape)}; reduce it with any() or all()")
    return bool(np.any(value)), bool(np.all(value)), mapped


def _pick(condition: Any, a: Any, b: Any, what: str) -> Any:
    """Per leaf: `a` where the condition holds, else `b`."""
    xs, spec = flatten(a)
    ys, other = flatten(b)
    if spec != other:
        raise ArgumentError(f"{what}: both sides must have the same structure, got {spec.leaves} "
                            f"and {other.leaves} leaves")
    made = []
    for x, y in zip(xs, ys, strict=True):
        x, y = (v if isinstance(v, Tensor) else tensor(v) for v in (x, y))
        if tuple(x.shape) != tuple(y.shape):
            raise ArgumentError(f"{what}: shapes differ between the two sides: {list(x.shape)} and "
                                f"{list(y.shape)}")
        made.append(where(condition, x, y))
    return unflatten(made, spec)


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any
         ) -> Any:
    """true_fun(*operands) if `pred` else false_fun(*operands).

    One branch runs, except where a vmap gives examples their own `pred`: then both run on all
    examples, so neither may fail (or give inf or NaN derivatives) for the examples it is not for.

    >>> import adjoint as ad
    >>> f = lambda x: ad.func.cond(x > 0, lambda x: x * x, lambda x: -x, x)
    >>> ad.func.vmap(ad.func.grad(f))(ad.tensor([3.0, -3.0]))
    tensor([ 6., -1.])
    """
    some, every, mapped = _decide(pred)
    if not mapped or some == every:
        return true_fun(*operands) if some else false_fun(*operands)
    return _pick(pred, true_fun(*operands), false_fun(*operands), "cond")


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any, *,
               max_steps: int | None = None) -> Any:
    """Repeat `body_fun` on a tree of values while `cond_fun` of it holds.

    max_steps  raise AutogradError where more steps would be needed (default: no limit)

    All of grad, jvp and vmap work; reverse mode keeps the residuals of every step (for solutions
    of equations, `fixed_point` needs none). Under vmap, finished examples keep their values.

    >>> import adjoint as ad
    >>> double = lambda x: ad.func.while_loop(lambda v: v < 10, lambda v: v * 2, x)
    >>> ad.func.vmap(double)(ad.tensor([1.0, 7.0])), ad.func.grad(double)(ad.tensor(1.0))
    (tensor([16., 14.]), tensor(16.))
    """
    value, steps = init_val, 0
    while True:
        condition = cond_fun(value)
        some, every, mapped = _decide(condition)
        if not some:
            return value
        if max_steps is not None and steps >= max_steps:
            raise AutogradError(f"while_loop: the condition still holds after {max_steps} steps")
        new = body_fun(value)
        value = _pick(condition, new, value, "while_loop") if mapped and not every else new
        steps += 1


def _length(xs: Sequence[Any], length: int | None) -> int:
    sizes = {int(x.shape[0]) for x in xs} | ({length} if length is not None else set())
    if len(sizes) != 1:
        raise ArgumentError("scan: the first axes of xs and `length` must agree, got "
                            f"{sorted(sizes)}" if sizes else "scan: give xs or a length")
    return sizes.pop()


class _Loop:
    """The steps of a scan: runs a range of them, flat lists in and out."""

    def __init__(self, f: Callable[..., Any], carry_spec: Spec, xs_spec: Spec, reverse: bool
                 ) -> None:
        self.f, self.carry_spec, self.xs_spec, self.reverse = f, carry_spec, xs_spec, reverse
        self.y_spec: Any = None

    def run(self, carry: Sequence[Any], xs: Sequence[Any], steps: int
            ) -> tuple[list[Any], list[list[Any]]]:
        """(carry, the leaves of y of each step in the order of time)."""
        state = unflatten(list(carry), self.carry_spec)
        ys: list[list[Any]] = []
        for k in range(steps):
            t = steps - 1 - k if self.reverse else k
            found = self.f(state, unflatten([x[t] for x in xs], self.xs_spec))
            if not isinstance(found, tuple) or len(found) != 2:
                raise ArgumentError("scan: the function must return (carry, y)")
            state, y = found
            leaves, self.y_spec = flatten(y)
            ys.append(leaves)
        out, spec = flatten(state)
        if spec != self.carry_spec:
            raise ArgumentError("scan: the carry must keep its structure, got "
                                f"{spec.leaves} leaves for {self.carry_spec.leaves}")
        return out, ys[::-1] if self.reverse else ys

    def stacked(self, ys: Sequence[Sequence[Any]]) -> list[Any]:
        """Per leaf of y: its values along a new first axis."""
        return [stack_op(*[v if isinstance(v, Tensor) else tensor(v) for v in column], dim=0)
                for column in zip(*ys, strict=True)]


def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None,
         length: int | None = None, reverse: bool = False, *, segments: int | str | None = None
         ) -> tuple[Any, Any]:
    """(carry, y) = f(carry, x) along the first axis of `xs`: the last carry, and all y stacked.

    xs        tree of tensors with a common first axis T, or None with `length`
    reverse   run from the last entry to the first (y keep their places)
    segments  reverse mode keeps the residuals of all T steps; with "sqrt" (or a number of
              segments) only those of one segment of ~sqrt(T) steps plus one carry per segment are
              held, at the cost of one more forward (Chen et al. 2016, arXiv:1604.06174)

    >>> import adjoint as ad
    >>> ad.func.scan(lambda c, x: (c + x, c * x), ad.tensor(0.0), ad.tensor([1.0, 2.0, 3.0]))
    (tensor(6.), tensor([0., 2., 9.]))
    """
    carry, carry_spec = flatten(init)
    leaves, xs_spec = flatten(xs)
    steps = _length(leaves, length)
    if steps == 0:
        raise ArgumentError("scan: there are no steps (length 0), so the shape of y is not known")
    loop = _Loop(f, carry_spec, xs_spec, reverse)
    if segments is None:
        last, ys = loop.run(carry, leaves, steps)
    else:
        count = math.isqrt(steps) if segments == "sqrt" else segments
        if not isinstance(count, int) or count < 1:
            raise ArgumentError("scan: segments must be \"sqrt\" or a positive int, got "
                                f"{segments!r}")
        last, ys = _segmented(loop, carry, leaves, steps, -(-steps // count))
    return unflatten(last, carry_spec), unflatten(loop.stacked(ys), loop.y_spec)


def _segmented(loop: _Loop, carry: Sequence[Any], xs: Sequence[Any], steps: int, size: int
               ) -> tuple[list[Any], list[list[Any]]]:
    """Run in checkpointed segments of `size` steps."""
    n, pieces = len(carry), []
    starts = list(range(0, steps, size))
    for start in reversed(starts) if loop.reverse else starts:
        end = min(start + size, steps)

        def segment(*flat: Any, rows: int = end - start) -> Any:
            out, ys = loop.run(flat[:n], flat[n:], rows)
            return (*out, *[y for row in ys for y in row])
        flat = checkpoint(segment, *carry, *[x[start:end] for x in xs], use_reentrant=False)
        carry, rest = flat[:n], flat[n:]
        width = len(rest) // (end - start)
        pieces.append([list(rest[i * width:(i + 1) * width]) for i in range(end - start)])
    ordered = reversed(pieces) if loop.reverse else pieces
    return list(carry), [row for piece in ordered for row in piece]


__all__ = ["cond", "scan", "while_loop"]
