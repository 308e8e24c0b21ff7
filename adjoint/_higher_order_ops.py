"""`torch._higher_order_ops`: branches and loops under PyTorch's names and argument orders.

They run as the Python loops of `func.control`, so every transform goes through them, and nothing is
compiled: functions may do what PyTorch's compiler refuses (return an operand, change Python state).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.base.tree import tree_map
from adjoint.core.tensor import Tensor
from adjoint.func import control

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any],
         operands: Any = ()) -> Any:
    """true_fn(*operands) if `pred`, a bool or a tensor of one element, else false_fn(*operands).

    >>> import adjoint as ad
    >>> ad.cond(True, lambda x: x + 1, lambda x: x - 1, (ad.zeros(2),))
    tensor([1., 1.])
    """
    if not isinstance(pred, (bool, int, float, Tensor)):
        raise ArgumentError(f"Expected pred to be bool or tensor, but got {pred}.")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise ArgumentError("Expected pred to be bool or single-element tensor, but got "
                            f"{pred}; reduce it with any() or all()")
    return control.cond(pred, true_fn, false_fn, *operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any
               ) -> tuple[Any, ...]:
    """Repeat `carried = body_fn(*carried)` while `cond_fn(*carried)` holds; the last `carried`.

    >>> import adjoint as ad
    >>> ad.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, 2 * x), (ad.tensor(0), ad.ones(1)))
    (tensor(3), tensor([8.]))
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise ArgumentError("Expect cond_fn and body_fn to be callable, got "
                            f"{type(cond_fn).__name__} and {type(body_fn).__name__}")
    if not isinstance(carried_inputs, (tuple, list)):
        raise ArgumentError("Expect operands to be a tuple of possibly nested dict/list/tuple that "
                            f"only consists of tensor or int leaves, got {carried_inputs}.")
    last: tuple[Any, ...] = control.while_loop(lambda v: cond_fn(*v), lambda v: tuple(body_fn(*v)),
                                               tuple(carried_inputs))
    return last


def scan(combine_fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, dim: int = 0,
         reverse: bool = False) -> tuple[Any, Any]:
    """(carry, y) = combine_fn(carry, x) along axis `dim` of the leaves of `xs`: the last carry, and
    all y stacked along that axis.

    >>> import adjoint as ad
    >>> scan(lambda c, x: (c + x, c * x), ad.tensor(0.0), ad.tensor([1.0, 2.0, 3.0]))
    (tensor(6.), tensor([0., 2., 9.]))
    """
    moved = tree_map(lambda x: x.movedim(dim, 0), xs)
    last, ys = control.scan(lambda c, x: tuple(combine_fn(c, x)), init, moved, reverse=reverse)
    return last, tree_map(lambda y: y.movedim(0, dim), ys)


def associative_scan(combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int,
                     reverse: bool = False, combine_mode: str = "pointwise") -> Any:
    """All prefixes of an associative operation along axis `dim` of the leaves of `xs`. Both combine
    modes run the same way: `combine_fn` gets many pairs at once, along a first axis.

    >>> import adjoint as ad
    >>> associative_scan(lambda a, b: a * b, ad.tensor([1.0, 2.0, 3.0]), 0)
    tensor([1., 2., 6.])
    """
    if not callable(combine_fn):
        raise ArgumentError(f"Combine_fn must be a callable, but got {combine_fn}")
    if combine_mode not in ("pointwise", "generic"):
        raise ArgumentError("Combine_mode must either 'pointwise' or 'generic', but got "
                            f"{combine_mode}")
    return control.associative_scan(combine_fn, xs, reverse, dim)


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`f(x, *args)` of every entry x along the first axis of the leaves of `xs`, stacked.

    >>> import adjoint as ad
    >>> map(lambda x, y: x + y, ad.zeros(2, 1), ad.ones(1))
    tensor([[1.],
            [1.]])
    """
    return control.map_(lambda x: f(x, *args), xs)
