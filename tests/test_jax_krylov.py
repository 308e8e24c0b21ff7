"""`jax.scipy.sparse.linalg` beside JAX: what starts, stops and prepares an iteration (F54)."""
from __future__ import annotations

import importlib

import numpy as np
import pytest

jax = pytest.importorskip("jax")
SOLVERS = ("cg", "gmres", "bicgstab")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.row("F54")]
rng = np.random.default_rng(0)
GENERAL = (rng.standard_normal((7, 7)) + 4 * np.eye(7)).astype(np.float32)
POSITIVE = (GENERAL @ GENERAL.T / 7).astype(np.float32)
B, X0 = rng.standard_normal((2, 7)).astype(np.float32)
WORDS = ({}, {"x0": X0}, {"maxiter": 0}, {"maxiter": 1}, {"maxiter": 2}, {"x0": X0, "maxiter": 2},
         {"tol": 0.3}, {"tol": 0.0, "atol": 0.5}, {"M": 0, "maxiter": 2}, {"M": 0, "tol": 0.05})


def solvers(name: str) -> list:
    return [getattr(importlib.import_module(f"{m}.scipy.sparse.linalg"), name)
            for m in ("adjoint.jax", "jax")]


def same(ours, theirs) -> None:
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("words", WORDS, ids=str)
@pytest.mark.parametrize("name", SOLVERS)
def test_words_of_an_iteration(name, words) -> None:
    matrix = POSITIVE if name == "cg" else GENERAL
    given = dict(words, M=np.diag(1 / np.diag(matrix))) if "M" in words else words
    ours, theirs = (f(matrix, B, **given) for f in solvers(name))
    same(ours[0], theirs[0])
    infos = [None if info is None else int(info) for _, info in (ours, theirs)]
    assert infos[0] == infos[1]


@pytest.mark.parametrize("maxiter", (1, 2))
@pytest.mark.parametrize("restart", (1, 2, 3, 20))
@pytest.mark.parametrize("method", ("batched", "incremental"))
def test_restarts(method, restart, maxiter) -> None:
    for matrix, b in ((GENERAL, B), (GENERAL + 1j * POSITIVE, (B + 1j * X0).astype("complex64"))):
        same(*(f(matrix, b, restart=restart, maxiter=maxiter, solve_method=method)[0]
               for f in solvers("gmres")))


@pytest.mark.parametrize("name", SOLVERS)
def test_derivatives_of_a_solution(name) -> None:
    from adjoint.jax import grad as ours
    matrix = POSITIVE if name == "cg" else GENERAL
    found = [g(lambda a, b, f=f: (f(a, b, tol=1e-7)[0] ** 2).sum(), (0, 1))(matrix, B)
             for g, f in zip((ours, jax.grad), solvers(name), strict=True)]
    for a, b in zip(*found, strict=True):
        same(a, b)


@pytest.mark.parametrize("name", SOLVERS)
def test_what_is_refused(name) -> None:
    for args, words in (((GENERAL[:3], B), {}), ((3, B), {}), ((GENERAL[None], B), {}),
                        ((GENERAL, B), {"x0": {"a": X0}}), ((lambda x: (x,), B), {}),
                        ((GENERAL, B), {"bogus": 1})):
        said = []
        for f in solvers(name):
            with pytest.raises((TypeError, ValueError)) as e:
                f(*args, **words)
            said.append((e.type, str(e.value)))
        assert said[0] == said[1]
    ours = solvers(name)[0]
    with pytest.raises(ValueError, match="matching shapes"):
        ours(GENERAL, B, X0[:3])
    with pytest.raises(TypeError, match="int32"):
        ours(GENERAL, np.arange(7, dtype=np.int32))


def test_gmres_that_finds_nothing() -> None:
    for f in solvers("gmres"):
        x, info = f(GENERAL * 0, B)
        assert np.isnan(np.asarray(x)).all() and info == -1
        with pytest.raises(ValueError, match="invalid solve_method x"):
            f(GENERAL, B, solve_method="x")
