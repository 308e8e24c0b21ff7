"""Steps with `differentiable=True`: the plain step's numbers, and derivatives through them."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import optim

# optimizer, its settings, the state that its rule updates
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("SGD", {"lr": 0.3}, []),
    ("SGD", {"lr": 0.3, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
     ["momentum_buffer"]),
    ("Adam", {"lr": 0.3, "weight_decay": 0.1}, ["exp_avg", "exp_avg_sq"]),
    ("Adam", {"amsgrad": True, "maximize": True}, ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]),
    ("AdamW", {"lr": 0.3}, ["exp_avg", "exp_avg_sq"]),
    ("Adamax", {"lr": 0.3}, ["exp_avg", "exp_inf"]),
    ("NAdam", {"lr": 0.3}, ["exp_avg", "exp_avg_sq"]),
    ("RAdam", {"lr": 0.3}, ["exp_avg", "exp_avg_sq"]),
    ("Adagrad", {"lr": 0.3}, ["sum"]),
    ("Adadelta", {"lr": 0.3}, ["square_avg", "acc_delta"]),
    ("RMSprop", {"lr": 0.3, "momentum": 0.9}, ["square_avg", "momentum_buffer"]),
    ("Rprop", {"lr": 0.3}, ["prev", "step_size"]),
    ("ASGD", {"lr": 0.3}, ["ax"]),
]
IDS = [f"{name}-{'-'.join(settings)}" for name, settings, _ in CASES]


def draw(seed: int, *shape: int, dtype: Any = ad.float64) -> Any:
    values = np.random.default_rng(seed).uniform(0.2, 0.9, shape)
    return ad.tensor(values, dtype=dtype)


@pytest.mark.parametrize(("name", "settings", "names"), CASES, ids=IDS)
def test_gradcheck_of_a_step(name: str, settings: dict[str, Any], names: list[str]) -> None:
    """Of the new parameter and the new state, by the parameter, the gradient and the state."""
    def step(p: Any, g: Any, *state: Any) -> Any:
        q = p.clone()
        q.grad = g
        opt = getattr(optim, name)([q], differentiable=True, **settings)
        held = dict(zip(names, [s.clone() for s in state], strict=True))
        if name != "SGD":
            held["step"] = ad.tensor(10.0, dtype=ad.float64)
        held |= {"mu_product": ad.tensor(1.0)} if name == "NAdam" else {}
        held |= {"eta": ad.tensor(0.1), "mu": ad.tensor(0.5)} if name == "ASGD" else {}
        opt.state[q].update(held)
        opt.step()
        return (q, *[opt.state[q][n] for n in names if opt.state[q][n].requires_grad])

    operands = [draw(i, 5).requires_grad_() for i in range(2 + len(names))]
    assert ad.autograd.gradcheck(step, operands)


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64, ad.complex128])
@pytest.mark.parametrize(("name", "settings", "names"), CASES, ids=IDS)
def test_a_recorded_step_is_the_plain_one(name: str, settings: dict[str, Any], names: list[str],
                                          dtype: Any) -> None:
    found = []
    for recorded in (False, True):
        p = draw(0, 4, 3, dtype=dtype).requires_grad_()
        q = p.clone() if recorded else p
        opt = getattr(optim, name)([q], differentiable=recorded, **settings)
        for i in range(3):
            q.grad = draw(i + 1, 4, 3, dtype=dtype) - 0.5
            opt.step()
        assert q.requires_grad and (q.grad_fn is not None) == recorded
        found.append([x.detach().numpy() for x in (q, *[opt.state[q][n] for n in names])])
    for plain, kept in zip(*found, strict=True):
        assert plain.dtype == kept.dtype
        np.testing.assert_allclose(kept, plain,
                                   **({"atol": 1e-6} if dtype is ad.float32 else {"rtol": 1e-12}))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_a_learning_rate_is_learned(name: str) -> None:
    """d loss / d lr through three steps, against the difference quotient."""
    def loss(lr: Any) -> Any:
        q = draw(0, 4).requires_grad_().clone()
        opt = getattr(optim, name)([q], lr=lr, differentiable=True)
        for _ in range(3):
            q.grad, = ad.autograd.grad((q.clone()**4).sum(), q, create_graph=True)
            opt.step()
        return (q**2).sum()

    assert ad.autograd.gradcheck(loss, [ad.tensor(0.05, dtype=ad.float64, requires_grad=True)])


def test_a_leaf_is_not_stepped() -> None:
    p = ad.ones(2, requires_grad=True)
    p.grad = ad.ones(2)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        optim.SGD([p], differentiable=True).step()
    assert p.tolist() == [1, 1]
