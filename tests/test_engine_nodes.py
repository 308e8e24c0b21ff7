"""The graph that a user can look at: node names, next_functions, metadata."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_engine import const, leaf, node_name, only_ours, randoms

import adjoint as ad

F = ad.nn.functional


class TestNames:
    """F2: PyTorch's names."""

    @pytest.mark.parametrize(
        ("program", "expected"),
        [
            ("x + x", "AddBackward0"),
            ("x + 2", "AddBackward0"),
            ("x - x", "SubBackward0"),
            ("x * x", "MulBackward0"),
            ("x * 2", "MulBackward0"),
            ("x / x", "DivBackward0"),
            ("-x", "NegBackward0"),
            ("x ** 2", "PowBackward0"),
            ("x @ x.t()", "MmBackward0"),
            ("x.matmul(x.t())", "MmBackward0"),
            ("x[0].dot(x[0])", "DotBackward0"),
            ("x @ x[0]", "MvBackward0"),
            ("ad.bmm(x.unsqueeze(0), x.t().unsqueeze(0))", "BmmBackward0"),
            ("ad.addmm(x, x, ad.ones(3, 3, dtype=ad.float64))", "AddmmBackward0"),
            ("F.linear(x, x, x[:, 0])", "AddmmBackward0"),
            ("x.relu()", "ReluBackward0"),
            ("x.sigmoid()", "SigmoidBackward0"),
            ("x.tanh()", "TanhBackward0"),
            ("F.gelu(x)", "GeluBackward0"),
            ("x.exp()", "ExpBackward0"),
            ("x.abs()", "AbsBackward0"),
            ("x.sum()", "SumBackward0"),
            ("x.sum(dim=1)", "SumBackward1"),
            ("x.mean()", "MeanBackward0"),
            ("x.mean(dim=1)", "MeanBackward1"),
            ("x.max()", "MaxBackward1"),
            ("x.max(dim=1).values", "MaxBackward0"),
            ("ad.softmax(x, 1)", "SoftmaxBackward0"),
            ("ad.log_softmax(x, 1)", "LogSoftmaxBackward0"),
            ("x.view(6)", "ViewBackward0"),
            ("x.t()", "TBackward0"),
            ("x.transpose(0, 1)", "TransposeBackward0"),
            ("x.permute(1, 0)", "PermuteBackward0"),
            ("x.unsqueeze(0)", "UnsqueezeBackward0"),
            ("x.expand(4, 2, 3)", "ExpandBackward0"),
            ("x[0]", "SelectBackward0"),
            ("x[:, 1:]", "SliceBackward0"),
            ("x[ad.tensor([0, 1])]", "IndexBackward0"),
            ("x.clone()", "CloneBackward0"),
            ("ad.cat([x, x])", "CatBackward0"),
            ("ad.stack([x, x])", "StackBackward0"),
            ("ad.where(x > 0, x, x)", "WhereBackward0"),
            ("x.cumsum(0)", "CumsumBackward0"),
            ("x.to(ad.float32)", "ToCopyBackward0"),
            ("F.layer_norm(x, (3,))", "NativeLayerNormBackward0"),
            ("F.embedding(ad.tensor([0]), x)", "EmbeddingBackward0"),
        ],
    )
    def test_name(self, program: str, expected: str) -> None:
        out = eval(program, {"x": leaf(randoms(2, 3)), "ad": ad, "F": F})  # noqa: S307
        assert node_name(out) == expected
        assert out.grad_fn.name().split("::")[-1] == expected

    def test_repr_style(self) -> None:
        """F2: `<AddBackward0 object at 0x...>`."""
        text = repr(leaf([1.0]).add(1.0).grad_fn)
        assert text.startswith("<AddBackward0 object at 0x") and text.endswith(">")

    def test_accumulate_grad(self) -> None:
        x = leaf([1.0])
        node, index = (x * 2).grad_fn.next_functions[0]
        assert repr(node).startswith("<AccumulateGrad object at 0x")
        assert index == 0
        assert node.variable is x
        assert node.next_functions == ()

    def test_tensor_repr_shows_the_node(self) -> None:
        assert repr(leaf([1.0]) * 2).endswith("grad_fn=<MulBackward0>)")

    def test_cross_entropy_chain(self) -> None:
        """F36: the loss is one fused node or PyTorch's pair; its name says which."""
        out = F.cross_entropy(leaf(randoms(2, 3)), ad.tensor([0, 1]))
        assert node_name(out) in (
            "NllLossBackward0",
            "CrossEntropyBackward0",
            "CrossEntropyLossBackward0",
        )


class TestEdges:
    def test_sum_of_mul(self) -> None:
        """F3: z = (x * 2).sum(): Sum -> Mul -> AccumulateGrad, and (None, 0) for the number."""
        x = ad.ones(3, 3, requires_grad=True)
        z = (x * 2).sum()
        ((mul, index),) = z.grad_fn.next_functions
        assert (mul.name(), index) == ("MulBackward0", 0)
        edges = mul.next_functions
        assert edges[0][0].name().split("::")[-1] == "AccumulateGrad"
        assert edges[1:] in ((), ((None, 0),))

    def test_same_leaf_same_accumulator(self) -> None:
        x = leaf([1.0])
        a, b = (x * x).grad_fn.next_functions
        assert a[0] is b[0]
        y = x + 1.0
        assert y.grad_fn.next_functions[0][0] is a[0]

    def test_edges_into_a_multi_output_node(self) -> None:
        x = leaf([3.0, 1.0])
        a, b = x.split(1)
        y = a * b
        (na, ia), (nb, ib) = y.grad_fn.next_functions
        assert na is nb and (ia, ib) == (0, 1)
        assert (a.output_nr, b.output_nr) == (0, 1)

    def test_constant_operands_have_no_edge(self) -> None:
        y = leaf([1.0]) * const([2.0])
        assert y.grad_fn.next_functions[1] == (None, 0)

    def test_same_node_object_on_every_access(self) -> None:
        y = leaf([1.0]) * 2.0
        assert y.grad_fn is y.grad_fn

    def test_ten_named_values(self) -> None:
        """F29: z = W1@x+b1; h = relu(z); y = W2@h+b2; loss: every op node is reachable from the
        loss.
        """
        w1, b1, w2, b2 = (leaf(randoms(*s)) for s in ((4, 3), (4,), (2, 4), (2,)))
        x, target = const(randoms(3)), const(randoms(2))
        z = w1 @ x + b1
        h = z.relu()
        y = w2 @ h + b2
        loss = (y - target).pow(2).mean()
        names: list[str] = []
        seen: set[Any] = set()
        ready = [loss.grad_fn]
        while ready:
            node = ready.pop()
            if node in seen:
                continue
            seen.add(node)
            names.append(node.name().split("::")[-1])
            ready += [parent for parent, _ in node.next_functions if parent is not None]
        assert sorted(names) == sorted(
            ["MeanBackward0", "PowBackward0", "SubBackward0", "AddBackward0", "MvBackward0"]
            + ["ReluBackward0", "AddBackward0", "MvBackward0"]
            + ["AccumulateGrad"] * 4
        )

    def test_metadata_is_a_dict_of_the_users(self) -> None:
        node = (leaf([1.0]) * 2.0).grad_fn
        node.metadata["note"] = 3
        assert node.metadata["note"] == 3

    def test_graph_get_gradient_edge(self) -> None:
        x = leaf([1.0])
        y = x * 2.0
        edge = ad.autograd.graph.get_gradient_edge(y)
        assert edge.node is y.grad_fn and edge.output_nr == 0
        assert ad.autograd.graph.get_gradient_edge(x).node.variable is x

    def test_gradient_edge_stands_for_its_tensor(self) -> None:
        x = leaf([3.0])
        y = x * 2.0
        edge = ad.autograd.graph.get_gradient_edge(y)
        z = (y * y).sum()
        (g,) = ad.autograd.grad(z, [edge])
        assert g.item() == 12.0

    def test_sequence_numbers_grow(self) -> None:
        x = leaf([1.0])
        a = x * 2.0
        b = a * 2.0
        assert b.grad_fn._sequence_nr() > a.grad_fn._sequence_nr()

    @only_ours
    def test_sequence_is_a_fact_of_the_engine_order(self) -> None:
        """Two roots, one graph: the later node of both runs first."""
        x = leaf([1.0])
        a, b = x * 2.0, x * 3.0
        log: list[str] = []
        a.grad_fn.register_hook(lambda gi, go: log.append("a"))
        b.grad_fn.register_hook(lambda gi, go: log.append("b"))
        ad.autograd.backward([a.sum(), b.sum()])
        assert log == ["b", "a"]


def test_edges_are_those_of_operands_that_can_have_a_gradient() -> None:
    x, i = ad.ones(2, 2, requires_grad=True), ad.tensor([[0, 1]])
    for y, names in ((x[i[0]], 1), (x.gather(0, i), 1), (x.masked_fill(x > 1, 0.0), 2),
                     (ad.where(x > 1, x, 2 * x), 2), (x.scatter(0, i, x), 2), (x * 2, 2)):
        edges = y.grad_fn.next_functions
        assert len(edges) == names and edges[0][0].name() == "torch::autograd::AccumulateGrad"
    assert (x * 2).grad_fn.next_functions[1] == (None, 0)


def test_what_nodes_tell_of_operands_that_they_do_not_keep() -> None:
    x = ad.ones(2, 3, requires_grad=True)
    for y in (x.sum(), x[0], x.view(6), x.expand(4, 2, 3), x[:, 0:2], x.mean(1)):
        assert tuple(y.grad_fn._saved_self_sym_sizes) == (2, 3)
    assert (x * 2).grad_fn._saved_self is None          # no gradient of the number is wanted
    part = x[:, 1:3].grad_fn
    assert (part._saved_dim, part._saved_start, part._saved_end, part._saved_step) == (1, 1, 3, 1)
    chosen = ad.where(x > 1, x, 2 * x).grad_fn
    assert chosen._saved_condition.tolist() == [[False] * 3] * 2
    assert x.split(1)[0].grad_fn._saved_split_size == 1
    with pytest.raises(AttributeError, match="no attribute '_saved_nothing'"):
        x.sum().grad_fn._saved_nothing  # noqa: B018  # the access is what is tried
