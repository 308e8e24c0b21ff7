"""Every option of gradcheck finds the fault that it is for, in the words of PyTorch (F58)."""
from __future__ import annotations

from typing import Any

import pytest
from helpers_engine import leaf

import adjoint as ad
from adjoint.autograd.gradcheck import gradcheck, gradgradcheck

Function = ad.autograd.Function


def function(backward: Any, forward: Any = None, jvp: Any = None) -> Any:
    """Twice the operand, with that backward."""
    body = {"forward": staticmethod(forward or (lambda ctx, x: x * 2)),
            "backward": staticmethod(backward)}
    return type("Double", (Function,), body | ({"jvp": staticmethod(jvp)} if jvp else {})).apply


right = function(lambda ctx, g: g * 2, jvp=lambda ctx, t: t * 2)
wrong = function(lambda ctx, g: g * 3, jvp=lambda ctx, t: t * 2)
x = leaf([1.0, 2.0])


@pytest.mark.parametrize("fast", [False, True])
def test_which_mode_is_checked(fast: bool) -> None:
    assert gradcheck(wrong, x, check_backward_ad=False, check_forward_ad=True, fast_mode=fast)
    with pytest.raises(RuntimeError, match="^Jacobian mismatch for output 0 with respect to"):
        gradcheck(wrong, x, fast_mode=fast)
    pushed_wrong = function(lambda ctx, g: g * 2, jvp=lambda ctx, t: t * 3)
    assert gradcheck(pushed_wrong, x, fast_mode=fast)
    with pytest.raises(RuntimeError, match="^Jacobian computed with forward mode mismatch for"):
        gradcheck(pushed_wrong, x, check_forward_ad=True, fast_mode=fast)
    assert not gradcheck(wrong, x, raise_exception=False, fast_mode=fast)


@pytest.mark.parametrize("fast", [False, True])
def test_both_modes_of_ops(fast: bool) -> None:
    z = ad.tensor([1 + 2j, 3 - 1j], dtype=ad.complex128, requires_grad=True)
    for f in (lambda t: t * t.conj(), lambda t: t.exp(), ad.view_as_real, abs):
        assert gradcheck(f, z, check_forward_ad=True, fast_mode=fast)
    for g in (lambda t: ad.complex(t, 2 * t), lambda t: (t.sin(), t.sum() * t)):
        assert gradcheck(g, x, check_forward_ad=True, check_batched_grad=True, fast_mode=fast)


def test_cotangents_that_come_together() -> None:
    own = function(lambda ctx, g: ad.from_numpy(g.numpy() * 2))
    assert gradcheck(own, x)
    with pytest.raises(RuntimeError, match="While computing batched gradients, got: "):
        gradcheck(own, x, check_batched_grad=True)
    with pytest.raises(RuntimeError, match="While computing batched gradients, got: "):
        gradcheck(own, x, check_batched_grad=True, fast_mode=True)
    assert gradgradcheck(ad.sin, x, check_batched_grad=True)


def test_tangents_that_come_together() -> None:
    assert gradcheck(lambda a, b: (a * b, a.sum()), (x, leaf([3.0, 4.0])), check_forward_ad=True,
                     check_batched_forward_grad=True)

    class Own(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return ad.from_numpy(t.numpy() * 2)
    assert gradcheck(Own.apply, x, check_forward_ad=True)
    with pytest.raises(RuntimeError, match="gradcheck failed while testing batched gradient"):
        gradcheck(Own.apply, x, check_forward_ad=True, check_batched_forward_grad=True)


def test_outputs_without_a_cotangent() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    def backward(ctx: Any, a: Any, b: Any) -> Any:
        if a is None and b is None:
            return ad.ones(2, dtype=ad.float64)
        return (0 if a is None else a * 2) + (0 if b is None else b * 3)
    assert gradcheck(function(backward, forward), x, check_undefined_grad=False)
    with pytest.raises(RuntimeError, match="Expected all input grads to be undefined or zero when"):
        gradcheck(function(backward, forward), x)
    with pytest.raises(RuntimeError, match="Expected backward function to handle undefined output"):
        gradcheck(function(lambda ctx, g: g * 2,
                           lambda ctx, x: (ctx.set_materialize_grads(False), x * 2)[1]), x)


def test_a_backward_that_is_not_linear() -> None:
    """It agrees with the Jacobian at the cotangents that probe it, and not at zeros."""
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2 if bool((g != 0).any()) else g + 1
    with pytest.raises(RuntimeError, match="backward not multiplied by grad_output"):
        gradcheck(function(backward), x)


def test_runs_that_differ() -> None:
    count = [0]

    def backward(ctx: Any, g: Any) -> Any:
        count[0] += 1
        return g * (2 + 1e-9 * (count[0] % 2))
    with pytest.raises(RuntimeError, match="Backward is not reentrant, i.e., running backward"):
        gradcheck(function(backward), x)
    assert gradcheck(function(backward), x, nondet_tol=1e-6)


def test_what_has_no_gradient_has_to_be_flat() -> None:
    assert gradcheck(lambda t: t.detach() * 0, x) and gradcheck(lambda t: t.argmax(), x)
    assert gradcheck(lambda t: (t * 2, t.detach() * 3), x) and gradcheck(lambda t: (), x)
    with pytest.raises(RuntimeError, match="^Numerical gradient for function expected to be zero"):
        gradcheck(lambda t: t.detach() * 2, x)


def test_sparse_operands() -> None:
    s = ad.eye(2, dtype=ad.float64).to_sparse().requires_grad_()
    dense = ad.ones(2, 2, dtype=ad.float64)
    (g,) = ad.autograd.grad((s.to_dense() ** 2).sum(), s)
    assert g.is_sparse and g.to_dense().tolist() == [[2.0, 0.0], [0.0, 2.0]]
    for masked in (True, False):
        assert gradcheck(lambda s: ad.sparse.mm(s, dense), s, masked=masked)
        assert gradgradcheck(lambda s: (s.to_dense() ** 3).sum(), s, masked=masked)
    with pytest.raises(ValueError, match="Sparse output is not supported at gradcheck yet"):
        gradcheck(lambda s: s * 2, s)


@pytest.mark.parametrize(("check", "options", "words"), [
    (gradcheck, {"check_backward_ad": False}, "at least one of check_forward_ad or check_backward"),
    (gradcheck, {"check_forward_ad": True, "check_backward_ad": False, "check_batched_grad": True},
     "check_batched_grad=True requires check_backward_ad"),
    (gradcheck, {"check_batched_forward_grad": True}, "requires check_forward_ad to be True"),
    (gradgradcheck, {"check_rev_over_rev": False}, "at least one of check_fwd_over_rev or"),
    (gradgradcheck, {"check_rev_over_rev": False, "check_fwd_over_rev": True},
     "check_undefined_grad=True requires check_rev_over_rev")])
def test_options_that_exclude_each_other(check: Any, options: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check(ad.sin, x, **options)


def test_second_order_by_either_mode() -> None:
    cut = function(lambda ctx, g: 3 * ctx.saved_tensors[0].detach() ** 2 * g,
                   lambda ctx, x: (ctx.save_for_backward(x), x ** 3)[1])
    assert gradcheck(cut, x)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradgradcheck(cut, x)
    assert gradgradcheck(ad.sin, x, check_fwd_over_rev=True, gen_non_contig_grad_outputs=True)
    assert gradgradcheck(ad.sin, x, check_fwd_over_rev=True, check_rev_over_rev=False,
                         check_undefined_grad=False, fast_mode=True)
