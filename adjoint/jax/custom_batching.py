"""`jax.custom_batching`: functions whose behaviour under `vmap` is written by hand."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper, wraps
from typing import Any

import numpy as _np

from adjoint import func as _func
from adjoint.base.errors import missing as _missing
from adjoint.base.tree import unflatten as _unflatten
from adjoint.func.rules import Rule as _Rule
from adjoint.func.rules import call_rule as _call_rule
from adjoint.func.rules import is_variable as _is_variable
from adjoint.func.rules import transpose as _transpose
from adjoint.jax._flat import Flat as _Flat
from adjoint.jax._flat import Leaves as _Leaves
from adjoint.jax.tree_util import PyTreeDef as _PyTreeDef
from adjoint.jax.tree_util import flat as _flat

F = Callable[..., Any]


def _in_front(t: Any, size: int) -> Any:
    return t.unsqueeze(0).expand(size, *t.shape)


def _pushed(run: F, primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """The tangents of a function of tensors, of which the integers do not move."""
    at = [i for i, p in enumerate(primals) if _is_variable(p)]

    def of(*moving: Any) -> Any:
        full = list(primals)
        for i, m in zip(at, moving, strict=True):
            full[i] = m
        return tuple(run(*full))
    return list(_func.jvp(of, tuple(primals[i] for i in at), tuple(tangents[i] for i in at))[1])


class _Mapped(_Rule):
    """A function of tensors, and what it is under vmap: `batch(size, mask, *tensors)`."""

    native = False

    def __init__(self, run: F, batch: F) -> None:
        super().__init__(run, self._push, self._pull)
        self.batch = batch

    def batched(self, trace: Any, mask: Sequence[bool]) -> _Rule:
        """The rule by hand, below the vmap."""
        def run(*ts: Any) -> Any:
            return self.batch(trace.size, mask, *ts)
        return _Rule(run, lambda p, t: _pushed(run, p, t), lambda p, cts: _pulled(run, p, cts))

    def _push(self, primals: Any, tangents: Any) -> Any:
        n = len(primals)

        def batch(size: int, mask: Sequence[bool], *ts: Any) -> Any:
            both = [a or b for a, b in zip(mask[:n], mask[n:], strict=True)]
            full = [t if m or not b else _in_front(t, size)
                    for t, m, b in zip(ts, mask, both * 2, strict=True)]
            return _pushed(lambda *p: self.batch(size, both, *p), full[:n], full[n:])
        return _call_rule(_Mapped(lambda *ts: _pushed(self.run, ts[:n], ts[n:]), batch),
                          [*primals, *tangents])

    def _pull(self, primals: Any, cts: Any) -> Any:
        return _pulled(self.run, primals, cts)


def _pulled(run: F, primals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    return _transpose(lambda *ts: tuple(run(*ts)), primals, cts)


class custom_vmap:
    """A function with a rule for `vmap`: `f.def_vmap(rule)`.

    rule(axis_size, in_batched, *args) -> (output, out_batched): the arguments that `in_batched`
    (trees of truth values like the arguments) marks have the mapped axis in front. Derivatives are
    those of the function and of the rule.

    >>> from adjoint import jax
    >>> @jax.custom_batching.custom_vmap
    ... def f(x):
    ...     return x + 1
    >>> rule = f.def_vmap(lambda size, in_batched, xs: (xs * 10, True))
    >>> jax.vmap(f)(jax.numpy.arange(3))
    Array([ 0, 10, 20], dtype=int32)
    """

    __name__: str

    def __init__(self, fun: F) -> None:
        update_wrapper(self, fun)
        self.fun = fun
        self.vmap_rule: F | None = None

    def def_vmap(self, vmap_rule: F) -> F:
        """Set the rule, and give it back."""
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        flatly = _Flat(lambda a, k: self.fun(*a, **k), (args, kwargs))
        found = _call_rule(_Mapped(lambda *ts: tuple(flatly(*ts)), lambda size, mask, *ts: self._by(
            flatly, size, mask, ts)), flatly.given.tensors)
        return flatly.out.tree(found)

    def _by(self, flatly: _Flat, size: int, mask: Sequence[bool], ts: Sequence[Any]) -> Any:
        if self.vmap_rule is None:
            raise AttributeError(f"No batching rule defined for custom_vmap function "
                                 f"{self.__name__} using def_vmap.")
        args, kwargs = flatly.given.tree(ts)
        flags = _unflatten(list(mask), flatly.given.spec)
        if kwargs:
            raise TypeError(f"{self.__name__}: a function with a rule for vmap takes its arguments "
                            "by position")
        found, out_batched = self.vmap_rule(size, list(flags[0]), *args)
        flatly.out = _Leaves(found, "Output")
        marks, spec = _flat(out_batched)
        if spec != flatly.out.spec or not all([isinstance(m, (bool, _np.bool_)) for m in marks]):
            raise ValueError("structure of output value and output batching specification returned "
                             f"by custom vmap rule ({getattr(self.vmap_rule, '__name__', 'rule')}) "
                             f"do not match.\nOutput values: {flatly.out.treedef}\nBatching spec: "
                             f"{_PyTreeDef(spec)}")
        return tuple(t if m else _in_front(t, size)
                     for t, m in zip(flatly.out.tensors, marks, strict=True))


def sequential_vmap(f: F) -> custom_vmap:
    """A function that `vmap` runs example after example, by `jax.lax.map`."""
    from adjoint.jax.lax import map as one_by_one
    made = custom_vmap(f)

    @made.def_vmap
    @wraps(f)
    def rule(axis_size: int, in_batched: Sequence[Any], *args: Any) -> Any:
        leaves, spec = _flat(tuple(args))
        marks, _ = _flat(tuple(in_batched))
        moving = [x for x, m in zip(leaves, marks, strict=True) if m]

        def one(rows: Any) -> Any:
            rest = iter(rows)
            return f(*_unflatten([next(rest) if m else x for x, m in zip(
                leaves, marks, strict=True)], spec))
        out = one_by_one(one, moving)
        found = _Leaves(out)
        return out, _unflatten([True] * len(found.arrays), found.spec)
    return made


__all__ = ["custom_vmap", "sequential_vmap"]
__getattr__ = _missing("adjoint.jax.custom_batching")
