"""Where what a file holds goes to, and what asking for another place gives."""
from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn as nn


def file(x: Any) -> io.BytesIO:
    buffer = io.BytesIO()
    ad.save(x, buffer)
    buffer.seek(0)
    return buffer


def test_a_function_is_given_storages_of_bytes() -> None:
    seen: list[Any] = []

    def where(storage: Any, location: str) -> Any:
        seen.append((type(storage) is ad.UntypedStorage, storage.nbytes(), location))
        return storage
    x, raw = ad.load(file([ad.arange(2.0), ad.ones(3).untyped_storage()]), map_location=where)
    assert seen == [(True, 8, "cpu"), (True, 12, "cpu")]
    assert x.tolist() == [0.0, 1.0] and raw.nbytes() == 12


def test_a_function_has_to_return_a_storage() -> None:
    with pytest.raises(TypeError, match="has to return a storage or None, it returned a int"):
        ad.load(file(ad.ones(2)), map_location=lambda storage, location: 3)


@pytest.mark.parametrize("location", ["cuda", "cuda:0", "xpu", {"cpu": "cuda:0"}])
def test_a_device_that_is_not_here(location: Any) -> None:
    with pytest.raises(RuntimeError, match=r"Attempting to deserialize object on a (CUDA|XPU) devic"
                                           r"e but torch\.(cuda|xpu)\.is_available\(\) is False"):
        ad.load(file(ad.ones(2)), map_location=location)


def test_a_device_that_is_not_known() -> None:
    with pytest.raises(RuntimeError, match=r"don't know how to restore .* \(tagged with foo\)"):
        ad.load(file(ad.ones(2)), map_location="foo")


@pytest.mark.parametrize("move", [lambda: ad.ones(2).cuda(), lambda: nn.Linear(2, 3).cuda(),
                                  lambda: ad.ones(2, device="cuda"),
                                  lambda: nn.Linear(2, 3).to("cuda")])
def test_moves_to_a_device_that_is_not_here(move: Any) -> None:
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        move()


@pytest.mark.parametrize("order", [-1.0, -2.0, -0.5])
def test_norms_of_negative_order_have_no_warning(order: float) -> None:
    w = nn.Parameter(ad.ones(3))
    w.grad = ad.tensor([3.0, 4.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nn.utils.clip_grad_norm_([w], 1.0, norm_type=order).item() == 0.0
    assert w.grad.tolist() == [3.0, 4.0, 0.0]


def test_a_module_on_meta_names_what_to_use() -> None:
    module = nn.Linear(2, 3, device="meta")
    said = r"no data! Please use torch\.nn\.Module\.to_empty"
    with pytest.raises(NotImplementedError, match=said):
        module.to("cpu")
    assert module.to("meta").weight.is_meta and module.to(ad.float64).weight.dtype == ad.float64
    assert not module.to_empty(device="cpu").weight.is_meta


@pytest.mark.parametrize("cut", [np.s_[3:6], np.s_[::2], np.s_[2:2], np.s_[::-1]], ids=str)
def test_a_piece_of_a_large_numpy_array_is_a_storage_of_its_own(cut: slice) -> None:
    """What is saved of it is the piece, and the memory is still shared both ways."""
    whole = np.arange(10.0)
    piece = whole[cut]
    t = ad.from_numpy(piece)
    if cut.step != -1 and piece.size:
        reach = ((piece.size - 1) * (cut.step or 1) + 1) * 8
        assert (t.untyped_storage().nbytes(), t.storage_offset()) == (reach, 0)
        assert ad.load(file(t)).untyped_storage().nbytes() == reach
    assert ad.load(file(t)).tolist() == piece.tolist()
    t.zero_()
    assert not piece.any()
    whole[...] = 7
    assert (t == 7).all() and np.shares_memory(t.numpy(), whole) == bool(piece.size)
