"""checkpoint and checkpoint_sequential: same bits, two forwards, nothing kept but the inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers_engine import const, exact, leaf, only_ours, randoms, saved_by, values

import adjoint as ad
from adjoint.core.modes import Observer, watchers
from adjoint.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

grad = ad.autograd.grad


def block(x: Any, w: Any) -> Any:
    """A small network with several saved values."""
    return ((x @ w).tanh() * (x @ w).sigmoid()).exp()


def both(program: Any, *inputs: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Gradients with and without a checkpoint around `program`."""
    results = []
    for run in (program, lambda *a: checkpoint(program, *a, use_reentrant=False)):
        leaves = [leaf(i) for i in inputs]
        run(*leaves).sum().backward()
        results.append([values(x.grad) for x in leaves])
    return results[0], results[1]


class TestSameGradients:
    def test_bit_for_bit(self) -> None:
        """F70."""
        plain, saved = both(block, randoms(4, 3), randoms(3, 5, seed=1))
        for a, b in zip(plain, saved, strict=True):
            np.testing.assert_array_equal(a, b)

    @pytest.mark.parametrize("region", [
        lambda f, x: checkpoint(f, x, x, use_reentrant=False),
        lambda f, x: checkpoint(f, x, b=x, use_reentrant=False),
        lambda f, x: checkpoint(lambda a: f(a, x), x, use_reentrant=False),
        lambda f, x: checkpoint(lambda a, b: checkpoint(f, a, b, use_reentrant=False), x, x,
                                use_reentrant=False),
    ], ids=["twice", "keyword", "closure", "nested"])
    def test_one_tensor_in_two_places(self, region: Any) -> None:
        """x * y with y = x saves as much as with another y, which it is when run again."""
        x = leaf(randoms(3))
        plain, kept = ((g := grad(y.sum(), x, create_graph=True)[0], grad(g.sum(), x)[0])
                       for y in (((x * x).sin() + x), region(lambda a, b: (a * b).sin() + a, x)))
        for a, b in zip(plain, kept, strict=True):
            np.testing.assert_allclose(values(b), values(a), rtol=1e-12)

    def test_forward_value_is_the_same(self) -> None:
        x, w = leaf(randoms(4, 3)), leaf(randoms(3, 5, seed=1))
        exact(checkpoint(block, x, w, use_reentrant=False), values(block(x, w)))

    def test_forward_runs_twice(self) -> None:
        """F70, F81: once forward, once in backward: side effects happen twice."""
        calls = []

        def counted(x: Any) -> Any:
            calls.append(ad.is_grad_enabled())
            return x.sin().exp()

        x = leaf(randoms(3))
        y = checkpoint(counted, x, use_reentrant=False)
        assert len(calls) == 1
        y.sum().backward()
        assert len(calls) == 2

    def test_forward_runs_once_without_backward(self) -> None:
        calls = []

        def counted(x: Any) -> Any:
            calls.append(1)
            return x.sin().exp()

        with ad.no_grad():
            checkpoint(counted, leaf([1.0]), use_reentrant=False)
        assert calls == [1]

    def test_keyword_arguments_and_non_tensors(self) -> None:
        """F70."""

        def program(x: Any, factor: float, *, shift: Any, flag: bool = False) -> Any:
            assert flag
            return (x * factor).exp() * shift

        x, shift = leaf(randoms(3)), leaf(randoms(3, seed=1))
        y = checkpoint(program, x, 2.0, shift=shift, flag=True, use_reentrant=False)
        gx, gs = grad(y.sum(), [x, shift])
        wx, ws = grad(program(x, 2.0, shift=shift, flag=True).sum(), [x, shift])
        exact(gx, values(wx))
        exact(gs, values(ws))

    def test_containers_and_several_outputs(self) -> None:
        def program(pair: Any) -> Any:
            a, b = pair
            return {"product": (a * b).exp(), "sum": a.sin() + b}

        a, b = leaf(randoms(3)), leaf(randoms(3, seed=1))
        out = checkpoint(program, (a, b), use_reentrant=False)
        got = grad((out["product"] * out["sum"]).sum(), [a, b])
        plain = program((a, b))
        want = grad((plain["product"] * plain["sum"]).sum(), [a, b])
        for g, w in zip(got, want, strict=True):
            exact(g, values(w))

    def test_closed_over_parameters(self) -> None:
        """The parameters of a block are not arguments; they must get gradients all the same."""
        w = leaf(randoms(3, 3))
        x = const(randoms(2, 3, seed=1))
        y = checkpoint(lambda t: block(t, w), x, use_reentrant=False)
        (got,) = grad(y.sum(), w)
        exact(got, values(grad(block(x, w).sum(), w)[0]))

    def test_module(self) -> None:
        ad.manual_seed(0)
        layer = ad.nn.Sequential(ad.nn.Linear(3, 4), ad.nn.Tanh(), ad.nn.Linear(4, 2))
        x = ad.randn(5, 3)
        layer(x).sum().backward()
        want = [values(p.grad) for p in layer.parameters()]
        layer.zero_grad()
        checkpoint(layer, x, use_reentrant=False).sum().backward()
        for p, g in zip(layer.parameters(), want, strict=True):
            exact(p.grad, g)

    def test_nested(self) -> None:
        def inner(x: Any) -> Any:
            return x.sin().exp()

        def outer(x: Any) -> Any:
            return checkpoint(inner, x * 2.0, use_reentrant=False).tanh()

        x = leaf(randoms(3))
        (got,) = grad(checkpoint(outer, x, use_reentrant=False).sum(), x)
        (want,) = grad((x * 2.0).sin().exp().tanh().sum(), x)
        exact(got, values(want))

    def test_second_order(self) -> None:
        """Non-reentrant checkpoints compose with create_graph."""
        x = leaf(randoms(3))
        y = checkpoint(lambda t: t.sin().exp(), x, use_reentrant=False)
        (g,) = grad(y.sum(), x, create_graph=True)
        (gg,) = grad((g * g).sum(), x)
        (p,) = grad(x.sin().exp().sum(), x, create_graph=True)
        (pp,) = grad((p * p).sum(), x)
        exact(g, values(p))
        np.testing.assert_allclose(values(gg), values(pp), rtol=1e-13)

    def test_in_place_inside(self) -> None:
        def program(x: Any) -> Any:
            y = x * 2.0
            y[:1].mul_(3.0)
            return y.exp()

        plain, saved = both(program, randoms(3))
        np.testing.assert_array_equal(plain[0], saved[0])

    def test_retain_graph(self) -> None:
        x = leaf(randoms(3))
        y = checkpoint(lambda t: t.sin().exp(), x, use_reentrant=False).sum()
        (first,) = grad(y, x, retain_graph=True)
        (second,) = grad(y, x)
        exact(first, values(second))
        with pytest.raises(RuntimeError):
            grad(y, x)

    def test_used_by_two_losses(self) -> None:
        x = leaf(randoms(3))
        shared = checkpoint(lambda t: t.sin().exp(), x, use_reentrant=False)
        (got,) = grad((shared * shared).sum() + shared.sum(), x)
        plain = x.sin().exp()
        (want,) = grad((plain * plain).sum() + plain.sum(), x)
        exact(got, values(want))


class TestMemory:
    def test_intermediates_are_not_kept(self) -> None:
        """F70: what is saved is the inputs only."""
        x = leaf(randoms(50))

        def program(t: Any) -> Any:
            for _ in range(10):
                t = t.sin().exp()
            return t

        _, plain = saved_by(lambda: program(x))
        _, kept = saved_by(lambda: checkpoint(program, x, use_reentrant=False))
        assert len(plain) == 20
        assert sum(k.nbytes for k in kept) <= x.numel() * 8

    def test_intermediates_die_after_the_forward(self) -> None:
        import weakref

        from helpers_engine import without_gc

        inner = []

        def program(t: Any) -> Any:
            hidden = t.sin()
            inner.append(weakref.ref(hidden))
            return hidden.exp()

        with without_gc():
            y = checkpoint(program, leaf(randoms(3)), use_reentrant=False)
            assert inner[0]() is None
            y.sum().backward()
            assert all(ref() is None for ref in inner)


class TestRandomness:
    def test_dropout_mask_is_the_same(self) -> None:
        """F81: the random state of the forward is restored for the second run."""
        x = leaf(np.ones(200))

        def program(t: Any) -> Any:
            return ad.nn.functional.dropout(t, 0.5) * 3.0

        ad.manual_seed(3)
        y = checkpoint(program, x, use_reentrant=False)
        y.sum().backward()
        exact(x.grad, values(y))

    def test_state_after_backward_is_as_without_checkpoint(self) -> None:
        def program(t: Any) -> Any:
            return t * ad.rand(3, dtype=ad.float64)

        after = []
        for wrap in (False, True):
            ad.manual_seed(5)
            x = leaf([1.0, 1.0, 1.0])
            y = checkpoint(program, x, use_reentrant=False) if wrap else program(x)
            y.sum().backward()
            after.append(values(ad.rand(4)))
        np.testing.assert_array_equal(after[0], after[1])

    def test_preserve_rng_state_off(self) -> None:
        def program(t: Any) -> Any:
            return t * ad.rand(3, dtype=ad.float64)

        ad.manual_seed(5)
        x = leaf([1.0, 1.0, 1.0])
        y = checkpoint(program, x, use_reentrant=False, preserve_rng_state=False)
        y.sum().backward()
        assert (values(x.grad) != values(y)).all()


class TestRefusals:
    def test_different_recomputation_is_found(self) -> None:
        """F81: a block that is not the same the second time does not give a wrong gradient
        silently.
        """
        turn = []

        def program(t: Any) -> Any:
            turn.append(1)
            return t.sin().exp() if len(turn) == 1 else t.sin()[:1].exp()

        y = checkpoint(program, leaf(randoms(3)), use_reentrant=False)
        with pytest.raises(RuntimeError, match="(?i)recompute|checkpoint"):
            y.sum().backward()

    def test_fewer_saved_tensors_are_found(self) -> None:
        turn = []

        def program(t: Any) -> Any:
            turn.append(1)
            return t.sin().exp() if len(turn) == 1 else t * 1.0

        y = checkpoint(program, leaf(randoms(3)), use_reentrant=False)
        with pytest.raises(RuntimeError, match="(?i)checkpoint"):
            y.sum().backward()

    def test_old_argument_gives_the_same_gradients(self) -> None:
        """Programs that still say use_reentrant=True get the same bits."""
        x = leaf(randoms(3))
        (want,) = grad(block(x.reshape(1, 3), const(randoms(3, 2))).sum(), x)
        y = checkpoint(
            lambda t: block(t, const(randoms(3, 2))), x.reshape(1, 3), use_reentrant=True
        )
        y.sum().backward()
        exact(x.grad, values(want))

    @only_ours
    def test_non_reentrant_is_the_default(self) -> None:
        x = leaf([1.0])
        checkpoint(lambda t: t.exp(), x).sum().backward()
        exact(x.grad, [np.e])

    def test_exception_in_the_block_passes_through(self) -> None:
        with pytest.raises(ZeroDivisionError):
            checkpoint(lambda t: 1 // 0, leaf([1.0]), use_reentrant=False)

    def test_exception_in_the_recomputation_passes_through(self) -> None:
        turn = []

        def program(t: Any) -> Any:
            turn.append(1)
            if len(turn) == 2:
                raise KeyError("second")
            return t.sin().exp()

        x = leaf([1.0])
        y = checkpoint(program, x, use_reentrant=False)
        with pytest.raises(KeyError, match="second"):
            y.sum().backward()
        assert x.grad is None and ad.is_grad_enabled()

    def test_mutated_input_is_found(self) -> None:
        """F22: the checkpoint's own input is a saved tensor."""
        x = leaf(randoms(3))
        h = x * 1.0
        y = checkpoint(lambda t: t.sin().exp(), h, use_reentrant=False)
        h.mul_(2.0)
        with pytest.raises(RuntimeError):
            y.sum().backward()


class TestSequential:
    @pytest.mark.parametrize("segments", [1, 2, 3, 5])
    def test_same_bits_for_every_split(self, segments: int) -> None:
        """F70."""
        ad.manual_seed(0)
        layers = [ad.nn.Linear(4, 4) for _ in range(5)]
        model = ad.nn.Sequential(*layers)
        x = ad.randn(3, 4, requires_grad=True)
        model(x).sum().backward()
        want = [values(p.grad) for p in (x, *model.parameters())]
        x.grad = None
        model.zero_grad()
        checkpoint_sequential(model, segments, x, use_reentrant=False).sum().backward()
        for p, g in zip((x, *model.parameters()), want, strict=True):
            exact(p.grad, g)

    def test_list_of_functions(self) -> None:
        x = leaf(randoms(3))
        functions = [lambda t: t.sin(), lambda t: t.exp(), lambda t: t.tanh()]
        y = checkpoint_sequential(functions, 2, x, use_reentrant=False)
        (got,) = grad(y.sum(), x)
        exact(got, values(grad(x.sin().exp().tanh().sum(), x)[0]))

    def test_keeps_less(self) -> None:
        x = leaf(randoms(50))
        functions = [lambda t: t.sin() for _ in range(9)]
        _, kept = saved_by(lambda: checkpoint_sequential(functions, 3, x, use_reentrant=False))
        assert sum(k.nbytes for k in kept) < 9 * 50 * 8


@pytest.mark.parametrize("region", [
    lambda x: x * x, lambda x: (x * x).sin(), lambda x: x @ x.T @ x])
def test_a_region_is_run_again_once_where_a_node_saves_one_tensor_twice(region: Any) -> None:
    runs: list[int] = []

    def counted(x: Any) -> Any:
        runs.append(1)
        return region(x)
    x = leaf(randoms(3, 3))
    out = checkpoint(counted, x, use_reentrant=False).sum()
    for times in (2, 3):
        out.backward(retain_graph=True)
        assert len(runs) == times
    y = leaf(values(x))
    (2 * region(y)).sum().backward()
    exact(x.grad, values(y.grad))


class _Computed(Observer):
    """The names of the ops that are computed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    inside = True

    def computed(self, op: Any, args: Any, attrs: Any, outs: Any) -> None:
        self.names.append(op.name)


@pytest.mark.parametrize("last, missing", [
    (lambda h, w: h @ w, {"matmul", "mm"}),
    (lambda h, w: ad.nn.functional.linear(h, w), {"linear"}),
    (lambda h, w: h.tanh(), set()),
    (lambda h, w: (h @ w).sum(), {"matmul", "mm", "sum", "sum_all"})])
def test_the_op_that_saves_only_operands_does_not_run_again_at_the_end(
        last: Any, missing: set[str]) -> None:
    """What backward reads of a region's last product are its operands: its result is not made
    again. An op that keeps its result is."""
    x, w = leaf(randoms(3, 3)), leaf(randoms(3, 3))
    out = checkpoint(lambda x, w: last(x.exp(), w), x, w, use_reentrant=False).sum()
    watch = _Computed()
    held = watchers.push(watchers.observers, watch)
    try:
        out.backward()
    finally:
        watchers.pop(held)
    assert "exp" in watch.names and not missing & set(watch.names)
    assert missing or "tanh" in watch.names
    y, v = leaf(values(x)), leaf(values(w))
    last(y.exp(), v).sum().backward()
    exact(x.grad, values(y.grad))
    if missing:
        exact(w.grad, values(v.grad))


def test_options_that_are_not_there() -> None:
    x = ad.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match=r"one of \['default', 'none'\], but got sometimes"):
        ad.utils.checkpoint.checkpoint(ad.sin, x, use_reentrant=False,
                                       determinism_check="sometimes")
    with pytest.raises(ValueError, match="Unexpected keyword arguments: detail"):
        ad.utils.checkpoint.checkpoint_sequential([ad.sin, ad.cos], 2, x, use_reentrant=False,
                                                  detail=1)


@pytest.mark.parametrize(("inside", "told", "logs"), [
    (None, False, False), (None, True, True), (True, False, True), (False, True, False)])
def test_debug_tells_what_was_saved_both_times(inside, told, logs):
    again = iter([lambda x: x.sin() * x, lambda x: x.sin()[:1].exp() * x.cos()[:1]])
    with ad.utils.checkpoint.set_checkpoint_debug_enabled(inside):
        y = checkpoint(lambda x: next(again)(x), ad.ones(2, requires_grad=True),
                       use_reentrant=False, debug=told)
    with pytest.raises(CheckpointError) as error:
        y.sum().backward()
    text = str(error.value)
    assert ("dumping logs of latest computation" in text) is logs
    if logs:
        forward, recomputed = text.split("Saved during recomputation:")
        assert "Saved in the original forward:\n  0: float32[2] by SinBackward0 at" in forward
        assert "ExpBackward0" in recomputed and "ExpBackward0" not in forward
        assert "metadata" in str(error.value.__cause__)
