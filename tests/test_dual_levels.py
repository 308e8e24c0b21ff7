"""Dual tensors after their level, and the bounds of levels (`autograd.forward_ad`, F10)."""
from __future__ import annotations

from typing import Any

import pytest

import adjoint as ad
import adjoint.autograd.forward_ad as fw


def dual(requires_grad: bool = False) -> tuple[Any, Any, Any]:
    x = ad.tensor([1.0, 2.0], requires_grad=requires_grad)
    with fw.dual_level():
        d = fw.make_dual(x, ad.tensor([1.0, 0.0]))
        return x, d, d * 3


class TestAfterwards:
    @pytest.mark.parametrize("use", [
        lambda d: (d + 1).tolist() == [2.0, 3.0], lambda d: ad.stack([d, d]).shape == (2, 2),
        lambda d: d.sum().item() == 3.0, lambda d: d.numpy().tolist() == [1.0, 2.0],
        lambda d: d.mul_(2).tolist() == [2.0, 4.0], lambda d: d.tolist() == [1.0, 2.0],
        lambda d: repr(d) == "tensor([1., 2.])", lambda d: d[1].item() == 2.0,
        lambda d: fw.unpack_dual(d)[1] is None])
    def test_a_dual_tensor_is_its_primal(self, use: Any) -> None:
        _, d, _ = dual()
        assert use(d)

    def test_on_the_primals_memory(self) -> None:
        x, d, _ = dual()
        d.mul_(5)
        assert x.tolist() == [5.0, 10.0] and type(d) is ad.Tensor

    def test_its_place_in_the_graph_stays(self) -> None:
        x, d, y = dual(requires_grad=True)
        (y * d).sum().backward()
        assert x.grad.tolist() == [6.0, 12.0]
        assert y.grad_fn.name() == "MulBackward0" and not d.is_leaf

    def test_in_another_level(self) -> None:
        _, d, y = dual()
        with fw.dual_level():
            e = fw.make_dual(y, ad.ones(2))
            assert fw.unpack_dual(e * d).tangent.tolist() == [1.0, 2.0]
            assert fw.unpack_dual(d).tangent is None

    def test_values_of_jvp_are_refused_as_before(self) -> None:
        held: list[Any] = []
        ad.func.jvp(lambda x: held.append(x) or x * 2, (ad.ones(2),), (ad.ones(2),))
        with pytest.raises(RuntimeError, match="used after that call ended"):
            held[0] + 1


class TestLevels:
    def test_another_level_than_the_last_is_not_closed(self) -> None:
        level = fw.enter_dual_level()
        with pytest.raises(RuntimeError, match="not the last one that was created"):
            fw.exit_dual_level(level=level + 1)
        fw.exit_dual_level(level=level)
        with pytest.raises(RuntimeError, match="no level exists"):
            fw.make_dual(ad.ones(1), ad.ones(1))

    def test_a_derivative_with_respect_to_a_dual_tensor(self) -> None:
        x = ad.tensor([1.0, 2.0], requires_grad=True)
        with fw.dual_level():
            d = fw.make_dual(x.clone(), ad.tensor([1.0, 0.0]))
            (g,) = ad.autograd.grad(fw.unpack_dual((d ** 3).sum()).tangent, d)
        assert g.tolist() == [6.0, 0.0]
