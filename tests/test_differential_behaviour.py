"""What the documentation of layers, functions and tensors says, asked of both libraries (F15).

Each line of `torch_behaviour.txt` is an expression over `t` (the library), `nn`, `F` and the names
below. The first part prints the same; the second raises an error that is PyTorch's class too, and
both texts hold the words behind the bar.
"""
from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")

VALUES, REFUSALS = [part.splitlines() for part in (
    Path(__file__).with_name("torch_behaviour.txt").read_text().strip().split("\n\n"))]


def space(t: Any) -> dict[str, Any]:
    """The names of the expressions, of one library."""
    import copy
    import pickle

    class Scale(t.nn.modules.lazy.LazyModuleMixin, t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = t.nn.UninitializedParameter()

        def initialize_parameters(self, x: Any) -> None:
            self.w.materialize((x.shape[-1],))

        def forward(self, x: Any) -> Any:
            return x * self.w

    class Early(t.nn.Module):
        def __init__(self) -> None:
            self.register_buffer("x", t.ones(1))

    def seen(register: Any, act: Any) -> Any:
        names: list[str] = []
        with register(lambda module, name, value: names.append(name)):
            act()
        return names

    def backward_hook_of(m: Any) -> Any:
        told: list[Any] = []
        m.register_backward_hook(lambda m, i, o: told.append((i, o)))
        x = t.tensor([1.0, -1.0], requires_grad=True)
        (m(x) * 3).sum().backward()
        return told

    def removed(hooks: Any, extra: Any) -> Any:
        with t.utils.hooks.RemovableHandle(hooks, extra_dict=extra) as handle:
            hooks[handle.id] = extra[handle.id] = True
        return hooks, extra

    def assigned(x: Any, index: Any, value: Any) -> Any:
        x[index] = value
        return x

    def families(d: Any) -> Any:
        a, b = t.tensor([1.0, 2.0]), t.tensor([0.5, 3.0])
        return (d.Normal(a, b), d.Gamma(a, b), d.Exponential(a), d.Bernoulli(b / 4), d.Chi2(b),
                d.ContinuousBernoulli(t.tensor([0.3, 0.5])), d.Wishart(t.tensor(4.0), t.eye(2)))

    def both_kinds(m: Any) -> None:
        m.register_full_backward_hook(print)
        m.register_backward_hook(print)
    return {"t": t, "np": np, "nn": t.nn, "F": t.nn.functional, "nan": float("nan"), "copy": copy,
            "OrderedDict": OrderedDict, "D": t.distributions,
            "assigned": assigned, "families": families, "removed": removed,
            "inf": float("inf"), "image": t.arange(16.0).reshape(1, 1, 4, 4), "pickle": pickle,
            "table": t.arange(6.0).reshape(3, 2) ** 2, "Scale": Scale, "Early": Early,
            "seen": seen, "backward_hook_of": backward_hook_of, "both_kinds": both_kinds}


def printed(expression: str, t: Any) -> str:
    t.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = str(eval(expression, space(t)))
    return re.sub(r"grad_fn=<\w+>", "grad_fn", text).replace("adjoint.", "torch.")


def words(error: BaseException) -> str:
    return " ".join(str(error).split())


@pytest.mark.parametrize("expression", VALUES)
def test_values_are_the_same(expression: str) -> None:
    """The same text, but for the last digit that is printed of a fraction."""
    found, want = printed(expression, ad), printed(expression, torch)
    fraction = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?")
    assert fraction.sub("#", found) == fraction.sub("#", want)
    np.testing.assert_allclose([float(x) for x in fraction.findall(found)],
                               [float(x) for x in fraction.findall(want)], rtol=1e-5, atol=1.5e-4)


@pytest.mark.parametrize("line", REFUSALS)
def test_refusals_are_the_same(line: str) -> None:
    expression, _, want = line.partition(" | ")
    raised = []
    for t in (torch, ad):
        with pytest.raises(Exception) as e, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(expression, space(t))
        raised.append(e.value)
        assert re.search(want.replace(r"\|", "|"), words(e.value)), (t.__name__, words(e.value))
    assert isinstance(raised[1], type(raised[0])), [type(e) for e in raised]
