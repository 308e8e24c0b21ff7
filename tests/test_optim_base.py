"""Optimizer: groups, closures, hooks, state, errors (F96)."""
from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from helpers_nn import plain

import adjoint as ad
from adjoint import nn, optim


def param(*shape: int) -> Any:
    return nn.Parameter(ad.ones(*shape))


@pytest.mark.parametrize(("act", "error", "words"), [
    (lambda p: optim.SGD(p), TypeError, "should be an iterable of Tensors or dicts"),
    (lambda p: optim.SGD([]), ValueError, "optimizer got an empty parameter list"),
    (lambda p: optim.Adafactor([p], lr=-1), ValueError, "Learning rate should be >= 0 but is: -1"),
    (lambda p: optim.Adafactor([p], weight_decay=-1), ValueError,
     "weight_decay should be >= 0 but is: -1"),
    (lambda p: optim.Muon([p], weight_decay=-1), ValueError,
     "weight decay should be >= 0 but is: -1"),
    (lambda p: optim.SGD(ad.ones(2)), TypeError, "but got torch.FloatTensor"),
    (lambda p: optim.SGD([3]), TypeError, "can only optimize Tensors, but one of the params is"),
    (lambda p: optim.SGD([p * 1]), ValueError, "can't optimize a non-leaf Tensor"),
    (lambda p: optim.SGD([p], lr=-1), ValueError, "Invalid learning rate: -1"),
    (lambda p: optim.SGD([p], momentum=-1), ValueError, "Invalid momentum value: -1"),
    (lambda p: optim.SGD([p], weight_decay=-1), ValueError, "Invalid weight_decay value: -1"),
    (lambda p: optim.SGD([p], nesterov=True), ValueError, "requires a momentum and zero dampening"),
    (lambda p: optim.SGD([p], fused=True, foreach=True), RuntimeError, "cannot be `True` together"),
    (lambda p: optim.SGD([{"params": [p]}, {"params": [p]}]), ValueError,
     "appear in more than one parameter group"),
    (lambda p: optim.SGD([{"params": {p}}]), TypeError, "ordered collections"),
    (lambda p: optim.SGD([("a", p), p]), ValueError, "Some param names are missing"),
    (lambda p: optim.SGD([p]).add_param_group(3), TypeError, "param_group must be a dict"),
    (lambda p: optim.Adam([p], betas=(1, 0.5)), ValueError, "Invalid beta parameter at index 0: 1"),
    (lambda p: optim.Adam([p], betas=(0.5, 2)), ValueError, "Invalid beta parameter at index 1: 2"),
    (lambda p: optim.Adam([p], eps=-1), ValueError, "Invalid epsilon value: -1"),
    (lambda p: optim.Adagrad([p], lr_decay=-1), ValueError, "Invalid lr_decay value: -1"),
    (lambda p: optim.Adadelta([p], rho=2), ValueError, "Invalid rho value: 2"),
    (lambda p: optim.RMSprop([p], alpha=-1), ValueError, "Invalid alpha value: -1"),
    (lambda p: optim.Rprop([p], etas=(1, 2)), ValueError, "Invalid eta values: 1, 2"),
    (lambda p: optim.NAdam([p], momentum_decay=-1), ValueError, "Invalid momentum_decay value: -1"),
    (lambda p: optim.Muon([param(2)]), ValueError,
     r"Muon only supports 2D parameters .* a parameter with size: adjoint.Size\(\[2\]\)"),
    (lambda p: optim.Adafactor([p], d=0.5), ValueError, "Clipping threshold d should be >= 1"),
])
def test_errors_begin_with_torch_s_words(act: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        act(param(2, 2))


def test_groups_override_defaults_and_repr_is_torch_s() -> None:
    torch = pytest.importorskip("torch")

    def make(lib: Any) -> Any:
        ps = [lib.nn.Parameter(lib.ones(1)) for _ in range(3)]
        opt = lib.optim.Adam([{"params": ps[0]}, {"params": [ps[1]], "lr": 3.0}], lr=0.5)
        opt.add_param_group({"params": [ps[2]], "betas": (0.1, 0.2), "mine": "kept"})
        return opt

    ours, peer = make(ad), make(torch)
    assert plain(repr(ours)) == plain(repr(peer))
    assert ([g["lr"] for g in ours.param_groups] == [0.5, 3.0, 0.5]
            and ours.param_groups[2]["mine"] == "kept")
    groups = [{k: v for k, v in g.items() if k != "params"} for g in peer.param_groups]
    assert [{k: v for k, v in g.items() if k != "params"} for g in ours.param_groups] == groups
    assert ours.state_dict()["param_groups"] == peer.state_dict()["param_groups"]


def test_named_parameters_are_kept() -> None:
    m = nn.Linear(2, 1)
    opt = optim.SGD(m.named_parameters())
    assert opt.param_groups[0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="with/without names"):
        opt.add_param_group({"params": [param(1)]})


def test_closure_runs_with_gradients_and_its_loss_is_returned() -> None:
    w = param(2)
    opt = optim.SGD([w], lr=0.5)

    def closure() -> Any:
        opt.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with ad.no_grad():
        assert opt.step(closure).item() == 2.0
    assert w.tolist() == [0.0, 0.0]


def test_parameters_without_gradient_are_left_alone() -> None:
    a, b = param(1), param(1)
    opt = optim.Adam([a, b])
    a.grad = ad.ones(1)
    opt.step()
    assert b.item() == 1.0 and b not in opt.state and len(opt.state) == 1


def test_a_gradient_that_does_not_fit_stops_the_step_before_anything_changes() -> None:
    a, b = param(2), param(2)
    opt = optim.SGD([a, b], lr=0.1)
    a.grad = ad.ones(2)
    b._grad = ad.ones(3)  # past the check of the setter
    with pytest.raises(ValueError, match=r"shape \(2,\) has a gradient of shape \(3,\)"):
        opt.step()
    assert a.tolist() == [1.0, 1.0]


def test_zero_grad_both_ways() -> None:
    w = param(2)
    opt = optim.SGD([w])
    w.grad = ad.ones(2)
    opt.zero_grad(set_to_none=False)
    assert w.grad.tolist() == [0.0, 0.0]
    opt.zero_grad()
    assert w.grad is None


def test_step_hooks_run_in_order_and_may_replace_arguments() -> None:
    log: list[str] = []
    w = param(1)
    opt = optim.SGD([w])
    handles = [opt.register_step_pre_hook(lambda o, a, k: log.append("pre")),
               opt.register_step_post_hook(lambda o, a, k: log.append("post")),
               optim.optimizer.register_optimizer_step_pre_hook(
                   lambda o, a, k: log.append("global pre")),
               optim.optimizer.register_optimizer_step_post_hook(
                   lambda o, a, k: log.append("global post"))]
    opt.register_step_pre_hook(lambda o, a, k: ((lambda: log.append("closure"),), k))
    opt.step()
    assert log == ["global pre", "pre", "closure", "post", "global post"]
    for handle in handles:
        handle.remove()
    opt.step()
    assert log[5:] == ["closure"]
    opt.register_step_pre_hook(lambda o, a, k: 3)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        opt.step()


def test_hooks_also_wrap_a_user_s_step() -> None:
    log: list[str] = []

    class Mine(optim.Optimizer):
        def step(self, closure: Any = None) -> None:
            log.append("step")

    opt = Mine([param(1)], {"lr": 1.0})
    opt.register_step_post_hook(lambda o, a, k: log.append("post"))
    opt.step()
    assert log == ["step", "post"]
    log.clear()
    opt.step = optim.Optimizer.profile_hook_step(lambda self: log.append("other"))
    opt.step(opt)
    assert log == ["other", "post"]


def test_state_dict_hooks() -> None:
    opt = optim.SGD([param(1)], lr=0.5)
    log: list[str] = []
    opt.register_state_dict_pre_hook(lambda o: log.append("b"))
    opt.register_state_dict_pre_hook(lambda o: log.append("a"), prepend=True)
    opt.register_state_dict_post_hook(lambda o, sd: {**sd, "more": 1})
    state = opt.state_dict()
    assert log == ["a", "b"] and state["more"] == 1
    opt.register_load_state_dict_pre_hook(
        lambda o, sd: {**sd, "param_groups": [{**sd["param_groups"][0], "lr": 0.25}]})
    opt.register_load_state_dict_post_hook(lambda o: log.append("loaded"))
    opt.load_state_dict(state)
    assert opt.param_groups[0]["lr"] == 0.25 and log[-1] == "loaded"


def test_load_state_dict_checks_first_and_shares_what_fits() -> None:
    w = param(2)
    opt = optim.Adam([w])
    w.grad = ad.ones(2)
    opt.step()
    state = opt.state_dict()
    other = optim.Adam([param(2)], lr=7.0)
    bad = copy.deepcopy(state)
    bad["param_groups"][0]["params"] = [0, 1]
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        other.load_state_dict(bad)
    bad["param_groups"] = []
    with pytest.raises(ValueError, match="different number of parameter groups"):
        other.load_state_dict(bad)
    assert other.param_groups[0]["lr"] == 7.0 and not other.state
    other.load_state_dict(state)
    p = other.param_groups[0]["params"][0]
    assert other.param_groups[0]["lr"] == 1e-3
    assert other.state[p]["exp_avg"] is opt.state[w]["exp_avg"]         # as in PyTorch
    assert other.state[p] is not opt.state[w]
    half = optim.Adam([nn.Parameter(ad.ones(2, dtype=ad.float64))])
    half.load_state_dict(state)
    loaded = half.state[half.param_groups[0]["params"][0]]
    assert loaded["exp_avg"].dtype == ad.float64 and loaded["step"].dtype == ad.float32


@pytest.mark.parametrize("name", ["ASGD", "NAdam", "LBFGS", "RAdam", "Adam", "Rprop"])
def test_complex_parameters_go_on_from_a_loaded_state(name: str) -> None:
    """What state of a complex parameter is real (counts, step sizes, flat vectors) stays so."""
    values = [[0.5 + 1j, -1 + 0.2j], [2 - 1j, 0.1j]]

    def train(resume: bool) -> list[Any]:
        w = nn.Parameter(ad.tensor(values, dtype=ad.complex128))
        opt = getattr(optim, name)([w])

        def closure() -> Any:
            opt.zero_grad()
            loss = ((w * w.conj()).real - 0.3).square().sum()
            loss.backward()
            return loss

        for i in range(6):
            opt.step(closure)
            if resume and i == 2:
                saved = opt.state_dict()
                opt = getattr(optim, name)([w])
                opt.load_state_dict(saved)
        kept: list[Any] = w.tolist()
        return kept

    assert train(True) == train(False) != values


def test_loaded_state_of_a_floating_parameter_takes_its_dtype() -> None:
    w = nn.Parameter(ad.ones(2, dtype=ad.float64))
    opt = optim.SGD([w], lr=0.1, momentum=0.9)
    w.grad = ad.ones(2, dtype=ad.float64)
    opt.step()
    saved = opt.state_dict()
    saved["state"][0].update(count=ad.tensor([3]), step=ad.tensor(3))
    opt.load_state_dict(saved)
    assert opt.state[w]["count"].dtype == ad.float64 and opt.state[w]["step"].dtype == ad.int64


def test_fused_takes_floating_parameters_only() -> None:
    w = nn.Parameter(ad.ones(2, dtype=ad.complex64))
    w.grad = ad.ones(2, dtype=ad.complex64)
    with pytest.raises(RuntimeError, match="^`fused=True` requires all the params to be floating"):
        optim.Adam([w], fused=True).step()


def test_pickle_and_deepcopy() -> None:
    w = param(2)
    opt = optim.AdamW([w])
    w.grad = ad.ones(2)
    opt.step()
    for made in (pickle.loads(pickle.dumps(opt)), copy.deepcopy(opt)):
        p = made.param_groups[0]["params"][0]
        p.grad = ad.ones(2)
        made.step()
        assert made.state[p]["step"].item() == 2.0
    assert opt.state[w]["step"].item() == 1.0


def test_tensor_settings_are_read_at_each_step() -> None:
    w = param(1)
    lr = ad.tensor(0.5)
    opt = optim.SGD([w], lr=lr)
    w.grad = ad.ones(1)
    opt.step()
    lr.fill_(0.25)
    opt.step()
    assert w.item() == 0.25


def test_all_torch_optimizers_are_here() -> None:
    torch = pytest.importorskip("torch")
    names = {n for n in dir(torch.optim) if isinstance(getattr(torch.optim, n), type)}
    assert names <= set(dir(optim))
    schedulers = {n for n in torch.optim.lr_scheduler.__all__}
    assert schedulers <= set(optim.lr_scheduler.__all__)
    from inspect import signature
    for name in sorted(names):
        ours, peer = (signature(getattr(lib, name)).parameters for lib in (optim, torch.optim))
        assert [(p.name, p.kind, p.default) for p in ours.values()] == [
            (p.name, p.kind, p.default) for p in peer.values()], name
    for name in sorted(schedulers):
        ours, peer = (signature(getattr(lib.lr_scheduler, name)).parameters
                      for lib in (optim, torch.optim))
        assert [(p.name, p.kind, p.default) for p in ours.values()] == [
            (p.name, p.kind, p.default) for p in peer.values()], name


def test_an_optimizer_that_wraps_another_may_patch_its_step() -> None:
    class Wrapping(ad.optim.Optimizer):
        def __init__(self, inner: ad.optim.Optimizer) -> None:
            self.inner, self.defaults, self.state = inner, inner.defaults, inner.state
            self.param_groups = inner.param_groups
            self._patch_step_function()

        def step(self, closure: Any = None) -> Any:
            return self.inner.step(closure)

    w = ad.nn.Parameter(ad.ones(2))
    w.grad = ad.ones(2)
    Wrapping(ad.optim.SGD([w], lr=0.5)).step()
    assert w.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("name", ["Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RMSprop"])
def test_capturable_is_refused_by_the_step(name: str) -> None:
    """As on any CPU: before the first gradient it is only a setting."""
    w = ad.nn.Parameter(ad.ones(2))
    opt = getattr(optim, name)([w], capturable=True)
    opt.step()
    w.grad = ad.ones(2)
    with pytest.raises(AssertionError, match="must be on supported devices.*capturable=False"):
        opt.step()
    assert w.tolist() == [1.0, 1.0]


def test_a_loaded_state_brings_its_names_and_none_keeps_the_own() -> None:
    """F96."""
    saved = optim.SGD([("a", param(2)), ("b", param(2))]).state_dict()
    mine = optim.SGD([("x", param(2)), ("y", param(2))])
    mine.load_state_dict(saved)
    assert mine.param_groups[0]["param_names"] == ["a", "b"]
    mine.load_state_dict(optim.SGD([param(2), param(2)]).state_dict())
    assert mine.param_groups[0]["param_names"] == ["a", "b"]


def test_tables_of_hooks_are_empty_before_the_first_hook() -> None:
    """F96: programs count and walk them."""
    first, second = optim.SGD([param(2)]), optim.SGD([param(2)])
    assert len(first._optimizer_step_pre_hooks) == 0 == len(first._optimizer_state_dict_pre_hooks)
    handle = first.register_step_pre_hook(lambda *args: None)
    assert len(first._optimizer_step_pre_hooks) == 1
    assert len(second._optimizer_step_pre_hooks) == 0
    handle.remove()
    assert len(first._optimizer_step_pre_hooks) == 0


@pytest.mark.parametrize(("make", "error", "words"), [
    (lambda p: optim.Adam([p], differentiable=True, foreach=True), AssertionError,
     "_foreach ops don't support autograd"),
    (lambda p: optim.Adam([p], capturable=True), AssertionError, r"'privateuseone', 'xla'\]"),
    (lambda p: optim.Adam([p], capturable=True, foreach=True), AssertionError,
     r"'privateuseone'\]"),
])
def test_modes_that_a_step_refuses(make: Any, error: type, words: str) -> None:
    """F96: before anything changes."""
    p = param(2)
    p.grad = ad.ones(2)
    opt = make(p)
    with pytest.raises(error, match=words):
        opt.step()
    assert p.tolist() == [1.0, 1.0] and not opt.state


def test_adafactor_leaves_empty_parameters_alone() -> None:
    """F96: no mean of nothing, no warning about it."""
    empty, full = param(0, 3), param(2, 2)
    empty.grad, full.grad = ad.ones(0, 3), ad.ones(2, 2)
    optim.Adafactor([empty, full]).step()
    assert empty.shape == (0, 3) and (full < 1).all()


@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
def test_fused_steps_refuse_sparse_gradients(name: str) -> None:
    w = param(3)
    opt = getattr(optim, name)([w], lr=0.1, fused=True)
    w.grad = ad.eye(3)[0].to_sparse()
    before = w.tolist()
    with pytest.raises(RuntimeError, match="does not support sparse grad"):
        opt.step()
    assert w.tolist() == before
