"""Nested tensors of layout strided: parts that differ in any axis; and layers given them."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest

import adjoint as ad

F = ad.nn.functional
SIZES = ((2, 3), (4, 3), (1, 3))


def parts(sizes: Any = SIZES, **options: Any) -> list[Any]:
    """Tensors of these sizes, all numbers different."""
    first, made = 0.0, []
    for size in sizes:
        n = ad.ones(size).numel()
        made.append(ad.arange(first, first + n, **options).view(size))
        first += n
    return made


def nested(sizes: Any = SIZES, **options: Any) -> Any:
    return ad.nested.nested_tensor(parts(sizes), **options)


def test_what_it_is() -> None:
    t = nested(((2, 3), (1, 5)))
    assert t.is_nested and t.layout is ad.strided and t.dim() == 3 and t.size(0) == 2
    assert isinstance(t, ad.Tensor) and t.numel() == 11 and t.is_contiguous()
    assert not isinstance(t, type(nested_jagged()))
    with pytest.raises(RuntimeError, match="Given dimension 2 is irregular and does not have"):
        t.size(2)
    for ask in (lambda: t.shape, lambda: t.size(), lambda: len(t), lambda: list(t)):
        with pytest.raises(RuntimeError, match="Internal error: NestedTensorImpl doesn't support"):
            ask()
    assert nested().size(-1) == 3
    assert str(ad.nested.nested_tensor([[1, 2], [3]])) == (
        "nested_tensor([\n  tensor([1, 2]),\n  tensor([3])\n])")


def nested_jagged() -> Any:
    return ad.nested.nested_tensor([ad.ones(1, 2)], layout=ad.jagged)


FUNCTIONS = {
    "unary": (lambda t: t.cos(), lambda p: p.cos()),
    "number": (lambda t: t * 2 - 1, lambda p: p * 2 - 1),
    "binary": (lambda t: t * t + t, lambda p: p * p + p),
    "scalar tensor": (lambda t: t / ad.tensor(2.0), lambda p: p / 2),
    "compare": (lambda t: t > 5, lambda p: p > 5),
    "gelu": (F.gelu, F.gelu),
    "dtype": (lambda t: t.double(), lambda p: p.double()),
    "softmax": (lambda t: t.softmax(-1), lambda p: p.softmax(-1)),
    "softmax of rows": (lambda t: t.softmax(1), lambda p: p.softmax(0)),
    "sum": (lambda t: t.sum(-1, keepdim=True), lambda p: p.sum(-1, keepdim=True)),
    "linear": (lambda t: F.linear(t, W), lambda p: F.linear(p, W)),
    "layer_norm": (lambda t: F.layer_norm(t, (3,), ad.ones(3), ad.zeros(3)),
                   lambda p: F.layer_norm(p, (3,))),
    "transpose": (lambda t: t.transpose(1, 2), lambda p: p.t()),
    "transpose and add": (lambda t: t.transpose(1, 2) + t.transpose(1, 2), lambda p: (p + p).t()),
    "contiguous": (lambda t: t.transpose(1, 2).contiguous() * 2, lambda p: p.t() * 2),
    "product": (lambda t: t @ t.transpose(1, 2), lambda p: p @ p.t()),
    "bmm": (lambda t: ad.bmm(t, ad.ones(3, 3, 2)), lambda p: p @ ad.ones(3, 2)),
    "view": (lambda t: t.view(3, -1, 3, 1), lambda p: p.unsqueeze(-1)),
    "reshape": (lambda t: t.transpose(1, 2).reshape(3, 3, -1, 1), lambda p: p.t().unsqueeze(-1)),
    "unsqueeze": (lambda t: t.unsqueeze(1), lambda p: p.unsqueeze(0)),
    "squeeze": (lambda t: t.unsqueeze(-1).squeeze(-1), lambda p: p),
    "select": (lambda t: t.select(2, 1), lambda p: p[:, 1]),
    "ellipsis": (lambda t: t[..., -1], lambda p: p[:, -1]),
    "chunk": (lambda t: t.chunk(3, -1)[2], lambda p: p.chunk(3, -1)[2]),
    "split": (lambda t: t.split([1, 2], -1)[1] * 1, lambda p: p[:, 1:]),
    "cat": (lambda t: ad.cat([t, t], -1), lambda p: ad.cat([p, p], -1)),
    "fill": (lambda t: t.masked_fill(t > 5, 0.0), lambda p: p.masked_fill(p > 5, 0.0)),
}
W = ad.tensor([[1.0, 0.0, -1.0], [2.0, 1.0, 0.5]])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_act_on_each_part(name: str) -> None:
    f, each = FUNCTIONS[name]
    found = f(nested())
    assert found.is_nested and found.size(0) == 3
    for mine, p in zip(found.unbind(), parts(), strict=True):
        want = each(p)
        assert mine.dtype == want.dtype and mine.shape == want.shape
        assert ad.allclose(mine.double(), want.double(), rtol=1e-6)


def test_gradients() -> None:
    given = [p.requires_grad_() for p in parts(((2, 3), (1, 2)), dtype=ad.float64)]
    t = ad.nested.as_nested_tensor(given)
    (t * t).to_padded_tensor(0.0).sum().backward()
    assert all(p.grad.tolist() == (2 * p).tolist() for p in given)
    leaf = nested(requires_grad=True)
    leaf.unbind()[1].sum().backward()
    assert [p.sum().item() for p in leaf.grad.unbind()] == [0.0, 12.0, 0.0]
    (g,) = ad.autograd.grad(leaf * 3, leaf, ad.ones_like(leaf))
    assert g.is_nested and g.values().tolist() == [3.0] * 21

    def block(*a: Any) -> Any:
        x = ad.nested.as_nested_tensor(list(a))
        y = F.softmax(F.linear(x, W.double()), -1)
        return (y.transpose(1, 2) @ x).to_padded_tensor(0.0)
    assert ad.autograd.gradcheck(block, [ad.randn(n, 3, dtype=ad.float64, requires_grad=True)
                                         for n in (2, 4)])


def test_padding() -> None:
    t = nested(((2, 3), (1, 5)))
    full = t.to_padded_tensor(-1.0)
    assert full.shape == (2, 2, 5) and full[0, 0].tolist() == [0.0, 1.0, 2.0, -1.0, -1.0]
    assert t.to_padded_tensor(0.0, output_size=(3, 2, 6)).shape == (3, 2, 6)
    with pytest.raises(RuntimeError, match="Truncation is not supported"):
        t.to_padded_tensor(0.0, output_size=(2, 2, 4))


def test_written_in_place_and_through_parts() -> None:
    t = nested()
    t.mul_(2)
    t[1].fill_(-1.0)
    t.unbind()[2].zero_()
    assert t.values().tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0] + [-1.0] * 12 + [0.0] * 3
    t.copy_(nested())
    assert t.values().tolist() == [float(i) for i in range(21)]
    t.transpose(1, 2).zero_()
    assert not t.values().any()


REFUSED = {
    "lambda t: ad.nested.nested_tensor([ad.ones(2), ad.ones(2, 3)])": "same dimension. Found",
    "lambda t: ad.nested.nested_tensor(ad.ones(2))": "Only lists",
    "lambda t: ad.nested.as_nested_tensor([[1.0]])": "Expected first argument to be a tensor or",
    "lambda t: t + ad.ones(3)": "Expected both self and other to be nested",
    "lambda t: t + nested(((1, 3),) * 3)": "add does not support broadcasting when given",
    "lambda t: t == t": "eq does not support nested tensor as other value",
    "lambda t: t.exp()": "Could not run 'aten::exp'",
    "lambda t: t.sum()": "Could not run 'aten::sum'",
    "lambda t: t.sum(1)": "only be reduced across the last dimension",
    "lambda t: t.sum(-1)": "always requires keepdim=True",
    "lambda t: t.softmax(0)": "Cannot apply softmax across nested dimension 0",
    "lambda t: t.transpose(0, 1)": "dimension 0 cannot be transposed",
    "lambda t: t.unbind(1)": "only be unbound along dimension 0",
    "lambda t: t[3]": "index 3 is out of bounds for dimension 0 with size 3",
    "lambda t: t.view(-1, 3)": "cannot change or infer the implicit batch",
    "lambda t: t.reshape(3, -1)": r"shape '\[3, -1\]' is invalid for input of size 6",
    "lambda t: t.chunk(2, 0)": "only supported for the last dimension",
    "lambda t: F.linear(t, ad.ones(2, 4))": "Shape mismatch for NestedTensor Linear",
    "lambda t: t @ ad.ones(3, 2)": "Expected both to be nested",
    "lambda t: t.bmm(t)": "0-th nested matrices in batch cannot be multiplied",
    "lambda t: F.layer_norm(t, (3,))": "requires weight and bias",
    "lambda t: ad.nested.as_nested_tensor(t, layout=ad.jagged)": "Converting between nested",
    "lambda t: t.transpose(1, 2).view(3, 3, -1, 1)": "view size is not compatible",
}


@pytest.mark.parametrize("program", REFUSED)
def test_refusals(program: str) -> None:
    with pytest.raises((RuntimeError, ValueError, IndexError, TypeError), match=REFUSED[program]):
        eval(program)(nested())  # noqa: S307  # our own texts


def saved(t: Any) -> Any:
    """Through a checkpoint."""
    file = io.BytesIO()
    ad.save(t, file)
    file.seek(0)
    return ad.load(file)


@pytest.mark.parametrize("again", [
    copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t)), saved, lambda t: t.clone()])
def test_copies(again: Any) -> None:
    t = nested(((2, 3), (1, 5))).transpose(1, 2)
    twin = again(t)
    assert [p.tolist() for p in twin.unbind()] == [p.tolist() for p in t.unbind()]


# ------------------------------------------------------------------ layers
def encoder(**options: Any) -> Any:
    ad.manual_seed(0)
    layer = ad.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    return ad.nn.TransformerEncoder(layer, 2, **options).eval()


PADDED = ad.tensor([[False, False, True, True], [False] * 4])


def test_an_encoder_gives_zeros_for_padding() -> None:
    """In evaluation without gradients; what has a value has the same as elsewhere."""
    model, x = encoder(), ad.randn(2, 4, 8)
    with ad.no_grad():
        out = model(x, src_key_padding_mask=PADDED)
        dense = encoder(enable_nested_tensor=False)(x, src_key_padding_mask=PADDED)
    assert not out[0, 2:].any() and dense[0, 2:].all()
    assert ad.allclose(out[~PADDED], dense[~PADDED], atol=1e-6)


@pytest.mark.parametrize("case", ["training", "gradients", "mask", "inside", "disabled"])
def test_an_encoder_computes_padding_elsewhere(case: str) -> None:
    model = encoder(enable_nested_tensor=case != "disabled").train(case == "training")
    padding = PADDED.flip(1) if case == "inside" else PADDED
    with ad.set_grad_enabled(case == "gradients"):
        out = model(ad.randn(2, 4, 8), ad.zeros(4, 4) > 0 if case == "mask" else None, padding)
    assert out.all()


def test_layers_take_nested_tensors() -> None:
    model = encoder()
    given = [ad.randn(2, 8), ad.randn(4, 8)]
    with ad.no_grad():
        out = model(ad.nested.nested_tensor(given))
        assert out.is_nested
        for mine, p in zip(out.unbind(), given, strict=True):
            assert ad.allclose(mine, model(p.unsqueeze(0))[0], atol=1e-5)
    attention = model.layers[0].self_attn
    t = ad.nested.nested_tensor(given)
    with pytest.raises(AssertionError, match="outside of its fast path.* because grad is enabled"):
        attention(t, t, t)
    with ad.no_grad(), pytest.raises(AssertionError, match="has_torch_function"):
        j = ad.nested.nested_tensor(given, layout=ad.jagged)
        attention(j, j, j)
    with ad.no_grad(), pytest.raises(AssertionError, match="training is enabled"):
        attention.train()(t, t, t)
