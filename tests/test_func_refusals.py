"""Arguments of transforms that fit nothing, and results that hang on no graph (F54)."""
from __future__ import annotations

from typing import Any

import pytest

import adjoint as ad


class Exp(ad.autograd.Function):
    """exp, whose backward reads the output."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.saved_tensors[0]


@pytest.mark.parametrize("dim", [1, 3, -2])
def test_an_axis_that_the_output_does_not_have(dim: int) -> None:
    with pytest.raises(IndexError, match="Dimension out of range"):
        ad.func.vmap(lambda a: a, out_dims=dim)(ad.ones(3))


def test_out_dims_of_another_structure() -> None:
    with pytest.raises(ValueError, match="out_dims .* does not match the structure"):
        ad.func.vmap(lambda a: a, out_dims=(0, 0))(ad.ones(3))
    a, b = ad.func.vmap(lambda a: (a, a.sum()), out_dims=(1, 0))(ad.ones(3, 2))
    assert a.shape == (2, 3) and b.shape == (3,)


@pytest.mark.parametrize("dims", [(0, 0), ()])
def test_a_vmap_rule_with_other_out_dims_than_outputs(dims: Any) -> None:
    class Rule(Exp):
        generate_vmap_rule = False

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x * 2, dims
    with pytest.raises(RuntimeError, match="returned an incompatible .output, out_dims. tuple"):
        ad.func.vmap(Rule.apply)(ad.ones(3))


@pytest.mark.parametrize("transform", [ad.func.grad, ad.func.jacrev, ad.func.jacfwd])
def test_no_argument_at_all(transform: Any) -> None:
    with pytest.raises(RuntimeError, match="argnums must be non-empty"):
        transform(lambda a: a.sum(), argnums=())(ad.ones(3))


def test_an_output_that_is_no_tensor() -> None:
    with pytest.raises(TypeError, match="only tensors, got unsupported type <class 'int'>"):
        ad.func.jacrev(lambda a: 3)(ad.ones(3))


def test_a_jacobian_that_somebody_differentiates_further() -> None:
    w = ad.tensor(2.0, requires_grad=True)
    found = ad.func.jacrev(lambda x: Exp.apply(w * x))(ad.arange(3.0))
    assert found.requires_grad
    (g,) = ad.autograd.grad(found.sum(), w)
    # d/dw of sum_i w exp(w x_i)
    assert ad.allclose(g, ((1 + 2 * ad.arange(3.0)) * (2 * ad.arange(3.0)).exp()).sum())
    twice = ad.func.jacrev(ad.func.jacrev(Exp.apply))(ad.tensor(1.0))
    assert ad.allclose(twice, ad.tensor(1.0).exp())
