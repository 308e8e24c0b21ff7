"""In-place writes and the history of bases and views; indexing assignment."""

from __future__ import annotations

import numpy as np
import pytest
from helpers_engine import const, exact, leaf, near, node_name, randoms, values

import adjoint as ad

grad = ad.autograd.grad


class TestOnNonLeaf:
    def test_rewrites_the_history(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 2.0
        same = y
        y += 1.0
        y *= 3.0
        assert y is same
        assert node_name(y) == "MulBackward0"
        exact(grad(y.sum(), x)[0], [6.0, 6.0])

    def test_value_used_before_and_after(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 1.0
        before = y + y
        y.add_(1.0)
        exact(grad((before + y).sum(), x)[0], [3.0, 3.0])

    @pytest.mark.parametrize(
        "name", ["relu_", "sigmoid_", "tanh_", "exp_", "sin_", "neg_", "abs_", "sqrt_", "square_"]
    )
    def test_equals_out_of_place(self, name: str) -> None:
        data = np.abs(randoms(4)) + 0.1
        x = leaf(data)
        y = getattr(x * 1.5, name)()
        z = getattr(x * 1.5, name[:-1])()
        exact(y, values(z))
        exact(grad(y.sum(), x)[0], values(grad(z.sum(), x)[0]))

    @pytest.mark.parametrize(
        ("name", "other"),
        [("add_", 0.5), ("sub_", 0.5), ("mul_", 0.5), ("div_", 0.5), ("pow_", 2.0), ("pow_", 3.0)],
    )
    def test_binary_with_scalar(self, name: str, other: float) -> None:
        x = leaf(np.abs(randoms(4)) + 0.1)
        y = getattr(x * 1.5, name)(other)
        z = getattr(x * 1.5, name[:-1])(other)
        exact(grad(y.sum(), x)[0], values(grad(z.sum(), x)[0]))

    @pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
    def test_binary_with_tracked_tensor(self, name: str) -> None:
        x, w = leaf(randoms(2, 3)), leaf(np.abs(randoms(3, seed=1)) + 0.5)
        got = grad(getattr(x * 1.5, name)(w).sum(), [x, w])
        want = grad(getattr(x * 1.5, name[:-1])(w).sum(), [x, w])
        exact(got[0], values(want[0]))
        exact(got[1], values(want[1]))

    def test_chained_functions_that_need_their_output(self) -> None:
        """exp_ saves its output; overwriting it afterwards is refused in backward."""
        y = leaf([1.0]).clone()
        y.sigmoid_()
        y.exp_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

    def test_mul_by_itself(self) -> None:
        x = leaf([2.0, 3.0])
        y = x * 1.0
        z = y * y
        exact(grad(z.sum(), x)[0], [4.0, 6.0])

    def test_saved_operand_mutated(self) -> None:
        y = leaf([2.0]) * 1.0
        z = y * y
        y.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()

    def test_unsaved_operand_mutated_is_fine(self) -> None:
        x = leaf([2.0])
        y = x * 1.0
        z = y + 1.0
        y.zero_()
        exact(grad(z.sum(), x)[0], [1.0])

    def test_zero_cuts_the_gradient(self) -> None:
        x = leaf([2.0])
        y = x * 3.0
        y.zero_()
        exact(grad(y.sum(), x)[0], [0.0])

    def test_copy_moves_the_gradient(self) -> None:
        x, w = leaf([1.0, 2.0]), leaf([5.0])
        y = x * 3.0
        y.copy_(w)
        gx, gw = grad((y * const([1.0, 10.0])).sum(), [x, w])
        exact(gx, [0.0, 0.0])
        exact(gw, [11.0])

    def test_under_no_grad_history_is_kept(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 2.0
        with ad.no_grad():
            y.mul_(10.0)
        exact(y, [20.0, 40.0])
        exact(grad(y.sum(), x)[0], [2.0, 2.0])


class TestRefusals:
    def test_broadcast_output(self) -> None:
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            ad.ones(3).mul_(ad.ones(2, 3))

    def test_result_type(self) -> None:
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
            ad.ones(3, dtype=ad.int64).add_(1.5)

    def test_expanded_tensor(self) -> None:
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            ad.ones(1).expand(3).add_(1.0)

    @pytest.mark.parametrize("function", ["unbind", "split", "chunk"])
    def test_one_of_several_views(self, function: str) -> None:
        y = leaf([1.0, 2.0]) * 2.0
        arguments = {"unbind": (), "split": (1,), "chunk": (2,)}[function]
        views = getattr(y, function)(*arguments)
        with pytest.raises(RuntimeError, match="^Output 0 of .* is a view and is being modified"):
            views[0].mul_(2.0)

    def test_view_made_in_no_grad(self) -> None:
        y = leaf([1.0, 2.0]) * 2.0
        with ad.no_grad():
            view = y[:1]
        with pytest.raises(RuntimeError, match="^A view was created in no_grad mode"):
            view.mul_(2.0)

    def test_view_made_and_mutated_in_no_grad(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 2.0
        with ad.no_grad():
            y[:1].mul_(5.0)
        exact(y, [10.0, 4.0])
        exact(grad(y.sum(), x)[0], [2.0, 2.0])


class TestViews:
    def test_write_through_a_view_reaches_the_base(self) -> None:
        x = leaf([1.0, 1.0, 1.0])
        base = x * 2.0
        base[:2].mul_(3.0)
        exact(base, [6.0, 6.0, 2.0])
        exact(grad(base.sum(), x)[0], [6.0, 6.0, 2.0])

    def test_write_to_the_base_reaches_the_view(self) -> None:
        x = leaf([1.0, 1.0, 1.0])
        base = x * 2.0
        view = base.view(3)
        base.mul_(5.0)
        exact(view, [10.0] * 3)
        exact(grad((view * const([1.0, 2.0, 3.0])).sum(), x)[0], [10.0, 20.0, 30.0])

    def test_view_and_base_after_the_write(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        base = x * 2.0
        view = base[1:]
        view.pow_(2.0)
        (g_base,) = grad((base * const([1.0, 1.0, 1.0])).sum(), x, retain_graph=True)
        (g_view,) = grad((view * const([1.0, 1.0])).sum(), x)
        exact(g_base, [2.0, 16.0, 24.0])
        exact(g_view, [0.0, 16.0, 24.0])

    def test_sibling_view_sees_the_write(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        base = x * 1.0
        left, right = base[:2], base[1:]
        left.mul_(10.0)
        exact(right, [20.0, 3.0])
        exact(grad((right * const([1.0, 5.0])).sum(), x)[0], [0.0, 10.0, 5.0])

    def test_untracked_base_becomes_tracked(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        base = ad.zeros(3, dtype=ad.float64)
        view = base[:2]
        view.copy_(x[:2])
        assert base.requires_grad and not base.is_leaf and view.requires_grad
        exact(grad((base * base).sum(), x)[0], [2.0, 4.0, 0.0])

    def test_multi_level(self) -> None:
        x = leaf([1.0, 1.0, 1.0])
        base = ad.zeros(2, 3, dtype=ad.float64)
        row = base[0]
        tail = row[1:]
        tail.add_(x[1:])
        exact(grad((row * const([1.0, 2.0, 3.0])).sum(), x, retain_graph=True)[0], [0.0, 2.0, 3.0])
        exact(grad((base.t() * 2.0).sum(), x, retain_graph=True)[0], [0.0, 2.0, 2.0])
        exact(grad((tail * 5.0).sum(), x)[0], [0.0, 5.0, 5.0])

    def test_transposed_and_strided_views(self) -> None:
        x = leaf(randoms(3, 4))
        base = x * 1.0
        base.t()[1::2].mul_(10.0)
        scale = np.ones((3, 4))
        scale[:, 1::2] = 10.0
        near(base, values(x) * scale)
        exact(grad(base.sum(), x)[0], scale)

    def test_reshape_permute_unsqueeze_chain(self) -> None:
        x = leaf(randoms(2, 3))
        base = x * 1.0
        base.view(3, 2).permute(1, 0).unsqueeze(0)[0, 1].zero_()
        mask = np.ones((3, 2))
        mask[:, 1] = 0.0
        exact(grad(base.sum(), x)[0], mask.reshape(2, 3))

    def test_two_writes_through_two_views(self) -> None:
        x = leaf([1.0, 2.0, 3.0, 4.0])
        base = x * 1.0
        a, b = base[:3], base[1:]
        a.mul_(2.0)
        b.add_(a[0])
        exact(base, [2.0, 6.0, 8.0, 6.0])
        exact(grad(base.sum(), x)[0], [8.0, 2.0, 2.0, 1.0])

    def test_view_outlives_the_base(self) -> None:
        x = leaf([1.0, 2.0])
        base = x * 3.0
        view = base[:1]
        del base
        view.mul_(2.0)
        exact(grad(view.sum(), x)[0], [6.0, 0.0])

    def test_base_of_a_view(self) -> None:
        y = leaf([1.0, 2.0]) * 2.0
        view = y[:1]
        assert view._base is y and view[:1]._base is y and y._base is None

    def test_saved_view_and_mutated_base(self) -> None:
        y = leaf([1.0, 2.0]) * 1.0
        view = y[:1]
        z = view * view
        y.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()

    def test_saved_base_and_mutated_view(self) -> None:
        y = leaf([1.0, 2.0]) * 1.0
        view = y[:1]
        z = y * y
        view.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()

    def test_second_order_through_a_view_write(self) -> None:
        x = leaf([2.0, 3.0])
        y = x * x
        y[:1].mul_(x[:1])
        (g,) = grad(y.sum(), x, create_graph=True)
        exact(g, [12.0, 6.0])
        exact(grad(g.sum(), x)[0], [12.0, 2.0])


class TestAliasing:
    """Every view shares memory with its base, zero-dimensional ones too, and writes go through."""

    @pytest.mark.parametrize(
        "view",
        [
            "x[0]",
            "x[-1]",
            "x[1, 2]",
            "x[0][1]",
            "x[..., 0]",
            "x[0, ...]",
            "x[:, 1]",
            "x[1:]",
            "x[::2]",
            "x[None]",
            "x[..., None]",
            "x[...]",
            "x.select(1, 2)",
            "x.select(0, 0).select(0, 1)",
            "x.narrow(1, 1, 2)",
            "x.t()",
            "x.T",
            "x.mT",
            "x.transpose(0, 1)",
            "x.permute(1, 0)",
            "x.movedim(0, 1)",
            "x.swapaxes(0, 1)",
            "x.view(6)",
            "x.view(3, 2)",
            "x.view(-1)[4]",
            "x.reshape(6)",
            "x.reshape(-1)[0]",
            "x.flatten()",
            "x.ravel()",
            "x.unsqueeze(1)",
            "x.unsqueeze(0).squeeze(0)",
            "x[:1, :1].squeeze()",
            "x[0, :1].view(())",
            "x.unflatten(1, (3, 1))",
            "x.expand(2, 3)",
            "x.expand(4, 2, 3)[0]",
            "x.detach()",
            "x.diagonal()",
            "x.diagonal()[1]",
            "x.unbind(0)[1]",
            "x.unbind(1)[0][0]",
            "x.split(2, dim=1)[1]",
            "x.chunk(2)[0]",
            "x.view_as(x)",
            "x.data",
            "x.real",
            "list(x)[1]",
            "list(list(x)[1])[0]",
            "x.contiguous()",
            "x.to(ad.float64)",
            "x.unfold(1, 2, 1)[0, 0]",
        ],
    )
    def test_writes_reach_the_base(self, view: str) -> None:
        base = const(np.arange(6.0).reshape(2, 3))
        part = eval(view, {"x": base, "ad": ad})  # noqa: S307
        assert np.shares_memory(part.numpy(), base.numpy())
        with ad.no_grad():
            part.zero_()
        assert (base == 0.0).sum().item() >= part.numel()
        assert base._version == 1 or view == "x.data"

    def test_zero_dimensional_view_in_the_graph(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 1.0
        y[1].mul_(5.0)
        exact(y, [1.0, 10.0])
        exact(grad(y.sum(), x)[0], [1.0, 5.0])

    @pytest.mark.parametrize("copy", ["x.clone()", "x[[0, 1]]", "x + 0.0", "x.t().contiguous()"])
    def test_copies_do_not_alias(self, copy: str) -> None:
        base = const(np.arange(6.0).reshape(2, 3))
        part = eval(copy, {"x": base, "ad": ad})  # noqa: S307
        assert not np.shares_memory(part.numpy(), base.numpy())

    @pytest.mark.parametrize(
        "write", ["y.mul_(y)", "y.add_(y)", "y.sub_(y)", "y.mul_(y[:1])", "y.mul_(y.flip(0))"]
    )
    def test_operand_that_overlaps_the_target(self, write: str) -> None:
        """y.mul_(y) is right or refused, never silently wrong."""
        x = leaf([2.0, 3.0])
        y = x * 1.0
        z = x * 1.0
        want = eval(write.replace("_(", "("), {"y": z})  # noqa: S307
        try:
            exec(write, {"y": y})  # noqa: S102
            (got,) = grad(y.sum(), x)
        except RuntimeError as error:  # in forward (partial overlap) or in backward
            assert "single memory location" in str(error) or "inplace operation" in str(error)
        else:
            exact(y, values(want))
            exact(got, values(grad(want.sum(), x)[0]))

    @pytest.mark.parametrize("name", ["__truediv__", "__mul__", "__add__", "__sub__"])
    def test_result_of_arithmetic_may_be_written_to(self, name: str) -> None:
        """`q = a / b; q += 1` is everyday code: no arithmetic operation may need its own output."""
        a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
        q = getattr(a, name)(b)
        q += 1.0
        got = grad(q.sum(), [a, b])
        want = grad(getattr(a, name)(b).sum(), [a, b])
        for g, w in zip(got, want, strict=True):
            exact(g, values(w))


class TestAssignment:
    def test_scalar_into_a_place(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        y = x * 2.0
        y[0] = 5.0
        exact(y, [5.0, 4.0, 6.0])
        exact(grad(y.sum(), x)[0], [0.0, 2.0, 2.0])

    def test_tracked_value_into_untracked(self) -> None:
        x = leaf([1.0, 2.0])
        y = ad.zeros(3, dtype=ad.float64)
        y[:2] = x
        assert y.requires_grad and not y.is_leaf
        exact(grad((y * const([3.0, 4.0, 5.0])).sum(), x)[0], [3.0, 4.0])

    def test_broadcast_value(self) -> None:
        v = leaf([1.0, 2.0])
        y = ad.zeros(3, 2, dtype=ad.float64)
        y[1:] = v
        exact(y, [[0, 0], [1, 2], [1, 2]])
        exact(grad((y * const([[1.0], [2.0], [3.0]])).sum(), v)[0], [5.0, 5.0])

    def test_self_assignment_chain(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        a = x * 1.0
        a[0] = a[1]
        a[1] = a[0] * 2.0
        exact(grad(a.sum(), x)[0], [0.0, 3.0, 1.0])

    def test_mask_with_values(self) -> None:
        x, v = leaf([1.0, 2.0, 3.0]), leaf([5.0, 6.0])
        y = x * 2.0
        y[ad.tensor([True, False, True])] = v
        exact(y, [5.0, 4.0, 6.0])
        gx, gv = grad((y * const([1.0, 10.0, 100.0])).sum(), [x, v])
        exact(gx, [0.0, 20.0, 0.0])
        exact(gv, [1.0, 100.0])

    def test_mask_with_scalar(self) -> None:
        x = leaf([1.0, -2.0, 3.0])
        y = x * 2.0
        y[x < 0] = 0.0
        exact(grad(y.sum(), x)[0], [2.0, 0.0, 2.0])

    def test_integer_array(self) -> None:
        x, v = leaf([1.0, 2.0, 3.0]), leaf([5.0, 6.0])
        y = x * 2.0
        y[ad.tensor([2, 0])] = v
        exact(y, [6.0, 4.0, 5.0])
        gx, gv = grad((y * const([1.0, 10.0, 100.0])).sum(), [x, v])
        exact(gx, [0.0, 20.0, 0.0])
        exact(gv, [100.0, 1.0])

    def test_integer_array_in_two_axes(self) -> None:
        v = leaf([7.0, 8.0])
        y = ad.zeros(3, 3, dtype=ad.float64)
        y[ad.tensor([0, 2]), ad.tensor([1, 1])] = v
        exact(grad((y * const(np.arange(9.0).reshape(3, 3))).sum(), v)[0], [1.0, 7.0])

    def test_list_and_numpy_indices(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        y = x * 2.0
        y[[0, 2]] = 0.0
        exact(grad(y.sum(), x)[0], [0.0, 2.0, 0.0])
        z = x * 2.0
        z[np.array([1])] = 0.0
        exact(grad(z.sum(), x)[0], [2.0, 0.0, 2.0])

    def test_slice_step_ellipsis_none(self) -> None:
        x = leaf(np.zeros((2, 3, 4)))
        y = x * 2.0
        y[..., ::2] = 1.0
        y[:, 1] = 1.0
        expected = np.full((2, 3, 4), 2.0)
        expected[..., ::2] = 0.0
        expected[:, 1] = 0.0
        exact(grad(y.sum(), x)[0], expected)

    def test_saved_then_assigned(self) -> None:
        y = leaf([1.0, 2.0]) * 1.0
        z = (y * y).sum()
        y[0] = 0.0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.backward()

    def test_loop_that_fills_a_buffer(self) -> None:
        """A recurrence written into slices: h[t + 1] = tanh(w * h[t])."""
        w = leaf(0.5)
        h = ad.ones(5, dtype=ad.float64)
        rows = h * 1.0
        for t in range(4):
            rows[t + 1] = (w * rows[t].clone()).tanh()
        (got,) = grad(rows[4], w)
        u = leaf(0.5)
        state = const(1.0)
        for _ in range(4):
            state = (u * state).tanh()
        near(got, grad(state, u)[0].item())

    def test_index_put_accumulate(self) -> None:
        x, v = leaf([1.0, 2.0, 3.0]), leaf([5.0, 6.0])
        y = x * 1.0
        y.index_put_((ad.tensor([1, 1]),), v, accumulate=True)
        exact(y, [1.0, 13.0, 3.0])
        gx, gv = grad((y * const([1.0, 10.0, 100.0])).sum(), [x, v])
        exact(gx, [1.0, 10.0, 100.0])
        exact(gv, [10.0, 10.0])

    def test_index_add_and_scatter_in_place(self) -> None:
        x, v = leaf([1.0, 2.0, 3.0]), leaf([5.0, 6.0])
        y = (x * 1.0).index_add_(0, ad.tensor([2, 2]), v)
        exact(y, [1.0, 2.0, 14.0])
        z = (x * 1.0).scatter_(0, ad.tensor([0, 2]), v)
        exact(z, [5.0, 2.0, 6.0])
        gx, gv = grad(y.sum() + (z * 10.0).sum(), [x, v])
        exact(gx, [1.0, 11.0, 1.0])
        exact(gv, [11.0, 11.0])

    def test_masked_fill_in_place(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        y = (x * 2.0).masked_fill_(ad.tensor([False, True, False]), -7.0)
        exact(y, [2.0, -7.0, 6.0])
        exact(grad(y.sum(), x)[0], [2.0, 0.0, 2.0])

    def test_wrong_shape_refused_and_nothing_written(self) -> None:
        y = ad.zeros(3, dtype=ad.float64)
        with pytest.raises(RuntimeError):
            y[:2] = const([1.0, 2.0, 3.0])
        exact(y, [0.0, 0.0, 0.0])

    def test_out_of_range_refused(self) -> None:
        y = ad.zeros(3, dtype=ad.float64)
        with pytest.raises(IndexError):
            y[3] = 1.0
        with pytest.raises(IndexError):
            _ = y[-4]


class TestANewShapeWithViewsAlive:
    """F23: a tensor with views takes a new shape in place, as Shampoo does it with gradients."""

    def test_views_keep_their_shape_and_the_memory_is_one(self) -> None:
        a = const([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
        row, flat, version = a[0], a.view(-1), a._version
        a.transpose_(0, 1)
        exact(a, [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
        exact(row, [0.0, 1.0, 2.0])
        row.add_(10.0)
        exact(a, [[10.0, 3.0], [11.0, 4.0], [12.0, 5.0]])
        a[2].zero_()
        exact(flat, [10.0, 11.0, 0.0, 3.0, 4.0, 0.0])
        assert a._version == flat._version == row._version > version + 2
        exact(a.t_().squeeze_(), [[10.0, 11.0, 0.0], [3.0, 4.0, 0.0]])

    def test_a_gradient_that_is_seen_elsewhere(self) -> None:
        w = leaf([[1.0, 2.0, 3.0]])
        (w * w).sum().backward()
        view = w.grad.view(-1)
        w.grad.t_()
        exact(w.grad, [[2.0], [4.0], [6.0]])
        exact(view, [2.0, 4.0, 6.0])

    def test_with_history_both_stay_tied(self) -> None:
        x = leaf([[1.0, 2.0]])
        y = x * 2.0
        row = y[0]
        y.t_().mul_(3.0)
        row.mul_(5.0)
        assert y.shape == (2, 1) and row.shape == (2,)
        exact(row, [30.0, 60.0])
        exact(y, [[30.0], [60.0]])
        (y.sum() + row.sum()).backward()
        exact(x.grad, [[60.0, 60.0]])

    def test_a_leaf_with_views_is_refused_and_nothing_changes(self) -> None:
        x = leaf([[1.0, 2.0]])
        row = x[0]
        with ad.no_grad(), pytest.raises(RuntimeError, match="history refers to its shape"):
            x.t_()
        assert x.shape == (1, 2) and row.shape == (2,)
