"""Hooks of every kind: on tensors, on nodes, after accumulation; order, replacement, removal,
failures.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers_engine import const, exact, leaf, only_ours, values

import adjoint as ad

grad = ad.autograd.grad


class TestTensorHooks:
    def test_sees_and_replaces_the_gradient(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 3.0
        seen = []
        y.register_hook(lambda g: seen.append(values(g)))
        y.register_hook(lambda g: g * 10.0)
        y.sum().backward()
        np.testing.assert_array_equal(seen[0], [1.0, 1.0])
        exact(x.grad, [30.0, 30.0])

    def test_registration_order_each_sees_the_result_before(self) -> None:
        y = leaf([1.0]) * 2.0
        log = []
        y.register_hook(lambda g: log.append(("a", g.item())) or g + 1.0)
        y.register_hook(lambda g: log.append(("b", g.item())))
        y.register_hook(lambda g: log.append(("c", g.item())) or g * 5.0)
        y.sum().backward()
        assert log == [("a", 1.0), ("b", 2.0), ("c", 2.0)]

    def test_runs_once_with_the_summed_gradient(self) -> None:
        y = leaf([1.0]) * 2.0
        log = []
        y.register_hook(lambda g: log.append(g.item()))
        (y * 3.0 + y * 4.0).sum().backward()
        assert log == [7.0]

    def test_on_a_leaf_once_before_accumulation(self) -> None:
        x = leaf([1.0])
        x.grad = const([100.0])
        log = []
        x.register_hook(lambda g: log.append((g.item(), x.grad.item())) or g * 2.0)
        (x * 3.0 + x * 4.0).sum().backward()
        assert log == [(7.0, 100.0)]
        exact(x.grad, [114.0])

    def test_remove(self) -> None:
        x = leaf([1.0])
        handle = x.register_hook(lambda g: g * 5.0)
        handle.remove()
        handle.remove()
        x.sum().backward()
        exact(x.grad, [1.0])

    def test_remove_one_of_two(self) -> None:
        y = leaf([1.0]) * 1.0
        log = []
        first = y.register_hook(lambda g: log.append("first"))
        y.register_hook(lambda g: log.append("second"))
        first.remove()
        y.sum().backward()
        assert log == ["second"]

    def test_remove_while_running(self) -> None:
        x = leaf([1.0])
        log = []

        def once(g):  # type: ignore[no-untyped-def]
            log.append(1)
            handle.remove()

        handle = x.register_hook(once)
        x.sum().backward()
        x.sum().backward()
        assert log == [1]

    def test_persists_over_backwards(self) -> None:
        x = leaf([1.0])
        log = []
        x.register_hook(lambda g: log.append(1))
        for _ in range(3):
            (x * 2.0).sum().backward()
        assert log == [1, 1, 1]

    def test_not_run_off_the_path(self) -> None:
        x = leaf([1.0])
        unused = x * 2.0
        unused.register_hook(lambda g: pytest.fail("not on the path"))
        (x * 3.0).sum().backward()
        exact(x.grad, [3.0])

    def test_run_by_grad_too(self) -> None:
        x = leaf([1.0])
        x.register_hook(lambda g: g * 7.0)
        exact(grad((x * 2.0).sum(), x)[0], [14.0])
        assert x.grad is None

    def test_of_an_input_of_grad_runs_before_capture(self) -> None:
        y = leaf([1.0]) * 2.0
        y.register_hook(lambda g: g * 7.0)
        exact(grad((y * 3.0).sum(), y)[0], [21.0])

    def test_needs_requires_grad(self) -> None:
        with pytest.raises(RuntimeError, match="^cannot register a hook on a tensor that doesn't"):
            const([1.0]).register_hook(lambda g: None)

    def test_wrong_shape_refused(self) -> None:
        y = leaf([1.0, 2.0]) * 2.0
        y.register_hook(lambda g: const([1.0, 2.0, 3.0]))
        with pytest.raises(RuntimeError, match="hook.*changed the (size|shape)"):
            y.sum().backward()

    def test_wrong_kind_refused(self) -> None:
        y = leaf([1.0]) * 2.0
        y.register_hook(lambda g: 3)
        with pytest.raises(TypeError, match="hook.*int"):
            y.sum().backward()

    def test_after_in_place_belongs_to_the_value_before(self) -> None:
        """A hook registered before an in-place op sees the gradient of the value it was registered
        on.
        """
        x = leaf([1.0])
        y = x * 2.0
        log = []
        y.register_hook(lambda g: log.append(("before", g.item())))
        y.mul_(3.0)
        y.register_hook(lambda g: log.append(("after", g.item())))
        y.sum().backward()
        assert log == [("after", 1.0), ("before", 3.0)]

    def test_with_create_graph_the_gradient_is_differentiable(self) -> None:
        x = leaf([2.0])
        y = x * x
        y.register_hook(lambda g: g * x)
        (g,) = grad(y.sum(), x, create_graph=True)
        exact(g, [8.0])
        exact(grad(g.sum(), x)[0], [8.0])

    def test_hook_may_run_a_backward_of_its_own(self) -> None:
        """Re-entrance: backward inside a hook of a running backward."""
        x, w = leaf([1.0]), leaf([2.0])

        def inner(g):  # type: ignore[no-untyped-def]
            with ad.enable_grad():
                (w * 5.0).sum().backward()

        y = x * 3.0
        y.register_hook(inner)
        (y * 2.0).sum().backward()
        exact(x.grad, [6.0])
        exact(w.grad, [5.0])


class TestRetainGrad:
    def test_keeps_the_gradient_of_a_non_leaf(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 2.0
        y.retain_grad()
        assert y.retains_grad
        (y * y).sum().backward()
        exact(y.grad, [4.0, 8.0])

    def test_accumulates_and_may_be_called_twice(self) -> None:
        y = leaf([1.0]) * 2.0
        y.retain_grad()
        y.retain_grad()
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        exact(y.grad, [2.0])

    def test_sees_the_result_of_all_hooks(self) -> None:
        y = leaf([1.0]) * 2.0
        y.retain_grad()
        y.register_hook(lambda g: g * 2.0)
        y.register_hook(lambda g: g * 5.0)
        y.sum().backward()
        exact(y.grad, [10.0])

    def test_on_a_leaf_is_nothing(self) -> None:
        x = leaf([1.0])
        x.retain_grad()
        assert not x.retains_grad
        x.sum().backward()
        exact(x.grad, [1.0])

    def test_refused_without_requires_grad(self) -> None:
        with pytest.raises(
            RuntimeError, match="^can't retain_grad on Tensor that has requires_grad=F"
        ):
            const([1.0]).retain_grad()

    def test_moves_along_in_place_ops(self) -> None:
        """retain_grad, unlike a hook, follows the tensor: .grad is that of its newest value."""
        y = leaf([1.0]) * 2.0
        y.retain_grad()
        y.mul_(3.0)
        y.sum().backward()
        exact(y.grad, [1.0])

    def test_unused_output_keeps_none(self) -> None:
        x = leaf([1.0])
        y = x * 2.0
        y.retain_grad()
        (x * 3.0).sum().backward()
        assert y.grad is None


class TestPostAccumulate:
    def test_runs_after_accumulation_with_the_leaf(self) -> None:
        x = leaf([1.0])
        x.grad = const([100.0])
        log = []
        x.register_post_accumulate_grad_hook(lambda p: log.append((p is x, p.grad.item())))
        (x * 3.0 + x * 4.0).sum().backward()
        assert log == [(True, 107.0)]

    def test_after_tensor_hooks(self) -> None:
        x = leaf([1.0])
        log = []
        x.register_post_accumulate_grad_hook(lambda p: log.append(("post", p.grad.item())))
        x.register_hook(lambda g: log.append(("hook", g.item())) or g * 2.0)
        (x * 3.0).sum().backward()
        assert log == [("hook", 3.0), ("post", 6.0)]

    def test_optimizer_in_backward(self) -> None:
        """The use it was made for: step and release each gradient as soon as it is complete."""
        w = leaf([1.0, 2.0])

        def step(p):  # type: ignore[no-untyped-def]
            with ad.no_grad():
                p.sub_(0.25 * p.grad)
            p.grad = None

        w.register_post_accumulate_grad_hook(step)
        for _ in range(2):
            (w * w).sum().backward()
        assert w.grad is None
        exact(w, [0.25, 0.5])

    def test_remove(self) -> None:
        x = leaf([1.0])
        handle = x.register_post_accumulate_grad_hook(lambda p: pytest.fail("removed"))
        handle.remove()
        x.sum().backward()

    def test_not_run_by_grad(self) -> None:
        x = leaf([1.0])
        x.register_post_accumulate_grad_hook(lambda p: pytest.fail("nothing was accumulated"))
        grad((x * 2.0).sum(), x)

    def test_non_leaf_refused(self) -> None:
        with pytest.raises(
            RuntimeError, match="^post accumulate grad hooks cannot be registered on"
        ):
            (leaf([1.0]) * 2.0).register_post_accumulate_grad_hook(lambda p: None)


class TestNodeHooks:
    def test_pre_and_post(self) -> None:
        x = leaf([2.0])
        y = x * x
        log = []
        y.grad_fn.register_prehook(lambda go: log.append(("pre", go[0].item())) or (go[0] * 10.0,))
        y.grad_fn.register_hook(
            lambda gi, go: log.append(("post", [g.item() for g in gi], go[0].item()))
        )
        y.sum().backward()
        assert log == [("pre", 1.0), ("post", [20.0, 20.0], 10.0)]
        exact(x.grad, [40.0])

    def test_post_replaces_the_inputs(self) -> None:
        x, w = leaf([1.0]), leaf([1.0])
        y = x + w
        y.grad_fn.register_hook(lambda gi, go: (gi[0] * 0.0, gi[1] * 5.0))
        y.sum().backward()
        exact(x.grad, [0.0])
        exact(w.grad, [5.0])

    def test_post_of_wrong_length_refused(self) -> None:
        x = leaf([1.0])
        y = x + x
        y.grad_fn.register_hook(lambda gi, go: (gi[0],))
        with pytest.raises(RuntimeError, match="hook.* expected 2"):
            y.sum().backward()

    def test_none_for_operands_without_grad(self) -> None:
        x = leaf([1.0])
        y = x * const([2.0])
        log = []
        y.grad_fn.register_hook(lambda gi, go: log.append([g is None for g in gi]))
        y.sum().backward()
        assert log == [[False, True]]

    def test_remove(self) -> None:
        y = leaf([1.0]) * 2.0
        pre = y.grad_fn.register_prehook(lambda go: pytest.fail("removed"))
        post = y.grad_fn.register_hook(lambda gi, go: pytest.fail("removed"))
        pre.remove()
        post.remove()
        y.sum().backward()

    def test_tensor_hooks_run_before_node_prehooks(self) -> None:
        y = leaf([1.0]) * 2.0
        log = []
        y.grad_fn.register_prehook(lambda go: log.append(("node", go[0].item())))
        y.register_hook(lambda g: log.append(("tensor", g.item())) or g * 3.0)
        y.sum().backward()
        assert log == [("tensor", 1.0), ("node", 3.0)]

    def test_on_the_accumulate_node(self) -> None:
        x = leaf([1.0])
        y = x * 2.0
        accumulate = y.grad_fn.next_functions[0][0]
        log = []
        accumulate.register_prehook(lambda go: log.append(go[0].item()))
        accumulate.register_hook(lambda gi, go: log.append(x.grad.item()))
        y.sum().backward()
        assert log == [2.0, 2.0]

    def test_order_of_a_walk(self) -> None:
        """Nodes run latest first: the sequence number decides among those that are ready."""
        x = leaf([1.0])
        a = x * 2.0
        b = x * 3.0
        c = x * 5.0
        log = []
        for name, t in (("a", a), ("b", b), ("c", c)):
            t.grad_fn.register_hook(lambda gi, go, name=name: log.append(name))
        (a + b + c).sum().backward()
        assert log == ["c", "b", "a"]


class TestMultiGradHook:
    def test_all(self) -> None:
        x, w = leaf([1.0]), leaf([2.0])
        log = []
        handle = ad.autograd.graph.register_multi_grad_hook(
            [x, w], lambda grads: log.append([g.item() for g in grads])
        )
        (x * w).sum().backward()
        assert log == [[2.0, 1.0]]
        handle.remove()
        (x * w).sum().backward()
        assert len(log) == 1

    def test_any(self) -> None:
        x, w = leaf([1.0]), leaf([2.0])
        log = []
        ad.autograd.graph.register_multi_grad_hook(
            [x, w], lambda g: log.append(g.item()), mode="any"
        )
        (x * w).sum().backward()
        assert len(log) == 1


class TestFailures:
    """An exception inside a hook: what was not reached stays as it was."""

    def test_exception_passes_through_and_later_leaves_are_untouched(self) -> None:
        x, w = leaf([1.0]), leaf([2.0])
        y = x * w
        y.register_hook(lambda g: 1 // 0)
        z = y * w
        with pytest.raises(ZeroDivisionError):
            z.sum().backward()
        assert x.grad is None
        (x * 3.0).sum().backward()
        exact(x.grad, [3.0])

    def test_keyboard_interrupt(self) -> None:
        x = leaf([1.0])
        x.grad = const([5.0])
        y = x * 2.0

        def interrupt(g):  # type: ignore[no-untyped-def]
            raise KeyboardInterrupt

        y.register_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            (y * y).sum().backward()
        exact(x.grad, [5.0])
        assert ad.is_grad_enabled()
        (x * 3.0).sum().backward()
        exact(x.grad, [8.0])

    def test_grad_mode_is_restored(self) -> None:
        x = leaf([1.0])
        y = x * 2.0
        y.register_hook(lambda g: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            grad(y.sum(), x, create_graph=True)
        assert ad.is_grad_enabled()
        assert (x * 2.0).requires_grad

    def test_retained_graph_can_be_run_again(self) -> None:
        x = leaf([1.0])
        y = x * x
        handle = y.register_hook(lambda g: 1 // 0)
        loss = y.sum()
        with pytest.raises(ZeroDivisionError):
            loss.backward(retain_graph=True)
        handle.remove()
        loss.backward()
        exact(x.grad, [2.0])

    @only_ours
    def test_partly_finished_backward_says_so(self) -> None:
        """Nothing is lost silently: where some .grad was written, the exception has a note."""
        x, w = leaf([1.0]), leaf([2.0])
        y = x * 3.0
        y.register_hook(lambda g: 1 // 0)
        z = y * w  # w is finished before y is reached
        with pytest.raises(ZeroDivisionError) as caught:
            z.sum().backward()
        assert x.grad is None
        notes = " ".join(getattr(caught.value, "__notes__", []))
        assert (w.grad is None) != ("accumulated" in notes)

    def test_exception_in_post_accumulate_leaves_the_accumulated_grad(self) -> None:
        x = leaf([1.0])
        x.register_post_accumulate_grad_hook(lambda p: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            (x * 3.0).sum().backward()
        exact(x.grad, [3.0])


class TestWhatNodesHooksReturn:
    @pytest.mark.parametrize(("answer", "error", "words"), [
        (lambda grads: (1,), TypeError, "expected Variable, but hook returned 'int'"),
        (lambda grads: (grads[0][:1],), RuntimeError, "has changed the size of value"),
        (lambda grads: (grads[0].float(),), RuntimeError,
         r"was \S*DoubleTensor got \S*FloatTensor"),
        (lambda grads: grads[0], TypeError, "expected tuple, but hook returned 'Tensor'")])
    def test_has_to_fit(self, answer: Any, error: Any, words: str) -> None:
        for register in ("register_prehook", "register_hook"):
            y = leaf([1.0, 2.0]).exp()
            getattr(y.grad_fn, register)(lambda grads, *rest: answer(grads))
            with pytest.raises(error, match=words):
                y.sum().backward()

    def test_a_prehook_does_not_run_where_the_gradient_is_asked_for(self) -> None:
        y = leaf([1.0]) * 3.0
        log: list[str] = []
        y.grad_fn.register_prehook(lambda grads: log.append("node"))
        y.register_hook(lambda g: log.append("tensor"))
        exact(grad(y.sum(), y)[0], [1.0])
        assert log == ["tensor"]

    def test_handles_know_their_dict(self) -> None:
        x = leaf([1.0])
        handle = x.register_hook(lambda g: None)
        hooks = handle.hooks_dict_ref()
        assert list(hooks) == [handle.id]
        handle.remove()
        assert not hooks


def test_increment_version_takes_tensors() -> None:
    for wrong in (3, [3]):
        with pytest.raises(RuntimeError, match=r"expect a Iterable\[Tensor\]"):
            ad.autograd.graph.increment_version(wrong)
    x, y = ad.ones(1), ad.ones(1)
    ad.autograd.graph.increment_version(t for t in (x, y))
    assert (x._version, y._version) == (1, 1)


def test_hooks_of_saved_tensors_are_functions() -> None:
    with pytest.raises(TypeError, match="incompatible function arguments"):
        ad.autograd.graph.saved_tensors_hooks(3, 4).__enter__()  # type: ignore[arg-type]  # refused
    exact((leaf([2.0]) ** 2).detach(), [4.0])
