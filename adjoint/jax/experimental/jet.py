"""`jax.experimental.jet`: the Taylor series of a function along a curve.

f(x(t)) is differentiated n times at t = 0 by forward mode in forward mode, all orders in one run.
Each op's work doubles with every order, where a propagation of series would take n squared; to
order 4 or so this is no more.
Source: A. Griewank, A. Walther, "Evaluating Derivatives" (2008), ch. 13; J. Bettencourt,
M. Johnson, D. Duvenaud, "Taylor-mode automatic differentiation for higher-order derivatives in JAX"
(2019).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._transforms import jvp as _jvp
from adjoint.jax.tree_util import tree_map as _tree_map
from adjoint.jax.tree_util import tree_structure as _structure


def jet(fun: Callable[..., Any], primals: Sequence[Any], series: Sequence[Sequence[Any]],
        factorial_scaled: bool = True, **_: Any) -> tuple[Any, Any]:
    """(fun(*primals), terms): the derivatives of fun(x(t)) at 0 of orders 1 to n, a list of them
    for each array of the output.

    series  per argument, the n derivatives of x(t) at 0, each like the argument; with
            factorial_scaled=False both are coefficients, derivatives over k!

    ValueError where an argument's terms are not like it, or their number differs.

    >>> from adjoint import jax
    >>> from adjoint.jax.experimental.jet import jet
    >>> jet(lambda x: x ** 3, (2.0,), ((1.0, 0.0),))
    (Array(8., dtype=float32, weak_type=True), [Array(12., dtype=float32...), Array(12., ...)])
    """
    orders = {len(terms) for terms in series}
    if len(primals) != len(series) or len(orders) != 1:
        raise ValueError(f"jet terms have inconsistent lengths for different arguments: "
                         f"{len(primals)} arguments, series of {[len(s) for s in series]} terms")
    for i, (p, terms) in enumerate(zip(primals, series, strict=True)):
        for t in terms:
            if _structure(t) != _structure(p):
                raise ValueError(f"primal argument at position {i} has structure {_structure(p)}, "
                                 f"a term of its series {_structure(t)}")
    n = orders.pop()
    scales = [math.factorial(k) if factorial_scaled else 1 for k in range(n + 1)]

    def moved(t: Any, p: Any, terms: Sequence[Any]) -> Any:
        def one(x: Any, *cs: Any) -> Any:
            a = _as_array(x)
            y = sum((t ** k * c / scales[k] for k, c in enumerate(cs, 1)), a)
            return y if y.dtype == a.dtype else y.astype(a.dtype)
        return _tree_map(one, p, *terms)

    def orders_to(k: int, t: Any) -> tuple[Any, ...]:
        if k == 0:
            return (fun(*[moved(t, p, s) for p, s in zip(primals, series, strict=True)]),)
        values, tangents = _jvp(lambda v: orders_to(k - 1, v), (t,), (1.0,))
        return (*values, tangents[-1])
    first, *rest = orders_to(n, 0.0)
    if not factorial_scaled:
        rest = [_tree_map(lambda x, k=k: x / math.factorial(k), y) for k, y in enumerate(rest, 1)]
    return first, _tree_map(lambda *terms: list(terms), *rest) if rest else []


__all__ = ["jet"]
__getattr__ = _missing("adjoint.jax.experimental.jet")
