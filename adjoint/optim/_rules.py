"""Update rules on raw arrays, one function each, and the loop that runs them.

A rule is elementwise: ``rule(p, g, *state, *scratch, **numbers)`` updates ``p`` and ``state`` in
place, may write to the scratch arrays, and never to ``g``. ``run`` cuts large arrays into pieces
that stay in the cache, because a rule passes over its operands several times. A rule touches
each element once, so a fused kernel over all tensors can take its place.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.core.rehearsal import call

Array = Any  # np.ndarray, or MetaArray where nothing is computed
Rule = Callable[..., None]
PIECE = 32768  # elements; six float32 operands of this size fit in a megabyte


class Scratch:
    """Temporary arrays that live as long as the optimizer, one set per dtype."""

    def __init__(self) -> None:
        self._held: dict[tuple[Any, int], Any] = {}

    def __rehearse__(self, shadow: Callable[[Any], Any]) -> None:
        """Storage-less arrays in place of the held ones (see `memory.predict`)."""
        for key, held in self._held.items():
            self._held[key] = shadow(held)

    def flat(self, size: int, dtype: Any, count: int, meta: bool = False) -> list[Any]:
        """``count`` one-dimensional arrays of at least ``size`` elements."""
        out = []
        for i in range(count):
            held = self._held.get((dtype, i))
            if held is None or held.shape[0] < size or (type(held) is MetaArray) != meta:
                held = MetaArray((size,), dtype) if meta else np.empty(size, dtype)
                self._held[dtype, i] = held
            out.append(held)
        return out


def run(rule: Rule, arrays: Sequence[Array], scratch: Scratch, count: int,
        numbers: dict[str, Any]) -> None:
    """Apply ``rule`` to ``arrays`` (parameter first) with ``count`` scratch arrays."""
    p = arrays[0]
    if p.dtype.kind == "c":  # as two real problems, as PyTorch does
        for part in (0, 1):
            run(rule, [_part(a, part) for a in arrays], scratch, count, numbers)
        return
    if type(p) is MetaArray:
        _rehearsed(rule, arrays, scratch, count, numbers)
        return
    size = p.size
    if size <= PIECE:
        temps = [t[:size].reshape(p.shape) for t in scratch.flat(size, p.dtype, count)]
        rule(*arrays, *temps, **numbers)
    elif all(a.flags.c_contiguous for a in arrays):
        flat = [a.reshape(-1) for a in arrays]
        temps = scratch.flat(PIECE, p.dtype, count)
        for start in range(0, size, PIECE):
            stop = min(start + PIECE, size)
            rule(*[a[start:stop] for a in flat], *[t[:stop - start] for t in temps], **numbers)
    else:
        _strided(rule, arrays, scratch, count, numbers)


def _part(a: Array, part: int) -> Array:
    """The real (0) or the imaginary (1) part, a view."""
    if type(a) is not MetaArray:
        return a.imag if part else a.real
    half = np.empty(0, a.dtype).real.dtype
    return _view(a, a.shape, a.strides, half, a.offset + part * half.itemsize)


def _view(a: MetaArray, shape: tuple[int, ...], steps: tuple[int, ...] | None, dtype: Any = None,
          offset: int | None = None) -> MetaArray:
    return MetaArray(shape, dtype or a.dtype, a if a.base is None else a.base, steps,
                     a.offset if offset is None else offset)


def _rehearsed(rule: Rule, arrays: Sequence[Array], scratch: Scratch, count: int,
               numbers: dict[str, Any]) -> None:
    """What the rule does to memory on one piece; nothing is computed."""
    shape = arrays[0].shape
    if arrays[0].size > PIECE:
        rows = PIECE // math.prod(shape[1:])
        if all(a.contiguous for a in arrays):
            shape = (PIECE,)
        elif rows:
            shape = (rows, *shape[1:])
        else:
            whole = [_view(a, shape[1:], a.strides[1:]) for a in arrays]
            return _rehearsed(rule, whole, scratch, count, numbers)
    temps = scratch.flat(math.prod(shape), arrays[0].dtype, count, meta=True)

    def piece(a: Array) -> Array:
        return a if a.shape == shape else _view(a, shape, None if a.contiguous else a.strides)
    call(rule, *map(piece, arrays), *map(piece, temps), otherwise=tuple, **numbers)


def _strided(rule: Rule, arrays: Sequence[Array], scratch: Scratch, count: int,
             numbers: dict[str, Any]) -> None:
    """Large arrays that cannot be flattened without a copy: pieces along the first axis."""
    p = arrays[0]
    rows = PIECE // (p.size // len(p))
    if rows == 0:  # one row alone is too large: it has at least one axis of its own
        for i in range(len(p)):
            run(rule, [a[i] for a in arrays], scratch, count, numbers)
        return
    for start in range(0, len(p), rows):
        run(rule, [a[start:start + rows] for a in arrays], scratch, count, numbers)


def lerp(a: Array, b: Array, weight: float, t: Array) -> None:
    """``a += weight (b - a)`` in the form that is exact at both ends."""
    np.subtract(b, a, out=t)
    if weight < 0.5:
        np.multiply(t, weight, out=t)
        np.add(a, t, out=a)
    else:
        np.multiply(t, 1 - weight, out=t)
        np.subtract(b, t, out=a)


def addcmul(a: Array, x: Array, y: Array, value: float, t: Array) -> None:
    """``a += value x y``."""
    np.multiply(x, value, out=t)
    np.multiply(t, y, out=t)
    np.add(a, t, out=a)


def direction(p: Array, g: Array, t: Array, maximize: bool, weight_decay: float) -> Array:
    """The gradient to descend along: negated, with L2 decay added, in ``t`` if either."""
    if maximize:
        g = np.negative(g, out=t)
    if weight_decay:
        if g is t:
            return np.add(g, weight_decay * p, out=t)
        np.multiply(p, weight_decay, out=t)
        return np.add(g, t, out=t)
    return g


def sgd(p: Array, g: Array, *rest: Array, lr: float, momentum: float, dampening: float,
        weight_decay: float, nesterov: bool, maximize: bool, first: bool) -> None:
    """``b = momentum b + (1 - dampening) g;  p -= lr b`` (Nesterov: ``g + momentum b``)."""
    *state, t, u = rest
    g = direction(p, g, t, maximize, weight_decay)
    if momentum:
        buf = state[0]
        if first:
            buf[...] = g
        else:
            np.multiply(buf, momentum, out=buf)
            np.add(buf, np.multiply(g, 1 - dampening, out=u), out=buf)
        g = np.add(g, np.multiply(buf, momentum, out=u), out=u) if nesterov else buf
    np.subtract(p, np.multiply(g, lr, out=u), out=p)


def adam(p: Array, g: Array, m: Array, v: Array, *rest: Array, lr: float, beta1: float,
         beta2: float, eps: float, weight_decay: float, decoupled: bool, maximize: bool,
         step: float) -> None:
    """Adam with bias correction (Kingma and Ba 2015), AMSGrad if a maximum is passed (Reddi et
    al. 2018), decoupled weight decay if asked for (Loshchilov and Hutter 2019)."""
    *top, t, u = rest
    if decoupled and weight_decay:
        np.multiply(p, 1 - lr * weight_decay, out=p)
    g = direction(p, g, t, maximize, 0.0 if decoupled else weight_decay)
    lerp(m, g, 1 - beta1, u)
    np.multiply(v, beta2, out=v)
    addcmul(v, g, g, 1 - beta2, u)
    largest = np.maximum(top[0], v, out=top[0]) if top else v
    np.sqrt(largest, out=u)
    np.divide(u, (1 - beta2**step) ** 0.5, out=u)
    np.add(u, eps, out=u)
    np.multiply(m, lr / (1 - beta1**step), out=t)
    np.subtract(p, np.divide(t, u, out=t), out=p)


def adamax(p: Array, g: Array, m: Array, norm: Array, t: Array, u: Array, *, lr: float,
           beta1: float, beta2: float, eps: float, weight_decay: float, maximize: bool,
           step: float) -> None:
    """Adam with the infinity norm (Kingma and Ba 2015, section 7.1)."""
    g = direction(p, g, t, maximize, weight_decay)
    lerp(m, g, 1 - beta1, u)
    np.multiply(norm, beta2, out=norm)
    np.add(np.abs(g, out=u), eps, out=u)
    np.maximum(norm, u, out=norm)
    np.multiply(m, lr / (1 - beta1**step), out=u)
    np.subtract(p, np.divide(u, norm, out=u), out=p)


def nadam(p: Array, g: Array, m: Array, v: Array, t: Array, u: Array, w: Array, *, lr: float,
          beta1: float, beta2: float, eps: float, weight_decay: float, decoupled: bool,
          maximize: bool, step: float, of_g: float, of_m: float) -> None:
    """Adam with Nesterov momentum (Dozat 2016); ``of_g`` and ``of_m`` weigh gradient and mean."""
    if decoupled and weight_decay:
        np.multiply(p, 1 - lr * weight_decay, out=p)
    g = direction(p, g, t, maximize, 0.0 if decoupled else weight_decay)
    lerp(m, g, 1 - beta1, u)
    np.multiply(v, beta2, out=v)
    addcmul(v, g, g, 1 - beta2, u)
    np.divide(v, 1 - beta2**step, out=u)
    np.add(np.sqrt(u, out=u), eps, out=u)
    for part, weight in ((g, of_g), (m, of_m)):
        np.multiply(part, -lr * weight, out=w)
        np.add(p, np.divide(w, u, out=w), out=p)


def radam(p: Array, g: Array, m: Array, v: Array, t: Array, u: Array, w: Array, *, lr: float,
          beta1: float, beta2: float, eps: float, weight_decay: float, decoupled: bool,
          maximize: bool, step: float) -> None:
    """Rectified Adam (Liu et al. 2020)."""
    if decoupled and weight_decay:
        np.multiply(p, 1 - lr * weight_decay, out=p)
    g = direction(p, g, t, maximize, 0.0 if decoupled else weight_decay)
    lerp(m, g, 1 - beta1, u)
    np.multiply(v, beta2, out=v)
    addcmul(v, g, g, 1 - beta2, u)
    left = 1 - beta2**step
    rho_inf = 2 / (1 - beta2) - 1
    rho = rho_inf - 2 * step * beta2**step / left
    np.divide(m, 1 - beta1**step, out=u)
    np.multiply(u, lr, out=u)
    if rho > 5.0:
        rect = ((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)) ** 0.5
        np.add(np.sqrt(v, out=w), eps, out=w)
        np.divide(left**0.5, w, out=w)
        np.multiply(np.multiply(u, w, out=u), rect, out=u)
    np.subtract(p, u, out=p)


def adagrad(p: Array, g: Array, total: Array, t: Array, u: Array, *, lr: float, lr_decay: float,
            eps: float, weight_decay: float, maximize: bool, step: float) -> None:
    """``s += g^2;  p -= lr g / (sqrt(s) + eps)`` (Duchi et al. 2011)."""
    g = direction(p, g, t, maximize, weight_decay)
    addcmul(total, g, g, 1.0, u)
    np.add(np.sqrt(total, out=u), eps, out=u)
    np.multiply(g, lr / (1 + (step - 1) * lr_decay), out=t)
    np.subtract(p, np.divide(t, u, out=u), out=p)


def adadelta(p: Array, g: Array, square: Array, delta: Array, t: Array, u: Array, w: Array, *,
             lr: float, rho: float, eps: float, weight_decay: float, maximize: bool) -> None:
    """Step sizes from the running averages of squared gradients and squared steps (Zeiler 2012)."""
    g = direction(p, g, t, maximize, weight_decay)
    np.multiply(square, rho, out=square)
    addcmul(square, g, g, 1 - rho, u)
    np.sqrt(np.add(square, eps, out=u), out=u)
    np.sqrt(np.add(delta, eps, out=w), out=w)
    np.multiply(np.divide(w, u, out=w), g, out=w)
    np.multiply(delta, rho, out=delta)
    addcmul(delta, w, w, 1 - rho, u)
    np.subtract(p, np.multiply(w, lr, out=w), out=p)


def rmsprop(p: Array, g: Array, square: Array, *rest: Array, lr: float, alpha: float, eps: float,
            weight_decay: float, momentum: float, centered: bool, maximize: bool) -> None:
    """``p -= lr g / (sqrt(E[g^2]) + eps)`` (Hinton's lecture 6e; centered: Graves 2013)."""
    *state, t, u = rest
    g = direction(p, g, t, maximize, weight_decay)
    np.multiply(square, alpha, out=square)
    addcmul(square, g, g, 1 - alpha, u)
    if centered:
        mean = state[-1]
        lerp(mean, g, 1 - alpha, u)
        np.subtract(square, np.multiply(mean, mean, out=u), out=u)
        np.sqrt(u, out=u)
    else:
        np.sqrt(square, out=u)
    np.add(u, eps, out=u)
    if momentum > 0:
        buf = state[0]
        np.multiply(buf, momentum, out=buf)
        np.add(buf, np.divide(g, u, out=u), out=buf)
        np.multiply(buf, lr, out=u)
    else:
        np.divide(np.multiply(g, lr, out=t), u, out=u)
    np.subtract(p, u, out=p)


def rprop(p: Array, g: Array, prev: Array, size: Array, t: Array, u: Array, *, eta_minus: float,
          eta_plus: float, size_min: float, size_max: float, maximize: bool) -> None:
    """Step sizes from the signs of the gradients alone (Riedmiller and Braun 1993)."""
    np.negative(g, out=t) if maximize else np.copyto(t, g)
    np.multiply(t, prev, out=u)
    turned = u < 0
    np.multiply(size, np.where(turned, eta_minus, np.where(u > 0, eta_plus, 1.0)), out=size,
                casting="same_kind")
    np.clip(size, size_min, size_max, out=size)
    t[turned] = 0
    np.copyto(prev, t)
    t[t != t] = 0                                    # the sign of nan is 0, as in PyTorch
    np.multiply(np.sign(t, out=u), size, out=u)
    np.subtract(p, u, out=p)


def asgd(p: Array, g: Array, average: Array, t: Array, u: Array, *, lambd: float, eta: float,
         mu: float, weight_decay: float, maximize: bool) -> None:
    """SGD whose iterates are averaged (Polyak and Juditsky 1992)."""
    g = direction(p, g, t, maximize, weight_decay)
    np.multiply(p, 1 - lambd * eta, out=p)
    np.subtract(p, np.multiply(g, eta, out=u), out=p)
    if mu == 1:
        np.copyto(average, p)
    else:
        np.subtract(p, average, out=u)
        np.add(average, np.multiply(u, mu, out=u), out=average)
