"""Small things about graphs and hooks that programs for PyTorch ask for (F15)."""
from __future__ import annotations

from typing import Any

import pytest

import adjoint as ad


def leaf() -> Any:
    return ad.ones(3, requires_grad=True)


def test_every_node_is_one() -> None:
    node = (leaf() * 2).grad_fn
    end = node.next_functions[0][0]
    assert end.name() == "torch::autograd::AccumulateGrad"
    assert isinstance(node, ad.autograd.graph.Node) and isinstance(end, ad.autograd.graph.Node)
    assert node.requires_grad and end._sequence_nr() == 2**64 - 1 > node._sequence_nr()


def test_settings_of_streams_are_noted() -> None:
    ad.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    ad.autograd.graph.set_override_stale_capture_stream(True)
    t = leaf()
    t.sum().backward()
    assert t.grad.tolist() == [1.0] * 3


@pytest.mark.parametrize("index", [0, slice(1, 2), (0,)])
def test_a_part_of_a_leaf_is_a_view_of_it(index: Any) -> None:
    with pytest.raises(RuntimeError, match="^a view of a leaf Variable that requires grad is"):
        leaf()[index] = 1.0
    with pytest.raises(RuntimeError, match="^a leaf Variable that requires grad is"):
        leaf()[[0]] = 1.0


def test_memory_of_inference_tensors_is_not_exchanged_outside() -> None:
    with ad.inference_mode():
        t = ad.ones(2)
        t.set_(ad.zeros(1))
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside"):
        t.set_(ad.zeros(3))
    assert t.tolist() == [0.0]


def test_the_mode_that_grad_is_set_to_is_shown() -> None:
    assert repr(ad.set_grad_enabled(True)).endswith(
        ".autograd.grad_mode.set_grad_enabled(mode=True)")


def test_backward_hooks_of_modules() -> None:
    x, layer = ad.ones(1, 2, requires_grad=True), ad.nn.Linear(2, 2)
    handle = layer.register_full_backward_hook(lambda m, gi, go: (ad.ones(5, 5),))
    y = layer(x)
    assert y.grad_fn.name() == "BackwardHookFunctionBackward"
    with pytest.raises(RuntimeError, match="hook 'hook' has changed the size of value"):
        y.sum().backward()
    handle.remove()
    layer.zero_grad()
    layer.register_full_backward_pre_hook(lambda m, go: (go[0] * 10,))
    layer(x).sum().backward()
    assert layer.bias.grad.tolist() == [10.0, 10.0]


def test_hooks_may_be_marked() -> None:
    @ad.utils.hooks.unserializable_hook
    def hook(grad: Any) -> Any:
        return grad * 2
    t = leaf()
    t.register_hook(hook)
    t.sum().backward()
    assert t.grad.tolist() == [2.0] * 3 and hook.__torch_unserializable__
