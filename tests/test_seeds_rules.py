"""The gradients to know cold, each against its closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers_engine import const, exact, leaf, near, randoms, saved_by, values

import adjoint as ad

F = ad.nn.functional
grad = ad.autograd.grad


def softmax(z: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def vjp(function: Any, data: np.ndarray, g: np.ndarray) -> Any:
    x = leaf(data)
    return grad(function(x), x, const(g))[0]


def test_matmul() -> None:
    """F31: dW = XT G, dX = G WT."""
    x, w, g = leaf(randoms(5, 3)), leaf(randoms(3, 4, seed=1)), randoms(5, 4, seed=2)
    gx, gw = grad(x @ w, [x, w], const(g))
    near(gw, values(x).T @ g)
    near(gx, g @ values(w).T)


def test_linear() -> None:
    """F32: dx = WT g, dW = g xT, db = g, for one sample and for a batch."""
    w, b, x = leaf(randoms(4, 3)), leaf(randoms(4, seed=1)), leaf(randoms(3, seed=2))
    g = randoms(4, seed=3)
    gw, gb, gx = grad(F.linear(x, w, b), [w, b, x], const(g))
    near(gx, values(w).T @ g)
    near(gw, np.outer(g, values(x)))
    exact(gb, g)
    xs, gs = leaf(randoms(7, 3, seed=4)), randoms(7, 4, seed=5)
    gw, gb, gx = grad(F.linear(xs, w, b), [w, b, xs], const(gs))
    near(gx, gs @ values(w))
    near(gw, gs.T @ values(xs))
    near(gb, gs.sum(0))


def test_relu() -> None:
    """F33: g where x > 0; exactly 0 at and below 0."""
    exact(vjp(ad.relu, np.array([-1.0, 0.0, 2.0]), np.array([5.0, 6.0, 7.0])), [0.0, 0.0, 7.0])


def test_dead_relu_does_not_recover() -> None:
    """F33: a unit with a large negative bias gets no gradient at all, so no step moves it."""
    w, b = leaf([0.5]), leaf([-100.0])
    for _ in range(3):
        w.grad = b.grad = None
        ((w * const([1.0]) + b).relu() - 1.0).pow(2).sum().backward()
        exact(w.grad, [0.0])
        exact(b.grad, [0.0])


def test_sigmoid() -> None:
    """F34: y (1 - y), from the output alone; saturates for large |x|."""
    data, g = randoms(6), randoms(6, seed=1)
    y = 1 / (1 + np.exp(-data))
    near(vjp(ad.sigmoid, data, g), g * y * (1 - y))
    _, kept = saved_by(lambda: ad.sigmoid(leaf(data)))
    assert len(kept) == 1
    np.testing.assert_allclose(kept[0], y, rtol=1e-15)
    assert vjp(ad.sigmoid, np.array([40.0, -40.0]), np.ones(2)).abs().max().item() < 1e-15


def test_tanh() -> None:
    """F28: t' = 1 - t**2."""
    data, g = randoms(6), randoms(6, seed=1)
    near(vjp(ad.tanh, data, g), g * (1 - np.tanh(data) ** 2))


def test_softmax() -> None:
    """F35: Y (G - <G, Y>) along the axis."""
    data, g = randoms(3, 5), randoms(3, 5, seed=1)
    y = softmax(data)
    near(vjp(lambda x: ad.softmax(x, dim=1), data, g), y * (g - (g * y).sum(1, keepdims=True)))


def test_softmax_jacobian() -> None:
    """F13, F35: J = diag(y) - y yT."""
    x = leaf(randoms(4))
    y = ad.softmax(x, dim=0)
    jacobian = ad.stack([grad(y[i], x, retain_graph=True)[0] for i in range(4)])
    y_np = values(y)
    near(jacobian, np.diag(y_np) - np.outer(y_np, y_np))


def test_sum_of_softmax_has_zero_gradient() -> None:
    """F35, F108: its outputs always sum to 1. Table 1i: `softmax(x)` needs `dim`."""
    x = leaf(randoms(5))
    ad.softmax(x, dim=0).sum().backward()
    near(x.grad, np.zeros(5), atol=1e-16)
    with pytest.raises(TypeError):
        ad.softmax(x)


def test_cross_entropy() -> None:
    """F36: dL/dz = y - t."""
    z, target = leaf(randoms(5, 4)), np.array([0, 3, 1, 1, 2])
    onehot = np.eye(4)[target]
    F.cross_entropy(z, ad.tensor(target), reduction="sum").backward()
    near(z.grad, softmax(values(z)) - onehot)
    z.grad = None
    F.cross_entropy(z, ad.tensor(target)).backward()
    near(z.grad, (softmax(values(z)) - onehot) / 5)


def test_cross_entropy_equals_its_parts() -> None:
    """F36, F108: log_softmax + nll, and softmax + log + pick: the same number and gradient."""
    z, target = leaf(randoms(5, 4)), ad.tensor([0, 3, 1, 1, 2])
    fused = F.cross_entropy(z, target)
    parts = F.nll_loss(F.log_softmax(z, dim=1), target)
    slow = -ad.softmax(z, dim=1).log()[ad.arange(5), target].mean()
    (want,) = grad(fused, z)
    for other in (parts, slow):
        near(other, fused.item())
        near(grad(other, z)[0], values(want))


def test_cross_entropy_of_extreme_logits() -> None:
    """F36, F40, F102: finite where exp of the logits is not."""
    z = leaf([[1000.0, 0.0], [-1000.0, 0.0]])
    F.cross_entropy(z, ad.tensor([0, 0]), reduction="sum").backward()
    exact(z.grad, [[0.0, 0.0], [-1.0, 1.0]])


def test_mul() -> None:
    """F37: each operand's gradient is the other operand."""
    a, b = leaf(randoms(3)), leaf(randoms(3, seed=1))
    ga, gb = grad((a * b).sum(), [a, b])
    exact(ga, values(b))
    exact(gb, values(a))


def test_add() -> None:
    """F38: passes through, saves nothing, sums over broadcast axes."""
    a, b = leaf(randoms(2, 3)), leaf(randoms(3, seed=1))
    out, kept = saved_by(lambda: a + b)
    assert kept == []
    g = randoms(2, 3, seed=2)
    ga, gb = grad(out, [a, b], const(g))
    exact(ga, g)
    near(gb, g.sum(0))


def test_layer_norm() -> None:
    """F39: against the closed form with the saved mean and reciprocal deviation."""
    x, w, b = leaf(randoms(4, 6)), leaf(randoms(6, seed=1)), leaf(randoms(6, seed=2))
    g, eps = randoms(4, 6, seed=3), 1e-5
    gx, gw, gb = grad(F.layer_norm(x, (6,), w, b, eps), [x, w, b], const(g))
    x_np = values(x)
    rstd = 1 / np.sqrt(x_np.var(-1, keepdims=True) + eps)
    hat = (x_np - x_np.mean(-1, keepdims=True)) * rstd
    gh = g * values(w)
    near(gb, g.sum(0))
    near(gw, (g * hat).sum(0))
    near(
        gx,
        rstd * (gh - gh.mean(-1, keepdims=True) - hat * (gh * hat).mean(-1, keepdims=True)),
        rtol=1e-10,
    )


@pytest.mark.parametrize("shift", [0.0, 88.0, 1000.0, -1000.0])
def test_logsumexp(shift: float) -> None:
    """F40, F102: softmax(x) g, safe beyond 88."""
    data, g = randoms(3, 5) + shift, randoms(3, seed=1)
    x = leaf(data)
    out = ad.logsumexp(x, dim=1)
    top = data.max(1, keepdims=True)
    near(out, np.log(np.exp(data - top).sum(1)) + top[:, 0])
    near(grad(out, x, const(g))[0], softmax(data) * g[:, None])


def test_exp_overflows_above_88() -> None:
    """F102: exp(88.7) = 3.3e38 and exp(88.8) = inf in float32."""
    out = ad.tensor([88.7, 88.8]).exp()
    assert 3.2e38 < out[0].item() < 3.4e38
    assert out[1].item() == float("inf")


def test_also_used_in_the_documents() -> None:
    """F41: every function that the documents' code calls, on one tensor, against differences."""
    data = np.abs(randoms(3, 4)) + 0.2
    functions: dict[str, Any] = {
        "relu": lambda x: x.relu(),
        "sum": lambda x: x.sum(dim=1),
        "mean": lambda x: x.mean(dim=0),
        "max values": lambda x: x.max(dim=1, keepdim=True).values,
        "exp": lambda x: x.exp(),
        "log": lambda x: x.log(),
        "squeeze": lambda x: x.unsqueeze(1).squeeze(1),
        "div": lambda x: x.div(3.0),
        "pow": lambda x: x.pow(2),
        "gelu": lambda x: F.gelu(x),
        "tanh": lambda x: x.tanh(),
        "sin": lambda x: x.sin(),
        "transpose": lambda x: x.transpose(0, 1),
        "split": lambda x: ad.cat(x.split(2, dim=1)[::-1], dim=1),
        "heads": lambda x: x.reshape(3, 2, 2).transpose(0, 1),
        "attention": lambda x: ad.softmax(x @ x.t() / 2.0, dim=-1) @ x,
        "norm": lambda x: x.norm(),
        "sqrt": lambda x: x.sqrt(),
        "clone": lambda x: x.clone(),
        "mul": lambda x: x.mul(x),
    }
    for name, function in functions.items():
        assert ad.autograd.gradcheck(function, (leaf(data),)), name


def test_not_differentiable_helpers() -> None:
    """F41: round, isnan().any(), unique, randn/randint/ones/zeros."""
    assert ad.tensor([1.4, 1.6]).round().tolist() == [1.0, 2.0]
    assert ad.isnan(ad.tensor([1.0, float("nan")])).any().item() is True
    assert not ad.isnan(ad.ones(3)).any()
    assert ad.tensor([2.0, 1.0, 2.0]).unique().tolist() == [1.0, 2.0]
    assert ad.randint(0, 10, (4, 5)).shape == (4, 5)
    assert ad.randn(2, 3).dtype == ad.float32
    assert ad.zeros(2).sum().item() == 0.0 and ad.ones(2).sum().item() == 2.0


def test_dropout() -> None:
    """F41: backward uses the mask of the forward; kept values are scaled by 1/(1-p)."""
    ad.manual_seed(0)
    x = leaf(np.ones(1000))
    y = F.dropout(x, 0.25)
    y.sum().backward()
    exact(x.grad, values(y))
    assert set(np.unique(values(y)).round(12)) == {0.0, round(1 / 0.75, 12)}
    exact(F.dropout(x, 0.25, training=False), np.ones(1000))


def test_embedding() -> None:
    """F41: rows that were looked up twice get twice the gradient."""
    table = leaf(randoms(5, 3))
    F.embedding(ad.tensor([[1, 1], [4, 0]]), table).sum().backward()
    exact(table.grad, np.array([1, 2, 0, 0, 1])[:, None] * np.ones(3))


def test_scaled_dot_product_attention() -> None:
    """F41, F83: softmax(Q KT / sqrt(d)) V."""
    q, k, v = (leaf(randoms(2, 3, 4, 5, seed=s)) for s in range(3))
    got = grad(F.scaled_dot_product_attention(q, k, v).sum(), [q, k, v])
    weights = ad.softmax(q @ k.transpose(-2, -1) / 5**0.5, dim=-1)
    want = grad((weights @ v).sum(), [q, k, v])
    for g, w in zip(got, want, strict=True):
        near(g, values(w), rtol=1e-9, atol=1e-12)


class TestModules:
    def test_pieces_of_the_documents(self) -> None:
        """F42: the modules that the documents build with."""
        nn = ad.nn
        model = nn.Sequential(
            nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)
        )
        names = [name for name, _ in model.named_parameters()]
        assert names == ["0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"]
        assert all(p.requires_grad for p in model.parameters())
        loss = nn.MSELoss()(model(ad.randn(3, 4)), ad.zeros(3, 2))
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
        model.zero_grad()
        assert all(p.grad is None for p in model.parameters())
        assert model.eval().training is False and model.train().training is True

    def test_multihead_attention(self) -> None:
        """F42: batch_first self-attention returns (output, weights)."""
        attention = ad.nn.MultiheadAttention(8, 2, batch_first=True)
        x = ad.randn(3, 5, 8, requires_grad=True)
        out, weights = attention(x, x, x)
        assert out.shape == (3, 5, 8) and weights.shape == (3, 5, 5)
        near(weights.sum(-1), np.ones((3, 5)), rtol=1e-6)
        out.sum().backward()
        assert attention.in_proj_weight.grad is not None

    def test_module_list_and_embedding(self) -> None:
        """F42."""
        nn = ad.nn

        class Stack(nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(50, 6)
                self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])

            def forward(self, tokens: Any) -> Any:
                x = self.embedding(tokens)
                for layer in self.layers:
                    x = layer(x).relu()
                return x

        model = Stack()
        assert sum(p.numel() for p in model.parameters()) == 50 * 6 + 3 * (36 + 6)
        assert model(ad.randint(0, 50, (2, 4))).shape == (2, 4, 6)

    def test_sgd_and_adamw(self) -> None:
        """F42: zero_grad, backward, step lowers the loss."""
        for make in (
            lambda p: ad.optim.SGD(p, lr=0.1),
            lambda p: ad.optim.AdamW(p, lr=0.1),
        ):
            ad.manual_seed(0)
            model = ad.nn.Linear(3, 1)
            optimizer = make(model.parameters())
            x, y = ad.randn(16, 3), ad.randn(16, 1)
            losses = []
            for _ in range(20):
                optimizer.zero_grad()
                loss = ((model(x) - y) ** 2).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            assert losses[-1] < losses[0]
