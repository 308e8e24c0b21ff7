"""A scalar autograd engine, and a small network that learns to tell two moons apart.

Run it: `python examples/micrograd_scalar.py`. Every number of the network is a `Value` with its
own node in the graph: slow, and the clearest picture there is of what the tensor engine does.
Needs nothing but Python.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence


class Value:
    """A float that remembers the values it was computed from and its slope with respect to each."""

    __slots__ = ("data", "grad", "parents", "slopes")

    def __init__(
        self, data: float, parents: tuple[Value, ...] = (), slopes: tuple[float, ...] = ()
    ) -> None:
        self.data = data
        self.grad = 0.0
        self.parents = parents
        self.slopes = slopes

    def __repr__(self) -> str:
        return f"Value({self.data:.6g}, grad={self.grad:.6g})"

    def __add__(self, other: Value | float) -> Value:
        other = other if isinstance(other, Value) else Value(other)
        return Value(self.data + other.data, (self, other), (1.0, 1.0))

    def __mul__(self, other: Value | float) -> Value:
        other = other if isinstance(other, Value) else Value(other)
        return Value(self.data * other.data, (self, other), (other.data, self.data))

    def __pow__(self, n: float) -> Value:
        return Value(self.data**n, (self,), (n * self.data ** (n - 1),))

    def __neg__(self) -> Value:
        return self * -1.0

    def __sub__(self, other: Value | float) -> Value:
        return self + (-other)

    def __truediv__(self, other: Value | float) -> Value:
        return self * other**-1

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: float) -> Value:
        return -self + other

    def __rtruediv__(self, other: float) -> Value:
        return self**-1 * other

    def relu(self) -> Value:
        """max(x, 0); slope 0 at 0."""
        return Value(max(self.data, 0.0), (self,), (1.0 if self.data > 0 else 0.0,))

    def tanh(self) -> Value:
        """The hyperbolic tangent; its slope 1 - t**2 needs the output only."""
        t = math.tanh(self.data)
        return Value(t, (self,), (1.0 - t * t,))

    def exp(self) -> Value:
        """e**x; its own slope."""
        e = math.exp(self.data)
        return Value(e, (self,), (e,))

    def backward(self) -> None:
        """Add d self / d v to `v.grad` for every value below; a loop, so depth is no limit."""
        order: list[Value] = []
        seen: set[Value] = set()
        stack = [(self, False)]
        while stack:
            value, finished = stack.pop()
            if finished:
                order.append(value)
            elif value not in seen:
                seen.add(value)
                stack.append((value, True))
                stack += [(parent, False) for parent in value.parents]
        self.grad = 1.0
        for value in reversed(order):
            for parent, slope in zip(value.parents, value.slopes, strict=True):
                parent.grad += slope * value.grad


class Network:
    """A perceptron with tanh between its layers; `sizes` includes inputs and outputs."""

    def __init__(self, sizes: Sequence[int], rng: random.Random) -> None:
        self.layers = [
            [
                ([Value(rng.gauss(0.0, 1.0) / n**0.5) for _ in range(n)], Value(0.0))
                for _ in range(m)
            ]
            for n, m in zip(sizes, sizes[1:], strict=False)
        ]

    def parameters(self) -> list[Value]:
        """Every weight and bias."""
        return [v for layer in self.layers for weights, bias in layer for v in (*weights, bias)]

    def __call__(self, point: Sequence[float]) -> Value:
        values: Sequence[Value | float] = point
        for k, layer in enumerate(self.layers):
            sums = [sum((w * v for w, v in zip(ws, values, strict=True)), b) for ws, b in layer]
            values = [s.tanh() for s in sums] if k + 1 < len(self.layers) else sums
        (score,) = values
        assert isinstance(score, Value)
        return score


def moons(count: int, noise: float, rng: random.Random) -> list[tuple[tuple[float, float], int]]:
    """Two interleaved half circles with Gaussian noise, labelled -1 and +1."""
    points = []
    for k in range(count):
        angle = math.pi * rng.random()
        x, y = math.cos(angle), math.sin(angle)
        if k % 2:
            x, y = 1.0 - x, 0.5 - y
        points.append(((x + rng.gauss(0, noise), y + rng.gauss(0, noise)), 1 if k % 2 else -1))
    return points


def accuracy(model: Network, data: list[tuple[tuple[float, float], int]]) -> float:
    """The share of points on the right side."""
    return sum((model(point).data > 0) == (label > 0) for point, label in data) / len(data)


def train(steps: int = 400, batch: int = 16, seed: int = 1) -> tuple[Network, float, float]:
    """The trained network, its accuracy on the 200 training points, and on 200 new ones."""
    rng = random.Random(seed)
    data, fresh = moons(200, 0.1, rng), moons(200, 0.1, rng)
    model = Network((2, 12, 1), rng)
    parameters = model.parameters()
    speed = [0.0] * len(parameters)
    for step in range(steps):
        losses = [(1.0 - model(p) * float(label)).relu() for p, label in rng.sample(data, batch)]
        loss = sum(losses[1:], losses[0]) * (1.0 / batch)
        for p in parameters:
            p.grad = 0.0
        loss.backward()
        rate = 0.2 * (1.0 - step / steps)
        for k, p in enumerate(parameters):
            speed[k] = 0.9 * speed[k] + p.grad
            p.data -= rate * speed[k]
    return model, accuracy(model, data), accuracy(model, fresh)


def main() -> None:
    """Train and print both accuracies."""
    model, seen, fresh = train()
    print(f"{len(model.parameters())} parameters")
    print(f"accuracy on the training points {seen:.3f}, on new points {fresh:.3f}")


if __name__ == "__main__":
    main()
