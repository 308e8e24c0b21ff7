"""`jax.scipy.sparse.linalg`: Krylov solvers on trees, by implicit differentiation.

`cg` after Hestenes and Stiefel (1952), `gmres` after Saad and Schultz (1986), with restarts,
`bicgstab` after van der Vorst (1992). A derivative is another solve with the same words (start,
tolerances, number of steps, preconditioner), so it is as near as the solves are.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.jax import numpy as _jnp
from adjoint.jax.dtypes import finfo
from adjoint.jax.flatten_util import ravel_pytree
from adjoint.jax.lax import custom_linear_solve, stop_gradient, while_loop
from adjoint.jax.tree_util import tree_leaves, tree_map, tree_structure

jnp: Any = _jnp
_Map = Callable[[Any], Any]


# ------------------------------------------------------------------ what is given
def _linear(A: Any) -> _Map:
    """The map of a function or of a square matrix."""
    if callable(A):
        return A
    if not hasattr(A, "shape") or not hasattr(A, "ndim"):
        raise TypeError(f"linear operator must be either a function or ndarray: {A}")
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"linear operator must be a square matrix, but has shape: {A.shape}")
    return lambda v: jnp.matmul(A, v)


def _start(x0: Any, b: Any) -> Any:
    """The first guess, which has the structure and the shapes of b."""
    if x0 is None:
        return tree_map(jnp.zeros_like, b)
    ours, theirs = tree_structure(x0), tree_structure(b)
    if ours != theirs:
        raise ValueError(f"x0 and b must have matching tree structure: {ours} vs {theirs}")
    shapes = [[jnp.shape(v) for v in tree_leaves(t)] for t in (x0, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"arrays in x0 and b must have matching shapes: {shapes[0]} vs "
                         f"{shapes[1]}")
    return stop_gradient(x0)


def _solved(A: Any, b: Any, x0: Any, M: Any, run: Callable[..., Any], symmetric: bool) -> Any:
    """The tree x with A(x) = b; `run(matvec, right, start, inverse)` on vectors."""
    start = ravel_pytree(_start(x0, b))[0]
    vector, back = ravel_pytree(b)
    if vector.dtype.kind not in "fcV":
        raise TypeError(f"a solution takes b of floats or complex numbers, got {vector.dtype}: "
                        "convert it with b.astype(float)")
    apply, prepare = _linear(A), (None if M is None else _linear(M))
    shape = tree_structure(b)

    def matvec(v: Any) -> Any:
        out = apply(back(v))
        if tree_structure(out) != shape:
            raise TypeError("matvec() output pytree structure must match b, got "
                            f"{tree_structure(out)} and {shape}.")
        return ravel_pytree(out)[0]

    def inverse(v: Any) -> Any:
        return v if prepare is None else ravel_pytree(prepare(back(v)))[0]

    def solve(f: _Map, y: Any) -> Any:
        return run(f, y, start, inverse)
    return back(custom_linear_solve(matvec, vector, solve, None if symmetric else solve,
                                    symmetric=symmetric))


def _square(v: Any) -> Any:
    return jnp.vdot(v, v).real


def _limit(b: Any, tol: Any, atol: Any) -> Any:
    return jnp.maximum(tol ** 2 * _square(b), atol ** 2).astype(b.real.dtype)


# ------------------------------------------------------------------ conjugate gradients
def cg(A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0,
       maxiter: int | None = None, M: Any = None) -> Any:
    """(x, None) with A(x) = b for a Hermitian positive A, a function or a matrix.

    Steps end where the norm of the residual is at most max(tol norm(b), atol), or after `maxiter`
    (ten for each unknown); `M` is near the inverse of A. Differentiable in b and in what A closes
    over. ValueError for an x0 unlike b and a matrix that is not square."""
    def run(f: _Map, y: Any, start: Any, inverse: _Map) -> Any:
        most, limit = 10 * y.size if maxiter is None else maxiter, _limit(y, tol, atol)

        def step(state: Any) -> Any:
            x, r, p, gamma, k = state
            q = f(p)
            alpha = (gamma / jnp.vdot(p, q).real).astype(y.dtype)
            x, r = x + alpha * p, r - alpha * q
            z = inverse(r)
            new = jnp.vdot(r, z).real
            return x, r, z + (new / gamma).astype(y.dtype) * p, new, k + 1
        r = y - f(start)
        z = inverse(r)
        state = (start, r, z, jnp.vdot(r, z).real, jnp.asarray(0))
        return while_loop(lambda s: (_square(s[1]) > limit) & (s[4] < most), step, state)[0]
    return _solved(A, b, x0, M, run, True), None


# ------------------------------------------------------------------ stabilized bi-gradients
def bicgstab(A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0,
             maxiter: int | None = None, M: Any = None) -> Any:
    """(x, None) with A(x) = b for any square A; the words are those of `cg`."""
    def run(f: _Map, y: Any, start: Any, inverse: _Map) -> Any:
        most, limit = 10 * y.size if maxiter is None else maxiter, _limit(y, tol, atol)

        def step(state: Any) -> Any:
            x, r, shadow, alpha, omega, rho, p, q, k = state
            new = jnp.vdot(shadow, r)
            p = r + new / rho * alpha / omega * (p - omega * q)
            towards = inverse(p)
            q = f(towards)
            alpha = new / jnp.vdot(shadow, q)
            s = r - alpha * q
            half = _square(s) < limit                    # (the first half of the step was enough)
            then = inverse(s)
            t = f(then)
            omega = jnp.vdot(t, s) / jnp.vdot(t, t)
            x = x + alpha * towards + jnp.where(half, 0, omega) * then
            r = jnp.where(half, s, s - omega * t)
            broken = (omega == 0) | (alpha == 0) | (new == 0)
            return x, r, shadow, alpha, omega, new, p, q, jnp.where(broken, -1, k + 1)
        r = y - f(start)
        one = jnp.ones((), y.dtype)
        state = (start, r, r, one, one, one, r, r * 0, jnp.asarray(0))
        return while_loop(lambda s: (_square(s[1]) > limit) & (s[8] < most) & (s[8] >= 0), step,
                          state)[0]
    return _solved(A, b, x0, M, run, False), None


# ------------------------------------------------------------------ minimal residuals
def _away(basis: Any, v: Any) -> tuple[Any, Any]:
    """v less its part in an orthonormal basis (rows), taken off twice, and that part."""
    part = basis.conj() @ v
    v = v - part @ basis
    again = basis.conj() @ v
    return v - again @ basis, part + again


def _unit(v: Any, least: Any = 0) -> tuple[Any, Any]:
    """(v / norm, norm); zeros where the norm is not above `least`."""
    norm = jnp.linalg.norm(v)
    large = norm > least
    return (jnp.where(large, v / jnp.where(large, norm, 1).astype(v.dtype), 0),
            jnp.where(large, norm, 0))


def _cycle(f: _Map, inverse: _Map, x: Any, residual: Any, norm: Any, size: int,
           enough: Any) -> Any:
    """x moved to the least residual in a space of `size` directions; the space is closed early
    where it holds the solution, or where the least residual is at most `enough`."""
    eps = float(finfo(x.dtype).eps)

    def least(H: Any) -> Any:
        """The coefficients that make |norm e1 - H' y| least, and what is left."""
        right = jnp.zeros(size + 1, x.dtype).at[0].set(norm.astype(x.dtype))
        y = jnp.linalg.lstsq(H.T, right)[0]
        y = jnp.where((H[0] == 0).all(), jnp.nan, y)     # (nothing moves the residual)
        return y, jnp.linalg.norm(right - H.T @ y)

    def step(state: Any) -> Any:
        V, H, k, _ = state
        v = inverse(f(V[k]))
        large = jnp.linalg.norm(v)
        v, part = _away(V, v)
        v, height = _unit(v, eps * large)
        H = H.at[k].set(part.at[k + 1].add(height.astype(x.dtype)))
        done = height == 0
        if enough is not None:
            done = done | (least(H)[1] <= enough)
        return V.at[k + 1].set(v), H, k + 1, done
    V = jnp.zeros((size + 1, x.size), x.dtype).at[0].set(residual)
    H = jnp.zeros((size, size + 1), x.dtype)
    V, H, _, _ = while_loop(lambda s: (s[2] < size) & ~s[3], step,
                            (V, H, jnp.asarray(0), jnp.asarray(False)))
    return x + least(H)[0] @ V[:-1]


def gmres(A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0,
          restart: int = 20, maxiter: int | None = None, M: Any = None,
          solve_method: str = "batched") -> Any:
    """(x, info) with A(x) = b for any square A; info is 0, or -1 where x is NaN.

    `maxiter` spaces of `restart` directions are built, each from the residual of the last;
    "incremental" closes a space as soon as the residual is small enough, "batched" when it is
    full. The other words are those of `cg`. ValueError for another method."""
    if solve_method not in ("incremental", "batched"):
        raise ValueError(f"invalid solve_method {solve_method}, must be either 'incremental' or "
                         "'batched'")

    def run(f: _Map, y: Any, start: Any, inverse: _Map) -> Any:
        size, most = min(restart, y.size), 10 * y.size if maxiter is None else maxiter
        whole = jnp.linalg.norm(y)
        limit = jnp.maximum(tol * whole, atol).astype(whole.dtype)
        enough = None
        if solve_method == "incremental":
            enough = jnp.linalg.norm(inverse(y)) * jnp.minimum(
                1.0, limit / jnp.where(whole == 0, 1, whole))

        def rest(x: Any) -> Any:
            return _unit(inverse(y - f(x)))

        def step(state: Any) -> Any:
            x = _cycle(f, inverse, state[0], state[1], state[2], size, enough)
            return (x, *rest(x), state[3] + 1)
        return while_loop(lambda s: (s[2] > limit) & (s[3] < most), step,
                          (start, *rest(start), jnp.asarray(0)))[0]
    x = _solved(A, b, x0, M, run, False)
    failed = jnp.isnan(jnp.linalg.norm(ravel_pytree(x)[0]))
    return x, jnp.where(failed, -1, 0)


__getattr__ = _missing("adjoint.jax.scipy.sparse.linalg")
