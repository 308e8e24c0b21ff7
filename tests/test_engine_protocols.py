"""Tensor protocols: copy, deepcopy, pickle, repr, NumPy, DLPack, iteration, hashing."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from helpers_engine import OURS, const, exact, leaf, only_ours, randoms, values

import adjoint as ad


class TestRepr:
    @pytest.mark.parametrize(
        ("program", "expected"),
        [
            ("ad.ones(2, 2)", "tensor([[1., 1.],\n        [1., 1.]])"),
            ("ad.tensor(3)", "tensor(3)"),
            ("ad.tensor(1.5)", "tensor(1.5000)"),
            ("ad.tensor([True])", "tensor([True])"),
            ("ad.tensor([1 + 2j])", "tensor([1.+2.j])"),
            ("ad.ones(2, dtype=ad.float64)", "tensor([1., 1.], dtype=torch.float64)"),
            ("ad.zeros(0, 3)", "tensor([], size=(0, 3))"),
            ("ad.ones(2, requires_grad=True)", "tensor([1., 1.], requires_grad=True)"),
            ("ad.ones(2, requires_grad=True) * 2", "tensor([2., 2.], grad_fn=<MulBackward0>)"),
            ("ad.ones(2, requires_grad=True).sum()", "tensor(2., grad_fn=<SumBackward0>)"),
            (
                "ad.nn.Parameter(ad.ones(2))",
                "Parameter containing:\ntensor([1., 1.], requires_grad=True)",
            ),
            ("ad.full((2, 2), 4.5)", "tensor([[4.5000, 4.5000],\n        [4.5000, 4.5000]])"),
            ("ad.tensor([1e-8, 1.0])", "tensor([1.0000e-08, 1.0000e+00])"),
            ("ad.tensor([float('nan'), float('inf')])", "tensor([nan, inf])"),
        ],
    )
    def test_text(self, program: str, expected: str) -> None:
        """F1, F2: prints as PyTorch prints."""
        text = repr(eval(program, {"ad": ad}))  # noqa: S307
        assert text.replace("adjoint.float64", "torch.float64") == expected

    def test_large_is_summarised(self) -> None:
        text = repr(ad.zeros(2000))
        assert "..." in text and len(text) < 200

    def test_dtype_and_size(self) -> None:
        x = ad.ones(2, 3)
        assert repr(x.dtype).split(".")[-1] == "float32"
        assert x.shape == (2, 3) and x.size() == (2, 3) and x.size(1) == 3
        assert x.shape[-1] == 3 and x.ndim == 2 and x.numel() == 6

    def test_format_of_a_scalar(self) -> None:
        assert f"{ad.tensor(1.23456):.2f}" == "1.23"


class TestCopies:
    def test_deepcopy_of_a_leaf(self) -> None:
        x = leaf([1.0, 2.0])
        (x * 2.0).sum().backward()
        other = copy.deepcopy(x)
        assert other.requires_grad and other.is_leaf
        exact(other.grad, [2.0, 2.0])
        assert other.grad is not x.grad
        with ad.no_grad():
            other.add_(1.0)
        exact(x, [1.0, 2.0])

    def test_deepcopy_of_a_non_leaf_refused(self) -> None:
        with pytest.raises(RuntimeError, match="^Only Tensors created explicitly by the user"):
            copy.deepcopy(leaf([1.0]) * 2.0)

    def test_deepcopy_keeps_sharing(self) -> None:
        a = const(np.arange(6.0).reshape(2, 3))
        both = copy.deepcopy({"a": a, "row": a[0], "again": a})
        assert both["again"] is both["a"]
        both["a"][0, 0] = 99.0
        assert both["row"][0].item() == 99.0
        assert a[0, 0].item() == 0.0

    def test_deepcopy_of_parameter_and_module(self) -> None:
        p = ad.nn.Parameter(ad.ones(2))
        q = copy.deepcopy(p)
        assert type(q) is type(p) and q.requires_grad
        layer = ad.nn.Linear(2, 2)
        twin = copy.deepcopy(layer)
        with ad.no_grad():
            twin.weight.zero_()
        assert layer.weight.abs().sum().item() > 0

    def test_shallow_copy_and_clone(self) -> None:
        x = leaf([1.0])
        assert x.clone().grad_fn is not None
        assert not np.shares_memory(x.clone().detach().numpy(), x.detach().numpy())

    @pytest.mark.parametrize("protocol", [2, 4, 5])
    def test_pickle(self, protocol: int) -> None:
        for x in (
            leaf([1.0, 2.0]),
            const([[3.0]]),
            ad.tensor([1, 2]),
            ad.tensor([True]),
            ad.ones(()),
        ):
            back = pickle.loads(pickle.dumps(x, protocol))
            assert type(back) is type(x) and back.dtype == x.dtype
            assert back.requires_grad == x.requires_grad and back.is_leaf
            exact(back, values(x))

    def test_pickle_of_parameter_keeps_the_class(self) -> None:
        p = pickle.loads(pickle.dumps(ad.nn.Parameter(ad.ones(2))))
        assert type(p) is ad.nn.Parameter and p.requires_grad

    def test_pickle_of_a_strided_view(self) -> None:
        x = const(np.arange(6.0).reshape(2, 3)).t()
        exact(pickle.loads(pickle.dumps(x)), values(x))

    def test_pickle_does_not_carry_the_graph_or_grad(self) -> None:
        x = leaf([1.0])
        (x * 2.0).sum().backward()
        assert pickle.loads(pickle.dumps(x)).grad is None


class TestNumpy:
    def test_asarray_shares_and_array_copies(self) -> None:
        x = const([1.0, 2.0])
        np.asarray(x)[0] = 7.0
        np.array(x)[1] = 9.0
        exact(x, [7.0, 2.0])

    def test_array_with_dtype(self) -> None:
        assert np.asarray(const([1.0]), dtype=np.float32).dtype == np.float32

    def test_from_numpy_shares(self) -> None:
        a = np.array([1.0, 2.0])
        x = ad.from_numpy(a)
        a[0] = 5.0
        x[1] = 6.0
        assert a.tolist() == [5.0, 6.0]
        exact(x, [5.0, 6.0])

    def test_tensor_copies(self) -> None:
        a = np.array([1.0, 2.0])
        x = ad.tensor(a)
        a[0] = 5.0
        exact(x, [1.0, 2.0])

    def test_numpy_scalar_times_tensor(self) -> None:
        x = leaf([1.0, 2.0])
        y = np.float64(2.0) * x
        assert isinstance(y, ad.Tensor) and y.requires_grad
        y.sum().backward()
        exact(x.grad, [2.0, 2.0])

    def test_ufunc_on_tensor(self) -> None:
        out = np.exp(const([0.0, 1.0]))
        assert isinstance(out, ad.Tensor)
        exact(out, np.exp([0.0, 1.0]))

    @only_ours
    def test_ufunc_is_differentiable(self) -> None:
        """__array_ufunc__: np.exp(x) of a tracked tensor is ad.exp(x), not an error and not
        detached.
        """
        x = leaf([0.0, 1.0])
        y = np.exp(x) + np.multiply(x, 2.0)
        assert isinstance(y, ad.Tensor) and y.requires_grad
        y.sum().backward()
        np.testing.assert_allclose(values(x.grad), np.exp([0.0, 1.0]) + 2.0)

    @only_ours
    def test_array_operand_on_the_left(self) -> None:
        """ndarray + tensor defers to the tensor instead of making an object array."""
        x = leaf([1.0, 2.0])
        for y in (np.ones(2) + x, np.ones(2) * x, np.ones((2, 2)) @ x, 3.0 - x, np.ones(2) / x):
            assert isinstance(y, ad.Tensor) and y.requires_grad
        (np.array([3.0, 4.0]) * x).sum().backward()
        exact(x.grad, [3.0, 4.0])

    @only_ours
    def test_array_function(self) -> None:
        """__array_function__: np.sum, np.mean, np.concatenate of tensors stay differentiable."""
        x = leaf([1.0, 2.0, 3.0])
        y = np.sum(x) + np.mean(x) + np.concatenate([x, x]).sum()
        assert isinstance(y, ad.Tensor)
        y.backward()
        np.testing.assert_allclose(values(x.grad), 3.0 + 1.0 / 3.0)

    def test_lazy_conjugation_is_nothing_to_resolve(self) -> None:
        z = ad.tensor([1 + 2j])
        exact(z.resolve_conj(), [1 + 2j])
        exact(z.conj().resolve_conj(), [1 - 2j])
        exact(ad.tensor([3.0]).resolve_neg(), [3.0])

    @pytest.mark.parametrize("name", ["double", "float", "half", "long", "int", "bool", "cdouble"])
    def test_conversion_methods(self, name: str) -> None:
        dtypes = {"double": "float64", "float": "float32", "half": "float16", "long": "int64"}
        dtypes |= {"int": "int32", "bool": "bool", "cdouble": "complex128"}
        for start in (ad.float64, ad.float32, ad.int64):
            out = getattr(ad.ones(2, dtype=start), name)()
            assert out.dtype == getattr(ad, dtypes[name])
            assert out.tolist() == [1, 1]

    def test_comparison_with_array(self) -> None:
        out = const([1.0, 2.0]) > const([1.5, 1.5])
        assert out.dtype == ad.bool
        assert out.tolist() == [False, True]


class TestDLPack:
    def test_numpy_takes_it_without_a_copy(self) -> None:
        x = const([1.0, 2.0])
        a = np.from_dlpack(x)
        x[0] = 9.0
        assert a.tolist() == [9.0, 2.0]

    def test_from_dlpack_shares(self) -> None:
        a = np.arange(3.0)
        x = ad.from_dlpack(a)
        a[0] = 9.0
        exact(x, [9.0, 1.0, 2.0])

    def test_tracked_refused(self) -> None:
        with pytest.raises((BufferError, RuntimeError)):
            np.from_dlpack(leaf([1.0]))

    def test_device(self) -> None:
        assert const([1.0]).__dlpack_device__()[0] == 1

    def test_exchange_with_pytorch(self) -> None:
        torch = pytest.importorskip("torch")
        x = const([1.0, 2.0])
        there = torch.from_dlpack(x)
        there[0] = 5.0
        exact(x, [5.0, 2.0])
        back = ad.from_dlpack(torch.arange(3.0))
        exact(back, [0.0, 1.0, 2.0])


class TestContainerProtocol:
    def test_len_and_iteration(self) -> None:
        x = leaf(randoms(3, 2))
        rows = list(x)
        assert len(x) == 3 and len(rows) == 3
        sum(row.sum() * k for k, row in enumerate(rows)).backward()
        exact(x.grad, [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])

    def test_zero_dimensional(self) -> None:
        with pytest.raises(TypeError, match="iteration over a 0-d tensor"):
            list(const(1.0))
        with pytest.raises(TypeError, match="len\\(\\) of a 0-d tensor"):
            len(const(1.0))

    def test_hash_is_identity(self) -> None:
        a, b = const([1.0]), const([1.0])
        assert len({a, b, a}) == 2
        assert {a: 1}[a] == 1

    def test_contains(self) -> None:
        assert 2.0 in const([1.0, 2.0])
        assert 3.0 not in const([1.0, 2.0])

    def test_unpacking(self) -> None:
        a, b = leaf([3.0, 4.0])
        assert (a * b).item() == 12.0

    def test_equal_and_allclose(self) -> None:
        a = const([1.0, 2.0])
        assert ad.equal(a, a.clone())
        assert ad.allclose(a, a + 1e-10)
        assert (a == a).all().item() is True


@pytest.mark.skipif(not OURS, reason="adjoint's own names")
class TestArrayAttribute:
    def test_array_is_the_raw_storage(self) -> None:
        x = leaf([1.0, 2.0])
        assert isinstance(x.array, np.ndarray)
        assert np.shares_memory(x.array, x.detach().numpy())

    def test_wrapping_shares(self) -> None:
        a = np.ones(3)
        assert np.shares_memory(ad.from_numpy(a).array, a)
