"""A reverse-mode engine from scratch in under 200 lines: + * relu matmul mean train a network.

Run it: `python examples/scratch_engine.py`. It fits a two-layer perceptron to y = sin(2 x) + x / 2
with plain gradient descent; the loss falls by more than ten times. The point is to read it: an
operation is a forward value and a rule, the graph is what the values were made from, and backward
is one walk over the graph, latest value first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

Array = np.ndarray
Rule = Callable[[Array], tuple[Array, ...]]
_births = itertools.count()  # a value is always younger than the values it was made from


class Tensor:
    """An array that remembers how it was made."""

    def __init__(
        self,
        data: Array | float,
        parents: tuple[Tensor, ...] = (),
        rule: Rule | None = None,
        name: str = "",
    ) -> None:
        self.data = np.asarray(data, dtype=float)
        self.parents = parents
        self.rule = rule
        self.name = name
        self.grad: Array | None = None
        self.born = next(_births)

    def __repr__(self) -> str:
        made_by = f", {self.name}" if self.name else ""
        return f"Tensor({np.array2string(self.data, precision=4)}{made_by})"

    def __add__(self, other: Tensor | float) -> Tensor:
        return add(self, wrap(other))

    def __mul__(self, other: Tensor | float) -> Tensor:
        return mul(self, wrap(other))

    def __sub__(self, other: Tensor | float) -> Tensor:
        return add(self, mul(wrap(other), wrap(-1.0)))

    def __matmul__(self, other: Tensor) -> Tensor:
        return matmul(self, other)

    __radd__ = __add__
    __rmul__ = __mul__

    def relu(self) -> Tensor:
        """max(x, 0), entry by entry."""
        return relu(self)

    def mean(self) -> Tensor:
        """The mean of all entries, of shape ()."""
        return mean(self)

    def backward(self) -> None:
        """Add d self / d t to `t.grad` for every value t below; `self` must be a scalar."""
        if self.data.shape != ():
            raise ValueError(f"backward() starts at a scalar, not at shape {self.data.shape}")
        cotangents: dict[Tensor, Array] = {self: np.ones(())}
        for value in sorted(below(self), key=lambda v: v.born, reverse=True):
            cotangent = cotangents.pop(value)  # complete: everything younger has been visited
            value.grad = cotangent if value.grad is None else value.grad + cotangent
            if value.rule is None:
                continue
            for parent, share in zip(value.parents, value.rule(cotangent), strict=True):
                share = fit(share, parent.data.shape)
                known = cotangents.get(parent)
                cotangents[parent] = share if known is None else known + share


def wrap(value: Tensor | float) -> Tensor:
    """A number becomes a constant of the graph."""
    return value if isinstance(value, Tensor) else Tensor(value)


def below(root: Tensor) -> set[Tensor]:
    """Everything `root` was computed from, itself included; a loop, not a recursion."""
    found, stack = {root}, [root]
    while stack:
        for parent in stack.pop().parents:
            if parent not in found:
                found.add(parent)
                stack.append(parent)
    return found


def fit(cotangent: Array, shape: tuple[int, ...]) -> Array:
    """Undo broadcasting: sum over the axes that were added or stretched."""
    extra = cotangent.ndim - len(shape)
    stretched = tuple(k + extra for k, n in enumerate(shape) if n == 1)
    summed: Array = cotangent.sum(axis=(*range(extra), *stretched), keepdims=True)
    return summed.reshape(shape)


def add(a: Tensor, b: Tensor) -> Tensor:
    """a + b; nothing is needed in backward."""
    return Tensor(a.data + b.data, (a, b), lambda ct: (ct, ct), "add")


def mul(a: Tensor, b: Tensor) -> Tensor:
    """a * b; each operand's cotangent needs the other operand."""
    return Tensor(a.data * b.data, (a, b), lambda ct: (ct * b.data, ct * a.data), "mul")


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a @ b for matrices: da = ct bT, db = aT ct."""
    return Tensor(a.data @ b.data, (a, b), lambda ct: (ct @ b.data.T, a.data.T @ ct), "matmul")


def relu(x: Tensor) -> Tensor:
    """max(x, 0); only the sign of x is needed in backward."""
    mask = x.data > 0
    return Tensor(x.data * mask, (x,), lambda ct: (ct * mask,), "relu")


def mean(x: Tensor) -> Tensor:
    """The mean of all entries; only the shape is needed in backward."""
    shape, size = x.data.shape, x.data.size
    return Tensor(x.data.mean(), (x,), lambda ct: (np.full(shape, ct / size),), "mean")


class Perceptron:
    """Two layers with a relu between: (n, inputs) -> (n, outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int, rng: np.random.Generator) -> None:
        self.w1 = Tensor(rng.standard_normal((inputs, hidden)) * (2.0 / inputs) ** 0.5)
        self.b1 = Tensor(rng.uniform(-1.0, 1.0, hidden))
        self.w2 = Tensor(rng.standard_normal((hidden, outputs)) * (2.0 / hidden) ** 0.5)
        self.b2 = Tensor(np.zeros(outputs))

    def parameters(self) -> list[Tensor]:
        """What is trained."""
        return [self.w1, self.b1, self.w2, self.b2]

    def __call__(self, x: Tensor) -> Tensor:
        return (x @ self.w1 + self.b1).relu() @ self.w2 + self.b2


def train(steps: int = 500, rate: float = 0.05, seed: int = 0) -> list[float]:
    """The losses of `steps` steps of gradient descent on 128 points of y = sin(2 x) + x / 2."""
    rng = np.random.default_rng(seed)
    x = np.linspace(-2.0, 2.0, 128)[:, None]
    inputs, targets = Tensor(x), Tensor(np.sin(2.0 * x) + 0.5 * x)
    model = Perceptron(1, 32, 1, rng)
    losses = []
    for _ in range(steps):
        error = model(inputs) - targets
        loss = (error * error).mean()
        for parameter in model.parameters():
            parameter.grad = None
        loss.backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.data = parameter.data - rate * parameter.grad
        losses.append(float(loss.data))
    return losses


def main() -> None:
    """Train and print ten lines."""
    losses = train()
    for step in (*range(0, len(losses), 50), len(losses) - 1):
        print(f"step {step:4d}: loss {losses[step]:.5f}")
    print(f"the loss fell {losses[0] / losses[-1]:.0f}x")


if __name__ == "__main__":
    main()
