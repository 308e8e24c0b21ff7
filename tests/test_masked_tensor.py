"""Tensors with a mask: values, gradients, reductions, layouts, refusals."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest

import adjoint as ad
from adjoint.masked import MaskedTensor, as_masked_tensor, masked_tensor

DATA = ad.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
MASK = ad.tensor([[True, False, True], [False, True, False]])
NO = None                                     # has no value


def masked(**options: Any) -> Any:
    return masked_tensor(DATA, MASK, **options)


def seen(t: Any) -> Any:
    """The elements as lists, None for what has no value."""
    assert isinstance(t, MaskedTensor)
    return _seen(t.to_dense().get_data().tolist(), t.to_dense().get_mask().tolist())


def _seen(data: Any, mask: Any) -> Any:
    if isinstance(mask, bool):
        return data if mask else NO
    return [_seen(d, m) for d, m in zip(data, mask, strict=True)]


def test_what_it_is() -> None:
    t = masked()
    assert ad.masked.is_masked_tensor(t) and not ad.masked.is_masked_tensor(DATA)
    assert isinstance(t, ad.Tensor) and t.shape == (2, 3) and t.dim() == 2 and len(t) == 2
    assert t.dtype is ad.float32 and t.numel() == 6 and t.layout is ad.strided
    assert t.get_data().tolist() == DATA.tolist() and t.get_mask().tolist() == MASK.tolist()
    assert t.to_tensor(-1.0).tolist() == [[0.0, -1.0, 2.0], [-1.0, 4.0, -1.0]]
    t.get_data().zero_()
    assert DATA.sum() == 15.0                                # a copy
    assert repr(masked()) == ("MaskedTensor(\n  [\n    [  0.0000,       --,   2.0000],\n"
                              "    [      --,   4.0000,       --]\n  ]\n)")
    assert repr(masked()[0, 1]) == "MaskedTensor(--, False)"
    assert repr(masked_tensor(ad.tensor([12345678901, 2]), MASK[0, :2])) == (
        "MaskedTensor(\n  [12345678901,          --]\n)")


FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "unary": (lambda t: -t.sqrt() + 1, [[1.0, NO, 1 - math.sqrt(2.0)], [NO, -1.0, NO]]),
    "clamp": (lambda t: ad.clamp(t, 1, 3), [[1.0, NO, 2.0], [NO, 3.0, NO]]),
    "number": (lambda t: 1 + t * 2, [[1.0, NO, 5.0], [NO, 9.0, NO]]),
    "same mask": (lambda t: t * masked(), [[0.0, NO, 4.0], [NO, 16.0, NO]]),
    "dense": (lambda t: DATA * t, [[0.0, NO, 4.0], [NO, 16.0, NO]]),
    "row": (lambda t: t + DATA[0], [[0.0, NO, 4.0], [NO, 5.0, NO]]),
    "compare": (lambda t: t >= 2, [[False, NO, True], [NO, True, NO]]),
    "dtype": (lambda t: t.long(), [[0, NO, 2], [NO, 4, NO]]),
    "like": (lambda t: ad.ones_like(t), [[1.0, NO, 1.0], [NO, 1.0, NO]]),
    "rows": (lambda t: t[1], [NO, 4.0, NO]),
    "slices": (lambda t: t[:, 1:], [[NO, 2.0], [4.0, NO]]),
    "picked": (lambda t: t[MASK], [0.0, 2.0, 4.0]),
    "view": (lambda t: t.view(3, 2), [[0.0, NO], [2.0, NO], [4.0, NO]]),
    "transposed": (lambda t: t.t(), [[0.0, NO], [NO, 4.0], [2.0, NO]]),
    "mT": (lambda t: t.mT, [[0.0, NO], [NO, 4.0], [2.0, NO]]),
    "split": (lambda t: t.split(1)[1], [[NO, 4.0, NO]]),
    "expanded": (lambda t: t[:, :1].expand(2, 2), [[0.0, 0.0], [NO, NO]]),
    "cat": (lambda t: ad.cat([t, t * 2], 1), [[0.0, NO, 2.0] + [0.0, NO, 4.0],
                                              [NO, 4.0, NO] + [NO, 8.0, NO]]),
    "where": (lambda t: ad.where(MASK, t, masked_tensor(DATA, ~MASK)), DATA.tolist()),
    "where number": (lambda t: ad.where(DATA > 3, t, -1.0), [[-1.0] * 3, [-1.0, 4.0, NO]]),
    "softmax": (lambda t: t.softmax(0), [[1.0, NO, 1.0], [NO, 1.0, NO]]),
    "sum": (lambda t: t.sum(), 6.0),
    "sum of columns": (lambda t: t.sum(1), [2.0, 4.0]),
    "sum kept": (lambda t: t.sum(1, keepdim=True), [[2.0], [4.0]]),
    "mean": (lambda t: t.mean(), 2.0),
    "mean of rows": (lambda t: t.mean(0), [0.0, 4.0, 2.0]),
    "prod": (lambda t: (t + 1).prod(), 15.0),
    "amin": (lambda t: t.amin(1), [0.0, 4.0]),
    "amax": (lambda t: t.amax(), 4.0),
    "argmax": (lambda t: t.argmax(1), [2.0, 1.0]),
    "argmin": (lambda t: t.argmin(), 0.0),
    "all": (lambda t: (t > 1).all(1), [False, True]),
    "norm": (lambda t: t.norm(), math.sqrt(20.0)),
    "norm of rows": (lambda t: t.norm(1, 1), [2.0, 4.0]),
    "var": (lambda t: t.var(), 4.0),
    "std": (lambda t: t.std(), 2.0),
    "none of a row": (lambda t: t[:, :2].sum(0), [0.0, 4.0]),
    "none at all": (lambda t: masked_tensor(DATA, MASK & ~MASK).sum(0), [NO, NO, NO]),
    "no mean": (lambda t: masked_tensor(DATA, MASK & ~MASK).mean(), NO),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    f, wanted = FUNCTIONS[name]
    found = seen(f(masked()))
    assert _close(found, wanted), found


def _close(a: Any, b: Any) -> bool:
    if isinstance(b, list):
        return len(a) == len(b) and all(_close(x, y) for x, y in zip(a, b, strict=True))
    return a is b if b is NO else a == pytest.approx(b, rel=1e-6)


def test_gradients_are_masked() -> None:
    t = masked(requires_grad=True)
    assert t.is_leaf and t.requires_grad
    (t * t).sum().backward()
    assert seen(t.grad) == [[0.0, NO, 4.0], [NO, 8.0, NO]]
    (g,) = ad.autograd.grad(t.mean(), t)
    assert _close(seen(g), [[1 / 3, NO, 1 / 3], [NO, 1 / 3, NO]])
    assert not t.detach().requires_grad and t.get_data().requires_grad


@pytest.mark.parametrize("f", [
    lambda t: t.log().sum(), lambda t: t.log().mean(), lambda t: (1 / t).amax(),
    lambda t: t.sqrt().prod(), lambda t: t.log().softmax(0).sum(), lambda t: t.log().norm()])
def test_no_nan_gets_out_from_under_the_mask(f: Any) -> None:
    """Values and gradients of elements without a value do not count."""
    x = ad.tensor([4.0, -1.0, 0.0, 2.0], requires_grad=True)
    loss = f(as_masked_tensor(x, x > 0))
    loss.backward()
    assert loss.get_data().isfinite() and x.grad.isfinite().all()
    assert x.grad[1:3].tolist() == [0.0, 0.0]


def test_gradients_through_where() -> None:
    """PyTorch's page on nan gradients: the branch that was not taken gives none."""
    x = ad.tensor([-10.0, -5.0, 0.0, 100.0], requires_grad=True)
    mask = x < 0
    chosen = ad.where(mask, as_masked_tensor(x, mask).exp(),
                      masked_tensor(ad.ones(4), ~mask))
    chosen.sum().backward()
    assert _close(x.grad.tolist(), [math.exp(-10), math.exp(-5), 0.0, 0.0])


def test_gradients_by_differences() -> None:
    mask = ad.tensor([[True, False, True], [True, True, False]])

    def f(x: Any) -> Any:
        t = as_masked_tensor(x, mask)
        return tuple(r.to_tensor(0.0) for r in (
            t.exp(), (t * t).sum(0), t.mean(1), t.prod(1), t.amax(0), t.softmax(1), t.var(1),
            t.norm(), t.t()[0]))
    x = ad.tensor([[0.3, 0.1, -0.7], [1.1, 0.4, 0.2]], dtype=ad.float64, requires_grad=True)
    assert ad.autograd.gradcheck(f, (x,))


def test_in_place() -> None:
    t = masked()
    t.add_(1).mul_(masked())
    t.exp_().log_()
    assert _close(seen(t), [[0.0, NO, 6.0], [NO, 20.0, NO]])
    t.copy_(masked())
    assert seen(t) == seen(masked())


@pytest.mark.parametrize("to", ["to_sparse", "to_sparse_coo", "to_sparse_csr"])
def test_sparse_layouts(to: str) -> None:
    t = getattr(masked(), to)()
    assert t.layout is (ad.sparse_csr if to.endswith("csr") else ad.sparse_coo)
    assert t.is_sparse_csr() == to.endswith("csr") and t.is_sparse_coo() != t.is_sparse_csr()
    assert t.get_data()._nnz() == t.get_mask()._nnz() == 3
    assert seen(t) == seen(masked()) == seen(t.to_dense())
    assert seen((t + t) * 3) == [[0.0, NO, 12.0], [NO, 24.0, NO]]
    assert _close(seen(t.sin()), seen(masked().sin())) and seen(t.sum()) == 6.0
    with pytest.raises(ValueError, match="must have the same layout"):
        _ = t + masked()
    data = (DATA.to_sparse_csr() if t.is_sparse_csr() else DATA.to_sparse())
    assert seen(masked_tensor(data, t.get_mask())) == seen(masked())


REFUSED = {
    "lambda t: masked_tensor([1.0], MASK)": "data must be a Tensor",
    "lambda t: masked_tensor(t, MASK)": "data must be a Tensor",
    "lambda t: masked_tensor(DATA, [True])": "mask must be a Tensor",
    "lambda t: masked_tensor(DATA, DATA)": "mask must have dtype bool",
    "lambda t: masked_tensor(DATA, MASK[0])": r"data.dim\(\) must equal mask.dim\(\)",
    "lambda t: masked_tensor(DATA, MASK[:1])": r"data.size\(\) must equal mask.size\(\)",
    "lambda t: masked_tensor(DATA.to_sparse(), MASK)": "must have the same layout",
    "lambda t: masked_tensor(DATA.cfloat(), MASK)": "complex64 is not supported in MaskedTensor",
    "lambda t: t + masked_tensor(DATA, ~MASK)": "Input masks must match",
    "lambda t: t.add_(masked_tensor(DATA, ~MASK))": "Input masks must match",
    "lambda t: ad.add(t, DATA, alpha=2)": r"len\(kwargs\) must equal 0",
    "lambda t: t @ DATA.t()": "Multiple dispatch failed for 'torch._ops.aten.matmul'",
    "lambda t: t.sort()": "Multiple dispatch failed for 'torch._ops.aten.sort'",
    "lambda t: ad.relu(t)": "Multiple dispatch failed for 'torch._ops.aten.relu'",
    "lambda t: t.long().mean()": "does not support input of dtype",
    "lambda t: t[0, 1].item()": "the element has no value",
    "lambda t: t.numpy()": "not supported for tensor subclasses",
    "lambda t: ad.cat([t, DATA])": "mask must have dtype bool",
    "lambda t: t.backward()": "grad can be implicitly created only for scalar|does not require",
}


@pytest.mark.parametrize("program", REFUSED)
def test_refusals(program: str) -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError), match=REFUSED[program]):
        eval(program)(masked())  # noqa: S307  # our own texts


@pytest.mark.parametrize("again", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies(again: Any) -> None:
    t = again(masked(requires_grad=True))
    assert seen(t) == seen(masked()) and t.requires_grad and t.is_leaf


def test_names_of_pytorch() -> None:
    from adjoint.masked.maskedtensor.core import _masks_match, _tensors_match
    assert _masks_match(masked(), DATA) and _masks_match(masked(), masked())
    assert not _masks_match(masked(), masked_tensor(DATA, ~MASK))
    assert _tensors_match(DATA, DATA + 1e-9, exact=False)
    assert not _tensors_match(DATA, DATA + 1)
