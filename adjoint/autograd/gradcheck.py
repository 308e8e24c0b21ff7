"""gradcheck and gradgradcheck: analytic derivatives against central differences.

What they do is in `autograd.checking`, which loads with the first check.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.base.errors import AssertedError
from adjoint.base.errors import GradcheckError as GradcheckError


def _asserted(condition: bool, text: str) -> None:
    if not condition:
        raise AssertedError(text)


def gradcheck(func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5,
              rtol: float = 1e-3, raise_exception: bool = True, nondet_tol: float = 0.0,
              check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, check_batched_forward_grad: bool = False,
              check_forward_ad: bool = False, check_backward_ad: bool = True,
              fast_mode: bool = False, masked: bool | None = None) -> bool:
    """True if the derivatives of `func` agree with central differences at `inputs`.

    inputs  tensor or tuple; those that require grad are checked and must be float64/complex128
    eps     step of the differences; atol, rtol: |a - n| <= atol + rtol |n| for every entry
    nondet_tol            allowed difference of two backward runs
    check_undefined_grad  outputs without a cotangent have to give none, or zeros
    check_batched_grad, check_batched_forward_grad  `vmap` over derivatives gives what a loop does
    check_backward_ad, check_forward_ad  which of the two modes to check
    fast_mode   compares along random directions, the whole Jacobian only where that differs or
                something is complex
    masked      sparse operands are varied at their positions, not in every element
    `check_grad_dtypes` changes nothing: a gradient of another dtype is always refused.
    Raises GradcheckError naming output, input, index and both values (or returns False with
    `raise_exception=False`).

    >>> import adjoint as ad
    >>> x = ad.randn(3, dtype=ad.float64, requires_grad=True)
    >>> ad.autograd.gradcheck(lambda t: t.exp() * t, x)
    True
    """
    _asserted(check_forward_ad or check_backward_ad,
              "Expected at least one of check_forward_ad or check_backward_ad to be True")
    _asserted(not check_batched_grad or check_backward_ad,
              "Setting check_batched_grad=True requires check_backward_ad to be True")
    _asserted(not check_batched_forward_grad or check_forward_ad,
              "Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    from adjoint.autograd import checking
    return checking.run(func, inputs, eps=eps, atol=atol, rtol=rtol,
                        raise_exception=raise_exception, nondet_tol=nondet_tol,
                        undefined=check_undefined_grad, batched=check_batched_grad,
                        batched_forward=check_batched_forward_grad, forward=check_forward_ad,
                        backward=check_backward_ad, fast=fast_mode, masked=bool(masked))


def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *,
                  eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True,
                  nondet_tol: float = 0.0, check_undefined_grad: bool = True,
                  check_grad_dtypes: bool = False, check_batched_grad: bool = False,
                  check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
                  fast_mode: bool = False, masked: bool = False) -> bool:
    """`gradcheck` of the gradient of `func`: finds a backward that cannot be differentiated, or
    whose derivative is wrong. `check_fwd_over_rev` and `check_rev_over_rev` say by which mode.

    >>> import adjoint as ad
    >>> x = ad.randn(3, dtype=ad.float64, requires_grad=True)
    >>> ad.autograd.gradgradcheck(lambda t: t ** 3, x)
    True
    """
    _asserted(check_fwd_over_rev or check_rev_over_rev,
              "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    _asserted(not (check_undefined_grad and not check_rev_over_rev),
              "Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    _asserted(not (check_batched_grad and not check_rev_over_rev),
              "Setting check_batched_grad=True requires check_rev_over_rev to be True")
    from adjoint.autograd import checking
    gradient, given = checking.of_gradient(func, inputs, grad_outputs, masked,
                                           gen_non_contig_grad_outputs)
    return gradcheck(gradient, given, eps=eps, atol=atol, rtol=rtol,
                     raise_exception=raise_exception, nondet_tol=nondet_tol,
                     check_undefined_grad=check_undefined_grad,
                     check_batched_grad=check_batched_grad, fast_mode=fast_mode,
                     check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev)
