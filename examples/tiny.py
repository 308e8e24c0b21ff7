"""Reverse-mode differentiation in thirty lines: a tape, a topological order, a rule per operation.

Run it: `python examples/tiny.py`. It differentiates f(x1, x2) = (x1 + x2) x1 at (3, 4), where x1 is
used twice, so that its gradient 10 = 7 + 3 is right only if contributions are added up; then a
matrix product followed by a sum. The full engine, `adjoint/autograd/engine.py`, does the same walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

Array = np.ndarray


class Tensor:
    """A value, the values it was made from, and the rule that sends its cotangent back to them."""

    def __init__(
        self,
        data: Any,
        parents: Iterable[Tensor] = (),
        rule: Callable[[Array], tuple[Array, ...]] | None = None,
    ) -> None:
        self.data, self.parents, self.rule = np.asarray(data, float), tuple(parents), rule
        self.grad: Any = None

    def __add__(self, other: Tensor) -> Tensor:
        return Tensor(self.data + other.data, (self, other), lambda ct: (ct, ct))

    def __mul__(self, other: Tensor) -> Tensor:
        a, b = self.data, other.data
        return Tensor(a * b, (self, other), lambda ct: (ct * b, ct * a))

    def __matmul__(self, other: Tensor) -> Tensor:
        a, b = self.data, other.data
        return Tensor(a @ b, (self, other), lambda ct: (ct @ b.T, a.T @ ct))

    def sum(self) -> Tensor:
        """The sum of all entries."""
        shape = self.data.shape
        return Tensor(self.data.sum(), (self,), lambda ct: (np.full(shape, ct),))

    def backward(self) -> None:
        """Fill `.grad` of everything this value was computed from."""
        waiting, stack = {self: 0}, [self]
        while stack:  # count, for every value, how many results still owe it a contribution
            for parent in stack.pop().parents:
                if parent not in waiting:
                    waiting[parent] = 0
                    stack.append(parent)
                waiting[parent] += 1
        self.grad, ready = np.ones_like(self.data), [self]
        while ready:  # a value is ready when all of its contributions have arrived
            node = ready.pop()
            shares = node.rule(node.grad) if node.rule else ()
            for parent, ct in zip(node.parents, shares, strict=True):
                parent.grad = ct if parent.grad is None else parent.grad + ct
                waiting[parent] -= 1
                if not waiting[parent]:
                    ready.append(parent)


def main() -> None:
    """Print the two examples."""
    x1, x2 = Tensor(3.0), Tensor(4.0)
    f = (x1 + x2) * x1
    f.backward()
    print(f"f = {f.data:g}, df/dx1 = {x1.grad:g}, df/dx2 = {x2.grad:g}")
    x, w = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([[1.0, 0.0], [0.0, 2.0]])
    (x @ w).sum().backward()
    print("d sum(x @ w) / dx =", x.grad.tolist())
    print("d sum(x @ w) / dw =", w.grad.tolist())


if __name__ == "__main__":
    main()
