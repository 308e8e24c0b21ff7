"""fixed_point, root, from_callable (F55, F56)."""
from __future__ import annotations

import ctypes
import ctypes.util
import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import func as af

A = np.array([2.0, 5.0, 0.5])


def near(got: Any, want: Any, rtol: float = 1e-7) -> None:
    """Equal in shape and numbers."""
    want = np.asarray(want)
    assert tuple(got.shape) == want.shape
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=rtol, atol=1e-9)


def heron(a: Any) -> Any:
    """sqrt(a) as a fixed point."""
    return af.fixed_point(lambda x, a: 0.5 * (x + a / x), ad.ones_like(a), a)


def cosine(a: Any) -> Any:
    """x = a cos x: converges slowly, and df/dx is not 0 at the solution."""
    return af.fixed_point(lambda x, a: a * ad.cos(x), ad.zeros_like(a), a)


def cube(a: Any) -> Any:
    """The cube root as a root."""
    return af.root(lambda x, a: x ** 3 - a, ad.ones_like(a), a)


C = np.array([0.1, 0.5, -0.4])


def cosine_slopes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, dx/da and d2x/da2 of x = a cos x, by differentiating the equation twice."""
    x = np.zeros(3)
    for _ in range(300):
        x = C * np.cos(x)
    d = np.cos(x) / (1 + C * np.sin(x))
    dd = (-2 * np.sin(x) * d - C * np.cos(x) * d * d) / (1 + C * np.sin(x))
    return x, d, dd


class TestImplicit:
    """Values and derivatives of every order against closed forms."""

    def test_square_root(self) -> None:
        a = ad.tensor(A)
        near(heron(a), A ** 0.5)
        near(af.grad(lambda a: heron(a).sum())(a), 0.5 * A ** -0.5)
        near(af.jvp(heron, (a,), (a,))[1], 0.5 * A ** 0.5)

    def test_cosine_all_modes(self) -> None:
        a = ad.tensor(C)
        x, d, dd = cosine_slopes()
        near(cosine(a), x)
        near(af.grad(lambda a: cosine(a).sum())(a), d)
        near(af.jacfwd(cosine)(a), np.diag(d))
        near(af.jacrev(cosine)(a), np.diag(d))
        near(af.grad(lambda a: af.grad(lambda b: cosine(b).sum())(a).sum())(a), dd)
        near(af.jvp(af.grad(lambda b: cosine(b).sum()), (a,), (ad.ones_like(a),))[1], dd)
        near(af.vmap(af.grad(cosine))(a), d)
        near(af.grad(lambda a: af.vmap(cosine)(a).sum())(a), d)

    def test_backward_method(self) -> None:
        a = ad.tensor(C, requires_grad=True)
        cosine(a).sum().backward()
        near(a.grad, cosine_slopes()[1])

    def test_root(self) -> None:
        a = ad.tensor(A)
        near(cube(a), A ** (1 / 3))
        near(af.grad(lambda a: cube(a).sum())(a), A ** (-2 / 3) / 3)
        near(af.jacfwd(cube)(a), np.diag(A ** (-2 / 3) / 3))

    def test_trees(self) -> None:
        """A coupled system: x = 0.3 y + p, y = 0.2 x + q."""
        def solve(t: Any) -> Any:
            return af.fixed_point(lambda s, t: {"x": 0.3 * s["y"] + t[0], "y": 0.2 * s["x"] + t[1]},
                                  {"x": ad.zeros(1, dtype=ad.float64),
                                   "y": ad.zeros(1, dtype=ad.float64)}, t)
        t = (ad.tensor([1.0], dtype=ad.float64), ad.tensor([2.0], dtype=ad.float64))
        got = af.grad(lambda t: solve(t)["x"].sum())(t)
        near(got[0], [1 / 0.94])
        near(got[1], [0.3 / 0.94])

    def test_memory_does_not_grow(self) -> None:
        """O(1) memory: a tape over the iterations would hold hundreds of arrays."""
        def peak(a: float) -> tuple[int, int]:
            x = ad.full((20000,), a, dtype=ad.float64, requires_grad=True)
            count = 0

            def f(s: Any, a: Any) -> Any:
                nonlocal count
                count += 1
                if count % 8 == 0:
                    gc.collect()        # measure what is held, not when cycles are collected
                return a * ad.cos(s)
            tracemalloc.start()
            af.fixed_point(f, ad.zeros_like(x), x).sum().backward()
            used = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return used, count
        few, many = peak(0.05), peak(0.9)
        assert many[1] > 3 * few[1]
        assert many[0] < 1.3 * few[0]

    def test_refusals(self) -> None:
        a = ad.tensor(A)
        with pytest.raises(RuntimeError, match="no convergence after 3"):
            af.fixed_point(lambda x, a: a * ad.cos(x), ad.zeros_like(a), a * 0.1, max_iter=3)
        with pytest.raises(RuntimeError, match="diverged|no convergence"):
            af.fixed_point(lambda x, a: a * x + 1, ad.ones_like(a), a * 1e6)
        with pytest.raises(ValueError, match="shapes"):
            af.fixed_point(lambda x: x.sum(), a)
        w = ad.tensor(0.1, dtype=ad.float64, requires_grad=True)
        with pytest.raises(ValueError, match="functional_call"):
            af.fixed_point(lambda x: w * ad.cos(x), a)


def slopes(ct: Any, x: Any, y: Any) -> Any:
    return ct * y * np.cos(x * y), ct * x * np.cos(x * y)


def pushed(t: Any, x: Any, y: Any) -> Any:
    return np.cos(x * y) * (t[0] * y + x * t[1])


V = np.array([0.4, -1.3, 2.1])
T = np.array([1.0, 0.5, -2.0])
M = np.stack([V, T, V + T, V * T])


@pytest.mark.parametrize("vectorized", [False, True])
class TestExternal:
    """NumPy code with rules, against the same function in our ops."""

    def pair(self, vectorized: bool) -> tuple[Any, Any]:
        outer = af.from_callable(lambda x, y: np.sin(x * y), slopes, pushed, vectorized=vectorized)
        return outer, lambda x, y: ad.sin(x * y)

    def test_first_order(self, vectorized: bool) -> None:
        theirs, ours = self.pair(vectorized)
        x, y = ad.tensor(V), ad.tensor(T)
        for f in (lambda h: af.grad(lambda *a: (h(*a) ** 2).sum(), argnums=(0, 1))(x, y),
                  lambda h: af.jvp(h, (x, y), (y, x)),
                  lambda h: (af.jacrev(h)(x, y), af.jacfwd(h, argnums=1)(x, y)),
                  lambda h: (af.vmap(af.grad(lambda *a: h(*a).sum()), in_dims=(0, None))(
                      ad.tensor(M), y), af.vmap(h, in_dims=(None, 0))(x, ad.tensor(M))),
                  lambda h: (af.grad(lambda b: af.vmap(h, in_dims=(0, None))(
                      ad.tensor(M), b).sum())(y), af.vmap(af.vmap(h))(
                          ad.tensor(M)[None], ad.tensor(M)[None])),
                  lambda h: af.jvp(af.vmap(h), (ad.tensor(M), ad.tensor(M)),
                                   (ad.tensor(M), ad.tensor(M)))):
            for got, want in zip(f(theirs), f(ours), strict=True):
                near(got, want.detach().numpy())

    def test_second_order_is_refused(self, vectorized: bool) -> None:
        theirs, _ = self.pair(vectorized)
        with pytest.raises(NotImplementedError, match="rule"):
            af.hessian(lambda x: theirs(x, x).sum())(ad.tensor(V))


def test_external_without_rules() -> None:
    """The value works; derivatives say what is missing; wrong shapes are named."""
    bare = af.from_callable(np.sinh)
    near(bare(ad.tensor(V)), np.sinh(V))
    with pytest.raises(NotImplementedError, match="vjp=rule"):
        af.grad(lambda x: bare(x).sum())(ad.tensor(V))
    with pytest.raises(NotImplementedError, match="jvp=rule"):
        af.jvp(bare, (ad.tensor(V),), (ad.tensor(V),))
    wrong = af.from_callable(np.sinh, vjp=lambda ct, x: ct.sum())
    with pytest.raises(ValueError, match="shape"):
        af.grad(lambda x: wrong(x).sum())(ad.tensor(V))


def test_external_several_outputs() -> None:
    """A tuple of outputs gives the rule a tuple of cotangents."""
    h = af.from_callable(lambda x: (np.sin(x), x.sum()),
                         vjp=lambda cts, x: cts[0] * np.cos(x) + cts[1])
    near(af.grad(lambda x: h(x)[0].sum() + 3 * h(x)[1])(ad.tensor(V)), np.cos(V) + 3)


@pytest.mark.row("F130")
@pytest.mark.parametrize("wrapped", ["Function", "from_callable"])
def test_a_compiled_kernel_of_the_c_library(wrapped: str) -> None:
    """A kernel that Python only knows by its address, Bessel's j0 of libm, with a backward by hand
    (its derivative is -j1): checked against differences, batched, and inside of a program."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    j0, j1 = (np.frompyfunc(getattr(library, name), 1, 1) for name in ("j0", "j1"))
    for f in (library.j0, library.j1):
        f.restype, f.argtypes = ctypes.c_double, [ctypes.c_double]

    def run(f: Any, x: np.ndarray) -> np.ndarray:
        return np.asarray(f(x), np.float64)

    class Bessel(ad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return ad.from_numpy(run(j0, x.detach().numpy()))

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return -ct * ad.from_numpy(run(j1, ctx.saved_tensors[0].detach().numpy()))
    g = Bessel.apply if wrapped == "Function" else af.from_callable(
        lambda x: run(j0, x), vjp=lambda ct, x: -ct * run(j1, x), vectorized=True)
    x = ad.tensor([0.0, 0.5, 2.404825557695773, 7.0], dtype=ad.float64, requires_grad=True)
    y = g(x)
    # values of tables: j0(0) = 1, a zero at 2.4048; j1(0.5), j1 at the zero of j0
    near(y[0], 1.0)
    assert abs(y[2].item()) < 1e-15
    y.sum().backward()
    near(x.grad[:3], -np.array([0.0, 0.2422684576748739, 0.5191474972894669]))
    assert ad.autograd.gradcheck(g, (x,))
    w = ad.tensor([0.3], dtype=ad.float64, requires_grad=True)
    (g(w * x.detach()).square() * 2).sum().backward()
    eps = 1e-6
    up, down = ((2 * run(j0, (0.3 + s * eps) * x.detach().numpy()) ** 2).sum() for s in (1, -1))
    slope = (up - down) / (2 * eps)
    near(w.grad, [slope], rtol=1e-8)
    if wrapped == "from_callable":
        near(af.vmap(af.grad(g))(x.detach()), -run(j1, x.detach().numpy()))
