"""A custom function that several test files use."""

from __future__ import annotations

from typing import Any

import adjoint as ad


class Square(ad.autograd.Function):
    """x**2 with a hand-written, twice differentiable rule."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2.0 * x * grad_output
