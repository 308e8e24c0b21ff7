"""What PyTorch refuses is refused here, by an error of the same class and by its words.

Each line of `torch_refusals.txt` is a small program over `torch`, `T` (torch.tensor), `F`, `nn`
and `np`, and behind the bar the words with which the refusal begins, as PyTorch prints them. Where
PyTorch is installed the lines are asked of it, too.
"""
from __future__ import annotations

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad

LINES = [line.split(" | ") for line in
         Path(__file__).with_name("torch_refusals.txt").read_text("utf-8").splitlines()]


def refusal(t: Any, program: str) -> BaseException:
    """The error of a program of one library."""
    *acts, last = program.split("; ")
    names = {"torch": t, "T": t.tensor, "F": t.nn.functional, "nn": t.nn, "np": np}
    with warnings.catch_warnings(), pytest.raises(Exception) as caught:    # noqa: B017, PT011
        warnings.simplefilter("ignore")
        exec("\n".join(acts), names)
        exec(last, names)
    return caught.value


def builtin(error: BaseException) -> list[type]:
    """Classes of Python that catch an error."""
    return [c for c in type(error).__mro__
            if c.__module__ == "builtins" and c not in (object, BaseException, Exception)]


@pytest.mark.parametrize(("program", "kind", "words"), LINES, ids=[line[0] for line in LINES])
def test_is_refused_by_these_words(program: str, kind: str, words: str) -> None:
    error = refusal(ad, program)
    assert words in " ".join(str(error).split())
    assert kind in [c.__name__ for c in builtin(error)]


@pytest.mark.parametrize(("program", "kind", "words"), LINES, ids=[line[0] for line in LINES])
def test_pytorch_says_them(program: str, kind: str, words: str) -> None:
    error = refusal(pytest.importorskip("torch"), program)
    assert words in " ".join(str(error).split())
    assert type(error).__name__ == kind


def test_what_was_refused_though_pytorch_has_it() -> None:
    assert ad.block_diag().shape == ad.block_diag(ad.tensor([])).shape == (1, 0)
    assert ad.asarray(bytearray(b"\1\0\2\0"), dtype=ad.int16).tolist() == [1, 2]
    assert ad.zeros(3).broadcast_to(2, 3).shape == ad.broadcast_to(ad.zeros(3), (2, 3)).shape


def test_buffers_are_shared_or_copied_as_asked() -> None:
    held = bytearray(4)
    shared, copied = (ad.asarray(held, dtype=ad.uint8, copy=c) for c in (None, True))
    held[0] = 7
    assert shared.tolist() == [7, 0, 0, 0] and copied.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_means_of_half_precision_do_not_leave_its_range(kind: str) -> None:
    """The sum of 120 times 2980 is beyond float16; the mean is not."""
    dtype = getattr(ad, kind)
    x = ad.full((120,), 2980.0, dtype=dtype)
    want = x[0].item()
    for mean in (x.mean(), x.mean(0), x.reshape(60, 2).mean(0)[1], x.reshape(2, 60).t().mean(),
                 ad.nn.functional.l1_loss(x, ad.zeros_like(x))):
        assert mean.dtype is dtype and mean.item() == want
    spread = ad.tensor([-30000.0, 30000.0], dtype=dtype).std(correction=0)
    assert spread.dtype is dtype and spread.item() == ad.tensor(30000.0, dtype=dtype).item()
    torch = pytest.importorskip("torch")
    for n in (3, 31, 1000):
        a = np.random.default_rng(n).standard_normal((4, n)).astype(np.float32)
        ours = ad.tensor(a).to(dtype).mean(1).float().numpy()
        assert (ours == torch.tensor(a).to(getattr(torch, kind)).mean(1).float().numpy()).all()


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_ignored_rows_alone_have_gradient_zero_in_graphs_too(name: str) -> None:
    x = ad.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    loss = getattr(ad.nn.functional, name)(x, ad.tensor([1, 1]), ignore_index=1)
    assert loss.isnan().item()
    first, = ad.autograd.grad(loss, x, create_graph=True)
    assert (first == 0).all()
    if first.requires_grad:
        second, = ad.autograd.grad((first * first).sum(), x, allow_unused=True)
        assert second is None or (second == 0).all()


def test_a_capsule_of_dlpack_is_written_to() -> None:
    x = ad.arange(3)
    y = ad.utils.dlpack.from_dlpack(ad.utils.dlpack.to_dlpack(x))
    y[0] = 9
    assert x.tolist() == [9, 1, 2]


def test_errors_have_the_classes_that_programs_catch() -> None:
    with pytest.raises(BufferError, match="conjugate bit set"):
        ad.tensor([1 + 1j]).conj().__dlpack__()
    with pytest.raises(BufferError, match="Cannot pack tensors on meta"):
        ad.ones(2, device="meta").__dlpack__()
    buffer = io.BytesIO()
    ad.save(ad.nn.Linear(1, 1), buffer)
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        ad.load(buffer)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("call", [
    lambda t, x: x / 1e5, lambda t, x: 1e-7 * x, lambda t, x: x * 0.1, lambda t, x: x.mul_(0.1),
    lambda t, x: x.div_(1e5), lambda t, x: x * 100000, lambda t, x: x * t.tensor(0.1),
    lambda t, x: t.tensor(0.1) * x, lambda t, x: x / t.tensor(1e5),
    lambda t, x: t.func.vmap(lambda row: row * 0.1)(x), lambda t, x: x[0, 0] * 0.1])
def test_numbers_keep_their_value_beside_16_bits(kind: str, call: Any) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for t in (torch, ad):
        x = t.tensor([[-300.0, 0.3], [7.7, 300.0]]).to(getattr(t, kind))
        y = call(t, x)
        assert y.dtype is getattr(t, kind)
        found.append(y.double().tolist())
    assert found[0] == found[1]


def test_a_number_beside_16_bits_reaches_the_gradient_as_it_is() -> None:
    x = ad.ones(3, dtype=ad.float16, requires_grad=True)
    (x / 1e5).sum().backward()
    assert x.grad is not None and x.grad.dtype is ad.float16
    assert x.grad.tolist() == (ad.ones(3, dtype=ad.float32) / 1e5).half().tolist()
