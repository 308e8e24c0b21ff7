"""Views by `conj` and `_neg_view`: one memory, seen with signs turned, as in PyTorch 2.13."""

from __future__ import annotations

import copy
import io
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_engine import exact as equal
from helpers_engine import node_name

import adjoint as ad
from adjoint.core.bind import bind
from adjoint.core.op import OPS
from adjoint.core.tensor import mirrored
from adjoint.testing.samples import table


def exact(got: Any, want: Any) -> None:
    """`got` has these values; NumPy does not take what is unresolved."""
    equal(got.detach().resolve_conj().resolve_neg(), want)


def pair(requires_grad: bool = False) -> Any:
    return ad.tensor([1 + 2j, 3 - 1j], requires_grad=requires_grad)


class TestOneMemory:
    def test_what_it_says_of_itself(self) -> None:
        x = pair()
        c = x.conj()
        assert c.is_conj() and ad.is_conj(c) and not c.is_neg() and not x.is_conj()
        assert c._is_view() and c._base is x and c.data_ptr() == x.data_ptr()
        assert c.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert isinstance(c, ad.Tensor) and repr(c) == "tensor([1.-2.j, 3.+1.j])"
        assert c.stride() == (1,) and c.storage_offset() == 0 and c.is_contiguous()
        assert c.tolist() == [1 - 2j, 3 + 1j] and c[1].item() == 3 + 1j

    def test_twice_is_the_memory_itself(self) -> None:
        x = pair()
        again = x.conj().conj()
        assert not again.is_conj() and again.data_ptr() == x.data_ptr() and again._base is x
        again.mul_(2)
        exact(x, [2 + 4j, 6 - 2j])

    def test_writes_are_seen_from_either_side(self) -> None:
        x = pair()
        c = x.conj()
        x.mul_(2)
        exact(c, [2 - 4j, 6 + 2j])
        c.add_(1j)
        exact(x, [2 + 3j, 6 - 3j])
        c[0] = 5 + 5j
        exact(x, [5 - 5j, 6 - 3j])
        x[1] = 1j
        exact(c, [5 + 5j, -1j])
        c.copy_(x)
        exact(x, [5 + 5j, -1j])
        c.zero_()
        exact(x, [0j, 0j])
        assert x._version == c._version == 6

    def test_other_kinds_of_writes(self) -> None:
        x = pair()
        c = x.conj()
        c.masked_fill_(ad.tensor([True, False]), 1j)
        exact(x, [-1j, 3 - 1j])
        c.index_put_((ad.tensor([1]),), ad.tensor(2j))
        exact(x, [-1j, -2j])
        c.scatter_(0, ad.tensor([0]), 3j)
        exact(x, [-3j, -2j])
        c.mul_(c)
        exact(x, [-9 + 0j, -4 + 0j])
        ad.add(ad.tensor([1j, 1j]), 1, out=c)
        exact(x, [1 - 1j, 1 - 1j])
        x.add_(c)
        exact(x, [2 + 0j, 2 + 0j])
        ad.from_numpy(x.numpy()).mul_(1j)
        exact(c, [-2j, -2j])
        with ad.inference_mode():
            y = pair()
            y.conj().mul_(2j)
            exact(y, [4 - 2j, -2 - 6j])

    def test_views_of_it(self) -> None:
        x = ad.arange(6).view(2, 3) * (1 + 1j)
        c = x.conj()
        for v in (c[0], c.t(), c.view(6), c.unsqueeze(0), c.expand(2, 2, 3), c[:, 1:], c.diagonal(),
                  *c.unbind(), *c.split(1), c.detach(), c.data, c.contiguous(), c[...], x.H, x.mH,
                  x.adjoint(), ad.adjoint(x), x.H, x.H, c.to(ad.complex64)):
            assert v.is_conj(), v
            exact(v.resolve_conj().conj_physical(), v.conj())   # (which is the memory)
        c[0, 1:].mul_(2)
        exact(x, [[0, 2 + 2j, 4 + 4j], [3 + 3j, 4 + 4j, 5 + 5j]])
        c.detach()[1].zero_()
        exact(x[1], [0j, 0j, 0j])
        c.t_().unsqueeze_(0)
        assert c.is_conj() and c.shape == (1, 3, 2)
        c[0, 1, 0] = 1j
        exact(x[0], [0, -1j, 4 + 4j])

    def test_what_is_computed_is_no_view(self) -> None:
        c = pair().conj()
        for v in (c.clone(), c * 1, c.sum(), -c, c.abs(), c.to(ad.complex128), c[ad.tensor([0])],
                  ad.cat([c, c]), ad.empty_like(c), ad.zeros_like(c), c.resolve_conj(),
                  c.conj(), ad.conj_physical(c), copy.deepcopy(c)):
            assert not v.is_conj()

    def test_parts(self) -> None:
        x = pair()
        c = x.conj()
        r, i = c.real, c.imag
        assert not r.is_neg() and i.is_neg() and i._base is x
        assert i.data_ptr() == x.imag.data_ptr()
        exact(r, [1.0, 3.0])
        exact(i, [-2.0, 1.0])
        i.mul_(2)
        r.add_(1)
        exact(x, [2 + 4j, 4 - 2j])
        assert not i.resolve_neg().is_neg() and not (-i).is_neg() and i[0].is_neg()
        exact(i.resolve_neg(), [-4.0, 2.0])

    def test_negative_views_of_reals(self) -> None:
        x = ad.tensor([1.0, 2.0])
        n = ad._neg_view(x)
        n.add_(1)
        assert n.is_neg() and n.data_ptr() == x.data_ptr()
        exact(x, [0.0, 1.0])
        exact(n + 1, [1.0, 0.0])
        assert not ad._neg_view(n).is_neg()

    def test_reals_are_themselves(self) -> None:
        x = ad.tensor([1.0])
        assert x.conj() is x and x.resolve_conj() is x and x.resolve_neg() is x

    @pytest.mark.parametrize("use", [lambda c: c.numpy(), np.asarray, lambda c: c.imag.numpy()])
    def test_numpy_has_no_such_arrays(self, use: Callable[[Any], Any]) -> None:
        with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that has \w+ bit"):
            use(pair().conj())

    def test_as_pairs_it_has_to_be_resolved(self) -> None:
        c = pair().conj()
        with pytest.raises(RuntimeError, match="doesn't work on unresolved conjugated tensors"):
            ad.view_as_real(c)
        with pytest.raises(RuntimeError, match="not supported for conjugate view"):
            c.view(ad.float32)
        exact(ad.view_as_real(c.resolve_conj()), [[1.0, -2.0], [3.0, 1.0]])
        assert c.numpy(force=True).tolist() == [1 - 2j, 3 + 1j]

    def test_copies_and_files(self) -> None:
        c = pair().conj()
        again = pickle.loads(pickle.dumps(c))
        assert again.is_conj()
        file = io.BytesIO()
        ad.save({"c": c, "i": c.imag}, file)
        file.seek(0)
        loaded = ad.load(file)
        for t in (again, copy.deepcopy(c), loaded["c"]):
            exact(t, [1 - 2j, 3 + 1j])
        exact(loaded["i"], [-2.0, 1.0])


PROGRAMS: dict[str, tuple[Callable[[Any], Any], list[complex]]] = {
    "read": (lambda y: (y.conj() * y.conj()).real.sum(), [2 - 4j, 6 + 2j]),
    "view written": (lambda y: (y.conj().mul_(2j), (y * y.conj()).real.sum())[1],
                     [8 + 16j, 24 - 8j]),
    "base written": (lambda y: ((c := y.conj()), y.mul_(2j), (c * c).real.sum())[2],
                     [-8 + 16j, -24 - 8j]),
    "part written": (lambda y: ((c := y.conj())[0:1].mul_(2j), (c * y * y).real.sum())[1],
                     [32 + 104j, 28 - 6j]),
    "imag written": (lambda y: (y.conj().imag.mul_(3), (y * y * y).real.sum())[1],
                     [-105 - 108j, 162j]),
}


class TestGradients:
    @pytest.mark.parametrize("kind", PROGRAMS)
    def test_as_pytorchs(self, kind: str) -> None:
        run, want = PROGRAMS[kind]
        x = pair(True)
        loss = run(x * 1)
        got = ad.autograd.grad(loss, x)[0]
        exact(got, want)

    def test_nodes(self) -> None:
        x = pair(True)
        c = x.conj()
        assert node_name(c) == "ConjBackward0"
        y = x * 1
        c = y.conj()
        y.mul_(2)
        assert node_name(c) == "ConjBackward0" and node_name(y) == "MulBackward0"

    def test_a_residual_that_was_written_is_found(self) -> None:
        y = pair(True) * 1
        c = y.conj()
        loss = (c * c).real.sum()
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_leaf_of_its_own(self) -> None:
        x = pair()
        c = x.conj().requires_grad_()
        (c * c).real.sum().backward()
        exact(c.grad, [2 + 4j, 6 - 2j])
        assert x.grad is None and not c.grad.is_conj()

    def test_second_order(self) -> None:
        x = pair(True)
        g = ad.autograd.grad((x.conj() * x * x.conj()).real.sum(), x, create_graph=True)[0]
        h = ad.autograd.grad(g.abs().sum(), x)[0]
        y = pair(True)
        c = ad.conj_physical(y)
        gy = ad.autograd.grad((c * y * c).real.sum(), y, create_graph=True)[0]
        exact(g.detach(), gy.detach())
        exact(h, ad.autograd.grad(gy.abs().sum(), y)[0])


def test_every_record_reads_the_values() -> None:
    """Of each record, the result on such views is that on plain tensors."""
    done = 0
    for name, rows in table().items():
        for args, attrs in rows:
            plain = [ad.from_numpy(np.array(a)) if isinstance(a, np.ndarray) else a for a in args]
            odd = [_as_view(a) if isinstance(a, np.ndarray) else a for a in args]
            if name == "view_as_real" or not any(getattr(a, "turn", "") for a in odd):
                continue
            for some, other in zip(_results(name, plain, attrs), _results(name, odd, attrs),
                                   strict=True):
                np.testing.assert_array_equal(other.array, some.array, name)
            done += 1
    assert done > 500


def _as_view(a: Any) -> Any:
    if a.dtype.kind == "c":
        return mirrored(ad.from_numpy(np.array(np.conjugate(a))), "conj")
    return (mirrored(ad.from_numpy(np.array(-a)), "neg") if a.dtype.kind == "f"
            else ad.from_numpy(np.array(a)))


def _results(name: str, args: list[Any], attrs: Any) -> list[Any]:
    ad.manual_seed(0)
    made = bind(OPS[name], args, attrs)
    return list(made) if isinstance(made, tuple) else [made]


def test_their_class_is_that_of_tensors_to_all_who_compare() -> None:
    c = ad.tensor([1 + 2j, 3 - 1j]).conj()
    assert c.is_conj() and c.__class__ is ad.Tensor
    assert operator.eq(type(c), ad.Tensor) and operator.eq(ad.Tensor, type(c))
    assert not operator.ne(type(c), ad.Tensor)
    assert type(c) in (ad.nn.Parameter, ad.Tensor) and type(c) not in (ad.nn.Parameter, int)
    assert {ad.Tensor: "here"}[type(c)] == "here" and issubclass(type(c), ad.Tensor)
    assert type(c)([1.0, 2.0]).tolist() == [1.0, 2.0] and not type(c)([1.0]).is_conj()
    assert str(type(c)) == str(ad.Tensor) and {c: 1}[c] == 1
    c.array = np.zeros(2, np.complex64)     # other memory: a plain tensor
    assert type(c) is ad.Tensor


def test_a_shallow_copy_shows_the_same_memory() -> None:
    x = ad.tensor([1 + 2j, 3 - 1j])
    c = x.conj()
    c.mark = "kept"
    d = copy.copy(c)
    assert d.is_conj() and d.data_ptr() == x.data_ptr() and d.mark == "kept"
    d[0] = 5 + 7j
    assert x.tolist() == [5 - 7j, 3 - 1j] and c.tolist() == [5 + 7j, 3 + 1j]
