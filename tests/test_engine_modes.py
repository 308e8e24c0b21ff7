"""no_grad, enable_grad, set_grad_enabled and inference_mode: as context, decorator, in threads and
generators.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from helpers_engine import const, exact, leaf, only_ours, values

import adjoint as ad


class TestContexts:
    def test_no_grad_records_nothing(self) -> None:
        """F45: outputs do not require grad and carry no node."""
        x = leaf([1.0, 2.0])
        with ad.no_grad():
            assert not ad.is_grad_enabled()
            y = (x * 2.0).exp()
        assert not y.requires_grad and y.grad_fn is None and y.is_leaf
        assert ad.is_grad_enabled()

    def test_enable_grad_inside_no_grad(self) -> None:
        x = leaf([1.0])
        with ad.no_grad(), ad.enable_grad():
            y = x * 2.0
        assert y.requires_grad

    @pytest.mark.parametrize("flag", [True, False])
    def test_set_grad_enabled_as_context(self, flag: bool) -> None:
        x = leaf([1.0])
        with ad.set_grad_enabled(flag):
            assert (x * 2.0).requires_grad is flag
        assert ad.is_grad_enabled()

    def test_set_grad_enabled_as_function(self) -> None:
        x = leaf([1.0])
        try:
            ad.set_grad_enabled(False)
            assert not (x * 2.0).requires_grad
        finally:
            ad.set_grad_enabled(True)
        assert (x * 2.0).requires_grad

    def test_restored_after_an_exception(self) -> None:
        with pytest.raises(KeyError), ad.no_grad():
            raise KeyError
        assert ad.is_grad_enabled()

    def test_nesting_restores_step_by_step(self) -> None:
        seen = []
        with ad.no_grad():
            with ad.enable_grad():
                with ad.no_grad():
                    seen.append(ad.is_grad_enabled())
                seen.append(ad.is_grad_enabled())
            seen.append(ad.is_grad_enabled())
        seen.append(ad.is_grad_enabled())
        assert seen == [False, True, False, True]

    @only_ours  # PyTorch forgets the outer state and leaves grad mode off
    def test_one_instance_re_entered(self) -> None:
        guard = ad.no_grad()
        with guard:
            with guard:
                assert not ad.is_grad_enabled()
            assert not ad.is_grad_enabled()
        assert ad.is_grad_enabled()

    def test_factory_with_requires_grad_inside_no_grad_is_a_leaf(self) -> None:
        with ad.no_grad():
            x = ad.ones(2, requires_grad=True)
        assert x.requires_grad and x.is_leaf
        (x * 2.0).sum().backward()
        exact(x.grad, [2.0, 2.0])

    def test_validation_inside_training(self) -> None:
        """F48, S3 pattern 2: a no_grad block leaves the tensors around it trainable."""
        loss = leaf(0.5)
        w = leaf([1.0])
        with ad.no_grad():
            validation = w * 3.0
        loss.backward()
        assert not validation.requires_grad
        exact(loss.grad, 1.0)

    def test_in_place_update_of_a_leaf(self) -> None:
        """F24: the way an optimizer steps."""
        w = leaf([1.0, 2.0])
        (w * w).sum().backward()
        with ad.no_grad():
            w -= 0.5 * w.grad
        exact(w, [0.0, 0.0])
        assert w.is_leaf and w.requires_grad


class TestDecorators:
    def test_no_grad_with_and_without_parentheses(self) -> None:
        """F45: @no_grad() and @no_grad."""
        x = leaf([1.0])

        @ad.no_grad()
        def called(t):  # type: ignore[no-untyped-def]
            """Doc."""
            return t * 2.0

        @ad.no_grad
        def bare(t):  # type: ignore[no-untyped-def]
            return t * 2.0

        assert not called(x).requires_grad
        assert not bare(x).requires_grad
        assert called.__name__ == "called" and called.__doc__ == "Doc."
        assert ad.is_grad_enabled()

    def test_enable_grad_and_set_grad_enabled(self) -> None:
        x = leaf([1.0])

        @ad.enable_grad()
        def on(t):  # type: ignore[no-untyped-def]
            return t * 2.0

        @ad.set_grad_enabled(False)
        def off(t):  # type: ignore[no-untyped-def]
            return t * 2.0

        ad.set_grad_enabled(True)
        with ad.no_grad():
            assert on(x).requires_grad
        assert not off(x).requires_grad

    def test_inference_mode(self) -> None:
        @ad.inference_mode()
        def predict(t):  # type: ignore[no-untyped-def]
            return t * 2.0

        out = predict(leaf([1.0]))
        assert not out.requires_grad and out.is_inference()

    def test_recursion_and_exceptions(self) -> None:
        @ad.no_grad()
        def down(n: int) -> bool:
            if n == 0:
                raise ValueError
            return down(n - 1)

        with pytest.raises(ValueError):
            down(5)
        assert ad.is_grad_enabled()

    def test_methods(self) -> None:
        class Model:
            @ad.no_grad()
            def run(self, t):  # type: ignore[no-untyped-def]
                return t * 2.0

        assert not Model().run(leaf([1.0])).requires_grad


class TestGenerators:
    def test_decorated_generator_does_not_leak_its_mode(self) -> None:
        """The mode holds inside the generator's body, not in its consumer between values."""
        x = leaf([1.0])

        @ad.no_grad()
        def stream():  # type: ignore[no-untyped-def]
            for _ in range(2):
                yield (x * 2.0).requires_grad, ad.is_grad_enabled()

        outside = []
        inside = []
        for item in stream():
            inside.append(item)
            outside.append(ad.is_grad_enabled())
        assert inside == [(False, False)] * 2
        assert outside == [True, True]

    def test_send_throw_and_return(self) -> None:
        @ad.no_grad()
        def coroutine():  # type: ignore[no-untyped-def]
            got = yield ad.is_grad_enabled()
            try:
                yield got, ad.is_grad_enabled()
            except KeyError:
                yield "caught", ad.is_grad_enabled()
            return "result"

        run = coroutine()
        assert next(run) is False
        assert run.send(7) == (7, False)
        assert run.throw(KeyError()) == ("caught", False)
        with pytest.raises(StopIteration) as end:
            next(run)
        assert end.value.value == "result"
        assert ad.is_grad_enabled()


class TestThreads:
    def test_mode_is_per_thread(self) -> None:
        """no_grad here does not reach a thread started meanwhile, and the reverse."""
        x = leaf([1.0])
        seen: list[bool] = []
        with ad.no_grad():
            worker = threading.Thread(target=lambda: seen.append((x * 2.0).requires_grad))
            worker.start()
            worker.join()
            assert not (x * 2.0).requires_grad
        assert seen == [True]

    def test_mode_of_a_thread_stays_there(self) -> None:
        entered, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with ad.no_grad():
                entered.set()
                leave.wait(10.0)

        worker = threading.Thread(target=hold)
        worker.start()
        assert entered.wait(10.0)
        assert ad.is_grad_enabled()
        assert (leaf([1.0]) * 2.0).requires_grad
        leave.set()
        worker.join()


class TestInferenceMode:
    """F46."""

    def test_outputs(self) -> None:
        x = leaf([1.0, 2.0])
        with ad.inference_mode():
            assert ad.is_inference_mode_enabled()
            y = x * 2.0
        assert not ad.is_inference_mode_enabled()
        assert not y.requires_grad and y.grad_fn is None
        assert y.is_inference() and not x.is_inference()

    def test_off_switch(self) -> None:
        x = leaf([1.0])
        with ad.inference_mode(mode=False):
            assert (x * 2.0).requires_grad
        with ad.inference_mode(), ad.inference_mode(False):
            assert (x * 2.0).requires_grad

    def test_cannot_be_saved_for_backward(self) -> None:
        """F46: PyTorch's first words."""
        with ad.inference_mode():
            frozen = const([1.0, 2.0])
        with pytest.raises(RuntimeError, match="^Inference tensors cannot be saved for backward"):
            leaf([1.0, 2.0]) * frozen

    @only_ours
    def test_refusal_names_op_and_line(self) -> None:
        with ad.inference_mode():
            frozen = const([1.0, 2.0])
        with pytest.raises(RuntimeError) as caught:
            leaf([1.0, 2.0]) * frozen
        assert "clone" in str(caught.value)
        assert "mul" in str(caught.value).lower()

    def test_allowed_where_nothing_is_saved(self) -> None:
        with ad.inference_mode():
            frozen = const([1.0, 2.0])
        x = leaf([1.0, 2.0])
        (x + frozen).sum().backward()
        exact(x.grad, [1.0, 1.0])

    def test_clone_makes_it_ordinary(self) -> None:
        with ad.inference_mode():
            frozen = const([3.0, 4.0])
        x = leaf([1.0, 2.0])
        (x * frozen.clone()).sum().backward()
        exact(x.grad, [3.0, 4.0])
        assert not frozen.clone().is_inference()

    def test_in_place_outside_refused(self) -> None:
        with ad.inference_mode():
            frozen = const([1.0])
        with pytest.raises(RuntimeError, match="^Inplace update to inference tensor outside"):
            frozen.add_(1.0)

    def test_in_place_inside(self) -> None:
        with ad.inference_mode():
            frozen = const([1.0])
            frozen.add_(1.0)
            frozen[0] = 7.0
        exact(frozen, [7.0])

    def test_requires_grad_refused(self) -> None:
        with ad.inference_mode():
            frozen = const([1.0])
        with pytest.raises(RuntimeError, match="^Setting requires_grad=True on inference tensor"):
            frozen.requires_grad_()

    def test_has_no_version(self) -> None:
        with ad.inference_mode():
            frozen = const([1.0])
        with pytest.raises(RuntimeError, match="^Inference tensors do not track version counter"):
            _ = frozen._version

    def test_views(self) -> None:
        """A view of an inference tensor is one; a view of an ordinary tensor stays ordinary."""
        ordinary = const([1.0, 2.0])
        with ad.inference_mode():
            frozen = const([1.0, 2.0])
            view_of_ordinary = ordinary[:1]
            view_of_frozen = frozen[:1]
        assert view_of_frozen.is_inference()
        assert not view_of_ordinary.is_inference()
        assert frozen[:1].is_inference()

    def test_ordinary_results_outside(self) -> None:
        """Outside the mode, an op on inference tensors alone gives an ordinary tensor."""
        with ad.inference_mode():
            frozen = const([1.0, 2.0])
        assert not (frozen * 2.0).is_inference()

    def test_versions_of_ordinary_tensors_still_count(self) -> None:
        """An in-place update of an ordinary tensor inside the mode is still caught in backward."""
        x = leaf([1.0])
        w = const([2.0])
        y = (x * w).sum()
        with ad.inference_mode():
            w.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()

    def test_backward_on_its_outputs_refused(self) -> None:
        """S3: predictions are outputs, not training intermediates."""
        x = leaf([1.0])
        with ad.inference_mode():
            prediction = (x * 2.0).sum()
        with pytest.raises(RuntimeError):
            prediction.backward()

    def test_same_values_as_no_grad(self) -> None:
        x = leaf(np.linspace(-1, 1, 7))
        with ad.no_grad():
            a = (x.tanh() * 3.0).exp()
        with ad.inference_mode():
            b = (x.tanh() * 3.0).exp()
        exact(b, values(a))


class TestDetach:
    def test_shares_storage_without_graph(self) -> None:
        """F44."""
        x = leaf([1.0, 2.0])
        y = x * 2.0
        d = y.detach()
        assert not d.requires_grad and d.grad_fn is None and d.is_leaf
        assert np.shares_memory(d.numpy(), y.detach().numpy())

    def test_no_gradient_flows(self) -> None:
        """F48: the stop-gradient branch gives zero gradient, the other gives its own."""
        x = leaf([3.0])
        (x * x.detach()).sum().backward()
        exact(x.grad, [3.0])

    def test_in_place_on_the_detached_is_caught(self) -> None:
        """F22, F44: it shares the version counter of its source."""
        x = leaf([1.0])
        y = x.exp()
        y.detach().zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

    def test_detach_in_place(self) -> None:
        x = leaf([1.0])
        y = x * 2.0
        assert y.detach_() is y
        assert not y.requires_grad and y.grad_fn is None

    def test_detach_in_place_of_a_view_refused(self) -> None:
        y = leaf([1.0, 2.0]) * 2.0
        with pytest.raises(RuntimeError, match="detach views in-place"):
            y[:1].detach_()

    def test_teacher_student(self) -> None:
        """F44, F120: fixed = teacher(x).detach(): the teacher gets no gradient."""
        teacher, student, x = leaf([2.0, -1.0]), leaf([0.5, 0.5]), const([1.0, 3.0])
        fixed = (teacher * x).detach()
        ((student * x - fixed) ** 2).mean().backward()
        assert teacher.grad is None
        exact(student.grad, [(0.5 - 2.0), (1.5 + 3.0) * 3.0])


def test_a_decorated_generator_is_closed_without_a_change_around_it() -> None:
    """The collector closes it wherever it runs, also in the middle of another ContextVar.set."""
    program = (
        "import gc\nfrom contextvars import ContextVar\nimport adjoint as ad\n"
        "others = [ContextVar(str(i)) for i in range(100)]\n"
        "for x in others:\n    x.set(0)\n"     # enough that a change makes collected objects
        "@ad.no_grad()\ndef numbers():\n    yield 1\n    yield 2\n"
        "for i in range(3000):\n"
        "    held = [numbers()]\n    next(held[0])\n    held.append(held)\n    del held\n"
        "    gc.set_threshold(1 + i % 7)\n    others[i % 100].set(i)\n    gc.set_threshold(700)\n"
        "print('alive')\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "alive\n", done.stderr[-2000:]


def test_a_decorated_generator_is_closed_in_its_mode() -> None:
    seen = []

    @ad.no_grad()
    def numbers() -> Any:
        try:
            yield 1
        finally:
            seen.append(ad.is_grad_enabled())

    held = numbers()
    next(held)
    held.close()
    assert seen == [False] and ad.is_grad_enabled()


@pytest.mark.parametrize("mode", ["a", 1, None, 0.0])
def test_a_mode_is_a_bool(mode: Any) -> None:
    """A string or a tensor in its place is a mistake, and True for Python."""
    with pytest.raises(TypeError, match="argument 'enabled' .position 1. must be bool, not "):
        ad.set_grad_enabled(mode)
    assert ad.is_grad_enabled()
