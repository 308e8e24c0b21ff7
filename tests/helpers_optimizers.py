"""Every optimizer of PyTorch's own table, on its settings, beside PyTorch.

`python tests/helpers_optimizers.py [name ...] [--mode steps]` prints what differs. The settings
come from `torch.testing._internal.common_optimizers.optim_db`, which is inside PyTorch's wheel.
Both libraries start from the same parameters and are given the same gradients.
"""

from __future__ import annotations

import argparse
import copy
import re
import sys
import warnings
from collections import Counter
from typing import Any

import numpy as np
from helpers_opinfo import Verdict
from helpers_opinfo_values import array, convert, differs, is_tensor

STEPS = 10
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "Muon": ((3, 4), (5, 2), (2, 2)), "SparseAdam": ((3, 4), (5,), (2, 1, 2)),
    "Adafactor": ((3, 4), (5,), (), (2, 1, 2)),         # (PyTorch divides by a number of elements)
    "": ((3, 4), (5,), (), (0, 3), (2, 1, 2))}
# Rounding that the rule itself makes larger: a line search, sums in bfloat16.
LOOSE = {"LBFGS": 1e-4, "Muon": 2e-3}
FLAGS = ("foreach", "fused", "differentiable", "capturable")
MODES = ("steps", "flags", "complex", "float32", "groups", "resume", "tensor_lr", "none", "copies")


def optimizer_table() -> list[Any]:
    """PyTorch's optimizers; raises ImportError where PyTorch or expecttest is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_optimizers import optim_db
    return list(optim_db)


def _name(dtype: Any) -> str:
    return str(dtype).split(".")[-1]


def as_ours(value: Any, ad: Any, seen: dict[int, Any] | None = None) -> Any:
    """A setting, parameters or a state_dict of PyTorch as ours; what is twice there stays one."""
    import torch

    seen = {} if seen is None else seen
    if isinstance(value, torch.Tensor) and id(value) not in seen:
        if value.is_sparse:
            new = ad.sparse_coo_tensor(as_ours(value._indices(), ad), as_ours(value._values(), ad),
                                       tuple(value.shape))
        else:
            new = convert(value.detach(), ad, [])
        wants = value.requires_grad
        seen[id(value)] = (ad.nn.Parameter(new) if isinstance(value, torch.nn.Parameter) else
                           new.requires_grad_() if wants else new)
    if isinstance(value, dict):
        return type(value)((k, as_ours(v, ad, seen)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return type(value)(as_ours(v, ad, seen) for v in value)
    return seen.get(id(value)) if isinstance(value, torch.Tensor) else convert(value, ad, [])


def as_theirs(value: Any) -> Any:
    """A state_dict of ours as one of PyTorch."""
    import torch

    if is_tensor(value):
        return torch.from_numpy(array(value).copy())
    if isinstance(value, dict):
        return {k: as_theirs(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(as_theirs(v) for v in value)
    return value


class Race:
    """The same optimizer twice, over the same parameters."""

    def __init__(self, info: Any, kwargs: dict[str, Any], ad: Any, dtype: str = "float64",
                 groups: bool = False) -> None:
        import torch

        self.info, self.ad, self.torch = info, ad, torch
        self.goals: list[Any] = []              # what a closure's loss pulls to
        self.loose = LOOSE.get(info.optim_cls.__name__, 0.0)
        self.rng = np.random.default_rng(3)
        name = info.optim_cls.__name__
        shapes = SHAPES.get(name, SHAPES[""])
        starts = [self.draw(s, dtype) for s in shapes]
        self.theirs = [torch.nn.Parameter(torch.from_numpy(a.copy())) for a in starts]
        self.mine = [ad.nn.Parameter(ad.from_numpy(a.copy())) for a in starts]
        own = {k: copy.deepcopy(v) for k, v in kwargs.items()}
        self.make = (
            lambda: getattr(ad.optim, name)(self.split(self.mine, groups), **as_ours(own, ad)),
            lambda: info.optim_cls(self.split(self.theirs, groups), **copy.deepcopy(kwargs)))
        self.opt, self.want = self.make[0](), self.make[1]()

    @staticmethod
    def split(params: list[Any], groups: bool) -> Any:
        if not groups:
            return params
        return [{"params": params[:1], "lr": 0.05}, {"params": params[1:]}]

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        a = np.asarray(self.rng.standard_normal(shape))
        if dtype.startswith("complex"):
            a = a + 1j * self.rng.standard_normal(shape)
        return np.asarray(a).astype(dtype)

    def step(self, skip: tuple[int, ...] = ()) -> str:
        """One step of both; why they differ, or an empty string."""
        if self.info.step_requires_closure:
            return self._closure_step()
        for k, (m, t) in enumerate(zip(self.mine, self.theirs, strict=True)):
            g = self.draw(tuple(t.shape), _name(t.dtype))
            m.grad = t.grad = None
            if k in skip:
                continue
            m.grad, t.grad = self.ad.from_numpy(g.copy()), self.torch.from_numpy(g.copy())
            if self.info.only_supports_sparse_grads:
                m.grad, t.grad = (_sparse(self.ad, m.grad), _sparse(self.torch, t.grad))
        self.want.step()
        self.opt.step()
        return self.same()

    def _closure_step(self) -> str:
        if not self.goals:
            self.goals = [self.draw(tuple(t.shape), _name(t.dtype)) for t in self.theirs]
        losses = []
        for library, params, opt in ((self.torch, self.theirs, self.want),
                                     (self.ad, self.mine, self.opt)):
            def closure(library: Any = library, params: Any = params, opt: Any = opt) -> Any:
                opt.zero_grad()
                loss = sum(((p - library.from_numpy(g)).abs() ** 2 * (1 + k)).sum()
                           for k, (p, g) in enumerate(zip(params, self.goals, strict=True)))
                loss.backward()
                return loss
            losses.append(opt.step(closure))
        return self.close(losses[1], losses[0], "loss") or self.same()

    def same(self) -> str:
        for k, (m, t) in enumerate(zip(self.mine, self.theirs, strict=True)):
            if reason := self.close(m, t, f"parameter {k}"):
                return reason
        return self.same_state()

    def close(self, mine: Any, theirs: Any, what: str) -> str:
        if not self.loose or not is_tensor(theirs) or mine.dtype.itemsize != theirs.dtype.itemsize:
            return _same(mine, theirs, what)
        a, b = array(mine), array(theirs)
        good = np.allclose(a, b, rtol=self.loose, atol=self.loose)
        return "" if good else f"{what}: {a.ravel()[:3]} != {b.ravel()[:3]}"

    def same_state(self) -> str:
        mine, theirs = self.opt.state_dict(), self.want.state_dict()
        if list(mine) != list(theirs):
            return f"state_dict {list(mine)} instead of {list(theirs)}"
        for own, group in zip(mine["param_groups"], theirs["param_groups"], strict=True):
            if set(own) != set(group):
                return f"group {sorted(own)} instead of {sorted(group)}"
            for key, value in group.items():
                if reason := _same(own[key], value, f"group's {key}"):
                    return reason
        if list(mine["state"]) != list(theirs["state"]):
            return f"state of {list(mine['state'])} instead of {list(theirs['state'])}"
        for k, state in theirs["state"].items():
            own = mine["state"][k]
            if set(own) != set(state):
                return f"state {sorted(own)} instead of {sorted(state)}"
            for key, value in () if self.info.step_requires_closure else state.items():
                if reason := self.close(own[key], value, f"state {k} {key}"):
                    return reason
        return ""


def _sparse(library: Any, grad: Any) -> Any:
    """The gradient of the first row, or of an element, alone."""
    return grad.to_sparse() if grad.ndim else grad.reshape(1).to_sparse().reshape(())


def _same(mine: Any, theirs: Any, what: str) -> str:
    if is_tensor(theirs):
        return differs(mine, theirs, what) if is_tensor(mine) else f"{what}: {mine!r} not a tensor"
    if isinstance(theirs, list | tuple):
        if type(mine) is not type(theirs) or len(mine) != len(theirs):
            return f"{what}: {mine!r} instead of {theirs!r}"
        return next((r for a, b in zip(mine, theirs, strict=True) if (r := _same(a, b, what))), "")
    if type(mine) is not type(theirs):
        return f"{what}: {mine!r} instead of {theirs!r}"
    if isinstance(theirs, float) and np.isclose(mine, theirs, rtol=1e-7, atol=0):
        return ""
    return "" if mine == theirs else f"{what}: {mine!r} instead of {theirs!r}"


def many(race: Race, count: int = STEPS, skip: tuple[int, ...] = ()) -> str:
    """Why some step differs, or an empty string."""
    for k in range(count):
        if reason := race.step(skip):
            return f"step {k + 1}: {reason}"
    return ""


def outcome(call: Any) -> Exception | None:
    """What the call raises."""
    try:
        call()
    except Exception as error:
        return error
    return None


def otherwise(mine: Exception | None, theirs: Exception | None) -> str:
    """Why one of them is not refused as the other one is, or an empty string."""
    good = mine is None if theirs is None else isinstance(mine, type(theirs))
    return "" if good else f"{mine!r} instead of {theirs!r}"


def _made(info: Any, kwargs: dict[str, Any], ad: Any) -> tuple[str, bool]:
    """(why only one of the two optimizers can be made, whether PyTorch refuses)."""
    probe = Race(info, {}, ad)
    theirs = outcome(lambda: info.optim_cls(probe.theirs, **copy.deepcopy(kwargs)))
    mine = outcome(lambda: getattr(ad.optim, info.optim_cls.__name__)(
        probe.mine, **as_ours(kwargs, ad)))
    return otherwise(mine, theirs), theirs is not None


def with_flag(info: Any, kwargs: dict[str, Any], ad: Any, flag: str) -> str:
    """One of PyTorch's flags on: the same steps, or refused at the same place."""
    import inspect

    if flag not in inspect.signature(info.optim_cls.__init__).parameters:
        return ""
    if (kwargs.get("fused") or kwargs.get("foreach")) and flag in ("foreach", "fused"):
        return ""
    kwargs = {**kwargs, flag: True}
    reason, refused = _made(info, kwargs, ad)
    if reason or refused:
        return reason and f"{flag}: {reason}"
    race = Race(info, kwargs, ad)
    if flag == "differentiable":
        return recorded(race)
    for p in (*race.mine, *race.theirs):
        p.grad = p.detach().clone()
    if not info.step_requires_closure:
        theirs, mine = outcome(race.want.step), outcome(race.opt.step)
        if reason := otherwise(mine, theirs):
            return f"{flag}: step: {reason}"
        if theirs:
            return ""
    reason = many(Race(info, kwargs, ad))
    return f"{flag}: {reason}" if reason else ""


def recorded(race: Race) -> str:
    """`differentiable=True`: the gradient through three steps."""
    found = []
    for library, params, opt in ((race.ad, race.mine, race.opt),
                                 (race.torch, race.theirs, race.want)):
        start = [p.detach().clone().requires_grad_() for p in params]
        live = [s.clone() for s in start]
        for group in opt.param_groups:
            group["params"] = list(live)
        for k in range(3):
            for i, p in enumerate(live):
                p.grad = (start[i] * (0.3 + k)).sin() + 0.1
            opt.step()
        total = sum((p * p).sum() for p in live)
        try:
            found.append(library.autograd.grad(total, start))
        except RuntimeError:
            if library is race.torch:
                return ""                        # PyTorch overwrites what its backward needs
            raise
    for k, (g, w) in enumerate(zip(*found, strict=True)):
        a, b = array(g), array(w)                # (PyTorch counts the steps in single precision)
        if not np.allclose(a, b, rtol=1e-5, atol=1e-6):
            return f"differentiable: gradient {k}: {a.ravel()[:3]} != {b.ravel()[:3]}"
    return ""


def resumed(info: Any, kwargs: dict[str, Any], ad: Any) -> str:
    """A state_dict goes from one library to the other, either way, and the steps go on."""
    for way in ("theirs to ours", "ours to theirs"):
        race = Race(info, kwargs, ad)
        if reason := many(race, 4):
            return reason
        theirs = copy.deepcopy(race.want.state_dict())
        mine = copy.deepcopy(race.opt.state_dict())
        pair = ((as_ours(theirs, ad), theirs) if way == "theirs to ours" else
                (mine, as_theirs(mine)))
        race.opt, race.want = race.make[0](), race.make[1]()
        race.opt.load_state_dict(pair[0])
        race.want.load_state_dict(pair[1])
        if reason := many(race, 4):
            return f"{way}: {reason}"
    return ""


def copied(info: Any, kwargs: dict[str, Any], ad: Any) -> str:
    """What it prints, deepcopy, pickle, a state_dict of its own, added groups and named ones."""
    import pickle

    race = Race(info, kwargs, ad)
    if repr(race.opt) != repr(race.want) and " at 0x" not in repr(race.want):
        return f"prints {race.opt!r} instead of {race.want!r}"
    if reason := many(race, 2):
        return reason
    twin = pickle.loads(pickle.dumps(race.opt))
    for other in (twin, copy.deepcopy(race.opt)):
        if str(other.state_dict()) != str(race.opt.state_dict()):
            return "a copy has another state"
    if info.optim_cls.__name__ in ("LBFGS",):
        return ""
    named = [getattr(lib.optim, info.optim_cls.__name__)(
        [(f"p{k}", p) for k, p in enumerate(params)], **own)
        for lib, params, own in ((race.ad, race.mine, as_ours(kwargs, ad)),
                                 (race.torch, race.theirs, copy.deepcopy(kwargs)))]
    race.opt, race.want = named
    return many(race, 2)


def check_setting(info: Any, kwargs: dict[str, Any], ad: Any, mode: str) -> str:
    """Why one setting of an optimizer differs, or an empty string."""
    dense = not info.only_supports_sparse_grads
    if mode == "steps":
        return many(Race(info, kwargs, ad))
    if mode == "float32":
        return many(Race(info, kwargs, ad, "float32"), 5)
    if mode == "complex":
        return many(Race(info, kwargs, ad, "complex128")) if info.supports_complex else ""
    if mode == "none" and not info.step_requires_closure:
        race = Race(info, kwargs, ad)
        return many(race, 3, skip=(1,)) or many(race, 3) or many(race, 1, skip=(0, 1, 2, 3, 4))
    if mode == "groups" and info.supports_param_groups:
        return many(Race(info, kwargs, ad, groups=True), 5)
    if mode == "resume":
        return resumed(info, kwargs, ad)
    if mode == "copies":
        return copied(info, kwargs, ad)
    if mode == "flags" and dense:
        return next((r for f in FLAGS if (r := with_flag(info, kwargs, ad, f))), "")
    if mode == "tensor_lr":
        return _tensor_lr(info, kwargs, ad)
    return ""


def _tensor_lr(info: Any, kwargs: dict[str, Any], ad: Any) -> str:
    import torch

    kwargs = {**kwargs, "lr": torch.tensor(0.01, dtype=torch.float64)}
    reason, refused = _made(info, kwargs, ad)
    if reason or refused:
        return reason and f"tensor lr: {reason}"
    return many(Race(info, kwargs, ad), 4)


def check_error(info: Any, case: Any, ad: Any) -> str:
    """Why a bad construction or step is not refused as PyTorch refuses it, or an empty string."""
    bad = case.optimizer_error_input
    params = bad.params
    if params is None:
        import torch

        params = [torch.nn.Parameter(torch.randn(2, 3))]
    made = getattr(ad.optim, info.optim_cls.__name__)
    try:
        with warnings.catch_warnings():
            if issubclass(case.error_type, Warning):
                warnings.simplefilter("error")
            given = as_ours(params, ad)
            opt = made(given, **as_ours(bad.kwargs, ad))
            if "STEP" in str(case.error_on):
                for p, t in zip(given, params, strict=True):
                    p.grad = None if t.grad is None else as_ours(t.grad, ad)
                opt.step()
    except case.error_type as error:
        if re.search(case.error_regex, str(error)):
            return ""
        return f"words: {str(error)[:160]!r} without {case.error_regex!r}"
    except Exception as error:
        return f"{type(error).__name__} instead of {case.error_type.__name__}: {error}"[:240]
    return f"accepted; PyTorch raises {case.error_type.__name__}: {case.error_regex}"[:240]


def check(info: Any, ad: Any, mode: str, limit: int = 10**6) -> Verdict:
    """One optimizer on up to `limit` of its settings."""
    import torch

    torch.manual_seed(0)
    reasons, done = [], 0
    name = info.optim_cls.__name__
    cases = (info.optim_error_inputs_func("cpu", torch.float32) if mode == "errors" else
             info.optim_inputs_func("cpu"))
    for case in list(cases)[:limit]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                reason = (check_error(info, case, ad) if mode == "errors" else
                          check_setting(info, case.kwargs, ad, mode))
            except Exception as error:
                reason = f"{type(error).__name__}: {error}".replace("\n", " ")[:240]
        if reason:
            label = case.optimizer_error_input.desc if mode == "errors" else case.desc
            reasons.append(f"{reason} <- {label}")
        done += not reason
    return Verdict(name, "differ" if reasons else "pass", done, " | ".join(reasons))


def main(argv: list[str] | None = None) -> int:
    """Print the table; the exit code is 1 when something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="optimizers; all when none is given")
    parser.add_argument("--mode", choices=[*MODES, "errors", "all"], default="all")
    options = parser.parse_args(argv)
    import adjoint as ad

    count: Counter[str] = Counter()
    for mode in ([*MODES, "errors"] if options.mode == "all" else [options.mode]):
        for info in optimizer_table():
            if options.names and info.optim_cls.__name__ not in options.names:
                continue
            verdict = check(info, ad, mode)
            count[verdict.state] += 1
            if verdict.state == "differ":
                print(f"{mode:10} {verdict.name:12} {verdict.samples:4} {verdict.reason}",
                      flush=True)
    print(dict(count))
    return int(bool(count["differ"]))


if __name__ == "__main__":
    sys.exit(main())
