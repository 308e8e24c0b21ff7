"""Attention whose weights are whole (dropout of few scores, weights that are asked for) keeps q, k,
v and a bit per weight: same numbers as its composition, under every transform (issue 5.7)."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_memory import agree

import adjoint as ad
from adjoint import func as af
from adjoint import nn
from adjoint.base.errors import ShapeError
from adjoint.kernels import alloc

F = nn.functional
SHAPES = ((2, 4, 6, 8), (2, 4, 7, 8), (2, 4, 7, 5))


def operands(*shapes: tuple[int, ...], dtype: Any = np.float64) -> list[Any]:
    rng = np.random.default_rng(1)
    return [ad.tensor(rng.standard_normal(s).astype(dtype), requires_grad=True) for s in shapes]


def composed(q: Any, k: Any, v: Any, mask: Any, p: float, causal: bool = False) -> Any:
    """The same in single ops, each of which keeps what it needs."""
    scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.transpose(-2, -1)
    if causal:
        scores = scores.masked_fill(~ad.ones(scores.shape[-2:]).tril().bool(), -math.inf)
    if mask is not None:
        scores = scores + mask
    return F.dropout(scores.softmax(-1), p) @ v


@pytest.mark.parametrize("case", ["plain", "causal", "mask", "mask with gradient"])
def test_value_and_both_derivatives_are_those_of_the_composition(case: str) -> None:
    q, k, v, mask = operands(*SHAPES, (6, 7))
    bias = mask if case == "mask with gradient" else mask.detach() if case == "mask" else None
    wanted = [q, k, v, *([mask] if bias is mask else [])]
    found = []
    for f in (F.scaled_dot_product_attention, composed):
        ad.manual_seed(5)
        y = f(q, k, v, bias, 0.4, case == "causal")
        first = ad.autograd.grad(y.sin().sum(), wanted, create_graph=True)
        second = ad.autograd.grad(sum((g * g).sum() for g in first), wanted)
        found.append([y, *first, *second])
    for ours, other in zip(*found, strict=True):
        np.testing.assert_allclose(ours.detach(), other.detach(), rtol=1e-11, atol=1e-12)


def test_rows_that_a_mask_leaves_nothing_have_gradients_of_zero() -> None:
    """Of both orders; their softmax alone is NaN."""
    q, k, v = operands(*SHAPES)
    mask = ad.ones(6, 7, dtype=ad.bool)
    mask[2] = False
    y = F.scaled_dot_product_attention(q, k, v, mask, 0.3)
    first = ad.autograd.grad(y.sin().sum(), [q, k, v], create_graph=True)
    second = ad.autograd.grad(sum((g * g).sum() for g in first), [q, k, v])
    assert not y[..., 2, :].any() and not first[0][..., 2, :].any()
    assert all(g.isfinite().all() and g.any() for g in (*first, *second))


def test_heads_that_share_keys() -> None:
    q, k, v = operands((2, 4, 6, 8), (2, 2, 7, 8), (2, 2, 7, 5))
    found = []
    for spread in (False, True):
        ad.manual_seed(2)
        given = (k, v) if not spread else tuple(t.repeat_interleave(2, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, *given, dropout_p=0.3, enable_gqa=not spread)
        found.append([y, *ad.autograd.grad(y.sin().sum(), [q, k, v])])
    for ours, other in zip(*found, strict=True):
        np.testing.assert_allclose(ours.detach(), other.detach(), rtol=1e-12, atol=1e-13)


def test_tangents_and_examples() -> None:
    q, k, v = (t.detach() for t in operands(*SHAPES))

    def seeded(f: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            ad.manual_seed(7)
            return f(*args)
        return run

    def ours(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, None, 0.3)

    def theirs(q: Any, k: Any, v: Any) -> Any:
        return composed(q, k, v, None, 0.3)
    tangents = tuple(t.cos() for t in (q, k, v))
    for got, want in zip(*(af.jvp(seeded(f), (q, k, v), tangents) for f in (ours, theirs)),
                         strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)
    for axes in ((0, 0, 0), (0, None, 0), (None, 0, None)):
        args = [t if a == 0 else t[0] for t, a in zip((q, k, v), axes, strict=True)]
        for randomness in ("same", "different"):
            every = [seeded(af.vmap(af.grad(lambda *a, f=f: f(*a).sin().sum(), argnums=(0, 1, 2)),
                                    axes, randomness=randomness))(*args) for f in (ours, theirs)]
            for got, want in zip(*every, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


def test_examples_that_share_their_operands_draw_for_themselves() -> None:
    q, k, v = (t.detach() for t in operands(*SHAPES))

    def f(x: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, None, 0.5) + x
    each = af.vmap(f, randomness="different")(ad.zeros(3, dtype=ad.float64)).numpy()
    once = af.vmap(f, randomness="same")(ad.zeros(3, dtype=ad.float64)).numpy()
    assert (each[0] != each[1]).any() and (each[1] != each[2]).any()
    assert (once == once[:1]).all()


def test_float16_keeps_its_dtype() -> None:
    q, k, v = operands(*SHAPES, dtype=np.float16)
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    y.sum().backward()
    assert y.dtype == q.grad.dtype == k.grad.dtype == v.grad.dtype == ad.float16


# ------------------------------------------------------------------------- bytes
def saved(y: Any) -> list[tuple[int, ...]]:
    return [tuple(t.shape) for t in y.grad_fn.saved_tensors]


def test_what_the_record_keeps() -> None:
    q, k, v = operands(*SHAPES)
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    bits = -(-2 * 4 * 6 * 7 // 64) * 8
    assert saved(y) == [*SHAPES, (bits,)]


@pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
@pytest.mark.parametrize(("p", "masked"), [(0.1, False), (0.1, True), (0.0, True)])
@pytest.mark.parametrize("average", [True, False])
def test_weights_that_nobody_differentiates_cost_a_bit_each(p: float, masked: bool,
                                                            average: bool) -> None:
    """`MultiheadAttention` with weights: predicted = measured at every event, and after the call,
    once the weights are gone, no (length x length) matrix is left."""
    length, width, heads = 48, 16, 4
    layer = nn.MultiheadAttention(width, heads, p, batch_first=True)
    x = ad.randn(2, length, width, requires_grad=True)
    mask = ad.ones(length, length).triu(1).bool() if masked else None

    def attend() -> Any:
        return layer(x, x, x, attn_mask=mask, average_attn_weights=average)

    def step() -> None:
        out, weights = attend()
        del weights
        out.sum().backward()
        layer.zero_grad()
        x.grad = None

    def both() -> None:
        out, weights = attend()
        (out.sum() + weights.sin().sum()).backward()
        layer.zero_grad()
        x.grad = None
    for f in (step, step, both, both):
        predicted, measured = agree(f)
        assert predicted.exact and predicted.roles == measured.roles
    before = alloc.live()
    kept = attend()[0]
    # result, q with k and v, what the heads gave, bits, the mask as numbers, and small change
    floats, scores = x.array.nbytes, 2 * heads * length * length
    assert alloc.live() - before <= 5 * floats + scores // 8 + masked * length * length * 4 + 1024
    assert 5 * floats + scores // 8 + 1024 < 4 * scores + 4 * floats
    del kept


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(4, 2, 4), (4, 4, 2), (4, 1, 2)])
def test_key_and_value_with_groups_of_their_own(heads: tuple[int, ...], causal: bool) -> None:
    """Kernels know one grouping: with two, memory beyond the arrays was read and written."""
    given = operands(*[(2, h, 6, 8) for h in heads])
    q, k, v = (t.detach().repeat_interleave(4 // h, 1).requires_grad_()
               for t, h in zip(given, heads, strict=True))
    out = F.scaled_dot_product_attention(*given, is_causal=causal, enable_gqa=True)
    want = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    np.testing.assert_allclose(out.detach(), want.detach(), rtol=1e-12, atol=1e-14)
    ct = ad.randn(out.shape, dtype=ad.float64)
    for g, t, wide in zip(ad.autograd.grad(out, given, ct), given,
                          ad.autograd.grad(want, (q, k, v), ct), strict=True):
        apart = wide.reshape(2, t.shape[1], -1, 6, 8).sum(2)
        np.testing.assert_allclose(g, apart, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("shapes, words", [
    (((2, 4, 6, 8), (2, 2, 6, 8), (2, 3, 6, 8)), "3 heads of value"),
    (((2, 4, 6, 8), (2, 8, 6, 8), (2, 2, 6, 8)), "8 heads of key"),
    (((2, 4, 6, 8), (2, 2, 6, 8), (3, 2, 6, 8)), "do not broadcast"),
    (((6, 8), (6, 8), (6, 8)), "axis of heads")])
def test_groups_that_do_not_fit_are_refused(shapes: Any, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        F.scaled_dot_product_attention(*operands(*shapes), enable_gqa=True)
