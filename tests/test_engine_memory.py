"""What the graph keeps alive and for how long: no cycles, freed node by node, no recursion."""

from __future__ import annotations

import sys
import threading
import weakref

import numpy as np
import pytest
from helpers_engine import OURS, const, exact, leaf, near, only_ours, randoms, saved_by, without_gc

import adjoint as ad


class Token:
    """A thing whose death can be watched (tensors of every kind can carry it in a hook or a
    context).
    """


class Watch(ad.autograd.Function):
    """The identity; its context holds a Token, so the token lives exactly as long as the node keeps
    residuals.
    """

    @staticmethod
    def forward(ctx, x, token):  # type: ignore[no-untyped-def]
        ctx.token = token
        return x * 1.0

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return g, None


class TestNoCycles:
    def test_graph_dies_with_its_last_reference(self) -> None:
        """F20, F76: reference counting alone frees a graph that was never run."""
        with without_gc():
            token = Token()
            alive = weakref.ref(token)
            x = leaf([1.0, 2.0])
            y = (Watch.apply(x * 2.0, token) * 3.0).sum()
            del token
            assert alive() is not None
            del y
            assert alive() is None

    def test_node_dies_with_its_last_reference(self) -> None:
        with without_gc():
            x = leaf([1.0, 2.0])
            y = (x * 2.0).exp().sum()
            node = weakref.ref(y.grad_fn) if OURS else None
            kept = weakref.ref(y)
            del y
            assert kept() is None
            assert node is None or node() is None

    def test_graph_freed_after_backward(self) -> None:
        with without_gc():
            token = Token()
            alive = weakref.ref(token)
            x = leaf([1.0])
            y = Watch.apply(x, token).sum()
            del token
            y.backward()
            del y
            assert alive() is None
            exact(x.grad, [1.0])

    def test_retained_graph_dies_with_the_loss(self) -> None:
        """F19: retain_graph keeps it only as long as the loss is referenced."""
        with without_gc():
            token = Token()
            alive = weakref.ref(token)
            x = leaf([1.0])
            y = Watch.apply(x, token).sum()
            del token
            y.backward(retain_graph=True)
            assert alive() is not None
            y.backward()
            del y
            assert alive() is None

    def test_create_graph_leaves_no_cycle(self) -> None:
        """F16: grad(create_graph=True) to third order, then everything is dropped: nothing may
        survive.
        """
        with without_gc():
            token = Token()
            alive = weakref.ref(token)
            x = leaf([0.5, 0.7])
            y = (Watch.apply(x, token) ** 4).sum()
            del token
            (g,) = ad.autograd.grad(y, x, create_graph=True)
            (g2,) = ad.autograd.grad(g.sum(), x, create_graph=True)
            (g3,) = ad.autograd.grad(g2.sum(), x)
            near(g3, 24.0 * np.array([0.5, 0.7]))
            del y, g, g2, g3
            assert alive() is None

    def test_saved_output_is_no_cycle(self) -> None:
        """exp keeps its own output: node -> output -> node would never be freed."""
        with without_gc():
            x = leaf([1.0])
            y = x.exp()
            alive = weakref.ref(y)
            del y
            assert alive() is None

    def test_custom_function_saving_its_output_is_no_cycle(self) -> None:
        """F51: save_for_backward(output) is held without a cycle."""

        class Exp(ad.autograd.Function):
            @staticmethod
            def forward(ctx, x, token):  # type: ignore[no-untyped-def]
                out = x.exp()
                ctx.save_for_backward(out)
                ctx.token = token
                return out

            @staticmethod
            def backward(ctx, g):  # type: ignore[no-untyped-def]
                (out,) = ctx.saved_tensors
                return g * out, None

        with without_gc():
            token = Token()
            alive = weakref.ref(token)
            y = Exp.apply(leaf([1.0]), token)
            del token, y
            assert alive() is None

    def test_hook_on_a_tensor_is_no_cycle(self) -> None:
        with without_gc():
            token = Token()
            alive = weakref.ref(token)
            y = leaf([1.0]) * 2.0
            y.register_hook(lambda g, token=token: None)
            del token, y
            assert alive() is None

    def test_in_place_history_is_no_cycle(self) -> None:
        with without_gc():
            token = Token()
            alive = weakref.ref(token)
            y = Watch.apply(leaf([1.0, 2.0]), token)
            del token
            part = y[:1]
            part.mul_(2.0)
            y.add_(part.sum().item())
            del part, y
            assert alive() is None

    def test_failed_backward_keeps_nothing(self) -> None:
        """An exception in a hook: after it is handled and the loss dropped, the graph is gone."""
        with without_gc():
            token = Token()
            alive = weakref.ref(token)
            y = Watch.apply(leaf([1.0]), token)
            del token
            z = y * 2.0
            z.register_hook(lambda g: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                z.sum().backward()
            del y, z
            assert alive() is None

    def test_losses_kept_after_backward_hold_no_saved_tensors(self) -> None:
        """Table 1i: keeping `loss` after backward() does not keep its residuals."""
        tokens = []
        losses = []
        with without_gc():
            x = leaf([1.0])
            for _ in range(3):
                big = (x * 2.0).exp()
                tokens.append(weakref.ref(big))
                loss = (big * big).sum()
                del big
                loss.backward()
                losses.append(loss)
            assert [t() for t in tokens] == [None] * 3


class TestResiduals:
    def test_freed_node_by_node(self) -> None:
        """F20: when a node runs, the residuals of the nodes before it are already gone."""
        x = leaf([0.5])
        y = x
        packs: list[weakref.ref[Token]] = []

        def pack(tensor):  # type: ignore[no-untyped-def]
            held = Token()
            held.tensor = tensor  # type: ignore[attr-defined]
            packs.append(weakref.ref(held))
            return held

        with without_gc(), ad.autograd.graph.saved_tensors_hooks(pack, lambda held: held.tensor):
            for _ in range(4):
                y = y.sin()
            counts = []

            def count(grad_inputs, grad_outputs):  # type: ignore[no-untyped-def]
                counts.append(sum(ref() is not None for ref in packs))

            node = y.grad_fn
            while node is not None:
                if "Sin" in node.name():
                    node.register_hook(count)
                node = node.next_functions[0][0] if node.next_functions else None
            del node
            loss = y.sum()
            del y
            loss.backward()
        assert len(packs) == 4
        assert counts == sorted(counts, reverse=True)
        assert counts[-1] <= 1, counts
        assert sum(ref() is not None for ref in packs) == 0

    @only_ours
    def test_frozen_partner_keeps_nothing(self) -> None:
        """F4: x @ W with frozen W keeps W only; with x a constant it keeps x only."""
        x, w = leaf(randoms(2, 3)), const(randoms(3, 4))
        _, kept = saved_by(lambda: x @ w)
        assert [k.shape for k in kept] == [(3, 4)]
        _, kept = saved_by(lambda: x.detach() @ w.detach().requires_grad_())
        assert [k.shape for k in kept] == [(2, 3)]
        _, kept = saved_by(lambda: x * 3.0)
        assert [k.shape for k in kept if k.shape != ()] == []

    @pytest.mark.parametrize(
        ("name", "count"), [("exp", 1), ("sigmoid", 1), ("tanh", 1), ("sin", 1), ("neg", 0)]
    )
    def test_one_array_or_none(self, name: str, count: int) -> None:
        x = leaf(randoms(3))
        _, kept = saved_by(lambda: getattr(x, name)())
        assert len(kept) == count

    @pytest.mark.parametrize("program", ["x + x", "x - 1.0", "-x", "x.sum()", "x.reshape(2, 3)"])
    def test_linear_ops_save_nothing(self, program: str) -> None:
        """F4: addition is the exception that saves nothing; so is every other linear op."""
        x = leaf(randoms(3, 2))
        _, kept = saved_by(lambda: eval(program, {"x": x}))  # noqa: S307
        assert kept == []

    def test_output_based_rules_save_the_output(self) -> None:
        """F34, F35: sigmoid, tanh, exp and softmax are recovered from the output alone."""
        x = leaf(randoms(2, 3))
        for function in (ad.sigmoid, ad.tanh, ad.exp, lambda t: ad.softmax(t, dim=1)):
            out, kept = saved_by(lambda function=function: function(x))
            assert len(kept) == 1
            exact(out, kept[0])

    def test_nothing_is_saved_under_no_grad(self) -> None:
        x = leaf(randoms(3))

        def program():  # type: ignore[no-untyped-def]
            with ad.no_grad():
                return (x * x).exp()

        _, kept = saved_by(program)
        assert kept == []


def chain_gradient(length: int) -> float:
    """The gradient through `length` alternating additions and multiplications by 1."""
    x = leaf(2.0)
    y = x
    for k in range(length):
        y = y * 1.0 if k % 2 else y + 1.0
    y.backward()
    value = x.grad.item()
    del y
    return value


class TestLongChains:
    """F26: iterative: no recursion in backward, and none when the graph is freed."""

    def test_hundred_thousand_nodes(self) -> None:
        assert chain_gradient(100_000) == 1.0

    @pytest.mark.slow
    def test_million_nodes(self) -> None:
        assert chain_gradient(1_000_000) == 1.0

    def test_dropping_a_long_graph_unrun(self) -> None:
        x = leaf(2.0)
        y = x
        for _ in range(100_000):
            y = y * 1.0
        del y
        assert x.grad is None

    def test_long_chain_in_a_thread_with_a_small_stack(self) -> None:
        """A stack that any recursion per node would overflow. From 3.13 on, freeing any long chain
        of Python objects goes deeper before it turns iterative: by 1.0 to 1.5 MiB in Debian's."""
        before = threading.stack_size((256 if sys.version_info < (3, 13) else 2048) * 1024)
        try:
            results: list[float] = []
            worker = threading.Thread(target=lambda: results.append(chain_gradient(50_000)))
            worker.start()
            worker.join()
        finally:
            threading.stack_size(before)
        assert results == [1.0]

    def test_long_chain_of_custom_functions_and_views(self) -> None:
        x = leaf([1.0, 2.0])
        y = x
        for _ in range(2_000):
            y = Watch.apply(y.view(2, 1).squeeze(1), None)
        y.sum().backward()
        exact(x.grad, [1.0, 1.0])

    def test_long_in_place_chain(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 1.0
        for _ in range(5_000):
            y.add_(1.0)
        y.sum().backward()
        exact(x.grad, [1.0, 1.0])

    def test_long_chain_of_writes_through_views(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 1.0
        for _ in range(1_000):
            y[:1].add_(1.0)
            y[1:].mul_(1.0)
        y.sum().backward()
        exact(x.grad, [1.0, 1.0])

    def test_second_order_through_a_long_chain(self) -> None:
        """F16: the graph of the gradient is as long as the chain; both are walked in loops."""
        x = leaf(1.0)
        y = x
        for _ in range(2_000):
            y = y * 1.0
        (g,) = ad.autograd.grad(y * y, x, create_graph=True)
        (h,) = ad.autograd.grad(g, x)
        assert (g.item(), h.item()) == (2.0, 2.0)
        del y, g, h

    def test_long_recurrence_with_many_live_views(self) -> None:
        x = leaf(np.zeros(200))
        y = x * 1.0
        parts = [y[k : k + 1] for k in range(200)]
        for part in parts[::2]:
            part.add_(1.0)
        sum(part.sum() for part in parts).backward()
        exact(x.grad, np.ones(200))

    def test_wide_fan_in(self) -> None:
        x = leaf(1.0)
        ad.stack([x * float(k) for k in range(3_000)]).sum().backward()
        assert x.grad.item() == float(sum(range(3_000)))
