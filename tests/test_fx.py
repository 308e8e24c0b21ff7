"""F123: `torch.fx`: tracing, graphs and their changes, compared with PyTorch's text and numbers."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import fx, nn
from adjoint.fx.passes.shape_prop import ShapeProp
from adjoint.fx.tracer import TraceError


def programs(torch: Any) -> dict[str, Any]:
    w = torch.ones(4)

    class Net(torch.nn.Module):  # type: ignore[misc]  # of either library
        def __init__(self) -> None:
            super().__init__()
            self.lin = torch.nn.Linear(4, 5)
            self.p = torch.nn.Parameter(torch.ones(5))
            self.register_buffer("b", torch.ones(5))
            self.sub = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(5, 2))

        def forward(self, x, scale=2.0):  # type: ignore[no-untyped-def]  # PyTorch prints types
            y = (self.lin(x) + self.p - self.b).clamp(min=0.0, max=1.0)
            z = torch.cat([y, y], dim=1)[:, :5]
            return self.sub(z * scale).sum(dim=-1), x.shape[0]

    def trees(x):  # type: ignore[no-untyped-def]  # as above
        a, b = x.chunk(2)
        return {"a": a + 1, "b": (b, [a * 2])}
    return {"net": Net(), "constant": lambda x: x + w,
            "operators": lambda x: -x @ x.T + 3 - 1.0 / x, "trees": trees,
            "functions": lambda x: torch.nn.functional.softmax(torch.sigmoid(x), dim=-1),
            "methods": lambda x: x.view(-1, 2).transpose(0, 1).contiguous().size(0) + x.ndim}


@pytest.mark.parametrize("name", ["net", "constant", "operators", "trees", "methods"])
def test_code_is_that_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = importlib.import_module("torch.fx").symbolic_trace(programs(torch)[name])
    ours = fx.symbolic_trace(programs(ad)[name])
    assert ours.code == theirs.code and str(ours.graph).strip() == str(theirs.graph).strip()
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]


@pytest.mark.parametrize("name", ["net", "constant", "operators", "trees", "functions", "methods"])
def test_a_traced_program_computes_the_same(name: str) -> None:
    ad.manual_seed(0)
    program, x = programs(ad)[name], ad.randn(4, 4)
    traced = fx.symbolic_trace(program)
    traced.graph.lint()
    leaves = ad.utils._pytree.tree_leaves
    for a, b in zip(leaves(program(x)), leaves(traced(x)), strict=True):
        assert ad.equal(a, b) if isinstance(a, ad.Tensor) else a == b
    twin = copy.deepcopy(traced)
    assert twin.code == traced.code and twin is not traced


def test_gradients_flow_through_a_traced_module() -> None:
    ad.manual_seed(0)
    net = programs(ad)["net"]
    traced, x = fx.symbolic_trace(net), ad.randn(3, 4)
    net(x)[0].sum().backward()
    wanted = net.p.grad.clone()
    net.zero_grad()
    traced(x)[0].sum().backward()
    assert ad.equal(traced.p.grad, wanted) and traced.p is net.p


def test_a_graph_is_changed_and_made_anew() -> None:
    traced = fx.symbolic_trace(lambda x: F.relu(x) + 1)
    node = next(n for n in traced.graph.nodes if n.target is F.relu)
    with traced.graph.inserting_after(node):
        new = traced.graph.call_function(ad.tanh, node.args)
        last = traced.graph.call_function(ad.neg, (new,))
    node.replace_all_uses_with(last)
    with pytest.raises(RuntimeError, match="still had 1 users"):
        traced.graph.erase_node(new)
    traced.graph.erase_node(node)
    traced.graph.lint()
    traced.recompile()
    assert [n.name for n in traced.graph.nodes] == ["x", "tanh", "neg", "add", "output"]
    assert traced(ad.zeros(2)).tolist() == [1, 1] and "torch.tanh(x)" in traced.code
    new.prepend(last)
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        traced.graph.lint()


def test_dead_code_goes_and_writes_stay() -> None:
    def program(x: Any) -> Any:
        x.exp()
        y = x.clone()
        y.add_(1)
        return x * 2
    traced = fx.symbolic_trace(program)
    assert traced.graph.eliminate_dead_code()
    assert [n.name for n in traced.graph.nodes] == ["x", "clone", "add_", "mul", "output"]
    assert not traced.graph.eliminate_dead_code()


def test_patterns_are_replaced() -> None:
    def program(x: Any, y: Any) -> Any:
        a = ad.add(ad.neg(x), 1) * y
        return ad.add(ad.neg(a), 1) + ad.neg(y)
    traced = fx.symbolic_trace(program)
    found = fx.replace_pattern(traced, lambda x: ad.add(ad.neg(x), 1), lambda x: ad.sub(1, x))
    assert len(found) == 2
    assert [n.target for n in traced.graph.nodes if n.op == "call_function"].count(ad.sub) == 2
    x, y = ad.randn(3), ad.randn(3)
    assert ad.allclose(traced(x, y), program(x, y))
    once = fx.symbolic_trace(lambda x: (lambda e: e.sin() + e)(ad.exp(x)))
    assert not fx.replace_pattern(once, lambda x: ad.exp(x).sin(), ad.cos)    # exp is read twice


def test_what_depends_on_values_is_refused() -> None:
    with pytest.raises(TraceError, match="control flow"):
        fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)
    with pytest.raises(TraceError, match="cannot be iterated"):
        fx.symbolic_trace(lambda x: list(x))
    with pytest.raises(TraceError, match="'len' is not supported"):
        fx.symbolic_trace(lambda x: x[: len(x) - 1])
    traced = fx.symbolic_trace(lambda x, flag: x + 1 if flag else x - 1, {"flag": False})
    assert traced(ad.ones(1)).item() == 0


def test_tracers_leaves_and_wrapped_functions() -> None:
    class Whole(fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return isinstance(m, nn.Sequential) or super().is_leaf_module(m, module_qualified_name)
    net = programs(ad)["net"]
    graph = Whole().trace(net)
    assert [n.target for n in graph.find_nodes(op="call_module")] == ["lin", "sub"]
    assert fx.GraphModule(net, graph)(ad.ones(2, 4))[1] == 2
    traced = fx.symbolic_trace(lambda x: helper(x) + 1)
    assert [n.name for n in traced.graph.nodes] == ["x", "helper", "add", "output"]
    assert traced(ad.ones(1)).item() == 3 and helper(2) == 4


@fx.wrap
def helper(x: Any) -> Any:
    return x * 2


def test_graphs_are_interpreted_transformed_and_measured() -> None:
    net = programs(ad)["net"]
    traced, x = fx.symbolic_trace(net), ad.ones(3, 4)
    assert ad.equal(fx.Interpreter(traced).run(x)[0], net(x)[0])
    ShapeProp(traced).propagate(x)
    shapes = {n.name: tuple(n.meta["tensor_meta"].shape) for n in traced.graph.nodes
              if n.name in ("lin", "cat", "sub_1")}
    assert shapes == {"lin": (3, 5), "cat": (3, 10), "sub_1": (3, 2)}

    class Doubled(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            made = super().call_function(target, args, kwargs)
            return made * 2 if target is ad.exp else made
    once = Doubled(fx.symbolic_trace(lambda x: ad.exp(x) + 1)).transform()
    assert once(ad.zeros(1)).item() == 3
    with pytest.raises(TypeError, match="Expected positional argument for parameter x"):
        fx.Interpreter(once).run()


def test_a_graph_by_hand() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    weight = graph.get_attr("inner.weight")
    graph.output(graph.call_method("sum", (graph.call_function(ad.mul, (x, weight)),), {"dim": 0}))
    module = fx.GraphModule({"inner.weight": nn.Parameter(ad.tensor([1.0, 2.0]))}, graph)
    assert module(ad.ones(2)).item() == 3 and list(module.state_dict()) == ["inner.weight"]
    with pytest.raises(RuntimeError, match="nonexistent target inner.weight"):
        fx.GraphModule(nn.Module(), copy.deepcopy(graph))
