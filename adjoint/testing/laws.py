"""The laws that every op record obeys, as checks on one sample of operands.

    shapes      infer(avals) = shapes and dtypes of impl(arrays), also on storage-less arrays
    forward     jvp = central difference along a random direction
    transpose   <ct, J t> = <Jᵀ ct, t>
    again       the derivative of the gradient = central difference of the gradient
    batch       batch rule = the op per example, stacked
    bytes       residuals kept on real data = residuals predicted from shapes
    layout      results do not depend on the strides of the operands

A sample is `(args, attrs)`: raw arrays, Python numbers or None, then the attributes.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.autograd import grad
from adjoint.autograd.fit import fit
from adjoint.base.aval import Aval, MetaArray, aval_of
from adjoint.core.bind import bind, compute
from adjoint.core.op import Op, attr_names, reads
from adjoint.core.tensor import OutRef, Tensor, wrap

Args = Sequence[Any]
Attrs = Mapping[str, Any]
STEP, RTOL, ATOL = 1e-6, 2e-5, 2e-7


def floating(a: Any) -> bool:
    """True for arrays that can carry a derivative."""
    return isinstance(a, np.ndarray) and a.dtype.kind in "fc"


def smooth_operands(op: Op, args: Args, table: int) -> list[int]:
    """Positions of the floating operands that the vjp (0) or jvp (1) table has a rule for."""
    covered: set[str] = {o for key in op.compact[table] for o in key}
    return [i for i, a in enumerate(args) if floating(a)
            and (op.variadic and "*" in covered or not op.variadic and op.operands[i] in covered)]


def outputs(op: Op, args: Args, attrs: Attrs) -> tuple[Any, ...]:
    """All results of an op on raw operands, hidden ones last."""
    return compute(op, list(args), attrs)


def visible(op: Op, outs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those results that a user sees."""
    return outs[: len(outs) - len(op.hidden)]


def _residual(op: Op, name: str, args: Args, outs: tuple[Any, ...]) -> Any:
    if name in ("xs", "avals"):
        return tuple(args) if name == "xs" else tuple(aval_of(a) for a in args)
    if name == "out":
        return outs[0]
    every = (*op.outs, *op.hidden)
    if name in op.operands:
        return args[op.operands.index(name)]
    if name in every:
        return outs[every.index(name)]
    a = args[op.operands.index(name[:-5])]
    return None if a is None else aval_of(a)


def _call_rule(op: Op, rule: Callable[..., Any], first: Any, args: Args, attrs: Attrs,
               outs: tuple[Any, ...], wanted: tuple[bool, ...]) -> Any:
    values = [wanted if n == "wanted" else _residual(op, n, args, outs) for n in reads(rule)]
    return rule(first, *values, **{k: attrs[k] for k in attr_names(rule, op)})


def tangent(op: Op, args: Args, tangents: Args, attrs: Attrs) -> list[Any]:
    """J·t by the record's jvp rules, per visible output (None where it carries none)."""
    outs = outputs(op, args, attrs)
    shown = visible(op, outs)
    total: list[Any] = [None] * len(shown)
    wanted = tuple(t is not None for t in tangents)

    def collect(share: Any) -> None:
        shares = share if op.multi and isinstance(share, tuple) else (share,)
        for i, s in enumerate(shares):
            if s is not None and i < len(shown) and op_carries(op, i):
                total[i] = s if total[i] is None else total[i] + s

    if op.variadic:
        ts = [np.zeros_like(a) if t is None else t for a, t in zip(args, tangents, strict=True)]
        rule = op.compact[1][("*",)]
        collect(op.call(*ts, **attrs) if rule is None
                else _call_rule(op, rule, tuple(ts), args, attrs, outs, wanted))
    else:
        for key, rule in op.compact[1].items():
            for o in key:
                i = op.operands.index(o)
                if tangents[i] is None:
                    continue
                if rule is None:
                    moved = [*args[:i], tangents[i], *args[i + 1:]]
                    collect(bind(op, moved, attrs))
                else:
                    collect(_call_rule(op, rule, tangents[i], args, attrs, outs, wanted))
    return [None if t is None else np.broadcast_to(t, o.shape)
            for t, o in zip(total, shown, strict=True)]


def op_carries(op: Op, i: int) -> bool:
    """True if visible output `i` has a derivative."""
    return op.differentiable is None or i >= len(op.outs) or op.carries(i)


def cotangents(op: Op, args: Args, cts: Sequence[Any], attrs: Attrs,
               positions: Sequence[int]) -> list[Any]:
    """Jᵀ·ct by the record's vjp rules, broadcasting undone, per operand."""
    outs = outputs(op, args, attrs)
    needs = sum(1 << i for i in positions)
    plan = op.plan(needs)
    vals = [_residual(op, n, args, outs) for n in plan.names]
    ct = list(cts) if op.multi else cts[0]
    found = plan.run(ct, vals, attrs, len(args))
    return [None if c is None or i not in positions else fit(c, aval_of(args[i]))
            for i, c in enumerate(found)]


def random_like(rng: np.random.Generator, a: Any) -> Any:
    t = rng.standard_normal(a.shape)
    if a.dtype.kind == "c":
        t = t + 1j * rng.standard_normal(a.shape)
    return np.asarray(t, a.dtype)


def close(name: str, law: str, a: Any, b: Any, rtol: float = RTOL, atol: float = ATOL) -> None:
    a, b = np.asarray(a), np.asarray(b)
    scale = max(1.0, float(np.abs(b).max(initial=0.0)))
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol * scale, err_msg=f"{name}: law '{law}'")


def _moved(args: Args, tangents: Args, h: float) -> list[Any]:
    return [a if t is None else a + h * t for a, t in zip(args, tangents, strict=True)]


# ------------------------------------------------------------------ the laws
def shapes(op: Op, args: Args, attrs: Attrs) -> None:
    """infer = run, on real arrays and on storage-less ones."""
    ready = op.prepare(list(args)) if op.prepare is not None else list(args)
    outs = outputs(op, args, attrs)
    said = op.infer(*(None if a is None else aval_of(a) for a in ready), **attrs)
    said = said if isinstance(said, (tuple, list)) else (said,)
    assert [(s.shape, s.dtype) for s in said] == [(o.shape, o.dtype) for o in outs], (
        f"{op.name}: infer says {said}, impl gives {[aval_of(o) for o in outs]}")
    assert not op.view or outs[0] is not args[0], (
        f"{op.name}: a view must be an array of its own, or nothing ties it to its base")
    meta = [MetaArray(a.shape, a.dtype) if isinstance(a, np.ndarray) else a for a in args]
    if not any(isinstance(m, MetaArray) for m in meta):
        return
    got = bind(op, meta, attrs)
    got = got if isinstance(got, tuple) else (got,)
    assert all(isinstance(g, MetaArray) for g in got)
    assert [(g.shape, g.dtype) for g in got] == [(o.shape, o.dtype) for o in visible(op, outs)]


def forward(op: Op, args: Args, attrs: Attrs) -> None:
    """jvp = central difference."""
    rng = np.random.default_rng(1)
    where = smooth_operands(op, args, 1)
    for only in [[i] for i in where] + ([where] if len(where) > 1 else []):
        ts = [random_like(rng, a) if i in only else None for i, a in enumerate(args)]
        got = tangent(op, args, ts, attrs)
        high = visible(op, outputs(op, _moved(args, ts, STEP), attrs))
        low = visible(op, outputs(op, _moved(args, ts, -STEP), attrs))
        for i, (p, m) in enumerate(zip(high, low, strict=True)):
            if p.dtype.kind in "fc" and op_carries(op, i):
                close(op.name, "forward", 0 * p if got[i] is None else got[i],
                       (p - m) / (2 * STEP), atol=5e-7)


def transpose(op: Op, args: Args, attrs: Attrs) -> None:
    """<ct, J t> = <Jᵀ ct, t>, for every operand and all together."""
    rng = np.random.default_rng(2)
    where = [i for i in smooth_operands(op, args, 0) if i in smooth_operands(op, args, 1)]
    shown = visible(op, outputs(op, args, attrs))
    for only in [[i] for i in where] + ([where] if len(where) > 1 else []):
        ts = [random_like(rng, a) if i in only else None for i, a in enumerate(args)]
        cts = [random_like(rng, o) if op_carries(op, i) and o.dtype.kind in "fc" else None
               for i, o in enumerate(shown)]
        jt = tangent(op, args, ts, attrs)
        back = cotangents(op, args, cts, attrs, only)
        one = sum(np.sum(np.conj(c) * j).real for c, j in zip(cts, jt, strict=True)
                  if c is not None and j is not None)
        two = sum(np.sum(np.conj(b) * t).real for b, t in zip(back, ts, strict=True)
                  if b is not None and t is not None)
        close(op.name, "transpose", two, one, rtol=1e-9, atol=1e-9)


def _gradient(op: Op, args: Args, attrs: Attrs, cts: Sequence[Any], where: Sequence[int],
              create: bool) -> tuple[list[Tensor], list[Any]]:
    xs = [wrap(np.array(a), True) if i in where else a for i, a in enumerate(args)]
    leaves = [xs[i] for i in where]
    made = bind(op, xs, attrs)
    made = made if isinstance(made, tuple) else (made,)
    total = [(o, wrap(c)) for o, c in zip(made, cts, strict=True)
             if c is not None and o.requires_grad]
    if not total:
        return leaves, [None] * len(leaves)
    found = grad([t for t, _ in total], leaves, [c for _, c in total], create_graph=create,
                 allow_unused=True)
    return leaves, list(found)


def again(op: Op, args: Args, attrs: Attrs) -> None:
    """Second order: d<grad, u> = central difference of <grad, u>."""
    rng = np.random.default_rng(3)
    where = smooth_operands(op, args, 0)
    if not where:
        return
    shown = visible(op, outputs(op, args, attrs))
    cts = [random_like(rng, o) if op_carries(op, i) and o.dtype.kind in "fc" else None
           for i, o in enumerate(shown)]
    us = [random_like(rng, args[i]) for i in where]
    ts = [random_like(rng, a) if i in where else None for i, a in enumerate(args)]

    def inner(moved: Args) -> float:
        _, found = _gradient(op, moved, attrs, cts, where, False)
        return sum(float(np.sum(np.conj(u) * g.array).real)
                   for u, g in zip(us, found, strict=True) if g is not None)

    leaves, first = _gradient(op, args, attrs, cts, where, True)
    live = [(g, wrap(u)) for g, u in zip(first, us, strict=True)
            if g is not None and g.requires_grad]
    got = 0.0
    if live:
        second = grad([g for g, _ in live], leaves, [u for _, u in live], allow_unused=True)
        got = sum(float(np.sum(np.conj(s.array) * ts[i]).real)
                  for s, i in zip(second, where, strict=True) if s is not None)
    want = (inner(_moved(args, ts, STEP)) - inner(_moved(args, ts, -STEP))) / (2 * STEP)
    close(op.name, "again", got, want, rtol=2e-5, atol=1e-6)


def batch(op: Op, args: Args, attrs: Attrs) -> None:
    """The batch rule = the op per example, stacked; for every operand and for all."""
    assert op.batch is not None, f"{op.name} has no batch rule"
    rng = np.random.default_rng(4)
    arrays = [i for i, a in enumerate(args) if isinstance(a, np.ndarray)]
    for only in [[i] for i in arrays] + ([arrays] if len(arrays) > 1 else []):
        flags = [i in only for i in range(len(args))]
        rows = [[another(rng, a) if f else a for a, f in zip(args, flags, strict=True)]
                for _ in range(3)]
        stacked = [np.stack([r[i] for r in rows]) if f else args[i] for i, f in enumerate(flags)]
        got = op.batch(op, stacked, flags, dict(attrs))
        got = got if isinstance(got, tuple) else (got,)
        want = [visible(op, outputs(op, r, attrs)) for r in rows]
        assert len(got) == len(want[0]), f"{op.name}: batch gives {len(got)} outputs"
        for i, g in enumerate(got):
            expected = np.stack([w[i] for w in want])
            assert g.shape == expected.shape, (
                f"{op.name}: batched {flags} gives {g.shape}, not {expected.shape}")
            close(op.name, f"batch {flags}", g, expected, rtol=1e-9, atol=1e-9)


def another(rng: np.random.Generator, a: Any) -> Any:
    """Another operand of the same kind, in the same domain: this one, a little smaller."""
    return a * (1 - 0.1 * rng.random()) if a.dtype.kind in "fc" else a


def _kept(node: Any) -> list[tuple[tuple[int, ...], int]]:
    found = []
    for s in node.saved or ():
        for one in s if isinstance(s, tuple) else (s,):
            array = one.array if isinstance(one, (Tensor, OutRef)) else one
            if isinstance(array, (np.ndarray, MetaArray)):
                found.append((tuple(array.shape), int(array.nbytes)))
    return found


def residual_bytes(op: Op, args: Args, attrs: Attrs) -> None:
    """What is kept = what the record predicts from shapes, for every pattern of wanted operands."""
    where = smooth_operands(op, args, 0)
    patterns = [[i] for i in where] + ([where] if len(where) > 1 else [])
    for only in patterns:
        kept = []
        for meta in (False, True):
            xs = [_operand(a, i in only, meta) for i, a in enumerate(args)]
            made = bind(op, xs, attrs)
            made = made[0] if isinstance(made, tuple) else made
            kept.append(_kept(made.grad_fn) if made.grad_fn is not None else None)
        assert kept[0] == kept[1], f"{op.name}{only}: kept {kept[0]}, predicted {kept[1]}"
        names = op.plan(sum(1 << i for i in only)).kept
        assert set(names) <= op.legal


def _operand(a: Any, wanted: bool, meta: bool) -> Any:
    if not isinstance(a, np.ndarray):
        return a
    return wrap(MetaArray(a.shape, a.dtype) if meta else a.copy(), wanted)


def layout(op: Op, args: Args, attrs: Attrs) -> None:
    """Results do not depend on strides."""
    want = visible(op, outputs(op, args, attrs))

    def strided(a: Any) -> Any:
        if not isinstance(a, np.ndarray) or not a.ndim:
            return a
        wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
        wide[..., ::2] = a
        return wide[..., ::2]

    def fortran(a: Any) -> Any:
        return np.asfortranarray(a) if isinstance(a, np.ndarray) and a.ndim > 1 else a

    for change in (strided, fortran):
        got = visible(op, outputs(op, [change(a) for a in args], attrs))
        for g, w in zip(got, want, strict=True):
            close(op.name, "layout", g, w, rtol=1e-12, atol=1e-12)


LAWS: dict[str, Callable[[Op, Args, Attrs], None]] = {
    "shapes": shapes, "forward": forward, "transpose": transpose, "again": again, "batch": batch,
    "bytes": residual_bytes, "layout": layout}


def avals(args: Args) -> list[Aval | None]:
    """Avals of a sample's operands."""
    return [aval_of(a) if isinstance(a, np.ndarray) else None for a in args]
