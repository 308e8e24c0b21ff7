"""The three engines of examples/: they run, they agree with the package, they learn."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers_engine import leaf, near, randoms, values
from helpers_loading import load

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


tiny, scratch, scalar = (
    load(f"examples/{name}.py") for name in ("tiny", "scratch_engine", "micrograd_scalar")
)


@pytest.mark.parametrize("name", ["tiny", "scratch_engine", "micrograd_scalar"])
def test_runs_as_a_script(name: str) -> None:
    """F26-F28: each is one file that runs by itself."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and not done.stderr


class TestTiny:
    def test_printed_numbers(self, capsys: pytest.CaptureFixture[str]) -> None:
        """F26, F8."""
        tiny.main()
        out = capsys.readouterr().out.splitlines()
        assert out[0] == "f = 21, df/dx1 = 10, df/dx2 = 3"
        assert out[1].endswith("[[1.0, 2.0], [1.0, 2.0]]")
        assert out[2].endswith("[[4.0, 4.0], [6.0, 6.0]]")

    def test_same_results_as_the_package(self) -> None:
        """F26: ((x @ w) * c + x @ w).sum() with fan-out."""
        arrays = [randoms(3, 4), randoms(4, 2, seed=1), randoms(3, 2, seed=2)]
        small = [tiny.Tensor(a) for a in arrays]
        y = small[0] @ small[1]
        (y * small[2] + y).sum().backward()
        big = [leaf(a) for a in arrays]
        y = big[0] @ big[1]
        (y * big[2] + y).sum().backward()
        for a, b in zip(small, big, strict=True):
            near(b.grad, a.grad)

    def test_ten_thousand_deep(self) -> None:
        """F26: the source's recursive walk fails about 1000 deep; this one does not."""
        x = tiny.Tensor(1.0)
        y = x
        for _ in range(10_000):
            y = y + x
        y.backward()
        assert x.grad == 10_001.0


class TestScratchEngine:
    def test_loss_falls_ten_times(self) -> None:
        """F27: and the file has at most 200 lines."""
        losses = scratch.train()
        assert losses[-1] < losses[0] / 10
        assert len((EXAMPLES / "scratch_engine.py").read_text().splitlines()) <= 200

    def test_it_learns_from_more_than_one_seed(self) -> None:
        for seed in range(1, 4):
            losses = scratch.train(steps=300, seed=seed)
            assert losses[-1] < losses[0] / 10

    def test_gradients_equal_the_package(self) -> None:
        """F27: + * relu matmul mean with broadcasting, against the package."""
        arrays = [randoms(5, 3), randoms(3, 4, seed=1), randoms(4, seed=2), randoms(5, 1, seed=3)]
        small = [scratch.Tensor(a) for a in arrays]
        (((small[0] @ small[1] + small[2]).relu() * small[3]) * small[3]).mean().backward()
        big = [leaf(a) for a in arrays]
        (((big[0] @ big[1] + big[2]).relu() * big[3]) * big[3]).mean().backward()
        for a, b in zip(small, big, strict=True):
            near(b.grad, a.grad)

    def test_backward_needs_a_scalar(self) -> None:
        with pytest.raises(ValueError, match="scalar"):
            scratch.Tensor(np.ones(2)).backward()

    def test_deep_chain(self) -> None:
        x = scratch.Tensor(1.0)
        y = x
        for _ in range(5_000):
            y = y + 0.0
        y.backward()
        assert x.grad == 1.0


class TestScalarEngine:
    def test_moons(self) -> None:
        """F28: accuracy at least 0.99 on the points it saw."""
        _, seen, fresh = scalar.train()
        assert seen >= 0.99
        assert fresh >= 0.97

    def test_tanh_slope(self) -> None:
        """F28: tanh' = 1 - t**2."""
        for x in (-2.0, -0.3, 0.0, 0.7, 3.0):
            v = scalar.Value(x)
            v.tanh().backward()
            assert v.grad == pytest.approx(1 - math.tanh(x) ** 2, rel=1e-15)

    def test_every_operation_against_the_package(self) -> None:
        """F28: one expression with every operation of the class, both engines."""

        def program(a, b):  # type: ignore[no-untyped-def]
            c = a * b + b**3
            c = c + c + 1.0 + (-a)
            d = (c * 0.1).tanh() + (b + a).relu() * 3.0 + (a * 0.1).exp()
            return d + 10.0 / (d * d + 1.0) - (2.0 - b)

        small = scalar.Value(-0.7), scalar.Value(1.9)
        out = program(*small)
        out.backward()
        big = leaf(-0.7), leaf(1.9)
        expected = program(*big)
        expected.backward()
        assert out.data == pytest.approx(expected.item(), rel=1e-13)
        for a, b in zip(small, big, strict=True):
            assert a.grad == pytest.approx(b.grad.item(), rel=1e-12)

    def test_network_gradient_equals_the_tensor_engine(self) -> None:
        model = scalar.Network((2, 5, 1), random.Random(0))
        score = model((0.3, -0.8))
        score.backward()
        (hidden, out) = model.layers
        w1 = leaf([[w.data for w in ws] for ws, _ in hidden])
        w2 = leaf([[w.data for w in ws] for ws, _ in out])
        result = (w2 @ (w1 @ leaf([0.3, -0.8])).tanh()).sum()
        result.backward()
        assert score.data == pytest.approx(result.item(), rel=1e-12)
        near(w1.grad, [[w.grad for w in ws] for ws, _ in hidden])
        near(w2.grad, [[w.grad for w in ws] for ws, _ in out])
        assert np.isfinite(values(w1.grad)).all()

    def test_deep_chain(self) -> None:
        x = scalar.Value(1.0)
        y = x
        for _ in range(20_000):
            y = y + 0.0
        y.backward()
        assert x.grad == 1.0
