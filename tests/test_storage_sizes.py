"""Memory that is resized while tensors share it, and copies of tensors (F23)."""
from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import adjoint as ad


class TestGrowth:
    def test_all_tensors_of_the_memory_follow(self) -> None:
        x = ad.arange(6.0)
        y, row, other = x.view(2, 3), x[2:4], x.detach()
        x.resize_(10)
        assert x.tolist() == [0.0, 1, 2, 3, 4, 5, 0, 0, 0, 0]
        y[0, 0], row[1], other[5] = 9.0, 7.0, 8.0
        assert x.tolist() == [9.0, 1, 2, 7, 4, 8, 0, 0, 0, 0] and x._version == y._version
        assert {t.untyped_storage().data_ptr() for t in (x, y, row, other)} == {x.data_ptr()}

    def test_a_view_grows_the_memory_behind_it(self) -> None:
        x = ad.arange(6.0)
        row = x[2:4]
        row.resize_(10)
        assert x.untyped_storage().nbytes() == 48 and row.tolist()[:4] == [2.0, 3, 4, 5]
        row[0] = 5.0
        assert x[2] == 5.0

    def test_conjugate_views_follow_too(self) -> None:
        x = ad.tensor([1 + 2j, 3 - 1j])
        c = x.conj()
        x.resize_(3)
        x[0] = 5j
        assert c.tolist() == [-5j, 3 + 1j]

    def test_storages_are_resized(self) -> None:
        x = ad.arange(3, dtype=ad.int16)
        s = x.untyped_storage()
        assert s.resizable() and s.resize_(8) is s and s.nbytes() == 8
        assert x.as_strided((4,), (1,)).tolist() == [0, 1, 2, 0]
        assert ad.TypedStorage([1, 2], dtype=ad.int16).resize_(3).tolist() == [1, 2, 0]
        y = ad.empty(0, dtype=ad.int16).set_(s, 2, (4,))
        y[0] = 7
        assert x.tolist() == [0, 1, 7] and y.tolist() == [7, 0, 0, 0]

    def test_a_graph_notices(self) -> None:
        w = ad.ones(3, requires_grad=True)
        x = ad.arange(3.0)
        y = (w * x).sum()
        x.resize_(5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()

    def test_refused(self) -> None:
        x = ad.from_numpy(np.zeros(3))
        with pytest.raises(RuntimeError, match="storage that is not resizable"):
            x.resize_(5)
        assert x.resize_(2).tolist() == [0.0, 0.0]
        y = ad.ones(4)
        with pytest.raises(RuntimeError, match=r"a tensor of shape \[4\] shows 16 bytes"):
            y.untyped_storage().resize_(8)
        assert y.tolist() == [1.0] * 4

    def test_as_pytorch(self) -> None:
        torch = pytest.importorskip("torch")
        told = []
        for t in (torch, ad):
            x = t.arange(6.0)
            y, z = x.view(2, 3), x[1:]
            x.resize_(8)
            z.mul_(2)
            x.resize_(2)
            told.append([x.tolist(), y.tolist(), z.tolist(), x._version, z._version,
                         z.storage_offset(), x.untyped_storage().nbytes()])
        assert told[0] == told[1]


class TestStorages:
    def test_writes_are_noticed_and_can_be_followed_by_growth(self) -> None:
        x = ad.arange(3.0)
        y = (ad.ones(3, requires_grad=True) * x).sum()
        x.untyped_storage().fill_(0)
        x.resize_(4)
        with pytest.raises(RuntimeError, match="a write to its storage|resize_"):
            y.backward()

    def test_wrong_indices(self) -> None:
        s = ad.zeros(1).untyped_storage()
        with pytest.raises(IndexError, match="index 4 out of range for storage of size 4"):
            s[4]
        with pytest.raises(TypeError, match="with str"):
            s["a"]


class TestCopies:
    @pytest.mark.parametrize("of", [lambda x: x, lambda x: x.t(), lambda x: x * 2])
    def test_a_copy_is_a_leaf_on_the_same_memory(self, of: Any) -> None:
        x = of(ad.ones(2, 3, requires_grad=True))
        c = copy.copy(x)
        assert c is not x and c.data_ptr() == x.data_ptr() and c.stride() == x.stride()
        assert c.is_leaf and c.requires_grad and c.grad is None and type(c) is type(x)

    def test_attributes_go_along(self) -> None:
        p = ad.nn.Parameter(ad.ones(2))
        p.note = [1]
        q = copy.copy(p)
        assert type(q) is ad.nn.Parameter and q.note is p.note and q.data_ptr() == p.data_ptr()

    def test_a_write_through_a_copy_is_noticed(self) -> None:
        x = ad.ones(2)
        y = (ad.ones(2, requires_grad=True) * x).sum()
        copy.copy(x).mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()

    def test_a_computed_tensor_comes_back_as_a_leaf(self) -> None:
        y = ad.ones(2, requires_grad=True) * 3
        z = pickle.loads(pickle.dumps(y))
        assert z.tolist() == [3.0, 3.0] and z.is_leaf and z.requires_grad
        with pytest.raises(RuntimeError, match="support the deepcopy protocol"):
            copy.deepcopy(y)

    def test_data_cannot_be_deleted(self) -> None:
        with pytest.raises(RuntimeError, match="Deleting tensor data is not allowed"):
            del ad.ones(1).data


class TestStoragesMadeOfOthersMemory:
    """`from_buffer`, `from_file`, `wrap_storage`."""

    @pytest.mark.parametrize(("order", "kind"), [("native", "=f4"), ("big", ">f4"),
                                                 ("little", "<f4")])
    def test_of_a_buffer(self, order: str, kind: str) -> None:
        raw = np.arange(3.0).astype(kind).tobytes()
        assert ad.FloatStorage.from_buffer(raw, order).tolist() == [0.0, 1.0, 2.0]
        assert ad.FloatStorage.from_buffer(raw, byte_order=order, count=1, offset=8).tolist() == [2]

    def test_of_bytes_a_copy(self) -> None:
        raw = bytearray(b"123")
        made = ad.ByteStorage.from_buffer(raw)
        raw[0] = 9
        assert made.tolist() == [49, 50, 51]

    @pytest.mark.parametrize(("given", "said"), [
        ((b"1234",), "missing required argument 'byte_order'"),
        ((b"12345", "native"), r"buffer size \(5\) must be a multiple of element size \(4\)"),
        ((b"1234", "foo"), "invalid byte_order 'foo'"),
        ((b"1234", "native", 2), "has only 1 elements after offset 0, but specified a size of 2"),
        ((b"1234", "native", -1, 8), "offset must be non-negative and no greater than buffer")])
    def test_what_a_buffer_has_to_be(self, given: Any, said: str) -> None:
        with pytest.raises((RuntimeError, ValueError), match=said):
            ad.FloatStorage.from_buffer(*given)

    def test_of_a_file(self, tmp_path: Any) -> None:
        path = tmp_path / "numbers"
        path.write_bytes(np.arange(4, dtype=np.float32).tobytes())
        assert ad.FloatStorage.from_file(path, False, 3).tolist() == [0.0, 1.0, 2.0]

    def test_around_other_storage(self) -> None:
        x = ad.ones(2)
        made = ad.TypedStorage(wrap_storage=x.untyped_storage(), dtype=ad.float32)
        made.fill_(3.0)
        assert x.tolist() == [3.0, 3.0] and made.get_device() is None and not made.is_sparse
        assert ad.FloatStorage(wrap_storage=x.untyped_storage()).tolist() == [3.0, 3.0]
        assert len(ad.TypedStorage(wrap_storage=x.untyped_storage(), dtype=ad.int16)) == 4

    def test_around_nothing_else(self) -> None:
        raw = ad.ones(2).untyped_storage()
        with pytest.raises(TypeError, match="has to be an UntypedStorage, got a Tensor"):
            ad.TypedStorage(wrap_storage=ad.ones(2), dtype=ad.float32)
        for more in ({}, {"dtype": ad.float32, "device": "cpu"}):
            with pytest.raises(RuntimeError, match="invalid combination of arguments"):
                ad.TypedStorage(wrap_storage=raw, **more)
