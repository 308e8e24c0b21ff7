"""Leaf rules: requires_grad, in-place writes, .grad and .data assignment, .numpy()."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers_engine import const, exact, leaf, line_with, only_ours, values

import adjoint as ad


class TestRequiresGrad:
    def test_defaults(self) -> None:
        """F43: False for created tensors, True for Parameter."""
        assert not ad.zeros(3).requires_grad
        assert not ad.tensor([1.0]).requires_grad
        assert ad.nn.Parameter(ad.ones(2)).requires_grad

    def test_no_node_without_requires_grad(self) -> None:
        """F43: no node is made when no input requires grad."""
        y = (ad.ones(3) * 2.0).exp().sum()
        assert y.grad_fn is None and y.is_leaf and not y.requires_grad

    def test_one_operand_is_enough(self) -> None:
        assert (ad.ones(3) * ad.ones(3, requires_grad=True)).requires_grad

    def test_flag_is_settable_on_leaves(self) -> None:
        x = ad.ones(3)
        x.requires_grad = True
        assert x.requires_grad
        assert x.requires_grad_(False) is x
        assert not x.requires_grad

    def test_not_on_computed_tensors(self) -> None:
        y = leaf([1.0]) * 2.0
        with pytest.raises(RuntimeError, match="^you can only change requires_grad flags of leaf"):
            y.requires_grad_(False)
        with pytest.raises(RuntimeError, match="^you can only change requires_grad flags of leaf"):
            y.requires_grad = False

    @pytest.mark.parametrize("mode", [ad.no_grad, ad.inference_mode])
    @pytest.mark.parametrize("made", [
        lambda x: x[:2], lambda x: x.view(2, 2).T, lambda x: x.unbind()[0], lambda x: x.reshape(4),
        lambda x: x.expand(2, 4), lambda x: x.view(4, 1)[1:]],
        ids=["slice", "transpose", "unbind", "reshape", "expand", "view"])
    def test_a_view_made_unrecorded_asks_its_base(self, made: Any, mode: Any) -> None:
        for x in (leaf([1.0, 2.0, 3.0, 4.0]), leaf([1.0, 2.0, 3.0, 4.0]) * 1, const([1.0] * 4)):
            with mode():
                view = made(x)
            assert view.requires_grad is x.requires_grad
            assert view.is_leaf and view.grad_fn is None and not view.is_inference()
            further = view[...] * 2
            assert further.requires_grad is x.requires_grad
            assert (further.grad_fn is not None) is x.requires_grad

    def test_a_detached_or_integer_view_asks_for_nothing(self) -> None:
        x = leaf([1.0, 2.0])
        with ad.no_grad():
            made = [x.detach(), x[:1].detach(), x.detach()[:1], x.view(ad.int32), x * 2]
        assert not any(t.requires_grad for t in made)

    def test_views_follow_the_flag_of_their_base(self) -> None:
        x = const([1.0, 2.0, 3.0, 4.0])
        views = [x[:2], x.view(2, 2)[0], x.chunk(2)[1]]
        others = [x.detach(), x.view(ad.int32)]
        x.requires_grad_()
        assert all(v.requires_grad and v.is_leaf for v in views)
        assert not any(t.requires_grad for t in others)
        with pytest.raises(RuntimeError, match="^a view of a leaf Variable that requires grad"):
            views[0].mul_(2)
        x.requires_grad = False
        assert not any(v.requires_grad for v in views)
        views[0].mul_(2)
        assert x.tolist() == [2.0, 4.0, 3.0, 4.0]

    @pytest.mark.parametrize("dtype", ["int64", "bool", "uint8"])
    def test_not_for_integers(self, dtype: str) -> None:
        with pytest.raises(RuntimeError, match="(?i)only tensors of floating point"):
            ad.tensor([1, 0], dtype=getattr(ad, dtype), requires_grad=True)
        with pytest.raises(RuntimeError, match="(?i)only tensors of floating point"):
            ad.tensor([1, 0], dtype=getattr(ad, dtype)).requires_grad_()

    def test_complex_may(self) -> None:
        assert ad.tensor([1j], requires_grad=True).requires_grad

    def test_freezing_after_use_stops_accumulation_in_new_graphs_only(self) -> None:
        x = leaf([1.0])
        w = leaf([2.0])
        w.requires_grad_(False)
        (x * w).sum().backward()
        assert w.grad is None
        exact(x.grad, [2.0])

    def test_is_leaf(self) -> None:
        """F1."""
        x = ad.ones(2, 2, requires_grad=True)
        assert x.is_leaf and x.grad_fn is None and x.grad is None
        y = x + 2
        assert not y.is_leaf and y.grad_fn is not None
        assert y.detach().is_leaf

    def test_conversion_makes_a_non_leaf(self) -> None:
        x = ad.ones(2, requires_grad=True)
        assert not x.to(ad.float64).is_leaf
        assert x.to(ad.float32) is x


class TestInPlaceOnLeaf:
    """F24."""

    @pytest.mark.parametrize("name", ["add_", "mul_", "zero_", "exp_", "fill_", "copy_", "clamp_"])
    def test_refused(self, name: str) -> None:
        x = leaf([1.0, 2.0])
        arguments = {"add_": (1.0,), "mul_": (2.0,), "fill_": (3.0,), "copy_": (const([0.0, 0.0]),)}
        arguments["clamp_"] = (0.0, 1.0)
        with pytest.raises(
            RuntimeError, match="^a leaf Variable that requires grad is being used in an in-place"
        ):
            getattr(x, name)(*arguments.get(name, ()))
        exact(x, [1.0, 2.0])
        assert x.is_leaf

    def test_operators_refused(self) -> None:
        x = leaf([1.0])
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            x += 1.0
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            x *= 2.0

    def test_assignment_and_views_refused(self) -> None:
        x = leaf([1.0, 2.0])
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            x[0] = 5.0
        with pytest.raises(
            RuntimeError, match="^a view of a leaf Variable that requires grad is being used"
        ):
            x[:1].add_(1.0)
        with pytest.raises(RuntimeError, match="view of a leaf Variable that requires grad"):
            x.view(2, 1).zero_()
        exact(x, [1.0, 2.0])

    @only_ours
    def test_refusal_gives_the_fix(self) -> None:
        x = leaf([1.0])
        with pytest.raises(RuntimeError) as caught:
            x.add_(1.0)
        assert "no_grad" in str(caught.value)

    def test_allowed_under_no_grad(self) -> None:
        x = leaf([1.0, 2.0])
        with ad.no_grad():
            x.add_(1.0)
            x[0] = 9.0
        exact(x, [9.0, 3.0])
        assert x.is_leaf and x.requires_grad

    def test_no_grad_update_of_a_saved_leaf_is_caught(self) -> None:
        """F22: an optimizer step between forward and backward."""
        w = leaf([2.0])
        y = (w * w).sum()
        with ad.no_grad():
            w.sub_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()

    def test_view_made_in_no_grad_then_mutated_outside_refused(self) -> None:
        x = leaf([1.0, 2.0])
        with ad.no_grad():
            view = x[:1]
        with pytest.raises(RuntimeError, match="^A view was created in no_grad mode"):
            view.add_(1.0)

    def test_untracked_leaf_becomes_a_node(self) -> None:
        """An in-place write of a tracked value turns an ordinary tensor into part of the graph."""
        x = leaf([1.0, 2.0])
        buffer = ad.zeros(2, dtype=ad.float64)
        buffer.add_(x)
        assert buffer.requires_grad and not buffer.is_leaf
        (buffer * buffer).sum().backward()
        exact(x.grad, [2.0, 4.0])

    def test_parameter_rules_are_the_same(self) -> None:
        p = ad.nn.Parameter(ad.ones(2))
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            p.add_(1.0)


class TestGradAttribute:
    def test_assign_and_clear(self) -> None:
        x = leaf([1.0, 2.0])
        x.grad = const([5.0, 6.0])
        (x * 1.0).sum().backward()
        exact(x.grad, [6.0, 7.0])
        x.grad = None
        assert x.grad is None

    def test_delete(self) -> None:
        x = leaf([1.0])
        x.sum().backward()
        del x.grad
        assert x.grad is None

    def test_wrong_shape_refused(self) -> None:
        with pytest.raises(RuntimeError, match="assign a gradient of size"):
            leaf([1.0, 2.0]).grad = const([1.0])

    def test_wrong_dtype_refused(self) -> None:
        with pytest.raises(RuntimeError, match="assign a gradient with dtype"):
            leaf([1.0, 2.0]).grad = ad.ones(2, dtype=ad.float32)

    def test_not_a_tensor_refused(self) -> None:
        with pytest.raises(TypeError):
            leaf([1.0]).grad = 3.0

    def test_itself_refused(self) -> None:
        x = leaf([1.0])
        with pytest.raises(RuntimeError, match="as its own grad"):
            x.grad = x

    def test_zeroing_in_place_and_accumulating_again(self) -> None:
        x = leaf([1.0])
        x.sum().backward()
        x.grad.zero_()
        (x * 3.0).sum().backward()
        exact(x.grad, [3.0])

    def test_halving_in_place(self) -> None:
        """S1 3.10: p.grad /= scale."""
        x = leaf([1.0])
        (x * 65536.0).sum().backward()
        x.grad /= 65536.0
        exact(x.grad, [1.0])


class TestNumpyAndItem:
    def test_numpy_of_a_tracked_tensor_refused(self) -> None:
        """F25, table 1i: it raises; it does not detach silently."""
        x = leaf([1.0])
        for tracked in (x, x * 2.0):
            with pytest.raises(
                RuntimeError, match="^Can't call numpy\\(\\) on Tensor that requires"
            ):
                tracked.numpy()
            with pytest.raises(RuntimeError, match="Can't call numpy"):
                np.asarray(tracked)

    def test_hint(self) -> None:
        with pytest.raises(RuntimeError, match="detach\\(\\)\\.numpy\\(\\)"):
            leaf([1.0]).numpy()

    def test_detached_shares_memory(self) -> None:
        """F25."""
        x = leaf([1.0, 2.0])
        alias = x.detach().numpy()
        alias[0] = 7.0
        exact(x, [7.0, 2.0])

    def test_force(self) -> None:
        exact(const(leaf([1.0, 2.0]).numpy(force=True)), [1.0, 2.0])

    def test_item_is_a_python_number(self) -> None:
        """F47."""
        assert type(leaf(1.5).item()) is float
        assert type(ad.tensor(3).item()) is int
        assert type(ad.tensor(True).item()) is bool
        assert type(ad.tensor(1j).item()) is complex
        assert type(leaf([[2.0]]).item()) is float

    def test_item_of_many_refused(self) -> None:
        with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
            leaf([1.0, 2.0]).item()

    def test_tolist_float_int_index(self) -> None:
        assert ad.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
        assert float(const(2.5)) == 2.5
        assert int(ad.tensor(3)) == 3
        assert [10, 20, 30][ad.tensor(1)] == 20

    def test_truth_value(self) -> None:
        assert bool(ad.tensor([1.0]))
        with pytest.raises(RuntimeError, match="ambiguous"):
            bool(ad.ones(2))


class TestData:
    def test_data_is_detached_and_shares(self) -> None:
        """F1."""
        x = leaf([1.0, 2.0])
        assert not x.data.requires_grad
        with_alias = x.data
        with_alias[0] = 5.0
        exact(x, [5.0, 2.0])

    def test_data_assignment_swaps_the_storage(self) -> None:
        x = leaf([0.0, 0.0])
        x.data = const([4.0, 5.0])
        exact(x, [4.0, 5.0])
        assert x.is_leaf and x.requires_grad and x.grad_fn is None
        (x * x).sum().backward()
        exact(x.grad, [8.0, 10.0])

    def test_old_style_optimizer_step(self) -> None:
        w = leaf([1.0, 2.0])
        for _ in range(2):
            w.grad = None
            (w * w).sum().backward()
            w.data -= 0.25 * w.grad
        exact(w, [0.25, 0.5])


class TestSilentCorruption:
    """F23: writes that pass by the version counter must not change a gradient silently."""

    @only_ours
    def test_data_write_is_detected(self) -> None:
        x = leaf([1.0])
        y = x.exp()
        y.data += 1.0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

    @only_ours
    def test_data_fill_of_an_operand_is_detected(self) -> None:
        x, w = leaf([1.0, 2.0]), const([3.0, 4.0])
        y = (x * w).sum()
        w.data.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()

    @only_ours
    def test_write_through_from_numpy_is_refused_or_detected(self) -> None:
        x = leaf([1.0, 1.0])
        array = np.array([2.0, 3.0])
        y = (x * ad.from_numpy(array)).sum()
        with pytest.raises((RuntimeError, ValueError)):
            array[:] = 0.0  # ValueError where the array is locked while it is needed
            y.backward()  # RuntimeError where the change is found

    @only_ours
    def test_write_through_numpy_is_refused_or_detected(self) -> None:
        x, w = leaf([1.0, 1.0]), const([2.0, 3.0])
        alias = w.numpy()
        y = (x * w).sum()
        with pytest.raises((RuntimeError, ValueError)):
            alias[:] = 0.0
            y.backward()

    @only_ours
    def test_write_through_an_alias_taken_after_saving(self) -> None:
        x, w = leaf([1.0, 1.0]), const([2.0, 3.0])
        y = (x * w).sum()
        alias = w.numpy()
        with pytest.raises((RuntimeError, ValueError)):
            alias[:] = 0.0
            y.backward()

    @only_ours
    def test_write_through_a_slice_of_an_alias(self) -> None:
        x, w = leaf([1.0, 1.0]), const([2.0, 3.0])
        part = w.numpy()[1:]
        y = (x * w).sum()
        with pytest.raises((RuntimeError, ValueError)):
            part[0] = 0.0
            y.backward()

    def test_alias_is_writable_when_nothing_needs_it(self) -> None:
        """The protection ends with the graph."""
        x = leaf([1.0, 1.0])
        array = np.array([2.0, 3.0])
        y = (x * ad.from_numpy(array)).sum()
        y.backward()
        array[:] = 9.0
        exact(x.grad, [2.0, 3.0])
        exact(ad.from_numpy(array), [9.0, 9.0])

    def test_alias_is_writable_when_the_graph_is_dropped(self) -> None:
        array = np.array([2.0, 3.0])
        y = leaf([1.0, 1.0]) * ad.from_numpy(array)
        del y
        array[:] = 9.0
        assert array.tolist() == [9.0, 9.0]

    def test_alias_is_writable_when_it_was_not_saved(self) -> None:
        array = np.array([2.0, 3.0])
        x = leaf([1.0, 1.0])
        y = (x + ad.from_numpy(array)).sum()
        array[:] = 9.0
        y.backward()
        exact(x.grad, [1.0, 1.0])


class TestVersionErrorText:
    """F22."""

    def test_pytorchs_words(self) -> None:
        y = leaf([1.0, 2.0, 3.0]).exp()
        y.add_(1.0)
        with pytest.raises(RuntimeError) as caught:
            y.sum().backward()
        text = str(caught.value)
        assert text.startswith(
            "one of the variables needed for gradient computation has been modified by an inplace"
            " operation"
        )
        assert "[3]" in text
        assert "version 1; expected version 0" in text

    @only_ours
    def test_names_the_op_that_saved_and_the_line_that_mutated(self) -> None:
        y = leaf([1.0, 2.0, 3.0]).exp()  # saved here
        y.add_(1.0)  # mutated here
        with pytest.raises(RuntimeError) as caught:
            y.sum().backward()
        text = str(caught.value)
        assert "ExpBackward0" in text
        assert line_with("# saved here") in text
        assert line_with("# mutated here") in text
        assert "clone" in text or "out-of-place" in text

    @only_ours
    def test_mutation_by_assignment_is_located(self) -> None:
        w = const([1.0, 2.0])
        y = leaf([1.0, 2.0]) * w  # saved here
        w[0] = 5.0  # mutated here
        with pytest.raises(RuntimeError) as caught:
            y.sum().backward()
        assert line_with("# saved here") in str(caught.value)
        assert line_with("# mutated here") in str(caught.value)

    def test_version_counts(self) -> None:
        x = const([1.0, 2.0])
        assert x._version == 0
        x.add_(1.0)
        x[0] = 3.0
        assert x._version == 2
        assert x[:1]._version == 2 and x.detach()._version == 2
        assert x.clone()._version == 0

    def test_failed_backward_leaves_grad_untouched(self) -> None:
        """Nothing is lost: the leaf above the damaged node keeps its .grad."""
        x = leaf([1.0, 2.0])
        x.grad = const([10.0, 20.0])
        y = x.exp()
        y.mul_(2.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        np.testing.assert_array_equal(values(x.grad), [10.0, 20.0])


def test_a_view_that_was_made_a_leaf_is_not_written_to() -> None:
    base = ad.ones(3)
    view = base[:2]
    view.requires_grad_()
    assert view.is_leaf and not base.requires_grad
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being"):
        view.mul_(2)
    (view * 2).sum().backward()
    assert view.grad.tolist() == [2.0, 2.0] and base.tolist() == [1.0, 1.0, 1.0]
    other = ad.ones(3)[:2]
    other.mul_(ad.ones(2, requires_grad=True))
    assert other.requires_grad and not other.is_leaf


def test_pieces_that_may_be_written_to() -> None:
    x = ad.arange(4.0, requires_grad=True)
    for name, size in (("unsafe_split", 2), ("unsafe_chunk", 2),
                       ("unsafe_split_with_sizes", [2, 2])):
        a, b = getattr(ad, name)(x * 1, size)
        assert a.grad_fn.name() == "UnsafeSplitBackward0" and not a._is_view() and b.output_nr == 1
        (g,) = ad.autograd.grad((a.mul_(3) * b).sum(), x)
        assert g.tolist() == [6.0, 9.0, 0.0, 3.0]
    parts = (x * 1).split([1, 3])
    assert parts[0].grad_fn.name() == "SplitWithSizesBackward0" and parts[0]._is_view()
    with pytest.raises(RuntimeError, match="Output 0 of SplitWithSizes is a view and is being"):
        parts[0].mul_(2)


def test_views_of_a_view_that_was_made_a_leaf() -> None:
    base = ad.ones(4)
    x = base[:3].requires_grad_()
    with pytest.raises(RuntimeError, match="^a view of a leaf Variable that requires grad is"):
        x.view(3).mul_(2)
    assert base.tolist() == [1, 1, 1, 1]
    other = ad.ones(4)
    part = other[:3]
    part.mul_(ad.ones(3, requires_grad=True))
    part.add_(1)
    assert other.tolist() == [2, 2, 2, 1]
