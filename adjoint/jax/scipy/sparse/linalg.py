"""`jax.scipy.sparse.linalg`: conjugate gradients (Hestenes and Stiefel 1952), on trees."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.jax import numpy as _jnp
from adjoint.jax.flatten_util import ravel_pytree
from adjoint.jax.lax import custom_linear_solve, while_loop

jnp: Any = _jnp


def _conjugate_gradients(matvec: Any, b: Any, x: Any, tol: float, atol: float, most: int,
                         M: Any) -> Any:
    limit = jnp.maximum(tol * jnp.linalg.norm(b), atol)

    def goes_on(state: Any) -> Any:
        return (jnp.linalg.norm(state[1]) > limit) & (state[4] < most)

    def step(state: Any) -> Any:
        x, r, p, gamma, k = state
        q = matvec(p)
        alpha = gamma / jnp.vdot(p, q)
        x, r = x + alpha * p, r - alpha * q
        z = M(r)
        new = jnp.vdot(r, z)
        return x, r, z + (new / gamma) * p, new, k + 1
    r = b - matvec(x)
    z = M(r)
    return while_loop(goes_on, step, (x, r, z, jnp.vdot(r, z), jnp.asarray(0)))[0]


def cg(A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0,
       maxiter: Any = None, M: Any = None) -> Any:
    """(x, None) with A(x) = b for a symmetric positive A, a function or a matrix; differentiable
    in b and in what A closes over."""
    apply = A if callable(A) else (lambda v: A @ v)
    vector, back = ravel_pytree(b)

    def matvec(v: Any) -> Any:
        return ravel_pytree(apply(back(v)))[0]

    def inverse(v: Any) -> Any:
        if M is None:
            return v
        return ravel_pytree(M(back(v)) if callable(M) else M @ back(v))[0]
    start = jnp.zeros_like(vector) if x0 is None else ravel_pytree(x0)[0]
    most = 10 * vector.size if maxiter is None else int(maxiter)

    def solve(f: Any, y: Any) -> Any:
        return _conjugate_gradients(f, y, start * 0 if y is not vector else start, tol, atol, most,
                                    inverse)
    return back(custom_linear_solve(matvec, vector, solve, symmetric=True)), None


def _dense(A: Any, b: Any) -> Any:
    from adjoint.jax._transforms import jacfwd
    apply = A if callable(A) else (lambda v: A @ v)
    vector, back = ravel_pytree(b)
    matrix = jacfwd(lambda v: ravel_pytree(apply(back(v)))[0])(vector * 0)
    return back(jnp.linalg.solve(matrix, vector)), None


def gmres(A: Any, b: Any, x0: Any = None, **_: Any) -> Any:
    """(x, None) with A(x) = b: the matrix of A is formed and factored."""
    return _dense(A, b)


bicgstab = gmres
__getattr__ = _missing("adjoint.jax.scipy.sparse.linalg")
