"""Laws of an op record under transforms, on one sample of operands (see `laws`).

    jvp            func.jvp = the record's tangents
    vmap           func.vmap = a loop over examples, operands mapped alone and together
    vmap of vmap   = two loops
    vmap of vjp    = a loop over pulls
    jvp of vjp     forward over reverse = central difference of the pull
    vjp of jvp     reverse over forward = central difference of the push
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint import func
from adjoint.core.op import Op
from adjoint.core.tensor import Tensor, wrap
from adjoint.testing.laws import (
    STEP,
    Args,
    Attrs,
    another,
    close,
    floating,
    op_carries,
    outputs,
    random_like,
    smooth_operands,
    tangent,
    visible,
)


class Sample:
    """An op on a sample: its smooth operands as variables, the others fixed."""

    def __init__(self, op: Op, args: Args, attrs: Attrs) -> None:
        self.op, self.args, self.attrs = op, args, dict(attrs)
        both = set(smooth_operands(op, args, 0)) & set(smooth_operands(op, args, 1))
        self.where = sorted(both)
        self.shown = visible(op, outputs(op, args, attrs))
        self.live = [i for i, o in enumerate(self.shown) if op_carries(op, i)
                     and o.dtype.kind in "fc"]
        self.rng = np.random.default_rng(5)

    @property
    def points(self) -> list[Any]:
        """The variables."""
        return [self.args[i] for i in self.where]

    def run(self, *xs: Any) -> tuple[Any, ...]:
        """The differentiable outputs as a function of the variables."""
        full = list(self.args)
        for i, x in zip(self.where, xs, strict=True):
            full[i] = x
        out = self.op.call(*full, **self.attrs)
        out = out if isinstance(out, tuple) else (out,)
        return tuple(out[i] for i in self.live)

    def directions(self) -> list[Any]:
        """A random tangent per variable."""
        return [random_like(self.rng, x) for x in self.points]

    def cotangents(self) -> list[Any]:
        """A random cotangent per differentiable output."""
        return [random_like(self.rng, self.shown[i]) for i in self.live]


def tensors(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Arrays as tensors of their own memory."""
    return tuple(wrap(np.array(a)) for a in arrays)


def dot(a: Sequence[Any], b: Sequence[Any]) -> float:
    """The real inner product of two lists of arrays."""
    return float(sum(np.sum(np.conj(_raw(x)) * _raw(y)).real for x, y in zip(a, b, strict=True)))


def _raw(x: Any) -> Any:
    return x.detach().resolve_conj().numpy() if isinstance(x, Tensor) else np.asarray(x)


def jvp(op: Op, args: Args, attrs: Attrs) -> None:
    """func.jvp = the tangents of the record."""
    s = Sample(op, args, attrs)
    if not s.where or not s.live:
        return
    ts = s.directions()
    full: list[Any] = [None] * len(args)
    for i, t in zip(s.where, ts, strict=True):
        full[i] = t
    want = tangent(op, args, full, attrs)
    _, got = func.jvp(s.run, tensors(s.points), tensors(ts))
    for i, g in zip(s.live, got, strict=True):
        close(op.name, "jvp", _raw(g), np.zeros_like(s.shown[i]) if want[i] is None else want[i],
              rtol=1e-9, atol=1e-9)


def _rows(s: Sample, n: int, only: Sequence[int]) -> list[list[Any]]:
    return [[another(s.rng, a) if i in only and floating(a) else a for i, a in enumerate(s.args)]
            for _ in range(n)]


def _mapped(op: Op, attrs: Attrs, fixed: Sequence[Any], only: Sequence[int]
            ) -> Callable[..., tuple[Any, ...]]:
    def run(*xs: Any) -> tuple[Any, ...]:
        full = list(fixed)
        for i, x in zip(only, xs, strict=True):
            full[i] = x
        out = op.call(*full, **attrs)
        return out if isinstance(out, tuple) else (out,)
    return run


def vmap(op: Op, args: Args, attrs: Attrs) -> None:
    """func.vmap = a loop, for every operand alone and all together."""
    s = Sample(op, args, attrs)
    arrays = [i for i, a in enumerate(args) if isinstance(a, np.ndarray)]
    for only in [[i] for i in arrays] + ([arrays] if len(arrays) > 1 else []):
        rows = _rows(s, 3, only)
        got = func.vmap(_mapped(op, attrs, args, only))(*tensors(
            [np.stack([r[i] for r in rows]) for i in only]))
        want = [visible(op, outputs(op, r, attrs)) for r in rows]
        for k, g in enumerate(got):
            close(op.name, f"vmap {only}", _raw(g), np.stack([w[k] for w in want]), rtol=1e-9,
                  atol=1e-9)


def vmap_of_vmap(op: Op, args: Args, attrs: Attrs) -> None:
    """Two axes mapped, the inner one at the end of the operands; the last operand by one alone."""
    s = Sample(op, args, attrs)
    arrays = [i for i, a in enumerate(args) if isinstance(a, np.ndarray)]
    if not arrays:
        return
    rows = _rows(s, 4, arrays)
    if len(arrays) > 1:                       # the last one is the same along the outer axis
        for k, r in enumerate(rows):
            r[arrays[-1]] = rows[k % 2][arrays[-1]]
    stacks = [np.stack([np.stack([rows[2 * a + b][i] for b in range(2)], -1) for a in range(2)])
              for i in arrays]
    outer: list[Any] = [0] * len(arrays)
    if len(arrays) > 1:
        stacks[-1], outer[-1] = stacks[-1][0], None
    inner = func.vmap(_mapped(op, attrs, args, arrays), in_dims=-1)
    got = func.vmap(inner, in_dims=tuple(outer))(*tensors(stacks))
    want = [visible(op, outputs(op, r, attrs)) for r in rows]
    for k, g in enumerate(got):
        stacked = np.stack([w[k] for w in want])
        close(op.name, "vmap of vmap", _raw(g), stacked.reshape(2, 2, *stacked.shape[1:]),
              rtol=1e-9, atol=1e-9)


def vmap_of_vjp(op: Op, args: Args, attrs: Attrs) -> None:
    """Pulls of every example, with all variables mapped and with the first one alone."""
    s = Sample(op, args, attrs)
    if not s.where or not s.live:
        return
    n = len(s.where)

    def pull(*v: Any) -> tuple[Any, ...]:
        return tuple(func.vjp(s.run, *v[:n])[1](tuple(v[n:])))
    cts = [s.cotangents() for _ in range(3)]
    for count in {n, 1}:
        xs = [[another(s.rng, x) if k < count else x for k, x in enumerate(s.points)]
              for _ in range(3)]
        want = [pull(*tensors(x), *tensors(c)) for x, c in zip(xs, cts, strict=True)]
        stacked = [np.stack([x[k] for x in xs]) if k < count else s.points[k] for k in range(n)]
        dims = (*[0 if k < count else None for k in range(n)], *[0] * len(s.live))
        got = func.vmap(pull, in_dims=dims)(*tensors(stacked), *tensors(
            [np.stack([c[k] for c in cts]) for k in range(len(s.live))]))
        for k, g in enumerate(got):
            close(op.name, "vmap of vjp", _raw(g), np.stack([_raw(w[k]) for w in want]),
                  rtol=1e-8, atol=1e-8)


def _slope(f: Callable[..., float], xs: Sequence[Any], ts: Sequence[Any]) -> float:
    high, low = (f([x + sign * STEP * t for x, t in zip(xs, ts, strict=True)]) for sign in (1, -1))
    return (high - low) / (2 * STEP)


def jvp_of_vjp(op: Op, args: Args, attrs: Attrs) -> None:
    """Forward over reverse."""
    s = Sample(op, args, attrs)
    if not s.where or not s.live:
        return
    cts, ts, us = tensors(s.cotangents()), s.directions(), s.directions()

    def pull(*xs: Any) -> tuple[Any, ...]:
        return tuple(func.vjp(s.run, *xs)[1](cts))
    _, got = func.jvp(pull, tensors(s.points), tensors(ts))
    want = _slope(lambda xs: dot(us, pull(*tensors(xs))), s.points, ts)
    close(op.name, "jvp of vjp", dot(us, got), want, rtol=2e-5, atol=1e-6)


def vjp_of_jvp(op: Op, args: Args, attrs: Attrs) -> None:
    """Reverse over forward."""
    s = Sample(op, args, attrs)
    if not s.where or not s.live:
        return
    cts, ts, us = s.cotangents(), tensors(s.directions()), s.directions()

    def push(*xs: Any) -> tuple[Any, ...]:
        return tuple(func.jvp(s.run, xs, ts)[1])
    _, pull = func.vjp(push, *tensors(s.points))
    got = dot(us, pull(tensors(cts)))
    want = _slope(lambda xs: dot(cts, push(*tensors(xs))), s.points, us)
    close(op.name, "vjp of jvp", got, want, rtol=2e-5, atol=1e-6)


TRANSFORM_LAWS: dict[str, Callable[[Op, Args, Attrs], None]] = {
    "jvp": jvp, "vmap": vmap, "vmap of vmap": vmap_of_vmap, "vmap of vjp": vmap_of_vjp,
    "jvp of vjp": jvp_of_vjp, "vjp of jvp": vjp_of_jvp}
