"""Arguments of transforms that fit nothing, and results that hang on no graph (F54)."""
from __future__ import annotations

import re
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
    with pytest.raises(ValueError, match="out_dims is not compatible with the structure of .outp"):
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


@pytest.mark.parametrize(("said", "f"), [
    (r"calling \.item\(\) on a Tensor", lambda a: a.sum().item()),
    ("data-dependent control flow", lambda a: a if a.sum() > 0 else -a),
    ("data-dependent control flow", lambda a: range(a.sum().long())),
    ("output dynamic shape. Attempted to vmap over aten::nonzero", lambda a: a.nonzero()),
    ("output dynamic shape", lambda a: a.unique()),
    ("support dynamic shape. Attempting to batch over indexing with a boolean mask",
     lambda a: a[a > 0]),
    ("Attempted to vmap over `mask`", lambda a: a.masked_select(a > 0)),
    ("Cannot access data pointer of Tensor", lambda a: a.numpy()),
    ("vmap over aten::equal", lambda a: ad.equal(a, a.clone())),
])
def test_what_a_mapped_tensor_cannot_say(said: str, f: Any) -> None:
    """Each in PyTorch's words, with the line that asked."""
    with pytest.raises(RuntimeError, match=f"(?s){said}.*one value per example, at .*refusals"):
        ad.func.vmap(f)(ad.ones(3, 2))


@pytest.mark.parametrize(("said", "dims", "args"), [
    ("in_dims=2, ...)(<inputs>): Got in_dim=2 for some input, but that input is a Tensor of "
     "dimensionality 1 so expected in_dim to satisfy -1 <= in_dim < 1", 2, (3,)),
    ("Got in_dim=0 for an input but the input is of type <class 'float'>", 0, (1.0,)),
    ("in_dims has structure (*, *) but inputs has structure (*,)", (0, 0), (3,)),
    ("expected `in_dims` to be int or a (potentially nested) tuple", None, (3,)),
    ("got sizes [3, 2] for the mapped dimension", 0, (3, 2)),
    ("got no inputs", 0, ()),
])
def test_in_dims_that_do_not_fit(said: str, dims: Any, args: tuple[Any, ...]) -> None:
    given = [ad.ones(n) if isinstance(n, int) else n for n in args]
    with pytest.raises(ValueError, match=re.escape(said)):
        ad.func.vmap(lambda *a: a[0], in_dims=dims)(*given)


def test_cotangents_take_the_dtype_of_their_output() -> None:
    """As in `backward`; what is complex goes with what is complex, and the tree is the output's."""
    x = ad.tensor([1.0, 2.0])
    _, pull = ad.func.vjp(lambda a: a * 2, x)
    for dtype in (ad.float64, ad.int64, ad.bfloat16):
        g = pull(ad.ones(2, dtype=dtype))[0]
        assert g.dtype == ad.float32 and g.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="required to have the same dtype"):
        pull(ad.ones(2, dtype=ad.complex64))
    with pytest.raises(RuntimeError, match=r"cotangents: \(\*,\), primal output: \(\*, \*\)"):
        ad.func.vjp(lambda a: (a, a), x)[1]((x,))
    with pytest.raises(RuntimeError, match=r"tangent:0 with shape \[3\] .* the shape \[2\]"):
        ad.func.linearize(lambda a: a * 2, x)[1](ad.ones(3))


def test_equal_sees_values_below_a_derivative() -> None:
    """It looks at the primals; a tensor without values has no answer."""
    x = ad.tensor([1.0, 2.0])
    out, tangent = ad.func.jvp(lambda a: a * ad.equal(a, a.clone()), (x,), (x,))
    assert out.tolist() == tangent.tolist() == [1.0, 2.0]
    assert not ad.func.grad(lambda a: a.sum() * ad.equal(a, a + 1))(x).any()
    with pytest.raises(NotImplementedError, match="equal needs the values"):
        ad.equal(x.to("meta"), x.to("meta"))
    with pytest.raises(TypeError, match="must be Tensor, not int"):
        ad.equal(x, 1)
