"""What holds beside the numbers: errors, dtypes, meta tensors, out=, node names, residuals."""
from typing import Any

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint.base.aval import MetaArray
from adjoint.core.tensor import wrap

x23 = ad.ones(2, 3)
LONG = ad.tensor([0, 1])
BAD = [
    (RuntimeError, "2x3 and 2x3", lambda: x23 @ x23),
    (RuntimeError, "same dtype", lambda: x23 @ ad.ones(3, 2, dtype=ad.float64)),
    (RuntimeError, "invalid for input of size 6", lambda: x23.reshape(4, 2)),
    (RuntimeError, "ambiguous", lambda: ad.zeros(0, 3).reshape(-1, 0)),
    (IndexError, "Dimension out of range", lambda: x23.sum(2)),
    (RuntimeError, "appears multiple times", lambda: x23.sum((0, 0))),
    (RuntimeError, "Sizes of tensors must match", lambda: ad.cat([x23, ad.ones(2, 2)])),
    (RuntimeError, "equal size", lambda: ad.stack([x23, ad.ones(2, 2)])),
    (IndexError, "out of bounds for dimension 0 with size 2", lambda: x23[2]),
    (IndexError, "out of bounds for dimension 0 with size 2", lambda: x23[ad.tensor([0, 5])]),
    (IndexError, "too many indices", lambda: x23[0, 0, 0]),
    (IndexError, "does not match the shape", lambda: x23[ad.tensor([True, False, True])]),
    (IndexError, "valid indices", lambda: x23["a"]),
    (RuntimeError, "The expanded size of the", lambda: x23.clone().__setitem__(0, ad.ones(2))),
    (RuntimeError, "out of bounds", lambda: ad.gather(x23, 1, ad.tensor([[7]]))),
    (RuntimeError, "boolean masks", lambda: x23.masked_fill(LONG, 0.0)),
    (RuntimeError, "batch_size", lambda: F.cross_entropy(x23, ad.tensor([0, 1, 2]))),
    (IndexError, "Target 3 is out of bounds", lambda: F.cross_entropy(x23, ad.tensor([0, 3]))),
    (IndexError, "index out of range in self", lambda: F.embedding(ad.tensor([9]), x23)),
    (RuntimeError, "normalized_shape", lambda: F.layer_norm(x23, (4,))),
    (RuntimeError, "3 channels|channels", lambda: F.conv2d(ad.ones(1, 2, 4, 4),
                                                           ad.ones(1, 3, 2, 2))),
    (RuntimeError, "Output size is too small", lambda: F.max_pool2d(ad.ones(1, 1, 1, 1), 3)),
    (RuntimeError, "floating point or complex", lambda: ad.mean(LONG)),
    (RuntimeError, "out of range", lambda: ad.topk(x23, 7)),
    (IndexError, "non-zero size", lambda: ad.amax(ad.zeros(0, 2), 0)),
    (ValueError, "between 0 and 1", lambda: F.dropout(x23, 1.5)),
    (RuntimeError, "einsum", lambda: ad.einsum("ij,jk", x23)),
    (RuntimeError, "is not a valid value for reduction", lambda: F.mse_loss(x23, x23,
                                                                           reduction="max")),
]


@pytest.mark.parametrize("kind, words, call", BAD, ids=[w for _, w, _ in BAD])
def test_bad_input(kind, words, call):
    with pytest.raises(kind, match=words):
        call()


NODES = {
    "MmBackward0": lambda x: x @ x.t(), "AddmmBackward0": lambda x: F.linear(x, x, x[:, 0]),
    "BmmBackward0": lambda x: ad.bmm(x[None], x.t()[None]), "SumBackward0": lambda x: x.sum(),
    "SumBackward1": lambda x: x.sum(0), "MeanBackward0": lambda x: x.mean(),
    "MseLossBackward0": lambda x: F.mse_loss(x, x), "HuberLossBackward0": lambda x: F.huber_loss(
        x, 2 * x, reduction="sum"), "SoftMarginLossBackward0": lambda x: F.soft_margin_loss(x, x),
    "MeanBackward1": lambda x: x.mean(1), "MaxBackward0": lambda x: x.max(0).values,
    "MaxBackward1": lambda x: x.max(), "SelectBackward0": lambda x: x[0],
    "SliceBackward0": lambda x: x[:, 1:], "UnsqueezeBackward0": lambda x: x[None],
    "IndexBackward0": lambda x: x[LONG], "CatBackward0": lambda x: ad.cat([x, x]),
    "StackBackward0": lambda x: ad.stack([x, x]), "TBackward0": lambda x: x.t(),
    "TransposeBackward0": lambda x: x.transpose(0, 1),
    "PermuteBackward0": lambda x: x.permute(1, 0),
    "ViewBackward0": lambda x: x.view(-1), "ExpandBackward0": lambda x: x[None].expand(4, 3, 2),
    "SoftmaxBackward0": lambda x: x.softmax(0), "LogSoftmaxBackward0": lambda x: x.log_softmax(0),
    "NllLossBackward0": lambda x: F.cross_entropy(x, ad.tensor([0, 1, 1])),
    "NativeLayerNormBackward0": lambda x: F.layer_norm(x, (2,)),
    "EmbeddingBackward0": lambda x: F.embedding(LONG, x), "GatherBackward0": lambda x: ad.gather(
        x, 0, LONG[None]), "VarBackward0": lambda x: x.var(), "ProdBackward0": lambda x: x.prod(),
    "ConvolutionBackward0": lambda x: F.conv1d(x[None], x[:, :1][None]),
    "CumsumBackward0": lambda x: x.cumsum(0), "SortBackward0": lambda x: x.sort()[0],
    "LogsumexpBackward0": lambda x: x.logsumexp(0), "MaskedFillBackward0": lambda x: x.masked_fill(
        x > 0, 0.0), "RepeatBackward0": lambda x: x.repeat(2, 2),
    "SplitBackward0": lambda x: x.split(1)[0], "UnbindBackward0": lambda x: x.unbind()[0],
    "DiagonalBackward0": ad.diagonal,
}


@pytest.mark.parametrize("node", NODES)
def test_nodes_print_as_in_pytorch(node):
    x = ad.tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    assert NODES[node](x).grad_fn.name() == node


META = {
    "attention": lambda t: F.scaled_dot_product_attention(t, t, t, is_causal=True),
    "layer_norm": lambda t: F.layer_norm(t, (8,)), "index": lambda t: t[:, 1:, ::2][0],
    "linear": lambda t: F.linear(t, wrap(MetaArray((5, 8), np.dtype("f4")))),
    "softmax": lambda t: t.softmax(-1), "dropout": lambda t: F.dropout(t, 0.5),
    "cross_entropy": lambda t: F.cross_entropy(t[0], wrap(MetaArray((3, 8), np.dtype("i8")))),
    "embedding": lambda t: F.embedding(wrap(MetaArray((7,), np.dtype("i8"))), t[0, 0]),
    "conv": lambda t: F.conv2d(t, wrap(MetaArray((5, 3, 3, 3), np.dtype("f4"))), padding=1),
    "pool": lambda t: F.max_pool2d(t, 2), "reduce": lambda t: t.var(1) + t.mean(1),
    "rows": lambda t: t[wrap(MetaArray((5,), np.dtype("i8")))], "einsum": lambda t: ad.einsum(
        "abcd,aecd->abe", t, t), "cat": lambda t: ad.cat([t, t], -1), "sort": lambda t: t.sort()[0],
}


@pytest.mark.parametrize("name", META)
def test_storage_less_tensors_go_through_every_step(name):
    real = ad.ones(2, 3, 6, 8)
    t = wrap(MetaArray((2, 3, 6, 8), np.dtype("f4")), requires_grad=True)
    made = META[name](t)
    assert isinstance(made.array, MetaArray)
    made.sum().backward()
    assert tuple(t.grad.shape) == tuple(real.shape)


@pytest.mark.parametrize("dtype", [ad.float16, ad.bfloat16])
def test_half_types_are_computed_in_float32(dtype):
    if dtype is ad.bfloat16:
        pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(0)
    x = ad.tensor(rng.standard_normal((4, 64)), dtype=dtype, requires_grad=True)
    w = ad.tensor(rng.standard_normal((8, 64)), dtype=dtype, requires_grad=True)
    wide = [ad.tensor(t.detach().float().numpy().astype(np.float64)) for t in (x, w)]
    steps = (lambda x, w: F.linear(x, w), lambda x, w: x.softmax(1), lambda x, w: x.sum(1),
             lambda x, w: F.layer_norm(x, (64,)), lambda x, w: x.var(1), lambda x, w: x.mean(0),
             lambda x, w: F.cross_entropy(x, ad.tensor([0, 5, 9, 63])), lambda x, w: x.norm(),
             lambda x, w: F.scaled_dot_product_attention(x, w, w), lambda x, w: x.cumsum(1),
             lambda x, w: F.gelu(x), lambda x, w: x.logsumexp(1))
    unit = 2.0 ** -8 if dtype is ad.bfloat16 else 2.0 ** -11
    for step in steps:
        got = step(x, w)
        assert got.dtype == dtype
        want = step(*wide).numpy()
        found = got.detach().float().numpy().astype(np.float64)
        assert np.abs(found - want).max() <= 3 * unit * max(1.0, np.abs(want).max())
        got.float().sum().backward()
        assert x.grad.dtype == dtype


def test_out_is_resized_and_filled():
    out = ad.empty(0)
    assert ad.matmul(x23, ad.ones(3, 2), out=out) is out
    np.testing.assert_array_equal(out.numpy(), np.full((2, 2), 3.0, np.float32))
    values, indices = ad.empty(0), ad.empty(0, dtype=ad.int64)
    found = ad.max(ad.tensor([[1.0, 2.0]]), 1, out=(values, indices))
    assert found.values is values and indices.item() == 1


def kept(y):
    return sorted(y.grad_fn.plan.kept)


def test_only_what_the_rule_reads_is_kept():
    x, w = ad.ones(2, 3, requires_grad=True), ad.ones(4, 3, requires_grad=True)
    frozen = ad.ones(4, 3)
    assert kept(F.linear(x, w)) == ["weight", "x"]
    assert kept(F.linear(x, frozen)) == ["weight"]
    assert kept(F.cross_entropy(x, LONG)) == ["lse", "target", "weight", "x"]
    assert kept(x.softmax(1)) == ["out"]
    assert kept(x[:, 1:]) == [] and kept(x.sum()) == [] and kept(ad.cat([x, x])) == []
    image, kernel = ad.ones(1, 1, 4, 4, requires_grad=True), ad.ones(1, 1, 2, 2)
    assert kept(F.conv2d(image, kernel)) == ["w"]


def test_linear_cross_entropy_is_the_composition_and_keeps_no_logits():
    rng = np.random.default_rng(0)
    x, w, b = (ad.tensor(rng.standard_normal(s), requires_grad=True) for s in ((50, 6), (9, 6), 9))
    t = ad.tensor(rng.integers(0, 9, 50))
    for options in ({}, {"label_smoothing": 0.2}, {"reduction": "sum", "ignore_index": 3}):
        fused = F.linear_cross_entropy(x, w, t, linear_bias=b, **options)
        plain = F.cross_entropy(F.linear(x, w, b), t, **options)
        assert fused.item() == pytest.approx(plain.item(), rel=1e-12)
        assert kept(fused) == ["bias", "lse", "target", "w", "weight", "x"]
        for got, want in zip(ad.autograd.grad(fused, (x, w, b)), ad.autograd.grad(plain, (x, w, b)),
                             strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-13)


def test_padding_row_of_an_embedding_gets_no_gradient():
    w = ad.ones(3, 2, requires_grad=True)
    F.embedding(ad.tensor([0, 1, 1]), w, padding_idx=1).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [[1, 1], [0, 0], [0, 0]])


def test_gradient_scaled_by_frequency():
    w = ad.ones(3, 2, requires_grad=True)
    F.embedding(ad.tensor([0, 1, 1]), w, scale_grad_by_freq=True).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [[1, 1], [1, 1], [0, 0]])


def test_dropout_keeps_the_mean_and_repeats_with_its_seed():
    x = ad.ones(100, 100, requires_grad=True)
    ad.manual_seed(3)
    y = F.dropout(x, 0.25)
    kept_share = float((y.detach().numpy() != 0).mean())
    assert abs(kept_share - 0.75) < 0.02 and set(np.unique(y.detach().numpy())) == {
        0.0, np.float32(1 / 0.75)}
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())
    ad.manual_seed(3)
    np.testing.assert_array_equal(F.dropout(x, 0.25).detach().numpy(), y.detach().numpy())


def test_max_norm_renormalizes_used_rows_only():
    w = ad.tensor([[3.0, 4.0], [6.0, 8.0]])
    F.embedding(ad.tensor([0]), w, max_norm=1.0)
    np.testing.assert_allclose(w.numpy(), [[0.6, 0.8], [6.0, 8.0]], rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("number", [
    0.1, -0.0, 0, 3, 2**53 - 1, 2**53 + 1, -7, 1e300, float("inf"), True])
def test_numbers_among_arrays_of_one_dtype_take_it(dtype: Any, number: Any) -> None:
    from adjoint.ops.family import promote
    a, b = np.ones(3, dtype), np.ones((2, 1), dtype)
    for at in range(3):
        given: list[Any] = [a, b]
        given.insert(at, number)
        found = list(promote(given))
        with np.errstate(over="ignore"):
            wanted = np.asarray(number, dtype)
        made = found.pop(at)
        assert found[0] is a and found[1] is b
        assert made.dtype == dtype and made.shape == () and made.tobytes() == wanted.tobytes()
