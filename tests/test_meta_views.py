"""Views of tensors without storage: strides, offsets and bases as of real ones."""
from __future__ import annotations

from typing import Any

import pytest

import adjoint as ad

VIEWS = [lambda x: x[1:], lambda x: x[1:].transpose(0, 2)[1], lambda x: x.chunk(2, 1)[1],
         lambda x: x.unbind(0)[3], lambda x: x.view(12, 2)[5:], lambda x: x.diagonal(1),
         lambda x: x.as_strided((2, 2), (1, 3), 7), lambda x: x[::2, :, 1],
         lambda x: x.unfold(0, 2, 1)[1],
         lambda x: x.permute(2, 0, 1)[1], lambda x: x[:, :, :1].expand(4, 3, 5)[2],
         lambda x: x.permute(1, 0, 2).view(3, 4, 2, 1)[1:], lambda x: x.narrow(0, 2, 1).squeeze(0)]


@pytest.mark.parametrize("view", VIEWS)
def test_views_without_storage_lie_as_real_ones(view: Any) -> None:
    real, meta = view(ad.empty(4, 3, 2)), view(ad.empty(4, 3, 2, device="meta"))
    assert tuple(meta.shape) == tuple(real.shape) and meta.stride() == real.stride()
    assert meta.storage_offset() == real.storage_offset() and meta._base is not None
    assert meta.is_contiguous() == real.is_contiguous()


def test_complex_parts_without_storage_lie_as_real_ones() -> None:
    c = ad.empty(4, dtype=ad.complex64, device="meta")
    assert (c.imag.storage_offset(), ad.view_as_real(c[1:]).storage_offset()) == (1, 2)
