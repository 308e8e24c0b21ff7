"""`autograd.test_util`: derivatives against differences, to any order."""
from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from adjoint.base.tree import tree_map
from adjoint.hips.box import getval
from adjoint.hips.core import make_jvp, make_vjp
from adjoint.hips.extend import vspace
from adjoint.hips.util import unary_to_nary

TOL = 1e-6
RTOL = 1e-6
EPS = 1e-6
F = Callable[..., Any]


def scalar_close(a: Any, b: Any) -> Any:
    """|a - b| below TOL, or below RTOL relative to their mean size."""
    return abs(a - b) < TOL or abs(a - b) / abs(a + b) < RTOL


def make_numerical_jvp(f: F, x: Any) -> F:
    """`push(v)`: central differences of `f` at x along v."""
    y = f(x)
    at, out = vspace(x), vspace(y)

    def push(v: Any) -> Any:
        high = f(at.add(x, at.scalar_mul(v, EPS / 2)))
        low = f(at.add(x, at.scalar_mul(v, -EPS / 2)))
        return out.scalar_mul(out.add(high, out.scalar_mul(low, -1)), 1.0 / EPS)
    return push


def check_vjp(f: F, x: Any) -> None:
    """Reverse mode: the pull of a random cotangent against differences along a random tangent, and
    the space of the result against that of x. AssertionError where they differ."""
    pull, y = make_vjp(f, x)
    push = make_numerical_jvp(f, x)
    at, out = vspace(x), vspace(y)
    v, w = at.randn(), out.randn()
    found = pull(w)
    if vspace(found) != vspace(tree_map(_floating, x)):
        raise AssertionError(f"the gradient is in {vspace(found)}, the argument in {at}")
    by_pull = getval(at.inner_prod(v, at.covector(found)))
    by_push = getval(out.inner_prod(w, out.covector(push(v))))
    if not scalar_close(by_pull, by_push):
        raise AssertionError(f"Derivative (VJP) check of {f} failed with arg {x}:\n"
                             f"analytic: {by_pull}\nnumeric:  {by_push}")


def _floating(x: Any) -> Any:
    """An array as its derivatives are: of floats, where it is of whole numbers."""
    whole = isinstance(x, np.ndarray) and x.dtype.kind in "iub"
    return x.astype(np.float64) if whole else x


def check_jvp(f: F, x: Any) -> None:
    """Forward mode against differences along a random tangent."""
    v = vspace(x).randn()
    check_equivalent(make_jvp(f, x)(v)[1], make_numerical_jvp(f, x)(v))


def check_equivalent(x: Any, y: Any) -> None:
    """Two values are in one space, and their inner products with a random vector are close."""
    a, b = vspace(x), vspace(y)
    if a != b:
        raise AssertionError(f"the values are in {a} and in {b}")
    v = a.randn()
    p, q = getval(a.inner_prod(x, v)), getval(a.inner_prod(y, v))
    if not scalar_close(p, q):
        raise AssertionError(f"the values differ: {p} and {q} along a random vector;\n{x}\n{y}")


@unary_to_nary
def check_grads(f: F, x: Any, modes: Any = ("fwd", "rev"), order: int = 2) -> None:
    """The derivatives of `f` to that order against differences, in the modes asked for.

    >>> import adjoint.hips.numpy as np
    >>> check_grads(lambda x, y: np.sin(x) * y, (0, 1))(1.0, 2.0)
    """
    unknown = [m for m in modes if m not in ("fwd", "rev")]
    if unknown:
        raise AssertionError(f"modes are 'fwd' and 'rev', got {unknown}")
    if "fwd" in modes:
        check_jvp(f, x)
        if order > 1:
            check_grads(lambda at, v: make_jvp(f, at)(v)[1], (0, 1), modes, order - 1)(
                x, vspace(x).randn())
    if "rev" in modes:
        check_vjp(f, x)
        if order > 1:
            w = vspace(f(x)).randn()
            check_grads(lambda at, v: make_vjp(f, at)[0](v), (0, 1), modes, order - 1)(x, w)


def combo_check(fun: F, *args: Any, **kwargs: Any) -> F:
    """`combo_check(fun, argnum, ...)(*lists, **lists)`: `check_grads` for every combination of
    arguments from the lists."""
    check = check_grads(fun, *args, **kwargs)

    def run(*lists: Any, **named: Any) -> None:
        for choice in product(*lists):
            for values in product(*named.values()):
                check(*choice, **dict(zip(named, values, strict=True)))
    return run


__all__ = ["EPS", "RTOL", "TOL", "check_equivalent", "check_grads", "check_jvp", "check_vjp",
           "combo_check", "make_numerical_jvp", "scalar_close"]
