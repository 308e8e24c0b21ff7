"""`torch.fx.experimental.proxy_tensor.make_fx`: calls as graphs of operators (F123)."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import adjoint as ad
from adjoint.fx.proxy_tensor import get_proxy_mode, make_fx

X, OTHER = ad.arange(6.0).reshape(2, 3) / 7, ad.arange(6.0).reshape(3, 2).t().cos()
LINEAR = ad.nn.Linear(3, 2)


def _trained(x: Any) -> Any:
    w = x.detach().requires_grad_()
    return ad.autograd.grad((w @ w.t()).tanh().sum(), w)[0]


def _written(x: Any) -> Any:
    y = x.clone()
    y.add_(1)
    y.t().mul_(2)
    return y


@pytest.mark.parametrize("f", [
    lambda x: ad.sin(x) + 1, lambda x: ad.cat(ad.split(x, 2, 1), 1) + x.max(1)[0].unsqueeze(1),
    lambda x: x[:, 1:] + x[0, 1], lambda x: 2 - x / 3 ** x + ad.zeros(2, 3),
    ad.vmap(lambda x: x.sin().sum()), ad.func.grad(lambda x: (x.sin() * x).sum()),
    LINEAR, _trained, _written])
def test_graphs_compute_on_other_values_what_the_function_does(f: Callable[..., Any]) -> None:
    graph = make_fx(f)(X)
    assert ad.allclose(graph(X), f(X), atol=1e-6) and ad.allclose(graph(OTHER), f(OTHER), atol=1e-6)
    assert get_proxy_mode() is None


def test_nodes_are_the_operators_under_pytorchs_names() -> None:
    graph = make_fx(lambda x, w: ad.relu(x @ w).sum())(X, ad.ones(3, 4))
    assert [str(n.target) for n in graph.graph.nodes] == [
        "x_1", "w_1", "aten.mm.default", "aten.relu.default", "aten.sum.default", "output"]
    assert [n.name for n in graph.graph.nodes] == ["x_1", "w_1", "mm", "relu", "sum_1", "output"]
    assert "mm = torch.ops.aten.mm.default(x_1, w_1)" in graph.code
    assert list(dict(make_fx(LINEAR)(X).named_parameters())) == [
        "_param_constant0", "_param_constant1"]


def test_nested_arguments_and_results() -> None:
    graph = make_fx(lambda d, pair: {"o": d["a"] + pair[0], "p": [pair[1] * 2, 3]})(
        {"a": X.clone()}, [X + 1, X + 2])
    made = graph({"a": OTHER}, [X, OTHER])
    assert ad.equal(made["o"], OTHER + X) and ad.equal(made["p"][0], OTHER * 2)
    assert made["p"][1] == 3


def test_a_decomposition_stands_for_its_operator() -> None:
    graph = make_fx(ad.sin, {ad.ops.aten.sin.default: lambda x: x.cos() + 1})(X)
    assert ad.equal(graph(OTHER), OTHER.cos() + 1)
    assert "sin" not in graph.code


def test_what_would_fix_a_value_is_refused() -> None:
    for f in (lambda x: x * x.sum().item(), lambda x: x if x.sum() > 0 else -x):
        with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
            make_fx(f)(X)
    with pytest.raises(NotImplementedError, match="no operator of the graph made"):
        make_fx(ad.func.grad(lambda x: x.abs().sum()))(OTHER)
    with pytest.raises(RuntimeError, match="expected 2 arguments but got 1"):
        make_fx(lambda x, y: x * y)(X)
    with pytest.raises(NotImplementedError, match="fixed sizes"):
        make_fx(ad.sin, tracing_mode="symbolic")
    with pytest.raises(AssertionError, match="got bad"):
        make_fx(ad.sin, tracing_mode="bad")
