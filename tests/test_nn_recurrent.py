"""Recurrent layers, attention and transformers beside PyTorch: outputs and all gradients (F89)."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers_nn import both, close, grads_close, total, twins

import adjoint as ad
from adjoint import nn
from adjoint.nn.utils import rnn

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning:torch"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")]


def pair(name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    peer, ours = getattr(torch.nn, name)(*args, **kwargs), getattr(nn, name)(*args, **kwargs)
    peer.double()
    ours.double()
    twins(peer, ours)
    return peer, ours


def backward_close(peer: Any, ours: Any, out: Any, got: Any, leaves: list[tuple[Any, Any]],
                   tol: float = 1e-10) -> None:
    peer.zero_grad()
    ours.zero_grad()
    total(out).backward()
    total(got).backward()
    for p, q in leaves:
        close(q.grad, p.grad, tol)
    grads_close(peer, ours, tol)


RECURRENT = [(kind, kw) for kind in ("RNN", "LSTM", "GRU") for kw in (
    {}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True},
    {"num_layers": 3, "bidirectional": True, "batch_first": True})] + [
    ("RNN", {"nonlinearity": "relu"}), ("LSTM", {"proj_size": 2}),
    ("LSTM", {"proj_size": 2, "num_layers": 2, "bidirectional": True})]


@pytest.mark.parametrize(("kind", "kw"), RECURRENT)
@pytest.mark.parametrize("shape", [(5, 2, 3), (4, 3)])
@pytest.mark.parametrize("with_state", [False, True])
def test_recurrent_equals_torch(kind: str, kw: dict[str, Any], shape: tuple[int, ...],
                                with_state: bool, rng: np.random.Generator) -> None:
    peer, ours = pair(kind, 3, 4, **kw)
    leaves = [both(torch, rng.standard_normal(shape))]
    states: tuple[Any, ...] = ()
    if with_state:
        _, last = peer(leaves[0][0])
        parts = last if kind == "LSTM" else (last,)
        leaves += [both(torch, rng.standard_normal(tuple(s.shape))) for s in parts]
        states = tuple(leaves[1:])
    pick = (lambda k: tuple(s[k] for s in states)) if kind == "LSTM" else (
        lambda k: states[0][k])
    out = peer(leaves[0][0], *([pick(0)] if states else []))
    got = ours(leaves[0][1], *([pick(1)] if states else []))
    close(got, out)
    backward_close(peer, ours, out, got, leaves)


@pytest.mark.parametrize(("kind", "kw"), RECURRENT)
@pytest.mark.parametrize("lengths", [[3, 5, 1], [5, 5, 2]])
def test_packed_sequences_equal_torch(kind: str, kw: dict[str, Any], lengths: list[int],
                                      rng: np.random.Generator) -> None:
    peer, ours = pair(kind, 3, 4, **kw)
    p, q = both(torch, rng.standard_normal((3, 5, 3)))
    packed_p = torch.nn.utils.rnn.pack_padded_sequence(p, lengths, batch_first=True,
                                                       enforce_sorted=False)
    packed_q = rnn.pack_padded_sequence(q, lengths, batch_first=True, enforce_sorted=False)
    close(tuple(packed_q), tuple(packed_p))
    (out, last), (got, final) = peer(packed_p), ours(packed_q)
    close(tuple(got), tuple(out))
    close(final, last)
    padded_p = torch.nn.utils.rnn.pad_packed_sequence(out, padding_value=7.0, total_length=6)
    padded_q = rnn.pad_packed_sequence(got, padding_value=7.0, total_length=6)
    close(padded_q, padded_p)
    backward_close(peer, ours, (padded_p[0], last), (padded_q[0], final), [(p, q)])


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("shape", [(2, 3), (3,)])
def test_cells_equal_torch(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    peer, ours = pair(kind, 3, 4)
    p, q = both(torch, rng.standard_normal(shape))
    first, start = peer(p), ours(q)
    close(start, first)
    out, got = peer(p, first), ours(q, start)
    close(got, out)
    backward_close(peer, ours, out, got, [(p, q)])


def test_dropout_between_layers_only_in_training() -> None:
    m = nn.LSTM(3, 4, num_layers=2, dropout=0.5)
    x = ad.randn(5, 2, 3)
    assert not ad.equal(m(x)[0], m(x)[0])
    m.eval()
    assert ad.equal(m(x)[0], m(x)[0])


def test_padding_round_trips(rng: np.random.Generator) -> None:
    arrays = [rng.standard_normal((n, 2)) for n in (2, 4, 1)]
    for kw in ({}, {"batch_first": True, "padding_value": 3.0},
               {"batch_first": True, "padding_side": "left"}):
        peer = torch.nn.utils.rnn.pad_sequence([torch.tensor(a) for a in arrays], **kw)
        close(rnn.pad_sequence([ad.tensor(a) for a in arrays], **kw), peer)
    seqs = [ad.tensor(a) for a in arrays]
    packed = rnn.pack_sequence(seqs, enforce_sorted=False)
    for back, a in zip(rnn.unpack_sequence(packed), arrays, strict=True):
        assert back.tolist() == a.tolist()
    padded = rnn.pad_sequence(seqs)
    for back, a in zip(rnn.unpad_sequence(padded, ad.tensor([2, 4, 1])), arrays, strict=True):
        assert back.tolist() == a.tolist()
    assert packed.float().data.dtype == ad.float32 and packed.to(ad.float64) is packed


MASKS = ("none", "float", "bool", "per head", "padding", "both")


@pytest.mark.parametrize("kw", [{}, {"bias": False}, {"add_bias_kv": True},
                                {"add_zero_attn": True, "add_bias_kv": True},
                                {"kdim": 3, "vdim": 5}, {"batch_first": True}])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("weights", "average"), [(True, True), (True, False), (False, True)])
def test_attention_equals_torch(kw: dict[str, Any], mask: str, weights: bool, average: bool,
                                rng: np.random.Generator) -> None:
    peer, ours = pair("MultiheadAttention", 8, 2, **kw)
    shapes = [(4, 3, 8), (5, 3, kw.get("kdim", 8)), (5, 3, kw.get("vdim", 8))]
    if kw.get("batch_first"):
        shapes = [(b, a, c) for a, b, c in shapes]
    leaves = [both(torch, rng.standard_normal(s)) for s in shapes]
    forbid, ignore = rng.random((4, 5)) < 0.3, rng.random((3, 5)) < 0.3
    forbid[:, 0] = ignore[:, 0] = False
    given: dict[str, np.ndarray] = {
        "none": {}, "float": {"attn_mask": rng.standard_normal((4, 5))},
        "bool": {"attn_mask": forbid}, "per head": {"attn_mask": rng.standard_normal((6, 4, 5))},
        "padding": {"key_padding_mask": ignore},
        "both": {"attn_mask": forbid, "key_padding_mask": ignore}}[mask]
    options = {"need_weights": weights, "average_attn_weights": average}
    out = peer(*(p for p, _ in leaves), **options,
               **{k: torch.tensor(v) for k, v in given.items()})
    got = ours(*(q for _, q in leaves), **options, **{k: ad.tensor(v) for k, v in given.items()})
    close(got, out)
    backward_close(peer, ours, out, got, leaves)


def test_attention_of_one_tensor_unbatched_and_causal(rng: np.random.Generator) -> None:
    peer, ours = pair("MultiheadAttention", 8, 2)
    for shape in ((4, 8), (4, 3, 8)):
        p, q = both(torch, rng.standard_normal(shape))
        close(ours(q, q, q), peer(p, p, p))
        causal = torch.nn.Transformer.generate_square_subsequent_mask(4).double()
        mine = nn.Transformer.generate_square_subsequent_mask(4).double()
        close(mine, causal)
        for need in (True, False):
            out = peer(p, p, p, attn_mask=causal, is_causal=True, need_weights=need)
            got = ours(q, q, q, attn_mask=mine, is_causal=True, need_weights=need)
            close(got, out)
            backward_close(peer, ours, out, got, [])


@pytest.mark.parametrize("kw", [{}, {"norm_first": True, "batch_first": True},
                                {"bias": False, "activation": "gelu"}])
def test_transformer_equals_torch(kw: dict[str, Any], rng: np.random.Generator) -> None:
    peer, ours = pair("Transformer", 8, 2, 2, 2, 16, dropout=0.0, **kw)
    leaves = [both(torch, rng.standard_normal((3, 3, 8))) for _ in range(2)]
    mask = np.triu(np.full((3, 3), -math.inf), 1)
    padding = np.array([[False, False, True]] * 3)
    masks = {"tgt_mask": mask, "src_key_padding_mask": padding,
             "memory_key_padding_mask": padding}
    peer.eval()
    ours.eval()
    out = peer(*(p for p, _ in leaves), **{k: torch.tensor(m) for k, m in masks.items()})
    got = ours(*(q for _, q in leaves), **{k: ad.tensor(m) for k, m in masks.items()})
    close(got, out, 1e-11)
    peer.train()
    ours.train()
    out = peer(*(p for p, _ in leaves), tgt_mask=torch.tensor(mask))
    got = ours(*(q for _, q in leaves), tgt_mask=ad.tensor(mask))
    backward_close(peer, ours, out, got, leaves, 1e-8)


def test_adaptive_softmax_equals_torch(rng: np.random.Generator) -> None:
    peer, ours = pair("AdaptiveLogSoftmaxWithLoss", 8, 20, [4, 10], div_value=2.0)
    p, q = both(torch, rng.standard_normal((7, 8)))
    labels = np.array([0, 3, 4, 9, 10, 19, 1])
    out, got = peer(p, torch.tensor(labels)), ours(q, ad.tensor(labels))
    close(tuple(got), tuple(out))
    close(ours.log_prob(q), peer.log_prob(p))
    close(ours.predict(q), peer.predict(p))
    backward_close(peer, ours, out[1], got[1], [(p, q)])
