"""Connectionist temporal classification: all examples at once, one step of time after the other.

States of an example are its labels with blanks between and around them. `alpha[t, s]` is the log
probability of all paths that reach state s at time t, `beta[t, s]` of all that go on from there to
the end. Backward runs both again, so that nothing is kept but the operands.
Source: A. Graves et al., "Connectionist temporal classification" (2006), eq. 6-8 and 14-16.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.autocast import in_float32
from adjoint.core.op import op
from adjoint.ops.api_common import (
    dtype_of,
    is_recorded,
    kernel,
    need,
    need_kernel,
    raw,
)
from adjoint.ops.family import generated, through_float32
from adjoint.ops.gather import gather_op
from adjoint.ops.index import unindex_op
from adjoint.ops.loss import reduced
from adjoint.ops.moments import logsumexp_op
from adjoint.ops.pointwise import add, div, exp, isinf, mul, neg, sub, where_op
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import (
    batch_loop,
    cat_op,
    narrow_op,
    reshape,
    select_op,
    stack_op,
    unsqueeze_op,
)

Shape = tuple[int, ...]
_LARGE = 4096      # states of all times and examples from which on the kernel pays


def _states(targets: Any, lengths: Shape, blank: int) -> tuple[Any, Any]:
    """(class of every state (N, 2·S + 1), may it be entered from two states before?)."""
    ts = np.asarray(raw(targets)).astype(np.int64)
    states = np.full((len(lengths), 2 * max(lengths, default=0) + 1), blank, np.int64)
    ends = np.cumsum((0, *lengths))
    for b, n in enumerate(lengths):
        states[b, 1:2 * n:2] = ts[b, :n] if ts.ndim == 2 else ts[ends[b]:ends[b + 1]]
    skip = np.zeros(states.shape, bool)
    skip[:, 3::2] = states[:, 3::2] != states[:, 1:-2:2]
    return states, skip


def _entry(skip: Any, lengths: Shape, last: bool) -> Any:
    """Where a path may begin (or end): the first (or last) blank and label."""
    at = np.arange(skip.shape[1])
    if not last:
        return np.broadcast_to(at < 2, skip.shape)
    ends = np.array(lengths)[:, None]
    return (at <= 2 * ends) & (at >= 2 * ends - 1)


def _moves(skip: Any, last: bool) -> Any:
    """Which state may be entered from (or left for) the one two further on."""
    return np.pad(skip, ((0, 0), (0, 2)))[:, 2:] if last else skip


def _raw_paths(emit: Any, skip: Any, lengths: Shape, steps: Shape, last: bool) -> Any:
    """alpha, or beta without the emission of its own step, (T, N, states), raw."""
    out = np.empty(emit.shape, emit.dtype)
    n = emit.shape[2]
    wide = np.full((len(skip), n + 2), -np.inf, emit.dtype)     # two states more on one side
    before, one = wide[:, :n] if last else wide[:, 2:], wide[:, 1:n + 1]
    two, jumps = wide[:, 2:] if last else wide[:, :n], np.empty((len(skip), n), emit.dtype)
    stays = ~_moves(skip, last)
    entry = np.where(_entry(skip, lengths, last), 0, -np.inf).astype(emit.dtype)
    ends = np.array(steps)
    begins, shortest = {n - 1 for n in steps} if last else {0}, min(steps, default=0)
    for t in range(len(emit) - 1, -1, -1) if last else range(len(emit)):
        total = out[t]
        if last and t + 1 < len(emit):
            np.add(out[t + 1], emit[t + 1], out=before)
        np.copyto(jumps, two)
        jumps[stays] = -np.inf
        np.logaddexp(np.logaddexp(before, one, out=total), jumps, out=total)
        if t in begins:
            total[...] = np.where((ends - 1 == t)[:, None], entry, total) if last else entry
        if t >= shortest:
            total[ends <= t] = -np.inf
        if not last:
            np.add(total, emit[t], out=total)
            before[...] = total
    return out


def _alpha(x: Any, states: Any, skip: Any, lengths: Shape, steps: Shape) -> tuple[Any, bool]:
    """(alpha, is it that of the generated kernel?)."""
    k = generated("ctc_paths") if x.shape[0] * states.size >= _LARGE else None
    found = NotImplemented if k is None else k(x, states, skip, lengths, steps)
    if found is not NotImplemented:
        return found, True
    return _raw_paths(_emitted(x, states), skip, lengths, steps, False), False


def _paths(emit: Any, skip: Any, lengths: Shape, steps: Shape, last: bool) -> Any:
    """The same in ops, as a list over time: it can be differentiated."""
    moves, entry = _moves(skip, last), np.where(_entry(skip, lengths, last), 0.0, -np.inf)
    side = np.full((len(skip), 2), -np.inf, dtype_of(emit))
    first = np.array(steps) - 1 if last else np.zeros(len(steps), int)
    n, out = emit.shape[2], [None] * emit.shape[0]
    total: Any = np.full(skip.shape, -np.inf, dtype_of(emit))
    for t in range(len(out) - 1, -1, -1) if last else range(len(out)):
        own = select_op(emit, dim=0, index=min(t + 1, len(out) - 1) if last else t)
        before = add(total, own) if last else total
        wide = cat_op(*((before, side) if last else (side, before)), dim=1)
        one, two = (narrow_op(wide, dim=1, start=s, length=n) for s in ((1, 2) if last else (1, 0)))
        total = logsumexp_op(stack_op(before, one, where_op(moves, two, -np.inf), dim=0), dim=(0,),
                             keepdim=False)
        total = where_op((first == t)[:, None], entry.astype(dtype_of(emit)), total)
        total = where_op((t < np.array(steps))[:, None], total, -np.inf)
        total = total if last else add(total, own)
        out[t] = total
    return out


def _emitted(x: Any, states: Any) -> Any:
    index = np.broadcast_to(states, (x.shape[0], *states.shape))
    if not is_recorded(x):
        return np.take_along_axis(x, index, 2)
    return gather_op(x, index, dim=2)


def _read(alpha: Any, lengths: Shape, steps: Shape) -> Any:
    """log p of every target, from raw alphas."""
    rows = np.arange(len(lengths))
    at = np.maximum(np.array(steps) - 1, 0)
    end, label = 2 * np.array(lengths), np.maximum(2 * np.array(lengths) - 1, 0)
    blank = alpha[at, rows, end]
    label = np.where(np.array(lengths) > 0, alpha[at, rows, label], -np.inf)
    empty = np.where(np.array(lengths) == 0, 0.0, -np.inf)
    return np.where(np.array(steps) > 0, np.logaddexp(blank, label), empty).astype(alpha.dtype)


@through_float32
def _losses(x: Any, targets: Any, *, steps: Shape, lengths: Shape, blank: int,
          zero_infinity: bool) -> Any:
    if not len(x):
        found = np.where(np.array(lengths) == 0, 0.0, np.inf).astype(x.dtype)
    else:
        states, skip = _states(targets, lengths, blank)
        found = -_read(_alpha(x, states, skip, lengths, steps)[0], lengths, steps)
    return np.where(np.isinf(found), 0, found).astype(x.dtype) if zero_infinity else found


@through_float32
def _raw_slope(x: Any, targets: Any, *, steps: Shape, lengths: Shape, blank: int,
               zero_infinity: bool) -> Any:
    if not x.size:
        return np.zeros(x.shape, x.dtype)
    states, skip = _states(targets, lengths, blank)
    alpha, made = _alpha(x, states, skip, lengths, steps)
    total = _read(alpha, lengths, steps)
    lost = np.isinf(total)
    total = np.where(lost, 0, total).astype(x.dtype)
    if made:
        out = generated("ctc_slopes")(x, states, skip, lengths, steps, alpha, total)
    else:
        out = _shares(x, states, skip, lengths, steps, alpha, total)
    for b in np.flatnonzero(lost):
        out[:steps[b], b, states[b]] = 0.0 if zero_infinity else np.nan
    return out


def _shares(x: Any, states: Any, skip: Any, lengths: Shape, steps: Shape, alpha: Any, total: Any
            ) -> Any:
    """Minus the share of the paths that emit a class at a time."""
    emit, out = _emitted(x, states), np.zeros(x.shape, x.dtype)
    beta = _raw_paths(emit, skip, lengths, steps, True)
    share = -np.exp(alpha + beta - total[:, None])
    share[np.arange(len(x))[:, None] >= np.array(steps)] = 0.0
    rows = np.arange(len(lengths))
    for s in range(states.shape[1]):
        out[:, rows, states[:, s]] += share[:, :, s]
    return out


_slope_kernel = kernel("ctc_slope", lambda x, targets, /, **attrs: _raw_slope(x, targets, **attrs),
                       lambda x, targets, **_: x)


def _slope(x: Any, targets: Any, steps: Shape, lengths: Shape, blank: int,
           zero_infinity: bool) -> Any:
    """The derivative of every loss by the log probabilities of its example, (T, N, C): minus the
    share of the paths that are there at that time."""
    if not is_recorded(x):
        return _slope_kernel(x, targets, steps=steps, lengths=lengths, blank=blank,
                             zero_infinity=zero_infinity)
    time, n, classes = x.shape
    states, skip = _states(targets, lengths, blank)
    emit = _emitted(x, states)
    both = [add(a, b) for a, b in zip(_paths(emit, skip, lengths, steps, False),
                                      _paths(emit, skip, lengths, steps, True), strict=True)]
    total = logsumexp_op(both[0], dim=(1,), keepdim=True)
    lost = isinf(total)
    inside = np.arange(time)[:, None, None] < np.array(steps)[:, None]
    share = exp(sub(stack_op(*both, dim=0), where_op(lost, 0.0, total)))
    share = where_op(lost, 0.0 if zero_infinity else np.nan, share)
    share = where_op(inside, share, 0.0)
    flat = (np.arange(n)[:, None] * classes + states).reshape(-1)
    summed = unindex_op(reshape(share, (time, flat.size)), flat, shape=(time, n * classes),
                        dims=(1,))
    return neg(reshape(summed, (time, n, classes)))


def _jvp(t: Any, x: Any, targets: Any, *, steps: Shape, lengths: Shape, blank: int,
         zero_infinity: bool) -> Any:
    slope = _slope(x, targets, steps, lengths, blank, zero_infinity)
    return sum_op(mul(t, slope), dim=(0, 2), keepdim=False)


def _domain() -> Any:
    x = np.random.default_rng(4).normal(size=(5, 3, 4)) - 2
    targets = np.array([[1, 1, 0], [2, 3, 2], [3, 0, 0]])
    return [((x, targets), {"steps": (5, 5, 4), "lengths": (2, 3, 1), "blank": 0,
                            "zero_infinity": False})]


ctc_op: Any = op(
    "ctc_loss", impl=lambda x, targets, /, *, steps, lengths, blank, zero_infinity: _losses(
        x, targets, steps=steps, lengths=lengths, blank=blank, zero_infinity=zero_infinity),
    infer=lambda x, targets, **_: Aval((x.shape[1],), x.dtype),
    vjp={"x": lambda ct, x, targets, *, steps, lengths, blank, zero_infinity: mul(
        reshape(ct, (1, -1, 1)), _slope(x, targets, steps, lengths, blank, zero_infinity))},
    jvp={"x": _jvp}, batch=batch_loop, domain=_domain,
    cost=lambda x, targets, *, lengths, **_: 30 * x.shape[0] * len(lengths) * (
        2 * max(lengths, default=0) + 1),
    why={"x": "alpha and beta are made again", "targets": "which states the paths go through"})


@in_float32
def ctc_loss(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Any:
    """Connectionist temporal classification: log_probs (T, N, C) or (T, C), targets (N, S) or
    joined; "mean" divides every loss by its target length first. A target that no path of the
    input's length can spell has loss inf, and 0 with `zero_infinity`, without a gradient.

    Raises ArgumentError where lengths, blank or labels do not fit log_probs.
    Source: A. Graves et al., "Connectionist temporal classification" (2006), eq. 6-8.

    >>> import adjoint as ad
    >>> even = ad.zeros(2, 1, 2) - 0.6931472
    >>> ad.nn.functional.ctc_loss(even, ad.tensor([[1]]), (2,), (1,))    # 3 of 4 paths spell "1"
    tensor(0.2877)
    """
    need_kernel("ctc_loss_cpu", "h", log_probs)
    need("ctc_loss", log_probs)
    need("ctc_loss", targets, argument="targets")
    single = len(log_probs.shape) == 2
    x = unsqueeze_op(log_probs, dim=1) if single else log_probs
    time, n, classes = x.shape
    if not 0 <= blank < classes:
        raise ArgumentError(f"ctc_loss: blank must be in label range [0, {classes}), got {blank}")
    il, tl = (tuple(np.asarray(raw(v)).reshape(-1).astype(int).tolist())
              for v in (input_lengths, target_lengths))
    if len(il) != n or len(tl) != n:
        name, got = ("input", il) if len(il) != n else ("target", tl)
        raise ArgumentError(f"{name}_lengths must be of size batch_size (ctc_loss: {n} examples, "
                            f"got {len(got)} lengths)")
    if max(il, default=0) > time:
        raise ArgumentError(f"ctc_loss: Expected input_lengths to have value at most {time}, but "
                            f"got value {max(il)}")
    if min(*il, *tl, 0) < 0:
        raise ArgumentError("ctc_loss: Expected lengths to be non-negative, got input_lengths "
                            f"{list(il)} and target_lengths {list(tl)}")
    if len(targets.shape) == 2 and not single and targets.shape[0] != n:
        raise ShapeError(f"Expected tensor to have size {n} at dimension 0, but got size "
                         f"{targets.shape[0]} for argument #2 'targets' (ctc_loss: {n} examples, "
                         f"targets {list(targets.shape)})")
    room = targets.shape[-1] if single or len(targets.shape) == 2 else None
    if room is not None and max(tl, default=0) > room:
        raise ArgumentError(f"ctc_loss: Expected tensor to have size at least {max(tl)} at "
                            f"dimension 1, but got size {room} for argument 'targets'")
    if room is None and sum(tl) != targets.shape[0]:
        raise ArgumentError(f"Expected tensor to have size {sum(tl)} at dimension 0, but got size "
                            f"{targets.shape[0]} for argument #2 'targets' (ctc_loss: joined "
                            f"targets of the lengths {list(tl)})")
    if len(targets.shape) == 2 and single:
        targets = reshape(targets, (-1,))
    found = ctc_op(x, targets, steps=il, lengths=tl, blank=int(blank),
                   zero_infinity=bool(zero_infinity))
    if reduction == "mean":
        found = div(found, np.maximum(tl, 1).astype(dtype_of(x)))
    out = reduced(found, reduction)
    return reshape(out, ()) if single and reduction == "none" else out


__all__ = ["ctc_loss", "ctc_op"]
