"""Mistakes about graphs: the class and the first words are PyTorch's, where both are asked the same
(F2-F5, F18, F21-F25, F51-F53)."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from helpers_engine import const, leaf

import adjoint as ad


def _function(t: Any, forward: Any, backward: Any = lambda ctx, g: g) -> Any:
    return type("Own", (t.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(backward)})


def _dirty(t: Any, returned: bool) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x if returned else x * 1
    return _function(t, forward).apply


def _leaf(t: Any) -> Any:
    return t.ones(2, requires_grad=True)


def _split(t: Any) -> Any:
    return (_leaf(t) * 1).split(1)[0].mul_(2)


def _overwritten(t: Any) -> Any:
    y = _leaf(t).exp()
    z = y * 2
    y.add_(1)
    return (z + y).sum().backward()


def _nested(t: Any) -> Any:
    from importlib import import_module
    fw = import_module(f"{t.__name__}.autograd.forward_ad")
    with fw.dual_level():
        fw.enter_dual_level()


def _dual(t: Any) -> Any:
    from importlib import import_module
    fw = import_module(f"{t.__name__}.autograd.forward_ad")
    with fw.dual_level():
        fw.make_dual(t.ones(2), t.ones(3))


def _checkpoint(t: Any, **options: Any) -> Any:
    from importlib import import_module
    return import_module(f"{t.__name__}.utils.checkpoint").checkpoint(
        lambda x: x, _leaf(t), use_reentrant=True, **options)


Program = Callable[[Any], Any]
MISTAKES: dict[str, tuple[Program, type[Exception], str]] = {
    "a function that is called": (
        lambda t: _function(t, lambda ctx, x: x)()(_leaf(t)), RuntimeError,
        "Legacy autograd function with non-static forward method is deprecated."),
    "marked dirty and kept back": (
        lambda t: _dirty(t, False)(_leaf(t) * 1), RuntimeError,
        "Some elements marked as dirty during the forward method were not returned as output. The "
        "inputs that are modified inplace must all be outputs of the Function"),
    "a leaf marked dirty": (
        lambda t: _dirty(t, True)(_leaf(t)), RuntimeError,
        "a leaf Variable that requires grad has been used in an in-place operation."),
    "one view of several written to": (
        _split, RuntimeError, "Output 0 of Split is a view and is being modified inplace."),
    "a saved result overwritten": (
        _overwritten, RuntimeError,
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [torch.FloatTensor [2]], which is output 0 of Exp, is at version 1"),
    "dual levels nested": (
        _nested, RuntimeError, "Nested forward mode AD is not supported at the moment"),
    "a tangent of another size": (
        _dual, RuntimeError, "Trying to set a forward gradient that has a different size than that "
        "of the original Tensor, this is not supported. Tensor is of size [2] while the given "
        "forward gradient is of size [3]."),
    "two names of cotangents": (
        lambda t: t.autograd.backward(_leaf(t).sum(), grad_tensors=t.ones(()),
                                      grad_variables=t.ones(())), RuntimeError,
        "`grad_tensors` and `grad_variables` (deprecated) arguments both passed"),
    "no tensor to differentiate by": (
        lambda t: t.autograd.grad(_leaf(t).sum(), "a"), RuntimeError,
        "all inputs have to be Tensors or GradientEdges, but got str"),
    "several hooks, one without gradient": (
        lambda t: t.autograd.graph.register_multi_grad_hook([t.ones(1)], print), AssertionError,
        "Expected gradient function to be set"),
    "a node with too few cotangents": (
        lambda t: (_leaf(t) * 2).grad_fn(), TypeError, ""),
    "several elements as a number": (
        lambda t: float(t.ones(2)), ValueError,
        "only one element tensors can be converted to Python scalars"),
    "an export that loses the gradient": (
        lambda t: _leaf(t).__dlpack__(), BufferError,
        "Can't export tensors that require gradient, use tensor.detach()"),
    "a checkpoint with keywords": (
        lambda t: _checkpoint(t, scale=2), ValueError, "Unexpected keyword arguments: scale"),
    "a checkpoint with contexts": (
        lambda t: _checkpoint(t, context_fn=lambda: (None, None)), ValueError,
        "Passing `context_fn` or `debug` is only supported when use_reentrant=False."),
}


def _fails(t: Any, program: Program, kind: type[Exception]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(kind) as caught:
            program(t)
    return str(caught.value)


@pytest.mark.parametrize("name", MISTAKES)
def test_first_words(name: str) -> None:
    program, kind, words = MISTAKES[name]
    assert _fails(ad, program, kind).startswith(words)


@pytest.mark.parametrize("name", MISTAKES)
def test_first_words_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    program, kind, words = MISTAKES[name]
    assert _fails(torch, program, kind).startswith(words)


WARNINGS: dict[str, tuple[Program, type[Warning], str]] = {
    "an instance of a function": (
        lambda t: _function(t, lambda ctx, x: x)(), DeprecationWarning,
        "<class '.*'> should not be instantiated. Methods on autograd functions are all static, so "
        "you should invoke them on the class itself"),
    "the old name of cotangents": (
        lambda t: t.autograd.backward(_leaf(t).sum(), grad_variables=t.ones(())), FutureWarning,
        "`grad_variables` is deprecated. Use `grad_tensors` instead."),
    "only_inputs": (
        lambda t: t.autograd.grad(_leaf(t).sum(), [x := _leaf(t)], only_inputs=False,
                                  allow_unused=True) and x, FutureWarning,
        "only_inputs argument is deprecated and is ignored now"),
    "a class decorated": (
        lambda t: t.no_grad()(type("Kind", (), {})), FutureWarning,
        "Decorating classes is deprecated and will be disabled in future versions. You should only "
        "decorate functions or methods"),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_warnings(name: str) -> None:
    program, kind, words = WARNINGS[name]
    with pytest.warns(kind, match=words):
        program(ad)


@pytest.mark.parametrize("name", WARNINGS)
def test_warnings_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    program, kind, words = WARNINGS[name]
    with pytest.warns(kind, match=words):
        program(torch)


def test_anomaly_mode_says_which_call_made_the_node() -> None:
    x = ad.zeros(2, requires_grad=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="returned nan values"), ad.autograd.detect_anomaly():
            (x.sqrt() * 0).sum().backward()
    text = str(seen[-1].message)
    assert text.startswith("Error detected in SqrtBackward0. Traceback of forward call that caused "
                           "the error:\n")
    assert __file__ in text and "(x.sqrt() * 0).sum().backward()" in text


def test_anomaly_mode_says_so_of_a_rule_that_raises() -> None:
    def backward(ctx: Any, g: Any) -> Any:
        raise KeyError("mine")
    apply = _function(ad, lambda ctx, x: x * 1, backward).apply
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(KeyError, match="mine"), ad.autograd.detect_anomaly():
            apply(ad.ones(1, requires_grad=True)).sum().backward()
    assert str(seen[-1].message).startswith("Error detected in OwnBackward.")


class TestNodes:
    """What a node answers (F2-F5)."""

    def test_called_it_gives_the_cotangents_of_its_operands(self) -> None:
        x, y = leaf([2.0, 3.0]), leaf([5.0, 7.0])
        node = (x * y).grad_fn
        found = node(ad.tensor([1.0, 10.0], dtype=ad.float64))
        assert [t.tolist() for t in found] == [[5.0, 70.0], [2.0, 30.0]]
        assert x.grad is None and found[0].requires_grad
        with ad.no_grad():
            assert not node(ad.ones(2, dtype=ad.float64))[0].requires_grad
        square = (x * x).grad_fn(ad.ones(2, dtype=ad.float64))
        assert [t.tolist() for t in square] == [[2.0, 3.0], [2.0, 3.0]]

    def test_one_operand_gives_one_tensor_and_a_broadcast_is_summed(self) -> None:
        x = leaf([1.0, 2.0])
        assert x.exp().grad_fn(const([1.0, 1.0])).tolist() == x.exp().tolist()
        both = (x + ad.ones(3, 2, dtype=ad.float64)).grad_fn(ad.ones(3, 2, dtype=ad.float64))
        assert both[0].tolist() == [3.0, 3.0] and both[1] is None

    def test_several_outputs(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        node = x.split([1, 2])[0].grad_fn
        found = node(None, ad.ones(2, dtype=ad.float64))
        assert found.tolist() == [0.0, 1.0, 1.0]
        with pytest.raises(TypeError, match="^SplitWithSizesBackward0: expected 2 arguments, got "
                                            "1 instead"):
            node(None)

    def test_custom_functions(self) -> None:
        own = _function(ad, lambda ctx, x, n: x * n, lambda ctx, g: (g * 3, None))
        x = leaf([1.0, 2.0])
        node = own.apply(x, 3).grad_fn
        assert [f for f, _ in node.next_functions] == [(x * 1).grad_fn.next_functions[0][0]]
        assert node(ad.ones(2, dtype=ad.float64))[0].tolist() == [3.0, 3.0]

    def test_what_it_is_given(self) -> None:
        x = leaf([[1.0, 2.0]])
        (only,) = x.sum(1).grad_fn._input_metadata
        assert (only.shape, only.dtype, only.device) == ((1,), ad.float64, ad.device("cpu"))
        first, second = x.unbind(1)[0].grad_fn._input_metadata
        assert first.shape == second.shape == (1,)

    def test_names(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 1
        y[0] = 5.0
        assert type(y.grad_fn).__name__ == "CopySlices"
        assert y.grad_fn.name() == "torch::autograd::CopySlices" and "<CopySlices>" in repr(y)
        assert "_raw_saved_other" in dir((x * x).grad_fn)
        assert x.sum(0).grad_fn._saved_self_sym_sizes == (2,)


def test_a_dual_tensor_shows_its_tangent() -> None:
    import adjoint.autograd.forward_ad as fw
    with fw.dual_level():
        assert repr(fw.make_dual(ad.ones(2), ad.tensor([1.0, 2.0]))) == \
            "tensor([1., 1.], tangent=tensor([1., 2.]))"
