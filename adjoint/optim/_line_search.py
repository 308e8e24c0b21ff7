"""Strong Wolfe line search by bracketing and cubic interpolation (Nocedal and Wright 2006,
algorithms 3.5 and 3.6, with the safeguards of Schmidt's minFunc)."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Point(NamedTuple):
    """A step length with the loss, gradient vector and slope there."""

    t: float
    f: float
    g: Any
    slope: float


def cubic_minimum(a: Point, b: Point, low: float | None = None, high: float | None = None
                  ) -> float:
    """The minimum, within [low, high], of the cubic through two points and their slopes; the
    middle of the interval where the cubic has none."""
    if low is None or high is None:
        low, high = min(a.t, b.t), max(a.t, b.t)
    if not all(map(math.isfinite, (a.f, b.f, a.slope, b.slope))) or a.t == b.t:
        return (low + high) / 2.0
    d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if square < 0:
        return (low + high) / 2.0
    d2 = math.sqrt(square)
    if a.t <= b.t:
        at = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    else:
        at = a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2 * d2))
    return min(max(at, low), high)


def strong_wolfe(evaluate: Callable[[float], tuple[float, Any]], t: float, d: Any, f: float,
                 g: Any, slope: float, c1: float = 1e-4, c2: float = 0.9,
                 tolerance_change: float = 1e-9, max_ls: int = 25
                 ) -> tuple[float, Any, float, int]:
    """A step t with ``f(t) <= f + c1 t slope`` and ``|slope(t)| <= c2 |slope|``.

    ``evaluate(t)`` gives loss and gradient at t along ``d``. Returns (loss, gradient, t, number
    of evaluations); if no such t is found within ``max_ls`` tries, the best one.
    """
    start = Point(0.0, f, np.copy(g), slope)
    longest = float(np.abs(d).max(initial=0.0))

    def at(x: float) -> Point:
        loss, grad = evaluate(x)
        return Point(x, loss, np.copy(grad), float(grad @ d))

    def enough(p: Point) -> bool:
        return abs(p.slope) <= -c2 * slope

    bracket, found, evaluations, tries = _bracket(at, start, t, enough, c1, max_ls)
    stuck = False
    low, high = ((0, 1) if bracket[0].f <= bracket[-1].f else (1, 0)) if not found else (0, 0)
    while not found and tries < max_ls:
        width = abs(bracket[1].t - bracket[0].t)
        if width * longest < tolerance_change:
            break
        x, stuck = _inside(bracket, stuck)
        new = at(x)
        evaluations += 1
        tries += 1
        if new.f > f + c1 * x * slope or new.f >= bracket[low].f:
            bracket[high] = new
            low, high = (0, 1) if bracket[0].f <= bracket[1].f else (1, 0)
        else:
            if enough(new):
                found = True
            elif new.slope * (bracket[high].t - bracket[low].t) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = new
    best = bracket[low]
    return best.f, best.g, best.t, evaluations


def _bracket(at: Callable[[float], Point], start: Point, t: float,
             enough: Callable[[Point], bool], c1: float, max_ls: int
             ) -> tuple[list[Point], bool, int, int]:
    """Step out until an interval holds an acceptable step, or one is met on the way; returns the
    interval, whether its first point is acceptable, evaluations and tries."""
    prev, new = start, at(t)
    evaluations, tries = 1, 0
    while tries < max_ls:
        if new.f > start.f + c1 * new.t * start.slope or (tries > 1 and new.f >= prev.f):
            return [prev, new], False, evaluations, tries
        if enough(new):
            return [new], True, evaluations, tries
        if new.slope >= 0:
            return [prev, new], False, evaluations, tries
        least, most = new.t + 0.01 * (new.t - prev.t), new.t * 10
        step = cubic_minimum(prev, new, least, most)
        prev, new = new, at(step)
        evaluations += 1
        tries += 1
    return [start, new], False, evaluations, tries


def _inside(bracket: list[Point], stuck: bool) -> tuple[float, bool]:
    """The next step length to try, kept off the ends of the bracket: one that is near an end
    for the second time is moved a tenth of the width inwards."""
    ends = (bracket[0].t, bracket[1].t)
    low, high = min(ends), max(ends)
    x = cubic_minimum(bracket[0], bracket[1])
    margin = 0.1 * (high - low)
    if min(high - x, x - low) / (high - low) < 0.1:
        if stuck or x >= high or x <= low:
            return (high - margin if abs(x - high) < abs(x - low) else low + margin), False
        return x, True
    return x, False
