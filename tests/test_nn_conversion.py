"""`torch.__future__`: what a module's parameters become when it is converted or loaded, beside
PyTorch."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import adjoint as ad

torch = pytest.importorskip("torch")


@pytest.fixture(params=[ad, torch], ids=["adjoint", "torch"])
def m(request: Any) -> Iterator[Any]:
    yield request.param
    for lib in (ad, torch):
        lib.__future__.set_overwrite_module_params_on_conversion(False)
        lib.__future__.set_swap_module_params_on_conversion(False)


def trained(m: Any) -> tuple[Any, Any, Any]:
    layer = m.nn.Linear(2, 2)
    layer(m.ones(1, 2)).sum().backward()
    return layer, layer.weight, layer.weight.grad


def test_nothing_is_set_at_first_and_both_can_be_told_apart(m: Any) -> None:
    now = m.__future__
    assert not now.get_overwrite_module_params_on_conversion()
    assert not now.get_swap_module_params_on_conversion()
    now.set_swap_module_params_on_conversion(True)
    assert now.get_swap_module_params_on_conversion()
    assert not now.get_overwrite_module_params_on_conversion()


def test_by_default_parameters_and_gradients_stay_and_take_the_values(m: Any) -> None:
    layer, w, g = trained(m)
    layer.double()
    assert layer.weight is w and w.dtype == m.float64 == w.grad.dtype and w.grad is g


def test_overwritten_parameters_leave_the_old_ones_as_they_were(m: Any) -> None:
    m.__future__.set_overwrite_module_params_on_conversion(True)
    layer, w, g = trained(m)
    layer.double()
    new = layer.weight
    assert new is not w and type(new) is m.nn.Parameter and new.requires_grad
    assert new.dtype == m.float64 == new.grad.dtype and new.grad is not g
    assert w.dtype == m.float32 == w.grad.dtype and w.grad is g
    assert layer.double().weight is not new                    # of the same dtype, too
    assert layer.to_empty(device="cpu").weight is not new
    layer.bias.requires_grad_(False)
    assert not layer.float().bias.requires_grad


def test_swapped_parameters_and_gradients_stay_who_they_are(m: Any) -> None:
    m.__future__.set_overwrite_module_params_on_conversion(True)
    m.__future__.set_swap_module_params_on_conversion(True)      # goes before the other
    layer, w, g = trained(m)
    tied = m.nn.Linear(2, 2)
    tied.weight = w
    opt = m.optim.SGD(layer.parameters(), 0.5)
    m.nn.Sequential(layer, tied).double()
    assert layer.weight is w is tied.weight and w.grad is g and type(w) is m.nn.Parameter
    assert w.dtype == m.float64 == g.dtype
    before = w.tolist()
    opt.step()
    assert w.tolist() == [[a - 0.5 for a in row] for row in before]
    opt.zero_grad()
    layer(m.ones(1, 2, dtype=m.float64)).sum().backward()
    assert w.grad.tolist() == [[1, 1], [1, 1]]


def test_a_parameter_with_views_cannot_be_swapped(m: Any) -> None:
    m.__future__.set_swap_module_params_on_conversion(True)
    layer, w, _ = trained(m)
    view = w.view(4)
    with pytest.raises(RuntimeError, match=r"_apply\(\): Couldn't swap Linear.weight"):
        layer.double()
    assert view.dtype == m.float32


@pytest.mark.parametrize("assign", [False, True])
def test_loading_swaps_with_what_module_load_gives(m: Any, assign: bool) -> None:
    m.__future__.set_swap_module_params_on_conversion(True)
    layer = m.nn.BatchNorm1d(2)
    w, mean, place = layer.weight, layer.running_mean, layer.weight.data_ptr()
    layer.bias.requires_grad_(False)
    given = {k: (v + 2).double() for k, v in layer.state_dict().items()}
    layer.load_state_dict(given, assign=assign)
    assert layer.weight is w and layer.running_mean is mean
    assert w.tolist() == [3, 3] and mean.tolist() == [2, 2]
    assert w.requires_grad and not layer.bias.requires_grad and type(w) is m.nn.Parameter
    assert w.dtype == (m.float64 if assign else m.float32)
    assert w.data_ptr() == (given["weight"].data_ptr() if assign else place)


def test_a_class_of_tensors_says_what_is_loaded(m: Any) -> None:
    class Thrice(m.Tensor):
        def module_load(self, other: Any, assign: bool = False) -> Any:
            return other if other.sum() == 0 else other.clone() * 3

    m.__future__.set_swap_module_params_on_conversion(True)
    layer = m.nn.Linear(2, 1, bias=False)
    layer.weight = m.nn.Parameter(m.ones(1, 2).as_subclass(Thrice))
    held = layer.weight
    layer.load_state_dict({"weight": m.ones(1, 2)})
    assert layer.weight is held and held.tolist() == [[3, 3]]
    layer.weight = m.nn.Parameter(m.ones(1, 2).as_subclass(Thrice))
    with pytest.raises(RuntimeError, match="module_load returned one of self or other"):
        layer.load_state_dict({"weight": m.zeros(1, 2)})


def test_module_load_by_itself(m: Any) -> None:
    x, other = m.zeros(2), m.ones(2)
    loaded = x.module_load(other)
    assert loaded is not x and loaded.data_ptr() == x.data_ptr() and x.tolist() == [1, 1]
    taken = x.module_load(other, assign=True)
    assert taken is not other and taken.data_ptr() == other.data_ptr()
