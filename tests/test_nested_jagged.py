"""Nested tensors of layout jagged: what they are, what functions give, gradients, refusals."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest

import adjoint as ad

F = ad.nn.functional
PARTS = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]], [[7.0, 8.0], [9.0, 10.0], [11.0, 12.0]]]


def nested(**options: Any) -> Any:
    """Three parts of two columns: 2, 1 and 3 rows."""
    return ad.nested.nested_tensor([ad.tensor(p) for p in PARTS], layout=ad.jagged, **options)


def rows(t: Any) -> Any:
    """The parts as lists."""
    return [p.tolist() for p in t.unbind()]


def test_what_it_is() -> None:
    t = nested()
    assert t.is_nested and t.layout is ad.jagged and t.dim() == 3 and len(t) == 3
    assert isinstance(t, ad.Tensor) and not ad.ones(2).is_nested
    assert (t.size(0), t.size(2), t.numel(), t.dtype) == (3, 2, 12, ad.float32)
    assert t.offsets().tolist() == [0, 2, 3, 6] and t.lengths() is None
    assert t.values().tolist() == sum(PARTS, []) and rows(t) == PARTS
    assert [p.tolist() for p in t] == PARTS
    with pytest.raises(IndexError, match="Dimension out of range .* but got 3"):
        t.size(3)


def test_the_ragged_extent_is_a_symbol() -> None:
    t, other = nested(), nested()
    symbol = t.shape[1]
    assert isinstance(symbol, ad.SymInt) and repr(symbol).startswith("j")
    assert str(t.shape) == f"{ad.float32!s}".split(".")[0] + f".Size([3, {symbol}, 2])"
    assert t.shape == (t * 2).shape == t.clone().shape != other.shape
    assert symbol != 2 and symbol >= 2 and symbol > 1 and not symbol < 1
    assert t.shape[:2] == (3, symbol) and repr(symbol * 3) == f"3*{symbol}"
    with pytest.raises(ValueError, match="indeterminate"):
        _ = symbol > 7
    assert repr(t) == (f"NestedTensor(size=(3, {symbol}, 2), offsets=tensor([0, 2, 3, 6]), "
                       "contiguous=True)")


ELEMENTS = {
    "unary": (lambda t: t.exp(), lambda p: p.exp()),
    "number": (lambda t: 2 - t * 3, lambda p: 2 - p * 3),
    "nested": (lambda t: t * t + t, lambda p: p * p + p),
    "row": (lambda t: t * ad.tensor([10.0, 1.0]), lambda p: p * ad.tensor([10.0, 1.0])),
    "compare": (lambda t: t > 4, lambda p: p > 4),
    "gelu": (lambda t: F.gelu(t, approximate="tanh"), lambda p: F.gelu(p, approximate="tanh")),
    "clamp": (lambda t: t.clamp(2, max=9), lambda p: p.clamp(2, max=9)),
    "where": (lambda t: ad.where(t > 4, t, 0.0), lambda p: ad.where(p > 4, p, 0.0)),
    "like": (lambda t: ad.ones_like(t), lambda p: ad.ones_like(p)),
    "dtype": (lambda t: t.double(), lambda p: p.double()),
    "last axis": (lambda t: t.softmax(-1), lambda p: p.softmax(-1)),
    "ragged axis": (lambda t: t.softmax(1), lambda p: p.softmax(0)),
    "linear": (lambda t: F.linear(t, W, B), lambda p: F.linear(p, W, B)),
    "matmul": (lambda t: t @ W.t(), lambda p: p @ W.t()),
    "layer_norm": (lambda t: F.layer_norm(t, (2,)), lambda p: F.layer_norm(p, (2,))),
    "rms_norm": (lambda t: F.rms_norm(t, (2,)), lambda p: F.rms_norm(p, (2,))),
    "transposed": (lambda t: t.transpose(1, 2), lambda p: p.transpose(0, 1)),
    "permuted": (lambda t: t.permute(0, 2, 1).contiguous(), lambda p: p.permute(1, 0)),
    "view": (lambda t: t.view(3, -1, 1, 2), lambda p: p.view(-1, 1, 2)),
    "symbol": (lambda t: t.unsqueeze(-1).view(*t.shape[:2], 2), lambda p: p),
    "flatten": (lambda t: t.unsqueeze(2).flatten(2), lambda p: p),
    "unflatten": (lambda t: t.unflatten(-1, (2, 1)), lambda p: p.unflatten(-1, (2, 1))),
    "squeeze": (lambda t: t.unsqueeze(1).squeeze(1), lambda p: p),
    "column": (lambda t: t[..., 1], lambda p: p[:, 1]),
    "columns": (lambda t: t[..., 1:], lambda p: p[:, 1:]),
    "narrow": (lambda t: t.narrow(2, 0, 1), lambda p: p.narrow(1, 0, 1)),
    "chunk": (lambda t: t.chunk(2, -1)[1], lambda p: p.chunk(2, -1)[1]),
    "split": (lambda t: t.split([1, 1], -1)[0], lambda p: p.split([1, 1], -1)[0]),
    "cat": (lambda t: ad.cat([t, t * 2], -1), lambda p: ad.cat([p, p * 2], -1)),
    "stack": (lambda t: ad.stack([t, t], 2), lambda p: ad.stack([p, p], 1)),
    "expand": (lambda t: t.unsqueeze(-1).expand(3, -1, 2, 4),
               lambda p: p.unsqueeze(-1).expand(-1, 2, 4)),
    "sum of columns": (lambda t: t.sum(-1, keepdim=True), lambda p: p.sum(-1, keepdim=True)),
    "arg of columns": (lambda t: t.max(-1).indices, lambda p: p.max(-1).indices),
    "per part": (lambda t: t + ad.tensor([[[1.0]], [[2.0]], [[3.0]]]), None),
    "padded": (lambda t: t + t.to_padded_tensor(5.0), lambda p: p + p),
}
W, B = ad.tensor([[1.0, -1.0], [0.5, 2.0], [3.0, 0.0]]), ad.tensor([0.0, 1.0, -1.0])


@pytest.mark.parametrize("name", ELEMENTS)
def test_functions_act_on_each_part(name: str) -> None:
    f, each = ELEMENTS[name]
    found = f(nested())
    wanted = ([ad.tensor(p) + i + 1 for i, p in enumerate(PARTS)] if each is None
              else [each(ad.tensor(p)) for p in PARTS])
    assert found.is_nested and len(found) == 3
    for mine, want in zip(found.unbind(), wanted, strict=True):
        assert mine.dtype == want.dtype and mine.shape == want.shape
        assert ad.allclose(mine.double(), want.double(), rtol=1e-6)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin", "argmax", "argmin"])
def test_reductions(name: str) -> None:
    t = nested()
    found = getattr(t, name)(1)
    assert found.tolist() == [getattr(ad.tensor(p), name)(0).tolist() for p in PARTS]
    assert getattr(t, name)(1, keepdim=True).shape == (3, 1, 2)
    assert getattr(t, name)().item() == getattr(t.values(), name)().item()


def test_reductions_of_several_axes() -> None:
    t = nested()
    assert t.sum((0, 1)).tolist() == [36.0, 42.0] and t.sum((0, 1, 2)).item() == 78.0
    assert t.max(1).values.tolist() == [[3.0, 4.0], [5.0, 6.0], [11.0, 12.0]]
    assert (t > 4).any(1).tolist() == [[False, False], [True, True], [True, True]]
    assert (t > 4).all(1).tolist() == [[False, False], [True, True], [True, True]]
    with pytest.raises(RuntimeError, match="along the batch dimension but not the ragged"):
        t.sum(0)
    with pytest.raises(RuntimeError, match="along a ragged and non-batch dimension"):
        t.sum((1, 2))


def test_padding_and_back() -> None:
    t = nested()
    full = t.to_padded_tensor(-1.0)
    assert full.shape == (3, 3, 2) and full[1].tolist() == [[5.0, 6.0], [-1.0, -1.0], [-1.0, -1.0]]
    assert t.to_padded_tensor(0.0, output_size=(3, 4, 2)).shape == (3, 4, 2)
    assert ad.nested.to_padded_tensor(t, 0.0, (3, 2, 2))[2].tolist() == PARTS[2][:2]
    with pytest.raises(NotImplementedError, match="to_padded_tensor"):
        ad.nested.to_padded_tensor(ad.ones(2), 0.0)


def test_gradients_reach_the_tensors_it_is_made_of() -> None:
    parts = [ad.tensor(p, requires_grad=True) for p in PARTS]
    t = ad.nested.as_nested_tensor(parts, layout=ad.jagged)
    assert not t.is_leaf and t.requires_grad and t.grad_fn is not None
    (t * t).sum(1)[2].sum().backward()
    assert [p.grad.tolist() for p in parts[:2]] == [[[0.0, 0.0]] * 2, [[0.0, 0.0]]]
    assert parts[2].grad.tolist() == [[14.0, 16.0], [18.0, 20.0], [22.0, 24.0]]


def test_gradients_of_a_leaf_are_nested() -> None:
    t = nested(requires_grad=True)
    assert t.is_leaf and t.grad is None
    seen: list[Any] = []
    t.register_hook(lambda g: seen.append(g) or g * 2)
    (t.to_padded_tensor(0.0) * 3).sum().backward()
    assert t.grad.is_nested and t.grad.shape == t.shape and seen[0].is_nested
    assert t.grad.values().tolist() == [[6.0, 6.0]] * 6
    t.grad = None
    (t * t).backward(ad.ones_like(t))
    assert rows(t.grad)[1] == [[20.0, 24.0]]
    (g,) = ad.autograd.grad(t.exp(), t, ad.zeros_like(t))
    assert g.is_nested and rows(g)[1] == [[0.0, 0.0]]
    (g,) = ad.autograd.grad([t[2].sum(), t.values().sum()], t)
    assert rows(g) == [[[2.0, 2.0]] * 2, [[2.0, 2.0]], [[4.0, 4.0]] * 3]
    t.grad = None
    ad.autograd.backward([t.sum()], inputs=[t])
    assert t.grad.values().tolist() == [[2.0, 2.0]] * 6
    assert not t.detach().requires_grad


def test_gradients_by_differences() -> None:
    gen = ad.Generator().manual_seed(0)
    parts = [ad.randn(n, 3, dtype=ad.float64, generator=gen).requires_grad_() for n in (2, 4, 1)]
    weight = ad.randn(5, 3, dtype=ad.float64, generator=gen).requires_grad_()

    def block(*given: Any) -> Any:
        *a, w = given
        t = ad.nested.as_nested_tensor(list(a), layout=ad.jagged)
        h = F.layer_norm(F.gelu(F.linear(t, w)), (5,))
        return (h.softmax(1).sum(1), (h.transpose(1, 2) @ t), h.amax(1), t.mean((0, 1)))
    assert ad.autograd.gradcheck(block, (*parts, weight))


def test_attention_within_parts() -> None:
    gen = ad.Generator().manual_seed(1)
    values = ad.randn(6, 4, 8, generator=gen, requires_grad=True)
    t = ad.nested.nested_tensor_from_jagged(values, ad.tensor([0, 2, 3, 6]))
    heads = t.transpose(1, 2)
    assert heads.dim() == 4 and heads.size(1) == 4 and not heads.is_contiguous()
    out = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2)
    assert out.shape == t.shape
    for part, mine in zip(t.unbind(), out.unbind(), strict=True):
        p = part.transpose(0, 1)
        want = F.scaled_dot_product_attention(p, p, p).transpose(0, 1)
        assert ad.allclose(mine, want, atol=1e-6)
    out.sum().backward()
    assert values.grad.shape == values.shape
    with pytest.raises(ValueError, match="query, key, and value to be nested tensors"):
        F.scaled_dot_product_attention(heads, heads, ad.ones(3, 4, 3, 8))


def test_a_training_step_of_a_model() -> None:
    """Embedding, projection, attention, mean over the tokens: as each text by itself."""
    ad.manual_seed(0)
    table, project = ad.nn.Embedding(11, 8), ad.nn.Linear(8, 24)
    norm, head = ad.nn.LayerNorm(8), ad.nn.Linear(8, 2)
    texts = [ad.tensor([1, 2, 3]), ad.tensor([4]), ad.tensor([5, 6, 7, 8])]

    def whole(x: Any) -> Any:
        q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2)
                   for y in project(norm(table(x))).chunk(3, -1))
        return head(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2).mean(1))
    together = whole(ad.nested.nested_tensor(texts, layout=ad.jagged))
    alone = ad.cat([whole(t.unsqueeze(0)) for t in texts])
    assert ad.allclose(together, alone, atol=1e-6)
    weights = [*table.parameters(), *project.parameters(), *head.parameters()]
    target = ad.tensor([0, 1, 0])
    got = ad.autograd.grad(F.cross_entropy(together, target), weights)
    want = ad.autograd.grad(F.cross_entropy(alone, target), weights)
    assert all(ad.allclose(a, b, atol=1e-6) for a, b in zip(got, want, strict=True))


def test_written_in_place() -> None:
    t = nested()
    t.mul_(2).add_(1)
    t[1].zero_()
    assert rows(t)[1] == [[0.0, 0.0]] and rows(t)[0] == [[3.0, 5.0], [7.0, 9.0]]
    t.copy_(nested())
    assert rows(t) == PARTS
    t.fill_(3.0)
    assert t.sum().item() == 36.0
    with pytest.raises(RuntimeError, match="expected compatible input and src shapes"):
        t.copy_(ad.nested.nested_tensor([ad.ones(1, 2)] * 3, layout=ad.jagged))


def test_made_from_values() -> None:
    values = ad.arange(12.0).view(6, 2).requires_grad_()
    t = ad.nested.nested_tensor_from_jagged(values, lengths=ad.tensor([2, 1, 3]))
    assert t.offsets().tolist() == [0, 2, 3, 6] and not t.is_leaf
    t.sum(1)[0].sum().backward()
    assert values.grad.tolist() == [[1.0, 1.0]] * 2 + [[0.0, 0.0]] * 4
    holes = ad.nested.nested_tensor_from_jagged(
        values.detach(), ad.tensor([0, 2, 3, 6]), ad.tensor([1, 1, 2]))
    assert holes.lengths().tolist() == [1, 1, 2] and not holes.is_contiguous()
    assert rows(holes) == [[[0.0, 1.0]], [[4.0, 5.0]], [[6.0, 7.0], [8.0, 9.0]]]
    assert holes.numel() == 8 and rows(holes.contiguous()) == rows(holes)
    assert rows(holes * 2)[1] == [[8.0, 10.0]] and holes.sum().item() == 40.0
    with pytest.raises(RuntimeError, match="not supported for nested tensors with holes"):
        holes.to_padded_tensor(0.0)
    other = ad.nested.nested_tensor_from_jagged(ad.ones(2, 6), ad.tensor([0, 2, 6]), jagged_dim=2)
    assert [tuple(p.shape) for p in other.unbind()] == [(2, 2), (2, 4)]
    with pytest.raises(ValueError, match="At least one of offsets or lengths"):
        ad.nested.nested_tensor_from_jagged(values)


def test_made_from_ranges_and_masks() -> None:
    x = ad.arange(12.0).view(3, 4)
    t = ad.nested.narrow(x, 1, ad.tensor([0, 1, 2]), ad.tensor([2, 3, 1]), layout=ad.jagged)
    assert rows(t) == [[0.0, 1.0], [5.0, 6.0, 7.0], [10.0]]
    x[2, 2] = -1.0
    assert rows(t)[2] == [-1.0]                           # a view
    picked = ad.nested.masked_select(x, x > 5)
    assert rows(picked) == [[], [6.0, 7.0], [8.0, 9.0, 11.0]]
    t = ad.nested.as_nested_tensor(x, layout=ad.jagged)
    assert t.values().tolist() == x.flatten().tolist() and len(t) == 3
    assert ad.nested.as_nested_tensor(t, layout=ad.jagged) is t


def test_groups_of_parts() -> None:
    first, second = nested().chunk(2)
    assert rows(first) == PARTS[:2] and rows(second) == PARTS[2:]
    assert nested()[2].tolist() == nested().select(0, -1).tolist() == PARTS[2]
    assert nested()[0, 1].tolist() == [3.0, 4.0] and nested()[-1, 0, 1].item() == 8.0


REFUSED = {
    "lambda t: ad.nested.nested_tensor([], layout=ad.jagged)": "from an empty tensor list",
    "lambda t: ad.nested.nested_tensor([ad.ones(2, 3), ad.ones(3, 4)], layout=ad.jagged)":
        "only one irregular dimension",
    "lambda t: ad.nested.nested_tensor([ad.ones(2), ad.ones(2).double()], layout=ad.jagged)":
        "must have the same dtype",
    "lambda t: ad.nested.nested_tensor([ad.tensor(1.0)], layout=ad.jagged)": "zero-dim tensors",
    "lambda t: ad.nested.nested_tensor([ad.ones(2)], layout=ad.sparse_coo)": "is unsupported",
    "lambda t: t + nested()": "cannot call binary pointwise function add.Tensor with inputs of",
    "lambda t: t + ad.ones(2, 1, 2)": "cannot call binary pointwise function add.Tensor",
    "lambda t: t + ad.ones(3, 2, 2)": r"expanded size of the tensor \(3\) must match",
    "lambda t: t.transpose(0, 1)": "not supported on the batch dimension",
    "lambda t: t.view(-1, 2)": r"cannot view shape \(3, j\d+, 2\) as \[-1, 2\]",
    "lambda t: t.unsqueeze(0)": r"unsqueeze\(\): not supported for NestedTensor on dim=0",
    "lambda t: t.select(1, 0)": r"select\(\): not supported for NestedTensor on ragged dim",
    "lambda t: t[:, 0]": r"slice\(\): not supported for NestedTensor on dim=0",
    "lambda t: ad.cat([t, t])": r"cat\(\): not supported for NestedTensor on dim=0",
    "lambda t: t.softmax(0)": "across the batch dimension",
    "lambda t: t @ t.transpose(1, 2)": r"matmul\(\): not supported between inputs of shapes",
    "lambda t: t.sort()": "aten.sort.default of a nested tensor",
    "lambda t: t[3]": "index 3 is out of range",
    "lambda t: t.new_zeros(3)": "not supported for NJT",
    "lambda t: t.unbind(1)": "only supported for NestedTensor on dim=0",
    "lambda t: t.numpy()": "not supported for tensor subclasses",
    "lambda t: F.layer_norm(t.transpose(1, 2), (3,))": "must not be ragged",
}


@pytest.mark.parametrize("program", REFUSED)
def test_refusals(program: str) -> None:
    with pytest.raises((RuntimeError, ValueError, IndexError), match=REFUSED[program]):
        eval(program)(nested())  # noqa: S307  # our own texts


@pytest.mark.parametrize("again", [
    copy.deepcopy, copy.copy, lambda t: pickle.loads(pickle.dumps(t)), lambda t: saved(t)])
def test_copies(again: Any) -> None:
    t = nested(requires_grad=True)
    twin = again(t)
    assert rows(twin) == PARTS and twin.requires_grad and twin.layout is ad.jagged
    assert twin.offsets().tolist() == t.offsets().tolist()


def saved(t: Any) -> Any:
    """Through a checkpoint."""
    file = io.BytesIO()
    ad.save({"t": t}, file)
    file.seek(0)
    return ad.load(file)["t"]


def test_the_graph_is_one_of_the_values() -> None:
    """Nodes, memory and records see ordinary functions of the values."""
    t = nested(requires_grad=True)
    out = (t.exp() * 2).values()
    names = []
    node = out.grad_fn
    while node is not None:
        names.append(node.name().rstrip("0"))
        node = node.next_functions[0][0] if node.next_functions else None
    assert names[:3] == ["ViewBackward", "MulBackward", "ExpBackward"]


def test_modes_are_told() -> None:
    seen = []

    class Mode(ad.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None
                               ) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))
    t = nested()
    with Mode():
        ad.sin(t)
    assert seen == ["sin"]
