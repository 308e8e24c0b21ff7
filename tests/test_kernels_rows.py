"""Row kernels (softmax, cross-entropy, norms), dropout, embedding, optimizers."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adjoint.kernels import (
    cells,
    cells_numpy,
    channels,
    dropout,
    dropout_numpy,
    embedding,
    llvm,
    multi,
    norm,
    softmax,
    threads,
)
from adjoint.kernels.dropout_numpy import drawn_mask
from adjoint.kernels.stream import Stream

pytestmark = pytest.mark.skipif(not llvm.available(), reason="needs llvmlite")
SHAPES = [(5, 7), (3, 1), (33, 64), (2, 1000), (100, 257), (4, 3, 17), (1, 70000), (2000, 3)]
KINDS = [(np.float32, 3e-7), (np.float64, 1e-15), (np.float16, 1e-3)]


def draw(shape: Any, dtype: Any, seed: int = 0, scale: float = 1.0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def wide(a: Any) -> Any:
    return None if a is None else np.asarray(a).astype(np.longdouble)


def soft(x: Any) -> Any:
    e = np.exp(wide(x) - wide(x).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype,tol", KINDS, ids=["f32", "f64", "f16"])
def test_softmax_and_log_softmax(shape: Any, dtype: Any, tol: float) -> None:
    x, ct = draw(shape, dtype, 0, 3.0), draw(shape, dtype, 1)
    p = soft(x)
    y = softmax.softmax(x)
    assert y.dtype == dtype and y.shape == shape and np.max(abs(y - p)) < tol
    cx = softmax.softmax_backward(ct, y)
    want = wide(y) * (wide(ct) - (wide(y) * wide(ct)).sum(-1, keepdims=True))
    assert np.max(abs(cx - want)) < 4 * tol
    z = softmax.log_softmax(x, axis=len(shape) - 1)
    scale = float(1 + np.max(abs(np.log(p))))
    assert np.max(abs(z - np.log(p))) < 2 * tol * scale
    top = wide(x).max(-1)
    want = top + np.log(np.exp(wide(x) - top[..., None]).sum(-1))
    assert np.max(abs(softmax.logsumexp(x) - want)) < 2 * tol * scale
    cx = softmax.log_softmax_backward(ct, z)
    total = wide(ct).sum(-1, keepdims=True)
    assert np.max(abs(cx - (wide(ct) - np.exp(wide(z)) * total))) < 8 * tol * float(
        1 + abs(wide(ct)).sum(-1).max() ** 0.5 + abs(total).max())


@pytest.mark.parametrize(("shape", "axis"), [
    ((5, 7, 9), 1), ((4, 16), 0), ((3, 1, 40), 1), ((2, 130, 3, 70), 1), ((2, 130, 3, 70), 2),
    ((9, 5, 64), 0), ((1, 65, 127), 1), ((3000, 17), 0)], ids=str)
@pytest.mark.parametrize("dtype,tol", KINDS, ids=["f32", "f64", "f16"])
def test_softmax_along_other_axes_is_that_of_rows(shape: Any, axis: int, dtype: Any, tol: float
                                                  ) -> None:
    x, ct = draw(shape, dtype, 0, 3.0), draw(shape, dtype, 1)
    x[..., 0], x[0, ..., 1] = np.inf, np.nan
    x[..., -1] = -np.inf                             # nothing left: nan, as of rows

    def rows(a: Any) -> Any:
        return np.ascontiguousarray(np.moveaxis(a, axis, -1))

    def same(got: Any, want: Any, tol: float) -> None:
        assert got.dtype == dtype and got.shape == shape
        np.testing.assert_allclose(rows(got), want, rtol=tol, atol=tol)
    for forward, backward in ((softmax.softmax, softmax.softmax_backward),
                              (softmax.log_softmax, softmax.log_softmax_backward)):
        y = forward(x, axis=axis)
        same(y, forward(rows(x)), 2 * tol)
        total = float(abs(wide(rows(ct))).sum(-1).max())
        same(backward(ct, y, axis=axis), backward(rows(ct), rows(y)), 2 * tol * (1 + total))
        assert y.tobytes() == forward(x, axis=axis).tobytes()


def test_softmax_of_extreme_rows() -> None:
    x = np.array([[1e4, -1e4, 0], [-np.inf, 0, 0], [-3e38, -3e38, -3e38]], np.float32)
    assert np.array_equal(softmax.softmax(x),
                          np.array([[1, 0, 0], [0, .5, .5], [1 / 3] * 3], np.float32))
    bad = np.array([[np.nan, 0, 1], [-np.inf] * 3, [np.inf, 0, 0]], np.float32)
    got = softmax.softmax(bad)
    assert np.isnan(got).all(axis=1).tolist() == [True] * 3
    edge = softmax.logsumexp(bad)
    assert np.isnan(edge[0]) and edge[1:].tolist() == [-np.inf, np.inf]
    assert softmax.logsumexp(x, keepdims=True).shape == (3, 1)
    assert softmax.log_softmax(x)[1].tolist() == pytest.approx([-np.inf, -np.log(2), -np.log(2)])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype,tol", [(np.float32, 4e-6), (np.float64, 2e-14), (np.float16, 2e-3)],
                         ids=["f32", "f64", "f16"])
@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 21, 4, 9), (1, 3, 1, 2, 600)])
def test_cross_entropy_of_maps_is_that_of_their_rows(shape: Any, dtype: Any, tol: float,
                                                     smoothing: float, weighted: bool) -> None:
    c = shape[1]
    x = draw(shape, dtype, 0, 2.0)
    if not smoothing:
        x[0, 0].flat[:2] = -np.inf
    target = np.random.default_rng(1).integers(1, c, (shape[0], *shape[2:]))
    target.flat[[1, 4]] = -100
    w = abs(draw(c, dtype, 2)) if weighted else None
    options: Any = {"label_smoothing": smoothing}
    rows = np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(-1, c)
    got = softmax.cross_entropy(x, target, w, **options)
    want = softmax.cross_entropy(rows, target.reshape(-1), w, **options)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and np.allclose(a, b, rtol=tol, atol=tol)
    scale = draw(target.size, got[0].dtype, 3)
    cx = softmax.cross_entropy_backward(scale, x, target, got[1], w, **options)
    flat = softmax.cross_entropy_backward(scale, rows, target.reshape(-1), want[1], w, **options)
    assert cx.shape == x.shape and cx.dtype == x.dtype
    assert np.allclose(np.moveaxis(cx, 1, -1).reshape(-1, c), flat, rtol=tol, atol=tol)
    bad = target.copy()
    bad.flat[0] = c
    assert softmax.cross_entropy(x, bad) is NotImplemented


@pytest.mark.parametrize("dtype,tol", [(np.float32, 2e-6), (np.float64, 1e-14)], ids=["f32", "f64"])
def test_long_rows_of_cross_entropy_whose_blocks_differ(dtype: Any, tol: float) -> None:
    x = draw((7, 9001), dtype, 0, 3.0)        # more than two blocks, and a part of a vector
    x[1, :4500] = -np.inf
    x[2, 4096:] = -np.inf
    x[3] = np.sort(x[3])                      # every block has a new maximum
    x[4] = -np.inf
    x[5, -1] = np.nan
    x[6, 8000] = np.inf
    target = np.array([5, 9000, 0, 8999, 1, 2, 3])
    loss, lse, _ = softmax.cross_entropy(x, target)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(soft(x))[np.arange(7), target]
        top = wide(x).max(1)
    assert np.isnan(loss[4:]).all()
    assert np.max(abs(loss[:4] + logs[:4])) < tol * 20
    assert np.max(abs(lse[:4] - (top[:4] + np.log(np.exp(wide(x[:4]) - top[:4, None]).sum(1))))
                  ) < tol * 20


def test_what_row_kernels_leave_to_numpy() -> None:
    x = draw((4, 6), np.float32)
    for bad in (x.T, x[:, ::2], x[:0], x.astype(np.int32), x.astype(">f4")):
        assert softmax.softmax(bad) is NotImplemented
        assert norm.layer_norm(bad) is NotImplemented
    assert softmax.softmax(x, axis=0) is NotImplemented
    assert softmax.cross_entropy(x, np.array([0, 1, 2, 6])) is NotImplemented
    assert softmax.cross_entropy(x, np.array([0, 1, 2, -1])) is NotImplemented
    assert embedding.embedding(x, np.array([4])) is NotImplemented
    assert embedding.embedding(x, np.array([-1])) is NotImplemented
    assert dropout.dropout(x.T, drawn_mask(Stream(1), (6, 4), 0.5), (6, 4), 2.0) is NotImplemented
    assert multi.sgd([x], [x.T.copy()[:2]], lr=1.0) is NotImplemented
    assert multi.norm([]) is NotImplemented


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype,tol", [(np.float32, 2e-6), (np.float64, 1e-14)], ids=["f32", "f64"])
def test_cross_entropy(weighted: bool, smoothing: float, dtype: Any, tol: float) -> None:
    n, c = 50, 33
    x = draw((n, c), dtype, 0, 2.0)
    target = np.random.default_rng(1).integers(0, c, n)
    target[[3, 17]] = -100
    w = abs(draw(c, dtype, 2)) if weighted else None
    loss, lse, share = softmax.cross_entropy(x, target, w, label_smoothing=smoothing)
    log_p = np.log(soft(x))
    ws = np.ones(c) if w is None else wide(w)
    kept = target != -100
    at = np.where(kept, target, 0)
    hit = -ws[at] * log_p[np.arange(n), at]
    want = np.where(kept, (1 - smoothing) * hit - smoothing / c * (ws * log_p).sum(1), 0)
    assert np.max(abs(loss - want)) < tol * 10
    assert np.allclose(share, np.where(kept, ws[at], 0).astype(np.float64), rtol=1e-7)
    scale = draw(n, dtype, 3)
    cx = softmax.cross_entropy_backward(scale, x, target, lse, w, label_smoothing=smoothing)
    p = np.exp(log_p)
    one = np.eye(c)[at]
    full = ((1 - smoothing) * ws[at][:, None] * (p - one)
            + smoothing / c * (p * ws.sum() - ws))
    assert np.max(abs(cx - np.where(kept, scale, 0)[:, None] * full)) < tol * 3
    assert not cx[~kept].any()


def norm_reference(ct: Any, x: Any, w: Any, b: Any, rms: bool) -> tuple[Any, ...]:
    eps = 1e-6 if rms else 1e-5
    x, ct = wide(x), wide(ct)
    centred = x if rms else x - x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt((centred ** 2).mean(-1, keepdims=True) + eps)
    hat = centred * rstd
    h = ct if w is None else ct * wide(w)
    cx = h - hat * (h * hat).mean(-1, keepdims=True)
    cx = rstd * (cx if rms else cx - h.mean(-1, keepdims=True))
    y = (hat if w is None else hat * wide(w)) + (0 if b is None else wide(b))
    return y, cx, (ct * hat).sum(0), ct.sum(0)


@pytest.mark.parametrize("shape", [(5, 7), (33, 64), (2, 1000), (100, 257), (300, 48), (1, 20000)])
@pytest.mark.parametrize("dtype,tol", [(np.float32, 3e-6), (np.float64, 5e-15)], ids=["f32", "f64"])
@pytest.mark.parametrize("affine", ["", "w", "wb"])
def test_layer_norm_and_rms_norm(shape: Any, dtype: Any, tol: float, affine: str) -> None:
    x, ct = draw(shape, dtype, 0, 3.0) + dtype(1), draw(shape, dtype, 1)
    w = draw(shape[1], dtype, 2) if "w" in affine else None
    b = draw(shape[1], dtype, 3) if "b" in affine else None
    y, cx, cw, cb = norm_reference(ct, x, w, b, rms=False)
    out, mean, rstd = norm.layer_norm(x, w, b)
    assert np.max(abs(out - y)) < tol * 3
    got = norm.layer_norm_backward(ct, x, mean, rstd, w, bias=b is not None)
    many = shape[0] ** 0.5
    assert np.max(abs(got[0] - cx)) < tol * 3
    assert (got[1] is None) == (w is None) and (got[2] is None) == (b is None)
    assert w is None or np.max(abs(got[1] - cw)) < tol * 3 * many
    assert b is None or np.max(abs(got[2] - cb)) < tol * 3 * many
    only = norm.layer_norm_backward(ct, x, mean, rstd, w, bias=b is not None, gradients=False)
    assert np.array_equal(only[0], got[0]) and only[1:] == (None, None)
    if b is None:
        y, cx, cw, _ = norm_reference(ct, x, w, None, rms=True)
        out, rstd = norm.rms_norm(x, w)
        assert np.max(abs(out - y)) < tol * 3
        got = norm.rms_norm_backward(ct, x, rstd, w)
        assert np.max(abs(got[0] - cx)) < tol * 3
        assert w is None or np.max(abs(got[1] - cw)) < tol * 3 * many


def test_layer_norm_does_not_cancel_and_takes_several_axes() -> None:
    x = draw((8, 512), np.float32) + np.float32(1e4)
    y, *_ = norm_reference(x, x, None, None, rms=False)
    assert np.max(abs(norm.layer_norm(x)[0] - y)) < 2e-3   # x itself is rounded to 1e-3
    z = draw((6, 4, 5), np.float64)
    out, mean, _ = norm.layer_norm(z, columns=20)
    want, *_ = norm_reference(z.reshape(6, 20), z.reshape(6, 20), None, None, rms=False)
    assert mean.shape == (6,) and np.allclose(out.reshape(6, 20), want.astype(float), atol=1e-13)


@pytest.mark.parametrize("shape", [(6, 5), (4, 3, 7), (2, 6, 5, 7), (64, 10), (3, 64, 9, 9)],
                         ids=str)
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_batch_and_group_norm(shape: tuple[int, ...], affine: bool, kind: str) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    dtype, tol = (torch.float32, 2e-5) if kind == "f32" else (torch.float64, 1e-11)
    torch.manual_seed(0)
    x = (torch.randn(*shape, dtype=dtype) * 2 + 1).requires_grad_()
    ct = torch.randn(*shape, dtype=dtype)
    c = shape[1]
    w, b = ((torch.randn(c, dtype=dtype, requires_grad=True) for _ in range(2)) if affine
            else (None, None))

    def raw(t: Any) -> Any:
        return None if t is None else t.detach().numpy()

    def compare(y: Any, out: Any, cotangents: Any) -> None:
        wanted = torch.autograd.grad(y, [t for t in (x, w, b) if t is not None], ct)
        assert np.max(abs(out - raw(y))) < tol
        for got, want in zip(cotangents, wanted, strict=False):
            assert np.max(abs(got - raw(want))) < tol * 10 * (1 + abs(raw(want)).max())
    out, mean, rstd, _ = channels.batch_norm(raw(x), raw(w), raw(b))
    compare(functional.batch_norm(x, None, None, w, b, training=True), out,
            channels.batch_norm_backward(raw(ct), raw(x), mean, rstd, raw(w)))
    m, v = torch.randn(c, dtype=dtype), torch.rand(c, dtype=dtype) + 0.1
    out, mean, rstd, _ = channels.batch_norm(raw(x), raw(w), raw(b), mean=raw(m), var=raw(v))
    compare(functional.batch_norm(x, m, v, w, b), out, channels.batch_norm_backward(
        raw(ct), raw(x), mean, rstd, raw(w), training=False))
    for groups in {1, c, 2 if c % 2 == 0 else 1}:
        if x.numel() > shape[0] * groups:
            out, mean, rstd = norm.group_norm(raw(x), groups, raw(w), raw(b))
            compare(functional.group_norm(x, groups, w, b), out, channels.group_norm_backward(
                raw(ct), raw(x), groups, mean, rstd, raw(w)))


# -- dropout ---------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1, 15, 16, 63, 64, 65, 1000, 100003])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_dropout_is_the_numpy_reference(size: int, dtype: Any) -> None:
    x = draw(size, dtype) + dtype(4)
    bits = drawn_mask(Stream(12345), (size,), 0.3)
    got = dropout.dropout(x, bits, (size,), 1 / 0.7)
    want = dropout_numpy.dropout_numpy(x, bits, (size,), 1 / 0.7)
    assert np.array_equal(got == 0, want == 0)
    assert np.allclose(got, want, rtol=1e-3 if dtype == np.float16 else 1e-7)


def test_dropout_statistics() -> None:
    x = np.ones(1 << 20, np.float32)
    stream = Stream(1)
    n, shape = x.size, x.shape

    def dropped(stream: Stream, p: float, scale: float = 1.0) -> Any:
        return dropout.dropout(x, drawn_mask(stream, shape, p), shape, scale)
    y, later = dropped(stream, 0.1, 1 / 0.9), dropped(stream, 0.1)
    assert abs((y == 0).mean() - 0.1) < 5 * (0.09 / n) ** 0.5
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.9)}
    for z in (dropped(Stream(2), 0.1), later, np.roll(y, 1), np.roll(y, 16), np.roll(y, 64)):
        both = ((y == 0) & (z == 0)).mean()
        assert abs(both - 0.01) < 6 * (0.01 / n) ** 0.5
    assert not dropped(stream, 1.0).any()
    assert (dropped(stream, 0.0) == 1).all()


# -- embedding -------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_embedding_and_its_transpose(dtype: Any) -> None:
    w = draw((100, 33), dtype)
    index = np.random.default_rng(1).integers(0, 100, (7, 50))
    index[0] = 5
    assert np.array_equal(embedding.embedding(w, index), w[index])
    ct = draw((7, 50, 33), dtype, 2)
    want = np.zeros((100, 33))
    np.add.at(want, index, ct.astype(np.float64))
    got = embedding.embedding_backward(ct, index, 100)
    assert np.allclose(got, want, atol=2e-2 if dtype == np.float16 else 3e-5)
    padded = embedding.embedding_backward(ct, index, 100, padding_idx=5)
    assert not padded[5].any() and np.array_equal(np.delete(padded, 5, 0), np.delete(got, 5, 0))


# -- optimizers ------------------------------------------------------------------------------
STEPS = [("SGD", {}), ("SGD", {"weight_decay": 0.1, "maximize": True}), ("SGD", {"momentum": 0.9}),
         ("SGD", {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
         ("SGD", {"momentum": 0.9, "nesterov": True}), ("Adam", {}),
         ("Adam", {"weight_decay": 0.1, "betas": (0.8, 0.99)}), ("AdamW", {"weight_decay": 0.1}),
         ("AdamW", {"amsgrad": True, "weight_decay": 0.0}), ("Adam", {"maximize": True})]


@pytest.mark.parametrize("name,options", STEPS, ids=str)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_optimizer_steps_are_those_of_pytorch(name: str, options: Any, kind: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    dtype = getattr(torch, kind)
    theirs = [torch.randn(s, dtype=dtype, requires_grad=True) for s in
              ((3,), (50, 70), (40000,), (1,), ())]
    ours = [p.detach().numpy().copy() for p in theirs]
    state = [[np.zeros_like(p) for p in ours] for _ in range(3)]
    optimizer = getattr(torch.optim, name)(theirs, lr=0.01, **options)
    for step in range(1, 4):
        for p in theirs:
            p.grad = torch.randn_like(p)
        grads = [p.grad.numpy() for p in theirs]
        optimizer.step()
        if name == "SGD":
            done = multi.sgd(ours, grads, state[0], lr=0.01, first=step == 1, **options)
        else:
            rest = {k: v for k, v in options.items() if k != "amsgrad"}
            done = multi.adam(ours, grads, state[0], state[1],
                              state[2] if "amsgrad" in options else None, step=step, lr=0.01,
                              decoupled=name == "AdamW", **rest)
        assert done is None
    tol = 2e-6 if kind == "float32" else 1e-13
    for a, t in zip(ours, theirs, strict=True):
        assert np.allclose(a, t.detach().numpy(), rtol=tol, atol=tol)


def test_norm_of_gradients_and_scaling() -> None:
    grads = [draw(1000, np.float32) * np.float32(1e19), draw((33, 5), np.float32),
             np.array(2, np.float32)]
    want = float(np.sqrt(sum((g.astype(np.longdouble) ** 2).sum() for g in grads)))
    assert multi.norm(grads) == pytest.approx(want, rel=1e-12)
    before = [g.copy() for g in grads]
    assert multi.scale_(grads, 0.5) is None
    assert all(np.array_equal(g, b * np.float32(0.5)) for g, b in zip(grads, before, strict=True))


# -- recurrent cells -------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (7, 64), (2, 3, 17)], ids=str)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_recurrent_cells(shape: tuple[int, ...], kind: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    tol = 2e-6 if kind == "float32" else 1e-14
    *lead, h = shape

    def leaf(width: int) -> Any:
        return torch.randn(*lead, width, dtype=getattr(torch, kind), requires_grad=True)

    def compare(got: Any, want: Any) -> None:
        for a, b in zip(got, want, strict=True):
            assert np.max(abs(a - b.detach().numpy())) < tol
    gates, c = leaf(4 * h), leaf(h)
    i, f, g, o = gates.chunk(4, -1)
    new = f.sigmoid() * c + i.sigmoid() * g.tanh()
    out = o.sigmoid() * new.tanh()
    raw = [t.detach().numpy() for t in (gates, c)]
    got = cells.lstm_cell(*raw)
    compare(got, (out, new))
    ch, cc = torch.randn_like(out), torch.randn_like(new)
    compare(cells.lstm_cell_backward(ch.numpy(), cc.numpy(), *raw),
            torch.autograd.grad((out, new), (gates, c), (ch, cc)))
    x, y, old = leaf(3 * h), leaf(3 * h), leaf(h)
    (r, z, n), (hr, hz, hn) = x.chunk(3, -1), y.chunk(3, -1)
    keep = (z + hz).sigmoid()
    made = (n + (r + hr).sigmoid() * hn).tanh()
    out = (1 - keep) * made + keep * old
    raw = [t.detach().numpy() for t in (x, y, old)]
    compare(cells.gru_cell(*raw), [out])
    compare(cells.gru_cell_backward(ch.numpy(), *raw), torch.autograd.grad(out, (x, y, old), ch))
    assert cells.lstm_cell(np.ones((3, 8)), np.ones((3, 3))) is NotImplemented


# (steps, batch, width): one row, several tasks of rows, columns and sums in several blocks, tiles
# that are not full, a weight too large to be read by every thread for few rows
SEQUENCES = [(1, 1, 1), (3, 2, 5), (4, 33, 40), (3, 200, 17), (2, 30, 300), (3, 5, 300)]


@pytest.mark.parametrize("sizes", SEQUENCES, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_lstm_sequences(kind: str, reverse: bool, sizes: tuple[int, int, int]) -> None:
    steps, batch, width = sizes
    shapes = ((steps, batch, 4 * width), (batch, width), (batch, width), (4 * width, width),
              (steps, batch, width))
    gates, h, c, weight, ct = (draw(s, kind, seed) for seed, s in enumerate(shapes))
    weight /= np.sqrt(width).astype(kind)
    want = cells_numpy.lstm(gates, h, c, weight, reverse=reverse)
    cts = [ct, None, None]
    pulled = cells_numpy.lstm_backward(cts, *want, h, c, weight, reverse=reverse)
    found, before = [], threads.get_num_threads()
    try:
        for workers in (1, 2, 3):
            threads.set_num_threads(workers)
            got = cells.lstm(gates, h, c, weight, reverse=reverse)
            back = cells.lstm_backward(cts, *want, h, c, weight, reverse=reverse)
            if got is NotImplemented or back is NotImplemented:
                pytest.skip("no generated products on this CPU")
            found.append((*got, *back))
    finally:
        threads.set_num_threads(before)
    terms = 4 * width + steps * batch           # of the longest sums, whose roundings add up
    for i, (a, b, c, w) in enumerate(zip(*found, (*want, *pulled), strict=True)):
        if i < len(found[0]) - 1:           # the weight's gradient is a product like any other
            assert np.array_equal(a, b) and np.array_equal(a, c)    # whoever computes it
        assert np.max(abs(a - w)) <= terms * np.finfo(kind).eps * max(1, np.max(abs(w)))
