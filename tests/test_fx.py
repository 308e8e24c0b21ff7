"""F123: `torch.fx`: tracing, graphs and their changes, compared with PyTorch's text and numbers."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import typing
from typing import Any, Optional

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


def typed(torch: Any) -> dict[str, Any]:
    """Programs with annotations, which are printed."""
    def program(x, d, n=3, y=None):  # type: ignore[no-untyped-def]  # types are below
        return d["a"] + x, n
    program.__annotations__ = {
        "x": torch.Tensor, "d": dict[str, torch.Tensor],
        "n": Optional[int],  # noqa: UP045  # PyTorch takes this form
        "y": typing.Union[int, torch.dtype],  # noqa: UP007  # as above
        "return": tuple[torch.Tensor, int]}

    class Stars(torch.nn.Module):  # type: ignore[misc]  # of either library
        def forward(self, x, *args, flag=True, **kw):  # type: ignore[no-untyped-def]  # as above
            return x + args[0] * kw["a"] if flag else x
    return {"types": (program, None), "stars": (Stars(), {"flag": True}),
            "keywords": (lambda x, **kw: x + kw["a"], None),
            "given": (lambda x, n=2, flag=True: x * n if flag else x, {"n": 2, "flag": False})}


@pytest.mark.parametrize("name", ["types", "stars", "keywords", "given"])
def test_arguments_are_printed_as_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    program, given = typed(torch)[name]
    theirs = importlib.import_module("torch.fx").symbolic_trace(program, given)
    program, given = typed(ad)[name]
    ours = fx.symbolic_trace(program, given)
    assert ours.code == theirs.code and str(ours.graph).strip() == str(theirs.graph).strip()


def test_stars_and_given_arguments_run() -> None:
    x = ad.ones(2)
    keywords = fx.symbolic_trace(lambda x, **kw: x + kw["a"])
    assert keywords(x, a=2).tolist() == [3, 3]
    stars = fx.symbolic_trace(typed(ad)["stars"][0], {"flag": True})
    assert stars(x, True, 2, 5, a=3).tolist() == [7, 7]     # `flag` comes before `*args` now
    given = fx.symbolic_trace(lambda x, n=None, flag=True: x + 1 if flag and n is None else x,
                              {"n": None, "flag": True})
    assert given(x).tolist() == [2, 2]
    with pytest.raises(AssertionError, match="flag has been specialized to have value True"):
        given(x, None, False)
    with pytest.raises(AssertionError, match="n has been specialized to have value None"):
        given(x, 3)
    with pytest.raises(TraceError, match="plain Python functions"):
        fx.symbolic_trace(Caller())
    weight = fx.symbolic_trace(lambda x, w: x * w, {"w": ad.tensor([2.0, 3.0])})
    assert weight(x, None).tolist() == [2, 3]


class Caller:
    """What can be called and is no function."""

    def __call__(self, *args: Any) -> Any:
        return args[0]


def kept(module: Any) -> list[Any]:
    """Copies of a traced module: deep, from a pickle, from a file."""
    file = io.BytesIO()
    ad.save(module, file)
    file.seek(0)
    return [copy.deepcopy(module), pickle.loads(pickle.dumps(module)),
            ad.load(file, weights_only=False)]


@pytest.mark.parametrize("name", ["net", "trees", "functions", "methods", "types"])
def test_traced_modules_are_copied_and_pickled(name: str) -> None:
    program = typed(ad)[name][0] if name == "types" else programs(ad)[name]
    traced = fx.symbolic_trace(program).eval()
    traced.meta["note"] = 1
    args = (ad.ones(4, 4), {"a": ad.ones(4, 4)}) if name == "types" else (ad.ones(4, 4),)
    want = ad.utils._pytree.tree_leaves(traced(*args))
    for twin in kept(traced):
        assert isinstance(twin, fx.GraphModule) and type(twin) is not type(traced)
        assert twin.code == traced.code and str(twin.graph) == str(traced.graph)
        assert not twin.training and twin.meta == {"note": 1}
        assert twin.graph.owning_module is twin
        twin.graph.lint()
        for a, b in zip(ad.utils._pytree.tree_leaves(twin(*args)), want, strict=True):
            assert ad.equal(a, b) if isinstance(a, ad.Tensor) else a == b
        for (n, p), (m, q) in zip(twin.named_parameters(), traced.named_parameters(), strict=True):
            assert n == m and ad.equal(p, q) and p is not q
        with twin.graph.inserting_before(twin.graph.output_node()):
            new = twin.graph.call_function(ad.neg, (next(iter(twin.graph.nodes)),))
        assert new.name not in [n.name for n in traced.graph.nodes]
    shallow = copy.copy(traced)
    assert shallow.graph is traced.graph and shallow.code == traced.code


def test_copies_of_graphs_keep_notes_and_dead_nodes() -> None:
    graph = fx.symbolic_trace(lambda x: x + 1).graph
    for node in graph.nodes:
        node.meta["q"] = node.name
    twin = copy.deepcopy(graph)
    assert [n.meta for n in twin.nodes] == [n.meta for n in graph.nodes]
    assert twin.output_node().args[0] in twin.nodes and twin._tracer_cls is graph._tracer_cls


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
