"""Every optimizer beside PyTorch: same weights, gradients and settings give the same weights,
state and repr (F96, F128)."""
from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from helpers_nn import close, plain

import adjoint as ad
from adjoint import optim

CASES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "maximize": True,
             "weight_decay": 0.2}),
    ("Adam", {}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("Adam", {"maximize": True, "betas": (0.3, 0.6)}),
    ("Adam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("AdamW", {}), ("AdamW", {"amsgrad": True, "weight_decay": 0.3}),
    ("Adamax", {}), ("Adamax", {"weight_decay": 0.1, "maximize": True}),
    ("NAdam", {}), ("NAdam", {"weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {}), ("RAdam", {"betas": (0.9, 0.9), "weight_decay": 0.1}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("Adagrad", {}), ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1,
                                  "initial_accumulator_value": 0.5, "maximize": True}),
    ("Adadelta", {}), ("Adadelta", {"weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {}), ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("RMSprop", {"centered": True, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {}), ("Rprop", {"maximize": True, "etas": (0.3, 1.5), "step_sizes": (1e-3, 1)}),
    ("ASGD", {"t0": 3}), ("ASGD", {"weight_decay": 0.1, "lambd": 0.1, "maximize": True}),
    ("Adafactor", {}),
    ("Adafactor", {"weight_decay": 0.1, "maximize": True, "d": 1.5, "eps": (1e-3, 1e-2)}),
    ("Muon", {}), ("Muon", {"adjust_lr_fn": "match_rms_adamw", "nesterov": False}),
]
# float32 differs by the order of two roundings; Muon computes its direction in bfloat16.
TOLERANCE = {"float64": 1e-13, "complex128": 1e-13, "float32": 2e-6}


def start(torch: Any, name: str, dtype: str, kwargs: dict[str, Any]
          ) -> tuple[Any, Any, list[Any], list[Any], Any]:
    """Both optimizers over equal parameters, and a function that draws gradients."""
    rng = np.random.default_rng(0)
    shapes = [(4, 3)] if name == "Muon" else [(4, 3), (5,), (), (300, 120)]

    def draw() -> list[np.ndarray]:
        out = [rng.standard_normal(s) for s in shapes]
        if dtype.startswith("complex"):
            out = [a + 1j * rng.standard_normal(a.shape) for a in out]
        return [np.asarray(a).astype(dtype) for a in out]

    weights = draw()
    p = [torch.nn.Parameter(torch.tensor(w)) for w in weights]
    q = [ad.nn.Parameter(ad.tensor(w)) for w in weights]
    return getattr(torch.optim, name)(p, **kwargs), getattr(optim, name)(q, **kwargs), p, q, draw


@pytest.mark.parametrize(("name", "kwargs"), CASES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_updates_equal_torch(name: str, kwargs: dict[str, Any], dtype: str) -> None:
    torch = pytest.importorskip("torch")
    if dtype == "complex128" and name in ("Adafactor", "Muon"):
        with pytest.raises((NotImplementedError, RuntimeError)):
            peer, ours, _, q, draw = start(torch, name, dtype, kwargs)
            for w, g in zip(q, draw(), strict=True):
                w.grad = ad.tensor(g)
            ours.step()
        return
    peer, ours, p, q, draw = start(torch, name, dtype, kwargs)
    assert plain(repr(ours)) == plain(repr(peer))
    for _ in range(8):
        for w, v, g in zip(p, q, draw(), strict=True):
            w.grad, v.grad = torch.tensor(g), ad.tensor(g)
        assert ours.step() is None
        peer.step()
    tol = 1e-4 if name == "Muon" else TOLERANCE[dtype]
    for w, v in zip(p, q, strict=True):
        close(v, w, tol)
        assert list(ours.state[v]) == list(peer.state[w])
        for key, value in peer.state[w].items():
            close(ours.state[v][key], value, max(tol, 1e-6) if value.ndim == 0 else tol)


@pytest.mark.parametrize(("name", "kwargs"), CASES)
def test_state_dict_moves_to_and_from_torch_in_the_middle(name: str, kwargs: dict[str, Any]
                                                          ) -> None:
    torch = pytest.importorskip("torch")
    peer, ours, p, q, draw = start(torch, name, "float64", kwargs)

    def step(opt: Any, params: list[Any], make: Any, grads: list[np.ndarray]) -> None:
        for w, g in zip(params, grads, strict=True):
            w.grad = make(g)
        opt.step()

    for _ in range(3):
        grads = draw()
        step(peer, p, torch.tensor, grads)
        step(ours, q, ad.tensor, grads)
    state = peer.state_dict()
    moved = {"param_groups": state["param_groups"], "state": {
        i: {k: ad.tensor(v.numpy()) if isinstance(v, torch.Tensor) else v for k, v in s.items()}
        for i, s in state["state"].items()}}
    fresh, again = type(ours)(q, **kwargs), type(peer)(p, **kwargs)
    fresh.load_state_dict(moved)
    again.load_state_dict(state)  # casts the 0-d state of ASGD and NAdam, as ours does
    for _ in range(3):
        grads = draw()
        step(again, p, torch.tensor, grads)
        step(fresh, q, ad.tensor, grads)
    for w, v in zip(p, q, strict=True):
        close(v, w, 1e-4 if name == "Muon" else 1e-12)


@pytest.mark.parametrize(("name", "kwargs"), CASES)
def test_strided_parameters_are_updated_as_contiguous_ones(name: str, kwargs: dict[str, Any]
                                                           ) -> None:
    rng = np.random.default_rng(1)
    for shape in ((40, 60), (2, 70000)) if name != "Muon" else ((40, 60),):
        w, g = rng.standard_normal(shape), rng.standard_normal(shape)
        plain_p = ad.nn.Parameter(ad.tensor(w))
        wide = np.zeros((shape[0], 2 * shape[1]))
        wide[:, ::2] = w
        strided_p = ad.nn.Parameter(ad.from_numpy(wide)[:, ::2])
        turned = ad.nn.Parameter(ad.from_numpy(np.ascontiguousarray(w.T)).t())
        params = (plain_p, strided_p, turned)
        opts = [getattr(optim, name)([p], **kwargs) for p in params]
        for _ in range(2):
            for p, o in zip(params, opts, strict=True):
                p.grad = ad.tensor(g)
                o.step()
        for p in params[1:]:
            np.testing.assert_allclose(p.array, plain_p.array, rtol=1e-12, atol=1e-14)
        assert (wide[:, 1::2] == 0).all()


@pytest.mark.parametrize(("name", "kwargs"), CASES)
def test_a_step_runs_on_storage_less_tensors(name: str, kwargs: dict[str, Any]) -> None:
    p = ad.nn.Parameter(ad.empty(40, 30, device="meta"))
    p.grad = ad.empty(40, 30, device="meta")
    opt = getattr(optim, name)([p], **kwargs)
    opt.step()
    for key, value in opt.state[p].items():
        if key not in ("step", "mu_product", "eta", "mu"):
            assert value.device.type == "meta", key


def test_versions_notice_a_step_between_forward_and_backward() -> None:
    w = ad.nn.Parameter(ad.ones(3))
    opt = optim.SGD([w], lr=0.1)
    loss = (w * w).sum()
    w.grad = ad.ones(3)
    opt.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


ROSENBROCK = [{"lr": 0.1}, {"line_search_fn": "strong_wolfe"},
              {"lr": 0.05, "history_size": 3, "max_iter": 7},
              {"line_search_fn": "strong_wolfe", "history_size": 2, "max_iter": 5},
              *({"line_search_fn": "strong_wolfe", "lr": lr, "max_iter": n, "max_eval": evaluations}
                for lr in (0.001, 0.1, 30.0) for n, evaluations in ((1, None), (3, 4), (3, 8)))]


@pytest.mark.parametrize("kwargs", ROSENBROCK)
def test_lbfgs_equals_torch(kwargs: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    x = np.array([-1.2, 1.0, 0.5, -0.3])
    p, q = torch.nn.Parameter(torch.tensor(x)), ad.nn.Parameter(ad.tensor(x))
    peer, ours = torch.optim.LBFGS([p], **kwargs), optim.LBFGS([q], **kwargs)

    def closure(opt: Any, w: Any) -> Any:
        def run() -> Any:
            opt.zero_grad()
            loss = (100 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2).sum()
            loss.backward()
            return loss
        return run

    for i in range(6):
        a, b = peer.step(closure(peer, p)), ours.step(closure(ours, q))
        assert b.item() == pytest.approx(a.item(), rel=1e-10)
        close(q, p, 1e-10)
        for key in ("func_evals", "n_iter"):
            assert ours.state[q][key] == peer.state[p][key], key
        if i == 2:  # goes on from saved state
            state = copy.deepcopy(ours.state_dict())
            ours = optim.LBFGS([q], **kwargs)
            ours.load_state_dict(state)


def test_lbfgs_needs_a_closure_and_one_group() -> None:
    p = ad.nn.Parameter(ad.ones(1))
    with pytest.raises(RuntimeError, match="closure"):
        optim.LBFGS([p]).step()
    with pytest.raises(ValueError, match="per-parameter options"):
        optim.LBFGS([{"params": [p]}, {"params": [ad.nn.Parameter(ad.ones(1))]}])
    with pytest.raises(RuntimeError, match="strong_wolfe"):
        optim.LBFGS([p], line_search_fn="golden")


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_mixed_dtypes_and_strides_in_one_group(name: str, rng: np.random.Generator) -> None:
    kwargs = {"momentum": 0.9} if name == "SGD" else {}
    arrays = [rng.standard_normal((3, 4)).astype(d) for d in ("float32", "float64", "float32")]
    together = [nn_parameter(a, i == 2) for i, a in enumerate(arrays)]
    alone = [nn_parameter(a, i == 2) for i, a in enumerate(arrays)]
    opts = [getattr(optim, name)(together, lr=0.1, **kwargs),
            *(getattr(optim, name)([p], lr=0.1, **kwargs) for p in alone)]
    for _ in range(3):
        for p, q in zip(together, alone, strict=True):
            p.grad = ad.ones(3, 4, dtype=p.dtype)
            q.grad = ad.ones(3, 4, dtype=q.dtype)
        for opt in opts:
            opt.step()
    for p, q in zip(together, alone, strict=True):
        np.testing.assert_array_equal(p.array, q.array)


def nn_parameter(a: np.ndarray, strided: bool) -> Any:
    return ad.nn.Parameter(ad.from_numpy(np.repeat(a, 2, 1))[:, ::2] if strided else ad.tensor(a))


@pytest.mark.row("F128")
@pytest.mark.parametrize(("name", "kwargs", "moments", "steps"), [
    ("SGD", {}, 0, False), ("SGD", {"momentum": 0.9, "weight_decay": 0.1}, 1, False),
    ("Adam", {}, 2, True), ("AdamW", {}, 2, True), ("AdamW", {"amsgrad": True}, 3, True),
    ("RMSprop", {}, 1, True), ("Adagrad", {}, 1, True)])
def test_bytes_of_the_state_stand_in_the_memory_report(name: str, kwargs: dict[str, Any],
                                                       moments: int, steps: bool) -> None:
    """So many times the parameters, and a step count of four bytes for each of them; foretold
    without arrays and measured with them."""
    def program(where: str) -> tuple[Any, list[Any]]:
        with ad.device(where):
            model = ad.nn.Linear(64, 32)
            x = ad.ones(4, 64)
        optimizer = getattr(optim, name)(model.parameters(), lr=1e-3, **kwargs)

        def step() -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return step, [model, optimizer, x]

    count = 64 * 32 + 32
    want = moments * count * 4 + (2 * 4 if steps else 0)
    foretold = ad.memory.predict(program("meta")[0])
    step, roots = program("cpu")
    with ad.memory.track(*roots) as measured:
        step()
    for report in (foretold, measured.report):
        end = {row.what: row.bytes for row in report.rows("role", len(report.events) - 1)}
        assert end.get("optimizer state", 0) == want
        assert end["parameter"] == end["gradient"] == count * 4


def test_the_state_of_lbfgs_has_pytorchs_keys_and_kinds() -> None:
    """So that a checkpoint of one goes on in the other."""
    torch = pytest.importorskip("torch")
    kinds = []
    for t in (torch, ad):
        for steps in (1, 3):
            w = t.nn.Parameter(t.tensor([1.0, 2.0]))
            opt = t.optim.LBFGS([w], lr=0.1, history_size=4, max_iter=steps)

            def closure(t: Any = t, w: Any = w, opt: Any = opt) -> Any:
                opt.zero_grad()
                loss = (w ** 4).sum()
                loss.backward()
                return loss
            for _ in range(2):
                opt.step(closure)
            found = opt.state_dict()["state"][0]
            kinds.append({k: [type(x).__name__ for x in v] if isinstance(v, list)
                          else type(v).__name__ for k, v in found.items() if k != "t"})
    assert kinds[:2] == kinds[2:]


def test_a_step_of_lbfgs_is_a_tensor_where_the_rate_is_one() -> None:
    w = ad.nn.Parameter(ad.tensor([3.0, -1.0]))
    rule = optim.LBFGS([w], lr=ad.tensor(0.5), max_iter=2)

    def closure() -> ad.Tensor:
        rule.zero_grad()
        loss = (w ** 4).sum()
        loss.backward()
        return loss
    rule.step(closure)
    assert isinstance(rule.state[w]["t"], ad.Tensor)
    assert rule.state[w]["t"].item() == pytest.approx(0.5 / 112)         # the rate by sum(abs(g))
    rule.step(closure)
    assert rule.state[w]["n_iter"] == 2
