"""Loops and branches as functions: `scan`, `while_loop`, `cond` and their family (JAX's names).

They run as Python loops over ops, so every transform goes through them. Under vmap, where examples
disagree about a condition, both branches run and `where` picks; a loop goes on until the last
example is done.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.autograd.modes import no_grad
from adjoint.base.errors import ArgumentError, AutogradError, StructureError
from adjoint.base.tree import Spec, flatten, tree_map, unflatten
from adjoint.core.tensor import Tensor, wrap
from adjoint.func.batch import BatchTensor
from adjoint.func.vmap import vmap
from adjoint.ops.create import tensor
from adjoint.ops.more import where
from adjoint.ops.shape import cat_op, reshape, stack_op


def _decide(condition: Any) -> tuple[bool, bool, bool]:
    """(true for some example, true for all, do examples have their own)."""
    mapped = False
    while isinstance(condition, Tensor) and condition.level:
        mapped = mapped or isinstance(condition, BatchTensor)
        condition = condition.value
    value = condition.array if isinstance(condition, Tensor) else np.asarray(condition)
    if not mapped and value.size != 1:
        raise StructureError("a condition must be a single truth value, got shape "
                             f"{list(value.shape)}; reduce it with any() or all()")
    return bool(np.any(value)), bool(np.all(value)), mapped


def _pick(condition: Any, a: Any, b: Any, what: str) -> Any:
    """Per leaf: `a` where the condition holds, else `b`."""
    xs, spec = flatten(a)
    ys, other = flatten(b)
    if spec != other:
        raise StructureError(f"{what}: both sides must have the same structure, got {spec.leaves} "
                             f"and {other.leaves} leaves")
    made = []
    for x, y in zip(xs, ys, strict=True):
        x, y = (v if isinstance(v, Tensor) else tensor(v) for v in (x, y))
        if tuple(x.shape) != tuple(y.shape):
            raise StructureError(f"{what}: shapes differ between the two sides: {list(x.shape)} "
                                 f"and {list(y.shape)}")
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
    spec = flatten(init_val)[1]
    while True:
        condition = cond_fun(value)
        some, every, mapped = _decide(condition)
        if not some:
            return value
        if max_steps is not None and steps >= max_steps:
            raise AutogradError(f"while_loop: the condition still holds after {max_steps} steps")
        new = body_fun(value)
        found = flatten(new)[1]
        if found != spec:
            raise StructureError("while_loop: the value must keep its structure, got "
                                 f"{found.leaves} leaves for {spec.leaves}")
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
                raise StructureError("scan: the function must return (carry, y)")
            state, y = found
            leaves, self.y_spec = flatten(y)
            ys.append(leaves)
        out, spec = flatten(state)
        if spec != self.carry_spec:
            raise StructureError("scan: the carry must keep its structure, got "
                                f"{spec.leaves} leaves for {self.carry_spec.leaves}")
        return out, ys[::-1] if self.reverse else ys

    def stacked(self, ys: Sequence[Sequence[Any]]) -> list[Any]:
        """Per leaf of y: its values along a new first axis."""
        return [stack_op(*[v if isinstance(v, Tensor) else tensor(v) for v in column], dim=0)
                for column in zip(*ys, strict=True)]


def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None,
         length: int | None = None, reverse: bool = False, unroll: int | bool = 1, *,
         segments: int | str | None = None) -> tuple[Any, Any]:
    """(carry, y) = f(carry, x) along the first axis of `xs`: the last carry, and all y stacked.

    xs        tree of tensors with a common first axis T, or None with `length`
    reverse   run from the last entry to the first (y keep their places)
    unroll    accepted for JAX's sake: steps run one by one
    segments  reverse mode keeps the residuals of all T steps; with "sqrt" (or a number of
              segments) only those of one segment of ~sqrt(T) steps plus one carry per segment are
              held, at the cost of one more forward (Chen et al. 2016, arXiv:1604.06174), and
              so in gradients of gradients

    >>> import adjoint as ad
    >>> ad.func.scan(lambda c, x: (c + x, c * x), ad.tensor(0.0), ad.tensor([1.0, 2.0, 3.0]))
    (tensor(6.), tensor([0., 2., 9.]))
    """
    carry, carry_spec = flatten(init)
    leaves, xs_spec = flatten(xs)
    steps = _length(leaves, length)
    loop = _Loop(f, carry_spec, xs_spec, reverse)
    if steps == 0:
        return init, _empty(loop, init, leaves)
    if segments is None:
        last, ys = loop.run(carry, leaves, steps)
    else:
        count = math.isqrt(steps) if segments == "sqrt" else segments
        if not isinstance(count, int) or count < 1:
            raise ArgumentError("scan: segments must be \"sqrt\" or a positive int, got "
                                f"{segments!r}")
        last, ys = _segmented(loop, carry, leaves, steps, -(-steps // count))
    return unflatten(last, carry_spec), unflatten(loop.stacked(ys), loop.y_spec)


def _empty(loop: _Loop, init: Any, xs: Sequence[Any]) -> Any:
    """What a scan of no steps stacks: the function is run once, on zeros, for the shapes of y."""
    with no_grad():
        row = [wrap(np.zeros(tuple(x.shape)[1:], x.array.dtype)) for x in xs]
        _, y = loop.f(init, unflatten(row, loop.xs_spec))
    leaves, spec = flatten(y)
    return unflatten([wrap(np.zeros((0, *v.shape), v.array.dtype)) for v in (
        v if isinstance(v, Tensor) else tensor(v) for v in leaves)], spec)


def fori_loop(lower: int, upper: int, body_fun: Callable[[Any, Any], Any], init_val: Any, *,
              unroll: int | bool | None = None) -> Any:
    """val = body_fun(i, val) for i in range(lower, upper); `unroll` is accepted for JAX's sake.

    >>> import adjoint as ad
    >>> power = lambda x: ad.func.fori_loop(0, 3, lambda i, v: v * x, ad.tensor(1.0))
    >>> ad.func.grad(power)(ad.tensor(2.0))
    tensor(12.)
    """
    value = init_val
    for i in range(int(lower), int(upper)):
        value = body_fun(i, value)
    return value


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """branches[index](*operands), the index clamped to the branches there are.

    One branch runs, except where a vmap gives examples their own index: then every branch runs on
    all examples (see `cond`).

    >>> import adjoint as ad
    >>> ad.func.switch(1, [lambda x: x, lambda x: x * x], ad.tensor(3.0))
    tensor(9.)
    """
    if not branches:
        raise ArgumentError("switch: there are no branches")
    last = len(branches) - 1
    if not isinstance(index, Tensor):
        return branches[min(max(int(index), 0), last)](*operands)
    *_, mapped = _decide(index)
    if not mapped:
        plain = index
        while plain.level:
            plain = plain.value
        return branches[min(max(int(plain.array), 0), last)](*operands)
    found = branches[last](*operands)
    for i in range(last - 1, -1, -1):
        found = _pick(index <= i, branches[i](*operands), found, "switch")
    return found


def map_(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """`f` of every entry along the first axis of a tree, one after another, stacked.

    batch_size  entries that run at once, by `vmap`

    >>> import adjoint as ad
    >>> ad.func.map(lambda x: x.sum(), ad.ones(3, 2))
    tensor([2., 2., 2.])
    """
    if batch_size is not None:
        return vmap(f, chunk_size=batch_size)(xs)
    return scan(lambda _, x: (None, f(x)), None, xs)[1]


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False,
                     axis: int = 0) -> Any:
    """All prefixes of an associative operation along an axis of a tree of tensors, in about
    2 log2(n) batched calls of `fn` (Blelloch 1990, "Prefix sums and their applications").

    >>> import adjoint as ad
    >>> ad.func.associative_scan(lambda a, b: a * b, ad.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([ 1.,  2.,  6., 24.])
    """
    leaves, spec = flatten(elems)
    moved = [(x if isinstance(x, Tensor) else tensor(x)).movedim(axis, 0) for x in leaves]
    if len({int(x.shape[0]) for x in moved}) != 1:
        raise ArgumentError("associative_scan: the leaves must agree in size along the axis, got "
                            f"{[int(x.shape[0]) for x in moved]}")

    def join(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        return flatten(fn(unflatten(list(a), spec), unflatten(list(b), spec)))[0]
    if reverse:
        moved = [x.flip(0) for x in moved]
    out = _prefixes(join, moved)
    return unflatten([(x.flip(0) if reverse else x).movedim(0, axis) for x in out], spec)


def _prefixes(join: Callable[..., list[Any]], xs: list[Any]) -> list[Any]:
    """Pairs are joined, their prefixes found in turn, and the entries between filled in."""
    n = int(xs[0].shape[0])
    if n < 2:
        return xs
    odd = _prefixes(join, join([x[0:n - 1:2] for x in xs], [x[1::2] for x in xs]))
    if n > 2:
        stop = odd[0].shape[0] if n % 2 else odd[0].shape[0] - 1
        between = join([o[:stop] for o in odd], [x[2::2] for x in xs])
    out = []
    for k, (x, o) in enumerate(zip(xs, odd, strict=True)):
        even = cat_op(x[:1], between[k], dim=0) if n > 2 else x[:1]
        both = stack_op(even[:o.shape[0]], o, dim=1)
        both = reshape(both, (2 * int(o.shape[0]), *x.shape[1:]))
        out.append(cat_op(both, even[-1:], dim=0) if n % 2 else both)
    return out


def stop_gradient(x: Any) -> Any:
    """A tree of values cut from every derivative, forward and reverse: constants from here on.

    >>> import adjoint as ad
    >>> ad.func.grad(lambda x: ad.func.stop_gradient(x) * x)(ad.tensor(3.0))
    tensor(3.)
    """
    return tree_map(lambda v: v.detach() if isinstance(v, Tensor) else v, x)


def _segmented(loop: _Loop, carry: Sequence[Any], xs: Sequence[Any], steps: int, size: int
               ) -> tuple[list[Any], list[list[Any]]]:
    """Run in checkpointed segments of `size` steps."""
    from adjoint.func.segments import segment as cut  # loaded by the first scan in segments
    n, pieces = len(carry), []
    starts = list(range(0, steps, size))
    for start in reversed(starts) if loop.reverse else starts:
        end = min(start + size, steps)

        def segment(*flat: Any, rows: int = end - start) -> Any:
            out, ys = loop.run(flat[:n], flat[n:], rows)
            return (*out, *[y for row in ys for y in row])
        flat = cut(segment, *carry, *[x[start:end] for x in xs])
        carry, rest = flat[:n], flat[n:]
        width = len(rest) // (end - start)
        pieces.append([list(rest[i * width:(i + 1) * width]) for i in range(end - start)])
    ordered = reversed(pieces) if loop.reverse else pieces
    return list(carry), [row for piece in ordered for row in piece]


__all__ = ["associative_scan", "cond", "fori_loop", "map_", "scan", "stop_gradient",
           "switch", "while_loop"]
