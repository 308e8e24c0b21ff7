"""The practice problems, with answers that are computed here and checks that say what is wrong.

    check("p1", [8, -8, 16])                 one problem
    check_engine("my_engine.py")             problem 7: an engine of your own
"""
from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from adjoint.autograd.api import grad as gradient_of
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import wrap
from adjoint.memory.calculator import Options, estimate
from adjoint.nn import functional

_modules = itertools.count()


@dataclass(frozen=True)
class Problem:
    """A question with numbers for an answer. `parts` names each number; `why` explains."""

    key: str
    question: str
    parts: tuple[str, ...]
    answer: tuple[float, ...]
    why: str
    tolerance: float = 1e-3


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, and what to look at if not."""

    right: bool
    text: str

    def __bool__(self) -> bool:
        return self.right


def _leaf(values: Any) -> Any:
    return wrap(np.array(values, np.float64), requires_grad=True)


def _numbers(t: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in np.ravel(t.detach().numpy()))


def _gradient(out: Any, x: Any) -> tuple[float, ...]:
    return _numbers(gradient_of(out, x)[0])


@cache
def problems() -> dict[str, Problem]:
    """Problems p1 to p6 by key; their answers come from runs, p5's from the memory calculator."""
    W, x = _leaf([[1.0, 2.0, 3.0]]), wrap(np.array([1.0, -1.0, 2.0]))
    s, z, t = _leaf([1.0, 2.0, 3.0]), _leaf([[1.0, 2.0, 3.0]]), _leaf(0.5)
    twice = _leaf([1.0])
    for _ in range(2):
        (3 * twice).sum().backward()
    tokens = Options(2048, 8, dtype="fp16")
    block = estimate("gpt2", tokens).routes
    label = wrap(np.array([2]))
    found = (
        Problem("p1", "L = (W x - y)² with W = [1, 2, 3], x = [1, -1, 2], y = 1. What is dL/dW?",
                ("dL/dW₁", "dL/dW₂", "dL/dW₃"), _gradient(((W @ x - 1.0) ** 2).sum(), W),
                "dL/dW = 2 (W x - y) xᵀ; here W x - y = 4."),
        Problem("p2", "x = [1, 2, 3]. What is the gradient of softmax(x).sum() in x?",
                ("∂/∂x₁", "∂/∂x₂", "∂/∂x₃"), _gradient(s.softmax(dim=0).sum(), s),
                "The outputs of a softmax add up to 1 for every x: the sum is a constant."),
        Problem("p3", "x = [1.0]; (3 * x).sum().backward() is called twice, without zero_grad "
                "between. What is in x.grad?", ("x.grad",), _numbers(twice.grad),
                "backward adds to .grad: 3 + 3."),
        Problem("p4", "Give tanh a backward: with t = tanh(x), what is the slope at x = 0.5, from "
                "t alone?", ("slope",), _gradient(t.tanh(), t),
                "1 - t²: the output is all that has to be saved. t = 0.46212 at 0.5."),
        Problem("p5", "A forward pass of 12 layers, S = 2048, D = 768, H = 12, N = 8, 16-bit: "
                "how many GB (10⁹ bytes) of activations, with tiled (flash) attention, by the "
                "34·s·b·h formula for each layer?", ("GB",), (12 * block["formula"] / 1e9,),
                "34·2048·8·768 bytes in each of 12 layers. The rule N·S·D·layers·20 gives 3.02 GB "
                "and counts 20 bytes a token and width where a block keeps 34; with dense "
                "attention the S² weights make it 29.3 GB.", 0.02),
        Problem("p6", "z = [1, 2, 3], the true class is the third. Derive the gradient of "
                "cross_entropy(z) in z.", ("∂/∂z₁", "∂/∂z₂", "∂/∂z₃"),
                _gradient(functional.cross_entropy(z, label), z),
                "softmax(z) - t with t = [0, 0, 1]: the Jacobian diag(p) - p pᵀ times -t/p "
                "collapses to p - t. Softmax alone has no such short form."),
    )
    return {p.key: p for p in found}


def check(key: str, answer: Any) -> Verdict:
    """Judge an answer to p1 ... p6: a number, or as many as the problem has parts.

    >>> bool(check("p1", [8, -8, 16])), check("p3", 3).text
    (True, 'x.grad: 3 is not it. backward adds to .grad: 3 + 3.')
    """
    problem = problems().get(key)
    if problem is None:
        raise ArgumentError(f"no practice problem {key!r}; there are {', '.join(problems())} and "
                            "p7 (check_engine)")
    given = np.ravel(np.asarray(answer, np.float64))
    if given.size != len(problem.answer):
        return Verdict(False, f"{len(problem.answer)} number(s) are asked for, {given.size} given")
    for part, want, got in zip(problem.parts, problem.answer, given, strict=True):
        if not abs(got - want) <= problem.tolerance * max(1.0, abs(want)):
            return Verdict(False, f"{part}: {got:g} is not it. {problem.why}")
    return Verdict(True, f"right. {problem.why}")


# ---------------------------------------------------------------- p7: an engine of your own
def check_engine(path: str | Path) -> Verdict:
    """Judge problem 7: a file with a class `Tensor(data)` that has `+ * @ relu() mean() backward()
    data grad`. The file is run. Its gradients are compared with differences of its own values, a
    value that is used twice included; then it has to train a two-layer perceptron."""
    try:
        module = _load(Path(path))
        kind = getattr(module, "Tensor", None)
        if kind is None:
            return Verdict(False, f"{Path(path).name} has no class Tensor")
        for name, build in _CASES.items():
            wrong = _compare(kind, build)
            if wrong:
                return Verdict(False, f"{name}: {wrong}")
        first, last = _train(kind)
    except Exception as error:      # the user's file may do anything
        return Verdict(False, f"{type(error).__name__}: {error}")
    if not last <= first / 10:
        return Verdict(False, f"training: the loss went from {first:.4g} to {last:.4g}; it should "
                       "fall ten times")
    return Verdict(True, f"right: gradients agree; the loss fell from {first:.4g} to {last:.4g}")


def _load(path: Path) -> ModuleType:
    name = f"practice_engine_{next(_modules)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ArgumentError(f"no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


_CASES: dict[str, Any] = {
    "a + b": lambda a, b, m: (a + b).mean(),
    "a * b": lambda a, b, m: (a * b).mean(),
    "relu": lambda a, b, m: (a.relu() * b).mean(),
    "a @ m": lambda a, b, m: (a @ m).mean(),
    "a value used twice (add up, do not overwrite)": lambda a, b, m: ((a + b) * a + a).mean(),
    "one value through several ways": lambda a, b, m: ((a @ m).relu() * (a @ m)).mean(),
}


def _inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.2, 1.0, s) * rng.choice([-1.0, 1.0], s) for s in ((2, 3), (2, 3), (3, 2))]


def _compare(kind: Any, build: Any) -> str:
    """What is wrong with the gradients of one case; "" where they agree with differences."""
    arrays = _inputs()
    leaves = [kind(a.copy()) for a in arrays]
    build(*leaves).backward()

    def value(given: Sequence[np.ndarray]) -> float:
        return float(np.ravel(build(*[kind(a.copy()) for a in given]).data)[0])

    for k, (leaf, array) in enumerate(zip(leaves, arrays, strict=True)):
        for at in np.ndindex(array.shape):
            moved = [[b.copy() for b in arrays] for _ in range(2)]
            moved[0][k][at] += 1e-6
            moved[1][k][at] -= 1e-6
            want = (value(moved[0]) - value(moved[1])) / 2e-6
            got = 0.0 if leaf.grad is None else float(np.asarray(leaf.grad)[at])
            if abs(got - want) > 1e-5:
                return f"the gradient of operand {k} at {at} is {got:.6g}, differences give " \
                       f"{want:.6g}"
    return ""


def _train(kind: Any, steps: int = 300, rate: float = 0.05) -> tuple[float, float]:
    """First and last loss of gradient descent on y = x² with 16 hidden units."""
    rng = np.random.default_rng(1)
    x = np.linspace(-1.5, 1.5, 32)[:, None]
    w1, b1 = rng.standard_normal((1, 16)), rng.uniform(-1, 1, (1, 16))
    w2, b2 = rng.standard_normal((16, 1)) * 0.3, np.zeros((1, 1))
    one, minus = np.ones((32, 1)), kind(-np.ones((32, 1)))
    losses = []
    for _ in range(steps):
        p = [kind(w) for w in (w1, b1, w2, b2)]
        hidden = (kind(x) @ p[0] + kind(one) @ p[1]).relu()
        error = hidden @ p[2] + kind(one) @ p[3] + minus * kind(x * x)
        loss = (error * error).mean()
        loss.backward()
        w1, b1, w2, b2 = (w - rate * np.asarray(q.grad)
                          for w, q in zip((w1, b1, w2, b2), p, strict=True))
        losses.append(float(np.ravel(loss.data)[0]))
    return losses[0], losses[-1]


__all__ = ["Problem", "Verdict", "check", "check_engine", "problems"]
