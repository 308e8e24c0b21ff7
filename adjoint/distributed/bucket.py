"""Gradients that travel together."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adjoint.core.tensor import Tensor, bump, wrap


class GradBucket:
    """The gradients of one dtype that a backward has made, one behind the other in one vector."""

    def __init__(self, index: int, last: bool, parameters: Sequence[Tensor]) -> None:
        self._index, self._last, self._parameters = index, last, list(parameters)
        self._buffer = wrap(np.concatenate([
            np.ascontiguousarray(p.grad.array).reshape(-1) for p in parameters
            if p.grad is not None]))

    def index(self) -> int:
        """Its place among those of the backward."""
        return self._index

    def is_last(self) -> bool:
        """Whether no other follows."""
        return self._last

    def parameters(self) -> list[Tensor]:
        """Whose gradients they are."""
        return self._parameters

    def buffer(self) -> Tensor:
        """All of them as one vector."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Put another vector in its place."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """Its parts, in the shapes of the parameters: views."""
        parts = self._buffer.split([p.numel() for p in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters, strict=True)]

    def put(self, value: Tensor) -> None:
        """Make the parts of a vector the gradients of the parameters."""
        flat, at = np.asarray(value.array).reshape(-1), 0
        for p in self._parameters:
            assert p.grad is not None
            size = p.grad.array.size
            np.copyto(p.grad.array, flat[at:at + size].reshape(p.grad.array.shape))
            bump(p.grad, "DistributedDataParallel")
            at += size
