"""Code from outside (NumPy, SciPy, numba, ctypes) as a differentiable function.

The code runs on plain arrays; its derivative is what its author says. Reverse mode, forward mode
and vmap work from the given rules.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

import numpy as np

from adjoint.autograd.modes import no_grad
from adjoint.base.aval import MetaArray
from adjoint.base.errors import ArgumentError, NotSupported, ShapeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.func.reverse import as_tensor
from adjoint.func.rules import Rule, call_rule

Code = Callable[..., Any]


def _many(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _one(xs: Sequence[Any]) -> Any:
    """A single cotangent or tangent as itself, several as a tuple."""
    return xs[0] if len(xs) == 1 else tuple(xs)


def _looped(code: Code, mask: Sequence[bool], size: int, vectorized: bool) -> Code:
    """`code` of one example on `size` of them; operands outside of `mask` are shared."""
    def run(*xs: Any) -> Any:
        if vectorized:
            return code(*[x if m else np.broadcast_to(x, (size, *x.shape))
                          for x, m in zip(xs, mask, strict=True)])
        rows = [_many(code(*[x[i, ...] if m else x for x, m in zip(xs, mask, strict=True)]))
                for i in range(size)]
        return tuple(np.stack([np.asarray(v) for v in column])
                     for column in zip(*rows, strict=True))
    return run


class _External(Rule):
    """Plain-array code; its rules are external code in turn, without rules of their own."""

    native = False

    def __init__(self, name: str, code: Code, vjp: Code | None = None, jvp: Code | None = None,
                 vectorized: bool = False) -> None:
        super().__init__(self._run, self._push, self._pull)
        self.name, self.code, self.vjp, self.jvp = name, code, vjp, jvp
        self.vectorized = vectorized

    def _run(self, *ts: Any) -> tuple[Any, ...]:
        if any(isinstance(t.array, MetaArray) for t in ts):      # ones tell the shapes
            with no_grad():
                outs = _many(self.code(*[np.ones(t.array.shape, t.array.dtype) for t in ts]))
            kinds = [np.asarray(o.array if isinstance(o, Tensor) else o) for o in outs]
            return tuple(wrap(MetaArray(k.shape, k.dtype)) for k in kinds)
        with no_grad():
            outs = _many(self.code(*[t.array for t in ts]))
        return tuple(wrap(np.array(o.array if isinstance(o, Tensor) else o)) for o in outs)

    def batched(self, trace: Any, mask: Sequence[bool]) -> Rule:
        """The same code on the values below a vmap."""
        below = super().batched(trace, mask)
        code = _looped(self.code, mask, trace.size, self.vectorized)
        made = _External(self.name, code, vectorized=False)
        made.push, made.pull = below.push, below.pull
        return made

    def _push(self, primals: Any, tangents: Any) -> Any:
        n, rule = len(primals), self.jvp
        if rule is None:
            raise NotSupported(f"{self.name}: forward mode needs a rule for this external code: "
                               "from_callable(..., jvp=rule), where the rule is not itself being "
                               "differentiated; or use reverse mode")

        def code(*v: Any) -> Any:
            return rule(_one(v[n:]), *v[:n])
        inner = _External(f"{self.name} (jvp rule)", code, vectorized=self.vectorized)
        return call_rule(inner, [*primals, *tangents])

    def _pull(self, primals: Any, cts: Any) -> Any:
        n, rule = len(primals), self.vjp
        if rule is None:
            raise NotSupported(f"{self.name}: reverse mode needs a rule for this external code: "
                               "from_callable(..., vjp=rule), where the rule is not itself being "
                               "differentiated; or use forward mode")

        def code(*v: Any) -> Any:
            found = _many(rule(_one(v[n:]), *v[:n]))
            if len(found) != n:
                raise ArgumentError(f"{self.name}: the vjp rule returned {len(found)} cotangents "
                                    f"for {n} arguments")
            return tuple(_checked(self.name, i, c, x)
                         for i, (c, x) in enumerate(zip(found, v[:n], strict=True)))
        inner = _External(f"{self.name} (vjp rule)", code, vectorized=self.vectorized)
        return call_rule(inner, [*primals, *cts])


def _checked(name: str, i: int, ct: Any, x: Any) -> Any:
    if ct is None:
        return np.zeros_like(x)
    ct = np.asarray(ct)
    if ct.shape != x.shape:
        raise ShapeError(f"{name}: the vjp rule returned a cotangent of shape {list(ct.shape)} for "
                         f"argument {i} of shape {list(x.shape)}; they must be equal")
    return ct.astype(x.dtype, copy=False)


def from_callable(code: Code, vjp: Code | None = None, jvp: Code | None = None, *,
                  vectorized: bool = False) -> Callable[..., Any]:
    """Code on NumPy arrays as a differentiable function of tensors (F56).

    code        (*arrays) -> array or a tuple of arrays; must not write to its arguments
    vjp         (cotangent, *arrays) -> cotangents of the arrays (one, or a tuple; None: zero);
                the cotangent is a tuple where the code has several outputs
    jvp         (tangent, *arrays) -> tangents of the outputs; the tangent is a tuple where the code
                has several arguments
    vectorized  the code and its rules take any number of axes in front of every argument, so vmap
                calls them once; otherwise vmap calls them once per example

    First derivatives only: what the rules compute is not known to be differentiable, and a second
    derivative raises NotSupported. To give one, build the rule of `custom_vjp` from functions made
    by from_callable. Where there are shapes alone (device meta), the code is called on ones to
    learn those of its outputs.

    >>> import numpy as np
    >>> import adjoint as ad
    >>> sinc = ad.func.from_callable(np.sinc, vjp=lambda ct, x: ct * (np.cos(np.pi * x) / x
    ...                                                              - np.sinc(x) / x))
    >>> round(ad.func.grad(sinc)(ad.tensor(0.5, dtype=ad.float64)).item(), 4)
    -1.2732
    """
    name = getattr(code, "__name__", type(code).__name__)
    rule = _External(name, code, vjp, jvp, vectorized)

    def run(*args: Any) -> Any:
        return _one(call_rule(rule, [as_tensor(a, name) for a in args]))
    return update_wrapper(run, code) if hasattr(code, "__name__") else run


__all__ = ["from_callable"]
