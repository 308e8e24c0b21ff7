"""Rules of PyTorch's autograd in detail: hooks, gradient edges, raw residuals, backward(inputs=),
complex parts as views, functional_call (F5, F10, F13, F24, F123). Each was compared with PyTorch.
"""
from __future__ import annotations

import threading
from typing import Any

import pytest

import adjoint as ad
from adjoint.autograd import graph


def leaf(*values: float) -> Any:
    return ad.tensor(values, dtype=ad.float64, requires_grad=True)


class TestHooks:
    """F24: what hooks may return, and when they run."""

    def test_several_tensors_at_once_get_none_where_nothing_arrives(self) -> None:
        x, y, z = leaf(1.0), leaf(2.0), leaf(3.0)
        log: list[Any] = []
        handle = graph.register_multi_grad_hook(
            [x, y, z], lambda gs: log.append([None if g is None else g.item() for g in gs]))
        (x * y).sum().backward()
        (x * y * z).sum().backward()
        assert log == [[2.0, 1.0, None], [6.0, 3.0, 2.0]]
        handle.remove()
        (x * y).sum().backward()
        assert len(log) == 2

    def test_several_computed_tensors(self) -> None:
        x = leaf(1.0)
        a = x * 2
        b = a * 3
        log: list[Any] = []
        graph.register_multi_grad_hook((a, b), lambda gs: log.append([g is None for g in gs]))
        a.sum().backward()
        assert log == [[False, True]]

    def test_any_runs_once_in_each_backward(self) -> None:
        x, y = leaf(1.0), leaf(2.0)
        log: list[float] = []
        graph.register_multi_grad_hook([x, y], lambda g: log.append(g.item()), mode="any")
        for _ in range(2):
            (x + y).sum().backward()
        assert log == [1.0, 1.0]
        with pytest.raises(ValueError, match="mode to be one of"):
            graph.register_multi_grad_hook([x], print, mode="some")

    def test_a_hook_may_not_change_dtype(self) -> None:
        y = leaf(1.0) * 2
        y.register_hook(lambda g: g.float())
        with pytest.raises(RuntimeError, match="changed the type of value"):
            y.sum().backward()

    def test_node_hooks_return_tuples(self) -> None:
        y = leaf(1.0) * 2
        y.grad_fn.register_hook(lambda gi, go: gi[0])
        with pytest.raises(TypeError, match="expected tuple, but hook returned 'Tensor'"):
            y.sum().backward()
        y = leaf(1.0) * 2
        y.grad_fn.register_prehook(lambda go: (go[0], None))
        with pytest.raises(RuntimeError, match="incorrect number of values .got 2, but expected 1"):
            y.sum().backward()

    def test_hooks_after_accumulation_return_nothing(self) -> None:
        x = leaf(1.0)
        x.register_post_accumulate_grad_hook(lambda t: 5)
        with pytest.raises(TypeError, match="expected Variable, but hook returned 'int'"):
            x.sum().backward()
        x = leaf(1.0)
        x.register_post_accumulate_grad_hook(lambda t: t.add_(t.grad))      # gives the leaf itself
        x.sum().backward()
        assert x.tolist() == [2.0]
        x.register_post_accumulate_grad_hook(lambda t: t.grad * 2)
        with pytest.raises(RuntimeError, match="hooks should return None"):
            x.sum().backward()

    def test_backward_into_inputs_runs_the_hooks_of_leaves(self) -> None:
        x, y = leaf(1.0), leaf(2.0)
        log: list[str] = []
        x.register_post_accumulate_grad_hook(lambda t: log.append("x"))
        y.register_post_accumulate_grad_hook(lambda t: log.append("y"))
        (x * y).sum().backward(inputs=[x])
        assert log == ["x"] and x.grad.tolist() == [2.0] and y.grad is None


class TestInputs:
    """F5: backward(inputs=...)."""

    def test_a_retained_input_counts_once(self) -> None:
        x = leaf(1.0, 2.0)
        z = x * 2
        z.retain_grad()
        z.sum().backward(inputs=[z])
        assert z.grad.tolist() == [1.0, 1.0] and x.grad is None

    def test_accumulates_in_place(self) -> None:
        x = leaf(1.0)
        x.grad = have = ad.zeros(1, dtype=ad.float64)
        (x * 3).sum().backward(inputs=[x])
        assert x.grad is have and have.tolist() == [3.0]


class TestEdges:
    """F10: gradient edges as outputs and inputs."""

    def test_an_edge_stands_for_its_tensor(self) -> None:
        x = leaf(1.0, 2.0)
        edge = graph.get_gradient_edge(x * x)
        (g,) = ad.autograd.grad(edge, x, ad.ones(2, dtype=ad.float64))
        assert g.tolist() == [2.0, 4.0]
        total = graph.get_gradient_edge((x * x).sum())
        assert ad.autograd.grad(total, [x])[0].tolist() == [2.0, 4.0]
        with pytest.raises(RuntimeError, match="only for scalar outputs"):
            ad.autograd.grad(graph.get_gradient_edge(x * 2), x)

    def test_backward_from_an_edge_of_several_outputs(self) -> None:
        x = leaf(1.0, 2.0)
        edge = graph.get_gradient_edge((x * 3).unbind()[1])
        assert edge.output_nr == 1
        ad.autograd.backward(edge, ad.tensor(2.0, dtype=ad.float64))
        assert x.grad.tolist() == [0.0, 6.0]

    def test_a_leaf_is_an_edge_too(self) -> None:
        x = leaf(1.0)
        ad.autograd.backward(graph.get_gradient_edge(x), ad.ones(1, dtype=ad.float64))
        assert x.grad.tolist() == [1.0]


class TestResiduals:
    """F13, F73: hooks on one residual; what pack hooks are given."""

    def test_hooks_on_one_residual(self) -> None:
        x = leaf(1.0, 2.0)
        y = x * x
        y.grad_fn._raw_saved_self.register_hooks(lambda t: t.detach() * 10, lambda t: t)
        y.sum().backward()
        assert x.grad.tolist() == [11.0, 22.0]

    def test_one_pair_and_not_after_release(self) -> None:
        x = leaf(1.0)
        y = x * x
        held = y.grad_fn._raw_saved_other
        held.register_hooks(lambda t: t, lambda t: t)
        with pytest.raises(RuntimeError, match="only one pair of hooks"):
            held.register_hooks(lambda t: t, lambda t: t)
        with pytest.raises(TypeError, match="incompatible function arguments"):
            y.grad_fn._raw_saved_self.register_hooks(1, 2)
        y.sum().backward()
        with pytest.raises(RuntimeError, match="after it has been freed"):
            y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)

    def test_residuals_of_a_custom_function(self) -> None:
        class Square(ad.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return 2 * ctx.saved_tensors[0] * g

        x = leaf(1.0, 3.0)
        y = Square.apply(x)
        y.grad_fn._raw_saved_tensors[0].register_hooks(lambda t: t.detach() + 1, lambda t: t)
        y.sum().backward()
        assert x.grad.tolist() == [4.0, 8.0]

    def test_pack_sees_leaves_and_history(self) -> None:
        x = leaf(1.0, 2.0)
        log: list[Any] = []

        def pack(t: Any) -> Any:
            log.append((t is x, type(t.grad_fn).__name__))
            return t

        with graph.saved_tensors_hooks(pack, lambda t: t):
            y = (x * x).exp()
        assert log == [(True, "NoneType"), (True, "NoneType"), (False, "ExpBackward0")]
        (g,) = ad.autograd.grad(y.sum(), x, create_graph=True)
        g.sum().backward()
        expected = ((2 + 4 * x * x) * (x * x).exp()).detach()
        ad.testing.assert_close(x.grad, expected)


class TestComplexParts:
    """F123: real, imag and pairs are views; writes reach the whole, and so do gradients."""

    def test_writes(self) -> None:
        z = ad.tensor([1 + 2j, 3 + 4j])
        z.real.add_(5)
        z.imag[0] = 7
        assert z.tolist() == [6 + 7j, 8 + 4j]
        z.imag = 9.0
        z.real = ad.zeros(2)
        assert z.tolist() == [9j, 9j]
        pairs = ad.view_as_real(z)
        pairs.mul_(2)
        ad.view_as_complex(pairs).add_(1)
        assert z.tolist() == [1 + 18j, 1 + 18j] and pairs._is_view()

    def test_gradients_through_a_write(self) -> None:
        z = ad.tensor([1 + 1j], dtype=ad.complex128, requires_grad=True)
        whole = z * 1
        part = whole.real
        part.mul_(3)
        assert type(whole.grad_fn).__name__ == "CopySlices" and part.item() == 3.0
        (whole.real * whole.imag).sum().backward()
        assert z.grad.tolist() == [3 + 3j]

    def test_refusals(self) -> None:
        with pytest.raises(RuntimeError, match="only supported for complex"):
            ad.view_as_real(ad.ones(2))
        with pytest.raises(RuntimeError, match="last dimension of size 2"):
            ad.view_as_complex(ad.ones(2, 3))
        with pytest.raises(RuntimeError, match="imag is not implemented"):
            _ = ad.ones(2).imag


def test_threads_of_backward_may_be_set_and_change_nothing() -> None:
    x = leaf(2.0)
    with ad.autograd.set_multithreading_enabled(False):
        (x * x).sum().backward()
    ad.autograd.grad_mode.set_multithreading_enabled(True)(lambda: x.sum().backward())()
    assert x.grad.tolist() == [5.0]
    ad.autograd.set_multithreading_enabled(True)


@pytest.mark.parametrize(("setting", "asked", "unset"), [
    ("set_multithreading_enabled", "is_multithreading_enabled", True),
    ("_force_original_view_tracking", "is_view_replay_enabled", False)])
def test_what_was_set_for_the_engine_is_said(setting: str, asked: str, unset: bool) -> None:
    """A call sets it at once, the block's end takes it back, another thread does not see it."""
    change = getattr(ad.autograd.grad_mode, setting)
    now = getattr(ad.autograd, asked)

    def in_a_thread() -> list[bool]:
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(now()))
        thread.start()
        thread.join()
        return seen
    assert now() is unset
    block = change(not unset)
    assert now() is not unset and in_a_thread() == [unset]
    with block:
        assert now() is not unset
        with change(unset):
            assert now() is unset
        assert now() is not unset
    assert now() is unset


def test_hooks_after_accumulation_can_be_seen() -> None:
    x = leaf(2.0)
    assert x._post_accumulate_grad_hooks is None and (x * 2)._post_accumulate_grad_hooks is None
    handle = x.register_post_accumulate_grad_hook(print)
    assert list(x._post_accumulate_grad_hooks.values()) == [print]
    handle.remove()
    assert not x._post_accumulate_grad_hooks


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_check_nan_is_on_unless_left_out() -> None:
    assert ad.is_anomaly_check_nan_enabled()
    with ad.autograd.detect_anomaly(check_nan=False):
        assert not ad.is_anomaly_check_nan_enabled()


def test_both_kinds_of_vmap_rule_are_ambiguous() -> None:
    class Both(ad.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x * 2, 0

    with pytest.raises(RuntimeError, match="has both generate_vmap_rule=True"):
        ad.func.vmap(Both.apply)(ad.ones(3))


def test_dual_numbers_are_made_once_of_floating_tensors() -> None:
    from adjoint.autograd import forward_ad as fw

    x, t = ad.ones(3), ad.ones(3)
    with fw.dual_level():
        d = fw.make_dual(x, t)
        assert d.is_contiguous() and d.stride() == (1,) and d.storage_offset() == 0
        with pytest.raises(RuntimeError, match="already has a forward gradient at the same level"):
            fw.make_dual(d, t)
        with pytest.raises(ValueError, match="Expected primal to be floating point or complex"):
            fw.make_dual(x.long(), t)
        with pytest.raises(TypeError, match="the tangent is a float"):
            fw.make_dual(x, 1.0)


def test_functional_call_ties_weights() -> None:
    net = ad.nn.Sequential(ad.nn.Linear(2, 2, bias=False), ad.nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    with ad.no_grad():
        net[0].weight.copy_(3 * ad.eye(2))
    new, x = {"0.weight": ad.ones(2, 2)}, ad.ones(1, 2)
    assert ad.func.functional_call(net, new, (x,)).tolist() == [[4.0, 4.0]]
    assert ad.func.functional_call(net, new, (x,), tie_weights=False).tolist() == [[6.0, 6.0]]
    with pytest.raises(ValueError, match="multiple values for keys"):
        ad.func.functional_call(net, {**new, "1.weight": ad.zeros(2, 2)}, (x,))
    assert ad.func.functional_call(net, new, (x,), strict=True).tolist() == [[4.0, 4.0]]
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): '1.weight'\."):
        ad.func.functional_call(net, new, (x,), tie_weights=False, strict=True)


def test_stacked_models_agree() -> None:
    """What is frozen stays frozen, leaves of their own; models that differ are refused."""
    nets = [ad.nn.Sequential(ad.nn.Linear(2, 2), ad.nn.BatchNorm1d(2)) for _ in range(3)]
    for net in nets:
        net[0].weight.requires_grad_(False)
    params, buffers = ad.func.stack_module_state(nets)
    assert {n: p.requires_grad for n, p in params.items()} == {
        "0.weight": False, "0.bias": True, "1.weight": True, "1.bias": True}
    assert all(p.is_leaf for p in (*params.values(), *buffers.values()))
    assert buffers["1.num_batches_tracked"].tolist() == [0, 0, 0]
    nets[1][0].weight.requires_grad_(True)
    with pytest.raises(RuntimeError, match=r"0.weight from each model .*\[False, True, False\]"):
        ad.func.stack_module_state(nets)
    nets[2].eval()
    with pytest.raises(RuntimeError, match="the same training/eval mode"):
        ad.func.stack_module_state(nets)


def test_cotangents_of_grad_may_be_mapped() -> None:
    x = ad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x ** 2
    rows = ad.func.vmap(lambda v: ad.autograd.grad(y, x, v, retain_graph=True)[0])(ad.eye(3))
    assert rows.tolist() == [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 6.0]]
    assert not rows.requires_grad
    z = ad.sin(ad.ones(2, 3) @ x)
    rows = ad.func.vmap(
        lambda v: ad.autograd.grad(z, x, v, create_graph=True, retain_graph=True)[0])(ad.eye(2))
    rows.sum().backward(retain_graph=True)
    expected = -2 * 3 * ad.sin(ad.tensor(6.0))
    ad.testing.assert_close(x.grad, expected.expand(3))
    both = ad.func.vmap(lambda v: ad.autograd.grad((y.sum(), z), x, (None, v))[0])(ad.zeros(4, 2))
    assert both.tolist() == [[2.0, 4.0, 6.0]] * 4


@pytest.mark.parametrize("name", ["int", "long", "short", "char", "byte", "bool"])
def test_whole_numbers_have_no_gradient(name: str) -> None:
    x = leaf(1.0, -2.5)
    for y in (x, x * 1):
        for _ in range(3):
            found = getattr(y, name)()
            assert not found.requires_grad and found.grad_fn is None
            assert found.tolist() == getattr(y.detach(), name)().tolist()
        assert not y.to(found.dtype).requires_grad and not y.type_as(found).requires_grad
        assert not y.sum(dtype=found.dtype).requires_grad and y.to(ad.float32).requires_grad
    assert not ad.func.vmap(lambda t: getattr(t, name)())(x.detach()).requires_grad


def test_a_view_retains_the_gradient_of_what_it_is_now() -> None:
    x = leaf(1.0, 1.0, 1.0)
    base = x * 1
    view = base[:2]
    view.retain_grad()
    base.retain_grad()
    base.mul_(2)
    (base.sum() + view.sum()).backward()
    assert view.grad.tolist() == [1.0, 1.0] and base.grad.tolist() == [2.0, 2.0, 1.0]
    assert x.grad.tolist() == [4.0, 4.0, 2.0]
    view = (base := x * 1)[:2]
    view.retain_grad()
    view.mul_(3)
    (base * 5).sum().backward()
    assert view.retains_grad and view.grad is None     # what was read is the base


class TestWhatNodesAndEdgesShow:
    """F5: places in the graph and what a node keeps, as PyTorch has them."""

    def test_a_number_that_is_kept_is_a_tensor(self) -> None:
        kept = (leaf(1.0, 2.0) * 2).grad_fn._saved_other
        assert isinstance(kept, ad.Tensor) and kept.shape == () and kept.item() == 2

    def test_an_edge_has_three_fields(self) -> None:
        y = leaf(1.0) * 2
        node, output, token = graph.get_gradient_edge(y)
        assert node is y.grad_fn and output == 0 and token is None
        assert graph.GradientEdge(node, 0) == graph.get_gradient_edge(y)

    def test_a_gradient_without_storage_is_refused(self) -> None:
        x = leaf(1.0)
        with pytest.raises(RuntimeError, match="gradient with device type 'meta' to a tensor with "
                                               "device type 'cpu'"):
            x.grad = ad.ones(1, dtype=ad.float64, device="meta")
        assert x.grad is None
