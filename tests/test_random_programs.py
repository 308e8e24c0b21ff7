"""Random programs: gradients against differences, PyTorch, and themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_engine import const, leaf, only_ours, values
from helpers_programs import Program, programs
from hypothesis import Phase, assume, given, settings

import adjoint as ad
from adjoint.utils.checkpoint import checkpoint

MUTATED = "modified by an inplace operation"
QUICKLY = (Phase.reuse, Phase.generate, Phase.shrink)  # long programs take minutes to be explained
LARGEST = 1e3  # programs whose loss or gradient is larger are too curved for finite differences


def inputs(program: Program) -> list[np.ndarray]:
    """Values between 0.3 and 1.3 in size, of both signs."""
    rng = np.random.default_rng(program.seed)
    return [
        rng.uniform(0.3, 1.3, shape) * rng.choice([-1.0, 1.0], shape)
        for shape in program.leaf_shapes
    ]


def gradients(program: Program, arrays: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
    """Loss and gradients; a program that overwrites a saved value is not an example of ours."""
    leaves = [leaf(a) for a in arrays]
    loss = program.run(ad, leaves)
    try:
        loss.backward()
    except RuntimeError as error:
        assert MUTATED in str(error)
        assume(False)
    assume(abs(loss.item()) < LARGEST)
    got = [values(x.grad) for x in leaves]
    assume(all(np.abs(g).max(initial=0.0) < LARGEST for g in got))
    return loss.item(), got


def slope(function: Callable[[float], float], step: float = 1e-3) -> float:
    """Five-point central difference at 0: error step**4 / 30 times the fifth derivative."""
    near = function(step) - function(-step)
    far = function(2 * step) - function(-2 * step)
    return (8 * near - far) / (12 * step)


def directions(program: Program, arrays: list[np.ndarray], turn: int) -> list[np.ndarray]:
    rng = np.random.default_rng((program.seed, turn))
    return [rng.standard_normal(a.shape) for a in arrays]


def moved(arrays: list[np.ndarray], along: list[np.ndarray], by: float) -> list[np.ndarray]:
    return [a + by * d for a, d in zip(arrays, along, strict=True)]


def inner(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    return float(sum((x * y).sum() for x, y in zip(a, b, strict=True)))


def check_against_differences(program: Program) -> None:
    arrays = inputs(program)
    _, got = gradients(program, arrays)
    for turn in range(2):
        along = directions(program, arrays, turn)

        def value(by: float, along: list[np.ndarray] = along) -> float:
            return float(program.run(ad, [const(a) for a in moved(arrays, along, by)]))

        numeric = slope(value)
        assume(
            abs(numeric - slope(value, 2e-3)) < 1e-6 * (1 + abs(numeric))
        )  # smooth enough to tell
        assert inner(got, along) == pytest.approx(numeric, rel=1e-6, abs=1e-6)


class TestAgainstDifferences:
    @given(programs(writes=False))
    def test_without_writes(self, program: Program) -> None:
        """F7, F8: DAGs with fan-out, broadcasting, views, indexing."""
        check_against_differences(program)

    @given(programs())
    def test_with_writes(self, program: Program) -> None:
        """F22: in-place operations on bases and views, assignments to slices, masks, integer
        arrays.
        """
        check_against_differences(program)

    @pytest.mark.slow
    @settings(max_examples=500, phases=QUICKLY)
    @given(programs(length=30))
    def test_many_long(self, program: Program) -> None:
        check_against_differences(program)

    @given(programs(length=6))
    def test_second_order(self, program: Program) -> None:
        """F16: the gradient of <gradient, t> against differences of the gradient."""
        arrays = inputs(program)
        gradients(program, arrays)
        t, u = directions(program, arrays, 0), directions(program, arrays, 1)

        def along_t(data: list[np.ndarray], again: bool) -> tuple[Any, list[Any]]:
            leaves = [leaf(a) for a in data]
            got = ad.autograd.grad(program.run(ad, leaves), leaves, create_graph=again)
            return sum((g * const(d)).sum() for g, d in zip(got, t, strict=True)), leaves

        s, leaves = along_t(arrays, True)
        second = (
            [values(h) for h in ad.autograd.grad(s, leaves, materialize_grads=True)]
            if s.requires_grad
            else [np.zeros_like(a) for a in arrays]
        )
        assume(all(np.abs(h).max(initial=0.0) < LARGEST for h in second))

        def value(by: float) -> float:
            return along_t(moved(arrays, u, by), False)[0].item()

        numeric = slope(value)
        assume(abs(numeric - slope(value, 2e-3)) < 1e-6 * (1 + abs(numeric)))
        assert inner(second, u) == pytest.approx(numeric, rel=1e-5, abs=1e-5)


def check_against_pytorch(program: Program) -> None:
    torch = pytest.importorskip("torch")
    arrays = inputs(program)
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    try:
        their_loss = program.run(torch, theirs)
    except RuntimeError as error:  # several views of one base, or overlapping memory: refused
        assert "modified inplace" in str(error) or "single memory location" in str(error)
        assume(False)
    ours = [leaf(a) for a in arrays]
    our_loss = program.run(ad, ours)
    assume(abs(their_loss.item()) < 1e6)
    assert our_loss.item() == pytest.approx(their_loss.item(), rel=1e-10, abs=1e-10)
    if not their_loss.requires_grad:
        assert not our_loss.requires_grad
        return
    try:
        our_loss.backward()
    except RuntimeError as error:
        assert MUTATED in str(error)
        with pytest.raises(RuntimeError, match=MUTATED):  # never stricter than PyTorch
            their_loss.backward()
        return
    try:
        their_loss.backward()
    except RuntimeError as error:
        assert MUTATED in str(error)  # PyTorch keeps more than it needs; ours went through
        return
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        np.testing.assert_allclose(
            values(a.grad), b.grad.numpy(), rtol=1e-8, atol=1e-9, err_msg=f"x{k}"
        )


class TestAgainstPyTorch:
    @given(programs(writes=False))
    def test_without_writes(self, program: Program) -> None:
        """F123: the same text, the same values and gradients."""
        check_against_pytorch(program)

    @given(programs())
    def test_with_writes(self, program: Program) -> None:
        """F22, F123: and the same verdict on programs that overwrite what was saved."""
        check_against_pytorch(program)

    @given(programs(cuts=True))
    def test_with_kinks_and_cuts(self, program: Program) -> None:
        """F44, F45, F123: detach, no_grad blocks, several views of one tensor, ties."""
        check_against_pytorch(program)

    @pytest.mark.slow
    @settings(max_examples=700, phases=QUICKLY)
    @given(programs(length=30))
    def test_many_long(self, program: Program) -> None:
        check_against_pytorch(program)

    @pytest.mark.slow
    @settings(max_examples=700, phases=QUICKLY)
    @given(programs(cuts=True, length=30))
    def test_many_long_with_cuts(self, program: Program) -> None:
        check_against_pytorch(program)


class TestAgainstItself:
    @given(programs())
    def test_checkpoint_changes_no_bit(self, program: Program) -> None:
        """F70: the whole program inside a checkpoint."""
        arrays = inputs(program)
        _, want = gradients(program, arrays)
        leaves = [leaf(a) for a in arrays]
        checkpoint(lambda *xs: program.run(ad, list(xs)), *leaves, use_reentrant=False).backward()
        for x, w in zip(leaves, want, strict=True):
            np.testing.assert_array_equal(values(x.grad), w)

    @given(programs())
    def test_saved_values_may_live_elsewhere(self, program: Program) -> None:
        """F73: every saved value goes through a NumPy copy and back."""
        arrays = inputs(program)
        _, want = gradients(program, arrays)
        leaves = [leaf(a) for a in arrays]
        with ad.autograd.graph.saved_tensors_hooks(
            lambda t: np.array(t.detach().numpy()), lambda a: ad.from_numpy(a.copy())
        ):
            loss = program.run(ad, leaves)
        loss.backward()
        for x, w in zip(leaves, want, strict=True):
            np.testing.assert_array_equal(values(x.grad), w)

    @only_ours  # PyTorch lets the .grad of two scalar leaves share memory: 1, then 3 instead of 2
    @given(programs())
    def test_retained_graph_gives_the_same_twice(self, program: Program) -> None:
        """F17, F19: twice over one graph is exactly double."""
        arrays = inputs(program)
        _, want = gradients(program, arrays)
        leaves = [leaf(a) for a in arrays]
        loss = program.run(ad, leaves)
        loss.backward(retain_graph=True)
        loss.backward()
        for x, w in zip(leaves, want, strict=True):
            np.testing.assert_array_equal(values(x.grad), 2.0 * w)

    @given(programs())
    def test_recording_changes_no_value(self, program: Program) -> None:
        """F45: the loss is the same number with and without a graph."""
        arrays = inputs(program)
        recorded = program.run(ad, [leaf(a) for a in arrays]).item()
        with ad.no_grad():
            quiet = program.run(ad, [const(a) for a in arrays]).item()
        assert recorded == quiet or (np.isnan(recorded) and np.isnan(quiet))
