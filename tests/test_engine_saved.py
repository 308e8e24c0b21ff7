"""What nodes save and show: saved_tensors, saved_tensors_hooks, anomaly detection."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest
from helpers_engine import (
    const,
    exact,
    leaf,
    line_with,
    only_ours,
    randoms,
    saved_by,
    values,
)

import adjoint as ad

grad = ad.autograd.grad
graph = ad.autograd.graph


@only_ours
class TestSavedTensors:
    """F4: inspection of what each node keeps (PyTorch shows it for custom functions only)."""

    def test_matmul_saves_both(self) -> None:
        x, w = leaf(randoms(2, 3)), leaf(randoms(3, 4))
        kept = (x @ w).grad_fn.saved_tensors
        assert sorted(tuple(k.shape) for k in kept) == [(2, 3), (3, 4)]

    def test_add_saves_nothing(self) -> None:
        assert tuple((leaf([1.0]) + leaf([2.0])).grad_fn.saved_tensors) == ()

    def test_mul_saves_both(self) -> None:
        a, b = leaf([2.0]), leaf([3.0])
        assert sorted(k.item() for k in (a * b).grad_fn.saved_tensors) == [2.0, 3.0]

    def test_relu_saves_one_array(self) -> None:
        """F5, F33: z, or its mask, or its output: one array of the shape of z."""
        kept = leaf([-1.0, 2.0]).relu().grad_fn.saved_tensors
        assert len(kept) == 1 and tuple(kept[0].shape) == (2,)
        np.testing.assert_array_equal(values(kept[0]) > 0, [False, True])

    @pytest.mark.parametrize("name", ["sigmoid", "tanh", "exp"])
    def test_saves_the_output(self, name: str) -> None:
        out = getattr(leaf([0.5]), name)()
        (kept,) = out.grad_fn.saved_tensors
        exact(kept, values(out))

    def test_softmax_saves_the_output(self) -> None:
        out = ad.softmax(leaf(randoms(2, 3)), dim=1)
        (kept,) = out.grad_fn.saved_tensors
        exact(kept, values(out))

    def test_layer_norm_saves_the_input_and_two_statistics_at_most(self) -> None:
        """F4, F39: x (or the normalised x), the mean, the reciprocal deviation, the weight."""
        x, w, b = leaf(randoms(4, 8)), leaf(np.ones(8)), leaf(np.zeros(8))
        out = ad.nn.functional.layer_norm(x, (8,), w, b)
        sizes = sorted(k.numel() for k in out.grad_fn.saved_tensors)
        assert sizes.count(32) == 1
        assert all(s in (4, 8, 32) for s in sizes)
        assert len(sizes) <= 4

    def test_cross_entropy_saves_one_array_of_the_logits_shape(self) -> None:
        """F36: the fused loss keeps the probabilities (or logits) once, not twice."""
        z = leaf(randoms(4, 7))
        _, kept = saved_by(lambda: ad.nn.functional.cross_entropy(z, ad.tensor([0, 3, 6, 2])))
        assert sum(k.size == 28 for k in kept) == 1

    def test_pytorchs_attribute_names(self) -> None:
        """F4: `_saved_self`, `_saved_other`, `_saved_result` as on PyTorch's nodes."""
        a, b = leaf([2.0]), leaf([3.0])
        node = (a * b).grad_fn
        exact(node._saved_self, [2.0])
        exact(node._saved_other, [3.0])
        out = a.exp()
        exact(out.grad_fn._saved_result, values(out))

    def test_unneeded_operand_is_not_there(self) -> None:
        a, b = leaf([2.0]), const([3.0])
        node = (a * b).grad_fn
        assert [k.item() for k in node.saved_tensors] == [3.0]

    def test_freed(self) -> None:
        y = leaf([2.0]).exp()
        node = y.grad_fn
        y.sum().backward()
        with pytest.raises(
            RuntimeError, match="^Trying to backward through the graph a second time"
        ):
            _ = node.saved_tensors

    def test_mutated(self) -> None:
        y = leaf([2.0]).exp()
        y.add_(1.0)
        node = y.grad_fn.next_functions[0][0]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            _ = node.saved_tensors

    def test_bytes_table(self) -> None:
        """F4: op -> bytes kept, for float32 (8, 16) operands."""
        x = ad.ones(8, 16, requires_grad=True)
        w = ad.ones(16, 4, requires_grad=True)
        table: dict[str, tuple[Any, int]] = {
            "matmul": (lambda: x @ w, 4 * (8 * 16 + 16 * 4)),
            "add": (lambda: x + x, 0),
            "mul by another": (lambda: x * ad.ones(8, 16), 4 * 8 * 16),
            "sum": (lambda: x.sum(), 0),
            "sigmoid": (lambda: x.sigmoid(), 4 * 8 * 16),
            "softmax": (lambda: ad.softmax(x, 1), 4 * 8 * 16),
            "transpose": (lambda: x.t(), 0),
            "cat": (lambda: ad.cat([x, x]), 0),
        }
        for name, (program, expected) in table.items():
            _, kept = saved_by(program)
            assert sum(k.nbytes for k in kept) == expected, name


class TestSavedTensorsHooks:
    def test_pack_when_saved_unpack_when_used(self) -> None:
        x = leaf([2.0])
        log = []
        with graph.saved_tensors_hooks(
            lambda t: log.append("pack") or t, lambda t: log.append("unpack") or t
        ):
            y = x.exp().sin()
        assert log and set(log) == {"pack"}
        packs = len(log)
        y.sum().backward()
        assert log[packs:] == ["unpack"] * packs
        exact(x.grad, np.cos(np.exp([2.0])) * np.exp([2.0]))

    def test_only_inside_the_context(self) -> None:
        x = leaf([2.0])
        with graph.saved_tensors_hooks(lambda t: pytest.fail("outside"), lambda t: t):
            pass
        x.exp().sum().backward()

    def test_packed_as_anything(self) -> None:
        """NumPy arrays, bytes, or a file name."""
        x = leaf(randoms(3))
        with graph.saved_tensors_hooks(
            lambda t: pickle.dumps(t.detach().numpy()), lambda b: ad.from_numpy(pickle.loads(b))
        ):
            y = (x * x).sin()
        (got,) = grad(y.sum(), x)
        exact(got, values(grad((x * x).sin().sum(), x)[0]))

    def test_packed_to_disk(self, tmp_path: Any) -> None:
        """F73 in its simplest form: residuals live in files between forward and backward."""

        def pack(t: Any) -> str:
            name = os.path.join(tmp_path, f"{len(os.listdir(tmp_path))}.npy")
            np.save(name, t.detach().numpy())
            return name

        x = leaf(randoms(3))
        with graph.saved_tensors_hooks(pack, lambda name: ad.from_numpy(np.load(name))):
            y = (x * x).sin()
        assert len(os.listdir(tmp_path)) == 3      # x twice, and the product
        (got,) = grad(y.sum(), x)
        exact(got, values(grad((x * x).sin().sum(), x)[0]))

    def test_unpacked_value_is_what_the_rule_sees(self) -> None:
        x = leaf([2.0])
        with graph.saved_tensors_hooks(lambda t: None, lambda _: const([7.0])):
            y = x * const([3.0])
        exact(grad(y.sum(), x)[0], [7.0])

    def test_innermost_pair_wins(self) -> None:
        x = leaf([2.0])
        with graph.saved_tensors_hooks(lambda t: 1, lambda _: const([7.0])):
            with graph.saved_tensors_hooks(lambda t: 2, lambda _: const([9.0])):
                y = x * const([3.0])
            z = x * const([3.0])
        exact(grad(y.sum(), x)[0], [9.0])
        exact(grad(z.sum(), x)[0], [7.0])

    def test_pack_runs_with_gradients_off(self) -> None:
        """F4: so `t.numpy()` may be what is kept, of a leaf too."""
        x = ad.tensor([1.0, 2.0], requires_grad=True)
        modes = []

        def pack(t: ad.Tensor) -> Any:
            modes.append((ad.is_grad_enabled(), t.requires_grad))
            return t.numpy()
        with ad.autograd.graph.saved_tensors_hooks(pack, ad.from_numpy):
            y = (x * x).sum()
        assert modes and set(modes) == {(False, True)} and ad.is_grad_enabled()
        y.backward()
        assert x.grad is not None and x.grad.tolist() == [2.0, 4.0]

    def test_pack_does_not_record_hooks_inside_itself(self) -> None:
        x = leaf([2.0])
        calls = []

        def pack(t: Any) -> Any:
            calls.append(1)
            return t.detach() * 1.0

        with graph.saved_tensors_hooks(pack, lambda t: t):
            y = x.exp()
        assert len(calls) == 1
        y.sum().backward()

    def test_unpack_of_the_wrong_kind_refused(self) -> None:
        with graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
            y = leaf([2.0]).exp()
        with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
            y.sum().backward()

    def test_pack_that_mutates_refused(self) -> None:
        def pack(t: Any) -> Any:
            with ad.no_grad():
                t.add_(1.0)
            return t

        with (
            pytest.raises(RuntimeError, match="modifying its input in place"),
            graph.saved_tensors_hooks(pack, lambda t: t),
        ):
            leaf([2.0]) * const([3.0])

    def test_exceptions_pass_through(self) -> None:
        def broken(t: Any) -> Any:
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"), graph.saved_tensors_hooks(broken, broken):
            leaf([2.0]).exp()
        with graph.saved_tensors_hooks(lambda t: t, broken):
            y = leaf([2.0]).exp()
        with pytest.raises(KeyError, match="mine"):
            y.sum().backward()

    def test_disable(self) -> None:
        with (
            graph.disable_saved_tensors_hooks("not here"),
            pytest.raises(RuntimeError, match="not here"),
            graph.saved_tensors_hooks(lambda t: t, lambda t: t),
        ):
            leaf([2.0]).exp()

    def test_save_on_cpu(self) -> None:
        """F73: the ready-made pair."""
        x = leaf([2.0])
        with graph.save_on_cpu():
            y = x * x
        exact(grad(y.sum(), x)[0], [4.0])

    def test_double_backward_through_unpacked_values(self) -> None:
        x = leaf([2.0])
        with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = x**3
            (g,) = grad(y.sum(), x, create_graph=True)
        exact(grad(g.sum(), x)[0], [12.0])


class TestWritesAllowed:
    """F22: `allow_mutation_on_saved_tensors` keeps what the graph needs of a tensor written to."""

    @pytest.mark.parametrize("write", [
        lambda b: b.sin_(), lambda b: b[0].mul_(3.0), lambda b: b.detach().zero_(),
        lambda b: b.normal_(), lambda b: b.__setitem__(1, 5.0), lambda b: b.view(6).fill_(2.0)])
    def test_the_old_content_is_read(self, write: Any) -> None:
        a = leaf(randoms(2, 3))
        with graph.allow_mutation_on_saved_tensors():
            b = a.clone()
            out = (b**2).sum() + (b[1] * b[0]).sum()
            write(b)
            (got,) = grad(out, a)
        want = 2 * values(a) + values(a)[::-1]
        np.testing.assert_allclose(values(got), want, rtol=1e-6)

    def test_out_and_optimizers_write_too(self) -> None:
        w, x = leaf(randoms(3)), leaf(randoms(3))
        held = const(randoms(3))
        before = values(held).copy(), values(w).copy()
        sgd = ad.optim.SGD([w], lr=1.0)
        with graph.allow_mutation_on_saved_tensors():
            y = (x * held).sum() + (x * w).sum()
            ad.add(const(randoms(3)), 1.0, out=held)
            w.grad = const(randoms(3))
            sgd.step()
            (got,) = grad(y, x)
        np.testing.assert_allclose(values(got), before[0] + before[1], rtol=1e-6)

    def test_one_copy_and_only_at_a_write(self) -> None:
        a = leaf(randoms(2, 3))
        with graph.allow_mutation_on_saved_tensors() as kept:
            b, c = a.clone(), a.clone()
            out = (b**2).sum() + (c**2).sum()
            assert (len(kept.original), len(kept.cloned)) == (2, 0)
            b.sin_()
            assert len(kept.cloned) == 1
            b.cos_()
            out.backward()
        assert (len(kept.original), len(kept.cloned)) == (0, 0)

    def test_second_order(self) -> None:
        a = leaf(randoms(3))
        with graph.allow_mutation_on_saved_tensors():
            b = a.clone()
            out = (b**3).sum()
            b.zero_()
            (g,) = grad(out, a, create_graph=True)
            (gg,) = grad(g.sum(), a)
        np.testing.assert_allclose(values(gg), 6 * values(a), rtol=1e-6)

    def test_what_is_refused(self) -> None:
        a = leaf(randoms(2))
        with graph.allow_mutation_on_saved_tensors():
            out = (a.clone() ** 2).sum()
            with pytest.raises(RuntimeError, match="^allow_mutation_on_saved_tensors contexts can"):
                graph.allow_mutation_on_saved_tensors().__enter__()
        with pytest.raises(AssertionError, match="^Trying to backward outside of the"):
            out.backward()
        b = a.clone()
        out = (b**2).sum()
        with graph.allow_mutation_on_saved_tensors():
            b.sin_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward()

    @only_ours
    def test_a_write_that_nothing_tells_of_is_refused(self) -> None:
        b = leaf(randoms(2)).clone()
        with graph.allow_mutation_on_saved_tensors():
            out = (b**2).sum()
            graph.increment_version(b)
            with pytest.raises(RuntimeError, match="does not see"):
                out.backward()


def test_callbacks_at_the_end_of_a_backward() -> None:
    """`Variable._execution_engine.queue_callback`, from a hook."""
    engine, log = ad.autograd.Variable._execution_engine, []
    a = leaf(randoms(3))
    b = a * 2
    b.register_hook(lambda g: engine.queue_callback(lambda: log.append(a.grad is not None)))
    b.sum().backward()
    assert log == [True]
    with pytest.raises(RuntimeError, match="^Final callbacks can only be installed during"):
        engine.queue_callback(lambda: None)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled", "ignore:Error detected in")
class TestAnomaly:
    """F85."""

    def test_off_by_default(self) -> None:
        assert not ad.is_anomaly_enabled()
        x = leaf([0.0])
        (x.sqrt() * 0.0).sum().backward()
        assert np.isnan(x.grad.item())

    @pytest.mark.filterwarnings("ignore")
    def test_nan_is_named(self) -> None:
        with (
            pytest.raises(
                RuntimeError, match="^Function 'SqrtBackward0' returned nan values in its 0th"
            ),
            ad.autograd.detect_anomaly(),
        ):
            (leaf([0.0]).sqrt() * 0.0).sum().backward()
        assert not ad.is_anomaly_enabled()

    @only_ours
    def test_forward_line_is_in_the_message(self) -> None:
        with ad.autograd.detect_anomaly():
            y = leaf([0.0]).sqrt()  # the culprit
            with pytest.raises(RuntimeError) as caught:
                (y * 0.0).sum().backward()
        assert line_with("# the culprit") in str(caught.value)

    @only_ours
    def test_switched_on_after_the_forward(self) -> None:
        """Provenance is always on: the line is known though the forward ran without the switch."""
        y = (leaf([0.0]).sqrt() * 0.0).sum()  # the culprit
        with pytest.raises(RuntimeError) as caught, ad.autograd.detect_anomaly():
            y.backward()
        assert line_with("# the culprit") in str(caught.value)

    @pytest.mark.filterwarnings("ignore")
    def test_check_nan_off(self) -> None:
        x = leaf([0.0])
        with ad.autograd.detect_anomaly(check_nan=False):
            (x.sqrt() * 0.0).sum().backward()
        assert np.isnan(x.grad.item())

    @pytest.mark.filterwarnings("ignore")
    def test_set_detect_anomaly(self) -> None:
        with ad.autograd.set_detect_anomaly(True):
            assert ad.is_anomaly_enabled()
            with pytest.raises(RuntimeError, match="nan values"):
                (leaf([0.0]).sqrt() * 0.0).sum().backward()
        assert not ad.is_anomaly_enabled()
        ad.autograd.set_detect_anomaly(True)
        assert ad.is_anomaly_enabled()
        ad.autograd.set_detect_anomaly(False)
        assert not ad.is_anomaly_enabled()

    @pytest.mark.filterwarnings("ignore")
    def test_clean_backward_is_unchanged(self) -> None:
        x = leaf(randoms(3))
        with ad.autograd.detect_anomaly():
            (got,) = grad((x.sin() * x).sum(), x)
        exact(got, values(grad((x.sin() * x).sum(), x)[0]))

    @pytest.mark.filterwarnings("ignore")
    def test_custom_function_is_named(self) -> None:
        class Bad(ad.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 1.0

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * float("nan")

        with (
            pytest.raises(RuntimeError, match="'BadBackward' returned nan values"),
            ad.autograd.detect_anomaly(),
        ):
            Bad.apply(leaf([1.0])).sum().backward()
