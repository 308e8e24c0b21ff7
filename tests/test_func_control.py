"""scan, while_loop, cond, compare_methods (F11, F60, F127)."""
from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import func as af

XS = np.random.default_rng(1).normal(size=(7, 3)) * 0.5
C0 = np.array([0.2, -0.4, 0.9])
MANY = np.stack([C0, C0 + 0.3])


def near(got: Any, want: Any) -> None:
    """Equal in shape and numbers."""
    want = want.detach().numpy() if hasattr(want, "detach") else np.asarray(want)
    assert tuple(got.shape) == want.shape
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-10, atol=1e-12)


def step(c: Any, x: Any) -> Any:
    new = ad.tanh(c + x * c)
    return new, {"y": new * x}


def unrolled(c: Any, xs: Any) -> Any:
    ys = []
    for t in range(7):
        c, y = step(c, xs[t])
        ys.append(y["y"])
    return c.sum() + (ad.stack(ys) ** 2).sum()


def scanned(c: Any, xs: Any, **options: Any) -> Any:
    c, ys = af.scan(step, c, xs, **options)
    return c.sum() + (ys["y"] ** 2).sum()


OPTIONS = pytest.mark.parametrize("options", [{}, {"segments": "sqrt"}, {"segments": 3},
                                              {"segments": 7}], ids=str)


@OPTIONS
class TestScan:
    """Equal to the loop written out, under every transform."""

    def test_first_and_second_order(self, options: Any) -> None:
        c, xs = ad.tensor(C0), ad.tensor(XS)

        def f(c: Any, xs: Any) -> Any:
            return scanned(c, xs, **options)
        near(f(c, xs), unrolled(c, xs))
        for got, want in zip(af.grad(f, argnums=(0, 1))(c, xs),
                             af.grad(unrolled, argnums=(0, 1))(c, xs), strict=True):
            near(got, want)
        near(af.jvp(f, (c, xs), (c, xs))[1], af.jvp(unrolled, (c, xs), (c, xs))[1])
        near(af.hessian(f)(c, xs), af.hessian(unrolled)(c, xs))

    def test_vmap(self, options: Any) -> None:
        c, xs = ad.tensor(MANY), ad.tensor(XS)
        got = af.vmap(af.grad(lambda c, x: scanned(c, x, **options)), in_dims=(0, None))(c, xs)
        near(got, af.vmap(af.grad(unrolled), in_dims=(0, None))(c, xs))

    def test_reverse(self, options: Any) -> None:
        c, ys = af.scan(lambda c, x: (c + x, c), ad.tensor(0.0), ad.tensor([1.0, 2.0, 3.0, 4.0]),
                        reverse=True, **options)
        assert c.item() == 10.0
        assert ys.tolist() == [9.0, 7.0, 4.0, 0.0]


def test_scan_memory() -> None:
    """With segments="sqrt" 100 steps hold about 20 steps' values, not 100 times two."""
    def peak(segments: Any) -> int:
        w = ad.full((20000,), 0.5, dtype=ad.float64, requires_grad=True)
        tracemalloc.start()
        c, _ = af.scan(lambda c, _: (ad.sin(c * w), None), ad.ones_like(w).detach(), None,
                       length=100, segments=segments)
        c.sum().backward()
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used
    peak("sqrt")                     # what loads at the first use is no value of a step
    assert peak("sqrt") < 0.4 * peak(None)


def test_scan_mistakes() -> None:
    """Named with their numbers."""
    x = ad.ones(3)
    for call, text in ((lambda: af.scan(step, x, None), "length"),
                       (lambda: af.scan(step, x, (ad.ones(2), ad.ones(3))), r"\[2, 3\]"),
                       (lambda: af.scan(lambda c, x: c, x, x), "carry, y"),
                       (lambda: af.scan(lambda c, x: ((c, c), x), x, x), "structure"),
                       (lambda: af.scan(step, x, x, segments=0), "segments")):
        with pytest.raises(ValueError, match=text):
            call()


class TestBranches:
    """cond and while_loop."""

    def test_cond(self) -> None:
        def f(x: Any) -> Any:
            return af.cond(x.sum() > 0, lambda x: (x * x).sum(), lambda x: -x.sum(), x)
        x = ad.tensor(np.stack([C0, -C0]))
        want = np.stack([2 * C0, -np.ones(3)])
        near(af.grad(f)(x[0]), want[0])
        near(af.grad(f)(x[1]), want[1])
        near(af.vmap(af.grad(f))(x), want)
        near(af.grad(lambda x: af.vmap(f)(x).sum())(x), want)
        near(af.jvp(af.vmap(f), (x,), (x,))[1], (want * x.numpy()).sum(1))

    def test_one_branch_runs(self) -> None:
        seen = []
        af.cond(True, lambda: seen.append(1) or ad.ones(1), lambda: seen.append(2) or ad.ones(1))
        assert seen == [1]

    def test_while(self) -> None:
        """x doubles until it is 10 or more: slopes 2**steps, per example."""
        def f(x: Any) -> Any:
            return af.while_loop(lambda s: s["x"] < 10, lambda s: {"x": s["x"] * 2,
                                 "n": s["n"] + 1}, {"x": x, "n": ad.tensor(0)})["x"]
        x = ad.tensor([1.0, 7.0, 20.0])
        near(af.vmap(f)(x), np.array([16.0, 14.0, 20.0], np.float32))
        near(af.vmap(af.grad(f))(x), np.array([16.0, 2.0, 1.0], np.float32))
        near(af.jvp(af.vmap(f), (x,), (ad.ones(3),))[1], np.array([16.0, 2.0, 1.0], np.float32))
        near(af.grad(lambda x: af.vmap(f)(x).sum())(x), np.array([16.0, 2.0, 1.0], np.float32))

    def test_mistakes(self) -> None:
        with pytest.raises(RuntimeError, match="after 5 steps"):
            af.while_loop(lambda x: True, lambda x: x, ad.ones(1), max_steps=5)
        with pytest.raises(ValueError, match="truth value"):
            af.cond(ad.ones(2) > 0, lambda: 1, lambda: 2)
        with pytest.raises(ValueError, match="shapes differ"):
            af.vmap(lambda x: af.cond(x > 0, lambda: ad.ones(2), lambda: ad.ones(3)))(
                ad.tensor([1.0, -1.0]))


class TestCompare:
    """F11, F127: the costs are counted, not claimed."""

    def test_counts(self) -> None:
        wide = af.compare_methods(lambda x: (x ** 3).sum(), ad.tensor(np.linspace(0.1, 1, 20)))
        counts = [(m.evaluations, m.pulls) for m in wide.methods]
        assert counts == [(21, 0), (40, 0), (20, 0), (1, 1)]
        tall = af.compare_methods(lambda x: x.sin() * ad.ones(20, dtype=ad.float64),
                                  ad.tensor(np.array([0.3])))
        counts = [(m.evaluations, m.pulls) for m in tall.methods]
        assert counts == [(2, 0), (2, 0), (1, 0), (1, 20)]
        assert wide.advice.endswith("reverse mode") and tall.advice.endswith("forward mode")

    def test_errors_and_memory(self) -> None:
        table = af.compare_methods(lambda x: (x.sin() * x.exp()).sum(),
                                   ad.tensor(np.linspace(0.1, 2, 50)))
        assert table["reverse mode"].error < 1e-14 and table["forward mode"].error == 0.0
        assert 1e-13 < table["central difference"].error < table["forward difference"].error < 1e-5
        assert all(m.seconds > 0 and m.peak_bytes > 0 for m in table.methods)
        assert "central difference" in str(table)
        with pytest.raises(ValueError, match="no method"):
            table["guess"]
