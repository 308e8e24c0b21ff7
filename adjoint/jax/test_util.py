"""`jax.test_util`: derivatives against central differences, in random directions."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.core.tensor import wrap
from adjoint.jax import _transforms as _t
from adjoint.jax._array import as_array, make
from adjoint.jax.tree_util import tree_leaves, tree_map

EPS = 1e-4
_TOLERANCE = {"float16": 1e-2, "float32": 2e-3, "complex64": 1e-3, "float64": 1e-5,
              "complex128": 1e-5}


def _random(rng: np.random.Generator, tree: Any) -> Any:
    def draw(x: Any) -> Any:
        a = as_array(x)
        values = rng.standard_normal(a.shape)
        if a.dtype.kind == "c":
            values = values + 1j * rng.standard_normal(a.shape)
        return make(wrap(np.asarray(values).astype(a.dtype)))
    return tree_map(draw, tree)


def _inner(a: Any, b: Any) -> complex:
    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    return complex(sum(np.sum(np.asarray(x, np.complex128) * np.asarray(y, np.complex128))
                       for x, y in pairs))


def _along(f: Any, args: Any, tangents: Any, eps: float) -> Any:
    def step(sign: float) -> Any:
        moved = tree_map(lambda x, t: as_array(x) + (sign * eps / 2) * t, args, tangents)
        return f(*moved)
    return tree_map(lambda p, m: (as_array(p) - as_array(m)) / eps, step(1.0), step(-1.0))


def _limits(args: Any, out: Any, atol: Any, rtol: Any) -> tuple[float, float]:
    worst = max(_TOLERANCE.get(as_array(x).dtype.name, 1e-2)
                for x in tree_leaves((args, out)))
    return worst if atol is None else atol, worst if rtol is None else rtol


def _close(got: Any, want: Any, atol: float, rtol: float, what: str) -> None:
    for g, w in zip(tree_leaves(got), tree_leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=rtol, atol=atol,
                                   err_msg=what)


def check_jvp(f: Any, f_jvp: Any, args: Any, atol: Any = None, rtol: Any = None, eps: Any = EPS,
              err_msg: str = "") -> None:
    """AssertionError unless `f_jvp(args, tangents)` is (value, central difference)."""
    rng = np.random.default_rng(0)
    tangents = _random(rng, tuple(args))
    value, tangent = f_jvp(args, tangents)
    atol, rtol = _limits(args, value, atol, rtol)
    _close(value, f(*args), atol, rtol, f"{err_msg} JVP value")
    _close(tangent, _along(f, tuple(args), tangents, eps or EPS), atol, rtol,
           f"{err_msg} JVP tangent")


def check_vjp(f: Any, f_vjp: Any, args: Any, atol: Any = None, rtol: Any = None, eps: Any = EPS,
              err_msg: str = "") -> None:
    """AssertionError unless <pulled cotangent, direction> = <cotangent, central difference>."""
    rng = np.random.default_rng(0)
    value, pull = f_vjp(*args)
    atol, rtol = _limits(args, value, atol, rtol)
    _close(value, f(*args), atol, rtol, f"{err_msg} VJP value")
    tangents = _random(rng, tuple(args))
    moved = _along(f, tuple(args), tangents, eps or EPS)
    cotangent = _random(rng, value)
    want, got = _inner(cotangent, moved), _inner(pull(cotangent), tangents)
    np.testing.assert_allclose(got.real, want.real, rtol=rtol, atol=atol,
                               err_msg=f"{err_msg} VJP cotangent projection")


def check_grads(f: Any, args: Any, order: int, modes: Sequence[str] = ("fwd", "rev"),
                atol: Any = None, rtol: Any = None, eps: Any = None) -> None:
    """AssertionError unless derivatives up to `order`, in the modes, are central differences."""
    args = tuple(args)
    step = eps or (EPS if any(as_array(x).dtype.name in ("float64", "complex128")
                              for x in tree_leaves(args)) else 1e-2)

    def check(g: Any, at: Any, left: int, what: str) -> None:
        if "fwd" in modes:
            check_jvp(g, lambda p, t: _t.jvp(g, p, t), at, atol, rtol, step, what)
            if left > 1:
                check(lambda p, t: _t.jvp(g, p, t), (at, at), left - 1, f"{what} jvp of")
        if "rev" in modes:
            check_vjp(g, lambda *p: _t.vjp(g, *p), at, atol, rtol, step, what)
            if left > 1:
                def pulled(*p: Any) -> Any:
                    value, pull = _t.vjp(g, *p)
                    return pull(value)
                check(pulled, at, left - 1, f"{what} vjp of")
    check(f, args, order, "")
